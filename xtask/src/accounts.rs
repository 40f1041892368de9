//! Third-party account services for the tests: a Gmail emulator, an authorization server and a Bot API server.
//!
//! Installs pinned versions from the network, once; gives the addresses of running servers. Promise: they listen on
//! loopback only and stop with the run; a server that cannot be installed or started is skipped by name.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::command::CommandLine;
use crate::mcp::{installed, run_to_end};
use crate::report::{SuiteOutcome, SuiteReport};

/// The packages to install, as in `crates/testkit/counterparts/*/package.json`.
const NPM: [&str; 5] =
    ["node@24.21.0", "emulate@0.12.2", "@emulators/core@0.6.1", "oidc-provider@9.13.3", "telegram-test-api@4.2.1"];
/// The servers: variable with the address, name of the suite, launcher.
const SERVERS: [(&str, &str, &str); 3] = [
    ("SLUICE_TEST_GMAIL_EMULATOR", "third-party gmail", "gmail/strict.mjs"),
    ("SLUICE_TEST_OIDC", "third-party sign-in", "oidc/provider.mjs"),
    ("SLUICE_TEST_TELEGRAM", "third-party telegram", "telegram/server.mjs"),
];

/// Running servers. They stop when this is dropped.
pub struct AccountServers {
    children: Vec<Child>,
    /// Variables with their addresses.
    at: Vec<(&'static str, String)>,
}

/// Installs and starts the servers.
pub fn start(report: &mut SuiteReport) -> AccountServers {
    let mut servers = AccountServers { children: Vec::new(), at: Vec::new() };
    let folder = report.time("accounts (npm)", || installed("accounts", &NPM, npm));
    for (variable, name, launcher) in SERVERS {
        let started = report.time(name, || match &folder {
            None => (
                SuiteOutcome::Skipped(format!("its tests were not run: it is not installed; they need {variable}")),
                None,
            ),
            Some(folder) => match launched(folder, launcher) {
                Ok(server) => (SuiteOutcome::Passed, Some(server)),
                Err(reason) => {
                    (SuiteOutcome::Skipped(format!("its tests were not run: {reason}; they need {variable}")), None)
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

impl AccountServers {
    /// Gives the test command the addresses; if a server is missing, it removes the strict mode.
    pub fn add_environment(&self, tests: CommandLine) -> CommandLine {
        let told = self.at.iter().fold(tests, |line, (variable, address)| line.env(variable, address));
        if self.at.len() == SERVERS.len() { told } else { told.without("SLUICE_TEST_STRICT") }
    }
}

impl AccountServers {
    /// For a person who runs single tests: prints the addresses, and waits until the servers stop.
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

impl Drop for AccountServers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _gone = child.kill();
            let _waited = child.wait();
        }
    }
}

fn npm(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    run_to_end(&CommandLine::new(&["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"]).args(&NPM))
}

/// Starts a server and waits until it reports its address.
fn launched(folder: &Path, launcher: &str) -> Result<(Child, String), String> {
    let words = |error: std::io::Error| error.to_string();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).map_err(words)?.port();
    let mut command = Command::new(folder.join("node_modules/.bin/node"));
    command.arg(Path::new("crates/testkit/counterparts").join(launcher)).arg(folder).arg(port.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(words)?;
    let mut first = String::new();
    let mut said = BufReader::new(child.stdout.take().ok_or("its output cannot be read")?);
    // It may print other lines before it is ready.
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
