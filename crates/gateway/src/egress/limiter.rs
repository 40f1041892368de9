//! Leave to go out: counted in the database, for all nodes, before anything leaves.
//!
//! Takes a connection; gives leave for one request. Promise: nothing leaves uncounted, and limits of an hour and
//! altogether (`burn`) count requests that were made and nothing else: where one of them is set, leave is taken for one
//! request at a time. Elsewhere it is taken for several at once, so that counting costs no commit for each request; it
//! lapses after a second, and what was not used of it is given back. A gateway that dies in between has counted too
//! many, never too few.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use sluice_core::ids::{ConnectionName, MessageId};
use sluice_core::throttle::{Breaker, BreakerConfig, Limits};
use sluice_core::{Actor, Clock, Entropy, Ids, Span, Timestamp};
use sluice_store::{Heard, Store, StoreError, Take, Taken, Unused};

use super::allow::Connection;
use super::no::EgressNo;

/// How long leave that was taken ahead is good for.
const AHEAD: Span = Span::from_secs(1);
/// The most that is taken ahead.
const MOST_AHEAD: u32 = 1024;
/// The share of a minute's limit that is taken ahead: narrow limits are counted one by one.
const SHARE: u32 = 32;

pub(super) struct Limiter {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    entropy: Arc<dyn Entropy>,
    lines: Mutex<HashMap<ConnectionName, Local>>,
}

/// What this node knows between two looks at the database.
#[derive(Debug, Clone, Default)]
struct Local {
    left: u32,
    until: Span,
    taken_at: i64,
    breaker: Breaker,
    /// Leave that lapsed and was not given back yet.
    owed: Vec<Unused>,
}

impl Local {
    /// What is left is good for nothing any more, and is to be given back.
    fn lapse(&mut self) {
        let many = std::mem::take(&mut self.left);
        if many > 0 {
            self.owed.push(Unused { taken_at: self.taken_at, many });
        }
    }
}

fn ahead(limits: &Limits) -> u32 {
    if limits.per_hour.is_some() || limits.burn.is_some() {
        return 1;
    }
    limits.per_minute.map_or(MOST_AHEAD, |limit| (limit / SHARE).clamp(1, MOST_AHEAD))
}

impl Limiter {
    pub(super) fn new(store: Arc<Store>, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>, entropy: Arc<dyn Entropy>) -> Self {
        Self { store, clock, ids, entropy, lines: Mutex::default() }
    }

    fn with<Out>(&self, connection: &ConnectionName, change: impl FnOnce(&mut Local) -> Out) -> Out {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.get_mut(connection) {
            Some(local) => change(local),
            None => change(lines.entry(connection.clone()).or_default()),
        }
    }

    /// Leave for one request.
    pub(super) async fn take(&self, connection: &Connection) -> Result<(), EgressNo> {
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
        let take = Take {
            connection: connection.name.clone(),
            limits: connection.limits,
            wanted: ahead(&connection.limits),
            breaker: connection.breaker,
            unused,
            message: MessageId::mint(self.ids.as_ref()),
        };
        match self.store.egress_take(take).await? {
            Taken::Granted { many, breaker, taken_at } => {
                self.with(&connection.name, |local| {
                    // Another request may have taken leave meanwhile: what it left is not lost.
                    local.lapse();
                    (local.left, local.until) = (many.saturating_sub(1), now + AHEAD);
                    (local.taken_at, local.breaker) = (taken_at, breaker);
                });
                Ok(())
            }
            Taken::Refused { stop, again } => {
                self.with(&connection.name, Local::lapse);
                Err(EgressNo::Stopped { stop, again })
            }
        }
    }

    /// What the service said to it; nothing if it said nothing.
    pub(super) async fn heard(
        &self,
        (connection, config): (&ConnectionName, BreakerConfig),
        answer: Option<(u16, &HeaderMap)>,
    ) -> Result<(), EgressNo> {
        let status = answer.map(|(status, _)| status);
        let quiet = self.with(connection, |local| local.breaker.is_closed());
        if quiet && status != Some(429) {
            return Ok(());
        }
        let mut jitter = [0; 8];
        self.entropy.fill(&mut jitter);
        let heard = Heard {
            connection: connection.clone(),
            status,
            retry_after: answer.and_then(|(_, headers)| retry_after(headers, self.clock.now())),
            jitter: u64::from_le_bytes(jitter),
            breaker: config,
            message: MessageId::mint(self.ids.as_ref()),
        };
        let breaker = self.store.egress_heard(heard).await?;
        self.with(connection, |local| {
            local.breaker = breaker;
            local.lapse();
        });
        Ok(())
    }

    /// A person has looked: it starts over.
    pub(super) async fn reset(&self, connection: &ConnectionName, by: Actor) -> Result<(), StoreError> {
        self.store.egress_reset(connection.clone(), by).await?;
        self.with(connection, |local| *local = Local::default());
        Ok(())
    }
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Span> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(secs) = text.parse::<u64>() {
        return Some(Span::from_secs(secs));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_millis(date.as_millisecond()).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_says_when_in_seconds_or_by_date() {
        let now = Timestamp::from_millis(784_111_777_000);
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", http::HeaderValue::from_static(text));
            retry_after(&headers, now)
        };
        assert_eq!(read("120"), Some(Span::from_secs(120)));
        assert_eq!(read("Sun, 06 Nov 1994 08:51:37 GMT"), Some(Span::from_secs(120)));
        assert_eq!(read("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Span::ZERO));
        assert_eq!((read("soon"), read("-5"), read("")), (None, None, None));
    }

    #[test]
    fn narrow_limits_are_counted_one_by_one() {
        let with = |per_minute| ahead(&Limits { per_minute, ..Limits::NONE });
        assert_eq!((with(Some(10)), with(Some(63)), with(Some(640)), with(None)), (1, 1, 20, 1024));
        let exact = [(Some(10_000), None), (None, Some(10_000))];
        for (per_hour, burn) in exact {
            assert_eq!(ahead(&Limits { per_minute: None, per_hour, burn }), 1, "{per_hour:?} {burn:?}");
        }
    }
}
