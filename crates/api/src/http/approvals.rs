//! Approvals and their decisions. GET never decides.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::approval::ApprovalAnswer;
use sluice_core::approval::allowance::{
    Allowance, AllowanceCoverage, AllowanceScope, AllowanceSession, AllowanceState, ApprovalRequester,
};
use sluice_core::refusal::Code;
use sluice_core::{AgentName, ApprovalId, HoldId};
use sluice_gateway::Gateway;
use sluice_gateway::gate::amending;
use sluice_gateway::gate::deciding::{self, AnswerOutcome, ApprovalRequest, DecisionSource, SubmittedDecision};
use sluice_services::failing::FailureAudience;
use sluice_services::{CallError, failing};
use sluice_store::{ApprovalCard, ApprovalFilter, ApprovalRuling, BatchChoice, Store};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::{ApprovalView, HoldView, ListPage, ReasonView, listed};
use super::{channels, gate};

/// Most writes of a card in one answer; `from` gives the others.
const SHOWN: usize = 100;
/// Most bytes of actions in one answer, unless a single action is larger.
const LARGEST: usize = 8 << 20;
/// The longest note, in characters.
const LONGEST_NOTE: usize = 4_000;

/// Every state that an approval can be in.
const STATES: [&str; 9] =
    ["pending", "approved", "consumed", "denied", "superseded", "expired", "withdrawn", "lapsed", "revoked"];

/// `GET /v1/approvals`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    if visit.principal()?.agent().is_some() {
        return gate::own(visit).await;
    }
    let limit = visit.limit()?;
    let after: Option<ApprovalId> = visit.query_param("cursor")?;
    let state = state(&visit)?;
    let filter = ApprovalFilter { state, agent: visit.query_param::<AgentName>("agent")? };
    let found = visit.store.approvals_page(filter, after, limit + 1).await?;
    let views = listed::approvals(&visit.store, found).await?;
    Ok(HttpReply::json(200, &ListPage::of(views, limit, |view: &ApprovalView| view.approval_id.clone())))
}

/// The state a list is filtered by.
pub(super) fn state(visit: &RoutedRequest) -> Result<Option<&'static str>, CallError> {
    let refuse = || CallError::with_text(Code::DoorParameter, &format!("state is one of {}", STATES.join(", ")));
    match visit.query_param::<String>("state")? {
        None => Ok(None),
        Some(word) => STATES.into_iter().find(|known| *known == word).map(Some).ok_or_else(refuse),
    }
}

/// `GET /v1/approvals/{approval_id}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    if visit.principal()?.agent().is_some() {
        return gate::show(visit).await;
    }
    let id = named(&visit)?;
    gate::wait(&visit, id).await?;
    let card = find(&visit.store, id).await?;
    let from = visit.query_param::<usize>("from")?.unwrap_or(0);
    let mut view = with_writes(&visit.gw, &visit.store, &card, from).await?;
    view.deliveries = channels::deliveries(&visit.gw, &visit.store, &card).await?;
    if card.approval.state.is_open() {
        let question = ApprovalRequest::read(&visit.gw, card.approval.id).await?;
        view.risk = Some(question.risk().as_str().to_owned());
        view.standing = question.offers.iter().zip(1..).map(|(offer, n)| offer.view(n)).collect();
    }
    Ok(HttpReply::json(200, &view))
}

/// An approval with a page of its writes, in full, starting at this position.
async fn with_writes(gw: &Gateway, store: &Store, card: &ApprovalCard, from: usize) -> Result<ApprovalView, CallError> {
    let (mut writes, mut bytes) = (Vec::new(), 0);
    for item in card.items.iter().skip(from).take(SHOWN) {
        if let Some(hold) = store.hold(item.hold).await? {
            bytes += hold.action.bytes().len();
            if bytes > LARGEST && !writes.is_empty() {
                break;
            }
            let targets = store.hold_targets(hold.id).await?;
            let reason = store.hold_reason(hold.id).await?;
            let service = gw.services.for_service(&hold.service).ok();
            let about = service.map(|service| service.describe_targets(&hold.action)).unwrap_or_default();
            let failing = failing::failing(store, &hold, FailureAudience::Person).await?;
            writes.push(HoldView { about, reason, failing, ..HoldView::whole(&hold, targets) });
        }
    }
    let mut view = ApprovalView::of(card, writes);
    view.asked_because = store.approval_reasons(card.approval.id).await?.iter().map(ReasonView::from).collect();
    if let Some(filed) = store.client_request(card.approval.id).await? {
        view.request = Some(gate::request_json(&filed));
    }
    Ok(view)
}

