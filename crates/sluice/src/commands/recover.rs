//! `sluice recover`: what was found about a database that was restored or changed, and an admin's decision.

use clap::Args;
use serde_json::{Value, json};

use crate::client::{Ask, Reach, shown, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::visible::{line, value};

/// Say what became of a database that was restored or changed.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice recover\n  sluice recover --restored-from-backup\n  sluice recover --investigate"
)]
pub(crate) struct Recover {
    #[command(flatten)]
    reach: Reach,
    /// It was restored on purpose: accept the database as it is and lift the freeze; open writes stay with you
    #[arg(long, conflicts_with = "investigate")]
    restored_from_backup: bool,
    /// Nobody knows yet: keep everything frozen and show the evidence
    #[arg(long)]
    investigate: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Recover {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let screen = &screen.naming("standing");
        let client = self.reach.operator()?;
        let decision = match (self.restored_from_backup, self.investigate) {
            (true, _) => Some("restored_from_backup"),
            (_, true) => Some("investigate"),
            (false, false) => None,
        };
        // What was found is shown as it was before the decision.
        let before = client.ask(&Ask::get("/v1/recovery").stops())?;
        let now = match decision {
            Some(decision) => client.ask(&Ask::post("/v1/recovery").body(json!({"decision": decision})).stops())?,
            None => before.clone(),
        };
        if self.json {
            screen.json(&now)?;
            return Ok(Exit::Ok);
        }
        screen.line(format_args!("standing    {}", shown(&now, "standing")))?;
        screen.line(format_args!("gateway     {}, start {}", shown(&now, "instance"), shown(&now, "epoch")))?;
        screen.line(format_args!("state file  {}", shown(&now, "state_file")))?;
        screen.line(format_args!("checkpoints {}", shown(&now, "checkpoints_file")))?;
        for finding in before.get("findings").and_then(Value::as_array).into_iter().flatten() {
            screen.line(format_args!("found       {} ({})", shown(finding, "text"), shown(finding, "code")))?;
        }
        if before.get("state_file_in_data") == Some(&Value::Bool(true)) {
            screen.note("the state file lies in the data folder, where a copy of the folder takes it along: set recovery.state_file");
        }
        self.advise(&now, screen)
    }

    fn advise(&self, now: &Value, screen: &Screen) -> Result<Exit, Failure> {
        let others = now.get("suspected_by").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        match (text(now, "standing"), self.restored_from_backup) {
            ("trusted", true) => {
                screen.note("the database counts as it is; this is on record, and the freeze of this node is lifted");
                screen.note("what was open waits for you: sluice holds list --state stale,needs_human");
                screen.note("what was revoked, cancelled or denied after the copy is forgotten: look at sluice keys list and sluice allowances list");
                for node in others {
                    screen.note(format_args!("{} suspects the database too: run this at that node", value(node)));
                }
            }
            ("trusted", false) => screen.note("the database is the one this gateway wrote to last"),
            ("investigating", _) => {
                screen.note("everything stays frozen; nothing is sent and nothing is signed");
                screen.note(
                    "keep a copy of the data folder, the state file and the checkpoints file before anything else",
                );
                screen.note("sluice audit export --out DIR writes the record as it is now");
                let (state, notes) = (line(text(now, "state_file")), line(text(now, "checkpoints_file")));
                screen.note(format_args!(
                    "sluice audit verify --against {state} compares it with the last signed checkpoint"
                ));
                screen.note(format_args!("sluice audit verify --against {notes} compares it with all of them"));
                if !text(now, "checkpoint").is_empty() {
                    screen.line("the last checkpoint that is remembered:")?;
                    text(now, "checkpoint").lines().try_for_each(|shown| screen.line(line(shown)))?;
                }
            }
            (_, _) => {
                screen.note("everything is frozen and every open write waits for a person; decide which it was:");
                screen.note("sluice recover --restored-from-backup   a copy was put back on purpose");
                screen.note("sluice recover --investigate            nobody knows; stays frozen, shows the evidence");
            }
        }
        Ok(Exit::Ok)
    }
}
