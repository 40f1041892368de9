//! A real gateway process in a folder of its own, and a small HTTP client to knock with.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, NodeName, PersonName, UtcMillis};
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_store::{AccessKeyKind, IssueKey, OperatorRole, Store};
use sluice_testkit::clock::ManualClock;
use sluice_testkit::ids::SeededEntropy;

use crate::cli_gateway::free_ports;

/// Where everything of one gateway lies.
pub struct TestInstallation {
    pub folder: tempfile::TempDir,
    pub main: SocketAddr,
    pub agent_key: String,
    pub operator_token: String,
}

/// A gateway that runs. Killed when dropped.
pub struct RunningGateway(pub Child);

/// An answer.
#[derive(Debug)]
pub struct TestHttpResponse {
    pub status: u16,
    pub body: Value,
}

impl TestInstallation {
    /// Sets a gateway up: rules, a folder for the agent, an agent and two keys.
    pub fn new(config: &str, org: &str, postgres: Option<&str>) -> Self {
        Self::within(tempfile::tempdir().unwrap(), config, org, postgres)
    }

    /// The same in a folder that is there.
    pub fn within(folder: tempfile::TempDir, config: &str, org: &str, postgres: Option<&str>) -> Self {
        let root = folder.path();
        fs::create_dir_all(root.join("policies/agents")).unwrap();
        fs::create_dir_all(root.join("work")).unwrap();
        fs::create_dir_all(root.join("data")).unwrap();
        fs::write(root.join("policies/org.yaml"), org).unwrap();
        let [main, stop] = free_addresses();
        let database = postgres.map(|url| format!("database: {{url: \"{url}\"}}\n")).unwrap_or_default();
        let text = format!(
            "node: gw\nlisten: {main}\nstop_listen: {stop}\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\n{database}\
             filesystem:\n  roots:\n    - {{path: work, agents: all}}\n{config}"
        );
        fs::write(root.join("sluice.yaml"), text).unwrap();
        let (agent_key, operator_token) = Self::keys(root, postgres);
        Self { folder, main, agent_key, operator_token }
    }

    fn keys(root: &Path, postgres: Option<&str>) -> (String, String) {
        let node = NodeName::new("setup").unwrap();
        // A gateway that was away for long lets writes go slowly at first: it was set up just now.
        let clock = Arc::new(ManualClock::at(now()));
        let store = match postgres {
            Some(url) => Store::open_server(url, node).unwrap(),
            None => Store::open_file(&root.join("data/sluice.db"), node, clock).unwrap(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (person, agent) = (PersonName::new("ana").unwrap(), AgentName::new("clerk").unwrap());
        let by = Actor::Operator(person.clone());
        let entropy = SeededEntropy::new(11);
        runtime.block_on(async {
            store.add_agent(agent.clone(), String::new(), by.clone()).await.unwrap();
            let mut made = Vec::new();
            let kinds = [
                (AccessKeyKind::Agent(agent), TokenKind::Agent),
                (AccessKeyKind::Operator(person, OperatorRole::Admin), TokenKind::Operator),
            ];
            for (n, (kind, word)) in kinds.into_iter().enumerate() {
                let token = KeyToken::generate(word, &entropy);
                let id = KeyId::from_bits(n as u128 + 1);
                let new = IssueKey { id, kind, label: None, hash: token.hash(), expires_at: None, by: by.clone() };
                store.issue_key(new).await.unwrap();
                made.push(token.expose().to_owned());
            }
            (made[0].clone(), made[1].clone())
        })
    }

    /// The agent's folder.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Starts the gateway and waits until it takes calls.
    pub fn start(&self) -> RunningGateway {
        self.start_with(&[])
    }

    /// The same with variables of its environment.
    pub fn start_with(&self, environment: &[(&str, &Path)]) -> RunningGateway {
        let log = fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["serve", "--config"])
            .arg(self.folder.path().join("sluice.yaml"))
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut running = RunningGateway(child);
        for _ in 0..3_000 {
            if ask(self.main, "GET", "/readyz", "", None).is_ok_and(|answer| answer.status == 200) {
                return running;
            }
            if let Ok(Some(status)) = running.0.try_wait() {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                panic!("the gateway ended with {status}: {log}");
            }
            pause(Duration::from_millis(10));
        }
        panic!("the gateway did not get ready: {}", fs::read_to_string(self.folder.path().join("log")).unwrap());
    }

    /// A call of the agent.
    pub fn call(&self, body: &Value) -> std::io::Result<TestHttpResponse> {
        ask(self.main, "POST", "/v1/calls", &self.agent_key, Some(body))
    }
}

impl RunningGateway {
    /// Kills it as a power cut would.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The time as another process on this machine has it.
#[expect(clippy::disallowed_methods, reason = "another process goes by it")]
pub fn now() -> UtcMillis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    UtcMillis::from_millis(i64::try_from(since.as_millis()).unwrap())
}

/// Waits for a process of its own: there is no clock to inject into it.
#[expect(clippy::disallowed_methods, reason = "another process is waited for, in real time and bounded")]
pub fn pause(span: Duration) {
    std::thread::sleep(span);
}

/// Two addresses nobody listens at, held together so that they are two.
pub fn free_addresses() -> [SocketAddr; 2] {
    free_ports().map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
}

/// One request on a connection of its own.
pub fn ask(
    at: SocketAddr,
    method: &str,
    path: &str,
    token: &str,
    body: Option<&Value>,
) -> std::io::Result<TestHttpResponse> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let auth = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n{auth}content-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(cut)?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).map_err(|_| cut())? };
    Ok(TestHttpResponse { status, body })
}
