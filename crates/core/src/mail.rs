//! Mail as the local copy keeps it, and the words in which it is searched.
//!
//! Pure data. Whatever a service sent was taken apart and cleaned before it becomes a [`Mail`]; what a
//! person or an agent typed becomes a [`query::Query`]. Promise: index, query, snippet and ranking cut
//! text into words in the same way, [`words`].

pub mod doubt;
pub mod head;
pub mod query;
pub mod words;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

pub use doubt::{Ambiguity, Authentication};

/// The rule for which a message is withheld that nobody could open.
pub const UNOPENED: &str = "mail.unopened";

/// Someone a mail is from or to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Address {
    /// The display name, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address.
    pub address: String,
}

/// A file that came with a mail. Its content is not part of the copy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attachment {
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it says it is.
    pub media_type: String,
    /// Its size in bytes, decoded.
    pub size: u64,
    /// SHA-256 of its content, in hex.
    pub sha256: String,
}

/// One message of the local copy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mail {
    /// The service's id.
    pub id: String,
    /// The service's id of its thread.
    pub thread: String,
    /// When the service got it, in milliseconds.
    pub received: i64,
    /// The service's ids of its labels.
    pub labels: Vec<String>,
    /// Its sender, if it names one and all readers name the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Address>,
    /// Who it is to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Address>,
    /// Who got a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<Address>,
    /// Its subject.
    pub subject: String,
    /// The text of its body, cleaned.
    pub text: String,
    /// What came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Its own `Message-ID`, without brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Its size as it came, in bytes.
    pub size: u64,
    /// Whether its body was too large to be kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Rules for which it is withheld from agents; empty when it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// How much it looks like an attack on agents, in thousandths.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub score: u32,
    /// What two readers of it read differently, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguous: Option<Ambiguity>,
    /// What the receiving server recorded about its sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what the derive hands over")]
fn is_nought(score: &u32) -> bool {
    *score == 0
}

impl Mail {
    /// When the service got it.
    #[must_use]
    pub const fn received_at(&self) -> Timestamp {
        Timestamp::from_millis(self.received)
    }

    /// Its sender as people are shown it: both readings where there are two.
    #[must_use]
    pub fn sender_line(&self) -> String {
        let two = self.ambiguous.as_ref().and_then(Ambiguity::sender_line);
        two.or_else(|| self.from.as_ref().map(ToString::to_string)).unwrap_or_default()
    }

    /// Its subject as people are shown it: both readings where there are two.
    #[must_use]
    pub fn subject_line(&self) -> String {
        let two = self.ambiguous.as_ref().and_then(Ambiguity::subject_line);
        two.unwrap_or_else(|| self.subject.clone())
    }

    /// Whether it carries a label of this id.
    #[must_use]
    pub fn has_label(&self, id: &str) -> bool {
        self.labels.iter().any(|label| label == id)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} <{}>", self.address),
            None => f.write_str(&self.address),
        }
    }
}
