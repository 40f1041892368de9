//! Limits on requests to outside services: per minute and hour, a burn limit, and a circuit breaker.
//!
//! Takes the counts and the time; allows one more request, or says why not and until when. Promise:
//! a number of refusals in a row (429; three unless configured) opens the breaker for 30 s, doubling up to 15 min,
//! never shorter than the service asked for; while it is half open, exactly one request may test whether the service
//! accepts requests again. A write may be that request: a service that answers 429 has not applied it.

use crate::clock::{Millis, UtcMillis};

/// The longest a service can make us wait.
pub const LONGEST_ASKED: Millis = Millis::from_hours(24);
/// A probe without an answer no longer blocks other requests after this.
pub const PROBE: Millis = Millis::from_secs(90);

/// The limits of a connection. `None`: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In any minute.
    pub per_minute: Option<u32>,
    /// In any hour.
    pub per_hour: Option<u32>,
    /// In total, until a person resets it.
    pub burn: Option<u32>,
}

impl Default for ConnectionLimits {
    /// The limits for a service without trust.
    fn default() -> Self {
        Self { per_minute: Some(10), per_hour: Some(100), burn: Some(200) }
    }
}

impl ConnectionLimits {
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
    pub first_pause: Millis,
    /// The longest it is open by itself.
    pub longest_pause: Millis,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { refusals: 3, first_pause: Millis::from_secs(30), longest_pause: Millis::from_mins(15) }
    }
}

/// What was counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionUsage {
    /// In the last minute.
    pub minute: u64,
    /// In the last hour.
    pub hour: u64,
    /// Since a person last reset it.
    pub burned: u64,
}

/// An answer of a service, as a breaker sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceReply {
    /// The status.
    pub status: u16,
    /// How long the service asks us to wait.
    pub retry_after: Option<Millis>,
    /// Random: it spreads the retries of several nodes, never to an earlier time.
    pub jitter: u64,
}

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Refusals in a row.
    pub refusals: u32,
    /// How often it opened in a row.
    pub opened: u32,
    /// No request leaves before this.
    pub open_until: Option<UtcMillis>,
    /// One request is a probe; others wait until this.
    pub probe_until: Option<UtcMillis>,
}

/// Why a request must not leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleReason {
    /// Too many in this minute.
    Minute,
    /// Too many in this hour.
    Hour,
    /// Too many in total: a person must reset it.
    Burn,
    /// The breaker is open.
    Open {
        /// Until when it is open.
        until: UtcMillis,
    },
    /// The breaker is half open and another request is already the probe.
    Probing {
        /// Until when at the latest.
        until: UtcMillis,
    },
}

/// Whether one more request fits what was counted. Says how many fit, at most `wanted`.
///
/// # Errors
/// The first limit that is reached.
pub fn check_limits(limits: &ConnectionLimits, used: &ConnectionUsage, wanted: u32) -> Result<u32, ThrottleReason> {
    let left = |limit: Option<u32>, used: u64| limit.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(used));
    // The limit that only a person can reset is reported first.
    let by = [
        (left(limits.burn, used.burned), ThrottleReason::Burn),
        (left(limits.per_hour, used.hour), ThrottleReason::Hour),
        (left(limits.per_minute, used.minute), ThrottleReason::Minute),
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
    /// Whether a request may pass. Gives the breaker afterwards, which differs if the request is a probe.
    ///
    /// # Errors
    /// Why it may not.
    pub fn pass(self, config: &BreakerConfig, now: UtcMillis) -> Result<Self, ThrottleReason> {
        if let Some(until) = self.open_until.filter(|until| *until > now) {
            return Err(ThrottleReason::Open { until });
        }
        if self.refusals < config.refusals {
            return Ok(self);
        }
        match self.probe_until.filter(|until| *until > now) {
            Some(until) => Err(ThrottleReason::Probing { until }),
            None => Ok(Self { probe_until: Some(now + PROBE), ..self }),
        }
    }

    /// The breaker after the service answered.
    #[must_use]
    pub fn after_answer(self, config: &BreakerConfig, refusal: &ServiceReply, now: UtcMillis) -> Self {
        let ServiceReply { status, retry_after, jitter } = *refusal;
        if status != 429 {
            return Self::default();
        }
        let refusals = self.refusals.saturating_add(1);
        let asked = retry_after.map(|span| now + span.min(LONGEST_ASKED));
        // Answers to requests that were under way when it opened do not open it again.
        let was_open = self.open_until.is_some_and(|until| until > now);
        if refusals < config.refusals || was_open {
            return Self { refusals, open_until: asked.max(self.open_until), ..self };
        }
        let opened = self.opened.saturating_add(1);
        let own = now + open_for(config, opened, jitter);
        Self { refusals, opened, open_until: Some(asked.map_or(own, |asked| asked.max(own))), probe_until: None }
    }

    /// The breaker after a request got no answer: the probe has ended.
    #[must_use]
    pub fn after_no_answer(self) -> Self {
        Self { probe_until: None, ..self }
    }

    /// Whether the breaker is in its initial state.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self == Self::default()
    }

    /// The name of its state.
    #[must_use]
    pub fn word(&self, config: &BreakerConfig, now: UtcMillis) -> &'static str {
        match self.open_until {
            Some(until) if until > now => "open",
            _ if self.refusals >= config.refusals => "half_open",
            _ => "closed",
        }
    }
}

