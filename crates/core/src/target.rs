//! Targets: the people, places or amounts of a call, and where each of them was first met.
//!
//! Takes the arguments of a call; gives its targets, from the manifest of its capability or, where there is none, by
//! name and shape. Takes texts; answers whether a target stands in them. Promise: a target is compared in full, never
//! as a part of a longer value; an unreadable target counts as new; the same input gets the same answer.

mod find;
pub(crate) mod naming;
mod values;

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use serde_json::{Map, Value};

use crate::approval::command;
use crate::capability::Capability;
use crate::ids::{AgentName, CapabilityName};
use crate::policy::{TargetOrigin, TargetOrigins};

pub(crate) use find::{RECIPIENT, is_moment, is_prose};
pub use find::{of_capability, of_unknown};
pub use values::TextValues;
pub(crate) use values::{addresses, is_address};

/// Most targets that are distinguished; a call with more has one additional target that counts as new.
pub const MOST: usize = 200;
/// Most values of one outside text that are remembered.
const MET: usize = 20_000;

/// One target of a call.
#[derive(Clone, PartialEq, Eq)]
pub struct CallTarget {
    /// The argument it stands in: `to`, `attendees[1]`, `body` for an address inside a text.
    pub argument: String,
    /// The value in the call.
    pub value: String,
    /// Its parts in their normal spelling; empty for a value that cannot be compared.
    forms: Vec<String>,
    /// Whether it is an amount: an amount that was fine once does not stay known.
    amount: bool,
    /// What it is in the call: the argument without its place in a list, or `recipient`.
    role: String,
    /// Whether it only stands in prose for people.
    quoted: bool,
}

/// A family of capabilities that share known targets: those of one service, or one third-party tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityFamily(String);

impl CapabilityFamily {
    /// The family of a call. `None` where an approval must not be reused for the next call: it deletes, pays, hands
    /// over ownership, overrides a protection, or runs a program.
    #[must_use]
    pub fn of(capability: &CapabilityName, spec: Option<&Capability>, arguments: &Map<String, Value>) -> Option<Self> {
        let name = capability.as_str();
        if name == "process.run" || naming::is_decided_each_time(naming::verb_of(name), arguments) {
            return None;
        }
        let described = spec.filter(|spec| spec.definition.is_none());
        Some(Self(described.map_or_else(|| name.to_owned(), |spec| spec.service().to_string())))
    }
}

/// A target and where it was first met.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TracedTarget {
    /// The argument it stands in.
    pub argument: String,
    /// The value in the call, cut to a length that can be shown.
    pub value: String,
    /// Where it comes from.
    pub origin: TargetOrigin,
    /// The outside text in which it was met, by the gateway's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The fingerprint that a person's approval makes known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub print: Option<String>,
}

impl fmt::Debug for CallTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the value: it is content.
        f.debug_struct("Target").field("argument", &self.argument).finish_non_exhaustive()
    }
}

impl fmt::Debug for TracedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("argument", &self.argument).field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The origins of traced targets.
#[must_use]
pub fn origins(traced: &[TracedTarget]) -> TargetOrigins {
    traced.iter().map(|target| target.origin).collect()
}

impl CallTarget {
    pub(crate) fn new(argument: &str, value: &str, amount: bool) -> Self {
        let forms = values::forms(value);
        let (argument, role) = (argument.to_owned(), role_of(argument));
        Self { argument, value: value.to_owned(), forms, amount, role, quoted: false }
    }

    /// Sets a role that differs from its argument.
    pub(crate) fn in_role(mut self, role: &str) -> Self {
        role.clone_into(&mut self.role);
        self
    }

    /// Marks it as found inside prose for people.
    pub(crate) fn quoted(mut self) -> Self {
        self.quoted = true;
        self
    }

    /// A target that always counts as new.
    pub(crate) fn unreadable(argument: &str) -> Self {
        let (argument, role) = (argument.to_owned(), role_of(argument));
        Self { argument, value: String::new(), forms: Vec::new(), amount: false, role, quoted: false }
    }

