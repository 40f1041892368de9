//! How a connection looks to people: state, counts, age, progress.

use serde::Serialize;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::{CapabilityName, HoldId, ServiceName};
use sluice_store::replica::Freshness;
use sluice_store::{Connection as Row, HoldFilter, Store};

use super::{Connections, Line};
use crate::No;
use crate::doors::http::views::failing::{Audience, FailingView, failing};

/// Writes that are looked through when they are counted.
const COUNTED: u32 = 10_000;

/// A connection as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ConnectionView {
    /// What it is called.
    #[schemars(with = "String")]
    pub name: ServiceName,
    /// The adapter behind it.
    pub adapter: String,
    /// What its capabilities begin with.
    #[schemars(with = "String")]
    pub service: ServiceName,
    /// The account.
    pub account: Option<String>,
    /// `connecting`, `syncing`, `live`, `paused`, `needs_reauth` or `disconnected`.
    pub state: &'static str,
    /// Why, where that is not plain.
    pub reason: Option<String>,
    /// Since when.
    pub since: String,
    /// Where the service is.
    pub endpoint: Option<String>,
    /// Messages in the copy.
    pub messages: Option<u64>,
    /// Whether the copy is encrypted on the disk, if there is one.
    pub encrypted: Option<bool>,
    /// Whether everything was copied at least once.
    pub complete: bool,
    /// When the copy was last known to be as the service is.
    pub synced_at: Option<String>,
    /// How long ago that was, in seconds.
    pub age_s: Option<u64>,
    /// How far the first copy is, while it is being made.
    pub progress: Option<Progress>,
    /// Writes that wait.
    pub pending: u64,
    /// Of those, writes of which an attempt failed and that are tried again.
    pub retrying: u64,
    /// The retrying write whose turn comes first: which one, when, and why its last attempt failed.
    pub next_retry: Option<NextRetry>,
    /// Writes that nobody knows the end of yet.
    pub in_doubt: u64,
    /// Writes that failed for good.
    pub dead: u64,
    /// Messages that break each worker that opens them: only their place is in the copy.
    pub set_aside: u64,
    /// What went wrong when the copy was last brought up to date, if something did.
    pub error: Option<String>,
    /// Capabilities that are offered through it.
    #[schemars(with = "Vec<String>")]
    pub capabilities: Vec<CapabilityName>,
}

/// The next attempt at a write that failed before.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct NextRetry {
    /// Which write.
    pub buffer_id: String,
    /// The attempt and the last error.
    #[serde(flatten)]
    pub failing: FailingView,
}

/// How far a first copy is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Progress {
    /// Messages copied.
    pub done: u64,
    /// Messages there are, by the service's own estimate.
    pub total: Option<u64>,
    /// Messages per second, lately.
    pub per_s: Option<f64>,
    /// Seconds it will still take, at this pace.
    pub eta_s: Option<u64>,
}

/// What was left of a connection that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Receipt {
    /// Which.
    #[schemars(with = "String")]
    pub connection: ServiceName,
    /// The account.
    pub account: Option<String>,
    /// Writes that were stopped.
    #[schemars(with = "Vec<String>")]
    pub cancelled: Vec<HoldId>,
    /// Writes that had left, or may have. Whatever turns out not to have happened is not tried again.
    #[schemars(with = "Vec<String>")]
    pub on_their_way: Vec<HoldId>,
    /// Messages of the copy that were deleted.
    pub messages: u64,
    /// Of these, messages that were withheld from agents.
    pub withheld: u64,
    /// Findings whose content was destroyed. That there was a finding stays on record.
    pub findings: u64,
    /// Rollback points whose content was destroyed: these writes cannot be taken back any more.
    pub rollback_points: u64,
    /// Answers of calls that were still kept, and were deleted.
    pub results: u64,
    /// Whether the copy was encrypted: with its key destroyed, whatever backups hold of it is noise.
    pub encrypted: bool,
    /// Secrets that were destroyed.
    pub secrets: Vec<String>,
    /// Capabilities that are no longer offered.
    #[schemars(with = "Vec<String>")]
    pub capabilities: Vec<CapabilityName>,
}

/// What a look at the service showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Tested {
    /// Which.
    #[schemars(with = "String")]
    pub connection: ServiceName,
    /// Whether the service is there and takes our credential.
    pub works: bool,
    /// The account, by the service's own word.
    pub account: Option<String>,
    /// Why not, in words.
    pub error: Option<String>,
}

impl Connections {
    pub(super) async fn view(&self, store: &Store, row: Row) -> Result<ConnectionView, No> {
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
                let failing = failing(store, &hold, Audience::Person).await?;
                Some(NextRetry { buffer_id: hold.id.to_string(), failing })
            }
            None => None,
        };
        let copy = line.and_then(Line::copy);
        let fresh = copy.as_ref().map(|copy| copy.freshness()).unwrap_or_default();
        let Freshness { synced_at, complete, .. } = fresh;
        let now = self.ground.clock.now();
        let (progress, error) = line.map_or((None, None), |line| self.progress(line, &fresh));
        let locked = line.filter(|line| line.locked.load(std::sync::atomic::Ordering::SeqCst));
        let error = error.or_else(|| locked.map(|line| line.no_copy().to_string()));
        let offered = line.filter(|_| row.state.answers()).map(|line| line.manifest.capabilities.clone());
        Ok(ConnectionView {
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
                Some(copy) => copy.aside()?.len() as u64,
                None => 0,
            },
            error,
            capabilities: offered.unwrap_or_default(),
        })
    }
}
