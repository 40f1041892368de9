//! E-mail: approval requests are sent over SMTP; answers are fetched from a mailbox, or handed in at the inbox
//! endpoint.
//!
//! Takes an account that sends and, if there is one, the mailbox that replies arrive in. Promise: nothing travels
//! unencrypted except to this machine; the subject holds the id of the approval; the secret of the message is in the
//! reply address if replies are fetched, and in subject and text if a forwarding service hands them in; a link, if
//! there is one, only opens a page, so opening a mail decides nothing.

pub mod inbox;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use lettre::transport::smtp::PoolConfig;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use sluice_config::{Email as Settings, Security};
use sluice_core::approval::card;
use sluice_core::{BoxedFuture, hex};
use zeroize::Zeroizing;

use super::approval_message::{hash, reply_token};
use super::mail_auth::TxtResolver;
use super::{ApprovalMessage, Channel, ChannelError};
use crate::Gateway;
use crate::gate::rendering;

use inbox::{ReplyMailbox, ReplyNotifier};

/// The channel's name.
pub const NAME: &str = rendering::EMAIL;
/// Most characters of one message.
const ROOM: usize = 60_000;
/// Longest time that one SMTP exchange may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// An account that sends e-mail.
pub struct EmailChannel {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    reply_to: Option<Mailbox>,
    domain: String,
    inbox: Option<ReplyMailbox>,
}

impl fmt::Debug for EmailChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Email")
    }
}

/// One e-mail to send.
struct ChannelMail<'a> {
    to: &'a str,
    subject: &'a str,
    text: &'a str,
    id: Option<String>,
    answers: Option<&'a str>,
    reply_to: Option<Mailbox>,
}

impl EmailChannel {
    /// Makes an account from the configuration.
    ///
    /// # Errors
    /// When its password cannot be read, an address is not valid, or TLS cannot be set up.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        Self::looking_up(settings, None)
    }

    /// Makes an account from the configuration that looks up signature keys in `records`.
    ///
    /// # Errors
    /// As [`EmailChannel::new`].
    pub fn with_records(settings: &Settings, records: Arc<dyn TxtResolver>) -> Result<Self, String> {
        Self::looking_up(settings, Some(records))
    }

    fn looking_up(settings: &Settings, records: Option<Arc<dyn TxtResolver>>) -> Result<Self, String> {
        let host = settings.smtp_host.as_ref().ok_or("no host to send mail over")?.as_str();
        let from = settings.from.as_ref().ok_or("no address to send mail from: set `email.from`")?.as_str();
        let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|_| format!("`{text}` is not an e-mail address"));
        let from = mailbox(from)?;
        let domain = from.email.domain().to_owned();
        let tls = || trusting(host, settings);
        let tls = match settings.smtp_security {
            Security::Starttls => Tls::Required(tls()?),
            Security::Tls => Tls::Wrapper(tls()?),
            Security::Off if ["127.0.0.1", "localhost", "::1"].contains(&host) => Tls::None,
            Security::Off => return Err("mail without TLS goes to this machine only".into()),
        };
        let port = u16::try_from(settings.smtp_port).map_err(|_| "the port is not valid")?;
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(host)
            .port(port)
            .tls(tls)
            .timeout(Some(PATIENCE))
            .pool_config(PoolConfig::new().max_size(4));
        if let (Some(user), Some(file)) = (&settings.smtp_user, &settings.smtp_password_file) {
            let password = std::fs::read_to_string(file)
                .map_err(|error| format!("the password for mail cannot be read: {error}"))?;
            let password = Zeroizing::new(password);
            builder = builder.credentials(Credentials::new(
                user.as_str().to_owned(),
                password.trim_end_matches(['\r', '\n']).to_owned(),
            ));
        }
        let reply_to = settings.reply_to.as_ref().map(|to| mailbox(to.as_str())).transpose()?;
        let inbox = ReplyMailbox::new(settings, records)?;
        Ok(Self { transport: builder.build(), from, reply_to, domain, inbox })
    }

    /// Connects to the SMTP server and signs in, without sending anything.
    ///
    /// # Errors
    /// When the server does not answer, or refuses the account.
    pub async fn check_login(&self) -> Result<String, ChannelError> {
        let refused = |why: &str| ChannelError::Refused { why: why.to_owned() };
        match self.transport.test_connection().await {
            Ok(true) => Ok("the mail server accepts the account".to_owned()),
            Ok(false) => Err(refused("the host does not answer like a mail server")),
            // SECURITY: the error of the library may repeat what the server said, and the server what we sent.
            Err(error) if error.is_permanent() => Err(refused("the mail server refuses the account")),
            Err(error) if error.is_timeout() => Err(refused("the mail server does not answer in time")),
            Err(_) => Err(refused("the mail server cannot be reached, or TLS fails")),
        }
    }

    /// Acts on every reply that has arrived, without waiting for more.
    ///
    /// # Errors
    /// When the mailbox cannot be read now.
    pub async fn process_new_replies(&self, gw: &Gateway) -> Result<(), ChannelError> {
        match &self.inbox {
            Some(inbox) => inbox.process_new_mail(gw, self).await,
            None => Ok(()),
        }
    }

    async fn send(&self, mail: ChannelMail<'_>) -> Result<(), ChannelError> {
        let ChannelMail { to, subject, text, id, answers, reply_to } = mail;
        let refused = |why: &str| ChannelError::Refused { why: format!("mail: {why}") };
        let to: Mailbox = to.parse().map_err(|_| refused("not an e-mail address"))?;
        let mut builder = Message::builder().from(self.from.clone()).to(to).subject(subject).message_id(id);
        if let Some(reply_to) = reply_to.or_else(|| self.reply_to.clone()) {
            builder = builder.reply_to(reply_to);
        }
        if let Some(answers) = answers {
            builder = builder.in_reply_to(answers.to_owned()).references(answers.to_owned());
        }
        if let Ok(name) = HeaderName::new_from_ascii("Auto-Submitted".into()) {
            builder = builder.raw_header(HeaderValue::new(name, "auto-generated".into()));
        }
        let html = format!("<!doctype html><pre style=\"white-space:pre-wrap\">{}</pre>", escaped(text));
        let mail = builder.multipart(MultiPart::alternative_plain_html(text.to_owned(), html));
        let mail = mail.map_err(|_| refused("the message cannot be built"))?;
        match self.transport.send(mail).await {
            Ok(_) => Ok(()),
            Err(error) => Err(fault_of(&error)),
        }
    }
}

