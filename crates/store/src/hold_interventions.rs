//! What people and agents do to a held write: stop it, hold it longer, release it now, or settle what only they can
//! know.

use sluice_core::approval::{Approval, ApprovalMove};
use sluice_core::hold::{Hold, HoldMove, HoldState, IllegalMove};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, HoldId, Millis, ServiceName, Tier};

use crate::approvals::{self, AskApprovalAgain};
use crate::error::StoreError;
use crate::holds::{self, HoldMoveReason, columns};
use crate::rollbacks;
use crate::sql::{SqlValue, StoreTx, params};
use crate::stop_orders;
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// Stops a write. An agent may stop only its own; people and nodes may stop any.
pub(crate) struct CancelHold {
    pub hold: HoldId,
    pub by: Actor,
}

/// The result of a cancel.
#[derive(Debug, Clone, PartialEq)]
pub enum CancelHoldOutcome {
    /// Nothing was or will be sent.
    Stopped(Hold),
    /// It had started, or it had ended.
    TooLate(Hold),
}

impl UseCase for CancelHold {
    type Out = CancelHoldOutcome;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<CancelHoldOutcome, StoreError> {
        let hold = holds::locked(unit, self.hold).await?;
        if is_strangers(&hold, &self.by) {
            return Err(StoreError::NotFound { what: "held write" });
        }
        let step = HoldMove::Cancel { by: self.by.clone(), at: unit.now };
        if hold.state.clone().apply(step.clone()).is_err() {
            return Ok(CancelHoldOutcome::TooLate(hold));
        }
        let question = match &hold.state {
            HoldState::AwaitingApproval { approval } => Some(*approval),
            _ => hold.consent,
        };
        let why = HoldMoveReason::by(self.by.clone());
        if let Some(question) = question {
            approvals::withdraw(unit, question, &why).await?;
        }
        holds::shift(unit, hold, [step], &why).map(CancelHoldOutcome::Stopped)
    }
}

/// SECURITY: another agent is told that the write does not exist, not that it is forbidden.
fn is_strangers(hold: &Hold, by: &Actor) -> bool {
    matches!(by, Actor::Agent(name) if name != hold.agent())
}

/// Stops all writes of a service that have not left, when the service is removed. Writes that have left are not
/// retried.
pub(crate) struct CancelServiceHolds {
    pub service: ServiceName,
    pub by: Actor,
    /// The reason in the audit log.
    pub code: &'static str,
}

/// What disconnecting a service did to its writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceHoldsCancelled {
    /// Nothing of these was or will be sent.
    pub cancelled: Vec<HoldId>,
    /// These had left, or may have left: if one turns out not to have happened, it is cancelled.
    pub on_their_way: Vec<HoldId>,
}

macro_rules! stoppable {
    ($whose:literal) => {
        columns!(
            "WHERE ",
            $whose,
            " AND h.state IN ('awaiting_approval', 'held', 'ready', 'stale', 'preparing') ORDER BY h.id /*lock*/"
        )
    };
}
const OF_SERVICE: &str = stoppable!("h.service = ?1");
const ON_THEIR_WAY: &str = "SELECT id FROM holds WHERE service = ?1 AND ended_at IS NULL \
     AND state IN ('armed', 'in_doubt', 'needs_human') ORDER BY id /*lock*/";
/// A rollback was requested by a person, so it continues.
const OF_AGENT: &str = stoppable!("h.agent = ?1 AND h.reverses IS NULL");

impl UseCase for CancelServiceHolds {
    type Out = ServiceHoldsCancelled;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ServiceHoldsCancelled, StoreError> {
        let waiting = UnsentHolds::read(unit, OF_SERVICE, params![&self.service]).await?;
        let mut on_their_way = Vec::new();
        for row in unit.rows(ON_THEIR_WAY, params![&self.service]).await? {
            on_their_way.push(HoldId::from_bits(row.of("holds").bits()?));
        }
        for hold in &on_their_way {
            stop_orders::order(unit, *hold, &self.by);
        }
        let cancelled = waiting.stop(unit, &self.by, self.code)?;
        Ok(ServiceHoldsCancelled { cancelled, on_their_way })
    }
}

/// Writes that have not left, and their approval requests: everything that is read before any of them is stopped.
pub(crate) struct UnsentHolds {
    holds: Vec<Hold>,
    questions: Vec<Approval>,
}