/// A decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideApprovalBody {
    /// `approve`, `deny`, `session`, `always`, `modify` for one write or request; `choose` for a request with options;
    /// `approve_all`, `approve_first`, `approve_these`, `deny` for a batch.
    pub decision: DecisionKind,
    /// A note of the person.
    #[serde(default)]
    pub note: Option<String>,
    /// How many writes the person saw, for `approve_all`.
    #[serde(default)]
    pub seen: Option<u32>,
    /// How many of the first writes, for `approve_first`.
    #[serde(default)]
    pub first: Option<u32>,
    /// The ids of the writes to approve, for `approve_these`.
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
    /// Which of the bounds in `standing` an answer `session` or `always` has; by default 1, the narrowest.
    #[serde(default)]
    pub bound: Option<u32>,
    /// The digest of what the person was shown, for one write.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub digest: Option<sluice_core::Digest>,
    /// The digests of the writes that the person was shown, for a batch. Nothing else is approved: if the card has
    /// grown since, the decision is refused with `approval.grown`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub digests: Vec<sluice_core::Digest>,
}

/// What a person can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Approves once.
    Approve,
    /// Denies.
    Deny,
    /// Approves, and allows the same for the rest of the session.
    Session,
    /// Approves, and allows the same from now on.
    Always,
    /// Approves all writes of a batch.
    ApproveAll,
    /// Approves the first writes of a batch.
    ApproveFirst,
    /// Approves some writes of a batch.
    ApproveThese,
    /// Replaces the action: other arguments of a write, or another text of a request.
    Modify,
    /// Chooses one of the options of a request, by its letter in `note`, or gives an own answer there.
    Choose,
}

/// `POST /v1/approvals/{approval_id}/decision`.
pub(super) async fn decide(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let mut body: DecideApprovalBody = visit.parse_body()?;
    if body.note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
        return Err(CallError::with_text(Code::DoorParameter, "a note has at most 4000 characters"));
    }
    if body.bound.is_some() && !matches!(body.decision, DecisionKind::Session | DecisionKind::Always) {
        return Err(CallError::with_text(Code::DoorParameter, "a bound belongs to `session` or `always`"));
    }
    whole(&body)?;
    let gw = std::sync::Arc::clone(&visit.gw);
    // A denial must not wait for ordinary work, neither before it counts nor after.
    let store = gw.store.with_stop_reads();
    let question = ApprovalRequest::read(&gw, named(&visit)?).await?;
    let heard = if body.decision == DecisionKind::Modify && question.filed.is_none() {
        let arguments = body.arguments.take().ok_or_else(|| need("arguments"))?;
        amending::amend(&gw, visit.actor()?, &question, arguments).await?
    } else {
        let voice = DecisionSource { by: visit.actor()?, channel: "api", ceiling: None };
        let shown = body.digest.into_iter().chain(std::mem::take(&mut body.digests)).collect();
        let said = SubmittedDecision { ruling: ruling(&body)?, shown, bound: body.bound };
        deciding::rule(&gw, &voice, &question, said).await?
    };
    match heard {
        AnswerOutcome::Decided { approval, .. } => {
            let card = ApprovalCard { approval, items: question.card.items };
            Ok(HttpReply::json(200, &with_writes(&gw, &store, &card, 0).await?))
        }
        AnswerOutcome::Waiting { .. } => Ok(HttpReply::json(202, &with_writes(&gw, &store, &question.card, 0).await?)),
        AnswerOutcome::Late(approval) => {
            let text = format!("already {}", deciding::describe_approval(&approval));
            Err(CallError {
                other: Some(approval.id.to_string()),
                ..CallError::with_text(Code::ApprovalAlreadyDecided, &text)
            })
        }
        AnswerOutcome::Frozen(_) => Err(CallError::new(Code::ApprovalNotOffered)),
    }
}

/// The approval that a path names. An id in a wrong form names no approval.
fn named(visit: &RoutedRequest) -> Result<ApprovalId, CallError> {
    visit.path_param("approval_id").map_err(|no: CallError| match visit.path_param::<String>("approval_id") {
        Ok(text) if text.starts_with("appr_") => CallError::new(Code::ApprovalNotFound),
        _ => no,
    })
}

fn need(what: &str) -> CallError {
    CallError::with_text(Code::SchemaMissingArgument, &format!("this decision needs `{what}`"))
}

