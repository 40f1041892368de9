//! Channel settings: how the gateway sends approval requests and receives answers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_core::ids::SecretName;

use super::approvals::address;
use super::general::HostAuthority;
use super::section::section;
use super::setting::{Setting, SettingError, choice};
use super::size::ByteSize;

section! {
    /// A Telegram bot that asks people. Without `token_file` there is no bot.
    Telegram at "telegram" {
        /// File that holds the bot's token.
        token_file: Option<PathBuf> = None,
        /// The address of the Bot API: `https`, or a loopback address for a local server.
        api: BaseUrl = BaseUrl("https://api.telegram.org".into()),
        /// The address at which Telegram reaches this gateway: `https://gate.example.org`. With it, Telegram sends
        /// updates to `/hooks/telegram` there, proven by a secret; without it the gateway polls for updates.
        webhook: Option<BaseUrl> = None,
    }
}

section! {
    /// E-mail that asks people. Without `smtp_host` there is none. Replies are fetched from `imap_host`, or handed in
    /// at `/v1/inbox/email-reply`.
    Email at "email" {
        /// The SMTP host that sends our e-mail.
        smtp_host: Option<HostAuthority> = None,
        /// The port of the SMTP host.
        smtp_port: u32 = 587; within 1..=65_535,
        /// `starttls`, `tls`, or `off` for a host on this machine only.
        smtp_security: Security = Security::Starttls,
        /// The user name at the SMTP host.
        smtp_user: Option<SingleWord> = None,
        /// File that holds the password of the SMTP user.
        smtp_password_file: Option<PathBuf> = None,
        /// The sender address of approval requests.
        from: Option<EmailAddress> = None,
        /// The address that replies go to: that of the mailbox from which they are fetched, or of the forwarding
        /// service that hands them in; by default `from`. If replies are fetched, `+` and a token are added before the
        /// `@`, so the mailbox must accept such addresses. It must not be the mailbox of an agent.
        reply_to: Option<EmailAddress> = None,
        /// The IMAP host of the mailbox from which replies are fetched. Without it, replies are not fetched.
        imap_host: Option<HostAuthority> = None,
        /// The port of the IMAP host.
        imap_port: u32 = 993; within 1..=65_535,
        /// `tls`, `starttls`, or `off` for a host on this machine only.
        imap_security: Security = Security::Tls,
        /// The user name of the mailbox; by default `reply_to`.
        imap_user: Option<SingleWord> = None,
        /// Name of the secret in the vault that holds the mailbox password. It must be allowed for the capability
        /// `approvals.replies` at `imap_host`.
        imap_secret: Option<SecretName> = None,
        /// The folder that replies arrive in.
        imap_folder: MailboxFolderName = MailboxFolderName("INBOX".into()),
        /// The folder to which mail is moved after it was read. Without it, mail is marked as seen. Nothing is deleted.
        imap_done_folder: Option<MailboxFolderName> = None,
        /// How often to check for mail if the server does not announce new mail itself.
        imap_poll: Millis = Millis::from_secs(60); within Millis::from_secs(1)..=Millis::from_mins(25),
        /// The largest mail that is fetched.
        imap_max_message: ByteSize = ByteSize::from_kib(512); within ByteSize::from_kib(1)..=ByteSize::from_kib(8 * 1024),
        /// Domains of forwarders whose seal on a mail (ARC) is trusted if the sender's own signature broke on the way.
        forwarders: Vec<MailDomain> = Vec::new(),
        /// DNS servers for the keys of signatures, such as `127.0.0.1:53`; by default those of the machine.
        dns: Vec<SocketAddr> = Vec::new(),
        /// File with certificates that are trusted for mail servers in addition to those of the machine.
        ca_file: Option<PathBuf> = None,
    }
}

section! {
    /// Replies that a forwarding service hands in at `/v1/inbox/email-reply` with an inbox key.
    Inbox at "inbox" {
        /// Whether that service authenticates senders (DKIM or similar) and names the sender in `from`. Then a reply
        /// decides without the token of its message if it comes from one of `approvals.people` who was asked. Otherwise
        /// the token in the subject and text of the message is needed.
        trust_sender: bool = false,
    }
}

choice! {
    /// How a connection to a mail server is encrypted.
    Security {
        /// Upgraded to TLS before anything is sent.
        Starttls = "starttls",
        /// TLS from the first byte.
        Tls = "tls",
        /// Not encrypted: only to this machine.
        Off = "off",
    }
}

/// One word without spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleWord(String);

impl SingleWord {
    /// The word as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for SingleWord {
    const WHAT: &'static str = "one word";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let odd = text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace());
        if odd { Err(SettingError::expected(Self::WHAT, text)) } else { Ok(Self(text.to_owned())) }
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
pub struct MailboxFolderName(String);

impl MailboxFolderName {
    /// The name of the folder as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for MailboxFolderName {
    const WHAT: &'static str = "the name of a folder in ASCII";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let plain = |b: u8| (b.is_ascii_graphic() || b == b' ') && !b"\"\\%*".contains(&b);
        let fine = !text.is_empty() && text.len() <= 200 && text.bytes().all(plain);
        if fine { Ok(Self(text.to_owned())) } else { Err(SettingError::expected(Self::WHAT, text)) }
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
pub struct MailDomain(String);

impl MailDomain {
    /// The domain as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for MailDomain {
    const WHAT: &'static str = "a domain such as `lists.example.com`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let lower = text.to_ascii_lowercase();
        let label = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let fine = lower.len() < 254 && lower.contains('.') && lower.split('.').all(label);
        if fine { Ok(Self(lower)) } else { Err(SettingError::expected(Self::WHAT, text)) }
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
pub struct EmailAddress(String);

impl EmailAddress {
    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Setting for EmailAddress {
    const WHAT: &'static str = "an address such as `you@example.com`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        address(text).map(Self)
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "@"})
    }
}

/// A web address to which paths are added: `https`, or `http` to this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// The address, without a slash at the end.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Scheme, host and optional port, as a browser writes the origin of a page.
    #[must_use]
    pub fn origin(&self) -> &str {
        let from = self.0.find("://").map_or(0, |at| at + 3);
        let end = self.0.get(from..).and_then(|rest| rest.find('/')).map_or(self.0.len(), |at| from + at);
        self.0.get(..end).unwrap_or_default()
    }

    /// Host and optional port.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.origin().split_once("://").map_or("", |(_, host)| host)
    }
}

impl Setting for BaseUrl {
    const WHAT: &'static str = "an address such as `https://api.example.com`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
        let plain = |start: &str| {
            let rest = text.strip_prefix(start);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        };
        let odd = text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '@');
        if odd || !(text.starts_with("https://") || local.into_iter().any(plain)) {
            return Err(SettingError::expected(Self::WHAT, text).hint("a token must not travel unencrypted"));
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
