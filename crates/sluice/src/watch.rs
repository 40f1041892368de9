//! Lists, and watched lists: printed once, or again whenever something changes.
//!
//! Promise: a watched list outlives its gateway: while no gateway responds it says so, and it continues when one does.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::client::{EventStreamPoll, GatewayClient, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// How long to wait without an event before the list is printed again.
const EVERY: Duration = Duration::from_secs(2);
/// How long to wait for further events.
const TOGETHER: Duration = Duration::from_millis(50);

/// Options of a list.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListArgs {
    /// Maximum number of entries
    #[arg(long, default_value = "50", value_name = "N")]
    pub(crate) limit: usize,
    /// Keep running and print the list again when something changes
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// Print the API response as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a list with these options.
pub(crate) fn show(
    client: &GatewayClient,
    screen: &CommandConsole,
    listing: ListArgs,
    fetch: impl Fn() -> Result<Value, CliError>,
    draw: impl Fn(&Value) -> Result<(), CliError>,
) -> Result<CommandExit, CliError> {
    let print = |list: &Value| if listing.json { screen.json(list).map_err(CliError::from) } else { draw(list) };
    if !listing.watch {
        print(&fetch()?)?;
        return Ok(CommandExit::Ok);
    }
    let mut stream = None;
    let mut before: Option<Value> = None;
    let mut is_away = false;
    loop {
        // The stream is opened before the list is read, so that no change is missed between the two.
        if stream.is_none() {
            stream = client.listen(None, None).ok();
        }
        let list = match fetch() {
            Ok(list) => list,
            Err(failure) if before.is_some() && is_passing(&failure) => {
                if !is_away {
                    screen.note(format_args!("{}; trying again until it does", failure.message));
                }
                (is_away, stream) = (true, None);
                client.pause(EVERY);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if is_away {
            screen.note("the gateway responds again");
            is_away = false;
        }
        if before.as_ref() != Some(&list) {
            if before.is_some() || screen.is_terminal() {
                screen.redraw()?;
            }
            print(&list)?;
            before = Some(list);
        }
        let heard = match stream.as_mut() {
            Some(stream) => stream.next(Some(EVERY)),
            None => {
                client.pause(EVERY);
                Ok(EventStreamPoll::Nothing)
            }
        };
        match heard {
            Ok(EventStreamPoll::Nothing) => {}
            // Events that arrive together cause one update.
            Ok(EventStreamPoll::Event(_)) => {
                while let Some(Ok(EventStreamPoll::Event(_))) = stream.as_mut().map(|s| s.next(Some(TOGETHER))) {}
            }
            Ok(EventStreamPoll::End) | Err(_) => stream = None,
        }
    }
}

/// Whether the failure is temporary: the gateway is not there now and may come back.
fn is_passing(failure: &CliError) -> bool {
    let code = failure.problem.as_deref().map(|problem| text_field(problem, "code"));
    failure.exit == CommandExit::Unreachable || matches!(code, Some("gateway.starting" | "gateway.stopping"))
}

/// Runs an action for each id; continues after a failure, and returns the first failure.
pub(crate) fn each(
    screen: &CommandConsole,
    ids: &[String],
    mut act: impl FnMut(&str) -> Result<(), CliError>,
) -> Result<CommandExit, CliError> {
    let mut first = None;
    for id in ids {
        match (act(id), &first) {
            (Ok(()), _) => {}
            // The first failure is reported at the end, as for any command.
            (Err(failure), None) => first = Some(failure),
            (Err(failure), Some(_)) => screen.failure(&failure),
        }
    }
    first.map_or(Ok(CommandExit::Ok), Err)
}
