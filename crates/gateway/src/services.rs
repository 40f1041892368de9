//! What stands behind the gate: one implementation per service.
//!
//! A service answers reads and carries out writes it is handed a permit for. It decides nothing: who may
//! ask and when a write leaves was settled before. Promise: `perform` and `undo` are the only ways to an
//! effect, and both consume a [`Permit`], which only an armed hold gives.

pub mod about;
pub mod alerts;
pub mod comms;
pub mod files;
pub mod git;
pub mod network;
pub mod process;
pub mod scheduler;
pub mod secrets;
pub mod state;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use sluice_core::capability::{Capability, ParamKind};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, CallId, CapabilityName, HoldId, ServiceName, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use self::files::Files;
use self::state::State;
use crate::intake::Notes;
use crate::workers::WorkerPlace;

/// The receipt of a call that its caller carries out.
pub const ELSEWHERE: &str = "the caller carries it out";
/// What stands before a capability in the action of a call that was only checked: its digest is another one,
/// so that a yes to it can never be used to carry anything out.
pub const CHECKED: &str = sluice_core::action::CHECKED;

/// Services of the gateway whose paths lie below the opened folders.
const NAMES_PATHS: [&str; 3] = ["filesystem", "git", "process"];

/// Something a service does, as a future that can be stored.
pub type Work<'a, Out> = Pin<Box<dyn Future<Output = Out> + Send + 'a>>;

/// A read on its way to a service.
#[derive(Debug)]
pub struct Ask {
    /// The call.
    pub call: CallId,
    /// What is asked, by whom.
    pub action: Action,
    /// In which session.
    pub session: Option<SessionId>,
    /// When.
    pub now: Timestamp,
    /// Where it is kept what the call is about to be shown, if it goes on record with the answer.
    pub notes: Option<Notes>,
}

/// A text that leaves with a write beside its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Along {
    /// What it is, for whoever is told that something was found in it.
    pub field: String,
    /// The text.
    pub text: String,
}

/// What was found before a write.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The service's inert handle, if it has one.
    pub handle: Option<String>,
    /// What is needed to go back, and a print of the object as it is now.
    pub before: Option<(Vec<u8>, Fingerprint)>,
}

/// A write that happened.
#[derive(Debug)]
pub struct Performed {
    /// The service's proof, short.
    pub receipt: String,
    /// What the agent is told.
    pub result: Value,
    /// A print of the object as the write left it, if it can be undone.
    pub after: Option<Fingerprint>,
    /// Until when the service itself can take it back, if that is not for ever.
    pub undo_until: Option<Timestamp>,
}

/// A write that did not happen, or may not have.
#[derive(Debug)]
pub enum Trouble {
    /// Provably nothing happened; worth another try.
    NotDone(Refusal),
    /// Provably nothing happened, and nothing will.
    Refused(Refusal),
    /// Something may have happened.
    Unclear,
    /// Something may have happened, and whoever was asked said this about it, screened. For people only.
    UnclearSaying(String),
}

/// What a look at the service showed about a write in doubt.
#[derive(Debug)]
pub enum Found {
    /// It happened.
    Applied(Performed),
    /// It did not.
    Absent,
    /// It cannot be told: the service was asked, and its answer proves nothing.
    Unknown,
    /// Nobody looked: the service could not be reached, or a limit of ours kept the question in. It is asked later.
    NotLooked,
}

impl Found {
    /// What a lookup without an answer means: one that did not reach the service was not made.
    #[must_use]
    pub fn not_given(no: &Refusal) -> Self {
        if no.code().is_unreached() { Self::NotLooked } else { Self::Unknown }
    }

    /// Whether a status says that the service had no time for the question.
    #[must_use]
    pub const fn is_no_time(status: u16) -> bool {
        matches!(status, 429 | 502 | 503 | 504)
    }
}

/// A place at a service that an effect needs, taken before it is armed and given back after it.
#[derive(Debug, Default)]
pub enum Place {
    /// None is needed.
    #[default]
    Free,
    /// One of the places of a service.
    Slot(OwnedSemaphorePermit),
    /// That of a worker.
    Worker(WorkerPlace),
}

impl Place {
    /// Does the work in this place.
    pub(crate) async fn hold_during<T>(self, work: impl Future<Output = T>) -> T {
        match self {
            Self::Free => work.await,
            Self::Slot(_slot) => work.await,
            Self::Worker(place) => place.used_by(work).await,
        }
    }
}

/// Where the answer of a read comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadSource {
    /// The gateway's own records, or the folders it opens. Nothing of the service leaves the machine, writes included.
    OwnState,
    /// The local copy of a connected service. Reads stay here, writes do not.
    Replica,
    /// The service itself, or a program of a third party: the arguments of a read leave the gateway.
    Outside,
}

