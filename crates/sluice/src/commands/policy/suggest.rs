//! `policy suggest`: rules for what observed agents did, tried on the same calls.

use clap::Args;
use serde_json::json;
use sluice_core::{AgentName, Span};

use crate::client::{Ask, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::span;

/// Propose rules for what agents in observe mode did.
///
/// Prints rules for each agent's file, and what the rules in force and the proposed ones say to the same calls. Nothing is
/// changed.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy suggest\n  sluice policy suggest --since 8h --agent coder")]
pub(crate) struct Suggest {
    #[command(flatten)]
    reach: Reach,
    /// Calls not older than this
    #[arg(long, value_parser = span, default_value = "24h")]
    since: Span,
    /// Only of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Suggest {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let body = json!({"seconds": self.since.as_millis() / 1000, "agent": self.agent});
        let found = self.reach.operator()?.ask(&Ask::post("/v1/policy/suggest").body(body))?;
        if self.json {
            screen.json(&found)?;
            return Ok(Exit::Ok);
        }
        if entries(&found).is_empty() {
            screen.note("no call was observed in that time: sluice agents observe NAME");
        }
        for one in entries(&found) {
            let number = |name: &str| shown(one, name);
            screen.line(format_args!(
                "# {}: the rules in force would have asked {} times, blocked {}",
                number("agent"),
                number("would_have_asked"),
                number("would_have_blocked")
            ))?;
            match (one.get("then_asked"), text(one, "rules")) {
                (_, "") => screen.line("# nothing can be proposed: these calls leave the house, or cannot be read")?,
                (Some(_), rules) => {
                    screen.line(format_args!(
                        "# with these rules: asked {} times, blocked {} (of {} calls that were kept)",
                        number("then_asked"),
                        number("then_blocked"),
                        number("looked_at")
                    ))?;
                    screen.line(rules.trim_end())?;
                }
                (None, rules) => {
                    screen.line("# these rules could not be tried with the files as they are")?;
                    screen.line(rules.trim_end())?;
                }
            }
        }
        Ok(Exit::Ok)
    }
}
