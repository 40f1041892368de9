//! One job of a worker: the request of the gateway to an adapter, and the answer.
//!
//! Takes a [`AdapterJobRequest`], calls the adapter's traits in the one correct order, gives an [`AdapterJobResponse`]. Promise: only `Perform`
//! and `Undo` have an effect, and a handle that exists is never replaced.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::hex;
use sluice_core::rollback::ObjectFingerprint;

use crate::adapter::{
    Adapter, AppliedWrite, BeforeState, NetAccess, PastWrite, ReconcileOutcome, ServiceHandle, ServiceWrite,
    SyncCursor, SyncError, SyncPage, WriteOperation,
};
use crate::error::AdapterWriteError;

/// The request of the gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "job")]
pub enum AdapterJobRequest {
    /// Read the account's name, and whether the service answers.
    Account,
    /// The next changes of the replica.
    Sync {
        /// The position of the replica.
        since: Option<SyncCursor>,
        /// Messages that crashed each worker that opened them: only their ids are wanted.
        #[serde(default)]
        aside: Vec<String>,
    },
    /// Messages by id, as they are now.
    Fetch {
        /// The ids of the messages.
        ids: Vec<String>,
    },
    /// Capture the state before a write; create its handle unless it has one.
    Prepare {
        /// The write.
        write: ServiceWrite,
        /// The handle of an earlier attempt.
        handle: Option<ServiceHandle>,
    },
    /// Perform the write.
    Perform {
        /// The write.
        write: ServiceWrite,
        /// Its handle, as stored.
        handle: Option<ServiceHandle>,
    },
    /// Find out whether the write happened.
    LookUp {
        /// The write.
        write: ServiceWrite,
        /// Its handle, as stored.
        handle: Option<ServiceHandle>,
    },
    /// A fingerprint of the changed object, as it is now.
    Present {
        /// The write.
        write: ServiceWrite,
        /// The state before the write.
        #[serde(with = "base64_text")]
        before: Vec<u8>,
        /// The receipt of the service.
        receipt: String,
    },
    /// What a rollback would change now, in words.
    Difference {
        /// The write.
        write: ServiceWrite,
        /// The state before the write.
        #[serde(with = "base64_text")]
        before: Vec<u8>,
        /// The receipt of the service.
        receipt: String,
    },
    /// Undo the write.
    Undo {
        /// The write.
        write: ServiceWrite,
        /// The state before the write.
        #[serde(with = "base64_text")]
        before: Vec<u8>,
        /// The receipt of the service.
        receipt: String,
    },
}

/// The result of a preparation.
#[derive(Debug, Clone, PartialEq)]
pub struct WritePreparation {
    /// The handle, if the class has one.
    pub handle: Option<ServiceHandle>,
    /// The state to restore, if a rollback is possible.
    pub before: Option<BeforeState>,
}

/// The answer to the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum AdapterJobResponse {
    /// The account's name, if the service reports it.
    Account(Result<Option<String>, SyncError>),
    /// Changes. They are raw: the worker passes them through all stages before they leave it.
    Page(Result<SyncPage, SyncError>),
    /// The result of a preparation.
    Prepared(Result<WritePreparation, AdapterWriteError>),
    /// The result of a write or of an undo.
    Done(Result<AppliedWrite, AdapterWriteError>),
    /// The result of a lookup.
    Found(ReconcileOutcome),
    /// The fingerprint.
    Print(Result<ObjectFingerprint, AdapterWriteError>),
    /// The difference.
    Difference(Result<Vec<String>, AdapterWriteError>),
}

