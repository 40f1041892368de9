//! `sluice rollback`: undoes writes that were carried out.

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use sluice_core::{AgentName, Clock as _};

use crate::client::{ApiRequest, GatewayArgs, GatewayClient, ListedIdKind, display_field, text_field};
use crate::commands::policy::counted;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::system::SystemClock;
use crate::table::{TextTable, short_ids};
use crate::time_args::{MomentArg, since};

/// Undo writes that were carried out.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice rollback --agent bookkeeper --since 2h --dry-run\n  sluice rollback --agent bookkeeper --since 2h\n  sluice rollback plan buf_0193f2\n  sluice rollback apply buf_0193f2 --yes"
)]
pub(crate) struct RollbackCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(flatten)]
    everything: RollbackAgentArgs,
    #[command(subcommand)]
    verb: Option<RollbackSubcommand>,
}

/// Options to undo everything an agent did, without a subcommand.
#[derive(Debug, Args)]
struct RollbackAgentArgs {
    /// Undo everything this agent did, at every service
    #[arg(long = "agent", id = "all_of", value_name = "NAME", requires = "all_since")]
    agent: Option<AgentName>,
    /// Since when: a duration such as `2h`, or a date and time
    #[arg(long = "since", id = "all_since", value_name = "SINCE", value_parser = since, requires = "all_of")]
    since: Option<MomentArg>,
    /// Only show what would be undone; change nothing
    #[arg(long, requires = "all_of")]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long = "yes", short, id = "all_yes", requires = "all_of")]
    yes: bool,
    /// Also undo writes whose objects were changed since, where the service can show the difference
    #[arg(long = "force", id = "all_force", requires = "all_of")]
    force: bool,
    /// Print the API response as JSON
    #[arg(long = "json", id = "all_json", requires = "all_of")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RollbackSubcommand {
    /// Show what an undo would do; changes nothing
    #[command(
        before_help = "Examples:\n  sluice rollback plan buf_0193f2\n  sluice rollback plan --agent bookkeeper --since 2h"
    )]
    Plan {
        #[command(flatten)]
        chosen: RollbackSelectionArgs,
    },
    /// Undo writes: shows the plan, then asks for confirmation
    #[command(
        before_help = "Examples:\n  sluice rollback apply buf_0193f2\n  sluice rollback apply --agent bookkeeper --since 2h --yes\n  sluice rollback apply buf_0193f2 --force"
    )]
    Apply {
        #[command(flatten)]
        chosen: RollbackSelectionArgs,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// Options that select writes.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true)))]
struct RollbackSelectionArgs {
    /// Hold IDs, or their first characters
    #[arg(group = "which", value_name = "ID")]
    ids: Vec<String>,
    /// Everything this agent did
    #[arg(long, group = "which", value_name = "NAME", requires = "since")]
    agent: Option<AgentName>,
    /// Since when: a duration such as `2h`, or a date and time
    #[arg(long, value_parser = since, requires = "agent")]
    since: Option<MomentArg>,
    /// Only writes of this session
    #[arg(long, value_name = "SESSION", requires = "agent")]
    session: Option<String>,
    /// Also undo writes whose objects were changed since; the difference is shown before you confirm
    #[arg(long)]
    force: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl RollbackCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let verb = match (self.verb, self.everything) {
            (Some(verb), RollbackAgentArgs { agent: None, .. }) => verb,
            (None, RollbackAgentArgs { agent: agent @ Some(_), since, dry_run, yes, force, json }) => {
                let chosen = RollbackSelectionArgs { ids: Vec::new(), agent, since, session: None, force, json };
                if dry_run { RollbackSubcommand::Plan { chosen } } else { RollbackSubcommand::Apply { chosen, yes } }
            }
            (verb, _) => {
                let what = if verb.is_some() { "the writes are selected twice" } else { "no writes are selected" };
                return Err(CliError::new(CommandExit::Usage, what)
                    .hint("for example: sluice rollback --agent NAME --since 2h --dry-run"));
            }
        };
        let client = self.reach.open_operator_client()?;
        let (RollbackSubcommand::Plan { ref chosen } | RollbackSubcommand::Apply { ref chosen, .. }) = verb;
        let plan = client.send(&ApiRequest::post("/v1/rollbacks").body(chosen.body(&client)?))?;
        let RollbackSubcommand::Apply { yes, .. } = verb else {
            if chosen.json {
                screen.json(&plan)?
            } else {
                table(&plan, screen)?
            }
            return Ok(CommandExit::Ok);
        };
        if !chosen.json {
            table(&plan, screen)?;
        }
        let possible = steps(&plan).iter().filter(|step| is_possible(step)).count();
        if possible == 0 {
            let forced = steps(&plan).iter().any(|step| step.get("can_be_forced") == Some(&Value::Bool(true)));
            let hint = if forced {
                "it was changed since; to undo the write anyway: --force"
            } else {
                "the plan shows the reasons"
            };
            return Err(CliError::new(CommandExit::Conflict, "none of these writes can be undone").hint(hint));
        }
        if !yes {
            screen.confirm(&format!("Undo {}?", counted(possible, "write")), "--yes")?;
        }
        let done = client.send(&ApiRequest::post("/v1/rollbacks").body(pinned(&plan, chosen.force)))?;
        if chosen.json {
            screen.json(&done)?;
            return Ok(CommandExit::Ok);
        }
        for hold in done.get("buffer_ids").and_then(Value::as_array).into_iter().flatten() {
            screen.line(crate::escape::value(hold))?;
        }
        screen.note("these writes undo the others; follow them: sluice holds list");
        Ok(CommandExit::Ok)
    }
}

