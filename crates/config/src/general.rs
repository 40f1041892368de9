//! Keys at the top of the file: the name of the gateway, its folders, its addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::NodeName;

use super::mounts::ConfiguredMounts;
use super::section::section;
use super::setting::{Setting, SettingError};
use super::workers::Sandbox;

/// The default port of the gateway.
pub const PORT: u16 = 7420;

section! {
    /// The name of this gateway, its folders and its addresses.
    General at "" {
        /// Name of this gateway. It names the gateway's audit log, so it must not change later, and no other gateway on
        /// the same database may have it.
        node: Option<NodeName> = None => "the name of the host",
        /// Folder for the database and keys. Only the gateway may be able to read it.
        data: PathBuf = PathBuf::from("data"),
        /// Folder with `org.yaml` and `agents/<name>.yaml`.
        policies: PathBuf = PathBuf::from("policies"),
        /// Folder with declarations of security proxies, `<name>.yaml`.
        proxies: PathBuf = PathBuf::from("proxies"),
        /// Folder with declarations of custom capabilities, `<name>.yaml` (`docs/custom-capabilities.md`). Read when
        /// the gateway starts.
        capabilities: PathBuf = PathBuf::from("capabilities"),
        /// Address and port for agents and people. An address that other machines can reach needs `tls` or
        /// `behind_proxy`.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
        /// Address and port at which cancel, deny, freeze and status always answer, even if `listen` is overloaded.
        stop_listen: Option<SocketAddr> = None => "one port above `listen`",
        /// Values of the `Host` header that are accepted in addition to the loopback names: `gate.example.org`. Any
        /// other value is refused, so that a web page cannot make a browser reach the gateway under another name.
        public_hosts: Vec<HostAuthority> = Vec::new(),
        /// Values of the `Origin` header that are accepted: `https://desk.example.org`. Requests of any other web page
        /// are refused.
        origins: Vec<WebOrigin> = Vec::new(),
        /// Whether a reverse proxy in front of the gateway terminates TLS. Only that proxy may be able to reach
        /// `listen`.
        behind_proxy: bool = false,
        /// `required` refuses to start, and to run a worker, if a sandbox layer of the workers is missing;
        /// `degraded` uses the layers that the system has, and reports that in `status` and `doctor`.
        sandbox: Sandbox = Sandbox::Required,
        /// Third-party MCP servers behind the gate, by name (`docs/mounts.md`). Each has `command` (with `args`, `env`,
        /// `folder`, `files: {read: […], write: […]}`, `network: [hosts]`, `memory` (1GiB)) or `url` (with `http`,
        /// `oauth: {client_id, issuer, scopes}`, `secret`, `credential`, `per_minute`), and, if it differs from the
        /// default: `allow_addresses` (none), `timeout` (30s), `start_timeout` (20s), `recheck` (5m), `at_once` (8),
        /// `tools` (500), `max_answer` (1MiB), `delay` (30s), `trust_hints` (true), `keep_reader` (false), `facts`
        /// (none; by tool: `read`, `hide`, `delay`, `tier`, `targets`). An `env` value that reads `vault:NAME` comes
        /// from the vault.
        mounts: ConfiguredMounts = ConfiguredMounts::default(),
    }
}

/// A host, with an optional port, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAuthority(String);

/// Scheme, host and optional port of a web page, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin(String);

impl HostAuthority {
    /// The host as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl WebOrigin {
    /// The origin as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_host(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (name, port) = match bracketed {
        Some((inside, port)) => (inside.parse::<std::net::Ipv6Addr>().is_ok(), port),
        None => {
            let (name, port) = text.find(':').map_or((text, ""), |at| text.split_at(at));
            let label = |label: &str| {
                !label.is_empty()
                    && label.len() < 64
                    && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            (name.len() < 254 && name.split('.').all(label), port)
        }
    };
    name && (port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok_and(|p| p > 0)))
}

impl Setting for HostAuthority {
    const WHAT: &'static str = "a host such as `gate.example.org` or `gate.example.org:8443`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let lower = text.to_ascii_lowercase();
        if is_host(&lower) { Ok(Self(lower)) } else { Err(SettingError::expected(Self::WHAT, text)) }
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

impl Setting for WebOrigin {
    const WHAT: &'static str = "an origin such as `https://desk.example.org`";

    fn from_text(text: &str, _: &Path) -> Result<Self, SettingError> {
        let lower = text.to_ascii_lowercase();
        let host = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
        if host.is_some_and(is_host) {
            return Ok(Self(lower));
        }
        let bad = SettingError::expected(Self::WHAT, text);
        Err(if text.ends_with('/') { bad.hint("without the slash at the end") } else { bad })
    }
    fn shown(&self) -> Value {
        json!(self.0)
    }
    fn shape() -> Value {
        json!({"type": "string", "pattern": "^https?://[^/]+$"})
    }
}

/// The name of a host as the name of a node: characters that a node name cannot have become `-`.
pub(crate) fn node_of(host: Option<&str>) -> Option<NodeName> {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = host?.trim().chars().take(NodeName::MAX).map(allowed).collect();
    NodeName::new(name.trim_matches(['-', '.'])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_and_a_port_and_nothing_else() {
        let host = |text: &str| HostAuthority::from_text(text, Path::new(""));
        for good in ["gate.example.org", "GATE", "gate:8443", "10.0.0.1", "[::1]:7420", "[2001:db8::1]"] {
            assert_eq!(host(good).unwrap().as_str(), good.to_ascii_lowercase());
        }
        for bad in ["", "https://gate", "gate/", "*", "*.example.org", "a b", "gate:", "gate:0", "[x]", "a..b", "ü"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_origin_has_a_scheme_and_no_path() {
        let origin = |text: &str| WebOrigin::from_text(text, Path::new(""));
        assert_eq!(origin("https://Desk.example.org:8443").unwrap().as_str(), "https://desk.example.org:8443");
        assert!(origin("https://desk.example.org/").unwrap_err().hint.is_some());
        for bad in ["*", "null", "desk.example.org", "file://x", "https://", "https://a@b"] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_name_becomes_a_node_name() {
        assert_eq!(node_of(Some("gate-1.lan\n")).unwrap().as_str(), "gate-1.lan");
        assert_eq!(node_of(Some("Ann's laptop")).unwrap().as_str(), "Ann-s-laptop");
        assert_eq!(node_of(Some(" \n")), None);
        assert_eq!(node_of(None), None);
    }
}
