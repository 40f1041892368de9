//! Decisions on approvals.
//!
//! Promise: an approval names the digest of what was shown, so that it cannot apply to anything else; a batch is
//! never approved without saying how much of it, and never without the digests of all its writes.

use std::io::IsTerminal as _;

use clap::Args;
use serde_json::{Value, json};

use super::{display, fetch, show};
use crate::client::{ApiRequest, GatewayClient, ListedIdKind, text_field};
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};
use crate::watch;

/// Approve once.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice approvals approve appr_0193f2\n  sluice approvals approve appr_0193f2 --for always --bound 2\n  sluice approvals approve appr_0193f2 --note 'but only this once'\n  sluice approvals approve appr_0193f2 --first 10\n  sluice approvals approve appr_0193f2 --only buf_0193f3 buf_0193f4"
)]
pub(super) struct ApprovalsApproveArgs {
    /// Approval ID, or its first characters
    id: String,
    /// Note for the agent
    #[arg(long, allow_hyphen_values = true, conflicts_with_all = ["all", "first", "only"])]
    note: Option<String>,
    /// Also approve later calls of this kind: for the rest of the session, or always
    #[arg(long = "for", value_name = "HOW LONG", conflicts_with_all = ["all", "first", "only"])]
    standing: Option<StandingApprovalLifetime>,
    /// With --for: number of the bound that `show` lists; 1, the narrowest, if not given
    #[arg(long, value_name = "N", requires = "standing")]
    bound: Option<u32>,
    /// Approve all writes of a batch
    #[arg(long, conflicts_with_all = ["first", "only"])]
    all: bool,
    /// Approve only the first N writes of a batch
    #[arg(long, value_name = "N", conflicts_with = "only")]
    first: Option<u32>,
    /// Approve only these writes of a batch
    #[arg(long, value_name = "ID", num_args = 1..)]
    only: Vec<String>,
    #[command(flatten)]
    sure: ApprovalConfirmArgs,
}

/// How long a standing approval lasts.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum StandingApprovalLifetime {
    /// For the rest of the session
    Session,
    /// From now on
    Always,
}

impl StandingApprovalLifetime {
    const fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

/// Deny.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice approvals deny appr_0193f2 --note 'wrong recipient'\n  sluice approvals deny appr_0193f2 appr_0193f3"
)]
pub(super) struct ApprovalsDenyArgs {
    /// Approval IDs, or their first characters
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Reason, sent to the agent
    #[arg(long, allow_hyphen_values = true)]
    note: Option<String>,
    /// Print the API responses as JSON, one after the other
    #[arg(long)]
    json: bool,
}

/// Approve, now and for later calls of this kind.
#[derive(Debug, Args)]
pub(super) struct ApprovalsStandingArgs {
    /// Approval ID, or its first characters
    id: String,
    /// Number of the bound that `show` lists; 1, the narrowest, if not given
    #[arg(long, value_name = "N")]
    bound: Option<u32>,
    /// Note for the agent
    #[arg(long, allow_hyphen_values = true)]
    note: Option<String>,
    #[command(flatten)]
    sure: ApprovalConfirmArgs,
}

/// Approve once, with a note for the agent.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice approvals note appr_0193f2 'add logs'")]
pub(super) struct ApprovalsNoteArgs {
    /// Approval ID, or its first characters
    id: String,
    /// Note for the agent
    #[arg(allow_hyphen_values = true)]
    text: String,
    #[command(flatten)]
    sure: ApprovalConfirmArgs,
}

/// Change it and approve the changed version.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice approvals modify appr_0193f2 --arguments changed.json\n  sluice approvals modify appr_0193f2 --text 'npm test'"
)]
pub(super) struct ApprovalsModifyArgs {
    /// Approval ID, or its first characters
    id: String,
    /// File with all arguments of the changed write, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "text", required_unless_present = "text")]
    arguments: Option<std::path::PathBuf>,
    /// The changed text of a client's request
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Answer an approval that has options.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice approvals choose appr_0193f2 B")]
pub(super) struct ApprovalsChooseArgs {
    /// Approval ID, or its first characters
    id: String,
    /// Letter of an option, or an answer in your own words
    answer: String,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

/// Safeguards of an approval.
#[derive(Debug, Args)]
struct ApprovalConfirmArgs {
    /// Approve only if this is still the digest of the write, or its first characters, as printed by `show`
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Do not show the card and do not ask for confirmation on a terminal
    #[arg(long, short)]
    yes: bool,
    /// Print the API response as JSON
    #[arg(long)]
    json: bool,
}

impl ApprovalsApproveArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let id = client.resolve_id(ListedIdKind::Approvals, &self.id)?;
        let approval = fetch(client, &id)?;
        self.sure.decide(client, screen, &approval, self.body(client, &approval)?)
    }

