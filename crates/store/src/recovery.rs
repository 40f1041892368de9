//! Recovery: what a node finds after a start, a crashed neighbour or a jump of the clock, and what it may conclude.
//!
//! Promise: nothing is resolved by time alone. A claim in its prepare phase goes back; an armed one becomes `in_doubt`,
//! and only proof or a person ends that. A late write is not simply sent now.

use sluice_core::audit::{AuditFact, ChainHead};
use sluice_core::capability::EffectClass;
use sluice_core::grace::{self, OverdueDecision};
use sluice_core::hold::{AttemptPhase, Hold, HoldMove, HoldState, StaleReason};
use sluice_core::ids::MessageId;
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{AgentName, HoldId, Millis, NodeName, ServiceName, UtcMillis, backoff};

use crate::error::StoreError;
use crate::failures;
use crate::holds::{self, HoldMoveReason, columns};
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::release;
use crate::results;
use crate::rollbacks::{self, RollbackPoint};
use crate::sql::{StoreTx, params};
use crate::stop_orders;
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const NODE: &str = "SELECT epoch FROM nodes WHERE node = ?1 /*lock*/";
const LAST_ALIVE: &str = "SELECT MAX(alive_at) FROM nodes";
const REGISTER: &str = "INSERT INTO nodes (node, epoch, started_at, alive_at, last_seen, commits, log_size, log_hash) \
     VALUES (?1, 1, ?2, ?2, ?2, 0, 0, ?3)";
const RESTART: &str = "UPDATE nodes SET epoch = epoch + 1, started_at = ?2 WHERE node = ?1";
const OWN_CLAIMS: &str = columns!(
    "WHERE h.claim_node = ?1 AND h.claim_life < ?3 AND h.state IN ('preparing', 'armed') ORDER BY h.id LIMIT ?2 /*lock*/"
);
const DEAD_LEASES: &str = columns!(
    "WHERE h.state IN ('preparing', 'armed') AND h.lease_until <= ?1 ORDER BY h.lease_until, h.id LIMIT ?2 /*skip*/"
);
const LATE: &str =
    columns!("WHERE h.state IN ('held', 'ready') AND h.not_before < ?1 ORDER BY h.not_before, h.id LIMIT ?2 /*skip*/");
const OPEN: &str = columns!(
    "WHERE h.id > ?1 AND h.state IN ('awaiting_approval', 'held', 'ready', 'preparing', 'armed', 'in_doubt') \
     ORDER BY h.id LIMIT ?2 /*lock*/"
);
const UNCLEAR: &str = columns!("WHERE h.state = 'in_doubt' AND h.since <= ?1 ORDER BY h.since, h.id LIMIT ?2");

const DOUBTS: &str = "SELECT id, service, agent, class, version, since, rounds FROM holds \
     WHERE state = 'in_doubt' ORDER BY since, id LIMIT ?1";

/// Registers this node's name for a new start: its row and a higher epoch. Runs outside a group, because the row it
/// locks may not exist yet.
pub(crate) struct RegisterNode {
    pub node: NodeName,
}

impl UseCase for RegisterNode {
    type Out = Option<UtcMillis>;

    /// Returns when any node was last alive: no node was running since then.
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Option<UtcMillis>, StoreError> {
        let now = unit.now;
        let alive = match unit.row(LAST_ALIVE, params![]).await? {
            Some(row) => row.of("nodes").maybe_time()?,
            None => None,
        };
        match unit.row(NODE, params![&self.node]).await? {
            Some(_) => unit.write_one(RESTART, params![&self.node, now]),
            None => unit.write(REGISTER, params![&self.node, now, ChainHead::genesis(&self.node).hash]),
        }
        Ok(alive)
    }
}

/// The first entry after a start of the node.
pub(crate) struct RecordNodeStart {
    pub version: &'static str,
}

impl UseCase for RecordNodeStart {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let fact = AuditFact::new("node.started", unit.actor()).with("release", self.version);
        unit.record(fact);
        Ok(())
    }
}

