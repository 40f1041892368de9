//! Counters as rows: how much of batch windows and rate limits is used, across restarts.

use sluice_core::batch::SlidingWindow;
use sluice_core::hold::Hold;
use sluice_core::{AgentName, Millis, ServiceName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::prefetch::{PrefetchQuery, PrefetchUpdateRule};
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork};

/// Weight of writes per agent and service.
pub(crate) const BATCH: &str = "batch";
/// Weight of writes per agent and service that were counted and never left, because they were denied or cancelled.
/// Their slots are the milliseconds in which they were admitted: the code that ends a write does not know the length of
/// the window.
const NEVER_LEFT: &str = "never_left";
/// How long they are remembered. In a longer window, earlier ones stay counted.
const NEVER_LEFT_FOR: Millis = Millis::from_hours(24);
/// Uses per agent and rule.
pub(crate) const RATE: &str = "rate";
/// Refused calls per agent and service.
pub(crate) const BLOCKED: &str = "blocked";
/// Approval requests per agent about calls that are only checked.
pub(crate) const CHECK: &str = "check";
/// Weight of writes per agent and service within a day.
pub(crate) const ACCOUNT: &str = "account";
/// Weight of writes at external services within a day, one row per agent: agents do not wait for each other.
pub(crate) const GATEWAY: &str = "gateway";
/// New targets per agent within a day.
pub(crate) const TARGET: &str = "target";

const USED: &str = "SELECT CAST(COALESCE(SUM(weight), 0) AS BIGINT) FROM counters \
     WHERE kind = ?1 AND agent = ?2 AND name = ?3 AND slot >= ?4";
const USED_BY_ALL: &str =
    "SELECT CAST(COALESCE(SUM(weight), 0) AS BIGINT) FROM counters WHERE kind = ?1 AND slot >= ?2";
const OLDEST: &str = "SELECT MIN(slot) FROM counters WHERE kind = ?1 AND agent = ?2 AND name = ?3 AND slot >= ?4";
const BUMP: &str = "INSERT INTO counters (kind, agent, name, slot, weight, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
     ON CONFLICT (kind, agent, name, slot) DO UPDATE SET weight = counters.weight + excluded.weight";

/// One admission per agent at a time, across all nodes: what it counts and remembers is read before it is written. On
/// SQLite there is only one writer, and nobody takes turns. The row is only a latch; its content has no meaning.
const TURN: &str = "SELECT weight FROM counters WHERE kind = 'turn' AND agent = ?1 AND name = '' AND slot = 0 /*lock*/";
const FIRST_TURN: &str = "INSERT INTO counters (kind, agent, name, slot, weight) VALUES ('turn', ?1, '', 0, 0)";

/// Waits until no other node admits anything of this agent. Returns whether its latch still has to be made.
pub(crate) async fn take_turn<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, agent: &AgentName) -> Result<bool, StoreError> {
    Ok(T::IS_SHARED && unit.row(TURN, params![agent]).await?.is_none())
}

/// Makes the latch. If two nodes do it at once, they collide on its key, and one of them starts over.
pub(crate) fn make_latch<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, agent: &AgentName) {
    unit.write(FIRST_TURN, params![agent]);
}

/// The query of [`take_turn`], made early.
pub(crate) fn turn_ahead(agent: &AgentName) -> PrefetchQuery {
    let rests_on = vec![("counters", vec![("kind", SqlValue::from("turn")), ("agent", SqlValue::from(agent))])];
    PrefetchQuery { sql: TURN, params: params![agent], rests_on, follows: None }
}

/// One counter: what is counted, for whom, in which window.
pub(crate) struct WindowCounter<'a> {
    pub kind: &'static str,
    pub agent: &'a AgentName,
    pub name: &'a str,
    pub window: &'a SlidingWindow,
}

