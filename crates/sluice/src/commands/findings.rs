//! `sluice findings`: content that was withheld from agents, and releasing it.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{ApiRequest, GatewayArgs, ListedIdKind, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::escape;
use crate::failure::{CliError, CommandExit};
use crate::table::{TextTable, short_ids};
use crate::watch::{self, ListArgs};

/// List, show and release content that was withheld from agents.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice findings list --open\n  sluice findings show fnd_0193f2 --content\n  sluice findings release fnd_0193f2"
)]
pub(crate) struct FindingsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: FindingsSubcommand,
}

#[derive(Debug, Subcommand)]
enum FindingsSubcommand {
    /// List withheld items, the newest first
    #[command(before_help = "Examples:\n  sluice findings list --open\n  sluice findings list --watch")]
    List {
        /// Only items that nobody has released
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one item: its source, and what was found
    #[command(before_help = "Examples:\n  sluice findings show fnd_0193f2 --content")]
    Show {
        /// Finding ID, or its first characters
        id: String,
        /// Also print the item itself, with invisible characters made visible
        #[arg(long)]
        content: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Release items: their agents can read them from then on
    #[command(before_help = "Examples:\n  sluice findings release fnd_0193f2 --note \"our own newsletter\"")]
    Release {
        /// Finding IDs, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
        /// Reason, kept in the audit log
        #[arg(long, default_value = "")]
        note: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl FindingsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("finding_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            FindingsSubcommand::List { open, listing } => {
                let ask = ApiRequest::get("/v1/findings").with("open", open.then_some(true));
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            FindingsSubcommand::Show { id, content, json } => {
                let id = client.resolve_id(ListedIdKind::Findings, &id)?;
                let ask = ApiRequest::get(format!("/v1/findings/{id}")).with("content", content.then_some(true));
                let finding = client.send(&ask)?;
                if json {
                    screen.json(&finding)?;
                } else {
                    one(&finding, screen)?;
                }
                Ok(CommandExit::Ok)
            }
            FindingsSubcommand::Release { ids, note, json } => watch::each(screen, &ids, |typed| {
                let id = client.resolve_id(ListedIdKind::Findings, typed)?;
                client.send(&ApiRequest::post(format!("/v1/findings/{id}/release")).body(json!({"note": note})))?;
                if json {
                    screen.json(&json!({"finding_id": id, "released": true}))?;
                }
                screen.note(format_args!("released {id}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|one| text_field(one, "finding_id").to_owned()).collect();
    let mut table = TextTable::new(&["finding", "state", "score", "service", "from", "agent", "at"]);
    for (one, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(one, name);
        table.row(&[
            id,
            cell("state"),
            cell("score"),
            cell("service"),
            cell("source"),
            cell("agent"),
            cell("found_at"),
        ]);
    }
    table.print(screen, "no findings")
}

fn one(finding: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("finding", display_field(finding, "finding_id"))?;
    line("state", display_field(finding, "state"))?;
    line("from", format!("{}, through {}", display_field(finding, "source"), display_field(finding, "service")))?;
    line("author", display_field(finding, "author"))?;
    line(
        "score",
        format!("{} (withheld from {})", display_field(finding, "score"), display_field(finding, "threshold")),
    )?;
    for (name, field) in [("agent", "agent"), ("session", "session_id"), ("call", "call_id")] {
        if finding.get(field).is_some() {
            line(name, display_field(finding, field))?;
        }
    }
    line("size", format!("{} bytes, sha256 {}", display_field(finding, "bytes"), display_field(finding, "sha256")))?;
    line("at", display_field(finding, "found_at"))?;
    line("kept", format!("until {}", display_field(finding, "kept_until")))?;
    if finding.get("released_by").is_some() {
        line(
            "released",
            format!("by {} at {}", display_field(finding, "released_by"), display_field(finding, "released_at")),
        )?;
    }
    for note in finding.get("notes").and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| display_field(note, name);
        let words = format!(
            "{}, {} ({}), bytes {} to {}, score {}",
            cell("stage"),
            cell("rule"),
            cell("carrier"),
            cell("start"),
            cell("end"),
            cell("score")
        );
        line("found", words)?;
    }
    if finding.get("content").is_some() {
        screen.line("content")?;
        // SECURITY: its lines are printed behind a bar, with invisible characters made visible.
        for words in escape::lines(text_field(finding, "content")) {
            screen.line(format_args!("    | {words}"))?;
        }
    }
    Ok(())
}
