//! Deciding: one answer of one person to one question.
//!
//! Takes who speaks, over which channel, and what they mean; gives how it went. Promise: every channel decides here
//! and nowhere else, so that each answer meets the same checks: who may, how much this channel may, whether a second
//! person is needed, and what the question still offers. A yes covers the digests that were shown and no others. Late
//! answers are told who decided and when.

use sluice_core::approval::reason::AskReason;
use sluice_core::approval::reply::Reply;
use sluice_core::approval::voice::{Form, Meaning, Stop};
use sluice_core::approval::{Answer, Approval, ApprovalState, Subject};
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::target::Traced;
use sluice_core::{Actor, ApprovalId, Digest, HoldId};
use sluice_store::{Card, Choice, Decided, Decision, Delivery, Filed, Joint, Ruling, WriteContents};

use super::standing::{self, Offer};
use crate::channels::shown;
use crate::config::Risk;
use crate::{Gateway, No, recovery};

/// Who speaks, and over what.
#[derive(Debug, Clone)]
pub struct Voice {
    /// Who.
    pub by: Actor,
    /// Over which channel, for the record.
    pub channel: &'static str,
    /// The highest risk this channel may approve; none for an operator's own token.
    pub ceiling: Option<Risk>,
}

/// How an answer went.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// It counts.
    Decided {
        /// The question as it is now.
        approval: Approval,
        /// Writes that may go.
        allowed: Vec<HoldId>,
        /// Writes that may not.
        denied: Vec<HoldId>,
    },
    /// It counts, and another person has to agree.
    Waiting {
        /// Yeses so far.
        have: u32,
        /// Yeses needed.
        need: u32,
    },
    /// It has its answer, or silence was the answer. Nothing changed.
    Late(Approval),
    /// Something was stopped, in words.
    Frozen(String),
}

/// A question with everything that is needed to show and decide it.
#[derive(Debug, Clone)]
pub struct Question {
    /// The question and the places of its writes.
    pub card: Card,
    /// The writes, in the order of the card.
    pub holds: Vec<Hold>,
    /// The request, if it is one.
    pub filed: Option<Filed>,
    /// Where the targets of a single write come from.
    pub targets: Vec<Traced>,
    /// Why the agent wants it, in its own words.
    pub reasons: Vec<String>,
    /// What is kept of each write beside its action, in the order of the card.
    pub contents: Vec<WriteContents>,
    /// Why a person is asked, as it was when the question was put.
    pub why: Vec<AskReason>,
    /// How many of its writes the answered letter showed; everything if the answer comes from no letter.
    pub shown: Option<u32>,
    /// How bad a wrong approval can be.
    risk: Risk,
    /// The standing approvals a person can choose from, the narrowest first.
    pub offers: Vec<Offer>,
}

/// An answer with everything a person can say about it.
#[derive(Debug, Clone)]
pub struct Said {
    /// The answer itself.
    pub ruling: Ruling,
    /// The digests of what they were shown, if they name them.
    pub shown: Vec<Digest>,
    /// Which of the offered bounds a standing approval has: 1 is the narrowest, which is meant if nothing is said.
    pub bound: Option<u32>,
}

impl From<Ruling> for Said {
    fn from(ruling: Ruling) -> Self {
        Self { ruling, shown: Vec::new(), bound: None }
    }
}

impl Question {
    /// Reads a question whole.
    ///
    /// # Errors
    /// When there is none of this id.
    pub async fn read(gw: &Gateway, id: ApprovalId) -> Result<Self, No> {
        // Whoever reads it may be about to say no: that waits for nothing.
        let store = gw.store.asked_to_stop();
        let card = store.approval(id).await?.ok_or_else(|| No::new(Code::ApprovalNotFound))?;
        let mut holds = Vec::with_capacity(card.items.len());
        for item in &card.items {
            holds.extend(store.hold(item.hold).await?);
        }
        let filed = match card.approval.subject {
            Subject::Request => store.requested(id).await?,
            Subject::Write | Subject::Batch => None,
        };
        let contents = store.question_contents(id).await?;
        let targets = match contents.as_slice() {
            [one] => one.targets.clone(),
            _ => Vec::new(),
        };
        let reasons = contents.iter().filter_map(|one| one.reason.clone()).collect();
        let why = store.asked_because(id).await?;
        let (risk, offers) = (Risk::High, Vec::new());
        let mut read = Self { card, holds, filed, targets, reasons, contents, why, shown: None, risk, offers };
        (read.risk, read.offers) = standing::weigh(gw, &read);
        Ok(read)
    }

    /// The question as somebody answers it who got this letter.
    #[must_use]
    pub fn seen_in(mut self, letter: &Delivery) -> Self {
        self.shown = Some(letter.covers(&self.card.items));
        self
    }

    /// The digests of the writes that whoever answers was shown.
    fn shown_digests(&self) -> Vec<Digest> {
        let most = self.shown.map_or(usize::MAX, |shown| shown as usize);
        self.card.items.iter().take(most).map(|item| item.digest).collect()
    }

