//! Standing approvals: what answers 2 and 6 of the menu allow, as text, and the allowance that they create.
//!
//! Takes an approval; gives the bounds that a person can choose from, the narrowest first, and the menu that says what
//! 2 and 6 cover, for how long and how often. Promise: the allowance covers what the person reads; without a choice it
//! has the narrowest bound; nothing is offered that could never answer an approval.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_config::{Approvals, Risk};
use sluice_core::approval::allowance::{
    Allowance, AllowanceBounds, AllowanceCoverage, AllowanceScope, AllowanceSession, AllowanceState, AllowanceUsage,
    ApprovalRequester,
};
use sluice_core::approval::bound::{BoundedCall, TargetBound, mark_known_after_approval};
use sluice_core::approval::reply::{MENU, ReplyParseError};
use sluice_core::approval::reply_meaning::{self, ExpectedReplyForm};
use sluice_core::approval::{ApprovalAnswer, ApprovalSubject, card};
use sluice_core::hold::Hold;
use sluice_core::ids::{AllowanceId, RuleId};
use sluice_core::refusal::Code;
use sluice_core::target::TracedTarget;
use sluice_core::{CapabilityName, Millis};
use sluice_services::CallError;

use super::deciding::ApprovalRequest;
use crate::Gateway;

/// How long answer 2 lasts, and how often it counts, for calls through our own doors.
const SESSION: StandingApprovalTerms = StandingApprovalTerms { lasts: Some(Millis::from_hours(1)), uses: Some(20) };
/// How long answer 6 lasts there, and how often it counts.
const ALWAYS: StandingApprovalTerms =
    StandingApprovalTerms { lasts: Some(Millis::from_hours(30 * 24)), uses: Some(100) };

/// How long a standing approval lasts, and how often it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingApprovalTerms {
    /// How long it lasts; `None` until it is revoked.
    pub lasts: Option<Millis>,
    /// How often it counts; `None` for any number of times.
    pub uses: Option<u32>,
}

/// One standing approval that a person can choose.
#[derive(Debug, Clone)]
pub struct StandingApprovalOffer {
    /// The calls it covers; `None` for a client of the approval API, whose action type is the bound.
    bound: Option<TargetBound>,
    /// What it covers, as text, for answers 2 and 6.
    pub covers: [String; 2],
    /// For how long and how often answers 2 and 6 count.
    terms: [StandingApprovalTerms; 2],
    /// Whether the call has a session, without which answer 2 means nothing.
    pub has_session: bool,
}

/// An offer as doors show it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StandingOfferView {
    /// The number by which a decision names it; 1 is the narrowest.
    pub bound: u32,
    /// What `session` allows, as text; `null` if the call has no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What `always` allows, as text.
    pub always: String,
}

impl StandingApprovalTerms {
    /// The terms as text: "30 days, 100 uses".
    fn words(self) -> String {
        let lasts = self.lasts.map_or_else(|| "until it is revoked".to_owned(), lasting);
        match self.uses {
            Some(uses) => format!("{lasts}, {uses} uses"),
            None => lasts,
        }
    }
}

fn lasting(span: Millis) -> String {
    let days = span.as_millis() / Millis::from_hours(24).as_millis();
    if days >= 2 && Millis::from_hours(days * 24) == span { format!("{days} days") } else { span.to_string() }
}

impl StandingApprovalOffer {
    /// What an answer allows, as text: what it covers, how long, how often.
    #[must_use]
    pub fn words(&self, answer: ApprovalAnswer) -> String {
        let [for_session, always] = &self.covers;
        let [session_terms, always_terms] = self.terms;
        let (covers, terms) =
            if answer == ApprovalAnswer::Session { (for_session, session_terms) } else { (always, always_terms) };
        match (&self.bound, terms.lasts, terms.uses) {
            (Some(_), ..) => format!("{covers}, {}", terms.words()),
            (None, Some(lasts), Some(uses)) => format!("{covers} for {} or {uses} uses", lasting(lasts)),
            (None, ..) => format!("{covers} {}", terms.words()),
        }
    }

    /// The offer as doors show it.
    #[must_use]
    pub fn view(&self, n: u32) -> StandingOfferView {
        StandingOfferView {
            bound: n,
            session: self.has_session.then(|| self.words(ApprovalAnswer::Session)),
            always: self.words(ApprovalAnswer::Always),
        }
    }
}

/// The risk of an approval, and the standing approvals that it offers.
pub(super) fn assess(gw: &Gateway, question: &ApprovalRequest) -> (Risk, Vec<StandingApprovalOffer>) {
    match (question.card.approval.subject, &question.filed, question.holds.as_slice()) {
        (ApprovalSubject::Request, Some(filed), _) => {
            let choice = !filed.request.options.is_empty();
            let offers =
                if choice { Vec::new() } else { vec![of_client(&gw.config.approvals, &filed.request.action_type)] };
            (Risk::Medium, offers)
        }
        (ApprovalSubject::Write, _, [hold]) => {
            let risk = bounded(gw, hold, &question.targets).risk();
            (risk.into(), of_write(gw, hold, &question.targets))
        }
        (ApprovalSubject::Write | ApprovalSubject::Batch | ApprovalSubject::Request, _, _) => (Risk::High, Vec::new()),
    }
}

fn of_client(config: &Approvals, action_type: &str) -> StandingApprovalOffer {
    let kind = card::escape_invisible(action_type);
    StandingApprovalOffer {
        bound: None,
        covers: [format!("every {kind} of this session"), format!("every {kind} of this client")],
        terms: [
            StandingApprovalTerms { lasts: Some(config.client_session), uses: Some(config.client_session_uses) },
            StandingApprovalTerms { lasts: None, uses: None },
        ],
        has_session: true,
    }
}

