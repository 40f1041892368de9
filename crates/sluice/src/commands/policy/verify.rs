//! `check` and `test`: validates policies.

use clap::Args;
use serde_json::json;
use sluice_core::policy::{FaultSeverity, PolicyLoadError, PolicyTestOutcome};

use super::{PolicyPathArgs, agents_of, counted, load_for, load_or_fail, refusal};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// Report every error in every file.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy check\n  sluice policy check policies/agents/bookkeeper.yaml\n  sluice policy check --json | jq '.faults[]'"
)]
pub(crate) struct PolicyCheckArgs {
    #[command(flatten)]
    place: PolicyPathArgs,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PolicyCheckArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let path = &self.place.path;
        let (policy, faults) = match load_for(path, agents_of(path).as_deref())? {
            Ok(loaded) => (Some(loaded.policy), loaded.warnings),
            Err(PolicyLoadError { faults }) => (None, faults),
        };
        let outcomes = policy.as_ref().map_or_else(Vec::new, |policy| policy.test());
        let failing = outcomes.iter().filter(|outcome| !outcome.passed).map(PolicyTestOutcome::as_fault);
        let faults: Vec<_> = faults.into_iter().chain(failing).collect();
        let failed = faults.iter().any(|fault| fault.severity == FaultSeverity::Error || self.strict);
        if self.json {
            screen.json(&json!({
                "ok": !failed,
                "agents": policy.as_ref().map(|policy| policy.agents().count()),
                "rules": policy.as_ref().map(|policy| policy.rule_count()),
                "tests": policy.as_ref().map(|policy| policy.test_count()),
                "version": policy.as_ref().map(|policy| policy.version()),
                "faults": faults,
            }))?;
            return Ok(if failed { CommandExit::Failed } else { CommandExit::Ok });
        }
        faults.iter().for_each(|fault| screen.fault(fault));
        if failed {
            return Err(refusal(path, &faults));
        }
        if let Some(policy) = policy {
            screen.line(format_args!(
                "{} is valid: {}, {}, {} passed",
                path.display(),
                counted(policy.rule_count(), "rule"),
                counted(policy.agents().count(), "agent file"),
                counted(policy.test_count(), "test")
            ))?;
            screen.note(format_args!("version {}", policy.version()));
        }
        Ok(CommandExit::Ok)
    }
}

/// Run the tests in the policy files.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy test\n  sluice policy test policies --json")]
pub(crate) struct PolicyTestArgs {
    #[command(flatten)]
    place: PolicyPathArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PolicyTestArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let policy = load_or_fail(&self.place.path, screen)?;
        let outcomes = policy.test();
        let total = outcomes.len();
        let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
        if self.json {
            screen.json(&json!({"ok": failed == 0, "tests": total, "failed": failed, "outcomes": outcomes}))?;
            return Ok(if failed == 0 { CommandExit::Ok } else { CommandExit::Failed });
        }
        outcomes.iter().filter(|outcome| !outcome.passed).for_each(|outcome| screen.fault(&outcome.as_fault()));
        if failed > 0 {
            return Err(CliError::new(CommandExit::Failed, format!("{failed} of {} failed", counted(total, "test"))));
        }
        let builtin = total - policy.test_count();
        screen.line(format_args!("{} passed, {builtin} of them built in", counted(total, "test")))?;
        Ok(CommandExit::Ok)
    }
}
