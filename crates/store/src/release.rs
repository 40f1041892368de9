//! From due to done: claiming a held write, arming it, and recording its outcome.
//!
//! Promise: the intent is durable before an effect may leave, and the result after it. A claim that is no longer valid
//! changes nothing. A freeze, a stricter policy or a lapsed approval stops a write at the last moment.

mod due_writes;

use sluice_core::action::Action;
use sluice_core::approval::reason::ApprovalReason;
use sluice_core::approval::{Approval, ApprovalError, ApprovalMove, ApprovalState};
use sluice_core::backoff;
use sluice_core::hold::{AttemptPhase, Hold, HoldClaim, HoldMove, HoldState, Permit};
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::refusal::Code;
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{ApprovalId, Digest, HoldId, Millis, UtcMillis};

use crate::approvals::{self, AskApprovalAgain};
use crate::error::StoreError;
use crate::failures;
use crate::freezes::{self, Freeze};
use crate::holds::{self, HoldMoveReason};
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::prefetch::PrefetchQuery;
use crate::results;
use crate::rollbacks::{self, RollbackPoint};
use crate::sql::{StoreTx, params};
use crate::stop_orders;
use crate::unit_of_work::{UnitOfWork, UseCase};
use due_writes::CLAIMABLE;
pub use due_writes::DueWrite;
pub(crate) use due_writes::{CountWaitingWrites, ListDueWrites, ListDueWritesByAgent};

/// One write to claim, with policy's judgement of it now.
#[derive(Debug, Clone)]
pub struct ClaimItem {
    /// The write.
    pub hold: HoldId,
    /// The version at which policy judged it.
    pub version: u64,
    /// Policy's judgement.
    pub recheck: PolicyRecheck,
    /// The id of an approval request, if one is needed.
    pub approval: ApprovalId,
    /// The id of its message.
    pub message: MessageId,
}

/// Policy's second judgement, just before the effect.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyRecheck {
    /// Nothing has become stricter.
    Stands,
    /// A person must approve it now.
    Ask {
        /// The reason, as a stable code.
        code: String,
        /// How long the person has.
        expiry: Millis,
        /// The reasons that the rules give now.
        reasons: Vec<ApprovalReason>,
        /// The same call bound to the current state of its objects, if that has changed.
        action: Option<Box<Action>>,
    },
    /// It is forbidden now.
    Block {
        /// The reason, as a stable code.
        code: String,
    },
}

/// Claims due writes for this node.
#[derive(Debug, Clone)]
pub struct ClaimDueWrites {
    /// The writes to claim.
    pub items: Vec<ClaimItem>,
    /// How long the node has before others may conclude that it has crashed.
    pub lease: Millis,
    /// How long people have, if an approval has lapsed.
    pub expiry: Millis,
}

/// The result of one claim.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteClaimOutcome {
    /// This node claimed it.
    Ours(Box<Hold>),
    /// Another node was faster, or it is no longer due.
    Lost(HoldId),
    /// It is frozen; it stays where it was.
    Frozen(HoldId),
    /// A person must approve it first.
    Asked(HoldId, ApprovalId),
    /// Policy forbids it now.
    Blocked(HoldId),
}

impl UseCase for ClaimDueWrites {
    type Out = Vec<WriteClaimOutcome>;

