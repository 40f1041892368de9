//! One mount as a service behind the gate: calls go to the server, answers come back through the content stages.
//!
//! Promise: only an open tool is called; an answer is given as outside content, or withheld; a write without an answer
//! has an uncertain outcome, and a person resolves it.

mod stated;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::{Peer, ServiceError};
use serde_json::{Map, Value, json};
use sluice_config::{MountConfig, MountToolFacts, MountTransport};
use sluice_content::stages::TOOL_RESULT;
use sluice_core::capability::service_of;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, BoxedFuture, CapabilityName, ServiceName, UtcMillis};
use sluice_store::PinnedTool;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::client::McpConversationStart;
use super::http::SignInRequired;
use super::logs::MountLogRing;
use super::sign_in::{self, MountSignInNeed};
use super::tool_checks::ToolChecks;
use super::tools::{MountTool, RefusedTool, claims_to_read, service_name};
use super::wire::AMBIGUOUS;
use super::{MountsDeps, answer};
use crate::intake::{ContentRecipient, IncomingItem, ReaderChoice};
use crate::{CompletedWrite, PreparedWrite, ReadSource, Service, ServiceRead, ServiceSlot, WriteError};

/// The phase of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountPhase {
    /// It is being started or reached for the first time.
    Starting,
    /// Its tools can be called.
    Open,
    /// It has ended or cannot be reached; it is tried again.
    Down,
}

impl MountPhase {
    /// The word for the phase in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Open => "open",
            Self::Down => "down",
        }
    }
}

/// The condition of a mount, for people.
#[derive(Debug, Clone)]
pub struct MountCondition {
    /// The phase that it is in.
    pub phase: MountPhase,
    /// When it entered this phase.
    pub since: UtcMillis,
    /// Why it is not open, or why it ended last; while it is open, what it runs without.
    pub reason: Option<String>,
    /// What a running program lacks, if people must know.
    pub caveat: Option<String>,
    /// The name that the server gives itself, with its version, and the revision in use.
    pub server: Option<(String, String)>,
    /// How often it was restarted.
    pub restarts: u32,
    /// How often the server sent us a request; each was refused.
    pub refused_requests: u32,
    /// Layers of its jail that are off; only for programs.
    pub missing_layers: Vec<String>,
    /// Tools that cannot be used, and why.
    pub refused: Vec<RefusedTool>,
}

/// One tool for people.
#[derive(Debug, Clone)]
pub struct MountToolCondition {
    /// The server's name for it.
    pub tool: String,
    /// The name of its capability.
    pub capability: CapabilityName,
    /// Whether it is a write.
    pub writes: bool,
    /// Whether it can be called.
    pub open: bool,
    /// What people must know about it.
    pub note: Option<String>,
}

/// One third-party server.
pub struct MountService {
    mount: MountConfig,
    deps: Arc<MountsDeps>,
    condition: RwLock<MountCondition>,
    tools: RwLock<BTreeMap<CapabilityName, Arc<MountTool>>>,
    pins: RwLock<Vec<PinnedTool>>,
    /// What the operator states about its tools now.
    facts: RwLock<BTreeMap<String, MountToolFacts>>,
    /// Its error output, and what it said about calls that failed.
    logs: Mutex<MountLogRing>,
    live: watch::Sender<Option<Peer<RoleClient>>>,
    /// How the conversation began last, or which way is tried first.
    era: RwLock<McpConversationStart>,
    slots: Arc<Semaphore>,
    /// What the server wants a person to grant, if it wants anything.
    sign_in: RwLock<Option<MountSignInNeed>>,
    /// Signals that a person signed in or took the access back.
    pub(super) sign_in_changed: Notify,
    /// The requested and the finished checks of its tools.
    pub(super) checks: ToolChecks,
    /// Whether a task keeps it.
    taken: AtomicBool,
    /// Tells the task that keeps it to stop.
    stop: watch::Sender<bool>,
    /// True once the task that kept it has stopped.
    over: watch::Sender<bool>,
    /// The number of its live programs: one, or none.
    pub(super) programs: Arc<watch::Sender<usize>>,
}

impl std::fmt::Debug for MountService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountService").field("name", &self.mount.name).finish_non_exhaustive()
    }
}

