//! From due to done: claiming a held write, arming it, and recording how it went.
//!
//! Promise: intent is durable before an effect may leave, the result after; a claim that is no longer
//! valid changes nothing; a freeze, a stricter policy or a lapsed yes stops a write at the last moment.

use sluice_core::action::Action;
use sluice_core::approval::reason::AskReason;
use sluice_core::approval::{Approval, ApprovalError, ApprovalMove, ApprovalState};
use sluice_core::backoff;
use sluice_core::hold::{Claim, Hold, HoldState, Move, Permit, Phase};
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::refusal::Code;
use sluice_core::rollback::Fingerprint;
use sluice_core::{AgentName, ApprovalId, Digest, HoldId, ServiceName, Span, Timestamp};

use crate::ahead::Ahead;
use crate::approvals::{self, AskAgain};
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::failures;
use crate::freezes::{self, Freeze};
use crate::holds::{self, Why, columns};
use crate::outbox::{self, Message, Severity};
use crate::results;
use crate::rollbacks::{self, Point};
use crate::sql::{Tx, params};
use crate::stops;

/// Waiting, and its object's turn: a write waits for any other to the same object that is under way or
/// unclear, and for earlier ones that wait themselves.
macro_rules! in_turn {
    ($form:ident, $when:expr, $rest:literal) => {
        $form!(
            "WHERE h.state IN ('held', 'ready') AND ",
            $when,
            " AND NOT EXISTS (SELECT 1 FROM holds e \
             WHERE e.object_key = h.object_key AND e.object_key IS NOT NULL AND e.id <> h.id \
             AND e.ended_at IS NULL AND e.state IN ('held', 'ready', 'preparing', 'armed', 'in_doubt', 'needs_human') \
             AND (e.state NOT IN ('held', 'ready') OR e.admitted_at < h.admitted_at \
             OR (e.admitted_at = h.admitted_at AND e.id < h.id))) ",
            $rest
        )
    };
}

/// As far as its turn depends on it, with its place among those of its agent.
macro_rules! by_agent {
    ($($rest:expr),+ $(,)?) => {
        concat!(
            "SELECT h.id AS id, h.service AS service, h.agent AS agent, h.version AS version, h.state AS state, ",
            "h.not_before AS not_before, h.admitted_at AS admitted_at, ",
            "ROW_NUMBER() OVER (PARTITION BY h.service, h.agent ORDER BY h.not_before, h.id) AS place FROM holds h ",
            $($rest),+
        )
    };
}

/// Due, and not frozen: what is frozen may not keep the others from their turn.
macro_rules! due {
    () => {
        "h.not_before <= ?1 AND NOT EXISTS (SELECT 1 FROM freezes f \
         WHERE f.scope = 'all' OR (f.scope = 'agent' AND f.name = h.agent) \
         OR (f.scope = 'service' AND f.name = h.service)) AND NOT EXISTS (SELECT 1 FROM connections c \
         WHERE c.service = h.service AND c.state IN ('paused', 'needs_reauth'))"
    };
}

const DUE: &str = in_turn!(columns, due!(), "ORDER BY h.not_before, h.id LIMIT ?2");
/// The first few of each agent at each service, and nothing of the services named in `?3`: neither a flood of one agent
/// nor a service that has to wait keeps others from their turn.
const DUE_BY_AGENT: &str = concat!(
    "SELECT w.id, w.service, w.agent, w.version, w.state, w.not_before, w.admitted_at FROM (",
    in_turn!(
        by_agent,
        concat!("replace(?3, '/' || h.service || '/', '') = ?3 AND ", due!()),
        ") w WHERE w.place <= ?2 ORDER BY w.place, w.not_before, w.id LIMIT ?4"
    )
);
const CLAIMABLE: &str = in_turn!(columns, "h.id = ?1 AND h.version = ?2", "/*skip*/");
/// What waits, due or not, by service and agent.
const WAITING: &str =
    "SELECT service, agent, COUNT(*) FROM holds WHERE state IN ('held', 'ready') GROUP BY service, agent";

/// Writes that may be claimed now. Policy is asked again about each before [`Claims`].
pub(crate) struct Due {
    pub now: Timestamp,
    pub limit: u32,
}

impl Query for Due {
    type Out = Vec<Hold>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        tx.rows(DUE, &params![self.now, self.limit]).await?.into_iter().map(holds::decode).collect()
    }
}

