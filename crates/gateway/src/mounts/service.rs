//! One mount as a service behind the gate: calls go to the server, answers come back through the content stages.
//!
//! Promise: nothing is called that is not open; an answer is given as data from outside, or withheld; a write whose
//! answer did not come is a doubt, and a doubt is a person's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResponse};
use rmcp::service::{Peer, ServiceError};
use serde_json::{Map, Value, json};
use sluice_content::stages::TOOL_RESULT;
use sluice_core::capability::service_of;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::nodes::ServiceKind;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName, ServiceName, Timestamp};
use sluice_store::PinnedTool;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::guest::Era;
use super::tools::{Refused, Tool, claims_to_read, service_name};
use super::wire::AMBIGUOUS;
use super::{Ground, answer};
use crate::config::{Mount, Way};
use crate::intake::{Incoming, ReadBy, Reader};
use crate::services::{Ask, Performed, Place, Prepared, ReadSource, Service, Trouble, Work};

/// Where a mount is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Being started or reached for the first time.
    Starting,
    /// Its tools can be called.
    Open,
    /// It has ended or cannot be reached; it is tried again.
    Down,
}

impl Phase {
    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Open => "open",
            Self::Down => "down",
        }
    }
}

/// How a mount is, for people.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// Why it is not open, or why it ended last; while it is open, what it does without.
    pub reason: Option<String>,
    /// What a program that runs does without, if people have to know.
    pub caveat: Option<String>,
    /// What the server calls itself, with its version, and the revision spoken.
    pub server: Option<(String, String)>,
    /// How often it was started again.
    pub restarts: u32,
    /// How often the server asked something of us; each was refused.
    pub refused_requests: u32,
    /// Layers of its jail that are off; only for programs.
    pub missing_layers: Vec<String>,
    /// Tools that cannot be used, and why.
    pub refused: Vec<Refused>,
    /// The last of what a program complained about, in its own words.
    pub last_words: String,
}

/// One tool for people.
#[derive(Debug, Clone)]
pub struct ToolCondition {
    /// The server's name for it.
    pub tool: String,
    /// What it is called behind the gate.
    pub capability: CapabilityName,
    /// Whether it changes anything.
    pub writes: bool,
    /// Whether it can be called.
    pub open: bool,
}

/// One server of others.
pub struct MountService {
    mount: Mount,
    ground: Arc<Ground>,
    condition: RwLock<Condition>,
    tools: RwLock<BTreeMap<CapabilityName, Arc<Tool>>>,
    pins: RwLock<Vec<PinnedTool>>,
    live: watch::Sender<Option<Peer<RoleClient>>>,
    /// How the conversation with it began last, or how it is tried first.
    era: RwLock<Era>,
    slots: Arc<Semaphore>,
    /// Somebody wants its tools to be looked at again.
    pub(super) again: Notify,
    /// Counts how often its tools were looked at.
    pub(super) looked: watch::Sender<u64>,
    /// Whether somebody keeps it.
    taken: AtomicBool,
    /// Whoever keeps it is told to stop.
    stop: watch::Sender<bool>,
    /// Whoever kept it has stopped.
    over: watch::Sender<bool>,
    /// Programs of it that live: one, or none.
    pub(super) programs: Arc<watch::Sender<usize>>,
}

impl std::fmt::Debug for MountService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountService").field("name", &self.mount.name).finish_non_exhaustive()
    }
}

/// Codes of answers that came and could not be read.
const UNREAD: [Code; 3] = [Code::ContentUnread, Code::ContentDuplicateKey, Code::WorkerCrashed];

/// Codes of calls that were not made, and may be later.
const WAITS: [Code; 2] = [Code::MountDown, Code::FreezeActive];

/// A call that gave nothing.
struct NotGiven {
    refusal: Refusal,
    /// Whether something may have happened.
    left: bool,
}

impl MountService {
    pub(super) fn new(mount: Mount, ground: Arc<Ground>) -> Self {
        let condition = Condition {
            phase: Phase::Starting,
            since: ground.clock.now(),
            reason: None,
            server: None,
            restarts: 0,
            refused_requests: 0,
            missing_layers: Vec::new(),
            caveat: None,
            refused: Vec::new(),
            last_words: String::new(),
        };
        let slots = Arc::new(Semaphore::new(mount.at_once as usize));
        // A program that is asked what it does not know may never answer; an address always does.
        let era = match mount.way {
            Way::Program(_) => Era::Handshake,
            Way::Address(_) => Era::Stateless,
        };
        Self {
            mount,
            ground,
            condition: RwLock::new(condition),
            tools: RwLock::default(),
            pins: RwLock::default(),
            live: watch::Sender::new(None),
            era: RwLock::new(era),
            slots,
            again: Notify::new(),
            looked: watch::Sender::new(0),
            taken: AtomicBool::new(false),
            stop: watch::Sender::new(false),
            over: watch::Sender::new(false),
            programs: Arc::default(),
        }
    }

