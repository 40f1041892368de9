//! The capabilities a rule is about: one name, or all names with the same beginning.

use std::fmt;

/// An exact name, or a prefix followed by `*`, which stands for the rest of the name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CapabilityPattern {
    /// `email.send`.
    Name(Box<str>),
    /// `email.*` without its star; empty for `*`.
    Prefix(Box<str>),
}

impl CapabilityPattern {
    /// Reads a pattern as a rule writes it.
    ///
    /// # Errors
    /// When a star stands elsewhere than at the end, or a character cannot be part of a capability name.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        let (body, prefix) = text.strip_suffix('*').map_or((text, false), |body| (body, true));
        if body.contains('*') {
            return Err("`*` can only stand at the end, where it means the rest of the name");
        }
        if body.is_empty() && !prefix {
            return Err("a capability is a name such as `email.send`, or a start such as `email.*`");
        }
        let alphabet = body.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
        let mut parts = body.split(['.', ':']);
        let last = parts.next_back().unwrap_or_default();
        let whole_parts = parts.all(|part| !part.is_empty()) && (prefix || !last.is_empty());
        if !alphabet || !whole_parts || body.len() > crate::CapabilityName::MAX {
            return Err("a capability name has 1 to 128 letters, digits, `-`, `_`, `.` and `:`, without empty parts");
        }
        Ok(if prefix { Self::Prefix(body.into()) } else { Self::Name(body.into()) })
    }

    /// Whether the rule is about this capability.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => &**own == name,
            Self::Prefix(start) => name.starts_with(&**start),
        }
    }

    /// Whether it covers everything that the other one covers.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(own), Self::Name(name)) => own == name,
            (Self::Prefix(start), Self::Name(text) | Self::Prefix(text)) => text.starts_with(&**start),
            (Self::Name(_), Self::Prefix(_)) => false,
        }
    }
}

impl fmt::Display for CapabilityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.pad(name),
            Self::Prefix(start) => f.pad(&format!("{start}*")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_the_rest_of_the_name() {
        let matches = |pattern: &str, name: &str| CapabilityPattern::new(pattern).unwrap().matches(name);
        assert!(matches("state.shared.*", "state.shared.get"));
        assert!(matches("state.*", "state.shared.get"));
        assert!(matches("*", "custom:deploy"));
        assert!(matches("email.s*", "email.send"));
        assert!(!matches("state.shared.*", "state.shared"));
        assert!(!matches("email.send", "email.SEND"));
        assert!(!matches("email.send", "email.sender"));
    }

    #[test]
    fn a_star_elsewhere_is_refused() {
        for bad in ["", "*.send", "em*il", "email.**", "email..send", ".x", "a b", "email.", "é"] {
            assert!(CapabilityPattern::new(bad).is_err(), "{bad}");
        }
        for good in ["*", "email.*", "custom:*", "email.send", "e*"] {
            assert_eq!(CapabilityPattern::new(good).unwrap().to_string(), good);
        }
    }
}
