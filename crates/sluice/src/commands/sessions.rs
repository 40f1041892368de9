//! `sluice sessions`: what agents are at, and lifting the taint of those that were shown something bad.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Ask, Kind, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// List sessions of agents, lift a taint, end one.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice sessions list --tainted\n  sluice sessions clear sess_0193f2"
)]
pub(crate) struct Sessions {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List sessions
    #[command(before_help = "Examples:\n  sluice sessions list --tainted\n  sluice sessions list --agent clerk")]
    List {
        /// Only those that were shown something that looked like an attack
        #[arg(long)]
        tainted: bool,
        /// Only those of this agent
        #[arg(long)]
        agent: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Lift the taint of sessions: their writes go by the rules again
    #[command(before_help = "Examples:\n  sluice findings list --open\n  sluice sessions clear sess_0193f2")]
    Clear {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// End sessions: their credentials go on, what they had open does not
    End {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

impl Sessions {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("session_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { tainted, agent, listing } => {
                let ask = Ask::get("/v1/sessions").with("tainted", tainted.then_some(true)).with("agent", agent);
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { id, json } => {
                let id = client.id(Kind::Sessions, &id)?;
                let session = client.ask(&Ask::get(format!("/v1/sessions/{id}")))?;
                if json {
                    screen.json(&session)?;
                } else {
                    one(&session, screen)?;
                }
                Ok(Exit::Ok)
            }
            Verb::Clear { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.id(Kind::Sessions, typed)?;
                client.ask(&Ask::post(format!("/v1/sessions/{id}/clear")).body(json!({})))?;
                if json {
                    screen.json(&json!({"session_id": id, "cleared": true}))?;
                }
                screen.note(format_args!("cleared {id}"));
                Ok(())
            }),
            Verb::End { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.id(Kind::Sessions, typed)?;
                client.ask(&Ask::delete(format!("/v1/sessions/{id}")).stops())?;
                if json {
                    screen.json(&json!({"session_id": id, "ended": true}))?;
                }
                screen.note(format_args!("ended {id}"));
                Ok(())
            }),
        }
    }
}

fn state(session: &Value) -> &'static str {
    let tainted = session.get("tainted").and_then(Value::as_bool).unwrap_or(false);
    match (tainted, session.get("ended_at").is_some()) {
        (true, false) => "tainted",
        (true, true) => "tainted, ended",
        (false, true) => "ended",
        (false, false) => "open",
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|one| text(one, "session_id").to_owned()).collect();
    let mut table = Table::new(&["session", "state", "agent", "client", "opened"]);
    for (one, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(one, name);
        table.row(&[id, state(one).to_owned(), cell("agent"), cell("client"), cell("opened_at")]);
    }
    table.print(screen, "there are no such sessions")
}

fn one(session: &Value, screen: &Screen) -> Result<(), Failure> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("session", shown(session, "session_id"))?;
    line("state", state(session).to_owned())?;
    line("agent", shown(session, "agent"))?;
    line("client", shown(session, "client"))?;
    line("opened", shown(session, "opened_at"))?;
    if session.get("ended_at").is_some() {
        line("ended", shown(session, "ended_at"))?;
    }
    let task = session.get("has_task").and_then(Value::as_bool).unwrap_or(false);
    line("task", if task { "known" } else { "not known" }.to_owned())?;
    Ok(())
}
