//! How long writes wait before they leave.

use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::policy::Pattern;
use sluice_core::policy::reading::{Kind, Node, escape};
use sluice_core::{CapabilityName, Span};

use super::section::section;
use super::setting::{Bad, Bounded as _, Setting};

/// Longest wait.
const LONGEST: Span = Span::from_hours(30 * 24);

section! {
    /// How long writes wait before they leave, so that somebody can still stop them.
    Holds at "holds" {
        /// Delay by capability, or by the start of its name: `email.send: 2m`, `calendar.*: 10s`. The closest name
        /// wins. Other writes wait as long as their capability says, 30s unless it says otherwise. In the
        /// environment: `email.send=2m,calendar.*=10s`.
        delays: Delays = Delays::default(),
    }
}

/// Delays by capability pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delays(Vec<(Pattern, Span)>);

impl Delays {
    /// What the file says about a capability: its own name before the longest start of it.
    #[must_use]
    pub fn of(&self, capability: &CapabilityName) -> Option<Span> {
        let length = |pattern: &Pattern| match pattern {
            Pattern::Name(_) => usize::MAX,
            Pattern::Prefix(start) => start.len(),
        };
        let fitting = self.0.iter().filter(|(pattern, _)| pattern.matches(capability.as_str()));
        fitting.max_by_key(|(pattern, _)| length(pattern)).map(|(_, span)| *span)
    }

    fn add(&mut self, pattern: &str, span: Span) -> Result<(), Bad> {
        let bad = |why: &str| Bad::new(format!("cannot use `{}`: {why}", escape(pattern)));
        let pattern = Pattern::new(pattern).map_err(bad)?;
        span.within(&(Span::ZERO..=LONGEST))?;
        if self.0.iter().any(|(other, _)| *other == pattern) {
            return Err(bad("it is given twice"));
        }
        self.0.push((pattern, span));
        Ok(())
    }
}

impl Setting for Delays {
    const WHAT: &'static str = "a map of capabilities and durations";

    fn from_text(text: &str, base: &Path) -> Result<Self, Bad> {
        let mut delays = Self::default();
        for part in text.split(',') {
            let (pattern, span) = part.split_once('=').ok_or_else(|| Bad::expected("such as `email.send=2m`", part))?;
            delays.add(pattern.trim(), Span::from_text(span.trim(), base)?)?;
        }
        Ok(delays)
    }
    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut delays = Self::default();
        for (key, value) in entries {
            let span = Span::from_node(value, base).map_err(|bad| bad.at(value.place))?;
            delays.add(&key.text, span).map_err(|bad| bad.at(key.place))?;
        }
        Ok(delays)
    }
    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|(pattern, span)| (pattern.to_string(), span.shown())).collect::<Map<_, _>>())
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": Span::shape()})
    }
}
