//! Reference servers of the Model Context Protocol, mounted behind a real gateway.
//!
//! Takes nothing but a network to install them from, once, with pinned versions, into `target/counterparts`; runs the
//! test that mounts each of them by its shipped recipe. Promise: what cannot be installed is skipped by name.

use std::path::Path;

use crate::command::Line;
use crate::mcp::{done, installed};
use crate::report::Report;

const PYPI: [&str; 2] = ["mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"];
const NPM: [&str; 2] =
    ["@modelcontextprotocol/server-filesystem@2026.8.31", "@modelcontextprotocol/server-memory@2026.8.31"];
const TEST: &str = "mounts::the_reference_servers_work_as_mounts";

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