/// A write that may be claimed now, as far as its turn depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueWrite {
    /// Which.
    pub hold: HoldId,
    /// The service it leaves for.
    pub service: ServiceName,
    /// Whose it is.
    pub agent: AgentName,
    /// Its version when it was seen.
    pub version: u64,
    /// When its undo window closes, if it is open by the record. Nothing once it was closed.
    pub window: Option<Timestamp>,
    /// When it was admitted.
    pub admitted_at: Timestamp,
}

/// Writes that may be claimed now, the first ones of each agent at each service.
pub(crate) struct DueByAgent {
    pub now: Timestamp,
    /// Most of one agent at one service.
    pub each: u32,
    /// Most altogether.
    pub limit: u32,
    /// Services that have to wait.
    pub except: Vec<ServiceName>,
}

impl Query for DueByAgent {
    type Out = Vec<DueWrite>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<DueWrite>, StoreError> {
        let except: String = self.except.iter().map(|service| format!("/{service}/")).collect();
        let rows = tx.rows(DUE_BY_AGENT, &params![self.now, self.each, except, self.limit]).await?;
        let due = rows.into_iter().map(|row| {
            let mut row = row.of("holds");
            let hold = HoldId::from_bits(row.bits()?);
            let (service, agent) = (row.parsed()?, row.parsed()?);
            let (version, state, not_before) = (row.count()?, row.text()?, row.time()?);
            let window = (state == "held").then_some(not_before);
            Ok(DueWrite { hold, service, agent, version, window, admitted_at: row.time()? })
        });
        due.collect()
    }
}

/// How many writes wait, by service and agent.
pub(crate) struct WaitingWrites;

impl Query for WaitingWrites {
    type Out = Vec<(ServiceName, AgentName, u64)>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(WAITING, &params![]).await?;
        let counts = rows.into_iter().map(|row| {
            let mut row = row.of("holds");
            Ok((row.parsed()?, row.parsed()?, row.count()?))
        });
        counts.collect()
    }
}

/// One write to claim, with what policy says of it now.
#[derive(Debug, Clone)]
pub struct ClaimItem {
    /// Which.
    pub hold: HoldId,
    /// As it was when policy was asked.
    pub version: u64,
    /// What policy said.
    pub recheck: Recheck,
    /// The id of a question, should one have to be put.
    pub approval: ApprovalId,
    /// The id of the message that carries it.
    pub message: MessageId,
}

/// Policy's second look, just before the effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Recheck {
    /// Nothing has become stricter.
    Stands,
    /// A person must be asked now.
    Ask {
        /// Why, as a stable code.
        code: String,
        /// How long they have.
        expiry: Span,
        /// Why, as the rules say it now.
        reasons: Vec<AskReason>,
        /// The same call bound to the state its objects are in now, if that is not the one it was bound to.
        action: Option<Box<Action>>,
    },
    /// It is forbidden now.
    Block {
        /// Why, as a stable code.
        code: String,
    },
}

/// Claims due writes for this node.
#[derive(Debug, Clone)]
pub struct Claims {
    /// Which.
    pub items: Vec<ClaimItem>,
    /// How long the node has before others may conclude that it is gone.
    pub lease: Span,
    /// How long people have, should a yes have lapsed.
    pub expiry: Span,
}

/// What became of one claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// It is ours.
    Ours(Box<Hold>),
    /// Someone was faster, or it is no longer due.
    Lost(HoldId),
    /// It is frozen; it stays where it was.
    Frozen(HoldId),
    /// A person is asked first.
    Asked(HoldId, ApprovalId),
    /// Policy forbids it now.
    Blocked(HoldId),
}

impl UseCase for Claims {
    type Out = Vec<Claimed>;

    fn foreseen(&self, _: Timestamp) -> Vec<Ahead> {
        vec![freezes::in_force_ahead()]
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<Claimed>, StoreError> {
        let freezes = freezes::in_force(desk.tx()).await?;
        let questions: Vec<_> = self.items.iter().map(|item| params![item.hold, item.version]).collect();
        let rows = desk.tx().rows_each(CLAIMABLE, &questions).await?;
        let mut seen = Vec::with_capacity(self.items.len());
        for (item, rows) in self.items.iter().zip(rows) {
            let hold = rows.into_iter().next().map(holds::decode).transpose()?;
            let consent = match hold.as_ref().and_then(|hold| hold.consent) {
                Some(id) => Some(approvals::locked(desk, id).await?),
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
                None => Claimed::Lost(item.hold),
                Some(hold) => self.claim(desk, item, hold, consent, &freezes, &mut moved)?,
            });
        }
        Ok(outcome)
    }
}

