//! Answers to questions.
//!
//! Promise: a yes names the digest of what was shown, so that it cannot fit anything else; a batch is never
//! approved without saying how much of it, and never without the digests of all its writes.

use std::io::IsTerminal as _;

use clap::Args;
use serde_json::{Value, json};

use super::{card, fetch, show};
use crate::client::{Ask, Client, Kind, text};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::watch;

/// Say yes, once.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice approvals approve appr_0193f2\n  sluice approvals approve appr_0193f2 --for always --bound 2\n  sluice approvals approve appr_0193f2 --note 'but only this once'\n  sluice approvals approve appr_0193f2 --first 10\n  sluice approvals approve appr_0193f2 --only buf_0193f3 buf_0193f4"
)]
pub(super) struct Approve {
    /// Its id, or the beginning of it
    id: String,
    /// What to tell the agent along
    #[arg(long, allow_hyphen_values = true, conflicts_with_all = ["all", "first", "only"])]
    note: Option<String>,
    /// Also to the like: for the rest of the session, or always
    #[arg(long = "for", value_name = "HOW LONG", conflicts_with_all = ["all", "first", "only"])]
    standing: Option<HowLong>,
    /// Which of the bounds that `show` lists, for --for; 1, the narrowest, if not given
    #[arg(long, value_name = "N", requires = "standing")]
    bound: Option<u32>,
    /// All writes of a batch
    #[arg(long, conflicts_with_all = ["first", "only"])]
    all: bool,
    /// The first writes of a batch
    #[arg(long, value_name = "N", conflicts_with = "only")]
    first: Option<u32>,
    /// These writes of a batch
    #[arg(long, value_name = "ID", num_args = 1..)]
    only: Vec<String>,
    #[command(flatten)]
    sure: Sure,
}

/// How long a standing approval lasts.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum HowLong {
    /// For the rest of the session
    Session,
    /// From now on
    Always,
}

impl HowLong {
    const fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

/// Say no.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice approvals deny appr_0193f2 --note 'wrong recipient'\n  sluice approvals deny appr_0193f2 appr_0193f3"
)]
pub(super) struct Deny {
    /// Their ids, or the beginnings of them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Why
    #[arg(long, allow_hyphen_values = true)]
    note: Option<String>,
    /// For machines: the answers of the API, one after the other
    #[arg(long)]
    json: bool,
}

/// Say yes, now and to the like.
#[derive(Debug, Args)]
pub(super) struct Standing {
    /// Its id, or the beginning of it
    id: String,
    /// Which of the bounds that `show` lists; 1, the narrowest, if not given
    #[arg(long, value_name = "N")]
    bound: Option<u32>,
    /// What to tell the agent along
    #[arg(long, allow_hyphen_values = true)]
    note: Option<String>,
    #[command(flatten)]
    sure: Sure,
}

/// Say yes, with a note for the agent.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice approvals note appr_0193f2 'add logs'")]
pub(super) struct Note {
    /// Its id, or the beginning of it
    id: String,
    /// What to tell the agent along
    #[arg(allow_hyphen_values = true)]
    text: String,
    #[command(flatten)]
    sure: Sure,
}

/// Change it, then say yes.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice approvals modify appr_0193f2 --arguments changed.json\n  sluice approvals modify appr_0193f2 --text 'npm test'"
)]
pub(super) struct Modify {
    /// Its id, or the beginning of it
    id: String,
    /// File with all arguments of the changed write, as JSON
    #[arg(long, value_name = "FILE", conflicts_with = "text", required_unless_present = "text")]
    arguments: Option<std::path::PathBuf>,
    /// The changed text of a client's request
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// Answer a question with options.
#[derive(Debug, Args)]
#[command(before_help = "Examples:\n  sluice approvals choose appr_0193f2 B")]
pub(super) struct Choose {
    /// Its id, or the beginning of it
    id: String,
    /// The letter of an option, or an answer of your own
    answer: String,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

/// How sure a yes is.
#[derive(Debug, Args)]
struct Sure {
    /// Only if this is still the digest of the write, or its beginning, as `show` printed it
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Do not show the card and ask on a terminal
    #[arg(long, short)]
    yes: bool,
    /// For machines: the answer of the API
    #[arg(long)]
    json: bool,
}

impl Approve {
    pub(super) fn run(self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        let id = client.id(Kind::Approvals, &self.id)?;
        let approval = fetch(client, &id)?;
        self.sure.decide(client, screen, &approval, self.body(client, &approval)?)
    }

