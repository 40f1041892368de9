//! One job of a worker: the request of the gateway to an adapter, and the answer.
//!
//! Takes a [`AdapterJobRequest`], calls the adapter's traits in the one correct order, gives an [`AdapterJobResponse`]. Promise: only `Perform`
//! and `Undo` have an effect, and a handle that exists is never replaced.

use sluice_core::hex;
use sluice_core::rollback::ObjectFingerprint;
pub use sluice_protocol::AdapterJobRequest;
use sluice_protocol::{PresentKey, WireAdapterAnswer, WireStateBefore, WireWriteDone, WireWritePrepared, base64_text};

use crate::adapter::{
    Adapter, AppliedWrite, BeforeState, NetAccess, PastWrite, ReconcileOutcome, ServiceHandle, ServiceWrite,
    SyncCursor, SyncError, SyncPage, WriteOperation,
};
use crate::error::AdapterWriteError;

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
        // The gateway answers reads from the replica.
        AdapterJobRequest::Read { .. } => AdapterJobResponse::Done(Err(not_offered())),
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

    /// The answer that leaves the worker. A page has none: its mail is raw, and leaves only after all stages, as
    /// [`sluice_core::mail::Mail`].
    #[must_use]
    pub fn into_wire(self) -> Option<WireAdapterAnswer> {
        Some(match self {
            Self::Page(Ok(_)) => return None,
            Self::Account(Ok(account)) => WireAdapterAnswer::Account(account),
            Self::Page(Err(trouble)) | Self::Account(Err(trouble)) => match trouble {
                SyncError::Expired => WireAdapterAnswer::Expired(PresentKey),
                SyncError::Later(why) => WireAdapterAnswer::Later(why),
                SyncError::Stopped(why) => WireAdapterAnswer::Stopped(why),
            },
            Self::Prepared(Ok(WritePreparation { handle, before })) => {
                let before = before.map(|BeforeState { state, print }| WireStateBefore {
                    state: base64_text::encode(&state),
                    print: fingerprint_hex(print),
                });
                WireAdapterAnswer::Prepared(WireWritePrepared {
                    handle: handle.map(|ServiceHandle(text)| text),
                    before,
                })
            }
            Self::Done(Ok(done)) => WireAdapterAnswer::Done(wire_done(done)),
            Self::Prepared(Err(trouble))
            | Self::Done(Err(trouble))
            | Self::Print(Err(trouble))
            | Self::Difference(Err(trouble)) => WireAdapterAnswer::Trouble(trouble),
            Self::Found(ReconcileOutcome::Applied(done)) => WireAdapterAnswer::Applied(wire_done(done)),
            Self::Found(ReconcileOutcome::Absent) => WireAdapterAnswer::Absent(PresentKey),
            Self::Found(ReconcileOutcome::Unknown) => WireAdapterAnswer::Unknown(PresentKey),
            Self::Difference(Ok(words)) => WireAdapterAnswer::Difference(words),
            Self::Print(Ok(found)) => WireAdapterAnswer::Print(fingerprint_hex(found)),
        })
    }
}

fn wire_done(done: AppliedWrite) -> WireWriteDone {
    let AppliedWrite { receipt, result, after, undo_until } = done;
    WireWriteDone { receipt, result, after: after.map(fingerprint_hex), undo_until }
}

fn fingerprint_hex(print: ObjectFingerprint) -> String {
    hex::encode(&print.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_and_a_state_leave_as_text_and_a_page_does_not_leave() {
        let before = Some(BeforeState { state: b"x".to_vec(), print: ObjectFingerprint::of(b"x") });
        let prepared =
            AdapterJobResponse::Prepared(Ok(WritePreparation { handle: Some(ServiceHandle("h".into())), before }));
        let Some(WireAdapterAnswer::Prepared(prepared)) = prepared.into_wire() else { panic!() };
        assert_eq!(prepared.handle.as_deref(), Some("h"));
        assert_eq!(prepared.before.map(|before| before.state).as_deref(), Some("eA=="));
        let page = SyncPage { changes: Vec::new(), next: SyncCursor("c".into()), more: false, progress: None };
        assert_eq!(AdapterJobResponse::Page(Ok(page)).into_wire(), None);
    }
}
