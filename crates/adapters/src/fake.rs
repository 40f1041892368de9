//! A service that fails on command, and a toy service with a write of each class.
//!
//! Takes any way to a service and one failure, gives a way that fails with it, once. Promise: a failure happens where
//! it says: before the service received the request, or after it did what was requested.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluice_core::capability::{Capability, Catalogue};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{CapabilityName, ServiceName};

use crate::adapter::{
    AbsoluteWrite, Adapter, AppliedWrite, BeforeState, ConsumeOnceWrite, FindableWrite, NetAccess, OpaqueWrite,
    PastWrite, RawItem, ReconcileOutcome, RollbackCapable, ServiceHandle, ServiceWrite, SyncAdapter, SyncChange,
    SyncCursor, SyncError, SyncPage, SyncProgress, WriteExecutor, WriteOperation, WriteReversal,
};
use crate::conformance::ConformanceStage;
use crate::error::{AdapterWriteError, ExchangeError};
use crate::manifest::{Manifest, WritePreview};
use crate::net::{ExchangePhase, Net, NetError, NetMethod, NetRequest, NetResponse};

/// The failure of the first write, or of the first exchange of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetFault {
    /// The connection breaks in this phase. Where that proves nothing, the service still does what was
    /// requested.
    Broken(ExchangePhase),
    /// The same for the first exchange of any kind.
    AnyBroken(ExchangePhase),
    /// The service does it, and no byte of its answer arrives.
    LostReply,
    /// The service answers with this status, after doing it or instead of doing it.
    Status {
        /// The status code.
        status: u16,
        /// Whether it was done all the same.
        after: bool,
    },
    /// The service answers with too many requests.
    Limited {
        /// How long to wait.
        retry_after_s: u64,
    },
}

/// A way to a service on which one exchange fails.
pub struct FaultyNet<'n> {
    inner: &'n mut dyn Net,
    failure: Option<NetFault>,
}

impl std::fmt::Debug for FaultyNet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faulty").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl<'n> FaultyNet<'n> {
    /// Wraps another way.
    pub fn new(inner: &'n mut dyn Net, failure: Option<NetFault>) -> Self {
        Self { inner, failure }
    }
}

