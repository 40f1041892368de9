//! `sluice alerts`: what people were told.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use sluice_core::AgentName;

use crate::client::{Ask, Kind, Reach, entries, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::table::{Table, short_ids};
use crate::watch::{self, Listing};

/// List and acknowledge alerts.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    before_help = "Examples:\n  sluice alerts list --open\n  sluice alerts ack msg_0193f2"
)]
pub(crate) struct Alerts {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List alerts, the newest first
    #[command(before_help = "Examples:\n  sluice alerts list --open --severity warning\n  sluice alerts list --watch")]
    List {
        /// Only those nobody has acknowledged
        #[arg(long)]
        open: bool,
        /// At least this severe
        #[arg(long)]
        severity: Option<Severity>,
        /// Only about this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<AgentName>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Mark alerts as seen
    #[command(before_help = "Examples:\n  sluice alerts ack msg_0193f2")]
    Ack {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
        /// For machines
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Severity {
    Info,
    Action,
    Warning,
    Critical,
}

impl Alerts {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("alert_id");
        let client = self.reach.operator()?;
        match self.verb {
            Verb::List { open, severity, agent, listing } => {
                let severity = severity.map(|severity| match severity {
                    Severity::Info => "info",
                    Severity::Action => "action",
                    Severity::Warning => "warning",
                    Severity::Critical => "critical",
                });
                let ask = Ask::get("/v1/alerts")
                    .with("open", open.then_some(true))
                    .with("severity", severity)
                    .with("agent", agent)
                    .stops();
                let fetch = || client.list(&ask, listing.limit);
                watch::show(&client, screen, listing, fetch, |list| table(list, screen))
            }
            Verb::Ack { ids, json } => watch::each(screen, &ids, |typed| {
                let id = client.id(Kind::Alerts, typed)?;
                client.ask(&Ask::post(format!("/v1/alerts/{id}/acknowledge")))?;
                if json {
                    screen.json(&json!({"alert_id": id, "acknowledged": true}))?;
                }
                screen.note(format_args!("acknowledged {id}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &Screen) -> Result<(), Failure> {
    let ids: Vec<String> = entries(list).iter().map(|alert| text(alert, "alert_id").to_owned()).collect();
    let mut table = Table::new(&["alert", "severity", "topic", "at", "seen by", "about"]);
    for (alert, id) in entries(list).iter().zip(short_ids(screen, &ids)) {
        let cell = |name| shown(alert, name);
        table.row(&[id, cell("severity"), cell("topic"), cell("created_at"), cell("acknowledged_by"), cell("body")]);
    }
    table.print(screen, "there are no alerts")
}
