//! How much one agent may do at one service before a person looks.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_core::batch::Window;
use sluice_core::policy::reading::{Key, Kind, Node, closest, escape};
use sluice_core::{ServiceName, Span};

use super::section::section;
use super::setting::{Bad, Bounded as _, Setting};

/// Shortest and longest window.
const WINDOW: std::ops::RangeInclusive<Span> = Span::from_secs(1)..=Span::from_hours(31 * 24);
const LIMIT: std::ops::RangeInclusive<u32> = 0..=1_000_000;

section! {
    /// How much one agent may do at one service within a window that slides; more waits for a person.
    Batch at "batch" {
        /// The most that fits the window. Writes are weighed by what they touch; 0 asks about every write.
        limit: u32 = Window::default().limit; within LIMIT,
        /// How long a write is remembered.
        window: Span = Window::default().span; within WINDOW,
        /// Services that differ: `email: {limit: 3, window: 1h}`, or `off` where nothing is counted. In the
        /// environment: `email=3/1h,state=off`.
        services: Services = Services::default(),
    }
}

impl Batch {
    /// The window of a service; nothing where writes are not counted.
    #[must_use]
    pub fn window_for(&self, service: &ServiceName) -> Option<Window> {
        let own = self.services.0.get(service.as_str()).copied().unwrap_or(Own::Same);
        match own {
            Own::Off => None,
            Own::Same => Some(Window { limit: self.limit, span: self.window }),
            Own::Differs { limit, window } => {
                Some(Window { limit: limit.unwrap_or(self.limit), span: window.unwrap_or(self.window) })
            }
        }
    }
}

/// How one service differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// Nothing is counted.
    Off,
    /// Not at all.
    Same,
    /// In one or both.
    Differs { limit: Option<u32>, window: Option<Span> },
}

/// Services that differ. Those nobody mentions keep what ships with the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Services(BTreeMap<String, Own>);

impl Default for Services {
    /// State is the agent's own notebook; files and alerts come in larger numbers than letters.
    fn default() -> Self {
        let fifty = Own::Differs { limit: Some(50), window: None };
        Self([("state", Own::Off), ("filesystem", fifty), ("alerts", fifty)].map(|(k, v)| (k.to_owned(), v)).into())
    }
}

impl Services {
    fn add(&mut self, service: &str, own: Own) -> Result<(), Bad> {
        let name = ServiceName::new(service)
            .map_err(|why| Bad::new(format!("cannot use `{}`", escape(service))).hint(why.to_string()))?;
        self.0.insert(name.as_str().to_owned(), own);
        Ok(())
    }
}

impl Setting for Services {
    const WHAT: &'static str = "a map of services";

    fn from_text(text: &str, base: &Path) -> Result<Self, Bad> {
        let mut services = Self::default();
        for part in text.split(',') {
            let bad = || Bad::expected("such as `email=3/1h` or `state=off`", part);
            let (service, own) = part.trim().split_once('=').ok_or_else(bad)?;
            let own = if own == "off" {
                Own::Off
            } else {
                let (limit, window) = own.split_once('/').ok_or_else(bad)?;
                let (limit, window) = (u32::from_text(limit, base)?, Span::from_text(window, base)?);
                limit.within(&LIMIT)?;
                window.within(&WINDOW)?;
                Own::Differs { limit: Some(limit), window: Some(window) }
            };
            services.add(service, own)?;
        }
        Ok(services)
    }

    fn from_node(node: &Node, base: &Path) -> Result<Self, Bad> {
        let Kind::Map(entries) = &node.kind else { return Err(Self::not(node)) };
        let mut services = Self::default();
        for (key, value) in entries {
            let own = match &value.kind {
                Kind::Text(text) if text == "off" => Own::Off,
                Kind::Map(fields) => differs(fields, base)?,
                _ => return Err(Bad::new("must say `off` or `{limit, window}` for a service").at(value.place)),
            };
            services.add(&key.text, own).map_err(|bad| bad.at(key.place))?;
        }
        Ok(services)
    }

    fn shown(&self) -> Value {
        let own = |own: &Own| match own {
            Own::Off => json!("off"),
            Own::Same => json!({}),
            Own::Differs { limit, window } => {
                let limit = limit.map(|limit| ("limit".to_owned(), limit.shown()));
                let window = window.map(|window| ("window".to_owned(), window.shown()));
                Value::Object(limit.into_iter().chain(window).collect())
            }
        };
        Value::Object(self.0.iter().map(|(service, one)| (service.clone(), own(one))).collect::<Map<_, _>>())
    }

    fn shape() -> Value {
        let differs = json!({"type": "object", "additionalProperties": false,
            "properties": {"limit": u32::shape(), "window": Span::shape()}});
        json!({"type": "object", "additionalProperties": {"anyOf": [{"enum": ["off"]}, differs]}})
    }
}

fn differs(fields: &[(Key, Node)], base: &Path) -> Result<Own, Bad> {
    let (mut limit, mut window) = (None, None);
    for (key, node) in fields {
        let read = match key.text.as_str() {
            "limit" => u32::from_node(node, base).and_then(|n| n.within(&LIMIT).map(|()| limit = Some(n))),
            "window" => Span::from_node(node, base).and_then(|s| s.within(&WINDOW).map(|()| window = Some(s))),
            other => {
                let bad = Bad::new(format!("has no key `{}`: a service has limit and window", escape(other)));
                let close = closest(other, ["limit", "window"]).map(|close| format!("did you mean `{close}`?"));
                return Err(Bad { hint: close, ..bad }.at(key.place));
            }
        };
        read.map_err(|bad| bad.at(node.place))?;
    }
    Ok(if limit.is_none() && window.is_none() { Own::Same } else { Own::Differs { limit, window } })
}
