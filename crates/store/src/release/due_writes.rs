//! Due writes: which held writes may be claimed now, and whose turn it is.
//!
//! Takes the time and how many writes are wanted; gives the writes that are due and not frozen, and how many wait.
//! Promise: a write waits for earlier writes to the same object. Neither a flood of writes of one agent nor a service
//! that has to wait delays the writes of others.

use sluice_core::hold::Hold;
use sluice_core::{AgentName, HoldId, ServiceName, UtcMillis};

use crate::error::StoreError;
use crate::holds::{self, columns};
use crate::sql::{StoreTx, params};
use crate::unit_of_work::StoreQuery;

/// Writes that wait and whose turn it is: a write waits for any other write to the same object that is running or
/// uncertain, and for earlier ones that are still waiting.
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

/// The columns that decide a write's turn, with its rank among the writes of its agent.
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

/// Due and not frozen: a frozen write must not delay others.
macro_rules! due {
    () => {
        "h.not_before <= ?1 AND NOT EXISTS (SELECT 1 FROM freezes f \
         WHERE f.scope = 'all' OR (f.scope = 'agent' AND f.name = h.agent) \
         OR (f.scope = 'service' AND f.name = h.service)) AND NOT EXISTS (SELECT 1 FROM connections c \
         WHERE c.service = h.service AND c.state IN ('paused', 'needs_reauth'))"
    };
}

const DUE: &str = in_turn!(columns, due!(), "ORDER BY h.not_before, h.id LIMIT ?2");
/// The first few of each agent at each service, except services named in `?3`: neither a flood of writes of one agent
/// nor a service that has to wait delays others.
const DUE_BY_AGENT: &str = concat!(
    "SELECT w.id, w.service, w.agent, w.version, w.state, w.not_before, w.admitted_at FROM (",
    in_turn!(
        by_agent,
        concat!("replace(?3, '/' || h.service || '/', '') = ?3 AND ", due!()),
        ") w WHERE w.place <= ?2 ORDER BY w.place, w.not_before, w.id LIMIT ?4"
    )
);
/// One write of a known version, if it is still its turn.
pub(super) const CLAIMABLE: &str = in_turn!(columns, "h.id = ?1 AND h.version = ?2", "/*skip*/");
/// Waiting writes, due or not, by service and agent.
const WAITING: &str =
    "SELECT service, agent, COUNT(*) FROM holds WHERE state IN ('held', 'ready') GROUP BY service, agent";

/// Writes that may be claimed now. Policy judges each again before [`ClaimDueWrites`](super::ClaimDueWrites).
pub(crate) struct ListDueWrites {
    pub now: UtcMillis,
    pub limit: u32,
}

impl StoreQuery for ListDueWrites {
    type Out = Vec<Hold>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        tx.rows(DUE, &params![self.now, self.limit]).await?.into_iter().map(holds::decode).collect()
    }
}

/// A write that may be claimed now, with what decides its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueWrite {
    /// The write.
    pub hold: HoldId,
    /// The service it leaves for.
    pub service: ServiceName,
    /// The agent that owns it.
    pub agent: AgentName,
    /// Its version when it was seen.
    pub version: u64,
    /// When its undo window closes, if the row still holds it open; `None` once it was closed.
    pub window: Option<UtcMillis>,
    /// When it was admitted.
    pub admitted_at: UtcMillis,
}

/// Writes that may be claimed now, the first ones of each agent at each service.
pub(crate) struct ListDueWritesByAgent {
    pub now: UtcMillis,
    /// Most writes of one agent at one service.
    pub each: u32,
    /// Most writes altogether.
    pub limit: u32,
    /// Services that have to wait.
    pub except: Vec<ServiceName>,
}

impl StoreQuery for ListDueWritesByAgent {
    type Out = Vec<DueWrite>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<DueWrite>, StoreError> {
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
pub(crate) struct CountWaitingWrites;

impl StoreQuery for CountWaitingWrites {
    type Out = Vec<(ServiceName, AgentName, u64)>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(WAITING, &params![]).await?;
        let counts = rows.into_iter().map(|row| {
            let mut row = row.of("holds");
            Ok((row.parsed()?, row.parsed()?, row.count()?))
        });
        counts.collect()
    }
}
