//! A store with a stopped clock, and short words for what happens in it.
//!
//! Gives tests the same sentences on every engine: a write is asked, admitted, claimed, armed,
//! finished. Defaults are those of an ordinary e-mail; a test changes only what it is about.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use sluice_core::batch::Window;
use sluice_core::budget::BudgetLimits;
use sluice_core::capability::EffectClass;
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::MessageId;
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, Clock, HoldId, Ids, NodeName, PersonName, ServiceName, Span, Tier,
    Timestamp,
};
use sluice_store::{
    Admission, Admitted, Arming, ClaimItem, Claimed, Claims, Decided, Decision, Finish, Memory, Outcome, Recheck,
    Ruling, Store, StoreError,
};

use crate::clock::ManualClock;
use crate::ids::CountingIds;

/// One node and everything a test needs around it.
#[derive(Debug)]
pub struct World {
    /// The store under test.
    pub store: Store,
    /// Its clock (SQLite, and PostgreSQL with an injected one).
    pub clock: ManualClock,
    /// Where ids come from.
    pub ids: Arc<CountingIds>,
    runtime: tokio::runtime::Runtime,
}

/// How long a claim lasts in tests.
pub const LEASE: Span = Span::from_secs(60);

impl World {
    /// In memory, on the calling thread.
    #[must_use]
    pub fn memory() -> Self {
        let memory = Memory::new().unwrap_or_else(|error| panic!("no database in memory: {error}"));
        Self::on(&memory, "gw-1", &ManualClock::default())
    }

    /// A further node on a database in memory.
    #[must_use]
    pub fn on(memory: &Memory, node: &str, clock: &ManualClock) -> Self {
        Self::with(clock, |clock| Store::in_memory(memory, name(node), clock))
    }

    /// A file.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self::reopen(path, &ManualClock::default())
    }

    /// A file that was open before, at the time it is now.
    #[must_use]
    pub fn reopen(path: &Path, clock: &ManualClock) -> Self {
        Self::with(clock, |clock| Store::open_file(path, name("gw-1"), clock))
    }

    /// A server, with the stopped clock.
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

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// An ordinary e-mail of an agent: 30 s undo window, no question asked.
    #[must_use]
    pub fn mail(&self, agent: &str, text: &str) -> Admission {
        mail(self.ids.as_ref(), agent, text)
    }

    /// Admits a write that must be admitted.
    pub fn admit(&self, admission: Admission) -> Admitted {
        self.wait(self.store.admit(admission)).unwrap_or_else(|error| panic!("not admitted: {error:?}"))
    }

    /// Admits an ordinary e-mail and gives its hold.
    pub fn held(&self, agent: &str, text: &str) -> HoldId {
        match self.admit(self.mail(agent, text)) {
            Admitted::Held { hold, .. } => hold,
            other => panic!("not held but {other:?}"),
        }
    }

    /// The hold as it is now.
    #[must_use]
    pub fn hold(&self, id: HoldId) -> Hold {
        let found = self.wait(self.store.hold(id));
        found.ok().flatten().unwrap_or_else(|| panic!("no hold {id}"))
    }

    /// The word for its state.
    #[must_use]
    pub fn state(&self, id: HoldId) -> &'static str {
        self.hold(id).state.word()
    }

    /// Claims whatever is due, policy having nothing against it.
    pub fn claim_due(&self) -> Vec<Claimed> {
        let due = self.wait(self.store.due(self.now(), 100)).unwrap_or_else(|error| panic!("nothing due: {error:?}"));
        self.wait(self.store.claim(self.claims(&due))).unwrap_or_else(|error| panic!("not claimed: {error:?}"))
    }

    /// Claims for these writes.
    #[must_use]
    pub fn claims(&self, due: &[Hold]) -> Claims {
        let item = |hold: &Hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: Recheck::Stands,
            approval: ApprovalId::mint(self.ids.as_ref()),
            message: MessageId::mint(self.ids.as_ref()),
        };
        Claims { items: due.iter().map(item).collect(), lease: LEASE, expiry: Span::from_hours(1) }
    }

    /// Arms a claimed write with the bytes that were admitted.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn arm(&self, hold: &Hold) -> Result<Permit, StoreError> {
        let (wire, epoch) = (hold.action.digest(), hold.epoch);
        self.wait(self.store.arm(Arming { hold: hold.id, epoch, wire, handle: None, before: None }))
    }

    /// Records an outcome under a claim.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn finish(&self, hold: HoldId, epoch: u64, outcome: Outcome) -> Result<Hold, StoreError> {
        let message = MessageId::mint(self.ids.as_ref());
        self.wait(self.store.finish(Finish { hold, epoch, outcome, service_words: None, message }))
    }

    /// Decides a question as a person.
    ///
    /// # Errors
    /// When the store refuses.
    pub fn decide(&self, approval: ApprovalId, ruling: Ruling) -> Result<Decided, StoreError> {
        self.wait(self.store.decide(decision(approval, ruling)))
    }
}

/// What a person called ana decides over the command line.
#[must_use]
pub fn decision(approval: ApprovalId, ruling: Ruling) -> Decision {
    Decision { approval, by: ana(), channel: "cli".into(), ruling, shown: Vec::new(), allowance: None }
}

/// A person.
#[must_use]
pub fn ana() -> Actor {
    Actor::Person(PersonName::new("ana").unwrap_or_else(|error| panic!("{error}")))
}

/// The service's yes.
#[must_use]
pub fn done(receipt: &str) -> Outcome {
    Outcome::Done { receipt: receipt.into(), after: None, service_until: None, result: None }
}

/// An ordinary e-mail of an agent, with ids from elsewhere.
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
        delay: Span::from_secs(30),
        tier: Tier::Notify,
        policy: "test".into(),
        rule: None,
        rates: Vec::new(),
        window: Window::default(),
        budgets: BudgetLimits::default(),
        checks: None,
        idempotency_key: None,
        named: false,
        allow_duplicate: false,
        allowance: None,
        expiry: Span::from_hours(1),
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
