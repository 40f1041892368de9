//! The scope of a secret: the capabilities and hosts it may be used for.
//!
//! Promise: only what is named is allowed; equal scopes have the same sealed text.

use serde::{Deserialize, Serialize};
use sluice_config::network::HostPattern;

/// The capabilities and hosts that a secret is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretScope {
    /// The capabilities: `network.credentialed_request`, `email.*`.
    pub capabilities: Vec<String>,
    /// The hosts: `api.example.com`, `*.example.com`.
    pub hosts: Vec<String>,
}

impl SecretScope {
    /// A scope from user input, checked and sorted.
    ///
    /// # Errors
    /// What is wrong with it, as a text that can be shown.
    pub fn new(mut capabilities: Vec<String>, hosts: &[String]) -> Result<Self, String> {
        if capabilities.is_empty() || hosts.is_empty() {
            return Err("a secret needs at least one capability and one host".into());
        }
        if let Some(bad) = capabilities.iter().find(|pattern| !is_pattern(pattern)) {
            return Err(format!("`{}` is not a capability; write `email.send` or `email.*`", shortened(bad)));
        }
        let patterns: Result<Vec<_>, _> = hosts.iter().map(|host| HostPattern::parse(host)).collect();
        let mut hosts: Vec<String> = patterns?.iter().map(ToString::to_string).collect();
        capabilities.sort_unstable();
        capabilities.dedup();
        hosts.sort_unstable();
        hosts.dedup();
        Ok(Self { capabilities, hosts })
    }

    /// Parses the output of [`SecretScope::text`].
    ///
    /// # Errors
    /// When the text is not such output.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The canonical text of this scope.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::json!({"capabilities": self.capabilities, "hosts": self.hosts}).to_string()
    }

    /// Whether a secret may be used by this capability at this host.
    #[must_use]
    pub fn allows(&self, capability: &str, host: &str) -> bool {
        let named = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => capability.starts_with(prefix),
            None => capability == pattern,
        };
        let at = |pattern: &String| HostPattern::parse(pattern).is_ok_and(|pattern| pattern.matches(host));
        self.capabilities.iter().any(named) && self.hosts.iter().any(at)
    }
}

/// Whether a text is `email.send` or `email.*`; a pattern for all capabilities is not allowed.
fn is_pattern(text: &str) -> bool {
    let name = text.strip_suffix(".*").unwrap_or(text);
    sluice_core::CapabilityName::new(name).is_ok()
}

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(capabilities: &[&str], hosts: &[&str]) -> Result<SecretScope, String> {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        SecretScope::new(owned(capabilities), &owned(hosts))
    }

    #[test]
    fn only_what_is_named_is_allowed() {
        let scope = scope(&["email.*", "network.credentialed_request"], &["api.example.com", "*.example.org"]).unwrap();
        assert!(scope.allows("email.send", "api.example.com"));
        assert!(scope.allows("network.credentialed_request", "a.b.example.org"));
        for (capability, host) in [
            ("emails.send", "api.example.com"),
            ("email.send", "evil.example.com"),
            ("email.send", "example.org"),
            ("email.send", "api.example.com.evil.net"),
            ("network.http_request", "api.example.com"),
        ] {
            assert!(!scope.allows(capability, host), "{capability} at {host}");
        }
    }

    #[test]
    fn a_scope_of_everything_or_nothing_is_refused() {
        for (capabilities, hosts) in [
            (vec!["*"], vec!["a.example"]),
            (vec![], vec!["a.example"]),
            (vec!["a.b"], vec![]),
            (vec!["a.b"], vec!["*"]),
        ] {
            assert!(scope(&capabilities, &hosts).is_err(), "{capabilities:?} {hosts:?}");
        }
    }

    #[test]
    fn the_same_scope_has_the_same_text() {
        let one = scope(&["b.c", "a.b", "a.b"], &["B.example", "a.example"]).unwrap();
        let two = scope(&["a.b", "b.c"], &["a.example", "b.example"]).unwrap();
        assert_eq!(one.text(), two.text());
        assert_eq!(SecretScope::from_text(&one.text()).unwrap(), two);
    }
}
