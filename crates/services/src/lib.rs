//! Services: what stands behind the gate, one implementation per service.
//!
//! A service answers reads and carries out writes for which it gets a permit. It decides nothing: who may call and when
//! a write leaves was decided before. Promise: `perform` and `undo` are the only ways to an effect, and both consume a
//! [`Permit`], which only an armed hold gives.
#![warn(missing_docs)]

pub mod about;
pub mod active_freezes;
pub mod alerts;
mod call_error;
pub mod catalogue;
pub mod comms;
pub mod connections;
mod context;
pub mod custom;
mod declarations;
pub mod events;
pub mod failing;
pub mod files;
pub mod gateway_files;
pub mod git;
pub mod intake;
pub mod mounts;
pub mod network;
pub mod policies;
pub mod process;
mod programs;
pub mod proxies;
pub mod refused_action;
pub mod scheduler;
pub mod secrets;
pub mod state;
pub mod timer;
pub mod value;
pub mod wait_list;
pub mod workers;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;
use sluice_core::capability::{Capability, ParamKind};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, BoxedFuture, CallId, CapabilityName, HoldId, ServiceName, UtcMillis};
use sluice_egress::EgressError;
use tokio::sync::OwnedSemaphorePermit;

use self::files::FilesystemService;
use self::state::StateService;
use crate::intake::PendingObservations;
use crate::workers::WorkerSlot;

pub use call_error::CallError;
pub use context::{HoldStopper, ServiceContext, ServiceSignals};

/// The receipt of a call that its caller carries out.
pub const ELSEWHERE: &str = "the caller carries it out";
/// The prefix of the capability in the action of a call that was only checked: it changes the digest, so that an
/// approval of the check can never be used to carry anything out.
pub const CHECKED: &str = sluice_core::action::CHECKED;

/// Services of the gateway whose paths lie inside the opened folders.
const NAMES_PATHS: [&str; 3] = ["filesystem", "git", "process"];

/// A read on its way to a service.
#[derive(Debug)]
pub struct ServiceRead {
    /// The call.
    pub call: CallId,
    /// The action, with the agent that asks.
    pub action: Action,
    /// The session.
    pub session: Option<SessionId>,
    /// The current time.
    pub now: UtcMillis,
    /// Collects what the call is about to be shown, if it is recorded together with the answer.
    pub notes: Option<PendingObservations>,
}

/// A text that leaves with a write in addition to its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedText {
    /// The name of the text, for people who are told of a finding in it.
    pub field: String,
    /// The text.
    pub text: String,
}

/// The result of preparing a write.
#[derive(Debug, Default)]
pub struct PreparedWrite {
    /// The service's handle for a write that has had no effect yet, if it has one.
    pub handle: Option<String>,
    /// The content needed to roll back, and a fingerprint of the object as it is now.
    pub before: Option<(Vec<u8>, ObjectFingerprint)>,
}

/// A write that was carried out.
#[derive(Debug)]
pub struct CompletedWrite {
    /// The service's proof, as a short text.
    pub receipt: String,
    /// The result for the agent.
    pub result: Value,
    /// A fingerprint of the object as the write left it, if the write can be undone.
    pub after: Option<ObjectFingerprint>,
    /// Until when the service itself can undo it, if that is limited.
    pub undo_until: Option<UtcMillis>,
}

/// A write that was not carried out, or may not have been.
#[derive(Debug)]
pub enum WriteError {
    /// Certainly nothing happened; a retry makes sense.
    NotDone(Refusal),
    /// Certainly nothing happened, and a retry does not help.
    Refused(Refusal),
    /// Something may have happened.
    Unclear,
    /// Something may have happened; the text is what the service said, screened. For people only.
    UnclearSaying(String),
}

impl WriteError {
    /// What an error of egress means for a write, or for a read that was carried out like a write.
    #[must_use]
    pub fn from_egress(error: EgressError, is_read: bool) -> Self {
        // A read changed nothing in any case; its caller decides whether to retry.
        match (is_read, error.may_have_left(), error.is_temporary()) {
            (true, _, _) | (false, false, false) => Self::Refused(error.refusal()),
            (false, true, _) => Self::Unclear,
            (false, false, true) => Self::NotDone(error.refusal()),
        }
    }
}

