//! Questions and their answers. GET never decides.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::approval::Answer;
use sluice_core::approval::allowance::{Allowance, Asker, Covers, Scope, Session, Standing};
use sluice_core::refusal::Code;
use sluice_core::{AgentName, ApprovalId, HoldId};
use sluice_store::{ApprovalFilter, Card, Choice, Ruling, Store};

use super::channels;
use super::gate;
use super::reply::Reply;
use super::route::Visit;
use super::views::failing::{self, Audience};
use super::views::{ApprovalView, HoldView, Page, ReasonView};
use crate::gate::amending;
use crate::gate::deciding::{self, Heard, Question, Said, Voice};
use crate::{Gateway, No};

/// Most writes of a card in one answer; `from` gives the others.
const SHOWN: usize = 100;
/// Most bytes of actions in one answer, unless one alone is larger.
const LARGEST: usize = 8 << 20;
/// The longest note, in characters.
const LONGEST_NOTE: usize = 4_000;

/// Every state a question can be in.
const STATES: [&str; 9] =
    ["pending", "approved", "consumed", "denied", "superseded", "expired", "withdrawn", "lapsed", "revoked"];

/// `GET /v1/approvals`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    if visit.visitor()?.agent().is_some() {
        return gate::own(visit).await;
    }
    let limit = visit.limit()?;
    let after: Option<ApprovalId> = visit.asked("cursor")?;
    let state = state(&visit)?;
    let filter = ApprovalFilter { state, agent: visit.asked::<AgentName>("agent")? };
    let found = visit.store.approvals_page(filter, after, limit + 1).await?;
    let cards = found.into_iter().map(|approval| Card { approval, items: Vec::new() });
    let views = cards.map(|card| ApprovalView::of(&card, Vec::new())).collect();
    Ok(Reply::json(200, &Page::of(views, limit, |view: &ApprovalView| view.approval_id.clone())))
}

/// The state a list is filtered by.
pub(super) fn state(visit: &Visit) -> Result<Option<&'static str>, No> {
    let refuse = || No::saying(Code::DoorParameter, &format!("state is one of {}", STATES.join(", ")));
    match visit.asked::<String>("state")? {
        None => Ok(None),
        Some(word) => STATES.into_iter().find(|known| *known == word).map(Some).ok_or_else(refuse),
    }
}

/// `GET /v1/approvals/{approval_id}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    if visit.visitor()?.agent().is_some() {
        return gate::show(visit).await;
    }
    let id = named(&visit)?;
    gate::wait(&visit, id).await?;
    let card = find(&visit.store, id).await?;
    let from = visit.asked::<usize>("from")?.unwrap_or(0);
    let mut view = with_writes(&visit.gw, &visit.store, &card, from).await?;
    view.deliveries = channels::deliveries(&visit.gw, &visit.store, &card).await?;
    if card.approval.state.is_open() {
        let question = Question::read(&visit.gw, card.approval.id).await?;
        view.risk = Some(question.risk().as_str().to_owned());
        view.standing = question.offers.iter().zip(1..).map(|(offer, n)| offer.view(n)).collect();
    }
    Ok(Reply::json(200, &view))
}

/// A question with a page of its writes, whole, from this place on.
async fn with_writes(gw: &Gateway, store: &Store, card: &Card, from: usize) -> Result<ApprovalView, No> {
    let (mut writes, mut bytes) = (Vec::new(), 0);
    for item in card.items.iter().skip(from).take(SHOWN) {
        if let Some(hold) = store.hold(item.hold).await? {
            bytes += hold.action.bytes().len();
            if bytes > LARGEST && !writes.is_empty() {
                break;
            }
            let targets = store.targets_of(hold.id).await?;
            let reason = store.reason_of(hold.id).await?;
            let service = gw.services.for_service(&hold.service).ok();
            let about = service.map(|service| service.described(&hold.action)).unwrap_or_default();
            let failing = failing::failing(store, &hold, Audience::Person).await?;
            writes.push(HoldView { about, reason, failing, ..HoldView::whole(&hold, targets) });
        }
    }
    let mut view = ApprovalView::of(card, writes);
    view.asked_because = store.asked_because(card.approval.id).await?.iter().map(ReasonView::from).collect();
    if let Some(filed) = store.requested(card.approval.id).await? {
        view.request = Some(gate::wish(&filed));
    }
    Ok(view)
}

