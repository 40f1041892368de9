//! A refusal on its way to a door, with the call and the rule it belongs to.

use sluice_core::refusal::{Code, Refusal};
use sluice_core::{CallId, Millis};
use sluice_store::StoreError;

use crate::refused_action::RefusedAction;

/// A refusal with the details the caller needs to follow it up.
#[derive(Debug)]
pub struct CallError {
    /// The code, text and advice.
    pub refusal: Box<Refusal>,
    /// The call, once it has an id.
    pub call: Option<CallId>,
    /// The rule that refused the call, as file and line.
    pub rule: Option<String>,
    /// What exists instead: the first of two identical calls, or an earlier decision.
    pub other: Option<String>,
    /// Whether the audit log has it already: the state changes of a write record how it ended.
    pub recorded: bool,
    /// Leak findings (ids, lengths and hashes) for the audit log and the operators.
    pub findings: Option<Box<serde_json::Value>>,
    /// The refused request, where the rules refused it.
    pub wanted: Option<Box<RefusedAction>>,
}

impl CallError {
    /// A refusal with the standard text of a code.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Refusal::new(code).into()
    }

    /// A refusal with a text of its own, which is shown.
    #[must_use]
    pub fn with_text(code: Code, text: &str) -> Self {
        Refusal::new(code).with_text(text).into()
    }

    /// Attaches the call, unless a call is attached already.
    #[must_use]
    pub fn for_call(self, call: CallId) -> Self {
        Self { call: self.call.or(Some(call)), ..self }
    }

    /// For a write that ended; its state changes have recorded it.
    #[must_use]
    pub fn for_ended_call(self, call: CallId) -> Self {
        Self { call: Some(call), recorded: true, ..self }
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal: Box::new(refusal),
            call: None,
            rule: None,
            other: None,
            recorded: false,
            findings: None,
            wanted: None,
        }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        let code = Code::from_code(error.code()).unwrap_or(Code::GatewayInternal);
        let other = match &error {
            StoreError::PossibleDuplicate { first } => Some(first.to_string()),
            _ => None,
        };
        let text = error.to_string();
        // The store's own text is safe for agents where a code has details; everything else stays inside.
        let refusal = match code {
            Code::FreezeActive
            | Code::ServiceStopped
            | Code::CallPossibleDuplicate
            | Code::StateConflict
            | Code::ApprovalGrown => Refusal::new(code).with_text(&text),
            _ => Refusal::new(code),
        };
        let refusal = match &error {
            StoreError::CheckFlood { after } => {
                refusal.retry_after(Millis::from_secs(after.as_millis().div_ceil(1000).max(1)))
            }
            _ => refusal,
        };
        Self {
            refusal: Box::new(refusal.with_source(error)),
            call: None,
            rule: None,
            other,
            recorded: false,
            findings: None,
            wanted: None,
        }
    }
}