    fn prefetch_queries(&self, _: UtcMillis) -> Vec<PrefetchQuery> {
        vec![freezes::in_force_ahead()]
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<WriteClaimOutcome>, StoreError> {
        let freezes = freezes::in_force(unit.tx()).await?;
        let questions: Vec<_> = self.items.iter().map(|item| params![item.hold, item.version]).collect();
        let rows = unit.tx().rows_each(CLAIMABLE, &questions).await?;
        let mut seen = Vec::with_capacity(self.items.len());
        for (item, rows) in self.items.iter().zip(rows) {
            let hold = rows.into_iter().next().map(holds::decode).transpose()?;
            let consent = match hold.as_ref().and_then(|hold| hold.consent) {
                Some(id) => Some(approvals::locked(unit, id).await?),
                None => None,
            };
            seen.push((item, hold, consent));
        }
        // One card may cover several of them: its row moves once, with the first.
        let mut moved: Vec<Approval> = Vec::new();
        let mut outcome = Vec::with_capacity(seen.len());
        for (item, hold, consent) in seen {
            let consent = consent.map(|read| moved.iter().find(|kept| kept.id == read.id).cloned().unwrap_or(read));
            outcome.push(match hold {
                None => WriteClaimOutcome::Lost(item.hold),
                Some(hold) => self.claim(unit, item, hold, consent, &freezes, &mut moved)?,
            });
        }
        Ok(outcome)
    }
}

impl ClaimDueWrites {
    #[expect(clippy::too_many_arguments, reason = "everything one claim is decided by, read beforehand")]
    fn claim<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        item: &ClaimItem,
        hold: Hold,
        consent: Option<Approval>,
        freezes: &[Freeze],
        moved: &mut Vec<Approval>,
    ) -> Result<WriteClaimOutcome, StoreError> {
        let (id, now) = (hold.id, unit.now);
        if freezes::covering(freezes, hold.agent(), &hold.service).is_some() {
            return Ok(WriteClaimOutcome::Frozen(id));
        }
        match &item.recheck {
            PolicyRecheck::Stands => {}
            PolicyRecheck::Ask { code, expiry, reasons, action } => {
                // The rules became stricter than when the approval was given.
                if let Some(approval) = consent {
                    approvals::withdraw_loaded(unit, approval, &HoldMoveReason::because(unit.actor(), code))?;
                }
                let hold = match action {
                    Some(action) => holds::rebind(unit, hold, action.as_ref().clone())?,
                    None => hold,
                };
                let (approval, message) = (item.approval, item.message);
                let again = AskApprovalAgain { approval, message, code, expiry: *expiry, reasons };
                return again
                    .ask(unit, hold, unit.actor())
                    .map(|hold| WriteClaimOutcome::Asked(hold.id, item.approval));
            }
            PolicyRecheck::Block { code } => {
                let why = HoldMoveReason::because(unit.actor(), code);
                if let Some(approval) = consent {
                    approvals::withdraw_loaded(unit, approval, &why)?;
                }
                holds::shift(unit, hold, [HoldMove::Block { at: now }], &why)?;
                return Ok(WriteClaimOutcome::Blocked(id));
            }
        }
        // Before an approval is consumed: a claim that comes too early has started nothing.
        if matches!(hold.state, HoldState::Held { not_before } | HoldState::Ready { not_before } if now < not_before) {
            return Ok(WriteClaimOutcome::Lost(id));
        }
        let why = HoldMoveReason::by(unit.actor());
        if let Some(approval) = consent {
            match use_consent(unit, approval.clone(), &why) {
                Ok(approval) => {
                    moved.retain(|kept| kept.id != approval.id);
                    moved.push(approval);
                }
                Err(StoreError::Approval(ApprovalError::Expired { .. } | ApprovalError::NoEdge { .. })) => {
                    let lapse = ApprovalMove::Lapse { at: now };
                    if approval.state.clone().apply(lapse.clone()).is_ok() {
                        moved.push(approvals::shift(unit, approval, lapse, &why)?);
                    }
                    let (approval, message) = (item.approval, item.message);
                    let (code, expiry) = ("approval.lapsed", self.expiry);
                    let again = AskApprovalAgain { approval, message, code, expiry, reasons: &[] };
                    return again.ask(unit, hold, unit.actor()).map(|hold| WriteClaimOutcome::Asked(hold.id, approval));
                }
                Err(other) => return Err(other),
            }
        }
        let epoch = hold.epoch + 1;
        let claim = HoldClaim { node: unit.node.clone(), life: unit.life, epoch, lease_until: now + self.lease };
        let take = HoldMove::Claim { claim, now };
        let shifted = match &hold.state {
            HoldState::Held { .. } => holds::shift(unit, hold, [HoldMove::ComeDue { now }, take], &why),
            _ => holds::shift(unit, hold, [take], &why),
        };
        match shifted {
            Ok(hold) => Ok(WriteClaimOutcome::Ours(Box::new(hold))),
            Err(StoreError::Move(_)) => Ok(WriteClaimOutcome::Lost(id)),
            Err(other) => Err(other),
        }
    }
}

/// Consumes an approval. Consuming it again for the same write changes nothing and is recorded only once.
fn use_consent<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    approval: Approval,
    why: &HoldMoveReason,
) -> Result<Approval, StoreError> {
    let step = ApprovalMove::Consume { now: unit.now };
    if matches!(approval.state, ApprovalState::Consumed { .. }) {
        approval.state.clone().apply(step)?;
        return Ok(approval);
    }
    approvals::shift(unit, approval, step, why)
}

/// Arms a claimed write: everything needed to look it up and to undo it is recorded.
#[derive(Debug, Clone)]
pub struct ArmWrite {
    /// The write.
    pub hold: HoldId,
    /// The claim under which it is armed.
    pub epoch: u64,
    /// Digest of the bytes about to leave.
    pub wire: Digest,
    /// The handle that the service gave, if any; it has no effect by itself.
    pub handle: Option<String>,
    /// The state before the write, for a rollback.
    pub before: Option<StateBeforeWrite>,
}

