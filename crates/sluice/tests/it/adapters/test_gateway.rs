//! A gateway with an adapter of others, a to-do service that counts what it does, and a clock that moves when told.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluice_config::{Config, ConfigContext};
use sluice_core::ids::{KeyId, RequestId};
use sluice_core::{Actor, AgentName, GatewayDeps, HoldId, Millis, PersonName, ServiceName, UtcMillis};
use sluice_egress::oauth::ServiceEndpoints;
use sluice_egress::vault::{NewSecretValue, SecretValue};
use sluice_gateway::Gateway;
use sluice_gateway::corridor::{self, CallOutcome};
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_gateway::loops;
use sluice_gateway::loops::release::ReleaseLoop;
use sluice_gateway::open::open;
use sluice_gateway::rooms::identity::{CallOptions, CallRequest, principal};
use sluice_services::CallError;
use sluice_services::connections::{ConnectServiceParams, ServiceConnections};
use sluice_services::workers::WorkerProgram;
use sluice_store::{AccessKeyKind, IssueKey};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::SeededEntropy;

/// The credential the service takes.
pub const TOKEN: &str = "tok-9f3a27c1b5";

/// What the service remembers, and how it fails next.
#[derive(Debug, Default)]
pub struct TodoServiceState {
    pub items: Vec<Value>,
    /// Requests that changed something.
    pub effects: u64,
    /// All requests.
    pub calls: u64,
    /// The next request that changes something is done, and nobody hears the answer.
    pub lose: bool,
    /// The next request that changes something gets this status instead of being done.
    pub refuse: Option<u16>,
    /// What a request that only looks gets instead of its answer, to the byte.
    pub verbatim: Option<String>,
    next: u64,
}

/// The service.
pub struct TodoService {
    pub address: SocketAddr,
    pub desk: Arc<Mutex<TodoServiceState>>,
}

impl TodoService {
    pub fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, desk) = (listener.local_addr().unwrap(), Arc::<Mutex<TodoServiceState>>::default());
        let shared = Arc::clone(&desk);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let desk = Arc::clone(&shared);
                std::thread::spawn(move || while serve(&stream, &desk).is_some() {});
            }
        });
        Self { address, desk }
    }

    pub fn desk(&self) -> std::sync::MutexGuard<'_, TodoServiceState> {
        self.desk.lock().unwrap()
    }

    /// Titles of all items, those that are done with a tick.
    pub fn titles(&self) -> Vec<String> {
        let tick = |item: &Value| if item["done"] == true { "✓ " } else { "" };
        self.desk().items.iter().map(|item| format!("{}{}", tick(item), item["title"].as_str().unwrap())).collect()
    }
}

/// One request; nothing when the connection is over.
fn serve(mut stream: &TcpStream, desk: &Mutex<TodoServiceState>) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut body = vec![0; field("content-length").and_then(|text| text.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    let mut words = head.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let mut desk = desk.lock().unwrap();
    desk.calls += 1;
    let changes = method != "GET";
    let (status, said) = match field("authorization") {
        Some(auth) if auth == format!("Bearer {TOKEN}") => match desk.refuse.take_if(|_| changes) {
            Some(status) => (status, json!({})),
            None => desk.answer(method, path, serde_json::from_slice(&body).unwrap_or_default()),
        },
        _ => (401, json!({"error": "who are you"})),
    };
    if changes && std::mem::take(&mut desk.lose) {
        drop(stream.shutdown(std::net::Shutdown::Both));
        return None;
    }
    let text =
        desk.verbatim.clone().filter(|_| !changes && path.ends_with("/items")).unwrap_or_else(|| said.to_string());
    drop(desk);
    let head =
        format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes()).ok()
}

impl TodoServiceState {
    fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let id = path.strip_prefix("/v1/items/").unwrap_or_default().to_owned();
        let at = self.items.iter().position(|item| item["id"] == id.as_str());
        match (method, path, at) {
            ("GET", "/v1/me", _) => (200, json!({"name": "ana"})),
            ("GET", "/v1/items", _) => (200, json!({"items": self.items})),
            ("GET", _, Some(at)) => (200, self.items[at].clone()),
            ("POST", "/v1/items", _) => {
                (self.next, self.effects) = (self.next + 1, self.effects + 1);
                let item = json!({"id": format!("t{}", self.next), "title": body["title"], "mark": body["mark"], "done": false});
                self.items.push(item.clone());
                (201, item)
            }
            ("PUT", _, Some(at)) => {
                self.effects += 1;
                self.items[at]["done"] = body["done"].clone();
                (200, self.items[at].clone())
            }
            ("DELETE", _, Some(at)) => {
                self.effects += 1;
                self.items.remove(at);
                (200, Value::Null)
            }
            _ => (404, json!({})),
        }
    }
}

