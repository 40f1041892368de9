//! Reference servers of the Model Context Protocol, mounted behind a real gateway.
//!
//! Installs pinned versions from the network, once, into `target/counterparts`; runs the
//! test that mounts each server by its shipped recipe, and the conformance suite's scenarios for clients.
//! Promise: a server that cannot be installed is skipped by name.

use std::path::Path;

use crate::command::CommandLine;
use crate::mcp::{installed, run_to_end};
use crate::report::{SuiteOutcome, SuiteReport};

const PYPI: [&str; 2] = ["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"];
const NPM: [&str; 2] =
    ["@modelcontextprotocol/server-filesystem@2026.8.31", "@modelcontextprotocol/server-memory@2026.8.31"];
const TEST: &str = "mounts::the_reference_servers_work_as_mounts";

/// Scenarios of the conformance suite for clients, each at a revision; docs/mounts.md says why some fail, and which are
/// missing.
const SCENARIOS: [(&str, &str, ScenarioEnd); 37] = [
    ("initialize", "2025-11-25", ScenarioEnd::Well),
    ("tools_call", "2025-06-18", ScenarioEnd::Well),
    ("tools_call", "2025-11-25", ScenarioEnd::Well),
    ("tools_call", "2026-07-28", ScenarioEnd::Well),
    ("request-metadata", "2026-07-28", ScenarioEnd::Well),
    ("http-standard-headers", "2026-07-28", ScenarioEnd::Well),
    ("http-custom-headers", "2026-07-28", ScenarioEnd::Well),
    ("http-invalid-tool-headers", "2026-07-28", ScenarioEnd::Well),
    ("json-schema-ref-no-deref", "2026-07-28", ScenarioEnd::Well),
    ("sse-retry", "2025-11-25", ScenarioEnd::Badly),
    ("elicitation-sep1034-client-defaults", "2025-11-25", ScenarioEnd::Badly),
    ("sep-2322-client-request-state", "2026-07-28", ScenarioEnd::Badly),
    ("auth/metadata-default", "2026-07-28", ScenarioEnd::Well),
    ("auth/metadata-var1", "2026-07-28", ScenarioEnd::Well),
    ("auth/metadata-var2", "2025-11-25", ScenarioEnd::Well),
    ("auth/metadata-var3", "2025-11-25", ScenarioEnd::Well),
    ("auth/basic-cimd", "2026-07-28", ScenarioEnd::Well),
    ("auth/scope-from-www-authenticate", "2026-07-28", ScenarioEnd::Well),
    ("auth/scope-from-scopes-supported", "2026-07-28", ScenarioEnd::Well),
    ("auth/scope-omitted-when-undefined", "2026-07-28", ScenarioEnd::Well),
    ("auth/scope-step-up", "2026-07-28", ScenarioEnd::Well),
    ("auth/scope-retry-limit", "2026-07-28", ScenarioEnd::Well),
    ("auth/token-endpoint-auth-basic", "2026-07-28", ScenarioEnd::Well),
    ("auth/token-endpoint-auth-post", "2025-11-25", ScenarioEnd::Well),
    ("auth/token-endpoint-auth-none", "2026-07-28", ScenarioEnd::Well),
    ("auth/pre-registration", "2026-07-28", ScenarioEnd::Well),
    ("auth/resource-mismatch", "2026-07-28", ScenarioEnd::Well),
    ("auth/offline-access-scope", "2026-07-28", ScenarioEnd::Well),
    ("auth/offline-access-not-supported", "2026-07-28", ScenarioEnd::Well),
    ("auth/authorization-server-migration", "2026-07-28", ScenarioEnd::Well),
    ("auth/iss-supported", "2026-07-28", ScenarioEnd::Well),
    ("auth/iss-not-advertised", "2026-07-28", ScenarioEnd::Well),
    ("auth/iss-supported-missing", "2026-07-28", ScenarioEnd::Well),
    ("auth/iss-wrong-issuer", "2026-07-28", ScenarioEnd::Well),
    ("auth/iss-unexpected", "2026-07-28", ScenarioEnd::Well),
    ("auth/iss-normalized", "2026-07-28", ScenarioEnd::Well),
    ("auth/metadata-issuer-mismatch", "2026-07-28", ScenarioEnd::Well),
];

/// The known result of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScenarioEnd {
    Well,
    /// Fails on purpose. A scenario that begins to pass fails the suite, so that the list stays correct.
    Badly,
}

/// One suite: the gateway as the client of every scenario. `run` gives the command line of a command of the suite.
pub fn conformance(report: &mut SuiteReport, run: impl Fn(&[&str]) -> CommandLine) {
    report.time("mcp conformance, mounted", || {
        let mut wrong = Vec::new();
        for (scenario, revision, known) in SCENARIOS {
            let command = "python3 xtask/counterparts/mount_client.py";
            let line = run(&["client", "--command", command, "--scenario", scenario, "--spec-version", revision]);
            println!("\n$ {line}");
            let ended = match line.status() {
                Ok(status) if status.success() => ScenarioEnd::Well,
                Ok(_) => ScenarioEnd::Badly,
                Err(error) => return (SuiteOutcome::Failed(error.to_string()), ()),
            };
            if ended != known {
                wrong.push(format!("{scenario} at {revision} ended {ended:?}, not {known:?}"));
            }
        }
        if wrong.is_empty() { (SuiteOutcome::Passed, ()) } else { (SuiteOutcome::Failed(wrong.join("; ")), ()) }
    });
}

/// One suite: four servers, four recipes.
pub fn suite(report: &mut SuiteReport) {
    let pins: Vec<&str> = PYPI.into_iter().chain(NPM).collect();
    let folder = report.time("mcp servers (PyPI, npm)", || installed("servers", &pins, install));
    let Some(folder) = folder else { return };
    let line = CommandLine::cargo(&["test", "--package", "sluice", "--test", "it", TEST, "--", "--exact"]);
    report.run("mcp servers, mounted", &line.env("SLUICE_TEST_SERVERS", &folder.display().to_string()));
}

fn install(folder: &Path) -> Result<(), String> {
    let venv = folder.join("venv").display().to_string();
    run_to_end(&CommandLine::new(&["python3", "-m", "venv", &venv]))?;
    run_to_end(&CommandLine::new(&[&format!("{venv}/bin/pip"), "install", "--quiet"]).args(&PYPI))?;
    let prefix = folder.display().to_string();
    run_to_end(&CommandLine::new(&["npm", "install", "--prefix", &prefix, "--no-audit", "--no-fund"]).args(&NPM))
}
