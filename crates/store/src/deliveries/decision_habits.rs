//! How people decide: how often each person approves and denies, and how fast.
//!
//! Takes a time and a number of requests; gives one line per person. Promise: only decisions of people are counted, not
//! those of standing approvals.

use sluice_core::{Actor, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::StoreQuery;

/// How often and how fast one person decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionHabit {
    /// The person.
    pub by: Actor,
    /// How many requests they approved.
    pub approved: u32,
    /// How many requests they denied.
    pub denied: u32,
    /// The median time from request to decision.
    pub median: Millis,
}

const ANSWERED: &str = "SELECT decided_by, state, asked_at, decided_at FROM approvals \
     WHERE decided_by IS NOT NULL AND decided_at >= ?1 ORDER BY id DESC LIMIT ?2";

struct ListDecisionHabits {
    since: UtcMillis,
    limit: u32,
}

impl StoreQuery for ListDecisionHabits {
    type Out = Vec<DecisionHabit>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<DecisionHabit>, StoreError> {
        let mut by_person: std::collections::BTreeMap<String, (u32, u32, Vec<u64>)> = std::collections::BTreeMap::new();
        for row in tx.rows(ANSWERED, &params![self.since, self.limit]).await? {
            let mut row = row.of("approvals");
            let (by, state, asked, decided) = (row.text()?, row.text()?, row.time()?, row.time()?);
            // A standing approval answers at once; it says nothing about how people decide.
            if by.starts_with("node:") {
                continue;
            }
            let habit = by_person.entry(by).or_default();
            if state == "denied" {
                habit.1 += 1
            } else {
                habit.0 += 1
            }
            habit.2.push(decided.since(asked).as_millis());
        }
        let habits = by_person.into_iter().map(|(by, (approved, denied, mut times))| {
            times.sort_unstable();
            let median = Millis::from_millis(times.get(times.len() / 2).copied().unwrap_or_default());
            let by =
                by.parse().map_err(|_| StoreError::Impossible { table: "approvals", detail: "an unknown actor" })?;
            Ok(DecisionHabit { by, approved, denied, median })
        });
        habits.collect()
    }
}

impl Store {
    /// How people have decided since a time, over this many of the newest requests.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn decision_habits(&self, since: UtcMillis, limit: u32) -> Result<Vec<DecisionHabit>, StoreError> {
        self.ask(ListDecisionHabits { since, limit }).await
    }
}
