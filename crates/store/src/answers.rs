//! Answers that take more than one step: a yes that needs a second person, and an action a person changes.
//!
//! Promise: the first of two yeses changes nothing but the count; two yeses of one person are one; only votes for the
//! same writes are counted together. A changed action
//! is a new write with its own digest and its own approval, in the same transaction that ends the old one.

use sluice_core::approval::{Answer, Approval, ApprovalMove, ApprovalState, Subject};
use sluice_core::audit::Fact;
use sluice_core::hold::{Hold, Move};
use sluice_core::{Actor, ApprovalId, HoldId};

use crate::Store;
use crate::admission::Admission;
use crate::approvals::{self, Decided, Decision, Ruling};
use crate::counters;
use crate::desk::{Desk, UseCase};
use crate::error::StoreError;
use crate::freezes;
use crate::holds::{self, Why};
use crate::sql::{Tx, params};

const VOTES: &str = "SELECT voter FROM votes WHERE approval = ?1 AND card = ?2";
const VOTE: &str = "INSERT INTO votes (approval, voter, channel, given_at, card) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (approval, voter) DO UPDATE SET channel = excluded.channel, given_at = excluded.given_at, \
     card = excluded.card";

/// How a decision that may need two people went.
#[derive(Debug, Clone, PartialEq)]
pub enum Joint {
    /// As a decision of one.
    Settled(Decided),
    /// It counts, and another person has to agree.
    Waiting {
        /// The question, still open.
        approval: Approval,
        /// Yeses so far.
        have: u32,
        /// Yeses needed.
        need: u32,
    },
}

struct Jointly {
    decision: Decision,
    need: u32,
}

impl UseCase for Jointly {
    type Out = Joint;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Joint, StoreError> {
        let denies = matches!(self.decision.ruling, Ruling::Deny { .. });
        if denies || self.need <= 1 {
            return self.decision.run(desk).await.map(Joint::Settled);
        }
        let approval = approvals::locked(desk, self.decision.approval).await?;
        let over = match approval.state {
            ApprovalState::Pending { expires_at } => desk.now >= expires_at,
            _ => true,
        };
        let voter = name(&self.decision.by).ok_or(StoreError::NotAPerson)?;
        if over {
            return self.decision.run(desk).await.map(Joint::Settled);
        }
        // Who agreed to fewer writes, or to other words, has not agreed to these.
        let items = approvals::items(desk.tx(), approval.id).await?;
        let places = self.decision.allowed(&approval, &items)?;
        let card = self.decision.vote_digest(&items, &places);
        let mut voters = Vec::new();
        for row in desk.rows(VOTES, params![approval.id, card]).await? {
            voters.push(row.of("votes").text()?);
        }
        let others = voters.iter().filter(|known| **known != voter).count();
        let have = u32::try_from(others + 1).unwrap_or(u32::MAX);
        if have >= self.need {
            return self.decision.run(desk).await.map(Joint::Settled);
        }
        let now = desk.now;
        desk.write(VOTE, params![approval.id, voter, self.decision.channel.as_str(), now, card]);
        let mut fact =
            Fact::new("approval.seconded", self.decision.by.clone()).with("have", have).with("need", self.need);
        fact.approval = Some(approval.id);
        desk.record(fact);
        Ok(Joint::Waiting { approval, have, need: self.need })
    }
}

/// The same person is one voter, whichever way they come in.
fn name(actor: &Actor) -> Option<String> {
    match actor {
        Actor::Person(name) | Actor::Operator(name) => Some(name.to_string()),
        Actor::Agent(_) | Actor::Node(_) => None,
    }
}

/// A person changes the action they were asked about, and approves the changed one.
#[derive(Debug, Clone)]
pub struct Amendment {
    /// The question.
    pub approval: ApprovalId,
    /// Who.
    pub by: Actor,
    /// Over which channel.
    pub channel: String,
    /// The changed action, judged as any other. Its `approval` and `hold` are new.
    pub changed: Admission,
}

/// How an amendment went.
#[derive(Debug, Clone, PartialEq)]
pub enum Amended {
    /// The changed write is held; the old one is over.
    Now {
        /// The write that will not happen.
        old: HoldId,
        /// The one that will.
        new: Box<Hold>,
    },
    /// Someone else was faster, or it is too late.
    Already(Approval),
}

impl UseCase for Amendment {
    type Out = Amended;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Amended, StoreError> {
        // SECURITY: no credential an agent holds decides anything.
        if name(&self.by).is_none() {
            return Err(StoreError::NotAPerson);
        }
        let approval = approvals::locked(desk, self.approval).await?;
        let ApprovalState::Pending { expires_at } = approval.state else { return Ok(Amended::Already(approval)) };
        if desk.now >= expires_at {
            return approvals::expire(desk, approval).await.map(Amended::Already);
        }
        if approval.subject != Subject::Write || approval.agent != *self.changed.action.agent() {
            return Err(StoreError::NotOffered);
        }
        let items = approvals::items(desk.tx(), approval.id).await?;
        let [item] = items.as_slice() else { return Err(StoreError::NotOffered) };
        let old = holds::locked(desk, item.hold).await?;
        freezes::refuse_if_frozen(desk, self.changed.action.agent(), &self.changed.service).await?;
        let now = desk.now;
        let why = Why::because(self.by.clone(), &format!("channel.{}", self.channel));
        let old = Hold { consent: Some(approval.id), ..old };
        let (old_id, call) = (old.id, old.call);
        let old = holds::shift(desk, old, [Move::Deny { at: now }], &why)?;
        // The changed one is counted in its place.
        counters::give_back(desk, &old);
        let step = ApprovalMove::Supersede { by: self.by.clone(), at: now, replacement: self.changed.approval };
        approvals::shift(desk, approval, step, &why)?;
        let new = self.changed.place_amended(desk, call);
        let mut question = self.changed.question_for(now);
        approvals::add_item(desk, &mut question, new.id, new.action.digest());
        approvals::insert(desk, &question, "approval.amended", &[]);
        let valid_until = now + sluice_core::approval::validity(new.delay);
        let yes = ApprovalMove::Approve { by: self.by.clone(), at: now, answer: Answer::Once, valid_until };
        approvals::shift(desk, question, yes, &why)?;
        let new = Hold { consent: Some(self.changed.approval), ..new };
        let not_before = now + new.delay;
        let new = holds::shift(desk, new, [Move::Approve { not_before }], &why)?;
        Ok(Amended::Now { old: old_id, new: Box::new(new) })
    }
}

impl Store {
    /// Decides a question for which so many different people must say yes. One no is enough.
    ///
    /// # Errors
    /// As [`Store::decide`].
    pub async fn decide_jointly(&self, decision: Decision, need: u32) -> Result<Joint, StoreError> {
        self.submit(Jointly { decision, need }).await
    }

    /// Puts a changed action in the place of the one asked about, approved.
    ///
    /// # Errors
    /// When the one who decides is no person, the question is not about one write, or something is frozen.
    pub async fn amend(&self, amendment: Amendment) -> Result<Amended, StoreError> {
        self.submit(amendment).await
    }
}