/// A service behind the gate.
pub trait Service: Send + Sync {
    /// Whether it knows this capability.
    fn offers(&self, capability: &CapabilityName) -> bool;

    /// Where it answers reads from. What is `Outside` does not run while it is frozen, and the origin of its targets
    /// counts as for a write. Without a default: whoever adds a service says it.
    fn reads_from(&self, capability: &CapabilityName) -> ReadSource;

    /// Whether what it gives was written by others. Sessions remember what they were shown of that.
    fn outside(&self) -> bool {
        false
    }

    /// What has to be waited for before arguments can be settled, if anything has.
    fn before_settling<'a>(
        &'a self,
        capability: &CapabilityName,
        arguments: &'a Value,
    ) -> Option<Work<'a, Result<(), Refusal>>> {
        let _nothing = (capability, arguments);
        None
    }

    /// Arguments in the form in which they are judged, shown to people and carried out.
    ///
    /// # Errors
    /// When they name something that is not there.
    fn settle(&self, capability: &CapabilityName, arguments: Value) -> Result<Value, Refusal> {
        let _as_they_are = capability;
        Ok(arguments)
    }

    /// The held write that an action would do nothing but stop, if that is all it does.
    fn stops(&self, action: &Action) -> Option<HoldId> {
        let _nothing = action;
        None
    }

    /// What is known here of the things a write only names by their ids, one line each, for the person who is asked.
    /// The words are those of others.
    fn described(&self, action: &Action) -> Vec<String> {
        let _nothing = action;
        Vec::new()
    }

    /// Texts that would leave with a write beside its arguments, for the leak scan.
    ///
    /// # Errors
    /// When they cannot be read: then nothing leaves.
    fn along(&self, action: &Action) -> Result<Vec<Along>, Refusal> {
        let _nothing_else = action;
        Ok(Vec::new())
    }

    /// Says no early to a write that can be seen to be impossible. Changes nothing.
    fn foresee<'a>(&'a self, action: &'a Action, session: Option<SessionId>) -> Work<'a, Result<(), Refusal>> {
        let (_any, _session) = (action, session);
        Box::pin(std::future::ready(Ok(())))
    }

    /// What a call would use of a budget of the service and what is left of it, for a call that is only checked.
    ///
    /// # Errors
    /// When the budget does not hold it.
    fn estimate<'a>(&'a self, action: &'a Action) -> Work<'a, Result<Option<Value>, Refusal>> {
        let _no_budget = action;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The state of what a write reads and replaces, one line for each fact, in a form that is equal exactly if the state
    /// is. People are shown it, and an approval covers this state and no other. Says no where `foresee` would.
    fn found<'a>(&'a self, action: &'a Action) -> Work<'a, Result<Vec<String>, Refusal>> {
        let _depends_on_nothing = action;
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Answers a read.
    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>>;

    /// Looks before a write. Nothing may change yet.
    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        let _nothing_to_see = hold;
        Box::pin(std::future::ready(Ok(Prepared::default())))
    }

    /// Waits for the place that carrying this write out needs. Whoever arms a write has its place: what never had one
    /// has never been sent.
    ///
    /// # Errors
    /// When there will be none for now.
    fn reserve<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Place, Refusal>> {
        let _none_is_needed = hold;
        Box::pin(std::future::ready(Ok(Place::Free)))
    }

    /// Whether everything it does stays on this machine, so that nothing has to leave at a pace.
    fn is_local(&self) -> bool {
        false
    }

    /// Writes it can carry out at once, if it has fewer places than others.
    fn places(&self) -> Option<usize> {
        None
    }

    /// Where it comes from, as nodes tell each other.
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

    /// Carries a write out. `before` is what `prepare` found.
    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        before: Option<&'a [u8]>,
    ) -> Work<'a, Result<Performed, Trouble>>;

    /// Whether it may be asked about writes in doubt now. One that was stopped for a while is asked later.
    fn can_be_asked(&self) -> bool {
        true
    }

    /// Finds out whether a write in doubt happened. Where that cannot be told, a person decides.
    fn look_up<'a>(&'a self, hold: &'a Hold, before: Option<&'a [u8]>) -> Work<'a, Found> {
        let _nothing_to_tell_by = (hold, before);
        Box::pin(std::future::ready(Found::Unknown))
    }

    /// A print of the object a write changed, as it is now.
    fn present<'a>(&'a self, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Fingerprint, Trouble>> {
        let _cannot_be_undone = (done, before);
        Box::pin(std::future::ready(Err(Trouble::refused(Code::RollbackIrreversible))))
    }

    /// What taking a write back would change now, in words for people. Nothing where that cannot be said.
    fn difference<'a>(&'a self, done: &'a Hold, before: &'a [u8]) -> Work<'a, Vec<String>> {
        let _cannot_be_said = (done, before);
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Whether a person who was shown the difference can have a write taken back over newer changes.
    fn can_be_forced_back(&self, done: &Hold) -> bool {
        let _never = done;
        false
    }

    /// Takes a write back. `done` is the write; the permit is that of the write that reverses it.
    fn undo<'a>(&'a self, permit: Permit, done: &'a Hold, before: &'a [u8]) -> Work<'a, Result<Performed, Trouble>> {
        let _cannot_be_undone = (permit, done, before);
        Box::pin(std::future::ready(Err(Trouble::refused(Code::RollbackIrreversible))))
    }

    /// What was kept to go back is no longer needed.
    fn forget<'a>(&'a self, before: &'a [u8]) -> Work<'a, ()> {
        let _nothing_was_kept = before;
        Box::pin(std::future::ready(()))
    }
}

