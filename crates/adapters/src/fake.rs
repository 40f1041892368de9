//! A service that fails on command, and a toy service with a write of each class.
//!
//! Takes any way to a service and one failure, gives a way that fails so, once. Promise: a failure happens
//! where it says: before the service heard of it, or after it did what was asked.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::rollback::Fingerprint;
use sluice_core::{CapabilityName, ServiceName};

use crate::adapter::{
    Absolute, Adapter, Before, Change, ConsumeOnce, Cursor, Done, Findable, Found, Handle, Opaque, Operation, Page,
    Past, Progress, RawItem, Reversal, RollbackCapable, SyncAdapter, SyncTrouble, Way, Write, WriteExecutor,
};
use crate::conformance::Stage;
use crate::manifest::{Manifest, Preview};
use crate::net::{Method, Net, NetError, Phase, Reply, Request};
use crate::trouble::{Fault, Trouble};

/// What goes wrong with the first write, or with the first exchange of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The connection breaks in this phase. After the first byte, the service does what was asked all the same.
    Broken(Phase),
    /// The same for whatever is asked first.
    AnyBroken(Phase),
    /// The service does it and nobody hears the answer.
    LostReply,
    /// The service answers with this status, after doing it or instead of doing it.
    Status {
        /// Which status.
        status: u16,
        /// Whether it was done all the same.
        after: bool,
    },
    /// Too many requests.
    Limited {
        /// How long to wait.
        retry_after_s: u64,
    },
}

/// A way to a service on which one thing goes wrong.
pub struct Faulty<'n> {
    inner: &'n mut dyn Net,
    failure: Option<Failure>,
}

impl std::fmt::Debug for Faulty<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl<'n> Faulty<'n> {
    /// Around another way.
    pub fn new(inner: &'n mut dyn Net, failure: Option<Failure>) -> Self {
        Self { inner, failure }
    }
}

impl Net for Faulty<'_> {
    fn exchange(&mut self, request: Request) -> Result<Reply, NetError> {
        let write = request.method != Method::Get;
        let hit = self.failure.filter(|failure| write || matches!(failure, Failure::AnyBroken(_)));
        let Some(failure) = hit else { return self.inner.exchange(request) };
        self.failure = None;
        let plain = |status, headers| Ok(Reply { status, headers, body: Vec::new() });
        match failure {
            Failure::Broken(phase) | Failure::AnyBroken(phase) => {
                if !phase.nothing_left() {
                    self.inner.exchange(request)?;
                }
                Err(NetError::Broken(phase))
            }
            Failure::LostReply => {
                self.inner.exchange(request)?;
                Err(NetError::Broken(Phase::Reply))
            }
            Failure::Status { status, after } => {
                if after {
                    self.inner.exchange(request)?;
                }
                plain(status, Vec::new())
            }
            Failure::Limited { retry_after_s } => plain(429, vec![("retry-after".into(), retry_after_s.to_string())]),
        }
    }
}

const TOY: &str = "
- {name: toy.set, effect: write, class: absolute, reversible: true, summary: Sets., params: [{name: key, kind: text}]}
- {name: toy.post, effect: write, class: consume_once, summary: Posts., params: [{name: key, kind: text}]}
- {name: toy.note, effect: write, class: findable, summary: Notes., params: [{name: key, kind: text}]}
- {name: toy.shout, effect: write, class: opaque, summary: Shouts., params: [{name: key, kind: text}]}
- {name: toy.read, effect: read, summary: Reads.}
";

const PREVIEWS: [Preview; 4] = [
    Preview { capability: "toy.set", title: "Set {key}", fields: &["key"] },
    Preview { capability: "toy.post", title: "Post {key}", fields: &["key"] },
    Preview { capability: "toy.note", title: "Note {key}", fields: &["key"] },
    Preview { capability: "toy.shout", title: "Shout {key}", fields: &["key"] },
];

/// The smallest adapter there can be: the example to start a new one from.
#[derive(Debug)]
pub struct Toy {
    manifest: Manifest,
}