/// The gateway.
pub struct AdapterTestGateway {
    pub gw: Arc<Gateway>,
    pub clock: ManualClock,
    pub folder: tempfile::TempDir,
    pub todo: TodoService,
    agent_key: String,
    release: Option<ReleaseLoop>,
    world: GatewayDeps,
}

pub fn ana() -> Actor {
    Actor::Operator(PersonName::new("ana").unwrap())
}

pub fn todo() -> ServiceName {
    ServiceName::new("todo").unwrap()
}

/// The example, as a third party wrote it.
pub fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/adapters/todo").canonicalize().unwrap()
}

/// The example as a text, for brothers of it that lie.
pub fn like_the_example(change: impl FnOnce(String) -> String) -> impl FnOnce(&Path) -> PathBuf {
    let text = change(std::fs::read_to_string(example()).unwrap());
    move |folder| written(folder, &text)
}

/// A program with this text.
pub fn written(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("adapter");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

impl AdapterTestGateway {
    /// Opens a gateway whose `todo` is the example. Nothing is connected yet.
    pub async fn new() -> Self {
        Self::with(|_| example()).await
    }

    /// Opens a gateway whose `todo` is another program.
    pub async fn with(program: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, todo) = (folder.path(), TodoService::open());
        std::fs::create_dir_all(root.join("policies/agents")).unwrap();
        std::fs::write(root.join("policies/org.yaml"), "defaults: {tier: autonomous}\n").unwrap();
        let rules = "rules:\n  - {capability: \"todo.*\", tier: autonomous}\n";
        std::fs::write(root.join("policies/agents/clerk.yaml"), rules).unwrap();
        let config = format!(
            "node: test\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\nsandbox: required\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\n\
             services:\n  connections:\n    todo:\n      program: {}\n      api: http://{}\n",
            program(root).display(),
            todo.address
        );
        std::fs::write(root.join("sluice.yaml"), config).unwrap();
        let clock = ManualClock::at(UtcMillis::from_millis(1_795_000_000_000));
        let world = GatewayDeps {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(sluice_testkit::ids::CountingIds::default()),
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
        Self { gw, clock, folder, todo, agent_key: token.expose().to_owned(), release, world }
    }

    async fn build(root: &Path, world: &GatewayDeps) -> Arc<Gateway> {
        let around = ConfigContext { here: root.to_path_buf(), ..ConfigContext::default() };
        let (config, _) = Config::load(Some(&root.join("sluice.yaml")), &[], &around).unwrap();
        let gw = open(config, world).await.unwrap().0;
        let program = WorkerProgram::at(Path::new(env!("CARGO_BIN_EXE_sluice"))).unwrap();
        gw.workers.open(program, &gw.config, Arc::clone(&world.clock)).unwrap();
        gw
    }

    /// With the service connected.
    pub async fn connected() -> Self {
        let house = Self::new().await;
        house.connect().await.unwrap();
        house
    }

    /// Connects the service: begun, a credential in the vault, live.
    pub async fn connect(&self) -> Result<(), CallError> {
        self.begin().await?;
        let scope = self.gw.connections.access_scope(&todo()).await?;
        let (value, kind) = (SecretValue::new(TOKEN.as_bytes().to_vec()), Some("access_token".into()));
        let new = NewSecretValue { value, kind, scope: Some(scope), overlap: Millis::ZERO };
        self.gw.vault.set(&ServiceConnections::access_secret(&todo()).unwrap(), new, ana()).await.unwrap();
        self.gw.connections.go_live(&todo(), ana()).await.map(|_| ())
    }

    /// Begins to connect: the adapter says what it offers.
    pub async fn begin(&self) -> Result<(), CallError> {
        let endpoints =
            ServiceEndpoints { api: Some(format!("http://{}", self.todo.address)), ..ServiceEndpoints::default() };
        let connect = ConnectServiceParams { name: todo(), adapter: "todo".into(), endpoints, by: ana() };
        self.gw.connections.begin(connect).await.map(|_| ())
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
    pub async fn read(&self, capability: &str) -> Value {
        match self.call(capability, json!({})).await.unwrap() {
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

    /// Time passes, and what is due leaves.
    pub async fn pass(&mut self, span: Millis) {
        self.clock.advance(span);
        let release = self.release.as_mut().unwrap();
        while release.step(&self.gw).await.unwrap() > 0 {
            release.finish().await;
        }
        // Lookups are no writes, and go on by themselves.
        release.finish().await;
    }

    /// Time passes until a write is over.
    pub async fn settle(&mut self, hold: HoldId) -> &'static str {
        for _ in 0..40 {
            self.pass(Millis::from_secs(30)).await;
            let state = self.state(hold).await;
            if matches!(state, "done" | "dead" | "needs_human") {
                return state;
            }
        }
        self.state(hold).await
    }

    /// The word for a write's state.
    pub async fn state(&self, hold: HoldId) -> &'static str {
        self.gw.store.hold(hold).await.unwrap().unwrap().state.word()
    }
}
