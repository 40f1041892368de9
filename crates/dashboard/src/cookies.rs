//! Cookies: the session of a browser, the proof that a sign-in form is ours, and the chosen colours.
//!
//! Promise: the session's cookie is out of reach for scripts, is not sent by links of other sites' forms, and over HTTPS
//! belongs to this host alone.

use http::{HeaderMap, header};
use sluice_store::DASHBOARD_SESSION_LIFETIME;

/// The session over HTTPS.
const SECURE: &str = "__Host-sluice";
/// The session over plain HTTP, for loopback.
const PLAIN: &str = "sluice_session";
/// What a sign-in form has to repeat.
pub(crate) const SIGN_IN: &str = "sluice_form";
/// The chosen colours.
pub(crate) const THEME: &str = "sluice_theme";

/// The value of a cookie; nothing if it is missing or given twice.
pub(crate) fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut found = lines.flat_map(|line| line.split(';')).filter_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    });
    match (found.next(), found.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// The cookie of the session. SECURITY: where the listener speaks TLS, only the cookie counts that no other host and no
/// plain connection can have set.
pub(crate) fn session(headers: &HeaderMap, is_tls: bool) -> Option<&str> {
    value(headers, SECURE).or_else(|| value(headers, PLAIN).filter(|_| !is_tls))
}

/// Sets the session's cookie.
pub(crate) fn keep_session(value: &str, is_secure: bool) -> String {
    let (name, secure) = if is_secure { (SECURE, "; Secure") } else { (PLAIN, "") };
    let age = DASHBOARD_SESSION_LIFETIME.as_secs();
    format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}")
}

/// Forgets the session's cookie, over either kind of connection.
pub(crate) fn forget_session() -> [String; 2] {
    [
        format!("{SECURE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"),
        format!("{PLAIN}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"),
    ]
}

/// Sets what the next sign-in form has to repeat.
pub(crate) fn keep_form(value: &str) -> String {
    format!("{SIGN_IN}={value}; Path=/ui; Max-Age=3600; HttpOnly; SameSite=Strict")
}

/// Sets the chosen colours.
pub(crate) fn keep_theme(word: &str) -> String {
    format!("{THEME}={word}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn a_cookie_that_is_given_twice_is_none() {
        assert_eq!(value(&headers(&["a=1; b=2"]), "b"), Some("2"));
        assert_eq!(value(&headers(&["a=1; a=2"]), "a"), None);
        assert_eq!(value(&headers(&["a=1", "a=2"]), "a"), None);
        assert_eq!(value(&headers(&["ab=1"]), "a"), None);
    }

    #[test]
    fn over_tls_only_the_cookie_of_this_host_counts() {
        let tossed = headers(&["sluice_session=planted"]);
        assert_eq!(session(&tossed, false), Some("planted"));
        assert_eq!(session(&tossed, true), None);
        assert_eq!(session(&headers(&["__Host-sluice=own; sluice_session=planted"]), true), Some("own"));
        assert!(keep_session("x", true).starts_with("__Host-sluice=x; Path=/;"));
        assert!(keep_session("x", true).contains("; HttpOnly; SameSite=Lax; Secure"));
    }
}
