//! The environment of the scenes: the real gateway, the real adapter in its workers, a local service, a controlled
//! clock, an agent that speaks MCP and a person who uses HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};
use sluice_api::serve;
use sluice_config::{Config, ConfigContext};
use sluice_core::ids::KeyId;
use sluice_core::policy::PolicyInput;
use sluice_core::{Actor, AgentName, CapabilityName, Clock, GatewayDeps, Millis, PersonName, ServiceName, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_gateway::open::open;
use sluice_services::workers::WorkerProgram;
use sluice_store::{AccessKeyKind, IssueKey, OperatorRole};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::gmail_emulator::{self, GmailEmulator};
use super::messages;
use crate::system::{SystemEntropy, SystemIds};

const ORG: &str = include_str!("policies/org.yaml");
const AGENT: &str = include_str!("policies/inbox-helper.yaml");
const CONFIG: &str = "node: demo\ndata: .\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\nsandbox: degraded\n\
                      disk: {low: 1MB/0%, stop: 1MB/0%}\nbatch: {services: {email: {limit: 5, window: 10m}}}\n\
                      recovery: {state_file: recovery/state.json}\n";
/// The revision of MCP the agent speaks.
const REVISION: &str = "2026-07-28";
/// How long the loops of a real gateway get to do what they must not do.
const MOMENT: Duration = Duration::from_millis(700);
/// How long something that must happen may take, in tenths of a second of real time: long, for busy machines.
const PATIENCE: u32 = 3_000;

/// Everything a scene needs.
pub struct DemoGateway {
    pub gw: Arc<Gateway>,
    pub upstream: Arc<GmailEmulator>,
    pub clock: Arc<DemoClock>,
    pub agent: AgentName,
    pub main: String,
    pub tally: DemoTally,
    agent_key: String,
    operator_token: String,
    folder: PathBuf,
    http: reqwest::Client,
    runtime: Runtime,
    tell: watch::Sender<bool>,
    served: Option<JoinHandle<Result<(), serve::ServeError>>>,
}

/// The totals.
#[derive(Debug, Default)]
pub struct DemoTally {
    pub writes: u64,
    pub questions: u64,
    pub undone: u64,
}

/// The demo's own clock: it starts now and moves on command.
#[derive(Debug)]
pub struct DemoClock {
    now: AtomicI64,
    /// How many times faster than real time it runs; `None`: steps are immediate.
    speed: Option<u32>,
}

impl DemoClock {
    /// Moves the time: at once, or in slices of a tenth of a second at the requested speed.
    fn pass(&self, span: Millis) {
        let mut left = i64::try_from(span.as_millis()).unwrap_or(0);
        if let Some(speed) = self.speed {
            let slice = i64::from(speed) * 100;
            while left > slice {
                nap(Duration::from_millis(100));
                self.now.fetch_add(slice, Ordering::SeqCst);
                left -= slice;
            }
        }
        self.now.fetch_add(left, Ordering::SeqCst);
    }
}

impl Clock for DemoClock {
    fn now(&self) -> UtcMillis {
        UtcMillis::from_millis(self.now.load(Ordering::SeqCst))
    }
    fn since_boot(&self) -> Millis {
        Millis::from_millis(u64::try_from(self.now.load(Ordering::SeqCst)).unwrap_or(0))
    }
}

/// A response.
#[derive(Debug)]
pub struct DemoResponse {
    pub status: u16,
    pub body: Value,
}

impl DemoResponse {
    /// A text in the response.
    pub fn text(&self, at: &str) -> &str {
        self.body.pointer(at).and_then(Value::as_str).unwrap_or_default()
    }
}

/// The person in the demo.
pub fn ana() -> anyhow::Result<Actor> {
    Ok(Actor::Operator(PersonName::new("ana")?))
}

/// The connection's name.
pub fn gmail() -> anyhow::Result<ServiceName> {
    Ok(ServiceName::new("gmail")?)
}

impl DemoGateway {
    /// Moves the time and wakes the gateway.
    pub fn pass(&self, span: Millis) {
        self.gw.record_awake(self.clock.since_boot() + span);
        self.clock.pass(span);
    }

    /// Sets up everything in an empty folder; nothing is connected yet.
    pub fn set(folder: &Path, messages: u64, speed: Option<u32>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder.join("policies/agents"))?;
        std::fs::write(folder.join("policies/org.yaml"), ORG)?;
        std::fs::write(folder.join("policies/agents/inbox-helper.yaml"), AGENT)?;
        let clock = Arc::new(DemoClock { now: AtomicI64::new(crate::system::SystemClock.now().as_millis()), speed });
        let upstream = messages::mailbox(messages, clock.now().as_millis() - 60_000);
        let upstream = Arc::new(GmailEmulator::new(upstream, clock.clone()));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let service = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let api = format!("http://{}", service.local_addr()?);
        std::fs::write(folder.join("sluice.yaml"), format!("{CONFIG}{}", account(&api)))?;
        let around = ConfigContext { here: folder.to_path_buf(), ..ConfigContext::default() };
        let (config, _) = Config::load(Some(&folder.join("sluice.yaml")), &[], &around)
            .map_err(|error| anyhow::anyhow!("the demo's configuration: {error}"))?;
        let world = GatewayDeps {
            clock: clock.clone(),
            ids: Arc::new(SystemIds),
            entropy: Arc::new(SystemEntropy),
            release: env!("CARGO_PKG_VERSION"),
        };
        let (gw, _) = runtime.block_on(open(config, &world))?;
        gw.workers.open(WorkerProgram::own()?, &gw.config, clock.clone())?;
        let agent = AgentName::new("inbox-helper")?;
        let person = PersonName::new("ana")?;
        let (agent_key, operator_token) = runtime.block_on(async {
            gw.store.add_agent(agent.clone(), "sorts the office's mail".into(), ana()?).await?;
            let agent_key = key(&gw, AccessKeyKind::Agent(agent.clone()), TokenKind::Agent).await?;
            let operator = key(&gw, AccessKeyKind::Operator(person, OperatorRole::Admin), TokenKind::Operator).await?;
            anyhow::Ok((agent_key, operator))
        })?;
        let (tell, told) = watch::channel(false);
        let bound = runtime.block_on(serve::bind(&gw))?;
        let main = format!("http://{}", bound.address()?);
        let served = spawn(&runtime, serve::serve(Arc::clone(&gw), bound, told));
        drop(spawn(&runtime, gmail_emulator::serve(Arc::clone(&upstream), service)));
        let (tally, served) = (DemoTally::default(), Some(served));
        let (folder, http) = (folder.to_path_buf(), client()?);
        let stage = Self {
            gw,
            upstream,
            clock,
            agent,
            main,
            tally,
            agent_key,
            operator_token,
            folder,
            http,
            runtime,
            tell,
            served,
        };
        stage.until("the gateway takes calls", || Ok(stage.person("GET", "/readyz", None)?.status == 200))?;
        stage.connect()?;
        Ok(stage)
    }

    /// Connects the mailbox as a person does: a link, consent in the browser, the code that comes back.
    fn connect(&self) -> anyhow::Result<()> {
        let wish = json!({"redirect": "http://127.0.0.1:9/"});
        let begun = self.person("POST", "/v1/services/gmail/connect", Some(&wish))?;
        ensure!(begun.status == 200, "connecting did not start: {:?}", begun.body);
        let consent = self.runtime.block_on(self.http.get(begun.text("/link")).send())?;
        let home = consent.headers().get("location").and_then(|value| value.to_str().ok());
        let home = home.context("the service does not redirect")?;
        let (_, answer) = home.split_once('?').context("an answer without a code")?;
        let answer = gmail_emulator::form(answer);
        let part = |name: &str| answer.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        let finish = json!({"state": part("state"), "code": part("code")});
        let done = self.person("POST", "/v1/services/gmail/finish", Some(&finish))?;
        ensure!(done.status == 200, "nobody signed in: {:?}", done.body);
        Ok(())
    }

    /// Waits until the first sync is complete. Returns how long that took, in real time.
    pub fn wait_for_copy(&self, mut heard: impl FnMut(u64, Option<u64>)) -> anyhow::Result<Duration> {
        let began = crate::system::SystemClock.since_boot();
        let name = gmail()?;
        self.until("the mailbox is copied", || {
            let view = self.wait(self.gw.connections.show(&name)).map_err(|no| anyhow::anyhow!("{}", no.refusal))?;
            if let Some(progress) = view.progress {
                heard(progress.done, progress.total);
            }
            ensure!(view.error.is_none(), "the sync failed: {:?}", view.error);
            Ok(view.state == "live")
        })?;
        let took = crate::system::SystemClock.since_boot().as_millis().saturating_sub(began.as_millis());
        Ok(Duration::from_millis(took))
    }

    /// Waits for something that must happen, in real time and with a limit.
    pub fn until(&self, what: &str, mut there: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        for _ in 0..PATIENCE {
            if there()? {
                return Ok(());
            }
            self.pause(Duration::from_millis(100));
        }
        bail!("it did not happen in time: {what}")
    }

    /// Gives the loops of the gateway time to do what they must not do.
    pub fn moment(&self) {
        self.pause(MOMENT);
    }

    #[expect(clippy::disallowed_methods, reason = "the gateway's loops run in real time, whatever its clock says")]
    fn pause(&self, span: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(span).await });
    }

    /// Waits for a future.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The folder of the demo's files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<DemoResponse> {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let mut request = self.http.request(method, format!("{}{path}", self.main)).bearer_auth(token);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        self.runtime.block_on(async {
            let answer = request.send().await?;
            let status = answer.status().as_u16();
            let bytes = answer.bytes().await?;
            let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap_or_default() };
            Ok(DemoResponse { status, body })
        })
    }

    /// Sends a request as the person.
    pub fn person(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<DemoResponse> {
        self.ask(&self.operator_token, method, path, body)
    }

    /// Calls a tool as the agent over MCP, in the newest revision: one request, no handshake. Returns the result.
    fn tool(&self, name: &str, arguments: &Value) -> anyhow::Result<Value> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "inbox-helper", "version": "1"},
            // A client that supports tasks does not wait while a person is asked.
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let request = self.http.post(format!("{}/mcp", self.main)).bearer_auth(&self.agent_key);
        let request = request
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", "tools/call")
            .header("mcp-name", name)
            .body(body.to_string());
        let bytes = self.runtime.block_on(async { request.send().await?.bytes().await })?;
        let answer: Value = serde_json::from_slice(&bytes).context("the door does not speak JSON-RPC")?;
        answer.get("result").cloned().with_context(|| format!("the tool `{name}` gave no result: {answer}"))
    }

    /// Calls one of the gate's own tools about a call, as the agent.
    pub fn call_tool_about(&self, tool: &str, call: &str) -> anyhow::Result<DemoResponse> {
        Ok(said(&self.tool(tool, &json!({"call_id": call}))?))
    }

    /// Makes a call as the agent, without waiting for its end.
    pub fn call(&self, capability: &str, arguments: Value) -> anyhow::Result<DemoResponse> {
        let result = self.tool(&capability.replace('.', "_"), &arguments)?;
        match result.get("taskId").and_then(Value::as_str) {
            // A person was asked: the task is the held write itself.
            Some(task) => self.call_tool_about("sluice_status", task),
            None => Ok(said(&result)),
        }
    }

    /// Sends a mail as the agent.
    pub fn send(&mut self, to: &str, subject: &str) -> anyhow::Result<DemoResponse> {
        self.tally.writes += 1;
        self.call("email.send", json!({"to": to, "subject": subject, "body": "Hello,\n\nplease see below.\n"}))
    }

    /// The status of a call.
    pub fn status(&self, call: &str) -> anyhow::Result<String> {
        Ok(self.call_tool_about("sluice_status", call)?.text("/status").to_owned())
    }

    /// Waits until a call has this status.
    pub fn wait_for_status(&self, call: &str, wanted: &str) -> anyhow::Result<()> {
        self.until(&format!("{call} is {wanted}"), || {
            let status = self.status(call)?;
            ensure!(status == wanted || !is_over(&status), "{call} is {status} instead of {wanted}");
            Ok(status == wanted)
        })
    }

    /// How many mails the mailbox has sent.
    pub fn sent(&self) -> u64 {
        self.upstream.as_owner(|mailbox, _| mailbox.sent() as u64)
    }

    /// The question for the policy about a call.
    pub fn question<'q>(&'q self, name: &'q CapabilityName, arguments: &'q Map<String, Value>) -> PolicyInput<'q> {
        PolicyInput::new(&self.agent, name, arguments, self.clock.now())
    }

    /// A text in which the paths of rules are relative to the policy folder.
    pub fn nearby(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.join("policies").display()), "")
    }

    /// Stops the gateway in order; nothing is written after that.
    pub fn close(&mut self) -> anyhow::Result<()> {
        self.tell.send_replace(true);
        if let Some(served) = self.served.take() {
            self.runtime.block_on(served)??;
        }
        Ok(())
    }
}

