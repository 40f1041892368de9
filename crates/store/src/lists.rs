//! Lists for people: writes and approval requests, filtered, a page at a time.

mod summaries;
mod write_flow;

use sluice_core::approval::Approval;
use sluice_core::hold::Hold;
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, ApprovalId, CallId, HoldId, ServiceName, UtcMillis};

use crate::Store;
use crate::approvals;
use crate::error::StoreError;
use crate::holds::{self, columns};
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

pub use summaries::ApprovalSummary;
pub use write_flow::HourlyWriteCount;

/// How far the ids of a call and its writes may be apart, in milliseconds.
const APART: u128 = 60_000;

macro_rules! page {
    ($which:literal, $order:literal) => {
        columns!(
            $which,
            " AND h.agent = COALESCE(?2, h.agent) AND h.service = COALESCE(?3, h.service) ",
            "AND (CAST(?4 AS BIGINT) = 0 OR h.session = ?5) AND (?6 = '' OR ?6 LIKE '%,' || h.state || ',%') ",
            "AND (CAST(?10 AS BIGINT) = 0 OR h.state <> 'ready' OR h.attempts > 0) ",
            "AND (CAST(?8 AS BIGINT) = 0 OR h.ended_at >= CAST(?9 AS BIGINT)) ",
            $order
        )
    };
}

const OLDEST_FIRST: &str = page!("WHERE h.id > ?1", "ORDER BY h.id LIMIT ?7");
const NEWEST_FIRST: &str = page!("WHERE h.id < ?1", "ORDER BY h.id DESC LIMIT ?7");
const OF_CALL: &str = columns!("WHERE h.id >= ?1 AND h.id <= ?2 AND h.call = ?3 ORDER BY h.id");

/// Which writes to list. An empty filter lists all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldFilter {
    /// Only writes of this agent.
    pub agent: Option<AgentName>,
    /// Only writes at this service.
    pub service: Option<ServiceName>,
    /// Only writes in one of these states, by name; an empty list means any.
    pub states: Vec<&'static str>,
    /// Of those that are `ready`, only the ones with a failed attempt.
    pub retrying_only: bool,
    /// Only writes requested in this session.
    pub session: Option<SessionId>,
    /// Only writes that have ended at this time or later.
    pub ended_since: Option<UtcMillis>,
    /// Newest first.
    pub newest_first: bool,
}

struct ListHolds {
    filter: HoldFilter,
    after: Option<HoldId>,
    limit: u32,
}

impl StoreQuery for ListHolds {
    type Out = Vec<Hold>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        let HoldFilter { agent, service, states, retrying_only, session, ended_since, newest_first } = &self.filter;
        let (sql, end) = if *newest_first { (NEWEST_FIRST, u128::MAX) } else { (OLDEST_FIRST, 0) };
        let after = self.after.map_or(end, HoldId::bits);
        let words: String = states.iter().map(|word| format!(",{word},")).collect();
        let (agent, service) = (agent.as_ref(), service.as_ref());
        let (timed, since) = (u32::from(ended_since.is_some()), *ended_since);
        let mut params =
            params![after, agent, service, u32::from(session.is_some()), *session, words, self.limit, timed, since];
        params.push(u32::from(*retrying_only).into());
        tx.rows(sql, &params).await?.into_iter().map(holds::decode).collect()
    }
}

struct ListCallHolds(CallId);

impl StoreQuery for ListCallHolds {
    type Out = Vec<Hold>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Hold>, StoreError> {
        // Both ids begin with their time and are made for one call: no index is needed to find one near the other.
        let began = self.0.bits() >> 80;
        let from = began.saturating_sub(APART) << 80;
        let to = (began.saturating_add(APART + 1) << 80) - 1;
        tx.rows(OF_CALL, &params![from, to, self.0]).await?.into_iter().map(holds::decode).collect()
    }
}

/// Which approval requests to list. An empty filter lists all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only requests in this state, by name.
    pub state: Option<&'static str>,
    /// Only requests about writes of this agent.
    pub agent: Option<AgentName>,
}

struct ListApprovals {
    filter: ApprovalFilter,
    after: Option<ApprovalId>,
    limit: u32,
}

impl StoreQuery for ListApprovals {
    type Out = Vec<Approval>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Approval>, StoreError> {
        let before = self.after.map_or(u128::MAX, ApprovalId::bits);
        let params = params![before, self.filter.state, self.filter.agent.as_ref(), self.limit];
        tx.rows(approvals::PAGE, &params).await?.into_iter().map(approvals::decode).collect()
    }
}

const BY_STATE: &str = "SELECT CASE WHEN state = 'ready' AND attempts > 0 THEN 'retrying' ELSE state END, COUNT(*) \
     FROM holds WHERE state NOT IN ('done', 'cancelled', 'denied', 'expired', 'discarded', 'blocked') \
     GROUP BY 1 ORDER BY 1";

/// How many writes are in each state, without those that have ended.
struct CountHoldsByState;

impl StoreQuery for CountHoldsByState {
    type Out = Vec<(String, u64)>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(BY_STATE, &[]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("holds");
                Ok((row.text()?, row.count()?))
            })
            .collect()
    }
}

/// Only a commit: the node's row then says that it is alive.
struct RecordHeartbeat;

impl UseCase for RecordHeartbeat {
    type Out = ();
    async fn run<T: StoreTx>(&self, _: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Store {
    /// Writes that match a filter, a page at a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn holds_page(
        &self,
        filter: HoldFilter,
        after: Option<HoldId>,
        limit: u32,
    ) -> Result<Vec<Hold>, StoreError> {
        self.ask(ListHolds { filter, after, limit }).await
    }

    /// How many writes are in each state, without those that have ended.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn holds_by_state(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.ask(CountHoldsByState).await
    }

    /// The writes that a call created.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn holds_of_call(&self, call: CallId) -> Result<Vec<Hold>, StoreError> {
        self.ask(ListCallHolds(call)).await
    }

    /// Approval requests that match a filter, newest first, a page at a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn approvals_page(
        &self,
        filter: ApprovalFilter,
        after: Option<ApprovalId>,
        limit: u32,
    ) -> Result<Vec<Approval>, StoreError> {
        self.ask(ListApprovals { filter, after, limit }).await
    }

    /// Records that this node is alive. Writes no audit entry.
    ///
    /// # Errors
    /// When that cannot be written.
    pub async fn record_heartbeat(&self) -> Result<(), StoreError> {
        self.submit(RecordHeartbeat).await
    }
}