impl UnsentHolds {
    /// All writes of an agent that have not left.
    pub(crate) async fn of<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, agent: &AgentName) -> Result<Self, StoreError> {
        Self::read(unit, OF_AGENT, params![agent]).await
    }

    async fn read<T: StoreTx>(
        unit: &mut UnitOfWork<'_, T>,
        sql: &'static str,
        params: Vec<SqlValue>,
    ) -> Result<Self, StoreError> {
        let rows = unit.rows(sql, params).await?;
        let holds = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let mut questions: Vec<Approval> = Vec::new();
        for hold in &holds {
            let question = match hold.state {
                HoldState::AwaitingApproval { approval } => Some(approval),
                _ => hold.consent,
            };
            if let Some(question) = question
                && !questions.iter().any(|asked| asked.id == question)
            {
                questions.push(approvals::locked(unit, question).await?);
            }
        }
        Ok(Self { holds, questions })
    }

    /// Stops them, and withdraws the approval requests.
    pub(crate) fn stop<T: StoreTx>(
        self,
        unit: &mut UnitOfWork<'_, T>,
        by: &Actor,
        code: &'static str,
    ) -> Result<Vec<HoldId>, StoreError> {
        let (why, at) = (HoldMoveReason::because(by.clone(), code), unit.now);
        let mut stopped = Vec::new();
        for hold in self.holds {
            stopped.push(hold.id);
            holds::shift(unit, hold, [HoldMove::Cancel { by: by.clone(), at }], &why)?;
        }
        for question in self.questions {
            // A card covers one agent at one service, so nothing is left on it to approve.
            if question.state.is_open() {
                approvals::shift(unit, question, ApprovalMove::Withdraw { at }, &why)?;
            } else {
                approvals::withdraw_loaded(unit, question, &why)?;
            }
        }
        Ok(stopped)
    }
}

/// What an operator can do to a write's timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldTiming {
    /// Hold it longer by this time.
    Longer(Millis),
    /// Close its undo window now.
    Now,
}

pub(crate) struct ChangeHoldTiming {
    pub hold: HoldId,
    pub by: Actor,
    pub timing: HoldTiming,
}

impl UseCase for ChangeHoldTiming {
    type Out = Hold;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Hold, StoreError> {
        // SECURITY: an agent must not shorten the window in which people can stop it.
        match (&self.by, self.timing) {
            (Actor::Person(_) | Actor::Operator(_), HoldTiming::Longer(_) | HoldTiming::Now)
            | (Actor::Agent(_) | Actor::Node(_), HoldTiming::Longer(_)) => {}
            (Actor::Agent(_) | Actor::Node(_), HoldTiming::Now) => return Err(StoreError::NotAPerson),
        }
        let hold = holds::locked(unit, self.hold).await?;
        if is_strangers(&hold, &self.by) {
            return Err(StoreError::NotFound { what: "held write" });
        }
        let now = unit.now;
        let step = match (self.timing, &hold.state) {
            (HoldTiming::Longer(span), HoldState::Held { not_before }) => {
                HoldMove::Rehold { not_before: *not_before + span }
            }
            (HoldTiming::Longer(span), _) => HoldMove::Rehold { not_before: now + span },
            (HoldTiming::Now, _) => HoldMove::SendNow { now },
        };
        // A stale write needs a decision, not only a new time: see [`SettleHold`].
        if matches!(hold.state, HoldState::Stale { .. }) {
            return Err(StoreError::NotOffered);
        }
        holds::shift(unit, hold, [step], &HoldMoveReason::by(self.by.clone()))
    }
}

/// The code of a write that is dead because a person gave it up.
const GIVEN_UP: &str = "execute.given_up";

/// A person's decision about a write that cannot continue without one.
#[derive(Debug, Clone)]
pub struct SettleHold {
    /// The write.
    pub hold: HoldId,
    /// The version that the person saw.
    pub version: u64,
    /// Who decided.
    pub by: Actor,
    /// The decision.
    pub word: HoldSettlement,
    /// The tier that policy gives it now; a revived write needs approval again if policy requires it.
    pub tier: Tier,
    /// The id of that approval request.
    pub approval: ApprovalId,
    /// The id of a message.
    pub message: MessageId,
    /// How long people have to decide it.
    pub expiry: Millis,
}

/// The decisions a person can make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldSettlement {
    /// It did happen (for a write that needs a human).
    Happened {
        /// How the person knows.
        evidence: String,
    },
    /// It did not happen: retry it (needs a human), or give it a new undo window (dead, stale).
    Again,
    /// Give it up.
    GiveUp,
}

