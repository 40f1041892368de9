//! Held writes, for people: reading, cancelling, extending, releasing, and settling what only a person knows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::hold::Hold;
use sluice_core::ids::SessionId;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, CallId, HoldId, Millis, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::operating;
use sluice_gateway::rooms::rollback::{self, RollbackSelection};
use sluice_services::failing::FailureAudience;
use sluice_services::{CallError, failing};
use sluice_store::{HoldFilter, HoldSettlement, HoldTiming};

use super::calls::{filter, stop};
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{HoldView, ListPage, listed};

/// Most writes that one request can undo.
const MOST: usize = 1_000;

/// A page of held writes, the newest first.
pub(super) async fn page(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let after: Option<HoldId> = visit.query_param("cursor")?;
    let found = visit.store.holds_page(filter(&visit)?, after, limit + 1).await?;
    let views = listed::holds(&visit.store, &found, audience(&visit)).await?;
    Ok(HttpReply::json(200, &ListPage::of(views, limit, |view: &HoldView| view.buffer_id.clone())))
}

/// `GET /v1/holds/{buffer_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let hold = find(&visit).await?;
    let targets = visit.store.hold_targets(hold.id).await?;
    let failing = failing::failing(&visit.store, &hold, audience(&visit)).await?;
    Ok(HttpReply::json(200, &HoldView { failing, ..HoldView::whole(&hold, targets) }))
}

/// Who reads the answer: only people are shown what a service said.
pub(super) fn audience(visit: &RoutedRequest) -> FailureAudience {
    match visit.who.as_ref().is_some_and(|who| who.operator().is_some()) {
        true => FailureAudience::Person,
        false => FailureAudience::Agent,
    }
}

/// `POST /v1/holds/{buffer_id}/cancel`.
pub(super) async fn cancel(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    stop(&visit.gw, visit.path_param("buffer_id")?, visit.actor()?).await
}

/// How much longer a write is held.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendHoldBody {
    /// Seconds, at most a day.
    pub seconds: u64,
}

/// `POST /v1/holds/{buffer_id}/extend`.
pub(super) async fn extend(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ExtendHoldBody { seconds } = visit.parse_body()?;
    retime(&visit, HoldTiming::Longer(Millis::from_secs(seconds))).await
}

/// `POST /v1/holds/{buffer_id}/send-now`.
pub(super) async fn send_now(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    retime(&visit, HoldTiming::Now).await
}

async fn retime(visit: &RoutedRequest, timing: HoldTiming) -> Result<HttpReply, CallError> {
    let hold = operating::retime(&visit.gw, visit.path_param("buffer_id")?, visit.actor()?, timing).await?;
    Ok(HttpReply::json(200, &HoldView::of(&hold)))
}

/// A person's decision about a write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleHoldBody {
    /// `happened`, `again` or `give_up`.
    pub word: SettleKind,
    /// How the person knows, for `happened`.
    #[serde(default)]
    pub evidence: Option<String>,
    /// The version that the person saw.
    pub version: u64,
}

/// What a person can decide about a write that cannot continue without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleKind {
    /// The write happened.
    Happened,
    /// The write is tried again.
    Again,
    /// The write is given up.
    GiveUp,
}

/// `POST /v1/holds/{buffer_id}/settle`.
pub(super) async fn settle(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let SettleHoldBody { word, evidence, version } = visit.parse_body()?;
    let hold = find(&visit).await?;
    let word = match word {
        SettleKind::Happened => {
            HoldSettlement::Happened { evidence: evidence.unwrap_or_else(|| "confirmed by a person".into()) }
        }
        SettleKind::Again => HoldSettlement::Again,
        SettleKind::GiveUp => HoldSettlement::GiveUp,
    };
    let hold = operating::settle(&visit.gw, &hold, version, (word, visit.actor()?)).await?;
    Ok(HttpReply::json(200, &HoldView::of(&hold)))
}

