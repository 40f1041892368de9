//! Questions and their answers. GET never decides.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::approval::allowance::{Allowance, Asker, Bounds, Covers, Scope, Session, Standing};
use sluice_core::approval::{Answer, Subject};
use sluice_core::ids::{AllowanceId, RuleId};
use sluice_core::refusal::Code;
use sluice_core::{AgentName, ApprovalId, HoldId, Span};
use sluice_store::{ApprovalFilter, Card, Choice, Decided, Decision, Ruling};

use super::reply::Reply;
use super::route::Visit;
use super::views::{ApprovalView, HoldView, Page};
use crate::{Gateway, No};

/// How long a yes for a session lasts, and how often it answers.
const SESSION: (Span, u32) = (Span::from_hours(1), 20);
/// How long a standing yes lasts.
const ALWAYS: Span = Span::from_hours(30 * 24);
/// Most writes of a card that are shown.
const SHOWN: usize = 100;

/// Every state a question can be in.
const STATES: [&str; 9] =
    ["pending", "approved", "consumed", "denied", "superseded", "expired", "withdrawn", "lapsed", "revoked"];

/// `GET /v1/approvals`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let after: Option<ApprovalId> = visit.asked("cursor")?;
    let state = match visit.asked::<String>("state")? {
        None => None,
        Some(word) => Some(
            STATES
                .into_iter()
                .find(|known| *known == word)
                .ok_or_else(|| No::saying(Code::SchemaWrongType, &format!("state is one of {}", STATES.join(", "))))?,
        ),
    };
    let filter = ApprovalFilter { state, agent: visit.asked::<AgentName>("agent")? };
    let found = visit.gw.store.approvals_page(filter, after, limit + 1).await?;
    let cards = found.into_iter().map(|approval| Card { approval, items: Vec::new() });
    let views = cards.map(|card| ApprovalView::of(&card, Vec::new())).collect();
    Ok(Reply::json(200, &Page::of(views, limit, |view: &ApprovalView| view.approval_id.clone())))
}

/// `GET /v1/approvals/{approval_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let card = find(&visit.gw, visit.part("approval_id")?).await?;
    let view = with_writes(&visit.gw, &card).await?;
    Ok(Reply::json(200, &view))
}

async fn with_writes(gw: &Gateway, card: &Card) -> Result<ApprovalView, No> {
    let mut writes = Vec::new();
    for item in card.items.iter().take(SHOWN) {
        if let Some(hold) = gw.store.hold(item.hold).await? {
            writes.push(HoldView::whole(&hold));
        }
    }
    Ok(ApprovalView::of(card, writes))
}

/// A decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// `approve`, `deny`, `session`, `always` for one write; `approve_all`, `approve_first`, `approve_these`, `deny`
    /// for a batch.
    pub decision: DecideWord,
    /// What the person writes along.
    #[serde(default)]
    pub note: Option<String>,
    /// How many writes they saw, for `approve_all`.
    #[serde(default)]
    pub seen: Option<u32>,
    /// How many, for `approve_first`.
    #[serde(default)]
    pub first: Option<u32>,
    /// Which, for `approve_these`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub buffer_ids: Vec<HoldId>,
    /// The digest of what they were shown, for one write.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub digest: Option<sluice_core::Digest>,
}

/// What a person can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecideWord {
    /// Yes, once.
    Approve,
    /// No.
    Deny,
    /// Yes, and for the rest of the session.
    Session,
    /// Yes, from now on.
    Always,
    /// All of a batch.
    ApproveAll,
    /// The first of a batch.
    ApproveFirst,
    /// Some of a batch.
    ApproveThese,
}

/// `POST /v1/approvals/{approval_id}/decision`.
pub(super) async fn decide(mut visit: Visit) -> Result<Reply, No> {
    let body: Decide = visit.take()?;
    let gw = std::sync::Arc::clone(&visit.gw);
    let card = find(&gw, visit.part("approval_id")?).await?;
    let ruling = ruling(&body)?;
    let allowance = allowance(&gw, &card, &body).await?;
    let denies = matches!(ruling, Ruling::Deny { .. });
    let decision = Decision {
        approval: card.approval.id,
        by: visit.actor()?,
        channel: "api".into(),
        ruling,
        shown: body.digest,
        allowance,
    };
    let decided = if denies { gw.stop_lane().decide(decision).await? } else { gw.store.decide(decision).await? };
    match decided {
        Decided::Now { approval, allowed, denied } => {
            for hold in &allowed {
                if let Some(row) = gw.store.hold(*hold).await? {
                    gw.opened_window(*hold, row.delay);
                }
            }
            allowed.iter().chain(&denied).for_each(|hold| gw.moved(*hold));
            gw.due.notify_one();
            let card = Card { approval, items: card.items };
            Ok(Reply::json(200, &with_writes(&gw, &card).await?))
        }
        Decided::Already(approval) => {
            let view = ApprovalView::of(&Card { approval, items: Vec::new() }, Vec::new());
            let by = view.decided_by.as_deref().unwrap_or("nobody");
            let at = view.decided_at.as_deref().unwrap_or("some time ago");
            let text = format!("already {} by {by} at {at}", view.status);
            Err(No { other: Some(view.approval_id.clone()), ..No::saying(Code::ApprovalAlreadyDecided, &text) })
        }
    }
}

