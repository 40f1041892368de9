//! From which score on something from outside is kept from agents.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::policy::reading::{Kind, Node, escape};
use sluice_core::{ServiceName, Span};

use super::section::section;
use super::setting::{Bad, Setting};

section! {
    /// Content from outside, and from which score on it is withheld from agents.
    Content at "content" {
        /// The score, between 0 and 1, from which an item is withheld until a person releases it. 0 withholds everything,
        /// `off` nothing.
        threshold: Threshold = Threshold::USUAL,
        /// Services that differ: `network: 0.3`, `notes: off`. In the environment: `network=0.3,notes=off`.
        services: Thresholds = Thresholds::default(),
        /// How long withheld items are kept.
        keep: Span = Span::from_hours(30 * 24); within Span::from_hours(1)..=Span::from_hours(366 * 24),
    }
}

impl Content {
    /// The score from which a service's items are withheld, in thousandths; nothing where none are.
    #[must_use]
    pub fn threshold_of(&self, service: &ServiceName) -> Option<u32> {
        self.services.0.get(service.as_str()).unwrap_or(&self.threshold).0
    }
}

/// A score in thousandths, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold(Option<u32>);

impl Threshold {
    const USUAL: Self = Self(Some(500));
}

impl Setting for Threshold {
    const WHAT: &'static str = "a number between 0 and 1, or `off`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        if text == "off" {
            return Ok(Self(None));
        }
        let number: f64 = text.parse().map_err(|_| Bad::expected(Self::WHAT, text))?;
        // What is not a number is not within the bounds either.
        if !(0.0..=1.0).contains(&number) {
            return Err(Bad::expected(Self::WHAT, text));
        }
        Ok(Self(Some((number * 1000.0).round() as u32)))
    }
    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        match &node.kind {
            Kind::Text(text) => Self::from_text(text, base),
            Kind::Integer(number) => Self::from_text(&number.to_string(), base),
            Kind::Number(number) => Self::from_text(&number.to_string(), base),
            Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => Err(Self::not(node)),
        }
    }
    fn shown(&self) -> Value {
        self.0.map_or_else(|| json!("off"), |thousandths| json!(f64::from(thousandths) / 1000.0))
    }
    fn shape() -> Value {
        json!({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"enum": ["off"]}]})
    }
}

/// Services that differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thresholds(BTreeMap<String, Threshold>);

impl Thresholds {
    fn add(&mut self, service: &str, threshold: Threshold) -> Result<(), Bad> {
        let name = ServiceName::new(service)
            .map_err(|why| Bad::new(format!("cannot use `{}`", escape(service))).hint(why.to_string()))?;
        self.0.insert(name.as_str().to_owned(), threshold);
        Ok(())
    }
}

impl Setting for Thresholds {
    const WHAT: &'static str = "a map of services and scores";

    fn from_text(text: &str, base: &Path) -> Result<Self, Bad> {
        let mut thresholds = Self::default();
        for part in text.split(',') {
            let (service, score) =
                part.trim().split_once('=').ok_or_else(|| Bad::expected("such as `network=0.3`", part))?;
            thresholds.add(service, Threshold::from_text(score, base)?)?;
        }
        Ok(thresholds)
    }
    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut thresholds = Self::default();
        for (key, value) in entries {
            let threshold = Threshold::from_node(value, base).map_err(|bad| bad.at(value.place))?;
            thresholds.add(&key.text, threshold).map_err(|bad| bad.at(key.place))?;
        }
        Ok(thresholds)
    }
    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|(service, one)| (service.clone(), one.shown())).collect::<Map<_, _>>())
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": Threshold::shape()})
    }
}
