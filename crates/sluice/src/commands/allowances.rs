//! `sluice allowances`: standing approvals people gave, with what each covers and how often it was used.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Ask, Kind, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// List standing approvals and take them back.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice allowances list\n  sluice allowances revoke alw_0193f2"
)]
pub(crate) struct Allowances {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List standing approvals: what each covers, how often it was used and when last
    #[command(before_help = "Examples:\n  sluice allowances list")]
    List {
        #[command(flatten)]
        listing: Listing,
    },
    /// Take standing approvals back
    #[command(before_help = "Examples:\n  sluice allowances revoke alw_0193f2")]
    Revoke {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

impl Allowances {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("allowance_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { listing } => {
                let fetch = || client.list(&Ask::get("/v1/allowances"), listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Revoke { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.id(Kind::Allowances, typed)?;
                client.ask(&Ask::delete(format!("/v1/allowances/{id}")).stops())?;
                if json {
                    screen.json(&json!({"allowance_id": id, "revoked": true}))?;
                }
                screen.note(format_args!("revoked {id}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|entry| text(entry, "allowance_id").to_owned()).collect();
    let mut table = Table::new(&[
        "allowance",
        "scope",
        "asker",
        "covers",
        "given",
        "until",
        "uses",
        "uses left",
        "last use",
        "active",
    ]);
    for (entry, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(entry, name);
        let active = if entry.get("active") == Some(&Value::Bool(true)) { "yes" } else { "no" };
        let bound = if entry.get("bound").is_some() { "bound" } else { "covers" };
        let (scope, asker, covers) = (cell("scope"), cell("asker"), cell(bound));
        let (uses, left, last) = (cell("uses"), cell("uses_left"), cell("last_used_at"));
        let (given, until) = (cell("given_at"), cell("expires_at"));
        table.row(&[id, scope, asker, covers, given, until, uses, left, last, active.into()]);
    }
    table.print(screen, "there are no standing approvals")
}
