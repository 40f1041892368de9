//! What happens, as it happens: the record, told live.
//!
//! Takes the audit logs of all nodes; gives their entries in order, to as many as listen. Promise: the
//! database is the truth and a wake only a hint, so a listener that comes back with the last id it saw
//! misses nothing; one that is too slow is sent back to the database, never fed from memory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use sluice_core::NodeName;
use sluice_core::ids::KeyId;
use sluice_store::{Store, StoreError};
use tokio::sync::{Notify, broadcast};

/// Entries that wait for a slow listener before it has to read again by itself.
const QUEUE: usize = 1024;
/// Entries read at once.
const PAGE: u32 = 500;

/// The live end of the record.
#[derive(Debug)]
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    written: Notify,
    listeners: AtomicUsize,
    seats: Arc<Mutex<HashMap<KeyId, u32>>>,
}

/// A stream's place, given back when dropped.
#[derive(Debug)]
pub struct Seat {
    key: KeyId,
    seats: Arc<Mutex<HashMap<KeyId, u32>>>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = seats.get_mut(&self.key) {
            *taken -= 1;
            if *taken == 0 {
                seats.remove(&self.key);
            }
        }
    }
}

/// One entry of the record.
#[derive(Debug, Clone)]
pub struct Event {
    /// Which log.
    pub log: NodeName,
    /// Its place there.
    pub seq: u64,
    /// What kind: `hold.done`.
    pub kind: String,
    /// The entry as it stands in the log.
    pub entry: Value,
}

/// How far a listener has come, in every log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor(BTreeMap<NodeName, u64>);

/// Counts a listener while it lives.
#[derive(Debug)]
pub struct Listening<'a> {
    events: &'a Events,
    /// New entries, as they are read.
    pub receiver: broadcast::Receiver<Arc<Event>>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::channel(QUEUE).0,
            written: Notify::new(),
            listeners: AtomicUsize::new(0),
            seats: Arc::default(),
        }
    }
}

impl Events {
    /// This node has just written something.
    pub fn wrote(&self) {
        if self.listeners.load(Ordering::Relaxed) > 0 {
            self.written.notify_one();
        }
    }

    /// Ends when this node has written something since the last time.
    pub async fn written(&self) {
        self.written.notified().await;
    }

    /// A place for one more stream of a key, if there is one.
    #[must_use]
    pub fn seat(&self, key: KeyId, most: u32, most_per_key: u32) -> Option<Seat> {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let all: u32 = seats.values().sum();
        let own = seats.get(&key).copied().unwrap_or(0);
        if all >= most || own >= most_per_key {
            return None;
        }
        seats.insert(key, own + 1);
        Some(Seat { key, seats: Arc::clone(&self.seats) })
    }

    /// Starts listening. Read up to the present after this, so that nothing falls in between.
    pub fn listen(&self) -> Listening<'_> {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        Listening { events: self, receiver: self.sender.subscribe() }
    }

    /// How many listen.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.load(Ordering::SeqCst)
    }

    /// Tells everyone who listens about everything after the cursor, and moves it.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub async fn tell(&self, store: &Store, cursor: &mut Cursor) -> Result<(), StoreError> {
        if self.listeners() == 0 {
            *cursor = Cursor::present(store).await?;
            return Ok(());
        }
        for event in after(store, cursor).await? {
            // Nobody listening any more is no fault.
            drop(self.sender.send(Arc::new(event)));
        }
        Ok(())
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.events.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Up to a page of entries after the cursor, which is moved past them.
///
/// # Errors
/// When the record cannot be read.
pub async fn after(store: &Store, cursor: &mut Cursor) -> Result<Vec<Event>, StoreError> {
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
            found.push(Event { log: log.clone(), seq: one.seq, kind, entry });
        }
        cursor.0.insert(log, next);
    }
    Ok(found)
}

impl Cursor {
    /// The end of every log.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub async fn present(store: &Store) -> Result<Self, StoreError> {
        Ok(Self(store.logs().await?.into_iter().map(|(log, head)| (log, head.size)).collect()))
    }

    /// Whether an entry lies behind it.
    #[must_use]
    pub fn has_passed(&self, event: &Event) -> bool {
        self.0.get(&event.log).is_some_and(|next| event.seq < *next)
    }

    /// Moves past one entry.
    pub fn pass(&mut self, event: &Event) {
        self.0.insert(event.log.clone(), event.seq + 1);
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (log, next)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{log}:{next}")?;
        }
        Ok(())
    }
}

impl FromStr for Cursor {
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
        let cursor: Cursor = text.parse().unwrap();
        assert_eq!(cursor.to_string().parse::<Cursor>(), Ok(cursor));
        assert!("gw-1".parse::<Cursor>().is_err());
        assert!("gw-1:x".parse::<Cursor>().is_err());
        assert_eq!("".parse::<Cursor>(), Ok(Cursor::default()));
    }
}
