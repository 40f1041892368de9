//! Held writes, for people: looking, stopping, waiting longer, letting go, settling what only people know.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::hold::Hold;
use sluice_core::ids::{MessageId, SessionId};
use sluice_core::refusal::Code;
use sluice_core::{Actor, AgentName, ApprovalId, CallId, HoldId, Span, Timestamp};
use sluice_store::{HoldFilter, Settle, Timing, Word};

use super::calls::{filter, stop};
use super::reply::Reply;
use super::route::Visit;
use super::views::failing::{self, Audience};
use super::views::{HoldView, Page};
use crate::rooms::rollback::{self, ChosenWrites};
use crate::rooms::{answer, policy};
use crate::{Gateway, No};

/// The longest a write is held longer in one go.
const LONGEST: Span = Span::from_hours(24);
/// Most writes taken back in one go.
const MOST: usize = 1_000;

/// A page of held writes, the newest first.
pub(super) async fn page(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let after: Option<HoldId> = visit.asked("cursor")?;
    let found = visit.store.holds_page(filter(&visit)?, after, limit + 1).await?;
    let views = failing::listed(&visit.store, &found, audience(&visit)).await?;
    Ok(Reply::json(200, &Page::of(views, limit, |view: &HoldView| view.buffer_id.clone())))
}

/// `GET /v1/holds/{buffer_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let hold = find(&visit).await?;
    let targets = visit.store.targets_of(hold.id).await?;
    let failing = failing::failing(&visit.store, &hold, audience(&visit)).await?;
    Ok(Reply::json(200, &HoldView { failing, ..HoldView::whole(&hold, targets) }))
}

/// Who asks: only people are shown what a service said.
pub(super) fn audience(visit: &Visit) -> Audience {
    match visit.who.as_ref().is_some_and(|who| who.operator().is_some()) {
        true => Audience::Person,
        false => Audience::Agent,
    }
}

/// `POST /v1/holds/{buffer_id}/cancel`.
pub(super) async fn cancel(visit: Visit) -> Result<Reply, No> {
    stop(&visit.gw, visit.part("buffer_id")?, visit.actor()?).await
}

/// How much longer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// In seconds, at most a day.
    pub seconds: u64,
}

/// `POST /v1/holds/{buffer_id}/extend`.
pub(super) async fn extend(mut visit: Visit) -> Result<Reply, No> {
    let Extend { seconds } = visit.take()?;
    let span = Span::from_secs(seconds);
    if seconds == 0 || span > LONGEST {
        return Err(No::saying(Code::DoorParameter, "a write is held longer by 1 second to 24 hours"));
    }
    retime(&visit, Timing::Longer(span)).await
}

/// `POST /v1/holds/{buffer_id}/send-now`.
pub(super) async fn send_now(visit: Visit) -> Result<Reply, No> {
    retime(&visit, Timing::Now).await
}

async fn retime(visit: &Visit, timing: Timing) -> Result<Reply, No> {
    let id: HoldId = visit.part("buffer_id")?;
    let hold = match visit.gw.store.retime(id, visit.actor()?, timing).await.map_err(missing) {
        Ok(hold) => hold,
        Err(no) if no.refusal.code() == Code::HoldTooLate => return Err(over(&visit.gw, id, no).await),
        Err(no) => return Err(no),
    };
    match timing {
        Timing::Now => {
            visit.gw.forget_window(id);
            visit.gw.due.notify_one();
        }
        Timing::Longer(span) => {
            let left = crate::loops::release::due_at(&hold).map_or(span, |at: Timestamp| at.since(visit.gw.now()));
            visit.gw.opened_window(id, left);
        }
    }
    visit.gw.moved(id);
    Ok(Reply::json(200, &HoldView::of(&hold)))
}

/// What has become of a write to which nothing more can be done.
async fn over(gw: &Gateway, id: HoldId, no: No) -> No {
    match gw.store.hold(id).await {
        Ok(Some(hold)) => No::saying(Code::HoldTooLate, &format!("the write is already {}", answer::status(&hold))),
        Ok(None) | Err(_) => no,
    }
}

/// A person's word.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettleBody {
    /// `happened`, `again` or `give_up`.
    pub word: SettleWord,
    /// How they know, for `happened`.
    #[serde(default)]
    pub evidence: Option<String>,
    /// The version they saw.
    pub version: u64,
}

/// What a person can say about a write that cannot go on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleWord {
    /// It did happen.
    Happened,
    /// Try it again.
    Again,
    /// Give it up.
    GiveUp,
}

/// `POST /v1/holds/{buffer_id}/settle`.
pub(super) async fn settle(mut visit: Visit) -> Result<Reply, No> {
    let SettleBody { word, evidence, version } = visit.take()?;
    let hold = find(&visit).await?;
    let word = match word {
        SettleWord::Happened => Word::Happened { evidence: evidence.unwrap_or_else(|| "a person said so".into()) },
        SettleWord::Again => Word::Again,
        SettleWord::GiveUp => Word::GiveUp,
    };
    let hold = settled(&visit.gw, &hold, version, (word, visit.actor()?)).await?;
    Ok(Reply::json(200, &HoldView::of(&hold)))
}

