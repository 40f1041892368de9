//! Finds the targets among the values of a call.
//!
//! Takes the arguments, and the manifest where there is one. With a manifest, its marked arguments are targets. Without
//! one, every argument is a target except plain texts, times and switches; and inside a text, every address.
//! Promise: an argument of a shape that cannot be read counts as a new target, so that it needs approval.

use serde_json::{Map, Value};

use super::naming::words_of;
use super::values::{addresses, is_reachable};
use super::{CallTarget, MOST};
use crate::capability::{Capability, ParamKind};
use crate::recipients;

/// Deepest nesting that is read.
const DEPTH: usize = 12;
/// Words in the names of arguments that hold texts for people.
///
/// Neither `query` nor `prompt` is among them: those are executed, not read.
const TEXTS: [&str; 24] = [
    "body",
    "content",
    "contents",
    "text",
    "message",
    "msg",
    "subject",
    "title",
    "description",
    "desc",
    "note",
    "notes",
    "comment",
    "comments",
    "summary",
    "caption",
    "html",
    "markdown",
    "question",
    "answer",
    "reason",
    "review",
    "location",
    "venue",
];
/// Words in the names of arguments that hold times.
const TIMES: [&str; 17] = [
    "date", "time", "day", "month", "year", "start", "end", "when", "since", "until", "deadline", "due", "duration",
    "hour", "minutes", "timezone", "tz",
];
/// How the names of months and days begin.
const CALENDAR: [&str; 19] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "mon", "tue", "wed", "thu",
    "fri", "sat", "sun",
];
/// Other words that occur in times.
const CLOCK: [&str; 10] = ["am", "pm", "utc", "gmt", "t", "z", "st", "nd", "rd", "th"];
/// Words in the names of arguments that hold amounts.
const AMOUNTS: [&str; 10] = ["amount", "sum", "price", "total", "quantity", "qty", "fee", "cost", "value", "balance"];

/// Words in the names of arguments whose keys are people: `permissions: {ana: write}`.
const PEOPLE: [&str; 28] = [
    "to",
    "cc",
    "bcc",
    "permission",
    "permissions",
    "members",
    "users",
    "roles",
    "shares",
    "access",
    "acl",
    "grants",
    "recipients",
    "attendees",
    "invitees",
    "people",
    "participants",
    "owners",
    "editors",
    "viewers",
    "readers",
    "writers",
    "reviewers",
    "assignees",
    "guests",
    "followers",
    "subscribers",
    "amounts",
];

/// The role of all recipients of a message, whichever line they stand in.
pub(crate) const RECIPIENT: &str = "recipient";

/// The targets a manifest marks. Where a capability takes arguments that it does not name, those are read by name and
/// value, and so are its arguments of any shape.
#[must_use]
pub fn of_capability(spec: &Capability, arguments: &Map<String, Value>) -> Vec<CallTarget> {
    let mut found = Vec::new();
    for param in spec.params.iter().filter(|param| param.target) {
        let Some(value) = arguments.get(&param.name) else { continue };
        let amount = matches!(param.kind, ParamKind::Integer | ParamKind::Number);
        match param.kind {
            ParamKind::Recipients => people(&param.name, value, &mut found),
            _ => leaves(&param.name, value, amount, 0, &mut found),
        }
    }
    if spec.open {
        for (name, value) in arguments {
            let param = spec.param(name);
            let is_shaped =
                param.is_some_and(|param| param.target || !matches!(param.kind, ParamKind::Any | ParamKind::Object));
            if !is_shaped {
                unknown(name, name, value, 0, &mut found);
            }
        }
    }
    cut(found)
}

/// The targets of a tool without a description.
#[must_use]
pub fn of_unknown(arguments: &Map<String, Value>) -> Vec<CallTarget> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        unknown(name, name, value, 0, &mut found);
    }
    cut(found)
}

fn cut(mut found: Vec<CallTarget>) -> Vec<CallTarget> {
    if found.len() > MOST {
        found.truncate(MOST);
        found.push(CallTarget::unreadable("more"));
    }
    found
}

/// Everyone a recipients argument names. An ambiguous one matches no known target.
fn people(name: &str, value: &Value, found: &mut Vec<CallTarget>) {
    let list = recipients::parse_recipients(value);
    if list.is_empty() && !value.is_null() && *value != Value::Array(Vec::new()) {
        found.push(CallTarget::unreadable(name));
    }
    for recipient in list {
        match recipient.domain() {
            Some(_) => found.push(CallTarget::new(name, &recipient.address, false).in_role(RECIPIENT)),
            None => found.push(CallTarget::unreadable(name)),
        }
    }
}

/// Every single value.
fn leaves(name: &str, value: &Value, amount: bool, depth: usize, found: &mut Vec<CallTarget>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => found.push(CallTarget::new(name, &number.to_string(), amount)),
        Value::String(text) if text.trim().is_empty() => {}
        Value::String(text) => found.push(CallTarget::new(name, text, amount)),
        Value::Array(_) | Value::Object(_) if depth >= DEPTH || found.len() > MOST => {
            found.push(CallTarget::unreadable(name));
        }
        Value::Array(list) => {
            for (n, item) in list.iter().enumerate() {
                leaves(&format!("{name}[{n}]"), item, amount, depth + 1, found);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                found.push(CallTarget::new(name, key, false));
                leaves(&format!("{name}.{key}"), item, amount, depth + 1, found);
            }
        }
    }
}

/// One argument of a tool without a description. `name` is the word that says what it is, `place` its position.
fn unknown(place: &str, name: &str, value: &Value, depth: usize, found: &mut Vec<CallTarget>) {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= DEPTH || found.len() > MOST => {
            found.push(CallTarget::unreadable(place));
        }
        Value::Array(list) => {
            for (n, item) in list.iter().enumerate() {
                unknown(&format!("{place}[{n}]"), name, item, depth + 1, found);
            }
        }
        Value::Object(map) => {
            // The keys of a list's items are names of fields.
            let people = says(name, &PEOPLE) && !place.ends_with(']');
            for (key, item) in map {
                if people || is_reachable(key) {
                    found.push(CallTarget::new(place, key, false));
                }
                unknown(&format!("{place}.{key}"), key, item, depth + 1, found);
            }
        }
        Value::String(text) if is_prose(name) => {
            found.extend(addresses(text).iter().map(|address| CallTarget::new(place, address, false).quoted()));
        }
        Value::String(text) if is_moment(name, text) => {}
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            leaves(place, value, says(name, &AMOUNTS), depth, found);
        }
    }
}

/// Whether the last word of a name is among these. It says what the argument is: a `message_id` is not a message, a
/// `text_body` is a text.
fn says(name: &str, words: &[&str]) -> bool {
    words_of(name).last().is_some_and(|last| words.contains(&last.as_str()))
}

/// Whether an argument of this name holds a text for people.
pub(crate) fn is_prose(name: &str) -> bool {
    says(name, &TEXTS)
}

/// Whether an argument is a time and nothing else.
pub(crate) fn is_moment(name: &str, text: &str) -> bool {
    says(name, &TIMES) && is_time(text)
}

/// Whether a text is nothing but a time.
fn is_time(text: &str) -> bool {
    text.len() <= 40
        && text.chars().any(|c| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " -:/.,+".contains(c))
        && text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).all(|word| {
            let word = word.to_ascii_lowercase();
            CLOCK.contains(&word.as_str()) || CALENDAR.iter().any(|name| word.starts_with(name) && word.len() <= 9)
        })
        && !text.contains("//")
}
