//! Real clients of the Model Context Protocol against a real gateway.
//!
//! Installs pinned versions from the network, once, into `target/counterparts`; gives one
//! suite per client. Promise: a client that cannot be installed is skipped by name, the gateway is the built program,
//! and it stops with the suites.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::command::CommandLine;
use crate::mounts;
use crate::report::{SuiteOutcome, SuiteReport};

/// The packages to install; the cache is valid for exactly these.
const NPM: [&str; 4] = [
    "node@24.21.0",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
];
const PYPI: [&str; 2] = ["mcp==2.3.0", "fastmcp==4.1.2"];
/// Revisions that the conformance suite is run for, each with the scenarios that are known to fail.
const REVISIONS: [(&str, &str); 2] =
    [("mcp conformance 2025-11-25", "2025-11-25"), ("mcp conformance 2026-07-28", "2026-07-28")];

/// Runs every client as a suite of its own.
pub fn suites(report: &mut SuiteReport) {
    let scripts = Path::new("xtask/counterparts");
    let node = report.time("mcp clients (npm)", || installed("npm", &NPM, npm));
    let python = report.time("mcp clients (PyPI)", python);
    if node.is_none() && python.is_none() {
        return;
    }
    let Some(gate) = report.time("mcp gateway", || match McpGateway::open() {
        Ok(gate) => (SuiteOutcome::Passed, Some(gate)),
        Err(reason) => (SuiteOutcome::Failed(reason), None),
    }) else {
        return;
    };
    if let Some(folder) = python {
        let program = folder.join("venv/bin/python").display().to_string();
        let script = |name: &str| scripts.join(name).display().to_string();
        report.run("mcp client, PyPI mcp", &gate.line(&[&program, &script("mcp_client.py")]));
        report.run("mcp client, PyPI fastmcp", &gate.line(&[&program, &script("fastmcp_client.py")]));
    }
    if let Some(folder) = node {
        let bin = folder.join("node_modules/.bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let modules = folder.join("node_modules").display().to_string();
        let run = |words: &[&str]| gate.line(words).env("PATH", &path).env("SLUICE_TEST_MODULES", &modules);
        let script = scripts.join("sdk_client.mjs").display().to_string();
        report.run("mcp client, npm sdk", &run(&[&bin.join("node").display().to_string(), &script]));
        let (url, header) = (format!("{}/mcp", gate.url), format!("Authorization: Bearer {}", gate.key));
        let inspector = bin.join("mcp-inspector").display().to_string();
        let list = ["--cli", &url, "--transport", "http", "--header", &header, "--method", "tools/list"];
        report.run_aloud("mcp inspector", &run(&[&inspector]).args(&list));
        let preload = fs::canonicalize(scripts.join("add_key.mjs")).unwrap_or_default();
        for (name, revision) in REVISIONS {
            let known = scripts.join(format!("conformance-{revision}.yaml")).display().to_string();
            let suite = bin.join("conformance").display().to_string();
            let words = ["server", "--url", &url, "--requirements", revision, "--expected-failures", &known];
            let line = run(&[&suite]).args(&words);
            report.run(name, &line.env("NODE_OPTIONS", &format!("--import={}", preload.display())));
        }
        let suite = bin.join("conformance").display().to_string();
        mounts::conformance(report, |words| run(&[&suite]).args(words));
    }
}

/// The folder of the Python packages, in a virtual environment of its own.
pub fn python() -> (SuiteOutcome, Option<PathBuf>) {
    installed("pypi", &PYPI, pypi)
}

/// The folder of a kind of package, installed now or earlier.
pub fn installed(
    kind: &str,
    pins: &[&str],
    install: fn(&Path) -> Result<(), String>,
) -> (SuiteOutcome, Option<PathBuf>) {
    let folder = Path::new("target/counterparts").join(kind);
    let stamp = folder.join("installed");
    let wanted = pins.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return (SuiteOutcome::Passed, fs::canonicalize(folder).ok());
    }
    let _none = fs::remove_dir_all(&folder);
    let made = fs::create_dir_all(&folder).map_err(|error| error.to_string());
    match made
        .and_then(|()| install(&folder))
        .and_then(|()| fs::write(&stamp, wanted).map_err(|error| error.to_string()))
    {
        Ok(()) => (SuiteOutcome::Passed, fs::canonicalize(folder).ok()),
        Err(reason) => (SuiteOutcome::Skipped(format!("clients could not be installed: {reason}")), None),
    }
}

fn npm(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    // Node is installed as a package, because some clients refuse to run on older versions.
    run_to_end(&CommandLine::new(&["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"]).args(&NPM))
}