/// Takes a person's word on a write they saw at this version.
pub(super) async fn settled(gw: &Gateway, hold: &Hold, version: u64, (word, by): (Word, Actor)) -> Result<Hold, No> {
    let tier = policy::look_again(gw, hold).await?.tier;
    let ids = gw.ids.as_ref();
    let settle = Settle {
        hold: hold.id,
        version,
        by,
        word,
        tier,
        approval: ApprovalId::mint(ids),
        message: MessageId::mint(ids),
        expiry: gw.config.approvals.expiry,
    };
    let hold = gw.store.settle(settle).await.map_err(missing)?;
    gw.moved(hold.id);
    gw.due.notify_one();
    Ok(hold)
}

/// Which writes to take back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// These writes.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub buffer_ids: Vec<HoldId>,
    /// Or everything this agent did.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentName>,
    /// Since then (RFC 3339 or milliseconds since 1970).
    #[serde(default)]
    pub since_ms: Option<i64>,
    /// Only those of this session. Needs `agent`.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub session_id: Option<SessionId>,
    /// Only say what would happen.
    #[serde(default)]
    pub plan_only: bool,
    /// Take back also what was changed since, where the plan says that this can be done and what it would change.
    #[serde(default)]
    pub force: bool,
}

/// What taking back does, or would do.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Undone {
    /// Each write, the latest first.
    pub steps: Vec<rollback::Step>,
    /// The held writes that take them back.
    pub buffer_ids: Vec<String>,
}

/// `POST /v1/rollbacks`.
pub(super) async fn undo(mut visit: Visit) -> Result<Reply, No> {
    let undo: Undo = visit.take()?;
    let gw = &visit.gw;
    let chosen = chosen(gw, &undo).await?;
    let (steps, made) = if undo.plan_only {
        (rollback::plan_all(gw, &chosen).await?, Vec::new())
    } else {
        rollback::take_all_back(gw, &chosen, &visit.actor()?).await?
    };
    let status = if made.is_empty() { 200 } else { 202 };
    let buffer_ids = made.iter().map(ToString::to_string).collect();
    Ok(Reply::json(status, &Undone { steps, buffer_ids }))
}

/// The writes meant, oldest first.
async fn chosen(gw: &Gateway, undo: &Undo) -> Result<ChosenWrites, No> {
    if undo.buffer_ids.is_empty() == undo.agent.is_none() {
        return Err(No::saying(Code::DoorParameter, "name writes by `buffer_ids`, or an `agent` with `since_ms`"));
    }
    let (mut holds, mut client_writes) = (Vec::new(), Vec::new());
    for id in &undo.buffer_ids {
        // A call that a client carried out itself may have a held question of the same number.
        match gw.store.client_write(CallId::from_bits(id.bits())).await? {
            Some(write) => client_writes.push(write),
            None => holds.push(gw.store.hold(*id).await?.ok_or_else(|| No::new(Code::HoldNotFound))?),
        }
    }
    if let Some(agent) = &undo.agent {
        let since = undo.since_ms.ok_or_else(|| No::saying(Code::DoorParameter, "say since when: `since_ms`"))?;
        // By when they were done, not by when they were asked for: a write may have waited for a person in between.
        let ended_since = Some(Timestamp::from_millis(since));
        let mut after = None;
        loop {
            let (agent, session) = (Some(agent.clone()), undo.session_id);
            let filter = HoldFilter { agent, session, states: vec!["done"], ended_since, ..HoldFilter::default() };
            let page = gw.store.holds_page(filter, after, 200).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            holds.extend(page.into_iter().filter(|hold| hold.reverses.is_none()));
            if holds.len() > MOST {
                return Err(No::saying(Code::DoorParameter, "more than 1000 writes: choose a later moment"));
            }
        }
    }
    if let Some(agent) = &undo.agent {
        let since = Timestamp::from_millis(undo.since_ms.unwrap_or_default());
        let whose = (agent.clone(), undo.session_id);
        let most = u32::try_from(MOST).unwrap_or(u32::MAX);
        client_writes = gw.store.client_writes_since(whose, since, None, most).await?;
        if holds.len() + client_writes.len() >= MOST {
            return Err(No::saying(Code::DoorParameter, "more than 1000 writes: choose a later moment"));
        }
        holds.retain(|hold| !client_writes.iter().any(|write| write.call.bits() == hold.id.bits()));
    }
    holds.sort_by_key(|hold| hold.id);
    holds.dedup_by_key(|hold| hold.id);
    client_writes.sort_by_key(|write| write.call);
    client_writes.dedup_by_key(|write| write.call);
    Ok(ChosenWrites { holds, client_writes, force: undo.force })
}

pub(super) async fn find(visit: &Visit) -> Result<Hold, No> {
    let hold = visit.store.hold(visit.part("buffer_id")?).await?;
    hold.ok_or_else(|| No::new(Code::HoldNotFound))
}

fn missing(error: sluice_store::StoreError) -> No {
    match error {
        sluice_store::StoreError::NotFound { .. } => No::new(Code::HoldNotFound),
        other => other.into(),
    }
}
