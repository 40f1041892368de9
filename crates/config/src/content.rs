//! Content screening: the score from which content from outside is withheld from agents.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};
use sluice_core::{Millis, ServiceName};

use super::section::section;
use super::setting::{Setting, SettingError};

section! {
    /// Content from outside, and the score from which it is withheld from agents.
    Content at "content" {
        /// The score, between 0 and 1, from which an item is withheld until a person releases it. 0 withholds everything,
        /// `off` withholds nothing.
        threshold: ContentThreshold = ContentThreshold::USUAL,
        /// Scores for single services: `network: 0.3`, `notes: off`. In the environment: `network=0.3,notes=off`.
        services: ContentThresholds = ContentThresholds::default(),
        /// How long withheld items are kept.
        keep: Millis = Millis::from_hours(30 * 24); within Millis::from_hours(1)..=Millis::from_hours(366 * 24),
    }
}

impl Content {
    /// The score from which a service's items are withheld, in thousandths; `None` if none are.
    #[must_use]
    pub fn threshold_of(&self, service: &ServiceName) -> Option<u32> {
        self.services.0.get(service.as_str()).unwrap_or(&self.threshold).0
    }
}

/// A score in thousandths, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentThreshold(Option<u32>);

impl ContentThreshold {
    const USUAL: Self = Self(Some(500));
}

impl Setting for ContentThreshold {
    const WHAT: &'static str = "a number between 0 and 1, or `off`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        if text == "off" {
            return Ok(Self(None));
        }
        let number: f64 = text.parse().map_err(|_| SettingError::expected(Self::WHAT, text))?;
        // NaN is not within the bounds either.
        if !(0.0..=1.0).contains(&number) {
            return Err(SettingError::expected(Self::WHAT, text));
        }
        Ok(Self(Some((number * 1000.0).round() as u32)))
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        match &node.kind {
            YamlValue::Text(text) => Self::from_text(text, base),
            YamlValue::Integer(number) => Self::from_text(&number.to_string(), base),
            YamlValue::Number(number) => Self::from_text(&number.to_string(), base),
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::List(_) | YamlValue::Map(_) => Err(Self::not(node)),
        }
    }
    fn shown(&self) -> Value {
        self.0.map_or_else(|| json!("off"), |thousandths| json!(f64::from(thousandths) / 1000.0))
    }
    fn shape() -> Value {
        json!({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"enum": ["off"]}]})
    }
}

/// Scores for single services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentThresholds(BTreeMap<String, ContentThreshold>);

impl ContentThresholds {
    fn add(&mut self, service: &str, threshold: ContentThreshold) -> Result<(), SettingError> {
        let name = ServiceName::new(service)
            .map_err(|why| SettingError::new(format!("cannot use `{}`", escape(service))).hint(why.to_string()))?;
        self.0.insert(name.as_str().to_owned(), threshold);
        Ok(())
    }
}

impl Setting for ContentThresholds {
    const WHAT: &'static str = "a map of services and scores";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let mut thresholds = Self::default();
        for part in text.split(',') {
            let (service, score) =
                part.trim().split_once('=').ok_or_else(|| SettingError::expected("such as `network=0.3`", part))?;
            thresholds.add(service, ContentThreshold::from_text(score, base)?)?;
        }
        Ok(thresholds)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut thresholds = Self::default();
        for (key, value) in entries {
            let threshold = ContentThreshold::from_node(value, base).map_err(|bad| bad.at(value.place))?;
            thresholds.add(&key.text, threshold).map_err(|bad| bad.at(key.place))?;
        }
        Ok(thresholds)
    }
    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|(service, one)| (service.clone(), one.shown())).collect::<Map<_, _>>())
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": ContentThreshold::shape()})
    }
}
