//! Channels to people: one interface for everything that shows approval requests and receives answers.
//!
//! A channel shows a message, changes it to the outcome, sends short texts, and receives what people say. It decides
//! nothing: answers go to [`crate::gate::deciding`]. Promise: what a channel fails to do is tried again or reported as
//! impossible; a failure never becomes an answer.

pub mod approval_message;
pub mod email;
pub mod health;
mod imap;
pub mod links;
pub mod mail_auth;
pub mod telegram;

use std::fmt::Debug;
use std::sync::Arc;

use sluice_config::Config;
use sluice_core::{BoxedFuture, Millis};
use sluice_services::CallError;

use crate::Gateway;

pub use approval_message::{ApprovalMessage, MessageButton};

/// Why something could not be shown or received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// It failed for now and is tried again.
    #[error("{why}")]
    Later {
        /// When a retry makes sense, if the other side said so.
        after: Option<Millis>,
        /// What happened, without content.
        why: String,
    },
    /// It fails permanently for this message.
    #[error("{why}")]
    Refused {
        /// What happened, without content.
        why: String,
    },
    /// Another program uses our identity, or we may not use it any more. A person has to look.
    #[error("{why}")]
    Broken {
        /// What happened, without content.
        why: String,
    },
    /// Our own part of the work failed.
    #[error("{0}")]
    Inside(String),
}

impl From<CallError> for ChannelError {
    fn from(no: CallError) -> Self {
        Self::Inside(no.refusal.to_string())
    }
}

impl From<sluice_store::StoreError> for ChannelError {
    fn from(error: sluice_store::StoreError) -> Self {
        Self::Inside(error.to_string())
    }
}

/// A way to show approval requests to people and receive their answers.
pub trait Channel: Send + Sync + Debug {
    /// The name of the channel in rows and in the audit log.
    fn name(&self) -> &'static str;
    /// How many characters one message can have.
    fn max_message_chars(&self) -> usize;
    /// Shows an approval request. Returns the channel's own id of the message.
    fn show<'a>(&'a self, letter: &'a ApprovalMessage) -> BoxedFuture<'a, Result<String, ChannelError>>;
    /// Changes what was shown; its buttons no longer work.
    fn edit<'a>(&'a self, place: &'a str, message: &'a str, text: &'a str)
    -> BoxedFuture<'a, Result<(), ChannelError>>;
    /// Sends a text, as a reply to a message if one is named.
    fn say<'a>(
        &'a self,
        place: &'a str,
        to: Option<&'a str>,
        text: &'a str,
    ) -> BoxedFuture<'a, Result<(), ChannelError>>;
    /// Waits a while for answers, and acts on them.
    fn receive_answers<'a>(&'a self, gw: &'a Gateway) -> BoxedFuture<'a, Result<(), ChannelError>>;
    /// Called when the gateway stops: removes what would send updates to a closed address.
    fn shut_down<'a>(&'a self, _: &'a Gateway) -> BoxedFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The names of the channels that the configuration sets up.
#[must_use]
pub fn names(config: &Config) -> Vec<&'static str> {
    let telegram = config.telegram.token_file.as_ref().map(|_| telegram::NAME);
    let email = config.email.smtp_host.as_ref().map(|_| email::NAME);
    telegram.into_iter().chain(email).collect()
}

/// All channels that the configuration names.
///
/// # Errors
/// When one of them cannot be set up.
pub fn configured(config: &Config) -> Result<Vec<Arc<dyn Channel>>, String> {
    let mut channels: Vec<Arc<dyn Channel>> = Vec::new();
    if let Some(bot) = telegram::TelegramChannel::configured(config)? {
        channels.push(Arc::new(bot));
    }
    if config.email.smtp_host.is_some() {
        channels.push(Arc::new(email::EmailChannel::new(&config.email)?));
    }
    Ok(channels)
}