impl Claims {
    #[expect(clippy::too_many_arguments, reason = "everything one claim is decided by, read beforehand")]
    fn claim<T: Tx>(
        &self,
        desk: &mut Desk<'_, T>,
        item: &ClaimItem,
        hold: Hold,
        consent: Option<Approval>,
        freezes: &[Freeze],
        moved: &mut Vec<Approval>,
    ) -> Result<Claimed, StoreError> {
        let (id, now) = (hold.id, desk.now);
        if freezes::covering(freezes, hold.agent(), &hold.service).is_some() {
            return Ok(Claimed::Frozen(id));
        }
        match &item.recheck {
            Recheck::Stands => {}
            Recheck::Ask { code, expiry, reasons, action } => {
                // The rules became stricter than the ones the yes was given under.
                if let Some(approval) = consent {
                    approvals::take_back(desk, approval, &Why::because(desk.actor(), code))?;
                }
                let hold = match action {
                    Some(action) => holds::rebind(desk, hold, action.as_ref().clone())?,
                    None => hold,
                };
                let (approval, message) = (item.approval, item.message);
                let again = AskAgain { approval, message, code, expiry: *expiry, reasons };
                return again.ask(desk, hold, desk.actor()).map(|hold| Claimed::Asked(hold.id, item.approval));
            }
            Recheck::Block { code } => {
                let why = Why::because(desk.actor(), code);
                if let Some(approval) = consent {
                    approvals::take_back(desk, approval, &why)?;
                }
                holds::shift(desk, hold, [Move::Block { at: now }], &why)?;
                return Ok(Claimed::Blocked(id));
            }
        }
        // Before a yes is spent: whoever comes too early has not started anything.
        if matches!(hold.state, HoldState::Held { not_before } | HoldState::Ready { not_before } if now < not_before) {
            return Ok(Claimed::Lost(id));
        }
        let why = Why::by(desk.actor());
        if let Some(approval) = consent {
            match use_consent(desk, approval.clone(), &why) {
                Ok(approval) => {
                    moved.retain(|kept| kept.id != approval.id);
                    moved.push(approval);
                }
                Err(StoreError::Approval(ApprovalError::Expired { .. } | ApprovalError::NoEdge { .. })) => {
                    let lapse = ApprovalMove::Lapse { at: now };
                    if approval.state.clone().apply(lapse.clone()).is_ok() {
                        moved.push(approvals::shift(desk, approval, lapse, &why)?);
                    }
                    let (approval, message) = (item.approval, item.message);
                    let (code, expiry) = ("approval.lapsed", self.expiry);
                    let again = AskAgain { approval, message, code, expiry, reasons: &[] };
                    return again.ask(desk, hold, desk.actor()).map(|hold| Claimed::Asked(hold.id, approval));
                }
                Err(other) => return Err(other),
            }
        }
        let epoch = hold.epoch + 1;
        let claim = Claim { node: desk.node.clone(), life: desk.life, epoch, lease_until: now + self.lease };
        let take = Move::Claim { claim, now };
        let shifted = match &hold.state {
            HoldState::Held { .. } => holds::shift(desk, hold, [Move::ComeDue { now }, take], &why),
            _ => holds::shift(desk, hold, [take], &why),
        };
        match shifted {
            Ok(hold) => Ok(Claimed::Ours(Box::new(hold))),
            Err(StoreError::Move(_)) => Ok(Claimed::Lost(id)),
            Err(other) => Err(other),
        }
    }
}

/// Spends a yes. Spending it again for the same write changes nothing and is not recorded twice.
fn use_consent<T: Tx>(desk: &mut Desk<'_, T>, approval: Approval, why: &Why) -> Result<Approval, StoreError> {
    let step = ApprovalMove::Consume { now: desk.now };
    if matches!(approval.state, ApprovalState::Consumed { .. }) {
        approval.state.clone().apply(step)?;
        return Ok(approval);
    }
    approvals::shift(desk, approval, step, why)
}

/// Arms a claimed write: everything needed to reconcile and to undo is recorded.
#[derive(Debug, Clone)]
pub struct Arming {
    /// Which.
    pub hold: HoldId,
    /// Under which claim.
    pub epoch: u64,
    /// Digest of the bytes about to leave.
    pub wire: Digest,
    /// The service's inert handle, if it has one.
    pub handle: Option<String>,
    /// The state the write will change, to go back to.
    pub before: Option<Before>,
}