impl RollbackSelectionArgs {
    /// The body of the request for the plan.
    fn body(&self, client: &GatewayClient) -> Result<Value, CliError> {
        let ids: Result<Vec<String>, CliError> =
            self.ids.iter().map(|typed| client.resolve_id(ListedIdKind::Holds, typed)).collect();
        let since = self.since.map(|since| since.at(SystemClock.now()).as_millis());
        let session =
            self.session.as_deref().map(|typed| client.resolve_id(ListedIdKind::Sessions, typed)).transpose()?;
        Ok(json!({
            "buffer_ids": ids?, "agent": self.agent, "since_ms": since, "session_id": session, "force": self.force,
            "plan_only": true,
        }))
    }
}

/// Only what was planned: writes that were made since then are not undone unseen.
fn pinned(plan: &Value, force: bool) -> Value {
    let ids = steps(plan).iter().filter(|step| is_possible(step)).map(|step| text_field(step, "buffer_id"));
    json!({"buffer_ids": ids.collect::<Vec<_>>(), "force": force})
}

fn steps(plan: &Value) -> &[Value] {
    plan.get("steps").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_possible(step: &Value) -> bool {
    step.get("possible") == Some(&Value::Bool(true))
}

fn table(plan: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = steps(plan).iter().map(|step| text_field(step, "buffer_id").to_owned()).collect();
    let mut table = TextTable::new(&["hold", "capability", "can be undone", "until", "reason"]);
    for (step, id) in steps(plan).iter().zip(short_ids(screen, &ids)) {
        let possible = if is_possible(step) { "yes" } else { "no" };
        table.row(&[id, display_field(step, "capability"), possible.into(), display_field(step, "until"), why(step)]);
    }
    table.print(screen, "there is nothing to undo")?;
    steps(plan).iter().zip(short_ids(screen, &ids)).try_for_each(|(step, id)| files(step, &id, screen))?;
    for step in steps(plan) {
        for words in step.get("difference").and_then(Value::as_array).into_iter().flatten() {
            screen.line(format_args!(
                "differs   {}: {}",
                display_field(step, "buffer_id"),
                crate::escape::value(words)
            ))?;
        }
    }
    Ok(())
}

/// Why a step is not possible, and who undid it before.
fn why(step: &Value) -> String {
    match step.get("undone_at") {
        Some(_) => {
            format!("already undone by {} at {}", display_field(step, "undone_by"), display_field(step, "undone_at"))
        }
        None => display_field(step, "why"),
    }
}

/// The files of a step, and what would be lost where a file was changed since.
fn files(step: &Value, id: &str, screen: &CommandConsole) -> Result<(), CliError> {
    for file in step.get("files").and_then(Value::as_array).into_iter().flatten() {
        let path = crate::escape::escape_line(text_field(file, "path")).to_string();
        let says = match text_field(file, "does") {
            "restore" => "its old content is restored".to_owned(),
            "remove" => "it is removed: it did not exist before".to_owned(),
            "nothing" => "it is unchanged".to_owned(),
            "changed" => "changed since, or the client did not report the result".to_owned(),
            _ => format!("cannot be undone: {}", crate::escape::escape_line(text_field(file, "why"))),
        };
        screen.line(format_args!("{id}  {path}: {says}"))?;
        for line in text_field(file, "difference").lines() {
            screen.line(format_args!("    {}", crate::escape::escape_line(line)))?;
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
