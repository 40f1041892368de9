//! `sluice recover`: what was found about a database that was restored or changed, and an admin's decision.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{ApiRequest, GatewayArgs, display_field, text_field};
use crate::console::CommandConsole;
use crate::escape::{escape_line, value};
use crate::failure::{CliError, CommandExit};

/// Decide what to do with a database that was restored or changed.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice recover\n  sluice recover --restored-from-backup\n  sluice recover --investigate"
)]
pub(crate) struct RecoverCommand {
    #[command(flatten)]
    reach: GatewayArgs,
    /// It was restored on purpose: accept the database and lift the freeze; open writes wait for you
    #[arg(long, conflicts_with = "investigate")]
    restored_from_backup: bool,
    /// The cause is unknown: keep everything frozen and show the evidence
    #[arg(long)]
    investigate: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl RecoverCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let screen = &screen.naming("standing");
        let client = self.reach.open_operator_client()?;
        let decision = match (self.restored_from_backup, self.investigate) {
            (true, _) => Some("restored_from_backup"),
            (_, true) => Some("investigate"),
            (false, false) => None,
        };
        // The findings are shown as they were before the decision.
        let before = client.send(&ApiRequest::get("/v1/recovery").via_stop_lane())?;
        let now = match decision {
            Some(decision) => {
                client.send(&ApiRequest::post("/v1/recovery").body(json!({"decision": decision})).via_stop_lane())?
            }
            None => before.clone(),
        };
        if self.json {
            screen.json(&now)?;
            return Ok(CommandExit::Ok);
        }
        screen.line(format_args!("standing    {}", display_field(&now, "standing")))?;
        screen.line(format_args!(
            "gateway     {}, start {}",
            display_field(&now, "instance"),
            display_field(&now, "epoch")
        ))?;
        screen.line(format_args!("state file  {}", display_field(&now, "state_file")))?;
        screen.line(format_args!("checkpoints {}", display_field(&now, "checkpoints_file")))?;
        for finding in before.get("findings").and_then(Value::as_array).into_iter().flatten() {
            screen.line(format_args!(
                "found       {} ({})",
                display_field(finding, "text"),
                display_field(finding, "code")
            ))?;
        }
        if before.get("state_file_in_data") == Some(&Value::Bool(true)) {
            screen.note(
                "the state file is in the data folder, so a copy of the folder includes it: set recovery.state_file",
            );
        }
        self.advise(&now, screen)
    }

    fn advise(&self, now: &Value, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let others = now.get("suspected_by").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        match (text_field(now, "standing"), self.restored_from_backup) {
            ("trusted", true) => {
                screen
                    .note("the database is accepted; this is in the audit log, and the freeze of this node is lifted");
                screen.note("open writes wait for you: sluice holds list --state stale,needs_human");
                screen.note("anything revoked, cancelled or denied after the backup is lost: check sluice keys list and sluice allowances list");
                for node in others {
                    screen
                        .note(format_args!("{} suspects the database too: run this command on that node", value(node)));
                }
            }
            ("trusted", false) => screen.note("the database is the one this gateway wrote to last"),
            ("investigating", _) => {
                screen.note("everything stays frozen; nothing is sent and nothing is signed");
                screen.note(
                    "keep a copy of the data folder, the state file and the checkpoints file before anything else",
                );
                screen.note("sluice audit export --out DIR exports the current audit log");
                let (state, notes) =
                    (escape_line(text_field(now, "state_file")), escape_line(text_field(now, "checkpoints_file")));
                screen.note(format_args!(
                    "sluice audit verify --against {state} compares it with the last signed checkpoint"
                ));
                screen.note(format_args!("sluice audit verify --against {notes} compares it with all of them"));
                if !text_field(now, "checkpoint").is_empty() {
                    screen.line("the last known checkpoint:")?;
                    text_field(now, "checkpoint").lines().try_for_each(|shown| screen.line(escape_line(shown)))?;
                }
            }
            (_, _) => {
                screen.note("everything is frozen and every open write waits for a person; decide what happened:");
                screen.note("sluice recover --restored-from-backup   a backup was restored on purpose");
                screen.note("sluice recover --investigate            unknown; stays frozen, shows the evidence");
            }
        }
        Ok(CommandExit::Ok)
    }
}
