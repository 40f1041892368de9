//! The engines a test runs on, and short words for what most tests begin with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sluice_core::capability::EffectClass;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, HoldId, PersonName, ServiceName, Span, Tier};
use sluice_store::{
    Abandoned, Admission, Admitted, Claimed, Evidence, Memory, Message, Outcome, Resolve, Settle, StoreError, Word,
};
use sluice_testkit::postgres::Database;
use sluice_testkit::{CountingIds, ManualClock, World};
use tempfile::TempDir;

use crate::checker;

/// The undo window of an ordinary e-mail.
pub const WINDOW: Span = Span::from_secs(30);

/// A database that outlives the gateways on it.
pub struct Place {
    engine: Engine,
    pub clock: ManualClock,
    ids: Arc<CountingIds>,
}

enum Engine {
    Memory(Memory),
    File(TempDir),
    Server(Schema),
}

/// A schema of its own in a database that tests running at the same time share: a fresh one is made
/// in milliseconds, a fresh database in most of a second.
pub struct Schema {
    url: String,
    _database: Arc<Database>,
}

impl Schema {
    pub fn fresh() -> Option<Self> {
        static SHARED: Mutex<Weak<Database>> = Mutex::new(Weak::new());
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let database = match shared.upgrade() {
            Some(database) => database,
            None => Arc::new(Database::fresh()?),
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

/// Statements on a connection of their own.
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

impl Place {
    pub fn memory() -> Self {
        Self::on(Engine::Memory(Memory::new().unwrap()))
    }

    pub fn file() -> Self {
        Self::on(Engine::File(tempfile::tempdir().unwrap()))
    }

    pub fn server() -> Option<Self> {
        Schema::fresh().map(|schema| Self::on(Engine::Server(schema)))
    }

    fn on(engine: Engine) -> Self {
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

    pub fn clock_time(&self) -> sluice_core::Timestamp {
        sluice_core::Clock::now(&self.clock)
    }

    /// A gateway, with ids that go on where the last one's ended.
    pub fn open(&self, node: &str) -> World {
        let mut world = match &self.engine {
            Engine::Memory(memory) => World::on(memory, node, &self.clock),
            Engine::File(folder) => World::reopen(&folder.path().join("sluice.db"), &self.clock),
            Engine::Server(schema) => World::server(schema.url(), node, &self.clock),
        };
        world.ids = Arc::clone(&self.ids);
        world
    }
}

/// Runs a test on every engine and checks the record it leaves.
pub fn everywhere(test: impl Fn(&World)) {
    for place in Place::all() {
        let world = place.open("gw-1");
        test(&world);
        checker::check(&world);
    }
}

/// As [`everywhere`], for tests that close the store and open it again.
pub fn across_restarts(test: impl Fn(&Place) -> World) {
    for place in Place::all() {
        checker::check(&test(&place));
    }
}

/// Two gateways on one database, wherever there can be two.
pub fn with_two_nodes(test: impl Fn(&World, &World)) {
    for place in Place::shared() {
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

pub fn message(world: &World) -> MessageId {
    MessageId::mint(world.ids.as_ref())
}

/// A mail that policy wants a person to see.
pub fn question(world: &World, agent: &str, text: &str) -> Admission {
    Admission { tier: Tier::ApprovalRequired, ..world.mail(agent, text) }
}

/// Asks, and gives the write and its question.
pub fn asked(world: &World, agent: &str, text: &str) -> (HoldId, ApprovalId) {
    match world.admit(question(world, agent, text)) {
        Admitted::Awaiting { hold, approval, batch: false, .. } => (hold, approval),
        other => panic!("nobody is asked: {other:?}"),
    }
}

/// A held write of an effect class.
pub fn held_of(world: &World, class: EffectClass, text: &str) -> HoldId {
    match world.admit(Admission { class, ..world.mail("clerk", text) }) {
        Admitted::Held { hold, .. } => hold,
        other => panic!("not held but {other:?}"),
    }
}

/// Claims the one write that is due.
pub fn claimed(world: &World) -> Hold {
    let claimed = world.claim_due();
    let [Claimed::Ours(hold)] = claimed.as_slice() else { panic!("{claimed:?}") };
    hold.as_ref().clone()
}

/// Waits for the undo window to close, claims and arms the one write that is due.
pub fn armed(world: &World) -> Hold {
    world.clock.advance(WINDOW);
    let hold = claimed(world);
    world.arm(&hold).unwrap();
    world.hold(hold.id)
}

/// A write whose outcome is unclear.
pub fn doubtful(world: &World, class: EffectClass) -> Hold {
    held_of(world, class, "hello");
    let hold = armed(world);
    world.finish(hold.id, hold.epoch, Outcome::Unclear).unwrap()
}

pub fn not_done() -> Outcome {
    Outcome::NotDone { code: "service.busy".into() }
}

pub fn refused() -> Outcome {
    Outcome::Refused { code: "service.refused".into() }
}

pub fn resolve(world: &World, hold: &Hold, evidence: Evidence) -> Result<Hold, StoreError> {
    let resolve = Resolve { hold: hold.id, version: hold.version, evidence, lookups: 3, message: message(world) };
    world.wait(world.store.resolve(resolve))
}

pub fn settle(world: &World, hold: HoldId, word: Word) -> Result<Hold, StoreError> {
    settle_under(world, hold, word, Tier::Notify)
}

pub fn settle_under(world: &World, hold: HoldId, word: Word, tier: Tier) -> Result<Hold, StoreError> {
    let approval = ApprovalId::mint(world.ids.as_ref());
    let version = world.hold(hold).version;
    let (by, expiry, message) = (operator(), Span::from_hours(1), message(world));
    world.wait(world.store.settle(Settle { hold, version, by, word, tier, approval, message, expiry }))
}

pub fn recover(world: &World, which: Abandoned) -> Vec<HoldId> {
    world.wait(world.store.recover(which, 100, message(world))).unwrap()
}

/// Every message that is due, by topic.
pub fn messages(world: &World, topic: &str) -> Vec<Message> {
    let mut due = world.wait(world.store.outbox(world.now(), 1000)).unwrap();
    due.extend(world.wait(world.store.untold_notices(world.now(), 1000)).unwrap());
    due.into_iter().map(|undelivered| undelivered.message).filter(|message| message.topic == topic).collect()
}

/// How many entries of a kind all logs together hold.
pub fn recorded(world: &World, kind: &str) -> usize {
    checker::entries(world).iter().filter(|entry| entry.fact.kind == kind).count()
}

/// The code of a refusal.
pub fn code<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> &'static str {
    answer.unwrap_err().code()
}

/// When each entry says it was made, in the order of the log.
pub fn recorded_times(world: &World) -> Vec<sluice_core::Timestamp> {
    checker::entries(world).iter().map(|entry| entry.at).collect()
}
