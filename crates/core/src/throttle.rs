//! How often the outside is asked: limits per minute and hour, a burn limit, and a breaker.
//!
//! Takes what was counted and the time; gives leave for one more request, or why not and until when. Promise:
//! so many refusals in a row (429; three unless configured) open the breaker for 30 s, doubling up to 15 min, never
//! shorter than the service asked for; while it is half open, exactly one request may try whether the service takes
//! requests again. A write may be that one: a service that answers 429 has not applied it.

use crate::clock::{Span, Timestamp};

/// The longest a service can make us wait.
pub const LONGEST_ASKED: Span = Span::from_hours(24);
/// A probe that was never answered no longer stands in the way after this.
pub const PROBE: Span = Span::from_secs(90);

/// How much a connection may ask for. Nothing: as much as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In any minute.
    pub per_minute: Option<u32>,
    /// In any hour.
    pub per_hour: Option<u32>,
    /// Altogether, until a person looks.
    pub burn: Option<u32>,
}

impl Default for Limits {
    /// For a service nobody trusts yet.
    fn default() -> Self {
        Self { per_minute: Some(10), per_hour: Some(100), burn: Some(200) }
    }
}

impl Limits {
    /// Nothing is counted.
    pub const NONE: Self = Self { per_minute: None, per_hour: None, burn: None };

    /// Whether anything is counted at all.
    #[must_use]
    pub const fn count(&self) -> bool {
        self.per_minute.is_some() || self.per_hour.is_some() || self.burn.is_some()
    }
}

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Refusals in a row that open it.
    pub refusals: u32,
    /// How long it is open at first.
    pub first_pause: Span,
    /// The longest it is open by itself.
    pub longest_pause: Span,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { refusals: 3, first_pause: Span::from_secs(30), longest_pause: Span::from_mins(15) }
    }
}

/// What was counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// In the last minute.
    pub minute: u64,
    /// In the last hour.
    pub hour: u64,
    /// Since a person last looked.
    pub burned: u64,
}

/// What a service answered, as far as a breaker is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceReply {
    /// The status.
    pub status: u16,
    /// How long the service wants to be left alone.
    pub retry_after: Option<Span>,
    /// Random: it spreads when several of us come back, never to an earlier time.
    pub jitter: u64,
}

/// What the service's refusals led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Refusals in a row.
    pub refusals: u32,
    /// How often it opened in a row.
    pub opened: u32,
    /// Nothing goes out before this.
    pub open_until: Option<Timestamp>,
    /// One request tries; others wait until this.
    pub probe_until: Option<Timestamp>,
}

/// Why a request must not go out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Too many in this minute.
    Minute,
    /// Too many in this hour.
    Hour,
    /// Too many altogether: a person must look.
    Burn,
    /// The breaker is open.
    Open {
        /// Until when.
        until: Timestamp,
    },
    /// The breaker is half open and another request already tries.
    Probing {
        /// Until when at the latest.
        until: Timestamp,
    },
}

/// Whether one more request fits what was counted. Says how many fit, at most `wanted`.
///
/// # Errors
/// The first limit that is reached.
pub fn fits(limits: &Limits, used: &Used, wanted: u32) -> Result<u32, Stop> {
    let left = |limit: Option<u32>, used: u64| limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(used));
    // What only a person can change is said first.
    let by = [
        (left(limits.burn, used.burned), Stop::Burn),
        (left(limits.per_hour, used.hour), Stop::Hour),
        (left(limits.per_minute, used.minute), Stop::Minute),
    ];
    let mut fit = u64::from(wanted.max(1));
    for (left, stop) in by {
        if left == 0 {
            return Err(stop);
        }
        fit = fit.min(left);
    }
    Ok(u32::try_from(fit).unwrap_or(wanted))
}