/// Codes of answers that arrived and could not be read.
const UNREAD: [Code; 3] = [Code::ContentUnread, Code::ContentDuplicateKey, Code::WorkerCrashed];

/// Codes of calls that were not made, and may be made later.
const WAITS: [Code; 3] = [Code::MountDown, Code::MountSignIn, Code::FreezeActive];

/// A call without a result.
struct MountCallError {
    refusal: Refusal,
    /// Whether something may have happened.
    left: bool,
}

impl MountService {
    pub(super) fn new(mount: MountConfig, deps: Arc<MountsDeps>) -> Self {
        let condition = MountCondition {
            phase: MountPhase::Starting,
            since: deps.clock.now(),
            reason: None,
            server: None,
            restarts: 0,
            refused_requests: 0,
            missing_layers: Vec::new(),
            caveat: None,
            refused: Vec::new(),
        };
        let slots = Arc::new(Semaphore::new(mount.at_once as usize));
        // A program may never answer a request that it does not know; an address always answers.
        let era = match mount.way {
            MountTransport::Program(_) => McpConversationStart::Handshake,
            MountTransport::Address(_) => McpConversationStart::Stateless,
        };
        let facts = RwLock::new(mount.facts.clone());
        Self {
            mount,
            deps,
            condition: RwLock::new(condition),
            tools: RwLock::default(),
            pins: RwLock::default(),
            facts,
            logs: Mutex::default(),
            live: watch::Sender::new(None),
            era: RwLock::new(era),
            slots,
            sign_in: RwLock::default(),
            sign_in_changed: Notify::new(),
            checks: ToolChecks::new(),
            taken: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            over: watch::Sender::new(false),
            programs: Arc::default(),
        }
    }

