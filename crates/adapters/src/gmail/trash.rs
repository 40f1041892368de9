//! Delete: moves messages to the trash; an undo restores every label that the move removed.
//!
//! Takes one message id or several, gives their labels before and after. Promise: nothing is ever deleted permanently,
//! and an undo does not touch a message that somebody moved since. Of several messages each is judged for itself, and
//! the result says which were moved, left, restored or refused.

use serde_json::{Value, json};

use super::labels::{LabelState, labels_of, put_back, restore};
use super::wire::{self, ME, ask};
use crate::adapter::{
    AbsoluteWrite, AppliedWrite, BeforeState, NetAccess, PastWrite, ReconcileOutcome, ServiceWrite, WriteReversal,
};
use crate::error::{AdapterWriteError, ExchangeError};
use crate::net::{NetRequest, escape};
use sluice_core::rollback::ObjectFingerprint;

/// The trash of one account.
#[derive(Debug)]
pub struct TrashMail;

/// The label of everything in it.
pub const TRASH: &str = "TRASH";

/// Labels that a move to the trash and back changes by itself.
const MOVED: [&str; 3] = [TRASH, "INBOX", "SPAM"];

impl AbsoluteWrite for TrashMail {
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError> {
        let mut sorted = BulkTrashOutcome::new();
        let mut gone = None;
        for id in ids(write)? {
            let halfway = !sorted.after.is_empty();
            let path = format!("{ME}/messages/{}/trash", escape(id));
            let labels = match ask(net, NetRequest::post_empty(path)) {
                Ok(message) if message.get("labelIds").is_some() => wire::label_ids(&message),
                // It was done; now the resulting labels are requested.
                Ok(_) => labels_of(net, id).map_err(|_| AdapterWriteError::Unclear)?,
                // Somebody deleted it permanently: the others still have to be moved.
                Err(fault) if fault.is_status(404) && is_bulk(write) => {
                    sorted.left.push(id.to_owned());
                    gone = Some(fault);
                    continue;
                }
                Err(fault) => {
                    let trouble = fault.into_write_error();
                    return Err(if halfway { trouble.after_first_step() } else { trouble });
                }
            };
            sorted.after.insert(id, labels);
        }
        match gone {
            Some(fault) if sorted.after.is_empty() => Err(fault.into_write_error()),
            Some(_) | None => Ok(sorted.done(write)),
        }
    }

    /// Several messages of which only some exist count as done in part: this is reported, and can be undone. If it were
    /// called absent, the write could end as one that did nothing.
    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome {
        let Ok(ids) = ids(write) else { return ReconcileOutcome::Unknown };
        let mut sorted = BulkTrashOutcome::new();
        for id in ids {
            match labels_of(net, id) {
                Ok(labels) if labels.iter().any(|label| label == TRASH) => sorted.after.insert(id, labels),
                Ok(_) => sorted.left.push(id.to_owned()),
                Err(fault) if fault.is_status(404) => sorted.left.push(id.to_owned()),
                Err(_) => return ReconcileOutcome::Unknown,
            }
        }
        if sorted.after.is_empty() {
            // A repeat is harmless, and reports it if the message is gone.
            return ReconcileOutcome::Absent;
        }
        ReconcileOutcome::Applied(sorted.done(write))
    }
}

