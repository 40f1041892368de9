//! The manifest of an adapter, as its worker reports it, and the way out that is built from it.
//!
//! Takes the JSON of `adapter.describe`, gives names, addresses and requests that were checked here. Promise: the way
//! out of a connection reaches one host, with the methods and paths of the manifest and nothing else; a worker that
//! syncs has no right to send.

use http::Method;
use serde::Deserialize;
use serde_json::Value;
use sluice_config::AdapterProgram;
use sluice_config::network::{EgressConnection, EgressUrl, HostPattern, IpNetwork, PathPattern};
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::throttle::ConnectionLimits;
use sluice_core::{CapabilityName, Millis, ServiceName};
use sluice_egress::TicketOperation;
pub use sluice_protocol::AdapterStep;
use sluice_protocol::{AdapterDescribeTask, WireAllowedRequest};

use super::third_party::{self, ThirdPartyAdapter};
use super::{ConnectionHandle, ServiceConnections};
use crate::CallError;
use crate::intake::{CleanedContent, IncomingItem, IntakeOutcome};
use crate::workers::{
    self, RefusingWorkerHost, WorkerAssignment, WorkerEnd, WorkerHost, WorkerJob, WorkerJobOutcome, WorkerPoolError,
};

/// The largest answer of a service that is accepted: a message of about six megabytes, as text inside JSON.
const LARGEST: u64 = 8 << 20;
/// How much a worker may use to describe an adapter.
const DESCRIBE: workers::WorkerLimits = workers::WorkerLimits {
    wall: Millis::from_secs(20),
    cpu: Millis::from_secs(10),
    memory: 256 << 20,
    scratch_bytes: 0,
    frames: 4,
    bytes: 1 << 20,
    exchanges: 0,
};

#[derive(Debug, Clone, Deserialize)]
struct WireOfferedCapability {
    name: CapabilityName,
}

#[derive(Debug, Clone, Deserialize)]
struct WireAdapterManifest {
    service: ServiceName,
    capabilities: Vec<WireOfferedCapability>,
    home: String,
    reach: Vec<WireAllowedRequest>,
}

/// The manifest of an adapter: what it offers.
#[derive(Debug, Clone)]
pub struct AdapterManifest {
    /// The service that it serves.
    pub service: ServiceName,
    /// The capabilities that it offers.
    pub capabilities: Vec<CapabilityName>,
    /// The address of the service, unless the operator sets another one.
    pub home: String,
    reach: Vec<(AdapterStep, Method, String)>,
    /// The program behind it, if the adapter is third-party.
    pub(super) foreign: Option<ThirdPartyAdapter>,
}

/// Requests that egress can tell apart.
fn requests(reach: Vec<WireAllowedRequest>) -> Option<Vec<(AdapterStep, Method, String)>> {
    let known = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
    let one = |reach: WireAllowedRequest| {
        let method = known.iter().find(|method| method.as_str() == reach.method)?.clone();
        Some((reach.step, method, reach.path))
    };
    let reach: Option<Vec<_>> = reach.into_iter().map(one).collect();
    reach.filter(|reach| !reach.is_empty())
}

impl AdapterManifest {
    fn read(said: Value) -> Option<Self> {
        let said: WireAdapterManifest = serde_json::from_value(said).ok()?;
        let reach = requests(said.reach)?;
        let capabilities = said.capabilities.into_iter().map(|offered| offered.name).collect();
        Some(Self { service: said.service, capabilities, home: said.home, reach, foreign: None })
    }

    /// The manifest of a third-party adapter, whose capabilities were checked.
    pub(super) fn of_program(
        service: &str,
        home: String,
        reach: Vec<WireAllowedRequest>,
        foreign: ThirdPartyAdapter,
    ) -> Option<Self> {
        let capabilities = foreign.specs.iter().map(|spec| spec.name.clone()).collect();
        let (service, reach) = (ServiceName::new(service).ok()?, requests(reach)?);
        let manifest = Self { service, capabilities, home, reach, foreign: Some(foreign) };
        manifest.operations(AdapterStep::Effect, "").is_ok().then_some(manifest)
    }

