//! `sluice complete`: live ids for the shell. Hidden; the generated completions call it.
//!
//! Promise: it never asks, never fails loudly and prints nothing but ids and names.

use clap::{Args, ValueEnum};

use crate::client::{Kind, Reach, entries, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Print ids that start like this.
#[derive(Debug, Args)]
pub(crate) struct Complete {
    #[command(flatten)]
    reach: Reach,
    /// Of what: approvals, holds, calls, keys, alerts, allowances, agents
    kind: String,
    /// What was typed so far
    #[arg(default_value = "")]
    start: String,
}

impl Complete {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        for id in self.found().unwrap_or_default() {
            screen.line(id)?;
        }
        Ok(Exit::Ok)
    }

    fn found(&self) -> Result<Vec<String>, Failure> {
        let client = self.reach.operator()?;
        if let Ok(kind) = Kind::from_str(&self.kind, false) {
            return client.starting(kind, &self.start);
        }
        if self.kind != "agents" {
            return Ok(Vec::new());
        }
        let agents = client.whole("/v1/agents")?;
        let names = entries(&agents).iter().map(|agent| text(agent, "name").to_owned());
        Ok(names.filter(|name| name.starts_with(&self.start)).collect())
    }
}
