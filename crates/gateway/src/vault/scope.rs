//! What a secret may be used for: capabilities and hosts.
//!
//! Promise: nothing is allowed that is not named; the text that is sealed in with a secret is the same for the
//! same scope.

use serde::{Deserialize, Serialize};

use crate::egress::allow::HostPattern;

/// What a secret is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Capabilities: `network.credentialed_request`, `email.*`.
    pub capabilities: Vec<String>,
    /// Hosts: `api.example.com`, `*.example.com`.
    pub hosts: Vec<String>,
}

impl Scope {
    /// A scope as people wrote it, checked and put in order.
    ///
    /// # Errors
    /// What is wrong with it, in words that can be shown.
    pub fn new(mut capabilities: Vec<String>, hosts: &[String]) -> Result<Self, String> {
        if capabilities.is_empty() || hosts.is_empty() {
            return Err("a secret is bound to at least one capability and one host".into());
        }
        if let Some(bad) = capabilities.iter().find(|pattern| !is_pattern(pattern)) {
            return Err(format!("`{}` is no capability; write `email.send` or `email.*`", shortened(bad)));
        }
        let patterns: Result<Vec<_>, _> = hosts.iter().map(|host| HostPattern::parse(host)).collect();
        let mut hosts: Vec<String> = patterns?.iter().map(ToString::to_string).collect();
        capabilities.sort_unstable();
        capabilities.dedup();
        hosts.sort_unstable();
        hosts.dedup();
        Ok(Self { capabilities, hosts })
    }

    /// Reads what [`Scope::text`] wrote.
    ///
    /// # Errors
    /// When it did not.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The one text of this scope.
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

/// `email.send` or `email.*`; never all of them.
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

    fn scope(capabilities: &[&str], hosts: &[&str]) -> Result<Scope, String> {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Scope::new(owned(capabilities), &owned(hosts))
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
        assert_eq!(Scope::from_text(&one.text()).unwrap(), two);
    }
}