/// What an object looked like before a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// The rollback point's id.
    pub id: RollbackId,
    /// What the adapter needs to go back.
    pub content: Vec<u8>,
    /// Hash of the object's state.
    pub print: Fingerprint,
}

impl UseCase for Arming {
    type Out = Permit;

    fn foreseen(&self, _: Timestamp) -> Vec<Ahead> {
        let mut foreseen = vec![holds::locked_ahead(self.hold), freezes::in_force_ahead()];
        foreseen.extend(self.before.as_ref().map(|_| rollbacks::of_hold_ahead(self.hold)));
        foreseen
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Permit, StoreError> {
        let hold = holds::locked(desk, self.hold).await?;
        own(&hold, desk, self.epoch)?;
        freezes::refuse_if_frozen(desk, hold.agent(), &hold.service).await?;
        let kept = match &self.before {
            Some(_) => rollbacks::of_hold(desk, hold.id).await?,
            None => None,
        };
        let (from, before) = (hold.state.word(), hold.version);
        let (hold, permit) = hold.arm(self.wire, self.handle.clone())?;
        let hold = Hold { version: before + 1, ..hold };
        holds::record(desk, &hold, from, Move::Arm.word(), &Why::by(desk.actor()));
        holds::save(desk, &hold, before);
        // The first attempt's picture is the right one: a later one may already show our own change.
        // Except where it belongs to an attempt that provably did nothing, perhaps long ago.
        if let Some(point) = &self.before {
            match kept {
                Some(kept) if kept.is_captured() => {}
                Some(_) | None => rollbacks::capture(desk, hold.id, point),
            }
        }
        Ok(permit)
    }
}

/// The claim must be this node's, and the newest.
fn own<T: Tx>(hold: &Hold, desk: &Desk<'_, T>, epoch: u64) -> Result<Phase, StoreError> {
    match &hold.state {
        HoldState::Executing { claim, phase }
            if claim.node == *desk.node && claim.life == desk.life && claim.epoch == epoch =>
        {
            Ok(*phase)
        }
        _ => Err(StoreError::Fenced),
    }
}

/// How an attempt went.
#[derive(Debug, Clone)]
pub struct Finish {
    /// Which write.
    pub hold: HoldId,
    /// Under which claim.
    pub epoch: u64,
    /// How.
    pub outcome: Outcome,
    /// What the service said about it, screened and short. For people only.
    pub service_words: Option<String>,
    /// The id of an alert, should one be needed.
    pub message: MessageId,
}

/// What is known about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The service says it happened.
    Done {
        /// Its proof.
        receipt: String,
        /// Hash of the object's state now, if it can be undone.
        after: Option<Fingerprint>,
        /// Until when the service itself can take it back.
        service_until: Option<Timestamp>,
        /// What the agent is told, as JSON.
        result: Option<String>,
    },
    /// Provably nothing happened; worth another try.
    NotDone {
        /// Why, as a stable code.
        code: String,
    },
    /// The same, and the service said when it wants to be asked again.
    NotBefore {
        /// Why, as a stable code.
        code: String,
        /// Not earlier than this, nor than the usual schedule.
        not_before: Timestamp,
    },
    /// Provably nothing happened, and nothing will.
    Refused {
        /// Why, as a stable code.
        code: String,
    },
    /// Given back before anything left (frozen, shutting down). Not counted as an attempt.
    GivenBack,
    /// Something may have left.
    Unclear,
}

impl Outcome {
    /// Whether it decides what becomes of the write's rollback point, should it have one.
    const fn ends_point(&self) -> bool {
        match self {
            Self::Done { after, .. } => after.is_some(),
            Self::Refused { .. } => true,
            Self::NotDone { .. } | Self::NotBefore { .. } | Self::GivenBack | Self::Unclear => false,
        }
    }
}

impl Outcome {
    /// Why the attempt failed, if it did.
    fn failure(&self) -> Option<&str> {
        match self {
            Self::NotDone { code } | Self::NotBefore { code, .. } | Self::Refused { code } => Some(code),
            Self::Unclear => Some(Code::ExecuteInDoubt.as_str()),
            Self::Done { .. } | Self::GivenBack => None,
        }
    }

    /// Whether the write would be tried again.
    const fn tries_again(&self) -> bool {
        match self {
            Self::NotDone { .. } | Self::NotBefore { .. } | Self::GivenBack => true,
            Self::Done { .. } | Self::Refused { .. } | Self::Unclear => false,
        }
    }
}

