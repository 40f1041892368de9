//! The record of one attempt of a proxy task.
//!
//! Takes the result of the attempt and the host that served its requests; gives what the consequences are decided from:
//! the fault, the requests, the usage and the notes for a review. Promise: a record made without a host says that
//! nothing was requested, changed or spent; with a host, these values are the host's own counts.

use bytes::Bytes;
use serde_json::Value;
use sluice_core::crash::CrashCause;
use sluice_core::proxy::ContinuityProposal;
use sluice_core::refusal::{Code, Refusal};
use sluice_store::{ProxyTaskNotes, ProxyTaskState};

use super::super::host::ProxyTaskHost;

/// What remains after an attempt.
pub(super) struct ProxyAttemptRecord {
    pub(super) cause: Option<CrashCause>,
    /// Where the worker says it crashed.
    pub(super) words: Option<String>,
    pub(super) requests: u64,
    /// Whether something may have changed at the service.
    pub(super) changed: bool,
    pub(super) lines: Vec<Value>,
    pub(super) last: Option<Bytes>,
    pub(super) given: Result<Value, Refusal>,
    /// What the worker proposes to keep. Checked only after a clean end.
    pub(super) proposals: Vec<ContinuityProposal>,
    pub(super) state: ProxyTaskState,
    /// Requests that may have been sent and bytes that may have come back; `None` where this is not known.
    pub(super) spent: Option<(u64, u64)>,
    /// The findings of the stages in the answer.
    pub(super) findings: u64,
    /// What a review needs.
    pub(super) notes: ProxyTaskNotes,
}

impl ProxyAttemptRecord {
    pub(super) fn of(given: Result<Value, Refusal>, state: ProxyTaskState) -> Self {
        let (requests, changed, lines, proposals) = (0, false, Vec::new(), Vec::new());
        let (spent, findings, notes) = (Some((0, 0)), 0, ProxyTaskNotes::default());
        Self {
            cause: None,
            words: None,
            requests,
            changed,
            lines,
            last: None,
            given,
            proposals,
            state,
            spent,
            findings,
            notes,
        }
    }

    pub(super) fn with(self, host: ProxyTaskHost) -> Self {
        let ProxyTaskHost { requests, changed, lines, last, spent, refused, leaked, answer_bytes, .. } = host;
        let leak = leaked.then_some(Code::LeakFound);
        let refused = refused.map(|no| no.code()).or(leak).map(|code| code.as_str().to_owned());
        let notes = ProxyTaskNotes { refused, answer_bytes, ..self.notes };
        Self { requests, changed, lines, last, spent: Some(spent), notes, ..self }
    }
}
