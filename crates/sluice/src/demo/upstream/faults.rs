//! What goes wrong on command.
//!
//! Takes a kind of request, how it fails and how often; gives the failure when such a request comes.

use serde_json::Value;

use super::Answer;

/// Whether the request is carried out all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// It fails instead.
    Before,
    /// It is done, then it fails.
    After,
}

/// How requests of a kind fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// A part of the kind, such as `drafts/send`.
    pub kind: String,
    /// Before or after.
    pub when: When,
    /// The status that is answered; nothing: the connection is closed without an answer.
    pub status: Option<u16>,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// How often.
    pub times: u32,
    /// How many go through first.
    pub skip: u32,
}

impl Failing {
    /// From the JSON of the control address.
    pub fn read(wish: &Value) -> Option<Self> {
        let kind = wish.get("fail")?.as_str()?.to_owned();
        let number = |name: &str| wish.get(name).and_then(Value::as_u64);
        Some(Self {
            kind,
            when: if wish.get("after") == Some(&Value::Bool(true)) { When::After } else { When::Before },
            status: number("status").and_then(|status| u16::try_from(status).ok()),
            retry_after_s: number("retry_after_s"),
            times: number("times").and_then(|times| u32::try_from(times).ok()).unwrap_or(1),
            skip: number("skip").and_then(|skip| u32::try_from(skip).ok()).unwrap_or(0),
        })
    }

    /// What is answered; nothing where the answer is lost.
    pub fn answer(&self) -> Option<Answer> {
        let status = self.status?;
        let reason = match status {
            401 => "authError",
            403 => "insufficientPermissions",
            429 => "rateLimitExceeded",
            _ => "backendError",
        };
        let mut answer = Answer::error(status, reason, "failing on command");
        if let Some(wait) = self.retry_after_s {
            answer.headers.push(("retry-after".into(), wait.to_string()));
        }
        Some(answer)
    }
}

/// Everything that is to go wrong.
#[derive(Debug, Default)]
pub struct Faults(Vec<Failing>);

impl Faults {
    /// Adds one.
    pub fn add(&mut self, failing: Failing) {
        self.0.push(failing);
    }

    /// The failure for a request of this kind, once.
    pub fn take(&mut self, kind: &str) -> Option<Failing> {
        let at = self.0.iter().position(|failing| failing.times > 0 && kind.contains(&failing.kind))?;
        let failing = self.0.get_mut(at)?;
        if failing.skip > 0 {
            failing.skip -= 1;
            return None;
        }
        failing.times -= 1;
        let taken = failing.clone();
        self.0.retain(|failing| failing.times > 0);
        Some(taken)
    }
}
