//! `diff`: how one policy behaves differently from another.

use std::path::{Path, PathBuf};

use clap::Args;
use owo_colors::{OwoColorize as _, Style};
use sluice_core::Span;
use sluice_core::policy::{Change, Diff as Differences, Direction};

use super::{counted, live, load_or_fail};
use crate::client::Reach;
use crate::failure::{Exit, Failure};
use crate::screen::{Screen, tier};
use crate::span::span;

/// Show how one policy behaves differently from another.
///
/// Compares every agent with a file, and all others together, over every known capability, and puts the
/// questions of all tests to both. The tier shown is the one that holds when no condition does; in brackets
/// stands what conditions can make of it.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice policy diff policies.old policies\n  sluice policy diff policies.old policies --deny-looser\n  sluice policy diff policies --replay 7d"
)]
pub(crate) struct Diff {
    /// Policy directory before; with --replay the one to try
    old: PathBuf,
    /// Policy directory after
    #[arg(required_unless_present = "replay", conflicts_with = "replay")]
    new: Option<PathBuf>,
    /// Compare with the running gateway instead: over its writes of so long
    #[arg(long, value_name = "SPAN", value_parser = span)]
    replay: Option<Span>,
    #[command(flatten)]
    reach: Reach,
    /// Fail if anything gets looser
    #[arg(long)]
    deny_looser: bool,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Diff {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let looser = match (self.replay, &self.new) {
            (Some(span), _) => live::replay(&self.reach, &self.old, span, self.json, screen)?,
            (None, Some(new)) => self.files(new, screen)?,
            (None, None) => return Err(Failure::new(Exit::Usage, "name two directories, or --replay SPAN")),
        };
        if self.deny_looser && looser > 0 {
            return Err(Failure::new(Exit::Failed, format!("the policy gets looser in {}", counted(looser, "place"))));
        }
        Ok(Exit::Ok)
    }

    /// Compares two directories; gives in how many places the second one is looser.
    fn files(&self, new: &Path, screen: &Screen) -> Result<usize, Failure> {
        let (old, new) = (load_or_fail(&self.old, screen)?, load_or_fail(new, screen)?);
        let diff = old.diff(&new);
        if self.json {
            screen.json(&diff)?
        } else {
            show(&diff, screen)?
        }
        Ok(diff.count(Direction::Looser)
            + diff.count(Direction::Mixed)
            + diff.answers.iter().filter(|answer| answer.new < answer.old).count())
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
