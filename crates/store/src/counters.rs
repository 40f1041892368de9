//! Counters as rows: what batch windows and rate limits have used, surviving every restart.

use sluice_core::batch::Window;
use sluice_core::{AgentName, Timestamp};

use crate::ahead::{Ahead, Follows};
use crate::desk::{Desk, Query};
use crate::error::StoreError;
use crate::sql::{Row, Tx, Val, params};

/// Weight of writes per agent and service.
pub(crate) const BATCH: &str = "batch";
/// Uses per agent and rule.
pub(crate) const RATE: &str = "rate";
/// Refused calls per agent and service.
pub(crate) const BLOCKED: &str = "blocked";

const USED: &str = "SELECT CAST(COALESCE(SUM(weight), 0) AS BIGINT) FROM counters \
     WHERE kind = ?1 AND agent = ?2 AND name = ?3 AND slot >= ?4";
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
