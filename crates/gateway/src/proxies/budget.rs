//! The budget of a proxy while it runs: what a task would use, what is left, and the refusal where it does not fit.
//!
//! Promise: nothing is decided here. The store reserves in the transaction that begins a task; what is said before that
//! saves a question or a held write that could not be carried out today.

use serde_json::{Value, json};
use sluice_core::proxy::spawn::SpawnOptions;
use sluice_core::proxy::{BudgetLimit, ProxyUsage, day_of, start_of, until_next_day};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Span};
use sluice_store::ProxyDay;

use super::service::ProxyService;

impl ProxyService {
    /// The time that a task for this action is given.
    pub(super) fn wall(&self, spawn: Option<&SpawnOptions>) -> Span {
        let declared = self.declared().limits().wall();
        spawn.map_or(declared, |options| options.wall(self.declared()))
    }

    /// What was used today.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(crate) async fn today(&self) -> Result<ProxyDay, Refusal> {
        let number = day_of(self.ground().clock.now());
        let days = self.ground().store.proxy_days(number).await.map_err(super::run::unavailable)?;
        let own = days.into_iter().find(|day| day.proxy == self.name() && day.day == number);
        Ok(own.unwrap_or_else(|| ProxyDay::fresh(self.name(), number)))
    }

    /// What an action would use and what is left of the day.
    ///
    /// # Errors
    /// When it does not fit any more.
    pub(super) async fn estimated(&self, action: &Action) -> Result<Value, Refusal> {
        let (today, limits) = (self.today().await?, self.declared().budget.limits());
        let estimate = self.declared().estimate(self.wall(action.spawn()));
        if let Some(limit) = today.refuses(estimate, limits) {
            return Err(self.over_budget(limit));
        }
        let left = limits.minus(today.used.plus(today.reserved));
        Ok(json!({
            "most": usage(estimate), "left_today": usage(left), "resets_at": start_of(today.day + 1).to_string(),
        }))
    }

    /// The refusal of a task that the day does not hold any more.
    pub(super) fn over_budget(&self, limit: BudgetLimit) -> Refusal {
        let now = self.ground().clock.now();
        let text = format!(
            "the budget of the proxy `{}` for today does not hold another task (`budget.{}`); nothing was sent",
            self.name(),
            limit.field()
        );
        Refusal::new(Code::ProxyBudget).with_text(&text).retry_after(until_next_day(now))
    }
}

/// A usage as answers show it.
pub(crate) fn usage(usage: ProxyUsage) -> Value {
    let ProxyUsage { requests, bytes, millis, cost } = usage;
    json!({"requests": requests, "bytes": bytes, "milliseconds": millis, "cost": cost})
}
