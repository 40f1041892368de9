//! The manifest of a service: its part of the catalogue, and how people see its writes.
//!
//! Takes the catalogue of `core`, gives the capabilities of one service with their schemas, effects, reversibility,
//! delays and targets. Promise: nothing is stated twice; an adapter adds only what the catalogue cannot know.

use serde_json::{Value, json};
use sluice_core::ServiceName;
use sluice_core::capability::{Capability, Catalogue};
pub use sluice_protocol::AdapterStep;
use sluice_protocol::WireAllowedRequest;

use crate::net::NetMethod;

/// How people see a write: a sentence, then arguments in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePreview {
    /// The capability.
    pub capability: &'static str,
    /// A sentence; `{name}` stands for an argument.
    pub title: &'static str,
    /// Arguments shown, in order.
    pub fields: &'static [&'static str],
}

/// A kind of request that an adapter makes: the way out is limited to these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedRequest {
    /// The step that it serves.
    pub step: AdapterStep,
    /// Its HTTP method.
    pub method: NetMethod,
    /// The path; `{id}` stands for exactly one segment.
    pub path: &'static str,
}

/// The capabilities of one service.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The name of the service in the catalogue.
    pub service: ServiceName,
    /// The name of the adapter.
    pub adapter: &'static str,
    /// Its capabilities.
    pub capabilities: Vec<Capability>,
    /// How people see its writes.
    pub previews: &'static [WritePreview],
    /// Capabilities that the gateway itself answers, although they have the service's name.
    pub by_gateway: &'static [&'static str],
    /// The address of the service, unless the operator sets another one.
    pub home: &'static str,
    /// Every kind of request that it makes; no other request is allowed out.
    pub reach: &'static [AllowedRequest],
}

impl Manifest {
    /// The part of a catalogue that belongs to one service.
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

    /// The manifest as JSON, for doors and for third-party adapters.
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
            "reach": self.reach.iter().copied().map(AllowedRequest::to_wire).collect::<Vec<_>>(),
        })
    }
}

impl AllowedRequest {
    fn to_wire(self) -> WireAllowedRequest {
        WireAllowedRequest { step: self.step, method: self.method.as_str().to_owned(), path: self.path.to_owned() }
    }
}
