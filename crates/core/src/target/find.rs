//! Which values of a call are targets.
//!
//! Takes the arguments, and the manifest where there is one. With a manifest, its marked arguments are targets. Without,
//! everything is that is not plainly a text, a time or a switch; and inside a text whatever has the shape of an address.
//! Promise: an argument of a shape that cannot be read is a target nobody has met, so that it is asked about.

use serde_json::{Map, Value};

use super::naming::words_of;
use super::values::{addresses, reaches};
use super::{MOST, Target};
use crate::capability::{Capability, ParamKind};
use crate::recipients;

/// Deepest nesting that is looked at.
const DEPTH: usize = 12;
/// Words in the names of arguments that hold texts for people.
///
/// No `query` and no `prompt` is among them: those are carried out, not read.
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
/// Other words that times are made of.
const CLOCK: [&str; 10] = ["am", "pm", "utc", "gmt", "t", "z", "st", "nd", "rd", "th"];
/// Words in the names of arguments that say how much.
const AMOUNTS: [&str; 10] = ["amount", "sum", "price", "total", "quantity", "qty", "fee", "cost", "value", "balance"];

/// Words in the names of arguments whose keys say who: `permissions: {ana: write}`.
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

/// The role of everyone a message goes to, whatever line of it they stand in.
pub(crate) const RECIPIENT: &str = "recipient";

/// The targets a manifest marks.
#[must_use]
pub fn of_capability(spec: &Capability, arguments: &Map<String, Value>) -> Vec<Target> {
    let mut found = Vec::new();
    for param in spec.params.iter().filter(|param| param.target) {
        let Some(value) = arguments.get(&param.name) else { continue };
        let amount = matches!(param.kind, ParamKind::Integer | ParamKind::Number);
        match param.kind {
            ParamKind::Recipients => people(&param.name, value, &mut found),
            _ => leaves(&param.name, value, amount, 0, &mut found),
        }
    }
    cut(found)
}

/// The targets of a tool nobody described.
#[must_use]
pub fn of_unknown(arguments: &Map<String, Value>) -> Vec<Target> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        unknown(name, name, value, 0, &mut found);
    }
    cut(found)
}

fn cut(mut found: Vec<Target>) -> Vec<Target> {
    if found.len() > MOST {
        found.truncate(MOST);
        found.push(Target::unreadable("more"));
    }
    found
}

/// Everyone a recipients argument names. One that can be read in two ways is nobody's.
fn people(name: &str, value: &Value, found: &mut Vec<Target>) {
    let list = recipients::read(value);
    if list.is_empty() && !value.is_null() && *value != Value::Array(Vec::new()) {
        found.push(Target::unreadable(name));
    }
    for recipient in list {
        match recipient.domain() {
            Some(_) => found.push(Target::new(name, &recipient.address, false).in_role(RECIPIENT)),
            None => found.push(Target::unreadable(name)),
        }
    }
}

/// Every single value.
fn leaves(name: &str, value: &Value, amount: bool, depth: usize, found: &mut Vec<Target>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => found.push(Target::new(name, &number.to_string(), amount)),
        Value::String(text) if text.trim().is_empty() => {}
        Value::String(text) => found.push(Target::new(name, text, amount)),
        Value::Array(_) | Value::Object(_) if depth >= DEPTH || found.len() > MOST => {
            found.push(Target::unreadable(name));
        }
        Value::Array(list) => {
            for (n, item) in list.iter().enumerate() {
                leaves(&format!("{name}[{n}]"), item, amount, depth + 1, found);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                found.push(Target::new(name, key, false));
                leaves(&format!("{name}.{key}"), item, amount, depth + 1, found);
            }
        }
    }
}

/// One argument of a tool nobody described. `name` is the word that says what it is, `place` where it stands.
fn unknown(place: &str, name: &str, value: &Value, depth: usize, found: &mut Vec<Target>) {
    match value {
        Value::Array(_) | Value::Object(_) if depth >= DEPTH || found.len() > MOST => {
            found.push(Target::unreadable(place));
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
                if people || reaches(key) {
                    found.push(Target::new(place, key, false));
                }
                unknown(&format!("{place}.{key}"), key, item, depth + 1, found);
            }
        }
        Value::String(text) if is_prose(name) => {
            found.extend(addresses(text).iter().map(|address| Target::new(place, address, false).quoted()));
        }
        Value::String(text) if is_moment(name, text) => {}
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            leaves(place, value, says(name, &AMOUNTS), depth, found);
        }
    }
}

/// Whether the last word of a name is among these. It says what the argument is: a `message_id` is no message, a
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
