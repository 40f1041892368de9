//! What must not leave, beyond what ships with the program.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_content::leak::{Settings, check_pattern};
use sluice_core::policy::reading::{Kind, Node, escape};

use super::section::section;
use super::setting::{Bad, Setting};

const PEOPLE: std::ops::RangeInclusive<u32> = 0..=100_000;

section! {
    /// What must not leave, beyond the secret formats that ship with the program and the secrets of the vault.
    Leak at "leak" {
        /// Identifiers of the owner: names, addresses, numbers. Found whole, in any case; numbers in any notation.
        own: Vec<Phrase> = Vec::new(),
        /// Internal terms and paths, such as names of projects and hosts.
        terms: Vec<Phrase> = Vec::new(),
        /// Patterns by name: `ticket: 'FAL-\d+'`. Linear-time regular expressions.
        patterns: LeakPatterns = LeakPatterns::default(),
        /// From how many distinct people in one message on a person is asked; 0 never asks.
        people: u32 = 20; within PEOPLE,
    }
}

impl Leak {
    /// As the scanner takes it.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let list = |phrases: &[Phrase]| phrases.iter().map(|phrase| phrase.0.clone()).collect();
        Settings {
            own: list(&self.own),
            terms: list(&self.terms),
            patterns: self.patterns.0.iter().map(|(id, pattern)| (id.clone(), pattern.clone())).collect(),
            people: usize::try_from(self.people).unwrap_or(usize::MAX),
        }
    }
}

/// Words that are looked for as they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phrase(String);

impl Setting for Phrase {
    const WHAT: &'static str = "a text of at least three characters";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        let text = text.trim();
        // Two letters are in every message.
        if text.chars().count() < 3 { Err(Bad::expected(Self::WHAT, text)) } else { Ok(Self(text.to_owned())) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": ["string", "integer"], "minLength": 3})
    }
}

/// Patterns by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeakPatterns(BTreeMap<String, String>);

impl Setting for LeakPatterns {
    const WHAT: &'static str = "a map of names and patterns";

    fn from_text(_: &str, _: &Path) -> Result<Self, Bad> {
        Err(Bad::new("can only be set in sluice.yaml"))
    }
    fn from_node(node: &Node, _: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut patterns = BTreeMap::new();
        for (key, value) in entries {
            let Kind::Text(pattern) = &value.kind else {
                return Err(Bad::new(format!("`{}` must be a text", escape(&key.text))).at(value.place));
            };
            check_pattern(&key.text, pattern).map_err(|bad| Bad::new(escape(&bad.to_string())).at(value.place))?;
            patterns.insert(key.text.clone(), pattern.clone());
        }
        Ok(Self(patterns))
    }
    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|(id, pattern)| (id.clone(), json!(pattern))).collect::<Map<_, _>>())
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": {"type": "string"}})
    }
}
