//! Channels to people: where the gateway sends questions and hears answers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::Span;
use sluice_core::ids::SecretName;

use super::approvals::address;
use super::general::Host;
use super::section::section;
use super::setting::{Bad, Setting, choice};
use super::size::Size;

section! {
    /// A Telegram bot that asks people. Without `token_file` there is none.
    Telegram at "telegram" {
        /// File that holds the bot's token.
        token_file: Option<PathBuf> = None,
        /// Where the Bot API is. `https`, or loopback for a local server.
        api: BaseUrl = BaseUrl("https://api.telegram.org".into()),
        /// Address under which Telegram reaches this gateway: `https://gate.example.org`. With it, news are brought to
        /// `/hooks/telegram` there, and proven by a secret; without it the gateway asks for them.
        webhook: Option<BaseUrl> = None,
    }
}

section! {
    /// Mail that asks people. Without `smtp_host` there is none. Replies are fetched from `imap_host`, or handed in at
    /// `/v1/inbox/email-reply`.
    Email at "email" {
        /// Host that takes our mail.
        smtp_host: Option<Host> = None,
        /// Port of the host that takes our mail.
        smtp_port: u32 = 587; within 1..=65_535,
        /// `starttls`, `tls`, or `off` to this machine only.
        smtp_security: Security = Security::Starttls,
        /// User at the host.
        smtp_user: Option<Word> = None,
        /// File that holds the password.
        smtp_password_file: Option<PathBuf> = None,
        /// Address questions come from.
        from: Option<Address> = None,
        /// Address replies go to: that of the mailbox they are fetched from, or whose forwarding service hands them in;
        /// `from` unless said. Where they are fetched, `+` and a token are added before the `@`, so that the mailbox
        /// must take such addresses. The mailbox of an agent must not be it.
        reply_to: Option<Address> = None,
        /// Host of the mailbox replies are fetched from. Without it they are not.
        imap_host: Option<Host> = None,
        /// Port of the mailbox.
        imap_port: u32 = 993; within 1..=65_535,
        /// `tls`, `starttls`, or `off` to this machine only.
        imap_security: Security = Security::Tls,
        /// User of the mailbox; `reply_to` unless said.
        imap_user: Option<Word> = None,
        /// Name of the secret in the vault that holds the password. It must be for the capability `approvals.replies`
        /// at `imap_host`.
        imap_secret: Option<SecretName> = None,
        /// Folder replies arrive in.
        imap_folder: Folder = Folder("INBOX".into()),
        /// Folder into which mail is moved once it was read. Without it, it is marked as seen. Nothing is deleted.
        imap_done_folder: Option<Folder> = None,
        /// How often to look where the server does not tell of new mail by itself.
        imap_poll: Span = Span::from_secs(60); within Span::from_secs(1)..=Span::from_mins(25),
        /// Largest mail that is fetched.
        imap_max_message: Size = Size::from_kib(512); within Size::from_kib(1)..=Size::from_kib(8 * 1024),
        /// Domains of forwarders whose seal on a mail (ARC) is believed where the sender's own signature broke on the way.
        forwarders: Vec<Domain> = Vec::new(),
        /// Servers asked for the keys of signatures, such as `127.0.0.1:53`; those of the machine unless said.
        dns: Vec<SocketAddr> = Vec::new(),
        /// File with certificates that mail servers may have beside those the machine trusts.
        ca_file: Option<PathBuf> = None,
    }
}

section! {
    /// Replies that a forwarding service hands in at `/v1/inbox/email-reply` with an inbox key.
    Inbox at "inbox" {
        /// Whether that service authenticates senders (DKIM or the like) and tells in `from` who wrote. Then a reply
        /// decides without the token of its letter if it comes from one of `approvals.people` who was asked. Otherwise
        /// the token in the letter's subject and text is needed.
        trust_sender: bool = false,
    }
}

choice! {
    /// How mail is kept from others on its way.
    Security {
        /// Upgraded before anything is said.
        Starttls = "starttls",
        /// From the first byte.
        Tls = "tls",
        /// Not at all: to this machine only.
        Off = "off",
    }
}

/// One word without blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(String);

impl Word {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Word {
    const WHAT: &'static str = "one word";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        let odd = text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace());
        if odd { Err(Bad::expected(Self::WHAT, text)) } else { Ok(Self(text.to_owned())) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// A folder of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(String);

impl Folder {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Folder {
    const WHAT: &'static str = "the name of a folder in ASCII";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        let plain = |b: u8| (b.is_ascii_graphic() || b == b' ') && !b"\"\\%*".contains(&b);
        let fine = !text.is_empty() && text.len() <= 200 && text.bytes().all(plain);
        if fine { Ok(Self(text.to_owned())) } else { Err(Bad::expected(Self::WHAT, text)) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": 200})
    }
}

/// A domain, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

impl Domain {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Domain {
    const WHAT: &'static str = "a domain such as `lists.example.com`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        let lower = text.to_ascii_lowercase();
        let label = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let fine = lower.len() < 254 && lower.contains('.') && lower.split('.').all(label);
        if fine { Ok(Self(lower)) } else { Err(Bad::expected(Self::WHAT, text)) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "\\."})
    }
}

/// The address of a mailbox, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for Address {
    const WHAT: &'static str = "an address such as `you@example.com`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        address(text).map(Self)
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "@"})
    }
}

/// A web address to which paths are added: `https`, or plain to this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// The address, without a slash at its end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Scheme, host and perhaps port, as a browser names the origin of a page.
    #[must_use]
    pub fn origin(&self) -> &str {
        let from = self.0.find("://").map_or(0, |at| at + 3);
        let end = self.0.get(from..).and_then(|rest| rest.find('/')).map_or(self.0.len(), |at| from + at);
        self.0.get(..end).unwrap_or_default()
    }

    /// Host and perhaps port.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.origin().split_once("://").map_or("", |(_, host)| host)
    }
}

impl Setting for BaseUrl {
    const WHAT: &'static str = "an address such as `https://api.example.com`";

    fn from_text(text: &str, _: &Path) -> Result<Self, Bad> {
        let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
        let plain = |start: &str| {
            let rest = text.strip_prefix(start);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        };
        let odd = text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '@');
        if odd || !(text.starts_with("https://") || local.into_iter().any(plain)) {
            return Err(Bad::expected(Self::WHAT, text).hint("a token must not travel in the clear"));
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^https?://"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_the_clear_is_this_machine() {
        let read = |text: &str| BaseUrl::from_text(text, Path::new("/"));
        for good in ["https://api.telegram.org", "http://127.0.0.1:81/", "http://localhost", "http://[::1]:9"] {
            assert!(read(good).is_ok(), "{good}");
        }
        for bad in
            ["http://api.telegram.org", "http://127.0.0.1.evil.example", "https://a@b", "ftp://x", "http://localhostx"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(read("https://a.example/").unwrap().as_str(), "https://a.example");
        let below = read("https://a.example:8443/gate/").unwrap();
        assert_eq!((below.origin(), below.authority()), ("https://a.example:8443", "a.example:8443"));
    }
}
