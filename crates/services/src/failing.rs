//! Why a write has not happened yet, or never will: the next attempt and the error of the last one.
//!
//! Takes a held write and the stored data of its last failure; gives what doors show of it. Promise: agents get our
//! code and our text; what the service said is shown to people only, except for the words of a mounted server, which
//! passed the content stages.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::backoff::RETRIES;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::refusal::Code;
use sluice_store::{AttemptFailure, Store};

use crate::CallError;

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
    /// The number of the next retry, from 1 on.
    pub attempt: u32,
    /// How many retries there are before the write becomes a dead letter.
    pub of: u32,
    /// When the retry is made, unless a person requests it earlier.
    pub next_at: String,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LastErrorView {
    /// The reason, as a stable code.
    pub code: String,
    /// The reason, as our text.
    pub text: String,
    /// What the service said, screened and cut to length. Agents see it only for mounted servers, whose words pass the
    /// content stages; otherwise it is shown to people only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_says: Option<String>,
    /// When the attempt failed.
    pub at: String,
}

/// The reader of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAudience {
    /// An agent: gets our code and our text, and the screened words of a mounted server.
    Agent,
    /// A person: also gets what the service said.
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
    pub fn with(hold: &Hold, failure: Option<AttemptFailure>, audience: FailureAudience) -> Self {
        let is_shown = audience == FailureAudience::Person || crate::mounts::is_mount(&hold.service);
        let last_error = failure.filter(|_| shows_error(hold)).map(|failure| {
            let meaning = Code::from_code(&failure.code).map_or("the attempt failed", Code::meaning);
            LastErrorView {
                text: meaning.to_owned(),
                code: failure.code,
                service_says: failure.service_words.filter(|_| is_shown),
                at: failure.failed_at.to_string(),
            }
        });
        Self { last_error, ..Self::of(hold) }
    }

    /// The state of a write that has not happened, in one line for people; `None` if nothing is wrong with it.
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

/// Whether the error of the last attempt still applies to a write.
#[must_use]
pub const fn shows_error(hold: &Hold) -> bool {
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
pub async fn failing(store: &Store, hold: &Hold, audience: FailureAudience) -> Result<FailingView, CallError> {
    if !shows_error(hold) {
        return Ok(FailingView::of(hold));
    }
    let failure = store.attempt_failures(vec![hold.id]).await?.into_iter().next().flatten();
    Ok(FailingView::with(hold, failure, audience))
}
