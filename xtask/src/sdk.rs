//! The Python and TypeScript packages: lint, types, suites against the built program, and packages in a clean place.
//!
//! Installs pinned versions of the tools and of the agent frameworks once, into `target/counterparts`; gives one suite per
//! step. Promise: a step that cannot run is skipped by name, which fails a strict run.

use std::fs;
use std::path::Path;

use crate::command::CommandLine;
use crate::mcp;
use crate::postgres;
use crate::report::{SuiteOutcome, SuiteReport};

/// The folders of the packages, from the root of the repository.
const PYTHON: &str = "sdk/python";
const TYPESCRIPT: &str = "sdk/typescript";

/// Tools, dependencies and agent frameworks of the Python package; the cache is valid for exactly these.
const PYPI: [&str; 17] = [
    "agent-framework-core==1.23.0",
    "build==1.6.1",
    "editables==0.6",
    "google-adk==2.13.0",
    "hatchling==1.33.0",
    "httpx==0.28.1",
    "langchain==1.4.7",
    "langgraph==1.2.22",
    "langgraph-checkpoint-sqlite==3.1.2",
    "msgspec==0.22.0",
    "openai-agents==0.24.0",
    "opentelemetry-api==1.44.0",
    "opentelemetry-sdk==1.44.0",
    "pydantic-ai-slim==2.68.0",
    "pytest==9.2.0",
    "ruff==0.17.5",
    "smolagents==1.26.0",
];

/// The same for the TypeScript package, with the type checker of the Python package.
const NPM: [&str; 9] = [
    "node@24.21.0",
    "@biomejs/biome@2.6.8",
    "@openai/agents@0.20.0",
    "@types/node@26.6.6",
    "ai@6.0.326",
    "esbuild@0.28.2",
    "pyright@1.1.414",
    "typescript@7.0.2",
    "zod@4.6.7",
];

/// Runs every step. The suites also run on PostgreSQL if a server is named.
pub fn suites(report: &mut SuiteReport, postgres_url: Option<&str>) {
    let python = report.time("sdk tools (PyPI)", || mcp::installed("sdk-pypi", &PYPI, pypi));
    let node = report.time("sdk tools (npm)", || mcp::installed("sdk-npm", &NPM, npm));
    let program = fs::canonicalize("target/debug/sluice").unwrap_or_default().display().to_string();
    let (Some(python), Some(node)) = (python, node) else {
        report.time("sdk suites", || (SuiteOutcome::Skipped("their tools are missing".into()), ()));
        return;
    };
    let modules = node.join("node_modules");
    let (venv, npm_bin) = (python.join("venv/bin"), modules.join(".bin"));
    let path = format!("{}:{}:{}", venv.display(), npm_bin.display(), std::env::var("PATH").unwrap_or_default());
    let line = |words: &[&str]| {
        let line = CommandLine::new(words).env("PATH", &path).env("SLUICE_TEST_PROGRAM", &program);
        match postgres_url {
            Some(url) => line.env(postgres::URL, url),
            None => line,
        }
    };
    let inside = |folder: &str, words: &[&str]| line(&["env", "-C", folder]).args(words);
    report.run("sdk types and the API", &line(&["python", "sdk/generate.py", "--check"]));

    let editable = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", "."];
    report.run("python package", &inside(PYTHON, &editable));
    report.run("python lint", &inside(PYTHON, &["ruff", "check", "."]));
    report.run("python format", &inside(PYTHON, &["ruff", "format", "--check", "."]));
    let interpreter = venv.join("python").display().to_string();
    report.run("python types", &inside(PYTHON, &["pyright", "--pythonpath", &interpreter]));
    report.run("python suite", &inside(PYTHON, &["python", "-m", "pytest"]));

    // Modules are looked up in the folders above a file.
    match link_modules(&modules) {
        Ok(()) => {
            report.run("typescript lint", &inside(TYPESCRIPT, &["biome", "check", "."]));
            report.run("typescript build", &inside(TYPESCRIPT, &["tsc", "-p", "tsconfig.json"]));
            report.run("typescript types", &inside(TYPESCRIPT, &["tsc", "-p", "tsconfig.test.json"]));
            let tests = ["sh", "-c", "node --test --test-force-exit --test-concurrency=1 test/*.test.mjs"];
            report.run("typescript suite", &inside(TYPESCRIPT, &tests));
        }
        Err(reason) => report.time("typescript suite", || (SuiteOutcome::Failed(reason), ())),
    }
    report.run("sdk packages", &line(&["python", "sdk/check_packages.py", "target/sdk"]));
}

fn link_modules(modules: &Path) -> Result<(), String> {
    let link = Path::new(TYPESCRIPT).join("node_modules");
    if link.is_symlink() {
        fs::remove_file(&link).map_err(|error| error.to_string())?;
    } else if link.exists() {
        return Err(format!("`{}` is in the way: remove it", link.display()));
    }
    std::os::unix::fs::symlink(modules, &link).map_err(|error| format!("`{}`: {error}", link.display()))
}

fn npm(folder: &Path) -> Result<(), String> {
    let folder = folder.display().to_string();
    mcp::run_to_end(&CommandLine::new(&["npm", "install", "--prefix", &folder, "--no-audit", "--no-fund"]).args(&NPM))
}

fn pypi(folder: &Path) -> Result<(), String> {
    let venv = folder.join("venv").display().to_string();
    mcp::run_to_end(&CommandLine::new(&["python3", "-m", "venv", &venv]))?;
    mcp::run_to_end(&CommandLine::new(&[&format!("{venv}/bin/pip"), "install", "--quiet"]).args(&PYPI))
}
