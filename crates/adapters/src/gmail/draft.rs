//! Creates a draft for a person, and removes it again if nobody has edited it.
//!
//! Takes a write, gives the draft's id as receipt. Promise: an edit replaces the message inside a draft, so a draft
//! that somebody edited is never removed.

use serde_json::{Value, json};
use sluice_core::rollback::ObjectFingerprint;

use super::compose;
use super::wire::{self, ME, ask, header, need, text};
use crate::adapter::{
    AppliedWrite, BeforeState, FindableWrite, NetAccess, PastWrite, ReconcileOutcome, ServiceWrite, WriteReversal,
};
use crate::error::{AdapterWriteError, ExchangeError};
use crate::mime::{self, MARK};
use crate::net::{NetRequest, escape};

/// Drafts that are searched for our mark. If there are more, absence proves nothing.
const LOOK_THROUGH: usize = 100;

/// Drafts of one account.
#[derive(Debug)]
pub struct DraftMail {
    /// The address of the account.
    pub me: String,
}

impl FindableWrite for DraftMail {
    fn perform(&self, net: NetAccess<'_>, write: &ServiceWrite) -> Result<AppliedWrite, AdapterWriteError> {
        let letter = compose::fresh(write, &self.me)?;
        let message = json!({"raw": wire::encode(&mime::write(letter)?)});
        let request = NetRequest::post(format!("{ME}/drafts"), &json!({"message": message}));
        let made = ask(net, request).map_err(ExchangeError::into_write_error)?;
        done(&made).map_err(ExchangeError::into_write_error)
    }

    fn reconcile(&self, net: NetAccess<'_>, write: &ServiceWrite) -> ReconcileOutcome {
        match find(net, &write.op) {
            Ok(DraftSearch::Found(draft)) => done(&draft).map_or(ReconcileOutcome::Unknown, ReconcileOutcome::Applied),
            Ok(DraftSearch::Nowhere) => ReconcileOutcome::Absent,
            Ok(DraftSearch::TooMany) | Err(_) => ReconcileOutcome::Unknown,
        }
    }
}

impl WriteReversal for DraftMail {
    fn capture(&self, _net: NetAccess<'_>, _write: &ServiceWrite) -> Result<BeforeState, AdapterWriteError> {
        Ok(BeforeState { state: b"none".to_vec(), print: ObjectFingerprint::of(b"none") })
    }

    fn current_fingerprint(
        &self,
        net: NetAccess<'_>,
        past: PastWrite<'_>,
    ) -> Result<ObjectFingerprint, AdapterWriteError> {
        let path = format!("{ME}/drafts/{}?format=minimal", escape(past.receipt));
        match ask(net, NetRequest::get(path)) {
            Ok(draft) => draft_fingerprint(&draft).map_err(ExchangeError::into_read_error),
            Err(fault) if fault.is_status(404) => Ok(ObjectFingerprint::of(b"none")),
            Err(fault) => Err(fault.into_read_error()),
        }
    }

    fn undo(&self, net: NetAccess<'_>, past: PastWrite<'_>) -> Result<AppliedWrite, AdapterWriteError> {
        let path = format!("{ME}/drafts/{}", escape(past.receipt));
        ask(net, NetRequest::delete(path)).map_err(ExchangeError::into_write_error)?;
        let result = json!({"draft_id": past.receipt, "removed": true});
        Ok(AppliedWrite {
            receipt: past.receipt.to_owned(),
            result,
            after: Some(ObjectFingerprint::of(b"none")),
            undo_until: None,
        })
    }
}

fn done(draft: &Value) -> Result<AppliedWrite, ExchangeError> {
    let id = need(draft, "id")?;
    let result = json!({"draft_id": id, "message_id": draft.pointer("/message/id")});
    Ok(AppliedWrite { receipt: id, result, after: Some(draft_fingerprint(draft)?), undo_until: None })
}

/// Each edit replaces the message inside.
fn draft_fingerprint(draft: &Value) -> Result<ObjectFingerprint, ExchangeError> {
    let message = draft.pointer("/message/id").and_then(Value::as_str).ok_or(ExchangeError::Garbled)?;
    Ok(ObjectFingerprint::of(format!("{}/{message}", need(draft, "id")?).as_bytes()))
}

enum DraftSearch {
    Found(Value),
    Nowhere,
    TooMany,
}

fn find(net: NetAccess<'_>, op: &str) -> Result<DraftSearch, ExchangeError> {
    let list = ask(net, NetRequest::get(format!("{ME}/drafts?maxResults={LOOK_THROUGH}")))?;
    let drafts = list.get("drafts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for draft in drafts {
        let Some(id) = draft.pointer("/message/id").and_then(Value::as_str) else { continue };
        match ask(net, wire::head(id, &[MARK])) {
            Ok(message) if header(&message, MARK) == Some(op) => return Ok(DraftSearch::Found(draft.clone())),
            Ok(_) => {}
            Err(fault) if fault.is_status(404) => {}
            Err(fault) => return Err(fault),
        }
    }
    let more = text(&list, "nextPageToken").is_some_and(|token| !token.is_empty());
    Ok(if more { DraftSearch::TooMany } else { DraftSearch::Nowhere })
}
