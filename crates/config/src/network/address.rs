//! Addresses from agents: one strict reading, or a refusal.
//!
//! Takes a text; gives scheme, host, port and path in their normal spelling. Promise: a text that two programs could
//! read differently is refused: user names, backslashes, control and non-ASCII characters, numbers that are disguised
//! addresses, zones, trailing dots. Our reading equals that of the `url` crate, or the text is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Url;

/// The longest address, in bytes.
const LONGEST: usize = 8 * 1024;

/// The target of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct EgressUrl {
    url: Url,
    host: String,
    port: u16,
    address: Option<IpAddr>,
}

impl std::fmt::Debug for EgressUrl {
    /// Only the host is printed: the path may hold anything.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

impl EgressUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// Why it is refused, as a text that can be shown.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > LONGEST {
            return Err("the address is too long");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("the address has characters that must be encoded");
        }
        if text.contains('\\') {
            return Err("the address has a backslash");
        }
        let (rest, default) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, 443),
            (None, Some(rest)) => (rest, 80),
            (None, None) => return Err("the address begins with neither `https://` nor `http://`"),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, _) = rest.split_at_checked(end).ok_or("the address has no host")?;
        let (host, port) = authority_of(authority)?;
        let port = port.unwrap_or(default);
        let (host, address) = normal_host(host)?;
        let mut url = Url::parse(text).map_err(|_| "the address is not a valid URL")?;
        url.set_fragment(None);
        // Two readers disagree about the target: the address is refused.
        let agree = url.host_str() == Some(host.as_str())
            && url.port_or_known_default() == Some(port)
            && url.username().is_empty()
            && url.password().is_none();
        if agree { Ok(Self { url, host, port, address }) } else { Err("the host is not in its normal spelling") }
    }

    /// The target of a redirect.
    ///
    /// # Errors
    /// As [`EgressUrl::parse`], and when the redirect leaves https.
    pub fn follow(&self, location: &str) -> Result<Self, &'static str> {
        if !location.bytes().all(|b| b.is_ascii_graphic()) || location.contains('\\') {
            return Err("the redirect has characters that must be encoded");
        }
        // An absolute address is parsed as strictly as any other; a relative one stays at this host.
        let next = if location.contains("://") && !location.starts_with('/') && !location.starts_with('?') {
            Self::parse(location)?
        } else if location.starts_with("//") {
            Self::parse(&format!("{}:{location}", self.url.scheme()))?
        } else {
            let joined = self.url.join(location).map_err(|_| "the redirect is not a valid URL")?;
            Self::parse(joined.as_str())?
        };
        if self.is_tls() && !next.is_tls() {
            return Err("the redirect leads from https to http");
        }
        Ok(next)
    }

    /// The host: a name in lower case, a dotted quad, or an address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host as an address, if it is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the scheme is https.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The path, with `.` and `..` resolved.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// The path and query for the request line.
    #[must_use]
    pub fn path_and_query(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }

    /// The value of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let default = if self.is_tls() { 443 } else { 80 };
        if self.port == default { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The complete URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Whether both have the same scheme, host and port.
    #[must_use]
    pub fn same_origin(&self, other: &Self) -> bool {
        (self.host(), self.port(), self.is_tls()) == (other.host(), other.port(), other.is_tls())
    }

    /// The target with one more pair in its query.
    #[must_use]
    pub fn with_pair(&self, name: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.url.query_pairs_mut().append_pair(name, value);
        other
    }
}

fn authority_of(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    if authority.contains('@') {
        return Err("the address holds a user name");
    }
    if authority.contains('%') {
        return Err("the host is not in its normal spelling");
    }
    let (host, port) = if authority.starts_with('[') {
        let (host, rest) = authority.split_once(']').ok_or("the host is not in its normal spelling")?;
        let host = authority.get(..host.len() + 1).ok_or("the host is not in its normal spelling")?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err("the host is not in its normal spelling"),
        }
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    let port = match port {
        None => None,
        Some(digits) => {
            let plain = !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
            let number = digits.parse::<u16>().ok().filter(|_| plain);
            Some(number.ok_or("the port is not a valid number")?)
        }
    };
    Ok((host, port))
}

fn normal_host(host: &str) -> Result<(String, Option<IpAddr>), &'static str> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().map_err(|_| "the host is not in its normal spelling")?;
        let url = url::Host::<String>::Ipv6(address).to_string();
        // Only one spelling is accepted, so that the compared text is the real target.
        return if url.eq_ignore_ascii_case(host) {
            Ok((url, Some(IpAddr::V6(address))))
        } else {
            Err("the host is not in its normal spelling")
        };
    }
    let lower = host.to_ascii_lowercase();
    if !is_normal_name(&lower) {
        return Err("the host is not in its normal spelling");
    }
    let address = lower.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    Ok((lower, address))
}

/// Whether a text is a name of complete labels, or a dotted quad, and cannot be read as anything else.
pub(super) fn is_normal_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.is_empty() || host.len() > 253 || !host.split('.').all(label) {
        return false;
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    // If the last label is a number, some readers take the whole name for an address in another notation.
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    if numeric {
        return host.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == host);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_addresses_read_as_they_are_written() {
        let target = EgressUrl::parse("https://API.Example.com:8443/a/./b/../c?q=1#part").unwrap();
        assert_eq!((target.host(), target.port(), target.is_tls()), ("api.example.com", 8443, true));
        assert_eq!(target.path_and_query(), "/a/c?q=1");
        assert_eq!(target.authority(), "api.example.com:8443");
        assert_eq!(EgressUrl::parse("http://127.0.0.1/").unwrap().address(), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(EgressUrl::parse("https://[2001:db8::1]/").unwrap().host(), "[2001:db8::1]");
        assert_eq!(EgressUrl::parse("https://xn--mnchen-3ya.example/").unwrap().host(), "xn--mnchen-3ya.example");
    }

    #[test]
    fn a_redirect_is_read_as_strictly_and_never_gives_up_tls() {
        let here = EgressUrl::parse("https://a.example/x/y").unwrap();
        assert_eq!(here.follow("../z").unwrap().as_str(), "https://a.example/z");
        assert_eq!(here.follow("//b.example/q").unwrap().host(), "b.example");
        assert_eq!(here.follow("https://b.example/").unwrap().host(), "b.example");
        for bad in [
            "http://a.example/",
            "https://u@b.example/",
            "//u@b.example/",
            "https://0x7f.1/",
            "//2130706433/",
            "\\\\b",
            "file:///etc/passwd",
            "javascript://a",
        ] {
            assert!(here.follow(bad).is_err() || here.follow(bad).unwrap().same_origin(&here), "{bad}");
        }
    }

    proptest! {
        /// Each accepted address leads where the reference parser says.
        #[test]
        fn two_readers_agree_or_it_is_refused(text in "https?://[a-z0-9.:@\\[\\]%/\\\\#?x-]{0,40}") {
            if let Ok(target) = EgressUrl::parse(&text) {
                let url = Url::parse(&text).unwrap();
                prop_assert_eq!(url.host_str().unwrap(), target.host());
                prop_assert_eq!(url.port_or_known_default().unwrap(), target.port());
                prop_assert!(url.username().is_empty());
                let again = EgressUrl::parse(target.as_str()).unwrap();
                prop_assert_eq!(again.host(), target.host());
            }
        }
    }
}
