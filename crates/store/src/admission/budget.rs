//! Budgets of an admission: what was used within a day, and what the write adds.
//!
//! Takes an admission; gives the budget it exceeds, if any. Promise: budgets are read and counted in the admission's
//! own transaction, as rows that survive a restart and are shared by all nodes. A write that needs approval is not
//! counted. The count of one agent is exact. If two nodes admit writes of two agents at the same moment, neither sees
//! the other's write in the sum over all agents.

use std::collections::BTreeSet;

use sluice_core::budget::{self, DailyBudget, fits_budget};
use sluice_core::policy::TargetOrigin;
use sluice_core::{AgentName, UtcMillis};

use super::Admission;
use crate::Store;
use crate::counters::{self, WindowCounter};
use crate::error::StoreError;
use crate::prefetch::PrefetchQuery;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork};

/// Different new targets of an agent.
const TARGETS: &str = "SELECT DISTINCT name FROM counters WHERE kind = 'target' AND agent = ?1 AND slot >= ?2";
/// Used budgets, to be shown to people.
const WRITES: &str = "SELECT kind, agent, name, CAST(SUM(weight) AS BIGINT) FROM counters \
     WHERE kind IN ('account', 'gateway') AND slot >= ?1 GROUP BY kind, agent, name ORDER BY kind, agent, name";
const TARGETS_OF_ALL: &str = "SELECT agent, COUNT(DISTINCT name) FROM counters \
     WHERE kind = 'target' AND slot >= ?1 GROUP BY agent ORDER BY agent";

/// How much of a budget is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    /// The budget.
    pub budget: DailyBudget,
    /// The agent, if the budget belongs to one agent.
    pub agent: Option<AgentName>,
    /// The service, if the budget belongs to one service.
    pub service: Option<String>,
    /// How much was used within the last day.
    pub used: u32,
}

impl Admission {
    /// The first budget that this write exceeds.
    pub(super) async fn over_budget<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
    ) -> Result<Option<DailyBudget>, StoreError> {
        let agent = self.action.agent();
        if let Some(limit) = self.budgets.account {
            let window = budget::daily_window(limit);
            let used = WindowCounter { kind: counters::ACCOUNT, agent, name: self.service.as_str(), window: &window };
            if !fits_budget(limit, used.used(unit).await?, self.weight) {
                return Ok(Some(DailyBudget::Account));
            }
        }
        if let Some(limit) = self.budgets.gateway {
            let used = counters::used_by_all(unit, counters::GATEWAY, &budget::daily_window(limit)).await?;
            if !fits_budget(limit, used, self.weight) {
                return Ok(Some(DailyBudget::Gateway));
            }
        }
        if let Some(limit) = self.budgets.new_targets {
            let mut met = self.new_targets();
            if met.is_empty() {
                return Ok(None);
            }
            let oldest = budget::daily_window(limit).oldest_slot(unit.now);
            let rows = unit.rows(TARGETS, params![agent, oldest]).await?;
            let known = rows.into_iter().map(|row| row.of("counters").text()).collect::<Result<BTreeSet<_>, _>>()?;
            met.retain(|print| !known.contains(*print));
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            if !fits_budget(limit, count(known.len()), count(met.len())) {
                return Ok(Some(DailyBudget::NewTargets));
            }
        }
        Ok(None)
    }

    /// Counts a write that goes out without a person.
    pub(super) fn spend_budgets<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) {
        let (agent, day) = (self.action.agent(), budget::daily_window(0));
        let count = |unit: &mut UnitOfWork<'_, T>, kind: &'static str, name: &str, weight: u32| {
            WindowCounter { kind, agent, name, window: &day }.bump(unit, weight);
        };
        if self.budgets.account.is_some() {
            count(unit, counters::ACCOUNT, self.service.as_str(), self.weight);
        }
        if self.budgets.gateway.is_some() {
            count(unit, counters::GATEWAY, "", self.weight);
        }
        if self.budgets.new_targets.is_some() {
            for print in self.new_targets() {
                count(unit, counters::TARGET, print, 1);
            }
        }
    }

    /// The queries of [`Self::over_budget`], made early.
    pub(super) fn budgets_ahead(&self, now: UtcMillis) -> Vec<PrefetchQuery> {
        let (agent, name) = (self.action.agent(), self.service.as_str());
        let account = self.budgets.account.map(|limit| {
            WindowCounter { kind: counters::ACCOUNT, agent, name, window: &budget::daily_window(limit) }.used_ahead(now)
        });
        let all = |limit| counters::used_by_all_ahead(counters::GATEWAY, &budget::daily_window(limit), now);
        account.into_iter().chain(self.budgets.gateway.map(all)).collect()
    }

    /// Distinct targets that nobody asked for and that are not known.
    fn new_targets(&self) -> BTreeSet<&str> {
        let is_new = |origin: TargetOrigin| matches!(origin, TargetOrigin::New | TargetOrigin::Seen);
        self.targets
            .iter()
            .filter(|target| is_new(target.origin))
            .filter_map(|target| target.print.as_deref())
            .collect()
    }
}

/// Reads every budget that is in use.
struct ListBudgetUse {
    now: UtcMillis,
}

impl StoreQuery for ListBudgetUse {
    type Out = Vec<BudgetUse>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<BudgetUse>, StoreError> {
        let oldest = budget::daily_window(0).oldest_slot(self.now);
        let (mut found, mut all) = (Vec::new(), 0_u32);
        for row in tx.rows(WRITES, &params![oldest]).await? {
            let mut row = row.of("counters");
            let (kind, agent, service, used) = (row.text()?, row.parsed()?, row.text()?, row.count()?);
            if kind == counters::GATEWAY {
                all = all.saturating_add(used);
            } else {
                found.push(BudgetUse {
                    budget: DailyBudget::Account,
                    agent: Some(agent),
                    service: Some(service),
                    used,
                });
            }
        }
        for row in tx.rows(TARGETS_OF_ALL, &params![oldest]).await? {
            let mut row = row.of("counters");
            let (agent, used) = (Some(row.parsed()?), row.count()?);
            found.push(BudgetUse { budget: DailyBudget::NewTargets, agent, service: None, used });
        }
        found.insert(0, BudgetUse { budget: DailyBudget::Gateway, agent: None, service: None, used: all });
        Ok(found)
    }
}

impl Store {
    /// How much of each budget is used: always for the whole gateway, for agents only where something was used.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn budgets_in_use(&self, now: UtcMillis) -> Result<Vec<BudgetUse>, StoreError> {
        self.ask(ListBudgetUse { now }).await
    }
}
