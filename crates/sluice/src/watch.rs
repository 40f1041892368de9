//! Lists, and lists that stay: printed once, or again whenever something changes.
//!
//! Promise: a list that stays outlives its gateway: while nobody answers it says so, and goes on when somebody does.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::client::{Client, Heard, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How long nothing needs to happen before the list is drawn again.
const EVERY: Duration = Duration::from_secs(2);
/// How long events that come together are waited for.
const TOGETHER: Duration = Duration::from_millis(50);

/// How a list is shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Listing {
    /// Most entries
    #[arg(long, default_value = "50", value_name = "N")]
    pub(crate) limit: usize,
    /// Stay, and show it again when something changes
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows a list as asked.
pub(crate) fn show(
    client: &Client,
    screen: &Screen,
    listing: Listing,
    fetch: impl Fn() -> Result<Value, Failure>,
    draw: impl Fn(&Value) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let print = |list: &Value| if listing.json { screen.json(list).map_err(Failure::from) } else { draw(list) };
    if !listing.watch {
        print(&fetch()?)?;
        return Ok(Exit::Ok);
    }
    let mut stream = None;
    let mut before: Option<Value> = None;
    let mut is_away = false;
    loop {
        // Listening comes before looking, so that no change falls between the two.
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
            screen.note("the gateway answers again");
            is_away = false;
        }
        if before.as_ref() != Some(&list) {
            if before.is_some() || screen.is_terminal() {
                screen.again()?;
            }
            print(&list)?;
            before = Some(list);
        }
        let heard = match stream.as_mut() {
            Some(stream) => stream.next(Some(EVERY)),
            None => {
                client.pause(EVERY);
                Ok(Heard::Nothing)
            }
        };
        match heard {
            Ok(Heard::Nothing) => {}
            // What comes together is shown together.
            Ok(Heard::Event(_)) => {
                while let Some(Ok(Heard::Event(_))) = stream.as_mut().map(|s| s.next(Some(TOGETHER))) {}
            }
            Ok(Heard::End) | Err(_) => stream = None,
        }
    }
}

/// Whether a failure is that of a gateway that is not there now and may come back.
fn is_passing(failure: &Failure) -> bool {
    let code = failure.problem.as_deref().map(|problem| text(problem, "code"));
    failure.exit == Exit::Unreachable || matches!(code, Some("gateway.starting" | "gateway.stopping"))
}

/// Does something with each id; goes on after a failure, and ends with the first one.
pub(crate) fn each(
    screen: &Screen,
    ids: &[String],
    mut act: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let mut first = None;
    for id in ids {
        match (act(id), &first) {
            (Ok(()), _) => {}
            // The first one is told at the end, as of any command.
            (Err(failure), None) => first = Some(failure),
            (Err(failure), Some(_)) => screen.failure(&failure),
        }
    }
    first.map_or(Ok(Exit::Ok), Err)
}