/// The service behind it: values by key, handles, and how often something was done.
#[derive(Debug, Default)]
pub struct ToyService {
    values: BTreeMap<String, String>,
    handles: BTreeMap<String, String>,
    effects: u64,
    forgotten: bool,
}

impl Net for ToyService {
    fn exchange(&mut self, request: Request) -> Result<Reply, NetError> {
        let (what, key) = request.path.trim_start_matches('/').split_once('/').unwrap_or((&request.path, ""));
        let key = key.to_owned();
        let (status, body) = match (request.method, what) {
            (Method::Get, "value") => match self.values.get(&key) {
                Some(value) => (200, json!({"value": value})),
                None => (200, json!({"value": null})),
            },
            (Method::Get, "handle") => (if self.handles.contains_key(&key) { 200 } else { 404 }, Value::Null),
            (Method::Get, "feed") if self.forgotten => (404, Value::Null),
            (Method::Get, "feed") => (200, json!({})),
            (Method::Post, "handle") => {
                self.handles.insert(key.clone(), key);
                (200, Value::Null)
            }
            (Method::Post, "consume") => match self.handles.remove(&key) {
                Some(key) => {
                    self.effects += 1;
                    self.values.insert(key, "posted".into());
                    (200, Value::Null)
                }
                None => (404, Value::Null),
            },
            (Method::Post, "value") => {
                self.effects += 1;
                self.values.insert(key, "set".into());
                (200, Value::Null)
            }
            (Method::Delete, "value") => {
                self.effects += 1;
                self.values.remove(&key);
                (200, Value::Null)
            }
            _ => (404, Value::Null),
        };
        Ok(Reply { status, headers: Vec::new(), body: body.to_string().into_bytes() })
    }
}

fn ask(net: Way<'_>, request: Request) -> Result<Value, Fault> {
    let reply = net.exchange(request).map_err(Fault::Net)?;
    let retry_after_s = reply.header("retry-after").and_then(|text| text.parse().ok());
    match reply.status {
        200 => serde_json::from_slice(&reply.body).map_err(|_| Fault::Garbled),
        status => Err(Fault::Status { status, reason: String::new(), retry_after_s, said: None }),
    }
}

fn key(write: &Write) -> &str {
    write.arguments.get("key").and_then(Value::as_str).unwrap_or_default()
}

fn value(net: Way<'_>, key: &str) -> Result<Vec<u8>, Fault> {
    ask(net, Request::get(format!("/value/{key}"))).map(|value| value.to_string().into_bytes())
}

fn done(after: Option<Fingerprint>) -> Done {
    Done { receipt: "ok".into(), result: Value::Null, after, undo_until: None }
}

/// The operation of class A.
#[derive(Debug)]
struct Set;
/// The operation of class B.
#[derive(Debug)]
struct Post;
/// The operation of class C.
#[derive(Debug)]
struct Note;
/// The operation of class D.
#[derive(Debug)]
struct Shout;

impl Absolute for Set {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        ask(net, Request::post_empty(format!("/value/{}", key(write)))).map_err(Fault::of_write)?;
        Ok(done(Some(Fingerprint::of(json!({"value": "set"}).to_string().as_bytes()))))
    }
    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found {
        match value(net, key(write)) {
            Ok(now) if now == json!({"value": "set"}).to_string().as_bytes() => {
                Found::Applied(done(Some(Fingerprint::of(&now))))
            }
            Ok(_) => Found::Absent,
            Err(_) => Found::Unknown,
        }
    }
}

impl Reversal for Set {
    fn capture(&self, net: Way<'_>, write: &Write) -> Result<Before, Trouble> {
        let state = value(net, key(write)).map_err(Fault::of_look)?;
        Ok(Before { print: Fingerprint::of(&state), state })
    }
    fn present(&self, net: Way<'_>, past: Past<'_>) -> Result<Fingerprint, Trouble> {
        value(net, key(past.write)).map(|now| Fingerprint::of(&now)).map_err(Fault::of_look)
    }
    fn undo(&self, net: Way<'_>, past: Past<'_>) -> Result<Done, Trouble> {
        ask(net, Request::delete(format!("/value/{}", key(past.write)))).map_err(Fault::of_write)?;
        Ok(done(Some(Fingerprint::of(past.before))))
    }
}

