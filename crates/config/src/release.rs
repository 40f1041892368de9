//! Release settings: how fast writes leave, how many at once, and how long an uncertain outcome is looked up.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::lookup_schedule::LookupSchedule;
use sluice_core::pace::PaceRate;
use sluice_core::policy::reading::{YamlNode, YamlValue, escape};
use sluice_core::{Millis, ServiceName};

use super::section::section;
use super::setting::{Setting, SettingError};

section! {
    /// How writes leave once their undo window has closed. Each service has its own queue, in which agents take turns:
    /// neither a slow service nor an agent with many writes delays others.
    Release at "release" {
        /// How fast writes leave for each service from this node: `50/s`, `30/m`, `200/h`, or `off`. Services of the gateway
        /// itself (files, state, messages, git, programs …) are not paced unless `paces` names them.
        pace: ReleasePace = ReleasePace::default(),
        /// Paces of single services: `gmail: 5/s`, `mount.crm: off`. In the environment: `gmail=5/s,mount.crm=off`.
        paces: ReleasePaces = ReleasePaces::default(),
        /// How long the writes of one agent at one paced service may take to leave, at its share of the pace. A call that
        /// would wait longer is refused with `hold.queue_full` and the time of a retry.
        queue: Millis = Millis::from_mins(10); within Millis::from_secs(10)..=Millis::from_hours(24),
        /// Most writes under way at once for each service. One agent uses at most three quarters of these places.
        at_once: u32 = 32; within 1..=256,
        /// When a write in doubt is looked up, counted from the moment its service has settled. A person is asked after the
        /// last lookup proved nothing. A lookup that did not reach the service, or that a limit of the gateway refused,
        /// does not count and is repeated later. In the environment: `0s,30s,2m`.
        lookups: LookupTimes = LookupTimes::default(),
    }
}

impl Release {
    /// The pace of a service, if it has one.
    #[must_use]
    pub fn pace_of(&self, service: &ServiceName, is_local: bool) -> Option<PaceRate> {
        match self.paces.0.get(service.as_str()) {
            Some(own) => own.0,
            None if is_local => None,
            None => self.pace.0,
        }
    }
}

/// How fast writes leave; `None` if that is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleasePace(pub Option<PaceRate>);

impl Default for ReleasePace {
    fn default() -> Self {
        Self(PaceRate::new(50, Millis::from_secs(1)))
    }
}

impl Setting for ReleasePace {
    const WHAT: &'static str = "a pace such as `50/s`, `30/m` or `200/h`, or `off`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        if text == "off" {
            return Ok(Self(None));
        }
        let bad = || SettingError::expected(Self::WHAT, text).hint(format!("1 to {} writes", PaceRate::MOST));
        PaceRate::from_words(text).map(|rate| Self(Some(rate))).ok_or_else(bad)
    }
    fn shown(&self) -> Value {
        self.0.map_or_else(|| json!("off"), |rate| json!(rate.to_string()))
    }
    fn shape() -> Value {
        json!({"anyOf": [{"enum": ["off"]}, {"type": "string", "pattern": "^[1-9][0-9]{0,3}/[smh]$"}]})
    }
}

/// Paces by service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasePaces(BTreeMap<String, ReleasePace>);

impl ReleasePaces {
    fn add(&mut self, service: &str, pace: ReleasePace) -> Result<(), SettingError> {
        let name = ServiceName::new(service)
            .map_err(|why| SettingError::new(format!("cannot use `{}`", escape(service))).hint(why.to_string()))?;
        match self.0.insert(name.as_str().to_owned(), pace) {
            None => Ok(()),
            Some(_) => Err(SettingError::new(format!("cannot use `{}`: it is given twice", escape(service)))),
        }
    }
}

impl Setting for ReleasePaces {
    const WHAT: &'static str = "a map of services and paces";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let mut paces = Self::default();
        for part in text.split(',') {
            let (service, pace) =
                part.split_once('=').ok_or_else(|| SettingError::expected("such as `gmail=5/s`", part))?;
            paces.add(service.trim(), ReleasePace::from_text(pace.trim(), base)?)?;
        }
        Ok(paces)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut paces = Self::default();
        for (key, value) in entries {
            let pace = ReleasePace::from_node(value, base).map_err(|bad| bad.at(value.place))?;
            paces.add(&key.text, pace).map_err(|bad| bad.at(key.place))?;
        }
        Ok(paces)
    }
    fn shown(&self) -> Value {
        Value::Object(self.0.iter().map(|(service, pace)| (service.clone(), pace.shown())).collect::<Map<_, _>>())
    }
    fn shape() -> Value {
        json!({"type": "object", "additionalProperties": ReleasePace::shape()})
    }
}

/// When writes in doubt are looked up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LookupTimes(LookupSchedule);

impl LookupTimes {
    /// The lookup times.
    #[must_use]
    pub fn schedule(&self) -> &LookupSchedule {
        &self.0
    }

    fn of(times: Vec<Millis>) -> Result<Self, SettingError> {
        LookupSchedule::new(times).map(Self).ok_or_else(|| {
            let bad = SettingError::new("must be a list of durations, each longer than the one before it");
            bad.hint(format!("1 to {} lookups, the last one within 7 days: [0s, 30s, 2m]", LookupSchedule::MOST))
        })
    }
}

impl Setting for LookupTimes {
    const WHAT: &'static str = "a list of durations";

    fn from_text(text: &str, base: &Path) -> Result<Self, SettingError> {
        let times: Result<Vec<Millis>, SettingError> =
            text.split(',').map(|part| Millis::from_text(part.trim(), base)).collect();
        Self::of(times?)
    }
    fn from_node(node: &YamlNode, base: &Path) -> Result<Self, SettingError> {
        let YamlValue::List(items) = &node.kind else { return Err(Self::not(node)) };
        let one = |item: &YamlNode| Millis::from_node(item, base).map_err(|bad| bad.at(item.place));
        Self::of(items.iter().map(one).collect::<Result<_, _>>()?)
    }
    fn shown(&self) -> Value {
        Value::Array(self.0.times().iter().map(Setting::shown).collect())
    }
    fn shape() -> Value {
        json!({"type": "array", "minItems": 1, "maxItems": LookupSchedule::MOST, "items": Millis::shape()})
    }
}
