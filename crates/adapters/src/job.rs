//! One job of a worker: what the gateway asks an adapter, and what it gets back.
//!
//! Takes a [`Job`], walks the adapter's traits in the one right order, gives an [`Answer`]. Promise: no
//! effect happens in any job but `Perform` and `Undo`, and a handle that exists is never replaced.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::hex;
use sluice_core::rollback::Fingerprint;

use crate::adapter::{Adapter, Before, Cursor, Done, Found, Handle, Operation, Page, Past, SyncTrouble, Way, Write};
use crate::trouble::Trouble;

/// What the gateway asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "job")]
pub enum Job {
    /// Whose account it is, and whether the service is there.
    Account,
    /// The next changes of the copy.
    Sync {
        /// Where it stands.
        since: Option<Cursor>,
        /// Messages that broke whoever opened them: only their place is wanted.
        #[serde(default)]
        aside: Vec<String>,
    },
    /// Messages by id, as they are now.
    Fetch {
        /// Which.
        ids: Vec<String>,
    },
    /// Look before a write; create its handle unless it has one.
    Prepare {
        /// The write.
        write: Write,
        /// The handle of an earlier attempt.
        handle: Option<Handle>,
    },
    /// Do it.
    Perform {
        /// The write.
        write: Write,
        /// Its handle, as stored.
        handle: Option<Handle>,
    },
    /// Find out whether it happened.
    LookUp {
        /// The write.
        write: Write,
        /// Its handle, as stored.
        handle: Option<Handle>,
    },
    /// A print of what it changed, as it is now.
    Present {
        /// The write.
        write: Write,
        /// What it found.
        #[serde(with = "base64_text")]
        before: Vec<u8>,
        /// What the service said.
        receipt: String,
    },
    /// What taking it back would change now, in words.
    Difference {
        /// The write.
        write: Write,
        /// What it found.
        #[serde(with = "base64_text")]
        before: Vec<u8>,
        /// What the service said.
        receipt: String,
    },
    /// Take it back.
    Undo {
        /// The write.
        write: Write,
        /// What it found.
        #[serde(with = "base64_text")]
        before: Vec<u8>,
        /// What the service said.
        receipt: String,
    },
}

/// What was found before a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The handle, where the class has one.
    pub handle: Option<Handle>,
    /// What is needed to go back, where that is possible.
    pub before: Option<Before>,
}

/// What the gateway gets back.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The account's name, if the service says it.
    Account(Result<Option<String>, SyncTrouble>),
    /// Changes. Raw: the worker passes them through all stages before they leave it.
    Page(Result<Page, SyncTrouble>),
    /// What was found before.
    Prepared(Result<Prepared, Trouble>),
    /// What was done, or undone.
    Done(Result<Done, Trouble>),
    /// What a look showed.
    Found(Found),
    /// The print.
    Print(Result<Fingerprint, Trouble>),
    /// The difference.
    Difference(Result<Vec<String>, Trouble>),
}

/// Does one job.
pub fn run(adapter: &dyn Adapter, net: Way<'_>, job: &Job) -> Answer {
    match job {
        Job::Account => Answer::Account(adapter.account(net)),
        Job::Sync { since, .. } => Answer::Page(adapter.changes(net, since.as_ref())),
        Job::Fetch { ids } => Answer::Page(adapter.fetch(net, ids).map(|changes| Page {
            changes,
            next: Cursor(String::new()),
            more: false,
            progress: None,
        })),
        Job::Prepare { write, handle } => Answer::Prepared(prepare(adapter, net, write, handle.clone())),
        Job::Perform { write, handle } => Answer::Done(perform(adapter, net, write, handle.as_ref())),
        Job::LookUp { write, handle } => Answer::Found(
            adapter
                .operation(&write.capability)
                .map_or(Found::Unknown, |operation| operation.reconcile(net, write, handle.as_ref())),
        ),
        Job::Present { write, before, receipt } => Answer::Print(match adapter.reversal(&write.capability) {
            Some(reversal) => reversal.present(net, Past { write, before, receipt }),
            None => Err(cannot_undo()),
        }),
        Job::Difference { write, before, receipt } => Answer::Difference(match adapter.reversal(&write.capability) {
            Some(reversal) => reversal.difference(net, Past { write, before, receipt }),
            None => Err(cannot_undo()),
        }),
        Job::Undo { write, before, receipt } => Answer::Done(match adapter.reversal(&write.capability) {
            Some(reversal) => reversal.undo(net, Past { write, before, receipt }),
            None => Err(cannot_undo()),
        }),
    }
}

/// Looks before a write.
///
/// # Errors
/// Never unclear: nothing has happened yet.
pub fn prepare(
    adapter: &dyn Adapter,
    net: Way<'_>,
    write: &Write,
    handle: Option<Handle>,
) -> Result<Prepared, Trouble> {
    let operation = adapter.operation(&write.capability).ok_or_else(not_offered)?;
    let before = match adapter.reversal(&write.capability) {
        Some(reversal) => Some(reversal.capture(net, write).map_err(Trouble::without_effect)?),
        None => None,
    };
    let handle = match (operation, handle) {
        (Operation::ConsumeOnce(_), Some(kept)) => Some(kept),
        (Operation::ConsumeOnce(operation), None) => {
            Some(operation.create(net, write).map_err(Trouble::without_effect)?)
        }
        (Operation::Absolute(_) | Operation::Findable(_) | Operation::Opaque(_), _) => None,
    };
    Ok(Prepared { handle, before })
}

