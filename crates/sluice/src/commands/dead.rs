//! `sluice dead`: dead letters, which are writes that failed permanently.

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, ServiceName};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, ListedIdKind, display_field, entries};
use crate::commands::approvals::display;
use crate::commands::call::arguments;
use crate::commands::policy::counted;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::watch::{self, ListArgs};

/// List writes that failed permanently; retry, change or discard them.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice dead list\n  sluice dead show buf_0193f2\n  sluice dead retry --cause email.send:egress.dns --probe\n  sluice dead edit buf_0193f2 --input - < fixed.json\n  sluice dead discard buf_0193f2"
)]
pub(crate) struct DeadCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: DeadSubcommand,
}

#[derive(Debug, Subcommand)]
enum DeadSubcommand {
    /// List dead letters by cause, the most frequent cause first
    #[command(before_help = "Examples:\n  sluice dead list\n  sluice dead list --json | jq -r '.data[].cause'")]
    List {
        /// Only writes of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        /// Only writes of this service
        #[arg(long, value_name = "NAME")]
        service: Option<ServiceName>,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one dead letter with its arguments
    #[command(before_help = "Examples:\n  sluice dead show buf_0193f2")]
    Show {
        /// Hold ID, or its first characters
        id: String,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
    /// Try dead letters again: they get a new hold window and are checked by the rules again
    #[command(
        before_help = "Examples:\n  sluice dead retry buf_0193f2\n  sluice dead retry --cause email.send:egress.dns --probe\n  sluice dead retry --cause email.send:egress.dns"
    )]
    Retry {
        #[command(flatten)]
        which: DeadSelectionArgs,
        /// Retry only the oldest write of the cause, to test whether it works now
        #[arg(long, requires = "cause")]
        probe: bool,
    },
    /// Discard dead letters
    #[command(before_help = "Examples:\n  sluice dead discard buf_0193f2 buf_0193f3")]
    Discard {
        #[command(flatten)]
        which: DeadSelectionArgs,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Replace a dead letter with a changed call, which is checked like any other call
    #[command(
        before_help = "Examples:\n  sluice dead show buf_0193f2 --json | jq .arguments > fixed.json\n  sluice dead edit buf_0193f2 --input - < fixed.json"
    )]
    Edit {
        /// Hold ID, or its first characters
        id: String,
        /// All arguments as a JSON object; `-` reads them from standard input
        #[arg(long, value_name = "JSON")]
        input: String,
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Options that select dead letters.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true)))]
struct DeadSelectionArgs {
    /// Hold IDs, or their first characters
    #[arg(group = "which", value_name = "ID")]
    ids: Vec<String>,
    /// All dead letters of this cause, as named by `sluice dead list`
    #[arg(long, group = "which", value_name = "CAUSE")]
    cause: Option<String>,
    /// Print the API responses as JSON
    #[arg(long)]
    json: bool,
}

impl DeadCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("buffer_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            DeadSubcommand::List { agent, service, listing } => {
                let ask = ApiRequest::get("/v1/dead-letters").with("agent", agent).with("service", service);
                watch::show(&client, screen, listing, || client.send(&ask), |list| table(list, screen))
            }
            DeadSubcommand::Show { id, json } => {
                let hold = client.send(&ApiRequest::get(path(&client, &id, "")?))?;
                if json {
                    screen.json(&hold)?
                } else {
                    display::print_hold(&hold, screen)?
                }
                Ok(CommandExit::Ok)
            }
            DeadSubcommand::Retry { which, probe } => which.settle(&client, screen, "retry", probe),
            DeadSubcommand::Discard { which, yes } => {
                if !yes {
                    let what = match &which.cause {
                        Some(cause) => {
                            format!("all dead letters with the cause `{}`", crate::escape::escape_line(cause))
                        }
                        None => counted(which.ids.len(), "write"),
                    };
                    screen.confirm(&format!("Discard {what}?"), "--yes")?;
                }
                which.settle(&client, screen, "discard", false)
            }
            DeadSubcommand::Edit { id, input, json } => {
                let (arguments, place) = (arguments(&input)?, path(&client, &id, "")?);
                let version = client.send(&ApiRequest::get(place.as_str()))?.get("version").cloned();
                let body = json!({"arguments": arguments, "version": version});
                let edited = client.send(&ApiRequest::post(format!("{place}/edit")).body(body))?;
                if json {
                    screen.json(&edited)?;
                    return Ok(CommandExit::Ok);
                }
                let call = edited.get("call").cloned().unwrap_or_default();
                let (status, new) = (display_field(&call, "status"), display_field(&call, "buffer_id"));
                screen.line(format_args!("{new} is {status}"))?;
                screen.note("it replaces the dead letter, which was discarded");
                Ok(CommandExit::Ok)
            }
        }
    }
}

impl DeadSelectionArgs {
    fn settle(
        &self,
        client: &GatewayClient,
        screen: &CommandConsole,
        verb: &str,
        probe: bool,
    ) -> Result<CommandExit, CliError> {
        if let Some(cause) = &self.cause {
            let body = json!({"cause": cause, "probe": probe});
            let settled = client.send(&ApiRequest::post(format!("/v1/dead-letters/{verb}")).body(body))?;
            if self.json {
                screen.json(&settled)?;
                return Ok(CommandExit::Ok);
            }
            return entries(&settled).iter().try_for_each(|hold| say(hold, screen)).map(|()| CommandExit::Ok);
        }
        watch::each(screen, &self.ids, |id| {
            let hold = client.send(&ApiRequest::post(path(client, id, &format!("/{verb}"))?))?;
            if self.json { Ok(screen.json(&hold)?) } else { say(&hold, screen) }
        })
    }
}

fn path(client: &GatewayClient, typed: &str, verb: &str) -> Result<String, CliError> {
    Ok(format!("/v1/dead-letters/{}{verb}", client.resolve_id(ListedIdKind::Holds, typed)?))
}

fn say(hold: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    screen.line(format_args!("{} is {}", display_field(hold, "buffer_id"), display_field(hold, "state")))?;
    Ok(())
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["cause", "count", "service", "first", "last", "why", "the service says"]);
    for group in entries(list) {
        let cell = |name| display_field(group, name);
        let said = if group.get("service_says").is_some() { cell("service_says") } else { String::new() };
        table.row(&[cell("cause"), cell("count"), cell("service"), cell("since"), cell("until"), cell("why"), said]);
    }
    table.print(screen, "no dead letters")
}