    /// The requests that a job of this step may make.
    pub(super) fn operations(&self, step: AdapterStep, base_path: &str) -> Result<Vec<TicketOperation>, String> {
        let ours = self.reach.iter().filter(|(needed, ..)| *needed <= step);
        ours.map(|(_, method, path)| {
            Ok(TicketOperation {
                method: method.clone(),
                path: PathPattern::with_places(&format!("{base_path}{path}"))?,
            })
        })
        .collect()
    }

    /// The way out of a connection.
    pub(super) fn way(
        &self,
        name: ConnectionName,
        target: &EgressUrl,
        base_path: &str,
    ) -> Result<EgressConnection, String> {
        let mut way = EgressConnection::new(name, vec![HostPattern::parse(target.host())?]);
        way.ports = vec![target.port()];
        way.methods = Vec::new();
        for operation in self.operations(AdapterStep::Effect, base_path)? {
            if !way.methods.contains(&operation.method) {
                way.methods.push(operation.method);
            }
            way.paths.push(operation.path);
        }
        way.redirects = 0;
        way.max_answer = LARGEST;
        way.timeout = Millis::from_secs(40);
        way.idle_timeout = Millis::from_secs(30);
        way.limits = match self.foreign {
            // The service enforces its own limits and reports them; a person connected it on purpose.
            None => ConnectionLimits::NONE,
            // Reads go to the service, and a third-party adapter may send more requests than it needs.
            Some(_) => ConnectionLimits { per_minute: Some(120), per_hour: Some(2_000), burn: None },
        };
        if let Some(address) = target.address().filter(|address| address.is_loopback()) {
            way.plain_http = !target.is_tls();
            way.allow_addresses = vec![IpNetwork::parse(&address.to_string())?];
        }
        Ok(way)
    }
}

/// Reads the address of a service: https, or this machine.
pub(super) fn address(text: &str) -> Result<(EgressUrl, String), CallError> {
    let wrong = |why: &str| CallError::with_text(Code::SchemaWrongType, why);
    let target = EgressUrl::parse(text).map_err(wrong)?;
    let here = target.address().is_some_and(|address| address.is_loopback());
    if !target.is_tls() && !here {
        return Err(wrong("the address of a service must begin with https://"));
    }
    if target.as_str().contains('?') || target.as_str().contains('#') {
        return Err(wrong("the address of a service must not have a query"));
    }
    let base_path = target.path().trim_end_matches('/').to_owned();
    Ok((target, base_path))
}

/// The origin: scheme, host and port.
pub(super) fn origin(line: &ConnectionHandle) -> String {
    let scheme = if line.target.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}", line.target.authority())
}

impl ServiceConnections {
    /// The manifest of an adapter. It is requested once.
    pub(super) async fn manifest(&self, adapter: &str) -> Result<std::sync::Arc<AdapterManifest>, CallError> {
        let kept = |of: &Self| {
            let kept = of.manifests.lock();
            kept.get(adapter).cloned()
        };
        if let Some(known) = kept(self) {
            return Ok(known);
        }
        let job = WorkerJob::of(&AdapterDescribeTask { adapter: adapter.to_owned() }, Vec::new());
        let (context, limits) = (self.context()?, DESCRIBE);
        let program = context.config.services.connections.program(adapter).cloned();
        let order = WorkerAssignment { job, scratch: None, limits: Some(limits), mode: None };
        let crashed = || Refusal::new(Code::WorkerCrashed).with_text("the adapter does not say what it offers");
        let ended = self.start(program.as_ref(), order, RefusingWorkerHost).await;
        let (end, _) = ended.map_err(|error| {
            let code = error.refusal_code();
            CallError::with_text(code, &error.to_string())
        })?;
        let said = match end {
            WorkerEnd::Clean(done) => match done.report.outcome {
                WorkerJobOutcome::Done(said) => said,
                WorkerJobOutcome::Failed { .. } if program.is_some() => return Err(crashed().into()),
                WorkerJobOutcome::Failed { .. } => {
                    return Err(CallError::with_text(Code::SchemaWrongType, "there is no adapter of this name"));
                }
            },
            WorkerEnd::Crashed(_) | WorkerEnd::CutOff { .. } => return Err(crashed().into()),
        };
        let manifest = match program {
            None => AdapterManifest::read(said).ok_or_else(crashed)?,
            Some(program) => self.accepted(adapter, program, said).await?,
        };
        let manifest = std::sync::Arc::new(manifest);
        let mut known = self.manifests.lock();
        known.insert(adapter.to_owned(), std::sync::Arc::clone(&manifest));
        Ok(manifest)
    }

