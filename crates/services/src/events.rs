//! Live events: new audit entries, sent to every listener.
//!
//! Takes the audit logs of all nodes; gives their entries in order to any number of listeners. Promise: the
//! database is the source and a wake is only a hint. A listener that reconnects with its last id misses
//! nothing, and one that is too slow reads from the database again instead of from memory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use sluice_core::NodeName;
use sluice_core::ids::KeyId;
use sluice_store::{Store, StoreError};
use tokio::sync::{Notify, broadcast};

/// Entries queued for a slow listener before it must read from the database again.
const QUEUE: usize = 1024;
/// Entries read in one query.
const PAGE: u32 = 500;

/// The live end of the audit log.
#[derive(Debug)]
pub struct EventFeed {
    sender: broadcast::Sender<Arc<FeedEvent>>,
    written: Notify,
    listeners: AtomicUsize,
    seats: Arc<Mutex<HashMap<KeyId, u32>>>,
}

/// The place of one stream, released when dropped.
#[derive(Debug)]
pub struct EventStreamSlot {
    key: KeyId,
    seats: Arc<Mutex<HashMap<KeyId, u32>>>,
}

impl Drop for EventStreamSlot {
    fn drop(&mut self) {
        let mut seats = self.seats.lock();
        if let Some(taken) = seats.get_mut(&self.key) {
            *taken -= 1;
            if *taken == 0 {
                seats.remove(&self.key);
            }
        }
    }
}

/// One entry of the audit log.
#[derive(Debug, Clone)]
pub struct FeedEvent {
    /// The log that holds the entry.
    pub log: NodeName,
    /// The sequence number in that log.
    pub seq: u64,
    /// The audit kind, such as `hold.done`.
    pub kind: String,
    /// The entry as it stands in the log.
    pub entry: Value,
}

/// The position of a listener in every log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventCursor(BTreeMap<NodeName, u64>);

/// Counts a listener as long as it exists.
#[derive(Debug)]
pub struct EventListener<'a> {
    events: &'a EventFeed,
    /// New entries, as they are read.
    pub receiver: broadcast::Receiver<Arc<FeedEvent>>,
}

impl Default for EventFeed {
    fn default() -> Self {
        Self {
            sender: broadcast::channel(QUEUE).0,
            written: Notify::new(),
            listeners: AtomicUsize::new(0),
            seats: Arc::default(),
        }
    }
}

impl EventFeed {
    /// Notes that this node has just written an entry.
    pub fn notify_written(&self) {
        if self.listeners.load(Ordering::Relaxed) > 0 {
            self.written.notify_one();
        }
    }

    /// Waits until this node has written an entry since the last call.
    pub async fn wait_for_write(&self) {
        self.written.notified().await;
    }

    /// A place for one more stream of a key, unless a limit is reached.
    #[must_use]
    pub fn reserve_slot(&self, key: KeyId, most: u32, most_per_key: u32) -> Option<EventStreamSlot> {
        let mut seats = self.seats.lock();
        let all: u32 = seats.values().sum();
        let own = seats.get(&key).copied().unwrap_or(0);
        if all >= most || own >= most_per_key {
            return None;
        }
        seats.insert(key, own + 1);
        Some(EventStreamSlot { key, seats: Arc::clone(&self.seats) })
    }

    /// Starts listening. Read up to the present after this call, so that no entry is missed.
    pub fn listen(&self) -> EventListener<'_> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        EventListener { events: self, receiver: self.sender.subscribe() }
    }

    /// The number of listeners.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.load(Ordering::SeqCst)
    }

    /// Sends every entry after the cursor to all listeners, and moves the cursor.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn tell(&self, store: &Store, cursor: &mut EventCursor) -> Result<(), StoreError> {
        if self.listeners() == 0 {
            *cursor = EventCursor::present(store).await?;
            return Ok(());
        }
        for event in after(store, cursor).await? {
            // It is no error when all listeners are gone.
            drop(self.sender.send(Arc::new(event)));
        }
        Ok(())
    }
}

impl Drop for EventListener<'_> {
    fn drop(&mut self) {
        self.events.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reads up to one page of entries after the cursor, and moves the cursor past them.
///
/// # Errors
/// When the audit log cannot be read.
pub async fn after(store: &Store, cursor: &mut EventCursor) -> Result<Vec<FeedEvent>, StoreError> {
    let mut found = Vec::new();
    for (log, head) in store.logs().await? {
        let seen = cursor.0.get(&log).copied().unwrap_or(0);
        if seen >= head.size {
            continue;
        }
        let sealed = store.entries(log.clone(), seen, PAGE).await?;
        let next = sealed.last().map_or(seen, |last| last.seq + 1);
        for one in sealed {
            let entry: Value = serde_json::from_slice(&one.body).unwrap_or(Value::Null);
            let kind = entry.pointer("/fact/kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            found.push(FeedEvent { log: log.clone(), seq: one.seq, kind, entry });
        }
        cursor.0.insert(log, next);
    }
    Ok(found)
}

impl EventCursor {
    /// The end of every log.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub async fn present(store: &Store) -> Result<Self, StoreError> {
        Ok(Self(store.logs().await?.into_iter().map(|(log, head)| (log, head.size)).collect()))
    }

    /// Whether the cursor has passed an entry.
    #[must_use]
    pub fn has_passed(&self, event: &FeedEvent) -> bool {
        self.0.get(&event.log).is_some_and(|next| event.seq < *next)
    }

    /// Moves past one entry.
    pub fn pass(&mut self, event: &FeedEvent) {
        self.0.insert(event.log.clone(), event.seq + 1);
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (log, next)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{log}:{next}")?;
        }
        Ok(())
    }
}

impl FromStr for EventCursor {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut places = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (log, next) = part.rsplit_once(':').ok_or(())?;
            places.insert(NodeName::new(log).map_err(|_| ())?, next.parse().map_err(|_| ())?);
        }
        Ok(Self(places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_prints_and_parses_back() {
        let text = "gw-1:12,gw-1/stop:3";
        let cursor: EventCursor = text.parse().unwrap();
        assert_eq!(cursor.to_string().parse::<EventCursor>(), Ok(cursor));
        assert!("gw-1".parse::<EventCursor>().is_err());
        assert!("gw-1:x".parse::<EventCursor>().is_err());
        assert_eq!("".parse::<EventCursor>(), Ok(EventCursor::default()));
    }
}