impl WindowCounter<'_> {
    /// Its current value.
    pub async fn used<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<u32, StoreError> {
        let oldest = self.window.oldest_slot(unit.now);
        let row = unit.row(USED, params![self.kind, self.agent, self.name, oldest]).await?;
        row.ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
    }

    /// When its oldest part is forgotten; now if it is empty.
    pub async fn forgets<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<UtcMillis, StoreError> {
        let oldest = self.window.oldest_slot(unit.now);
        let row = unit.row(OLDEST, params![self.kind, self.agent, self.name, oldest]).await?;
        let slot = row.map(|row| row.of("counters").maybe_int()).transpose()?.flatten();
        Ok(slot.map_or(unit.now, |slot| self.window.forgotten_at(slot)))
    }

    /// The query of [`WindowCounter::used`], made early.
    pub fn used_ahead(&self, now: UtcMillis) -> PrefetchQuery {
        let params = params![self.kind, self.agent, self.name, self.window.oldest_slot(now)];
        let values = ["kind", "agent", "name"].into_iter().zip(params.iter().cloned()).collect();
        let follows = Some(PrefetchUpdateRule { sql: BUMP, then: counted });
        PrefetchQuery { sql: USED, params, rests_on: vec![("counters", values)], follows }
    }

    /// Adds weight at the current time.
    pub fn bump<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>, weight: u32) {
        let row = self.bumped(unit.now, weight);
        unit.write(BUMP, row);
    }

    /// The row for [`BUMP`].
    fn bumped(&self, now: UtcMillis, weight: u32) -> Vec<SqlValue> {
        let slot = self.window.slot_of(now);
        // A slot counts until all of it is older than the window: never longer than this.
        let until = now + self.window.span + self.window.span;
        params![self.kind, self.agent, self.name, slot, weight, until]
    }
}

/// Gives the weight of a write back to its batch window, because it never left and never will. Calls that the caller
/// carries out itself were not counted.
pub(crate) fn give_back<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: &Hold) {
    if hold.action.is_carried_out_by_caller() {
        return;
    }
    let (slot, until) = (hold.admitted_at.as_millis(), hold.admitted_at + NEVER_LEFT_FOR);
    unit.write(BUMP, params![NEVER_LEFT, hold.agent(), &hold.service, slot, hold.weight, until]);
}

/// The weight in a batch window that was given back.
pub(crate) async fn count_given_back<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    (agent, service): (&AgentName, &ServiceName),
    window: &SlidingWindow,
) -> Result<u32, StoreError> {
    let oldest = window.oldest_moment(unit.now);
    let row = unit.row(USED, params![NEVER_LEFT, agent, service, oldest]).await?;
    row.ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
}

/// The current sum of the counters of one kind, over all agents.
pub(crate) async fn used_by_all<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    kind: &'static str,
    window: &SlidingWindow,
) -> Result<u32, StoreError> {
    let oldest = window.oldest_slot(unit.now);
    let row = unit.row(USED_BY_ALL, params![kind, oldest]).await?;
    row.ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
}

/// The query of [`used_by_all`], made early.
pub(crate) fn used_by_all_ahead(kind: &'static str, window: &SlidingWindow, now: UtcMillis) -> PrefetchQuery {
    let follows = Some(PrefetchUpdateRule { sql: BUMP, then: counted_by_all });
    let rests_on = vec![("counters", vec![("kind", SqlValue::from(kind))])];
    PrefetchQuery { sql: USED_BY_ALL, params: params![kind, window.oldest_slot(now)], rests_on, follows }
}

/// Updates the answer of [`USED_BY_ALL`] after a [`BUMP`] of the same kind.
fn counted_by_all(asked: &[SqlValue], bumped: &[SqlValue], rows: &mut [SqlRow]) -> bool {
    let ([kind, oldest], [a_kind, agent, name, ..]) = (asked, bumped) else { return false };
    let same = [kind.clone(), agent.clone(), name.clone(), oldest.clone()];
    kind == a_kind && counted(&same, bumped, rows)
}