/// The state of an object before a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateBeforeWrite {
    /// The rollback point's id.
    pub id: RollbackId,
    /// What the adapter needs to restore it.
    pub content: Vec<u8>,
    /// Hash of the object's state.
    pub print: ObjectFingerprint,
}

impl UseCase for ArmWrite {
    type Out = Permit;

    fn prefetch_queries(&self, _: UtcMillis) -> Vec<PrefetchQuery> {
        let mut foreseen = vec![holds::locked_ahead(self.hold), freezes::in_force_ahead()];
        foreseen.extend(self.before.as_ref().map(|_| rollbacks::of_hold_ahead(self.hold)));
        foreseen
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Permit, StoreError> {
        let hold = holds::locked(unit, self.hold).await?;
        demand_own_claim(&hold, unit, self.epoch)?;
        freezes::refuse_if_frozen(unit, hold.agent(), &hold.service).await?;
        let kept = match &self.before {
            Some(_) => rollbacks::of_hold(unit, hold.id).await?,
            None => None,
        };
        let (from, before) = (hold.state.word(), hold.version);
        let (hold, permit) = hold.arm(self.wire, self.handle.clone())?;
        let hold = Hold { version: before + 1, ..hold };
        holds::record(unit, &hold, from, HoldMove::Arm.word(), &HoldMoveReason::by(unit.actor()));
        holds::save(unit, &hold, before);
        // The state captured by the first attempt counts: a later one may already show our own change. Except if that
        // attempt provably did nothing, perhaps long ago.
        if let Some(point) = &self.before {
            match kept {
                Some(kept) if kept.is_captured() => {}
                Some(_) | None => rollbacks::capture(unit, hold.id, point),
            }
        }
        Ok(permit)
    }
}

/// The claim must be this node's, and the newest.
fn demand_own_claim<T: StoreTx>(hold: &Hold, unit: &UnitOfWork<'_, T>, epoch: u64) -> Result<AttemptPhase, StoreError> {
    match &hold.state {
        HoldState::Executing { claim, phase }
            if claim.node == *unit.node && claim.life == unit.life && claim.epoch == epoch =>
        {
            Ok(*phase)
        }
        _ => Err(StoreError::Fenced),
    }
}

/// The outcome of an attempt.
#[derive(Debug, Clone)]
pub struct FinishAttempt {
    /// The write.
    pub hold: HoldId,
    /// The claim under which it ran.
    pub epoch: u64,
    /// The outcome.
    pub outcome: AttemptOutcome,
    /// The service's message, screened and short. For people only.
    pub service_words: Option<String>,
    /// The id of an alert, if one is needed.
    pub message: MessageId,
}

/// What is known about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The service confirmed it.
    Done {
        /// Its proof.
        receipt: String,
        /// Hash of the object's state now, if it can be undone.
        after: Option<ObjectFingerprint>,
        /// Until when the service itself can undo it.
        service_until: Option<UtcMillis>,
        /// The result for the agent, as JSON.
        result: Option<String>,
    },
    /// Provably nothing happened; a retry makes sense.
    NotDone {
        /// The reason, as a stable code.
        code: String,
    },
    /// Provably nothing happened, and the service said when to retry.
    NotBefore {
        /// The reason, as a stable code.
        code: String,
        /// Not earlier than this, nor than the usual schedule.
        not_before: UtcMillis,
    },
    /// Provably nothing happened, and a retry makes no sense.
    Refused {
        /// The reason, as a stable code.
        code: String,
    },
    /// Given back before anything left (frozen, shutting down). Not counted as an attempt.
    GivenBack,
    /// Something may have left.
    Unclear,
}

impl AttemptOutcome {
    /// Whether it decides the state of the write's rollback point, if there is one.
    const fn ends_point(&self) -> bool {
        match self {
            Self::Done { after, .. } => after.is_some(),
            Self::Refused { .. } => true,
            Self::NotDone { .. } | Self::NotBefore { .. } | Self::GivenBack | Self::Unclear => false,
        }
    }
}

impl AttemptOutcome {
    /// Why the attempt failed, if it did.
    fn failure(&self) -> Option<&str> {
        match self {
            Self::NotDone { code } | Self::NotBefore { code, .. } | Self::Refused { code } => Some(code),
            Self::Unclear => Some(Code::ExecuteInDoubt.as_str()),
            Self::Done { .. } | Self::GivenBack => None,
        }
    }

    /// Whether the write would be retried.
    const fn tries_again(&self) -> bool {
        match self {
            Self::NotDone { .. } | Self::NotBefore { .. } | Self::GivenBack => true,
            Self::Done { .. } | Self::Refused { .. } | Self::Unclear => false,
        }
    }
}

impl UseCase for FinishAttempt {
    type Out = Hold;