/// The result of looking up a write in doubt.
#[derive(Debug)]
pub enum LookupOutcome {
    /// It was carried out.
    Applied(CompletedWrite),
    /// It was not carried out.
    Absent,
    /// The service was asked, but its answer proves nothing.
    Unknown,
    /// The service was not asked: it could not be reached, or a limit of the gateway stopped the lookup. It is asked
    /// later.
    NotLooked,
}

impl LookupOutcome {
    /// The meaning of a lookup without an answer: if it did not reach the service, it was not made.
    #[must_use]
    pub fn not_given(no: &Refusal) -> Self {
        if no.code().is_unreached() { Self::NotLooked } else { Self::Unknown }
    }

    /// Whether a status says that the service had no time to answer.
    #[must_use]
    pub const fn is_no_time(status: u16) -> bool {
        matches!(status, 429 | 502 | 503 | 504)
    }
}

/// A place at a service that an effect needs, taken before it is armed and released after it.
#[derive(Debug, Default)]
pub enum ServiceSlot {
    /// No place is needed.
    #[default]
    Free,
    /// One of the places of a service.
    Slot(OwnedSemaphorePermit),
    /// The place of a worker.
    Worker(WorkerSlot),
}

impl ServiceSlot {
    /// Runs the work while holding this place.
    pub async fn hold_during<T>(self, work: impl Future<Output = T>) -> T {
        match self {
            Self::Free => work.await,
            Self::Slot(_slot) => work.await,
            Self::Worker(place) => place.used_by(work).await,
        }
    }
}

/// Where the answer to a read comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSource {
    /// The gateway's own records, or the folders it opens. Nothing of the service leaves the machine, writes included.
    OwnState,
    /// The local replica of a connected service. Reads stay here, writes do not.
    Replica,
    /// The service itself, or a third-party program: the arguments of a read leave the gateway.
    Outside,
}

/// A service behind the gate.
pub trait Service: Send + Sync {
    /// Whether it carries out this capability.
    fn offers(&self, capability: &CapabilityName) -> bool;

    /// Where it answers reads from. A read from `Outside` does not run while it is frozen, and the origin of its
    /// targets counts as for a write. There is no default: each new service must decide.
    fn reads_from(&self, capability: &CapabilityName) -> ReadSource;

    /// Whether its content was written by others. Sessions remember what they were shown of such content.
    fn gives_outside_text(&self) -> bool {
        false
    }