/// Refuses fields that a decision does not take: an approval must not ignore a part of the request. A denial counts.
fn whole(body: &DecideApprovalBody) -> Result<(), CallError> {
    let word = body.decision;
    let unwanted = [
        ("text", body.text.is_some() && word != DecisionKind::Modify),
        ("arguments", body.arguments.is_some() && word != DecisionKind::Modify),
        ("note", body.note.is_some() && word == DecisionKind::Modify),
        ("first", body.first.is_some() && word != DecisionKind::ApproveFirst),
        ("buffer_ids", !body.buffer_ids.is_empty() && word != DecisionKind::ApproveThese),
    ];
    match unwanted.into_iter().find(|(_, there)| *there) {
        Some((name, _)) if word != DecisionKind::Deny => Err(CallError::with_text(
            Code::DoorParameter,
            &format!("this decision does not take `{name}`, so nothing was decided"),
        )),
        _ => Ok(()),
    }
}

fn ruling(body: &DecideApprovalBody) -> Result<ApprovalRuling, CallError> {
    let answer = |answer: ApprovalAnswer| {
        let answer = if body.note.is_some() && answer == ApprovalAnswer::Once { ApprovalAnswer::Note } else { answer };
        ApprovalRuling::Allow { answer, note: body.note.clone() }
    };
    Ok(match body.decision {
        DecisionKind::Approve => answer(ApprovalAnswer::Once),
        DecisionKind::Session => answer(ApprovalAnswer::Session),
        DecisionKind::Always => answer(ApprovalAnswer::Always),
        DecisionKind::Deny => ApprovalRuling::Deny { note: body.note.clone() },
        DecisionKind::Modify => ApprovalRuling::Reword(body.text.clone().ok_or_else(|| need("text"))?),
        DecisionKind::Choose => ApprovalRuling::Allow {
            answer: ApprovalAnswer::Note,
            note: Some(body.note.clone().ok_or_else(|| need("note"))?),
        },
        DecisionKind::ApproveAll => {
            ApprovalRuling::Choose(BatchChoice::All { seen: body.seen.ok_or_else(|| need("seen"))? })
        }
        DecisionKind::ApproveFirst => {
            ApprovalRuling::Choose(BatchChoice::First(body.first.ok_or_else(|| need("first"))?))
        }
        DecisionKind::ApproveThese if body.buffer_ids.is_empty() => return Err(need("buffer_ids")),
        DecisionKind::ApproveThese => ApprovalRuling::Choose(BatchChoice::These(body.buffer_ids.clone())),
    })
}

async fn find(store: &Store, id: ApprovalId) -> Result<ApprovalCard, CallError> {
    store.approval(id).await?.ok_or_else(|| CallError::new(Code::ApprovalNotFound))
}

/// `GET /v1/allowances`.
pub(super) async fn allowances(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let limit = visit.limit()?;
    let found = visit.gw.store.allowances(limit).await?;
    let data: Vec<serde_json::Value> = found.iter().map(allowance_json).collect();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

pub(super) fn allowance_json(allowance: &Allowance) -> serde_json::Value {
    let covers = match &allowance.covers {
        AllowanceCoverage::ActionType(text) => text.clone(),
        AllowanceCoverage::Capability(name) => name.to_string(),
        AllowanceCoverage::Below(name) => format!("{name}.*"),
    };
    let asker = match &allowance.asker {
        ApprovalRequester::Agent(name) => format!("agent:{name}"),
        ApprovalRequester::Client(id) => format!("client:{id}"),
    };
    let (scope, rule_id, session_id) = match &allowance.scope {
        AllowanceScope::Session { session: AllowanceSession::Issued(id) } => ("session", None, Some(id.to_string())),
        AllowanceScope::Session { session: AllowanceSession::Claimed(text) } => ("session", None, Some(text.clone())),
        AllowanceScope::Standing { rule } => ("always", Some(rule.to_string()), None),
    };
    serde_json::json!({
        "allowance_id": allowance.id, "rule_id": rule_id, "session_id": session_id, "scope": scope, "asker": asker, "covers": covers,
        "bound": allowance.describe(), "given_at": allowance.given_at.to_string(),
        "expires_at": allowance.bounds.expires_at.map(|at| at.to_string()), "uses_left": allowance.bounds.uses_left,
        "uses": allowance.used.times, "last_used_at": allowance.used.last.map(|at| at.to_string()),
        "active": allowance.standing == AllowanceState::Active,
    })
}

/// `DELETE /v1/allowances/{allowance_id}`.
pub(super) async fn revoke(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    visit.gw.store.revoke_allowance(visit.path_param("allowance_id")?, visit.actor()?).await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::nothing())
}