/// Carries a write out.
///
/// # Errors
/// When it was not done, was refused, or may have been done.
pub fn perform(adapter: &dyn Adapter, net: Way<'_>, write: &Write, handle: Option<&Handle>) -> Result<Done, Trouble> {
    match (adapter.operation(&write.capability).ok_or_else(not_offered)?, handle) {
        (Operation::Absolute(operation), _) => operation.perform(net, write),
        (Operation::ConsumeOnce(operation), Some(handle)) => operation.consume(net, write, handle),
        (Operation::ConsumeOnce(_), None) => Err(Trouble::invalid("the write was never prepared")),
        (Operation::Findable(operation), _) => operation.perform(net, write),
        (Operation::Opaque(operation), _) => operation.perform(net, write),
    }
}

fn not_offered() -> Trouble {
    Trouble::invalid("the service does not offer this")
}

fn cannot_undo() -> Trouble {
    Trouble::invalid("writes of this kind cannot be taken back")
}

impl Answer {
    /// Replaces what a service said about trouble, wherever it stands in this answer.
    pub fn screen_said(&mut self, screen: impl Fn(&str) -> Option<String>) {
        let why = match self {
            Self::Prepared(Err(Trouble::NotDone(why) | Trouble::Refused(why)))
            | Self::Done(Err(Trouble::NotDone(why) | Trouble::Refused(why)))
            | Self::Print(Err(Trouble::NotDone(why) | Trouble::Refused(why)))
            | Self::Page(Err(SyncTrouble::Later(why) | SyncTrouble::Stopped(why)))
            | Self::Account(Err(SyncTrouble::Later(why) | SyncTrouble::Stopped(why))) => why,
            _ => return,
        };
        why.said = why.said.take().and_then(|said| screen(&said));
    }

    /// As it leaves the worker. A page does not: its mail is raw, and leaves only after all stages, as [`sluice_core::mail::Mail`].
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Page(Ok(_)) => Value::Null,
            Self::Account(Ok(account)) => json!({"account": account}),
            Self::Page(Err(trouble)) | Self::Account(Err(trouble)) => match trouble {
                SyncTrouble::Expired => json!({"expired": true}),
                SyncTrouble::Later(why) => json!({"later": why}),
                SyncTrouble::Stopped(why) => json!({"stopped": why}),
            },
            Self::Prepared(Ok(Prepared { handle, before })) => {
                let before = before
                    .as_ref()
                    .map(|before| json!({"state": base64_text::encode(&before.state), "print": print(before.print)}));
                json!({"prepared": {"handle": handle, "before": before}})
            }
            Self::Done(Ok(done)) => json!({"done": done_json(done)}),
            Self::Prepared(Err(trouble))
            | Self::Done(Err(trouble))
            | Self::Print(Err(trouble))
            | Self::Difference(Err(trouble)) => {
                json!({"trouble": trouble})
            }
            Self::Found(Found::Applied(done)) => json!({"applied": done_json(done)}),
            Self::Found(Found::Absent) => json!({"absent": true}),
            Self::Found(Found::Unknown) => json!({"unknown": true}),
            Self::Difference(Ok(words)) => json!({"difference": words}),
            Self::Print(Ok(found)) => json!({"print": print(*found)}),
        }
    }
}

fn done_json(done: &Done) -> Value {
    json!({
        "receipt": done.receipt, "result": done.result, "after": done.after.map(print), "undo_until": done.undo_until,
    })
}

fn print(print: Fingerprint) -> String {
    hex::encode(&print.to_bytes())
}

/// Bytes as text inside JSON.
pub mod base64_text {
    use base64::Engine as _;
    use base64::alphabet::STANDARD;
    use base64::engine::{GeneralPurpose, general_purpose::PAD};
    use serde::{Deserialize as _, Deserializer, Serializer};

    const ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, PAD);

    /// As text.
    #[must_use]
    pub fn encode(bytes: &[u8]) -> String {
        ENGINE.encode(bytes)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&encode(bytes))
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// When the text is not base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        ENGINE.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Blob;
    use crate::trouble::{Cause, Why};
    use sluice_core::CapabilityName;

    #[test]
    fn a_job_is_the_same_after_its_way_to_the_worker() {
        let blobs = vec![Blob { name: "a".into(), media_type: "text/plain".into(), bytes: vec![0, 255] }];
        let capability = CapabilityName::new("email.send").unwrap();
        let write = Write { op: "buf_1".into(), capability, arguments: serde_json::Map::new(), at: 5, blobs };
        for job in [
            Job::Sync { since: Some(Cursor("c".into())), aside: vec!["m1".into()] },
            Job::Fetch { ids: vec!["m1".into()] },
            Job::Prepare { write: write.clone(), handle: Some(Handle("h".into())) },
            Job::Undo { write, before: vec![1, 2, 3], receipt: "r".into() },
        ] {
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job, "{text}");
        }
    }

    #[test]
    fn an_answer_is_pinned() {
        let why = Why { cause: Cause::RateLimited, text: "slow".into(), retry_after_s: Some(3), said: None };
        let told = json!({"cause": "rate_limited", "text": "slow", "retry_after_s": 3});
        assert_eq!(Answer::Done(Err(Trouble::NotDone(why))).to_json(), json!({"trouble": {"not_done": told}}));
        assert_eq!(Answer::Done(Err(Trouble::Unclear)).to_json(), json!({"trouble": "unclear"}));
        assert_eq!(Answer::Found(Found::Absent).to_json(), json!({"absent": true}));
        let before = Some(Before { state: b"x".to_vec(), print: Fingerprint::of(b"x") });
        let prepared = Answer::Prepared(Ok(Prepared { handle: Some(Handle("h".into())), before })).to_json();
        assert_eq!(prepared["prepared"]["handle"], "h");
        assert_eq!(prepared["prepared"]["before"]["state"], "eA==");
    }
}
