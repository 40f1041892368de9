//! `sluice alerts`: alerts for people.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sluice_core::AgentName;

use crate::client::{ApiRequest, GatewayArgs, ListedIdKind, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::{TextTable, short_ids};
use crate::watch::{self, ListArgs};

/// List and acknowledge alerts.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice alerts list --open\n  sluice alerts ack msg_0193f2"
)]
pub(crate) struct AlertsCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    #[command(subcommand)]
    verb: AlertsSubcommand,
}

#[derive(Debug, Subcommand)]
enum AlertsSubcommand {
    /// List alerts, the newest first
    #[command(before_help = "Examples:\n  sluice alerts list --open --severity warning\n  sluice alerts list --watch")]
    List {
        /// Only alerts that nobody has acknowledged
        #[arg(long)]
        open: bool,
        /// Only alerts of at least this severity
        #[arg(long)]
        severity: Option<AlertSeverityFilter>,
        /// Only alerts about this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        #[command(flatten)]
        listing: ListArgs,
    },
    /// Acknowledge alerts
    #[command(before_help = "Examples:\n  sluice alerts ack msg_0193f2")]
    Ack {
        /// Alert IDs, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AlertSeverityFilter {
    Info,
    Action,
    Warning,
    Critical,
}

impl AlertsCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("alert_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            AlertsSubcommand::List { open, severity, agent, listing } => {
                let severity = severity.map(|severity| match severity {
                    AlertSeverityFilter::Info => "info",
                    AlertSeverityFilter::Action => "action",
                    AlertSeverityFilter::Warning => "warning",
                    AlertSeverityFilter::Critical => "critical",
                });
                let ask = ApiRequest::get("/v1/alerts")
                    .with("open", open.then_some(true))
                    .with("severity", severity)
                    .with("agent", agent)
                    .via_stop_lane();
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            AlertsSubcommand::Ack { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.resolve_id(ListedIdKind::Alerts, typed)?;
                client.send(&ApiRequest::post(format!("/v1/alerts/{id}/acknowledge")))?;
                if json {
                    screen.json(&json!({"alert_id": id, "acknowledged": true}))?;
                }
                screen.note(format_args!("acknowledged {id}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let ids: Vec<String> = entries(list).iter().map(|alert| text_field(alert, "alert_id").to_owned()).collect();
    let mut table = TextTable::new(&["alert", "severity", "topic", "at", "seen by", "message"]);
    for (alert, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| display_field(alert, name);
        table.row(&[id, cell("severity"), cell("topic"), cell("created_at"), cell("acknowledged_by"), cell("body")]);
    }
    table.print(screen, "no alerts")
}
