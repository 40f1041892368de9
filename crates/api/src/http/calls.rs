//! Calls: making a call, asking for its state, cancelling it.

use sluice_core::audit::AuditEntry;
use sluice_core::capability::{Capability, service_of};
use sluice_core::hold::Hold;
use sluice_core::read_trace::ReadTrace;
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName, CallId, CapabilityName, HoldId, Millis};
use sluice_gateway::rooms::identity::{CallOptions, CallRequest};
use sluice_gateway::rooms::{answer, client_writes, freeze, hold};
use sluice_gateway::{Gateway, corridor};
use sluice_services::about::AboutService;
use sluice_services::failing::{FailingView, FailureAudience, LastErrorView};
use sluice_services::{CallError, failing};
use sluice_store::{HoldFilter, Store};

use super::record_search::ReadTraceView;
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{CallView, HoldView, ListPage};

/// `POST /v1/calls`.
pub(super) async fn make(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let mut wish: CallOptions = visit.parse_body()?;
    if let Some(key) = visit.idempotency_key.take() {
        match &wish.idempotency_key {
            Some(other) if *other != key => {
                return Err(CallError::with_text(Code::DoorHeaders, "header and body name different idempotency keys"));
            }
            Some(_) | None => wish.idempotency_key = Some(key),
        }
    }
    let capability = wish.capability.clone();
    let call_request = CallRequest {
        principal: visit.principal()?.clone(),
        door: "http",
        request: visit.request,
        session: None,
        wish,
    };
    match corridor::walk(&visit.gw, call_request).await {
        Ok(answer) => {
            let (status, view) = CallView::of(answer);
            Ok(HttpReply::json(status, &view.noted(&visit.gw, visit.principal()?.agent(), &capability)))
        }
        Err(no) if no.refusal.code() == Code::PolicyBlocked => Ok(blocked(&no)),
        Err(no) => Err(no),
    }
}

/// A blocked call is an answer of the rules, not an error of the request.
fn blocked(no: &CallError) -> HttpReply {
    let view = CallView {
        call_id: no.call.map(|call| call.to_string()).unwrap_or_default(),
        status: "blocked".into(),
        code: Some(no.refusal.code().as_str().into()),
        reason: Some(no.refusal.text().to_owned()),
        rule: no.rule.clone(),
        hint: Some(no.refusal.hint().to_owned()),
        ..CallView::default()
    };
    HttpReply::json(403, &view)
}

/// `GET /v1/calls/{call_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let call: CallId = visit.path_param("call_id")?;
    let gw = &visit.gw;
    let agent = visit.who.as_ref().and_then(|who| who.agent());
    Ok(HttpReply::json(200, &call_status_from(gw, &visit.store, call, agent, visit.wait()?).await?))
}

/// The state of a call, after waiting for it as long as requested. An agent sees only its own calls.
///
/// # Errors
/// When there is no such call, or the database cannot be read.
pub(crate) async fn call_status(
    gw: &Gateway,
    call: CallId,
    agent: Option<&AgentName>,
    wait: Millis,
) -> Result<CallView, CallError> {
    call_status_from(gw, &gw.store, call, agent, wait).await
}

async fn call_status_from(
    gw: &Gateway,
    store: &Store,
    call: CallId,
    agent: Option<&AgentName>,
    wait: Millis,
) -> Result<CallView, CallError> {
    let Some(hold) = own(store, call, agent).await? else { return ended(gw, store, call, agent).await };
    let told = answer::wait_over(gw, store, call, hold.id, wait).await;
    let now = answer::follow_replacement(store, store.hold(hold.id).await?.unwrap_or(hold)).await?;
    let audience = if agent.is_some() { FailureAudience::Agent } else { FailureAudience::Person };
    let failing = failing::failing(store, &now, audience).await?;
    let mut view = CallView { failing, ..view_of(call, &now, told)? };
    if agent.is_none() && view.result.is_some() {
        view.read = given(store, call).await?;
    }
    Ok(view)
}

/// The audit entry of a read that a person had to allow.
async fn given(store: &Store, call: CallId) -> Result<Option<ReadTraceView>, CallError> {
    for (_, sealed) in store.call_entries(call).await? {
        let Ok(AuditEntry { fact, .. }) = serde_json::from_slice(&sealed.body) else { continue };
        if let Some(read) = ReadTrace::read(&fact.detail) {
            return Ok(Some(read.into()));
        }
    }
    Ok(None)
}

