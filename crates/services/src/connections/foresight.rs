//! Finds errors in a write to a mailbox before it is held: the replica knows labels and messages.
//!
//! Takes the arguments of a write and the replica of the mailbox; gives a refusal that names the argument, or nothing.
//! Promise: nothing is refused because an incomplete replica does not know it; a write that is refused here was not
//! held, and nobody was asked to approve it.

use serde_json::{Map, Value};
use sluice_core::refusal::{Code, Refusal};
use sluice_store::replica::{Replica, ReplicaReader};

use super::mail::{text, unavailable};

/// Longest name that is shown, in characters.
const LONGEST: usize = 80;

/// Checks the labels and messages that a write names.
pub(super) fn unknown(copy: &Replica, arguments: &Map<String, Value>) -> Result<(), Refusal> {
    if !copy.freshness().complete {
        return Ok(());
    }
    labels(copy, arguments)?;
    messages(copy, arguments)
}

fn labels(copy: &Replica, arguments: &Map<String, Value>) -> Result<(), Refusal> {
    let known = copy.labels();
    // Some servers have no names for labels.
    if known.is_empty() {
        return Ok(());
    }
    for argument in ["add_labels", "remove_labels"] {
        for name in each(arguments, argument) {
            if !known.iter().any(|(id, called)| id == name || called.eq_ignore_ascii_case(name)) {
                let text = format!(
                    "`{argument}`: the mailbox has no label `{}`; labels made a moment ago are known after the next sync",
                    shown(name)
                );
                return Err(Refusal::new(Code::ExecuteBadArgument).with_text(&text));
            }
        }
    }
    Ok(())
}

fn messages(copy: &Replica, arguments: &Map<String, Value>) -> Result<(), Refusal> {
    let one = Some(text(arguments, "message_id")).filter(|id| !id.is_empty());
    for id in one.into_iter().chain(each(arguments, "message_ids")) {
        // Other checks decide whether an agent may see it: only its existence counts here.
        if copy.get(id, ReplicaReader::Person).map_err(unavailable)?.is_none() {
            let text = format!("there is no message `{}` in the replica of the mailbox", shown(id));
            return Err(Refusal::new(Code::StoreNotFound).with_text(&text));
        }
    }
    Ok(())
}

fn each<'a>(arguments: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    arguments.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn shown(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}
