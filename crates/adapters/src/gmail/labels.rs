//! Sets labels, and restores the earlier ones.
//!
//! Takes names as people see them, gives the service's ids. Promise: a label can never move a message to the trash or
//! out of a draft, and an undo restores only what the write changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::rollback::ObjectFingerprint;

use super::trash::TRASH;
use super::wire::{self, ME, ask, text};
use crate::adapter::{
    AbsoluteWrite, AppliedWrite, BeforeState, NetAccess, PastWrite, ReconcileOutcome, ServiceWrite, WriteReversal,
};
use crate::error::{AdapterWriteError, ExchangeError};
use crate::net::{NetRequest, escape};

/// Labels that only the service itself sets.
const FIXED: [&str; 3] = ["SENT", "DRAFT", "CHAT"];
/// Labels that delete a message: deletes have their own capability and their own rules.
const ELSEWHERE: [&str; 2] = [TRASH, "SPAM"];

/// Labels of messages.
#[derive(Debug)]
pub struct LabelMail;

/// The labels of some messages, in the one form that is hashed and stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredLabelState", into = "StoredLabelState")]
pub struct LabelState {
    messages: BTreeMap<String, Vec<String>>,
    /// The labels that the write sets or removes: only those are compared and restored. `None` in states that earlier
    /// releases stored, which hold all labels.
    touched: Option<Vec<String>>,
}

/// The stored form of a [`LabelState`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredLabelState {
    Touched { touched: Vec<String>, messages: BTreeMap<String, Vec<String>> },
    All(BTreeMap<String, Vec<String>>),
}

impl From<StoredLabelState> for LabelState {
    fn from(kept: StoredLabelState) -> Self {
        match kept {
            StoredLabelState::Touched { touched, messages } => Self { messages, touched: Some(touched) },
            StoredLabelState::All(messages) => Self { messages, touched: None },
        }
    }
}

impl From<LabelState> for StoredLabelState {
    fn from(state: LabelState) -> Self {
        match state.touched {
            Some(touched) => Self::Touched { touched, messages: state.messages },
            None => Self::All(state.messages),
        }
    }
}

