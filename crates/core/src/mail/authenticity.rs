//! What is uncertain about a message, and what the receiving server found out about its sender.
//!
//! Pure data. [`MailAmbiguity`] holds two different readings of one message; [`SenderAuthentication`] holds the checks that the
//! receiving server recorded. Promise: neither comes from anything a sender could have written about itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The rule of a message whose header and body can be divided in two ways.
pub const HEAD: &str = "mail.ambiguous.head";
/// The rule of a message with two senders.
pub const SENDER: &str = "mail.ambiguous.sender";
/// The rule of a message with two subjects.
pub const SUBJECT: &str = "mail.ambiguous.subject";
/// The rule of a message whose recipients can be read in two ways.
pub const RECIPIENTS: &str = "mail.ambiguous.recipients";
/// The rule of a message whose parts can be divided or decoded in two ways.
pub const PARTS: &str = "mail.ambiguous.parts";

/// Two readings of one message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailAmbiguity {
    /// What can be read in two ways, as rules.
    pub reasons: Vec<String>,
    /// The senders that were read; empty where both parsers name the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<String>,
    /// The subjects that were read; empty where both parsers name the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
}

impl MailAmbiguity {
    /// Both senders, for people; `None` where both parsers name the same.
    #[must_use]
    pub fn sender_line(&self) -> Option<String> {
        two_readings(&self.senders)
    }

    /// Both subjects, for people; `None` where both parsers name the same.
    #[must_use]
    pub fn subject_line(&self) -> Option<String> {
        two_readings(&self.subjects)
    }
}

fn two_readings(readings: &[String]) -> Option<String> {
    let shown = |text: &String| if text.is_empty() { "(none)".to_owned() } else { format!("“{text}”") };
    let all: Vec<String> = readings.iter().map(shown).collect();
    (!all.is_empty()).then(|| format!("two readings: {}", all.join(" or ")))
}

/// The result of a check of the receiving server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SenderCheckVerdict {
    /// It passes, for the domain of the sender.
    Pass,
    /// It fails.
    Fail,
    /// It fails softly, as the policy of the sender's domain asks for.
    Softfail,
    /// The sender's domain makes no statement.
    Neutral,
    /// There was nothing to check.
    None,
    /// It could not be checked.
    Error,
    /// It passes for another domain than the sender's, which says nothing about the sender.
    Unaligned,
}

/// Every verdict, in the order of their numbers.
const VERDICTS: [SenderCheckVerdict; 7] = [
    SenderCheckVerdict::Pass,
    SenderCheckVerdict::Fail,
    SenderCheckVerdict::Softfail,
    SenderCheckVerdict::Neutral,
    SenderCheckVerdict::None,
    SenderCheckVerdict::Error,
    SenderCheckVerdict::Unaligned,
];

impl SenderCheckVerdict {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Softfail => "softfail",
            Self::Neutral => "neutral",
            Self::None => "none",
            Self::Error => "error",
            Self::Unaligned => "unaligned",
        }
    }

    /// The verdict of this RFC 8601 name; an unknown name is an error.
    #[must_use]
    pub fn of_word(word: &str) -> Self {
        match word {
            "pass" => Self::Pass,
            "fail" | "hardfail" | "policy" => Self::Fail,
            "softfail" => Self::Softfail,
            "neutral" | "bestguesspass" => Self::Neutral,
            "none" => Self::None,
            _ => Self::Error,
        }
    }
}

/// What the receiving server recorded about the sender of a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SenderAuthentication {
    /// DMARC: whether the sender's domain vouches for the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmarc: Option<SenderCheckVerdict>,
    /// SPF: whether it came from a server of the sender's domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spf: Option<SenderCheckVerdict>,
    /// DKIM: whether the sender's domain signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dkim: Option<SenderCheckVerdict>,
}

impl SenderAuthentication {
    /// Encoded as a number below 512.
    #[must_use]
    pub fn to_bits(self) -> u16 {
        let bits = |verdict: Option<SenderCheckVerdict>| {
            let at = verdict.and_then(|verdict| VERDICTS.iter().position(|known| *known == verdict));
            at.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(0)
        };
        bits(self.dmarc) | bits(self.spf) << 3 | bits(self.dkim) << 6
    }

    /// Decoded from such a number; `None` where nothing was recorded.
    #[must_use]
    pub fn from_bits(bits: u16) -> Option<Self> {
        let verdict = |shift: u16| VERDICTS.get(usize::from(bits >> shift & 7).checked_sub(1)?).copied();
        let read = Self { dmarc: verdict(0), spf: verdict(3), dkim: verdict(6) };
        (read != Self::default()).then_some(read)
    }
}

impl fmt::Display for SenderAuthentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, verdict) in [("dmarc", self.dmarc), ("spf", self.spf), ("dkim", self.dkim)] {
            if let Some(verdict) = verdict {
                write!(f, "{between}{name} {}", verdict.as_str())?;
                between = ", ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_verdicts_survives_its_number() {
        let each = || std::iter::once(None).chain(VERDICTS.into_iter().map(Some));
        for dmarc in each() {
            for spf in each() {
                for dkim in each() {
                    let one = SenderAuthentication { dmarc, spf, dkim };
                    assert!(one.to_bits() < 512);
                    assert_eq!(SenderAuthentication::from_bits(one.to_bits()).unwrap_or_default(), one);
                }
            }
        }
    }

    #[test]
    fn people_are_shown_both_readings() {
        let doubt = MailAmbiguity { senders: vec!["a@b.example".into(), String::new()], ..MailAmbiguity::default() };
        assert_eq!(doubt.sender_line().as_deref(), Some("two readings: “a@b.example” or (none)"));
        assert_eq!(doubt.subject_line(), None);
    }
}