    fn body(&self, client: &GatewayClient, approval: &Value) -> Result<Value, CliError> {
        let chooses = self.all || self.first.is_some() || !self.only.is_empty();
        match (text_field(approval, "subject") == "batch", chooses) {
            (false, false) => Ok(match self.standing {
                None => json!({"decision": "approve", "note": self.note}),
                Some(how_long) => standing_body(how_long.word(), self.note.as_deref(), self.bound),
            }),
            (true, false) if self.standing.is_some() => Err(batch_once()),
            (false, true) => Err(CliError::new(CommandExit::Usage, "this approval covers one write")
                .hint("leave out --all, --first and --only")),
            (true, false) => Err(CliError::new(CommandExit::Usage, "batch limit reached: say which writes to approve")
                .why(format!("writes in this batch: {}", crate::client::display_field(approval, "items")))
                .hint("answer with --all, --first N or --only ID…")),
            (true, true) if self.all => Ok(json!({"decision": "approve_all", "seen": approval.get("items")})),
            (true, true) => match self.first {
                Some(first) => Ok(json!({"decision": "approve_first", "first": first})),
                None => {
                    let ids: Result<Vec<_>, _> =
                        self.only.iter().map(|typed| client.resolve_id(ListedIdKind::Holds, typed)).collect();
                    Ok(json!({"decision": "approve_these", "buffer_ids": ids?}))
                }
            },
        }
    }
}

impl ApprovalsStandingArgs {
    pub(super) fn run(
        self,
        word: &str,
        client: &GatewayClient,
        screen: &CommandConsole,
    ) -> Result<CommandExit, CliError> {
        let approval = fetch(client, &client.resolve_id(ListedIdKind::Approvals, &self.id)?)?;
        if text_field(&approval, "subject") == "batch" {
            return Err(batch_once());
        }
        self.sure.decide(client, screen, &approval, standing_body(word, self.note.as_deref(), self.bound))
    }
}

fn batch_once() -> CliError {
    CliError::new(CommandExit::Usage, "a batch cannot get a standing approval")
        .hint("sluice approvals approve ID --all, --first N or --only ID…")
}

/// A decision that also covers later calls. An older gateway gets no `bound` if none was chosen.
fn standing_body(word: &str, note: Option<&str>, bound: Option<u32>) -> Value {
    let mut body = json!({"decision": word, "note": note});
    if let (Some(fields), Some(bound)) = (body.as_object_mut(), bound) {
        fields.insert("bound".into(), bound.into());
    }
    body
}

impl ApprovalsNoteArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let approval = fetch(client, &client.resolve_id(ListedIdKind::Approvals, &self.id)?)?;
        self.sure.decide(client, screen, &approval, json!({"decision": "approve", "note": self.text}))
    }
}

impl ApprovalsModifyArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let id = client.resolve_id(ListedIdKind::Approvals, &self.id)?;
        let arguments: Option<Value> = match &self.arguments {
            None => None,
            Some(file) => {
                let bad =
                    |why: String| CliError::new(CommandExit::Usage, "the changed arguments cannot be used").why(why);
                let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
                Some(serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?)
            }
        };
        let body = json!({"decision": "modify", "arguments": arguments, "text": self.text});
        say(&client.send(&ApiRequest::post(decision(&id)).body(body))?, self.json, screen)?;
        Ok(CommandExit::Ok)
    }
}

impl ApprovalsChooseArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let id = client.resolve_id(ListedIdKind::Approvals, &self.id)?;
        let letter = self.answer.trim();
        let note = if letter.chars().count() == 1 { letter.to_uppercase() } else { self.answer.clone() };
        let body = json!({"decision": "choose", "note": note});
        say(&client.send(&ApiRequest::post(decision(&id)).body(body))?, self.json, screen)?;
        Ok(CommandExit::Ok)
    }
}

