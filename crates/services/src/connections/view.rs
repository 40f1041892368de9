//! The view of a connection for people: state, counts, age, progress.

use serde::Serialize;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{CapabilityName, HoldId, ServiceName};
use sluice_store::replica::ReplicaFreshness;
use sluice_store::{HoldFilter, ServiceConnection as Row, Store};

use super::{ConnectionHandle, ServiceConnections};
use crate::CallError;
use crate::failing::{FailingView, FailureAudience, failing};

/// Most writes that are read to count them.
const COUNTED: u32 = 10_000;

/// A connection as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ServiceConnectionView {
    /// The name of the connection.
    #[schemars(with = "String")]
    pub name: ServiceName,
    /// The name of the adapter.
    pub adapter: String,
    /// The service: the prefix of its capabilities.
    #[schemars(with = "String")]
    pub service: ServiceName,
    /// The account at the service.
    pub account: Option<String>,
    /// `connecting`, `syncing`, `live`, `paused`, `needs_reauth` or `disconnected`.
    pub state: &'static str,
    /// Why it is in this state, if the state alone does not say so.
    pub reason: Option<String>,
    /// When it entered this state.
    pub since: String,
    /// The address of the service.
    pub endpoint: Option<String>,
    /// Number of messages in the replica.
    pub messages: Option<u64>,
    /// Whether the replica is encrypted on the disk, if there is one.
    pub encrypted: Option<bool>,
    /// Whether the replica has been complete at least once.
    pub complete: bool,
    /// When the replica last matched the service.
    pub synced_at: Option<String>,
    /// How long ago that was, in seconds.
    pub age_s: Option<u64>,
    /// The progress of the first sync, while it runs.
    pub progress: Option<SyncProgressView>,
    /// Number of writes that wait.
    pub pending: u64,
    /// Of those, writes of which an attempt failed and that will be tried again.
    pub retrying: u64,
    /// The next retry: which write, when, and why its last attempt failed.
    pub next_retry: Option<NextRetryView>,
    /// Number of writes whose outcome is uncertain.
    pub in_doubt: u64,
    /// Number of writes that failed permanently.
    pub dead: u64,
    /// Messages that crash each worker that opens them: the replica holds only their id.
    pub set_aside: u64,
    /// The error of the last sync, if it failed.
    pub error: Option<String>,
    /// Capabilities that are offered through this connection.
    #[schemars(with = "Vec<String>")]
    pub capabilities: Vec<CapabilityName>,
}

/// The next attempt at a write that failed before.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct NextRetryView {
    /// The id of the write.
    pub buffer_id: String,
    /// The attempt number, its time and the last error.
    #[serde(flatten)]
    pub failing: FailingView,
}

/// The progress of a first sync.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct SyncProgressView {
    /// Messages copied so far.
    pub done: u64,
    /// Number of all messages, as the service estimates it.
    pub total: Option<u64>,
    /// Recent messages per second.
    pub per_s: Option<f64>,
    /// Estimated seconds until the end, at this pace.
    pub eta_s: Option<u64>,
}

/// The receipt of a connection that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct DisconnectReceiptView {
    /// The name of the connection.
    #[schemars(with = "String")]
    pub connection: ServiceName,
    /// The account at the service.
    pub account: Option<String>,
    /// Writes that were stopped.
    #[schemars(with = "Vec<String>")]
    pub cancelled: Vec<HoldId>,
    /// Writes that were sent, or may have been. Those that turn out not to have happened are not retried.
    #[schemars(with = "Vec<String>")]
    pub on_their_way: Vec<HoldId>,
    /// Messages that were deleted with the replica.
    pub messages: u64,
    /// Of these, messages that were withheld from agents.
    pub withheld: u64,
    /// Findings whose content was destroyed. The audit log still shows that there was a finding.
    pub findings: u64,
    /// Rollback points whose content was destroyed: these writes can no longer be undone.
    pub rollback_points: u64,
    /// Stored results of calls that were deleted.
    pub results: u64,
    /// Whether the replica was encrypted: its key is destroyed, so copies in backups cannot be read.
    pub encrypted: bool,
    /// Secrets that were destroyed.
    pub secrets: Vec<String>,
    /// Capabilities that are no longer offered.
    #[schemars(with = "Vec<String>")]
    pub capabilities: Vec<CapabilityName>,
}

/// The result of a connection test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct ConnectionTestView {
    /// The name of the connection.
    #[schemars(with = "String")]
    pub connection: ServiceName,
    /// Whether the service answers and accepts our credential.
    pub works: bool,
    /// The account, as the service reports it.
    pub account: Option<String>,
    /// Why the test failed.
    pub error: Option<String>,
}

impl ServiceConnections {
    pub(super) async fn view(&self, store: &Store, row: Row) -> Result<ServiceConnectionView, CallError> {
        let line = self.known(&row.name);
        let line = line.as_deref();
        let (mut pending, mut retrying, mut in_doubt, mut dead) = (0, 0, 0, 0);
        let mut first: Option<Hold> = None;
        let filter = HoldFilter {
            service: Some(row.service.clone()),
            states: vec![
                "awaiting_approval",
                "held",
                "ready",
                "preparing",
                "armed",
                "in_doubt",
                "needs_human",
                "stale",
                "dead",
            ],
            ..HoldFilter::default()
        };
        for hold in store.holds_page(filter, None, COUNTED).await? {
            if let Some(next) = hold.next_attempt_at() {
                retrying += 1;
                if first.as_ref().and_then(Hold::next_attempt_at).is_none_or(|earliest| next < earliest) {
                    first = Some(hold.clone());
                }
            }
            match hold.state {
                HoldState::InDoubt { .. } | HoldState::NeedsHuman { .. } => in_doubt += 1,
                HoldState::Dead { .. } => dead += 1,
                _ => pending += 1,
            }
        }
        let next_retry = match first {
            Some(hold) => {
                let failing = failing(store, &hold, FailureAudience::Person).await?;
                Some(NextRetryView { buffer_id: hold.id.to_string(), failing })
            }
            None => None,
        };
        let copy = line.and_then(ConnectionHandle::copy);
        let fresh = copy.as_ref().map(|copy| copy.freshness()).unwrap_or_default();
        let ReplicaFreshness { synced_at, complete, .. } = fresh;
        let now = self.deps.clock.now();
        let (progress, error) = line.map_or((None, None), |line| self.progress(line, &fresh));
        let locked = line.filter(|line| line.locked.load(std::sync::atomic::Ordering::SeqCst));
        let error = error.or_else(|| locked.map(|line| line.no_copy().to_string()));
        let offered = line.filter(|_| row.state.has_readable_copy()).map(|line| line.manifest.capabilities.clone());
        Ok(ServiceConnectionView {
            messages: copy.as_ref().map(|copy| copy.count()).transpose()?,
            encrypted: self.is_encrypted(line, &row.name),
            endpoint: line.map(|line| line.target.as_str().trim_end_matches('/').to_owned()),
            name: row.name,
            adapter: row.adapter,
            service: row.service,
            account: row.account,
            state: row.state.as_str(),
            reason: row.reason,
            since: row.since.to_string(),
            complete,
            synced_at: synced_at.map(|at| at.to_string()),
            age_s: synced_at.map(|at| now.since(at).as_secs()),
            progress,
            pending,
            retrying,
            next_retry,
            in_doubt,
            dead,
            set_aside: match &copy {
                Some(copy) => copy.set_aside_ids()?.len() as u64,
                None => 0,
            },
            error,
            capabilities: offered.unwrap_or_default(),
        })
    }
}
