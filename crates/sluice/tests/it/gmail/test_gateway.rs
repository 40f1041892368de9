//! A gateway with a mailbox connected to it, in a temporary folder, with a clock that moves only when told.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use serde_json::{Value, json};
use sluice_config::{Config, ConfigContext, DatabaseLocation};
use sluice_core::ids::{KeyId, RequestId};
use sluice_core::{
    Actor, AgentName, Clock as _, Entropy as _, GatewayDeps, HoldId, Millis, PersonName, ServiceName, UtcMillis,
};
use sluice_egress::oauth::ServiceEndpoints;
use sluice_egress::vault::{NewSecretValue, SecretValue};
use sluice_gateway::Gateway;
use sluice_gateway::corridor::{self, CallOutcome};
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_gateway::loops;
use sluice_gateway::loops::release::ReleaseLoop;
use sluice_gateway::open::{open, open_on};
use sluice_gateway::rooms::identity::{CallOptions, CallRequest, principal};
use sluice_services::CallError;
use sluice_services::connections::{ConnectServiceParams, ServiceConnections};
use sluice_services::workers::WorkerProgram;
use sluice_store::{AccessKeyKind, AlertFilter, IssueKey, SessionFilter, Store};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::SeededEntropy;

use crate::running::ask;

/// The service, in a process of its own.
pub struct MailboxProcess {
    pub address: SocketAddr,
    process: Child,
    /// Held open: a process that cannot speak any more ends.
    _says: BufReader<ChildStdout>,
}

impl MailboxProcess {
    /// Starts it with so many messages.
    pub fn open(messages: u64) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["demo", "--mailbox", "127.0.0.1:0", "--messages", &messages.to_string()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut says = BufReader::new(process.stdout.take().unwrap());
        says.read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
        Self { address, process, _says: says }
    }

    /// Does something to the mailbox as its owner; gives the counters.
    pub fn owner(&self, wish: &Value) -> Value {
        ask(self.address, "POST", "/__control", "", Some(wish)).unwrap().body
    }

    /// Calls of the API so far.
    pub fn calls(&self) -> u64 {
        self.owner(&json!({}))["calls"].as_u64().unwrap()
    }

    /// Calls of one kind.
    pub fn calls_of(&self, kind: &str) -> u64 {
        self.owner(&json!({}))["by_kind"][kind].as_u64().unwrap_or(0)
    }

    /// Mails in SENT.
    pub fn sent(&self) -> u64 {
        self.owner(&json!({}))["sent"].as_u64().unwrap()
    }

    /// A credential that works.
    pub fn token(&self) -> String {
        self.owner(&json!({"token": true}))["token"].as_str().unwrap().to_owned()
    }

    /// The next requests of a kind fail.
    pub fn fail(&self, kind: &str, how: Value) {
        let mut wish = how;
        wish["fail"] = json!(kind);
        self.owner(&wish);
    }

    /// A message arrives; gives its id.
    pub fn receive(&self, subject: &str, body: &str) -> String {
        let got = self.owner(&json!({"receive": {"subject": subject, "body": body}}));
        got["received"].as_str().unwrap().to_owned()
    }

    /// A message arrives, byte by byte as somebody sent it; gives its id.
    pub fn receive_raw(&self, raw: &[u8]) -> String {
        let raw = base64::engine::general_purpose::URL_SAFE.encode(raw);
        let got = self.owner(&json!({"receive": {"raw": raw}}));
        got["received"].as_str().unwrap().to_owned()
    }