impl Breaker {
    /// Whether a request may pass. The breaker afterwards differs if the request is a probe.
    ///
    /// # Errors
    /// Why it may not.
    pub fn pass(self, config: &BreakerConfig, now: Timestamp) -> Result<Self, Stop> {
        if let Some(until) = self.open_until.filter(|until| *until > now) {
            return Err(Stop::Open { until });
        }
        if self.refusals < config.refusals {
            return Ok(self);
        }
        match self.probe_until.filter(|until| *until > now) {
            Some(until) => Err(Stop::Probing { until }),
            None => Ok(Self { probe_until: Some(now + PROBE), ..self }),
        }
    }

    /// The breaker after the service answered.
    #[must_use]
    pub fn answered(self, config: &BreakerConfig, refusal: &ServiceReply, now: Timestamp) -> Self {
        let ServiceReply { status, retry_after, jitter } = *refusal;
        if status != 429 {
            return Self::default();
        }
        let refusals = self.refusals.saturating_add(1);
        let asked = retry_after.map(|span| now + span.min(LONGEST_ASKED));
        // Answers to requests that were under way when it opened do not open it once more.
        let was_open = self.open_until.is_some_and(|until| until > now);
        if refusals < config.refusals || was_open {
            return Self { refusals, open_until: asked.max(self.open_until), ..self };
        }
        let opened = self.opened.saturating_add(1);
        let own = now + open_for(config, opened, jitter);
        Self { refusals, opened, open_until: Some(asked.map_or(own, |asked| asked.max(own))), probe_until: None }
    }

    /// A request got no answer: whoever was trying has stopped.
    #[must_use]
    pub fn unanswered(self) -> Self {
        Self { probe_until: None, ..self }
    }

    /// Whether it is as if nothing ever went wrong.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self == Self::default()
    }

    /// In a word.
    #[must_use]
    pub fn word(&self, config: &BreakerConfig, now: Timestamp) -> &'static str {
        match self.open_until {
            Some(until) if until > now => "open",
            _ if self.refusals >= config.refusals => "half_open",
            _ => "closed",
        }
    }
}

