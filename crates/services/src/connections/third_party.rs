//! Third-party adapters: checks what one says about itself against what it may be.
//!
//! Takes the JSON of its `adapter.describe`; gives capabilities that the gateway built from it, or the first thing that
//! is wrong. Promise: every name begins with the name that the operator gave the adapter, and no service of the gateway
//! itself has that name or a similar one; arguments have the kinds of the catalogue and no schema of their own; a
//! request that only reads is a GET; a write without a rule needs approval.

use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_config::{AdapterProgram, skeleton};
use sluice_core::capability::{Capability, Catalogue, Effect, ParamKind};
use sluice_core::{Tier, hex, json};
use sluice_protocol::{ThirdPartyDescription, WireAllowedRequest};

use super::manifest::{AdapterManifest, AdapterStep};
use crate::workers::{JailMode, ThirdPartyNetwork, ThirdPartyProfile, ThirdPartyTerms, WorkerLimits};

/// Longest description that an adapter may give, as canonical JSON.
const LONGEST: usize = 64 << 10;
/// Most capabilities, requests and arguments of one adapter.
const CAPABILITIES: usize = 64;
const REQUESTS: usize = 64;
const ARGUMENTS: usize = 32;
/// Longest summary of a capability, and longest path.
const SUMMARY: usize = 200;
const PATH: usize = 300;
/// The longest hold delay that an adapter may declare, in seconds.
const DELAY: u64 = 86_400;

/// A third-party program behind a connection.
#[derive(Debug, Clone)]
pub(super) struct ThirdPartyAdapter {
    /// Its capabilities, as the gateway offers them.
    pub specs: Vec<Capability>,
    /// A fingerprint of its whole description.
    pub print: String,
    pub program: AdapterProgram,
}

/// The terms on which a third-party program is started for one job. Its environment is empty.
pub(super) fn terms(program: &AdapterProgram, limits: &WorkerLimits) -> ThirdPartyTerms {
    ThirdPartyTerms {
        program: program.path.clone(),
        arguments: Vec::new(),
        environment: Vec::new(),
        folder: PathBuf::from("/"),
        read: program.read.clone(),
        look: Vec::new(),
        pinned: Vec::new(),
        write: Vec::new(),
        network: ThirdPartyNetwork::None,
        memory: limits.memory,
        file_bytes: 0,
        processes: 64,
        profile: ThirdPartyProfile::Job { cpu_seconds: limits.cpu.as_millis().div_ceil(1000).max(1) },
        mode: JailMode::Required,
        namespaces: Ok(()),
    }
}

/// Reads the description of a program, under the name that the operator gave its adapter. `known` is everything that
/// has a name already.
pub(super) fn accept(
    adapter: &str,
    program: AdapterProgram,
    said: Value,
    known: &Catalogue,
) -> Result<AdapterManifest, String> {
    let text = json::to_canonical_bytes(&said);
    if text.len() > LONGEST {
        return Err(format!("it says more than {LONGEST} bytes about itself"));
    }
    let print = hex::encode(&Sha256::digest(&text));
    let ThirdPartyDescription { service, capabilities, home, reach } =
        serde_json::from_value(said).map_err(|error| format!("its description has another shape: {error}"))?;
    if service != adapter {
        return Err(format!("it is the adapter `{adapter}` but describes another service"));
    }
    let builtin = Catalogue::builtin().unwrap_or_default();
    let first = |spec: &Capability| spec.name.as_str().split(['.', ':']).next().unwrap_or_default().to_owned();
    if builtin.iter().any(|own| skeleton(&first(own)) == skeleton(adapter)) {
        return Err("it has the name of a built-in service of the gateway".into());
    }
    if known.iter().any(|other| first(other) == adapter && other.service().as_str() != adapter) {
        return Err("another service behind the gate has its name".into());
    }
    if capabilities.is_empty() || capabilities.len() > CAPABILITIES || reach.len() > REQUESTS {
        return Err(format!(
            "it offers no capability, or more than {CAPABILITIES} capabilities or {REQUESTS} requests"
        ));
    }
    for one in &reach {
        check(one)?;
    }
    let mut catalogue = Catalogue::default();
    for spec in capabilities {
        let spec = capability(adapter, spec)?;
        catalogue.add(spec).map_err(|error| error.to_string())?;
    }
    let specs: Vec<Capability> = catalogue.iter().cloned().collect();
    let foreign = ThirdPartyAdapter { specs, print, program };
    AdapterManifest::of_program(adapter, home, reach, foreign)
        .ok_or_else(|| "the requests that it declares cannot be read".into())
}

/// One request that it declares.
fn check(request: &WireAllowedRequest) -> Result<(), String> {
    if request.path.len() > PATH || !request.path.starts_with('/') {
        return Err("the path of a request must begin with a slash and be short".into());
    }
    match request.step {
        AdapterStep::Look if request.method != "GET" => Err("a request that only reads must be a GET".into()),
        AdapterStep::Look | AdapterStep::Prepare | AdapterStep::Effect => Ok(()),
    }
}