impl LabelState {
    /// An empty state for a write that sets or removes these labels.
    pub fn new_for_labels<'l>(labels: impl IntoIterator<Item = &'l str>) -> Self {
        let mut touched: Vec<String> = labels.into_iter().map(str::to_owned).collect();
        touched.sort_unstable();
        touched.dedup();
        Self { messages: BTreeMap::new(), touched: Some(touched) }
    }

    /// An empty state for the same write.
    pub fn empty_like(&self) -> Self {
        Self { messages: BTreeMap::new(), touched: self.touched.clone() }
    }

    /// Whether a label is one that the write sets or removes.
    pub fn touches(&self, label: &str) -> bool {
        self.touched.as_ref().is_none_or(|touched| touched.iter().any(|one| one == label))
    }

    /// Reads the present labels of messages, as far as the write touches them.
    pub fn fetch(mut self, net: NetAccess<'_>, ids: &[&str]) -> Result<Self, ExchangeError> {
        let state = &mut self;
        for id in ids {
            state.insert(id, labels_of(net, id)?);
        }
        Ok(self)
    }

    /// The differences between what the write left and now, in words for people.
    pub fn difference(&self, now: &Self) -> Vec<String> {
        let mut words = Vec::new();
        for (id, before) in &self.messages {
            let Some(labels) = now.messages.get(id) else {
                words.push(format!("message {id} is gone"));
                continue;
            };
            let list = |labels: &[String]| {
                let touched: Vec<&str> =
                    labels.iter().map(String::as_str).filter(|label| self.touches(label)).collect();
                if touched.is_empty() { "none of them".to_owned() } else { touched.join(", ") }
            };
            words.push(format!("message {id} has {} now, and had {} before the write", list(labels), list(before)));
        }
        words
    }

    /// Adds one message.
    pub fn insert(&mut self, id: &str, labels: Vec<String>) {
        self.messages.insert(id.to_owned(), labels);
    }

    /// Whether it holds no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// How many messages it holds.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Each message with its labels.
    pub fn each(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.messages.iter().map(|(id, labels)| (id.as_str(), labels.as_slice()))
    }

    /// Reads a stored state.
    pub fn read(before: &[u8]) -> Result<Self, AdapterWriteError> {
        serde_json::from_slice(before)
            .map_err(|_| AdapterWriteError::invalid("the stored state for the rollback cannot be read"))
    }

    /// Its fingerprint: only over the labels that the write touches. A mail that the owner opened does not count as
    /// changed.
    pub fn fingerprint(&self) -> ObjectFingerprint {
        let touched = |labels: &Vec<String>| -> Vec<String> {
            labels.iter().filter(|label| self.touches(label)).cloned().collect()
        };
        let seen: BTreeMap<&String, Vec<String>> =
            self.messages.iter().map(|(id, labels)| (id, touched(labels))).collect();
        ObjectFingerprint::of(&serde_json::to_vec(&seen).unwrap_or_default())
    }

    /// The form that is stored for a rollback.
    pub fn before(&self) -> BeforeState {
        BeforeState { state: self.bytes(), print: self.fingerprint() }
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The labels of a message.
pub fn labels_of(net: NetAccess<'_>, id: &str) -> Result<Vec<String>, ExchangeError> {
    ask(net, wire::message(id, "minimal")).map(|message| wire::label_ids(&message))
}

/// Restores the labels of each message.
pub fn restore(net: NetAccess<'_>, before: &[u8]) -> Result<AppliedWrite, AdapterWriteError> {
    let wanted = LabelState::read(before)?;
    let mut after = wanted.empty_like();
    let mut touched = false;
    for (id, _) in wanted.each() {
        let now = put_back(net, id, &wanted, &mut touched).map_err(|fault| {
            if touched { fault.into_write_error().after_first_step() } else { fault.into_write_error() }
        })?;
        after.insert(id, now);
    }
    let result = json!({"message_ids": wanted.messages.keys().collect::<Vec<_>>(), "restored": true});
    Ok(AppliedWrite {
        receipt: format!("restored {}", after.len()),
        result,
        after: Some(after.fingerprint()),
        undo_until: None,
    })
}

/// Restores the labels of one message that the write touched. `touched` says whether anything was changed.
pub fn put_back(
    net: NetAccess<'_>,
    id: &str,
    before: &LabelState,
    touched: &mut bool,
) -> Result<Vec<String>, ExchangeError> {
    let wanted = before.messages.get(id).map(Vec::as_slice).unwrap_or_default();
    let mut now = labels_of(net, id)?;
    let has = |labels: &[String], label: &str| labels.iter().any(|one| one == label);
    if has(&now, TRASH) && !has(wanted, TRASH) {
        ask(net, NetRequest::post_empty(format!("{ME}/messages/{}/untrash", escape(id))))?;
        *touched = true;
        // What the service restores itself differs between servers.
        now = labels_of(net, id)?;
    }
    let free = |label: &&String| !FIXED.contains(&label.as_str()) && before.touches(label);
    let add: Vec<&String> = wanted.iter().filter(|label| !has(&now, label)).filter(free).collect();
    let remove: Vec<&String> = now.iter().filter(|label| !has(wanted, label)).filter(free).collect();
    if add.is_empty() && remove.is_empty() {
        return Ok(now);
    }
    let message = ask(net, modify(id, &json!({"addLabelIds": add, "removeLabelIds": remove})))?;
    *touched = true;
    Ok(wire::label_ids(&message))
}

fn modify(id: &str, body: &Value) -> NetRequest {
    NetRequest::post(format!("{ME}/messages/{}/modify", escape(id)), body)
}

/// The labels that a write asks for, as ids.
struct LabelEdit<'w> {
    id: &'w str,
    add: Vec<String>,
    remove: Vec<String>,
}

