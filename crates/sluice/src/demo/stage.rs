//! What the scenes play on: a gate with rules, a store on a file, a mailbox, a clock that obeys.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value, json};
use sluice_core::audit::checkpoint::{Signer, origin};
use sluice_core::audit::key::SecretKey;
use sluice_core::batch::{self, Window};
use sluice_core::capability::Catalogue;
use sluice_core::hold::Hold;
use sluice_core::ids::MessageId;
use sluice_core::policy::{Policy, Question, Source, Sources, Verdict};
use sluice_core::{
    Action, Actor, AgentName, ApprovalId, CallId, CapabilityName, Clock, Entropy as _, HoldId, NodeName, PersonName,
    Span, Timestamp, approval,
};
use sluice_store::{
    Admission, Admitted, Arming, ClaimItem, Claimed, Claims, Finish, Memory, Outcome, Recheck, Store, StoreError,
};

use super::mailbox::Mailbox;
use crate::system::{SystemEntropy, SystemIds};

const ORG: &str = include_str!("policies/org.yaml");
const AGENT: &str = include_str!("policies/inbox-helper.yaml");

/// Everything on stage.
pub struct Stage {
    pub policy: Arc<Policy>,
    pub store: Store,
    pub signer: Signer,
    pub mailbox: Mailbox,
    pub clock: Arc<DemoClock>,
    pub agent: AgentName,
    pub asked: u64,
    pub questions: u64,
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
}

/// The demo's own time: it starts now and moves when told.
#[derive(Debug)]
pub struct DemoClock(AtomicI64);

impl DemoClock {
    /// Lets time pass.
    pub fn pass(&self, span: Span) {
        self.0.fetch_add(i64::try_from(span.as_millis()).unwrap_or(0), Ordering::SeqCst);
    }
}

impl Clock for DemoClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn since_boot(&self) -> Span {
        Span::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap_or(0))
    }
}

/// A call the agent makes, judged.
pub struct Judged {
    pub action: Action,
    pub verdict: Verdict,
}

impl Stage {
    /// Sets everything up in an empty folder.
    pub fn set(folder: &Path) -> anyhow::Result<Self> {
        let agent = AgentName::new("inbox-helper")?;
        let file = Source { name: "agents/inbox-helper.yaml".into(), text: AGENT.into() };
        let org = Source { name: "org.yaml".into(), text: ORG.into() };
        let sources = Sources { org: Some(org), agents: vec![(agent.clone(), file)] };
        let catalogue = Arc::new(Catalogue::builtin()?);
        let loaded = Policy::load(&sources, &catalogue).map_err(|errors| anyhow::anyhow!("{errors}"))?;
        let clock = Arc::new(DemoClock(AtomicI64::new(crate::system::SystemClock.now().as_millis())));
        let node = NodeName::new("demo")?;
        let store = Store::open_file(&folder.join("sluice.db"), node.clone(), clock.clone())?;
        let key = SecretKey::generate(&origin(&node), &SystemEntropy)?;
        let signer = Signer::new(key, &node)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stage = Self {
            policy: loaded.policy,
            store,
            signer,
            mailbox: Mailbox::default(),
            clock,
            agent,
            asked: 0,
            questions: 0,
            folder: folder.to_path_buf(),
            runtime,
        };
        stage.wait(stage.store.started(env!("CARGO_PKG_VERSION")))?;
        Ok(stage)
    }

