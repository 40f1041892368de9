//! A store with a stopped clock, and short helpers for its steps.
//!
//! Gives tests the same steps on every engine: a write is requested, admitted, claimed, armed, finished. Defaults are
//! those of an ordinary e-mail; a test changes only what it is about.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sluice_core::batch::SlidingWindow;
use sluice_core::budget::DailyBudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::MessageId;
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, Clock, HoldId, Ids, Millis, NodeName, PersonName, ServiceName, Tier,
    UtcMillis,
};
use sluice_store::{
    Admission, AdmissionOutcome, ApprovalRuling, ArmWrite, AttemptOutcome, ClaimDueWrites, ClaimItem, DecideApproval,
    DecisionOutcome, FinishAttempt, MemoryDatabase, PolicyRecheck, Store, StoreError, WriteClaimOutcome,
};

use crate::clock::ManualClock;
use crate::ids::CountingIds;

/// One node and everything that a test needs around it.
#[derive(Debug)]
pub struct TestStore {
    /// The store under test.
    pub store: Store,
    /// Its clock (SQLite, and PostgreSQL with an injected one).
    pub clock: ManualClock,
    /// The source of ids.
    pub ids: Arc<CountingIds>,
    runtime: tokio::runtime::Runtime,
}

/// How long a claim lasts in tests.
pub const LEASE: Millis = Millis::from_secs(60);

impl TestStore {
    /// Creates a store in memory, on the calling thread.
    #[must_use]
    pub fn memory() -> Self {
        let memory = MemoryDatabase::new().unwrap_or_else(|error| panic!("no database in memory: {error}"));
        Self::on(&memory, "gw-1", &ManualClock::default())
    }

    /// Adds a node on a database in memory.
    #[must_use]
    pub fn on(memory: &MemoryDatabase, node: &str, clock: &ManualClock) -> Self {
        Self::with(clock, |clock| Store::in_memory(memory, name(node), clock))
    }

    /// Opens a file.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self::reopen(path, &ManualClock::default())
    }

    /// Opens a file again, at the present time of the clock.
    #[must_use]
    pub fn reopen(path: &Path, clock: &ManualClock) -> Self {
        Self::with(clock, |clock| Store::open_file(path, name("gw-1"), clock))
    }

    /// Connects to a server, with the stopped clock.
    #[must_use]
    pub fn server(url: &str, node: &str, clock: &ManualClock) -> Self {
        Self::with(clock, |clock| Store::open_server_with_clock(url, name(node), clock))
    }

    fn with(clock: &ManualClock, open: impl FnOnce(Arc<dyn Clock>) -> Result<Store, StoreError>) -> Self {
        let store = open(Arc::new(clock.clone())).unwrap_or_else(|error| panic!("the store did not open: {error:?}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        Self { store, clock: clock.clone(), ids: Arc::new(CountingIds::default()), runtime }
    }

    /// Waits for a future.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> UtcMillis {
        self.clock.now()
    }

    /// An ordinary e-mail of an agent: 30 s undo window, no approval needed.
    #[must_use]
    pub fn mail(&self, agent: &str, text: &str) -> Admission {
        mail(self.ids.as_ref(), agent, text)
    }

    /// Admits a write; panics if it is refused.
    pub fn admit(&self, admission: Admission) -> AdmissionOutcome {
        self.wait(self.store.admit(admission)).unwrap_or_else(|error| panic!("not admitted: {error:?}"))
    }

    /// Admits an ordinary e-mail and gives its hold.
    pub fn admit_held(&self, agent: &str, text: &str) -> HoldId {
        match self.admit(self.mail(agent, text)) {
            AdmissionOutcome::Held { hold, .. } => hold,
            other => panic!("not held but {other:?}"),
        }
    }

    /// The hold as it is now.
    #[must_use]
    pub fn hold(&self, id: HoldId) -> Hold {
        let found = self.wait(self.store.hold(id));
        found.ok().flatten().unwrap_or_else(|| panic!("no hold {id}"))
    }

    /// The name of its state.
    #[must_use]
    pub fn state(&self, id: HoldId) -> &'static str {
        self.hold(id).state.word()
    }

    /// Claims all due writes, with policy allowing them.
    pub fn claim_due(&self) -> Vec<WriteClaimOutcome> {
        let due =
            self.wait(self.store.due_holds(self.now(), 100)).unwrap_or_else(|error| panic!("nothing due: {error:?}"));
        self.wait(self.store.claim(self.claims(&due))).unwrap_or_else(|error| panic!("not claimed: {error:?}"))
    }

    /// Claims for these writes.
    #[must_use]
    pub fn claims(&self, due: &[Hold]) -> ClaimDueWrites {
        let item = |hold: &Hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: PolicyRecheck::Stands,
            approval: ApprovalId::mint(self.ids.as_ref()),
            message: MessageId::mint(self.ids.as_ref()),
        };
        ClaimDueWrites { items: due.iter().map(item).collect(), lease: LEASE, expiry: Millis::from_hours(1) }
    }

    /// Arms a claimed write with the bytes that were admitted.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn arm(&self, hold: &Hold) -> Result<Permit, StoreError> {
        let (wire, epoch) = (hold.action.digest(), hold.epoch);
        self.wait(self.store.arm(ArmWrite { hold: hold.id, epoch, wire, handle: None, before: None }))
    }

    /// Records an outcome under a claim.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn finish(&self, hold: HoldId, epoch: u64, outcome: AttemptOutcome) -> Result<Hold, StoreError> {
        let message = MessageId::mint(self.ids.as_ref());
        self.wait(self.store.finish(FinishAttempt { hold, epoch, outcome, service_words: None, message }))
    }

    /// Decides an approval request as a person.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn decide(&self, approval: ApprovalId, ruling: ApprovalRuling) -> Result<DecisionOutcome, StoreError> {
        self.wait(self.store.decide(decision(approval, ruling)))
    }
}

