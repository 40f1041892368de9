//! A gateway in a temporary folder, with a clock that moves only when told.

#![allow(dead_code, reason = "each story uses its own part of the house")]

use std::fs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use sluice_config::{Config, ConfigContext};
use sluice_content::RawContent;
use sluice_content::stages::ProvenanceEnvelope;
use sluice_core::ids::{KeyId, RequestId};
use sluice_core::refusal::Refusal;
use sluice_core::{Actor, AgentName, BoxedFuture, Clock as _, Entropy as _, GatewayDeps, Millis, PersonName};
use sluice_gateway::Gateway;
use sluice_gateway::corridor::{self, CallOutcome};
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_gateway::loops;
use sluice_gateway::loops::release::ReleaseLoop;
use sluice_gateway::open::{open, open_on};
use sluice_gateway::rooms::identity::{CallOptions, CallRequest, principal};
use sluice_services::CallError;
use sluice_services::intake::{CleanedContent, ContentCleaner, ContentStageNote, IncomingItem, IntakeOutcome};
use sluice_store::{AccessKeyKind, IssueKey, OperatorRole, Store};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::SeededEntropy;
use sluice_testkit::postgres::TestDatabase;

/// Ids that start with the house's time, as real ones do.
#[derive(Debug)]
pub struct TestGatewayIds {
    clock: ManualClock,
    random: SeededEntropy,
    run_out: Arc<AtomicBool>,
}

impl sluice_core::Ids for TestGatewayIds {
    fn mint(&self) -> u128 {
        assert!(!self.run_out.load(Ordering::SeqCst), "the ids have run out, as this test wants it");
        let millis = u128::try_from(self.clock.now().as_millis()).unwrap();
        let mut random = [0; 16];
        self.random.fill(&mut random);
        millis << 80 | u128::from_be_bytes(random) >> 48
    }
}

/// The six stages in this very process: a test has no program to start workers from.
#[derive(Debug)]
pub struct InProcessCleaner;

impl ContentCleaner for InProcessCleaner {
    fn clean<'a>(&'a self, item: &'a IncomingItem, seal: [u8; 32]) -> BoxedFuture<'a, Result<IntakeOutcome, Refusal>> {
        let time = item.at.to_string();
        let envelope = ProvenanceEnvelope { source: item.source.clone(), author: item.author.clone(), time, seal };
        let plan = sluice_content::ScreeningPlan { envelope: item.enveloped.then_some(envelope), ..Default::default() };
        let mut raw = RawContent::new(&item.bytes);
        if let Some(declared) = &item.declared {
            raw = raw.declared(declared);
        }
        let beside = item.beside.as_deref().unwrap_or_default();
        let beside =
            sluice_content::clean(RawContent::new(beside.as_bytes()), &sluice_content::ScreeningPlan::default())
                .unwrap();
        let taken = match sluice_content::clean(raw, &plan) {
            Err(refused) => IntakeOutcome::Refused { code: refused.code().to_owned() },
            Ok(clean) => IntakeOutcome::Clean(CleanedContent {
                text: clean.text().to_owned(),
                value: clean.value().cloned(),
                score: clean.score().max(beside.score()),
                found: clean.findings().len() as u64,
                notes: clean.findings().iter().map(note).collect(),
                withheld: None,
            }),
        };
        Box::pin(std::future::ready(Ok(taken)))
    }
}

fn note(finding: &sluice_content::Finding) -> ContentStageNote {
    let word = |value: Value| value.as_str().unwrap().to_owned();
    ContentStageNote {
        stage: word(serde_json::to_value(finding.stage).unwrap()),
        rule: finding.rule.to_owned(),
        carrier: word(serde_json::to_value(finding.carrier).unwrap()),
        start: finding.span.start as u64,
        end: finding.span.end as u64,
        score: sluice_content::finding::scale(finding.score),
    }
}

