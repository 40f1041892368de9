//! Request limits: requests are counted in the database, for all nodes, before they leave.
//!
//! Takes a connection; gives the quota for one request. Promise: nothing leaves uncounted, and the hourly and total
//! (`burn`) limits count only requests that were made: if one of them is set, quota is taken for one request at a time.
//! Otherwise quota is taken for several requests ahead, so that not every request needs a commit; it lapses after a
//! second, and the unused part is returned. A gateway that dies in between has counted too many, never too few.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use sluice_config::network::EgressConnection;
use sluice_core::ids::{ConnectionName, MessageId};
use sluice_core::throttle::{Breaker, BreakerConfig, ConnectionLimits};
use sluice_core::{Actor, Clock, Entropy, Ids, Millis, UtcMillis};
use sluice_store::{EgressQuotaOutcome, RecordServiceReply, Store, StoreError, TakeEgressQuota, UnusedEgressQuota};

use super::error::EgressError;

/// How long quota that was taken ahead is valid.
const AHEAD: Millis = Millis::from_secs(1);
/// The most quota that is taken ahead.
const MOST_AHEAD: u32 = 1024;
/// The share of a minute's limit that is taken ahead: with low limits, requests are counted one by one.
const SHARE: u32 = 32;

pub(super) struct Limiter {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    entropy: Arc<dyn Entropy>,
    lines: Mutex<HashMap<ConnectionName, ConnectionAllotment>>,
}

/// What this node knows between two reads of the database.
#[derive(Debug, Clone, Default)]
struct ConnectionAllotment {
    left: u32,
    until: Millis,
    taken_at: i64,
    breaker: Breaker,
    /// Quota that lapsed and was not returned yet.
    owed: Vec<UnusedEgressQuota>,
}

impl ConnectionAllotment {
    /// Lets the remaining quota lapse, to be returned.
    fn lapse(&mut self) {
        let many = std::mem::take(&mut self.left);
        if many > 0 {
            self.owed.push(UnusedEgressQuota { taken_at: self.taken_at, many });
        }
    }
}

fn ahead(limits: &ConnectionLimits) -> u32 {
    if limits.per_hour.is_some() || limits.burn.is_some() {
        return 1;
    }
    limits.per_minute.map_or(MOST_AHEAD, |limit| (limit / SHARE).clamp(1, MOST_AHEAD))
}

impl Limiter {
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>, entropy: Arc<dyn Entropy>) -> Self {
        Self { store, clock, ids, entropy, lines: Mutex::default() }
    }

    fn with<Out>(&self, connection: &ConnectionName, change: impl FnOnce(&mut ConnectionAllotment) -> Out) -> Out {
        let mut lines = self.lines.lock();
        match lines.get_mut(connection) {
            Some(local) => change(local),
            None => change(lines.entry(connection.clone()).or_default()),
        }
    }

    /// Takes quota for one request.
    pub(super) async fn take(&self, connection: &EgressConnection) -> Result<(), EgressError> {
        let now = self.clock.since_boot();
        let (taken, unused) = self.with(&connection.name, |local| {
            if local.left > 0 && now < local.until && local.breaker.is_closed() {
                local.left -= 1;
                return (true, None);
            }
            local.lapse();
            (false, local.owed.pop())
        });
        if taken {
            return Ok(());
        }
        let take = TakeEgressQuota {
            connection: connection.name.clone(),
            limits: connection.limits,
            wanted: ahead(&connection.limits),
            breaker: connection.breaker,
            unused,
            message: MessageId::mint(self.ids.as_ref()),
        };
        match self.store.take_egress_quota(take).await? {
            EgressQuotaOutcome::Granted { many, breaker, taken_at } => {
                self.with(&connection.name, |local| {
                    // Another request may have taken quota meanwhile: its rest is not lost.
                    local.lapse();
                    (local.left, local.until) = (many.saturating_sub(1), now + AHEAD);
                    (local.taken_at, local.breaker) = (taken_at, breaker);
                });
                Ok(())
            }
            EgressQuotaOutcome::Refused { stop, again } => {
                self.with(&connection.name, ConnectionAllotment::lapse);
                Err(EgressError::Stopped { stop, again })
            }
        }
    }

    /// Records how the service answered; nothing if it did not answer.
    pub(super) async fn record_response(
        &self,
        (connection, config): (&ConnectionName, BreakerConfig),
        answer: Option<(u16, &HeaderMap)>,
    ) -> Result<(), EgressError> {
        let status = answer.map(|(status, _)| status);
        let quiet = self.with(connection, |local| local.breaker.is_closed());
        if quiet && status != Some(429) {
            return Ok(());
        }
        let mut jitter = [0; 8];
        self.entropy.fill(&mut jitter);
        let heard = RecordServiceReply {
            connection: connection.clone(),
            status,
            retry_after: answer.and_then(|(_, headers)| retry_after(headers, self.clock.now())),
            jitter: u64::from_le_bytes(jitter),
            breaker: config,
            message: MessageId::mint(self.ids.as_ref()),
        };
        let breaker = self.store.record_service_reply(heard).await?;
        self.with(connection, |local| {
            local.breaker = breaker;
            local.lapse();
        });
        Ok(())
    }

    /// Resets a connection after a person has looked at it.
    pub(super) async fn reset(&self, connection: &ConnectionName, by: Actor) -> Result<(), StoreError> {
        self.store.egress_reset(connection.clone(), by).await?;
        self.with(connection, |local| *local = ConnectionAllotment::default());
        Ok(())
    }
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: UtcMillis) -> Option<Millis> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse::<u64>() {
        return Some(Millis::from_secs(secs));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(UtcMillis::from_millis(date.as_millisecond()).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_says_when_in_seconds_or_by_date() {
        let now = UtcMillis::from_millis(784_111_777_000);
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", http::HeaderValue::from_static(text));
            retry_after(&headers, now)
        };
        assert_eq!(read("120"), Some(Millis::from_secs(120)));
        assert_eq!(read("Sun, 06 Nov 1994 08:51:37 GMT"), Some(Millis::from_secs(120)));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Millis::ZERO));
        assert_eq!((read("soon"), read("-5"), read("")), (None, None, None));
    }

    #[test]
    fn narrow_limits_are_counted_one_by_one() {
        let with = |per_minute| ahead(&ConnectionLimits { per_minute, ..ConnectionLimits::NONE });
        assert_eq!((with(Some(10)), with(Some(63)), with(Some(640)), with(None)), (1, 1, 20, 1024));
        let exact = [(Some(10_000), None), (None, Some(10_000))];
        for (per_hour, burn) in exact {
            assert_eq!(ahead(&ConnectionLimits { per_minute: None, per_hour, burn }), 1, "{per_hour:?} {burn:?}");
        }
    }
}
