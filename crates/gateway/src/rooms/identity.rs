//! Identity: who knocks.
//!
//! Takes a credential; gives a [`Visitor`], and for a call by an agent a [`Known`] with its session. Promise:
//! the kinds of credential never stand in for each other, and a session belongs to the agent it was
//! issued to. Unknown callers are counted by the door, not recorded: anyone could fill the record otherwise.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use sluice_core::ids::{KeyId, RequestId, SessionId};
use sluice_core::proxy::spawn::SpawnOptions;
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName, CallId, CapabilityName, PersonName};
use sluice_store::{Key, KeyKind, Role, Session, Store};

use crate::{Gateway, No, keys};

/// Someone whose credential works. Made only by [`visitor`].
#[derive(Debug, Clone)]
pub struct Visitor {
    key: Arc<Key>,
}

/// The kinds of credential, as far as doors tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// An agent's key.
    Agent,
    /// A task key.
    Task,
    /// An inbox key.
    Inbox,
    /// An operator's token, with its role.
    Operator(Role),
}

/// A request to make a call, from a known agent.
#[derive(Debug)]
pub struct Knock {
    /// Who.
    pub visitor: Visitor,
    /// Over which door, for the record.
    pub door: &'static str,
    /// The request it came in.
    pub request: RequestId,
    /// The session it names, where the door has read it after the last byte of the request had come.
    pub session: Option<Session>,
    /// What.
    pub wish: Wish,
}

/// A call as the agent words it.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// What to do: `email.send`, or `custom:<tool>` with `mode: check`.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// With which arguments.
    #[serde(default = "empty")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub arguments: Value,
    /// At which account of the service.
    #[serde(default)]
    pub account: Option<String>,
    /// In which session, as issued by the gateway.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_id: Option<SessionId>,
    /// Makes a repetition of this call the same call, for 30 days.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Why, in the agent's words. Shown to people as such.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether the gateway carries it out, or only says whether the caller may.
    #[serde(default)]
    pub mode: Mode,
    /// How long to wait for the outcome, in milliseconds.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// An identical call was made moments ago, and a second one is meant.
    #[serde(default)]
    pub allow_duplicate: bool,
    /// The key is a door's own name for this call, made by no agent: it does not say that a second one is meant.
    #[serde(skip)]
    pub named: bool,
}

/// Who carries a call out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The gateway.
    #[default]
    Execute,
    /// The caller, if it may.
    Check,
}

/// A call whose agent and session are known.
#[derive(Debug)]
pub struct Known {
    call: CallId,
    agent: AgentName,
    session: Option<Session>,
    door: &'static str,
    request: RequestId,
    wish: Wish,
    spawn: Option<SpawnOptions>,
}

/// What the record needs of a call, whatever becomes of it.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The call.
    pub call: CallId,
    /// Who.
    pub agent: AgentName,
    /// In which session.
    pub session: Option<SessionId>,
    /// What.
    pub capability: CapabilityName,
    /// In which request.
    pub request: RequestId,
    /// Over which door.
    pub door: &'static str,
}

const LONGEST_KEY: usize = 255;
const LONGEST_REASON: usize = 2_000;

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Recognises a credential.
///
/// # Errors
/// When it is malformed, unknown, revoked or expired.
pub fn visitor(gw: &Gateway, token: &str) -> Result<Visitor, No> {
    let (kind, hash) = keys::hash_of(token).ok_or_else(|| No::new(Code::IdentityUnknown))?;
    let key = gw.keyring.find(&hash, gw.now()).map_err(No::new)?;
    let fits = match &key.kind {
        KeyKind::Agent(_) => kind == keys::KindWord::Agent,
        KeyKind::Operator(..) => kind == keys::KindWord::Operator,
        KeyKind::Inbox(_) => kind == keys::KindWord::Inbox,
        KeyKind::Task(_) => kind == keys::KindWord::Task,
    };
    if fits { Ok(Visitor { key }) } else { Err(No::new(Code::IdentityUnknown)) }
}

/// Finds the session a call names, and refuses an agent that people have paused.
///
/// # Errors
/// When the visitor is no agent, is paused, or names a session that is not its own.
pub async fn recognise(gw: &Gateway, knock: Knock) -> Result<Known, No> {
    let Knock { visitor, door, request, session, wish } = knock;
    let agent = visitor.agent().ok_or_else(|| No::new(Code::IdentityWrongKind))?.clone();
    if gw.keyring.is_paused(&agent) {
        return Err(No::new(Code::IdentityPaused));
    }
    if wish.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
        return Err(No::saying(Code::SchemaBadName, "an idempotency key has 1 to 255 bytes"));
    }
    if wish.reason.as_ref().is_some_and(|reason| reason.chars().count() > LONGEST_REASON) {
        return Err(No::saying(Code::SchemaWrongType, "a reason has at most 2000 characters"));
    }
    let session = match wish.session_id {
        None => None,
        Some(id) => {
            let session = match session.filter(|session| session.id == id) {
                Some(read) => Some(read),
                None => gw.store.session(id).await?,
            };
            let own = session.filter(|session| session.agent == agent && session.ended_at.is_none());
            Some(own.ok_or_else(|| No::new(Code::IdentitySession))?)
        }
    };
    Ok(Known { call: CallId::mint(gw.ids.as_ref()), agent, session, door, request, wish, spawn: None })
}

