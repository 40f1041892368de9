//! Deleting is moving to the trash; taking it back restores every label.
//!
//! Takes one message id or several, gives their labels as they were and as they are. Promise: nothing is
//! ever deleted for good, and a message somebody changed since is not touched by an undo.

use serde_json::{Value, json};

use super::labels::{State, labels_of, restore};
use super::wire::{self, ME, ask};
use crate::adapter::{Absolute, Before, Done, Found, Past, Reversal, Way, Write};
use crate::net::{Request, escape};
use crate::trouble::{Fault, Trouble};
use sluice_core::rollback::Fingerprint;

/// The trash of one account.
#[derive(Debug)]
pub struct Trash;

/// The label of everything in it.
pub const TRASH: &str = "TRASH";

impl Absolute for Trash {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        let mut after = State::default();
        for id in ids(write)? {
            let halfway = !after.is_empty();
            let path = format!("{ME}/messages/{}/trash", escape(id));
            let labels = match ask(net, Request::post_empty(path)) {
                Ok(message) if message.get("labelIds").is_some() => wire::label_ids(&message),
                // It was done; what it left is asked for.
                Ok(_) => labels_of(net, id).map_err(|_| Trouble::Unclear)?,
                Err(fault) => {
                    let trouble = fault.of_write();
                    return Err(if halfway { trouble.halfway() } else { trouble });
                }
            };
            after.insert(id, labels);
        }
        Ok(done(write, &after))
    }

    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found {
        let Ok(ids) = ids(write) else { return Found::Unknown };
        let mut after = State::default();
        for id in ids {
            match labels_of(net, id) {
                Ok(labels) if labels.iter().any(|label| label == TRASH) => after.insert(id, labels),
                // Repeating it is harmless, and says so itself if the message is gone.
                Ok(_) => return Found::Absent,
                Err(fault) if fault.is_status(404) => return Found::Absent,
                Err(_) => return Found::Unknown,
            }
        }
        Found::Applied(done(write, &after))
    }
}

impl Reversal for Trash {
    fn capture(&self, net: Way<'_>, write: &Write) -> Result<Before, Trouble> {
        State::look(net, &ids(write)?).map(|state| state.before()).map_err(Fault::of_look)
    }

    fn present(&self, net: Way<'_>, past: Past<'_>) -> Result<Fingerprint, Trouble> {
        State::look(net, &ids(past.write)?).map(|state| state.print()).map_err(Fault::of_look)
    }

    fn undo(&self, net: Way<'_>, past: Past<'_>) -> Result<Done, Trouble> {
        restore(net, past.before)
    }
}

fn ids(write: &Write) -> Result<Vec<&str>, Trouble> {
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
        return Err(Trouble::invalid("no message is named"));
    }
    Ok(ids)
}

fn done(write: &Write, after: &State) -> Done {
    let result = match write.arguments.get("message_id") {
        Some(id) => json!({"message_id": id, "in": "trash"}),
        None => json!({"message_ids": write.arguments.get("message_ids"), "in": "trash"}),
    };
    Done { receipt: format!("trashed {}", after.len()), result, after: Some(after.print()), undo_until: None }
}