    /// True for the first caller, which then keeps it.
    pub(super) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::SeqCst)
    }

    /// Turns true when the task that keeps it must stop.
    pub(super) fn subscribe_stop(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Tells the task that keeps it to stop.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Records that it is no longer kept.
    pub(super) fn mark_ended(&self) {
        self.over.send_replace(true);
    }

    /// Ends it: calls in progress may end within `grace`, no new call begins, and its program is gone when this
    /// returns.
    pub(super) async fn end(&self, grace: Duration) {
        // Calls that wait for a place queue behind us, and are refused when the places close.
        let idle = timeout(grace, self.slots.acquire_many(self.mount.at_once)).await;
        self.slots.close();
        drop(idle);
        self.stop();
        // If no task keeps it yet, this call takes it, and it never begins.
        if !self.take() {
            let mut over = self.over.subscribe();
            let _late = timeout(grace, over.wait_for(|over| *over)).await;
        }
        self.enter(MountPhase::Down, Some("it was removed".into()));
    }

    /// The settings of the mount.
    #[must_use]
    pub fn mount(&self) -> &MountConfig {
        &self.mount
    }

    /// What the server wants a person to grant, if it wants anything.
    #[must_use]
    pub fn sign_in_need(&self) -> Option<MountSignInNeed> {
        self.sign_in.read().clone()
    }

    pub(super) fn set_sign_in_need(&self, need: Option<MountSignInNeed>) {
        *self.sign_in.write() = need;
    }

    /// Why the server cannot be used before a person signs in.
    pub(super) fn sign_in_reason(&self) -> Option<String> {
        let need = self.sign_in.read();
        need.as_ref().filter(|need| matches!(need, MountSignInNeed::SignIn(_))).map(|need| need.text(&self.mount.name))
    }

    pub(super) fn era(&self) -> McpConversationStart {
        *self.era.read()
    }

    pub(super) fn set_era(&self, era: McpConversationStart) {
        *self.era.write() = era;
    }

    pub(super) fn deps(&self) -> &Arc<MountsDeps> {
        &self.deps
    }

    /// The condition of the mount.
    #[must_use]
    pub fn condition(&self) -> MountCondition {
        self.condition.read().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut MountCondition)) {
        change(&mut self.condition.write());
    }

    /// Enters a phase.
    pub(super) fn enter(&self, phase: MountPhase, reason: Option<String>) {
        let now = self.deps.clock.now();
        self.change(|condition| {
            if condition.phase != phase {
                (condition.phase, condition.since) = (phase, now);
            }
            condition.reason = reason;
        });
    }

    /// Its tools, by capability.
    #[must_use]
    pub fn tools(&self) -> Vec<MountToolCondition> {
        let tools = self.tools.read();
        let shown = tools.values().map(|tool| MountToolCondition {
            tool: tool.tool.clone(),
            capability: tool.spec.name.clone(),
            writes: tool.spec.class.is_some(),
            open: tool.open,
            note: tool.check.note(),
        });
        shown.collect()
    }

    /// Whether its server says that this definition only reads, and such hints count here.
    #[must_use]
    pub fn claims_to_read(&self, definition: &str) -> bool {
        serde_json::from_str(definition).is_ok_and(|definition| claims_to_read(&self.mount, &definition))
    }

    /// The state of each tool, as last read.
    #[must_use]
    pub fn pins(&self) -> Vec<PinnedTool> {
        self.pins.read().clone()
    }

    /// Sets the tools as they are now. Returns whether anything that agents can see changed.
    pub(super) fn settle(&self, tools: Vec<MountTool>, pins: Vec<PinnedTool>) -> bool {
        let next: BTreeMap<CapabilityName, Arc<MountTool>> =
            tools.into_iter().map(|tool| (tool.spec.name.clone(), Arc::new(tool))).collect();
        *self.pins.write() = pins;
        let mut now = self.tools.write();
        let same = now.len() == next.len()
            && now.values().zip(next.values()).all(|(one, other)| one.spec == other.spec && one.open == other.open);
        *now = next;
        !same
    }

    /// Sends calls to this peer from now on; to none with `None`.
    pub(super) fn connect(&self, peer: Option<Peer<RoleClient>>) {
        self.live.send_replace(peer);
    }

    fn tool(&self, capability: &CapabilityName) -> Option<Arc<MountTool>> {
        self.tools.read().get(capability).filter(|tool| tool.open).cloned()
    }

    /// The tool of an action, by the definition that the action was frozen with, if the tool accepts the arguments.
    fn fitting(&self, action: &Action) -> Result<Arc<MountTool>, Refusal> {
        let tool = self.tool(action.capability()).ok_or_else(|| self.unavailable_refusal(action.capability()))?;
        // SECURITY: the call was approved, by a person or by the rules, for the tool as it was then.
        if action.definition().is_none() || action.definition() != tool.spec.definition.as_deref() {
            return Err(Refusal::new(Code::MountChanged));
        }
        if !tool.check.allows(&Value::Object(action.arguments().clone())) {
            let text = "the arguments do not follow the schema of the tool";
            return Err(Refusal::new(Code::SchemaWrongType).with_text(text));
        }
        Ok(tool)
    }

    /// Why a tool cannot be called: it was not checked yet, or it differs from what was accepted.
    fn unavailable_refusal(&self, capability: &CapabilityName) -> Refusal {
        if let Some(starting) = self.starting() {
            return starting;
        }
        if let Some(why) = self.sign_in_reason() {
            return sign_in::refusal(&why);
        }
        let condition = self.condition();
        if condition.server.is_none() && condition.phase != MountPhase::Open {
            let reason = condition.reason.unwrap_or_else(|| "it is being started".into());
            let text = format!("the server `{}` is not available: {reason}", self.mount.name);
            return Refusal::new(Code::MountDown).with_text(&text);
        }
        let text = format!("`{capability}` has changed at its server and waits until a person accepts it");
        Refusal::new(Code::GatewayUnsupported).with_text(&text)
    }

    /// The server, once it is connected.
    async fn peer(&self) -> Result<Peer<RoleClient>, Refusal> {
        let (mut live, mut stop) = (self.live.subscribe(), self.stop.subscribe());
        let there = async {
            tokio::select! {
                peer = live.wait_for(Option::is_some) => peer.ok().and_then(|peer| peer.clone()),
                // No task starts it any more.
                _ = stop.wait_for(|stop| *stop) => None,
            }
        };
        // A person has to act first; waiting does not help.
        let wait = if self.sign_in_reason().is_some() { Duration::ZERO } else { self.mount.timeout.as_duration() };
        let peer = timeout(wait, there).await.ok().flatten();
        peer.ok_or_else(|| {
            if let Some(why) = self.sign_in_reason() {
                return sign_in::refusal(&why);
            }
            let reason = self.condition().reason.unwrap_or_else(|| "it is being started".into());
            Refusal::new(Code::MountDown)
                .with_text(&format!("the server `{}` is not available: {reason}", self.mount.name))
        })
    }

    /// Waits for one of the places of the server.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = timeout(self.mount.timeout.as_duration(), Arc::clone(&self.slots).acquire_owned()).await;
        let busy = || Refusal::new(Code::MountDown).with_text("the server is busy: all places for calls are in use");
        place.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Calls the server. The caller must hold one of its places.
    async fn call(&self, action: &Action, reader: ContentRecipient) -> Result<Value, MountCallError> {
        let before = |refusal: Refusal| MountCallError { refusal, left: false };
        let tool = self.fitting(action).map_err(before)?;
        let peer = self.peer().await.map_err(before)?;
        // SECURITY: checked again after the wait: the server may have reported a change of the tool meanwhile.
        if !self.tool(action.capability()).is_some_and(|now| Arc::ptr_eq(&now, &tool)) {
            self.fitting(action).map_err(before)?;
        }
        // SECURITY: nothing is sent after a freeze has returned, however long the wait for the server was.
        let service = self.service(action);
        let free = self.deps.store.refuse_if_frozen(action.agent().clone(), service).await;
        free.map_err(|error| before(*crate::CallError::from(error).refusal))?;
        let arguments: Map<String, Value> = action.arguments().clone();
        let params = CallToolRequestParams::new(tool.tool.clone()).with_arguments(arguments);
        let answered = timeout(self.mount.timeout.as_duration(), peer.call_tool_once(params)).await;
        let failed =
            |text: &str, left| MountCallError { refusal: Refusal::new(Code::MountFailed).with_text(text), left };
        let result = match answered {
            Err(_) => return Err(failed(&format!("the server did not answer within {}", self.mount.timeout), true)),
            Ok(Ok(CallToolResponse::Complete(result))) => result,
            Ok(Ok(_)) => return Err(failed("the server asked for input from a person, which is refused", true)),
            Ok(Err(error)) => return Err(self.explain(action, reader, &error).await),
        };
        let plain = answer::plain(&result);
        let item = self.incoming(action, plain.readable.to_string().into_bytes(), reader);
        let by = if self.mount.keep_reader { ReaderChoice::Kept } else { ReaderChoice::Fresh };
        let given = answer::taken_in(&self.deps.intake, &item, by).await;
        given.map(|data| self.told(plain.put_back(data))).map_err(|refusal| MountCallError { refusal, left: true })
    }

    /// The service name of an action, for batch protection and freezes.
    fn service(&self, action: &Action) -> ServiceName {
        service_name(&self.mount.name).unwrap_or_else(|| service_of(action.capability()))
    }

    fn incoming(&self, action: &Action, bytes: Vec<u8>, reader: ContentRecipient) -> IncomingItem {
        let server = self.condition().server.map(|(name, _)| name);
        IncomingItem {
            bytes,
            declared: Some(TOOL_RESULT.into()),
            service: self.service(action),
            source: action.capability().to_string(),
            author: server.unwrap_or_else(|| self.mount.name.clone()),
            at: self.deps.clock.now(),
            beside: None,
            reader: Some(reader),
            enveloped: false,
        }
    }

    /// What an agent gets: the data, marked as outside content.
    fn told(&self, data: Value) -> Value {
        json!({"data": data, "source": format!("mount.{}", self.mount.name), "untrusted": true})
    }
}