impl Visitor {
    /// The agent, if it is one.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentName> {
        match &self.key.kind {
            KeyKind::Agent(name) => Some(name),
            KeyKind::Operator(..) | KeyKind::Inbox(_) | KeyKind::Task(_) => None,
        }
    }

    /// The operator and what they may do, if it is one.
    #[must_use]
    pub fn operator(&self) -> Option<(&PersonName, Role)> {
        match &self.key.kind {
            KeyKind::Operator(name, role) => Some((name, *role)),
            KeyKind::Agent(_) | KeyKind::Inbox(_) | KeyKind::Task(_) => None,
        }
    }

    /// As the record knows them; nothing for an inbox key or a task key, which act for nobody.
    #[must_use]
    pub fn actor(&self) -> Option<Actor> {
        match &self.key.kind {
            KeyKind::Agent(name) => Some(Actor::Agent(name.clone())),
            KeyKind::Operator(name, _) => Some(Actor::Operator(name.clone())),
            KeyKind::Inbox(_) | KeyKind::Task(_) => None,
        }
    }

    /// The inbox, if it is one.
    #[must_use]
    pub fn inbox(&self) -> Option<&str> {
        match &self.key.kind {
            KeyKind::Inbox(name) => Some(name),
            KeyKind::Agent(_) | KeyKind::Operator(..) | KeyKind::Task(_) => None,
        }
    }

    /// The agent whose tasks it states, if it is a task key.
    #[must_use]
    pub fn task_for(&self) -> Option<&AgentName> {
        match &self.key.kind {
            KeyKind::Task(name) => Some(name),
            KeyKind::Agent(_) | KeyKind::Operator(..) | KeyKind::Inbox(_) => None,
        }
    }

    /// Which kind of credential it is.
    #[must_use]
    pub fn credential(&self) -> Credential {
        match &self.key.kind {
            KeyKind::Agent(_) => Credential::Agent,
            KeyKind::Operator(_, role) => Credential::Operator(*role),
            KeyKind::Inbox(_) => Credential::Inbox,
            KeyKind::Task(_) => Credential::Task,
        }
    }

    /// The label of the client that holds the credential: the first 12 hex digits of its hash.
    #[must_use]
    pub fn client_id(&self) -> String {
        keys::label(&self.key.hash)
    }

    /// Which credential.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.key.id
    }

    /// Asks for the credential once more, with what other nodes changed: a body may come long after its head.
    ///
    /// # Errors
    /// When it was revoked or has expired meanwhile, or the credentials cannot be read.
    pub(crate) async fn again(&self, gw: &Gateway, store: &Store) -> Result<(), No> {
        gw.keyring.follow(store).await?;
        gw.keyring.find(&self.key.hash, gw.now()).map(|_| ()).map_err(No::new)
    }

    /// Whether the credential still opens anything, on whatever node it was revoked. Not if that cannot be found out.
    pub async fn still_known(&self, gw: &Gateway) -> bool {
        self.again(gw, &gw.store).await.is_ok()
    }

    /// When it stops working.
    #[must_use]
    pub fn expires_at(&self) -> Option<sluice_core::Timestamp> {
        self.key.expires_at
    }
}

impl Known {
    /// A call in an agent's name that a person has changed. The agent and its session were known when it asked.
    pub(crate) fn on_behalf(gw: &Gateway, agent: AgentName, session: Option<Session>, wish: Wish) -> Self {
        let (call, request) = (CallId::mint(gw.ids.as_ref()), RequestId::mint(gw.ids.as_ref()));
        Self { call, agent, session, door: "people", request, wish, spawn: None }
    }

    /// The same call, asked for as a spawn with these options.
    pub(crate) fn spawned(self, spawn: Option<SpawnOptions>) -> Self {
        Self { spawn, ..self }
    }

    /// Puts the operation that a spawn names in the place of the spawn.
    pub(super) fn spawn(&mut self, capability: CapabilityName, arguments: Value, options: SpawnOptions) {
        (self.wish.capability, self.wish.arguments, self.spawn) = (capability, arguments, Some(options));
    }

    /// What a spawn adds to the call, if it is one.
    pub(crate) fn spawn_options(&self) -> Option<&SpawnOptions> {
        self.spawn.as_ref()
    }

    /// A call that an agent planned earlier. It has no session, and walks every room as if the agent made it now.
    pub(crate) fn planned(gw: &Gateway, agent: AgentName, wish: Wish) -> Self {
        let (call, request) = (CallId::mint(gw.ids.as_ref()), RequestId::mint(gw.ids.as_ref()));
        Self { call, agent, session: None, door: "scheduler", request, wish, spawn: None }
    }

    /// The call's id.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// What the record needs of it.
    #[must_use]
    pub fn trace(&self) -> Trace {
        Trace {
            call: self.call,
            agent: self.agent.clone(),
            session: self.session.as_ref().map(|session| session.id),
            capability: self.wish.capability.clone(),
            request: self.request,
            door: self.door,
        }
    }

    /// Over which door it came.
    #[must_use]
    pub fn door(&self) -> &'static str {
        self.door
    }

    /// Who asks.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The session, if the call names one.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// The call as the agent words it.
    #[must_use]
    pub fn wish(&self) -> &Wish {
        &self.wish
    }

    pub(crate) fn take_arguments(&mut self) -> Value {
        self.wish.arguments.take()
    }
}
