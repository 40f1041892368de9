//! Identity: finds out who makes a call request.
//!
//! Takes a credential; gives a [`Principal`], and for a call by an agent a [`IdentifiedCall`] with its session. Promise: one kind
//! of credential never works as another, and a session belongs to the agent it was issued to. Unknown callers are
//! counted by the door, not recorded: otherwise anyone could fill the audit log.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use sluice_core::ids::{KeyId, RequestId, SessionId};
use sluice_core::proxy::spawn::SpawnOptions;
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName, CallId, CapabilityName, PersonName};
use sluice_services::CallError;
use sluice_store::{AccessKey, AccessKeyKind, OperatorRole, Session, Store};

use crate::{Gateway, keys};

/// A principal whose credential is valid. Made only by [`principal`].
#[derive(Debug, Clone)]
pub struct Principal {
    key: Arc<AccessKey>,
}

/// The kinds of credential that doors distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    /// An agent's key.
    Agent,
    /// A task key.
    Task,
    /// An inbox key.
    Inbox,
    /// An operator's token, with its role.
    Operator(OperatorRole),
}

/// A call request from a principal.
#[derive(Debug)]
pub struct CallRequest {
    /// The principal that makes the request.
    pub principal: Principal,
    /// The door it came through, for the audit log.
    pub door: &'static str,
    /// The HTTP or MCP request that carries it.
    pub request: RequestId,
    /// The session it names, if the door has already read it, after the last byte of the request arrived.
    pub session: Option<Session>,
    /// The call options.
    pub wish: CallOptions,
}

/// A call as the agent states it.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallOptions {
    /// The capability: `email.send`, or `custom:<tool>` with `mode: check`.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// The arguments of the capability.
    #[serde(default = "empty")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub arguments: Value,
    /// The account of the service.
    #[serde(default)]
    pub account: Option<String>,
    /// The session, as issued by the gateway.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_id: Option<SessionId>,
    /// The idempotency key: a repeated call with the same key is the same call, for 30 days.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// The reason in the agent's words. Shown to people as such.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether the gateway carries out the call, or only says whether the caller may.
    #[serde(default)]
    pub mode: CallMode,
    /// How long to wait for the outcome, in milliseconds.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// Allows a second identical call shortly after the first.
    #[serde(default)]
    pub allow_duplicate: bool,
    /// Whether the idempotency key was set by a door, not by the agent: such a key does not mean that a second call is
    /// intended.
    #[serde(skip)]
    pub named: bool,
}

/// Who carries out a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallMode {
    /// The gateway carries it out.
    #[default]
    Execute,
    /// The caller carries it out, if it may.
    Check,
}

/// A call whose agent and session are known.
#[derive(Debug)]
pub struct IdentifiedCall {
    call: CallId,
    agent: AgentName,
    session: Option<Session>,
    door: &'static str,
    request: RequestId,
    wish: CallOptions,
    spawn: Option<SpawnOptions>,
}

/// What the audit log needs to know about a call, however it ends.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The call.
    pub call: CallId,
    /// The agent.
    pub agent: AgentName,
    /// The session.
    pub session: Option<SessionId>,
    /// The capability.
    pub capability: CapabilityName,
    /// The request.
    pub request: RequestId,
    /// The door.
    pub door: &'static str,
}

const LONGEST_KEY: usize = 255;
const LONGEST_REASON: usize = 2_000;

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Authenticates a credential.
///
/// # Errors
/// When it is malformed, unknown, revoked or expired.
pub fn principal(gw: &Gateway, token: &str) -> Result<Principal, CallError> {
    let (kind, hash) = keys::hash_of(token).ok_or_else(|| CallError::new(Code::IdentityUnknown))?;
    let key = gw.keyring.find(&hash, gw.now()).map_err(CallError::new)?;
    let fits = match &key.kind {
        AccessKeyKind::Agent(_) => kind == keys::TokenKind::Agent,
        AccessKeyKind::Operator(..) => kind == keys::TokenKind::Operator,
        AccessKeyKind::Inbox(_) => kind == keys::TokenKind::Inbox,
        AccessKeyKind::Task(_) => kind == keys::TokenKind::Task,
    };
    if fits { Ok(Principal { key }) } else { Err(CallError::new(Code::IdentityUnknown)) }
}