/// One capability, taken as strictly as possible.
fn capability(adapter: &str, mut spec: Capability) -> Result<Capability, String> {
    let name = spec.name.as_str().to_owned();
    let wrong = |why: &str| Err(format!("`{name}`: {why}"));
    let own = name.strip_prefix(adapter).and_then(|rest| rest.strip_prefix('.'));
    let plain = |text: &str| {
        let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        !text.is_empty() && text.len() <= 40 && text.bytes().all(fine)
    };
    if !own.is_some_and(|rest| rest.split('.').all(plain)) {
        return wrong("its name does not begin with the name of its adapter, or has characters that are not allowed");
    }
    if spec.service.as_ref().is_some_and(|service| service.as_str() != adapter) || spec.schema.is_some() {
        return wrong("it declares another service, or a schema");
    }
    let summary = &spec.summary;
    if summary.is_empty() || summary.chars().count() > SUMMARY || summary.chars().any(char::is_control) {
        return wrong("its summary is missing, too long or has control characters");
    }
    if spec.delay_s > DELAY || (spec.reversible && spec.effect == Effect::Read) {
        return wrong("its delay is longer than a day, or it declares a rollback of a read");
    }
    let params = &mut spec.params;
    let mut names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if params.len() > ARGUMENTS || names.len() != params.len() || !names.into_iter().all(plain) {
        return wrong("an argument name is duplicate or not allowed, or there are too many arguments");
    }
    if params.iter().filter(|param| param.object).count() > 1 {
        return wrong("more than one argument names the object of the write");
    }
    for param in params {
        let says_where = matches!(param.kind, ParamKind::Path | ParamKind::Url | ParamKind::Recipients);
        if says_where && spec.effect == Effect::Read {
            return wrong("a read has an argument that names a path, a URL or recipients");
        }
        param.target |= says_where;
    }
    if spec.effect == Effect::Write {
        // As for tools of mounted servers: without a rule, a person must approve.
        spec.usual = Some(spec.usual.unwrap_or(Tier::ApprovalRequired).raise(Tier::ApprovalRequired));
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said() -> Value {
        json!({
            "service": "todo", "home": "https://todo.example.com",
            "capabilities": [
                {"name": "todo.list", "effect": "read", "summary": "Lists the items."},
                {"name": "todo.add", "effect": "write", "class": "findable", "reversible": true, "summary": "Adds an item.",
                 "params": [{"name": "title", "kind": "text", "required": true}]},
            ],
            "reach": [
                {"step": "look", "method": "GET", "path": "/items"},
                {"step": "effect", "method": "POST", "path": "/items"},
            ],
        })
    }

    fn taken(said: Value) -> Result<AdapterManifest, String> {
        accept("todo", AdapterProgram::default(), said, &Catalogue::builtin().unwrap())
    }

    #[test]
    fn a_plain_description_is_taken_and_its_writes_are_asked_about() {
        let manifest = taken(said()).unwrap();
        let foreign = manifest.foreign.as_ref().unwrap();
        let usual: Vec<_> = foreign.specs.iter().map(|spec| (spec.name.as_str(), spec.usual)).collect();
        assert_eq!(usual, [("todo.add", Some(Tier::ApprovalRequired)), ("todo.list", None)]);
        let mut other = said();
        other["capabilities"][0]["summary"] = json!("Lists all items.");
        assert_ne!(taken(other).unwrap().foreign.unwrap().print, foreign.print);
    }

    #[test]
    fn nothing_in_a_description_may_reach_beyond_its_own_name() {
        for (pointer, value) in [
            ("/service", json!("email")),
            ("/service", json!("other")),
            ("/capabilities/1/name", json!("email.send")),
            ("/capabilities/1/name", json!("todo2.add")),
            ("/capabilities/1/name", json!("todo.Add")),
            ("/capabilities/1/name", json!("todo.list")),
            ("/capabilities/1/class", json!(null)),
            ("/capabilities/1/class", json!("magic")),
            ("/capabilities/1/delay_s", json!(100_000)),
            ("/capabilities/1/schema", json!({"type": "object"})),
            ("/capabilities/1/service", json!("email")),
            ("/capabilities/1/params/0/kind", json!("secret")),
            ("/capabilities/1/params/0/name", json!("a b")),
            ("/capabilities/0/reversible", json!(true)),
            ("/capabilities/0/class", json!("absolute")),
            ("/capabilities/0/params", json!([{"name": "url", "kind": "url"}])),
            ("/capabilities/0/summary", json!("x".repeat(201))),
            ("/capabilities/0/summary", json!("a\nb")),
            ("/capabilities/0/colour", json!("red")),
            ("/capabilities", json!([])),
            ("/reach/0/method", json!("POST")),
            ("/reach/1/method", json!("CONNECT")),
            ("/reach/1/path", json!("items")),
            ("/reach/1/path", json!("/../items")),
            ("/reach", json!([])),
            ("/extra", json!(1)),
        ] {
            let mut said = said();
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            match said.pointer_mut(parent).unwrap() {
                Value::Array(list) => list[name.parse::<usize>().unwrap()] = value.clone(),
                other => other[name] = value.clone(),
            }
            assert!(taken(said).is_err(), "{pointer} {value}");
        }
    }

    #[test]
    fn a_name_of_the_gateways_own_or_one_that_looks_like_it_is_refused() {
        for name in ["email", "emai1", "state", "system", "git"] {
            let said = Value::String(said().to_string().replace("todo", name));
            let said: Value = serde_json::from_str(said.as_str().unwrap()).unwrap();
            let known = Catalogue::builtin().unwrap();
            assert!(accept(name, AdapterProgram::default(), said, &known).is_err(), "{name}");
        }
        let mut known = Catalogue::default();
        let mount = "- {name: todo.other, service: mount.todo, effect: read, summary: s}";
        for spec in Catalogue::from_yaml(mount).unwrap().iter() {
            known.add(spec.clone()).unwrap();
        }
        assert!(accept("todo", AdapterProgram::default(), said(), &known).is_err());
    }
}
