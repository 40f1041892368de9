//! How long what was granted has to live: when to renew, when to wait, when to stop.
//!
//! Promise: after a refusal nothing is asked again until a person acts; after trouble on the way the pauses grow.

use sluice_core::{Span, Timestamp};

/// How long before its end a token is renewed.
const AHEAD: Span = Span::from_mins(5);
/// What must be left of a token that could not be renewed for it to be used all the same.
const LAST: Span = Span::from_secs(30);
/// A token given so lately is not the one a job was refused with: somebody else has renewed it meanwhile.
const YOUNG: Span = Span::from_mins(1);
const FIRST_PAUSE: Span = Span::from_secs(30);
const LONGEST_PAUSE: Span = Span::from_mins(15);

/// What is known about one grant, in this life of the gateway.
#[derive(Debug, Default)]
pub(super) struct Lived {
    /// When the access token was given and when it ends; nothing where that is not known.
    token: Option<(Timestamp, Timestamp)>,
    /// Not before then, after so many failures in a row.
    paused: Option<(Timestamp, u32)>,
    is_refused: bool,
}

/// What to do about it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Use it.
    Fresh,
    /// Renew it.
    Renew,
    /// Wait: the provider could not be reached a moment ago.
    NotYet,
    /// Leave it to a person.
    Refused,
}

impl Lived {
    pub(super) fn standing(&self, now: Timestamp) -> Standing {
        let left = |least: Span| self.token.is_some_and(|(given, ends)| given <= now && now + least < ends);
        match (self.is_refused, self.paused) {
            (true, _) => Standing::Refused,
            (false, _) if left(self.ahead()) => Standing::Fresh,
            (false, Some((until, _))) if now < until => {
                if left(LAST) {
                    Standing::Fresh
                } else {
                    Standing::NotYet
                }
            }
            (false, _) => Standing::Renew,
        }
    }

    /// Tokens that live only minutes are renewed when a fifth of their life is left.
    fn ahead(&self) -> Span {
        let life = self.token.map_or(Span::ZERO, |(given, ends)| ends.since(given));
        AHEAD.min(Span::from_millis(life.as_millis() / 5))
    }

    pub(super) fn renewed(&mut self, now: Timestamp, lasts: Span) {
        *self = Self { token: Some((now, now + lasts)), paused: None, is_refused: false };
    }

    pub(super) fn refused(&mut self) {
        *self = Self { token: None, paused: None, is_refused: true };
    }

    /// The way there is broken. Gives whether the token at hand still works for a moment.
    pub(super) fn failed(&mut self, now: Timestamp) -> bool {
        let failures = self.paused.map_or(0, |(_, failures)| failures);
        let pause = FIRST_PAUSE.as_millis().saturating_mul(1 << failures.min(10));
        self.paused = Some((now + Span::from_millis(pause).min(LONGEST_PAUSE), failures.saturating_add(1)));
        self.standing(now) == Standing::Fresh
    }

    /// The service does not take the token: it counts as ended, unless it is another one by now.
    pub(super) fn rejected(&mut self, now: Timestamp) {
        self.token = self.token.filter(|(given, _)| now.since(*given) < YOUNG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_hours(1);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000) + Span::from_secs(secs)
    }

    #[test]
    fn a_token_is_renewed_five_minutes_before_its_end() {
        let mut lived = Lived::default();
        assert_eq!(lived.standing(at(0)), Standing::Renew, "nothing is known yet");
        lived.renewed(at(0), HOUR);
        assert_eq!(lived.standing(at(3299)), Standing::Fresh);
        assert_eq!(lived.standing(at(3300)), Standing::Renew);
    }

    #[test]
    fn a_token_of_a_minute_is_not_renewed_all_the_time() {
        let mut lived = Lived::default();
        lived.renewed(at(0), Span::from_mins(1));
        assert_eq!(lived.standing(at(47)), Standing::Fresh);
        assert_eq!(lived.standing(at(48)), Standing::Renew);
    }

    #[test]
    fn after_trouble_the_token_is_used_to_its_end_and_the_pauses_grow() {
        let mut lived = Lived::default();
        lived.renewed(at(0), HOUR);
        assert!(lived.failed(at(3400)), "it still works");
        assert_eq!(lived.standing(at(3420)), Standing::Fresh);
        assert_eq!(lived.standing(at(3430)), Standing::Renew, "the first pause is over");
        assert!(!lived.failed(at(3590)), "too little is left");
        assert_eq!(lived.standing(at(3590 + 59)), Standing::NotYet);
        assert_eq!(lived.standing(at(3590 + 60)), Standing::Renew);
        for _ in 0..100 {
            lived.failed(at(4000));
        }
        assert_eq!(lived.standing(at(4000 + 899)), Standing::NotYet);
        assert_eq!(lived.standing(at(4000 + 900)), Standing::Renew);
    }

    #[test]
    fn what_was_refused_stays_so_until_it_is_granted_anew() {
        let mut lived = Lived::default();
        lived.refused();
        assert_eq!(lived.standing(at(1_000_000)), Standing::Refused);
        lived.renewed(at(1_000_000), HOUR);
        assert_eq!(lived.standing(at(1_000_000)), Standing::Fresh);
    }

    #[test]
    fn of_several_jobs_that_were_refused_with_one_token_the_first_has_it_renewed() {
        let mut lived = Lived::default();
        lived.renewed(at(0), HOUR);
        lived.rejected(at(600));
        assert_eq!(lived.standing(at(600)), Standing::Renew);
        lived.renewed(at(601), HOUR);
        lived.rejected(at(602));
        assert_eq!(lived.standing(at(602)), Standing::Fresh, "the other job had the token before");
        lived.rejected(at(700));
        assert_eq!(lived.standing(at(700)), Standing::Renew);
    }

    #[test]
    fn a_clock_put_back_does_not_keep_a_token_alive() {
        let mut lived = Lived::default();
        lived.renewed(at(1000), HOUR);
        assert_eq!(lived.standing(at(0)), Standing::Renew);
    }
}
