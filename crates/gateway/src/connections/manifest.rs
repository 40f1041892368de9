//! What an adapter offers, as its worker says it, and the way out that is made of it.
//!
//! Takes the JSON of `adapter.describe`, gives names, addresses and requests that were checked here. Promise: the
//! way out of a connection reaches one host, with the methods and paths of the manifest and nothing else; a worker
//! that copies holds no right to send.

use http::Method;
use serde::Deserialize;
use serde_json::Value;
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{CapabilityName, ServiceName, Span};

use super::{Connections, Line};
use crate::No;
use crate::egress::ssrf::Net;
use crate::egress::{Connection, HostPattern, Operation, PathPattern, Target};
use crate::workers::{Alone, End, Job, Order, Outcome};

/// The largest answer of a service that is let in: a message of about six megabytes, as text inside JSON.
const LARGEST: u64 = 8 << 20;

/// What a request is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Changes nothing.
    Look,
    /// Makes an inert handle.
    Prepare,
    /// The effect.
    Effect,
}

#[derive(Debug, Clone, Deserialize)]
struct Reach {
    step: Step,
    method: String,
    path: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Offered {
    name: CapabilityName,
}

#[derive(Debug, Clone, Deserialize)]
struct Said {
    service: ServiceName,
    capabilities: Vec<Offered>,
    home: String,
    reach: Vec<Reach>,
}

/// What an adapter offers.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// The service it stands behind.
    pub service: ServiceName,
    /// What can be asked of it.
    pub capabilities: Vec<CapabilityName>,
    /// Where the service lives, unless somebody says otherwise.
    pub home: String,
    reach: Vec<(Step, Method, String)>,
}

impl Manifest {
    fn read(said: Value) -> Option<Self> {
        let said: Said = serde_json::from_value(said).ok()?;
        let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
        let one = |reach: Reach| {
            let method = known.iter().find(|method| method.as_str() == reach.method)?.clone();
            Some((reach.step, method, reach.path))
        };
        let reach: Option<Vec<_>> = said.reach.into_iter().map(one).collect();
        let reach = reach.filter(|reach| !reach.is_empty())?;
        let capabilities = said.capabilities.into_iter().map(|offered| offered.name).collect();
        Some(Self { service: said.service, capabilities, home: said.home, reach })
    }

    /// The requests a job of this step may make.
    pub(super) fn operations(&self, step: Step, base_path: &str) -> Result<Vec<Operation>, String> {
        let ours = self.reach.iter().filter(|(needed, ..)| *needed <= step);
        ours.map(|(_, method, path)| {
            Ok(Operation { method: method.clone(), path: PathPattern::with_places(&format!("{base_path}{path}"))? })
        })
        .collect()
    }

    /// The way out of a connection.
    pub(super) fn way(&self, name: ConnectionName, target: &Target, base_path: &str) -> Result<Connection, String> {
        let mut way = Connection::new(name, vec![HostPattern::parse(target.host())?]);
        way.ports = vec![target.port()];
        way.methods = Vec::new();
        for operation in self.operations(Step::Effect, base_path)? {
            if !way.methods.contains(&operation.method) {
                way.methods.push(operation.method);
            }
            way.paths.push(operation.path);
        }
        way.redirects = 0;
        way.max_answer = LARGEST;
        way.timeout = Span::from_secs(40);
        way.idle_timeout = Span::from_secs(30);
        // The service's own limits count, and it says so itself; a person connected it on purpose.
        (way.limits.per_minute, way.limits.per_hour, way.limits.burn) = (None, None, None);
        if let Some(address) = target.address().filter(|address| address.is_loopback()) {
            way.plain_http = !target.is_tls();
            way.allow_addresses = vec![Net::parse(&address.to_string())?];
        }
        Ok(way)
    }
}

/// Reads the address of a service: https, or this very machine.
pub(super) fn address(text: &str) -> Result<(Target, String), No> {
    let wrong = |why: &str| No::saying(Code::SchemaWrongType, why);
    let target = Target::parse(text).map_err(wrong)?;
    let here = target.address().is_some_and(|address| address.is_loopback());
    if !target.is_tls() && !here {
        return Err(wrong("the address of a service begins with https://"));
    }
    if target.as_str().contains('?') || target.as_str().contains('#') {
        return Err(wrong("the address of a service has no query"));
    }
    let base_path = target.path().trim_end_matches('/').to_owned();
    Ok((target, base_path))
}

