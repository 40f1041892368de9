//! Leak scan settings: data that must not leave, in addition to what ships with the program.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_content::leak::{LeakConfig, check_pattern};
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};

use super::section::section;
use super::setting::{Setting, SettingError};

const PEOPLE: std::ops::RangeInclusive<u32> = 0..=100_000;

section! {
    /// Data that must not leave, in addition to the secret formats that ship with the program and the secrets of the
    /// vault.
    Leak at "leak" {
        /// Identifiers of the owner: names, addresses, numbers. Found as whole words, in any case; numbers in any
        /// notation.
        own: Vec<LeakPhrase> = Vec::new(),
        /// Internal terms and paths, such as names of projects and hosts.
        terms: Vec<LeakPhrase> = Vec::new(),
        /// Patterns by name: `ticket: 'FAL-\d+'`. They are linear-time regular expressions.
        patterns: LeakPatterns = LeakPatterns::default(),
        /// The number of different people in one message from which a person is asked; 0 never asks.
        people: u32 = 20; within PEOPLE,
    }
}

impl Leak {
    /// The settings in the form that the scanner takes.
    #[must_use]
    pub fn settings(&self) -> LeakConfig {
        let list = |phrases: &[LeakPhrase]| phrases.iter().map(|phrase| phrase.0.clone()).collect();
        LeakConfig {
            own: list(&self.own),
            terms: list(&self.terms),
            patterns: self.patterns.0.iter().map(|(id, pattern)| (id.clone(), pattern.clone())).collect(),
            people: usize::try_from(self.people).unwrap_or(usize::MAX),
        }
    }
}

/// Words that are searched for literally.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeakPhrase(String);

impl Setting for LeakPhrase {
    const WHAT: &'static str = "a text of at least three characters";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let text = text.trim();
        // Two letters occur in every message.
        if text.chars().count() < 3 { Err(SettingError::expected(Self::WHAT, text)) } else { Ok(Self(text.to_owned())) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": ["string", "integer"], "minLength": 3})
    }
}

/// Patterns by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeakPatterns(BTreeMap<String, String>);

impl Setting for LeakPatterns {
    const WHAT: &'static str = "a map of names and patterns";

    fn from_text(_: &str, _: &Path) -> Result<Self, SettingError> {
        Err(SettingError::new("can only be set in sluice.yaml"))
    }
    fn from_node(node: &YamlNode, _: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut patterns = BTreeMap::new();
        for (key, value) in entries {
            let YamlValue::Text(pattern) = &value.kind else {
                return Err(SettingError::new(format!("`{}` must be a text", escape(&key.text))).at(value.place));
            };
            check_pattern(&key.text, pattern)
                .map_err(|bad| SettingError::new(escape(&bad.to_string())).at(value.place))?;
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
