//! Channels to people: where the gateway sends questions and hears answers.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::approvals::address;
use super::general::Host;
use super::section::section;
use super::setting::{Bad, Setting, choice};

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
    /// Mail that asks people. Without `smtp_host` there is none. Replies are handed in at `/v1/inbox/email-reply`.
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
        /// Address replies go to: that of the mailbox whose forwarding service hands them in. The mailbox of an agent
        /// must not be it.
        reply_to: Option<Address> = None,
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
