//! `sluice login`: signs a browser in to the dashboard, and lists and ends such sessions.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::client::{ApiRequest, GatewayArgs, display_field, entries, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::table::TextTable;
use crate::watch;

/// Sign in to the dashboard: prints a link that works once, for 10 minutes.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice login\n  sluice login list\n  sluice login revoke dash_0193f2…",
    after_help = "The link signs you in with the role of your operator token. Its code stands after a `#`: browsers \
        send that part to no server, so it is in no log. Without JavaScript, paste the code into the page."
)]
pub(crate) struct LoginCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    verb: Option<LoginSubcommand>,
}

#[derive(Debug, Subcommand)]
enum LoginSubcommand {
    /// List the browsers that are signed in
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Sign browsers out
    Revoke {
        /// Session IDs, as `sluice login list` prints them
        #[arg(required = true)]
        ids: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl LoginCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("dashboard_session_id");
        let client = self.reach.open_operator_client()?;
        match self.verb {
            None => {
                let mut made = client.send(&ApiRequest::post("/v1/sign-in-codes"))?;
                let link = format!("{}{}", client.address(), text_field(&made, "path"));
                if self.json {
                    if let Some(members) = made.as_object_mut() {
                        members.insert("link".into(), Value::String(link));
                    }
                    screen.json(&made)?;
                } else {
                    screen.line(&link)?;
                    screen.note("open this link in a browser: it works once, for 10 minutes");
                }
                Ok(CommandExit::Ok)
            }
            Some(LoginSubcommand::List { json }) => {
                let list = client.send(&ApiRequest::get("/v1/dashboard-sessions"))?;
                if json {
                    screen.json(&list)?
                } else {
                    table(&list, screen)?
                }
                Ok(CommandExit::Ok)
            }
            Some(LoginSubcommand::Revoke { ids, json }) => watch::each(screen, &ids, |id| {
                let path: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                client.send(&ApiRequest::delete(format!("/v1/dashboard-sessions/{path}")))?;
                if json {
                    screen.json(&json!({"dashboard_session_id": id, "ended": true}))?;
                }
                screen.note(format_args!("signed out {path}"));
                Ok(())
            }),
        }
    }
}

fn table(list: &Value, screen: &CommandConsole) -> Result<(), CliError> {
    let mut table = TextTable::new(&["session", "person", "browser", "signed in", "last used"]);
    for one in entries(list) {
        let cell = |name| display_field(one, name);
        let names = ["dashboard_session_id", "person", "browser", "signed_in_at", "last_used_at"];
        table.row(&names.map(cell));
    }
    table.print(screen, "no browser is signed in; to sign in: sluice login")
}
