//! `sluice rollback`: taking back what was done.

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, Clock as _};

use crate::client::{Ask, Client, Kind, Reach, shown, text};
use crate::commands::policy::counted;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::span::{Since, since};
use crate::system::SystemClock;
use crate::table::{Table, short_ids};

/// Take back writes that were done.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice rollback --agent bookkeeper --since 2h --dry-run\n  sluice rollback --agent bookkeeper --since 2h\n  sluice rollback plan buf_0193f2\n  sluice rollback apply buf_0193f2 --yes"
)]
pub(crate) struct Rollback {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    everything: Everything,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// Everything an agent did, without another word.
#[derive(Debug, Args)]
struct Everything {
    /// Everything this agent did, at every service
    #[arg(long = "agent", id = "all_of", value_name = "NAME", requires = "all_since")]
    agent: Option<AgentName>,
    /// Since then: how long ago, or a moment
    #[arg(long = "since", id = "all_since", value_name = "SINCE", value_parser = since, requires = "all_of")]
    since: Option<Since>,
    /// Say what it would do; change nothing
    #[arg(long, requires = "all_of")]
    dry_run: bool,
    /// Do not ask
    #[arg(long = "yes", short, id = "all_yes", requires = "all_of")]
    yes: bool,
    /// Also what was changed since, where the service can show the difference
    #[arg(long = "force", id = "all_force", requires = "all_of")]
    force: bool,
    /// For machines: the answer of the API
    #[arg(long = "json", id = "all_json", requires = "all_of")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say what taking back would do; changes nothing
    #[command(
        before_help = "Examples:\n  sluice rollback plan buf_0193f2\n  sluice rollback plan --agent bookkeeper --since 2h"
    )]
    Plan {
        #[command(flatten)]
        chosen: Chosen,
    },
    /// Take writes back: shows the plan, then asks
    #[command(
        before_help = "Examples:\n  sluice rollback apply buf_0193f2\n  sluice rollback apply --agent bookkeeper --since 2h --yes\n  sluice rollback apply buf_0193f2 --force"
    )]
    Apply {
        #[command(flatten)]
        chosen: Chosen,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Which writes.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true)))]
struct Chosen {
    /// Ids of writes, or the beginnings of them
    #[arg(group = "which", value_name = "ID")]
    ids: Vec<String>,
    /// Everything this agent did
    #[arg(long, group = "which", value_name = "NAME", requires = "since")]
    agent: Option<AgentName>,
    /// Since then: how long ago, or a moment
    #[arg(long, value_parser = since, requires = "agent")]
    since: Option<Since>,
    /// Only what it did in this session
    #[arg(long, value_name = "SESSION", requires = "agent")]
    session: Option<String>,
    /// Also what was changed since, where the difference can be shown; it is shown before anything is asked
    #[arg(long)]
    force: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Rollback {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let verb = match (self.verb, self.everything) {
            (Some(verb), Everything { agent: None, .. }) => verb,
            (None, Everything { agent: agent @ Some(_), since, dry_run, yes, force, json }) => {
                let chosen = Chosen { ids: Vec::new(), agent, since, session: None, force, json };
                if dry_run { Verb::Plan { chosen } } else { Verb::Apply { chosen, yes } }
            }
            (verb, _) => {
                let what = if verb.is_some() { "two ways to say what is meant" } else { "nothing says what is meant" };
                return Err(Failure::new(Exit::Usage, what).hint("sluice rollback --agent NAME --since 2h --dry-run"));
            }
        };
        let client = self.reach.operator()?;
        let (Verb::Plan { ref chosen } | Verb::Apply { ref chosen, .. }) = verb;
        let plan = client.ask(&Ask::post("/v1/rollbacks").body(chosen.body(&client)?))?;
        let Verb::Apply { yes, .. } = verb else {
            if chosen.json {
                screen.json(&plan)?
            } else {
                table(&plan, screen)?
            }
            return Ok(Exit::Ok);
        };
        if !chosen.json {
            table(&plan, screen)?;
        }
        let possible = steps(&plan).iter().filter(|step| is_possible(step)).count();
        if possible == 0 {
            let forced = steps(&plan).iter().any(|step| step.get("can_be_forced") == Some(&Value::Bool(true)));
            let hint = if forced {
                "somebody changed it since; to have it back all the same: --force"
            } else {
                "the plan says why"
            };
            return Err(Failure::new(Exit::Conflict, "none of this can be taken back").hint(hint));
        }
        if !yes {
            screen.ask(&format!("Take back {}?", counted(possible, "write")), "--yes")?;
        }
        let done = client.ask(&Ask::post("/v1/rollbacks").body(pinned(&plan, chosen.force)))?;
        if chosen.json {
            screen.json(&done)?;
            return Ok(Exit::Ok);
        }
        for hold in done.get("buffer_ids").and_then(Value::as_array).into_iter().flatten() {
            screen.line(crate::visible::value(hold))?;
        }
        screen.note("these writes take the others back; see how they go: sluice holds list");
        Ok(Exit::Ok)
    }
}

