//! The guard of forms: only a page of this gateway can send one.
//!
//! Takes the headers and fields of a form; gives nothing or a refusal. Promise: a form needs an `Origin` or
//! `Sec-Fetch-Site` header that names this very gateway, and a token that only the session's own pages contain.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, header};
use sha2::Sha256;
use sluice_core::refusal::Code;
use sluice_services::CallError;
use subtle::ConstantTimeEq as _;

/// Refuses a form that another site sends, and one that does not say who sends it.
pub(crate) fn check_source(headers: &HeaderMap) -> Result<(), CallError> {
    let text = |name: &str| {
        let mut all = headers.get_all(name).iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| CallError::new(Code::DoorOrigin)),
            (Some(_), Some(_)) => Err(CallError::new(Code::DoorOrigin)),
        }
    };
    let (origin, site, host) = (text("origin")?, text("sec-fetch-site")?, text("host")?.unwrap_or_default());
    let own = |origin: &str| {
        origin.split_once("://").is_some_and(|(scheme, authority)| {
            ["http", "https"].contains(&scheme) && authority.eq_ignore_ascii_case(host)
        })
    };
    let said = origin.is_some() || site.is_some();
    if said && origin.is_none_or(own) && site.is_none_or(|site| site == "same-origin") {
        return Ok(());
    }
    Err(CallError::with_text(Code::DoorOrigin, "this form was not sent by a page of this gateway, so nothing was done"))
}

/// Whether the browser speaks HTTPS, perhaps to a proxy in front: it says so itself when it sends a form.
pub(crate) fn is_secure(headers: &HeaderMap, is_tls: bool) -> bool {
    is_tls || headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// The token of the forms of one session. Whoever knows it knows the session's cookie already.
pub(crate) fn form_token(cookie: &str) -> String {
    // A key of any length is accepted.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(cookie.as_bytes()) else { return String::new() };
    mac.update(b"sluice dashboard form");
    URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
}

/// Refuses a form without the token of its session.
pub(crate) fn check_token(given: &str, own: &str) -> Result<(), CallError> {
    if !own.is_empty() && bool::from(given.as_bytes().ct_eq(own.as_bytes())) {
        return Ok(());
    }
    Err(CallError::with_text(Code::DoorOrigin, "this form belongs to another session, so nothing was done; try again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn from(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("127.0.0.1:7420"));
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        check_source(&headers).is_ok()
    }

    #[test]
    fn only_a_page_of_this_gateway_sends_a_form() {
        assert!(from(&[("origin", "http://127.0.0.1:7420")]));
        assert!(from(&[("origin", "https://127.0.0.1:7420"), ("sec-fetch-site", "same-origin")]));
        assert!(from(&[("sec-fetch-site", "same-origin")]));
        for bad in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:7421")],
            &[("origin", "http://evil.example")],
            &[("origin", "http://127.0.0.1:7420.evil.example")],
            &[("origin", "file://127.0.0.1:7420")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
            &[("origin", "http://127.0.0.1:7420"), ("sec-fetch-site", "cross-site")],
            &[("origin", "http://127.0.0.1:7420"), ("origin", "http://127.0.0.1:7420")],
        ] {
            assert!(!from(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_token_belongs_to_one_cookie() {
        let own = form_token("cookie");
        assert!(check_token(&own, &own).is_ok());
        assert!(check_token(&form_token("other"), &own).is_err());
        assert!(check_token("", "").is_err());
    }
}