    /// What kind of answer it takes.
    #[must_use]
    pub fn form(&self) -> Form<'_> {
        match (self.card.approval.subject, &self.filed) {
            (Subject::Batch, _) => Form::Batch { items: self.card.approval.items },
            (_, Some(filed)) if !filed.request.options.is_empty() => Form::Choice(&filed.request.options),
            (Subject::Write | Subject::Request, _) => Form::Menu,
        }
    }

    /// How bad a wrong approval can be.
    #[must_use]
    pub fn risk(&self) -> Risk {
        self.risk
    }

    /// Whether an approval may stand for more than this once.
    #[must_use]
    pub fn can_stand(&self) -> bool {
        !self.offers.is_empty()
    }
}

/// Takes one answer.
///
/// # Errors
/// When this person or channel may not, the question does not offer it, or it cannot be recorded.
pub async fn decide(gw: &Gateway, voice: &Voice, question: &Question, meaning: Meaning) -> Result<Heard, No> {
    decide_within(gw, voice, question, (meaning, None)).await
}

/// Takes one answer, with the bound of a standing approval that was chosen along.
///
/// # Errors
/// As [`decide`].
pub async fn decide_within(
    gw: &Gateway,
    voice: &Voice,
    question: &Question,
    (meaning, bound): (Meaning, Option<u32>),
) -> Result<Heard, No> {
    let approval = &question.card.approval;
    if let Some(no) = changed_since(question, &meaning) {
        // The person sees the question as it is now, and can answer that.
        gw.store.show_again(approval.id, MessageId::mint(gw.ids.as_ref())).await?;
        gw.letters.notify_one();
        return Err(no);
    }
    let ruling = match meaning {
        Meaning::Freeze(stop) => return freeze(gw, voice, approval, stop).await,
        Meaning::All { seen } => Ruling::Choose(Choice::All { seen }),
        Meaning::First(n) => Ruling::Choose(Choice::First(n)),
        Meaning::Choice(words) => Ruling::Allow { answer: Answer::Note, note: Some(words) },
        Meaning::Menu(reply) => ruling_of(approval.subject, reply)?,
    };
    rule(gw, voice, question, Said { ruling, shown: Vec::new(), bound }).await
}

/// A refusal, if a yes would cover writes that the answered letter did not show. A no always counts.
fn changed_since(question: &Question, meaning: &Meaning) -> Option<No> {
    let (shown, items) = (question.shown?, question.card.approval.items);
    let wanted = match meaning {
        Meaning::Freeze(_) | Meaning::Menu(Reply::Deny(_)) => 0,
        Meaning::First(n) => *n,
        Meaning::All { .. } | Meaning::Menu(_) | Meaning::Choice(_) => items,
    };
    let text = format!(
        "the question covers {items} writes now, and the message you answered showed {shown} of them; a new message \
         with all of them follows; 3 still denies"
    );
    (wanted > shown).then(|| No::saying(Code::ApprovalGrown, &text))
}

fn ruling_of(subject: Subject, reply: Reply) -> Result<Ruling, No> {
    Ok(match reply {
        Reply::Once => Ruling::Allow { answer: Answer::Once, note: None },
        Reply::Session => Ruling::Allow { answer: Answer::Session, note: None },
        Reply::Always => Ruling::Allow { answer: Answer::Always, note: None },
        Reply::Note(note) => Ruling::Allow { answer: Answer::Note, note: Some(note) },
        Reply::Deny(reason) => Ruling::Deny { note: reason },
        Reply::Amend(text) if subject == Subject::Request => Ruling::Reword(text),
        // A write the gateway carries out is never replaced by a text: the changed action is checked as a new one.
        Reply::Amend(_) => {
            return Err(No::saying(
                Code::ApprovalNotOffered,
                "a write the gateway carries out is changed with `sluice approvals modify`, not by a text",
            ));
        }
    })
}

/// Takes one ruling, with everything a yes has to pass first.
///
/// # Errors
/// As [`decide`].
pub async fn rule(gw: &Gateway, voice: &Voice, question: &Question, said: impl Into<Said>) -> Result<Heard, No> {
    let Said { ruling, shown: named, bound } = said.into();
    let approval = &question.card.approval;
    let denies = matches!(ruling, Ruling::Deny { .. });
    let open = matches!(approval.state, ApprovalState::Pending { .. }) && !approval.is_over(gw.now());
    if open && !denies {
        may(gw, voice, question)?;
    }
    let allowance = match &ruling {
        Ruling::Allow { answer: answer @ (Answer::Session | Answer::Always), .. } if open => {
            Some(standing::allowance(gw, question, *answer, bound)?)
        }
        _ => None,
    };
    // Where no digests were named, those that were shown are those we rendered.
    let shown = if named.is_empty() { question.shown_digests() } else { named };
    let need = if gw.config.approvals.two_people.at(question.risk()) { 2 } else { 1 };
    let decision = Decision {
        approval: approval.id,
        by: voice.by.clone(),
        channel: voice.channel.to_owned(),
        ruling,
        shown,
        allowance,
    };
    let joint = if denies {
        let decided = gw.stop_lane().decide(decision).await?;
        recovery::remember_stop(gw).await;
        Joint::Settled(decided)
    } else {
        gw.store.decide_jointly(decision, need).await?
    };
    match joint {
        Joint::Settled(Decided::Now { approval, allowed, denied }) => {
            announce(gw, approval.id, &allowed, &denied).await?;
            Ok(Heard::Decided { approval, allowed, denied })
        }
        Joint::Settled(Decided::Already(approval)) => {
            gw.asked(approval.id);
            Ok(Heard::Late(approval))
        }
        Joint::Waiting { have, need, .. } => Ok(Heard::Waiting { have, need }),
    }
}