/// A call as a resource of its own: a refusal that ended the call is part of it, not of this request.
fn view_of(call: CallId, hold: &Hold, told: Result<answer::CallOutcome, CallError>) -> Result<CallView, CallError> {
    let capability = Some(hold.action.capability().to_string());
    match told {
        Ok(answer) => Ok(CallView { capability, ..CallView::of(answer).1 }),
        Err(no) if no.refusal.code().room() == "store" => Err(no),
        Err(no) if [Code::FreezeActive, Code::ServiceStopped].contains(&no.refusal.code()) => {
            frozen(call, no, capability)
        }
        Err(no) => Ok(CallView {
            call_id: call.to_string(),
            status: answer::status(hold).into(),
            buffer_id: Some(hold.id.to_string()),
            code: Some(no.refusal.code().as_str().into()),
            reason: Some(no.refusal.text().to_owned()),
            hint: Some(no.refusal.hint().to_owned()),
            capability,
            ..CallView::default()
        }),
    }
}

/// A call that is stopped by a freeze: earlier answers do not count while it lasts.
fn frozen(call: CallId, no: CallError, capability: Option<String>) -> Result<CallView, CallError> {
    if no.refusal.code().room() == "store" {
        return Err(no);
    }
    Ok(CallView {
        call_id: call.to_string(),
        status: "refused".into(),
        code: Some(no.refusal.code().as_str().into()),
        reason: Some(no.refusal.text().to_owned()),
        hint: Some(no.refusal.hint().to_owned()),
        capability,
        ..CallView::default()
    })
}

/// A call that ended at once is found only in the audit log.
async fn ended(gw: &Gateway, store: &Store, call: CallId, agent: Option<&AgentName>) -> Result<CallView, CallError> {
    let entries = store.call_entries(call).await?;
    let asker = agent;
    let agent = agent.cloned().map(Actor::Agent);
    for (_, sealed) in entries {
        let Ok(AuditEntry { fact, .. }) = serde_json::from_slice(&sealed.body) else { continue };
        let status = match (fact.kind.as_str(), fact.code.as_deref()) {
            ("call.answered", _) => "done",
            ("call.allowed", _) => "allowed",
            ("call.refused", Some("policy.blocked")) => "blocked",
            ("call.refused", _) => "refused",
            _ => continue,
        };
        if agent.as_ref().is_some_and(|agent| *agent != fact.actor) {
            continue;
        }
        let (code, capability) = (fact.code, fact.detail.get("capability").cloned());
        // An approval given before a freeze does not count while the freeze lasts.
        if let ("allowed", Some(asker)) = (status, asker) {
            let named = capability.as_deref().and_then(|name| CapabilityName::new(name).ok());
            let service = named
                .map(|name| gw.catalogue.known().get(&name).map_or_else(|| service_of(&name), Capability::service));
            let service = service.ok_or_else(|| CallError::new(Code::GatewayInternal))?;
            if let Err(no) = freeze::refuse(store, asker, &service).await {
                return frozen(call, no, capability);
            }
        }
        let read = ReadTrace::read(&fact.detail).filter(|_| asker.is_none()).map(ReadTraceView::from);
        let failing = mount_error(gw, call, capability.as_deref(), code.as_deref().filter(|_| status == "refused"));
        return Ok(CallView {
            failing,
            call_id: call.to_string(),
            status: status.into(),
            code,
            capability,
            read,
            ..CallView::default()
        });
    }
    Err(CallError::new(Code::CallNotFound))
}

/// What a mounted server said about a read that it did not answer, as long as this gateway remembers it.
fn mount_error(gw: &Gateway, call: CallId, capability: Option<&str>, code: Option<&str>) -> FailingView {
    let mount = capability.and_then(|name| name.split_once('.')).and_then(|(mount, _)| gw.mounts.get(mount));
    let said = mount.and_then(|mount| mount.words_about(call));
    let last_error = code.zip(said).map(|(code, (words, at))| LastErrorView {
        code: code.to_owned(),
        text: Code::from_code(code).map_or("the attempt failed", Code::meaning).to_owned(),
        service_says: Some(words),
        at: at.to_string(),
    });
    FailingView { retry: None, last_error }
}

/// A call that a client has carried out.
#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WrittenFilesBody {
    /// The capability that was allowed: `custom:write_file` or `custom:exec_cmd`.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// The arguments of the call that was allowed.
    pub arguments: serde_json::Map<String, serde_json::Value>,
}

/// The result of a report.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct WrittenFilesView {
    /// Whether contents were kept for such a call, and its files were checked now.
    pub seen: bool,
}

/// `POST /v1/written-files`.
pub(super) async fn written_files(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let WrittenFilesBody { capability, arguments } = visit.parse_body()?;
    let agent = visit.principal()?.agent().ok_or_else(|| CallError::new(Code::IdentityWrongKind))?.clone();
    let seen = client_writes::report(&visit.gw, &agent, &capability, &arguments).await?;
    Ok(HttpReply::json(200, &WrittenFilesView { seen }))
}

