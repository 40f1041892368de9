//! `sluice replica`: searches the replica of a connected service.

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_core::ServiceName;

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, display_field, encode, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;

/// Search the replica of a connected service.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, before_help = "Examples:\n  sluice replica search 'from:li invoice'")]
pub(crate) struct ReplicaCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: ReplicaSubcommand,
}

#[derive(Debug, Subcommand)]
enum ReplicaSubcommand {
    /// Find messages, without asking the service
    ///
    /// Words, "a phrase", -excluded, prefix*, and from: to: subject: label: before: after: is:unread has:attachment.
    #[command(
        before_help = "Examples:\n  sluice replica search 'from:li before:2026-11-01 invoice'\n  sluice replica search 'is:unread' --service gmail --limit 5"
    )]
    Search {
        /// Search text
        query: String,
        /// Service to search; needed if there are several
        #[arg(long, value_name = "NAME")]
        service: Option<ServiceName>,
        /// Maximum number of messages
        #[arg(long, default_value = "20", value_name = "N")]
        limit: u32,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

impl ReplicaCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let client = self.reach.open_operator_client()?;
        let ReplicaSubcommand::Search { query, service, limit, json } = self.verb;
        let service = service.map_or_else(|| only(&client), |name| Ok(name.to_string()))?;
        let path = format!("/v1/services/{}/messages", encode(&service));
        let found = client.send(&ApiRequest::get(path).with("q", Some(query)).with("limit", Some(limit)))?;
        if json {
            screen.json(&found)?;
            return Ok(CommandExit::Ok);
        }
        let mut table = TextTable::new(&["received", "from", "subject", "excerpt", "message"]);
        for message in entries(&found) {
            let cell = |name| display_field(message, name);
            let withheld =
                if message.get("withheld") == Some(&Value::Bool(true)) { " (withheld from agents)" } else { "" };
            let subject = format!("{}{withheld}", cell("subject"));
            let checked = message.get("authentication").and_then(Value::as_str);
            let from = checked.map_or_else(|| cell("from"), |said| format!("{} ({said})", cell("from")));
            table.row(&[cell("received_at"), from, subject, cell("snippet"), cell("message_id")]);
        }
        table.print(screen, "no messages found")?;
        if found.get("has_more") == Some(&Value::Bool(true)) {
            screen.note("there are more; raise --limit");
        }
        screen.note(format_args!("the replica was last synced at {}", display_field(&found, "synced_at")));
        Ok(CommandExit::Ok)
    }
}

/// The only service that has a replica.
fn only(client: &GatewayClient) -> Result<String, CliError> {
    let list = client.get_all("/v1/services")?;
    let mut with_copy = entries(&list).iter().filter(|service| service.get("messages").is_some_and(|n| !n.is_null()));
    match (with_copy.next(), with_copy.next()) {
        (Some(one), None) => Ok(text_field(one, "name").to_owned()),
        (None, _) => {
            Err(CliError::new(CommandExit::NotFound, "no service is connected")
                .hint("connect one: sluice connect NAME"))
        }
        (Some(_), Some(_)) => {
            Err(CliError::new(CommandExit::Usage, "several services are connected").hint("choose one: --service NAME"))
        }
    }
}
