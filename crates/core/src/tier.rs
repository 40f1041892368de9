//! Four tiers, ordered, which are only ever raised.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How much control a person has over a call. The order matters: later is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Runs at once, recorded.
    Autonomous,
    /// Runs at once, recorded, and people are notified.
    Notify,
    /// Waits until a person approves.
    ApprovalRequired,
    /// Never runs.
    Blocked,
}

impl Tier {
    /// All tiers, loosest first.
    pub const ALL: [Self; 4] = [Self::Autonomous, Self::Notify, Self::ApprovalRequired, Self::Blocked];

    /// The stricter of the two. There is no way to lower a tier.
    #[must_use]
    pub fn raise(self, other: Self) -> Self {
        self.max(other)
    }

    /// The name used in policy files and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Autonomous => "autonomous",
            Self::Notify => "notify",
            Self::ApprovalRequired => "approval_required",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Tier {
    type Err = TierParseError;
    fn from_str(text: &str) -> Result<Self, TierParseError> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == text).ok_or(TierParseError)
    }
}

/// Not one of the four names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tier is one of autonomous, notify, approval_required, blocked")]
pub struct TierParseError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raising_never_lowers() {
        for a in Tier::ALL {
            for b in Tier::ALL {
                assert!(a.raise(b) >= a && a.raise(b) >= b);
                assert_eq!(a.raise(b), b.raise(a));
            }
        }
    }

    #[test]
    fn only_the_four_words_are_tiers() {
        assert_eq!("notify".parse(), Ok(Tier::Notify));
        for bad in ["Notify", "allow", "", "blocked "] {
            assert_eq!(bad.parse::<Tier>(), Err(TierParseError));
        }
    }
}
