//! The MCP door: agents that speak the Model Context Protocol, on `/mcp`.
//!
//! Takes streamable HTTP requests of the revisions 2025-06-18, 2025-11-25 and 2026-07-28; gives the answers that the
//! official SDK makes from our tools. Promise: every request carries an agent's key, whatever session it names; a
//! session is only a name for a conversation, issued by the gateway and useless to other agents; headers and body must
//! agree; every call passes the corridor like one over HTTP.

mod call;
mod call_link;
mod client_lists;
mod companions;
mod find_tools;
mod handler;
pub mod names;
mod output_schema;
mod pages;
mod permission;
mod recent;
mod results;
mod server_result;
mod stream;
mod tasks;
mod tools;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use sluice_core::AgentName;
use sluice_core::ids::{RequestId, SessionId};
use sluice_core::refusal::Code;
use sluice_gateway::Gateway;
use sluice_gateway::rooms::hold::LONGEST_WAIT;
use sluice_gateway::rooms::identity::{CallOptions, CallRequest, Principal};
use sluice_services::CallError;
use sluice_services::value::at;
use sluice_store::Session;
use tokio::time::timeout;

use self::client_lists::ClientToolLists;
use self::handler::McpHandler;
use self::names::LiveToolNames;
use super::http::reply::{HttpReply, HttpReplyBody};
use super::http::route::RouteAccess;
use super::http::{check_access, check_host, check_origin, parse_body, read_bytes, text_header};

/// The path of the door.
pub(crate) const PATH: &str = "/mcp";
/// The first revision without sessions.
const STATELESS: &str = "2026-07-28";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Headers that a request carries at most once.
const ONCE: [&str; 5] = ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", JOINED];
/// The header that names the session in which the hooks of the same client work.
const JOINED: &str = "sluice-session";
/// Longest client name that is kept, in characters.
const LONGEST_CLIENT: usize = 100;

/// The sender of a request, and the conversation it belongs to.
#[derive(Debug)]
struct McpCaller {
    principal: Principal,
    agent: AgentName,
    session: Option<Session>,
    /// The session of the conversation itself, whatever session its calls were joined to.
    conversation: Option<SessionId>,
    request: RequestId,
}

impl McpCaller {
    /// Makes a call request of this guest.
    fn call_request(&self, wish: CallOptions) -> CallRequest {
        let (principal, session) = (self.principal.clone(), self.session.clone());
        CallRequest { principal, door: "mcp", request: self.request, session, wish }
    }

    /// The guest as a reader of the list of tools.
    fn viewer<'a>(&'a self, client: Option<&'a str>, lists: &ClientToolLists) -> tools::ToolListViewer<'a> {
        let found = lists.found(&self.list_owner(client));
        tools::ToolListViewer { agent: &self.agent, client, has_session: self.session.is_some(), found }
    }

    /// Whose list of tools it is: that of the conversation; without one, that of a client program with this key.
    fn list_owner(&self, client: Option<&str>) -> String {
        match self.conversation {
            Some(session) => session.to_string(),
            None => format!("{} {}", self.principal.key(), client.unwrap_or_default()),
        }
    }
}

/// The door.
pub(crate) struct McpDoor {
    gw: Arc<Gateway>,
    names: Arc<LiveToolNames>,
    lists: Arc<ClientToolLists>,
    service: StreamableHttpService<McpHandler, NeverSessionManager>,
}

impl std::fmt::Debug for McpDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mcp")
    }
}

