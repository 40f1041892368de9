//! Mail as the local replica keeps it, and the words by which it is searched.
//!
//! Pure data. A message from a service is parsed and cleaned before it becomes a [`Mail`]; what a
//! person or an agent typed becomes a [`query::MailSearchQuery`]. Promise: index, query, snippet and ranking cut
//! text into words in the same way, [`words`].

pub mod authenticity;
pub mod head;
pub mod query;
pub mod words;

use serde::{Deserialize, Serialize};

use crate::clock::UtcMillis;

pub use authenticity::{MailAmbiguity, SenderAuthentication};

/// The rule by which a message is withheld that could not be opened.
pub const UNOPENED: &str = "mail.unopened";

/// A sender or recipient of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailAddress {
    /// The display name, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address.
    pub address: String,
}

/// A file attached to a message. Its content is not part of the replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MailAttachment {
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The media type that it claims.
    pub media_type: String,
    /// Its size in bytes, decoded.
    pub size: u64,
    /// SHA-256 of its content, in hex.
    pub sha256: String,
}

/// One message of the local replica.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Mail {
    /// The service's id.
    pub id: String,
    /// The service's id of its thread.
    pub thread: String,
    /// When the service received it, in milliseconds.
    pub received: i64,
    /// The service's ids of its labels.
    pub labels: Vec<String>,
    /// Its sender, if it names one and all readers name the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<MailAddress>,
    /// Its recipients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<MailAddress>,
    /// Its recipients in copy (Cc).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cc: Vec<MailAddress>,
    /// Its subject.
    pub subject: String,
    /// The text of its body, cleaned.
    pub text: String,
    /// Its attachments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<MailAttachment>,
    /// Its own `Message-ID`, without brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Its original size, in bytes.
    pub size: u64,
    /// Whether its body was too large to be kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The rules by which it is withheld from agents; empty when it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// How much it looks like an attack on agents, in thousandths.
    #[serde(default, skip_serializing_if = "is_nought")]
    pub score: u32,
    /// What two parsers read differently, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguous: Option<MailAmbiguity>,
    /// What the receiving server recorded about its sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<SenderAuthentication>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what the derive hands over")]
fn is_nought(score: &u32) -> bool {
    *score == 0
}

impl Mail {
    /// When the service received it.
    #[must_use]
    pub const fn received_at(&self) -> UtcMillis {
        UtcMillis::from_millis(self.received)
    }

    /// Its sender as it is shown to people: both readings where there are two.
    #[must_use]
    pub fn sender_line(&self) -> String {
        let two = self.ambiguous.as_ref().and_then(MailAmbiguity::sender_line);
        two.or_else(|| self.from.as_ref().map(ToString::to_string)).unwrap_or_default()
    }

    /// Its subject as it is shown to people: both readings where there are two.
    #[must_use]
    pub fn subject_line(&self) -> String {
        let two = self.ambiguous.as_ref().and_then(MailAmbiguity::subject_line);
        two.unwrap_or_else(|| self.subject.clone())
    }

    /// Whether it carries a label of this id.
    #[must_use]
    pub fn has_label(&self, id: &str) -> bool {
        self.labels.iter().any(|label| label == id)
    }
}

impl std::fmt::Display for MailAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} <{}>", self.address),
            None => f.write_str(&self.address),
        }
    }
}