/// Tells everyone who waits.
pub(crate) async fn announce(gw: &Gateway, id: ApprovalId, allowed: &[HoldId], denied: &[HoldId]) -> Result<(), No> {
    for hold in allowed {
        if let Some(row) = gw.store.hold(*hold).await? {
            gw.opened_window(*hold, row.delay);
        }
    }
    allowed.iter().chain(denied).for_each(|hold| gw.moved(*hold));
    gw.due.notify_one();
    gw.asked(id);
    Ok(())
}

/// Whether this channel may say yes to this.
fn may(gw: &Gateway, voice: &Voice, question: &Question) -> Result<(), No> {
    let Some(ceiling) = voice.ceiling else { return Ok(()) };
    let (risk, refuse) = (question.risk(), |text: &str| Err(No::saying(Code::ApprovalNotOffered, text)));
    if risk.rank() > ceiling.rank() {
        return refuse(&format!(
            "{} may approve up to {} risk, and this is {}; use `sluice approvals` or deny here",
            voice.channel,
            ceiling.as_str(),
            risk.as_str()
        ));
    }
    // SECURITY: nobody says yes over a channel that did not show them to what.
    if !shown::of(gw, question, shown::space(voice.channel)).allows() {
        return refuse("this could not be shown whole here; look and decide with `sluice approvals`, or deny here");
    }
    Ok(())
}

async fn freeze(gw: &Gateway, voice: &Voice, approval: &Approval, stop: Stop) -> Result<Heard, No> {
    let scope = match stop {
        Stop::Agent => sluice_store::Scope::Agent(approval.agent.clone()),
        Stop::All => sluice_store::Scope::All,
    };
    let words = scope.to_string();
    gw.stop_lane().freeze(scope, voice.by.clone(), format!("said so over {}", voice.channel)).await?;
    gw.standstill.look(&gw.store).await;
    recovery::remember_stop(gw).await;
    gw.events.wrote();
    Ok(Heard::Frozen(words))
}

/// How an answer went, in words for whoever gave it.
#[must_use]
pub fn said(heard: &Heard) -> String {
    match heard {
        Heard::Decided { approval, allowed, denied } => {
            let counted = match (allowed.len(), denied.len()) {
                (0 | 1, 0) | (0, 1) => String::new(),
                (go, stay) => format!(" ({go} go, {stay} do not)"),
            };
            format!("Done: {}{counted}.", told(approval))
        }
        Heard::Waiting { have, need } => format!("Noted: {have} of {need} people have said yes."),
        Heard::Late(approval) => format!("Nothing changed: it was already {}.", told(approval)),
        Heard::Frozen(scope) => format!("Frozen: {scope}. Nothing of it starts any more."),
    }
}

/// How a question stands, in words for people: who decided, how and when.
#[must_use]
pub fn told(approval: &Approval) -> String {
    let how = |answer: &Answer| match answer {
        Answer::Once | Answer::Note => "allowed once",
        Answer::Session => "allowed for the session",
        Answer::Always => "always allowed from now on",
        Answer::Amend => "allowed in other words",
        Answer::Deny => "denied",
    };
    match &approval.state {
        ApprovalState::Pending { expires_at } => format!("open until {expires_at}"),
        ApprovalState::Approved { by, at, answer, .. } | ApprovalState::Consumed { by, at, answer, .. } => {
            format!("{} by {} at {at}", how(answer), called(by))
        }
        ApprovalState::Denied { by, at } => format!("denied by {} at {at}", called(by)),
        ApprovalState::Superseded { by, at, .. } => format!("changed and allowed once by {} at {at}", called(by)),
        ApprovalState::Expired { at } => format!("expired at {at}: nobody answered, so it was denied"),
        ApprovalState::Withdrawn { at } => format!("withdrawn at {at}: what was asked about is gone"),
        ApprovalState::Lapsed { at } => format!("allowed, but not used in time (until {at})"),
        ApprovalState::Revoked { at } => format!("allowed, and taken back at {at}"),
    }
}

fn called(actor: &Actor) -> String {
    match actor {
        Actor::Person(name) | Actor::Operator(name) => name.to_string(),
        Actor::Agent(_) | Actor::Node(_) => "a standing yes".to_owned(),
    }
}
