//! A gateway whose agent may use git and some programs below one folder, and a clock that moves when told.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_config::{Config, ConfigContext};
use sluice_core::approval::ApprovalAnswer as Yes;
use sluice_core::hold::Hold;
use sluice_core::ids::{KeyId, RequestId};
use sluice_core::{Actor, AgentName, ApprovalId, GatewayDeps, HoldId, Millis, PersonName, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::corridor::{self, CallOutcome};
use sluice_gateway::gate::deciding::{self, ApprovalRequest, DecisionSource};
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_gateway::loops;
use sluice_gateway::loops::release::ReleaseLoop;
use sluice_gateway::open::open;
use sluice_gateway::rooms::identity::{CallOptions, CallRequest, principal};
use sluice_services::CallError;
use sluice_services::workers::WorkerProgram;
use sluice_store::{AccessKeyKind, ApprovalRuling, IssueKey};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::SeededEntropy;

pub const FREE: &str = "defaults: {tier: autonomous}\n";

pub struct GitTestGateway {
    pub gw: Arc<Gateway>,
    pub clock: ManualClock,
    pub folder: tempfile::TempDir,
    key: String,
    release: ReleaseLoop,
    world: GatewayDeps,
}

pub fn ana() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

/// Whether git is there; says so where it is not.
pub fn has_git() -> bool {
    let found = ["/usr/local/bin/git", "/usr/bin/git", "/bin/git"].iter().any(|path| Path::new(path).exists());
    if !found {
        sluice_testkit::skipping::skip("git is not installed");
    }
    found
}

/// Runs git as a person would, and gives what it said.
pub fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
    let output = command.output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A repository with one commit.
pub fn repository(folder: &Path) {
    std::fs::create_dir_all(folder.join("src")).unwrap();
    git(folder, &["init", "-q", "-b", "main"]);
    git(folder, &["config", "user.name", "Ana"]);
    git(folder, &["config", "user.email", "ana@example.com"]);
    std::fs::write(folder.join("a.txt"), "one\n").unwrap();
    std::fs::write(folder.join("src/price.rs"), "fn price() {}\n").unwrap();
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-q", "-m", "First commit"]);
}

impl GitTestGateway {
    /// A gateway with these settings beside those of git, and these rules.
    pub async fn new(config: &str, org: &str, rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["policies/agents", "work", "data"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("policies/org.yaml"), org).unwrap();
        if !rules.is_empty() {
            std::fs::write(root.join("policies/agents/clerk.yaml"), rules).unwrap();
        }
        let config = format!(
            "node: test\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\nsandbox: required\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\n\
             batch: {{limit: 1000}}\nfilesystem:\n  roots:\n    - {{path: work, agents: all}}\n{config}"
        );
        std::fs::write(root.join("sluice.yaml"), config).unwrap();
        let clock = ManualClock::at(UtcMillis::from_millis(1_795_000_000_000));
        let world = GatewayDeps {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(sluice_testkit::ids::CountingIds::default()),
            entropy: Arc::new(SeededEntropy::new(7)),
            release: "0.0.0",
        };
        let around = ConfigContext { here: root.to_path_buf(), ..ConfigContext::default() };
        let (config, _) = Config::load(Some(&root.join("sluice.yaml")), &[], &around).unwrap();
        let gw = open(config, &world).await.unwrap().0;
        let program = WorkerProgram::at(Path::new(env!("CARGO_BIN_EXE_sluice"))).unwrap();
        gw.workers.open(program, &gw.config, Arc::clone(&world.clock)).unwrap();
        let mut key = String::new();
        for name in ["guest", "clerk"] {
            let agent = AgentName::new(name).unwrap();
            gw.store.add_agent(agent.clone(), String::new(), ana()).await.unwrap();
            let token = KeyToken::generate(TokenKind::Agent, world.entropy.as_ref());
            let (id, kind) = (KeyId::from_bits(world.ids.mint()), AccessKeyKind::Agent(agent));
            let new = IssueKey { id, kind, label: None, hash: token.hash(), expires_at: None, by: ana() };
            gw.store.issue_key(new).await.unwrap();
            token.expose().clone_into(&mut key);
            if name == "guest" {
                std::fs::write(root.join("guest"), &key).unwrap();
            }
        }
        loops::start(&gw, "0.0.0").await.unwrap();
        let release = ReleaseLoop::new(&gw);
        Self { gw, clock, folder, key, release, world }
    }

    /// With git, and every rule open.
    pub async fn with_git() -> Self {
        Self::new("git: {enabled: true}\n", FREE, "").await
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub fn path(&self, name: &str) -> String {
        self.work().join(name).display().to_string()
    }

    pub async fn call(&self, capability: &str, arguments: Value) -> Result<CallOutcome, CallError> {
        self.call_as(&self.key, capability, arguments).await
    }

    /// The same by another agent.
    pub async fn call_as_guest(&self, capability: &str, arguments: Value) -> Result<CallOutcome, CallError> {
        let key = std::fs::read_to_string(self.folder.path().join("guest")).unwrap();
        self.call_as(&key, capability, arguments).await
    }

    async fn call_as(&self, key: &str, capability: &str, arguments: Value) -> Result<CallOutcome, CallError> {
        let wish = json!({"capability": capability, "arguments": arguments, "wait_ms": 0, "allow_duplicate": true});
        let wish: CallOptions = serde_json::from_value(wish).unwrap();
        let principal = principal(&self.gw, key)?;
        let request = RequestId::from_bits(self.world.ids.mint());
        corridor::walk(&self.gw, CallRequest { principal, door: "test", request, session: None, wish }).await
    }

    /// What a read gives.
    pub async fn read(&self, capability: &str, arguments: Value) -> Value {
        match self.call(capability, arguments).await {
            Ok(CallOutcome::Done { result, .. }) => result,
            other => panic!("{capability}: {other:?}"),
        }
    }

    /// The code with which a call is refused.
    pub async fn refused(&self, capability: &str, arguments: Value) -> &'static str {
        match self.call(capability, arguments).await {
            Err(no) => no.refusal.code().as_str(),
            Ok(other) => panic!("{capability}: {other:?}"),
        }
    }

    /// A write is placed and carried out; gives its id, its state and its result.
    pub async fn write(&mut self, capability: &str, arguments: Value) -> (HoldId, &'static str, Value) {
        let hold = match self.call(capability, arguments).await {
            Ok(CallOutcome::Held { hold, .. }) => hold,
            other => panic!("{capability}: {other:?}"),
        };
        self.settle(hold).await;
        let result = self.gw.store.hold_result(hold).await.unwrap();
        (
            hold,
            self.hold(hold).await.state.word(),
            result.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap()),
        )
    }

    /// A write waits for a person; gives its approval and its id.
    pub async fn asked(&self, capability: &str, arguments: Value) -> (ApprovalId, HoldId) {
        match self.call(capability, arguments).await {
            Ok(CallOutcome::Awaiting { approval, hold, .. }) => (approval, hold),
            other => panic!("{capability}: {other:?}"),
        }
    }

    pub async fn approve(&self, approval: ApprovalId) {
        let question = ApprovalRequest::read(&self.gw, approval).await.unwrap();
        let voice = DecisionSource { by: ana(), channel: "test", ceiling: None };
        let ruling = ApprovalRuling::Allow { answer: Yes::Once, note: None };
        deciding::rule(&self.gw, &voice, &question, ruling).await.unwrap();
    }

    /// Time passes, and what is due leaves.
    pub async fn pass(&mut self, span: Millis) {
        self.clock.advance(span);
        while self.release.step(&self.gw).await.unwrap() > 0 {
            self.release.finish().await;
        }
        self.release.finish().await;
    }

    /// Time passes in small steps until a write no longer waits or has been tried for a while; gives its state.
    pub async fn settle(&mut self, hold: HoldId) -> &'static str {
        for _ in 0..12 {
            self.pass(Millis::from_secs(10)).await;
            let state = self.hold(hold).await.state.word();
            if !["held", "ready", "preparing", "armed"].contains(&state) {
                return state;
            }
        }
        self.hold(hold).await.state.word()
    }

    pub async fn hold(&self, hold: HoldId) -> Hold {
        self.gw.store.hold(hold).await.unwrap().unwrap()
    }
}
