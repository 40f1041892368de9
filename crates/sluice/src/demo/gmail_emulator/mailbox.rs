//! The mailbox itself: messages, threads, labels and the change feed.
//!
//! Takes changes, gives messages. Promise: every change of a message is in the feed, in order, until the
//! feed is cleared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// One message.
#[derive(Debug, Clone)]
pub struct MailboxMessage {
    pub id: String,
    pub thread: String,
    pub labels: BTreeSet<String>,
    pub date: i64,
    pub raw: Vec<u8>,
    pub history: u64,
}

/// An entry of the feed.
#[derive(Debug, Clone)]
pub struct MailboxHistoryEntry {
    pub at: u64,
    pub what: MailboxChangeKind,
    pub message: String,
    pub thread: String,
    pub labels: Vec<String>,
}

/// What happened to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailboxChangeKind {
    Added,
    Deleted,
    LabelsAdded,
    LabelsRemoved,
}

impl MailboxChangeKind {
    /// The feed's name for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Added => "messagesAdded",
            Self::Deleted => "messagesDeleted",
            Self::LabelsAdded => "labelsAdded",
            Self::LabelsRemoved => "labelsRemoved",
        }
    }
}

/// A mailbox.
#[derive(Debug)]
pub struct EmulatedMailbox {
    pub address: String,
    messages: BTreeMap<String, MailboxMessage>,
    by_date: BTreeSet<(i64, String)>,
    pub labels: BTreeMap<String, String>,
    /// Message ids by draft id.
    pub drafts: BTreeMap<String, String>,
    feed: Vec<MailboxHistoryEntry>,
    forgotten_to: u64,
    position: u64,
    counter: u64,
}

/// Labels every mailbox has.
const SYSTEM: [&str; 13] = [
    "INBOX",
    "SENT",
    "DRAFT",
    "TRASH",
    "SPAM",
    "UNREAD",
    "STARRED",
    "IMPORTANT",
    "CHAT",
    "CATEGORY_PERSONAL",
    "CATEGORY_UPDATES",
    "CATEGORY_PROMOTIONS",
    "CATEGORY_FORUMS",
];

