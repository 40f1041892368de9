//! One exchange with a service, as an adapter sees it.
//!
//! Takes a method, a path and a body; gives status, headers and body, or how far it got. The host, the credential, the
//! limits and the leak scan are on the other side of this trait. Promise: one call makes at most one request, and an
//! error says whether the request can have had an effect.

use serde::{Deserialize, Serialize};
pub use sluice_protocol::ExchangePhase;

/// The HTTP method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum NetMethod {
    /// Read.
    Get,
    /// Create or perform.
    Post,
    /// Replace.
    Put,
    /// Remove.
    Delete,
}

impl NetMethod {
    /// The method name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// A request without host and credential, which the adapter does not control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetRequest {
    /// The method of the request.
    pub method: NetMethod,
    /// Path and query, percent-encoded, beginning with a slash.
    pub path: String,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetResponse {
    /// The status code.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

/// An exchange without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetError {
    /// The connection broke.
    #[error("the connection broke ({0:?})")]
    Broken(ExchangePhase),
    /// Our own egress refused the request: limit, allow-list, circuit breaker, leak. Nothing was sent.
    #[error("the request was not allowed out: {code}")]
    Denied {
        /// The stable code of the refusal.
        code: String,
        /// When it may be tried again, in seconds.
        retry_after_s: Option<u64>,
    },
    /// The answer was larger than the limit. The request had its effect.
    #[error("the answer is too large")]
    TooLarge,
}

/// The way to the service: one blocking exchange at a time.
pub trait Net {
    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// When there is no answer; the error says how far it got.
    fn exchange(&mut self, request: NetRequest) -> Result<NetResponse, NetError>;
}

impl NetRequest {
    /// A GET request.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self { method: NetMethod::Get, path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// A POST request with JSON.
    #[must_use]
    pub fn post(path: impl Into<String>, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { method: NetMethod::Post, path: path.into(), headers, body: body.to_string().into_bytes() }
    }

    /// A POST request without a body.
    #[must_use]
    pub fn post_empty(path: impl Into<String>) -> Self {
        Self { method: NetMethod::Post, path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// A DELETE request.
    #[must_use]
    pub fn delete(path: impl Into<String>) -> Self {
        Self { method: NetMethod::Delete, path: path.into(), headers: Vec::new(), body: Vec::new() }
    }
}

impl NetResponse {
    /// The first header with this name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A text as one segment of a path or one value of a query.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for nibble in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    // A segment of only dots would mean another path.
    if out.chars().all(|c| c == '.') { out.replace('.', "%2E") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_leaves_its_segment() {
        assert_eq!(escape("a/b?c#d%e f"), "a%2Fb%3Fc%23d%25e%20f");
        assert_eq!((escape(".."), escape("é")), ("%2E%2E".into(), "%C3%A9".into()));
    }
}
