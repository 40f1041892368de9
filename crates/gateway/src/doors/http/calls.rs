//! Calls: making one, asking how it stands, stopping it.

use sluice_core::audit::Entry;
use sluice_core::hold::Hold;
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName, CallId, HoldId, Span};
use sluice_store::{HoldFilter, Store};

use super::reply::Reply;
use super::route::Visit;
use super::views::{CallView, HoldView, Page};
use crate::corridor;
use crate::rooms::identity::{Knock, Wish};
use crate::rooms::{answer, hold};
use crate::services::about::About;
use crate::{Gateway, No};

/// `POST /v1/calls`.
pub(super) async fn make(mut visit: Visit) -> Result<Reply, No> {
    let mut wish: Wish = visit.take()?;
    if let Some(key) = visit.idempotency_key.take() {
        match &wish.idempotency_key {
            Some(other) if *other != key => {
                return Err(No::saying(Code::DoorHeaders, "header and body name different idempotency keys"));
            }
            Some(_) | None => wish.idempotency_key = Some(key),
        }
    }
    let knock = Knock { visitor: visit.visitor()?.clone(), door: "http", request: visit.request, session: None, wish };
    match corridor::walk(&visit.gw, knock).await {
        Ok(answer) => {
            let (status, view) = CallView::of(answer);
            Ok(Reply::json(status, &view))
        }
        Err(no) if no.refusal.code() == Code::PolicyBlocked => Ok(blocked(&no)),
        Err(no) => Err(no),
    }
}

/// A blocked call is an answer of the rules, not a fault of the request.
fn blocked(no: &No) -> Reply {
    let view = CallView {
        call_id: no.call.map(|call| call.to_string()).unwrap_or_default(),
        status: "blocked".into(),
        code: Some(no.refusal.code().as_str().into()),
        reason: Some(no.refusal.text().to_owned()),
        rule: no.rule.clone(),
        hint: Some(no.refusal.hint().to_owned()),
        ..CallView::default()
    };
    Reply::json(403, &view)
}

/// `GET /v1/calls/{call_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let call: CallId = visit.part("call_id")?;
    let gw = &visit.gw;
    let agent = visit.who.as_ref().and_then(|who| who.agent());
    Ok(Reply::json(200, &standing_over(gw, &visit.store, call, agent, visit.wait()?).await?))
}

/// How a call stands, after waiting for it as long as asked. An agent sees its own calls only.
///
/// # Errors
/// When there is no such call, or the database cannot be read.
pub(crate) async fn standing(
    gw: &Gateway,
    call: CallId,
    agent: Option<&AgentName>,
    wait: Span,
) -> Result<CallView, No> {
    standing_over(gw, &gw.store, call, agent, wait).await
}

async fn standing_over(
    gw: &Gateway,
    store: &Store,
    call: CallId,
    agent: Option<&AgentName>,
    wait: Span,
) -> Result<CallView, No> {
    let Some(hold) = own(store, call, agent).await? else { return ended(store, call, agent).await };
    let told = answer::wait_over(gw, store, call, hold.id, wait).await;
    let now = answer::present(store, store.hold(hold.id).await?.unwrap_or(hold)).await?;
    view_of(call, &now, told)
}

/// A call as its own resource: a no it ended with is part of it, not of this request.
fn view_of(call: CallId, hold: &Hold, told: Result<answer::Answer, No>) -> Result<CallView, No> {
    let capability = Some(hold.action.capability().to_string());
    match told {
        Ok(answer) => Ok(CallView { capability, ..CallView::of(answer).1 }),
        Err(no) if no.refusal.code().room() == "store" => Err(no),
        Err(no) => Ok(CallView {
            call_id: call.to_string(),
            status: answer::status(&hold.state).into(),
            buffer_id: Some(hold.id.to_string()),
            code: Some(no.refusal.code().as_str().into()),
            reason: Some(no.refusal.text().to_owned()),
            hint: Some(no.refusal.hint().to_owned()),
            capability,
            ..CallView::default()
        }),
    }
}

/// A call that ended at once is only in the record.
async fn ended(store: &Store, call: CallId, agent: Option<&AgentName>) -> Result<CallView, No> {
    let entries = store.call_entries(call).await?;
    let agent = agent.cloned().map(Actor::Agent);
    for (_, sealed) in entries {
        let Ok(Entry { fact, .. }) = serde_json::from_slice(&sealed.body) else { continue };
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
        return Ok(CallView {
            call_id: call.to_string(),
            status: status.into(),
            code,
            capability,
            ..CallView::default()
        });
    }
    Err(No::new(Code::CallNotFound))
}