impl EmulatedMailbox {
    /// An empty mailbox.
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            messages: BTreeMap::new(),
            by_date: BTreeSet::new(),
            labels: SYSTEM.iter().map(|id| ((*id).to_owned(), (*id).to_owned())).collect(),
            drafts: BTreeMap::new(),
            feed: Vec::new(),
            forgotten_to: 0,
            position: 1_000_000,
            counter: 0x1900_0000_0000_0000,
        }
    }

    /// Creates a user label; returns its id.
    pub fn label(&mut self, name: &str) -> String {
        let id = format!("Label_{}", self.labels.len());
        self.labels.insert(id.clone(), name.to_owned());
        id
    }

    /// The number of messages, whatever their labels.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// How many mails were sent.
    pub fn sent(&self) -> usize {
        self.messages.values().filter(|message| message.labels.contains("SENT")).count()
    }

    /// The next id, in the service's format.
    pub fn next_id(&mut self) -> String {
        // Ids are not consecutive, so that nobody relies on that.
        self.counter = self.counter.wrapping_add(0x0000_0001_0003_0061);
        format!("{:016x}", self.counter)
    }

    /// The current position of the feed.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Adds a message.
    pub fn add(&mut self, mut message: MailboxMessage) -> String {
        self.position += 7;
        message.history = self.position;
        let id = message.id.clone();
        self.by_date.insert((message.date, id.clone()));
        self.note(MailboxChangeKind::Added, &message, Vec::new());
        self.messages.insert(id.clone(), message);
        id
    }

    /// Adds a new message in a thread of its own, for generators and tests.
    pub fn receive(&mut self, raw: Vec<u8>, labels: &[&str], date: i64, thread: Option<&str>) -> String {
        let id = self.next_id();
        let thread = thread.map_or_else(|| id.clone(), str::to_owned);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.add(MailboxMessage { id, thread, labels, date, raw, history: 0 })
    }

    /// Removes a message permanently.
    pub fn remove(&mut self, id: &str) -> Option<MailboxMessage> {
        let message = self.messages.remove(id)?;
        self.by_date.remove(&(message.date, message.id.clone()));
        self.position += 7;
        self.note(MailboxChangeKind::Deleted, &message, Vec::new());
        Some(message)
    }

    /// The message with this id.
    pub fn get(&self, id: &str) -> Option<&MailboxMessage> {
        self.messages.get(id)
    }

    /// Changes labels.
    pub fn relabel(&mut self, id: &str, add: &[String], remove: &[String]) -> Option<&MailboxMessage> {
        let message = self.messages.get_mut(id)?;
        let added: Vec<String> = add.iter().filter(|label| message.labels.insert((*label).clone())).cloned().collect();
        let removed: Vec<String> = remove.iter().filter(|label| message.labels.remove(*label)).cloned().collect();
        if !added.is_empty() || !removed.is_empty() {
            self.position += 7;
            message.history = self.position;
            let message = message.clone();
            if !added.is_empty() {
                self.note(MailboxChangeKind::LabelsAdded, &message, added);
            }
            if !removed.is_empty() {
                self.note(MailboxChangeKind::LabelsRemoved, &message, removed);
            }
        }
        self.messages.get(id)
    }

    fn note(&mut self, what: MailboxChangeKind, message: &MailboxMessage, labels: Vec<String>) {
        let (id, thread) = (message.id.clone(), message.thread.clone());
        self.feed.push(MailboxHistoryEntry { at: self.position, what, message: id, thread, labels });
    }

    /// Messages from newest to oldest, after a position in that order.
    pub fn newest<'m>(&'m self, after: Option<&(i64, String)>) -> impl Iterator<Item = &'m MailboxMessage> {
        let range = match after {
            Some(place) => self.by_date.range(..place.clone()),
            None => self.by_date.range(..),
        };
        range.rev().filter_map(|(_, id)| self.messages.get(id))
    }

    /// The messages of a thread, oldest first.
    pub fn thread(&self, id: &str) -> Vec<&MailboxMessage> {
        let mut found: Vec<&MailboxMessage> = self.messages.values().filter(|message| message.thread == id).collect();
        found.sort_by_key(|message| (message.date, message.history));
        found
    }

    /// The changes after a position; `None` if the feed no longer has them.
    pub fn since(&self, position: u64) -> Option<&[MailboxHistoryEntry]> {
        if position < self.forgotten_to || position > self.position {
            return None;
        }
        let from = self.feed.partition_point(|entry| entry.at <= position);
        self.feed.get(from..)
    }

    /// Clears the feed.
    pub fn expire_history(&mut self) {
        self.position += 7;
        self.forgotten_to = self.position;
    }

    /// Starts the feed here: generated messages are not changes.
    pub fn settle(&mut self) {
        self.feed.clear();
        self.forgotten_to = 0;
    }

    /// A message in one of the API's formats.
    pub fn show(&self, message: &MailboxMessage, form: &str, headers: &[&str]) -> Value {
        let mut shown = json!({
            "id": message.id, "threadId": message.thread, "labelIds": message.labels,
            "historyId": message.history.to_string(), "internalDate": message.date.to_string(),
            "sizeEstimate": message.raw.len(), "snippet": "",
        });
        let Some(members) = shown.as_object_mut() else { return shown };
        match form {
            "raw" => {
                members.insert("raw".into(), Value::String(super::drafts::encode(&message.raw)));
            }
            "metadata" | "full" => {
                let all = super::drafts::headers(&message.raw);
                let wanted = |name: &str| headers.is_empty() || headers.iter().any(|h| h.eq_ignore_ascii_case(name));
                let list: Vec<Value> = all
                    .into_iter()
                    .filter(|(name, _)| wanted(name))
                    .map(|(name, value)| json!({"name": name, "value": value}))
                    .collect();
                members.insert("payload".into(), json!({"mimeType": "text/plain", "headers": list}));
            }
            _ => {}
        }
        shown
    }
}
