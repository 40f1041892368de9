//! `sluice egress`: egress connections, their usage, and resetting them.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{ApiRequest, GatewayArgs, display_field, encode, entries};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::watch::{self, ListArgs};

/// List egress connections, show their usage, reset them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice egress list\n  sluice egress show crm\n  sluice egress reset crm"
)]
pub(crate) struct EgressCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: EgressSubcommand,
}

#[derive(Debug, Subcommand)]
enum EgressSubcommand {
    /// List egress connections with their usage
    #[command(before_help = "Examples:\n  sluice egress list")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show the limits and the state of a connection
    #[command(before_help = "Examples:\n  sluice egress show crm")]
    Show {
        /// Name of the connection
        name: String,
    },
    /// Reset the usage of a connection and close its circuit breaker
    #[command(before_help = "Examples:\n  sluice egress reset crm")]
    Reset {
        /// Names of the connections
        #[arg(required = true)]
        names: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl EgressCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        match self.verb {
            EgressSubcommand::List { listing } => {
                let fetch = || client.get_all("/v1/egress");
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            EgressSubcommand::Show { name } => {
                screen.json(&client.send(&ApiRequest::get(format!("/v1/egress/{}", encode(&name))))?)?;
                Ok(CommandExit::Ok)
            }
            EgressSubcommand::Reset { names, json } => watch::each(screen, &names, |name| {
                client.send(&ApiRequest::post(format!("/v1/egress/{}/reset", encode(name))))?;
                if json {
                    screen.json(&json!({"name": name, "reset": true}))?;
                }
                screen.note(format_args!("{name} was reset"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["connection", "breaker", "until", "minute", "hour", "total"]);
    for one in entries(list) {
        let cell = |name| display_field(one, name);
        let used = (cell("used_minute"), cell("used_hour"), cell("burned"));
        table.row(&[cell("name"), cell("breaker"), cell("open_until"), used.0, used.1, used.2]);
    }
    table.print(screen, "no connections")
}
