//! Standing approvals: what the menu's 2 and 6 open, in words, and the allowance they leave behind.
//!
//! Takes a question; gives the bounds a person can choose from, the narrowest first, and the menu that says what 2 and 6
//! cover, for how long and how often. Promise: what a person reads is what the allowance covers; without a choice it is
//! the narrowest bound; nothing is offered that could never answer.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::approval::allowance::{Allowance, Asker, Bounds, Covers, Scope, Session, Standing, Used};
use sluice_core::approval::bound::{BoundedCall, TargetBound, once_approved};
use sluice_core::approval::reply::{MENU, Unclear};
use sluice_core::approval::voice::{self, Form};
use sluice_core::approval::{Answer, Subject, card};
use sluice_core::hold::Hold;
use sluice_core::ids::{AllowanceId, RuleId};
use sluice_core::refusal::Code;
use sluice_core::target::Traced;
use sluice_core::{CapabilityName, Span};

use super::deciding::Question;
use crate::config::{Approvals, Risk};
use crate::services;
use crate::{Gateway, No};

/// How long 2 lasts, and how often it answers, for calls through our own doors.
const SESSION: Terms = Terms { lasts: Some(Span::from_hours(1)), uses: Some(20) };
/// How long 6 lasts there, and how often it answers.
const ALWAYS: Terms = Terms { lasts: Some(Span::from_hours(30 * 24)), uses: Some(100) };

/// How long a standing approval lasts, and how often it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long; until revoked if nothing is said.
    pub lasts: Option<Span>,
    /// How often; any number of times if nothing is said.
    pub uses: Option<u32>,
}

/// One standing approval a person can choose.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The calls it covers; nothing for a client of the approval API, whose action type is the bound.
    bound: Option<TargetBound>,
    /// The same in words, for 2 and for 6.
    pub covers: [String; 2],
    /// For how long and how often 2 and 6 hold.
    terms: [Terms; 2],
    /// Whether the call has a session, without which 2 means nothing.
    pub has_session: bool,
}

/// An offer as doors show it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OfferView {
    /// The number a decision names it by; 1 is the narrowest.
    pub bound: u32,
    /// What `session` opens, in words; nothing if the call has no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What `always` opens, in words.
    pub always: String,
}

impl Terms {
    /// "30 days, 100 uses".
    fn words(self) -> String {
        let lasts = self.lasts.map_or_else(|| "until it is revoked".to_owned(), lasting);
        match self.uses {
            Some(uses) => format!("{lasts}, {uses} uses"),
            None => lasts,
        }
    }
}

fn lasting(span: Span) -> String {
    let days = span.as_millis() / Span::from_hours(24).as_millis();
    if days >= 2 && Span::from_hours(days * 24) == span { format!("{days} days") } else { span.to_string() }
}

impl Offer {
    /// What an answer opens, in words: what it covers, how long, how often.
    #[must_use]
    pub fn words(&self, answer: Answer) -> String {
        let [for_session, always] = &self.covers;
        let [session_terms, always_terms] = self.terms;
        let (covers, terms) =
            if answer == Answer::Session { (for_session, session_terms) } else { (always, always_terms) };
        match (&self.bound, terms.lasts, terms.uses) {
            (Some(_), ..) => format!("{covers}, {}", terms.words()),
            (None, Some(lasts), Some(uses)) => format!("{covers} for {} or {uses} uses", lasting(lasts)),
            (None, ..) => format!("{covers} {}", terms.words()),
        }
    }

    /// As doors show it.
    #[must_use]
    pub fn view(&self, n: u32) -> OfferView {
        OfferView {
            bound: n,
            session: self.has_session.then(|| self.words(Answer::Session)),
            always: self.words(Answer::Always),
        }
    }
}

/// The risk of a question, and what it offers beyond this once.
pub(super) fn weigh(gw: &Gateway, question: &Question) -> (Risk, Vec<Offer>) {
    match (question.card.approval.subject, &question.filed, question.holds.as_slice()) {
        (Subject::Request, Some(filed), _) => {
            let choice = !filed.request.options.is_empty();
            let offers =
                if choice { Vec::new() } else { vec![of_client(&gw.config.approvals, &filed.request.action_type)] };
            (Risk::Medium, offers)
        }
        (Subject::Write, _, [hold]) => {
            let risk = bounded(gw, hold, &question.targets).risk();
            (risk.into(), of_write(gw, hold, &question.targets))
        }
        (Subject::Write | Subject::Batch | Subject::Request, _, _) => (Risk::High, Vec::new()),
    }
}

fn of_client(config: &Approvals, action_type: &str) -> Offer {
    let kind = card::visible(action_type);
    Offer {
        bound: None,
        covers: [format!("every {kind} of this session"), format!("every {kind} of this client")],
        terms: [
            Terms { lasts: Some(config.client_session), uses: Some(config.client_session_uses) },
            Terms { lasts: None, uses: None },
        ],
        has_session: true,
    }
}

