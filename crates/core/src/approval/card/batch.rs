//! The card of many writes: every target with its origin, what is the same in all, and each write on its own.
//!
//! Promise: unknown targets that nobody asked for come first, and each write stands under its number with everything in
//! which it differs, so that "the first 3" means what the card shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::{
    CardSpace, CardWrite, RenderedCard, argument, because, escape_invisible, fit, is_prose, origins, shortened, spawned,
};
use crate::approval::reason::ApprovalReason;

/// How much of prose that differs from write to write is shown where prose is cut, in characters.
const EXCERPT: usize = 120;

pub(super) fn many(list: &[CardWrite<'_>], why: &[ApprovalReason], space: CardSpace) -> RenderedCard {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for write in list {
        *kinds.entry(write.action.capability().as_str()).or_default() += 1;
    }
    let named: Vec<String> =
        kinds.iter().map(|(name, count)| format!("{count} x {}", escape_invisible(name))).collect();
    let mut text = format!("{} writes at once: {}\n", list.len(), named.join(", "));
    because(&mut text, why);
    origins(&mut text, list.iter().flat_map(|write| write.targets));
    let (same, differing) = split(list);
    let prose = |name: &str| list.iter().all(|write| is_prose(write.prose, name));
    if !same.is_empty() {
        text.push_str("the same in all:\n");
    }
    for (name, value) in same {
        let short = space.cuts_prose && prose(name);
        argument(&mut text, name, &if short { shortened(value) } else { value.clone() });
    }
    for (place, write) in list.iter().enumerate() {
        let _ = writeln!(text, "write {}: {}", place + 1, escape_invisible(write.action.capability().as_str()));
        if let Some(account) = write.action.account() {
            let _ = writeln!(text, "account: {}", escape_invisible(account));
        }
        spawned(&mut text, write.action);
        for name in &differing {
            let Some(value) = write.action.arguments().get(*name) else { continue };
            let short = space.cuts_prose && is_prose(write.prose, name);
            argument(&mut text, name, &if short { excerpt(value) } else { value.clone() });
        }
    }
    fit(text, space)
}

/// Arguments with the same value in all writes, and the names of the others.
fn split<'a>(list: &[CardWrite<'a>]) -> (Vec<(&'a str, &'a Value)>, Vec<&'a str>) {
    let names: BTreeSet<&'a str> =
        list.iter().flat_map(|write| write.action.arguments().keys().map(String::as_str)).collect();
    let (mut same, mut differing) = (Vec::new(), Vec::new());
    for name in names {
        let mut values = list.iter().map(|write| write.action.arguments().get(name));
        match values.next().flatten() {
            Some(first) if values.all(|other| other == Some(first)) => same.push((name, first)),
            _ => differing.push(name),
        }
    }
    (same, differing)
}

/// The beginning of prose, and how long it is. Anything but a text is shown whole.
fn excerpt(value: &Value) -> Value {
    let Value::String(text) = value else { return value.clone() };
    let count = text.chars().count();
    if count <= EXCERPT {
        return value.clone();
    }
    let front: String = text.chars().take(EXCERPT).collect();
    Value::String(format!("{front}\n[… {} characters are not shown here …]", count - EXCERPT))
}