/// What a house's gateway remembers with.
pub trait TestGatewayDatabase {
    /// A database of its own, where it is not a file in the house.
    fn database() -> Option<TestDatabase>;
}

/// A file.
#[derive(Debug)]
pub struct OnDatabaseFile;

/// A PostgreSQL server; where there is none, the test says so and runs on a file.
#[derive(Debug)]
pub struct OnPostgresServer;

impl TestGatewayDatabase for OnDatabaseFile {
    fn database() -> Option<TestDatabase> {
        None
    }
}

impl TestGatewayDatabase for OnPostgresServer {
    fn database() -> Option<TestDatabase> {
        TestDatabase::fresh()
    }
}

/// A house on a file.
pub type TestGateway = TestGatewayOn<OnDatabaseFile>;

/// One gateway and everything around it.
pub struct TestGatewayOn<G: TestGatewayDatabase> {
    pub gw: Arc<Gateway>,
    pub clock: ManualClock,
    pub folder: tempfile::TempDir,
    pub agent_key: String,
    pub operator_token: String,
    pub viewer_token: String,
    pub inbox_key: String,
    pub task_key: String,
    release: Option<ReleaseLoop>,
    asleep: AtomicBool,
    run_out: Arc<AtomicBool>,
    world: GatewayDeps,
    database: Option<TestDatabase>,
    deps: PhantomData<G>,
}

/// How a house is set up.
#[derive(Debug, Clone)]
pub struct TestGatewayPlan {
    /// Lines of `sluice.yaml`.
    pub config: String,
    /// `org.yaml`.
    pub org: String,
    /// `agents/clerk.yaml`.
    pub agent: String,
}

impl Default for TestGatewayPlan {
    fn default() -> Self {
        Self { config: String::new(), org: "defaults: {tier: autonomous}\n".into(), agent: "rules: []\n".into() }
    }
}

pub fn clerk() -> AgentName {
    AgentName::new("clerk").unwrap()
}

pub fn ana() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