    fn prefetch_queries(&self, _: UtcMillis) -> Vec<PrefetchQuery> {
        let mut foreseen = vec![holds::locked_ahead(self.hold)];
        foreseen.extend(self.outcome.ends_point().then(|| rollbacks::of_hold_ahead(self.hold)));
        foreseen
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Hold, StoreError> {
        let hold = holds::locked(unit, self.hold).await?;
        demand_own_claim(&hold, unit, self.epoch)?;
        let point = match self.outcome.ends_point() {
            true => rollbacks::of_hold(unit, hold.id).await?,
            false => None,
        };
        let stop = match self.outcome.tries_again() {
            true => stop_orders::stop_ordered_by(unit, hold.id).await?,
            false => None,
        };
        let now = unit.now;
        if let Some(code) = self.outcome.failure() {
            failures::keep(unit, &hold, code, self.service_words.as_deref());
        }
        match &self.outcome {
            AttemptOutcome::NotDone { code } | AttemptOutcome::NotBefore { code, .. } if stop.is_some() => {
                let why = HoldMoveReason::because(unit.actor(), code);
                stop_orders::advance_or_stop(unit, hold, HoldMove::Retry { not_before: now }, (stop, &why))
            }
            AttemptOutcome::Done { receipt, after, service_until, result } => {
                let done = HoldMove::Complete { receipt: receipt.clone(), at: now };
                let hold = holds::shift(unit, hold, [done], &HoldMoveReason::by(unit.actor()))?;
                results::keep(unit, hold.id, result.as_deref());
                failures::forget(unit, &hold);
                if let (Some(point), Some(after)) = (point.filter(RollbackPoint::is_captured), after) {
                    rollbacks::seal(unit, point, *after, *service_until)?;
                }
                Ok(hold)
            }
            AttemptOutcome::NotDone { code } => retry_or_give_up(unit, hold, (code, now), self.message),
            AttemptOutcome::NotBefore { code, not_before } => {
                retry_or_give_up(unit, hold, (code, *not_before), self.message)
            }
            AttemptOutcome::Refused { code } => {
                if let Some(point) = point.filter(RollbackPoint::is_captured) {
                    rollbacks::abandon(unit, point)?;
                }
                give_up(unit, hold, code, (self.message, alarm_of_refusal(code)))
            }
            AttemptOutcome::GivenBack => {
                let hold = Hold { attempts: hold.attempts.saturating_sub(1), ..hold };
                stop_orders::advance_or_stop(
                    unit,
                    hold,
                    HoldMove::Release { not_before: now },
                    (stop, &HoldMoveReason::by(unit.actor())),
                )
            }
            AttemptOutcome::Unclear => holds::shift(
                unit,
                hold,
                [HoldMove::Doubt { since: now }],
                &HoldMoveReason::because(unit.actor(), "execute.in_doubt"),
            ),
        }
    }
}

/// Schedules another attempt after the usual wait, and not before a time; after the last attempt, the write is dead.
fn retry_or_give_up<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: Hold,
    (code, least): (&str, UtcMillis),
    message: MessageId,
) -> Result<Hold, StoreError> {
    let Some(wait) = backoff::delay(hold.attempts) else {
        return give_up(unit, hold, code, (message, Some(MessageSeverity::Critical)));
    };
    let not_before = (unit.now + wait).max(least);
    let why = HoldMoveReason::because(unit.actor(), code);
    holds::shift(unit, hold, [HoldMove::Retry { not_before }], &why)
}

/// The severity of the message to people about a refused write. A caller's mistake is reported to the caller alone.
fn alarm_of_refusal(code: &str) -> Option<MessageSeverity> {
    match Code::from_code(code) {
        Some(Code::ExecuteRefusedMismatch | Code::ExecuteSecondHandle | Code::LeakFound) => {
            Some(MessageSeverity::Critical)
        }
        Some(code) if code.is_callers_mistake() => None,
        Some(_) | None => Some(MessageSeverity::Warning),
    }
}

/// Moves a write to `dead` and notifies people, unless no one needs to know.
pub(crate) fn give_up<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: Hold,
    code: &str,
    (message, alarm): (MessageId, Option<MessageSeverity>),
) -> Result<Hold, StoreError> {
    let why = HoldMoveReason::because(unit.actor(), code);
    let give_up = HoldMove::GiveUp { code: code.to_owned(), at: unit.now };
    let hold = holds::shift(unit, hold, [give_up], &why)?;
    if let Some(severity) = alarm {
        let body = serde_json::json!({
            "hold": hold.id, "code": code, "attempts": hold.attempts, "service": hold.service,
        });
        outbox::put(unit, &OutboxMessage { id: message, topic: "hold.dead".into(), severity, body });
    }
    Ok(hold)
}
