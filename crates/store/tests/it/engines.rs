//! The engines a test runs on, and short helpers for the first steps of most tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluice_core::capability::EffectClass;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, HoldId, Millis, PersonName, ServiceName, Tier};
use sluice_store::{
    AbandonedClaims, Admission, AdmissionOutcome, AttemptOutcome, HoldSettlement, LookupEvidence, MemoryDatabase,
    OutboxMessage, ResolveDoubt, SettleHold, StoreError, WriteClaimOutcome,
};
use sluice_testkit::postgres::TestDatabase;
use sluice_testkit::{CountingIds, ManualClock, TestStore};
use tempfile::TempDir;

use crate::checker;

/// The undo window of an ordinary e-mail.
pub const WINDOW: Millis = Millis::from_secs(30);

/// A database that outlives the gateways on it.
pub struct StoreTestDatabase {
    engine: StoreTestEngine,
    pub clock: ManualClock,
    ids: Arc<CountingIds>,
}

enum StoreTestEngine {
    Memory(MemoryDatabase),
    File(TempDir),
    Server(StoreTestSchema),
}

/// A separate schema in a database that concurrent tests share: creating one takes milliseconds, creating a database
/// takes most of a second.
pub struct StoreTestSchema {
    url: String,
    _database: Arc<TestDatabase>,
}

impl StoreTestSchema {
    pub fn fresh() -> Option<Self> {
        static SHARED: Mutex<Weak<TestDatabase>> = Mutex::new(Weak::new());
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut shared = SHARED.lock();
        let database = match shared.upgrade() {
            Some(database) => database,
            None => Arc::new(TestDatabase::fresh()?),
        };
        *shared = Arc::downgrade(&database);
        drop(shared);
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        run_sql(database.url(), &format!("CREATE SCHEMA {name}"));
        Some(Self { url: format!("{}?options=-csearch_path%3D{name}", database.url()), _database: database })
    }

    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Runs statements on their own connection.
pub fn run_sql(url: &str, statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        let work = async {
            client.batch_execute(statements).await.unwrap();
            drop(client);
        };
        let ((), _) = tokio::join!(work, connection);
    });
}

impl StoreTestDatabase {
    pub fn memory() -> Self {
        Self::on(StoreTestEngine::Memory(MemoryDatabase::new().unwrap()))
    }

    pub fn file() -> Self {
        Self::on(StoreTestEngine::File(tempfile::tempdir().unwrap()))
    }

    pub fn server() -> Option<Self> {
        StoreTestSchema::fresh().map(|schema| Self::on(StoreTestEngine::Server(schema)))
    }

    fn on(engine: StoreTestEngine) -> Self {
        Self { engine, clock: ManualClock::default(), ids: Arc::default() }
    }

    /// All engines.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::memory(), Self::file()].into_iter().chain(Self::server())
    }

    /// Engines that several gateways can share.
    pub fn shared() -> impl Iterator<Item = Self> {
        [Self::memory()].into_iter().chain(Self::server())
    }

    pub fn clock_time(&self) -> sluice_core::UtcMillis {
        sluice_core::Clock::now(&self.clock)
    }

    /// Opens a gateway, with ids that continue where the last one's ended.
    pub fn open(&self, node: &str) -> TestStore {
        let mut world = match &self.engine {
            StoreTestEngine::Memory(memory) => TestStore::on(memory, node, &self.clock),
            StoreTestEngine::File(folder) => TestStore::reopen(&folder.path().join("sluice.db"), &self.clock),
            StoreTestEngine::Server(schema) => TestStore::server(schema.url(), node, &self.clock),
        };
        world.ids = Arc::clone(&self.ids);
        world
    }
}

/// Runs a test on every engine and checks the audit log it leaves.
pub fn everywhere(test: impl Fn(&TestStore)) {
    for place in StoreTestDatabase::all() {
        let world = place.open("gw-1");
        test(&world);
        checker::check(&world);
    }
}

/// Like [`everywhere`], for tests that close the store and open it again.
pub fn across_restarts(test: impl Fn(&StoreTestDatabase) -> TestStore) {
    for place in StoreTestDatabase::all() {
        checker::check(&test(&place));
    }
}

/// Two gateways on one database, on every engine that allows two.
pub fn with_two_nodes(test: impl Fn(&TestStore, &TestStore)) {
    for place in StoreTestDatabase::shared() {
        let (one, two) = (place.open("gw-1"), place.open("gw-2"));
        test(&one, &two);
        checker::check(&one);
    }
}