/// The reason of a refused connection: in this case nothing can have been sent.
fn refused(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<std::io::Error>()?;
    (error.kind() == std::io::ErrorKind::ConnectionRefused).then(|| error.to_string())
}

/// What a person has to do, if the server refused the access: in this case nothing was carried out.
fn sign_in_text(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<std::io::Error>()?;
    error.get_ref()?.downcast_ref::<SignInRequired>().map(ToString::to_string)
}

/// Why the protocol gave no result, without any words of the server.
fn trouble(error: &ServiceError) -> MountCallError {
    let (text, left) = match error {
        ServiceError::McpError(error) if error.code.0 == AMBIGUOUS => {
            return MountCallError { refusal: Refusal::new(Code::ContentDuplicateKey), left: true };
        }
        // A request that it does not know or accept was not carried out.
        ServiceError::McpError(error) if matches!(error.code.0, -32602..=-32600) => {
            (format!("the server refused the call ({})", error.code.0), false)
        }
        ServiceError::McpError(error) => (format!("the server answered with error {}", error.code.0), true),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            ("the server ended before it answered".to_owned(), true)
        }
        ServiceError::TransportSend(error) if let Some(why) = sign_in_text(error.error.as_ref()) => {
            return MountCallError { refusal: sign_in::refusal(&why), left: false };
        }
        ServiceError::TransportSend(error) if let Some(why) = refused(error.error.as_ref()) => {
            let refusal = Refusal::new(Code::MountDown).with_text(&format!("the server is not available: {why}"));
            return MountCallError { refusal, left: false };
        }
        ServiceError::TransportSend(_) => ("the call could not be sent, or no answer came back".to_owned(), true),
        ServiceError::UnexpectedResponse => ("the server's answer does not belong to this call".to_owned(), true),
        _ => ("the server gave no usable answer".to_owned(), true),
    };
    MountCallError { refusal: Refusal::new(Code::MountFailed).with_text(&text), left }
}