    /// The gateway dies, and comes back.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        let node = self.store.node().clone();
        let standin = Store::in_memory(&Memory::new()?, node.clone(), self.clock.clone())?;
        drop(std::mem::replace(&mut self.store, standin));
        self.store = Store::open_file(&self.folder.join("sluice.db"), node, self.clock.clone())?;
        self.wait(self.store.started(env!("CARGO_PKG_VERSION")))?;
        Ok(())
    }

    /// Waits for the store.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Where the demo keeps its files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A person.
    pub fn ana() -> anyhow::Result<Actor> {
        Ok(Actor::Person(PersonName::new("ana")?))
    }

    /// Freezes and judges a call of the agent.
    pub fn judge(&self, capability: &str, arguments: Value) -> anyhow::Result<Judged> {
        let name = CapabilityName::new(capability)?;
        let spec = self.policy.catalogue().get(&name).with_context(|| format!("no capability {name}"))?;
        let action = Action::new(spec, self.agent.clone(), None, arguments)?;
        let question = self.question(&name, action.arguments());
        let verdict = self.policy.judge(&question);
        Ok(Judged { action, verdict })
    }

    /// The question policy is asked about a call.
    pub fn question<'q>(&'q self, name: &'q CapabilityName, arguments: &'q Map<String, Value>) -> Question<'q> {
        Question::new(&self.agent, name, arguments, self.clock.now())
    }

    /// The agent sends a mail; the gate admits it or not.
    pub fn send(&mut self, to: &str, subject: &str) -> anyhow::Result<Admitted> {
        let arguments = json!({"to": to, "subject": subject, "body": "Hello,\n\nplease see below.\n"});
        let Judged { action, verdict } = self.judge("email.send", arguments)?;
        let spec = self.policy.catalogue().get(action.capability()).context("no capability")?;
        let mut record_key = [0; 32];
        SystemEntropy.fill(&mut record_key);
        let admission = Admission {
            call: CallId::mint(&SystemIds),
            hold: HoldId::mint(&SystemIds),
            approval: ApprovalId::mint(&SystemIds),
            message: MessageId::mint(&SystemIds),
            record_key,
            session: None,
            service: spec.service(),
            class: spec.class.context("a write has an effect class")?,
            object_key: spec.object_key(None, action.arguments()),
            weight: batch::weigh(spec, action.arguments()),
            delay: Span::from_secs(spec.delay_s),
            tier: verdict.tier,
            policy: self.policy.version().to_owned(),
            rule: verdict.decided_by().map(|rule| self.policy.location(rule)),
            rates: Vec::new(),
            window: Window::default(),
            idempotency_key: None,
            allow_duplicate: false,
            allowance: None,
            expiry: approval::DEFAULT_EXPIRY,
            reverses: None,
            by: None,
            door: None,
            targets: Vec::new(),
            action,
        };
        self.asked += 1;
        Ok(self.wait(self.store.admit(admission))?)
    }

    /// Claims what is due; gives the writes that are ours.
    pub fn claim(&self) -> anyhow::Result<Vec<Hold>> {
        let due = self.wait(self.store.due(self.clock.now(), 1000))?;
        let item = |hold: &Hold| ClaimItem {
            hold: hold.id,
            version: hold.version,
            recheck: Recheck::Stands,
            approval: ApprovalId::mint(&SystemIds),
            message: MessageId::mint(&SystemIds),
        };
        let claims = Claims {
            items: due.iter().map(item).collect(),
            lease: Span::from_secs(60),
            expiry: approval::DEFAULT_EXPIRY,
        };
        let claimed = self.wait(self.store.claim(claims))?;
        Ok(claimed
            .into_iter()
            .filter_map(|one| if let Claimed::Ours(hold) = one { Some(*hold) } else { None })
            .collect())
    }

    /// Arms a claimed write with a draft at the mailbox.
    pub fn arm(&mut self, hold: &Hold) -> Result<String, StoreError> {
        let draft = hold.handle.clone().unwrap_or_else(|| self.mailbox.draft(&hold.id.to_string()));
        let arming = Arming {
            hold: hold.id,
            epoch: hold.epoch,
            wire: hold.action.digest(),
            handle: Some(draft.clone()),
            before: None,
        };
        self.wait(self.store.arm(arming)).map(|permit| permit.handle().unwrap_or_default().to_owned())
    }

    /// Records how an attempt went.
    pub fn finish(&self, hold: &Hold, outcome: Outcome) -> Result<Hold, StoreError> {
        let message = MessageId::mint(&SystemIds);
        self.wait(self.store.finish(Finish { hold: hold.id, epoch: hold.epoch, outcome, message }))
    }

    /// Claims, arms and sends whatever is due. Gives how many left.
    pub fn deliver_due(&mut self) -> anyhow::Result<usize> {
        let ours = self.claim()?;
        for hold in &ours {
            let draft = self.arm(hold)?;
            let Some(receipt) = self.mailbox.send(&draft) else { bail!("the draft was gone") };
            self.finish(hold, Outcome::Done { receipt, after: None, service_until: None, result: None })?;
        }
        Ok(ours.len())
    }

    /// The word for a write's state.
    pub fn state(&self, id: HoldId) -> anyhow::Result<&'static str> {
        Ok(self.wait(self.store.hold(id))?.context("the write is gone")?.state.word())
    }
}