    /// A message with files arrives; gives its id.
    pub fn receive_files(&self, subject: &str, files: &[(&str, &str, &[u8])]) -> String {
        let mut raw = format!(
            "From: Li Wen <li@northpeak.example>\r\nTo: office@alderfinch.example\r\nSubject: {subject}\r\nMIME-Version: 1.0\r\n\
             Content-Type: multipart/mixed; boundary=frontier\r\n\r\n--frontier\r\nContent-Type: text/plain\r\n\r\nSee there.\r\n"
        );
        for (name, kind, bytes) in files {
            let bytes = base64::engine::general_purpose::STANDARD.encode(bytes);
            raw.push_str(&format!(
                "--frontier\r\nContent-Type: {kind}; name=\"{name}\"\r\nContent-Disposition: attachment; \
                 filename=\"{name}\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{bytes}\r\n"
            ));
        }
        raw.push_str("--frontier--\r\n");
        self.receive_raw(raw.as_bytes())
    }

    /// The newest mail that was sent, as it left.
    pub fn last_sent(&self) -> Vec<u8> {
        let got = self.owner(&json!({"last_sent": true}));
        base64::engine::general_purpose::URL_SAFE.decode(got["last_sent"].as_str().unwrap()).unwrap()
    }

    /// The labels of a message; nothing if it is gone.
    pub fn labels(&self, id: &str) -> Value {
        self.owner(&json!({"labels": [id]}))["labels"][id].clone()
    }
}

impl Drop for MailboxProcess {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Ids that start with the house's time, as real ones do.
#[derive(Debug)]
struct GmailTestIds {
    clock: ManualClock,
    random: SeededEntropy,
}

impl sluice_core::Ids for GmailTestIds {
    fn mint(&self) -> u128 {
        let millis = u128::try_from(self.clock.now().as_millis()).unwrap();
        let mut random = [0; 16];
        self.random.fill(&mut random);
        millis << 80 | u128::from_be_bytes(random) >> 48
    }
}

/// The gateway.
pub struct GmailTestGateway {
    pub gw: Arc<Gateway>,
    pub clock: ManualClock,
    pub folder: tempfile::TempDir,
    pub mailbox: MailboxProcess,
    agent_key: String,
    release: Option<ReleaseLoop>,
    world: GatewayDeps,
}

pub fn ana() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

pub fn gmail() -> ServiceName {
    ServiceName::new("gmail").unwrap()
}

const CONFIG: &str = "node: test\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\nsandbox: degraded\n\
                      disk: {low: 1MB/0%, stop: 1MB/0%}\nbatch: {services: {email: \"off\"}}\n";

/// Keeps every copy of these tests encrypted that says nothing else: `SLUICE_TEST_ENCRYPTED=1 cargo test … gmail`.
const ENCRYPTED: &str = "SLUICE_TEST_ENCRYPTED";

fn settings(lines: &str) -> String {
    let more = std::env::var_os(ENCRYPTED).is_some() && !lines.contains("services:");
    format!("{CONFIG}{lines}{}", if more { "services: {encrypt_copies: true}\n" } else { "" })
}

impl GmailTestGateway {
    /// Opens a gateway beside a mailbox. Nothing is connected yet.
    pub async fn new(messages: u64) -> Self {
        Self::with(messages, "").await
    }

    /// The same with further settings.
    pub async fn with(messages: u64, lines: &str) -> Self {
        let mailbox = MailboxProcess::open(messages);
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("policies/agents")).unwrap();
        std::fs::write(root.join("policies/org.yaml"), "defaults: {tier: autonomous}\n").unwrap();
        std::fs::write(root.join("policies/agents/clerk.yaml"), "rules: []\n").unwrap();
        std::fs::write(root.join("sluice.yaml"), settings(lines)).unwrap();
        let clock = ManualClock::at(UtcMillis::from_millis(1_795_000_000_000));
        let world = GatewayDeps {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(GmailTestIds { clock: clock.clone(), random: SeededEntropy::new(8) }),
            entropy: Arc::new(SeededEntropy::new(7)),
            release: "0.0.0",
        };
        let gw = Self::build(root, &world).await;
        let agent = AgentName::new("clerk").unwrap();
        gw.store.add_agent(agent.clone(), "keeps the books".into(), ana()).await.unwrap();
        let token = KeyToken::generate(TokenKind::Agent, world.entropy.as_ref());
        let id = KeyId::from_bits(world.ids.mint());
        let new = IssueKey {
            id,
            kind: AccessKeyKind::Agent(agent),
            label: None,
            hash: token.hash(),
            expires_at: None,
            by: ana(),
        };
        gw.store.issue_key(new).await.unwrap();
        loops::start(&gw, "0.0.0").await.unwrap();
        let release = Some(ReleaseLoop::new(&gw));
        Self { gw, clock, folder, mailbox, agent_key: token.expose().to_owned(), release, world }
    }