/// A decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    /// `approve`, `deny`, `session`, `always`, `modify` for one write or request; `choose` for a question with options;
    /// `approve_all`, `approve_first`, `approve_these`, `deny`
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
    /// The changed arguments, for `modify` of a write.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub arguments: Option<serde_json::Value>,
    /// The changed text, for `modify` of a request.
    #[serde(default)]
    pub text: Option<String>,
    /// Which of the bounds in `standing` an answer `session` or `always` has; 1, the narrowest, if left out.
    #[serde(default)]
    pub bound: Option<u32>,
    /// The digest of what they were shown, for one write.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub digest: Option<sluice_core::Digest>,
    /// The digests of the writes they were shown, for a batch. Nothing else is approved: if the card has grown since,
    /// the decision is refused with `approval.grown`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub digests: Vec<sluice_core::Digest>,
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
    /// Something else instead: other arguments of a write, or another text of a request.
    Modify,
    /// One of the choices of a question, by its letter in `note`, or an answer of one's own there.
    Choose,
}

/// `POST /v1/approvals/{approval_id}/decision`.
pub(super) async fn decide(mut visit: Visit) -> Result<Reply, No> {
    let mut body: Decide = visit.take()?;
    if body.note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
        return Err(No::saying(Code::DoorParameter, "a note has at most 4000 characters"));
    }
    if body.bound.is_some() && !matches!(body.decision, DecideWord::Session | DecideWord::Always) {
        return Err(No::saying(Code::DoorParameter, "a bound belongs to `session` or `always`"));
    }
    whole(&body)?;
    let gw = std::sync::Arc::clone(&visit.gw);
    // A no must not wait for ordinary work, neither before it counts nor after.
    let store = gw.store.asked_to_stop();
    let question = Question::read(&gw, named(&visit)?).await?;
    let heard = if body.decision == DecideWord::Modify && question.filed.is_none() {
        let arguments = body.arguments.take().ok_or_else(|| need("arguments"))?;
        amending::amend(&gw, visit.actor()?, &question, arguments).await?
    } else {
        let voice = Voice { by: visit.actor()?, channel: "api", ceiling: None };
        let shown = body.digest.into_iter().chain(std::mem::take(&mut body.digests)).collect();
        let said = Said { ruling: ruling(&body)?, shown, bound: body.bound };
        deciding::rule(&gw, &voice, &question, said).await?
    };
    match heard {
        Heard::Decided { approval, .. } => {
            let card = Card { approval, items: question.card.items };
            Ok(Reply::json(200, &with_writes(&gw, &store, &card, 0).await?))
        }
        Heard::Waiting { .. } => Ok(Reply::json(202, &with_writes(&gw, &store, &question.card, 0).await?)),
        Heard::Late(approval) => {
            let text = format!("already {}", deciding::told(&approval));
            Err(No { other: Some(approval.id.to_string()), ..No::saying(Code::ApprovalAlreadyDecided, &text) })
        }
        Heard::Frozen(_) => Err(No::new(Code::ApprovalNotOffered)),
    }
}

/// The question that a path names. What looks like an id and is none of ours names nothing.
fn named(visit: &Visit) -> Result<ApprovalId, No> {
    visit.part("approval_id").map_err(|no: No| match visit.part::<String>("approval_id") {
        Ok(text) if text.starts_with("appr_") => No::new(Code::ApprovalNotFound),
        _ => no,
    })
}

fn need(what: &str) -> No {
    No::saying(Code::SchemaMissingArgument, &format!("this decision needs `{what}`"))
}