impl ConsumeOnce for Post {
    fn create(&self, net: Way<'_>, write: &Write) -> Result<Handle, Trouble> {
        ask(net, Request::post_empty(format!("/handle/{}", key(write)))).map_err(Fault::of_look)?;
        Ok(Handle(key(write).to_owned()))
    }
    fn consume(&self, net: Way<'_>, _write: &Write, handle: &Handle) -> Result<Done, Trouble> {
        match ask(net, Request::post_empty(format!("/consume/{}", handle.0))) {
            Ok(_) => Ok(done(None)),
            Err(fault) if fault.is_status(404) => Err(Trouble::Unclear),
            Err(fault) => Err(fault.of_write()),
        }
    }
    fn reconcile(&self, net: Way<'_>, _write: &Write, handle: &Handle) -> Found {
        match ask(net, Request::get(format!("/handle/{}", handle.0))) {
            Ok(_) => Found::Absent,
            Err(fault) if fault.is_status(404) => Found::Applied(done(None)),
            Err(_) => Found::Unknown,
        }
    }
}

impl Findable for Note {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        ask(net, Request::post_empty(format!("/value/{}", write.op))).map_err(Fault::of_write)?;
        Ok(done(None))
    }
    fn reconcile(&self, net: Way<'_>, write: &Write) -> Found {
        match value(net, &write.op) {
            Ok(now) if now == json!({"value": "set"}).to_string().as_bytes() => Found::Applied(done(None)),
            Ok(_) => Found::Absent,
            Err(_) => Found::Unknown,
        }
    }
}

impl Opaque for Shout {
    fn perform(&self, net: Way<'_>, write: &Write) -> Result<Done, Trouble> {
        ask(net, Request::post_empty(format!("/value/{}", key(write)))).map_err(Fault::of_write)?;
        Ok(done(None))
    }
}

impl Toy {
    /// A new one.
    ///
    /// # Errors
    /// Never in a build whose tests passed.
    pub fn new() -> Result<Self, sluice_core::capability::CatalogueError> {
        let catalogue = Catalogue::from_yaml(TOY)?;
        let service = ServiceName::new("toy")
            .map_err(|error| sluice_core::capability::CatalogueError::Syntax(error.to_string()))?;
        let mut manifest = Manifest::of(&catalogue, &service, "toy");
        manifest.previews = &PREVIEWS;
        Ok(Self { manifest })
    }
}

impl SyncAdapter for Toy {
    fn changes(&self, net: Way<'_>, since: Option<&Cursor>) -> Result<Page, SyncTrouble> {
        let known = since.is_none_or(|cursor| cursor.0 == "end");
        match ask(net, Request::get("/feed/")) {
            Ok(_) if known => {}
            Ok(_) => return Err(SyncTrouble::Expired),
            Err(fault) if fault.is_status(404) => return Err(SyncTrouble::Expired),
            Err(fault) => match fault.of_look() {
                Trouble::NotDone(why) | Trouble::Refused(why) => return Err(SyncTrouble::Later(why)),
                Trouble::Unclear => return Err(SyncTrouble::Expired),
            },
        }
        let first = RawItem {
            id: "1".into(),
            thread: "1".into(),
            labels: Vec::new(),
            received: 0,
            raw: b"Subject: toy\r\n\r\n".to_vec(),
            cut: false,
            size: 16,
            receiver: None,
        };
        let changes = if since.is_none() { vec![Change::Put(first)] } else { Vec::new() };
        Ok(Page {
            changes,
            next: Cursor("end".into()),
            more: false,
            progress: Some(Progress { done: 1, total: Some(1) }),
        })
    }
}

