//! Answers that take more than one step: an approval that needs a second person, and an action that a person changes.
//!
//! Promise: the first of two approvals changes nothing but the count; two approvals by one person count as one; only
//! votes for the same writes are counted together. A changed action is a new write with its own digest and its own
//! approval, in the same transaction that ends the old one.

use sluice_core::approval::{Approval, ApprovalAnswer, ApprovalMove, ApprovalState, ApprovalSubject};
use sluice_core::audit::AuditFact;
use sluice_core::hold::{Hold, HoldMove};
use sluice_core::{Actor, ApprovalId, HoldId};

use crate::Store;
use crate::admission::Admission;
use crate::approvals::{self, ApprovalRuling, DecideApproval, DecisionOutcome};
use crate::counters;
use crate::error::StoreError;
use crate::freezes;
use crate::holds::{self, HoldMoveReason};
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{UnitOfWork, UseCase};

const VOTES: &str = "SELECT voter FROM votes WHERE approval = ?1 AND card = ?2";
const VOTE: &str = "INSERT INTO votes (approval, voter, channel, given_at, card) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (approval, voter) DO UPDATE SET channel = excluded.channel, given_at = excluded.given_at, \
     card = excluded.card";

/// The result of a decision that may need two people.
#[derive(Debug, Clone, PartialEq)]
pub enum JointDecisionOutcome {
    /// Decided, as by one person.
    Settled(DecisionOutcome),
    /// The vote counts, and another person must agree.
    Waiting {
        /// The approval request, still open.
        approval: Approval,
        /// Approvals so far.
        have: u32,
        /// Approvals needed.
        need: u32,
    },
}

struct DecideJointly {
    decision: DecideApproval,
    need: u32,
}

impl UseCase for DecideJointly {
    type Out = JointDecisionOutcome;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<JointDecisionOutcome, StoreError> {
        let denies = matches!(self.decision.ruling, ApprovalRuling::Deny { .. });
        if denies || self.need <= 1 {
            return self.decision.run(unit).await.map(JointDecisionOutcome::Settled);
        }
        let approval = approvals::locked(unit, self.decision.approval).await?;
        let over = match approval.state {
            ApprovalState::Pending { expires_at } => unit.now >= expires_at,
            _ => true,
        };
        let voter = name(&self.decision.by).ok_or(StoreError::NotAPerson)?;
        if over {
            return self.decision.run(unit).await.map(JointDecisionOutcome::Settled);
        }
        // A person who agreed to fewer writes, or to other words, has not agreed to these.
        let items = approvals::items(unit.tx(), approval.id).await?;
        let places = self.decision.allowed(&approval, &items)?;
        let card = self.decision.vote_digest(&items, &places);
        let mut voters = Vec::new();
        for row in unit.rows(VOTES, params![approval.id, card]).await? {
            voters.push(row.of("votes").text()?);
        }
        let others = voters.iter().filter(|known| **known != voter).count();
        let have = u32::try_from(others + 1).unwrap_or(u32::MAX);
        if have >= self.need {
            return self.decision.run(unit).await.map(JointDecisionOutcome::Settled);
        }
        let now = unit.now;
        unit.write(VOTE, params![approval.id, voter, self.decision.channel.as_str(), now, card]);
        let mut fact =
            AuditFact::new("approval.seconded", self.decision.by.clone()).with("have", have).with("need", self.need);
        fact.approval = Some(approval.id);
        unit.record(fact);
        Ok(JointDecisionOutcome::Waiting { approval, have, need: self.need })
    }
}

/// The same person is one voter on every channel.
fn name(actor: &Actor) -> Option<String> {
    match actor {
        Actor::Person(name) | Actor::Operator(name) => Some(name.to_string()),
        Actor::Agent(_) | Actor::Node(_) => None,
    }
}

/// A person changes the action they were asked about, and approves the changed one.
#[derive(Debug, Clone)]
pub struct AmendApproval {
    /// The approval request.
    pub approval: ApprovalId,
    /// Who changes the action.
    pub by: Actor,
    /// The channel the person used.
    pub channel: String,
    /// The changed action, judged like any other. Its `approval` and `hold` are new.
    pub changed: Admission,
}

/// The result of an amendment.
#[derive(Debug, Clone, PartialEq)]
pub enum AmendmentOutcome {
    /// The changed write is held; the old one has ended.
    Now {
        /// The hold that was replaced.
        old: HoldId,
        /// The hold of the changed action.
        new: Box<Hold>,
    },
    /// Another answer came first, or it is too late.
    Already(Approval),
}

impl UseCase for AmendApproval {
    type Out = AmendmentOutcome;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<AmendmentOutcome, StoreError> {
        // SECURITY: no credential of an agent can decide anything.
        if name(&self.by).is_none() {
            return Err(StoreError::NotAPerson);
        }
        let approval = approvals::locked(unit, self.approval).await?;
        let ApprovalState::Pending { expires_at } = approval.state else {
            return Ok(AmendmentOutcome::Already(approval));
        };
        if unit.now >= expires_at {
            return approvals::expire(unit, approval).await.map(AmendmentOutcome::Already);
        }
        if approval.subject != ApprovalSubject::Write || approval.agent != *self.changed.action.agent() {
            return Err(StoreError::NotOffered);
        }
        let items = approvals::items(unit.tx(), approval.id).await?;
        let [item] = items.as_slice() else { return Err(StoreError::NotOffered) };
        let old = holds::locked(unit, item.hold).await?;
        freezes::refuse_if_frozen(unit, self.changed.action.agent(), &self.changed.service).await?;
        let now = unit.now;
        let why = HoldMoveReason::because(self.by.clone(), &format!("channel.{}", self.channel));
        let old = Hold { consent: Some(approval.id), ..old };
        let (old_id, call) = (old.id, old.call);
        let old = holds::shift(unit, old, [HoldMove::Deny { at: now }], &why)?;
        // The changed write is counted in its place.
        counters::give_back(unit, &old);
        let step = ApprovalMove::Supersede { by: self.by.clone(), at: now, replacement: self.changed.approval };
        approvals::shift(unit, approval, step, &why)?;
        let new = self.changed.place_amended(unit, call);
        let mut question = self.changed.question_for(now);
        approvals::add_item(unit, &mut question, new.id, new.action.digest());
        approvals::insert(unit, &question, "approval.amended", &[]);
        let valid_until = now + sluice_core::approval::validity(new.delay);
        let yes = ApprovalMove::Approve { by: self.by.clone(), at: now, answer: ApprovalAnswer::Once, valid_until };
        approvals::shift(unit, question, yes, &why)?;
        let new = Hold { consent: Some(self.changed.approval), ..new };
        let not_before = now + new.delay;
        let new = holds::shift(unit, new, [HoldMove::Approve { not_before }], &why)?;
        Ok(AmendmentOutcome::Now { old: old_id, new: Box::new(new) })
    }
}

impl Store {
    /// Decides a request that needs approvals from several people. One denial is enough to deny it.
    ///
    /// # Errors
    /// As [`Store::decide`].
    pub async fn decide_jointly(
        &self,
        decision: DecideApproval,
        need: u32,
    ) -> Result<JointDecisionOutcome, StoreError> {
        self.submit(DecideJointly { decision, need }).await
    }

    /// Replaces the action of a request with a changed one and approves it.
    ///
    /// # Errors
    /// When the caller is not a person, the request is not about one write, or something is frozen.
    pub async fn amend(&self, amendment: AmendApproval) -> Result<AmendmentOutcome, StoreError> {
        self.submit(amendment).await
    }
}