impl Service for MountService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Mounted
    }

    fn is_ready(&self) -> bool {
        self.condition().phase == MountPhase::Open
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.tool(capability).is_some()
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(self.fitting(action).map(|_| ())))
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async {
            let _place = self.place().await?;
            self.call(&ask.action, ContentRecipient::of(ask)).await.map_err(|not| not.refusal)
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async {
            // A tool that waits for a person may return to what it was; a tool that was accepted again is a different
            // one.
            if !self.offers(hold.action.capability()) {
                return Err(WriteError::NotDone(Refusal::new(Code::MountDown)));
            }
            self.fitting(&hold.action).map_err(WriteError::Refused)?;
            self.peer().await.map(|_| PreparedWrite::default()).map_err(WriteError::NotDone)
        })
    }

    fn reserve<'a>(&'a self, _: &'a Hold) -> BoxedFuture<'a, Result<ServiceSlot, Refusal>> {
        Box::pin(async {
            let place = Arc::clone(&self.slots).acquire_owned().await;
            // The mount was removed.
            place.map(ServiceSlot::Slot).map_err(|_| Refusal::new(Code::MountDown))
        })
    }

    fn max_concurrent_writes(&self) -> Option<usize> {
        Some(self.mount.at_once as usize)
    }

    fn starting(&self) -> Option<Refusal> {
        let condition = self.condition();
        (condition.phase == MountPhase::Starting && condition.restarts == 0).then(|| {
            let text = format!("the server `{}` is being started", self.mount.name);
            Refusal::new(Code::ServiceStarting).with_text(&text)
        })
    }

    fn perform<'a>(
        &'a self,
        _: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async {
            let done = |result| CompletedWrite {
                receipt: format!("{} answered", self.mount.name),
                result,
                after: None,
                undo_until: None,
            };
            let reader = ContentRecipient::of_write(hold);
            match self.call(&hold.action, reader).await {
                Ok(result) => Ok(done(result)),
                // It answered, so it was carried out; only its words could not be read.
                Err(MountCallError { refusal, left: true }) if UNREAD.contains(&refusal.code()) => {
                    Ok(done(self.told(json!({"unread": refusal.code().as_str()}))))
                }
                Err(MountCallError { refusal, left: true }) => Err(match refusal.service_words() {
                    Some(words) => WriteError::UnclearSaying(words.to_owned()),
                    None => WriteError::Unclear,
                }),
                Err(MountCallError { refusal, left: false }) if WAITS.contains(&refusal.code()) => {
                    Err(WriteError::NotDone(refusal))
                }
                Err(MountCallError { refusal, left: false }) => Err(WriteError::Refused(refusal)),
            }
        })
    }
}
