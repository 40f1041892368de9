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
        before_help = "Examples:\n  sluice rollback apply buf_0193f2\n  sluice rollback apply --agent bookkeeper --since 2h --yes"
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
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Rollback {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let verb = match (self.verb, self.everything) {
            (Some(verb), Everything { agent: None, .. }) => verb,
            (None, Everything { agent: agent @ Some(_), since, dry_run, yes, json }) => {
                let chosen = Chosen { ids: Vec::new(), agent, since, json };
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
            return Err(Failure::new(Exit::Conflict, "none of this can be taken back").hint("the plan says why"));
        }
        if !yes {
            screen.ask(&format!("Take back {}?", counted(possible, "write")), "--yes")?;
        }
        let done = client.ask(&Ask::post("/v1/rollbacks").body(pinned(&plan)))?;
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
        Ok(json!({"buffer_ids": ids?, "agent": self.agent, "since_ms": since, "plan_only": true}))
    }
}

/// What was planned and nothing else: writes since then are not taken back unseen.
fn pinned(plan: &Value) -> Value {
    let ids = steps(plan).iter().filter(|step| is_possible(step)).map(|step| text(step, "buffer_id"));
    json!({"buffer_ids": ids.collect::<Vec<_>>()})
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
        table.row(&[id, shown(step, "capability"), possible.into(), shown(step, "until"), shown(step, "why")]);
    }
    table.print(screen, "there is nothing to take back")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_shown_as_possible_is_taken_back() {
        let plan =
            json!({"steps": [{"buffer_id": "buf_1", "possible": true}, {"buffer_id": "buf_2", "possible": false}]});
        assert_eq!(pinned(&plan), json!({"buffer_ids": ["buf_1"]}));
    }
}
