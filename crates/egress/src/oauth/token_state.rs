//! Token lifetimes: when to renew, when to wait, and when to stop.
//!
//! Promise: after a refusal no renewal is tried until a person acts; after errors the pauses grow.

use sluice_core::{Millis, UtcMillis};

/// How long before its end a token is renewed.
const AHEAD: Millis = Millis::from_mins(5);
/// The least remaining lifetime with which a token that could not be renewed is still used.
const LAST: Millis = Millis::from_secs(30);
/// A token younger than this is not the one that a job was refused with: it was renewed meanwhile.
const YOUNG: Millis = Millis::from_mins(1);
const FIRST_PAUSE: Millis = Millis::from_secs(30);
const LONGEST_PAUSE: Millis = Millis::from_mins(15);

/// What this process knows about one grant.
#[derive(Debug, Default)]
pub(super) struct TokenState {
    /// When the access token was issued and when it expires; nothing if unknown.
    token: Option<(UtcMillis, UtcMillis)>,
    /// Until when renewals pause, and the number of failures in a row.
    paused: Option<(UtcMillis, u32)>,
    is_refused: bool,
}

/// What to do about the token now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenStanding {
    /// Use the token.
    Fresh,
    /// Renew the token.
    Renew,
    /// Wait: the provider could not be reached a moment ago.
    NotYet,
    /// Leave it to a person.
    Refused,
}

impl TokenState {
    pub(super) fn standing(&self, now: UtcMillis) -> TokenStanding {
        let left = |least: Millis| self.token.is_some_and(|(given, ends)| given <= now && now + least < ends);
        match (self.is_refused, self.paused) {
            (true, _) => TokenStanding::Refused,
            (false, _) if left(self.ahead()) => TokenStanding::Fresh,
            (false, Some((until, _))) if now < until => {
                if left(LAST) {
                    TokenStanding::Fresh
                } else {
                    TokenStanding::NotYet
                }
            }
            (false, _) => TokenStanding::Renew,
        }
    }

    /// How long before its end the token is renewed: a short-lived token when a fifth of its lifetime is left.
    fn ahead(&self) -> Millis {
        let life = self.token.map_or(Millis::ZERO, |(given, ends)| ends.since(given));
        AHEAD.min(Millis::from_millis(life.as_millis() / 5))
    }

    pub(super) fn mark_renewed(&mut self, now: UtcMillis, lasts: Millis) {
        *self = Self { token: Some((now, now + lasts)), paused: None, is_refused: false };
    }

    pub(super) fn mark_refused(&mut self) {
        *self = Self { token: None, paused: None, is_refused: true };
    }

    /// Notes a failed renewal. Returns whether the current token is still valid for a moment.
    pub(super) fn mark_failed(&mut self, now: UtcMillis) -> bool {
        let failures = self.paused.map_or(0, |(_, failures)| failures);
        let pause = FIRST_PAUSE.as_millis().saturating_mul(1 << failures.min(10));
        self.paused = Some((now + Millis::from_millis(pause).min(LONGEST_PAUSE), failures.saturating_add(1)));
        self.standing(now) == TokenStanding::Fresh
    }

    /// Notes that the service refuses the token: it counts as expired, unless it was renewed meanwhile.
    pub(super) fn mark_rejected(&mut self, now: UtcMillis) {
        self.token = self.token.filter(|(given, _)| now.since(*given) < YOUNG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = Millis::from_hours(1);

    fn at(secs: u64) -> UtcMillis {
        UtcMillis::from_millis(1_790_000_000_000) + Millis::from_secs(secs)
    }

    #[test]
    fn a_token_is_renewed_five_minutes_before_its_end() {
        let mut lived = TokenState::default();
        assert_eq!(lived.standing(at(0)), TokenStanding::Renew, "nothing is known yet");
        lived.mark_renewed(at(0), HOUR);
        assert_eq!(lived.standing(at(3299)), TokenStanding::Fresh);
        assert_eq!(lived.standing(at(3300)), TokenStanding::Renew);
    }

    #[test]
    fn a_token_of_a_minute_is_not_renewed_all_the_time() {
        let mut lived = TokenState::default();
        lived.mark_renewed(at(0), Millis::from_mins(1));
        assert_eq!(lived.standing(at(47)), TokenStanding::Fresh);
        assert_eq!(lived.standing(at(48)), TokenStanding::Renew);
    }

    #[test]
    fn after_trouble_the_token_is_used_to_its_end_and_the_pauses_grow() {
        let mut lived = TokenState::default();
        lived.mark_renewed(at(0), HOUR);
        assert!(lived.mark_failed(at(3400)), "it still works");
        assert_eq!(lived.standing(at(3420)), TokenStanding::Fresh);
        assert_eq!(lived.standing(at(3430)), TokenStanding::Renew, "the first pause is over");
        assert!(!lived.mark_failed(at(3590)), "too little is left");
        assert_eq!(lived.standing(at(3590 + 59)), TokenStanding::NotYet);
        assert_eq!(lived.standing(at(3590 + 60)), TokenStanding::Renew);
        for _ in 0..100 {
            lived.mark_failed(at(4000));
        }
        assert_eq!(lived.standing(at(4000 + 899)), TokenStanding::NotYet);
        assert_eq!(lived.standing(at(4000 + 900)), TokenStanding::Renew);
    }

    #[test]
    fn what_was_refused_stays_so_until_it_is_granted_anew() {
        let mut lived = TokenState::default();
        lived.mark_refused();
        assert_eq!(lived.standing(at(1_000_000)), TokenStanding::Refused);
        lived.mark_renewed(at(1_000_000), HOUR);
        assert_eq!(lived.standing(at(1_000_000)), TokenStanding::Fresh);
    }

    #[test]
    fn of_several_jobs_that_were_refused_with_one_token_the_first_has_it_renewed() {
        let mut lived = TokenState::default();
        lived.mark_renewed(at(0), HOUR);
        lived.mark_rejected(at(600));
        assert_eq!(lived.standing(at(600)), TokenStanding::Renew);
        lived.mark_renewed(at(601), HOUR);
        lived.mark_rejected(at(602));
        assert_eq!(lived.standing(at(602)), TokenStanding::Fresh, "the other job had the token before");
        lived.mark_rejected(at(700));
        assert_eq!(lived.standing(at(700)), TokenStanding::Renew);
    }

    #[test]
    fn a_clock_put_back_does_not_keep_a_token_alive() {
        let mut lived = TokenState::default();
        lived.mark_renewed(at(1000), HOUR);
        assert_eq!(lived.standing(at(0)), TokenStanding::Renew);
    }
}
