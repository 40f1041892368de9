//! The dashboard in a real browser.
//!
//! Installs Chromium (a Debian package) and pinned packages from npm, once, into `target/counterparts`; runs the walks of
//! `xtask/counterparts/dashboard.mjs` against the built program. Promise: a browser that cannot be installed is skipped by
//! name, and the pictures in `docs/pictures` are written only on request.

use std::fs;
use std::path::Path;

use crate::command::CommandLine;
use crate::mcp::{installed, run_to_end};
use crate::packages;
use crate::report::{SuiteOutcome, SuiteReport};

/// What drives the browser, and what checks the pages for people with disabilities.
const NPM: [&str; 2] = ["playwright-core@1.65.1", "axe-core@4.14.1"];
const SCRIPT: &str = "xtask/counterparts/dashboard.mjs";

/// Runs the walks; `pictures` also writes the pictures of the documentation.
pub fn suite(report: &mut SuiteReport, pictures: Option<&str>) {
    let there = report.time("chromium", || match packages::need("chromium", "chromium") {
        Ok(()) => (SuiteOutcome::Passed, true),
        Err(reason) => (SuiteOutcome::Skipped(format!("the dashboard was not opened in a browser: {reason}")), false),
    });
    let Some(folder) = report.time("browser driver (npm)", || installed("browser", &NPM, npm)).filter(|_| there) else {
        return;
    };
    let program = match fs::canonicalize("target/debug/sluice") {
        Ok(program) => program.display().to_string(),
        Err(error) => {
            report
                .time("dashboard in a browser", || (SuiteOutcome::Failed(format!("target/debug/sluice: {error}")), ()));
            return;
        }
    };
    let modules = folder.join("node_modules").display().to_string();
    let line = CommandLine::new(&["node", SCRIPT])
        .env("SLUICE_TEST_MODULES", &modules)
        .env("SLUICE_TEST_PROGRAM", &program)
        .env("SLUICE_TEST_PICTURES", pictures.unwrap_or_default());
    report.run_aloud("dashboard in a browser", &line);
}

fn npm(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    run_to_end(&CommandLine::new(&["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"]).args(&NPM))
}
