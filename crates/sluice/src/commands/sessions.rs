//! `sluice sessions`: the sessions of agents, their tasks, and clearing a taint.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{ApiRequest, ClientCredentialKind, GatewayArgs, ListedIdKind, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::{TextTable, short_ids};
use crate::watch::{self, ListArgs};

/// List sessions of agents, start one, state a task, clear a taint, end one.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice sessions list --tainted\n  sluice sessions clear sess_0193f2"
)]
pub(crate) struct SessionsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: SessionsSubcommand,
}

#[derive(Debug, Subcommand)]
enum SessionsSubcommand {
    /// List sessions
    #[command(before_help = "Examples:\n  sluice sessions list --tainted\n  sluice sessions list --agent clerk")]
    List {
        /// Only sessions that were shown content that looks like an attack
        #[arg(long)]
        tainted: bool,
        /// Only sessions of this agent
        #[arg(long)]
        agent: Option<String>,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Show one session: what it did, and what it had read before
    Show {
        /// Session ID, or its first characters
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start a session for an agent, with its user's task
    #[command(
        before_help = "Examples:\n  sluice sessions start --agent clerk --task \"send the report to ana@example.com\""
    )]
    Start {
        /// Agent of the session; with a task key, the key's own agent
        #[arg(long)]
        agent: Option<String>,
        /// Task, in the user's words
        #[arg(long)]
        task: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// State the user's task in an open session
    ///
    /// Targets named in the text count as asked for. The task is stated with your token, or with the task key from
    /// SLUICE_TASK_KEY or SLUICE_TASK_KEY_FILE; the agent's own key is refused.
    #[command(before_help = "Examples:\n  sluice sessions task sess_0193f2 \"send the report to ana@example.com\"")]
    Task {
        /// Session ID, or its first characters
        id: String,
        /// Task, in the user's words
        text: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Clear the taint of sessions: only the rules apply to their writes again
    #[command(before_help = "Examples:\n  sluice findings list --open\n  sluice sessions clear sess_0193f2")]
    Clear {
        /// Session IDs, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End sessions: their credentials stay valid, their open work ends
    End {
        /// Session IDs, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl SessionsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("session_id");
        let states = matches!(self.verb, SessionsSubcommand::Start { .. } | SessionsSubcommand::Task { .. });
        let whose = if states && ClientCredentialKind::Task.is_given()? {
            ClientCredentialKind::Task
        } else {
            ClientCredentialKind::Operator
        };
        let client = self.reach.open_client(whose)?;
        match self.verb {
            SessionsSubcommand::Start { agent, task, json } => {
                let session =
                    client.send(&ApiRequest::post("/v1/sessions").body(json!({"agent": agent, "task": task})))?;
                if json {
                    screen.json(&session)?;
                } else {
                    screen.line(text_field(&session, "session_id"))?;
                }
                Ok(CommandExit::Ok)
            }
            SessionsSubcommand::Task { id, text, json } => {
                let id = client.resolve_id(ListedIdKind::Sessions, &id)?;
                let stated = ApiRequest::post(format!("/v1/sessions/{id}/task")).body(json!({"task": text}));
                let session = client.send(&stated)?;
                if json {
                    screen.json(&session)?;
                }
                screen.note(format_args!("task stated for {id}"));
                Ok(CommandExit::Ok)
            }
            SessionsSubcommand::List { tainted, agent, listing } => {
                let ask = ApiRequest::get("/v1/sessions").with("tainted", tainted.then_some(true)).with("agent", agent);
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            SessionsSubcommand::Show { id, json } => {
                let id = client.resolve_id(ListedIdKind::Sessions, &id)?;
                let mut session = client.send(&ApiRequest::get(format!("/v1/sessions/{id}")))?;
                let record = client.send(&ApiRequest::get(format!("/v1/sessions/{id}/record")))?;
                if json {
                    if let Some(members) = session.as_object_mut() {
                        members.insert("record".into(), record);
                    }
                    screen.json(&session)?;
                } else {
                    one(&session, screen)?;
                    seen(&record, screen)?;
                }
                Ok(CommandExit::Ok)
            }
            SessionsSubcommand::Clear { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.resolve_id(ListedIdKind::Sessions, typed)?;
                client.send(&ApiRequest::post(format!("/v1/sessions/{id}/clear")).body(json!({})))?;
                if json {
                    screen.json(&json!({"session_id": id, "cleared": true}))?;
                }
                screen.note(format_args!("cleared {id}"));
                Ok(())
            }),
            SessionsSubcommand::End { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.resolve_id(ListedIdKind::Sessions, typed)?;
                client.send(&ApiRequest::delete(format!("/v1/sessions/{id}")).via_stop_lane())?;
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

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|one| text_field(one, "session_id").to_owned()).collect();
    let mut table = TextTable::new(&["session", "state", "agent", "client", "opened"]);
    for (one, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(one, name);
        table.row(&[id, state(one).to_owned(), cell("agent"), cell("client"), cell("opened_at")]);
    }
    table.print(screen, "no sessions")
}

fn one(session: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let line = |name: &str, value: String| screen.line(format_args!("{name:<9} {value}"));
    line("session", display_field(session, "session_id"))?;
    line("state", state(session).to_owned())?;
    line("agent", display_field(session, "agent"))?;
    line("client", display_field(session, "client"))?;
    line("opened", display_field(session, "opened_at"))?;
    if session.get("ended_at").is_some() {
        line("ended", display_field(session, "ended_at"))?;
    }
    let task = session.get("has_task").and_then(Value::as_bool).unwrap_or(false);
    line("task", if task { "stated" } else { "not stated" }.to_owned())?;
    Ok(())
}

/// What the session did: each write after the reads that came before it.
fn seen(record: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let list = |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let reads = |reads: &[Value]| {
        reads.iter().try_for_each(|read| {
            let words = read.get("read").map_or_else(|| "not recorded".to_owned(), super::calls::read_words);
            screen.line(format_args!(
                "    {}  {:<20} {words}",
                display_field(read, "at"),
                display_field(read, "capability")
            ))
        })
    };
    for write in list(record, "writes") {
        let before = list(&write, "seen_before");
        let (what, status) = (display_field(&write, "capability"), display_field(&write, "status"));
        screen.line(format_args!(
            "did       {what} ({status}) {} at {}",
            display_field(&write, "call_id"),
            display_field(&write, "at")
        ))?;
        match before.is_empty() {
            true => screen.line(format_args!(
                "  no further reads before it ({} reads in total)",
                display_field(&write, "reads_before")
            ))?,
            false => screen.line("  read before it:")?,
        }
        reads(&before)?;
    }
    let since = list(record, "seen_since");
    if !since.is_empty() {
        screen.line("read since then")?;
        reads(&since)?;
    }
    if record.get("complete").and_then(Value::as_bool) == Some(false) {
        screen.note("the list is not complete; find older or later reads with sluice audit show --agent");
    }
    Ok(())
}