    /// Sets something that counts from the next start on.
    pub fn set(&self, lines: &str) {
        std::fs::write(self.folder.path().join("sluice.yaml"), settings(lines)).unwrap();
    }

    /// Writes rules that count from the next start on: those of the house, and those of its agent.
    pub fn rule(&self, org: &str, agent: &str) {
        let folder = self.folder.path().join("policies");
        std::fs::write(folder.join("org.yaml"), org).unwrap();
        std::fs::write(folder.join("agents/clerk.yaml"), agent).unwrap();
    }

    /// A second gateway on the same server, with the same root key and a folder of its own.
    pub async fn beside(&self, name: &str) -> (tempfile::TempDir, Arc<Gateway>) {
        let folder = tempfile::tempdir().unwrap();
        let (from, root) = (self.folder.path(), folder.path());
        for made in ["policies/agents", "data/keys"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        for made in ["data", "data/keys"] {
            std::fs::set_permissions(root.join(made), std::fs::metadata(from.join(made)).unwrap().permissions())
                .unwrap();
        }
        for file in ["policies/org.yaml", "policies/agents/clerk.yaml", "data/keys/root.key"] {
            std::fs::copy(from.join(file), root.join(file)).unwrap();
        }
        let config = std::fs::read_to_string(from.join("sluice.yaml")).unwrap();
        std::fs::write(root.join("sluice.yaml"), config.replace("node: test", &format!("node: {name}"))).unwrap();
        let gw = Self::build(root, &self.world).await;
        loops::start(&gw, "0.0.0").await.unwrap();
        (folder, gw)
    }

    async fn build(root: &Path, world: &GatewayDeps) -> Arc<Gateway> {
        let around = ConfigContext { here: root.to_path_buf(), ..ConfigContext::default() };
        let (config, _) = Config::load(Some(&root.join("sluice.yaml")), &[], &around).unwrap();
        // The clock of a server would not obey.
        let on_server = |config: &Config, world: &GatewayDeps| match &config.database {
            DatabaseLocation::Server(url) => {
                Store::open_server_with_clock(url.expose(), config.node.clone(), Arc::clone(&world.clock))
            }
            other @ DatabaseLocation::File(_) => panic!("{other:?}"),
        };
        let gw = match matches!(config.database, DatabaseLocation::File(_)) {
            true => open(config, world).await.unwrap().0,
            false => open_on(config, world, on_server).await.unwrap().0,
        };
        let program = WorkerProgram::at(Path::new(env!("CARGO_BIN_EXE_sluice"))).unwrap();
        gw.workers.open(program, &gw.config, Arc::clone(&world.clock)).unwrap();
        gw
    }

    /// A mailbox that is connected and copied.
    pub async fn connected(messages: u64) -> Self {
        let house = Self::new(messages).await;
        house.connect().await;
        house.gw.connections.sync_now(&gmail()).await.unwrap();
        house
    }

    /// Connects the mailbox. Its copy is not begun.
    pub async fn connect(&self) {
        let endpoints =
            ServiceEndpoints { api: Some(format!("http://{}", self.mailbox.address)), ..ServiceEndpoints::default() };
        let connect = ConnectServiceParams { name: gmail(), adapter: "gmail".into(), endpoints, by: ana() };
        self.gw.connections.begin(connect).await.unwrap();
        self.sign_in().await;
        self.gw.connections.go_live(&gmail(), ana()).await.unwrap();
    }

    /// Puts a credential that works into the vault.
    pub async fn sign_in(&self) {
        let scope = self.gw.connections.access_scope(&gmail()).await.unwrap();
        let value = SecretValue::new(self.mailbox.token().into_bytes());
        let new =
            NewSecretValue { value, kind: Some("access_token".into()), scope: Some(scope), overlap: Millis::ZERO };
        let name = ServiceConnections::access_secret(&gmail()).unwrap();
        self.gw.vault.set(&name, new, ana()).await.unwrap();
    }

    /// The gateway dies and comes back.
    pub async fn restart(mut self) -> Self {
        self.release = None;
        drop(Arc::into_inner(self.gw).expect("nothing else holds the gateway"));
        self.clock.restart(Millis::from_secs(5));
        self.gw = Self::build(self.folder.path(), &self.world).await;
        loops::start(&self.gw, "0.0.0").await.unwrap();
        self.release = Some(ReleaseLoop::new(&self.gw));
        self
    }

    /// The agent makes a call; nothing is waited for.
    pub async fn call(&self, capability: &str, arguments: Value) -> Result<CallOutcome, CallError> {
        let wish = json!({"capability": capability, "arguments": arguments, "wait_ms": 0});
        let wish: CallOptions = serde_json::from_value(wish).unwrap();
        let principal = principal(&self.gw, &self.agent_key)?;
        let request = RequestId::from_bits(self.world.ids.mint());
        corridor::walk(&self.gw, CallRequest { principal, door: "test", request, session: None, wish }).await
    }

    /// What a read gives.
    pub async fn read(&self, capability: &str, arguments: Value) -> Value {
        match self.call(capability, arguments).await.unwrap() {
            CallOutcome::Done { result, .. } => result,
            other => panic!("{other:?}"),
        }
    }

    /// A write is placed; gives its id.
    pub async fn place(&self, capability: &str, arguments: Value) -> HoldId {
        match self.call(capability, arguments).await.unwrap() {
            CallOutcome::Held { hold, .. } => hold,
            other => panic!("{other:?}"),
        }
    }

    /// A mail is placed.
    pub async fn send(&self, subject: &str) -> HoldId {
        self.place(
            "email.send",
            json!({"to": "li@northpeak.example", "subject": subject, "body": "Hello,\n\nas said.\n"}),
        )
        .await
    }

    /// Lets go what is due, and waits until it is over.
    pub async fn release_due(&mut self) -> usize {
        let release = self.release.as_mut().unwrap();
        self.gw.record_awake(self.gw.clock.since_boot());
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

    /// Time passes, and what is due leaves.
    pub async fn pass(&mut self, span: Millis) {
        self.clock.advance(span);
        self.release_due().await;
    }

    /// The word for a write's state.
    pub async fn state(&self, hold: HoldId) -> &'static str {
        self.gw.store.hold(hold).await.unwrap().unwrap().state.word()
    }

    /// Topics of all alerts.
    pub async fn alerts(&self) -> Vec<String> {
        let alerts = self.gw.store.alerts(AlertFilter::default(), None, 1_000).await.unwrap();
        alerts.into_iter().map(|alert| alert.message.topic).collect()
    }

    /// A person says that what agents were kept from did them no harm.
    pub async fn clear(&self) {
        let tainted = SessionFilter { tainted: true, agent: None };
        for session in self.gw.store.sessions(tainted, None, 10).await.unwrap() {
            self.gw.store.clear_taint(session.id, ana()).await.unwrap();
        }
    }

    /// Messages of a list.
    pub async fn newest(&self, many: u64) -> Vec<String> {
        let list = self.read("email.list", json!({"limit": many})).await;
        let messages = list["messages"].as_array().unwrap();
        messages.iter().map(|message| message["message_id"].as_str().unwrap().to_owned()).collect()
    }
}
