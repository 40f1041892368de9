//! What becomes of the answer to a custom capability: a service's, or what a program printed.
//!
//! Takes an answer; gives what it means for the write and what the agent is told. Promise: the agent is told nothing
//! that did not come through the intake, and everything it is told says where it is from.

use serde_json::{Map, Value, json};
use sluice_content::stages::Schema;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{ServiceName, Span};

use super::CustomGround;
use crate::egress::Answer;
use crate::intake::{Incoming, Reader, Taken};
use crate::services::Trouble;
use crate::value::put;

/// The longest text an agent is given, in bytes.
const LONGEST: usize = 256 * 1024;
/// How long a service is left alone that asks for a pause without saying how long.
const PAUSE: Span = Span::from_secs(60);

/// Where an answer is from.
pub(super) struct Origin<'a> {
    /// The service it is counted under.
    pub service: &'a ServiceName,
    /// Who answered: the word for it in the provenance, and its name.
    pub place: (&'static str, &'a str),
    /// Whom it is for; nobody, where the gateway only wants to know.
    pub reader: Option<Reader>,
}

/// What was said.
pub(super) struct Said<'a> {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The media type it claims to have.
    pub kind: Option<String>,
    /// How it ended, as the agent is told it: a name and a number.
    pub ended: (&'static str, i64),
    /// What it has to be, if that was declared. What is declared to be text is given as text.
    pub shape: Shape<'a>,
    /// Whether there was more of it.
    pub is_cut: bool,
}

/// What an answer has to be.
pub(super) enum Shape<'a> {
    /// JSON, if it is JSON.
    Any,
    /// Text.
    Text,
    /// JSON of this shape.
    Json(&'a Schema),
}

impl Said<'_> {
    /// The answer of a service.
    pub fn of_answer(answer: &Answer) -> Self {
        let kind = answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        Self {
            bytes: answer.body.to_vec(),
            kind: kind.map(|(_, value)| value.clone()),
            ended: ("status_code", i64::from(answer.status)),
            shape: Shape::Any,
            is_cut: false,
        }
    }
}

/// What the status of an answer means for a write.
pub(super) fn outcome_of(status: u16) -> Result<(), Trouble> {
    let refused = |code: Code| Refusal::new(code).with_text(&format!("the service answered {status}"));
    match status {
        200..=299 => Ok(()),
        // The service says that it did nothing and that it can be asked again.
        425 | 429 => {
            let refusal = refused(Code::EgressLimit).retry_after(PAUSE);
            Err(Trouble::NotDone(refusal))
        }
        // A time-out or a conflict with a request under way: it may have happened.
        408 | 409 => Err(Trouble::Unclear),
        400..=499 => Err(Trouble::Refused(refused(Code::ExecuteRefused))),
        _ => Err(Trouble::Unclear),
    }
}

/// The proof of a write: how it ended, who answered and what was kept of the answer.
pub(super) fn receipt(ended: &str, place: &str, kept: &Map<String, Value>) -> String {
    format!("{ended} {place} {}", Value::Object(kept.clone()))
}

/// What was kept of the answer, as the receipt says.
pub(super) fn kept_in(receipt: &str) -> Map<String, Value> {
    let kept = receipt.find('{').and_then(|at| receipt.get(at..));
    match kept.and_then(|kept| serde_json::from_str(kept).ok()) {
        Some(Value::Object(kept)) => kept,
        _ => Map::new(),
    }
}

impl CustomGround {
    /// What the agent is told of an answer, and its JSON value as a worker read it. It was done whatever becomes of its
    /// answer, so that no trouble here makes it undone.
    pub(super) async fn shown(&self, said: Said<'_>, origin: Origin<'_>) -> (Value, Value) {
        let Said { bytes, kind, ended, shape, is_cut } = said;
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
        let item = Incoming {
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
            Ok(Taken::Clean(cleaned)) => {
                if let Some(finding) = cleaned.withheld {
                    put(&mut shown, "withheld", json!({"finding_id": finding}));
                }
                let text = cleaned.text.as_str();
                let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                let is_whole = cleaned.withheld.is_none() && end == text.len() && !is_cut;
                let value = cleaned.value.filter(|_| is_whole);
                match (value, shape) {
                    (Some(value), Shape::Any) => {
                        parsed = value.clone();
                        put(&mut shown, "data", value);
                    }
                    (Some(value), Shape::Json(schema)) if schema.allows(&value) => {
                        parsed = value.clone();
                        put(&mut shown, "data", value);
                    }
                    (_, Shape::Json(_)) if cleaned.withheld.is_none() => {
                        put(&mut shown, "data_refused", "content.shape");
                    }
                    (_, Shape::Any | Shape::Text | Shape::Json(_)) => {
                        put(&mut shown, "data", text.get(..end).unwrap_or_default());
                    }
                }
                put(&mut shown, "truncated", end < text.len() || is_cut);
            }
            Ok(Taken::Refused { code }) => put(&mut shown, "data_refused", code),
            Err(no) => {
                let code = no.code().as_str();
                tracing::warn!(place, code, "an answer of {place} is not given: {no}");
                put(&mut shown, "data_refused", code);
            }
        }
        (shown, parsed)
    }
}
