//! The answer to a custom capability: from a service, or from the output of a program.
//!
//! Takes an answer; gives what it means for the write and what the agent gets. Promise: the agent gets nothing that did
//! not pass the intake, and all of it carries its provenance.

use serde_json::{Map, Value, json};
use sluice_content::stages::SafeSchema;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Millis, ServiceName};
use sluice_egress::EgressResponse;

use super::CustomServiceDeps;
use crate::WriteError;
use crate::intake::{ContentRecipient, IncomingItem, IntakeOutcome};
use crate::value::put;

/// Longest text for an agent, in bytes.
const LONGEST: usize = 256 * 1024;
/// How long a service gets no requests if it asks for a pause without a duration.
const PAUSE: Millis = Millis::from_secs(60);

/// The source of an answer.
pub(super) struct CustomAnswerOrigin<'a> {
    /// The service under which it is counted.
    pub service: &'a ServiceName,
    /// Who answered: the kind of source in the provenance, and its name.
    pub place: (&'static str, &'a str),
    /// The reader of the answer; `None` if only the gateway reads it.
    pub reader: Option<ContentRecipient>,
}

/// The answer as it arrived.
pub(super) struct WireCustomAnswer<'a> {
    /// The bytes of the answer.
    pub bytes: Vec<u8>,
    /// The media type that it claims to have.
    pub kind: Option<String>,
    /// How it ended, as the agent sees it: a name and a number.
    pub ended: (&'static str, i64),
    /// The declared shape. An answer that is declared as text is given as text.
    pub shape: ExpectedAnswerShape<'a>,
    /// Whether the answer was cut off.
    pub is_cut: bool,
}

/// The shape that an answer must have.
pub(super) enum ExpectedAnswerShape<'a> {
    /// JSON if it is valid JSON, else text.
    Any,
    /// Text.
    Text,
    /// JSON that follows this schema.
    Json(&'a SafeSchema),
}

impl WireCustomAnswer<'_> {
    /// The answer of a service.
    pub fn of_answer(answer: &EgressResponse) -> Self {
        let kind = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        Self {
            bytes: answer.body.to_vec(),
            kind: kind.map(|(_, value)| value.clone()),
            ended: ("status_code", i64::from(answer.status)),
            shape: ExpectedAnswerShape::Any,
            is_cut: false,
        }
    }
}

/// What the status of an answer means for a write.
pub(super) fn outcome_of(status: u16) -> Result<(), WriteError> {
    let refused = |code: Code| Refusal::new(code).with_text(&format!("the service answered {status}"));
    match status {
        200..=299 => Ok(()),
        // The service says that it did nothing and that the request can be repeated.
        425 | 429 => {
            let refusal = refused(Code::EgressLimit).retry_after(PAUSE);
            Err(WriteError::NotDone(refusal))
        }
        // A time-out, or a conflict with a request in progress: it may have happened.
        408 | 409 => Err(WriteError::Unclear),
        400..=499 => Err(WriteError::Refused(refused(Code::ExecuteRefused))),
        _ => Err(WriteError::Unclear),
    }
}

/// The receipt of a write: how it ended, who answered and what was kept of the answer.
pub(super) fn receipt(ended: &str, place: &str, kept: &Map<String, Value>) -> String {
    format!("{ended} {place} {}", Value::Object(kept.clone()))
}

/// What was kept of the answer, read from the receipt.
pub(super) fn kept_in(receipt: &str) -> Map<String, Value> {
    let kept = receipt.find('{').and_then(|at| receipt.get(at..));
    match kept.and_then(|kept| serde_json::from_str(kept).ok()) {
        Some(Value::Object(kept)) => kept,
        _ => Map::new(),
    }
}

impl CustomServiceDeps {
    /// What the agent gets of an answer, and its JSON value as a worker read it. The write is done whatever happens to
    /// its answer: no error here makes it undone.
    pub(super) async fn shown(&self, said: WireCustomAnswer<'_>, origin: CustomAnswerOrigin<'_>) -> (Value, Value) {
        let WireCustomAnswer { bytes, kind, ended, shape, is_cut } = said;
        let (word, place) = origin.place;
        let mut parsed = Value::Null;
        let mut shown = json!({
            "data": null,
            "untrusted": true,
            "provenance": {"origin": "outside", "trusted": false},
        });
        put(&mut shown, ended.0, ended.1);
        if let Some(provenance) = shown.get_mut("provenance") {
            put(provenance, word, place);
        }
        let item = IncomingItem {
            bytes,
            declared: kind,
            service: origin.service.clone(),
            source: place.to_owned(),
            author: place.to_owned(),
            at: self.clock.now(),
            beside: None,
            reader: origin.reader,
            enveloped: false,
        };
        match self.intake.take_in(&item).await {
            Ok(IntakeOutcome::Clean(cleaned)) => {
                if let Some(finding) = cleaned.withheld {
                    put(&mut shown, "withheld", json!({"finding_id": finding}));
                }
                let text = cleaned.text.as_str();
                let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                let is_whole = cleaned.withheld.is_none() && end == text.len() && !is_cut;
                let value = cleaned.value.filter(|_| is_whole);
                match (value, shape) {
                    (Some(value), ExpectedAnswerShape::Any) => {
                        parsed = value.clone();
                        put(&mut shown, "data", value);
                    }
                    (Some(value), ExpectedAnswerShape::Json(schema)) if schema.allows(&value) => {
                        parsed = value.clone();
                        put(&mut shown, "data", value);
                    }
                    (_, ExpectedAnswerShape::Json(_)) if cleaned.withheld.is_none() => {
                        put(&mut shown, "data_refused", "content.shape");
                    }
                    (_, ExpectedAnswerShape::Any | ExpectedAnswerShape::Text | ExpectedAnswerShape::Json(_)) => {
                        put(&mut shown, "data", text.get(..end).unwrap_or_default());
                    }
                }
                put(&mut shown, "truncated", end < text.len() || is_cut);
            }
            Ok(IntakeOutcome::Refused { code }) => put(&mut shown, "data_refused", code),
            Err(no) => {
                let code = no.code().as_str();
                tracing::warn!(place, code, "an answer of {place} is not given: {no}");
                put(&mut shown, "data_refused", code);
            }
        }
        (shown, parsed)
    }
}