fn ruling(body: &Decide) -> Result<Ruling, No> {
    let need = |what: &str| No::saying(Code::SchemaMissingArgument, &format!("this decision needs `{what}`"));
    let answer = |answer: Answer| {
        let answer = if body.note.is_some() && answer == Answer::Once { Answer::Note } else { answer };
        Ruling::Allow { answer, note: body.note.clone() }
    };
    Ok(match body.decision {
        DecideWord::Approve => answer(Answer::Once),
        DecideWord::Session => answer(Answer::Session),
        DecideWord::Always => answer(Answer::Always),
        DecideWord::Deny => Ruling::Deny { note: body.note.clone() },
        DecideWord::ApproveAll => Ruling::Choose(Choice::All { seen: body.seen.ok_or_else(|| need("seen"))? }),
        DecideWord::ApproveFirst => Ruling::Choose(Choice::First(body.first.ok_or_else(|| need("first"))?)),
        DecideWord::ApproveThese if body.buffer_ids.is_empty() => return Err(need("buffer_ids")),
        DecideWord::ApproveThese => Ruling::Choose(Choice::These(body.buffer_ids.clone())),
    })
}

/// The standing yes that `session` and `always` leave behind.
async fn allowance(gw: &Gateway, card: &Card, body: &Decide) -> Result<Option<Allowance>, No> {
    let scope_of = |hold: &sluice_core::hold::Hold| match body.decision {
        DecideWord::Session => hold.session.map(|session| Scope::Session { session: Session::Issued(session) }),
        DecideWord::Always => Some(Scope::Standing { rule: RuleId::mint(gw.ids.as_ref()) }),
        _ => None,
    };
    if !matches!(body.decision, DecideWord::Session | DecideWord::Always) || card.approval.subject == Subject::Batch {
        return Ok(None);
    }
    let first = card.items.first().ok_or_else(|| No::new(Code::ApprovalNotPossible))?;
    let hold = gw.store.hold(first.hold).await?.ok_or_else(|| No::new(Code::HoldNotFound))?;
    let scope = scope_of(&hold).ok_or_else(|| {
        No::saying(Code::ApprovalNotOffered, "the call has no session, so a yes for the session means nothing")
    })?;
    let now = gw.now();
    let (expires_at, uses_left) = match scope {
        Scope::Session { .. } => (now + SESSION.0, Some(SESSION.1)),
        Scope::Standing { .. } => (now + ALWAYS, None),
    };
    Ok(Some(Allowance {
        id: AllowanceId::mint(gw.ids.as_ref()),
        scope,
        asker: Asker::Agent(hold.agent().clone()),
        covers: Covers::Capability(hold.action.capability().clone()),
        bounds: Bounds { expires_at: Some(expires_at), uses_left, domains: None },
        given_at: now,
        standing: Standing::Active,
    }))
}

async fn find(gw: &Gateway, id: ApprovalId) -> Result<Card, No> {
    gw.store.approval(id).await?.ok_or_else(|| No::new(Code::ApprovalNotFound))
}

/// `GET /v1/allowances`.
pub(super) async fn allowances(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let found = visit.gw.store.allowances(limit).await?;
    let data: Vec<serde_json::Value> = found.iter().map(allowance_json).collect();
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

fn allowance_json(allowance: &Allowance) -> serde_json::Value {
    let covers = match &allowance.covers {
        Covers::ActionType(text) => text.clone(),
        Covers::Capability(name) => name.to_string(),
        Covers::Below(name) => format!("{name}.*"),
    };
    let asker = match &allowance.asker {
        Asker::Agent(name) => format!("agent:{name}"),
        Asker::Client(id) => format!("client:{id}"),
    };
    let (scope, rule_id) = match &allowance.scope {
        Scope::Session { .. } => ("session", None),
        Scope::Standing { rule } => ("always", Some(rule.to_string())),
    };
    serde_json::json!({
        "allowance_id": allowance.id, "rule_id": rule_id, "scope": scope, "asker": asker, "covers": covers,
        "given_at": allowance.given_at.to_string(),
        "expires_at": allowance.bounds.expires_at.map(|at| at.to_string()), "uses_left": allowance.bounds.uses_left,
        "active": allowance.standing == Standing::Active,
    })
}

/// `DELETE /v1/allowances/{allowance_id}`.
pub(super) async fn revoke(visit: Visit) -> Result<Reply, No> {
    visit.gw.store.revoke(visit.part("allowance_id")?, visit.actor()?).await?;
    visit.gw.events.wrote();
    Ok(Reply::nothing())
}
