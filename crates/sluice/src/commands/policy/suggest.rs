//! `policy suggest`: suggests rules from what observed agents did, tested with the same calls.

use clap::Args;
use serde_json::json;
use sluice_core::{AgentName, Millis};

use crate::client::{ApiRequest, GatewayArgs, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::time_args::span;

/// Suggest rules from what agents in observe mode did.
///
/// Prints rules for each agent's file, and the verdicts of the current and the suggested rules for the same calls.
/// Nothing is changed.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice policy suggest\n  sluice policy suggest --since 8h --agent coder")]
pub(crate) struct PolicySuggestArgs {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Only calls of this period
    #[arg(long, value_parser = span, default_value = "24h")]
    since: Millis,
    /// Only calls of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl PolicySuggestArgs {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let body = json!({"seconds": self.since.as_millis() / 1000, "agent": self.agent});
        let found = self.reach.open_operator_client()?.send(&ApiRequest::post("/v1/policy/suggest").body(body))?;
        if self.json {
            screen.json(&found)?;
            return Ok(CommandExit::Ok);
        }
        if entries(&found).is_empty() {
            screen.note("no call was observed in that period; to observe an agent: sluice agents observe NAME");
        }
        for one in entries(&found) {
            let number = |name: &str| display_field(one, name);
            screen.line(format_args!(
                "# {}: the rules in force would have asked {} times and blocked {}",
                number("agent"),
                number("would_have_asked"),
                number("would_have_blocked")
            ))?;
            match (one.get("then_asked"), text_field(one, "rules")) {
                (_, "") => {
                    screen.line("# no rules can be suggested: these calls send something outside, or cannot be read")?
                }
                (Some(_), rules) => {
                    screen.line(format_args!(
                        "# with these rules: asked {} times, blocked {} (of {} recorded calls)",
                        number("then_asked"),
                        number("then_blocked"),
                        number("looked_at")
                    ))?;
                    screen.line(rules.trim_end())?;
                }
                (None, rules) => {
                    screen.line("# these rules could not be tested with the current files")?;
                    screen.line(rules.trim_end())?;
                }
            }
        }
        Ok(CommandExit::Ok)
    }
}
