//! Headers: which ones callers may set, and which ones only egress sets.
//!
//! Promise: only egress sets the headers that decide the target, identity, length and framing of a request; of an
//! answer only headers that describe it are passed on.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::error::EgressError;

/// The most headers of a request, and of an answer that are passed on.
const MOST: usize = 64;
/// The most bytes of all headers together.
const LARGEST: usize = 16 * 1024;

/// Headers that only egress sets, because they could change what the checked request means.
const OURS: [&str; 30] = [
    "host",
    "cookie",
    "cookie2",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
    "accept-encoding",
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "http2-settings",
    "alt-used",
    "early-data",
];

/// Headers of an answer that are not passed on: they are about the connection or for a browser.
const NOT_PASSED_ON: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "trailer",
    "upgrade",
    "set-cookie",
    "set-cookie2",
    "content-encoding",
    "content-length",
    "alt-svc",
];

/// Whether only egress may set the header.
pub(super) fn is_ours(name: &HeaderName) -> bool {
    OURS.contains(&name.as_str()) || name.as_str().starts_with("sec-") || name.as_str().starts_with("proxy-")
}

/// Checks the headers that a caller sets.
///
/// # Errors
/// The first header that may not be set or is invalid.
pub(super) fn outgoing(wanted: &[(String, String)], taken: Option<&HeaderName>) -> Result<HeaderMap, EgressError> {
    let no = |text: String| Err(EgressError::Header(text));
    if wanted.len() > MOST || wanted.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > LARGEST {
        return no("the headers are too many or too large".into());
    }
    let mut headers = HeaderMap::with_capacity(wanted.len() + 6);
    for (name, value) in wanted {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { return no("a header name is invalid".into()) };
        if is_ours(&name) {
            return no(format!("the header `{name}` can be set only by the gateway"));
        }
        if taken == Some(&name) {
            return no(format!("the header `{name}` carries the credential and can be set only by the gateway"));
        }
        let Ok(value) = HeaderValue::from_str(value) else {
            return no("a header has characters that cannot be sent".into());
        };
        headers.append(name, value);
    }
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static("sluicegate"));
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(headers)
}

/// The headers of an answer that are passed on, as text.
pub(super) fn incoming(headers: &HeaderMap, scrub: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<(String, String)> {
    let mut size = 0;
    let mut passed = Vec::new();
    for (name, value) in headers {
        if NOT_PASSED_ON.contains(&name.as_str()) {
            continue;
        }
        let bytes = scrub(value.as_bytes()).unwrap_or_else(|| value.as_bytes().to_vec());
        let text: String = String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).collect();
        size += name.as_str().len() + text.len();
        if size > LARGEST || passed.len() == MOST {
            break;
        }
        passed.push((name.as_str().to_owned(), text));
    }
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<HeaderMap, EgressError> {
        outgoing(&[(name.into(), value.into())], Some(&header::AUTHORIZATION))
    }

    #[test]
    fn nobody_else_says_where_it_goes_or_how_it_is_framed() {
        for name in OURS.into_iter().chain(["Host", "Cookie", "Authorization", "Sec-Fetch-Site", "Proxy-Foo"]) {
            assert!(set(name, "x").is_err(), "{name}");
        }
        assert!(
            outgoing(&[("Authorization".into(), "Bearer own".into())], None).is_ok(),
            "where there is no credential"
        );
    }

    #[test]
    fn a_header_cannot_smuggle_another() {
        for (name, value) in
            [("x-a", "b\r\nHost: evil"), ("x-a", "b\nc"), ("x-a\r\nhost", "b"), ("", "b"), ("x a", "b"), ("x-a", "\0")]
        {
            assert!(set(name, value).is_err(), "{name:?}: {value:?}");
        }
        assert!(set("x-note", &"x".repeat(LARGEST + 1)).is_err());
        assert_eq!(set("x-note", "fine").unwrap()["x-note"], "fine");
    }

    #[test]
    fn an_answer_passes_on_no_cookie() {
        let mut headers = HeaderMap::new();
        headers.insert("set-cookie", HeaderValue::from_static("a=b"));
        headers.insert("etag", HeaderValue::from_static("secret-tag"));
        let scrub = |bytes: &[u8]| bytes.starts_with(b"secret").then(|| b"gone".to_vec());
        assert_eq!(incoming(&headers, scrub), [("etag".to_owned(), "gone".to_owned())]);
    }
}