impl McpDoor {
    /// Makes the door of a gateway.
    pub fn new(gw: &Arc<Gateway>) -> Self {
        let names = Arc::new(LiveToolNames::new(Arc::clone(&gw.catalogue)));
        let lists = Arc::new(ClientToolLists::new(gw.now()));
        let (kept, shared) = (Arc::clone(&names), Arc::clone(&lists));
        let handler = McpHandler { gw: Arc::clone(gw), names: kept, lists: shared, recent: Arc::default() };
        let limit = usize::try_from(gw.config.limits.body.as_bytes()).unwrap_or(usize::MAX);
        let config = StreamableHttpServerConfig::default()
            // Conversations are kept in the store, where they survive a restart and belong to an agent.
            .with_legacy_session_mode(false)
            .with_json_response(true)
            // Host and origin were checked before, by the rules of the whole listener.
            .disable_allowed_hosts()
            .with_max_request_body_bytes(limit);
        let sessions = Arc::new(NeverSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
        Self { gw: Arc::clone(gw), names, lists, service }
    }

    /// Handles one request.
    pub async fn visit(&self, request: Request<Incoming>, id: RequestId) -> Result<Response<HttpReplyBody>, CallError> {
        let gw = &self.gw;
        let (head, body) = request.into_parts();
        check_host(gw, &head.headers)?;
        if !is_own_origin(&head.headers) {
            check_origin(gw, &head.headers)?;
        }
        let principal = check_access(gw, &gw.store, RouteAccess::Agent, &head.headers).await?;
        let principal = principal.ok_or_else(|| CallError::new(Code::IdentityMissing))?;
        let agent = principal.agent().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?.clone();
        for name in ONCE {
            text_header(&head.headers, name)?;
        }
        // SECURITY: while a body arrives, the key may be revoked and the session may end or be tainted.
        let bytes = if head.method == Method::POST { read_bytes(gw, &head.headers, body).await? } else { Bytes::new() };
        principal.recheck_credential(gw, &gw.store).await?;
        let guest = match session(gw, &head.headers, &agent).await? {
            Some(Ok(session)) => {
                let conversation = Some(session.id);
                McpCaller { principal, agent, session: Some(session), conversation, request: id }
            }
            None => McpCaller { principal, agent, session: None, conversation: None, request: id },
            // The revision requires this status, so that the client initializes again.
            Some(Err(())) => return Ok(problem(404, -32001, "there is no such session; initialize again", id)),
        };
        let guest = if head.method == Method::POST { joined(gw, &head.headers, guest).await? } else { guest };
        match head.method {
            Method::POST => self.post(head, bytes, guest).await,
            Method::GET => stream::open(gw, (&self.names, &self.lists), &head.headers, guest),
            Method::DELETE => end(gw, guest).await,
            _ => Err(CallError::new(Code::DoorMethod)),
        }
    }

    async fn post(
        &self,
        mut head: http::request::Parts,
        bytes: Bytes,
        guest: McpCaller,
    ) -> Result<Response<HttpReplyBody>, CallError> {
        let gw = &self.gw;
        let id = guest.request;
        let value = match parse_body(&bytes) {
            Ok(value) => value,
            Err(no) => return Ok(problem(400, -32700, no.refusal.text(), id)),
        };
        if !value.is_object() {
            return Ok(problem(
                400,
                -32600,
                "a request is one JSON object; batches are not part of these revisions",
                id,
            ));
        }
        if let Some(why) = misnamed(&value) {
            // The SDK would report it as an unknown method.
            let body = json!({"jsonrpc": "2.0", "id": at(&value, "/id"), "error": {"code": -32602, "message": why}});
            return Ok(HttpReply::json(200, &body).into_response(id));
        }
        let opens = *at(&value, "/method") == "initialize";
        let client = at(&value, "/params/clientInfo/name").as_str().map(called);
        let agent = guest.agent.clone();
        head.extensions.insert(Arc::new(guest));
        let limit = (gw.config.limits.request_timeout + LONGEST_WAIT).as_duration();
        let request = Request::from_parts(head, Full::new(bytes));
        let Ok(response) = timeout(limit, self.service.handle(request)).await else {
            return Err(CallError::new(Code::GatewayUnavailable));
        };
        let mut response = response.map(|body| HttpReplyBody::Boxed(body.boxed()));
        if opens && response.status() == StatusCode::OK && !gw.keyring.is_paused(&agent) {
            let session = SessionId::mint(gw.ids.as_ref());
            gw.store.open_session(session, agent, client, None).await?;
            gw.signals.events.notify_written();
            if let Ok(value) = HeaderValue::from_str(&session.to_string()) {
                response.headers_mut().insert(SESSION, value);
            }
        }
        dress(&mut response, id);
        Ok(response)
    }
}

/// Whether the request comes from a page of this address. The host was checked before, so it is not another name.
fn is_own_origin(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else { return false };
    headers.get_all(header::ORIGIN).iter().count() == 1
        && ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host))
}

/// The conversation that a request names, if its revision has conversations.
async fn session(
    gw: &Gateway,
    headers: &HeaderMap,
    agent: &AgentName,
) -> Result<Option<Result<Session, ()>>, CallError> {
    let revision = text_header(headers, "mcp-protocol-version")?.unwrap_or_default();
    let Some(named) = text_header(headers, SESSION.as_str())? else { return Ok(None) };
    if revision >= STATELESS {
        return Ok(None);
    }
    let Ok(id) = named.parse::<SessionId>() else { return Ok(Some(Err(()))) };
    let found = gw.store.session(id).await?;
    // SECURITY: the session of another agent is as unknown as one that never existed.
    Ok(Some(found.filter(|session| session.agent == *agent && session.ended_at.is_none()).ok_or(())))
}

