//! Coming back: what a start, a dead neighbour or a clock finds, and what it may conclude.
//!
//! Promise: nothing is rescued by time alone. A claim in its prepare phase goes back; an armed one
//! becomes doubt, and doubt ends only by proof or by a person. Late is not the same as now.

use sluice_core::audit::{Fact, Head};
use sluice_core::capability::EffectClass;
use sluice_core::grace::{self, Overdue};
use sluice_core::hold::{Hold, HoldState, Move, Phase, Staleness};
use sluice_core::ids::MessageId;
use sluice_core::rollback::Fingerprint;
use sluice_core::{AgentName, HoldId, NodeName, ServiceName, Span, Timestamp, backoff};

use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::failures;
use crate::holds::{self, Why, columns};
use crate::outbox::{self, Message, Severity};
use crate::release;
use crate::results;
use crate::rollbacks::{self, Point};
use crate::sql::{Tx, params};
use crate::stops;

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

/// Takes this node's name for a new life: its row and a higher epoch. Runs outside a group, because
/// the row it locks may not exist yet.
pub(crate) struct Register {
    pub node: NodeName,
}

impl UseCase for Register {
    type Out = Option<Timestamp>;

    /// Answers when any node was last alive, which is how long nobody was here.
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Option<Timestamp>, StoreError> {
        let now = desk.now;
        let alive = match desk.row(LAST_ALIVE, params![]).await? {
            Some(row) => row.of("nodes").maybe_time()?,
            None => None,
        };
        match desk.row(NODE, params![&self.node]).await? {
            Some(_) => desk.write_one(RESTART, params![&self.node, now]),
            None => desk.write(REGISTER, params![&self.node, now, Head::genesis(&self.node).hash]),
        }
        Ok(alive)
    }
}

/// First entry of a node's new life.
pub(crate) struct Started {
    pub version: &'static str,
}

impl UseCase for Started {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let fact = Fact::new("node.started", desk.actor()).with("release", self.version);
        desk.record(fact);
        Ok(())
    }
}

/// Which abandoned claims to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// This node's own from its earlier lives: nobody works on them any more.
    Own,
    /// Anyone's whose lease has run out.
    Expired,
}

pub(crate) struct Recover {
    pub which: Abandoned,
    pub limit: u32,
    pub message: MessageId,
}

impl UseCase for Recover {
    type Out = Vec<HoldId>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        let (node, now) = (desk.node.clone(), desk.now);
        let rows = match self.which {
            Abandoned::Own => desk.rows(OWN_CLAIMS, params![&node, self.limit, desk.life]).await?,
            Abandoned::Expired => desk.rows(DEAD_LEASES, params![now, self.limit]).await?,
        };
        let found = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let why = Why::because(desk.actor(), "execute.claim_abandoned");
        let mut moved = Vec::with_capacity(found.len());
        // A write that takes its node down with it, again and again, must not take all of them. There is one
        // message to tell of it, so the rest of the page waits for the next call.
        if let Some(poison) = found.iter().find(|hold| is_poison(hold)).cloned() {
            return release::bury(desk, poison, "execute.poison", (self.message, Some(Severity::Critical)))
                .map(|hold| vec![hold.id]);
        }
        let mut late = Late::default();
        for hold in found {
            let HoldState::Executing { claim, phase } = &hold.state else { continue };
            moved.push(hold.id);
            match phase {
                Phase::Prepare => {
                    // Late since the claim ran out, however long it took until somebody noticed.
                    let again = late.judge(&hold, now.min(claim.lease_until), now);
                    holds::shift(desk, hold, [Move::Release { not_before: now }].into_iter().chain(again), &why)?;
                }
                Phase::Armed => drop(holds::shift(desk, hold, [Move::Doubt { since: now }], &why)?),
            }
        }
        late.announce(desk, self.message);
        Ok(moved)
    }
}

/// Whether a write keeps ending its node before it gets anywhere.
fn is_poison(hold: &Hold) -> bool {
    let preparing = matches!(hold.state, HoldState::Executing { phase: Phase::Prepare, .. });
    preparing && hold.attempts > backoff::RETRIES
}

