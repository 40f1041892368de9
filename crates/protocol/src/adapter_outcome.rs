//! Outcomes of an adapter's job, from the adapter to the gateway: what happened, what did not, and why.
//!
//! Takes what an adapter found or did; gives the JSON of a report. Promise: *not done* and *refused* mean that provably
//! nothing happened, and everything else is unclear; the reader of a report applies its own limits, because a report may
//! come from a third-party program.

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sluice_core::refusal::Code;

/// The cause of a failure, as far as it affects what happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// The service no longer accepts our credential: a person has to sign in again.
    NeedsReauth,
    /// Too many requests.
    RateLimited,
    /// The credential does not permit this.
    Permission,
    /// The object is gone.
    Gone,
    /// The service does not accept the request. A cause that nobody knows counts as this one.
    Invalid,
    /// The adapter found that an argument cannot be used, or names an object that does not exist.
    Argument,
    /// The service is down or cannot be reached.
    Unavailable,
    /// Our own egress refused the request.
    Denied,
}

impl FailureCause {
    /// All causes.
    pub const ALL: [Self; 8] = [
        Self::NeedsReauth,
        Self::RateLimited,
        Self::Permission,
        Self::Gone,
        Self::Invalid,
        Self::Argument,
        Self::Unavailable,
        Self::Denied,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeedsReauth => "needs_reauth",
            Self::RateLimited => "rate_limited",
            Self::Permission => "permission",
            Self::Gone => "gone",
            Self::Invalid => "invalid",
            Self::Argument => "argument",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
        }
    }

    /// The refusal that an agent gets.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::NeedsReauth => Code::ExecuteReconnect,
            Self::RateLimited => Code::EgressLimit,
            Self::Permission | Self::Gone | Self::Invalid => Code::ExecuteRefused,
            Self::Argument => Code::ExecuteBadArgument,
            Self::Unavailable => Code::ExecuteUnavailable,
            Self::Denied => Code::EgressNotAllowed,
        }
    }

    /// Our sentence for the cause, for an adapter whose own sentence is not shown.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::NeedsReauth => "the service no longer accepts the credential",
            Self::RateLimited => "the service asks to slow down",
            Self::Permission => "the service does not permit this",
            Self::Gone => "the object is no longer there",
            Self::Invalid => "the service does not accept this",
            Self::Argument => "an argument cannot be used at the service",
            Self::Unavailable => "the service cannot be reached",
            Self::Denied => "the request was not allowed out",
        }
    }
}

impl<'de> Deserialize<'de> for FailureCause {
    /// Reads a word. A word that nobody knows is [`FailureCause::Invalid`]: an adapter may be newer than the gateway, and
    /// its failure must not be lost.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        Ok(Self::ALL.into_iter().find(|cause| cause.as_str() == word).unwrap_or(Self::Invalid))
    }
}

/// A cause with a sentence of ours that is safe to show. The service's own words are separate, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureDetail {
    /// The kind of cause.
    pub cause: FailureCause,
    /// Our sentence, for people.
    pub text: String,
    /// When the service asks to be tried again, in seconds.
    pub retry_after_s: Option<u64>,
    /// The service's own words, unscreened: nobody sees them before they were screened. Those that a third-party adapter
    /// quotes are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

impl FailureDetail {
    /// A cause with a sentence.
    #[must_use]
    pub fn new(cause: FailureCause, text: impl Into<String>) -> Self {
        Self { cause, text: text.into(), retry_after_s: None, said: None }
    }

    /// Whether the service no longer accepts our credential.
    #[must_use]
    pub fn needs_reauth(&self) -> bool {
        self.cause == FailureCause::NeedsReauth
    }
}

/// A write that did not happen, or whose outcome is unclear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdapterWriteError {
    /// Provably nothing happened; another try may succeed.
    NotDone(FailureDetail),
    /// Provably nothing happened, and the same write will not succeed later.
    Refused(FailureDetail),
    /// Something may have happened.
    Unclear,
}

impl AdapterWriteError {
    /// A refusal because the adapter itself sees that it cannot be done.
    #[must_use]
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Refused(FailureDetail::new(FailureCause::Argument, text))
    }

    /// The same, for a step without an effect of its own: unclear only means that another try is possible.
    #[must_use]
    pub fn without_effect(self) -> Self {
        match self {
            Self::Unclear => {
                Self::NotDone(FailureDetail::new(FailureCause::Unavailable, "the service failed or did not answer"))
            }
            sure @ (Self::NotDone(_) | Self::Refused(_)) => sure,
        }
    }

    /// The same, for a write of several steps of which some are done already.
    #[must_use]
    pub fn after_first_step(self) -> Self {
        match self {
            Self::NotDone(_) | Self::Refused(_) | Self::Unclear => Self::Unclear,
        }
    }

    /// The reason, if there is one.
    pub const fn detail_mut(&mut self) -> Option<&mut FailureDetail> {
        match self {
            Self::NotDone(why) | Self::Refused(why) => Some(why),
            Self::Unclear => None,
        }
    }
}

/// A key whose presence says everything. Written as `true`; its value is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentKey;

impl Serialize for PresentKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(true)
    }
}

impl<'de> Deserialize<'de> for PresentKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(from).map(|_| Self)
    }
}

