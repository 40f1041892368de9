//! Hold delays: how long writes wait before they leave.

use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::policy::CapabilityPattern;
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};
use sluice_core::{CapabilityName, Millis};

use super::section::section;
use super::setting::{BoundedSetting as _, Setting, SettingError};

/// Longest delay.
const LONGEST: Millis = Millis::from_hours(30 * 24);

section! {
    /// How long writes wait before they leave, so that a person can still stop them.
    Holds at "holds" {
        /// Delays by capability, or by the start of its name: `email.send: 2m`, `calendar.*: 10s`. The most specific
        /// name wins. Other writes wait as long as their capability says, by default 30s. In the environment:
        /// `email.send=2m,calendar.*=10s`.
        delays: CapabilityDelays = CapabilityDelays::default(),
    }
}

/// Delays by capability pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapabilityDelays(Vec<(CapabilityPattern, Millis)>);

impl CapabilityDelays {
    /// The configured delay of a capability: its own name wins, then the longest matching start of it.
    #[must_use]
    pub fn of(&self, capability: &CapabilityName) -> Option<Millis> {
        let length = |pattern: &CapabilityPattern| match pattern {
            CapabilityPattern::Name(_) => usize::MAX,
            CapabilityPattern::Prefix(start) => start.len(),
        };
        let fitting = self.0.iter().filter(|(pattern, _)| pattern.matches(capability.as_str()));
        fitting.max_by_key(|(pattern, _)| length(pattern)).map(|(_, span)| *span)
    }

    fn add(&mut self, pattern: &str, span: Millis) -> Result<(), SettingError> {
        let bad = |why: &str| SettingError::new(format!("cannot use `{}`: {why}", escape(pattern)));
        let pattern = CapabilityPattern::new(pattern).map_err(bad)?;
        span.within(&(Millis::ZERO..=LONGEST))?;
        if self.0.iter().any(|(other, _)| *other == pattern) {
            return Err(bad("it is given twice"));
        }
        self.0.push((pattern, span));
        Ok(())
    }
}

impl Setting for CapabilityDelays {
    const WHAT: &'static str = "a map of capabilities and durations";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let mut delays = Self::default();
        for part in text.split(',') {
            let (pattern, span) =
                part.split_once('=').ok_or_else(|| SettingError::expected("such as `email.send=2m`", part))?;
            delays.add(pattern.trim(), Millis::from_text(span.trim(), base)?)?;
        }
        Ok(delays)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut delays = Self::default();
        for (key, value) in entries {
            let span = Millis::from_node(value, base).map_err(|bad| bad.at(value.place))?;
            delays.add(&key.text, span).map_err(|bad| bad.at(key.place))?;
        }
        Ok(delays)
    }
    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|(pattern, span)| (pattern.to_string(), span.shown())).collect::<Map<_, _>>())
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": Millis::shape()})
    }
}