/// The guest in the session of its client's hooks, if it names an open one of its agent.
// SECURITY: this gives an agent nothing new: over HTTP it may name any open session of its own with each call. The task
// of a session is stated by others. A tainted conversation is not joined to another session, so that it cannot leave
// its taint behind.
async fn joined(gw: &Gateway, headers: &HeaderMap, guest: McpCaller) -> Result<McpCaller, CallError> {
    let Some(named) = text_header(headers, JOINED)? else { return Ok(guest) };
    let Ok(id) = named.parse::<SessionId>() else { return Ok(guest) };
    if guest.session.as_ref().is_some_and(|own| own.tainted_at.is_some()) {
        return Ok(guest);
    }
    let found = gw.store.session(id).await?;
    Ok(match found.filter(|session| session.agent == guest.agent && session.ended_at.is_none()) {
        Some(session) => McpCaller { session: Some(session), ..guest },
        None => guest,
    })
}

/// `DELETE`: ends the conversation.
async fn end(gw: &Gateway, guest: McpCaller) -> Result<Response<HttpReplyBody>, CallError> {
    let session = guest.session.ok_or_else(|| CallError::new(Code::IdentitySession))?;
    let by = guest.principal.actor().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?;
    gw.store.end_session(session.id, by).await?;
    gw.signals.events.notify_written();
    Ok(HttpReply::nothing().into_response(guest.request))
}

/// A client's name for itself, in the form in which it may be stored and shown.
fn called(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(LONGEST_CLIENT).collect()
}

/// The error in the parameters of a tool call, if there is one.
fn misnamed(message: &Value) -> Option<&'static str> {
    if *at(message, "/method") != "tools/call" {
        return None;
    }
    let arguments = at(message, "/params/arguments");
    if !at(message, "/params/name").is_string() {
        return Some("a tool call names its tool");
    }
    (!arguments.is_object() && !arguments.is_null()).then_some("the arguments of a tool are one JSON object")
}

/// A JSON-RPC error for a message that cannot be handled.
fn problem(status: u16, code: i32, text: &str, id: RequestId) -> Response<HttpReplyBody> {
    let body = json!({"jsonrpc": "2.0", "id": Value::Null, "error": {"code": code, "message": text}});
    HttpReply::json(status, &body).into_response(id)
}

/// Adds the headers that every answer of the listener has.
fn dress(response: &mut Response<HttpReplyBody>, id: RequestId) {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        headers.insert(HeaderName::from_static("x-request-id"), value);
    }
}

/// Bytes of a JSON-RPC notification, with the id that a client names when it comes back.
fn notification(method: &str, id: &str) -> Bytes {
    Bytes::from(format!("id: {id}\nevent: message\ndata: {}\n\n", json!({"jsonrpc": "2.0", "method": method})))
}

/// What one toolset costs an agent: for `sluice agents show`.
#[derive(Debug)]
pub(crate) struct AgentToolList {
    /// The toolset, in words.
    pub toolset: String,
    /// The clients in which the agent has it, by the start of their names. None for every other client.
    pub clients: Vec<String>,
    /// What a model pays for the list.
    pub budget: tools::ToolListBudget,
}

/// The lists of tools that an agent has in its clients.
///
/// # Errors
/// When the freezes cannot be read.
pub(crate) async fn lists_of(gw: &Gateway, agent: &AgentName) -> Result<Vec<AgentToolList>, CallError> {
    let settings = &gw.config.tools;
    let names = names::ToolNames::of(gw.catalogue.offered().iter().map(|spec| &spec.name));
    let mut by_set: Vec<(String, Option<String>, Vec<String>)> =
        vec![(settings.of(agent, None).to_string(), None, Vec::new())];
    if !settings.is_agent_named(agent) {
        for (client, set) in settings.clients.iter() {
            match by_set.iter_mut().skip(1).find(|(name, ..)| *name == set.to_string()) {
                Some((_, _, clients)) => clients.push(client.to_owned()),
                None => by_set.push((set.to_string(), Some(client.to_owned()), vec![client.to_owned()])),
            }
        }
    }
    let mut lists = Vec::new();
    for (toolset, client, clients) in by_set {
        let found = std::collections::BTreeSet::new();
        let viewer = tools::ToolListViewer { agent, client: client.as_deref(), has_session: true, found };
        let budget = tools::budget(&tools::list(gw, &names, viewer).await?);
        lists.push(AgentToolList { toolset, clients, budget });
    }
    Ok(lists)
}