fn of_write(gw: &Gateway, hold: &Hold, targets: &[Traced]) -> Vec<Offer> {
    // What a person approves is known from then on, so the next call is seen as it will be then.
    let call = bounded(gw, hold, &once_approved(targets));
    let offer = |bound: TargetBound| {
        let words = bound.words(call.capability());
        Offer {
            bound: Some(bound),
            covers: [words.clone(), words],
            terms: [SESSION, ALWAYS],
            has_session: hold.session.is_some(),
        }
    };
    call.offers().into_iter().map(offer).collect()
}

/// A held write as bounds see it.
fn bounded(gw: &Gateway, hold: &Hold, targets: &[Traced]) -> BoundedCall {
    let name: CapabilityName = services::carried_name(&hold.action);
    let catalogue = gw.catalogue.known();
    BoundedCall::of(&name, catalogue.get(&name), &hold.action, targets)
}

/// The allowance that 2 or 6 leaves behind, within the bound that was chosen.
///
/// # Errors
/// When the question does not offer it.
pub(super) fn allowance(
    gw: &Gateway,
    question: &Question,
    answer: Answer,
    bound: Option<u32>,
) -> Result<Allowance, No> {
    let refuse = |text: &str| No::saying(Code::ApprovalNotOffered, text);
    if question.offers.is_empty() {
        return Err(refuse(match question.form() {
            Form::Batch { .. } => "a batch is answered once, not for ever",
            Form::Choice(_) => "a choice is answered once, not for ever",
            Form::Menu => "this is asked about each time: no standing approval would answer it; approve it once",
        }));
    }
    let place = bound.unwrap_or(1).checked_sub(1).and_then(|n| usize::try_from(n).ok());
    let Some(offer) = place.and_then(|place| question.offers.get(place)) else {
        let text = format!("bound is a number from 1 to {}", question.offers.len());
        return Err(No::saying(Code::DoorParameter, &text));
    };
    let [session_terms, always_terms] = offer.terms;
    let terms = if answer == Answer::Session { session_terms } else { always_terms };
    let now = gw.now();
    let (asker, covers, session) = match (&question.filed, question.holds.as_slice()) {
        (Some(filed), _) => (
            Asker::Client(filed.request.client.clone()),
            Covers::ActionType(filed.request.action_type.clone()),
            Some(Session::Claimed(filed.request.session.clone())),
        ),
        (None, [hold]) => (
            Asker::Agent(hold.agent().clone()),
            Covers::Capability(services::carried_name(&hold.action)),
            hold.session.map(Session::Issued),
        ),
        (None, _) => return Err(refuse("a batch is answered once, not for ever")),
    };
    let scope = match (answer, session) {
        (Answer::Session, Some(session)) => Scope::Session { session },
        (Answer::Session, None) => {
            return Err(refuse("the call has no session, so an approval for the session means nothing"));
        }
        _ => Scope::Standing { rule: RuleId::mint(gw.ids.as_ref()) },
    };
    Ok(Allowance {
        id: AllowanceId::mint(gw.ids.as_ref()),
        scope,
        asker,
        covers,
        bounds: Bounds {
            expires_at: terms.lasts.map(|lasts| now + lasts),
            uses_left: terms.uses,
            target: offer.bound.clone(),
        },
        given_at: now,
        used: Used::default(),
        standing: Standing::Active,
    })
}

/// The menu of a question, with what 2 and 6 open in words. Lines that are not offered are left out.
#[must_use]
pub fn menu(question: &Question) -> String {
    let form = question.form();
    if form != Form::Menu {
        return voice::menu(form);
    }
    let line = |line: &str| -> Option<String> {
        let offer = question.offers.first();
        match line.chars().next() {
            Some('2') => offer.filter(|offer| offer.has_session).map(|offer| labelled(offer, Answer::Session)),
            Some('6') => offer.map(|offer| labelled(offer, Answer::Always)),
            _ => Some(line.to_owned()),
        }
    };
    MENU.lines().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// A line of the menu: its digit, what it does, and what it covers.
#[must_use]
pub fn labelled(offer: &Offer, answer: Answer) -> String {
    let words = offer.words(answer);
    let label = if answer == Answer::Session { "2  Allow for this session" } else { "6  Always allow" };
    match offer.bound {
        Some(_) => format!("{label}: {words}"),
        None => format!("{}  Allow {words}", answer.code()),
    }
}

/// What a person is told whose reply was unclear: that nothing happened, why, and what can be answered.
#[must_use]
pub fn repeat(question: &Question, unclear: Unclear) -> String {
    match question.form() {
        Form::Menu => format!(
            "Nothing was decided: {unclear}. The question is still open. Please reply with one of these:\n\n{}",
            menu(question)
        ),
        form => voice::repeat(unclear, form),
    }
}