impl WriteReversal for TrashMail {
    fn capture(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<BeforeState, AdapterWriteError> {
        let ids = ids(write)?;
        if !is_bulk(write) {
            return LabelState::new_for_labels(MOVED)
                .fetch(net, &ids)
                .map(|state| state.before())
                .map_err(ExchangeError::into_read_error);
        }
        let (mut state, mut gone) = (LabelState::new_for_labels(MOVED), None);
        for id in ids {
            match labels_of(net, id) {
                Ok(labels) => state.insert(id, labels),
                Err(fault) if fault.is_status(404) => gone = Some(fault),
                Err(fault) => return Err(fault.into_read_error()),
            }
        }
        match gone {
            Some(fault) if state.is_empty() => Err(fault.into_read_error()),
            Some(_) | None => Ok(state.before()),
        }
    }

    fn current_fingerprint(
        &self,
        net: NetAccess<'_>,
        past: PastWrite<'_>,
    ) -> Result<ObjectFingerprint, AdapterWriteError> {
        let ids = ids(past.write)?;
        let before = LabelState::read(past.before)?;
        if !is_bulk(past.write) {
            return before
                .empty_like()
                .fetch(net, &ids)
                .map(|state| state.fingerprint())
                .map_err(ExchangeError::into_read_error);
        }
        let mut back = true;
        for (id, labels) in before.each() {
            match fetch_trashed_state(net, id, labels).map_err(ExchangeError::into_read_error)? {
                TrashedMailState::Trashed => return Ok(ids_fingerprint(past.write)),
                TrashedMailState::Back => {}
                TrashedMailState::Changed => back = false,
            }
        }
        Ok(if back { before.fingerprint() } else { ObjectFingerprint::of(b"nothing of it is as the write left it") })
    }

    fn difference(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<Vec<String>, AdapterWriteError> {
        let before = LabelState::read(past.before)?;
        let mut now = before.empty_like();
        for (id, _) in before.each() {
            match labels_of(net, id) {
                Ok(labels) => now.insert(id, labels),
                Err(fault) if fault.is_status(404) => {}
                Err(fault) => return Err(fault.into_read_error()),
            }
        }
        Ok(before.difference(&now))
    }

    fn undo(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<AppliedWrite, AdapterWriteError> {
        if !is_bulk(past.write) {
            return restore(net, past.before);
        }
        let before = LabelState::read(past.before)?;
        let (mut restored, mut refused, mut touched) = (Vec::new(), Vec::new(), false);
        for (id, labels) in before.each() {
            let halfway = |fault: ExchangeError, touched: bool| {
                if touched { fault.into_write_error().after_first_step() } else { fault.into_write_error() }
            };
            match fetch_trashed_state(net, id, labels).map_err(|fault| halfway(fault, touched))? {
                TrashedMailState::Trashed => {
                    put_back(net, id, &before, &mut touched).map_err(|fault| halfway(fault, touched))?;
                    restored.push(id.to_owned());
                }
                TrashedMailState::Back => restored.push(id.to_owned()),
                TrashedMailState::Changed => refused.push(id.to_owned()),
            }
        }
        if restored.is_empty() {
            return Err(AdapterWriteError::invalid("nothing can be undone: every message was changed since"));
        }
        let after = if refused.is_empty() { before.fingerprint() } else { ObjectFingerprint::of(b"restored in part") };
        let receipt = format!("restored {}, refused {}", restored.len(), refused.len());
        let result = json!({"restored": restored, "refused": refused});
        Ok(AppliedWrite { receipt, result, after: Some(after), undo_until: None })
    }
}

/// The state of one message of a bulk, compared with what the write left.
enum TrashedMailState {
    /// In the trash.
    Trashed,
    /// As it was before: never moved, or restored already.
    Back,
    /// Somebody changed it since, or deleted it permanently.
    Changed,
}

fn fetch_trashed_state(net: NetAccess<'_>, id: &str, before: &[String]) -> Result<TrashedMailState, ExchangeError> {
    let now = match labels_of(net, id) {
        Ok(now) => now,
        Err(fault) if fault.is_status(404) => return Ok(TrashedMailState::Changed),
        Err(fault) => return Err(fault),
    };
    let moved = |labels: &[String]| -> Vec<String> {
        labels.iter().filter(|label| MOVED.contains(&label.as_str())).cloned().collect()
    };
    if moved(&now) == moved(before) {
        return Ok(TrashedMailState::Back);
    }
    let in_trash = |labels: &[String]| labels.iter().any(|label| label == TRASH);
    Ok(if in_trash(&now) && !in_trash(before) { TrashedMailState::Trashed } else { TrashedMailState::Changed })
}

/// Whether the write names several messages: each of them is then judged for itself.
fn is_bulk(write: &ServiceWrite) -> bool {
    write.arguments.contains_key("message_ids")
}

/// The fingerprint that a bulk leaves, as long as any part of it can be undone.
fn ids_fingerprint(write: &ServiceWrite) -> ObjectFingerprint {
    let ids = ids(write).unwrap_or_default();
    ObjectFingerprint::of(format!("in the trash: {}", ids.join(" ")).as_bytes())
}

fn ids(write: &ServiceWrite) -> Result<Vec<&str>, AdapterWriteError> {
    let one = write.arguments.get("message_id").and_then(Value::as_str);
    let many = write.arguments.get("message_ids").and_then(Value::as_array);
    let mut ids: Vec<&str> = one
        .into_iter()
        .chain(many.into_iter().flatten().filter_map(Value::as_str))
        .filter(|id| !id.is_empty())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Err(AdapterWriteError::invalid("no message is named"));
    }
    Ok(ids)
}

/// The result for each message.
struct BulkTrashOutcome {
    after: LabelState,
    left: Vec<String>,
}

impl BulkTrashOutcome {
    fn new() -> Self {
        Self { after: LabelState::new_for_labels(MOVED), left: Vec::new() }
    }

    fn done(&self, write: &ServiceWrite) -> AppliedWrite {
        let count = self.after.len();
        if !is_bulk(write) {
            let result = json!({"message_id": write.arguments.get("message_id"), "in": "trash"});
            let after = Some(self.after.fingerprint());
            return AppliedWrite { receipt: format!("trashed {count}"), result, after, undo_until: None };
        }
        let ids: Vec<&str> = self.after.each().map(|(id, _)| id).collect();
        let (receipt, result) = if self.left.is_empty() {
            (format!("trashed {count}"), json!({"message_ids": ids, "in": "trash"}))
        } else {
            let receipt = format!("trashed {count} of {}", count + self.left.len());
            (receipt, json!({"message_ids": ids, "in": "trash", "in_part": true, "left": self.left}))
        };
        AppliedWrite { receipt, result, after: Some(ids_fingerprint(write)), undo_until: None }
    }
}
