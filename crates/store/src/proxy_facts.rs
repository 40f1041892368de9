//! Facts for reviews of a security proxy: counts, sizes, times and codes of its tasks, never content.

use sluice_core::UtcMillis;
use sluice_core::crash::CrashReport;
use sluice_core::proxy::review::TaskFacts;

use crate::Store;
use crate::error::StoreError;
use crate::proxies::ProxyTaskState;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::StoreQuery;

const FACTS: &str = "SELECT operation, started_at, ended_at, state, report, failed, refused, answer_bytes, findings, \
     proposals_refused FROM proxy_tasks WHERE proxy = ?1 AND started_at >= ?2 AND started_at < ?3 AND state <> 'running' \
     ORDER BY started_at DESC, id DESC LIMIT ?4";

struct ListProxyTaskFacts {
    proxy: String,
    between: (UtcMillis, UtcMillis),
    limit: u32,
}

impl StoreQuery for ListProxyTaskFacts {
    type Out = Vec<TaskFacts>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<TaskFacts>, StoreError> {
        let (since, until) = self.between;
        let rows = tx.rows(FACTS, &params![self.proxy.as_str(), since, until, self.limit]).await?;
        rows.into_iter().map(facts).collect()
    }
}

fn facts(row: SqlRow) -> Result<TaskFacts, StoreError> {
    let mut row = row.of("proxy_tasks");
    let (operation, started_at, ended_at) = (row.text()?, row.time()?, row.maybe_time()?);
    let (state, report) = (row.text()?, row.maybe_text()?);
    let report: Option<CrashReport> = report
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|_| row.impossible("a report that cannot be read"))?;
    let (failed, refused, answer_bytes) = (row.maybe_text()?, row.maybe_text()?, row.maybe_int()?);
    let (findings, proposals_refused) = (row.maybe_int()?, row.maybe_int()?);
    let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    // For a task of an earlier release, only its state says whether it failed.
    let failed = failed.or_else(|| (state != ProxyTaskState::Clean.as_str()).then(|| "worker.crashed".to_owned()));
    Ok(TaskFacts {
        operation,
        failed,
        trigger: report.map(|report| report.trigger().as_str().to_owned()),
        refused,
        answer_bytes: number(answer_bytes),
        millis: ended_at.map(|at| at.since(started_at).as_millis()),
        findings: number(findings).unwrap_or(0),
        proposals_refused: number(proposals_refused).unwrap_or(0),
    })
}

impl Store {
    /// Facts for reviews: tasks of a proxy that began in a period and have ended, at most this many of the newest.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn proxy_task_facts(
        &self,
        proxy: &str,
        between: (UtcMillis, UtcMillis),
        limit: u32,
    ) -> Result<Vec<TaskFacts>, StoreError> {
        self.ask(ListProxyTaskFacts { proxy: proxy.into(), between, limit }).await
    }
}
