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
use sluice_core::throttle::Limits;
use sluice_core::{CapabilityName, ServiceName, Span};

use super::foreign::{self, Foreign};
use super::{Connections, Line};
use crate::No;
use crate::config::AdapterProgram;
use crate::egress::ssrf::Net;
use crate::egress::{Connection, HostPattern, Operation, PathPattern, Target};
use crate::intake::{Cleaned, Incoming, Taken};
use crate::workers::{self, Alone, End, Host, Job, Order, Outcome, WorkersError};

/// The largest answer of a service that is let in: a message of about six megabytes, as text inside JSON.
const LARGEST: u64 = 8 << 20;
/// How much saying what it offers may take.
const DESCRIBE: workers::Limits = workers::Limits {
    wall: Span::from_secs(20),
    cpu: Span::from_secs(10),
    memory: 256 << 20,
    scratch_bytes: 0,
    frames: 4,
    bytes: 1 << 20,
    exchanges: 0,
};

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
pub(super) struct Reach {
    pub step: Step,
    pub method: String,
    pub path: String,
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
    /// The program behind it, if it is one of others.
    pub(super) foreign: Option<Foreign>,
}

/// Requests the egress knows how to tell apart.
fn requests(reach: Vec<Reach>) -> Option<Vec<(Step, Method, String)>> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
    let one = |reach: Reach| {
        let method = known.iter().find(|method| method.as_str() == reach.method)?.clone();
        Some((reach.step, method, reach.path))
    };
    let reach: Option<Vec<_>> = reach.into_iter().map(one).collect();
    reach.filter(|reach| !reach.is_empty())
}

impl Manifest {
    fn read(said: Value) -> Option<Self> {
        let said: Said = serde_json::from_value(said).ok()?;
        let reach = requests(said.reach)?;
        let capabilities = said.capabilities.into_iter().map(|offered| offered.name).collect();
        Some(Self { service: said.service, capabilities, home: said.home, reach, foreign: None })
    }

    /// Of an adapter of others, whose capabilities were checked.
    pub(super) fn of_program(service: &str, home: String, reach: Vec<Reach>, foreign: Foreign) -> Option<Self> {
        let capabilities = foreign.specs.iter().map(|spec| spec.name.clone()).collect();
        let (service, reach) = (ServiceName::new(service).ok()?, requests(reach)?);
        let manifest = Self { service, capabilities, home, reach, foreign: Some(foreign) };
        manifest.operations(Step::Effect, "").is_ok().then_some(manifest)
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
        way.limits = match self.foreign {
            // The service's own limits count, and it says so itself; a person connected it on purpose.
            None => Limits::NONE,
            // Reads go to the service, and an adapter of others may ask more than it has to.
            Some(_) => Limits { per_minute: Some(120), per_hour: Some(2_000), burn: None },
        };
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
        let (gw, limits) = (self.gateway()?, DESCRIBE);
        let program = gw.config.services.connections.program(adapter).cloned();
        let order = Order { job, scratch: None, limits: Some(limits), mode: None };
        let crashed = || Refusal::new(Code::WorkerCrashed).with_text("the adapter does not say what it offers");
        let ended = self.start(program.as_ref(), order, Alone).await;
        let (end, _) = ended.map_err(|error| {
            let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
            No::saying(code, &error.to_string())
        })?;
        let said = match end {
            End::Clean(done) => match done.report.outcome {
                Outcome::Done(said) => said,
                Outcome::Failed { .. } if program.is_some() => return Err(crashed().into()),
                Outcome::Failed { .. } => {
                    return Err(No::saying(Code::SchemaWrongType, "there is no adapter of this name"));
                }
            },
            End::Crashed(_) | End::CutOff { .. } => return Err(crashed().into()),
        };
        let manifest = match program {
            None => Manifest::read(said).ok_or_else(crashed)?,
            Some(program) => self.accepted(adapter, program, said).await?,
        };
        let manifest = std::sync::Arc::new(manifest);
        let mut known = self.manifests.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.insert(adapter.to_owned(), std::sync::Arc::clone(&manifest));
        Ok(manifest)
    }

    /// What a program of others says about itself, if that may be offered under its name. Its words are for agents, and
    /// so they pass the intake as they are or not at all.
    async fn accepted(&self, adapter: &str, program: AdapterProgram, said: Value) -> Result<Manifest, No> {
        let gw = self.gateway()?;
        let refused = |code, why: &str| No::saying(code, &format!("the adapter `{adapter}` cannot be used: {why}"));
        let manifest = foreign::accept(adapter, program, said, &gw.catalogue.known())
            .map_err(|why| refused(Code::ServiceSettings, &why))?;
        let specs = manifest.foreign.iter().flat_map(|foreign| &foreign.specs);
        let words = Value::Array(specs.map(|spec| Value::String(spec.summary.clone())).collect());
        let item = Incoming {
            bytes: words.to_string().into_bytes(),
            declared: Some("application/json".into()),
            service: manifest.service.clone(),
            source: "adapter.describe".into(),
            author: adapter.to_owned(),
            at: self.ground.clock.now(),
            beside: None,
            reader: None,
            enveloped: false,
        };
        match gw.intake.take_in(&item).await? {
            Taken::Clean(Cleaned { withheld: None, value: Some(value), .. }) if value == words => Ok(manifest),
            Taken::Clean(_) | Taken::Refused { .. } => {
                Err(refused(Code::ContentWithheld, "what it says about itself is not for agents to read"))
            }
        }
    }

    /// Whoever does a job: a worker of ours, or a program of others that is locked in before it begins.
    pub(super) async fn start<H: Host + Send + 'static>(
        &self,
        program: Option<&AdapterProgram>,
        order: Order,
        host: H,
    ) -> Result<(End, H), WorkersError> {
        match program {
            None => self.ground.workers.run(order, host).await,
            Some(program) => {
                let terms = foreign::terms(program, &order.limits.unwrap_or_default());
                self.ground.workers.run_program(order, terms, host).await
            }
        }
    }

    /// What a program of others says about itself is asked for once more: it may be another by now.
    pub(super) fn ask_anew(&self, adapter: &str) {
        let mut known = self.manifests.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if known.get(adapter).is_some_and(|manifest| manifest.foreign.is_some()) {
            known.remove(adapter);
        }
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
