//! What a service offers: its part of the one catalogue, and how people are shown its writes.
//!
//! Takes the catalogue of `core`, gives the capabilities of one service with their schemas, effects,
//! reversibility, delays and targets. Promise: nothing is said twice; what an adapter adds is only what the
//! catalogue cannot know.

use serde_json::{Value, json};
use sluice_core::ServiceName;
use sluice_core::capability::{Capability, Catalogue};

use crate::net::Method;

/// How a write is put before a person: a sentence, then arguments in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preview {
    /// The capability.
    pub capability: &'static str,
    /// A sentence; `{name}` stands for an argument.
    pub title: &'static str,
    /// Arguments shown, in order.
    pub fields: &'static [&'static str],
}

/// What a request is good for. A job is let out for its own step and those before it: copying a mailbox needs no
/// way to send from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Changes nothing.
    Look,
    /// Makes an inert handle that nobody outside can notice.
    Prepare,
    /// The effect.
    Effect,
}

impl Step {
    /// In a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Prepare => "prepare",
            Self::Effect => "effect",
        }
    }
}

/// A kind of request an adapter makes: what the way out is narrowed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// What it is good for.
    pub step: Step,
    /// What it does with the path.
    pub method: Method,
    /// The path; `{id}` stands for exactly one part.
    pub path: &'static str,
}

/// The capabilities of one service.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// What the service is called in the catalogue.
    pub service: ServiceName,
    /// The adapter behind it.
    pub adapter: &'static str,
    /// Its capabilities.
    pub capabilities: Vec<Capability>,
    /// How its writes are shown.
    pub previews: &'static [Preview],
    /// Capabilities the gateway itself answers, although they bear the service's name.
    pub by_gateway: &'static [&'static str],
    /// Where the service lives, unless somebody says otherwise.
    pub home: &'static str,
    /// Every kind of request it makes; nothing else is let out.
    pub reach: &'static [Reach],
}

impl Manifest {
    /// The part of a catalogue that belongs to a service.
    #[must_use]
    pub fn of(catalogue: &Catalogue, service: &ServiceName, adapter: &'static str) -> Self {
        let ours = catalogue.iter().filter(|capability| capability.service() == *service);
        Self {
            service: service.clone(),
            adapter,
            capabilities: ours.cloned().collect(),
            previews: &[],
            by_gateway: &[],
            home: "",
            reach: &[],
        }
    }

    /// As JSON, for doors and for adapters that are programs of their own.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let one = |spec: &Capability| {
            let targets: Vec<&str> =
                spec.params.iter().filter(|param| param.target).map(|param| param.name.as_str()).collect();
            let preview = self.previews.iter().find(|preview| preview.capability == spec.name.as_str());
            json!({
                "name": spec.name,
                "summary": spec.summary,
                "effect": if spec.class.is_some() { "write" } else { "read" },
                "class": spec.class.map(sluice_core::capability::EffectClass::as_str),
                "reversible": spec.reversible,
                "delay_s": spec.delay_s,
                "targets": targets,
                "input_schema": spec.input_schema(),
                "preview": preview.map(|p| json!({"title": p.title, "fields": p.fields})),
            })
        };
        json!({
            "service": self.service,
            "adapter": self.adapter,
            "capabilities": self.capabilities.iter().map(one).collect::<Vec<_>>(),
            "home": self.home,
            "reach": self.reach.iter().map(reach).collect::<Vec<_>>(),
        })
    }
}

fn reach(one: &Reach) -> Value {
    json!({"step": one.step.as_str(), "method": one.method.as_str(), "path": one.path})
}