fn pypi(folder: &Path) -> Result<(), String> {
    let venv = folder.join("venv").display().to_string();
    run_to_end(&CommandLine::new(&["python3", "-m", "venv", &venv]))?;
    run_to_end(&CommandLine::new(&[&format!("{venv}/bin/pip"), "install", "--quiet"]).args(&PYPI))
}

/// Runs a command to its end.
pub fn run_to_end(line: &CommandLine) -> Result<(), String> {
    println!("$ {line}");
    match line.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}")),
        Err(error) => Err(error.to_string()),
    }
}

/// A gateway of the built program, with an agent and a file.
struct McpGateway {
    child: Child,
    url: String,
    key: String,
    key_file: String,
    folder: String,
    program: String,
    home: PathBuf,
}

impl McpGateway {
    fn open() -> Result<Self, String> {
        let words = |error: std::io::Error| error.to_string();
        run_to_end(&CommandLine::cargo(&["build", "--package", "sluice"]))?;
        let program = fs::canonicalize("target/debug/sluice").map_err(words)?.display().to_string();
        let home = Path::new("target/counterparts").join(format!("gate-{}", std::process::id()));
        let _none = fs::remove_dir_all(&home);
        let home = std::path::absolute(home).map_err(words)?;
        let home_text = home.display().to_string();
        // The user's own configuration is not changed.
        let init = CommandLine::new(&[&program, "init", "--dir", &home_text, "--agent", "clerk", "--yes"]);
        run_to_end(&init.env("XDG_CONFIG_HOME", &format!("{home_text}-config")))?;
        fs::write(home.join("workspace/notes.txt"), "milk\n").map_err(words)?;
        let mut config = fs::OpenOptions::new().append(true).open(home.join("sluice.yaml")).map_err(words)?;
        let [main, stop] = ports().map_err(words)?;
        // Scenarios call tools by fixed names: `test_simple_text` is the tool `simple_text` of the mount `test`.
        let fixture = fs::canonicalize("xtask/counterparts/fixture_server.py").map_err(words)?;
        let (file, folder) = (fixture.display(), fixture.parent().unwrap_or(&fixture).display());
        let lines = format!(
            "\nlisten: 127.0.0.1:{main}\nstop_listen: 127.0.0.1:{stop}\nholds: {{delays: {{filesystem.write: 30s}}}}\n\
             disk: {{low: 1MB/0%, stop: 1MB/0%}}\nmounts:\n  test: {{command: python3, args: [\"{file}\"], files: {{read: \
             [\"{folder}\"]}}}}\n"
        );
        config.write_all(lines.as_bytes()).map_err(words)?;
        let mut serving = Command::new(&program);
        serving
            .args(["serve", "--config", "sluice.yaml"])
            .current_dir(&home)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = serving.spawn().map_err(words)?;
        let mut first = String::new();
        let mut said = BufReader::new(child.stdout.take().ok_or("the gateway's output cannot be read")?);
        said.read_line(&mut first).map_err(words)?;
        if !first.contains("listening on") {
            let _gone = child.kill();
            return Err(format!("the gateway does not start: {first}"));
        }
        // The output must be read, or the gateway would block on it at some point.
        std::thread::spawn(move || drop(said.read_to_end(&mut Vec::new())));
        // The tools of the fixture are read-only, which a person has to accept.
        let config = home.join("sluice.yaml").display().to_string();
        let mounts = |words: &[&str]| {
            let words = [&[program.as_str(), "mounts"], words, &["--config", config.as_str()]].concat();
            run_to_end(&CommandLine::new(&words))
        };
        mounts(&["test", "test"])
            .and_then(|()| mounts(&["accept", "test", "--all", "--read-only", "--yes"]))
            .inspect_err(|_| drop(child.kill()))?;
        let key_file = home.join("data/agents/clerk.key").display().to_string();
        let key = fs::read_to_string(&key_file).map_err(words)?.trim().to_owned();
        let (url, folder) = (format!("http://127.0.0.1:{main}"), home.join("workspace").display().to_string());
        Ok(Self { child, url, key, key_file, folder, program, home })
    }

    /// A command with the addresses and paths in its environment.
    fn line(&self, words: &[&str]) -> CommandLine {
        CommandLine::new(words)
            .env("SLUICE_TEST_URL", &self.url)
            .env("SLUICE_TEST_KEY", &self.key)
            .env("SLUICE_TEST_KEY_FILE", &self.key_file)
            .env("SLUICE_TEST_FOLDER", &self.folder)
            .env("SLUICE_TEST_PROGRAM", &self.program)
    }
}

impl Drop for McpGateway {
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