/// 30 s, 60 s, … 15 min unless configured, and up to a fifth more within that bound.
fn open_for(config: &BreakerConfig, opened: u32, jitter: u64) -> Millis {
    let doublings = opened.saturating_sub(1).min(30);
    let longest = config.longest_pause.as_millis().max(config.first_pause.as_millis());
    let base = config.first_pause.as_millis().saturating_mul(1 << doublings).min(longest);
    let most = u128::from(base / 5);
    let more = (u128::from(jitter) * (most + 1)) >> 64;
    Millis::from_millis(base.saturating_add(u64::try_from(more).unwrap_or(0)).min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> UtcMillis {
        UtcMillis::from_millis(secs * 1000)
    }

    const SEED: BreakerConfig =
        BreakerConfig { refusals: 3, first_pause: Millis::from_secs(30), longest_pause: Millis::from_mins(15) };

    fn reply(status: u16, retry_after: Option<Millis>) -> ServiceReply {
        ServiceReply { status, retry_after, jitter: 0 }
    }

    fn refused(times: u32) -> Breaker {
        (0..times).fold(Breaker::default(), |breaker, _| breaker.after_answer(&SEED, &reply(429, None), at(0)))
    }

    #[test]
    fn the_eleventh_in_a_minute_waits() {
        let limits = ConnectionLimits::default();
        let used = |minute, hour, burned| ConnectionUsage { minute, hour, burned };
        assert_eq!(check_limits(&limits, &used(9, 9, 9), 1), Ok(1));
        assert_eq!(check_limits(&limits, &used(10, 10, 10), 1), Err(ThrottleReason::Minute));
        assert_eq!(check_limits(&limits, &used(10, 100, 100), 1), Err(ThrottleReason::Hour));
        assert_eq!(check_limits(&limits, &used(0, 0, 200), 1), Err(ThrottleReason::Burn));
        assert_eq!(check_limits(&limits, &used(5, 5, 5), 64), Ok(5));
        assert_eq!(check_limits(&ConnectionLimits::NONE, &used(9999, 9999, 9999), 64), Ok(64));
    }

    #[test]
    fn three_refusals_in_a_row_open_it_for_half_a_minute() {
        assert_eq!(refused(2).pass(&SEED, at(0)).map(|_| ()), Ok(()));
        let open = refused(3);
        assert_eq!(open.open_until, Some(at(30)));
        assert_eq!(open.pass(&SEED, at(29)), Err(ThrottleReason::Open { until: at(30) }));
        assert_eq!((open.word(&SEED, at(29)), open.word(&SEED, at(30))), ("open", "half_open"));
    }

    #[test]
    fn an_answer_in_between_starts_the_row_over() {
        let breaker = refused(2).after_answer(&SEED, &reply(500, None), at(0));
        assert!(breaker.is_closed());
        assert_eq!(breaker.after_answer(&SEED, &reply(429, None), at(0)).refusals, 1);
    }

    #[test]
    fn half_open_lets_one_request_try_read_or_write() {
        let open = refused(3);
        let trying = open.pass(&SEED, at(30)).unwrap();
        assert!(matches!(trying.pass(&SEED, at(31)), Err(ThrottleReason::Probing { .. })));
        assert!(trying.pass(&SEED, at(30) + PROBE).is_ok(), "a probe that was lost does not block for ever");
        assert!(trying.after_no_answer().pass(&SEED, at(31)).is_ok());
        assert!(trying.after_answer(&SEED, &reply(200, None), at(31)).is_closed());
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
            breaker = breaker.pass(&SEED, now).unwrap().after_answer(&SEED, &reply(429, None), now);
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
        let config =
            BreakerConfig { refusals: 2, first_pause: Millis::from_secs(5), longest_pause: Millis::from_secs(20) };
        let (mut breaker, mut now, mut waits) = (Breaker::default(), at(0), Vec::new());
        breaker = breaker.after_answer(&config, &reply(429, None), now);
        assert!(breaker.pass(&config, now).is_ok(), "one refusal fewer than configured does not open it");
        for _ in 0..4 {
            breaker = breaker.after_answer(&config, &reply(429, None), now);
            let until = breaker.open_until.unwrap();
            waits.push(until.since(now).as_secs());
            now = until;
            breaker = breaker.pass(&config, now).unwrap();
        }
        assert_eq!(waits, [5, 10, 20, 20]);
    }

    #[test]
    fn a_service_that_says_when_is_believed_within_reason() {
        let once = Breaker::default().after_answer(&SEED, &reply(429, Some(Millis::from_secs(120))), at(0));
        assert_eq!(once.pass(&SEED, at(119)), Err(ThrottleReason::Open { until: at(120) }));
        assert!(once.pass(&SEED, at(120)).is_ok(), "one refusal does not need a probe");
        let third = refused(2).after_answer(&SEED, &reply(429, Some(Millis::from_mins(40))), at(0));
        assert_eq!(third.open_until, Some(at(2400)));
        let for_ever = refused(2).after_answer(&SEED, &reply(429, Some(Millis::from_millis(u64::MAX))), at(0));
        assert_eq!(for_ever.open_until, Some(at(86_400)));
    }

    #[test]
    fn late_refusals_of_one_burst_open_it_once() {
        let burst = refused(10);
        assert_eq!((burst.opened, burst.open_until), (1, Some(at(30))));
    }
}