/// 30 s, 60 s, … 15 min unless configured, and up to a fifth more within that bound.
fn open_for(config: &BreakerConfig, opened: u32, jitter: u64) -> Span {
    let doublings = opened.saturating_sub(1).min(30);
    let longest = config.longest_pause.as_millis().max(config.first_pause.as_millis());
    let base = config.first_pause.as_millis().saturating_mul(1 << doublings).min(longest);
    let most = u128::from(base / 5);
    let more = (u128::from(jitter) * (most + 1)) >> 64;
    Span::from_millis(base.saturating_add(u64::try_from(more).unwrap_or(0)).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    const SEED: BreakerConfig =
        BreakerConfig { refusals: 3, first_pause: Span::from_secs(30), longest_pause: Span::from_mins(15) };

    fn reply(status: u16, retry_after: Option<Span>) -> ServiceReply {
        ServiceReply { status, retry_after, jitter: 0 }
    }

    fn refused(times: u32) -> Breaker {
        (0..times).fold(Breaker::default(), |breaker, _| breaker.answered(&SEED, &reply(429, None), at(0)))
    }

    #[test]
    fn the_eleventh_in_a_minute_waits() {
        let limits = Limits::default();
        let used = |minute, hour, burned| Used { minute, hour, burned };
        assert_eq!(fits(&limits, &used(9, 9, 9), 1), Ok(1));
        assert_eq!(fits(&limits, &used(10, 10, 10), 1), Err(Stop::Minute));
        assert_eq!(fits(&limits, &used(10, 100, 100), 1), Err(Stop::Hour));
        assert_eq!(fits(&limits, &used(0, 0, 200), 1), Err(Stop::Burn));
        assert_eq!(fits(&limits, &used(5, 5, 5), 64), Ok(5));
        assert_eq!(fits(&Limits::NONE, &used(9999, 9999, 9999), 64), Ok(64));
    }

    #[test]
    fn three_refusals_in_a_row_open_it_for_half_a_minute() {
        assert_eq!(refused(2).pass(&SEED, at(0)).map(|_| ()), Ok(()));
        let open = refused(3);
        assert_eq!(open.open_until, Some(at(30)));
        assert_eq!(open.pass(&SEED, at(29)), Err(Stop::Open { until: at(30) }));
        assert_eq!((open.word(&SEED, at(29)), open.word(&SEED, at(30))), ("open", "half_open"));
    }

    #[test]
    fn an_answer_in_between_starts_the_row_over() {
        let breaker = refused(2).answered(&SEED, &reply(500, None), at(0));
        assert!(breaker.is_closed());
        assert_eq!(breaker.answered(&SEED, &reply(429, None), at(0)).refusals, 1);
    }

    #[test]
    fn half_open_lets_one_request_try_read_or_write() {
        let open = refused(3);
        let trying = open.pass(&SEED, at(30)).unwrap();
        assert!(matches!(trying.pass(&SEED, at(31)), Err(Stop::Probing { .. })));
        assert!(trying.pass(&SEED, at(30) + PROBE).is_ok(), "a probe that was lost does not block for ever");
        assert!(trying.unanswered().pass(&SEED, at(31)).is_ok());
        assert!(trying.answered(&SEED, &reply(200, None), at(31)).is_closed());
    }

    #[test]
    fn each_failed_probe_doubles_the_wait_up_to_a_quarter_of_an_hour() {
        let mut breaker = refused(3);
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let until = breaker.open_until.unwrap();
            waits.push(until.since(now).as_secs());
            now = until;
            breaker = breaker.pass(&SEED, now).unwrap().answered(&SEED, &reply(429, None), now);
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 900, 900]);
    }

    #[test]
    fn jitter_only_adds_and_stays_within_the_bound() {
        for (opened, least, most) in [(1, 30_000, 36_000), (6, 900_000, 900_000), (u32::MAX, 900_000, 900_000)] {
            assert_eq!(open_for(&SEED, opened, 0).as_millis(), least);
            assert_eq!(open_for(&SEED, opened, u64::MAX).as_millis(), most);
        }
    }

    #[test]
    fn a_breaker_follows_its_own_configuration() {
        let config = BreakerConfig { refusals: 2, first_pause: Span::from_secs(5), longest_pause: Span::from_secs(20) };
        let (mut breaker, mut now, mut waits) = (Breaker::default(), at(0), Vec::new());
        breaker = breaker.answered(&config, &reply(429, None), now);
        assert!(breaker.pass(&config, now).is_ok(), "one refusal fewer than configured does not open it");
        for _ in 0..4 {
            breaker = breaker.answered(&config, &reply(429, None), now);
            let until = breaker.open_until.unwrap();
            waits.push(until.since(now).as_secs());
            now = until;
            breaker = breaker.pass(&config, now).unwrap();
        }
        assert_eq!(waits, [5, 10, 20, 20]);
    }

    #[test]
    fn a_service_that_says_when_is_believed_within_reason() {
        let once = Breaker::default().answered(&SEED, &reply(429, Some(Span::from_secs(120))), at(0));
        assert_eq!(once.pass(&SEED, at(119)), Err(Stop::Open { until: at(120) }));
        assert!(once.pass(&SEED, at(120)).is_ok(), "one refusal does not need a probe");
        let third = refused(2).answered(&SEED, &reply(429, Some(Span::from_mins(40))), at(0));
        assert_eq!(third.open_until, Some(at(2400)));
        let for_ever = refused(2).answered(&SEED, &reply(429, Some(Span::from_millis(u64::MAX))), at(0));
        assert_eq!(for_ever.open_until, Some(at(86_400)));
    }

    #[test]
    fn late_refusals_of_one_burst_open_it_once() {
        let burst = refused(10);
        assert_eq!((burst.opened, burst.open_until), (1, Some(at(30))));
    }
}
