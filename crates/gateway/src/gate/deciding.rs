//! Deciding: one person's answer to one approval request.
//!
//! Takes the person, the channel and the meaning of the answer; gives its outcome. Promise: every channel decides here
//! and nowhere else, so that each answer meets the same checks: who may answer, what risk the channel may approve,
//! whether a second person is needed, and what the request still offers. An approval covers the digests that were shown
//! and no others. A person who answers late is told who decided and when.

use sluice_config::Risk;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::approval::reply::ApprovalReply;
use sluice_core::approval::reply_meaning::{ExpectedReplyForm, FreezeScope, ReplyMeaning};
use sluice_core::approval::{Approval, ApprovalAnswer, ApprovalState, ApprovalSubject};
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::refusal::Code;
use sluice_core::target::TracedTarget;
use sluice_core::{Actor, ApprovalId, Digest, HoldId};
use sluice_services::CallError;
use sluice_store::{
    ApprovalCard, ApprovalDelivery, ApprovalRuling, BatchChoice, DecideApproval, DecisionOutcome, FiledClientRequest,
    JointDecisionOutcome, WriteContents,
};

use super::standing::{self, StandingApprovalOffer};
use crate::gate::rendering;
use crate::{Gateway, recovery};

/// The person who answers, and the channel.
#[derive(Debug, Clone)]
pub struct DecisionSource {
    /// The person who answers.
    pub by: Actor,
    /// The channel, for the audit log.
    pub channel: &'static str,
    /// The highest risk that this channel may approve; `None` for an operator's own token.
    pub ceiling: Option<Risk>,
}

/// The outcome of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerOutcome {
    /// The answer counts.
    Decided {
        /// The approval as it is now.
        approval: Approval,
        /// Writes that are allowed.
        allowed: Vec<HoldId>,
        /// Writes that are denied.
        denied: Vec<HoldId>,
    },
    /// The answer counts, and another person has to agree.
    Waiting {
        /// Approvals given so far.
        have: u32,
        /// Approvals needed.
        need: u32,
    },
    /// The approval was already decided or has expired. Nothing changed.
    Late(Approval),
    /// Something was frozen: its scope, as text.
    Frozen(String),
}

/// An approval with everything that is needed to show and decide it.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// The approval and the places of its writes.
    pub card: ApprovalCard,
    /// The writes, in the order of the card.
    pub holds: Vec<Hold>,
    /// The request of a client that carries it out itself, if it is one.
    pub filed: Option<FiledClientRequest>,
    /// Where the targets of a single write come from.
    pub targets: Vec<TracedTarget>,
    /// The agent's reasons, in its own words.
    pub reasons: Vec<String>,
    /// The stored contents of each write, in the order of the card.
    pub contents: Vec<WriteContents>,
    /// Why a person is asked, as recorded when the approval was requested.
    pub why: Vec<ApprovalReason>,
    /// How many of its writes the answered message showed; all of them if the answer comes from no message.
    pub shown: Option<u32>,
    /// How bad a wrong approval can be.
    risk: Risk,
    /// The standing approvals a person can choose from, the narrowest first.
    pub offers: Vec<StandingApprovalOffer>,
}

/// An answer with everything that a person can add to it.
#[derive(Debug, Clone)]
pub struct SubmittedDecision {
    /// The answer itself.
    pub ruling: ApprovalRuling,
    /// The digests of what the person was shown, if they name them.
    pub shown: Vec<Digest>,
    /// Which of the offered bounds a standing approval has: 1 is the narrowest, and the default.
    pub bound: Option<u32>,
}

impl From<ApprovalRuling> for SubmittedDecision {
    fn from(ruling: ApprovalRuling) -> Self {
        Self { ruling, shown: Vec::new(), bound: None }
    }
}

