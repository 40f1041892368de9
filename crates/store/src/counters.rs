//! Counters as rows: what batch windows and rate limits have used, surviving every restart.

use sluice_core::batch::Window;
use sluice_core::hold::Hold;
use sluice_core::{AgentName, ServiceName, Span, Timestamp};

use crate::Store;
use crate::ahead::{Ahead, Follows};
use crate::desk::{Desk, Query};
use crate::error::StoreError;
use crate::sql::{Row, Tx, Val, params};

/// Weight of writes per agent and service.
pub(crate) const BATCH: &str = "batch";
/// Weight of writes per agent and service that were counted and never left, because they were denied or cancelled. Its slots
/// are the milliseconds in which they were admitted: how long a window is, is not known where a write ends.
const NEVER_LEFT: &str = "never_left";
/// How long they are remembered. In a window that is longer, earlier ones stay counted.
const NEVER_LEFT_FOR: Span = Span::from_hours(24);
/// Uses per agent and rule.
pub(crate) const RATE: &str = "rate";
/// Refused calls per agent and service.
pub(crate) const BLOCKED: &str = "blocked";
/// Questions per agent about calls that are only checked.
pub(crate) const CHECK: &str = "check";
/// Weight of writes per agent and service within a day.
pub(crate) const ACCOUNT: &str = "account";
/// Weight of writes at services outside within a day, one row per agent: agents do not wait for each other.
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

/// One admission per agent at a time, on whatever node: what it counts and remembers is read before
/// it is written. On SQLite the writer is alone and takes no turns. The row is a latch and says nothing.
const TURN: &str = "SELECT weight FROM counters WHERE kind = 'turn' AND agent = ?1 AND name = '' AND slot = 0 /*lock*/";
const FIRST_TURN: &str = "INSERT INTO counters (kind, agent, name, slot, weight) VALUES ('turn', ?1, '', 0, 0)";

/// Waits until no other node admits anything of this agent. Says whether its latch is still to be made.
pub(crate) async fn take_turn<T: Tx>(desk: &mut Desk<'_, T>, agent: &AgentName) -> Result<bool, StoreError> {
    Ok(T::IS_SHARED && desk.row(TURN, params![agent]).await?.is_none())
}

/// Makes the latch. Two nodes that both do collide on its key, and one of them starts over.
pub(crate) fn make_latch<T: Tx>(desk: &mut Desk<'_, T>, agent: &AgentName) {
    desk.write(FIRST_TURN, params![agent]);
}

/// The question of [`take_turn`], asked early.
pub(crate) fn turn_ahead(agent: &AgentName) -> Ahead {
    let rests_on = vec![("counters", vec![("kind", Val::from("turn")), ("agent", Val::from(agent))])];
    Ahead { sql: TURN, params: params![agent], rests_on, follows: None }
}

/// One counter: what is counted, for whom, in which window.
pub(crate) struct Counter<'a> {
    pub kind: &'static str,
    pub agent: &'a AgentName,
    pub name: &'a str,
    pub window: &'a Window,
}

impl Counter<'_> {
    /// What it holds now.
    pub async fn used<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<u32, StoreError> {
        let oldest = self.window.oldest_slot(desk.now);
        let row = desk.row(USED, params![self.kind, self.agent, self.name, oldest]).await?;
        row.ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
    }

    /// When the first of what it holds is forgotten; now if it holds nothing.
    pub async fn forgets<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Timestamp, StoreError> {
        let oldest = self.window.oldest_slot(desk.now);
        let row = desk.row(OLDEST, params![self.kind, self.agent, self.name, oldest]).await?;
        let slot = row.map(|row| row.of("counters").maybe_int()).transpose()?.flatten();
        Ok(slot.map_or(desk.now, |slot| self.window.forgets(slot)))
    }

    /// The question of [`Counter::used`], asked early.
    pub fn used_ahead(&self, now: Timestamp) -> Ahead {
        let params = params![self.kind, self.agent, self.name, self.window.oldest_slot(now)];
        let values = ["kind", "agent", "name"].into_iter().zip(params.iter().cloned()).collect();
        let follows = Some(Follows { sql: BUMP, then: counted });
        Ahead { sql: USED, params, rests_on: vec![("counters", values)], follows }
    }

    /// Counts something now.
    pub fn bump<T: Tx>(&self, desk: &mut Desk<'_, T>, weight: u32) {
        let row = self.bumped(desk.now, weight);
        desk.write(BUMP, row);
    }

    /// The row of [`BUMP`].
    fn bumped(&self, now: Timestamp, weight: u32) -> Vec<Val> {
        let slot = self.window.slot_of(now);
        // A slot counts until all of it is older than the window: never longer than this.
        let until = now + self.window.span + self.window.span;
        params![self.kind, self.agent, self.name, slot, weight, until]
    }
}

/// Gives the weight of a write back to its batch window, because it never left and never will. What its caller carries out
/// was not counted.
pub(crate) fn give_back<T: Tx>(desk: &mut Desk<'_, T>, hold: &Hold) {
    if hold.action.is_carried_out_by_caller() {
        return;
    }
    let (slot, until) = (hold.admitted_at.as_millis(), hold.admitted_at + NEVER_LEFT_FOR);
    desk.write(BUMP, params![NEVER_LEFT, hold.agent(), &hold.service, slot, hold.weight, until]);
}

