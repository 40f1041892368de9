//! `sluice channels`: the channels that reach people, and whether they work.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::{ApiRequest, GatewayArgs, display_field, encode, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;

/// List and test the channels that reach people.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice channels list\n  sluice channels test email"
)]
pub(crate) struct ChannelsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: ChannelsSubcommand,
}

#[derive(Debug, Subcommand)]
enum ChannelsSubcommand {
    /// List the channels over which people are asked, and whether they work
    #[command(before_help = "Examples:\n  sluice channels list\n  sluice channels list --json")]
    List {
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Send a test message to every person a channel reaches
    #[command(before_help = "Examples:\n  sluice channels test email")]
    Test {
        /// Name of the channel: telegram or email
        name: String,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

impl ChannelsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        match self.verb {
            ChannelsSubcommand::List { json } => {
                let list = client.get_all("/v1/channels")?;
                if json {
                    screen.json(&list)?
                } else {
                    table(&list, screen)?
                }
                Ok(CommandExit::Ok)
            }
            ChannelsSubcommand::Test { name, json } => {
                let tested = client.send(&ApiRequest::post(format!("/v1/channels/{}/test", encode(&name))))?;
                if json {
                    screen.json(&tested)?
                } else {
                    results(&tested, screen)?
                }
                Ok(if tested.get("ok") == Some(&Value::Bool(true)) { CommandExit::Ok } else { CommandExit::Failed })
            }
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["channel", "people", "sending", "receiving", "reason"]);
    for entry in entries(list) {
        let why =
            [text_field(entry, "delivery_reason"), text_field(entry, "reason")].into_iter().find(|why| !why.is_empty());
        let why = crate::escape::escape_line(why.unwrap_or("-"));
        let cell = |name| display_field(entry, name);
        table.row(&[cell("name"), cell("people"), cell("delivery"), cell("state"), why]);
    }
    table.print(screen, "no channels: nobody is notified; set up `telegram` or `email` in sluice.yaml")
}

fn results(tested: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["person", "address", "result", "reason"]);
    for one in tested.get("people").and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| display_field(one, name);
        table.row(&[cell("person"), cell("place"), cell("state"), cell("reason")]);
    }
    table.print(screen, "this channel reaches nobody in `approvals.people`")
}