fn resolve_edit<'w>(net: NetAccess<'_>, write: &'w ServiceWrite) -> Result<LabelEdit<'w>, AdapterWriteError> {
    let id = write.arguments.get("message_id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| AdapterWriteError::invalid("no message is named"))?;
    let names = |name: &str| -> Vec<&str> {
        write.arguments.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let (add, remove) = (names("add_labels"), names("remove_labels"));
    if add.is_empty() && remove.is_empty() {
        return Err(AdapterWriteError::invalid("no label is named"));
    }
    let known = ask(net, NetRequest::get(format!("{ME}/labels"))).map_err(ExchangeError::into_read_error)?;
    let known = known.get("labels").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let resolve = |name: &str| -> Result<String, AdapterWriteError> {
        let same = |label: &&Value, by: &str| text(label, by).is_some_and(|one| one.eq_ignore_ascii_case(name));
        let found = known.iter().find(|label| text(label, "id") == Some(name));
        let found = found.or_else(|| known.iter().find(|label| same(label, "name")));
        let id = found
            .and_then(|label| text(label, "id"))
            .ok_or_else(|| AdapterWriteError::invalid("there is no such label"))?;
        if FIXED.contains(&id) || ELSEWHERE.contains(&id) {
            return Err(AdapterWriteError::invalid(
                "this label cannot be set; use the delete capability to delete a message",
            ));
        }
        Ok(id.to_owned())
    };
    let all = |names: Vec<&str>| names.into_iter().map(resolve).collect::<Result<Vec<_>, _>>();
    let (add, remove) = (all(add)?, all(remove)?);
    if add.iter().any(|label| remove.contains(label)) {
        return Err(AdapterWriteError::invalid("a label cannot be set and removed at once"));
    }
    Ok(LabelEdit { id, add, remove })
}

impl AbsoluteWrite for LabelMail {
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError> {
        let wish = resolve_edit(net, write)?;
        let body = json!({"addLabelIds": wish.add, "removeLabelIds": wish.remove});
        let message = ask(net, modify(wish.id, &body)).map_err(ExchangeError::into_write_error)?;
        Ok(done(&wish, wire::label_ids(&message)))
    }

    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome {
        let Ok(wish) = resolve_edit(net, write) else { return ReconcileOutcome::Unknown };
        match labels_of(net, wish.id) {
            Ok(now) => {
                let applied = wish.add.iter().all(|label| now.contains(label))
                    && !wish.remove.iter().any(|label| now.contains(label));
                if applied { ReconcileOutcome::Applied(done(&wish, now)) } else { ReconcileOutcome::Absent }
            }
            Err(fault) if fault.is_status(404) => ReconcileOutcome::Absent,
            Err(_) => ReconcileOutcome::Unknown,
        }
    }
}

impl WriteReversal for LabelMail {
    fn capture(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<BeforeState, AdapterWriteError> {
        let wish = resolve_edit(net, write)?;
        wish.state().fetch(net, &[wish.id]).map(|state| state.before()).map_err(ExchangeError::into_read_error)
    }

    fn current_fingerprint(
        &self,
        net: NetAccess<'_>,
        past: PastWrite<'_>,
    ) -> Result<ObjectFingerprint, AdapterWriteError> {
        let id = past.write.arguments.get("message_id").and_then(Value::as_str).unwrap_or_default();
        LabelState::read(past.before)?
            .empty_like()
            .fetch(net, &[id])
            .map(|state| state.fingerprint())
            .map_err(ExchangeError::into_read_error)
    }

    fn difference(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<Vec<String>, AdapterWriteError> {
        let before = LabelState::read(past.before)?;
        let ids: Vec<&str> = before.each().map(|(id, _)| id).collect();
        let now = before.empty_like().fetch(net, &ids).map_err(ExchangeError::into_read_error)?;
        Ok(before.difference(&now))
    }

    fn undo(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<AppliedWrite, AdapterWriteError> {
        restore(net, past.before)
    }
}

impl LabelEdit<'_> {
    /// An empty state for the labels that it touches.
    fn state(&self) -> LabelState {
        LabelState::new_for_labels(self.add.iter().chain(&self.remove).map(String::as_str))
    }
}

fn done(wish: &LabelEdit<'_>, labels: Vec<String>) -> AppliedWrite {
    let mut after = wish.state();
    let result = json!({"message_id": wish.id, "labels": labels});
    after.insert(wish.id, labels);
    AppliedWrite { receipt: "labels set".into(), result, after: Some(after.fingerprint()), undo_until: None }
}
