//! Budgets of an admission: what was used within a day, and what the write adds.
//!
//! Takes an admission; gives the budget it exceeds, if it does. Promise: read and counted in the admission's own
//! transaction, as rows that survive a restart and are shared by all nodes; what a person is asked about is not counted.
//! Of one agent the count is exact. What two nodes admit for two agents at the same moment, neither sees in the sum of all
//! agents.

use std::collections::BTreeSet;

use sluice_core::budget::{self, Budget, fits};
use sluice_core::policy::Origin;
use sluice_core::{AgentName, Timestamp};

use super::Admission;
use crate::Store;
use crate::ahead::Ahead;
use crate::counters::{self, Counter};
use crate::desk::{Desk, Query};
use crate::error::StoreError;
use crate::sql::{Tx, params};

/// Different new targets of an agent.
const TARGETS: &str = "SELECT DISTINCT name FROM counters WHERE kind = 'target' AND agent = ?1 AND slot >= ?2";
/// What is used, for people to see.
const WRITES: &str = "SELECT kind, agent, name, CAST(SUM(weight) AS BIGINT) FROM counters \
     WHERE kind IN ('account', 'gateway') AND slot >= ?1 GROUP BY kind, agent, name ORDER BY kind, agent, name";
const TARGETS_OF_ALL: &str = "SELECT agent, COUNT(DISTINCT name) FROM counters \
     WHERE kind = 'target' AND slot >= ?1 GROUP BY agent ORDER BY agent";

/// How much of a budget is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    /// Which budget.
    pub budget: Budget,
    /// Whose, where it is of one agent.
    pub agent: Option<AgentName>,
    /// At which service, where it is of one.
    pub service: Option<String>,
    /// What was used within the last day.
    pub used: u32,
}

impl Admission {
    /// The first budget that this write exceeds.
    pub(super) async fn over_budget<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Option<Budget>, StoreError> {
        let agent = self.action.agent();
        if let Some(limit) = self.budgets.account {
            let window = budget::window(limit);
            let used = Counter { kind: counters::ACCOUNT, agent, name: self.service.as_str(), window: &window };
            if !fits(limit, used.used(desk).await?, self.weight) {
                return Ok(Some(Budget::Account));
            }
        }
        if let Some(limit) = self.budgets.gateway {
            let used = counters::used_by_all(desk, counters::GATEWAY, &budget::window(limit)).await?;
            if !fits(limit, used, self.weight) {
                return Ok(Some(Budget::Gateway));
            }
        }
        if let Some(limit) = self.budgets.new_targets {
            let mut met = self.new_targets();
            if met.is_empty() {
                return Ok(None);
            }
            let oldest = budget::window(limit).oldest_slot(desk.now);
            let rows = desk.rows(TARGETS, params![agent, oldest]).await?;
            let known = rows.into_iter().map(|row| row.of("counters").text()).collect::<Result<BTreeSet<_>, _>>()?;
            met.retain(|print| !known.contains(*print));
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            if !fits(limit, count(known.len()), count(met.len())) {
                return Ok(Some(Budget::NewTargets));
            }
        }
        Ok(None)
    }

    /// Counts a write that goes its way without a person.
    pub(super) fn spend_budgets<T: Tx>(&self, desk: &mut Desk<'_, T>) {
        let (agent, day) = (self.action.agent(), budget::window(0));
        let count = |desk: &mut Desk<'_, T>, kind: &'static str, name: &str, weight: u32| {
            Counter { kind, agent, name, window: &day }.bump(desk, weight);
        };
        if self.budgets.account.is_some() {
            count(desk, counters::ACCOUNT, self.service.as_str(), self.weight);
        }
        if self.budgets.gateway.is_some() {
            count(desk, counters::GATEWAY, "", self.weight);
        }
        if self.budgets.new_targets.is_some() {
            for print in self.new_targets() {
                count(desk, counters::TARGET, print, 1);
            }
        }
    }

    /// The questions of [`Self::over_budget`], asked early.
    pub(super) fn budgets_ahead(&self, now: Timestamp) -> Vec<Ahead> {
        let (agent, name) = (self.action.agent(), self.service.as_str());
        let account = self.budgets.account.map(|limit| {
            Counter { kind: counters::ACCOUNT, agent, name, window: &budget::window(limit) }.used_ahead(now)
        });
        let all = |limit| counters::used_by_all_ahead(counters::GATEWAY, &budget::window(limit), now);
        account.into_iter().chain(self.budgets.gateway.map(all)).collect()
    }

    /// Targets nobody asked for and nobody knows, each once.
    fn new_targets(&self) -> BTreeSet<&str> {
        let is_new = |origin: Origin| matches!(origin, Origin::New | Origin::Seen);
        self.targets
            .iter()
            .filter(|target| is_new(target.origin))
            .filter_map(|target| target.print.as_deref())
            .collect()
    }
}

/// Every budget of which something is used.
struct BudgetsInUse {
    now: Timestamp,
}

impl Query for BudgetsInUse {
    type Out = Vec<BudgetUse>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<BudgetUse>, StoreError> {
        let oldest = budget::window(0).oldest_slot(self.now);
        let (mut found, mut all) = (Vec::new(), 0_u32);
        for row in tx.rows(WRITES, &params![oldest]).await? {
            let mut row = row.of("counters");
            let (kind, agent, service, used) = (row.text()?, row.parsed()?, row.text()?, row.count()?);
            if kind == counters::GATEWAY {
                all = all.saturating_add(used);
            } else {
                found.push(BudgetUse { budget: Budget::Account, agent: Some(agent), service: Some(service), used });
            }
        }
        for row in tx.rows(TARGETS_OF_ALL, &params![oldest]).await? {
            let mut row = row.of("counters");
            let (agent, used) = (Some(row.parsed()?), row.count()?);
            found.push(BudgetUse { budget: Budget::NewTargets, agent, service: None, used });
        }
        found.insert(0, BudgetUse { budget: Budget::Gateway, agent: None, service: None, used: all });
        Ok(found)
    }
}

impl Store {
    /// What of each budget is used: of the whole gateway always, of agents where something is.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn budgets_in_use(&self, now: Timestamp) -> Result<Vec<BudgetUse>, StoreError> {
        self.ask(BudgetsInUse { now }).await
    }
}
