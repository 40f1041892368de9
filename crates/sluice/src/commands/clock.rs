//! `sluice clock`: whether the gateway follows the clock of its machine, and an admin's confirmation that it is right.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::{ApiRequest, GatewayArgs, display_field, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// Show whether the gateway follows the machine's clock, and correct it.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice clock\n  sluice clock repair --yes")]
pub(crate) struct ClockCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    verb: Option<ClockSubcommand>,
}

#[derive(Debug, Subcommand)]
enum ClockSubcommand {
    /// Accept the machine's current time as right; this is recorded in the audit log
    #[command(before_help = "Examples:\n  sluice clock repair --yes")]
    Repair {
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

impl ClockCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        let (clock, json) = match self.verb {
            None => (client.send(&ApiRequest::get("/v1/clock"))?, self.json),
            Some(ClockSubcommand::Repair { yes, json }) => {
                if !yes {
                    screen.confirm(
                        "Is the clock of the gateway's machine correct now? Deadlines depend on it.",
                        "--yes",
                    )?;
                }
                (client.send(&ApiRequest::post("/v1/clock/repair"))?, self.json || json)
            }
        };
        if json {
            screen.json(&clock)?;
            return Ok(CommandExit::Ok);
        }
        screen.line(format_args!("clock        {}", display_field(&clock, "standing")))?;
        screen.line(format_args!("gateway      {}", display_field(&clock, "now")))?;
        if !text_field(&clock, "wall").is_empty() {
            screen.line(format_args!("machine      {}", display_field(&clock, "wall")))?;
            screen.note("the gateway counts the time that really passed, and keeps all data meanwhile");
            screen.note("correct the machine's clock; or, if it is correct: sluice clock repair");
        }
        if clock.get("database_ahead_ms").is_some_and(Value::is_u64) {
            screen.note("the database contains a later time, and nothing is sent before that time; to correct it: sluice clock repair");
        }
        if clock.get("writes_ahead").and_then(Value::as_u64).is_some_and(|writes| writes > 0) {
            let writes = display_field(&clock, "writes_ahead");
            screen.note(format_args!(
                "{writes} open writes have times from a clock that was ahead; see them: sluice holds list"
            ));
        }
        Ok(CommandExit::Ok)
    }
}