/// Applies the grace rule to writes that came due while nobody was here.
pub(crate) struct Overdues {
    pub limit: u32,
    pub message: MessageId,
}

/// What the grace rule did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Late {
    /// Announced again, with a new window.
    pub reheld: Vec<HoldId>,
    /// Left to a person.
    pub stale: Vec<HoldId>,
}

impl UseCase for Overdues {
    type Out = Late;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Late, StoreError> {
        let now = desk.now;
        let rows = desk.rows(LATE, params![now - grace::ON_TIME, self.limit]).await?;
        let overdue = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let why = Why::because(desk.actor(), "hold.overdue");
        let mut late = Late::default();
        for hold in overdue {
            let (HoldState::Held { not_before } | HoldState::Ready { not_before }) = hold.state else { continue };
            if let Some(step) = late.judge(&hold, not_before, now) {
                holds::shift(desk, hold, [step], &why)?;
            }
        }
        late.announce(desk, self.message);
        Ok(late)
    }
}

impl Late {
    /// What the grace rule wants of a write that should have left at `due`.
    fn judge(&mut self, hold: &Hold, due: Timestamp, now: Timestamp) -> Option<Move> {
        match grace::overdue(due, now, hold.delay, grace::grace(hold.class)) {
            Overdue::OnTime => None,
            Overdue::Rehold { until } => {
                self.reheld.push(hold.id);
                Some(Move::Rehold { not_before: until })
            }
            Overdue::Stale => {
                self.stale.push(hold.id);
                Some(Move::SetAside { why: Staleness::Downtime })
            }
        }
    }

    /// One digest, not one message for each.
    fn announce<T: Tx>(&self, desk: &mut Desk<'_, T>, id: MessageId) {
        if self.reheld.is_empty() && self.stale.is_empty() {
            return;
        }
        let body = serde_json::json!({"reheld": self.reheld.len(), "stale": self.stale.len()});
        outbox::put(desk, &Message { id, topic: "hold.overdue".into(), severity: Severity::Warning, body });
    }
}

/// Leaves every open write to a person: the database came from a copy, and what happened since is unknown. What had
/// not left becomes stale; of what may have left only a person can say whether it did.
pub(crate) struct AfterRestore {
    pub after: HoldId,
    pub limit: u32,
}

impl UseCase for AfterRestore {
    type Out = Vec<HoldId>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        let rows = desk.rows(OPEN, params![self.after, self.limit]).await?;
        let open = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let (now, why) = (desk.now, Why::because(desk.actor(), "store.restored"));
        let mut moved = Vec::with_capacity(open.len());
        for hold in open {
            let aside = || Move::SetAside { why: Staleness::Restored };
            let ask = || Move::AskHuman { code: "store.restored".into() };
            let steps = match &hold.state {
                HoldState::Executing { phase: Phase::Prepare, .. } => vec![Move::Release { not_before: now }, aside()],
                HoldState::Executing { phase: Phase::Armed, .. } => vec![Move::Doubt { since: now }, ask()],
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
            holds::shift(desk, hold, steps, &why)?;
        }
        Ok(moved)
    }
}

/// Writes whose outcome is unclear and whose service has had time to settle.
pub(crate) struct Doubtful {
    pub now: Timestamp,
    pub limit: u32,
}

impl Query for Doubtful {
    type Out = Vec<Hold>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        let rows = tx.rows(UNCLEAR, &params![self.now, self.limit]).await?;
        let unclear = rows.into_iter().map(holds::decode).collect::<Result<Vec<_>, _>>()?;
        let settled = |hold: &Hold| matches!(hold.state, HoldState::InDoubt { since, .. } if self.now >= since + hold.class.settle());
        Ok(unclear.into_iter().filter(settled).collect())
    }
}

/// A write in doubt, as far as its turn to be looked up depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// Which.
    pub hold: HoldId,
    /// The service that is asked.
    pub service: ServiceName,
    /// Whose it is.
    pub agent: AgentName,
    /// What an unclear outcome allows.
    pub class: EffectClass,
    /// Its version when it was seen.
    pub version: u64,
    /// When the doubt began.
    pub since: Timestamp,
    /// Lookups that proved nothing.
    pub rounds: u32,
}

