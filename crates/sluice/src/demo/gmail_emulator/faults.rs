//! Failures on command.
//!
//! Takes a kind of request, how it fails and how often; gives the failure when such a request arrives.

use serde_json::Value;

use super::EmulatorResponse;

/// Whether the request is carried out anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultTiming {
    /// It fails and is not carried out.
    Before,
    /// It is carried out, then it fails.
    After,
}

/// How requests of a kind fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFault {
    /// A part of the kind, such as `drafts/send`.
    pub kind: String,
    /// Whether it fails before or after it is carried out.
    pub when: FaultTiming,
    /// The status of the response; `None`: the connection is closed without a response.
    pub status: Option<u16>,
    /// `Retry-After`, in seconds.
    pub retry_after_s: Option<u64>,
    /// How many requests fail.
    pub times: u32,
    /// How many requests succeed first.
    pub skip: u32,
}

impl InjectedFault {
    /// Parses the JSON of the control address.
    pub fn read(wish: &Value) -> Option<Self> {
        let kind = wish.get("fail")?.as_str()?.to_owned();
        let number = |name: &str| wish.get(name).and_then(Value::as_u64);
        Some(Self {
            kind,
            when: if wish.get("after") == Some(&Value::Bool(true)) { FaultTiming::After } else { FaultTiming::Before },
            status: number("status").and_then(|status| u16::try_from(status).ok()),
            retry_after_s: number("retry_after_s"),
            times: number("times").and_then(|times| u32::try_from(times).ok()).unwrap_or(1),
            skip: number("skip").and_then(|skip| u32::try_from(skip).ok()).unwrap_or(0),
        })
    }

    /// The response; `None` if it is lost.
    pub fn answer(&self) -> Option<EmulatorResponse> {
        let status = self.status?;
        let reason = match status {
            401 => "authError",
            403 => "insufficientPermissions",
            429 => "rateLimitExceeded",
            _ => "backendError",
        };
        let mut answer = EmulatorResponse::error(status, reason, "failing on command");
        if let Some(wait) = self.retry_after_s {
            answer.headers.push(("retry-after".into(), wait.to_string()));
        }
        Some(answer)
    }
}

/// All planned failures.
#[derive(Debug, Default)]
pub struct InjectedFaults(Vec<InjectedFault>);

impl InjectedFaults {
    /// Adds a failure.
    pub fn add(&mut self, failing: InjectedFault) {
        self.0.push(failing);
    }

    /// The failure for a request of this kind, used once.
    pub fn take(&mut self, kind: &str) -> Option<InjectedFault> {
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
