//! Dead letters: writes that ended without their effect, grouped by cause, and what people can do about them.
//!
//! Promise: a retry gets another window and is judged again; an edited write is a new call through the corridor, and
//! the old one is given up only after the new one is recorded.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId};
use sluice_gateway::rooms::identity::{CallMode, CallOptions, IdentifiedCall};
use sluice_gateway::{Gateway, corridor, operating};
use sluice_services::{CallError, failing};
use sluice_store::{HoldFilter, HoldSettlement};

use super::holds::{audience, find};
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{CallView, HoldView, ListPage};

/// Most dead letters that one request reads.
const MOST: usize = 10_000;
/// Most dead letters that a group lists.
const NAMED: usize = 100;

/// Dead letters with one cause.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeadLetterCauseView {
    /// The cause: `email.send:egress.dns`.
    pub cause: String,
    /// The capability of the writes.
    pub capability: String,
    /// The service of the writes.
    pub service: String,
    /// Why they failed, as a stable code.
    pub code: String,
    /// Why they failed, as text.
    pub why: String,
    /// How many there are.
    pub count: usize,
    /// When the first of them became a dead letter.
    pub since: String,
    /// When the last of them became a dead letter.
    pub until: String,
    /// What the service answered to the last of them, screened and cut to length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_says: Option<String>,
    /// Their ids, oldest first, at most a hundred.
    pub buffer_ids: Vec<String>,
}

/// A decision about the dead letters of one cause.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterCauseBody {
    /// The cause.
    pub cause: String,
    /// Only the oldest one: to check whether it works now.
    #[serde(default)]
    pub probe: bool,
}

/// New arguments for a dead letter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditDeadLetterBody {
    /// All arguments.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub arguments: Value,
    /// The version that the person saw.
    pub version: u64,
}

/// The result of an edit.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EditedDeadLetterView {
    /// The new call.
    pub call: CallView,
    /// The old dead letter, given up.
    pub replaced: HoldView,
}

/// `GET /v1/dead-letters`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let filter = HoldFilter {
        agent: visit.query_param("agent")?,
        service: visit.query_param("service")?,
        ..HoldFilter::default()
    };
    let dead = all(&visit.gw, filter).await?;
    let mut causes: BTreeMap<String, Vec<&Hold>> = BTreeMap::new();
    for hold in &dead {
        causes.entry(cause(hold)).or_default().push(hold);
    }
    let mut data = Vec::new();
    for (cause, holds) in causes {
        let Some(last) = holds.last() else { continue };
        let failing = failing::failing(&visit.gw.store, last, audience(&visit)).await?;
        let service_says = failing.last_error.and_then(|error| error.service_says);
        data.extend(view(cause, &holds).map(|group| DeadLetterCauseView { service_says, ..group }));
    }
    data.sort_by_key(|group| std::cmp::Reverse(group.count));
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: dead.len() >= MOST }))
}

fn view(cause: String, holds: &[&Hold]) -> Option<DeadLetterCauseView> {
    let (first, last) = (holds.first()?, holds.last()?);
    let code = code(first).to_owned();
    Some(DeadLetterCauseView {
        cause,
        capability: first.action.capability().to_string(),
        service: first.service.to_string(),
        why: Code::from_code(&code).map_or("", Code::meaning).to_owned(),
        code,
        count: holds.len(),
        since: ended(first),
        until: ended(last),
        service_says: None,
        buffer_ids: holds.iter().take(NAMED).map(|hold| hold.id.to_string()).collect(),
    })
}

async fn all(gw: &Gateway, filter: HoldFilter) -> Result<Vec<Hold>, CallError> {
    let filter = HoldFilter { states: vec!["dead"], ..filter };
    let mut found: Vec<Hold> = Vec::new();
    while found.len() < MOST {
        let page = gw.store.holds_page(filter.clone(), found.last().map(|hold| hold.id), 500).await?;
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    Ok(found)
}

fn cause(hold: &Hold) -> String {
    format!("{}:{}", hold.action.capability(), code(hold))
}

fn code(hold: &Hold) -> &str {
    match &hold.state {
        HoldState::Dead { code, .. } => code,
        _ => "",
    }
}

fn ended(hold: &Hold) -> String {
    match &hold.state {
        HoldState::Dead { at, .. } => at.to_string(),
        _ => hold.admitted_at.to_string(),
    }
}

/// `GET /v1/dead-letters/{buffer_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let hold = dead(&visit).await?;
    let targets = visit.gw.store.hold_targets(hold.id).await?;
    let failing = failing::failing(&visit.gw.store, &hold, audience(&visit)).await?;
    Ok(HttpReply::json(200, &HoldView { failing, ..HoldView::whole(&hold, targets) }))
}