impl ApprovalRequest {
    /// Reads an approval with everything that belongs to it.
    ///
    /// # Errors
    /// When there is no approval with this id.
    pub async fn read(gw: &Gateway, id: ApprovalId) -> Result<Self, CallError> {
        // The reader may be about to deny: a denial waits for nothing.
        let store = gw.store.with_stop_reads();
        let card = store.approval(id).await?.ok_or_else(|| CallError::new(Code::ApprovalNotFound))?;
        let mut holds = Vec::with_capacity(card.items.len());
        for item in &card.items {
            holds.extend(store.hold(item.hold).await?);
        }
        let filed = match card.approval.subject {
            ApprovalSubject::Request => store.client_request(id).await?,
            ApprovalSubject::Write | ApprovalSubject::Batch => None,
        };
        let contents = store.question_contents(id).await?;
        let targets = match contents.as_slice() {
            [one] => one.targets.clone(),
            _ => Vec::new(),
        };
        let reasons = contents.iter().filter_map(|one| one.reason.clone()).collect();
        let why = store.approval_reasons(id).await?;
        let (risk, offers) = (Risk::High, Vec::new());
        let mut read = Self { card, holds, filed, targets, reasons, contents, why, shown: None, risk, offers };
        (read.risk, read.offers) = standing::assess(gw, &read);
        Ok(read)
    }

    /// The approval as the person sees it who answers this message.
    #[must_use]
    pub fn shown_in(mut self, letter: &ApprovalDelivery) -> Self {
        self.shown = Some(letter.covers(&self.card.items));
        self
    }

    /// The digests of the writes that the person was shown.
    fn shown_digests(&self) -> Vec<Digest> {
        let most = self.shown.map_or(usize::MAX, |shown| shown as usize);
        self.card.items.iter().take(most).map(|item| item.digest).collect()
    }

    /// The kind of answer it takes.
    #[must_use]
    pub fn form(&self) -> ExpectedReplyForm<'_> {
        match (self.card.approval.subject, &self.filed) {
            (ApprovalSubject::Batch, _) => ExpectedReplyForm::Batch { items: self.card.approval.items },
            (_, Some(filed)) if !filed.request.options.is_empty() => ExpectedReplyForm::Choice(&filed.request.options),
            (ApprovalSubject::Write | ApprovalSubject::Request, _) => ExpectedReplyForm::Menu,
        }
    }

    /// How bad a wrong approval can be.
    #[must_use]
    pub fn risk(&self) -> Risk {
        self.risk
    }

    /// Whether a standing approval can be given.
    #[must_use]
    pub fn can_stand(&self) -> bool {
        !self.offers.is_empty()
    }
}

/// Takes one answer.
///
/// # Errors
/// When this person or channel may not answer, the approval does not offer the answer, or it cannot be recorded.
pub async fn decide(
    gw: &Gateway,
    voice: &DecisionSource,
    question: &ApprovalRequest,
    meaning: ReplyMeaning,
) -> Result<AnswerOutcome, CallError> {
    decide_within(gw, voice, question, (meaning, None)).await
}

/// Takes one answer, with the chosen bound of a standing approval.
///
/// # Errors
/// As [`decide`].
pub async fn decide_within(
    gw: &Gateway,
    voice: &DecisionSource,
    question: &ApprovalRequest,
    (meaning, bound): (ReplyMeaning, Option<u32>),
) -> Result<AnswerOutcome, CallError> {
    let approval = &question.card.approval;
    if let Some(no) = changed_since(question, &meaning) {
        // The person sees the approval as it is now, and can answer that.
        gw.store.show_again(approval.id, MessageId::mint(gw.ids.as_ref())).await?;
        gw.signals.letters.notify_one();
        return Err(no);
    }
    let ruling = match meaning {
        ReplyMeaning::Freeze(stop) => return freeze(gw, voice, approval, stop).await,
        ReplyMeaning::All { seen } => ApprovalRuling::Choose(BatchChoice::All { seen }),
        ReplyMeaning::First(n) => ApprovalRuling::Choose(BatchChoice::First(n)),
        ReplyMeaning::Choice(words) => ApprovalRuling::Allow { answer: ApprovalAnswer::Note, note: Some(words) },
        ReplyMeaning::Menu(reply) => ruling_of(approval.subject, reply)?,
    };
    rule(gw, voice, question, SubmittedDecision { ruling, shown: Vec::new(), bound }).await
}