pub fn agent(name: &str) -> Actor {
    Actor::Agent(AgentName::new(name).unwrap())
}

pub fn operator() -> Actor {
    Actor::Operator(PersonName::new("olga").unwrap())
}

pub fn service(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

pub fn message(world: &TestStore) -> MessageId {
    MessageId::mint(world.ids.as_ref())
}

/// A mail that policy requires a person to approve.
pub fn question(world: &TestStore, agent: &str, text: &str) -> Admission {
    Admission { tier: Tier::ApprovalRequired, ..world.mail(agent, text) }
}

/// Makes an approval request, and gives the write and the request.
pub fn asked(world: &TestStore, agent: &str, text: &str) -> (HoldId, ApprovalId) {
    match world.admit(question(world, agent, text)) {
        AdmissionOutcome::Awaiting { hold, approval, batch: false, .. } => (hold, approval),
        other => panic!("nobody is asked: {other:?}"),
    }
}

/// A held write of an effect class.
pub fn held_of(world: &TestStore, class: EffectClass, text: &str) -> HoldId {
    match world.admit(Admission { class, ..world.mail("clerk", text) }) {
        AdmissionOutcome::Held { hold, .. } => hold,
        other => panic!("not held but {other:?}"),
    }
}

/// Claims the one write that is due.
pub fn claimed(world: &TestStore) -> Hold {
    let claimed = world.claim_due();
    let [WriteClaimOutcome::Ours(hold)] = claimed.as_slice() else { panic!("{claimed:?}") };
    hold.as_ref().clone()
}

/// Waits for the undo window to close, claims and arms the one write that is due.
pub fn armed(world: &TestStore) -> Hold {
    world.clock.advance(WINDOW);
    let hold = claimed(world);
    world.arm(&hold).unwrap();
    world.hold(hold.id)
}

/// A write with an uncertain outcome.
pub fn doubtful(world: &TestStore, class: EffectClass) -> Hold {
    held_of(world, class, "hello");
    let hold = armed(world);
    world.finish(hold.id, hold.epoch, AttemptOutcome::Unclear).unwrap()
}

pub fn not_done() -> AttemptOutcome {
    AttemptOutcome::NotDone { code: "service.busy".into() }
}

pub fn refused() -> AttemptOutcome {
    AttemptOutcome::Refused { code: "service.refused".into() }
}

pub fn resolve(world: &TestStore, hold: &Hold, evidence: LookupEvidence) -> Result<Hold, StoreError> {
    let resolve = ResolveDoubt { hold: hold.id, version: hold.version, evidence, lookups: 3, message: message(world) };
    world.wait(world.store.resolve(resolve))
}

pub fn settle(world: &TestStore, hold: HoldId, word: HoldSettlement) -> Result<Hold, StoreError> {
    settle_under(world, hold, word, Tier::Notify)
}

pub fn settle_under(world: &TestStore, hold: HoldId, word: HoldSettlement, tier: Tier) -> Result<Hold, StoreError> {
    let approval = ApprovalId::mint(world.ids.as_ref());
    let version = world.hold(hold).version;
    let (by, expiry, message) = (operator(), Millis::from_hours(1), message(world));
    world.wait(world.store.settle(SettleHold { hold, version, by, word, tier, approval, message, expiry }))
}

pub fn recover(world: &TestStore, which: AbandonedClaims) -> Vec<HoldId> {
    world.wait(world.store.recover(which, 100, message(world))).unwrap()
}

/// Every message that is due, by topic.
pub fn messages(world: &TestStore, topic: &str) -> Vec<OutboxMessage> {
    let mut due = world.wait(world.store.due_messages(world.now(), 1000)).unwrap();
    due.extend(world.wait(world.store.untold_notices(world.now(), 1000)).unwrap());
    due.into_iter().map(|undelivered| undelivered.message).filter(|message| message.topic == topic).collect()
}

/// How many entries of a kind all logs together hold.
pub fn recorded(world: &TestStore, kind: &str) -> usize {
    checker::entries(world).iter().filter(|entry| entry.fact.kind == kind).count()
}

/// The code of a refusal.
pub fn code<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> &'static str {
    answer.unwrap_err().code()
}

/// The times of all entries, in the order of the log.
pub fn recorded_times(world: &TestStore) -> Vec<sluice_core::UtcMillis> {
    checker::entries(world).iter().map(|entry| entry.at).collect()
}