/// Which abandoned claims to recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbandonedClaims {
    /// This node's own from its earlier starts: nobody works on them any more.
    Own,
    /// Those of any node whose lease has expired.
    Expired,
}

pub(crate) struct RecoverClaims {
    pub which: AbandonedClaims,
    pub limit: u32,
    pub message: MessageId,
}

impl UseCase for RecoverClaims {
    type Out = Vec<HoldId>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        let (node, now) = (unit.node.clone(), unit.now);
        let rows = match self.which {
            AbandonedClaims::Own => unit.rows(OWN_CLAIMS, params![&node, self.limit, unit.life]).await?,
            AbandonedClaims::Expired => unit.rows(DEAD_LEASES, params![now, self.limit]).await?,
        };
        let found = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let why = HoldMoveReason::because(unit.actor(), "execute.claim_abandoned");
        let mut moved = Vec::with_capacity(found.len());
        // A write that crashes its node again and again must not crash all nodes. Only one message is available to
        // report it, so the rest of the page waits for the next call.
        if let Some(poison) = found.iter().find(|hold| is_poison(hold)).cloned() {
            return release::give_up(unit, poison, "execute.poison", (self.message, Some(MessageSeverity::Critical)))
                .map(|hold| vec![hold.id]);
        }
        let mut late = OverdueHolds::default();
        for hold in found {
            let HoldState::Executing { claim, phase } = &hold.state else { continue };
            moved.push(hold.id);
            match phase {
                AttemptPhase::Prepare => {
                    // Late since the claim expired, no matter how long it took until a node noticed.
                    let again = late.judge(&hold, now.min(claim.lease_until), now);
                    holds::shift(unit, hold, [HoldMove::Release { not_before: now }].into_iter().chain(again), &why)?;
                }
                AttemptPhase::Armed => drop(holds::shift(unit, hold, [HoldMove::Doubt { since: now }], &why)?),
            }
        }
        late.announce(unit, self.message);
        Ok(moved)
    }
}

/// Whether a write keeps crashing its node before it gets anywhere.
fn is_poison(hold: &Hold) -> bool {
    let preparing = matches!(hold.state, HoldState::Executing { phase: AttemptPhase::Prepare, .. });
    preparing && hold.attempts > backoff::RETRIES
}

/// Applies the grace rule to writes that became due while no node was running.
pub(crate) struct ApplyGraceRule {
    pub limit: u32,
    pub message: MessageId,
}

/// What the grace rule did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverdueHolds {
    /// Announced again, with a new window.
    pub reheld: Vec<HoldId>,
    /// Left to a person.
    pub stale: Vec<HoldId>,
}

impl UseCase for ApplyGraceRule {
    type Out = OverdueHolds;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<OverdueHolds, StoreError> {
        let now = unit.now;
        let rows = unit.rows(LATE, params![now - grace::ON_TIME, self.limit]).await?;
        let overdue = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let why = HoldMoveReason::because(unit.actor(), "hold.overdue");
        let mut late = OverdueHolds::default();
        for hold in overdue {
            let (HoldState::Held { not_before } | HoldState::Ready { not_before }) = hold.state else { continue };
            if let Some(step) = late.judge(&hold, not_before, now) {
                holds::shift(unit, hold, [step], &why)?;
            }
        }
        late.announce(unit, self.message);
        Ok(late)
    }
}

impl OverdueHolds {
    /// The move that the grace rule requires for a write that should have left at `due`.
    fn judge(&mut self, hold: &Hold, due: UtcMillis, now: UtcMillis) -> Option<HoldMove> {
        match grace::judge_overdue(due, now, hold.delay, grace::grace(hold.class)) {
            OverdueDecision::OnTime => None,
            OverdueDecision::Rehold { until } => {
                self.reheld.push(hold.id);
                Some(HoldMove::Rehold { not_before: until })
            }
            OverdueDecision::Stale => {
                self.stale.push(hold.id);
                Some(HoldMove::SetAside { why: StaleReason::Downtime })
            }
        }
    }

