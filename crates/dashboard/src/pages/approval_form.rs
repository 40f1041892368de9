//! The forms of an approval card, and what they do.
//!
//! Promise: an answer counts only for the card that was on the page; what was typed is not lost when it is refused; the
//! decision itself is made where every channel makes it.

use sluice_config::Risk;
use sluice_core::approval::ApprovalAnswer;
use sluice_core::refusal::Code;
use sluice_core::{ApprovalId, HoldId, json};
use sluice_gateway::Gateway;
use sluice_gateway::gate::amending;
use sluice_gateway::gate::deciding::{self, AnswerOutcome, ApprovalRequest, DecisionSource, SubmittedDecision};
use sluice_gateway::gate::rendering;
use sluice_services::CallError;
use sluice_store::{ApprovalRuling, BatchChoice, OperatorRole};

use super::approval::{digest_of, picked};
use crate::context::PageContext;
use crate::fields::FormFields;

/// The longest note, in characters.
const LONGEST_NOTE: usize = 4_000;

/// Something that a person has to read off the card before an approval of high risk counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RiskChallenge {
    pub(super) prompt: String,
    pub(super) expected: String,
}

impl RiskChallenge {
    /// The question about a request, if its risk needs one and no second person has to agree.
    pub(super) fn of(gw: &Gateway, request: &ApprovalRequest) -> Option<Self> {
        if request.risk() != Risk::High || gw.config.approvals.two_people.at(request.risk()) {
            return None;
        }
        Some(match request.holds.as_slice() {
            [_, _, ..] => Self {
                prompt: "High risk: type the number of writes on this card".into(),
                expected: request.card.approval.items.to_string(),
            },
            _ => Self {
                prompt: "High risk: type the name of the agent that asks".into(),
                expected: request.card.approval.agent.to_string(),
            },
        })
    }

    fn is_met(&self, given: &str) -> bool {
        given.trim().eq_ignore_ascii_case(&self.expected)
    }
}

/// Takes a decision. Gives the word for the notice of the next page.
pub(super) async fn decide(
    context: &PageContext<'_>,
    id: ApprovalId,
    form: &FormFields,
) -> Result<&'static str, CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let gw = context.gw;
    let request = ApprovalRequest::read(gw, id).await?;
    let sight = rendering::of(gw, &request, rendering::PAGE);
    let ruling = ruling(form)?;
    let denies = matches!(ruling, ApprovalRuling::Deny { .. });
    if !denies {
        check_card(&request, form, &digest_of(&request, &sight))?;
        check_challenge(gw, &request, form)?;
    }
    let bound = form.parsed("bound")?;
    let voice = source(context);
    let shown = request.card.items.iter().map(|item| item.digest).collect();
    outcome(deciding::rule(gw, &voice, &request, SubmittedDecision { ruling, shown, bound }).await?, denies)
}

/// Takes changed arguments.
pub(super) async fn change(
    context: &PageContext<'_>,
    id: ApprovalId,
    form: &FormFields,
) -> Result<&'static str, CallError> {
    context.visitor.require(OperatorRole::Approver)?;
    let gw = context.gw;
    let request = ApprovalRequest::read(gw, id).await?;
    let sight = rendering::of(gw, &request, rendering::PAGE);
    if !sight.allows() {
        return Err(CallError::with_text(
            Code::ApprovalNotOffered,
            "this could not be shown in full here; review and decide with `sluice approvals`, or deny here",
        ));
    }
    check_card(&request, form, &digest_of(&request, &sight))?;
    check_challenge(gw, &request, form)?;
    let arguments = json::parse(form.get("arguments").as_bytes(), &json::REQUEST).map_err(|error| {
        CallError::with_text(Code::DoorParameter, &format!("the changed arguments are not valid JSON: {error}"))
    })?;
    outcome(amending::amend(gw, context.visitor.by.clone(), &request, arguments).await?, false).map(|_| "changed")
}