/// Runs one job.
pub fn run(adapter: &dyn Adapter, net: NetAccess<'_>, job: &AdapterJobRequest) -> AdapterJobResponse {
    match job {
        AdapterJobRequest::Account => AdapterJobResponse::Account(adapter.account(net)),
        AdapterJobRequest::Sync { since, .. } => AdapterJobResponse::Page(adapter.changes(net, since.as_ref())),
        AdapterJobRequest::Fetch { ids } => AdapterJobResponse::Page(adapter.fetch(net, ids).map(|changes| SyncPage {
            changes,
            next: SyncCursor(String::new()),
            more: false,
            progress: None,
        })),
        AdapterJobRequest::Prepare { write, handle } => {
            AdapterJobResponse::Prepared(prepare(adapter, net, write, handle.clone()))
        }
        AdapterJobRequest::Perform { write, handle } => {
            AdapterJobResponse::Done(perform(adapter, net, write, handle.as_ref()))
        }
        AdapterJobRequest::LookUp { write, handle } => AdapterJobResponse::Found(
            adapter
                .operation(&write.capability)
                .map_or(ReconcileOutcome::Unknown, |operation| operation.reconcile(net, write, handle.as_ref())),
        ),
        AdapterJobRequest::Present { write, before, receipt } => {
            AdapterJobResponse::Print(match adapter.reversal(&write.capability) {
                Some(reversal) => reversal.current_fingerprint(net, PastWrite { write, before, receipt }),
                None => Err(cannot_undo()),
            })
        }
        AdapterJobRequest::Difference { write, before, receipt } => {
            AdapterJobResponse::Difference(match adapter.reversal(&write.capability) {
                Some(reversal) => reversal.difference(net, PastWrite { write, before, receipt }),
                None => Err(cannot_undo()),
            })
        }
        AdapterJobRequest::Undo { write, before, receipt } => {
            AdapterJobResponse::Done(match adapter.reversal(&write.capability) {
                Some(reversal) => reversal.undo(net, PastWrite { write, before, receipt }),
                None => Err(cannot_undo()),
            })
        }
    }
}

/// Prepares a write.
///
/// # Errors
/// Never unclear: nothing has happened yet.
pub fn prepare(
    adapter: &dyn Adapter,
    net: NetAccess<'_>,
    write: &ServiceWrite,
    handle: Option<ServiceHandle>,
) -> Result<WritePreparation, AdapterWriteError> {
    let operation = adapter.operation(&write.capability).ok_or_else(not_offered)?;
    let before = match adapter.reversal(&write.capability) {
        Some(reversal) => Some(reversal.capture(net, write).map_err(AdapterWriteError::without_effect)?),
        None => None,
    };
    let handle = match (operation, handle) {
        (WriteOperation::ConsumeOnce(_), Some(kept)) => Some(kept),
        (WriteOperation::ConsumeOnce(operation), None) => {
            Some(operation.create(net, write).map_err(AdapterWriteError::without_effect)?)
        }
        (WriteOperation::Absolute(_) | WriteOperation::Findable(_) | WriteOperation::Opaque(_), _) => None,
    };
    Ok(WritePreparation { handle, before })
}

/// Performs a write.
///
/// # Errors
/// When it was not done, was refused, or may have been done.
pub fn perform(
    adapter: &dyn Adapter,
    net: NetAccess<'_>,
    write: &ServiceWrite,
    handle: Option<&ServiceHandle>,
) -> Result<AppliedWrite, AdapterWriteError> {
    match (adapter.operation(&write.capability).ok_or_else(not_offered)?, handle) {
        (WriteOperation::Absolute(operation), _) => operation.perform(net, write),
        (WriteOperation::ConsumeOnce(operation), Some(handle)) => operation.consume(net, write, handle),
        (WriteOperation::ConsumeOnce(_), None) => Err(AdapterWriteError::invalid("the write was never prepared")),
        (WriteOperation::Findable(operation), _) => operation.perform(net, write),
        (WriteOperation::Opaque(operation), _) => operation.perform(net, write),
    }
}

fn not_offered() -> AdapterWriteError {
    AdapterWriteError::invalid("the service does not offer this")
}

fn cannot_undo() -> AdapterWriteError {
    AdapterWriteError::invalid("writes of this kind cannot be undone")
}

impl AdapterJobResponse {
    /// Replaces the service's words about an error, wherever they are in this answer.
    pub fn screen_service_texts(&mut self, screen: impl Fn(&str) -> Option<String>) {
        let why = match self {
            Self::Prepared(Err(AdapterWriteError::NotDone(why) | AdapterWriteError::Refused(why)))
            | Self::Done(Err(AdapterWriteError::NotDone(why) | AdapterWriteError::Refused(why)))
            | Self::Print(Err(AdapterWriteError::NotDone(why) | AdapterWriteError::Refused(why)))
            | Self::Page(Err(SyncError::Later(why) | SyncError::Stopped(why)))
            | Self::Account(Err(SyncError::Later(why) | SyncError::Stopped(why))) => why,
            _ => return,
        };
        why.said = why.said.take().and_then(|said| screen(&said));
    }

