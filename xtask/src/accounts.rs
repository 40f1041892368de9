//! Accounts at services somebody else wrote: a Gmail, an authorization server and a Bot API for the tests.
//!
//! Takes a network to install them from, once, with pinned versions; gives the addresses of running servers. Promise:
//! they listen on loopback only and end with the run; what cannot be installed or started is skipped by name.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::command::Line;
use crate::mcp::{done, installed};
use crate::report::{Outcome, Report};

/// What is installed: what `crates/testkit/counterparts/*/package.json` say.
const NPM: [&str; 5] =
    ["node@24.21.0", "emulate@0.12.2", "@emulators/core@0.6.1", "oidc-provider@9.13.3", "telegram-test-api@4.2.1"];
/// Where the tests find them: variable, name of the suite, launcher.
const SERVERS: [(&str, &str, &str); 3] = [
    ("SLUICE_TEST_GMAIL_EMULATOR", "somebody else's gmail", "gmail/strict.mjs"),
    ("SLUICE_TEST_OIDC", "somebody else's sign-in", "oidc/provider.mjs"),
    ("SLUICE_TEST_TELEGRAM", "somebody else's telegram", "telegram/server.mjs"),
];

/// Running servers. They end when this does.
pub struct Servers {
    children: Vec<Child>,
    /// Variables and addresses.
    at: Vec<(&'static str, String)>,
}

/// Installs and starts them.
pub fn start(report: &mut Report) -> Servers {
    let mut servers = Servers { children: Vec::new(), at: Vec::new() };
    let folder = report.time("accounts (npm)", || installed("accounts", &NPM, npm));
    for (variable, name, launcher) in SERVERS {
        let started = report.time(name, || match &folder {
            None => {
                (Outcome::Skipped(format!("its tests were not run: it is not installed; they need {variable}")), None)
            }
            Some(folder) => match launched(folder, launcher) {
                Ok(server) => (Outcome::Passed, Some(server)),
                Err(reason) => {
                    (Outcome::Skipped(format!("its tests were not run: {reason}; they need {variable}")), None)
                }
            },
        });
        if let Some((child, address)) = started {
            servers.children.push(child);
            servers.at.push((variable, address));
        }
    }
    servers
}

impl Servers {
    /// The tests with everything they need; where something is missing, they must not insist.
    pub fn tell(&self, tests: Line) -> Line {
        let told = self.at.iter().fold(tests, |line, (variable, address)| line.env(variable, address));
        if self.at.len() == SERVERS.len() { told } else { told.without("SLUICE_TEST_STRICT") }
    }
}

impl Servers {
    /// For a person who runs single tests by hand: says where they are, and stays until they end.
    pub fn keep(mut self) {
        for (variable, address) in &self.at {
            println!("export {variable}={address}");
        }
        println!("\nCtrl-C stops them.");
        for child in &mut self.children {
            let _ended = child.wait();
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _gone = child.kill();
            let _waited = child.wait();
        }
    }
}

fn npm(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    done(&Line::new(&["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"]).args(&NPM))
}

/// A server that has said that it is ready, and where.
fn launched(folder: &Path, launcher: &str) -> Result<(Child, String), String> {
    let words = |error: std::io::Error| error.to_string();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).map_err(words)?.port();
    let mut command = Command::new(folder.join("node_modules/.bin/node"));
    command.arg(Path::new("crates/testkit/counterparts").join(launcher)).arg(folder).arg(port.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(words)?;
    let mut first = String::new();
    let mut said = BufReader::new(child.stdout.take().ok_or("it has no voice")?);
    // It may have something to say before it is ready.
    while !first.starts_with("ready ") {
        first.clear();
        if said.read_line(&mut first).map_err(words)? == 0 {
            let _gone = child.kill();
            let _waited = child.wait();
            return Err(format!("`{launcher}` does not start"));
        }
    }
    std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
    Ok((child, format!("127.0.0.1:{port}")))
}
