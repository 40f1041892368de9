//! `check` and `test`: is this policy in order.

use clap::Args;
use serde_json::json;
use sluice_core::policy::{LoadErrors, Outcome, Severity};

use super::{Place, agents_of, counted, load_for, load_or_fail, refusal};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Report every problem of every file.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy check\n  sluice policy check policies/agents/bookkeeper.yaml\n  sluice policy check --json | jq '.faults[]'"
)]
pub(crate) struct Check {
    #[command(flatten)]
    place: Place,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let path = &self.place.path;
        let (policy, faults) = match load_for(path, agents_of(path).as_deref())? {
            Ok(loaded) => (Some(loaded.policy), loaded.warnings),
            Err(LoadErrors { faults }) => (None, faults),
        };
        let outcomes = policy.as_ref().map_or_else(Vec::new, |policy| policy.test());
        let failing = outcomes.iter().filter(|outcome| !outcome.passed).map(Outcome::as_fault);
        let faults: Vec<_> = faults.into_iter().chain(failing).collect();
        let failed = faults.iter().any(|fault| fault.severity == Severity::Error || self.strict);
        if self.json {
            screen.json(&json!({
                "ok": !failed,
                "agents": policy.as_ref().map(|policy| policy.agents().count()),
                "rules": policy.as_ref().map(|policy| policy.rules()),
                "tests": policy.as_ref().map(|policy| policy.tests()),
                "version": policy.as_ref().map(|policy| policy.version()),
                "faults": faults,
            }))?;
            return Ok(if failed { Exit::Failed } else { Exit::Ok });
        }
        faults.iter().for_each(|fault| screen.fault(fault));
        if failed {
            return Err(refusal(path, &faults));
        }
        if let Some(policy) = policy {
            screen.line(format_args!(
                "{} is in order: {}, {}, {} passed",
                path.display(),
                counted(policy.rules(), "rule"),
                counted(policy.agents().count(), "agent file"),
                counted(policy.tests(), "test")
            ))?;
            screen.note(format_args!("version {}", policy.version()));
        }
        Ok(Exit::Ok)
    }
}

/// Run the tests that stand in the files.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy test\n  sluice policy test policies --json")]
pub(crate) struct Test {
    #[command(flatten)]
    place: Place,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Test {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let policy = load_or_fail(&self.place.path, screen)?;
        let outcomes = policy.test();
        let total = outcomes.len();
        let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
        if self.json {
            screen.json(&json!({"ok": failed == 0, "tests": total, "failed": failed, "outcomes": outcomes}))?;
            return Ok(if failed == 0 { Exit::Ok } else { Exit::Failed });
        }
        outcomes.iter().filter(|outcome| !outcome.passed).for_each(|outcome| screen.fault(&outcome.as_fault()));
        if failed > 0 {
            return Err(Failure::new(Exit::Failed, format!("{failed} of {} failed", counted(total, "test"))));
        }
        let builtin = total - policy.tests();
        screen.line(format_args!("{} passed, {builtin} of them built in", counted(total, "test")))?;
        Ok(Exit::Ok)
    }
}