fn source(context: &PageContext<'_>) -> DecisionSource {
    // The ceiling admits every risk and makes the common check apply that all of it was shown.
    DecisionSource { by: context.visitor.by.clone(), channel: rendering::DASHBOARD, ceiling: Some(Risk::High) }
}

fn outcome(heard: AnswerOutcome, denies: bool) -> Result<&'static str, CallError> {
    match heard {
        AnswerOutcome::Decided { .. } if denies => Ok("denied"),
        AnswerOutcome::Decided { .. } => Ok("approved"),
        AnswerOutcome::Waiting { .. } => Ok("waiting"),
        AnswerOutcome::Late(approval) => Err(CallError::with_text(
            Code::ApprovalAlreadyDecided,
            &format!("it was already {}", deciding::describe_approval(&approval)),
        )),
        AnswerOutcome::Frozen(_) => Ok("frozen"),
    }
}

/// An approval covers the card that was on the page.
fn check_card(request: &ApprovalRequest, form: &FormFields, now: &str) -> Result<(), CallError> {
    let open = request.card.approval.state.is_open();
    if !open || form.get("card") == now {
        return Ok(());
    }
    Err(CallError::with_text(
        Code::ApprovalGrown,
        "the request has changed since the page was opened; check it again below, then decide",
    ))
}

fn check_challenge(gw: &Gateway, request: &ApprovalRequest, form: &FormFields) -> Result<(), CallError> {
    match RiskChallenge::of(gw, request) {
        Some(challenge) if request.card.approval.state.is_open() && !challenge.is_met(form.get("challenge")) => {
            let text = format!("the answer to “{}” is missing or wrong", challenge.prompt);
            Err(CallError::with_text(Code::DoorParameter, &text))
        }
        Some(_) | None => Ok(()),
    }
}

fn ruling(form: &FormFields) -> Result<ApprovalRuling, CallError> {
    let text = |name: &str| {
        let text = form.get(name).trim();
        if text.chars().count() > LONGEST_NOTE {
            return Err(CallError::with_text(Code::DoorParameter, "a note has at most 4000 characters"));
        }
        Ok((!text.is_empty()).then(|| text.to_owned()))
    };
    let note = text("note")?;
    let need = |what: &str| CallError::with_text(Code::SchemaMissingArgument, what);
    let chosen = form.get("decision");
    if let Some(reason) = chosen.strip_prefix("deny:") {
        // A chip with a prepared reason; what was typed is added to it.
        let note = text("reason")?.map_or_else(|| reason.to_owned(), |typed| format!("{reason}: {typed}"));
        return Ok(ApprovalRuling::Deny { note: Some(note) });
    }
    let allow = |answer| ApprovalRuling::Allow { answer, note: note.clone() };
    Ok(match chosen {
        "deny" => ApprovalRuling::Deny { note: text("reason")? },
        "approve" if note.is_some() => allow(ApprovalAnswer::Note),
        "approve" => allow(ApprovalAnswer::Once),
        "session" => allow(ApprovalAnswer::Session),
        "always" => allow(ApprovalAnswer::Always),
        "choose" => ApprovalRuling::Allow {
            answer: ApprovalAnswer::Note,
            note: Some(text("option")?.ok_or_else(|| need("choose one of the options, or write your own answer"))?),
        },
        "approve_all" => ApprovalRuling::Choose(BatchChoice::All {
            seen: form.parsed("seen")?.ok_or_else(|| need("the number of writes on the page is missing"))?,
        }),
        "approve_first" => ApprovalRuling::Choose(BatchChoice::First(
            form.parsed("first")?.ok_or_else(|| need("write how many of the first writes to approve"))?,
        )),
        "approve_these" => {
            let these: Vec<HoldId> = picked(form, "pick")?;
            if these.is_empty() {
                return Err(need("tick the writes to approve, then press the button again"));
            }
            ApprovalRuling::Choose(BatchChoice::These(these))
        }
        _ => return Err(CallError::with_text(Code::DoorParameter, "this form names no decision")),
    })
}