impl ApprovalsDenyArgs {
    pub(super) fn run(self, client: &GatewayClient, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        watch::each(screen, &self.ids, |typed| {
            let id = client.resolve_id(ListedIdKind::Approvals, typed)?;
            let ask =
                ApiRequest::post(decision(&id)).body(json!({"decision": "deny", "note": self.note})).via_stop_lane();
            say(&client.send(&ask)?, self.json, screen)
        })
    }
}

impl ApprovalConfirmArgs {
    /// For an approval that is already on the screen.
    const ALREADY_SHOWN: Self = Self { digest: None, yes: true, json: false };

    fn decide(
        &self,
        client: &GatewayClient,
        screen: &CommandConsole,
        approval: &Value,
        mut body: Value,
    ) -> Result<CommandExit, CliError> {
        let one = if text_field(approval, "subject") == "batch" { None } else { display::writes(approval).first() };
        let digest = one.map(|write| text_field(write, "digest"));
        if let Some(seen) = &self.digest
            && !digest.is_some_and(|digest| begins(digest, seen))
        {
            return Err(CliError::new(CommandExit::Conflict, "this is not the write you were shown")
                .why(format!("its digest is {}", crate::escape::escape_line(digest.unwrap_or("the digest of a batch"))))
                .hint("show it again: sluice approvals show ID"));
        }
        // Where a person sits at the terminal, the card is on the screen before they answer.
        let person = std::io::stdin().is_terminal() && screen.is_terminal();
        if person && !self.yes && self.digest.is_none() && text_field(approval, "status") == "pending" {
            show(screen, approval, false)?;
            screen.confirm("Approve?", "--yes")?;
        }
        if let Some(fields) = body.as_object_mut() {
            match digest {
                Some(digest) => fields.insert("digest".into(), digest.into()),
                // An approval of many writes names each of them: writes that join the card later are not covered.
                None => {
                    let all: Vec<&str> =
                        display::writes(approval).iter().map(|write| text_field(write, "digest")).collect();
                    fields.insert("digests".into(), all.into())
                }
            };
        }
        let decided = client.send(&ApiRequest::post(decision(text_field(approval, "approval_id"))).body(body))?;
        say(&decided, self.json, screen)?;
        Ok(CommandExit::Ok)
    }
}

/// Approves everything of an approval that was just shown.
pub(super) fn approve_shown(client: &GatewayClient, screen: &CommandConsole, approval: &Value) -> Result<(), CliError> {
    let all = text_field(approval, "subject") == "batch";
    let id = text_field(approval, "approval_id").to_owned();
    let sure = ApprovalConfirmArgs::ALREADY_SHOWN;
    let approve =
        ApprovalsApproveArgs { id, note: None, standing: None, bound: None, all, first: None, only: Vec::new(), sure };
    approve.sure.decide(client, screen, approval, approve.body(client, approval)?).map(drop)
}

/// Approves what was just shown, and later calls of this kind in its session.
pub(super) fn session_shown(client: &GatewayClient, screen: &CommandConsole, approval: &Value) -> Result<(), CliError> {
    if text_field(approval, "subject") == "batch" {
        return Err(batch_once());
    }
    ApprovalConfirmArgs::ALREADY_SHOWN.decide(client, screen, approval, standing_body("session", None, None)).map(drop)
}

/// Denies an approval that was just shown.
pub(super) fn deny_shown(client: &GatewayClient, screen: &CommandConsole, approval: &Value) -> Result<(), CliError> {
    let ask = ApiRequest::post(decision(text_field(approval, "approval_id")))
        .body(json!({"decision": "deny"}))
        .via_stop_lane();
    say(&client.send(&ask)?, false, screen)
}

/// Whether a digest begins with this text, with or without its algorithm prefix.
fn begins(digest: &str, seen: &str) -> bool {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    seen.len() >= 8 && (digest.starts_with(seen) && seen.contains(':') || hex.starts_with(seen))
}

fn decision(id: &str) -> String {
    format!("/v1/approvals/{id}/decision")
}

fn say(approval: &Value, json: bool, screen: &CommandConsole) -> Result<(), CliError> {
    if json { Ok(screen.json(approval)?) } else { display::print_decision(approval, screen) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_named_by_enough_of_its_beginning() {
        let digest = "sha256-v1:67235a9b751510a7";
        for (seen, fits) in [
            ("sha256-v1:67235a9b", true),
            ("67235a9b", true),
            ("67235a9", false),
            ("sha256-v1", false),
            ("77235a9b", false),
            ("", false),
        ] {
            assert_eq!(begins(digest, seen), fits, "{seen}");
        }
    }
}