/// Updates the answer of [`USED`] after a [`BUMP`] of the same counter: adds the weight, if its slot is still in the
/// window.
fn counted(asked: &[SqlValue], bumped: &[SqlValue], rows: &mut [SqlRow]) -> bool {
    let (
        [kind, agent, name, SqlValue::Int(oldest)],
        [a_kind, of_agent, a_name, SqlValue::Int(slot), SqlValue::Int(weight), _until],
    ) = (asked, bumped)
    else {
        return false;
    };
    let [SqlRow(columns)] = rows else { return false };
    let [SqlValue::Int(sum)] = columns.as_mut_slice() else { return false };
    if (kind, agent, name) != (a_kind, of_agent, a_name) {
        return false;
    }
    if slot >= oldest {
        match sum.checked_add(*weight) {
            Some(more) => *sum = more,
            None => return false,
        }
    }
    true
}

/// The current value of a rate or batch window, for judging and for showing.
pub(crate) struct ListWindowUse {
    pub kind: &'static str,
    pub agent: AgentName,
    pub name: String,
    pub oldest: i64,
}

impl StoreQuery for ListWindowUse {
    type Out = u32;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u32, StoreError> {
        let rows = tx.rows(USED, &params![self.kind, &self.agent, self.name.as_str(), self.oldest]).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
    }
}

impl Store {
    /// The current value of an agent's batch window at a service.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn batch_used(
        &self,
        agent: AgentName,
        service: &ServiceName,
        window: &SlidingWindow,
        now: UtcMillis,
    ) -> Result<u32, StoreError> {
        let (name, oldest) = (service.as_str().to_owned(), window.oldest_slot(now));
        self.ask(ListWindowUse { kind: BATCH, agent, name, oldest }).await
    }

    /// The current value of an agent's rate window under a rule.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn rate_used(
        &self,
        agent: AgentName,
        rule: &str,
        window: &SlidingWindow,
        now: UtcMillis,
    ) -> Result<u32, StoreError> {
        let (name, oldest) = (rule.to_owned(), window.oldest_slot(now));
        self.ask(ListWindowUse { kind: RATE, agent, name, oldest }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_follows_what_is_counted_in_its_window() {
        let asked = params!["batch", "a", "email", 10_i64];
        let after = |kind: &str, slot: i64, weight: i64| {
            let mut rows = [SqlRow(params![5_i64])];
            let known = counted(&asked, &params![kind, "a", "email", slot, weight, 0_i64], &mut rows);
            let [SqlRow(sum)] = rows;
            known.then_some(sum)
        };
        assert_eq!(after("batch", 10, 3), Some(params![8_i64]));
        assert_eq!(after("batch", 9, 3), Some(params![5_i64]));
        assert_eq!(after("rate", 10, 3), None);
        assert_eq!(after("batch", 10, i64::MAX), None);
    }

    #[test]
    fn a_sum_of_all_agents_follows_what_any_of_them_counts() {
        let (now, window) = (UtcMillis::from_millis(5_000_000), SlidingWindow::default());
        let asked = used_by_all_ahead(GATEWAY, &window, now);
        let follows = asked.follows.unwrap();
        for (agent, kind, expected) in [("a", GATEWAY, Some(8)), ("b", GATEWAY, Some(8)), ("a", BATCH, None)] {
            let agent = AgentName::new(agent).unwrap();
            let bumped = WindowCounter { kind, agent: &agent, name: "", window: &window }.bumped(now, 3);
            let mut rows = [SqlRow(params![5_i64])];
            let known = (follows.then)(&asked.params, &bumped, &mut rows);
            let [SqlRow(sum)] = rows;
            assert_eq!(known.then_some(sum), expected.map(|n: i64| params![n]), "{agent} {kind}");
        }
    }

    #[test]
    fn a_count_follows_the_change_that_counting_makes() {
        let (agent, window, now) =
            (AgentName::new("a").unwrap(), SlidingWindow::default(), UtcMillis::from_millis(5_000_000));
        let counter = WindowCounter { kind: BATCH, agent: &agent, name: "email", window: &window };
        let asked = counter.used_ahead(now);
        let mut rows = [SqlRow(params![5_i64])];
        let follows = asked.follows.unwrap();
        assert!(follows.sql == BUMP && (follows.then)(&asked.params, &counter.bumped(now, 3), &mut rows));
        let [SqlRow(sum)] = rows;
        assert_eq!(sum, params![8_i64]);
    }
}
