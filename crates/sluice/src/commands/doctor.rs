//! `sluice doctor`: checks whether this machine is ready for a gateway.
//!
//! Takes the configuration; gives one line per check. Promise: it reads and changes nothing.

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
use sluice_config::{Config, Sandbox};
use sluice_core::Clock as _;
use sluice_core::policy::FaultSeverity;

use crate::commands::hook::HookAgent;
use crate::commands::policy::{self, counted};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::settings::{ConfigFileArgs, LoadedSettings};
use crate::system::SystemClock;

/// The start of 2026: this program is not older.
const BUILT_AFTER: i64 = 1_767_225_600_000;

/// Check the configuration and this machine.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice doctor\n  sluice doctor --json | jq '.checks[] | select(.state == \"fail\")'"
)]
pub(crate) struct DoctorCommand {
    #[command(flatten)]
    which: ConfigFileArgs,
    /// Find this client's hook, break it on purpose and check that the tool is stopped
    #[arg(long, value_enum)]
    client: Option<HookAgent>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DoctorCheckStatus {
    /// As it should be.
    Ok,
    /// Information only.
    Info,
    /// Works, but should be changed.
    Warn,
    /// Does not work.
    Fail,
}

/// The result of one check, printed as one line.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DoctorFinding {
    check: &'static str,
    state: DoctorCheckStatus,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl DoctorFinding {
    pub(super) fn new(check: &'static str, state: DoctorCheckStatus, message: impl Into<String>) -> Self {
        Self { check, state, message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl DoctorCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let findings = match self.client {
            Some(agent) => client::check_broken_hooks(agent),
            None => self.look(screen)?,
        };
        let count = |state| findings.iter().filter(|finding| finding.state == state).count();
        let (failed, warned) = (count(DoctorCheckStatus::Fail), count(DoctorCheckStatus::Warn));
        if self.json {
            screen.json(&json!({"ok": failed == 0, "checks": findings}))?;
        } else {
            findings.iter().try_for_each(|finding| show(finding, screen))?;
            screen.note(format_args!("{} failed, {}", counted(failed, "check"), counted(warned, "warning")));
        }
        Ok(if failed == 0 { CommandExit::Ok } else { CommandExit::Failed })
    }
}

impl DoctorCommand {
    /// Every check of the configuration and this machine.
    fn look(&self, screen: &CommandConsole) -> Result<Vec<DoctorFinding>, CliError> {
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

fn show(finding: &DoctorFinding, screen: &CommandConsole) -> Result<(), CliError> {
    let (word, style) = match finding.state {
        DoctorCheckStatus::Ok => ("ok", Style::new().green()),
        DoctorCheckStatus::Info => ("info", Style::new()),
        DoctorCheckStatus::Warn => ("warn", Style::new().yellow().bold()),
        DoctorCheckStatus::Fail => ("fail", Style::new().red().bold()),
    };
    let word = format!("{word:<5}");
    screen.line(format_args!("{} {:<12} {}", word.style(style), finding.check, finding.message))?;
    if let Some(hint) = &finding.hint {
        screen.line(format_args!("{:<18} hint: {hint}", ""))?;
    }
    Ok(())
}

fn configuration(settings: &LoadedSettings) -> DoctorFinding {
    let name = settings.name();
    match (&settings.loaded, &settings.file) {
        (Ok(_), Some(_)) => DoctorFinding::new("config", DoctorCheckStatus::Ok, format!("{name} is valid")),
        (Ok(_), None) => {
            DoctorFinding::new("config", DoctorCheckStatus::Warn, "no sluice.yaml here; the defaults are used")
                .hint("create one: sluice init; or give its path: --config FILE")
        }
        (Err(errors), _) => DoctorFinding::new(
            "config",
            DoctorCheckStatus::Fail,
            format!("{} in {name}", counted(errors.faults.len(), "error")),
        )
        .hint("details: sluice config check"),
    }
}

fn of_config(config: &Config) -> Vec<DoctorFinding> {
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

fn policies(config: &Config) -> DoctorFinding {
    let hint = format!("details: sluice policy check {}", config.policies.display());
    let bad = |message: String| DoctorFinding::new("policies", DoctorCheckStatus::Fail, message).hint(hint.clone());
    let agents = policy::known_agents(config);
    match policy::load_for(&config.policies, agents.as_deref()) {
        Err(failure) => {
            let finding = DoctorFinding::new("policies", DoctorCheckStatus::Fail, failure.message);
            finding.hint(failure.hint.unwrap_or(hint))
        }
        Ok(Err(errors)) => bad(format!("{} in {}", counted(errors.errors(), "error"), config.policies.display())),
        Ok(Ok(loaded)) => {
            let outcomes = loaded.policy.test();
            let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
            let warnings = loaded.warnings.iter().filter(|fault| fault.severity == FaultSeverity::Warning).count();
            if failed > 0 {
                bad(format!("{failed} of {} failed", counted(outcomes.len(), "test")))
            } else if warnings > 0 {
                DoctorFinding::new(
                    "policies",
                    DoctorCheckStatus::Warn,
                    format!("the policies load, with {}", counted(warnings, "warning")),
                )
                .hint(hint)
            } else {
                let (rules, tests) = (counted(loaded.policy.rule_count(), "rule"), counted(outcomes.len(), "test"));
                DoctorFinding::new("policies", DoctorCheckStatus::Ok, format!("{rules} load, {tests} passed"))
            }
        }
    }
}

fn clock() -> DoctorFinding {
    let now = SystemClock.now();
    if now.as_millis() < BUILT_AFTER {
        return DoctorFinding::new(
            "clock",
            DoctorCheckStatus::Fail,
            format!("the clock says {now}, which is before this program was built"),
        )
        .hint("set the clock; deadlines and the audit log depend on it");
    }
    DoctorFinding::new("clock", DoctorCheckStatus::Ok, format!("the clock says {now}"))
}