impl<G: TestGatewayDatabase> TestGatewayOn<G> {
    /// Opens a gateway with these rules.
    pub async fn new(plan: TestGatewayPlan) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("policies/agents")).unwrap();
        fs::create_dir_all(root.join("work")).unwrap();
        fs::write(root.join("policies/org.yaml"), &plan.org).unwrap();
        fs::write(root.join("policies/agents/clerk.yaml"), &plan.agent).unwrap();
        let config = format!(
            "node: test\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\nfilesystem:\n  roots:\n    - {{path: work, agents: all}}\n{}",
            plan.config
        );
        fs::write(root.join("sluice.yaml"), config).unwrap();
        let clock = ManualClock::default();
        let run_out = Arc::new(AtomicBool::new(false));
        let ids = TestGatewayIds { clock: clock.clone(), random: SeededEntropy::new(8), run_out: Arc::clone(&run_out) };
        let world = GatewayDeps {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(ids),
            entropy: Arc::new(SeededEntropy::new(7)),
            release: "0.0.0",
        };
        let database = G::database();
        let gw = Self::build(root, &world, database.as_ref()).await;
        gw.store.add_agent(clerk(), "keeps the books".into(), ana()).await.unwrap();
        let agent_key = Self::key(&gw, &world, AccessKeyKind::Agent(clerk()), TokenKind::Agent).await;
        let person = PersonName::new("ana").unwrap();
        let admin = AccessKeyKind::Operator(person.clone(), OperatorRole::Admin);
        let operator_token = Self::key(&gw, &world, admin, TokenKind::Operator).await;
        let viewer = AccessKeyKind::Operator(person, OperatorRole::Viewer);
        let viewer_token = Self::key(&gw, &world, viewer, TokenKind::Operator).await;
        let inbox_key = Self::key(&gw, &world, AccessKeyKind::Inbox("mail".into()), TokenKind::Inbox).await;
        let task_key = Self::key(&gw, &world, AccessKeyKind::Task(clerk()), TokenKind::Task).await;
        loops::start(&gw, "0.0.0").await.unwrap();
        let release = Some(ReleaseLoop::new(&gw));
        Self {
            gw,
            clock,
            folder,
            agent_key,
            operator_token,
            viewer_token,
            inbox_key,
            task_key,
            release,
            asleep: AtomicBool::new(false),
            run_out,
            world,
            database,
            deps: PhantomData,
        }
    }

    async fn build(root: &Path, world: &GatewayDeps, database: Option<&TestDatabase>) -> Arc<Gateway> {
        let around = ConfigContext { here: root.to_path_buf(), ..ConfigContext::default() };
        let (config, _) = Config::load(Some(&root.join("sluice.yaml")), &[], &around).unwrap();
        let gw = match database {
            None => open(config, world).await.unwrap().0,
            // The server's own clock would not obey.
            Some(database) => {
                let store = |config: &Config, world: &GatewayDeps| {
                    Store::open_server_with_clock(database.url(), config.node.clone(), Arc::clone(&world.clock))
                };
                open_on(config, world, store).await.unwrap().0
            }
        };
        gw.intake.set_cleaner(Arc::new(InProcessCleaner));
        gw
    }

    async fn key(gw: &Gateway, world: &GatewayDeps, kind: AccessKeyKind, word: TokenKind) -> String {
        let token = KeyToken::generate(word, world.entropy.as_ref());
        let id = KeyId::from_bits(world.ids.mint());
        let new = IssueKey { id, kind, label: None, hash: token.hash(), expires_at: None, by: ana() };
        gw.store.issue_key(new).await.unwrap();
        token.expose().to_owned()
    }

    /// The key of one more agent.
    pub async fn another(&self, name: &str) -> String {
        let agent = AgentName::new(name).unwrap();
        self.gw.store.add_agent(agent.clone(), String::new(), ana()).await.unwrap();
        let key = Self::key(&self.gw, &self.world, AccessKeyKind::Agent(agent), TokenKind::Agent).await;
        self.gw.keyring.refresh(&self.gw.store).await.unwrap();
        key
    }

    /// Every entry of the record.
    pub async fn entries(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for (log, head) in self.gw.store.logs().await.unwrap() {
            for sealed in self.gw.store.entries(log, 0, u32::try_from(head.size).unwrap()).await.unwrap() {
                found.push(serde_json::from_slice(&sealed.body).unwrap());
            }
        }
        found
    }

    /// The gateway stops and comes back after a while.
    pub async fn restart(self, off: Millis) -> Self {
        self.restart_after(off, |_| ()).await
    }

    /// The same; meanwhile something happens to its folder.
    pub async fn restart_after(mut self, off: Millis, meanwhile: impl FnOnce(&Path)) -> Self {
        let root = self.folder.path().to_path_buf();
        self.release = None;
        drop(Arc::into_inner(self.gw).expect("nothing else holds the gateway"));
        self.clock.restart(off);
        meanwhile(&root);
        self.gw = Self::build(&root, &self.world, self.database.as_ref()).await;
        loops::start(&self.gw, "0.0.0").await.unwrap();
        self.release = Some(ReleaseLoop::new(&self.gw));
        self
    }

    /// From now on whoever wants an id panics.
    pub fn run_out_of_ids(&self) {
        self.run_out.store(true, Ordering::SeqCst);
    }

    /// The configuration as it is read at a start.
    pub fn config(&self) -> Config {
        let root = self.folder.path();
        let around = ConfigContext { here: root.to_path_buf(), ..ConfigContext::default() };
        Config::load(Some(&root.join("sluice.yaml")), &[], &around).unwrap().0
    }

    /// The world around it.
    pub fn world(&self) -> &GatewayDeps {
        &self.world
    }

    /// The agent's folder.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> String {
        self.work().join(name).display().to_string()
    }

    /// Another gateway on the same server, under a name of its own; none where there is no server.
    pub async fn beside(&self, name: &str) -> Option<Arc<Gateway>> {
        let database = self.database.as_ref()?;
        let root = self.folder.path().join(name);
        fs::create_dir_all(root.join("work")).unwrap();
        fs::create_dir_all(root.join("policies/agents")).unwrap();
        for file in ["policies/org.yaml", "policies/agents/clerk.yaml"] {
            fs::copy(self.folder.path().join(file), root.join(file)).unwrap();
        }
        // Gateways on one database share one root key.
        fs::create_dir_all(root.join("data/keys")).unwrap();
        for folder in ["data", "data/keys"] {
            let about = fs::metadata(self.folder.path().join(folder)).unwrap().permissions();
            fs::set_permissions(root.join(folder), about).unwrap();
        }
        fs::copy(self.folder.path().join("data/keys/root.key"), root.join("data/keys/root.key")).unwrap();
        let config = fs::read_to_string(self.folder.path().join("sluice.yaml")).unwrap();
        fs::write(root.join("sluice.yaml"), config.replace("node: test", &format!("node: {name}"))).unwrap();
        let gw = Self::build(&root, &self.world, Some(database)).await;
        loops::start(&gw, "0.0.0").await.unwrap();
        Some(gw)
    }

    /// The database of a house on a server.
    pub fn database(&self) -> Option<&TestDatabase> {
        self.database.as_ref()
    }

    /// The agent makes a call; nothing is waited for.
    pub async fn call(&self, capability: &str, arguments: Value) -> Result<CallOutcome, CallError> {
        self.wish(serde_json::json!({"capability": capability, "arguments": arguments, "wait_ms": 0})).await
    }

    /// The agent makes a call in its own words.
    pub async fn wish(&self, wish: Value) -> Result<CallOutcome, CallError> {
        self.wish_as(&self.agent_key, wish).await
    }

    /// Whoever has this key makes a call in its own words.
    pub async fn wish_as(&self, key: &str, wish: Value) -> Result<CallOutcome, CallError> {
        let wish: CallOptions = serde_json::from_value(wish).unwrap();
        let principal = principal(&self.gw, key)?;
        let request = RequestId::from_bits(self.world.ids.mint());
        corridor::walk(&self.gw, CallRequest { principal, door: "test", request, session: None, wish }).await
    }

    /// Lets go what is due, and waits until it is done.
    pub async fn let_go(&mut self) -> usize {
        let release = self.release.as_mut().unwrap();
        if !self.asleep.swap(false, Ordering::SeqCst) {
            self.gw.record_awake(self.gw.clock.since_boot());
        }
        let mut all = 0;
        loop {
            let started = release.step(&self.gw).await.unwrap();
            let claimed = release.finish().await;
            all += claimed;
            if started == 0 || claimed == 0 {
                return all;
            }
        }
    }

    /// One step of the release loop. What it starts is not waited for. Gives how many writes were started.
    pub async fn step(&mut self) -> usize {
        self.gw.record_awake(self.gw.clock.since_boot());
        self.release.as_mut().unwrap().step(&self.gw).await.unwrap()
    }

    /// Time passes, and the machine is asleep meanwhile.
    pub fn sleep(&self, span: Millis) {
        self.asleep.store(true, Ordering::SeqCst);
        self.clock.advance(span);
    }

    /// Time passes.
    pub fn pass(&self, span: Millis) {
        self.clock.advance(span);
    }

    /// The kinds of all entries of the record.
    pub async fn record(&self) -> Vec<String> {
        let mut kinds = Vec::new();
        for (log, head) in self.gw.store.logs().await.unwrap() {
            for sealed in self.gw.store.entries(log, 0, u32::try_from(head.size).unwrap()).await.unwrap() {
                let entry: Value = serde_json::from_slice(&sealed.body).unwrap();
                kinds.push(entry["fact"]["kind"].as_str().unwrap().to_owned());
            }
        }
        kinds
    }
}