    /// Whether it matches a written value, such as a line of the configuration: the value itself,
    /// `@domain` for every address there, or a folder (ending in a slash) for everything below it.
    #[must_use]
    pub fn matches_written(&self, written: &str) -> bool {
        if written.starts_with('/') && written.ends_with('/') {
            return !self.forms.is_empty() && self.value.strip_prefix(written).is_some_and(is_below);
        }
        let [form] = self.forms.as_slice() else {
            return !self.forms.is_empty() && self.forms == values::forms(written);
        };
        if let Some(domain) = written.strip_prefix('@') {
            return values::is_address(form)
                && form.rsplit_once('@').is_some_and(|(_, own)| own.eq_ignore_ascii_case(domain));
        }
        self.forms == values::forms(written)
    }

    /// The fingerprint that the store keeps of a target people have approved for an agent, for this family of
    /// capabilities and this role of its argument. `None` for amounts, for values that cannot be compared, for targets
    /// in prose for people, and for code.
    #[must_use]
    pub fn fingerprint(&self, agent: &AgentName, family: Option<&CapabilityFamily>) -> Option<String> {
        let CapabilityFamily(family) = family?;
        if self.forms.is_empty() || self.amount || self.quoted || !self.is_learnt() {
            return None;
        }
        let mut hash = Sha256::new_with_prefix(b"sluice known target 2\0");
        for part in [agent.as_str(), family, &self.role].into_iter().chain(self.forms.iter().map(String::as_str)) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Some(crate::hex::encode(&hash.finalize()))
    }

    /// Whether it may become known at all: of executed values, only a harmless command of plain words.
    fn is_learnt(&self) -> bool {
        let name = self.role.rsplit('.').next().unwrap_or(&self.role);
        !naming::is_executed(name) || (naming::is_command(name) && !command::is_decided_each_time(&self.value))
    }

    /// As recorded, with its origin.
    #[must_use]
    pub fn trace(
        &self,
        agent: &AgentName,
        family: Option<&CapabilityFamily>,
        (origin, source): (TargetOrigin, Option<String>),
    ) -> TracedTarget {
        let mut value: String = self.value.chars().take(500).collect();
        if value.len() < self.value.len() {
            value.push('…');
        }
        TracedTarget { argument: self.argument.clone(), value, origin, source, print: self.fingerprint(agent, family) }
    }
}

/// An argument without the places in lists: `attendees[1].mail` is in the role `attendees[].mail`.
fn role_of(argument: &str) -> String {
    let mut role = String::with_capacity(argument.len());
    let mut rest = argument;
    while let Some((before, after)) = rest.split_once('[') {
        role.push_str(before);
        match after.split_once(']') {
            Some((place, behind)) if !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit()) => {
                role.push_str("[]");
                rest = behind;
            }
            _ => {
                role.push('[');
                rest = after;
            }
        }
    }
    role.push_str(rest);
    role
}

/// Whether the rest of a path stays below its beginning, however a service reads it.
fn is_below(rest: &str) -> bool {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    rest.split(['/', '\\']).all(|name| !name.is_empty() && name != "." && name != "..") && !rest.contains('%')
}

/// The values of one outside text, as numbers that only this session can compute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextValueHashes(Vec<u64>);

impl TextValueHashes {
    /// The values of a text.
    #[must_use]
    pub fn of(text: &str, session: u128) -> Self {
        let mut numbers = Vec::new();
        values::visit_spellings(text, |form| numbers.push(number(form, session)));
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(MET);
        Self(numbers)
    }

    /// Whether a target stands in it: all of its parts.
    #[must_use]
    pub fn has(&self, target: &CallTarget, session: u128) -> bool {
        !target.forms.is_empty() && target.forms.iter().all(|form| self.0.binary_search(&number(form, session)).is_ok())
    }

    /// The form for the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    /// Reads the form of the store.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (numbers, _) = bytes.as_chunks::<8>();
        Self(numbers.iter().map(|number| u64::from_be_bytes(*number)).collect())
    }
}

fn number(form: &str, session: u128) -> u64 {
    let hash = Sha256::new_with_prefix(b"sluice met 1\0").chain_update(session.to_be_bytes()).chain_update(form);
    let hash: [u8; 32] = hash.finalize().into();
    hash.first_chunk::<8>().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests;