    fn body(&self, client: &Client, approval: &Value) -> Result<Value, Failure> {
        let chooses = self.all || self.first.is_some() || !self.only.is_empty();
        match (text(approval, "subject") == "batch", chooses) {
            (false, false) => Ok(match self.standing {
                None => json!({"decision": "approve", "note": self.note}),
                Some(how_long) => standing_body(how_long.word(), self.note.as_deref(), self.bound),
            }),
            (true, false) if self.standing.is_some() => Err(batch_once()),
            (false, true) => Err(Failure::new(Exit::Usage, "this question is about one write")
                .hint("leave --all, --first and --only away")),
            (true, false) => Err(Failure::new(Exit::Usage, "this question is about many writes")
                .why(format!("it covers {}", crate::client::shown(approval, "items")))
                .hint("say how much of it: --all, --first N or --only ID…")),
            (true, true) if self.all => Ok(json!({"decision": "approve_all", "seen": approval.get("items")})),
            (true, true) => match self.first {
                Some(first) => Ok(json!({"decision": "approve_first", "first": first})),
                None => {
                    let ids: Result<Vec<_>, _> = self.only.iter().map(|typed| client.id(Kind::Holds, typed)).collect();
                    Ok(json!({"decision": "approve_these", "buffer_ids": ids?}))
                }
            },
        }
    }
}

impl Standing {
    pub(super) fn run(self, word: &str, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        let approval = fetch(client, &client.id(Kind::Approvals, &self.id)?)?;
        if text(&approval, "subject") == "batch" {
            return Err(batch_once());
        }
        self.sure.decide(client, screen, &approval, standing_body(word, self.note.as_deref(), self.bound))
    }
}

fn batch_once() -> Failure {
    Failure::new(Exit::Usage, "a batch is answered once, not for ever")
        .hint("sluice approvals approve ID --all, --first N or --only ID…")
}

/// A decision for more than this once. An older gateway is not told of a bound that was not chosen.
fn standing_body(word: &str, note: Option<&str>, bound: Option<u32>) -> Value {
    let mut body = json!({"decision": word, "note": note});
    if let (Some(fields), Some(bound)) = (body.as_object_mut(), bound) {
        fields.insert("bound".into(), bound.into());
    }
    body
}

impl Note {
    pub(super) fn run(self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        let approval = fetch(client, &client.id(Kind::Approvals, &self.id)?)?;
        self.sure.decide(client, screen, &approval, json!({"decision": "approve", "note": self.text}))
    }
}

impl Modify {
    pub(super) fn run(self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        let id = client.id(Kind::Approvals, &self.id)?;
        let arguments: Option<Value> = match &self.arguments {
            None => None,
            Some(file) => {
                let bad = |why: String| Failure::new(Exit::Usage, "the changed arguments cannot be used").why(why);
                let text = std::fs::read_to_string(file).map_err(|error| bad(error.to_string()))?;
                Some(serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?)
            }
        };
        let body = json!({"decision": "modify", "arguments": arguments, "text": self.text});
        say(&client.ask(&Ask::post(decision(&id)).body(body))?, self.json, screen)?;
        Ok(Exit::Ok)
    }
}

impl Choose {
    pub(super) fn run(self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        let id = client.id(Kind::Approvals, &self.id)?;
        let letter = self.answer.trim();
        let note = if letter.chars().count() == 1 { letter.to_uppercase() } else { self.answer.clone() };
        let body = json!({"decision": "choose", "note": note});
        say(&client.ask(&Ask::post(decision(&id)).body(body))?, self.json, screen)?;
        Ok(Exit::Ok)
    }
}

impl Deny {
    pub(super) fn run(self, client: &Client, screen: &Screen) -> Result<Exit, Failure> {
        watch::each(screen, &self.ids, |typed| {
            let id = client.id(Kind::Approvals, typed)?;
            let ask = Ask::post(decision(&id)).body(json!({"decision": "deny", "note": self.note})).stops();
            say(&client.ask(&ask)?, self.json, screen)
        })
    }
}

impl Sure {
    /// For a question that is on the screen already.
    const ALREADY_SHOWN: Self = Self { digest: None, yes: true, json: false };