/// The weight in a batch window that was given back.
pub(crate) async fn given_back<T: Tx>(
    desk: &mut Desk<'_, T>,
    (agent, service): (&AgentName, &ServiceName),
    window: &Window,
) -> Result<u32, StoreError> {
    let oldest = window.oldest_moment(desk.now);
    let row = desk.row(USED, params![NEVER_LEFT, agent, service, oldest]).await?;
    row.ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
}

/// What the counters of one kind hold now, all agents together.
pub(crate) async fn used_by_all<T: Tx>(
    desk: &mut Desk<'_, T>,
    kind: &'static str,
    window: &Window,
) -> Result<u32, StoreError> {
    let oldest = window.oldest_slot(desk.now);
    let row = desk.row(USED_BY_ALL, params![kind, oldest]).await?;
    row.ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
}

/// The question of [`used_by_all`], asked early.
pub(crate) fn used_by_all_ahead(kind: &'static str, window: &Window, now: Timestamp) -> Ahead {
    let follows = Some(Follows { sql: BUMP, then: counted_by_all });
    let rests_on = vec![("counters", vec![("kind", Val::from(kind))])];
    Ahead { sql: USED_BY_ALL, params: params![kind, window.oldest_slot(now)], rests_on, follows }
}

/// What [`USED_BY_ALL`] says after a [`BUMP`] of the same kind.
fn counted_by_all(asked: &[Val], bumped: &[Val], rows: &mut [Row]) -> bool {
    let ([kind, oldest], [a_kind, agent, name, ..]) = (asked, bumped) else { return false };
    let same = [kind.clone(), agent.clone(), name.clone(), oldest.clone()];
    kind == a_kind && counted(&same, bumped, rows)
}

/// What [`USED`] says after a [`BUMP`] of the same counter: so much more, if its slot is still in the window.
fn counted(asked: &[Val], bumped: &[Val], rows: &mut [Row]) -> bool {
    let ([kind, agent, name, Val::Int(oldest)], [a_kind, of_agent, a_name, Val::Int(slot), Val::Int(weight), _until]) =
        (asked, bumped)
    else {
        return false;
    };
    let [Row(columns)] = rows else { return false };
    let [Val::Int(sum)] = columns.as_mut_slice() else { return false };
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

/// What a rate or batch window holds, for judging and for showing.
pub(crate) struct Used {
    pub kind: &'static str,
    pub agent: AgentName,
    pub name: String,
    pub oldest: i64,
}

impl Query for Used {
    type Out = u32;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u32, StoreError> {
        let rows = tx.rows(USED, &params![self.kind, &self.agent, self.name.as_str(), self.oldest]).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "counter" })?.of("counters").count()
    }
}

impl Store {
    /// What an agent's batch window at a service holds.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn batch_used(
        &self,
        agent: AgentName,
        service: &ServiceName,
        window: &Window,
        now: Timestamp,
    ) -> Result<u32, StoreError> {
        let (name, oldest) = (service.as_str().to_owned(), window.oldest_slot(now));
        self.ask(Used { kind: BATCH, agent, name, oldest }).await
    }

    /// What an agent's rate window under a rule holds.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn rate_used(
        &self,
        agent: AgentName,
        rule: &str,
        window: &Window,
        now: Timestamp,
    ) -> Result<u32, StoreError> {
        let (name, oldest) = (rule.to_owned(), window.oldest_slot(now));
        self.ask(Used { kind: RATE, agent, name, oldest }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_follows_what_is_counted_in_its_window() {
        let asked = params!["batch", "a", "email", 10_i64];
        let after = |kind: &str, slot: i64, weight: i64| {
            let mut rows = [Row(params![5_i64])];
            let known = counted(&asked, &params![kind, "a", "email", slot, weight, 0_i64], &mut rows);
            let [Row(sum)] = rows;
            known.then_some(sum)
        };
        assert_eq!(after("batch", 10, 3), Some(params![8_i64]));
        assert_eq!(after("batch", 9, 3), Some(params![5_i64]));
        assert_eq!(after("rate", 10, 3), None);
        assert_eq!(after("batch", 10, i64::MAX), None);
    }

    #[test]
    fn a_sum_of_all_agents_follows_what_any_of_them_counts() {
        let (now, window) = (Timestamp::from_millis(5_000_000), Window::default());
        let asked = used_by_all_ahead(GATEWAY, &window, now);
        let follows = asked.follows.unwrap();
        for (agent, kind, expected) in [("a", GATEWAY, Some(8)), ("b", GATEWAY, Some(8)), ("a", BATCH, None)] {
            let agent = AgentName::new(agent).unwrap();
            let bumped = Counter { kind, agent: &agent, name: "", window: &window }.bumped(now, 3);
            let mut rows = [Row(params![5_i64])];
            let known = (follows.then)(&asked.params, &bumped, &mut rows);
            let [Row(sum)] = rows;
            assert_eq!(known.then_some(sum), expected.map(|n: i64| params![n]), "{agent} {kind}");
        }
    }

    #[test]
    fn a_count_follows_the_change_that_counting_makes() {
        let (agent, window, now) = (AgentName::new("a").unwrap(), Window::default(), Timestamp::from_millis(5_000_000));
        let counter = Counter { kind: BATCH, agent: &agent, name: "email", window: &window };
        let asked = counter.used_ahead(now);
        let mut rows = [Row(params![5_i64])];
        let follows = asked.follows.unwrap();
        assert!(follows.sql == BUMP && (follows.then)(&asked.params, &counter.bumped(now, 3), &mut rows));
        let [Row(sum)] = rows;
        assert_eq!(sum, params![8_i64]);
    }
}