    /// Work that must finish before arguments can be settled, if there is any.
    fn before_settling<'a>(
        &'a self,
        capability: &CapabilityName,
        arguments: &'a Value,
    ) -> Option<BoxedFuture<'a, Result<(), Refusal>>> {
        let _nothing = (capability, arguments);
        None
    }

    /// The arguments in the form in which they are judged, shown to people and carried out.
    ///
    /// # Errors
    /// When they name something that does not exist.
    fn settle(&self, capability: &CapabilityName, arguments: Value) -> Result<Value, Refusal> {
        let _as_they_are = capability;
        Ok(arguments)
    }

    /// The held write that an action stops, if the action does nothing else.
    fn find_stopped_hold(&self, action: &Action) -> Option<HoldId> {
        let _nothing = action;
        None
    }

    /// What the gateway knows about the things that a write names only by id, one line each, for the person who is
    /// asked. The text comes from outside.
    fn describe_targets(&self, action: &Action) -> Vec<String> {
        let _nothing = action;
        Vec::new()
    }

    /// Texts that would leave with a write in addition to its arguments, for the leak scan.
    ///
    /// # Errors
    /// When they cannot be read: in that case nothing leaves.
    fn attached_texts(&self, action: &Action) -> Result<Vec<AttachedText>, Refusal> {
        let _nothing_else = action;
        Ok(Vec::new())
    }

    /// Refuses early a write that is certainly impossible. Changes nothing.
    fn check_feasible<'a>(
        &'a self,
        action: &'a Action,
        session: Option<SessionId>,
    ) -> BoxedFuture<'a, Result<(), Refusal>> {
        let (_any, _session) = (action, session);
        Box::pin(std::future::ready(Ok(())))
    }

    /// What a call would use of a service's budget and what is left of it, for a call that is only checked.
    ///
    /// # Errors
    /// When the budget is not large enough.
    fn estimate<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Option<Value>, Refusal>> {
        let _no_budget = action;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The state that a write reads and replaces, one line per fact. Two texts are equal exactly if the states are.
    /// People are shown it, and an approval covers only this state. Refuses where `foresee` would.
    fn describe_current_state<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Vec<String>, Refusal>> {
        let _depends_on_nothing = action;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Answers a read.
    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>>;

    /// Looks at the object before a write. Nothing may change yet.
    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        let _nothing_to_see = hold;
        Box::pin(std::future::ready(Ok(PreparedWrite::default())))
    }

    /// Waits for the place that this write needs. A write is armed only with its place: a write that never had one has
    /// never been sent.
    ///
    /// # Errors
    /// When no place becomes free for now.
    fn reserve<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<ServiceSlot, Refusal>> {
        let _none_is_needed = hold;
        Box::pin(std::future::ready(Ok(ServiceSlot::Free)))
    }

    /// Whether everything it does stays on this machine, so that no pacing is needed.
    fn is_local(&self) -> bool {
        false
    }

    /// The number of writes it can carry out at once, if it differs from the default.
    fn max_concurrent_writes(&self) -> Option<usize> {
        None
    }

    /// The kind of the service, as nodes report it to each other.
    fn kind(&self) -> ServiceKind {
        ServiceKind::BuiltIn
    }

    /// Whether it can carry out a write now.
    fn is_ready(&self) -> bool {
        self.starting().is_none()
    }

    /// Why it cannot be used yet, while it is being started.
    fn starting(&self) -> Option<Refusal> {
        None
    }

    /// Carries a write out. `before` is the result of `prepare`.
    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        before: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>>;

    /// Whether it may be asked about writes in doubt now. A paused service is asked later.
    fn can_be_asked(&self) -> bool {
        true
    }

    /// Finds out whether a write in doubt was carried out. If that is unknown, a person decides.
    fn look_up<'a>(&'a self, hold: &'a Hold, before: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        let _nothing_to_tell_by = (hold, before);
        Box::pin(std::future::ready(LookupOutcome::Unknown))
    }

    /// A fingerprint of the object that a write changed, as it is now.
    fn current_fingerprint<'a>(
        &'a self,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        let _cannot_be_undone = (done, before);
        Box::pin(std::future::ready(Err(WriteError::refused(Code::RollbackIrreversible))))
    }

    /// What undoing a write would change now, as text for people. Empty if that is unknown.
    fn difference<'a>(&'a self, done: &'a Hold, before: &'a [u8]) -> BoxedFuture<'a, Vec<String>> {
        let _cannot_be_said = (done, before);
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Whether a person who was shown the difference can undo a write over newer changes.
    fn can_be_forced_back(&self, done: &Hold) -> bool {
        let _never = done;
        false
    }

    /// Undoes a write. `done` is the write; the permit belongs to the write that undoes it.
    fn undo<'a>(
        &'a self,
        permit: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        let _cannot_be_undone = (permit, done, before);
        Box::pin(std::future::ready(Err(WriteError::refused(Code::RollbackIrreversible))))
    }

    /// Deletes what was kept for a rollback that is no longer possible.
    fn discard_undo_data<'a>(&'a self, before: &'a [u8]) -> BoxedFuture<'a, ()> {
        let _nothing_was_kept = before;
        Box::pin(std::future::ready(()))
    }
}

impl WriteError {
    /// A permanent refusal, with the standard text of a code.
    #[must_use]
    pub fn refused(code: Code) -> Self {
        Self::Refused(Refusal::new(code))
    }

    /// The service's own text about the failure, for people only.
    #[must_use]
    pub fn service_words(&self) -> Option<&str> {
        match self {
            Self::NotDone(no) | Self::Refused(no) => no.service_words(),
            Self::UnclearSaying(words) => Some(words),
            Self::Unclear => None,
        }
    }
}

/// All services behind the gate.
#[derive(Default)]
pub struct Services {
    by_name: RwLock<HashMap<ServiceName, Arc<dyn Service>>>,
    files: Option<Arc<FilesystemService>>,
    state: Option<Arc<StateService>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.read().keys()).finish()
    }
}

impl Services {
    /// Adds a service.
    #[must_use]
    pub fn with(self, name: ServiceName, service: Arc<dyn Service>) -> Self {
        self.put(name, service);
        self
    }