/// Scheme, host and port.
pub(super) fn origin(line: &Line) -> String {
    let scheme = if line.target.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}", line.target.authority())
}

impl Connections {
    /// What an adapter offers. It is asked once.
    pub(super) async fn manifest(&self, adapter: &str) -> Result<std::sync::Arc<Manifest>, No> {
        let kept = |of: &Self| {
            let kept = of.manifests.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            kept.get(adapter).cloned()
        };
        if let Some(known) = kept(self) {
            return Ok(known);
        }
        let job = Job {
            kind: "adapter.describe".into(),
            payload: serde_json::json!({"adapter": adapter}),
            attachments: Vec::new(),
        };
        let order = Order { job, scratch: None, limits: None, mode: None };
        let crashed = || Refusal::new(Code::WorkerCrashed).with_text("the adapter does not say what it offers");
        let ended = self.ground.workers.run(order, Alone).await;
        let (end, _) = ended.map_err(|error| {
            let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
            No::saying(code, &error.to_string())
        })?;
        let said = match end {
            End::Clean(done) => match done.report.outcome {
                Outcome::Done(said) => said,
                Outcome::Failed { .. } => {
                    return Err(No::saying(Code::SchemaWrongType, "there is no adapter of this name"));
                }
            },
            End::Crashed(_) | End::CutOff { .. } => return Err(crashed().into()),
        };
        let manifest = std::sync::Arc::new(Manifest::read(said).ok_or_else(crashed)?);
        let mut known = self.manifests.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.insert(adapter.to_owned(), std::sync::Arc::clone(&manifest));
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Manifest {
        Manifest::read(json!({
            "service": "email", "adapter": "gmail", "capabilities": [{"name": "email.send"}],
            "home": "https://mail.example.com",
            "reach": [
                {"step": "look", "method": "GET", "path": "/me/messages/{id}"},
                {"step": "prepare", "method": "POST", "path": "/me/drafts"},
                {"step": "effect", "method": "POST", "path": "/me/drafts/send"},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn a_job_that_looks_holds_no_right_to_send() {
        let fits = |step, method: &Method, path: &str| {
            let operations = manifest().operations(step, "/v1").unwrap();
            operations.iter().any(|one| one.method == *method && one.path.matches(path))
        };
        assert!(fits(Step::Look, &Method::GET, "/v1/me/messages/7"));
        assert!(!fits(Step::Look, &Method::POST, "/v1/me/drafts"));
        assert!(fits(Step::Prepare, &Method::POST, "/v1/me/drafts"));
        assert!(!fits(Step::Prepare, &Method::POST, "/v1/me/drafts/send"));
        assert!(fits(Step::Effect, &Method::POST, "/v1/me/drafts/send"));
        assert!(!fits(Step::Effect, &Method::GET, "/me/messages/7"), "outside the base path");
    }

    #[test]
    fn the_way_out_is_the_manifests_and_plain_only_on_this_machine() {
        let way = |text: &str| {
            let (target, base) = address(text).unwrap();
            manifest().way(ConnectionName::new("service.gmail").unwrap(), &target, &base).unwrap()
        };
        let outside = way("https://mail.example.com");
        let target = |text: &str| Target::parse(text).unwrap();
        assert!(outside.admit(&Method::GET, &target("https://mail.example.com/me/messages/7?format=raw")).is_ok());
        for (method, url) in [
            (Method::GET, "https://mail.example.com/me/settings"),
            (Method::DELETE, "https://mail.example.com/me/messages/7"),
            (Method::GET, "https://other.example.com/me/messages/7"),
            (Method::GET, "http://mail.example.com/me/messages/7"),
        ] {
            assert!(outside.admit(&method, &target(url)).is_err(), "{method} {url}");
        }
        assert!(way("http://127.0.0.1:8080").plain_http);
        for bad in ["http://mail.example.com", "http://10.0.0.7", "https://mail.example.com/?x=1", "mail"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_manifest_that_asks_for_odd_methods_or_for_nothing_is_none() {
        let mut said = json!({"service": "email", "capabilities": [], "home": "", "reach": []});
        assert!(Manifest::read(said.clone()).is_none());
        said["reach"] = json!([{"step": "look", "method": "CONNECT", "path": "/"}]);
        assert!(Manifest::read(said).is_none());
    }
}