/// `GET /v1/calls`: held writes of the agent, or of all agents for an operator.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    super::holds::page(visit).await
}

/// `POST /v1/calls/{call_id}/cancel`.
pub(super) async fn cancel(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let call: CallId = visit.path_param("call_id")?;
    let agent = visit.who.as_ref().and_then(|who| who.agent());
    // Not queued behind ordinary work: stopping always works.
    let hold = visit.gw.stop_lane().hold(HoldId::from_bits(call.bits())).await?;
    if hold.is_none_or(|hold| agent.is_some_and(|agent| agent != hold.agent())) {
        return Err(CallError::new(Code::CallNotFound));
    }
    stop(&visit.gw, HoldId::from_bits(call.bits()), visit.actor()?).await
}

/// Stops a write, or reports that it is too late and the write's state.
pub(super) async fn stop(gw: &Gateway, hold: HoldId, by: Actor) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &HoldView::of(&hold::stop(gw, hold, by).await?)))
}

/// The write of a call, if it has one and, for an agent, if the agent made it.
///
/// # Errors
/// When the database cannot be read.
pub(crate) async fn own(store: &Store, call: CallId, agent: Option<&AgentName>) -> Result<Option<Hold>, CallError> {
    let hold = store.hold(HoldId::from_bits(call.bits())).await?;
    Ok(hold.filter(|hold| agent.is_none_or(|agent| agent == hold.agent())))
}

/// `GET /v1/capabilities`.
pub(super) async fn capabilities(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let about = about(&visit.gw);
    let category = visit.query_param::<String>("category")?;
    let listed = match visit.principal()?.agent() {
        Some(agent) => about.capabilities(agent, category.as_deref(), visit.gw.now()),
        None => about.offered(category.as_deref()),
    };
    Ok(HttpReply::json(200, &ListPage { data: listed, next_cursor: None, has_more: false }))
}

/// `GET /v1/whoami`.
pub(super) async fn whoami(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let principal = visit.principal()?;
    let gw = &visit.gw;
    let body = match (principal.agent(), principal.operator()) {
        (Some(agent), _) => serde_json::json!({
            "kind": "agent", "name": agent, "key_id": principal.key(),
            "paused": gw.keyring.is_paused(agent), "folders": about(gw).folders_of(agent),
            "expires_at": principal.expires_at().map(|at| at.to_string()),
            "observing_until": gw.keyring.observing(agent, gw.now()).map(|mode| mode.until.to_string()),
        }),
        (None, Some((person, role))) => serde_json::json!({
            "kind": "operator", "name": person, "role": super::views::role_word(role), "key_id": principal.key(),
            "expires_at": principal.expires_at().map(|at| at.to_string()),
        }),
        (None, None) => serde_json::json!({"kind": "inbox", "key_id": principal.key()}),
    };
    Ok(HttpReply::json(200, &body))
}

fn about(gw: &Gateway) -> &AboutService {
    &gw.about
}

/// Every state that a held write can be in.
const STATES: [&str; 16] = [
    "awaiting_approval",
    "held",
    "ready",
    "retrying",
    "preparing",
    "armed",
    "in_doubt",
    "needs_human",
    "stale",
    "done",
    "cancelled",
    "denied",
    "expired",
    "dead",
    "discarded",
    "blocked",
];

/// The filter of a list of held writes.
pub(super) fn filter(visit: &RoutedRequest) -> Result<HoldFilter, CallError> {
    let own = visit.principal()?.agent().cloned();
    let asked = visit.query_param::<AgentName>("agent")?;
    let agent = match (own, asked) {
        (Some(own), Some(asked)) if own != asked => return Err(CallError::new(Code::IdentityNotAllowed)),
        (Some(own), _) => Some(own),
        (None, asked) => asked,
    };
    let states = visit.query_param::<String>("state")?.unwrap_or_default();
    let known = |word: &str| STATES.into_iter().find(|known| *known == word);
    let states = states.split(',').filter(|word| !word.is_empty()).map(known).collect::<Option<Vec<_>>>();
    let states = states.ok_or_else(|| {
        CallError::with_text(Code::DoorParameter, &format!("state is one or more of {}", STATES.join(", ")))
    })?;
    // A write in state `retrying` is one that is ready again after a failure.
    let retrying_only = states.contains(&"retrying") && !states.contains(&"ready");
    let states = states.into_iter().map(|word| if word == "retrying" { "ready" } else { word }).collect();
    Ok(HoldFilter {
        agent,
        retrying_only,
        service: visit.query_param("service")?,
        states,
        session: visit.query_param("session_id")?,
        ended_since: None,
        newest_first: true,
    })
}