    /// True for the first who asks: whoever it is keeps it.
    pub(super) fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::SeqCst)
    }

    /// Turns true when it is to be kept no longer.
    pub(super) fn stops(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Tells whoever keeps it to stop.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// It is no longer kept.
    pub(super) fn is_over(&self) {
        self.over.send_replace(true);
    }

    /// Ends it: calls under way may end within `grace`, none begins any more, and its program is gone when this
    /// returns.
    pub(super) async fn end(&self, grace: Duration) {
        // Whoever waits for a place stands behind us, and is turned away when the places close.
        let idle = timeout(grace, self.slots.acquire_many(self.mount.at_once)).await;
        self.slots.close();
        drop(idle);
        self.stop();
        // Whom nobody keeps yet is ours, and never begins.
        if !self.take() {
            let mut over = self.over.subscribe();
            let _late = timeout(grace, over.wait_for(|over| *over)).await;
        }
        self.enter(Phase::Down, Some("it was taken away".into()));
    }

    /// How it was set up.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    pub(super) fn era(&self) -> Era {
        *self.era.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_with(&self, era: Era) {
        *self.era.write().unwrap_or_else(PoisonError::into_inner) = era;
    }

    pub(super) fn ground(&self) -> &Arc<Ground> {
        &self.ground
    }

    /// How it is.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.condition.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Condition)) {
        change(&mut self.condition.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Moves on in its life.
    pub(super) fn enter(&self, phase: Phase, reason: Option<String>) {
        let now = self.ground.clock.now();
        self.change(|condition| {
            if condition.phase != phase {
                (condition.phase, condition.since) = (phase, now);
            }
            condition.reason = reason;
        });
    }

    /// Its tools, by capability.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolCondition> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        let shown = tools.values().map(|tool| ToolCondition {
            tool: tool.tool.clone(),
            capability: tool.spec.name.clone(),
            writes: tool.spec.class.is_some(),
            open: tool.open,
        });
        shown.collect()
    }

    /// Whether its server says of this definition that it only reads, and such hints count here.
    #[must_use]
    pub fn claims_to_read(&self, definition: &str) -> bool {
        serde_json::from_str(definition).is_ok_and(|definition| claims_to_read(&self.mount, &definition))
    }

    /// How each tool stands, as last read.
    #[must_use]
    pub fn pins(&self) -> Vec<PinnedTool> {
        self.pins.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the tools as they are now. Gives whether anything agents can see is another.
    pub(super) fn settle(&self, tools: Vec<Tool>, pins: Vec<PinnedTool>) -> bool {
        let next: BTreeMap<CapabilityName, Arc<Tool>> =
            tools.into_iter().map(|tool| (tool.spec.name.clone(), Arc::new(tool))).collect();
        *self.pins.write().unwrap_or_else(PoisonError::into_inner) = pins;
        let mut now = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let same = now.len() == next.len()
            && now.values().zip(next.values()).all(|(one, other)| one.spec == other.spec && one.open == other.open);
        *now = next;
        !same
    }

    /// From now on calls go here; nowhere if there is nothing.
    pub(super) fn connect(&self, peer: Option<Peer<RoleClient>>) {
        self.live.send_replace(peer);
    }

    fn tool(&self, capability: &CapabilityName) -> Option<Arc<Tool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(capability).filter(|tool| tool.open).cloned()
    }

    /// The tool of an action, by the definition the action was frozen with and whose arguments it takes.
    fn fitting(&self, action: &Action) -> Result<Arc<Tool>, Refusal> {
        let tool = self.tool(action.capability()).ok_or_else(|| self.shut(action.capability()))?;
        // SECURITY: whoever said yes to the call, a person or the rules, said it to the tool as it was then.
        if action.definition().is_none() || action.definition() != tool.spec.definition.as_deref() {
            return Err(Refusal::new(Code::MountChanged));
        }
        if !tool.schema.allows(&Value::Object(action.arguments().clone())) {
            let text = "the arguments do not follow the schema of the tool";
            return Err(Refusal::new(Code::SchemaWrongType).with_text(text));
        }
        Ok(tool)
    }

    /// Why a tool cannot be called: nobody has looked at it yet, or it is not what was accepted.
    fn shut(&self, capability: &CapabilityName) -> Refusal {
        if let Some(starting) = self.starting() {
            return starting;
        }
        let condition = self.condition();
        if condition.server.is_none() && condition.phase != Phase::Open {
            let reason = condition.reason.unwrap_or_else(|| "it is being started".into());
            let text = format!("the server `{}` is not there: {reason}", self.mount.name);
            return Refusal::new(Code::MountDown).with_text(&text);
        }
        let text = format!("`{capability}` has changed at its server and waits for a person");
        Refusal::new(Code::GatewayUnsupported).with_text(&text)
    }

    /// The server, once it is there.
    async fn peer(&self) -> Result<Peer<RoleClient>, Refusal> {
        let (mut live, mut stop) = (self.live.subscribe(), self.stop.subscribe());
        let there = async {
            tokio::select! {
                peer = live.wait_for(Option::is_some) => peer.ok().and_then(|peer| peer.clone()),
                // Nobody starts it any more.
                _ = stop.wait_for(|stop| *stop) => None,
            }
        };
        let peer = timeout(self.mount.timeout.as_duration(), there).await.ok().flatten();
        peer.ok_or_else(|| {
            let reason = self.condition().reason.unwrap_or_else(|| "it is being started".into());
            Refusal::new(Code::MountDown).with_text(&format!("the server `{}` is not there: {reason}", self.mount.name))
        })
    }

    /// Waits for one of the places of the server.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = timeout(self.mount.timeout.as_duration(), Arc::clone(&self.slots).acquire_owned()).await;
        let busy = || Refusal::new(Code::MountDown).with_text("the server has too much to do");
        place.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Calls the server. Whoever calls has one of its places.
    async fn call(&self, action: &Action, reader: Reader) -> Result<Value, NotGiven> {
        let before = |refusal: Refusal| NotGiven { refusal, left: false };
        let tool = self.fitting(action).map_err(before)?;
        let peer = self.peer().await.map_err(before)?;
        // SECURITY: looked at again after the waiting: the server may have changed the tool meanwhile, and been heard.
        if !self.tool(action.capability()).is_some_and(|now| Arc::ptr_eq(&now, &tool)) {
            self.fitting(action).map_err(before)?;
        }
        // SECURITY: nothing is handed over after a freeze has returned, however long the server was waited for.
        let service = self.service(action);
        let free = self.ground.store.refuse_if_frozen(action.agent().clone(), service).await;
        free.map_err(|error| before(*crate::No::from(error).refusal))?;
        let arguments: Map<String, Value> = action.arguments().clone();
        let params = CallToolRequestParams::new(tool.tool.clone()).with_arguments(arguments);
        let answered = timeout(self.mount.timeout.as_duration(), peer.call_tool_once(params)).await;
        let failed = |text: &str, left| NotGiven { refusal: Refusal::new(Code::MountFailed).with_text(text), left };
        let result = match answered {
            Err(_) => return Err(failed(&format!("the server did not answer within {}", self.mount.timeout), true)),
            Ok(Ok(CallToolResponse::Complete(result))) => result,
            Ok(Ok(_)) => return Err(failed("the server wants to ask a person something; that is refused", true)),
            Ok(Err(error)) => return Err(trouble(&error)),
        };
        let item = self.incoming(action, answer::plain(&result).to_string().into_bytes(), reader);
        let by = if self.mount.keep_reader { ReadBy::Kept } else { ReadBy::Fresh };
        let given = answer::taken_in(&self.ground.intake, &item, by).await;
        given.map(|data| self.told(data)).map_err(|refusal| NotGiven { refusal, left: true })
    }

    /// What batch protection and freezes call it.
    fn service(&self, action: &Action) -> ServiceName {
        service_name(&self.mount.name).unwrap_or_else(|| service_of(action.capability()))
    }

    fn incoming(&self, action: &Action, bytes: Vec<u8>, reader: Reader) -> Incoming {
        let server = self.condition().server.map(|(name, _)| name);
        Incoming {
            bytes,
            declared: Some(TOOL_RESULT.into()),
            service: self.service(action),
            source: action.capability().to_string(),
            author: server.unwrap_or_else(|| self.mount.name.clone()),
            at: self.ground.clock.now(),
            beside: None,
            reader: Some(reader),
            enveloped: false,
        }
    }

    /// What an agent is given: the data, and that it came from outside.
    fn told(&self, data: Value) -> Value {
        json!({"data": data, "source": format!("mount.{}", self.mount.name), "untrusted": true})
    }
}