/// A refusal, if an approval would cover writes that the answered message did not show. A denial always counts.
fn changed_since(question: &ApprovalRequest, meaning: &ReplyMeaning) -> Option<CallError> {
    let (shown, items) = (question.shown?, question.card.approval.items);
    let wanted = match meaning {
        ReplyMeaning::Freeze(_) | ReplyMeaning::Menu(ApprovalReply::Deny(_)) => 0,
        ReplyMeaning::First(n) => *n,
        ReplyMeaning::All { .. } | ReplyMeaning::Menu(_) | ReplyMeaning::Choice(_) => items,
    };
    let text = format!(
        "the approval covers {items} writes now, and the message you answered showed {shown} of them; a new message \
         with all of them follows; 3 still denies"
    );
    (wanted > shown).then(|| CallError::with_text(Code::ApprovalGrown, &text))
}

fn ruling_of(subject: ApprovalSubject, reply: ApprovalReply) -> Result<ApprovalRuling, CallError> {
    Ok(match reply {
        ApprovalReply::Once => ApprovalRuling::Allow { answer: ApprovalAnswer::Once, note: None },
        ApprovalReply::Session => ApprovalRuling::Allow { answer: ApprovalAnswer::Session, note: None },
        ApprovalReply::Always => ApprovalRuling::Allow { answer: ApprovalAnswer::Always, note: None },
        ApprovalReply::Note(note) => ApprovalRuling::Allow { answer: ApprovalAnswer::Note, note: Some(note) },
        ApprovalReply::Deny(reason) => ApprovalRuling::Deny { note: reason },
        ApprovalReply::Amend(text) if subject == ApprovalSubject::Request => ApprovalRuling::Reword(text),
        // A write that the gateway carries out is never replaced by a text: the changed action is checked as a new one.
        ApprovalReply::Amend(_) => {
            return Err(CallError::with_text(
                Code::ApprovalNotOffered,
                "a write the gateway carries out is changed with `sluice approvals modify`, not by a text",
            ));
        }
    })
}

/// Takes one ruling, with all checks that an approval has to pass first.
///
/// # Errors
/// As [`decide`].
pub async fn rule(
    gw: &Gateway,
    voice: &DecisionSource,
    question: &ApprovalRequest,
    said: impl Into<SubmittedDecision>,
) -> Result<AnswerOutcome, CallError> {
    let SubmittedDecision { ruling, shown: named, bound } = said.into();
    let approval = &question.card.approval;
    let denies = matches!(ruling, ApprovalRuling::Deny { .. });
    let open = matches!(approval.state, ApprovalState::Pending { .. }) && !approval.is_over(gw.now());
    if open && !denies {
        check_channel(gw, voice, question)?;
    }
    let allowance = match &ruling {
        ApprovalRuling::Allow { answer: answer @ (ApprovalAnswer::Session | ApprovalAnswer::Always), .. } if open => {
            Some(standing::allowance(gw, question, *answer, bound)?)
        }
        _ => None,
    };
    // If no digests were named, the person was shown the digests that we rendered.
    let shown = if named.is_empty() { question.shown_digests() } else { named };
    let need = if gw.config.approvals.two_people.at(question.risk()) { 2 } else { 1 };
    let decision = DecideApproval {
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
        JointDecisionOutcome::Settled(decided)
    } else {
        gw.store.decide_jointly(decision, need).await?
    };
    match joint {
        JointDecisionOutcome::Settled(DecisionOutcome::Now { approval, allowed, denied }) => {
            announce(gw, approval.id, &allowed, &denied).await?;
            Ok(AnswerOutcome::Decided { approval, allowed, denied })
        }
        JointDecisionOutcome::Settled(DecisionOutcome::Already(approval)) => {
            gw.notify_approval_changed(approval.id);
            Ok(AnswerOutcome::Late(approval))
        }
        JointDecisionOutcome::Waiting { have, need, .. } => Ok(AnswerOutcome::Waiting { have, need }),
    }
}

/// Notifies everyone who waits for the decision.
pub(crate) async fn announce(
    gw: &Gateway,
    id: ApprovalId,
    allowed: &[HoldId],
    denied: &[HoldId],
) -> Result<(), CallError> {
    for hold in allowed {
        if let Some(row) = gw.store.hold(*hold).await? {
            gw.open_undo_window(*hold, row.delay);
        }
    }
    allowed.iter().chain(denied).for_each(|hold| gw.notify_hold_changed(*hold));
    gw.due.notify_one();
    gw.notify_approval_changed(id);
    Ok(())
}

