//! Budgets of security proxies: what their tasks used within a UTC day, one row for each proxy and day.
//!
//! Promise: a task's budget is reserved in the transaction that begins it, and its actual use is settled in the
//! transaction that ends it, also after a crash. So all nodes together never begin a task that could exceed the day's
//! budget. People are notified once for each threshold of a day.

use std::collections::BTreeMap;

use serde_json::json;
use sluice_core::audit::AuditFact;
use sluice_core::ids::MessageId;
use sluice_core::proxy::{BudgetLimit, ProxyUsage, day_of, share_to_announce, start_of};
use sluice_core::{Actor, Millis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::proxies::{BeginProxyTask, ProxyTask, ProxyTaskUsage, usage};
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT proxy, day, tasks, told, requests, bytes, millis, cost, held_requests, held_bytes, held_millis, held_cost \
             FROM proxy_days ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE proxy = ?1 AND day = ?2 /*lock*/");
const SINCE: &str = select!("WHERE day >= ?1 ORDER BY proxy, day DESC");
const INSERT: &str = "INSERT INTO proxy_days (proxy, day, tasks, told, requests, bytes, millis, cost, held_requests, \
     held_bytes, held_millis, held_cost, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const UPDATE: &str = "UPDATE proxy_days SET tasks = ?3, told = ?4, requests = ?5, bytes = ?6, millis = ?7, cost = ?8, \
     held_requests = ?9, held_bytes = ?10, held_millis = ?11, held_cost = ?12 WHERE proxy = ?1 AND day = ?2";

/// How long days are kept.
const KEPT: Millis = Millis::from_hours(400 * 24);

/// A day of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyDailyUsage {
    /// The proxy.
    pub proxy: String,
    /// The UTC day, counted from 1970.
    pub day: i64,
    /// Tasks that began.
    pub tasks: u64,
    /// The largest threshold of which people were notified, in percent.
    pub told: u64,
    /// What was used.
    pub used: ProxyUsage,
    /// What is reserved for running tasks.
    pub reserved: ProxyUsage,
}

impl ProxyDailyUsage {
    /// A day without any tasks yet.
    #[must_use]
    pub fn fresh(proxy: &str, day: i64) -> Self {
        let (used, reserved) = (ProxyUsage::default(), ProxyUsage::default());
        Self { proxy: proxy.to_owned(), day, tasks: 0, told: 0, used, reserved }
    }

    /// The limit that another task would exceed, if it would.
    #[must_use]
    pub fn exceeded_limit(&self, estimate: ProxyUsage, limits: ProxyUsage) -> Option<BudgetLimit> {
        self.used.plus(self.reserved).plus(estimate).exceeded(limits)
    }

    fn row(&self) -> Vec<SqlValue> {
        let mut row = params![self.proxy.as_str(), self.day, self.tasks, self.told];
        for ProxyUsage { requests, bytes, millis, cost } in [self.used, self.reserved] {
            row.extend(params![requests, bytes, millis, cost.as_micros()]);
        }
        row
    }

    /// Notifies people of a threshold of the day, once.
    fn tell<T: StoreTx>(&mut self, unit: &mut UnitOfWork<'_, T>, percent: u64, message: MessageId) {
        let Some(share) = share_to_announce(percent, self.told) else { return };
        self.told = share;
        let day = start_of(self.day).to_string();
        let day = day.split('T').next().unwrap_or_default();
        let text = match share {
            100 => "the budget of the day is used up; nothing is sent until the next UTC day",
            _ => "most of the budget of the day is used",
        };
        let body = json!({"proxy": self.proxy, "day": day, "percent": share, "text": text});
        outbox::put(
            unit,
            &OutboxMessage { id: message, topic: "proxy.budget".into(), severity: MessageSeverity::Warning, body },
        );
    }
}

