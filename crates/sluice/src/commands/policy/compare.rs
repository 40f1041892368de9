//! `diff`: how one policy behaves differently from another.

use std::path::PathBuf;

use clap::Args;
use owo_colors::{OwoColorize as _, Style};
use sluice_core::policy::{Change, Diff as Differences, Direction};

use super::{counted, load_or_fail};
use crate::failure::{Exit, Failure};
use crate::screen::{Screen, tier};

/// Show how one policy behaves differently from another.
///
/// Compares every agent with a file, and all others together, over every known capability, and puts the
/// questions of all tests to both. The tier shown is the one that holds when no condition does; in brackets
/// stands what conditions can make of it.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy diff policies.old policies\n  sluice policy diff policies.old policies --deny-looser"
)]
pub(crate) struct Diff {
    /// Policy directory before
    old: PathBuf,
    /// Policy directory after
    new: PathBuf,
    /// Fail if anything gets looser
    #[arg(long)]
    deny_looser: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let (old, new) = (load_or_fail(&self.old, screen)?, load_or_fail(&self.new, screen)?);
        let diff = old.diff(&new);
        if self.json {
            screen.json(&diff)?
        } else {
            show(&diff, screen)?
        }
        let looser = diff.count(Direction::Looser)
            + diff.count(Direction::Mixed)
            + diff.answers.iter().filter(|answer| answer.new < answer.old).count();
        if self.deny_looser && looser > 0 {
            return Err(Failure::new(Exit::Failed, format!("the policy gets looser in {}", counted(looser, "place"))));
        }
        Ok(Exit::Ok)
    }
}

fn show(diff: &Differences, screen: &Screen) -> Result<(), Failure> {
    for Change { agent, capability, direction, old, new } in &diff.changes {
        let agent = agent.as_ref().map_or("any other agent", |agent| agent.as_str());
        let style = match direction {
            Direction::Looser | Direction::Mixed => Style::new().red().bold(),
            Direction::Stricter => Style::new().green(),
            Direction::Conditions => Style::new().yellow(),
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
        screen.note("both behave alike");
        return Ok(());
    }
    screen.note(format_args!(
        "{} looser, {} mixed, {} under other conditions, {} stricter; {} answered differently",
        diff.count(Direction::Looser),
        diff.count(Direction::Mixed),
        diff.count(Direction::Conditions),
        diff.count(Direction::Stricter),
        counted(diff.answers.len(), "test")
    ));
    Ok(())
}
