//! Leave to go out: counted in the database, for all nodes, before anything leaves.
//!
//! Takes a connection; gives leave for one request. Promise: nothing leaves uncounted. Where limits are wide, leave
//! is taken for several at once and lapses after a second, so that counting costs no commit for each request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use sluice_core::ids::{ConnectionName, MessageId};
use sluice_core::throttle::{Breaker, Limits};
use sluice_core::{Actor, Clock, Entropy, Ids, Span, Timestamp};
use sluice_store::{Heard, Store, StoreError, Take, Taken};

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
#[derive(Debug, Clone, Copy, Default)]
struct Local {
    left: u32,
    until: Span,
    breaker: Breaker,
}

fn ahead(limits: &Limits) -> u32 {
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
    pub(super) async fn take(&self, connection: &Connection, is_read: bool) -> Result<(), EgressNo> {
        let now = self.clock.since_boot();
        let taken = self.with(&connection.name, |local| {
            let good = local.left > 0 && now < local.until && local.breaker.is_closed();
            if good {
                local.left -= 1;
            }
            good
        });
        if taken {
            return Ok(());
        }
        let take = Take {
            connection: connection.name.clone(),
            limits: connection.limits,
            wanted: ahead(&connection.limits),
            is_read,
            message: MessageId::mint(self.ids.as_ref()),
        };
        match self.store.egress_take(take).await? {
            Taken::Granted { many, breaker } => {
                let next = Local { left: many.saturating_sub(1), until: now + AHEAD, breaker };
                self.with(&connection.name, |local| *local = next);
                Ok(())
            }
            Taken::Refused { stop, again } => {
                self.with(&connection.name, |local| local.left = 0);
                Err(EgressNo::Stopped { stop, again })
            }
        }
    }

    /// What the service said to it; nothing if it said nothing.
    pub(super) async fn heard(
        &self,
        connection: &ConnectionName,
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
            message: MessageId::mint(self.ids.as_ref()),
        };
        let breaker = self.store.egress_heard(heard).await?;
        self.with(connection, |local| {
            local.breaker = breaker;
            local.left = 0;
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
        let with = |per_minute| ahead(&Limits { per_minute, ..Limits::default() });
        assert_eq!((with(Some(10)), with(Some(63)), with(Some(640)), with(None)), (1, 1, 20, 1024));
    }
}
