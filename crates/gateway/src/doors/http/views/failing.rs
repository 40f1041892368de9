//! Why a write has not happened yet, or never will: the attempt that comes next and the error of the last one.
//!
//! Takes a held write and what is kept of its last failure; gives what doors show of it. Promise: agents get our code and
//! our words; what the service said is for people only.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::backoff::RETRIES;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::refusal::Code;
use sluice_store::{AttemptFailure, Store};

use super::HoldView;
use crate::No;

/// What is wrong with a write that has not happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailingView {
    /// The next attempt, while the write is `retrying`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryView>,
    /// Why the last attempt failed, while the write has not happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastErrorView>,
}

/// The next attempt of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RetryView {
    /// Which retry comes next, from 1 on.
    pub attempt: u32,
    /// How many there are before the write is a dead letter.
    pub of: u32,
    /// When it comes, unless a person says `retry`.
    pub next_at: String,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LastErrorView {
    /// Why, as a stable code.
    pub code: String,
    /// The same in our words.
    pub text: String,
    /// What the service said, screened and cut to length. Only people are shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_says: Option<String>,
    /// When the attempt failed.
    pub at: String,
}

/// Who is shown a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// An agent: our code and our words.
    Agent,
    /// A person: also what the service said.
    Person,
}

impl FailingView {
    /// The next attempt of a write, without the error of the last one.
    #[must_use]
    pub fn of(hold: &Hold) -> Self {
        let next = hold.next_attempt_at().map(|at| at.to_string());
        let retry = next.map(|next_at| RetryView { attempt: hold.attempts.min(RETRIES), of: RETRIES, next_at });
        Self { retry, last_error: None }
    }

    /// The next attempt of a write and the error of the last one.
    #[must_use]
    pub fn with(hold: &Hold, failure: Option<AttemptFailure>, audience: Audience) -> Self {
        let last_error = failure.filter(|_| shows_error(hold)).map(|failure| {
            let meaning = Code::from_code(&failure.code).map_or("it did not work", Code::meaning);
            LastErrorView {
                text: meaning.to_owned(),
                code: failure.code,
                service_says: failure.service_words.filter(|_| audience == Audience::Person),
                at: failure.failed_at.to_string(),
            }
        });
        Self { last_error, ..Self::of(hold) }
    }

    /// How a write that has not happened stands, in one line for people; nothing where nothing is wrong with it.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        let error = self.last_error.as_ref().map(|error| match &error.service_says {
            Some(said) => format!("{} ({}): {said}", error.text, error.code),
            None => format!("{} ({})", error.text, error.code),
        });
        match (&self.retry, error) {
            (Some(RetryView { attempt, of, next_at }), error) => {
                let error = error.map(|error| format!("; {error}")).unwrap_or_default();
                Some(format!("retry {attempt} of {of} at {next_at}{error}"))
            }
            (None, error) => error,
        }
    }
}

/// Whether the error of the last attempt still says something about a write.
const fn shows_error(hold: &Hold) -> bool {
    match hold.state {
        HoldState::Ready { .. }
        | HoldState::Executing { .. }
        | HoldState::InDoubt { .. }
        | HoldState::NeedsHuman { .. }
        | HoldState::Dead { .. }
        | HoldState::Discarded { .. } => hold.attempts > 0,
        HoldState::AwaitingApproval { .. }
        | HoldState::Held { .. }
        | HoldState::Stale { .. }
        | HoldState::Done { .. }
        | HoldState::Cancelled { .. }
        | HoldState::Denied { .. }
        | HoldState::Expired { .. }
        | HoldState::Blocked { .. } => false,
    }
}

/// What is wrong with one write.
///
/// # Errors
/// When the database cannot be read.
pub async fn failing(store: &Store, hold: &Hold, audience: Audience) -> Result<FailingView, No> {
    if !shows_error(hold) {
        return Ok(FailingView::of(hold));
    }
    let failure = store.attempt_failures(vec![hold.id]).await?.into_iter().next().flatten();
    Ok(FailingView::with(hold, failure, audience))
}

/// Writes as doors list them, each with what is wrong with it.
///
/// # Errors
/// When the database cannot be read.
pub async fn listed(store: &Store, holds: &[Hold], audience: Audience) -> Result<Vec<HoldView>, No> {
    let asked: Vec<&Hold> = holds.iter().filter(|hold| shows_error(hold)).collect();
    let found = store.attempt_failures(asked.iter().map(|hold| hold.id).collect()).await?;
    let mut failures: std::collections::HashMap<_, _> = asked.iter().map(|hold| hold.id).zip(found).collect();
    let view = |hold: &Hold| {
        let failure = failures.remove(&hold.id).flatten();
        HoldView { failing: FailingView::with(hold, failure, audience), ..HoldView::of(hold) }
    };
    Ok(holds.iter().map(view).collect())
}
