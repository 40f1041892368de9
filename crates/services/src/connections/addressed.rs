//! Who gets a reply, and which messages a write is about.
//!
//! Takes arguments and the replica of the mailbox; gives arguments that name everyone who gets the reply, and lines for
//! people about messages that the arguments name only by id. Promise: the recipients of a reply are fixed before anyone
//! judges, shows or digests it; nobody is added afterwards.

use serde_json::{Map, Value};
use sluice_core::Action;
use sluice_core::mail::{Mail, MailAddress};
use sluice_core::recipients;
use sluice_core::refusal::{Code, Refusal};
use sluice_store::replica::{Replica, ReplicaReader};

use super::mail::{text, unavailable, wrong};

/// Longest description of one message, in characters.
const LONGEST: usize = 240;

/// The arguments of a write with every recipient named. A reply without `to` goes to the sender of its message;
/// `reply_all` adds everyone who got the message, except the account itself.
pub(super) fn settle(
    copy: &Replica,
    capability: &str,
    mut arguments: Value,
    me: Option<&str>,
) -> Result<Value, Refusal> {
    let Value::Object(map) = &mut arguments else { return Ok(arguments) };
    if matches!(capability, "email.reply" | "email.forward") {
        certain(copy, text(map, "message_id"))?;
    }
    let all = map.get("reply_all") == Some(&Value::Bool(true));
    let named = !named(map, "to").is_empty();
    if capability != "email.reply" || (named && !all) {
        return Ok(arguments);
    }
    // Only addresses are taken from it. A later check decides whether an agent may reply to a withheld message.
    let about = copy.get(text(map, "message_id"), ReplicaReader::Person).map_err(unavailable)?;
    let none = || Refusal::new(Code::StoreNotFound).with_text("there is no such message in the replica of the mailbox");
    let about = about.ok_or_else(none)?;
    if !named {
        let sender = about.from.as_ref().ok_or_else(|| wrong("the message has no sender to reply to: set `to`"))?;
        map.insert("to".into(), Value::Array(vec![Value::String(plain(sender)?)]));
    }
    if all {
        add_all(map, &about, me)?;
    }
    Ok(arguments)
}

/// SECURITY: a message that two readers read differently is neither answered nor forwarded, not even after a person
/// released its text: the person who approves it would see one sender, and another one may be meant.
fn certain(copy: &Replica, id: &str) -> Result<(), Refusal> {
    let about = copy.get(id, ReplicaReader::Person).map_err(unavailable)?;
    match about.and_then(|mail| mail.ambiguous) {
        Some(_) => Err(Refusal::new(Code::ContentAmbiguous)),
        None => Ok(()),
    }
}

/// Adds everyone who got the message and is not a recipient yet.
fn add_all(map: &mut Map<String, Value>, about: &Mail, me: Option<&str>) -> Result<(), Refusal> {
    let mut known: Vec<String> = ["to", "cc", "bcc"].into_iter().flat_map(|name| self::named(map, name)).collect();
    known.extend(me.map(str::to_ascii_lowercase));
    let mut copies = match map.get("cc") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list.clone(),
        Some(other) => vec![other.clone()],
    };
    for person in about.to.iter().chain(&about.cc) {
        let address = plain(person)?;
        let lower = address.to_ascii_lowercase();
        if !known.contains(&lower) {
            known.push(lower);
            copies.push(Value::String(address));
        }
    }
    if !copies.is_empty() {
        map.insert("cc".into(), Value::Array(copies));
    }
    Ok(())
}

/// Every address in an argument, in lower case.
fn named(map: &Map<String, Value>, name: &str) -> Vec<String> {
    let people = map.get(name).map(recipients::parse_recipients).unwrap_or_default();
    people.into_iter().map(|person| person.address.to_ascii_lowercase()).collect()
}

/// SECURITY: the sender and recipients in a message are untrusted text: each must be one address that every reader
/// reads the same way.
fn plain(person: &MailAddress) -> Result<String, Refusal> {
    let text = Value::String(person.address.clone());
    match recipients::parse_recipients(&text).as_slice() {
        [one] if one.domain().is_some() => Ok(one.address.clone()),
        _ => Err(wrong("an address in the message is ambiguous: name every recipient in `to` and `cc`")),
    }
}

/// What is known about the messages that a write names: sender and subject, one line each, in third-party words.
pub(super) fn described(copy: &Replica, action: &Action) -> Vec<String> {
    let about = ["email.reply", "email.forward", "email.delete", "email.bulk_delete", "email.label", "email.move"];
    if !about.contains(&action.capability().as_str()) {
        return Vec::new();
    }
    let arguments = action.arguments();
    let many = arguments.get("message_ids").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let ids: Vec<&str> = arguments.get("message_id").and_then(Value::as_str).into_iter().chain(many).collect();
    // All of them: a person who approves a delete of many messages sees each of them.
    ids.iter().map(|id| line(copy, id)).collect()
}

fn line(copy: &Replica, id: &str) -> String {
    let words = match copy.get(id, ReplicaReader::Person) {
        Ok(Some(mail)) => {
            let from = Some(mail.sender_line()).filter(|from| !from.is_empty()).unwrap_or_else(|| "nobody".to_owned());
            let checked = mail.authentication.map(|said| format!(" ({said})")).unwrap_or_default();
            format!("{id} from {from}{checked}: {}", mail.subject_line())
        }
        Ok(None) => format!("{id} is not in the replica of the mailbox"),
        Err(_) => format!("{id} cannot be looked up now"),
    };
    words.chars().take(LONGEST).collect()
}