/// The holder of a credential, by the hash of its text: for a browser that has signed in with it earlier.
///
/// # Errors
/// When the credential is unknown, revoked or expired now.
pub fn principal_of_key(gw: &Gateway, hash: &[u8; 32]) -> Result<Principal, CallError> {
    Ok(Principal { key: gw.keyring.find(hash, gw.now()).map_err(CallError::new)? })
}

/// Finds the session that a call names, and refuses an agent that a person has paused.
///
/// # Errors
/// When the principal is not an agent, is paused, or names a session that is not its own.
pub async fn recognise(gw: &Gateway, call_request: CallRequest) -> Result<IdentifiedCall, CallError> {
    let CallRequest { principal, door, request, session, wish } = call_request;
    let agent = principal.agent().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?.clone();
    if gw.keyring.is_paused(&agent) {
        return Err(CallError::new(Code::IdentityPaused));
    }
    if wish.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
        return Err(CallError::with_text(Code::SchemaBadName, "an idempotency key has 1 to 255 bytes"));
    }
    if wish.reason.as_ref().is_some_and(|reason| reason.chars().count() > LONGEST_REASON) {
        return Err(CallError::with_text(Code::SchemaWrongType, "a reason has at most 2000 characters"));
    }
    let session = match wish.session_id {
        None => None,
        Some(id) => {
            let session = match session.filter(|session| session.id == id) {
                Some(read) => Some(read),
                None => gw.store.session(id).await?,
            };
            let own = session.filter(|session| session.agent == agent && session.ended_at.is_none());
            Some(own.ok_or_else(|| CallError::new(Code::IdentitySession))?)
        }
    };
    Ok(IdentifiedCall { call: CallId::mint(gw.ids.as_ref()), agent, session, door, request, wish, spawn: None })
}

impl Principal {
    /// The agent, if the principal is an agent.
    #[must_use]
    pub fn agent(&self) -> Option<&AgentName> {
        match &self.key.kind {
            AccessKeyKind::Agent(name) => Some(name),
            AccessKeyKind::Operator(..) | AccessKeyKind::Inbox(_) | AccessKeyKind::Task(_) => None,
        }
    }

    /// The operator and their role, if the principal is an operator.
    #[must_use]
    pub fn operator(&self) -> Option<(&PersonName, OperatorRole)> {
        match &self.key.kind {
            AccessKeyKind::Operator(name, role) => Some((name, *role)),
            AccessKeyKind::Agent(_) | AccessKeyKind::Inbox(_) | AccessKeyKind::Task(_) => None,
        }
    }

    /// The actor for the audit log; nothing for an inbox key or a task key, which act for nobody.
    #[must_use]
    pub fn actor(&self) -> Option<Actor> {
        match &self.key.kind {
            AccessKeyKind::Agent(name) => Some(Actor::Agent(name.clone())),
            AccessKeyKind::Operator(name, _) => Some(Actor::Operator(name.clone())),
            AccessKeyKind::Inbox(_) | AccessKeyKind::Task(_) => None,
        }
    }

    /// The inbox, if the principal is an inbox.
    #[must_use]
    pub fn inbox(&self) -> Option<&str> {
        match &self.key.kind {
            AccessKeyKind::Inbox(name) => Some(name),
            AccessKeyKind::Agent(_) | AccessKeyKind::Operator(..) | AccessKeyKind::Task(_) => None,
        }
    }

