//! `sluice policy`: checks and changes the rules.

mod compare;
mod explain;
mod fmt;
mod live;
mod suggest;
mod templates;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use sluice_config::{Config, DatabaseLocation};
use sluice_core::AgentName;
use sluice_core::capability::Catalogue;
use sluice_core::policy::{FaultSeverity, FileFault, LoadedPolicy, Policy as Rules, PolicyLoadError};
use sluice_services::custom;
use sluice_services::policies::warn_unknown_agents;
use sluice_store::Store;

use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::files;
use crate::settings::ConfigFileArgs;

/// Check, test, explain and compare policies.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct PolicyCommand {
    #[command(subcommand)]
    verb: PolicySubcommand,
}

#[derive(Debug, Subcommand)]
enum PolicySubcommand {
    /// Report every error in every file
    Check(verify::PolicyCheckArgs),
    /// Rewrite files in the canonical format
    Fmt(fmt::PolicyFmtArgs),
    /// Run the tests in the policy files
    Test(verify::PolicyTestArgs),
    /// Show the verdict for one call, and why
    Explain(explain::PolicyExplainArgs),
    /// Show how the behaviour of one policy differs from another
    Diff(compare::PolicyDiffArgs),
    /// Apply policy files to the running gateway, all of them or none
    Apply(live::PolicyApplyArgs),
    /// List earlier policies, the latest first
    History(live::PolicyHistoryArgs),
    /// Apply an earlier policy again
    Revert(live::PolicyRevertArgs),
    /// Suggest rules from what observed agents did
    Suggest(suggest::PolicySuggestArgs),
    /// List policy templates, or write one
    Templates(templates::PolicyTemplatesArgs),
    /// Print the JSON Schema of policy files
    Schema(templates::PolicySchemaArgs),
}

impl PolicyCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        match self.verb {
            PolicySubcommand::Check(check) => check.run(screen),
            PolicySubcommand::Fmt(fmt) => fmt.run(screen),
            PolicySubcommand::Test(test) => test.run(screen),
            PolicySubcommand::Explain(explain) => explain.run(screen),
            PolicySubcommand::Diff(diff) => diff.run(screen),
            PolicySubcommand::Apply(apply) => apply.run(screen),
            PolicySubcommand::History(history) => history.run(screen),
            PolicySubcommand::Revert(revert) => revert.run(screen),
            PolicySubcommand::Suggest(suggest) => suggest.run(screen),
            PolicySubcommand::Templates(templates) => templates.run(screen),
            PolicySubcommand::Schema(schema) => schema.run(screen),
        }
    }
}

/// The policy path, for commands that take it as the first argument.
#[derive(Debug, Args)]
struct PolicyPathArgs {
    /// Policy directory, or one policy file
    #[arg(default_value = "policies", value_name = "PATH")]
    path: PathBuf,
}

/// The policy folder of a command: the one that was given, that of the configuration in use, or `policies` here.
fn folder_of(given: Option<PathBuf>, which: &ConfigFileArgs) -> Result<PathBuf, CliError> {
    if let Some(given) = given {
        return Ok(given);
    }
    let settings = which.load(Vec::new())?;
    if settings.file.is_none() {
        return Ok(PathBuf::from("policies"));
    }
    let name = settings.name();
    let (config, _) = settings.loaded.map_err(|errors| {
        CliError::new(CommandExit::Failed, format!("`{name}` cannot be used to find the policy folder"))
            .why(errors.faults.first().map_or_else(String::new, |fault| fault.message.clone()))
            .hint("see all problems: sluice config check; or name the folder")
    })?;
    // Shown as a person would write it.
    let here = std::env::current_dir().ok();
    let inside = here.and_then(|here| config.policies.strip_prefix(here).map(Path::to_owned).ok());
    Ok(inside.filter(|inside| !inside.as_os_str().is_empty()).unwrap_or(config.policies))
}

/// The built-in catalogue, and the custom capabilities that are declared beside the policy.
fn catalogue(policies: &Path) -> Result<Arc<Catalogue>, CliError> {
    let broken = |why: String| CliError::new(CommandExit::Failed, "the built-in catalogue is invalid").why(why);
    let mut known = Catalogue::builtin().map_err(|error| broken(error.to_string()))?;
    let scan = sluice_egress::leak::of_formats().map_err(|error| broken(error.to_string()))?;
    let beside = policies.parent().unwrap_or(policies).join("capabilities");
    custom::add_to(&mut known, &mut custom::find(&beside, &scan));
    Ok(Arc::new(known))
}

/// Reads and loads a policy, or returns all problems.
pub(crate) fn load(path: &Path) -> Result<Result<LoadedPolicy, PolicyLoadError>, CliError> {
    load_for(path, None)
}

/// The same for a gateway with these agents: a file that belongs to none of them gets a warning.
pub(crate) fn load_for(
    path: &Path,
    agents: Option<&[AgentName]>,
) -> Result<Result<LoadedPolicy, PolicyLoadError>, CliError> {
    let found = files::read(path)?;
    let mut ignored = found.warnings;
    ignored.extend(agents.into_iter().flat_map(|agents| warn_unknown_agents(&found.sources, agents)));
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
    Ok(Err(PolicyLoadError { faults: found.faults.into_iter().chain(rest).collect() }))
}

/// The agents of a gateway, from its database file; `None` if that cannot be read.
pub(crate) fn known_agents(config: &Config) -> Option<Vec<AgentName>> {
    let DatabaseLocation::File(path) = &config.database else { return None };
    let store = Store::open_to_read(path).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().ok()?;
    let agents = runtime.block_on(store.agents()).ok()?;
    Some(agents.into_iter().map(|agent| agent.name).collect())
}

/// The agents of the gateway with this policy folder, if the configuration in use names it.
fn agents_of(path: &Path) -> Option<Vec<AgentName>> {
    let (config, _) = ConfigFileArgs::default().load(Vec::new()).ok()?.loaded.ok()?;
    let same = |one: &Path, other: &Path| {
        let real = |path: &Path| path.canonicalize().ok();
        real(one).is_some_and(|one| Some(one) == real(other))
    };
    same(path, &config.policies).then(|| known_agents(&config)).flatten()
}

/// Loads a policy for a command that needs a valid one; problems are printed.
fn load_or_fail(path: &Path, screen: &CommandConsole) -> Result<Arc<Rules>, CliError> {
    match load(path)? {
        Ok(loaded) => Ok(loaded.policy),
        Err(errors) => {
            errors
                .faults
                .iter()
                .filter(|fault| fault.severity == FaultSeverity::Error)
                .for_each(|fault| screen.fault(fault));
            Err(refusal(path, &errors.faults))
        }
    }
}

/// The failure after all problems were printed.
fn refusal(path: &Path, faults: &[FileFault]) -> CliError {
    let count = |severity| faults.iter().filter(|fault| fault.severity == severity).count();
    let (errors, warnings) = (count(FaultSeverity::Error), count(FaultSeverity::Warning));
    let message = format!("{} in `{}`", counted(errors, "error"), path.display());
    let failure = CliError::new(CommandExit::Failed, message);
    if warnings > 0 { failure.why(format!("and {}", counted(warnings, "warning"))) } else { failure }
}

/// `1 error`, `2 errors`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