/// What to say of a connection that was refused: then nothing can have left.
fn refused(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let error = error.downcast_ref::<std::io::Error>()?;
    (error.kind() == std::io::ErrorKind::ConnectionRefused).then(|| error.to_string())
}

/// Why the protocol gave nothing, without a word of the server.
fn trouble(error: &ServiceError) -> NotGiven {
    let (text, left) = match error {
        ServiceError::McpError(error) if error.code.0 == AMBIGUOUS => {
            return NotGiven { refusal: Refusal::new(Code::ContentDuplicateKey), left: true };
        }
        // What it does not know or take, it has not done.
        ServiceError::McpError(error) if matches!(error.code.0, -32602..=-32600) => {
            (format!("the server refused the call ({})", error.code.0), false)
        }
        ServiceError::McpError(error) => (format!("the server answered with error {}", error.code.0), true),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => {
            ("the server ended before it answered".to_owned(), true)
        }
        ServiceError::TransportSend(error) if let Some(why) = refused(error.error.as_ref()) => {
            let refusal = Refusal::new(Code::MountDown).with_text(&format!("the server is not there: {why}"));
            return NotGiven { refusal, left: false };
        }
        ServiceError::TransportSend(_) => ("the call could not be sent, or no answer came back".to_owned(), true),
        ServiceError::UnexpectedResponse => ("the server's answer is none to this call".to_owned(), true),
        _ => ("the server gave no usable answer".to_owned(), true),
    };
    NotGiven { refusal: Refusal::new(Code::MountFailed).with_text(&text), left }
}