impl UseCase for Finish {
    type Out = Hold;

    fn foreseen(&self, _: Timestamp) -> Vec<Ahead> {
        let mut foreseen = vec![holds::locked_ahead(self.hold)];
        foreseen.extend(self.outcome.ends_point().then(|| rollbacks::of_hold_ahead(self.hold)));
        foreseen
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Hold, StoreError> {
        let hold = holds::locked(desk, self.hold).await?;
        own(&hold, desk, self.epoch)?;
        let point = match self.outcome.ends_point() {
            true => rollbacks::of_hold(desk, hold.id).await?,
            false => None,
        };
        let stop = match self.outcome.tries_again() {
            true => stops::ordered(desk, hold.id).await?,
            false => None,
        };
        let now = desk.now;
        if let Some(code) = self.outcome.failure() {
            failures::keep(desk, &hold, code, self.service_words.as_deref());
        }
        match &self.outcome {
            Outcome::NotDone { code } | Outcome::NotBefore { code, .. } if stop.is_some() => {
                let why = Why::because(desk.actor(), code);
                stops::or_on(desk, hold, Move::Retry { not_before: now }, (stop, &why))
            }
            Outcome::Done { receipt, after, service_until, result } => {
                let done = Move::Complete { receipt: receipt.clone(), at: now };
                let hold = holds::shift(desk, hold, [done], &Why::by(desk.actor()))?;
                results::keep(desk, hold.id, result.as_deref());
                failures::forget(desk, &hold);
                if let (Some(point), Some(after)) = (point.filter(Point::is_captured), after) {
                    rollbacks::seal(desk, point, *after, *service_until)?;
                }
                Ok(hold)
            }
            Outcome::NotDone { code } => again(desk, hold, (code, now), self.message),
            Outcome::NotBefore { code, not_before } => again(desk, hold, (code, *not_before), self.message),
            Outcome::Refused { code } => {
                if let Some(point) = point.filter(Point::is_captured) {
                    rollbacks::abandon(desk, point)?;
                }
                bury(desk, hold, code, (self.message, alarm_of_refusal(code)))
            }
            Outcome::GivenBack => {
                let hold = Hold { attempts: hold.attempts.saturating_sub(1), ..hold };
                stops::or_on(desk, hold, Move::Release { not_before: now }, (stop, &Why::by(desk.actor())))
            }
            Outcome::Unclear => {
                holds::shift(desk, hold, [Move::Doubt { since: now }], &Why::because(desk.actor(), "execute.in_doubt"))
            }
        }
    }
}

/// Another attempt after the usual wait, and not before a time; after the last one, a dead letter.
fn again<T: Tx>(
    desk: &mut Desk<'_, T>,
    hold: Hold,
    (code, least): (&str, Timestamp),
    message: MessageId,
) -> Result<Hold, StoreError> {
    let Some(wait) = backoff::delay(hold.attempts) else {
        return bury(desk, hold, code, (message, Some(Severity::Critical)));
    };
    let not_before = (desk.now + wait).max(least);
    let why = Why::because(desk.actor(), code);
    holds::shift(desk, hold, [Move::Retry { not_before }], &why)
}

/// How loudly people are told of a write that was refused. The mistake of a caller is told to the caller alone.
fn alarm_of_refusal(code: &str) -> Option<Severity> {
    match Code::from_code(code) {
        Some(Code::ExecuteRefusedMismatch | Code::ExecuteSecondHandle | Code::LeakFound) => Some(Severity::Critical),
        Some(code) if code.is_callers_mistake() => None,
        Some(_) | None => Some(Severity::Warning),
    }
}

/// A dead letter, and someone who is told unless nobody has to be.
pub(crate) fn bury<T: Tx>(
    desk: &mut Desk<'_, T>,
    hold: Hold,
    code: &str,
    (message, alarm): (MessageId, Option<Severity>),
) -> Result<Hold, StoreError> {
    let why = Why::because(desk.actor(), code);
    let give_up = Move::GiveUp { code: code.to_owned(), at: desk.now };
    let hold = holds::shift(desk, hold, [give_up], &why)?;
    if let Some(severity) = alarm {
        let body = serde_json::json!({
            "hold": hold.id, "code": code, "attempts": hold.attempts, "service": hold.service,
        });
        outbox::put(desk, &Message { id: message, topic: "hold.dead".into(), severity, body });
    }
    Ok(hold)
}
