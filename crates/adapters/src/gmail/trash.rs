//! Deleting is moving to the trash; taking it back restores every label that the move took.
//!
//! Takes one message id or several, gives their labels as they were and as they are. Promise: nothing is
//! ever deleted for good, and a message that somebody moved since is not touched by an undo; of several, each is judged for
//! itself, and which were moved, left, restored or refused is said.

use serde_json::{Value, json};

use super::labels::{State, labels_of, put_back, restore};
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

/// Labels that moving to the trash and back changes by itself.
const MOVED: [&str; 3] = [TRASH, "INBOX", "SPAM"];

impl Absolute for Trash {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        let mut sorted = Sorted::new();
        let mut gone = None;
        for id in ids(write)? {
            let halfway = !sorted.after.is_empty();
            let path = format!("{ME}/messages/{}/trash", escape(id));
            let labels = match ask(net, Request::post_empty(path)) {
                Ok(message) if message.get("labelIds").is_some() => wire::label_ids(&message),
                // It was done; what it left is asked for.
                Ok(_) => labels_of(net, id).map_err(|_| Trouble::Unclear)?,
                // Somebody deleted it for good: the others are still to go.
                Err(fault) if fault.is_status(404) && is_bulk(write) => {
                    sorted.left.push(id.to_owned());
                    gone = Some(fault);
                    continue;
                }
                Err(fault) => {
                    let trouble = fault.of_write();
                    return Err(if halfway { trouble.halfway() } else { trouble });
                }
            };
            sorted.after.insert(id, labels);
        }
        match gone {
            Some(fault) if sorted.after.is_empty() => Err(fault.of_write()),
            Some(_) | None => Ok(sorted.done(write)),
        }
    }

    /// Several of which some are there are done in part: that is said, and can be taken back. Were it called absent, the
    /// write could end as one that did nothing.
    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found {
        let Ok(ids) = ids(write) else { return Found::Unknown };
        let mut sorted = Sorted::new();
        for id in ids {
            match labels_of(net, id) {
                Ok(labels) if labels.iter().any(|label| label == TRASH) => sorted.after.insert(id, labels),
                Ok(_) => sorted.left.push(id.to_owned()),
                Err(fault) if fault.is_status(404) => sorted.left.push(id.to_owned()),
                Err(_) => return Found::Unknown,
            }
        }
        if sorted.after.is_empty() {
            // Repeating it is harmless, and says so itself if the message is gone.
            return Found::Absent;
        }
        Found::Applied(sorted.done(write))
    }
}

impl Reversal for Trash {
    fn capture(&self, net: Way<'_>, write: &Write) -> Result<Before, Trouble> {
        let ids = ids(write)?;
        if !is_bulk(write) {
            return State::touching(MOVED).look(net, &ids).map(|state| state.before()).map_err(Fault::of_look);
        }
        let (mut state, mut gone) = (State::touching(MOVED), None);
        for id in ids {
            match labels_of(net, id) {
                Ok(labels) => state.insert(id, labels),
                Err(fault) if fault.is_status(404) => gone = Some(fault),
                Err(fault) => return Err(fault.of_look()),
            }
        }
        match gone {
            Some(fault) if state.is_empty() => Err(fault.of_look()),
            Some(_) | None => Ok(state.before()),
        }
    }

    fn present(&self, net: Way<'_>, past: Past<'_>) -> Result<Fingerprint, Trouble> {
        let ids = ids(past.write)?;
        let before = State::read(past.before)?;
        if !is_bulk(past.write) {
            return before.like().look(net, &ids).map(|state| state.print()).map_err(Fault::of_look);
        }
        let mut back = true;
        for (id, labels) in before.each() {
            match standing(net, id, labels).map_err(Fault::of_look)? {
                Standing::Trashed => return Ok(print(past.write)),
                Standing::Back => {}
                Standing::Changed => back = false,
            }
        }
        Ok(if back { before.print() } else { Fingerprint::of(b"nothing of it is as the write left it") })
    }

