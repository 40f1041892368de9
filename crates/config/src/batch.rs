//! Batch protection: how much one agent may do at one service before a person decides.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::batch::SlidingWindow;
use sluice_core::policy::reading::{YamlKey, YamlNode, YamlValue, escape};
use sluice_core::{Millis, ServiceName};

use super::section::section;
use super::setting::{BoundedSetting as _, Setting, SettingError};

/// Shortest and longest window.
const WINDOW: std::ops::RangeInclusive<Millis> = Millis::from_secs(1)..=Millis::from_hours(31 * 24);
const LIMIT: std::ops::RangeInclusive<u32> = 0..=1_000_000;

section! {
    /// How much one agent may do at one service within a sliding window; further writes wait for a person.
    Batch at "batch" {
        /// The most that fits into the window. Writes are weighed by the number of objects they touch; 0 asks about
        /// every write.
        limit: u32 = SlidingWindow::default().limit; within LIMIT,
        /// How long a write counts.
        window: Millis = SlidingWindow::default().span; within WINDOW,
        /// Settings for single services: `email: {limit: 3, window: 1h}`, or `off` where nothing is counted. In the
        /// environment: `email=3/1h,state=off`.
        services: BatchLimitOverrides = BatchLimitOverrides::default(),
    }
}

impl Batch {
    /// The window of a service; `None` if its writes are not counted.
    #[must_use]
    pub fn window_for(&self, service: &ServiceName) -> Option<SlidingWindow> {
        let own = self.services.0.get(service.as_str()).copied().unwrap_or(BatchLimitOverride::Same);
        match own {
            BatchLimitOverride::Off => None,
            BatchLimitOverride::Same => Some(SlidingWindow { limit: self.limit, span: self.window }),
            BatchLimitOverride::Differs { limit, window } => {
                Some(SlidingWindow { limit: limit.unwrap_or(self.limit), span: window.unwrap_or(self.window) })
            }
        }
    }
}

/// The setting of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchLimitOverride {
    /// Its writes are not counted.
    Off,
    /// It has the general limit and window.
    Same,
    /// It has its own limit, window or both.
    Differs { limit: Option<u32>, window: Option<Millis> },
}

/// Settings for single services. A service without one keeps the setting that ships with the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLimitOverrides(BTreeMap<String, BatchLimitOverride>);

impl Default for BatchLimitOverrides {
    /// State is the agent's own notebook; files and alerts come in larger numbers than e-mails.
    fn default() -> Self {
        let fifty = BatchLimitOverride::Differs { limit: Some(50), window: None };
        Self(
            [("state", BatchLimitOverride::Off), ("filesystem", fifty), ("alerts", fifty)]
                .map(|(k, v)| (k.to_owned(), v))
                .into(),
        )
    }
}

impl BatchLimitOverrides {
    fn add(&mut self, service: &str, own: BatchLimitOverride) -> Result<(), SettingError> {
        let name = ServiceName::new(service)
            .map_err(|why| SettingError::new(format!("cannot use `{}`", escape(service))).hint(why.to_string()))?;
        self.0.insert(name.as_str().to_owned(), own);
        Ok(())
    }
}

impl Setting for BatchLimitOverrides {
    const WHAT: &'static str = "a map of services";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let mut services = Self::default();
        for part in text.split(',') {
            let bad = || SettingError::expected("such as `email=3/1h` or `state=off`", part);
            let (service, own) = part.trim().split_once('=').ok_or_else(bad)?;
            let own = if own == "off" {
                BatchLimitOverride::Off
            } else {
                let (limit, window) = own.split_once('/').ok_or_else(bad)?;
                let (limit, window) = (u32::from_text(limit, base)?, Millis::from_text(window, base)?);
                limit.within(&LIMIT)?;
                window.within(&WINDOW)?;
                BatchLimitOverride::Differs { limit: Some(limit), window: Some(window) }
            };
            services.add(service, own)?;
        }
        Ok(services)
    }

    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut services = Self::default();
        for (key, value) in entries {
            let own = match &value.kind {
                YamlValue::Text(text) if text == "off" => BatchLimitOverride::Off,
                YamlValue::Map(fields) => differs(fields, base)?,
                _ => return Err(SettingError::new("must say `off` or `{limit, window}` for a service").at(value.place)),
            };
            services.add(&key.text, own).map_err(|bad| bad.at(key.place))?;
        }
        Ok(services)
    }

    fn shown(&self) -> Value {
        let own = |own: &BatchLimitOverride| match own {
            BatchLimitOverride::Off => json!("off"),
            BatchLimitOverride::Same => json!({}),
            BatchLimitOverride::Differs { limit, window } => {
                let limit = limit.map(|limit| ("limit".to_owned(), limit.shown()));
                let window = window.map(|window| ("window".to_owned(), window.shown()));
                Value::Object(limit.into_iter().chain(window).collect())
            }
        };
        Value::Object(self.0.iter().map(|(service, one)| (service.clone(), own(one))).collect::<Map<_, _>>())
    }

    fn shape() -> Value {
        let differs = json!({"type": "object", "additionalProperties": false,
            "properties": {"limit": u32::shape(), "window": Millis::shape()}});
        json!({"type": "object", "additionalProperties": {"anyOf": [{"enum": ["off"]}, differs]}})
    }
}

fn differs(fields: &[(YamlKey, YamlNode)], base: &Path) -> Result<BatchLimitOverride, SettingError> {
    let (mut limit, mut window) = (None, None);
    for (key, node) in fields {
        let read = match key.text.as_str() {
            "limit" => u32::from_node(node, base).and_then(|n| n.within(&LIMIT).map(|()| limit = Some(n))),
            "window" => Millis::from_node(node, base).and_then(|s| s.within(&WINDOW).map(|()| window = Some(s))),
            _ => return Err(SettingError::unknown_key(key, "a service has limit and window", &["limit", "window"])),
        };
        read.map_err(|bad| bad.at(node.place))?;
    }
    Ok(if limit.is_none() && window.is_none() {
        BatchLimitOverride::Same
    } else {
        BatchLimitOverride::Differs { limit, window }
    })
}
