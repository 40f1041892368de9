//! `sluice events`: the record as it is written.

use clap::{Args, Subcommand};
use sluice_core::audit::Entry;

use super::audit::sentence;
use crate::client::{Event, Heard, Reach};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::visible;

/// Follow what happens.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice events tail\n  sluice events tail --types 'hold.*,approval.*' --json | jq -c .fact"
)]
pub(crate) struct Events {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Print events as they come
    Tail(Tail),
}

/// Print events as they come.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice events tail\n  sluice events tail --types 'hold.*' --limit 10\n  sluice events tail --json | jq -c .fact"
)]
struct Tail {
    /// Only these kinds, separated by commas; `hold.*` is one
    #[arg(long)]
    types: Option<String>,
    /// Go on after this event; otherwise from now on
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// End after so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// For machines: one entry of the record per line
    #[arg(long)]
    json: bool,
}

impl Events {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let Verb::Tail(tail) = self.verb;
        let client = self.reach.operator()?;
        let mut stream = client.listen(tail.types.as_deref(), tail.after.as_deref())?;
        let mut seen = 0;
        while tail.limit.is_none_or(|limit| seen < limit) {
            match stream.next(None)? {
                Heard::Event(event) => tail.print(&event, screen)?,
                Heard::Nothing => continue,
                Heard::End => {
                    screen.note("the gateway ended the stream");
                    return Ok(Exit::Unreachable);
                }
            }
            seen += 1;
        }
        Ok(Exit::Ok)
    }
}

impl Tail {
    fn print(&self, event: &Event, screen: &Screen) -> Result<(), Failure> {
        if self.json {
            return Ok(screen.line(&event.data)?);
        }
        match serde_json::from_str::<Entry>(&event.data) {
            Ok(entry) => screen.line(format_args!("{}  {}", entry.at, sentence(&entry)))?,
            // A later gateway may write what we do not know yet.
            Err(_) => screen.line(format_args!("{}  {}", visible::line(&event.kind), visible::line(&event.data)))?,
        }
        Ok(())
    }
}
