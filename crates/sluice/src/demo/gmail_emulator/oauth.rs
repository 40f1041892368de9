//! OAuth 2 of the demo's service: code with PKCE, refresh, revoke. Consent is given immediately.
//!
//! Promise: a code works once, with its verifier and its redirect address; a revoked or expired token is
//! refused.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{EmulatorRequest, EmulatorResponse, form};

/// How long an access token works, in milliseconds.
const LIFE: i64 = 3_600_000;

#[derive(Debug, Clone)]
struct IssuedOauthCode {
    challenge: String,
    redirect: String,
}

/// Codes and tokens that were issued.
#[derive(Debug, Default)]
pub struct OauthEmulator {
    codes: HashMap<String, IssuedOauthCode>,
    /// Access tokens, with their expiry.
    access: HashMap<String, i64>,
    refresh: HashMap<String, Vec<String>>,
    given: u64,
    /// The next refresh revokes the token it is called with and issues another one, and the response is lost.
    pub lose_rotation: bool,
    /// The response just created is lost.
    pub lost: bool,
}

impl OauthEmulator {
    /// Whether a token is valid.
    pub fn knows(&self, token: &str, now: i64) -> bool {
        self.access.get(token).is_some_and(|until| now < *until)
    }

    /// Issues an access token.
    pub fn grant(&mut self, now: i64) -> String {
        let token = self.name("access");
        self.access.insert(token.clone(), now + LIFE);
        token
    }

    /// Revokes everything that was issued: the owner withdrew the permission.
    pub fn revoke_all(&mut self) {
        self.access.clear();
        self.refresh.clear();
    }

    // The demo's secrets protect a mailbox of fictional mail, so a counter is secret enough.
    fn name(&mut self, what: &str) -> String {
        self.given += 1;
        format!("demo-{what}-{:06}", self.given)
    }

    /// Answers requests that belong to OAuth; `None` for all others.
    pub fn answer(&mut self, ask: &EmulatorRequest, now: i64) -> Option<EmulatorResponse> {
        let body = form(std::str::from_utf8(&ask.body).unwrap_or_default());
        match (ask.method.as_str(), ask.path.as_str()) {
            ("GET", "/o/oauth2/v2/auth") => Some(self.authorize(&ask.query)),
            ("POST", "/token") => Some(self.token(&body, now)),
            ("POST", "/revoke") => Some(self.revoke(&body)),
            _ => None,
        }
    }

    fn authorize(&mut self, query: &[(String, String)]) -> EmulatorResponse {
        let (redirect, challenge) = (get(query, "redirect_uri"), get(query, "code_challenge"));
        let sound = get(query, "response_type") == "code"
            && get(query, "code_challenge_method") == "S256"
            && !challenge.is_empty()
            && redirect.starts_with("http://127.0.0.1:");
        if !sound {
            return EmulatorResponse::error(
                400,
                "invalid_request",
                "a code with PKCE to a loopback address, nothing else",
            );
        }
        let code = self.name("code");
        self.codes
            .insert(code.clone(), IssuedOauthCode { challenge: challenge.to_owned(), redirect: redirect.to_owned() });
        let location = format!("{redirect}?code={code}&state={}", get(query, "state"));
        EmulatorResponse { status: 302, headers: vec![("location".into(), location)], body: Value::Null }
    }

    fn token(&mut self, body: &[(String, String)], now: i64) -> EmulatorResponse {
        let refused = || EmulatorResponse { status: 400, headers: Vec::new(), body: json!({"error": "invalid_grant"}) };
        let refresh = match get(body, "grant_type") {
            "authorization_code" => {
                // A code is used up by its first use, whatever the result.
                let Some(code) = self.codes.remove(get(body, "code")) else { return refused() };
                let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(get(body, "code_verifier")));
                if hash != code.challenge || get(body, "redirect_uri") != code.redirect {
                    return refused();
                }
                let refresh = self.name("refresh");
                self.refresh.insert(refresh.clone(), Vec::new());
                refresh
            }
            "refresh_token" if self.refresh.contains_key(get(body, "refresh_token")) => {
                let asked_with = get(body, "refresh_token").to_owned();
                if std::mem::take(&mut self.lose_rotation) {
                    self.refresh.remove(&asked_with);
                    self.lost = true;
                    self.name("refresh")
                } else {
                    asked_with
                }
            }
            _ => return refused(),
        };
        let access = self.grant(now);
        self.refresh.entry(refresh.clone()).or_default().push(access.clone());
        EmulatorResponse::ok(json!({
            "access_token": access, "refresh_token": refresh, "expires_in": LIFE / 1000, "token_type": "Bearer",
            "scope": "https://www.googleapis.com/auth/gmail.modify",
        }))
    }

    fn revoke(&mut self, body: &[(String, String)]) -> EmulatorResponse {
        let token = get(body, "token");
        let children = self.refresh.remove(token);
        let known = self.access.remove(token).is_some() || children.is_some();
        for access in children.into_iter().flatten() {
            self.access.remove(&access);
        }
        if known {
            EmulatorResponse::ok(json!({}))
        } else {
            EmulatorResponse::error(400, "invalid_token", "unknown token")
        }
    }
}

fn get<'p>(pairs: &'p [(String, String)], name: &str) -> &'p str {
    pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
}
