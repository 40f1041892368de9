//! The values of a call that a bound compares.
//!
//! Takes the arguments, and the description of the capability where the gateway has one; gives each value that is not
//! prose for people, with its role and its normal spelling. Promise: if an argument cannot be read, it gives nothing,
//! so that no bound admits the call.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::command;
use crate::capability::{Capability, CapabilityParam, ParamKind};
use crate::policy::path::NormalPath;
use crate::recipients;
use crate::target::{RECIPIENT, addresses, is_address, is_moment, is_prose, naming};

/// Deepest nesting that is read.
const DEPTH: usize = 12;
/// Most values that are read.
const MOST: usize = 200;
/// Arguments of described capabilities that say what a text looks like, not what is done with it.
const TEXTUAL: [&str; 2] = ["pattern", "encoding"];

/// How a value is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Compared exactly.
    Plain,
    /// A mail address, in any case.
    Recipient,
    /// An absolute path, after lexical normalisation.
    Path,
    /// A command of plain words, word by word.
    Command,
}

/// One value of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BoundedValue {
    pub role: String,
    pub kind: ValueKind,
    /// The value in its normal spelling.
    pub normal: String,
}

/// Every value of a call that a bound compares.
pub(super) fn bounded_values(spec: Option<&Capability>, arguments: &Map<String, Value>) -> Option<Vec<BoundedValue>> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        match spec {
            Some(spec) => described(spec.param(name)?, value, &mut found)?,
            None => unknown((&escaped(name), name), value, 0, &mut found)?,
        }
    }
    (found.len() <= MOST).then_some(found)
}

/// One argument of a capability the gateway knows.
fn described(param: &CapabilityParam, value: &Value, found: &mut Vec<BoundedValue>) -> Option<()> {
    let name = param.name.as_str();
    let free = matches!(param.kind, ParamKind::Content | ParamKind::Any) || is_prose(name) || TEXTUAL.contains(&name);
    match (param.kind, value) {
        (_, Value::Null) => {}
        (ParamKind::Recipients, value) => {
            let list = recipients::parse_recipients(value);
            let empty = matches!(value, Value::Array(items) if items.is_empty());
            if list.is_empty() && !empty {
                return None;
            }
            for recipient in list {
                recipient.domain()?;
                found.push(BoundedValue {
                    role: RECIPIENT.into(),
                    kind: ValueKind::Recipient,
                    normal: recipient.address.to_lowercase(),
                });
            }
        }
        _ if free && !param.target => {}
        (ParamKind::Path, Value::String(path)) => {
            let normal = NormalPath::new(path).ok()?.as_str().to_owned();
            found.push(BoundedValue { role: escaped(name), kind: ValueKind::Path, normal });
        }
        (ParamKind::Path, _) => return None,
        (_, value) => exact((&escaped(name), name), value, 0, found)?,
    }
    Some(())
}

/// Every leaf of an argument as it stands. An empty list or object counts as a value, too.
fn exact((role, name): (&str, &str), value: &Value, depth: usize, found: &mut Vec<BoundedValue>) -> Option<()> {
    if depth > DEPTH || found.len() > MOST {
        return None;
    }
    match value {
        Value::Null => {}
        Value::Array(list) if !list.is_empty() => {
            for (n, item) in list.iter().enumerate() {
                exact((&format!("{role}/{n}"), name), item, depth + 1, found)?;
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (key, item) in map {
                exact((&format!("{role}/{}", escaped(key)), key), item, depth + 1, found)?;
            }
        }
        Value::String(text) => found.push(read(role, name, text)),
        other => found.push(BoundedValue { role: role.into(), kind: ValueKind::Plain, normal: other.to_string() }),
    }
    Some(())
}

/// One argument of a tool without a description: every value except prose and times, and every address in a text.
fn unknown((role, name): (&str, &str), value: &Value, depth: usize, found: &mut Vec<BoundedValue>) -> Option<()> {
    if depth > DEPTH || found.len() > MOST {
        return None;
    }
    match value {
        Value::Array(list) if !list.is_empty() => {
            for (n, item) in list.iter().enumerate() {
                unknown((&format!("{role}/{n}"), name), item, depth + 1, found)?;
            }
            Some(())
        }
        Value::Object(map) if !map.is_empty() => {
            for (key, item) in map {
                unknown((&format!("{role}/{}", escaped(key)), key), item, depth + 1, found)?;
            }
            Some(())
        }
        // A text that is executed is not prose for people, whatever its name says.
        Value::String(text) if is_prose(name) && !naming::is_executed(name) => {
            let quoted = addresses(text).into_iter().map(|address| BoundedValue {
                role: format!("{role}/~text"),
                kind: ValueKind::Plain,
                normal: address,
            });
            found.extend(quoted);
            Some(())
        }
        Value::String(text) if is_moment(name, text) => Some(()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            exact((role, name), value, depth, found)
        }
    }
}

/// A text by its name and shape.
fn read(role: &str, name: &str, text: &str) -> BoundedValue {
    let (kind, normal) = if naming::is_command(name) && command::plain_words(text).is_some() {
        let words = command::plain_words(text).unwrap_or_default();
        (ValueKind::Command, words.join(" "))
    } else if is_address(text) && text.is_ascii() {
        (ValueKind::Recipient, text.to_lowercase())
    } else if let Some(path) = NormalPath::new(text).ok().filter(|path| names_path(name) && path.as_str() != "/") {
        (ValueKind::Path, path.as_str().to_owned())
    } else {
        (ValueKind::Plain, text.to_owned())
    };
    BoundedValue { role: role.into(), kind, normal }
}

fn names_path(name: &str) -> bool {
    const PATHS: [&str; 11] =
        ["path", "paths", "file", "files", "filename", "filepath", "directory", "dir", "folder", "cwd", "destination"];
    naming::words_of(name).last().is_some_and(|last| PATHS.contains(&last.as_str()))
}

/// A name as one part of a role: `/` separates parts.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
