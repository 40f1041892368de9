//! `sluice config`: what the gateway would run with, and why.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::json;
use sluice_core::policy::Fault;
use sluice_gateway::config::{schema, word};

use super::policy;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::settings::Which;

/// Show and check the configuration.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show every value in force; secrets stay hidden
    Show(Show),
    /// Report every problem of the file, the variables and their combination
    Check(Check),
    /// Print where the file is
    Path(FilePath),
    /// Print the JSON Schema of sluice.yaml
    Schema(Schema),
}

impl Config {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Show(show) => show.run(screen),
            Verb::Check(check) => check.run(screen),
            Verb::Path(path) => path.run(screen),
            Verb::Schema(schema) => schema.run(screen),
        }
    }
}

/// Show every value in force; secrets stay hidden.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice config show\n  sluice config show --origin\n  sluice config show --json | jq '.listen.value'"
)]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,
    /// Say where each value comes from
    #[arg(long)]
    origin: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Show {
    fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let settings = self.which.load(Vec::new())?;
        if settings.file.is_none() {
            screen.note("there is no sluice.yaml here: these are defaults and variables; sluice init makes one");
        }
        let (config, origins) = settings.or_fail(screen)?;
        if self.json {
            let entry = |key: &str, value| {
                let origin = origins.of(key);
                json!({"value": value, "origin": origin.kind(), "from": origin.to_string()})
            };
            let all: BTreeMap<&str, _> = config.shown().iter().map(|(key, v)| (key.as_str(), entry(key, v))).collect();
            screen.json(&all)?;
            return Ok(Exit::Ok);
        }
        for (key, value) in config.shown() {
            let value = word(value);
            if self.origin {
                screen.line(format_args!("{key:<28} {value:<36} {}", origins.of(key)))?;
            } else {
                screen.line(format_args!("{key:<28} {value}"))?;
            }
        }
        Ok(Exit::Ok)
    }
}

/// Report every problem of the file, the variables and their combination.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice config check\n  sluice config check --json | jq '.faults[]'")]
pub(crate) struct Check {
    #[command(flatten)]
    which: Which,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Check {
    fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let settings = self.which.load(Vec::new())?;
        if settings.file.is_none() {
            return Err(no_file());
        }
        if self.json {
            let faults = settings.loaded.as_ref().map_or_else(|errors| errors.faults.as_slice(), |_| &[]);
            screen.json(&json!({"ok": faults.is_empty(), "file": settings.name(), "faults": faults}))?;
            return Ok(if faults.is_empty() { Exit::Ok } else { Exit::Failed });
        }
        let name = settings.name();
        let (config, _) = settings.or_fail(screen)?;
        // Files beside it that do nothing are said to do nothing.
        let agents = policy::known_agents(&config);
        if let Ok(Ok(loaded)) = policy::load_for(&config.policies, agents.as_deref()) {
            let is_idle = |fault: &&Fault| ["policy.ignored_file", "policy.unknown_agent"].contains(&fault.code);
            loaded.warnings.iter().filter(is_idle).for_each(|fault| screen.fault(fault));
        }
        screen.line(format_args!("{name} is in order"))?;
        Ok(Exit::Ok)
    }
}

/// Print where the file is.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  $EDITOR \"$(sluice config path)\"")]
pub(crate) struct FilePath {
    #[command(flatten)]
    which: Which,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl FilePath {
    fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let file = self.which.file()?.ok_or_else(no_file)?;
        let whole = std::path::absolute(&file).unwrap_or(file);
        if self.json {
            screen.json(&json!({"path": whole}))?;
        } else {
            screen.line(whole.display())?;
        }
        Ok(Exit::Ok)
    }
}

/// Print the JSON Schema of sluice.yaml.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice config schema > sluice.schema.json")]
pub(crate) struct Schema {}

impl Schema {
    fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        screen.raw(schema().as_bytes())?;
        Ok(Exit::Ok)
    }
}

fn no_file() -> Failure {
    Failure::new(Exit::NotFound, "there is no sluice.yaml here")
        .hint("make one: sluice init; or name one: --config FILE")
}