    /// Checks whether the description of a third-party program may be offered under its name. Agents read its words, so
    /// they must pass the intake unchanged or they are refused.
    async fn accepted(
        &self,
        adapter: &str,
        program: AdapterProgram,
        said: Value,
    ) -> Result<AdapterManifest, CallError> {
        let context = self.context()?;
        let refused =
            |code, why: &str| CallError::with_text(code, &format!("the adapter `{adapter}` cannot be used: {why}"));
        let manifest = third_party::accept(adapter, program, said, &context.catalogue.known())
            .map_err(|why| refused(Code::ServiceSettings, &why))?;
        let specs = manifest.foreign.iter().flat_map(|foreign| &foreign.specs);
        let words = Value::Array(specs.map(|spec| Value::String(spec.summary.clone())).collect());
        let item = IncomingItem {
            bytes: words.to_string().into_bytes(),
            declared: Some("application/json".into()),
            service: manifest.service.clone(),
            source: "adapter.describe".into(),
            author: adapter.to_owned(),
            at: self.deps.clock.now(),
            beside: None,
            reader: None,
            enveloped: false,
        };
        match context.intake.take_in(&item).await? {
            IntakeOutcome::Clean(CleanedContent { withheld: None, value: Some(value), .. }) if value == words => {
                Ok(manifest)
            }
            IntakeOutcome::Clean(_) | IntakeOutcome::Refused { .. } => {
                Err(refused(Code::ContentWithheld, "its description must not be shown to agents"))
            }
        }
    }

    /// The process for a job: one of our workers, or a third-party program that is locked in before it begins.
    pub(super) async fn start<H: WorkerHost + Send + 'static>(
        &self,
        program: Option<&AdapterProgram>,
        order: WorkerAssignment,
        host: H,
    ) -> Result<(WorkerEnd, H), WorkerPoolError> {
        match program {
            None => self.deps.workers.run(order, host).await,
            Some(program) => {
                let terms = third_party::terms(program, &order.limits.unwrap_or_default());
                self.deps.workers.run_program(order, terms, host).await
            }
        }
    }

    /// Forgets the description of a third-party program, so that it is requested again: it may have changed.
    pub(super) fn ask_anew(&self, adapter: &str) {
        let mut known = self.manifests.lock();
        if known.get(adapter).is_some_and(|manifest| manifest.foreign.is_some()) {
            known.remove(adapter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> AdapterManifest {
        AdapterManifest::read(json!({
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
        assert!(fits(AdapterStep::Look, &Method::GET, "/v1/me/messages/7"));
        assert!(!fits(AdapterStep::Look, &Method::POST, "/v1/me/drafts"));
        assert!(fits(AdapterStep::Prepare, &Method::POST, "/v1/me/drafts"));
        assert!(!fits(AdapterStep::Prepare, &Method::POST, "/v1/me/drafts/send"));
        assert!(fits(AdapterStep::Effect, &Method::POST, "/v1/me/drafts/send"));
        assert!(!fits(AdapterStep::Effect, &Method::GET, "/me/messages/7"), "outside the base path");
    }

    #[test]
    fn the_way_out_is_the_manifests_and_plain_only_on_this_machine() {
        let way = |text: &str| {
            let (target, base) = address(text).unwrap();
            manifest().way(ConnectionName::new("service.gmail").unwrap(), &target, &base).unwrap()
        };
        let outside = way("https://mail.example.com");
        let target = |text: &str| EgressUrl::parse(text).unwrap();
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
        assert!(AdapterManifest::read(said.clone()).is_none());
        said["reach"] = json!([{"step": "look", "method": "CONNECT", "path": "/"}]);
        assert!(AdapterManifest::read(said).is_none());
    }
}