impl Net for FaultyNet<'_> {
    fn exchange(&mut self, request: NetRequest) -> Result<NetResponse, NetError> {
        let write = request.method != NetMethod::Get;
        let hit = self.failure.filter(|failure| write || matches!(failure, NetFault::AnyBroken(_)));
        let Some(failure) = hit else { return self.inner.exchange(request) };
        self.failure = None;
        let plain = |status, headers| Ok(NetResponse { status, headers, body: Vec::new() });
        match failure {
            NetFault::Broken(phase) | NetFault::AnyBroken(phase) => {
                if !phase.proves_nothing_sent() {
                    self.inner.exchange(request)?;
                }
                Err(NetError::Broken(phase))
            }
            NetFault::LostReply => {
                self.inner.exchange(request)?;
                Err(NetError::Broken(ExchangePhase::BeforeFirstByte))
            }
            NetFault::Status { status, after } => {
                if after {
                    self.inner.exchange(request)?;
                }
                plain(status, Vec::new())
            }
            NetFault::Limited { retry_after_s } => plain(429, vec![("retry-after".into(), retry_after_s.to_string())]),
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

const PREVIEWS: [WritePreview; 4] = [
    WritePreview { capability: "toy.set", title: "Set {key}", fields: &["key"] },
    WritePreview { capability: "toy.post", title: "Post {key}", fields: &["key"] },
    WritePreview { capability: "toy.note", title: "Note {key}", fields: &["key"] },
    WritePreview { capability: "toy.shout", title: "Shout {key}", fields: &["key"] },
];

/// The smallest possible adapter: the example to start a new one from.
#[derive(Debug)]
pub struct ToyAdapter {
    manifest: Manifest,
}

/// The toy service: values by key, handles, and how often something was done.
#[derive(Debug, Default)]
pub struct ToyService {
    values: BTreeMap<String, String>,
    handles: BTreeMap<String, String>,
    effects: u64,
    forgotten: bool,
}

impl Net for ToyService {
    fn exchange(&mut self, request: NetRequest) -> Result<NetResponse, NetError> {
        let (what, key) = request.path.trim_start_matches('/').split_once('/').unwrap_or((&request.path, ""));
        let key = key.to_owned();
        let (status, body) = match (request.method, what) {
            (NetMethod::Get, "value") => match self.values.get(&key) {
                Some(value) => (200, json!({"value": value})),
                None => (200, json!({"value": null})),
            },
            (NetMethod::Get, "handle") => (if self.handles.contains_key(&key) { 200 } else { 404 }, Value::Null),
            (NetMethod::Get, "feed") if self.forgotten => (404, Value::Null),
            (NetMethod::Get, "feed") => (200, json!({})),
            (NetMethod::Post, "handle") => {
                self.handles.insert(key.clone(), key);
                (200, Value::Null)
            }
            (NetMethod::Post, "consume") => match self.handles.remove(&key) {
                Some(key) => {
                    self.effects += 1;
                    self.values.insert(key, "posted".into());
                    (200, Value::Null)
                }
                None => (404, Value::Null),
            },
            (NetMethod::Post, "value") => {
                self.effects += 1;
                self.values.insert(key, "set".into());
                (200, Value::Null)
            }
            (NetMethod::Delete, "value") => {
                self.effects += 1;
                self.values.remove(&key);
                (200, Value::Null)
            }
            _ => (404, Value::Null),
        };
        Ok(NetResponse { status, headers: Vec::new(), body: body.to_string().into_bytes() })
    }
}

fn ask(net: NetAccess<'_>, request: NetRequest) -> Result<Value, ExchangeError> {
    let reply = net.exchange(request).map_err(ExchangeError::Net)?;
    let retry_after_s = reply.header("retry-after").and_then(|text| text.parse().ok());
    match reply.status {
        200 => serde_json::from_slice(&reply.body).map_err(|_| ExchangeError::Garbled),
        status => Err(ExchangeError::Status { status, reason: String::new(), retry_after_s, said: None }),
    }
}

fn key(write: &ServiceWrite) -> &str {
    write.arguments.get("key").and_then(Value::as_str).unwrap_or_default()
}

fn value(net: NetAccess<'_>, key: &str) -> Result<Vec<u8>, ExchangeError> {
    ask(net, NetRequest::get(format!("/value/{key}"))).map(|value| value.to_string().into_bytes())
}

fn done(after: Option<ObjectFingerprint>) -> AppliedWrite {
    AppliedWrite { receipt: "ok".into(), result: Value::Null, after, undo_until: None }
}

/// The operation of class A.
#[derive(Debug)]
struct ToySet;
/// The operation of class B.
#[derive(Debug)]
struct ToyPost;
/// The operation of class C.
#[derive(Debug)]
struct ToyNote;
/// The operation of class D.
#[derive(Debug)]
struct ToyShout;

impl AbsoluteWrite for ToySet {
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError> {
        ask(net, NetRequest::post_empty(format!("/value/{}", key(write)))).map_err(ExchangeError::into_write_error)?;
        Ok(done(Some(ObjectFingerprint::of(json!({"value": "set"}).to_string().as_bytes()))))
    }
    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome {
        match value(net, key(write)) {
            Ok(now) if now == json!({"value": "set"}).to_string().as_bytes() => {
                ReconcileOutcome::Applied(done(Some(ObjectFingerprint::of(&now))))
            }
            Ok(_) => ReconcileOutcome::Absent,
            Err(_) => ReconcileOutcome::Unknown,
        }
    }
}

impl WriteReversal for ToySet {
    fn capture(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<BeforeState, AdapterWriteError> {
        let state = value(net, key(write)).map_err(ExchangeError::into_read_error)?;
        Ok(BeforeState { print: ObjectFingerprint::of(&state), state })
    }
    fn current_fingerprint(
        &self,
        net: NetAccess<'_>,
        past: PastWrite<'_>,
    ) -> Result<ObjectFingerprint, AdapterWriteError> {
        value(net, key(past.write)).map(|now| ObjectFingerprint::of(&now)).map_err(ExchangeError::into_read_error)
    }
    fn undo(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<AppliedWrite, AdapterWriteError> {
        ask(net, NetRequest::delete(format!("/value/{}", key(past.write)))).map_err(ExchangeError::into_write_error)?;
        Ok(done(Some(ObjectFingerprint::of(past.before))))
    }
}

impl ConsumeOnceWrite for ToyPost {
    fn create(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<ServiceHandle, AdapterWriteError> {
        ask(net, NetRequest::post_empty(format!("/handle/{}", key(write)))).map_err(ExchangeError::into_read_error)?;
        Ok(ServiceHandle(key(write).to_owned()))
    }
    fn consume(
        &self,
        net: NetAccess<'_>,
        _write: &ServiceWrite,
        handle: &ServiceHandle,
    ) -> Result<AppliedWrite, AdapterWriteError> {
        match ask(net, NetRequest::post_empty(format!("/consume/{}", handle.0))) {
            Ok(_) => Ok(done(None)),
            Err(fault) if fault.is_status(404) => Err(AdapterWriteError::Unclear),
            Err(fault) => Err(fault.into_write_error()),
        }
    }
    fn reconcile(&self, net: NetAccess<'_>, _write: &ServiceWrite, handle: &ServiceHandle) -> ReconcileOutcome {
        match ask(net, NetRequest::get(format!("/handle/{}", handle.0))) {
            Ok(_) => ReconcileOutcome::Absent,
            Err(fault) if fault.is_status(404) => ReconcileOutcome::Applied(done(None)),
            Err(_) => ReconcileOutcome::Unknown,
        }
    }
}

impl FindableWrite for ToyNote {
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError> {
        ask(net, NetRequest::post_empty(format!("/value/{}", write.op))).map_err(ExchangeError::into_write_error)?;
        Ok(done(None))
    }
    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome {
        match value(net, &write.op) {
            Ok(now) if now == json!({"value": "set"}).to_string().as_bytes() => ReconcileOutcome::Applied(done(None)),
            Ok(_) => ReconcileOutcome::Absent,
            Err(_) => ReconcileOutcome::Unknown,
        }
    }
}

impl OpaqueWrite for ToyShout {
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError> {
        ask(net, NetRequest::post_empty(format!("/value/{}", key(write)))).map_err(ExchangeError::into_write_error)?;
        Ok(done(None))
    }
}

impl ToyAdapter {
    /// A new toy adapter.
    ///
    /// # Errors
    /// Never in a build whose tests pass.
    pub fn new() -> Result<Self, sluice_core::capability::CatalogueError> {
        let catalogue = Catalogue::from_yaml(TOY)?;
        let service = ServiceName::new("toy")
            .map_err(|error| sluice_core::capability::CatalogueError::Syntax(error.to_string()))?;
        let mut manifest = Manifest::of(&catalogue, &service, "toy");
        manifest.previews = &PREVIEWS;
        Ok(Self { manifest })
    }
}

impl SyncAdapter for ToyAdapter {
    fn changes(&self, net: NetAccess<'_>, since: Option<&SyncCursor>) -> Result<SyncPage, SyncError> {
        let known = since.is_none_or(|cursor| cursor.0 == "end");
        match ask(net, NetRequest::get("/feed/")) {
            Ok(_) if known => {}
            Ok(_) => return Err(SyncError::Expired),
            Err(fault) if fault.is_status(404) => return Err(SyncError::Expired),
            Err(fault) => match fault.into_read_error() {
                AdapterWriteError::NotDone(why) | AdapterWriteError::Refused(why) => return Err(SyncError::Later(why)),
                AdapterWriteError::Unclear => return Err(SyncError::Expired),
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
        let changes = if since.is_none() { vec![SyncChange::Put(first)] } else { Vec::new() };
        Ok(SyncPage {
            changes,
            next: SyncCursor("end".into()),
            more: false,
            progress: Some(SyncProgress { done: 1, total: Some(1) }),
        })
    }
}

impl WriteExecutor for ToyAdapter {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    fn operation(&self, capability: &CapabilityName) -> Option<WriteOperation<'_>> {
        match capability.as_str() {
            "toy.set" => Some(WriteOperation::Absolute(&ToySet)),
            "toy.post" => Some(WriteOperation::ConsumeOnce(&ToyPost)),
            "toy.note" => Some(WriteOperation::Findable(&ToyNote)),
            "toy.shout" => Some(WriteOperation::Opaque(&ToyShout)),
            _ => None,
        }
    }
}

impl RollbackCapable for ToyAdapter {
    fn reversal(&self, capability: &CapabilityName) -> Option<&dyn WriteReversal> {
        (capability.as_str() == "toy.set").then_some(&ToySet)
    }
}

/// A stage for the conformance suite: an adapter on the toy service.
pub struct ToyStage<A> {
    /// The adapter under test.
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

impl<A: Adapter> ConformanceStage for ToyStage<A> {
    fn parts(&mut self) -> (&dyn Adapter, &mut dyn Net) {
        (&self.adapter, &mut self.service)
    }
    fn write(&mut self, capability: &Capability) -> ServiceWrite {
        self.given += 1;
        let mut arguments = Map::new();
        arguments.insert("key".into(), Value::String(format!("k{}", self.given)));
        let op = format!("buf_{}", self.given);
        ServiceWrite { op, capability: capability.name.clone(), arguments, at: 0, blobs: Vec::new() }
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
        let findings = conformance::check(&mut stage(ToyAdapter::new().unwrap()));
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// A toy adapter that claims that an opaque write can be found by its key, and finds the wrong one.
    struct Liar(ToyAdapter);
    #[derive(Debug)]
    struct Guess;
    impl ConsumeOnceWrite for Guess {
        fn create(&self, _net: NetAccess<'_>, write: &ServiceWrite) -> Result<ServiceHandle, AdapterWriteError> {
            Ok(ServiceHandle(key(write).to_owned()))
        }
        fn consume(
            &self,
            net: NetAccess<'_>,
            write: &ServiceWrite,
            _handle: &ServiceHandle,
        ) -> Result<AppliedWrite, AdapterWriteError> {
            ToyShout.perform(net, write)
        }
        fn reconcile(&self, _net: NetAccess<'_>, _write: &ServiceWrite, _handle: &ServiceHandle) -> ReconcileOutcome {
            ReconcileOutcome::Absent
        }
    }
    impl SyncAdapter for Liar {
        fn changes(&self, net: NetAccess<'_>, since: Option<&SyncCursor>) -> Result<SyncPage, SyncError> {
            self.0.changes(net, since)
        }
    }
    impl WriteExecutor for Liar {
        fn manifest(&self) -> &Manifest {
            self.0.manifest()
        }
        fn operation(&self, capability: &CapabilityName) -> Option<WriteOperation<'_>> {
            match capability.as_str() {
                "toy.post" => Some(WriteOperation::ConsumeOnce(&Guess)),
                "toy.note" => Some(WriteOperation::Absolute(&ToySet)),
                "toy.shout" => None,
                _ => self.0.operation(capability),
            }
        }
    }
    impl RollbackCapable for Liar {
        fn reversal(&self, _capability: &CapabilityName) -> Option<&dyn WriteReversal> {
            None
        }
    }

    #[test]
    fn an_adapter_that_lies_is_caught() {
        let findings = conformance::check(&mut stage(Liar(ToyAdapter::new().unwrap())));
        let about = |name: &str, what: &str| findings.iter().any(|f| f.starts_with(name) && f.contains(what));
        assert!(about("toy.post", "answer lost"), "{findings:#?}");
        assert!(about("toy.note", "class"), "{findings:#?}");
        assert!(about("toy.shout", "no operation"), "{findings:#?}");
        assert!(about("toy.set", "undone"), "{findings:#?}");
    }
}
