//! `sluice channels`: how people are reached, and whether that works.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::{Ask, Reach, encode, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;

/// List the channels to people and test them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice channels list\n  sluice channels test email"
)]
pub(crate) struct Channels {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the channels over which people are asked, and how well they work
    #[command(before_help = "Examples:\n  sluice channels list\n  sluice channels list --json")]
    List {
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
    /// Send a test message to every person a channel reaches
    #[command(before_help = "Examples:\n  sluice channels test email")]
    Test {
        /// Its name: telegram or email
        name: String,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

impl Channels {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { json } => {
                let list = client.whole("/v1/channels")?;
                if json {
                    screen.json(&list)?
                } else {
                    table(&list, screen)?
                }
                Ok(Exit::Ok)
            }
            Verb::Test { name, json } => {
                let tested = client.ask(&Ask::post(format!("/v1/channels/{}/test", encode(&name))))?;
                if json {
                    screen.json(&tested)?
                } else {
                    results(&tested, screen)?
                }
                Ok(if tested.get("ok") == Some(&Value::Bool(true)) { Exit::Ok } else { Exit::Failed })
            }
        }
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["channel", "people", "delivers", "hears", "why not"]);
    for entry in entries(list) {
        let why = [text(entry, "delivery_reason"), text(entry, "reason")].into_iter().find(|why| !why.is_empty());
        let why = crate::visible::line(why.unwrap_or("-"));
        let cell = |name| shown(entry, name);
        table.row(&[cell("name"), cell("people"), cell("delivery"), cell("state"), why]);
    }
    table.print(screen, "there is no channel: nobody is told anything; set up `telegram` or `email` in sluice.yaml")
}

fn results(tested: &Value, screen: &Screen) -> Result<(), Failure> {
    let mut table = Table::new(&["person", "place", "result", "why not"]);
    for one in tested.get("people").and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| shown(one, name);
        table.row(&[cell("person"), cell("place"), cell("state"), cell("reason")]);
    }
    table.print(screen, "nobody in `approvals.people` is reached over this channel")
}