    /// Sends one summary, not one message for each write.
    fn announce<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, id: MessageId) {
        if self.reheld.is_empty() && self.stale.is_empty() {
            return;
        }
        let body = serde_json::json!({"reheld": self.reheld.len(), "stale": self.stale.len()});
        outbox::put(
            unit,
            &OutboxMessage { id, topic: "hold.overdue".into(), severity: MessageSeverity::Warning, body },
        );
    }
}

/// Leaves every open write to a person: the database came from a backup, and what happened since is unknown. A write
/// that had not left becomes stale; for a write that may have left, only a person can say whether it did.
pub(crate) struct SetAsideAfterRestore {
    pub after: HoldId,
    pub limit: u32,
}

impl UseCase for SetAsideAfterRestore {
    type Out = Vec<HoldId>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        let rows = unit.rows(OPEN, params![self.after, self.limit]).await?;
        let open = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let (now, why) = (unit.now, HoldMoveReason::because(unit.actor(), "store.restored"));
        let mut moved = Vec::with_capacity(open.len());
        for hold in open {
            let aside = || HoldMove::SetAside { why: StaleReason::Restored };
            let ask = || HoldMove::AskHuman { code: "store.restored".into() };
            let steps = match &hold.state {
                HoldState::Executing { phase: AttemptPhase::Prepare, .. } => {
                    vec![HoldMove::Release { not_before: now }, aside()]
                }
                HoldState::Executing { phase: AttemptPhase::Armed, .. } => vec![HoldMove::Doubt { since: now }, ask()],
                HoldState::InDoubt { .. } => vec![ask()],
                HoldState::AwaitingApproval { .. } | HoldState::Held { .. } | HoldState::Ready { .. } => vec![aside()],
                HoldState::NeedsHuman { .. }
                | HoldState::Stale { .. }
                | HoldState::Done { .. }
                | HoldState::Cancelled { .. }
                | HoldState::Denied { .. }
                | HoldState::Expired { .. }
                | HoldState::Dead { .. }
                | HoldState::Discarded { .. }
                | HoldState::Blocked { .. } => continue,
            };
            moved.push(hold.id);
            holds::shift(unit, hold, steps, &why)?;
        }
        Ok(moved)
    }
}

/// Writes with an uncertain outcome whose service has had time to settle.
pub(crate) struct ListDueLookups {
    pub now: UtcMillis,
    pub limit: u32,
}

impl StoreQuery for ListDueLookups {
    type Out = Vec<Hold>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        let rows = tx.rows(UNCLEAR, &params![self.now, self.limit]).await?;
        let unclear = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let settled = |hold: &Hold| matches!(hold.state, HoldState::InDoubt { since, .. } if self.now >= since + hold.class.settle());
        Ok(unclear.into_iter().filter(settled).collect())
    }
}

/// A write with an uncertain outcome, with what decides when it is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldInDoubt {
    /// The write.
    pub hold: HoldId,
    /// The service to query.
    pub service: ServiceName,
    /// The agent that owns it.
    pub agent: AgentName,
    /// The effect class: what may be done after an uncertain outcome.
    pub class: EffectClass,
    /// Its version when it was seen.
    pub version: u64,
    /// Since when the outcome is uncertain.
    pub since: UtcMillis,
    /// Lookups that proved nothing.
    pub rounds: u32,
}

/// Every write with an uncertain outcome, the oldest first.
pub(crate) struct ListHoldsInDoubt {
    pub limit: u32,
}

impl StoreQuery for ListHoldsInDoubt {
    type Out = Vec<HoldInDoubt>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<HoldInDoubt>, StoreError> {
        let rows = tx.rows(DOUBTS, &params![self.limit]).await?;
        let doubts = rows.into_iter().map(|row| {
            let mut row = row.of("holds");
            let hold = HoldId::from_bits(row.bits()?);
            let (service, agent) = (row.parsed()?, row.parsed()?);
            let class =
                EffectClass::from_word(&row.text()?).ok_or_else(|| row.impossible("an unknown effect class"))?;
            let (version, since, rounds) = (row.count()?, row.time()?, row.count()?);
            Ok(HoldInDoubt { hold, service, agent, class, version, since, rounds })
        });
        doubts.collect()
    }
}

