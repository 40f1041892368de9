//! A no on its way to a door: the refusal, and which call and rule it belongs to.

use sluice_core::refusal::{Code, Refusal};
use sluice_core::{CallId, Span};
use sluice_store::StoreError;

use crate::rooms::refused::Wanted;

/// A refusal with what the caller needs to follow it up.
#[derive(Debug)]
pub struct No {
    /// Code, words and advice.
    pub refusal: Box<Refusal>,
    /// The call, once there is one.
    pub call: Option<CallId>,
    /// The rule that said no, as file and line.
    pub rule: Option<String>,
    /// Something that exists instead: the first of two identical calls, a decision already made.
    pub other: Option<String>,
    /// Whether the record has it already: a write's own moves say how it ended.
    pub recorded: bool,
    /// What must not leave and was found: ids, lengths and hashes, for the record and the operators.
    pub findings: Option<Box<serde_json::Value>>,
    /// What was asked for, where the rules refused it.
    pub wanted: Option<Box<Wanted>>,
}

impl No {
    /// With the general words of a code.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Refusal::new(code).into()
    }

    /// With particular words, which are shown.
    #[must_use]
    pub fn saying(code: Code, text: &str) -> Self {
        Refusal::new(code).with_text(text).into()
    }

    /// About this call, unless it is about another one already.
    #[must_use]
    pub fn about(self, call: CallId) -> Self {
        Self { call: self.call.or(Some(call)), ..self }
    }

    /// How a write ended, which its own moves have recorded.
    #[must_use]
    pub fn ended(self, call: CallId) -> Self {
        Self { call: Some(call), recorded: true, ..self }
    }
}

impl From<Refusal> for No {
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

impl From<StoreError> for No {
    fn from(error: StoreError) -> Self {
        let code = Code::from_code(error.code()).unwrap_or(Code::GatewayInternal);
        let other = match &error {
            StoreError::PossibleDuplicate { first } => Some(first.to_string()),
            _ => None,
        };
        let text = error.to_string();
        // The store's own words are made for agents where a code has particulars; the rest stays inside.
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
                refusal.retry_after(Span::from_secs(after.as_millis().div_ceil(1000).max(1)))
            }
            _ => refusal,
        };
        Self {
            refusal: Box::new(refusal.because(error)),
            call: None,
            rule: None,
            other,
            recorded: false,
            findings: None,
            wanted: None,
        }
    }
}
