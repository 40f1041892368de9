//! `diff`: how the behaviour of one policy differs from another.

use std::path::{Path, PathBuf};

use clap::Args;
use owo_colors::{OwoColorize as _, Style};
use sluice_core::Millis;
use sluice_core::policy::{ChangeDirection, PolicyChange, PolicyDiff as Differences};

use super::{counted, live, load_or_fail};
use crate::client::GatewayArgs;
use crate::console::{CommandConsole, tier};
use crate::failure::{CliError, CommandExit};
use crate::time_args::span;

/// Show how the behaviour of one policy differs from another.
///
/// Compares every agent that has a file, and all other agents together, for every known capability, and runs the
/// cases of all tests against both policies. The tier shown applies when no condition holds; the tiers that conditions
/// can lead to are in brackets.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy diff policies.old policies\n  sluice policy diff policies.old policies --deny-looser\n  sluice policy diff policies --replay 7d"
)]
pub(crate) struct PolicyDiffArgs {
    /// Policy directory before the change; with --replay the one to test
    old: PathBuf,
    /// Policy directory after the change
    #[arg(required_unless_present = "replay", conflicts_with = "replay")]
    new: Option<PathBuf>,
    /// Compare with the running gateway instead, using its writes of this period
    #[arg(long, value_name = "SPAN", value_parser = span)]
    replay: Option<Millis>,
    #[command(flatten)]
    reach: GatewayArgs,
    /// Fail if anything becomes looser
    #[arg(long)]
    deny_looser: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl PolicyDiffArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let looser = match (self.replay, &self.new) {
            (Some(span), _) => live::replay(&self.reach, &self.old, span, self.json, screen)?,
            (None, Some(new)) => self.files(new, screen)?,
            (None, None) => return Err(CliError::new(CommandExit::Usage, "give two directories, or --replay SPAN")),
        };
        if self.deny_looser && looser > 0 {
            return Err(CliError::new(
                CommandExit::Failed,
                format!("the policy becomes looser in {}", counted(looser, "place")),
            ));
        }
        Ok(CommandExit::Ok)
    }

    /// Compares two directories; returns in how many places the second one is looser.
    fn files(&self, new: &Path, screen: &CommandConsole) -> Result<usize, CliError> {
        let (old, new) = (load_or_fail(&self.old, screen)?, load_or_fail(new, screen)?);
        let diff = old.diff(&new);
        if self.json {
            screen.json(&diff)?
        } else {
            show(&diff, screen)?
        }
        Ok(diff.count(ChangeDirection::Looser)
            + diff.count(ChangeDirection::Mixed)
            + diff.answers.iter().filter(|answer| answer.new < answer.old).count())
    }
}

fn show(diff: &Differences, screen: &CommandConsole) -> Result<(), CliError> {
    for PolicyChange { agent, capability, direction, old, new } in &diff.changes {
        let agent = agent.as_ref().map_or("any other agent", |agent| agent.as_str());
        let style = match direction {
            ChangeDirection::Looser | ChangeDirection::Mixed => Style::new().red().bold(),
            ChangeDirection::Stricter => Style::new().green(),
            ChangeDirection::Conditions => Style::new().yellow(),
        };
        let word = format!("{:<10}", direction.as_str());
        screen.line(format_args!("{} {agent}  {capability}: {old} -> {new}", word.style(style)))?;
    }
    for answer in &diff.answers {
        let (old, new) = (tier(answer.old), tier(answer.new));
        screen.line(format_args!(
            "test       {}  {}: {old} -> {new}  ({})",
            answer.agent, answer.capability, answer.test
        ))?;
    }
    if diff.is_empty() {
        screen.note("no differences in behaviour");
        return Ok(());
    }
    screen.note(format_args!(
        "{} looser, {} mixed, {} under other conditions, {} stricter; {} answered differently",
        diff.count(ChangeDirection::Looser),
        diff.count(ChangeDirection::Mixed),
        diff.count(ChangeDirection::Conditions),
        diff.count(ChangeDirection::Stricter),
        counted(diff.answers.len(), "test")
    ));
    Ok(())
}