impl Trouble {
    /// Refused for good, with the general words of a code.
    #[must_use]
    pub fn refused(code: Code) -> Self {
        Self::Refused(Refusal::new(code))
    }

    /// What the service said about it, for people only.
    #[must_use]
    pub fn service_words(&self) -> Option<&str> {
        match self {
            Self::NotDone(no) | Self::Refused(no) => no.service_words(),
            Self::UnclearSaying(words) => Some(words),
            Self::Unclear => None,
        }
    }
}

/// Everything behind the gate.
#[derive(Default)]
pub struct Services {
    by_name: RwLock<HashMap<ServiceName, Arc<dyn Service>>>,
    files: Option<Arc<Files>>,
    state: Option<Arc<State>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.read().unwrap_or_else(PoisonError::into_inner).keys()).finish()
    }
}

impl Services {
    /// Puts a service behind the gate.
    #[must_use]
    pub fn with(self, name: ServiceName, service: Arc<dyn Service>) -> Self {
        self.put(name, service);
        self
    }

    /// Puts a service behind the gate while it is open.
    pub(crate) fn put(&self, name: ServiceName, service: Arc<dyn Service>) {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).insert(name, service);
    }

    /// Takes a service from behind the gate.
    pub(crate) fn take(&self, name: &ServiceName) -> Option<Arc<dyn Service>> {
        self.by_name.write().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// What stands behind the gate.
    pub(crate) fn names(&self) -> Vec<ServiceName> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn named(&self, name: &ServiceName) -> Option<Arc<dyn Service>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Keeps what agents remember.
    #[must_use]
    pub fn with_state(mut self, name: ServiceName, state: Arc<State>) -> Self {
        self.state = Some(Arc::clone(&state));
        self.with(name, state)
    }

    /// What agents keep, if it is kept.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.state.as_deref()
    }

    /// Opens folders to agents.
    #[must_use]
    pub fn with_files(mut self, name: ServiceName, files: Arc<Files>) -> Self {
        self.files = Some(Arc::clone(&files));
        self.with(name, files)
    }

    /// Who carries a capability out, if anyone does.
    #[must_use]
    pub fn of(&self, spec: &Capability) -> Option<Arc<dyn Service>> {
        self.named(&spec.service()).filter(|service| service.offers(&spec.name))
    }

    /// The service of this name.
    ///
    /// # Errors
    /// When there is none.
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
    pub fn not_up(&self) -> Vec<ServiceName> {
        let all = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<ServiceName> =
            all.iter().filter(|(_, service)| service.starting().is_some()).map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Where reads of this capability are answered from, if anything here answers them.
    #[must_use]
    pub fn read_source(&self, service: &ServiceName, capability: &CapabilityName) -> Option<ReadSource> {
        let service = self.named(service).filter(|service| service.offers(capability))?;
        Some(service.reads_from(capability))
    }

    /// The folders, for capabilities that name paths in them.
    #[must_use]
    pub fn files_for(&self, spec: &Capability) -> Option<&Files> {
        let names_paths =
            spec.params_of(ParamKind::Path).next().is_some() && NAMES_PATHS.contains(&spec.service().as_str());
        self.files.as_deref().filter(|_| names_paths)
    }

    /// The folders.
    #[must_use]
    pub fn files(&self) -> Option<&Files> {
        self.files.as_deref()
    }
}

/// Whether the caller carries this action out itself.
#[must_use]
pub fn is_elsewhere(action: &Action) -> bool {
    action.is_carried_out_by_caller()
}

/// The name an action would be carried out under: that of a call that is only checked, without its mark.
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