    /// The agent whose tasks it states, if the principal holds a task key.
    #[must_use]
    pub fn task_for(&self) -> Option<&AgentName> {
        match &self.key.kind {
            AccessKeyKind::Task(name) => Some(name),
            AccessKeyKind::Agent(_) | AccessKeyKind::Operator(..) | AccessKeyKind::Inbox(_) => None,
        }
    }

    /// The kind of the credential.
    #[must_use]
    pub fn credential(&self) -> CredentialKind {
        match &self.key.kind {
            AccessKeyKind::Agent(_) => CredentialKind::Agent,
            AccessKeyKind::Operator(_, role) => CredentialKind::Operator(*role),
            AccessKeyKind::Inbox(_) => CredentialKind::Inbox,
            AccessKeyKind::Task(_) => CredentialKind::Task,
        }
    }

    /// The label of the client that holds the credential: the first 12 hex digits of its hash.
    #[must_use]
    pub fn client_id(&self) -> String {
        keys::label(&self.key.hash)
    }

    /// The id of the credential.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.key.id
    }

    /// Checks the credential again, with the changes of other nodes: a body may arrive long after its head.
    ///
    /// # Errors
    /// When it was revoked or has expired meanwhile, or the credentials cannot be read.
    pub async fn recheck_credential(&self, gw: &Gateway, store: &Store) -> Result<(), CallError> {
        gw.keyring.follow(store).await?;
        gw.keyring.find(&self.key.hash, gw.now()).map(|_| ()).map_err(CallError::new)
    }

    /// Whether the credential is still valid on every node. False if that cannot be found out.
    pub async fn is_still_valid(&self, gw: &Gateway) -> bool {
        self.recheck_credential(gw, &gw.store).await.is_ok()
    }

    /// When the credential expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<sluice_core::UtcMillis> {
        self.key.expires_at
    }
}

impl IdentifiedCall {
    /// An agent's call that a person has changed. The agent and its session were identified when it made the call.
    pub fn on_behalf(gw: &Gateway, agent: AgentName, session: Option<Session>, wish: CallOptions) -> Self {
        let (call, request) = (CallId::mint(gw.ids.as_ref()), RequestId::mint(gw.ids.as_ref()));
        Self { call, agent, session, door: "people", request, wish, spawn: None }
    }

    /// The same call, requested as a spawn with these options.
    pub fn spawned(self, spawn: Option<SpawnOptions>) -> Self {
        Self { spawn, ..self }
    }

    /// Replaces the spawn by the operation that it names.
    pub(super) fn spawn(&mut self, capability: CapabilityName, arguments: Value, options: SpawnOptions) {
        (self.wish.capability, self.wish.arguments, self.spawn) = (capability, arguments, Some(options));
    }

    /// The spawn options, if the call is a spawn.
    pub(crate) fn spawn_options(&self) -> Option<&SpawnOptions> {
        self.spawn.as_ref()
    }

    /// A call that an agent planned earlier. It has no session, and passes every room as if the agent made it now.
    pub(crate) fn planned(gw: &Gateway, agent: AgentName, wish: CallOptions) -> Self {
        let (call, request) = (CallId::mint(gw.ids.as_ref()), RequestId::mint(gw.ids.as_ref()));
        Self { call, agent, session: None, door: "scheduler", request, wish, spawn: None }
    }

    /// The call's id.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// What the audit log needs to know about the call.
    #[must_use]
    pub fn trace(&self) -> CallContext {
        CallContext {
            call: self.call,
            agent: self.agent.clone(),
            session: self.session.as_ref().map(|session| session.id),
            capability: self.wish.capability.clone(),
            request: self.request,
            door: self.door,
        }
    }

    /// The door it came through.
    #[must_use]
    pub fn door(&self) -> &'static str {
        self.door
    }

    /// The agent that makes the call.
    #[must_use]
    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The session, if the call names one.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// The call as the agent states it.
    #[must_use]
    pub fn wish(&self) -> &CallOptions {
        &self.wish
    }

    pub(crate) fn take_arguments(&mut self) -> Value {
        self.wish.arguments.take()
    }
}
