//! `sluice clock`: whether the gateway follows the clock of its machine, and an admin's word that it is right.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::{Ask, Reach, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Show whether the clock is followed, and set it right.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice clock\n  sluice clock repair --yes")]
pub(crate) struct Clock {
    #[command(flatten)]
    reach: Reach,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Go on from what the clock of the machine says now, on record
    #[command(before_help = "Examples:\n  sluice clock repair --yes")]
    Repair {
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

impl Clock {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        let (clock, json) = match self.verb {
            None => (client.ask(&Ask::get("/v1/clock"))?, self.json),
            Some(Verb::Repair { yes, json }) => {
                if !yes {
                    screen.ask(
                        "Is the clock of the gateway's machine right now? Deadlines are counted by it.",
                        "--yes",
                    )?;
                }
                (client.ask(&Ask::post("/v1/clock/repair"))?, self.json || json)
            }
        };
        if json {
            screen.json(&clock)?;
            return Ok(Exit::Ok);
        }
        screen.line(format_args!("clock        {}", shown(&clock, "standing")))?;
        screen.line(format_args!("gateway      {}", shown(&clock, "now")))?;
        if !text(&clock, "wall").is_empty() {
            screen.line(format_args!("machine      {}", shown(&clock, "wall")))?;
            screen.note("the gateway goes on with the time that really passed, and forgets nothing meanwhile");
            screen.note("set the machine's clock right; or, if it is right now: sluice clock repair");
        }
        if clock.get("database_ahead_ms").is_some_and(Value::is_u64) {
            screen.note("the database has seen a later time, and nothing happens before that: sluice clock repair");
        }
        if clock.get("writes_ahead").and_then(Value::as_u64).is_some_and(|writes| writes > 0) {
            let writes = shown(&clock, "writes_ahead");
            screen.note(format_args!("{writes} open writes have times of a clock that was ahead: sluice holds list"));
        }
        Ok(Exit::Ok)
    }
}
