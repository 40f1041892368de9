//! `sluice nodes`: which gateways share the database, how they are, and where they differ.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::client::{Ask, Reach, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::Table;

/// Show the gateways that share one database.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice nodes list\n  sluice nodes list --json | jq '.differences'"
)]
pub(crate) struct Nodes {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List nodes, what each can carry out, and in what they differ
    #[command(before_help = "Examples:\n  sluice nodes list\n  sluice nodes list --json | jq -r '.nodes[].name'")]
    List {
        /// For machines: the answer of the API
        #[arg(long)]
        json: bool,
    },
}

impl Nodes {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let Verb::List { json } = self.verb;
        let answer = self.reach.operator()?.ask(&Ask::get("/v1/nodes"))?;
        if json {
            screen.json(&answer)?;
            return Ok(Exit::Ok);
        }
        let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut table = Table::new(&["node", "state", "release", "started", "last seen", "lag", "policy", "services"]);
        for node in list(&answer, "nodes") {
            let suspected = node.get("suspected_at").is_some_and(Value::is_string);
            let state = if suspected { format!("{}, SUSPECTED", text(&node, "state")) } else { shown(&node, "state") };
            let here = if node.get("answers") == Some(&Value::Bool(true)) { " (answers)" } else { "" };
            let lag = node.get("lag_ms").and_then(Value::as_u64).unwrap_or(0);
            let policy: String = text(&node, "policy_version").trim_start_matches("sha256:").chars().take(12).collect();
            table.row(&[
                format!("{}{here}", shown(&node, "name")),
                state,
                shown(&node, "release"),
                shown(&node, "started_at"),
                shown(&node, "last_seen"),
                format!("{}.{} s", lag / 1_000, lag % 1_000 / 100),
                policy,
                services(&list(&node, "services")),
            ]);
        }
        table.print(screen, "no node has said yet what it is")?;
        let differences = list(&answer, "differences");
        for one in &differences {
            screen.line(format_args!("DIFFERS  {}", crate::visible::line(one.as_str().unwrap_or_default())))?;
        }
        if !differences.is_empty() {
            screen.note("bring all nodes to the same release, policy files and services: docs/nodes.md");
        }
        Ok(Exit::Ok)
    }
}

/// What a person cares about: what is not part of every gateway, and what cannot be used.
fn services(all: &[Value]) -> String {
    let ready = |service: &Value| service.get("ready") == Some(&Value::Bool(true));
    let own = all.iter().filter(|service| text(service, "kind") == "built_in" && ready(service)).count();
    let others = all.iter().filter(|service| text(service, "kind") != "built_in" || !ready(service)).map(|service| {
        let not = if ready(service) { "" } else { " (not now)" };
        format!("{}{not}", shown(service, "name"))
    });
    std::iter::once(format!("{own} built in")).chain(others).collect::<Vec<_>>().join(", ")
}