/// `GET /v1/calls`: held writes of the agent, or of everyone for an operator.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    super::holds::page(visit).await
}

/// `POST /v1/calls/{call_id}/cancel`.
pub(super) async fn cancel(visit: Visit) -> Result<Reply, No> {
    let call: CallId = visit.part("call_id")?;
    let agent = visit.who.as_ref().and_then(|who| who.agent());
    // Not behind ordinary work: stopping always works.
    let hold = visit.gw.stop_lane().hold(HoldId::from_bits(call.bits())).await?;
    if hold.is_none_or(|hold| agent.is_some_and(|agent| agent != hold.agent())) {
        return Err(No::new(Code::CallNotFound));
    }
    stop(&visit.gw, HoldId::from_bits(call.bits()), visit.actor()?).await
}

/// Stops a write, or says that it is too late and what it is now.
pub(super) async fn stop(gw: &Gateway, hold: HoldId, by: Actor) -> Result<Reply, No> {
    Ok(Reply::json(200, &HoldView::of(&hold::stop(gw, hold, by).await?)))
}

/// The write of a call, if it has one and the agent, if it is one, made it.
///
/// # Errors
/// When the database cannot be read.
pub(crate) async fn own(store: &Store, call: CallId, agent: Option<&AgentName>) -> Result<Option<Hold>, No> {
    let hold = store.hold(HoldId::from_bits(call.bits())).await?;
    Ok(hold.filter(|hold| agent.is_none_or(|agent| agent == hold.agent())))
}

/// `GET /v1/capabilities`.
pub(super) async fn capabilities(visit: Visit) -> Result<Reply, No> {
    let about = about(&visit.gw);
    let category = visit.asked::<String>("category")?;
    let agent = visit.visitor()?.agent().ok_or_else(|| No::new(Code::IdentityWrongKind))?;
    let listed = about.capabilities(agent, category.as_deref(), visit.gw.now());
    Ok(Reply::json(200, &Page { data: listed, next_cursor: None, has_more: false }))
}

/// `GET /v1/whoami`.
pub(super) async fn whoami(visit: Visit) -> Result<Reply, No> {
    let visitor = visit.visitor()?;
    let gw = &visit.gw;
    let body = match (visitor.agent(), visitor.operator()) {
        (Some(agent), _) => serde_json::json!({
            "kind": "agent", "name": agent, "key_id": visitor.key(),
            "paused": gw.keyring.is_paused(agent), "folders": about(gw).folders_of(agent),
            "expires_at": visitor.expires_at().map(|at| at.to_string()),
            "observing_until": gw.keyring.observing(agent, gw.now()).map(|mode| mode.until.to_string()),
        }),
        (None, Some((person, role))) => serde_json::json!({
            "kind": "operator", "name": person, "role": super::views::role_word(role), "key_id": visitor.key(),
            "expires_at": visitor.expires_at().map(|at| at.to_string()),
        }),
        (None, None) => serde_json::json!({"kind": "inbox", "key_id": visitor.key()}),
    };
    Ok(Reply::json(200, &body))
}

fn about(gw: &Gateway) -> &About {
    &gw.about
}

/// Every state a held write can be in.
const STATES: [&str; 15] = [
    "awaiting_approval",
    "held",
    "ready",
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

/// What a filter of held writes looks for.
pub(super) fn filter(visit: &Visit) -> Result<HoldFilter, No> {
    let own = visit.visitor()?.agent().cloned();
    let asked = visit.asked::<AgentName>("agent")?;
    let agent = match (own, asked) {
        (Some(own), Some(asked)) if own != asked => return Err(No::new(Code::IdentityNotAllowed)),
        (Some(own), _) => Some(own),
        (None, asked) => asked,
    };
    let states = visit.asked::<String>("state")?.unwrap_or_default();
    let known = |word: &str| STATES.into_iter().find(|known| *known == word);
    let states = states.split(',').filter(|word| !word.is_empty()).map(known).collect::<Option<Vec<_>>>();
    let states = states
        .ok_or_else(|| No::saying(Code::DoorParameter, &format!("state is one or more of {}", STATES.join(", "))))?;
    Ok(HoldFilter {
        agent,
        service: visit.asked("service")?,
        states,
        session: visit.asked("session_id")?,
        ended_since: None,
        newest_first: true,
    })
}