    fn decide(&self, client: &Client, screen: &Screen, approval: &Value, mut body: Value) -> Result<Exit, Failure> {
        let one = if text(approval, "subject") == "batch" { None } else { card::writes(approval).first() };
        let digest = one.map(|write| text(write, "digest"));
        if let Some(seen) = &self.digest
            && !digest.is_some_and(|digest| begins(digest, seen))
        {
            return Err(Failure::new(Exit::Conflict, "this is not the write you were shown")
                .why(format!("its digest is {}", crate::visible::line(digest.unwrap_or("that of a batch"))))
                .hint("look again: sluice approvals show ID"));
        }
        // Where a person sits, what they answer to is on the screen before they answer.
        let person = std::io::stdin().is_terminal() && screen.is_terminal();
        if person && !self.yes && self.digest.is_none() && text(approval, "status") == "pending" {
            show(screen, approval, false)?;
            screen.ask("Approve?", "--yes")?;
        }
        if let Some(fields) = body.as_object_mut() {
            match digest {
                Some(digest) => fields.insert("digest".into(), digest.into()),
                // A yes to many writes names each of them: what joins the card meanwhile is not covered.
                None => {
                    let all: Vec<&str> = card::writes(approval).iter().map(|write| text(write, "digest")).collect();
                    fields.insert("digests".into(), all.into())
                }
            };
        }
        let decided = client.ask(&Ask::post(decision(text(approval, "approval_id"))).body(body))?;
        say(&decided, self.json, screen)?;
        Ok(Exit::Ok)
    }
}

/// Approves a question that was just shown, all of it.
pub(super) fn approve_shown(client: &Client, screen: &Screen, approval: &Value) -> Result<(), Failure> {
    let all = text(approval, "subject") == "batch";
    let id = text(approval, "approval_id").to_owned();
    let sure = Sure::ALREADY_SHOWN;
    let approve = Approve { id, note: None, standing: None, bound: None, all, first: None, only: Vec::new(), sure };
    approve.sure.decide(client, screen, approval, approve.body(client, approval)?).map(drop)
}

/// Approves a question that was just shown, and the same again in its session.
pub(super) fn session_shown(client: &Client, screen: &Screen, approval: &Value) -> Result<(), Failure> {
    if text(approval, "subject") == "batch" {
        return Err(batch_once());
    }
    Sure::ALREADY_SHOWN.decide(client, screen, approval, standing_body("session", None, None)).map(drop)
}

/// Denies a question that was just shown.
pub(super) fn deny_shown(client: &Client, screen: &Screen, approval: &Value) -> Result<(), Failure> {
    let ask = Ask::post(decision(text(approval, "approval_id"))).body(json!({"decision": "deny"})).stops();
    say(&client.ask(&ask)?, false, screen)
}

/// Whether a digest begins like this, with or without the name of its kind.
fn begins(digest: &str, seen: &str) -> bool {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    seen.len() >= 8 && (digest.starts_with(seen) && seen.contains(':') || hex.starts_with(seen))
}

fn decision(id: &str) -> String {
    format!("/v1/approvals/{id}/decision")
}

fn say(approval: &Value, json: bool, screen: &Screen) -> Result<(), Failure> {
    if json { Ok(screen.json(approval)?) } else { card::answer(approval, screen) }
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
