//! `sluice doctor`: is everything in place for a gateway on this machine.
//!
//! Takes the configuration; gives one line per check. Promise: it looks and changes nothing.

mod channels;
mod client;
mod database;
mod kernel;
mod places;
mod programs;
mod state_file;

use clap::Args;
use owo_colors::{OwoColorize as _, Style};
use serde::Serialize;
use serde_json::json;
use sluice_core::Clock as _;
use sluice_core::policy::Severity;
use sluice_gateway::config::{Config, Sandbox};

use crate::commands::hook::Agent;
use crate::commands::policy::{self, counted};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::settings::{Settings, Which};
use crate::system::SystemClock;

/// The first moment of 2026: no earlier than this program.
const BUILT_AFTER: i64 = 1_767_225_600_000;

/// Check the configuration and this machine.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice doctor\n  sluice doctor --json | jq '.checks[] | select(.state == \"fail\")'"
)]
pub(crate) struct Doctor {
    #[command(flatten)]
    which: Which,
    /// Find this client's hook, break it on purpose and see whether the tool stops
    #[arg(long, value_enum)]
    client: Option<Agent>,
    /// For machines
    #[arg(long)]
    json: bool,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Info,
    /// Works, and should not stay so.
    Warn,
    /// Does not work.
    Fail,
}

/// One line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    state: State,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Finding {
    pub(super) fn new(check: &'static str, state: State, message: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Doctor {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let findings = match self.client {
            Some(agent) => client::broken(agent),
            None => self.look(screen)?,
        };
        let count = |state| findings.iter().filter(|finding| finding.state == state).count();
        let (failed, warned) = (count(State::Fail), count(State::Warn));
        if self.json {
            screen.json(&json!({"ok": failed == 0, "checks": findings}))?;
        } else {
            findings.iter().try_for_each(|finding| show(finding, screen))?;
            screen.note(format_args!("{} failed, {}", counted(failed, "check"), counted(warned, "warning")));
        }
        Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
    }
}

impl Doctor {
    /// Every check of the configuration and this machine.
    fn look(&self, screen: &Screen) -> Result<Vec<Finding>, Failure> {
        let settings = self.which.load(Vec::new())?;
        let mut findings = vec![configuration(&settings)];
        match &settings.loaded {
            Ok((config, _)) => findings.extend(of_config(config)),
            Err(errors) if !self.json => errors.faults.iter().for_each(|fault| screen.fault(fault)),
            Err(_) => {}
        }
        findings.push(clock());
        let sandbox = settings.loaded.as_ref().map_or(Sandbox::Required, |(config, _)| config.sandbox);
        let config = settings.loaded.as_ref().ok().map(|(config, _)| config);
        findings.extend(kernel::layers(sandbox, config));
        Ok(findings)
    }
}

fn show(finding: &Finding, screen: &Screen) -> Result<(), Failure> {
    let (word, style) = match finding.state {
        State::Ok => ("ok", Style::new().green()),
        State::Info => ("info", Style::new()),
        State::Warn => ("warn", Style::new().yellow().bold()),
        State::Fail => ("fail", Style::new().red().bold()),
    };
    let word = format!("{word:<5}");
    screen.line(format_args!("{} {:<12} {}", word.style(style), finding.check, finding.message))?;
    if let Some(hint) = &finding.hint {
        screen.line(format_args!("{:<18} hint: {hint}", ""))?;
    }
    Ok(())
}

fn configuration(settings: &Settings) -> Finding {
    let name = settings.name();
    match (&settings.loaded, &settings.file) {
        (Ok(_), Some(_)) => Finding::new("config", State::Ok, format!("{name} is in order")),
        (Ok(_), None) => Finding::new("config", State::Warn, "there is no sluice.yaml here; these are defaults")
            .hint("make one: sluice init; or name one: --config FILE"),
        (Err(errors), _) => {
            Finding::new("config", State::Fail, format!("{} in {name}", counted(errors.faults.len(), "error")))
                .hint("details: sluice config check")
        }
    }
}

fn of_config(config: &Config) -> Vec<Finding> {
    let mut findings = vec![policies(config)];
    findings.extend(places::permissions(config));
    findings.extend(places::keys_apart(config));
    findings.push(places::root_key(config));
    findings.extend(database::database(config));
    findings.extend(state_file::state_file(config));
    findings.push(places::disk(config));
    findings.extend(places::copies(config));
    findings.push(kernel::openat2(!config.filesystem.roots.is_empty()));
    findings.extend(places::roots(config));
    findings.extend(programs::installed(config));
    findings.extend(places::mounts(config));
    findings.extend(places::mail(config));
    findings.extend(channels::token_files(config));
    findings.extend(channels::channels(config));
    findings.extend(places::certificate(config, SystemClock.now()));
    findings.push(places::port("listen", config.listen, config.tls.is_some()));
    findings.push(places::port("stop_listen", config.stop_listen, config.tls.is_some()));
    findings
}

fn policies(config: &Config) -> Finding {
    let hint = format!("details: sluice policy check {}", config.policies.display());
    let bad = |message: String| Finding::new("policies", State::Fail, message).hint(hint.clone());
    let agents = policy::known_agents(config);
    match policy::load_for(&config.policies, agents.as_deref()) {
        Err(failure) => {
            let finding = Finding::new("policies", State::Fail, failure.message);
            finding.hint(failure.hint.unwrap_or(hint))
        }
        Ok(Err(errors)) => bad(format!("{} in {}", counted(errors.errors(), "error"), config.policies.display())),
        Ok(Ok(loaded)) => {
            let outcomes = loaded.policy.test();
            let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
            let warnings = loaded.warnings.iter().filter(|fault| fault.severity == Severity::Warning).count();
            if failed > 0 {
                bad(format!("{failed} of {} failed", counted(outcomes.len(), "test")))
            } else if warnings > 0 {
                Finding::new("policies", State::Warn, format!("they load, with {}", counted(warnings, "warning")))
                    .hint(hint)
            } else {
                let (rules, tests) = (counted(loaded.policy.rules(), "rule"), counted(outcomes.len(), "test"));
                Finding::new("policies", State::Ok, format!("{rules} load, {tests} passed"))
            }
        }
    }
}

fn clock() -> Finding {
    let now = SystemClock.now();
    if now.as_millis() < BUILT_AFTER {
        return Finding::new("clock", State::Fail, format!("it says {now}, which is before this program was made"))
            .hint("set the clock; deadlines and the record depend on it");
    }
    Finding::new("clock", State::Ok, format!("it says {now}"))
}
