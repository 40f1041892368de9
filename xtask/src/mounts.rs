//! Reference servers of the Model Context Protocol, mounted behind a real gateway.
//!
//! Takes nothing but a network to install them from, once, with pinned versions, into `target/counterparts`; runs the
//! test that mounts each of them by its shipped recipe, and the servers of the conformance suite's scenarios for clients.
//! Promise: what cannot be installed is skipped by name.

use std::path::Path;

use crate::command::Line;
use crate::mcp::{done, installed};
use crate::report::{Outcome, Report};

const PYPI: [&str; 2] = ["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"];
const NPM: [&str; 2] =
    ["@modelcontextprotocol/server-filesystem@2026.8.31", "@modelcontextprotocol/server-memory@2026.8.31"];
const TEST: &str = "mounts::the_reference_servers_work_as_mounts";

/// Scenarios of the conformance suite for clients, each at a revision; docs/mounts.md says why some do not pass, and why
/// those of the suite `auth` are not here.
const SCENARIOS: [(&str, &str, Ends); 12] = [
    ("initialize", "2025-11-25", Ends::Well),
    ("tools_call", "2025-06-18", Ends::Well),
    ("tools_call", "2025-11-25", Ends::Well),
    ("tools_call", "2026-07-28", Ends::Well),
    ("request-metadata", "2026-07-28", Ends::Well),
    ("http-standard-headers", "2026-07-28", Ends::Well),
    ("http-custom-headers", "2026-07-28", Ends::Well),
    ("http-invalid-tool-headers", "2026-07-28", Ends::Well),
    ("json-schema-ref-no-deref", "2026-07-28", Ends::Well),
    ("sse-retry", "2025-11-25", Ends::Badly),
    ("elicitation-sep1034-client-defaults", "2025-11-25", Ends::Badly),
    ("sep-2322-client-request-state", "2026-07-28", Ends::Badly),
];

/// How a scenario is known to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Well,
    /// On purpose. One that begins to pass fails the suite, so that the list stays true.
    Badly,
}

/// One suite: the gateway as the client of every scenario. `run` gives the line of a command of the suite.
pub fn conformance(report: &mut Report, run: impl Fn(&[&str]) -> Line) {
    report.time("mcp conformance, mounted", || {
        let mut wrong = Vec::new();
        for (scenario, revision, known) in SCENARIOS {
            let command = "python3 xtask/counterparts/mount_client.py";
            let line = run(&["client", "--command", command, "--scenario", scenario, "--spec-version", revision]);
            println!("\n$ {line}");
            let ended = match line.status() {
                Ok(status) if status.success() => Ends::Well,
                Ok(_) => Ends::Badly,
                Err(error) => return (Outcome::Failed(error.to_string()), ()),
            };
            if ended != known {
                wrong.push(format!("{scenario} at {revision} ended {ended:?}, not {known:?}"));
            }
        }
        if wrong.is_empty() { (Outcome::Passed, ()) } else { (Outcome::Failed(wrong.join("; ")), ()) }
    });
}

/// One suite: four servers, four recipes.
pub fn suite(report: &mut Report) {
    let pins: Vec<&str> = PYPI.into_iter().chain(NPM).collect();
    let folder = report.time("mcp servers (PyPI, npm)", || installed("servers", &pins, install));
    let Some(folder) = folder else { return };
    let line = Line::cargo(&["test", "--package", "sluice", "--test", "it", TEST, "--", "--exact"]);
    report.run("mcp servers, mounted", &line.env("SLUICE_TEST_SERVERS", &folder.display().to_string()));
}

fn install(folder: &Path) -> Result<(), String> {
    let venv = folder.join("venv").display().to_string();
    done(&Line::new(&["python3", "-m", "venv", &venv]))?;
    done(&Line::new(&[&format!("{venv}/bin/pip"), "install", "--quiet"]).args(&PYPI))?;
    let prefix = folder.display().to_string();
    done(&Line::new(&["npm", "install", "--prefix", &prefix, "--no-audit", "--no-fund"]).args(&NPM))
}
