//! `sluice config`: the configuration in force, and where it comes from.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_config::{schema, word};
use sluice_core::policy::FileFault;

use super::policy;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::settings::ConfigFileArgs;

/// Show and check the configuration.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct ConfigCommand {
    #[command(subcommand)]
    verb: ConfigSubcommand,
}

#[derive(Debug, Subcommand)]
enum ConfigSubcommand {
    /// Show every value in force; secrets are hidden
    Show(ConfigShowArgs),
    /// Report every error in the file, the variables and their combination
    Check(ConfigCheckArgs),
    /// Print the path of the configuration file
    Path(ConfigPathArgs),
    /// Print the JSON Schema of sluice.yaml
    Schema(ConfigSchemaArgs),
}

impl ConfigCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        match self.verb {
            ConfigSubcommand::Show(show) => show.run(screen),
            ConfigSubcommand::Check(check) => check.run(screen),
            ConfigSubcommand::Path(path) => path.run(screen),
            ConfigSubcommand::Schema(schema) => schema.run(screen),
        }
    }
}

/// Show every value in force; secrets are hidden.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice config show\n  sluice config show --origin\n  sluice config show --json | jq '.listen.value'"
)]
pub(crate) struct ConfigShowArgs {
    #[command(flatten)]
    which: ConfigFileArgs,
    /// Show where each value comes from
    #[arg(long)]
    origin: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ConfigShowArgs {
    fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let settings = self.which.load(Vec::new())?;
        if settings.file.is_none() {
            screen.note("no sluice.yaml here: these are defaults and variables; create one: sluice init");
        }
        let (config, origins) = settings.or_fail(screen)?;
        if self.json {
            let entry = |key: &str, value| {
                let origin = origins.of(key);
                json!({"value": value, "origin": origin.kind(), "from": origin.to_string()})
            };
            let all: BTreeMap<&str, _> = config.shown().iter().map(|(key, v)| (key.as_str(), entry(key, v))).collect();
            screen.json(&all)?;
            return Ok(CommandExit::Ok);
        }
        for (key, value) in config.shown() {
            let value = word(value);
            if self.origin {
                screen.line(format_args!("{key:<28} {value:<36} {}", origins.of(key)))?;
            } else {
                screen.line(format_args!("{key:<28} {value}"))?;
            }
        }
        Ok(CommandExit::Ok)
    }
}

/// Report every error in the file, the variables and their combination.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice config check\n  sluice config check --json | jq '.faults[]'")]
pub(crate) struct ConfigCheckArgs {
    #[command(flatten)]
    which: ConfigFileArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ConfigCheckArgs {
    fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let settings = self.which.load(Vec::new())?;
        if settings.file.is_none() {
            return Err(no_file());
        }
        if self.json {
            let faults = settings.loaded.as_ref().map_or_else(|errors| errors.faults.as_slice(), |_| &[]);
            screen.json(&json!({"ok": faults.is_empty(), "file": settings.name(), "faults": faults}))?;
            return Ok(if faults.is_empty() { CommandExit::Ok } else { CommandExit::Failed });
        }
        let name = settings.name();
        let (config, _) = settings.or_fail(screen)?;
        // Policy files without any effect are reported.
        let agents = policy::known_agents(&config);
        if let Ok(Ok(loaded)) = policy::load_for(&config.policies, agents.as_deref()) {
            let is_idle = |fault: &&FileFault| ["policy.ignored_file", "policy.unknown_agent"].contains(&fault.code);
            loaded.warnings.iter().filter(is_idle).for_each(|fault| screen.fault(fault));
        }
        screen.line(format_args!("{name} is valid"))?;
        Ok(CommandExit::Ok)
    }
}

/// Print the path of the configuration file.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  $EDITOR \"$(sluice config path)\"")]
pub(crate) struct ConfigPathArgs {
    #[command(flatten)]
    which: ConfigFileArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ConfigPathArgs {
    fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let file = self.which.file()?.ok_or_else(no_file)?;
        let whole = std::path::absolute(&file).unwrap_or(file);
        if self.json {
            screen.json(&json!({"path": whole}))?;
        } else {
            screen.line(whole.display())?;
        }
        Ok(CommandExit::Ok)
    }
}

/// Print the JSON Schema of sluice.yaml.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice config schema > sluice.schema.json")]
pub(crate) struct ConfigSchemaArgs {}

impl ConfigSchemaArgs {
    fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        screen.raw(schema().as_bytes())?;
        Ok(CommandExit::Ok)
    }
}

fn no_file() -> CliError {
    CliError::new(CommandExit::NotFound, "no sluice.yaml here")
        .hint("create one: sluice init; or give its path: --config FILE")
}