    fn difference(&self, net: Way<'_>, past: Past<'_>) -> Result<Vec<String>, Trouble> {
        let before = State::read(past.before)?;
        let mut now = before.like();
        for (id, _) in before.each() {
            match labels_of(net, id) {
                Ok(labels) => now.insert(id, labels),
                Err(fault) if fault.is_status(404) => {}
                Err(fault) => return Err(fault.of_look()),
            }
        }
        Ok(before.difference(&now))
    }

    fn undo(&self, net: Way<'_>, past: Past<'_>) -> Result<Done, Trouble> {
        if !is_bulk(past.write) {
            return restore(net, past.before);
        }
        let before = State::read(past.before)?;
        let (mut restored, mut refused, mut touched) = (Vec::new(), Vec::new(), false);
        for (id, labels) in before.each() {
            let halfway = |fault: Fault, touched: bool| {
                if touched { fault.of_write().halfway() } else { fault.of_write() }
            };
            match standing(net, id, labels).map_err(|fault| halfway(fault, touched))? {
                Standing::Trashed => {
                    put_back(net, id, &before, &mut touched).map_err(|fault| halfway(fault, touched))?;
                    restored.push(id.to_owned());
                }
                Standing::Back => restored.push(id.to_owned()),
                Standing::Changed => refused.push(id.to_owned()),
            }
        }
        if restored.is_empty() {
            return Err(Trouble::invalid("somebody changed every one of them since"));
        }
        let after = if refused.is_empty() { before.print() } else { Fingerprint::of(b"restored in part") };
        let receipt = format!("restored {}, refused {}", restored.len(), refused.len());
        let result = json!({"restored": restored, "refused": refused});
        Ok(Done { receipt, result, after: Some(after), undo_until: None })
    }
}

/// How a message of a bulk stands to what the write left.
enum Standing {
    /// In the trash.
    Trashed,
    /// As it was before: never moved, or taken back already.
    Back,
    /// Somebody did something to it since, or deleted it for good.
    Changed,
}

fn standing(net: Way<'_>, id: &str, before: &[String]) -> Result<Standing, Fault> {
    let now = match labels_of(net, id) {
        Ok(now) => now,
        Err(fault) if fault.is_status(404) => return Ok(Standing::Changed),
        Err(fault) => return Err(fault),
    };
    let moved = |labels: &[String]| -> Vec<String> {
        labels.iter().filter(|label| MOVED.contains(&label.as_str())).cloned().collect()
    };
    if moved(&now) == moved(before) {
        return Ok(Standing::Back);
    }
    let in_trash = |labels: &[String]| labels.iter().any(|label| label == TRASH);
    Ok(if in_trash(&now) && !in_trash(before) { Standing::Trashed } else { Standing::Changed })
}

/// Whether it names several: each of them is then judged for itself.
fn is_bulk(write: &Write) -> bool {
    write.arguments.contains_key("message_ids")
}

/// What a bulk leaves behind, as long as anything of it can be taken back.
fn print(write: &Write) -> Fingerprint {
    let ids = ids(write).unwrap_or_default();
    Fingerprint::of(format!("in the trash: {}", ids.join(" ")).as_bytes())
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

/// What became of each message.
struct Sorted {
    after: State,
    left: Vec<String>,
}

impl Sorted {
    fn new() -> Self {
        Self { after: State::touching(MOVED), left: Vec::new() }
    }

    fn done(&self, write: &Write) -> Done {
        let count = self.after.len();
        if !is_bulk(write) {
            let result = json!({"message_id": write.arguments.get("message_id"), "in": "trash"});
            let after = Some(self.after.print());
            return Done { receipt: format!("trashed {count}"), result, after, undo_until: None };
        }
        let ids: Vec<&str> = self.after.each().map(|(id, _)| id).collect();
        let (receipt, result) = if self.left.is_empty() {
            (format!("trashed {count}"), json!({"message_ids": ids, "in": "trash"}))
        } else {
            let receipt = format!("trashed {count} of {}", count + self.left.len());
            (receipt, json!({"message_ids": ids, "in": "trash", "in_part": true, "left": self.left}))
        };
        Done { receipt, result, after: Some(print(write)), undo_until: None }
    }
}
