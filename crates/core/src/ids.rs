//! Names for things: typed ids with a prefix, and the names people and files use.
//!
//! An id is 128 bits, printed as `prefix_` and 32 hex digits, so that it can be pasted anywhere and
//! still says what it is. Ids are handles, never proof of a right: every lookup is keyed by the caller.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A source of new ids. Injected, so that simulations are repeatable bit by bit.
pub trait Ids: Send + Sync {
    /// The next 128 bits. Real implementations put milliseconds in front so that ids sort by age.
    fn mint(&self) -> u128;
}

/// A source of randomness (jitter, keys, tokens). Injected for the same reason as [`Ids`].
pub trait Entropy: Send + Sync {
    /// Fills the whole buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// Why a text is not the id or name it claims to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The prefix belongs to another kind of id, or there is none.
    #[error("expected an id that starts with `{expected}_`")]
    Prefix {
        /// The prefix this kind of id has.
        expected: &'static str,
    },
    /// The part after the prefix is not 32 lower-case hex digits.
    #[error("an id has 32 lower-case hex digits after its prefix")]
    Digits,
    /// Not a usable name.
    #[error("a {what} has 1 to {max} characters out of {allowed}")]
    Name {
        /// Kind of name.
        what: &'static str,
        /// Longest length allowed.
        max: usize,
        /// Human description of the alphabet.
        allowed: &'static str,
    },
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// What every printed id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;
            /// A new id.
            #[must_use]
            pub fn mint(ids: &dyn Ids) -> Self { Self(ids.mint()) }
            /// The id with exactly these bits.
            #[must_use]
            pub const fn from_bits(bits: u128) -> Self { Self(bits) }
            /// The bits without the prefix.
            #[must_use]
            pub const fn bits(self) -> u128 { self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{:032x}"), self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(self, f) }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> { parse_bits(text, $prefix).map(Self) }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.collect_str(self) }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// One call of one capability.
    CallId = "call";
    /// A held write. The API calls it `buffer_id`.
    HoldId = "buf";
    /// An approval request put to a person.
    ApprovalId = "appr";
    /// A standing approval for a client and an action type (an allow rule of the API).
    RuleId = "rule";
    /// A standing approval of any scope.
    AllowanceId = "alw";
    /// A session the gateway issued.
    SessionId = "sess";
    /// State captured before a write.
    RollbackId = "rbk";
    /// A finding of a stage or scan.
    FindingId = "fnd";
    /// A report of how a worker ended.
    CrashId = "crash";
    /// An account at a service.
    ConnectionId = "conn";
    /// One task of one worker.
    JobId = "job";
    /// Something in quarantine until a person looks.
    QuarantineId = "quar";
    /// A message to people, waiting to be delivered.
    MessageId = "msg";
    /// An alert.
    AlertId = "alrt";
    /// A credential: the id names it and grants nothing.
    KeyId = "key";
    /// A request at a door, for logs and support.
    RequestId = "req";
    /// A secret of the vault: the id names it and grants nothing.
    SecretId = "sec";
    /// The session of a browser at the dashboard.
    DashboardSessionId = "dash";
}

fn parse_bits(text: &str, prefix: &'static str) -> Result<u128, NameError> {
    let digits = text
        .strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('_'))
        .ok_or(NameError::Prefix { expected: prefix })?;
    let lower_hex = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if digits.len() != 32 || !lower_hex {
        return Err(NameError::Digits);
    }
    u128::from_str_radix(digits, 16).map_err(|_| NameError::Digits)
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident($what:literal, $max:literal, $allowed:literal, $valid:expr);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Longest name allowed, in bytes.
            pub const MAX: usize = $max;
            /// Checks and wraps a name.
            ///
            /// # Errors
            /// When it is empty, too long or uses a character outside its alphabet.
            pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
                let text = text.into();
                let valid: fn(&str) -> bool = $valid;
                if text.is_empty() || text.len() > $max || !valid(&text) {
                    return Err(NameError::Name { what: $what, max: $max, allowed: $allowed });
                }
                Ok(Self(text))
            }
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Debug::fmt(&self.0, f) }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str { &self.0 }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> { Self::new(text) }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(d)?).map_err(serde::de::Error::custom)
            }
        }
    )*};
}

names! {
    /// An agent. Also the name of its policy file, hence the narrow alphabet.
    AgentName("agent name", 64, "letters, digits, `-`, `_` and `.`, not starting with `.`", |t| {
        !t.starts_with('.') && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    });
    /// What can be called: `email.send`, `custom:deploy`. Case matters: `email.SEND` is another name, and unknown.
    CapabilityName("capability name", 128, "letters, digits, `-`, `_`, `.` and `:`, without empty parts", |t| {
        t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
            && t.split(['.', ':']).all(|part| !part.is_empty())
    });
    /// What batch protection counts for each agent: `email`, `filesystem`.
    ServiceName("service name", 64, "letters, digits, `-`, `_` and `.`", |t| {
        t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    });
    /// One running gateway. Names its audit log.
    NodeName("node name", 64, "letters, digits, `-`, `_`, `.` and `/`", |t| {
        t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    });
    /// A secret of the vault, as operators and agents call it.
    SecretName("secret name", 128, "letters, digits, `-`, `_`, `.` and `/`, without empty parts", |t| {
        t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b)) && t.split('/').all(|part| !part.is_empty())
    });
    /// A connection that the configuration opened to the outside: hosts, limits and a credential.
    ConnectionName("connection name", 64, "letters, digits, `-`, `_` and `.`", |t| {
        t.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    });
    /// A person as the operator's configuration calls them.
    PersonName("person's name", 64, "printable characters without control or format characters", |t| {
        t.chars().all(|c| !c.is_control() && c != '\u{202e}')
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_and_parses_back() {
        let id = HoldId::from_bits(0x00ab_c123);
        assert_eq!(id.to_string(), "buf_00000000000000000000000000abc123");
        assert_eq!(id.to_string().parse::<HoldId>(), Ok(id));
    }

    #[test]
    fn an_id_of_another_kind_is_refused() {
        let call = CallId::from_bits(7).to_string();
        assert_eq!(call.parse::<HoldId>(), Err(NameError::Prefix { expected: "buf" }));
        assert_eq!("buf_ABC".parse::<HoldId>(), Err(NameError::Digits));
        assert_eq!("buf_+0000000000000000000000000abc123".parse::<HoldId>(), Err(NameError::Digits));
    }

    #[test]
    fn names_refuse_what_could_be_a_path_or_a_look_alike() {
        for bad in ["", "../etc", ".hidden", "a b", "ágent", "a/b", &"x".repeat(65)] {
            assert!(AgentName::new(bad).is_err(), "{bad}");
        }
        for bad in ["email..send", ".send", "email.", "email\u{2024}send", "email.send\u{200b}", "*"] {
            assert!(CapabilityName::new(bad).is_err(), "{bad}");
        }
        assert!(CapabilityName::new("custom:deploy").is_ok());
    }
}
