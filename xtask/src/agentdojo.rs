//! `cargo xtask eval --agentdojo`: the published AgentDojo suites, replayed through the real corridor.
//!
//! Installs the package with Python, once; gives how many injected writes were carried out and how
//! many of the users' tasks were completed, printed by `xtask/counterparts/dojo_replay.py`. Promise: no model, the
//! detector is switched off, and the gateway is the built program; it stops with the replay.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::CommandLine;
use crate::mcp::run_to_end;
use crate::packages::command_output;

const RELEASE: &str = "0.1.35";
/// What an operator of these suites would configure: contacts and the own address, members and channels of the chat.
const KNOWN: &str = "from agentdojo.task_suite.load_suites import get_suites
s = get_suites('v1.2.2'); w = s['workspace'].load_and_inject_default_environment({})
k = s['slack'].load_and_inject_default_environment({}).slack
names = [c.email for c in w.inbox.contact_list] + [w.inbox.account_email] + list(k.users) + list(k.channels)
print(', '.join(sorted(set(names))))";

/// Installs the package, starts a gateway, and runs the replay.
pub fn replay(root: &Path, passes: &[&str]) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let python = install(root)?.display().to_string();
    run_to_end(&CommandLine::cargo(&["build", "--package", "sluice"]))?;
    let program = fs::canonicalize("target/debug/sluice").map_err(words)?.display().to_string();
    let home = root.join("target").join(format!("agentdojo-gate-{}", std::process::id()));
    let gate = ReplayGateway::open(&program, &home, &command_output(&CommandLine::new(&[&python, "-c", KNOWN]))?)?;
    let script = root.join("xtask/counterparts/dojo_replay.py").display().to_string();
    let line = CommandLine::new(&[&python, &script]).args(passes);
    run_to_end(&line.env("SLUICE_TEST_URL", &gate.url).env("SLUICE_TEST_TOKEN", &gate.token))
}

/// The Python of a virtual environment with the package.
fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join(format!("agentdojo-{RELEASE}"));
    let python = folder.join("bin/python");
    let works =
        || command_output(&CommandLine::new(&[&python.display().to_string(), "-c", "import agentdojo"])).is_ok();
    if works() {
        return Ok(python);
    }
    let (place, pip) = (folder.display().to_string(), folder.join("bin/pip").display().to_string());
    let wanted = format!("agentdojo=={RELEASE}");
    run_to_end(&CommandLine::new(&["python3", "-m", "venv", "--clear", &place]))?;
    run_to_end(&CommandLine::new(&[&pip, "install", "--quiet", "--disable-pip-version-check", &wanted]))?;
    if works() { Ok(python) } else { Err("agentdojo does not run".into()) }
}

/// A gateway with the rules of the replay.
struct ReplayGateway {
    child: Child,
    url: String,
    token: String,
    home: PathBuf,
}

impl ReplayGateway {
    fn open(program: &str, home: &Path, known: &str) -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        let _none = fs::remove_dir_all(home);
        let place = home.display().to_string();
        // The user's own configuration is not changed.
        let init = CommandLine::new(&[program, "init", "--dir", &place, "--agent", "dojo", "--yes"]);
        run_to_end(&init.env("XDG_CONFIG_HOME", &format!("{place}-config")))?;
        fs::copy("examples/agentdojo/org.yaml", home.join("policies/org.yaml")).map_err(words)?;
        let _none = fs::remove_dir_all(home.join("policies/agents"));
        fs::create_dir_all(home.join("policies/agents")).map_err(words)?;
        let [main, stop] = ports().map_err(words)?;
        // Only the origin of targets decides here: no detector, no batch window.
        let lines = format!(
            "node: dojo\nlisten: 127.0.0.1:{main}\nstop_listen: 127.0.0.1:{stop}\n\
             sessions: {{known: [{known}]}}\n\
             content: {{services: {{custom: off}}}}\nbatch: {{services: {{custom: off}}}}\n\
             approvals: {{prompts_per_hour: 100000}}\nbudgets: {{questions_from_checks: 1000000}}\ndisk: {{low: 1MB/0%, stop: 1MB/0%}}\n"
        );
        fs::write(home.join("sluice.yaml"), lines).map_err(words)?;
        let mut serving = Command::new(program);
        serving
            .args(["serve", "--config", "sluice.yaml"])
            .current_dir(home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = serving.spawn().map_err(words)?;
        let mut first = String::new();
        let mut said = BufReader::new(child.stdout.take().ok_or("the gateway's output cannot be read")?);
        said.read_line(&mut first).map_err(words)?;
        let token = fs::read_to_string(home.join("data/operator.token")).map_err(words)?.trim().to_owned();
        let gate = Self { child, url: format!("http://127.0.0.1:{main}"), token, home: home.to_owned() };
        if !first.contains("listening on") {
            return Err(format!("the gateway does not start: {first}"));
        }
        // The output must be read, or the gateway would block on it at some point.
        std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
        Ok(gate)
    }
}

impl Drop for ReplayGateway {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _waited = self.child.wait();
        let _none = fs::remove_dir_all(&self.home);
    }
}

/// Two ports that are free at the moment.
fn ports() -> std::io::Result<[u16; 2]> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}