/// A tool's result as a response.
fn said(result: &Value) -> DemoResponse {
    let failed = result.get("isError") == Some(&Value::Bool(true));
    DemoResponse {
        status: if failed { 409 } else { 200 },
        body: result.get("structuredContent").cloned().unwrap_or_default(),
    }
}

/// The mailbox in the configuration.
fn account(api: &str) -> String {
    format!(
        "services:\n  connections:\n    gmail:\n      client_id: sluice-demo\n      api: {api}\n      \
         authorize: {api}/o/oauth2/v2/auth\n      token: {api}/token\n      revoke: {api}/revoke\n"
    )
}

/// Whether the status is final.
fn is_over(status: &str) -> bool {
    ["done", "cancelled", "denied", "expired", "dead", "discarded", "blocked"].contains(&status)
}

#[expect(clippy::disallowed_methods, reason = "whoever watches sees time pass")]
fn nap(span: Duration) {
    std::thread::sleep(span);
}

fn spawn<F: Future<Output: Send> + Send + 'static>(runtime: &Runtime, future: F) -> JoinHandle<F::Output> {
    runtime.spawn(future)
}

#[expect(clippy::disallowed_methods, reason = "the demo talks to its own gateway, which is not the outside")]
fn client() -> anyhow::Result<reqwest::Client> {
    Ok(reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?)
}

async fn key(gw: &Gateway, kind: AccessKeyKind, word: TokenKind) -> anyhow::Result<String> {
    let token = KeyToken::generate(word, &SystemEntropy);
    let id = KeyId::mint(&SystemIds);
    let new = IssueKey { id, kind, label: None, hash: token.hash(), expires_at: None, by: ana()? };
    gw.store.issue_key(new).await?;
    Ok(token.expose().to_owned())
}
