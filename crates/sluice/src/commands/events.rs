//! `sluice events`: events from the audit log as they are written.

use clap::{Args, Subcommand};
use sluice_core::audit::AuditEntry;

use super::audit::describe_entry;
use crate::client::{EventStreamPoll, GatewayArgs, StreamEvent};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit};

/// Follow the events of the gateway.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice events tail\n  sluice events tail --types 'hold.*,approval.*' --json | jq -c .fact"
)]
pub(crate) struct EventsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: EventsSubcommand,
}

#[derive(Debug, Subcommand)]
enum EventsSubcommand {
    /// Print events as they arrive
    Tail(EventsTailArgs),
}

/// Print events as they arrive.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice events tail\n  sluice events tail --types 'hold.*' --limit 10\n  sluice events tail --json | jq -c .fact"
)]
struct EventsTailArgs {
    /// Only these kinds, separated by commas, such as `hold.*`
    #[arg(long)]
    types: Option<String>,
    /// Resume after this event; default: start with new events
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print JSON: one audit entry per line
    #[arg(long)]
    json: bool,
}

impl EventsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let EventsSubcommand::Tail(tail) = self.verb;
        let client = self.reach.open_operator_client()?;
        let mut stream = client.listen(tail.types.as_deref(), tail.after.as_deref())?;
        let mut seen = 0;
        while tail.limit.is_none_or(|limit| seen < limit) {
            match stream.next(None)? {
                EventStreamPoll::Event(event) => tail.print(&event, screen)?,
                EventStreamPoll::Nothing => continue,
                EventStreamPoll::End => {
                    screen.note("the gateway ended the stream");
                    return Ok(CommandExit::Unreachable);
                }
            }
            seen += 1;
        }
        Ok(CommandExit::Ok)
    }
}

impl EventsTailArgs {
    fn print(&self, event: &StreamEvent, screen: &CommandConsole) -> Result<(), CliError> {
        if self.json {
            return Ok(screen.line(&event.data)?);
        }
        match serde_json::from_str::<AuditEntry>(&event.data) {
            Ok(entry) => screen.line(format_args!("{}  {}", entry.at, describe_entry(&entry)))?,
            // A later release may write events that this one does not know.
            Err(_) => screen.line(format_args!(
                "{}  {}",
                escape::escape_line(&event.kind),
                escape::escape_line(&event.data)
            ))?,
        }
        Ok(())
    }
}
