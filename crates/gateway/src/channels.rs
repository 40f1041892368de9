//! Channels to people: one interface for everything that shows a question and brings back an answer.
//!
//! A channel shows a letter, changes it to the outcome, says a few words, and hears what people say. It decides
//! nothing: what it hears goes to [`crate::gate::deciding`]. Promise: what a channel fails to do is tried again or
//! said to be impossible; it never becomes an answer.

pub mod email;
pub mod hearing;
mod imap;
pub mod letter;
pub mod links;
pub mod mail_auth;
pub mod shown;
pub mod telegram;

use std::fmt::Debug;
use std::sync::Arc;

use sluice_core::Span;

use crate::config::Config;
use crate::services::Work;
use crate::{Gateway, No};

pub use letter::{Button, Letter};

/// Why something could not be shown or heard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not now.
    #[error("{why}")]
    Later {
        /// When it makes sense again, if the other side said so.
        after: Option<Span>,
        /// What happened, without content.
        why: String,
    },
    /// Never, for this message.
    #[error("{why}")]
    Refused {
        /// What happened, without content.
        why: String,
    },
    /// Somebody else uses our name, or we may not use it any more. A person has to look.
    #[error("{why}")]
    Broken {
        /// What happened.
        why: String,
    },
    /// We could not do our own part.
    #[error("{0}")]
    Inside(String),
}

impl From<No> for Fault {
    fn from(no: No) -> Self {
        Self::Inside(no.refusal.to_string())
    }
}

impl From<sluice_store::StoreError> for Fault {
    fn from(error: sluice_store::StoreError) -> Self {
        Self::Inside(error.to_string())
    }
}

/// Something that shows questions to people and hears their answers.
pub trait Channel: Send + Sync + Debug {
    /// Its name in rows and the record.
    fn name(&self) -> &'static str;
    /// How many characters one letter can have.
    fn room(&self) -> usize;
    /// Shows a question. Gives the channel's own name for what was sent.
    fn show<'a>(&'a self, letter: &'a Letter) -> Work<'a, Result<String, Fault>>;
    /// Changes what was shown; nothing can be pressed in it any more.
    fn edit<'a>(&'a self, place: &'a str, message: &'a str, text: &'a str) -> Work<'a, Result<(), Fault>>;
    /// Says something, as an answer to a message if one is named.
    fn say<'a>(&'a self, place: &'a str, to: Option<&'a str>, text: &'a str) -> Work<'a, Result<(), Fault>>;
    /// Waits a while for what people say, and acts on it.
    fn hear<'a>(&'a self, gw: &'a Gateway) -> Work<'a, Result<(), Fault>>;
    /// The gateway stops: nothing is left behind that would bring news to a door that is closed.
    fn leave<'a>(&'a self, _: &'a Gateway) -> Work<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The names of the channels that a configuration sets up.
#[must_use]
pub fn names(config: &Config) -> Vec<&'static str> {
    let telegram = config.telegram.token_file.as_ref().map(|_| telegram::NAME);
    let email = config.email.smtp_host.as_ref().map(|_| email::NAME);
    telegram.into_iter().chain(email).collect()
}

/// Every channel the configuration names.
///
/// # Errors
/// When one of them cannot be set up.
pub fn configured(config: &Config) -> Result<Vec<Arc<dyn Channel>>, String> {
    let mut channels: Vec<Arc<dyn Channel>> = Vec::new();
    if let Some(bot) = telegram::Telegram::configured(config)? {
        channels.push(Arc::new(bot));
    }
    if config.email.smtp_host.is_some() {
        channels.push(Arc::new(email::Email::new(&config.email)?));
    }
    Ok(channels)
}
