//! Mail: questions as letters over SMTP; answers come back through the inbox endpoint.
//!
//! Takes an account that may send. Promise: nothing travels in the clear except to this machine; the subject holds
//! the question's id, the message's own id holds its secret, and there is no link in it: nothing that merely opens a
//! mail decides anything.

use std::fmt;
use std::time::Duration;

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use lettre::transport::smtp::PoolConfig;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use sluice_core::approval::card;
use zeroize::Zeroizing;

use super::{Channel, Fault, Letter};
use crate::Gateway;
use crate::config::{Email as Settings, Security};
use crate::services::Work;

/// The channel's name.
pub const NAME: &str = "email";
/// Characters of one letter.
const ROOM: usize = 60_000;
/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// An account that sends.
pub struct Email {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    reply_to: Option<Mailbox>,
    domain: String,
}

impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Email")
    }
}

/// One mail.
struct Mail<'a> {
    to: &'a str,
    subject: &'a str,
    text: &'a str,
    id: Option<String>,
    answers: Option<&'a str>,
}

impl Email {
    /// An account as configured.
    ///
    /// # Errors
    /// When its password cannot be read, an address is none, or TLS cannot be had.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let host = settings.smtp_host.as_ref().ok_or("no host to send mail over")?.as_str();
        let from = settings.from.as_ref().ok_or("no address to send mail from: set `email.from`")?.as_str();
        let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|_| format!("`{text}` is no address"));
        let from = mailbox(from)?;
        let domain = from.email.domain().to_owned();
        let tls = || TlsParameters::new(host.to_owned()).map_err(|_| "no TLS for mail".to_owned());
        let tls = match settings.smtp_security {
            Security::Starttls => Tls::Required(tls()?),
            Security::Tls => Tls::Wrapper(tls()?),
            Security::Off if ["127.0.0.1", "localhost", "::1"].contains(&host) => Tls::None,
            Security::Off => return Err("mail without TLS goes to this machine only".into()),
        };
        let port = u16::try_from(settings.smtp_port).map_err(|_| "no such port")?;
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
        Ok(Self { transport: builder.build(), from, reply_to, domain })
    }

    async fn send(&self, mail: Mail<'_>) -> Result<(), Fault> {
        let Mail { to, subject, text, id, answers } = mail;
        let refused = |why: &str| Fault::Refused { why: format!("mail: {why}") };
        let to: Mailbox = to.parse().map_err(|_| refused("no address"))?;
        let mut builder = Message::builder().from(self.from.clone()).to(to).subject(subject).message_id(id);
        if let Some(reply_to) = &self.reply_to {
            builder = builder.reply_to(reply_to.clone());
        }
        if let Some(answers) = answers {
            builder = builder.in_reply_to(answers.to_owned()).references(answers.to_owned());
        }
        if let Ok(name) = HeaderName::new_from_ascii("Auto-Submitted".into()) {
            builder = builder.raw_header(HeaderValue::new(name, "auto-generated".into()));
        }
        let html = format!("<!doctype html><pre style=\"white-space:pre-wrap\">{}</pre>", escaped(text));
        let mail = builder.multipart(MultiPart::alternative_plain_html(text.to_owned(), html));
        let mail = mail.map_err(|_| refused("not to be written"))?;
        match self.transport.send(mail).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_permanent() => Err(refused("refused by the server")),
            Err(_) => Err(Fault::Later { after: None, why: "mail: not taken yet".into() }),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Channel for Email {
    fn name(&self) -> &'static str {
        NAME
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn show<'a>(&'a self, letter: &'a Letter) -> Work<'a, Result<String, Fault>> {
        Box::pin(async move {
            // The secret travels in the id of the message: a reply names it, and nothing on the page shows it.
            let id = format!("<{}.{}@{}>", letter.secret, letter.approval, self.domain);
            let subject = format!("{} [{}]", card::visible(&letter.title), letter.approval);
            let text = letter.text.replace("Press a button, or reply to this message:", "Reply with one line:");
            let mail = Mail { to: &letter.place, subject: &subject, text: &text, id: Some(id.clone()), answers: None };
            self.send(mail).await?;
            Ok(id)
        })
    }

    /// A mail cannot be changed: the outcome is sent after it, in the same conversation.
    fn edit<'a>(&'a self, place: &'a str, message: &'a str, text: &'a str) -> Work<'a, Result<(), Fault>> {
        Box::pin(async move {
            let first = text.lines().next().unwrap_or_default();
            let subject = card::visible(first);
            self.send(Mail { to: place, subject: &subject, text, id: None, answers: Some(message) }).await
        })
    }

    fn say<'a>(&'a self, place: &'a str, to: Option<&'a str>, text: &'a str) -> Work<'a, Result<(), Fault>> {
        Box::pin(async move {
            let first: String = text.lines().next().unwrap_or_default().chars().take(120).collect();
            let subject = card::visible(&first);
            self.send(Mail { to: place, subject: &subject, text, id: None, answers: to }).await
        })
    }

    /// Replies are handed in at the inbox endpoint; there is nothing to wait for here.
    fn hear<'a>(&'a self, _: &'a Gateway) -> Work<'a, Result<(), Fault>> {
        Box::pin(std::future::pending())
    }
}
