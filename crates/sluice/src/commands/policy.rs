//! `sluice policy`: the rules, before they count and while they do.

mod compare;
mod explain;
mod fmt;
mod live;
mod start;
mod suggest;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use sluice_core::AgentName;
use sluice_core::capability::Catalogue;
use sluice_core::policy::{Fault, LoadErrors, Loaded, Policy as Rules, Severity};
use sluice_gateway::custom;

use sluice_gateway::config::{Config, Database};
use sluice_gateway::policies::of_no_agent;
use sluice_store::Store;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::screen::Screen;
use crate::settings::Which;

/// Check, test, explain and compare the rules agents live by.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Report every problem of every file
    Check(verify::Check),
    /// Rewrite files in their one canonical form
    Fmt(fmt::Fmt),
    /// Run the tests that stand in the files
    Test(verify::Test),
    /// Say what one call would get, and why
    Explain(explain::Explain),
    /// Show how one policy behaves differently from another
    Diff(compare::Diff),
    /// Put policy files in force at the running gateway, all of them or none
    Apply(live::Apply),
    /// List rules that were in force, the latest first
    History(live::History),
    /// Put rules in force that were before
    Revert(live::Revert),
    /// Propose rules for what observed agents did
    Suggest(suggest::Suggest),
    /// List policies to start from, or write one
    Templates(start::Templates),
    /// Print the JSON Schema of policy files
    Schema(start::Schema),
}

impl Policy {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Check(check) => check.run(screen),
            Verb::Fmt(fmt) => fmt.run(screen),
            Verb::Test(test) => test.run(screen),
            Verb::Explain(explain) => explain.run(screen),
            Verb::Diff(diff) => diff.run(screen),
            Verb::Apply(apply) => apply.run(screen),
            Verb::History(history) => history.run(screen),
            Verb::Revert(revert) => revert.run(screen),
            Verb::Suggest(suggest) => suggest.run(screen),
            Verb::Templates(templates) => templates.run(screen),
            Verb::Schema(schema) => schema.run(screen),
        }
    }
}

/// Where the files are, for commands that take them first.
#[derive(Debug, Args)]
struct Place {
    /// Policy directory, or one policy file
    #[arg(default_value = "policies", value_name = "PATH")]
    path: PathBuf,
}

/// What ships with the gateway, and the custom capabilities that are declared beside the policy.
fn catalogue(policies: &Path) -> Result<Arc<Catalogue>, Failure> {
    let broken = |why: String| Failure::new(Exit::Failed, "the built-in catalogue is damaged").why(why);
    let mut known = Catalogue::builtin().map_err(|error| broken(error.to_string()))?;
    let scan = sluice_gateway::rooms::leak::of_formats().map_err(|error| broken(error.to_string()))?;
    let beside = policies.parent().unwrap_or(policies).join("capabilities");
    custom::add_to(&mut known, &mut custom::find(&beside, &scan));
    Ok(Arc::new(known))
}

/// Reads and loads a policy, or gives all problems.
pub(crate) fn load(path: &Path) -> Result<Result<Loaded, LoadErrors>, Failure> {
    load_for(path, None)
}

/// The same for a gateway with these agents: a file that is named after none of them is warned of.
pub(crate) fn load_for(path: &Path, agents: Option<&[AgentName]>) -> Result<Result<Loaded, LoadErrors>, Failure> {
    let found = files::read(path)?;
    let mut ignored = found.warnings;
    ignored.extend(agents.into_iter().flat_map(|agents| of_no_agent(&found.sources, agents)));
    let loaded = match Rules::load(&found.sources, &catalogue(path)?) {
        Ok(mut loaded) => {
            loaded.warnings.extend(ignored);
            Ok(loaded)
        }
        Err(mut errors) => {
            errors.faults.extend(ignored);
            Err(errors)
        }
    };
    if found.faults.is_empty() {
        return Ok(loaded);
    }
    let rest = match loaded {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors.faults,
    };
    Ok(Err(LoadErrors { faults: found.faults.into_iter().chain(rest).collect() }))
}

/// The agents of a gateway, as its database file knows them; nothing if that cannot be read.
pub(crate) fn known_agents(config: &Config) -> Option<Vec<AgentName>> {
    let Database::File(path) = &config.database else { return None };
    let store = Store::open_to_read(path).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
    let agents = runtime.block_on(store.agents()).ok()?;
    Some(agents.into_iter().map(|agent| agent.name).collect())
}

/// The agents of the gateway whose policy folder this is, if the configuration that applies here names it.
fn agents_of(path: &Path) -> Option<Vec<AgentName>> {
    let (config, _) = Which::default().load(Vec::new()).ok()?.loaded.ok()?;
    let same = |one: &Path, other: &Path| {
        let real = |path: &Path| path.canonicalize().ok();
        real(one).is_some_and(|one| Some(one) == real(other))
    };
    same(path, &config.policies).then(|| known_agents(&config)).flatten()
}

/// Loads a policy for a command that needs a good one; problems are printed.
fn load_or_fail(path: &Path, screen: &Screen) -> Result<Arc<Rules>, Failure> {
    match load(path)? {
        Ok(loaded) => Ok(loaded.policy),
        Err(errors) => {
            errors
                .faults
                .iter()
                .filter(|fault| fault.severity == Severity::Error)
                .for_each(|fault| screen.fault(fault));
            Err(refusal(path, &errors.faults))
        }
    }
}

/// The line after all problems.
fn refusal(path: &Path, faults: &[Fault]) -> Failure {
    let count = |severity| faults.iter().filter(|fault| fault.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let message = format!("{} in `{}`", counted(errors, "error"), path.display());
    let failure = Failure::new(Exit::Failed, message);
    if warnings > 0 { failure.why(format!("and {}", counted(warnings, "warning"))) } else { failure }
}

/// `1 error`, `2 errors`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