/// What an SMTP error means: with the server's reply code and without its text.
fn fault_of(error: &lettre::transport::smtp::Error) -> ChannelError {
    let code = error.status().map(u16::from);
    let later = |why: String| ChannelError::Later { after: None, why };
    match code {
        // The error is not about this message: the server does not accept the account.
        Some(code @ (530 | 534 | 535 | 538)) => {
            ChannelError::Broken { why: format!("mail: the server does not accept our user or password ({code})") }
        }
        Some(code) if error.is_permanent() => {
            ChannelError::Refused { why: format!("mail: refused by the server ({code})") }
        }
        Some(code) => later(format!("mail: not accepted yet ({code})")),
        None if error.is_timeout() => later("mail: the server did not answer in time".into()),
        None => later("mail: the server cannot be reached, or does not follow the protocol".into()),
    }
}

/// TLS to a host. Trusts the certificates of the machine and of `email.ca_file`.
fn trusting(host: &str, settings: &Settings) -> Result<TlsParameters, String> {
    let mut builder = TlsParameters::builder(host.to_owned());
    if let Some(file) = &settings.ca_file {
        let unusable = |why: String| format!("`email.ca_file` cannot be used: {why}");
        let pem = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
        let certificate = Certificate::from_pem(&pem).map_err(|error| unusable(error.to_string()))?;
        builder = builder.add_root_certificate(certificate);
    }
    builder.build().map_err(|_| "no TLS for mail".to_owned())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Channel for EmailChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn max_message_chars(&self) -> usize {
        ROOM
    }

    fn show<'a>(&'a self, letter: &'a ApprovalMessage) -> BoxedFuture<'a, Result<String, ChannelError>> {
        Box::pin(async move {
            // The secret is in the reply address. The Message-ID is made from its hash, so that a person who sees the
            // conversation later cannot answer with it.
            let print = hash(&letter.secret);
            let id =
                format!("<{}.{}@{}>", hex::encode(print.get(..16).unwrap_or_default()), letter.approval, self.domain);
            let unwritable = || ChannelError::Refused { why: "mail: the reply address cannot be built".into() };
            let reply_to = match &self.inbox {
                Some(inbox) => {
                    let address = inbox.address_for(&letter.secret).and_then(|address| address.parse().ok());
                    Some(address.ok_or_else(unwritable)?)
                }
                None => None,
            };
            let mut subject = format!("{} [{}]", card::escape_invisible(&letter.title), letter.approval);
            let mut text = letter.text.replace("Press a button, or reply to this message:", "Reply with one line:");
            if self.inbox.is_none() {
                // The service that hands in replies sees subject and text, not the address they were sent to.
                let token = reply_token(&letter.secret);
                subject.push_str(&format!(" [{token}]"));
                text.push_str(&format!("\nKeep the subject or this line in your reply: {token}"));
            }
            let (to, id_) = (letter.place.as_str(), Some(id.clone()));
            let mail = ChannelMail { to, subject: &subject, text: &text, id: id_, answers: None, reply_to };
            self.send(mail).await?;
            Ok(id)
        })
    }

    /// A mail cannot be changed: the outcome is sent as a second mail in the same conversation.
    fn edit<'a>(
        &'a self,
        place: &'a str,
        message: &'a str,
        text: &'a str,
    ) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(async move {
            let first = text.lines().next().unwrap_or_default();
            let subject = card::escape_invisible(first);
            self.send(ChannelMail {
                to: place,
                subject: &subject,
                text,
                id: None,
                answers: Some(message),
                reply_to: None,
            })
            .await
        })
    }

    fn say<'a>(
        &'a self,
        place: &'a str,
        to: Option<&'a str>,
        text: &'a str,
    ) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(async move {
            let first: String = text.lines().next().unwrap_or_default().chars().take(120).collect();
            let subject = card::escape_invisible(&first);
            self.send(ChannelMail { to: place, subject: &subject, text, id: None, answers: to, reply_to: None }).await
        })
    }

    fn receive_answers<'a>(&'a self, gw: &'a Gateway) -> BoxedFuture<'a, Result<(), ChannelError>> {
        match &self.inbox {
            Some(inbox) => Box::pin(inbox.hear(gw, self)),
            // Replies are handed in at the inbox endpoint; there is nothing to wait for here.
            None => Box::pin(std::future::pending()),
        }
    }
}

impl ReplyNotifier for EmailChannel {
    fn tell<'a>(&'a self, place: &'a str, message: Option<&'a str>, text: &'a str) -> BoxedFuture<'a, ()> {
        Box::pin(async move {
            // The answer is already carried out: if this fails, the person only misses one line.
            if let Err(fault) = self.say(place, message, text).await {
                tracing::debug!("a person could not be notified: {fault}");
            }
        })
    }
}
