//! `sluice sessions`: what agents are at, what they were asked, and lifting the taint of those that were shown something bad.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{Ask, Kind, Reach, Whose, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// List sessions of agents, open one, state a task, lift a taint, end one.
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
    /// Show one: what it did, and what it had seen before
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Open a session for an agent, with what its user asked for
    #[command(
        before_help = "Examples:\n  sluice sessions start --agent clerk --task \"send the report to ana@example.com\""
    )]
    Start {
        /// For which agent; a task key has its own
        #[arg(long)]
        agent: Option<String>,
        /// What the user asked for, in their words
        #[arg(long)]
        task: Option<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
    /// State what the user asked for, in a session that is open
    ///
    /// What the text names counts as asked for. It is stated with your token, or with the task key that SLUICE_TASK_KEY or
    /// SLUICE_TASK_KEY_FILE names; a key of the agent itself is refused.
    #[command(before_help = "Examples:\n  sluice sessions task sess_0193f2 \"send the report to ana@example.com\"")]
    Task {
        /// Its id, or the beginning of it
        id: String,
        /// What the user asked for, in their words
        text: String,
        /// For machines
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
        let states = matches!(self.verb, Verb::Start { .. } | Verb::Task { .. });
        let whose = if states && Whose::Task.is_given()? { Whose::Task } else { Whose::Operator };
        let client = self.reach.client(whose)?;
        match self.verb {
            Verb::Start { agent, task, json } => {
                let session = client.ask(&Ask::post("/v1/sessions").body(json!({"agent": agent, "task": task})))?;
                if json {
                    screen.json(&session)?;
                } else {
                    screen.line(text(&session, "session_id"))?;
                }
                Ok(Exit::Ok)
            }
            Verb::Task { id, text, json } => {
                let id = client.id(Kind::Sessions, &id)?;
                let stated = Ask::post(format!("/v1/sessions/{id}/task")).body(json!({"task": text}));
                let session = client.ask(&stated)?;
                if json {
                    screen.json(&session)?;
                }
                screen.note(format_args!("stated for {id}"));
                Ok(Exit::Ok)
            }
            Verb::List { tainted, agent, listing } => {
                let ask = Ask::get("/v1/sessions").with("tainted", tainted.then_some(true)).with("agent", agent);
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Show { id, json } => {
                let id = client.id(Kind::Sessions, &id)?;
                let mut session = client.ask(&Ask::get(format!("/v1/sessions/{id}")))?;
                let record = client.ask(&Ask::get(format!("/v1/sessions/{id}/record")))?;
                if json {
                    if let Some(members) = session.as_object_mut() {
                        members.insert("record".into(), record);
                    }
                    screen.json(&session)?;
                } else {
                    one(&session, screen)?;
                    seen(&record, screen)?;
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

/// What the session did, each write after the reads that came before it.
fn seen(record: &Value, screen: &Screen) -> Result<(), Failure> {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let reads = |reads: &[Value]| {
        reads.iter().try_for_each(|read| {
            let words = read.get("read").map_or_else(|| "not on record".to_owned(), super::calls::read_words);
            screen.line(format_args!("    {}  {:<20} {words}", shown(read, "at"), shown(read, "capability")))
        })
    };
    for write in list(record, "writes") {
        let before = list(&write, "seen_before");
        let (what, status) = (shown(&write, "capability"), shown(&write, "status"));
        screen.line(format_args!(
            "did       {what} ({status}) {} at {}",
            shown(&write, "call_id"),
            shown(&write, "at")
        ))?;
        match before.is_empty() {
            true => screen.line(format_args!(
                "  nothing more was read before it ({} reads in all)",
                shown(&write, "reads_before")
            ))?,
            false => screen.line("  seen before it did that:")?,
        }
        reads(&before)?;
    }
    let since = list(record, "seen_since");
    if !since.is_empty() {
        screen.line("seen since")?;
        reads(&since)?;
    }
    if record.get("complete").and_then(Value::as_bool) == Some(false) {
        screen
            .note("the record is longer than one look: older or later reads are found with sluice audit show --agent");
    }
    Ok(())
}