async fn dead(visit: &RoutedRequest) -> Result<Hold, CallError> {
    let hold = find(visit).await?;
    match hold.state {
        HoldState::Dead { .. } => Ok(hold),
        _ => Err(CallError::with_text(Code::HoldNotFound, "this write is not a dead letter")),
    }
}

/// `POST /v1/dead-letters/{buffer_id}/retry`.
pub(super) async fn retry(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    say(&visit, HoldSettlement::Again).await
}

/// `POST /v1/dead-letters/{buffer_id}/discard`.
pub(super) async fn discard(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    say(&visit, HoldSettlement::GiveUp).await
}

async fn say(visit: &RoutedRequest, word: HoldSettlement) -> Result<HttpReply, CallError> {
    let hold = dead(visit).await?;
    let hold = operating::settle(&visit.gw, &hold, hold.version, (word, visit.actor()?)).await?;
    Ok(HttpReply::json(200, &HoldView::of(&hold)))
}

/// `POST /v1/dead-letters/retry`.
pub(super) async fn retry_cause(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    of_cause(visit, &HoldSettlement::Again).await
}

/// `POST /v1/dead-letters/discard`.
pub(super) async fn discard_cause(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    of_cause(visit, &HoldSettlement::GiveUp).await
}

async fn of_cause(mut visit: RoutedRequest, word: &HoldSettlement) -> Result<HttpReply, CallError> {
    let DeadLetterCauseBody { cause: wanted, probe } = visit.parse_body()?;
    let (gw, by): (_, Actor) = (&visit.gw, visit.actor()?);
    let dead = all(gw, HoldFilter::default()).await?;
    let most = if probe { 1 } else { MOST };
    let mut data = Vec::new();
    for hold in dead.iter().filter(|hold| cause(hold) == wanted).take(most) {
        // Another person may have settled one meanwhile: the others are settled all the same.
        match operating::settle(gw, hold, hold.version, (word.clone(), by.clone())).await {
            Ok(hold) => data.push(HoldView::of(&hold)),
            Err(no) if no.refusal.code() == Code::StoreConflict => {}
            Err(no) => return Err(no),
        }
    }
    if data.is_empty() {
        return Err(CallError::with_text(Code::StoreNotFound, "there are no dead letters with this cause"));
    }
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// `POST /v1/dead-letters/{buffer_id}/edit`.
pub(super) async fn edit(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let EditDeadLetterBody { arguments, version } = visit.parse_body()?;
    let (gw, old) = (&visit.gw, dead(&visit).await?);
    if old.version != version {
        return Err(CallError::new(Code::StoreConflict));
    }
    if sluice_services::is_elsewhere(&old.action) || old.reverses.is_some() {
        return Err(CallError::with_text(
            Code::HoldTooLate,
            "only a write of an agent that the gateway itself carries out can be edited",
        ));
    }
    let answer = corridor::again(gw, resubmit(gw, &old, arguments).await?).await?;
    // The new call is recorded now, so the old one can be given up. After an interruption, the same edit finds the same
    // call.
    let replaced = operating::settle(gw, &old, version, (HoldSettlement::GiveUp, visit.actor()?)).await?;
    let (_, call) = CallView::of(answer);
    Ok(HttpReply::json(202, &EditedDeadLetterView { call, replaced: HoldView::of(&replaced) }))
}

/// The agent's call with the arguments that the person gave.
async fn resubmit(gw: &Gateway, old: &Hold, arguments: Value) -> Result<IdentifiedCall, CallError> {
    let session = match old.session {
        Some(id) => gw.store.session(id).await?,
        None => None,
    };
    let id: HoldId = old.id;
    let wish = CallOptions {
        capability: old.action.capability().clone(),
        arguments,
        account: old.action.account().map(str::to_owned),
        session_id: old.session,
        idempotency_key: Some(format!("dead:{id}:{}", old.version)),
        reason: None,
        mode: CallMode::Execute,
        wait_ms: Some(0),
        allow_duplicate: true,
        named: false,
    };
    Ok(IdentifiedCall::on_behalf(gw, old.agent().clone(), session, wish).spawned(old.action.spawn().cloned()))
}