impl Chosen {
    /// What asks for the plan.
    fn body(&self, client: &Client) -> Result<Value, Failure> {
        let ids: Result<Vec<String>, Failure> = self.ids.iter().map(|typed| client.id(Kind::Holds, typed)).collect();
        let since = self.since.map(|since| since.at(SystemClock.now()).as_millis());
        let session = self.session.as_deref().map(|typed| client.id(Kind::Sessions, typed)).transpose()?;
        Ok(json!({
            "buffer_ids": ids?, "agent": self.agent, "since_ms": since, "session_id": session, "force": self.force,
            "plan_only": true,
        }))
    }
}

/// What was planned and nothing else: writes since then are not taken back unseen.
fn pinned(plan: &Value, force: bool) -> Value {
    let ids = steps(plan).iter().filter(|step| is_possible(step)).map(|step| text(step, "buffer_id"));
    json!({"buffer_ids": ids.collect::<Vec<_>>(), "force": force})
}

fn steps(plan: &Value) -> &[Value] {
    plan.get("steps").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_possible(step: &Value) -> bool {
    step.get("possible") == Some(&Value::Bool(true))
}

fn table(plan: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = steps(plan).iter().map(|step| text(step, "buffer_id").to_owned()).collect();
    let mut table = Table::new(&["hold", "capability", "can be taken back", "until", "why not"]);
    for (step, id) in steps(plan).iter().zip(short_ids(screen, &ids)) {
        let possible = if is_possible(step) { "yes" } else { "no" };
        table.row(&[id, shown(step, "capability"), possible.into(), shown(step, "until"), why(step)]);
    }
    table.print(screen, "there is nothing to take back")?;
    steps(plan).iter().zip(short_ids(screen, &ids)).try_for_each(|(step, id)| files(step, &id, screen))?;
    for step in steps(plan) {
        for words in step.get("difference").and_then(Value::as_array).into_iter().flatten() {
            screen.line(format_args!("differs   {}: {}", shown(step, "buffer_id"), crate::visible::value(words)))?;
        }
    }
    Ok(())
}

/// Why a step is not possible, with who was faster.
fn why(step: &Value) -> String {
    match step.get("undone_at") {
        Some(_) => format!("taken back already, by {} at {}", shown(step, "undone_by"), shown(step, "undone_at")),
        None => shown(step, "why"),
    }
}

/// The files of a step, and what would be lost where somebody changed one since.
fn files(step: &Value, id: &str, screen: &Screen) -> Result<(), Failure> {
    for file in step.get("files").and_then(Value::as_array).into_iter().flatten() {
        let path = crate::visible::line(text(file, "path")).to_string();
        let says = match text(file, "does") {
            "restore" => "its old content comes back".to_owned(),
            "remove" => "it is removed: it was not there before".to_owned(),
            "nothing" => "it is as it was before".to_owned(),
            "changed" => "changed since, or the client did not report what it left".to_owned(),
            _ => format!("cannot be taken back: {}", crate::visible::line(text(file, "why"))),
        };
        screen.line(format_args!("{id}  {path}: {says}"))?;
        for line in text(file, "difference").lines() {
            screen.line(format_args!("    {}", crate::visible::line(line)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_shown_as_possible_is_taken_back() {
        let plan =
            json!({"steps": [{"buffer_id": "buf_1", "possible": true}, {"buffer_id": "buf_2", "possible": false}]});
        assert_eq!(pinned(&plan, false), json!({"buffer_ids": ["buf_1"], "force": false}));
    }
}