/// The writes to undo.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoBody {
    /// The writes, by id.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub buffer_ids: Vec<HoldId>,
    /// Or all writes of this agent.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// Only writes since this time (RFC 3339 or milliseconds since 1970).
    #[serde(default)]
    pub since_ms: Option<i64>,
    /// Only writes of this session. Needs `agent`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_id: Option<SessionId>,
    /// Only report what would happen.
    #[serde(default)]
    pub plan_only: bool,
    /// Also undo writes whose objects have changed since, if the plan says that this is possible and what it would
    /// change.
    #[serde(default)]
    pub force: bool,
}

/// What an undo does, or would do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UndoView {
    /// The step for each write, the latest first.
    pub steps: Vec<rollback::RollbackStep>,
    /// The held writes that undo them.
    pub buffer_ids: Vec<String>,
}

/// `POST /v1/rollbacks`.
pub(super) async fn undo(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let undo: UndoBody = visit.parse_body()?;
    let gw = &visit.gw;
    let chosen = chosen(gw, &undo).await?;
    let (steps, made) = if undo.plan_only {
        (rollback::plan_all(gw, &chosen).await?, Vec::new())
    } else {
        rollback::take_all_back(gw, &chosen, &visit.actor()?).await?
    };
    let status = if made.is_empty() { 200 } else { 202 };
    let buffer_ids = made.iter().map(ToString::to_string).collect();
    Ok(HttpReply::json(status, &UndoView { steps, buffer_ids }))
}

/// The selected writes, oldest first.
async fn chosen(gw: &Gateway, undo: &UndoBody) -> Result<RollbackSelection, CallError> {
    if undo.buffer_ids.is_empty() == undo.agent.is_none() {
        return Err(CallError::with_text(
            Code::DoorParameter,
            "name writes by `buffer_ids`, or an `agent` with `since_ms`",
        ));
    }
    let (mut holds, mut client_writes) = (Vec::new(), Vec::new());
    for id in &undo.buffer_ids {
        // A call that a client carried out itself may have a held approval with the same number.
        match gw.store.client_write(CallId::from_bits(id.bits())).await? {
            Some(write) => client_writes.push(write),
            None => holds.push(gw.store.hold(*id).await?.ok_or_else(|| CallError::new(Code::HoldNotFound))?),
        }
    }
    if let Some(agent) = &undo.agent {
        let since = undo.since_ms.ok_or_else(|| {
            CallError::with_text(Code::DoorParameter, "`since_ms` is missing: name the start of the period")
        })?;
        // By the time they were done, not requested: a write may have waited for a person in between.
        let ended_since = Some(UtcMillis::from_millis(since));
        let mut after = None;
        loop {
            let (agent, session) = (Some(agent.clone()), undo.session_id);
            let filter = HoldFilter { agent, session, states: vec!["done"], ended_since, ..HoldFilter::default() };
            let page = gw.store.holds_page(filter, after, 200).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            holds.extend(page.into_iter().filter(|hold| hold.reverses.is_none()));
            if holds.len() > MOST {
                return Err(CallError::with_text(
                    Code::DoorParameter,
                    "more than 1000 writes: choose a later `since_ms`",
                ));
            }
        }
    }
    if let Some(agent) = &undo.agent {
        let since = UtcMillis::from_millis(undo.since_ms.unwrap_or_default());
        let whose = (agent.clone(), undo.session_id);
        let most = u32::try_from(MOST).unwrap_or(u32::MAX);
        client_writes = gw.store.client_writes_since(whose, since, None, most).await?;
        if holds.len() + client_writes.len() >= MOST {
            return Err(CallError::with_text(Code::DoorParameter, "more than 1000 writes: choose a later `since_ms`"));
        }
        holds.retain(|hold| !client_writes.iter().any(|write| write.call.bits() == hold.id.bits()));
    }
    holds.sort_by_key(|hold| hold.id);
    holds.dedup_by_key(|hold| hold.id);
    client_writes.sort_by_key(|write| write.call);
    client_writes.dedup_by_key(|write| write.call);
    Ok(RollbackSelection { holds, client_writes, force: undo.force })
}

pub(super) async fn find(visit: &RoutedRequest) -> Result<Hold, CallError> {
    let hold = visit.store.hold(visit.path_param("buffer_id")?).await?;
    hold.ok_or_else(|| CallError::new(Code::HoldNotFound))
}
