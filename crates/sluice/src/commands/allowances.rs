//! `sluice allowances`: standing approvals, with what each covers and how often it was used.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{ApiRequest, GatewayArgs, ListedIdKind, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::{TextTable, short_ids};
use crate::watch::{self, ListArgs};

/// List and revoke standing approvals.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice allowances list\n  sluice allowances revoke alw_0193f2"
)]
pub(crate) struct AllowancesCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: AllowancesSubcommand,
}

#[derive(Debug, Subcommand)]
enum AllowancesSubcommand {
    /// List standing approvals: what each covers, how often and when it was last used
    #[command(before_help = "Examples:\n  sluice allowances list")]
    List {
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Revoke standing approvals
    #[command(before_help = "Examples:\n  sluice allowances revoke alw_0193f2")]
    Revoke {
        /// Standing approval IDs, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl AllowancesCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("allowance_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            AllowancesSubcommand::List { listing } => {
                let fetch = || client.list(&ApiRequest::get("/v1/allowances"), listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            AllowancesSubcommand::Revoke { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.resolve_id(ListedIdKind::Allowances, typed)?;
                client.send(&ApiRequest::delete(format!("/v1/allowances/{id}")).via_stop_lane())?;
                if json {
                    screen.json(&json!({"allowance_id": id, "revoked": true}))?;
                }
                screen.note(format_args!("revoked {id}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|entry| text_field(entry, "allowance_id").to_owned()).collect();
    let mut table = TextTable::new(&[
        "allowance",
        "scope",
        "agent",
        "covers",
        "given",
        "until",
        "uses",
        "uses left",
        "last use",
        "active",
    ]);
    for (entry, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(entry, name);
        let active = if entry.get("active") == Some(&Value::Bool(true)) { "yes" } else { "no" };
        let bound = if entry.get("bound").is_some() { "bound" } else { "covers" };
        let (scope, asker, covers) = (cell("scope"), cell("asker"), cell(bound));
        let (uses, left, last) = (cell("uses"), cell("uses_left"), cell("last_used_at"));
        let (given, until) = (cell("given_at"), cell("expires_at"));
        table.row(&[id, scope, asker, covers, given, until, uses, left, last, active.into()]);
    }
    table.print(screen, "no standing approvals")
}