/// The result of looking a write up at its service.
#[derive(Debug, Clone)]
pub struct ResolveDoubt {
    /// The write.
    pub hold: HoldId,
    /// The version at which the lookup began.
    pub version: u64,
    /// What was found.
    pub evidence: LookupEvidence,
    /// How many lookups are made before a person is asked.
    pub lookups: u32,
    /// The id of an alert, if one is needed.
    pub message: MessageId,
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupEvidence {
    /// The write is there.
    Applied {
        /// The service's proof.
        receipt: String,
        /// The result for the agent, as JSON.
        result: Option<String>,
        /// Hash of the object's state now, if it can be undone.
        after: Option<ObjectFingerprint>,
        /// Until when the service itself can undo it.
        service_until: Option<UtcMillis>,
    },
    /// The write is provably not there.
    Absent,
    /// The lookup proved nothing.
    Inconclusive,
}

impl UseCase for ResolveDoubt {
    type Out = Hold;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Hold, StoreError> {
        let hold = holds::locked(unit, self.hold).await?;
        if hold.version != self.version {
            return Err(StoreError::Conflict);
        }
        let HoldState::InDoubt { since, rounds } = hold.state else { return Err(StoreError::Conflict) };
        let now = unit.now;
        let settled = since + hold.class.settle();
        let why = HoldMoveReason::by(unit.actor());
        let point = rollbacks::of_hold(unit, hold.id).await?;
        let stop = stop_orders::stop_ordered_by(unit, hold.id).await?;
        match &self.evidence {
            LookupEvidence::Applied { receipt, result, after, service_until } => {
                results::keep(unit, hold.id, result.as_deref());
                failures::forget(unit, &hold);
                // A write proven by a lookup can be rolled back like one that was seen to happen.
                if let (Some(point), Some(after)) = (point.filter(RollbackPoint::is_captured), after) {
                    rollbacks::seal(unit, point, *after, *service_until)?;
                }
                holds::shift(unit, hold, [HoldMove::Complete { receipt: receipt.clone(), at: now }], &why)
            }
            // A lagging index shows an absence that is not real. And an opaque effect is never absent: there is no
            // place to look it up.
            LookupEvidence::Absent if now >= settled && hold.class != EffectClass::Opaque => {
                let wait = backoff::delay(hold.attempts).unwrap_or(Millis::from_mins(1));
                if stop.is_none() && hold.attempts > backoff::RETRIES {
                    let step = HoldMove::AskHuman { code: "execute.attempts_used".into() };
                    return self.ask_human(unit, hold, step);
                }
                stop_orders::advance_or_stop(unit, hold, HoldMove::ProveAbsent { not_before: now + wait }, (stop, &why))
            }
            LookupEvidence::Absent | LookupEvidence::Inconclusive
                if hold.class != EffectClass::Opaque && rounds.saturating_add(1) < self.lookups =>
            {
                holds::shift(unit, hold, [HoldMove::Inconclusive], &why)
            }
            LookupEvidence::Absent | LookupEvidence::Inconclusive => {
                let step = HoldMove::AskHuman { code: "execute.needs_human".into() };
                self.ask_human(unit, hold, step)
            }
        }
    }
}

impl ResolveDoubt {
    fn ask_human<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        hold: Hold,
        step: HoldMove,
    ) -> Result<Hold, StoreError> {
        let why = HoldMoveReason::because(unit.actor(), "execute.needs_human");
        let body = serde_json::json!({"hold": hold.id});
        let topic = "hold.needs_human".into();
        outbox::put(unit, &OutboxMessage { id: self.message, topic, severity: MessageSeverity::Critical, body });
        holds::shift(unit, hold, [step], &why)
    }
}
