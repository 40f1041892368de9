//! `sluice nodes`: the gateways that share one database, their state and their differences.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::{ApiRequest, GatewayArgs, display_field, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;

/// Show the gateways that share one database.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice nodes list\n  sluice nodes list --json | jq '.differences'"
)]
pub(crate) struct NodesCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: NodesSubcommand,
}

#[derive(Debug, Subcommand)]
enum NodesSubcommand {
    /// List nodes, what each can carry out, and their differences
    #[command(before_help = "Examples:\n  sluice nodes list\n  sluice nodes list --json | jq -r '.nodes[].name'")]
    List {
        /// Print the API response as JSON
        #[arg(long)]
        json: bool,
    },
}

impl NodesCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let NodesSubcommand::List { json } = self.verb;
        let answer = self.reach.open_operator_client()?.send(&ApiRequest::get("/v1/nodes"))?;
        if json {
            screen.json(&answer)?;
            return Ok(CommandExit::Ok);
        }
        let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut table =
            TextTable::new(&["node", "state", "release", "started", "last seen", "lag", "policy", "services"]);
        for node in list(&answer, "nodes") {
            let suspected = node.get("suspected_at").is_some_and(Value::is_string);
            let state = if suspected {
                format!("{}, SUSPECTED", text_field(&node, "state"))
            } else {
                display_field(&node, "state")
            };
            let here = if node.get("answers") == Some(&Value::Bool(true)) { " (responding)" } else { "" };
            let lag = node.get("lag_ms").and_then(Value::as_u64).unwrap_or(0);
            let policy: String =
                text_field(&node, "policy_version").trim_start_matches("sha256:").chars().take(12).collect();
            table.row(&[
                format!("{}{here}", display_field(&node, "name")),
                state,
                display_field(&node, "release"),
                display_field(&node, "started_at"),
                display_field(&node, "last_seen"),
                format!("{}.{} s", lag / 1_000, lag % 1_000 / 100),
                policy,
                services(&list(&node, "services")),
            ]);
        }
        table.print(screen, "no nodes are registered yet")?;
        let differences = list(&answer, "differences");
        for one in &differences {
            screen.line(format_args!("DIFFERS  {}", crate::escape::escape_line(one.as_str().unwrap_or_default())))?;
        }
        if !differences.is_empty() {
            screen.note("use the same release, policy files and services on all nodes: docs/nodes.md");
        }
        Ok(CommandExit::Ok)
    }
}

/// The services for people: those that are not part of every gateway, and those that cannot be used.
fn services(all: &[Value]) -> String {
    let ready = |service: &Value| service.get("ready") == Some(&Value::Bool(true));
    let own = all.iter().filter(|service| text_field(service, "kind") == "built_in" && ready(service)).count();
    let others =
        all.iter().filter(|service| text_field(service, "kind") != "built_in" || !ready(service)).map(|service| {
            let not = if ready(service) { "" } else { " (unavailable)" };
            format!("{}{not}", display_field(service, "name"))
        });
    std::iter::once(format!("{own} built in")).chain(others).collect::<Vec<_>>().join(", ")
}