    /// The JSON that leaves the worker. A page has none: its mail is raw, and leaves only after all stages, as
    /// [`sluice_core::mail::Mail`].
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Page(Ok(_)) => Value::Null,
            Self::Account(Ok(account)) => json!({"account": account}),
            Self::Page(Err(trouble)) | Self::Account(Err(trouble)) => match trouble {
                SyncError::Expired => json!({"expired": true}),
                SyncError::Later(why) => json!({"later": why}),
                SyncError::Stopped(why) => json!({"stopped": why}),
            },
            Self::Prepared(Ok(WritePreparation { handle, before })) => {
                let before = before
                    .as_ref()
                    .map(|before| json!({"state": base64_text::encode(&before.state), "print": fingerprint_hex(before.print)}));
                json!({"prepared": {"handle": handle, "before": before}})
            }
            Self::Done(Ok(done)) => json!({"done": done_json(done)}),
            Self::Prepared(Err(trouble))
            | Self::Done(Err(trouble))
            | Self::Print(Err(trouble))
            | Self::Difference(Err(trouble)) => {
                json!({"trouble": trouble})
            }
            Self::Found(ReconcileOutcome::Applied(done)) => json!({"applied": done_json(done)}),
            Self::Found(ReconcileOutcome::Absent) => json!({"absent": true}),
            Self::Found(ReconcileOutcome::Unknown) => json!({"unknown": true}),
            Self::Difference(Ok(words)) => json!({"difference": words}),
            Self::Print(Ok(found)) => json!({"print": fingerprint_hex(*found)}),
        }
    }
}

fn done_json(done: &AppliedWrite) -> Value {
    json!({
        "receipt": done.receipt, "result": done.result, "after": done.after.map(fingerprint_hex), "undo_until": done.undo_until,
    })
}

fn fingerprint_hex(print: ObjectFingerprint) -> String {
    hex::encode(&print.to_bytes())
}

/// Bytes as text inside JSON.
pub mod base64_text {
    use base64::Engine as _;
    use base64::alphabet::STANDARD;
    use base64::engine::{GeneralPurpose, general_purpose::PAD};
    use serde::{Deserialize as _, Deserializer, Serializer};

    const ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, PAD);

    /// Bytes as text.
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
    use crate::adapter::AttachedFile;
    use crate::error::{FailureCause, FailureDetail};
    use sluice_core::CapabilityName;

    #[test]
    fn a_job_is_the_same_after_its_way_to_the_worker() {
        let blobs = vec![AttachedFile { name: "a".into(), media_type: "text/plain".into(), bytes: vec![0, 255] }];
        let capability = CapabilityName::new("email.send").unwrap();
        let write = ServiceWrite { op: "buf_1".into(), capability, arguments: serde_json::Map::new(), at: 5, blobs };
        for job in [
            AdapterJobRequest::Sync { since: Some(SyncCursor("c".into())), aside: vec!["m1".into()] },
            AdapterJobRequest::Fetch { ids: vec!["m1".into()] },
            AdapterJobRequest::Prepare { write: write.clone(), handle: Some(ServiceHandle("h".into())) },
            AdapterJobRequest::Undo { write, before: vec![1, 2, 3], receipt: "r".into() },
        ] {
            let text = serde_json::to_string(&job).unwrap();
            assert_eq!(serde_json::from_str::<AdapterJobRequest>(&text).unwrap(), job, "{text}");
        }
    }

    #[test]
    fn an_answer_is_pinned() {
        let why =
            FailureDetail { cause: FailureCause::RateLimited, text: "slow".into(), retry_after_s: Some(3), said: None };
        let told = json!({"cause": "rate_limited", "text": "slow", "retry_after_s": 3});
        assert_eq!(
            AdapterJobResponse::Done(Err(AdapterWriteError::NotDone(why))).to_json(),
            json!({"trouble": {"not_done": told}})
        );
        assert_eq!(AdapterJobResponse::Done(Err(AdapterWriteError::Unclear)).to_json(), json!({"trouble": "unclear"}));
        assert_eq!(AdapterJobResponse::Found(ReconcileOutcome::Absent).to_json(), json!({"absent": true}));
        let before = Some(BeforeState { state: b"x".to_vec(), print: ObjectFingerprint::of(b"x") });
        let prepared =
            AdapterJobResponse::Prepared(Ok(WritePreparation { handle: Some(ServiceHandle("h".into())), before }))
                .to_json();
        assert_eq!(prepared["prepared"]["handle"], "h");
        assert_eq!(prepared["prepared"]["before"]["state"], "eA==");
    }
}
