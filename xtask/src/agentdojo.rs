//! `cargo xtask eval --agentdojo`: the published AgentDojo suites, replayed through the real corridor.
//!
//! Takes Python and a network to install the package from, once; gives how many injected writes were carried out and how
//! many of the users' tasks were finished, printed by `xtask/counterparts/dojo_replay.py`. Promise: no model, the detector
//! is switched off, and the gateway is the program that was built; it ends with the replay.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::Line;
use crate::mcp::done;
use crate::packages::said;

const RELEASE: &str = "0.1.35";
/// What an operator of these suites would write down: contacts and the own address, members and channels of the chat.
const KNOWN: &str = "from agentdojo.task_suite.load_suites import get_suites
s = get_suites('v1.2.2'); w = s['workspace'].load_and_inject_default_environment({})
k = s['slack'].load_and_inject_default_environment({}).slack
names = [c.email for c in w.inbox.contact_list] + [w.inbox.account_email] + list(k.users) + list(k.channels)
print(', '.join(sorted(set(names))))";

/// Installs, serves, replays.
pub fn replay(root: &Path, passes: &[&str]) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let python = install(root)?.display().to_string();
    done(&Line::cargo(&["build", "--package", "sluice"]))?;
    let program = fs::canonicalize("target/debug/sluice").map_err(words)?.display().to_string();
    let home = root.join("target").join(format!("agentdojo-gate-{}", std::process::id()));
    let gate = Gate::open(&program, &home, &said(&Line::new(&[&python, "-c", KNOWN]))?)?;
    let script = root.join("xtask/counterparts/dojo_replay.py").display().to_string();
    let line = Line::new(&[&python, &script]).args(passes);
    done(&line.env("SLUICE_TEST_URL", &gate.url).env("SLUICE_TEST_TOKEN", &gate.token))
}

/// The interpreter of an environment of its own.
fn install(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target").join(format!("agentdojo-{RELEASE}"));
    let python = folder.join("bin/python");
    let works = || said(&Line::new(&[&python.display().to_string(), "-c", "import agentdojo"])).is_ok();
    if works() {
        return Ok(python);
    }
    let (place, pip) = (folder.display().to_string(), folder.join("bin/pip").display().to_string());
    let wanted = format!("agentdojo=={RELEASE}");
    done(&Line::new(&["python3", "-m", "venv", "--clear", &place]))?;
    done(&Line::new(&[&pip, "install", "--quiet", "--disable-pip-version-check", &wanted]))?;
    if works() { Ok(python) } else { Err("agentdojo does not run".into()) }
}

/// A gateway with the rules of the replay.
struct Gate {
    child: Child,
    url: String,
    token: String,
    home: PathBuf,
}

impl Gate {
    fn open(program: &str, home: &Path, known: &str) -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        let _none = fs::remove_dir_all(home);
        let place = home.display().to_string();
        // The user's own configuration stays as it is.
        let init = Line::new(&[program, "init", "--dir", &place, "--agent", "dojo", "--yes"]);
        done(&init.env("XDG_CONFIG_HOME", &format!("{place}-config")))?;
        fs::copy("examples/agentdojo/org.yaml", home.join("policies/org.yaml")).map_err(words)?;
        let _none = fs::remove_dir_all(home.join("policies/agents"));
        fs::create_dir_all(home.join("policies/agents")).map_err(words)?;
        let [main, stop] = ports().map_err(words)?;
        // Nothing but the origin of targets decides here: no detector, no batch window.
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
        let mut said = BufReader::new(child.stdout.take().ok_or("the gateway has no voice")?);
        said.read_line(&mut first).map_err(words)?;
        let token = fs::read_to_string(home.join("data/operator.token")).map_err(words)?.trim().to_owned();
        let gate = Self { child, url: format!("http://127.0.0.1:{main}"), token, home: home.to_owned() };
        if !first.contains("serves at") {
            return Err(format!("the gateway does not start: {first}"));
        }
        // Somebody has to listen, or the gateway would wait for them at some point.
        std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
        Ok(gate)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _waited = self.child.wait();
        let _none = fs::remove_dir_all(&self.home);
    }
}

/// Two ports nobody has at the moment.
fn ports() -> std::io::Result<[u16; 2]> {
    let (one, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}
