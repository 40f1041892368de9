//! Allow lists: the hosts, ports, methods and paths that a connection may reach.
//!
//! Promise: only what is named is allowed, and a host pattern never matches part of a label.

use std::fmt;

use http::Method;
use sluice_core::Millis;
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::throttle::{BreakerConfig, ConnectionLimits};

use super::address::{EgressUrl, is_normal_name};
use super::placement::CredentialPlacement;
use super::ssrf::IpNetwork;
use crate::AgentSelection;

/// Methods that change nothing at a service that follows HTTP.
pub const READS: [Method; 2] = [Method::GET, Method::HEAD];
/// The methods that a connection can allow.
pub const METHODS: [Method; 6] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// A host, or all names below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this name or address.
    Exact(String),
    /// Any name below this one, but not itself.
    Under(String),
}

impl HostPattern {
    /// Parses `api.example.com`, `*.example.com`, `192.0.2.7` or `[2001:db8::1]`.
    ///
    /// # Errors
    /// What is wrong with it, as a text that can be shown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let bad = || {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
            format!("`{shown}` is not a host; write `api.example.com`, `*.example.com` or an address")
        };
        if let Some(rest) = lower.strip_prefix("*.") {
            // `*.com` would be far too wide.
            let below = is_normal_name(rest) && rest.contains('.') && rest.parse::<std::net::Ipv4Addr>().is_err();
            return if below { Ok(Self::Under(rest.to_owned())) } else { Err(bad()) };
        }
        let inner = lower.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(inner) = inner {
            let address: std::net::Ipv6Addr = inner.parse().map_err(|_| bad())?;
            return Ok(Self::Exact(format!("[{address}]")));
        }
        if is_normal_name(&lower) { Ok(Self::Exact(lower)) } else { Err(bad()) }
    }

    /// Whether the pattern matches a host in its normal spelling.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(own) => host == own,
            Self::Under(own) => {
                host.strip_suffix(own.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(own) => f.write_str(own),
            Self::Under(own) => write!(f, "*.{own}"),
        }
    }
}

/// A path pattern: one path, all paths with a prefix, or a path with open parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPattern {
    /// Exactly this path.
    Exact(String),
    /// Every path with this prefix, which ends in `/`.
    Below(String),
    /// As many parts as listed; each must be equal, and `None` matches any one part. Only declared requests use it.
    Parts(Vec<Option<String>>),
}

impl PathPattern {
    /// Parses `/v1/me` or `/v1/*`.
    ///
    /// # Errors
    /// What is wrong with it, as a text that can be shown.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.strip_suffix("/*") {
            Some(head) if is_plain(&format!("{head}/")) => Ok(Self::Below(format!("{head}/"))),
            None if is_plain(text) => Ok(Self::Exact(text.to_owned())),
            _ => Err(format!("`{}` is not a path; write `/v1/me` or `/v1/*`", shown(text))),
        }
    }

    /// Parses `/posts/{id}/replies`, where each `{…}` stands for exactly one part.
    ///
    /// # Errors
    /// What is wrong with it, as a text that can be shown.
    pub fn with_places(text: &str) -> Result<Self, String> {
        let is_place = |part: &str| part.starts_with('{') && part.ends_with('}');
        let filled: Vec<&str> = text.split('/').map(|part| if is_place(part) { "x" } else { part }).collect();
        if !is_plain(&filled.join("/")) {
            return Err(format!("`{}` is not a path; write `/posts` or `/posts/{{id}}`", shown(text)));
        }
        if !text.split('/').any(is_place) {
            return Ok(Self::Exact(text.to_owned()));
        }
        Ok(Self::Parts(text.split('/').map(|part| (!is_place(part)).then(|| part.to_owned())).collect()))
    }

    /// Whether the pattern matches a path in its normal spelling. A path that a server might read differently never
    /// matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let lower = path.to_ascii_lowercase();
        if ["%2f", "%5c", "%2e", "%00", "//", ";"].iter().any(|odd| lower.contains(odd)) {
            return false;
        }
        match self {
            Self::Exact(own) => path == own,
            Self::Below(own) => path.starts_with(own.as_str()),
            Self::Parts(own) => {
                let fits = |(own, part): (&Option<String>, &str)| match own {
                    Some(own) => own == part,
                    None => !part.is_empty() && part != "." && part != "..",
                };
                path.split('/').count() == own.len() && own.iter().zip(path.split('/')).all(fits)
            }
        }
    }
}

fn is_plain(path: &str) -> bool {
    path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_graphic() && !b"*?#\\%".contains(&b))
        && !path.split('/').any(|part| part == "." || part == "..")
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(own) => f.write_str(own),
            Self::Below(own) => write!(f, "{own}*"),
            Self::Parts(own) => {
                let parts: Vec<&str> = own.iter().map(|part| part.as_deref().unwrap_or("{}")).collect();
                f.write_str(&parts.join("/"))
            }
        }
    }
}

/// A connection: its target, limits and credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConnection {
    /// The name of the connection.
    pub name: ConnectionName,
    /// The hosts it may reach.
    pub hosts: Vec<HostPattern>,
    /// The ports it may reach.
    pub ports: Vec<u16>,
    /// The methods it may use.
    pub methods: Vec<Method>,
    /// The paths it may request; an empty list allows all.
    pub paths: Vec<PathPattern>,
    /// Whether it may be used without TLS.
    pub plain_http: bool,
    /// Private addresses that it may reach.
    pub allow_addresses: Vec<IpNetwork>,
    /// The agents that may use it directly; none by default.
    pub agents: Option<AgentSelection>,
    /// The credential that is added to every request.
    pub credential: Option<(SecretName, CredentialPlacement)>,
    /// The request limits.
    pub limits: ConnectionLimits,
    /// When refusals by the service pause it, and for how long.
    pub breaker: BreakerConfig,
    /// The largest answer, after decompression, in bytes.
    pub max_answer: u64,
    /// How long a whole exchange may take.
    pub timeout: Millis,
    /// How long the service may send nothing.
    pub idle_timeout: Millis,
    /// How many redirects of a read are followed.
    pub redirects: u32,
}