fn of_write(gw: &Gateway, hold: &Hold, targets: &[TracedTarget]) -> Vec<StandingApprovalOffer> {
    // What a person approves is known afterwards, so the next call is judged with its targets as known.
    let call = bounded(gw, hold, &mark_known_after_approval(targets));
    let offer = |bound: TargetBound| {
        let words = bound.describe(call.capability());
        StandingApprovalOffer {
            bound: Some(bound),
            covers: [words.clone(), words],
            terms: [SESSION, ALWAYS],
            has_session: hold.session.is_some(),
        }
    };
    call.offers().into_iter().map(offer).collect()
}

/// A held write in the form that bounds are matched against.
fn bounded(gw: &Gateway, hold: &Hold, targets: &[TracedTarget]) -> BoundedCall {
    let name: CapabilityName = sluice_services::carried_name(&hold.action);
    let catalogue = gw.catalogue.known();
    BoundedCall::of(&name, catalogue.get(&name), &hold.action, targets)
}

/// The allowance that answer 2 or 6 creates, within the chosen bound.
///
/// # Errors
/// When the approval does not offer it.
pub(super) fn allowance(
    gw: &Gateway,
    question: &ApprovalRequest,
    answer: ApprovalAnswer,
    bound: Option<u32>,
) -> Result<Allowance, CallError> {
    let refuse = |text: &str| CallError::with_text(Code::ApprovalNotOffered, text);
    if question.offers.is_empty() {
        return Err(refuse(match question.form() {
            ExpectedReplyForm::Batch { .. } => "a batch can only be approved once, without a standing approval",
            ExpectedReplyForm::Choice(_) => "a choice can only be answered once, without a standing approval",
            ExpectedReplyForm::Menu => {
                "this is asked about each time, so no standing approval is possible: approve it once"
            }
        }));
    }
    let place = bound.unwrap_or(1).checked_sub(1).and_then(|n| usize::try_from(n).ok());
    let Some(offer) = place.and_then(|place| question.offers.get(place)) else {
        let text = format!("bound is a number from 1 to {}", question.offers.len());
        return Err(CallError::with_text(Code::DoorParameter, &text));
    };
    let [session_terms, always_terms] = offer.terms;
    let terms = if answer == ApprovalAnswer::Session { session_terms } else { always_terms };
    let now = gw.now();
    let (asker, covers, session) = match (&question.filed, question.holds.as_slice()) {
        (Some(filed), _) => (
            ApprovalRequester::Client(filed.request.client.clone()),
            AllowanceCoverage::ActionType(filed.request.action_type.clone()),
            Some(AllowanceSession::Claimed(filed.request.session.clone())),
        ),
        (None, [hold]) => (
            ApprovalRequester::Agent(hold.agent().clone()),
            AllowanceCoverage::Capability(sluice_services::carried_name(&hold.action)),
            hold.session.map(AllowanceSession::Issued),
        ),
        (None, _) => return Err(refuse("a batch can only be approved once, without a standing approval")),
    };
    let scope = match (answer, session) {
        (ApprovalAnswer::Session, Some(session)) => AllowanceScope::Session { session },
        (ApprovalAnswer::Session, None) => {
            return Err(refuse("the call has no session, so an approval for the session means nothing"));
        }
        _ => AllowanceScope::Standing { rule: RuleId::mint(gw.ids.as_ref()) },
    };
    Ok(Allowance {
        id: AllowanceId::mint(gw.ids.as_ref()),
        scope,
        asker,
        covers,
        bounds: AllowanceBounds {
            expires_at: terms.lasts.map(|lasts| now + lasts),
            uses_left: terms.uses,
            target: offer.bound.clone(),
        },
        given_at: now,
        used: AllowanceUsage::default(),
        standing: AllowanceState::Active,
    })
}

/// The menu of an approval, with what 2 and 6 allow as text. Lines that are not offered are left out.
#[must_use]
pub fn menu(question: &ApprovalRequest) -> String {
    let form = question.form();
    if form != ExpectedReplyForm::Menu {
        return reply_meaning::menu(form);
    }
    let line = |line: &str| -> Option<String> {
        let offer = question.offers.first();
        match line.chars().next() {
            Some('2') => offer.filter(|offer| offer.has_session).map(|offer| labelled(offer, ApprovalAnswer::Session)),
            Some('6') => offer.map(|offer| labelled(offer, ApprovalAnswer::Always)),
            _ => Some(line.to_owned()),
        }
    };
    MENU.lines().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// A line of the menu: its digit, its effect, and what it covers.
#[must_use]
pub fn labelled(offer: &StandingApprovalOffer, answer: ApprovalAnswer) -> String {
    let words = offer.words(answer);
    let label = if answer == ApprovalAnswer::Session { "2  Allow for this session" } else { "6  Always allow" };
    match offer.bound {
        Some(_) => format!("{label}: {words}"),
        None => format!("{}  Allow {words}", answer.code()),
    }
}

/// The text for a person whose reply was unclear: that nothing happened, why, and what can be answered.
#[must_use]
pub fn repeat(question: &ApprovalRequest, unclear: ReplyParseError) -> String {
    match question.form() {
        ExpectedReplyForm::Menu => format!(
            "Nothing was decided: {unclear}. The request is still open. Please reply with one of these:\n\n{}",
            menu(question)
        ),
        form => reply_meaning::explain_unclear_reply(unclear, form),
    }
}
