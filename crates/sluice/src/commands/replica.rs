//! `sluice replica`: looking into the copy of a connected service.

use clap::{Args, Subcommand};
use serde_json::Value;
use sluice_core::ServiceName;

use crate::client::{Ask, Client, Reach, encode, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;

/// Look into the copy of a connected service.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, before_help = "Examples:\n  sluice replica search 'from:li invoice'")]
pub(crate) struct Replica {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Find messages; the service is not asked
    ///
    /// Words, "side by side", -absent, begin*, and from: to: subject: label: before: after: is:unread has:attachment.
    #[command(
        before_help = "Examples:\n  sluice replica search 'from:li before:2026-11-01 invoice'\n  sluice replica search 'is:unread' --service gmail --limit 5"
    )]
    Search {
        /// What to look for
        query: String,
        /// In which service; needed where there are several
        #[arg(long, value_name = "NAME")]
        service: Option<ServiceName>,
        /// Most messages
        #[arg(long, default_value = "20", value_name = "N")]
        limit: u32,
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

impl Replica {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let client = self.reach.operator()?;
        let Verb::Search { query, service, limit, json } = self.verb;
        let service = service.map_or_else(|| only(&client), |name| Ok(name.to_string()))?;
        let path = format!("/v1/services/{}/messages", encode(&service));
        let found = client.ask(&Ask::get(path).with("q", Some(query)).with("limit", Some(limit)))?;
        if json {
            screen.json(&found)?;
            return Ok(Exit::Ok);
        }
        let mut table = Table::new(&["received", "from", "subject", "found", "message"]);
        for message in entries(&found) {
            let cell = |name| shown(message, name);
            let withheld =
                if message.get("withheld") == Some(&Value::Bool(true)) { " (withheld from agents)" } else { "" };
            let subject = format!("{}{withheld}", cell("subject"));
            let checked = message.get("authentication").and_then(Value::as_str);
            let from = checked.map_or_else(|| cell("from"), |said| format!("{} ({said})", cell("from")));
            table.row(&[cell("received_at"), from, subject, cell("snippet"), cell("message_id")]);
        }
        table.print(screen, "nothing was found")?;
        if found.get("has_more") == Some(&Value::Bool(true)) {
            screen.note("there are more; see them with --limit");
        }
        screen.note(format_args!("the copy is as the service was at {}", shown(&found, "synced_at")));
        Ok(Exit::Ok)
    }
}

/// The one service that has a copy.
fn only(client: &Client) -> Result<String, Failure> {
    let list = client.whole("/v1/services")?;
    let mut with_copy = entries(&list).iter().filter(|service| service.get("messages").is_some_and(|n| !n.is_null()));
    match (with_copy.next(), with_copy.next()) {
        (Some(one), None) => Ok(text(one, "name").to_owned()),
        (None, _) => Err(Failure::new(Exit::NotFound, "no service is connected").hint("sluice connect NAME")),
        (Some(_), Some(_)) => Err(Failure::new(Exit::Usage, "several services are connected").hint("--service NAME")),
    }
}
