//! Dead letters: writes that ended without their effect, by what they died of, and what people do about them.
//!
//! Promise: a retry gets another window and is judged again; an edited one is a new call through the corridor, and
//! the old one is given up only once the new one is on record.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId};
use sluice_store::{HoldFilter, Word};

use super::holds::{audience, find, settled};
use super::reply::Reply;
use super::route::Visit;
use super::views::failing;
use super::views::{CallView, HoldView, Page};
use crate::rooms::identity::{Known, Mode, Wish};
use crate::{Gateway, No, corridor, services};

/// Most dead letters that are looked through at once.
const MOST: usize = 10_000;
/// Most that are named in a group.
const NAMED: usize = 100;

/// Dead letters of one cause.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CauseView {
    /// What they died of: `email.send:egress.dns`.
    pub cause: String,
    /// What was to be done.
    pub capability: String,
    /// At which service.
    pub service: String,
    /// Why it was not, as a stable code.
    pub code: String,
    /// The same in words.
    pub why: String,
    /// How many.
    pub count: usize,
    /// When the first of them was given up.
    pub since: String,
    /// When the last of them was.
    pub until: String,
    /// What the service said to the last of them, screened and cut to length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_says: Option<String>,
    /// Their ids, the oldest first, a hundred at most.
    pub buffer_ids: Vec<String>,
}

/// What people say about dead letters of one cause.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByCause {
    /// Which cause.
    pub cause: String,
    /// Only the oldest: to see whether it works now.
    #[serde(default)]
    pub probe: bool,
}

/// New arguments for a dead letter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditBody {
    /// All of them.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub arguments: Value,
    /// The version that was seen.
    pub version: u64,
}

/// What became of an edited dead letter.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Edited {
    /// The new call.
    pub call: CallView,
    /// The dead letter, given up.
    pub replaced: HoldView,
}

/// `GET /v1/dead-letters`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let filter = HoldFilter { agent: visit.asked("agent")?, service: visit.asked("service")?, ..HoldFilter::default() };
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
        data.extend(view(cause, &holds).map(|group| CauseView { service_says, ..group }));
    }
    data.sort_by_key(|group| std::cmp::Reverse(group.count));
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: dead.len() >= MOST }))
}

fn view(cause: String, holds: &[&Hold]) -> Option<CauseView> {
    let (first, last) = (holds.first()?, holds.last()?);
    let code = code(first).to_owned();
    Some(CauseView {
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

async fn all(gw: &Gateway, filter: HoldFilter) -> Result<Vec<Hold>, No> {
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
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let hold = dead(&visit).await?;
    let targets = visit.gw.store.targets_of(hold.id).await?;
    let failing = failing::failing(&visit.gw.store, &hold, audience(&visit)).await?;
    Ok(Reply::json(200, &HoldView { failing, ..HoldView::whole(&hold, targets) }))
}

async fn dead(visit: &Visit) -> Result<Hold, No> {
    let hold = find(visit).await?;
    match hold.state {
        HoldState::Dead { .. } => Ok(hold),
        _ => Err(No::saying(Code::HoldNotFound, "this write is no dead letter")),
    }
}

/// `POST /v1/dead-letters/{buffer_id}/retry`.
pub(super) async fn retry(visit: Visit) -> Result<Reply, No> {
    say(&visit, Word::Again).await
}

/// `POST /v1/dead-letters/{buffer_id}/discard`.
pub(super) async fn discard(visit: Visit) -> Result<Reply, No> {
    say(&visit, Word::GiveUp).await
}

async fn say(visit: &Visit, word: Word) -> Result<Reply, No> {
    let hold = dead(visit).await?;
    let hold = settled(&visit.gw, &hold, hold.version, (word, visit.actor()?)).await?;
    Ok(Reply::json(200, &HoldView::of(&hold)))
}

/// `POST /v1/dead-letters/retry`.
pub(super) async fn retry_cause(visit: Visit) -> Result<Reply, No> {
    of_cause(visit, &Word::Again).await
}

/// `POST /v1/dead-letters/discard`.
pub(super) async fn discard_cause(visit: Visit) -> Result<Reply, No> {
    of_cause(visit, &Word::GiveUp).await
}

async fn of_cause(mut visit: Visit, word: &Word) -> Result<Reply, No> {
    let ByCause { cause: wanted, probe } = visit.take()?;
    let (gw, by): (_, Actor) = (&visit.gw, visit.actor()?);
    let dead = all(gw, HoldFilter::default()).await?;
    let most = if probe { 1 } else { MOST };
    let mut data = Vec::new();
    for hold in dead.iter().filter(|hold| cause(hold) == wanted).take(most) {
        // Somebody else may have settled one meanwhile: the rest are still meant.
        match settled(gw, hold, hold.version, (word.clone(), by.clone())).await {
            Ok(hold) => data.push(HoldView::of(&hold)),
            Err(no) if no.refusal.code() == Code::StoreConflict => {}
            Err(no) => return Err(no),
        }
    }
    if data.is_empty() {
        return Err(No::saying(Code::StoreNotFound, "there are no dead letters of this cause"));
    }
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// `POST /v1/dead-letters/{buffer_id}/edit`.
pub(super) async fn edit(mut visit: Visit) -> Result<Reply, No> {
    let EditBody { arguments, version } = visit.take()?;
    let (gw, old) = (&visit.gw, dead(&visit).await?);
    if old.version != version {
        return Err(No::new(Code::StoreConflict));
    }
    if services::is_elsewhere(&old.action) || old.reverses.is_some() {
        return Err(No::saying(Code::HoldTooLate, "only the write of an agent that the gateway carries out is edited"));
    }
    let answer = corridor::again(gw, anew(gw, &old, arguments).await?).await?;
    // On record now: the old one may go. Cut off in between, the same edit finds the same new call.
    let replaced = settled(gw, &old, version, (Word::GiveUp, visit.actor()?)).await?;
    let (_, call) = CallView::of(answer);
    Ok(Reply::json(202, &Edited { call, replaced: HoldView::of(&replaced) }))
}

/// The agent's call as the person worded it.
async fn anew(gw: &Gateway, old: &Hold, arguments: Value) -> Result<Known, No> {
    let session = match old.session {
        Some(id) => gw.store.session(id).await?,
        None => None,
    };
    let id: HoldId = old.id;
    let wish = Wish {
        capability: old.action.capability().clone(),
        arguments,
        account: old.action.account().map(str::to_owned),
        session_id: old.session,
        idempotency_key: Some(format!("dead:{id}:{}", old.version)),
        reason: None,
        mode: Mode::Execute,
        wait_ms: Some(0),
        allow_duplicate: true,
        named: false,
    };
    Ok(Known::on_behalf(gw, old.agent().clone(), session, wish).spawned(old.action.spawn().cloned()))
}