/// Refuses what an answer does not take: an approval that leaves out half of what was said is none. A denial counts.
fn whole(body: &Decide) -> Result<(), No> {
    let word = body.decision;
    let unwanted = [
        ("text", body.text.is_some() && word != DecideWord::Modify),
        ("arguments", body.arguments.is_some() && word != DecideWord::Modify),
        ("note", body.note.is_some() && word == DecideWord::Modify),
        ("first", body.first.is_some() && word != DecideWord::ApproveFirst),
        ("buffer_ids", !body.buffer_ids.is_empty() && word != DecideWord::ApproveThese),
    ];
    match unwanted.into_iter().find(|(_, there)| *there) {
        Some((name, _)) if word != DecideWord::Deny => Err(No::saying(
            Code::DoorParameter,
            &format!("this decision does not take `{name}`, so nothing was decided"),
        )),
        _ => Ok(()),
    }
}

fn ruling(body: &Decide) -> Result<Ruling, No> {
    let answer = |answer: Answer| {
        let answer = if body.note.is_some() && answer == Answer::Once { Answer::Note } else { answer };
        Ruling::Allow { answer, note: body.note.clone() }
    };
    Ok(match body.decision {
        DecideWord::Approve => answer(Answer::Once),
        DecideWord::Session => answer(Answer::Session),
        DecideWord::Always => answer(Answer::Always),
        DecideWord::Deny => Ruling::Deny { note: body.note.clone() },
        DecideWord::Modify => Ruling::Reword(body.text.clone().ok_or_else(|| need("text"))?),
        DecideWord::Choose => {
            Ruling::Allow { answer: Answer::Note, note: Some(body.note.clone().ok_or_else(|| need("note"))?) }
        }
        DecideWord::ApproveAll => Ruling::Choose(Choice::All { seen: body.seen.ok_or_else(|| need("seen"))? }),
        DecideWord::ApproveFirst => Ruling::Choose(Choice::First(body.first.ok_or_else(|| need("first"))?)),
        DecideWord::ApproveThese if body.buffer_ids.is_empty() => return Err(need("buffer_ids")),
        DecideWord::ApproveThese => Ruling::Choose(Choice::These(body.buffer_ids.clone())),
    })
}

async fn find(store: &Store, id: ApprovalId) -> Result<Card, No> {
    store.approval(id).await?.ok_or_else(|| No::new(Code::ApprovalNotFound))
}

/// `GET /v1/allowances`.
pub(super) async fn allowances(visit: Visit) -> Result<Reply, No> {
    let limit = visit.limit()?;
    let found = visit.gw.store.allowances(limit).await?;
    let data: Vec<serde_json::Value> = found.iter().map(allowance_json).collect();
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

pub(super) fn allowance_json(allowance: &Allowance) -> serde_json::Value {
    let covers = match &allowance.covers {
        Covers::ActionType(text) => text.clone(),
        Covers::Capability(name) => name.to_string(),
        Covers::Below(name) => format!("{name}.*"),
    };
    let asker = match &allowance.asker {
        Asker::Agent(name) => format!("agent:{name}"),
        Asker::Client(id) => format!("client:{id}"),
    };
    let (scope, rule_id, session_id) = match &allowance.scope {
        Scope::Session { session: Session::Issued(id) } => ("session", None, Some(id.to_string())),
        Scope::Session { session: Session::Claimed(text) } => ("session", None, Some(text.clone())),
        Scope::Standing { rule } => ("always", Some(rule.to_string()), None),
    };
    serde_json::json!({
        "allowance_id": allowance.id, "rule_id": rule_id, "session_id": session_id, "scope": scope, "asker": asker, "covers": covers,
        "bound": allowance.words(), "given_at": allowance.given_at.to_string(),
        "expires_at": allowance.bounds.expires_at.map(|at| at.to_string()), "uses_left": allowance.bounds.uses_left,
        "uses": allowance.used.times, "last_used_at": allowance.used.last.map(|at| at.to_string()),
        "active": allowance.standing == Standing::Active,
    })
}

/// `DELETE /v1/allowances/{allowance_id}`.
pub(super) async fn revoke(visit: Visit) -> Result<Reply, No> {
    visit.gw.store.revoke(visit.part("allowance_id")?, visit.actor()?).await?;
    visit.gw.events.wrote();
    Ok(Reply::nothing())
}