impl EgressConnection {
    /// How strictly the leak scan checks outgoing content: a proxy must not send any personal data.
    #[must_use]
    pub fn scope(&self) -> sluice_content::leak::LeakScope {
        if self.name.as_str().starts_with("proxy.") {
            sluice_content::leak::LeakScope::Proxy
        } else {
            sluice_content::leak::LeakScope::Service
        }
    }

    /// A connection to these hosts with default settings: https, reads only, the limits of an untrusted service.
    #[must_use]
    pub fn new(name: ConnectionName, hosts: Vec<HostPattern>) -> Self {
        Self {
            name,
            hosts,
            ports: vec![443],
            methods: READS.to_vec(),
            paths: Vec::new(),
            plain_http: false,
            allow_addresses: Vec::new(),
            agents: None,
            credential: None,
            limits: ConnectionLimits::default(),
            breaker: BreakerConfig::default(),
            max_answer: 8 << 20,
            timeout: Millis::from_secs(30),
            idle_timeout: Millis::from_secs(10),
            redirects: 3,
        }
    }

    /// Checks whether a request may use this connection.
    ///
    /// # Errors
    /// The first check that fails, as a text that can be shown.
    pub fn admit(&self, method: &Method, target: &EgressUrl) -> Result<(), String> {
        let no = |what: String| Err(what);
        if !self.hosts.iter().any(|pattern| pattern.matches(target.host())) {
            return no("this host is not allowed".into());
        }
        if !self.ports.contains(&target.port()) {
            return no(format!("port {} is not allowed", target.port()));
        }
        if !target.is_tls() && !self.plain_http {
            return no("only https is allowed".into());
        }
        if !self.methods.contains(method) {
            return no("this method is not allowed here".into());
        }
        if !self.paths.is_empty() && !self.paths.iter().any(|pattern| pattern.matches(target.path())) {
            return no("this path is not allowed".into());
        }
        Ok(())
    }
}

/// Whether a method changes nothing at the service.
#[must_use]
pub fn is_read(method: &Method) -> bool {
    READS.contains(method)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> EgressConnection {
        let mut connection = EgressConnection::new(
            ConnectionName::new("web").unwrap(),
            vec![HostPattern::parse("api.example.com").unwrap(), HostPattern::parse("*.example.org").unwrap()],
        );
        connection.paths = vec![PathPattern::parse("/v1/*").unwrap(), PathPattern::parse("/me").unwrap()];
        connection
    }

    fn admitted(method: Method, url: &str) -> bool {
        EgressUrl::parse(url).is_ok_and(|target| connection().admit(&method, &target).is_ok())
    }

    #[test]
    fn only_named_hosts_methods_ports_and_paths_pass() {
        assert!(admitted(Method::GET, "https://api.example.com/v1/items?a=1"));
        assert!(admitted(Method::HEAD, "https://a.b.example.org/me"));
        for url in [
            "https://example.org/me",
            "https://example.com/me",
            "https://xexample.org/me",
            "https://api.example.com.evil.net/me",
            "https://api.example.com:8443/me",
            "http://api.example.com/me",
            "https://api.example.com/me/too",
            "https://api.example.com/v1",
            "https://api.example.com/v1/../admin",
            "https://api.example.com/v1/%2e%2e/admin",
            "https://api.example.com/v1/..%2fadmin",
            "https://api.example.com/v1/%2E%2E%5cadmin",
            "https://api.example.com/v1//admin",
            "https://api.example.com/v1/;/admin",
        ] {
            assert!(!admitted(Method::GET, url), "{url}");
        }
        assert!(!admitted(Method::POST, "https://api.example.com/me"));
    }

    #[test]
    fn patterns_of_hosts_are_whole_names() {
        for bad in [
            "*",
            "*.com",
            "*.",
            "a*.example.com",
            "exa mple.com",
            "example.com.",
            "",
            "http://a",
            "a..b",
            "[::1",
            "127.1",
        ] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(HostPattern::parse("API.Example.COM").unwrap(), HostPattern::Exact("api.example.com".into()));
        assert_eq!(HostPattern::parse("[0:0::1]").unwrap(), HostPattern::Exact("[::1]".into()));
    }

    #[test]
    fn an_open_part_stands_for_exactly_one() {
        let path = PathPattern::with_places("/v1/posts/{id}/replies").unwrap();
        assert_eq!(path.to_string(), "/v1/posts/{}/replies");
        assert!(path.matches("/v1/posts/7/replies") && path.matches("/v1/posts/p%201/replies"));
        for other in [
            "/v1/posts/7",
            "/v1/posts//replies",
            "/v1/posts/7/8/replies",
            "/v1/posts/7%2f8/replies",
            "/v1/posts/../replies",
            "/v1/posts/7/replies/x",
        ] {
            assert!(!path.matches(other), "{other}");
        }
        let last = PathPattern::with_places("/v1/posts/{id}").unwrap();
        assert!(last.matches("/v1/posts/7") && !last.matches("/v1/posts/7/delete"));
        assert_eq!(PathPattern::with_places("/feed"), Ok(PathPattern::Exact("/feed".into())));
        for bad in ["feed", "/*", "/a/../{id}", "/a b/{id}"] {
            assert!(PathPattern::with_places(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_of_paths_are_plain() {
        for bad in ["v1", "/a/*/b", "/a*", "/../x", "/a?b", "/%2e/x", "", "/a b"] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
