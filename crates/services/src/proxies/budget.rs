//! The budget of a proxy at run time: the estimated use of a task, the rest of the day, and the refusal of a task that
//! does not fit.
//!
//! Promise: nothing is decided here. The store reserves the budget in the transaction that begins a task; the check
//! before that avoids an approval request or a held write that could not be carried out today.

use serde_json::{Value, json};
use sluice_core::proxy::spawn::SpawnOptions;
use sluice_core::proxy::{BudgetLimit, ProxyUsage, day_of, start_of, until_next_day};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Millis};
use sluice_store::ProxyDailyUsage;

use super::service::ProxyService;

impl ProxyService {
    /// The time that a task for this action gets.
    pub(super) fn wall(&self, spawn: Option<&SpawnOptions>) -> Millis {
        let declared = self.declared().limits().wall();
        spawn.map_or(declared, |options| options.wall(self.declared()))
    }

    /// The use of today.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn today(&self) -> Result<ProxyDailyUsage, Refusal> {
        let number = day_of(self.deps().clock.now());
        let days = self.deps().store.proxy_days(number).await.map_err(super::run::unavailable)?;
        let own = days.into_iter().find(|day| day.proxy == self.name() && day.day == number);
        Ok(own.unwrap_or_else(|| ProxyDailyUsage::fresh(self.name(), number)))
    }

    /// The estimated use of an action, and what is left today.
    ///
    /// # Errors
    /// When it no longer fits.
    pub(super) async fn estimated(&self, action: &Action) -> Result<Value, Refusal> {
        let (today, limits) = (self.today().await?, self.declared().budget.limits());
        let estimate = self.declared().estimate(self.wall(action.spawn()));
        if let Some(limit) = today.exceeded_limit(estimate, limits) {
            return Err(self.over_budget(limit));
        }
        let left = limits.minus(today.used.plus(today.reserved));
        Ok(json!({
            "most": usage(estimate), "left_today": usage(left), "resets_at": start_of(today.day + 1).to_string(),
        }))
    }

    /// The refusal of a task that no longer fits into the day's budget.
    pub(super) fn over_budget(&self, limit: BudgetLimit) -> Refusal {
        let now = self.deps().clock.now();
        let text = format!(
            "the budget of the proxy `{}` for today does not allow another task (`budget.{}`); nothing was sent",
            self.name(),
            limit.field()
        );
        Refusal::new(Code::ProxyBudget).with_text(&text).retry_after(until_next_day(now))
    }
}

/// A usage as answers show it.
pub fn usage(usage: ProxyUsage) -> Value {
    let ProxyUsage { requests, bytes, millis, cost } = usage;
    json!({"requests": requests, "bytes": bytes, "milliseconds": millis, "cost": cost})
}