/// Every write in doubt, the oldest first.
pub(crate) struct Doubts {
    pub limit: u32,
}

impl Query for Doubts {
    type Out = Vec<Doubt>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Doubt>, StoreError> {
        let rows = tx.rows(DOUBTS, &params![self.limit]).await?;
        let doubts = rows.into_iter().map(|row| {
            let mut row = row.of("holds");
            let hold = HoldId::from_bits(row.bits()?);
            let (service, agent) = (row.parsed()?, row.parsed()?);
            let class =
                EffectClass::from_word(&row.text()?).ok_or_else(|| row.impossible("an unknown effect class"))?;
            let (version, since, rounds) = (row.count()?, row.time()?, row.count()?);
            Ok(Doubt { hold, service, agent, class, version, since, rounds })
        });
        doubts.collect()
    }
}

/// What looking it up at the service showed.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// Which write.
    pub hold: HoldId,
    /// As it was when the lookup began.
    pub version: u64,
    /// What was found.
    pub evidence: Evidence,
    /// How many lookups are made before a person is asked.
    pub lookups: u32,
    /// The id of an alert, should one be needed.
    pub message: MessageId,
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// It is there.
    Applied {
        /// The service's proof.
        receipt: String,
        /// What the agent is told, as JSON.
        result: Option<String>,
        /// Hash of the object's state now, if it can be undone.
        after: Option<Fingerprint>,
        /// Until when the service itself can take it back.
        service_until: Option<Timestamp>,
    },
    /// It is provably not there.
    Absent,
    /// The lookup proved nothing.
    Inconclusive,
}

impl UseCase for Resolve {
    type Out = Hold;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Hold, StoreError> {
        let hold = holds::locked(desk, self.hold).await?;
        if hold.version != self.version {
            return Err(StoreError::Conflict);
        }
        let HoldState::InDoubt { since, rounds } = hold.state else { return Err(StoreError::Conflict) };
        let now = desk.now;
        let settled = since + hold.class.settle();
        let why = Why::by(desk.actor());
        let point = rollbacks::of_hold(desk, hold.id).await?;
        let stop = stops::ordered(desk, hold.id).await?;
        match &self.evidence {
            Evidence::Applied { receipt, result, after, service_until } => {
                results::keep(desk, hold.id, result.as_deref());
                failures::forget(desk, &hold);
                // What is proven by looking can be taken back like what was seen to happen.
                if let (Some(point), Some(after)) = (point.filter(Point::is_captured), after) {
                    rollbacks::seal(desk, point, *after, *service_until)?;
                }
                holds::shift(desk, hold, [Move::Complete { receipt: receipt.clone(), at: now }], &why)
            }
            // An index that lags shows an absence that is none. And nothing is ever absent for an
            // opaque effect: there is no place to look.
            Evidence::Absent if now >= settled && hold.class != EffectClass::Opaque => {
                let wait = backoff::delay(hold.attempts).unwrap_or(Span::from_mins(1));
                if stop.is_none() && hold.attempts > backoff::RETRIES {
                    let step = Move::AskHuman { code: "execute.attempts_used".into() };
                    return self.ask_human(desk, hold, step);
                }
                stops::or_on(desk, hold, Move::ProveAbsent { not_before: now + wait }, (stop, &why))
            }
            Evidence::Absent | Evidence::Inconclusive
                if hold.class != EffectClass::Opaque && rounds.saturating_add(1) < self.lookups =>
            {
                holds::shift(desk, hold, [Move::Inconclusive], &why)
            }
            Evidence::Absent | Evidence::Inconclusive => {
                let step = Move::AskHuman { code: "execute.needs_human".into() };
                self.ask_human(desk, hold, step)
            }
        }
    }
}

impl Resolve {
    fn ask_human<T: Tx>(&self, desk: &mut Desk<'_, T>, hold: Hold, step: Move) -> Result<Hold, StoreError> {
        let why = Why::because(desk.actor(), "execute.needs_human");
        let body = serde_json::json!({"hold": hold.id});
        let topic = "hold.needs_human".into();
        outbox::put(desk, &Message { id: self.message, topic, severity: Severity::Critical, body });
        holds::shift(desk, hold, [step], &why)
    }
}