/// The answer to a job of an adapter. Each job has some of these answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WireAdapterAnswer {
    /// To `account`: the account's name, if the service reports it.
    Account(Option<String>),
    /// To `sync` and `fetch`, which only our own adapters get: the header of a page. Its changes were handed over before.
    Page(WireSyncPage),
    /// To `sync`: the service no longer knows the cursor.
    Expired(#[schemars(with = "bool")] PresentKey),
    /// To `account`, `sync` and `fetch`: a temporary failure.
    Later(FailureDetail),
    /// To `account`, `sync` and `fetch`: a person must act first.
    Stopped(FailureDetail),
    /// To `prepare`: the handle and the state before the write.
    Prepared(WireWritePrepared),
    /// To `perform` and `undo`: it happened.
    Done(WireWriteDone),
    /// To every job of a read, a write or an undo: it did not happen, or that is not known.
    Trouble(AdapterWriteError),
    /// To `look_up`: the write happened.
    Applied(WireWriteDone),
    /// To `look_up`: the write did not happen.
    Absent(#[schemars(with = "bool")] PresentKey),
    /// To `look_up`: it is not known (yet).
    Unknown(#[schemars(with = "bool")] PresentKey),
    /// To `present`: the fingerprint of the object as it is now, in hex.
    Print(String),
    /// To `difference`, which only our own adapters get: what a rollback would change, in words.
    Difference(Vec<String>),
    /// To `read`: any JSON.
    Read(Value),
}

/// A write or an undo that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WireWriteDone {
    /// The receipt of the service, short.
    pub receipt: String,
    /// The result for the agent.
    pub result: Value,
    /// A fingerprint of the object as the write left it, in hex, if the write can be undone.
    pub after: Option<String>,
    /// Until when the service itself can undo it, in milliseconds; without it there is no limit.
    pub undo_until: Option<i64>,
}

/// The state before a write, stored for a rollback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireStateBefore {
    /// The state, in the adapter's own form, as base64.
    pub state: String,
    /// The fingerprint of the state, in hex.
    pub print: String,
}

/// The result of a preparation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireWritePrepared {
    /// The handle, if the class has one.
    pub handle: Option<String>,
    /// The state to restore, if a rollback is possible.
    pub before: Option<WireStateBefore>,
}

/// The header of one page of changes, without the changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireSyncPage {
    /// The next cursor.
    pub next: String,
    /// Whether more changes are available now.
    pub more: bool,
    /// The progress of a first sync; nothing for the change feed.
    pub progress: Option<SyncProgress>,
    /// How many changes were handed over.
    pub changes: usize,
}

/// The progress of a first sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncProgress {
    /// Messages copied so far.
    pub done: u64,
    /// Number of all messages, as the service estimates it.
    pub total: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cause_its_word_and_its_json_agree_and_an_unknown_word_is_a_refusal() {
        for cause in FailureCause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.as_str());
            assert_eq!(serde_json::from_value::<FailureCause>(json!(cause.as_str())).unwrap(), cause);
        }
        assert_eq!(serde_json::from_value::<FailureCause>(json!("no_such_cause")).unwrap(), FailureCause::Invalid);
        assert!(serde_json::from_value::<FailureCause>(json!(7)).is_err());
    }

    #[test]
    fn the_json_of_every_answer_is_pinned() {
        let why =
            FailureDetail { cause: FailureCause::RateLimited, text: "slow".into(), retry_after_s: Some(3), said: None };
        let told = json!({"cause": "rate_limited", "text": "slow", "retry_after_s": 3});
        let done =
            WireWriteDone { receipt: "r".into(), result: json!({"a": 1}), after: Some("ff".into()), undo_until: None };
        let done_json = json!({"receipt": "r", "result": {"a": 1}, "after": "ff", "undo_until": null});
        let before = Some(WireStateBefore { state: "eA==".into(), print: "00".into() });
        let page = WireSyncPage {
            next: "c".into(),
            more: true,
            progress: Some(SyncProgress { done: 1, total: None }),
            changes: 2,
        };
        for (answer, json) in [
            (WireAdapterAnswer::Account(None), json!({"account": null})),
            (WireAdapterAnswer::Account(Some("ana".into())), json!({"account": "ana"})),
            (
                WireAdapterAnswer::Page(page),
                json!({"page": {"next": "c", "more": true, "progress": {"done": 1, "total": null}, "changes": 2}}),
            ),
            (WireAdapterAnswer::Expired(PresentKey), json!({"expired": true})),
            (WireAdapterAnswer::Later(why.clone()), json!({"later": told})),
            (WireAdapterAnswer::Stopped(why.clone()), json!({"stopped": told})),
            (
                WireAdapterAnswer::Prepared(WireWritePrepared { handle: Some("h".into()), before }),
                json!({"prepared": {"handle": "h", "before": {"state": "eA==", "print": "00"}}}),
            ),
            (WireAdapterAnswer::Done(done.clone()), json!({"done": done_json})),
            (WireAdapterAnswer::Trouble(AdapterWriteError::Unclear), json!({"trouble": "unclear"})),
            (
                WireAdapterAnswer::Trouble(AdapterWriteError::NotDone(why.clone())),
                json!({"trouble": {"not_done": told}}),
            ),
            (WireAdapterAnswer::Trouble(AdapterWriteError::Refused(why)), json!({"trouble": {"refused": told}})),
            (WireAdapterAnswer::Applied(done), json!({"applied": done_json})),
            (WireAdapterAnswer::Absent(PresentKey), json!({"absent": true})),
            (WireAdapterAnswer::Unknown(PresentKey), json!({"unknown": true})),
            (WireAdapterAnswer::Print("00".into()), json!({"print": "00"})),
            (WireAdapterAnswer::Difference(vec!["a".into()]), json!({"difference": ["a"]})),
            (WireAdapterAnswer::Read(json!([1])), json!({"read": [1]})),
        ] {
            assert_eq!(serde_json::to_value(&answer).unwrap(), json);
            assert_eq!(serde_json::from_value::<WireAdapterAnswer>(json).unwrap(), answer);
        }
    }
}