/// Whether this channel may approve this.
fn check_channel(gw: &Gateway, voice: &DecisionSource, question: &ApprovalRequest) -> Result<(), CallError> {
    let Some(ceiling) = voice.ceiling else { return Ok(()) };
    let (risk, refuse) = (question.risk(), |text: &str| Err(CallError::with_text(Code::ApprovalNotOffered, text)));
    if risk.rank() > ceiling.rank() {
        return refuse(&format!(
            "{} may approve up to {} risk, and this is {}; use `sluice approvals` or deny here",
            voice.channel,
            ceiling.as_str(),
            risk.as_str()
        ));
    }
    // SECURITY: nobody approves over a channel that did not show them the whole action.
    if !rendering::of(gw, question, rendering::space(voice.channel)).allows() {
        return refuse("this could not be shown in full here; review and decide with `sluice approvals`, or deny here");
    }
    Ok(())
}

async fn freeze(
    gw: &Gateway,
    voice: &DecisionSource,
    approval: &Approval,
    stop: FreezeScope,
) -> Result<AnswerOutcome, CallError> {
    let scope = match stop {
        FreezeScope::Agent => sluice_store::FreezeTarget::Agent(approval.agent.clone()),
        FreezeScope::All => sluice_store::FreezeTarget::All,
    };
    let words = scope.to_string();
    gw.stop_lane().freeze(scope, voice.by.clone(), format!("requested over {}", voice.channel)).await?;
    gw.standstill.look(&gw.store).await;
    recovery::remember_stop(gw).await;
    gw.signals.events.notify_written();
    Ok(AnswerOutcome::Frozen(words))
}

/// The outcome of an answer, as text for the person who gave it.
#[must_use]
pub fn describe_outcome(heard: &AnswerOutcome) -> String {
    match heard {
        AnswerOutcome::Decided { approval, allowed, denied } => {
            let counted = match (allowed.len(), denied.len()) {
                (0 | 1, 0) | (0, 1) => String::new(),
                (go, stay) => format!(" ({go} allowed, {stay} denied)"),
            };
            format!("Done: {}{counted}.", describe_approval(approval))
        }
        AnswerOutcome::Waiting { have, need } => format!("Noted: {have} of {need} people have approved."),
        AnswerOutcome::Late(approval) => format!("Nothing changed: it was already {}.", describe_approval(approval)),
        AnswerOutcome::Frozen(scope) => format!("Frozen: {scope}. Nothing covered by it starts until it is unfrozen."),
    }
}

/// The state of an approval, as text for people: who decided, how and when.
#[must_use]
pub fn describe_approval(approval: &Approval) -> String {
    let how = |answer: &ApprovalAnswer| match answer {
        ApprovalAnswer::Once | ApprovalAnswer::Note => "allowed once",
        ApprovalAnswer::Session => "allowed for the session",
        ApprovalAnswer::Always => "always allowed from now on",
        ApprovalAnswer::Amend => "allowed with a changed text",
        ApprovalAnswer::Deny => "denied",
    };
    match &approval.state {
        ApprovalState::Pending { expires_at } => format!("open until {expires_at}"),
        ApprovalState::Approved { by, at, answer, .. } | ApprovalState::Consumed { by, at, answer, .. } => {
            format!("{} by {} at {at}", how(answer), called(by))
        }
        ApprovalState::Denied { by, at } => format!("denied by {} at {at}", called(by)),
        ApprovalState::Superseded { by, at, .. } => format!("changed and allowed once by {} at {at}", called(by)),
        ApprovalState::Expired { at } => format!("expired at {at}: nobody answered, so it was denied"),
        ApprovalState::Withdrawn { at } => format!("withdrawn at {at}: the action no longer exists"),
        ApprovalState::Lapsed { at } => format!("allowed, but not used in time (until {at})"),
        ApprovalState::Revoked { at } => format!("allowed, and revoked at {at}"),
    }
}

fn called(actor: &Actor) -> String {
    match actor {
        Actor::Person(name) | Actor::Operator(name) => name.to_string(),
        Actor::Agent(_) | Actor::Node(_) => "a standing approval".to_owned(),
    }
}
