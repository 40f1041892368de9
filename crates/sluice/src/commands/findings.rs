//! `sluice findings`: what was kept from agents, and letting it through.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Ask, Kind, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::{Table, short_ids};
use crate::visible;
use crate::watch::{self, Listing};

/// List, show and release what was kept from agents.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice findings list --open\n  sluice findings show fnd_0193f2 --content\n  sluice findings release fnd_0193f2"
)]
pub(crate) struct Findings {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List withheld items, the newest first
    #[command(before_help = "Examples:\n  sluice findings list --open\n  sluice findings list --watch")]
    List {
        /// Only those nobody has released
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one: where it is from, and what was noticed
    #[command(before_help = "Examples:\n  sluice findings show fnd_0193f2 --content")]
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// With the item itself, made visible
        #[arg(long)]
        content: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Let items through: their agents can read them from then on
    #[command(before_help = "Examples:\n  sluice findings release fnd_0193f2 --note \"our own newsletter\"")]
    Release {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
        /// Why
        #[arg(long, default_value = "")]
        note: String,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

impl Findings {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("finding_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { open, listing } => {
                let ask = Ask::get("/v1/findings").with("open", open.then_some(true));
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { id, content, json } => {
                let id = client.id(Kind::Findings, &id)?;
                let ask = Ask::get(format!("/v1/findings/{id}")).with("content", content.then_some(true));
                let finding = client.ask(&ask)?;
                if json {
                    screen.json(&finding)?;
                } else {
                    one(&finding, screen)?;
                }
                Ok(Exit::Ok)
            }
            Verb::Release { ids, note, json } => watch::each(screen, &ids, |typed| {
                let id = client.id(Kind::Findings, typed)?;
                client.ask(&Ask::post(format!("/v1/findings/{id}/release")).body(json!({"note": note})))?;
                if json {
                    screen.json(&json!({"finding_id": id, "released": true}))?;
                }
                screen.note(format_args!("released {id}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|one| text(one, "finding_id").to_owned()).collect();
    let mut table = Table::new(&["finding", "state", "score", "service", "from", "agent", "at"]);
    for (one, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(one, name);
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
    table.print(screen, "nothing was withheld")
}

fn one(finding: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("finding", shown(finding, "finding_id"))?;
    line("state", shown(finding, "state"))?;
    line("from", format!("{}, through {}", shown(finding, "source"), shown(finding, "service")))?;
    line("author", shown(finding, "author"))?;
    line("score", format!("{} (withheld from {})", shown(finding, "score"), shown(finding, "threshold")))?;
    for (name, field) in [("agent", "agent"), ("session", "session_id"), ("call", "call_id")] {
        if finding.get(field).is_some() {
            line(name, shown(finding, field))?;
        }
    }
    line("size", format!("{} bytes, sha256 {}", shown(finding, "bytes"), shown(finding, "sha256")))?;
    line("at", shown(finding, "found_at"))?;
    line("kept", format!("until {}", shown(finding, "kept_until")))?;
    if finding.get("released_by").is_some() {
        line("released", format!("by {} at {}", shown(finding, "released_by"), shown(finding, "released_at")))?;
    }
    for note in finding.get("notes").and_then(Value::as_array).into_iter().flatten() {
        let cell = |name| shown(note, name);
        let words = format!(
            "{}, {} ({}), bytes {} to {}, score {}",
            cell("stage"),
            cell("rule"),
            cell("carrier"),
            cell("start"),
            cell("end"),
            cell("score")
        );
        line("noticed", words)?;
    }
    if finding.get("content").is_some() {
        screen.line("the item")?;
        // SECURITY: its lines stand behind a bar and hold nothing invisible.
        for words in visible::lines(text(finding, "content")) {
            screen.line(format_args!("    | {words}"))?;
        }
    }
    Ok(())
}