/// A decision of a person called ana over the command line.
#[must_use]
pub fn decision(approval: ApprovalId, ruling: ApprovalRuling) -> DecideApproval {
    DecideApproval { approval, by: ana(), channel: "cli".into(), ruling, shown: Vec::new(), allowance: None }
}

/// A person.
#[must_use]
pub fn ana() -> Actor {
    Actor::Person(PersonName::new("ana").unwrap_or_else(|error| panic!("{error}")))
}

/// The outcome of a write that the service confirmed.
#[must_use]
pub fn done(receipt: &str) -> AttemptOutcome {
    AttemptOutcome::Done { receipt: receipt.into(), after: None, service_until: None, result: None }
}

/// An ordinary e-mail of an agent, with ids from another source.
#[must_use]
pub fn mail(ids: &dyn Ids, agent: &str, text: &str) -> Admission {
    let agent = AgentName::new(agent).unwrap_or_else(|error| panic!("{error}"));
    let capability = "custom:mail".parse().unwrap_or_else(|error| panic!("{error}"));
    let arguments = json!({"to": "li@northpeak.example", "text": text});
    let action = Action::custom(capability, agent, arguments).unwrap_or_else(|error| panic!("{error}"));
    Admission {
        call: CallId::mint(ids),
        hold: HoldId::mint(ids),
        approval: ApprovalId::mint(ids),
        message: MessageId::mint(ids),
        record_key: [7; 32],
        action,
        session: None,
        service: ServiceName::new("email").unwrap_or_else(|error| panic!("{error}")),
        class: EffectClass::ConsumeOnce,
        object_key: None,
        weight: 1,
        delay: Millis::from_secs(30),
        tier: Tier::Notify,
        policy: "test".into(),
        rule: None,
        rates: Vec::new(),
        window: SlidingWindow::default(),
        budgets: DailyBudgetLimits::default(),
        checks: None,
        idempotency_key: None,
        named: false,
        allow_duplicate: false,
        allowance: None,
        expiry: Millis::from_hours(1),
        reverses: None,
        by: None,
        door: None,
        targets: Vec::new(),
        reason: None,
        reasons: Vec::new(),
    }
}

fn name(node: &str) -> NodeName {
    NodeName::new(node).unwrap_or_else(|error| panic!("{error}"))
}
