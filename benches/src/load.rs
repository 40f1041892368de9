//! Load: the requests of agents, built before the clock starts, and the stores that take them.

use std::future::Future;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::json;
use sluice_core::batch::SlidingWindow;
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::ids::MessageId;
use sluice_core::{
    Action, AgentName, ApprovalId, CallId, Clock, HoldId, Ids, Millis, NodeName, ServiceName, Tier, UtcMillis,
};
use sluice_store::{Admission, Store};
use sluice_testkit::ids::SeededIds;
use sluice_testkit::postgres::TestDatabase;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Agents that share the load.
const AGENTS: u64 = 100;

/// The wall clock.
#[derive(Debug, Clone, Copy)]
pub struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> UtcMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UtcMillis::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn since_boot(&self) -> Millis {
        Millis::ZERO
    }
}

/// A store, and the resources that are removed with it.
pub struct BenchStore {
    /// The store.
    pub store: Arc<Store>,
    /// The node name of its log.
    pub node: NodeName,
    /// The folder of its file, if it has one.
    pub folder: Option<TempDir>,
    _database: Option<TestDatabase>,
}

impl BenchStore {
    /// On a fresh SQLite file.
    pub fn file() -> anyhow::Result<Self> {
        let (folder, node) = (folder()?, NodeName::new("gw-1")?);
        let store = Store::open_file(&folder.path().join("sluice.db"), node.clone(), Arc::new(WallClock))?;
        Ok(Self { store: Arc::new(store), node, folder: Some(folder), _database: None })
    }

    /// On a fresh PostgreSQL database, if there is a server.
    pub fn server() -> anyhow::Result<Option<Self>> {
        let (Some(database), node) = (TestDatabase::fresh(), NodeName::new("gw-1")?) else { return Ok(None) };
        let store = Store::open_server(database.url(), node.clone())?;
        Ok(Some(Self { store: Arc::new(store), node, folder: None, _database: Some(database) }))
    }
}

/// A folder on the disk of this repository, not in memory.
pub fn folder() -> anyhow::Result<TempDir> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
    std::fs::create_dir_all(beside)?;
    tempfile::Builder::new().prefix("bench-").tempdir_in(beside).context("a folder for databases")
}

/// A runtime with as many threads as the gateway would have.
pub fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")
}

/// Ordinary e-mails of many agents, each with its idempotency key; no two are equal.
pub struct MailAdmissions {
    ids: SeededIds,
    made: u64,
    delay: Millis,
    tier: Tier,
}

impl MailAdmissions {
    /// E-mails with this undo window.
    pub fn new(delay: Millis) -> Self {
        Self { ids: SeededIds::new(7), made: 0, delay, tier: Tier::Autonomous }
    }

    /// E-mails with a message to people each.
    pub fn told(self) -> Self {
        Self { tier: Tier::Notify, ..self }
    }

    /// This many for each of this many callers.
    pub fn dealt(&mut self, callers: usize, each: usize) -> anyhow::Result<Vec<Vec<Admission>>> {
        Ok(dealt(callers, (0..callers * each).map(|_| self.next()).collect::<Result<_, _>>()?))
    }

    fn next(&mut self) -> anyhow::Result<Admission> {
        self.made += 1;
        let agent = AgentName::new(&format!("clerk-{}", self.made % AGENTS))?;
        let text = format!(
            "Dear Li, here is number {}. It is as long as a short e-mail is: two lines or three, a greeting, and one question at the end. Would Tuesday suit you?",
            self.made
        );
        let arguments = json!({"to": ["li@northpeak.example"], "subject": "Tuesday", "text": text});
        let ids: &dyn Ids = &self.ids;
        Ok(Admission {
            named: false,
            call: CallId::mint(ids),
            hold: HoldId::mint(ids),
            approval: ApprovalId::mint(ids),
            message: MessageId::mint(ids),
            record_key: [7; 32],
            action: Action::custom("custom:mail".parse()?, agent, arguments)?,
            session: None,
            service: ServiceName::new("email")?,
            class: EffectClass::ConsumeOnce,
            object_key: None,
            weight: 1,
            delay: self.delay,
            tier: self.tier,
            policy: "sha256:0000000000000000000000000000000000000000000000000000000000000000".into(),
            rule: Some("agents/clerk.yaml:12".into()),
            door: None,
            targets: Vec::new(),
            reason: None,
            reasons: Vec::new(),
            rates: Vec::new(),
            budgets: DailyBudgetLimits::default(),
            checks: None,
            // Large enough that it never trips; it is counted all the same.
            window: SlidingWindow { limit: u32::MAX, ..SlidingWindow::default() },
            idempotency_key: Some(format!("key-{}", self.made)),
            allow_duplicate: false,
            allowance: None,
            expiry: Millis::from_hours(1),
            reverses: None,
            by: None,
        })
    }
}

/// Deals items out one by one, so that callers of equal speed use them in the order in which they were made: ids sort
/// by age, and a gateway makes them as calls arrive.
pub fn dealt<T>(callers: usize, things: Vec<T>) -> Vec<Vec<T>> {
    let mut piles: Vec<Vec<T>> = (0..callers).map(|_| Vec::with_capacity(things.len() / callers.max(1))).collect();
    for (place, thing) in things.into_iter().enumerate() {
        if let Some(pile) = piles.get_mut(place % callers.max(1)) {
            pile.push(thing);
        }
    }
    piles
}

/// The least that such an admission must store: its action and its audit entry, in bytes.
pub fn payload(bench: &BenchStore, runtime: &Runtime) -> anyhow::Result<usize> {
    let mut mails =
        MailAdmissions { ids: SeededIds::new(1), made: 1 << 40, ..MailAdmissions::new(Millis::from_secs(30)) };
    let admission = mails.next()?;
    let action = admission.action.bytes().len();
    runtime.block_on(bench.store.admit(admission))?;
    let entries = runtime.block_on(bench.store.entries(bench.node.clone(), 0, 1_000_000))?;
    let entry = entries.last().context("an admission leaves an audit entry")?;
    Ok(action + entry.body.len())
}

/// Like [`work_off`], and waits for it.
pub fn all_at_once<T, F>(runtime: &Runtime, piles: Vec<Vec<T>>, work: impl Fn(T) -> F) -> anyhow::Result<()>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    runtime.block_on(work_off(piles, work))
}

/// Every caller processes its own pile, one item after the other, all callers at once.
pub async fn work_off<T, F>(piles: Vec<Vec<T>>, work: impl Fn(T) -> F) -> anyhow::Result<()>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut callers = JoinSet::new();
    for pile in piles {
        // The futures are lazy: creating them does not run them.
        let pile: Vec<F> = pile.into_iter().map(&work).collect();
        callers.spawn(async move {
            for one in pile {
                one.await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}
