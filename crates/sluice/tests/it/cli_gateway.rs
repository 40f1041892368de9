//! A real gateway for one test: made by `sluice init`, run by `sluice serve` on ports of its own.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use regex::Regex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::policy::{SluiceRunOutput, TestFolder};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A gateway that runs until it is dropped.
pub struct CliTestGateway {
    pub bench: TestFolder,
    child: Child,
    pub url: String,
    pub said: String,
}

impl CliTestGateway {
    /// With the configuration `sluice init` writes.
    pub fn open() -> Self {
        Self::with("")
    }

    /// With these lines besides.
    pub fn with(yaml: &str) -> Self {
        let bench = TestFolder::new();
        let run = bench.run(&["init", "--dir", "gate", "--yes"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let written = fs::read_to_string(bench.path("gate/sluice.yaml")).unwrap();
        // Somebody else may take the ports before the gateway does.
        for _ in 0..5 {
            let [main, stop] = free_ports();
            let ports = format!("listen: 127.0.0.1:{main}\nstop_listen: 127.0.0.1:{stop}\n");
            // How full the disk of this machine is, is not what is tested here.
            let disk = if yaml.contains("disk:") { "" } else { "disk: {low: 1MB/0%, stop: 1MB/0%}\n" };
            fs::write(bench.path("gate/sluice.yaml"), format!("{written}\n{ports}{disk}{yaml}")).unwrap();
            if let Some((child, said)) = start(&bench) {
                let url = format!("http://127.0.0.1:{main}");
                assert!(ready(main).starts_with("HTTP/1.1 200"), "{said}");
                return Self { bench, child, url, said };
            }
        }
        panic!("the gateway does not start:\n{}", fs::read_to_string(bench.path("serve.err")).unwrap());
    }

    /// Runs a command as the operator `sluice init` made.
    pub fn run(&self, arguments: &[&str]) -> SluiceRunOutput {
        self.run_as(arguments, &[])
    }

    /// Runs a command with further variables.
    pub fn run_as(&self, arguments: &[&str], variables: &[(&str, &str)]) -> SluiceRunOutput {
        let config = self.path("sluice.yaml");
        let config = [("SLUICE_CONFIG", config.to_str().unwrap())];
        self.bench.run_with(arguments, "", &[&config, variables].concat())
    }

    /// Runs a command that must work; gives what it printed.
    pub fn works(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        run.stdout
    }

    /// The same as JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.works(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Makes a call as the agent `sluice init` made.
    pub fn call(&self, capability: &str, input: &Value, further: &[&str]) -> SluiceRunOutput {
        let key = self.path("data/agents/assistant.key");
        let input = input.to_string();
        let arguments = [&["call", capability, "--input", &input, "--json"], further].concat();
        self.run_as(&arguments, &[("SLUICE_AGENT_KEY_FILE", key.to_str().unwrap())])
    }

    /// Makes a call that is not over at once; gives what the API says.
    pub fn pending(&self, capability: &str, input: &Value) -> Value {
        let run = self.call(capability, input, &[]);
        assert_eq!(run.code, 8, "{}{}", run.stdout, run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }

    /// A table, masked, with its columns drawn together.
    pub fn table(&self, text: &str) -> String {
        Regex::new(" {2,}").unwrap().replace_all(&self.masked(text), "  ").into_owned()
    }

    /// Looks at the status until it is as wanted.
    pub fn until(&self, wanted: impl Fn(&Value) -> bool) {
        assert!((0..2_000).any(|_| wanted(&self.json(&["status"]))), "it never came");
    }

    /// A file or folder of the gateway.
    pub fn path(&self, name: &str) -> PathBuf {
        self.bench.path("gate").join(name)
    }

    /// A path in the agent's folder, as it names it.
    pub fn workspace(&self, name: &str) -> String {
        fs::canonicalize(self.path("workspace")).unwrap().join(name).to_str().unwrap().to_owned()
    }

    /// Starts it again, where it was.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with further flags of `sluice serve`.
    pub fn restart_with(&mut self, flags: &[&str]) {
        let (child, said) = start_with(&self.bench, flags).expect("the gateway starts again");
        (self.child, self.said) = (child, said);
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end, and gives the exit code.
    pub fn ended(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    /// What was printed, with everything that differs from run to run masked.
    pub fn masked(&self, text: &str) -> String {
        let root = fs::canonicalize(self.bench.path("gate")).unwrap();
        let node = self.json(&["status"])["node"].as_str().unwrap().to_owned();
        let text =
            text.replace(root.to_str().unwrap(), "GATE").replace(self.bench.path("gate").to_str().unwrap(), "GATE");
        let text = text.replace(&self.url, "URL").replace(&format!("node:{node}"), "node:NODE");
        let masks = [
            (r"\b([a-z]+)_[0-9a-f]{32}\b", "${1}_ID"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
            (r"\b(sha256[a-z0-9-]*):[0-9a-f]+", "$1:HASH"),
            (r"\bsha256 [0-9a-f]{64}\b", "sha256 HASH"),
            (r"\bhead [0-9a-f]{16}\b", "head HASH"),
            (r"(?m)^(node|audit log)( +)[^,:\n]+", "$1${2}NODE"),
            (r"\d+ entries, \d+ signed", "N entries, N signed"),
        ];
        masks.iter().fold(text, |text, (what, mask)| Regex::new(what).unwrap().replace_all(&text, *mask).into_owned())
    }
}

impl Drop for CliTestGateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway nobody asks anything of here. Ends when it is dropped.
pub struct BareGatewayProcess(Child);

impl BareGatewayProcess {
    /// Starts it in the folder `gate`; nothing if it ends before it is ready.
    pub fn start(bench: &TestFolder) -> Option<Self> {
        start(bench).map(|(child, _)| Self(child))
    }
}

impl Drop for BareGatewayProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_ports() -> [u16; 2] {
    let held = [0, 0].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

/// Starts the gateway; gives nothing if it ends before it is ready.
fn start(bench: &TestFolder) -> Option<(Child, String)> {
    start_with(bench, &[])
}

fn start_with(bench: &TestFolder, flags: &[&str]) -> Option<(Child, String)> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["serve", "--config", "gate/sluice.yaml"])
        .args(flags)
        .current_dir(bench.path(""))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(bench.path("serve.err")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = ProcessLines::of(&mut child);
    match lines.next() {
        Some(line) => Some((child, line)),
        None => {
            let _ = child.wait();
            None
        }
    }
}

/// What `/readyz` answers.
fn ready(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The lines a program prints, waited for with patience.
pub struct ProcessLines(mpsc::Receiver<String>);

impl ProcessLines {
    pub fn of(child: &mut Child) -> Self {
        let (sender, receiver) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self(receiver)
    }

    /// The next line; nothing at the end.
    pub fn next(&mut self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("nothing was printed in time"),
        }
    }

    /// Reads on to a line that holds this.
    pub fn until(&mut self, part: &str) -> String {
        loop {
            let line = self.next().unwrap_or_else(|| panic!("`{part}` was not printed"));
            if line.contains(part) {
                return line;
            }
        }
    }
}

/// Starts a command that stays.
pub fn staying(gate: &CliTestGateway, arguments: &[&str]) -> (Child, ProcessLines) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .current_dir(gate.bench.path(""))
        .env_clear()
        .env("SLUICE_CONFIG", gate.path("sluice.yaml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = ProcessLines::of(&mut child);
    (child, lines)
}
