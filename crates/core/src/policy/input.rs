//! The question to policy: one call, and what is known about it.
//!
//! Takes everything a rule can test as plain borrowed data; core has no clock, no counters and no
//! sessions of its own.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::clock::{Millis, UtcMillis};
use crate::ids::{AgentName, CapabilityName};

/// One call as policy sees it.
#[derive(Clone, Copy)]
pub struct PolicyInput<'q> {
    /// The agent that makes the call.
    pub agent: &'q AgentName,
    /// The capability of the call.
    pub capability: &'q CapabilityName,
    /// The arguments of the call.
    pub arguments: &'q Map<String, Value>,
    /// The arguments of `proxy.spawn`, for a call that was made as a spawn.
    pub spawn: Option<&'q Map<String, Value>>,
    /// The account, after the configured default was filled in.
    pub account: Option<&'q str>,
    /// The session of the gateway.
    pub session: Option<&'q str>,
    /// Whether that session was shown an item with an injection finding.
    pub tainted: bool,
    /// The origins of the targets of the call; `None` if they were not checked.
    pub targets: Option<TargetOrigins>,
    /// The time of the call.
    pub now: UtcMillis,
    /// How often rules with a rate limit were used before.
    pub rates: &'q dyn RateCounter,
}

impl<'q> PolicyInput<'q> {
    /// A call without further facts: no session, no account, no counted calls.
    #[must_use]
    pub fn new(
        agent: &'q AgentName,
        capability: &'q CapabilityName,
        arguments: &'q Map<String, Value>,
        now: UtcMillis,
    ) -> Self {
        Self {
            agent,
            capability,
            arguments,
            spawn: None,
            account: None,
            session: None,
            tainted: false,
            targets: None,
            now,
            rates: &NoRateCounter,
        }
    }
}

impl fmt::Debug for PolicyInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the arguments: they are content.
        f.debug_struct("Question")
            .field("agent", self.agent)
            .field("capability", self.capability)
            .finish_non_exhaustive()
    }
}

/// Counts earlier calls. The database is behind it in the gateway.
pub trait RateCounter: Sync {
    /// How many calls of this agent were counted under this key within the last `window`.
    fn count(&self, agent: &AgentName, key: RateKey, window: Millis) -> u64;
}

/// A counter that has counted nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRateCounter;

impl RateCounter for NoRateCounter {
    fn count(&self, _: &AgentName, _: RateKey, _: Millis) -> u64 {
        0
    }
}

/// The key under which a rate limit counts, beside the agent: a rule keeps its key when its line moves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RateKey(pub(crate) u64);

impl fmt::Display for RateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rate_{:016x}", self.0)
    }
}

impl fmt::Debug for RateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for RateKey {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Where a target was first met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetOrigin {
    /// Named in the task the user gave.
    Asked,
    /// A contact, configured, or approved before.
    Known,
    /// First met in outside text.
    Seen,
    /// Never met before.
    New,
}

impl TargetOrigin {
    /// All origins.
    pub const ALL: [Self; 4] = [Self::Asked, Self::Known, Self::Seen, Self::New];

    /// The name used in policy files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Known => "known",
            Self::Seen => "seen",
            Self::New => "new",
        }
    }

    /// The origin with this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == word)
    }
}

/// The origins of all targets of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TargetOrigins(u8);

impl TargetOrigins {
    /// Adds one more.
    #[must_use]
    pub const fn with(self, origin: TargetOrigin) -> Self {
        Self(self.0 | 1 << origin as u8)
    }
    /// Whether one of the targets has this origin.
    #[must_use]
    pub const fn has(self, origin: TargetOrigin) -> bool {
        self.0 & (1 << origin as u8) != 0
    }
    /// Whether the call has no targets.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Whether all of them are among the others.
    #[must_use]
    pub const fn is_subset_of(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

impl FromIterator<TargetOrigin> for TargetOrigins {
    fn from_iter<I: IntoIterator<Item = TargetOrigin>>(origins: I) -> Self {
        origins.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for TargetOrigins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> =
            TargetOrigin::ALL.into_iter().filter(|o| self.has(*o)).map(TargetOrigin::as_str).collect();
        f.write_str(&words.join(", "))
    }
}