    /// Adds a service at run time.
    pub fn put(&self, name: ServiceName, service: Arc<dyn Service>) {
        self.by_name.write().insert(name, service);
    }

    /// Removes a service.
    pub fn take(&self, name: &ServiceName) -> Option<Arc<dyn Service>> {
        self.by_name.write().remove(name)
    }

    /// The names of all services.
    pub fn names(&self) -> Vec<ServiceName> {
        self.by_name.read().keys().cloned().collect()
    }

    fn named(&self, name: &ServiceName) -> Option<Arc<dyn Service>> {
        self.by_name.read().get(name).cloned()
    }

    /// Adds the service that keeps the state of agents.
    #[must_use]
    pub fn with_state(mut self, name: ServiceName, state: Arc<StateService>) -> Self {
        self.state = Some(Arc::clone(&state));
        self.with(name, state)
    }

    /// The state of agents, if it is kept.
    #[must_use]
    pub fn state(&self) -> Option<&StateService> {
        self.state.as_deref()
    }

    /// Opens folders to agents.
    #[must_use]
    pub fn with_files(mut self, name: ServiceName, files: Arc<FilesystemService>) -> Self {
        self.files = Some(Arc::clone(&files));
        self.with(name, files)
    }

    /// The service that carries a capability out, if there is one.
    #[must_use]
    pub fn of(&self, spec: &Capability) -> Option<Arc<dyn Service>> {
        self.named(&spec.service()).filter(|service| service.offers(&spec.name))
    }

    /// The service of this name.
    ///
    /// # Errors
    /// When there is no such service.
    pub fn for_service(&self, name: &ServiceName) -> Result<Arc<dyn Service>, Refusal> {
        self.named(name).ok_or_else(|| Refusal::new(Code::GatewayUnsupported))
    }

    /// Why a service cannot be used yet, while it is being started.
    #[must_use]
    pub fn starting(&self, name: &ServiceName) -> Option<Refusal> {
        self.named(name)?.starting()
    }

    /// The services that are being started.
    #[must_use]
    pub fn starting_services(&self) -> Vec<ServiceName> {
        let all = self.by_name.read();
        let mut names: Vec<ServiceName> =
            all.iter().filter(|(_, service)| service.starting().is_some()).map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Where reads of this capability are answered from, if a service here answers them.
    #[must_use]
    pub fn read_source(&self, service: &ServiceName, capability: &CapabilityName) -> Option<ReadSource> {
        let service = self.named(service).filter(|service| service.offers(capability))?;
        Some(service.reads_from(capability))
    }

    /// The folders, for capabilities that name paths in them.
    #[must_use]
    pub fn files_for(&self, spec: &Capability) -> Option<&FilesystemService> {
        let names_paths =
            spec.params_of(ParamKind::Path).next().is_some() && NAMES_PATHS.contains(&spec.service().as_str());
        self.files.as_deref().filter(|_| names_paths)
    }

    /// The folders.
    #[must_use]
    pub fn files(&self) -> Option<&FilesystemService> {
        self.files.as_deref()
    }
}

/// Whether the caller carries this action out itself.
#[must_use]
pub fn is_elsewhere(action: &Action) -> bool {
    action.is_carried_out_by_caller()
}

/// The name under which an action would be carried out: for a checked call, the name without its prefix.
#[must_use]
pub fn carried_name(action: &Action) -> CapabilityName {
    let name = action.capability();
    let bare = name.as_str().strip_prefix(CHECKED).and_then(|bare| CapabilityName::new(bare).ok());
    bare.unwrap_or_else(|| name.clone())
}

/// A capability as doors show it: what it does, whether it can be undone, and a JSON Schema of its arguments.
#[must_use]
pub fn describe(spec: &Capability) -> Value {
    serde_json::json!({
        "name": spec.name,
        "summary": spec.summary,
        "service": spec.service(),
        "effect": if spec.class.is_some() { "write" } else { "read" },
        "reversible": spec.reversible,
        "delay_s": if spec.class.is_some() { spec.delay_s } else { 0 },
        "input_schema": input_schema(spec),
    })
}

/// The arguments of a capability as a JSON Schema.
#[must_use]
pub fn input_schema(spec: &Capability) -> Value {
    spec.input_schema()
}