impl WriteExecutor for Toy {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    fn operation(&self, capability: &CapabilityName) -> Option<Operation<'_>> {
        match capability.as_str() {
            "toy.set" => Some(Operation::Absolute(&Set)),
            "toy.post" => Some(Operation::ConsumeOnce(&Post)),
            "toy.note" => Some(Operation::Findable(&Note)),
            "toy.shout" => Some(Operation::Opaque(&Shout)),
            _ => None,
        }
    }
}

impl RollbackCapable for Toy {
    fn reversal(&self, capability: &CapabilityName) -> Option<&dyn Reversal> {
        (capability.as_str() == "toy.set").then_some(&Set)
    }
}

/// An adapter on the toy service, for the conformance suite.
pub struct ToyStage<A> {
    /// The adapter that is tried.
    pub adapter: A,
    /// The service.
    pub service: ToyService,
    /// Writes given so far.
    pub given: u64,
}

impl<A> std::fmt::Debug for ToyStage<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToyStage").field("given", &self.given).finish_non_exhaustive()
    }
}

impl<A: Adapter> Stage for ToyStage<A> {
    fn parts(&mut self) -> (&dyn Adapter, &mut dyn Net) {
        (&self.adapter, &mut self.service)
    }
    fn write(&mut self, capability: &Capability) -> Write {
        self.given += 1;
        let mut arguments = Map::new();
        arguments.insert("key".into(), Value::String(format!("k{}", self.given)));
        let op = format!("buf_{}", self.given);
        Write { op, capability: capability.name.clone(), arguments, at: 0, blobs: Vec::new() }
    }
    fn effects(&mut self) -> u64 {
        self.service.effects
    }
    fn expire(&mut self) -> bool {
        self.service.forgotten = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    fn stage<A>(adapter: A) -> ToyStage<A> {
        ToyStage { adapter, service: ToyService::default(), given: 0 }
    }

    #[test]
    fn the_toy_keeps_every_promise() {
        let findings = conformance::check(&mut stage(Toy::new().unwrap()));
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// A toy that says of an opaque write that it can be found by looking at its key, and looks wrongly.
    struct Liar(Toy);
    #[derive(Debug)]
    struct Guess;
    impl ConsumeOnce for Guess {
        fn create(&self, _net: Way<'_>, write: &Write) -> Result<Handle, Trouble> {
            Ok(Handle(key(write).to_owned()))
        }
        fn consume(&self, net: Way<'_>, write: &Write, _handle: &Handle) -> Result<Done, Trouble> {
            Shout.perform(net, write)
        }
        fn reconcile(&self, _net: Way<'_>, _write: &Write, _handle: &Handle) -> Found {
            Found::Absent
        }
    }
    impl SyncAdapter for Liar {
        fn changes(&self, net: Way<'_>, since: Option<&Cursor>) -> Result<Page, SyncTrouble> {
            self.0.changes(net, since)
        }
    }
    impl WriteExecutor for Liar {
        fn manifest(&self) -> &Manifest {
            self.0.manifest()
        }
        fn operation(&self, capability: &CapabilityName) -> Option<Operation<'_>> {
            match capability.as_str() {
                "toy.post" => Some(Operation::ConsumeOnce(&Guess)),
                "toy.note" => Some(Operation::Absolute(&Set)),
                "toy.shout" => None,
                _ => self.0.operation(capability),
            }
        }
    }
    impl RollbackCapable for Liar {
        fn reversal(&self, _capability: &CapabilityName) -> Option<&dyn Reversal> {
            None
        }
    }

    #[test]
    fn an_adapter_that_lies_is_caught() {
        let findings = conformance::check(&mut stage(Liar(Toy::new().unwrap())));
        let about = |name: &str, what: &str| findings.iter().any(|f| f.starts_with(name) && f.contains(what));
        assert!(about("toy.post", "answer lost"), "{findings:#?}");
        assert!(about("toy.note", "class"), "{findings:#?}");
        assert!(about("toy.shout", "no operation"), "{findings:#?}");
        assert!(about("toy.set", "undone"), "{findings:#?}");
    }
}