/// Reserves the budget of a task. Returns the limit that prevents it, if one does; then nothing is reserved.
pub(crate) async fn reserve<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    task: &BeginProxyTask,
) -> Result<Option<BudgetLimit>, StoreError> {
    let number = day_of(unit.now);
    let found = unit.row(ONE, params![task.proxy.as_str(), number]).await?.map(decode).transpose()?;
    let is_new = found.is_none();
    let mut day = found.unwrap_or_else(|| ProxyDailyUsage::fresh(&task.proxy, number));
    let refused = day.exceeded_limit(task.estimate, task.limits);
    match refused {
        Some(limit) => {
            let fact = AuditFact::new("proxy.over_budget", Actor::Agent(task.agent.clone())).with("proxy", &task.proxy);
            unit.record(fact.with("operation", &task.operation).with("limit", limit.field()));
            // If only running tasks prevent it, the day's budget is not used up yet.
            if day.used.plus(task.estimate).exceeded(task.limits).is_some() {
                day.tell(unit, 100, task.message);
            }
        }
        None => {
            day.reserved = day.reserved.plus(task.estimate);
            day.tasks += 1;
        }
    }
    let mut row = day.row();
    if is_new {
        row.extend(params![start_of(number) + KEPT]);
        // If two nodes both make the row, they collide on its key, and one of them starts over.
        unit.write(INSERT, row);
    } else {
        unit.write_one(UPDATE, row);
    }
    Ok(refused)
}

/// The days on which ending tasks are counted.
pub(crate) struct LockedDailyUsage(BTreeMap<(String, i64), ProxyDailyUsage>);

impl LockedDailyUsage {
    /// Reads and locks the days, always in the same order.
    pub async fn of<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, tasks: &[ProxyTask]) -> Result<Self, StoreError> {
        let keys = tasks.iter().filter_map(|task| Some((task.proxy.clone(), task.reserved?.0)));
        let mut found = BTreeMap::new();
        for (proxy, day) in keys.collect::<std::collections::BTreeSet<_>>() {
            if let Some(row) = unit.row(ONE, params![proxy.as_str(), day]).await? {
                found.insert((proxy, day), decode(row)?);
            }
        }
        Ok(Self(found))
    }

    /// Replaces a task's reservation with its actual use.
    pub fn settle<T: StoreTx>(
        &mut self,
        unit: &mut UnitOfWork<'_, T>,
        task: &ProxyTask,
        spent: Option<&ProxyTaskUsage>,
    ) {
        let Some((number, reserved)) = task.reserved else { return };
        let Some(day) = self.0.get_mut(&(task.proxy.clone(), number)) else { return };
        day.reserved = day.reserved.minus(reserved);
        day.used = day.used.plus(spent.map_or(reserved, |spent| spent.used));
        if let Some(spent) = spent {
            day.tell(unit, day.used.percent(spent.limits), spent.message);
        }
    }

    /// Writes the days.
    pub fn save<T: StoreTx>(self, unit: &mut UnitOfWork<'_, T>) {
        for day in self.0.into_values() {
            unit.write_one(UPDATE, day.row());
        }
    }
}

fn decode(row: SqlRow) -> Result<ProxyDailyUsage, StoreError> {
    let mut row = row.of("proxy_days");
    let (proxy, day, tasks, told) = (row.text()?, row.int()?, row.count()?, row.count()?);
    let (used, reserved) = (usage(&mut row)?, usage(&mut row)?);
    Ok(ProxyDailyUsage { proxy, day, tasks, told, used, reserved })
}

struct ListProxyUsageSince(i64);

impl StoreQuery for ListProxyUsageSince {
    type Out = Vec<ProxyDailyUsage>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ProxyDailyUsage>, StoreError> {
        tx.rows(SINCE, &params![self.0]).await?.into_iter().map(decode).collect()
    }
}

impl Store {
    /// What proxies used since a UTC day, by name, newest day first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proxy_days(&self, since: i64) -> Result<Vec<ProxyDailyUsage>, StoreError> {
        self.ask(ListProxyUsageSince(since)).await
    }
}