impl UseCase for SettleHold {
    type Out = Hold;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Hold, StoreError> {
        match &self.by {
            Actor::Person(_) | Actor::Operator(_) => {}
            Actor::Agent(_) | Actor::Node(_) => return Err(StoreError::NotAPerson),
        }
        let hold = holds::locked(unit, self.hold).await?;
        if hold.version != self.version {
            return Err(StoreError::Conflict);
        }
        let point = rollbacks::of_hold(unit, hold.id).await?;
        let stop = stop_orders::stop_ordered_by(unit, hold.id).await?;
        let (now, why) = (unit.now, HoldMoveReason::by(self.by.clone()));
        match (&self.word, &hold.state) {
            (HoldSettlement::Happened { evidence }, HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. }) => {
                holds::shift(unit, hold, [HoldMove::Complete { receipt: evidence.clone(), at: now }], &why)
            }
            // Allowed even before a lookup: a service that cannot be reached would keep it in doubt forever.
            (HoldSettlement::Again, HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. }) => {
                stop_orders::advance_or_stop(unit, hold, HoldMove::ProveAbsent { not_before: now }, (stop, &why))
            }
            // The wait between two attempts ends now; the back-off continues from this attempt.
            (HoldSettlement::Again, HoldState::Ready { .. }) if stop.is_none() && hold.next_attempt_at().is_some() => {
                holds::shift(unit, hold, [HoldMove::SendNow { now }], &why)
            }
            // The service it was to be sent through was removed.
            (HoldSettlement::Again, _) if stop.is_some() => Err(StoreError::NotOffered),
            (HoldSettlement::Again, HoldState::Dead { .. } | HoldState::Stale { .. }) => self.revive(unit, hold, &why),
            // Any other write is under way, or has ended: another approval request would compete with the first.
            (HoldSettlement::Happened { .. } | HoldSettlement::Again, state) => {
                Err(IllegalMove::NoEdge { from: state.word(), attempted: "be settled" }.into())
            }
            // A person gave it up and need not be notified; the audit log names them.
            (HoldSettlement::GiveUp, HoldState::NeedsHuman { .. } | HoldState::InDoubt { .. }) => {
                let code = || GIVEN_UP.to_owned();
                let asked =
                    matches!(hold.state, HoldState::InDoubt { .. }).then(|| HoldMove::AskHuman { code: code() });
                let steps = asked.into_iter().chain([HoldMove::GiveUp { code: code(), at: now }]);
                holds::shift(unit, hold, steps, &HoldMoveReason::because(self.by.clone(), GIVEN_UP))
            }
            // A write that was never tried is cancelled, not given up.
            (HoldSettlement::GiveUp, HoldState::Ready { .. }) if hold.next_attempt_at().is_none() => {
                Err(IllegalMove::NoEdge { from: hold.state.word(), attempted: "be given up" }.into())
            }
            (HoldSettlement::GiveUp, _) => {
                if let Some(point) = point
                    && point.is_captured()
                {
                    rollbacks::abandon(unit, point)?;
                }
                holds::shift(unit, hold, [HoldMove::Discard { by: self.by.clone(), at: now }], &why)
            }
        }
    }
}

impl SettleHold {
    /// A new undo window for a dead or stale write, with a new approval if policy requires one.
    fn revive<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        hold: Hold,
        why: &HoldMoveReason,
    ) -> Result<Hold, StoreError> {
        let not_before = unit.now + hold.delay;
        let hold = Hold { attempts: 0, ..hold };
        match self.tier {
            Tier::Blocked => Err(StoreError::NotOffered),
            Tier::ApprovalRequired => {
                let (approval, message) = (self.approval, self.message);
                let again =
                    AskApprovalAgain { approval, message, code: "hold.revived", expiry: self.expiry, reasons: &[] };
                again.ask(unit, hold, self.by.clone())
            }
            Tier::Autonomous | Tier::Notify => {
                let step = match hold.state {
                    HoldState::Stale { .. } => HoldMove::Rehold { not_before },
                    _ => HoldMove::Revive { not_before },
                };
                holds::shift(unit, hold, [step], why)
            }
        }
    }
}

/// Held writes, newest last, for lists: all of them, or those in some states.
pub(crate) struct ListHoldsAfter {
    pub after: Option<HoldId>,
    pub limit: u32,
}

const LISTED: &str = columns!("WHERE h.id > ?1 ORDER BY h.id LIMIT ?2");

impl StoreQuery for ListHoldsAfter {
    type Out = Vec<Hold>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        let after = self.after.unwrap_or(HoldId::from_bits(0));
        tx.rows(LISTED, &params![after, self.limit]).await?.into_iter().map(holds::decode).collect()
    }
}