impl Service for MountService {
    fn kind(&self) -> ServiceKind {
        ServiceKind::Mounted
    }

    fn is_ready(&self) -> bool {
        self.condition().phase == Phase::Open
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::Outside
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        self.tool(capability).is_some()
    }

    fn foresee<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> Work<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(self.fitting(action).map(|_| ())))
    }

    fn read<'a>(&'a self, ask: &'a Ask) -> Work<'a, Result<Value, Refusal>> {
        Box::pin(async {
            let _place = self.place().await?;
            self.call(&ask.action, Reader::of(ask)).await.map_err(|not| not.refusal)
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> Work<'a, Result<Prepared, Trouble>> {
        Box::pin(async {
            // One that waits for a person may become again what it was; one that was accepted anew is another.
            if !self.offers(hold.action.capability()) {
                return Err(Trouble::NotDone(Refusal::new(Code::MountDown)));
            }
            self.fitting(&hold.action).map_err(Trouble::Refused)?;
            self.peer().await.map(|_| Prepared::default()).map_err(Trouble::NotDone)
        })
    }

    fn reserve<'a>(&'a self, _: &'a Hold) -> Work<'a, Result<Place, Refusal>> {
        Box::pin(async {
            let place = Arc::clone(&self.slots).acquire_owned().await;
            // It was taken away.
            place.map(Place::Slot).map_err(|_| Refusal::new(Code::MountDown))
        })
    }

    fn places(&self) -> Option<usize> {
        Some(self.mount.at_once as usize)
    }

    fn starting(&self) -> Option<Refusal> {
        let condition = self.condition();
        (condition.phase == Phase::Starting && condition.restarts == 0).then(|| {
            let text = format!("the server `{}` is being started", self.mount.name);
            Refusal::new(Code::ServiceStarting).with_text(&text)
        })
    }

    fn perform<'a>(&'a self, _: Permit, hold: &'a Hold, _: Option<&'a [u8]>) -> Work<'a, Result<Performed, Trouble>> {
        Box::pin(async {
            let done = |result| Performed {
                receipt: format!("{} answered", self.mount.name),
                result,
                after: None,
                undo_until: None,
            };
            let reader = Reader::of_write(hold);
            match self.call(&hold.action, reader).await {
                Ok(result) => Ok(done(result)),
                // It answered, so it did what it does; only its words could not be read.
                Err(NotGiven { refusal, left: true }) if UNREAD.contains(&refusal.code()) => {
                    Ok(done(self.told(json!({"unread": refusal.code().as_str()}))))
                }
                Err(NotGiven { left: true, .. }) => Err(Trouble::Unclear),
                Err(NotGiven { refusal, left: false }) if WAITS.contains(&refusal.code()) => {
                    Err(Trouble::NotDone(refusal))
                }
                Err(NotGiven { refusal, left: false }) => Err(Trouble::Refused(refusal)),
            }
        })
    }
}
