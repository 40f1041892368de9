//! What is said at a token endpoint, and what comes back.
//!
//! Promise: of an answer, nothing is repeated but the codes of the standard; what is neither a token nor a proper
//! refusal is no word of the provider and decides nothing.

use serde_json::Value;
use sluice_core::Span;
use sluice_core::json::{Reading, reading};

use super::no::Denied;
use super::pending::Begun;
use super::provider::Provider;
use crate::egress::Answer;
use crate::vault::{SHORTEST, Secret};

/// How long a token lives whose life nobody told.
const UNTOLD: Span = Span::from_hours(1);
/// The longest life that is believed.
const LONGEST: u64 = 24 * 3600;

/// A field of a form.
pub(super) type Field<'a> = (&'a str, &'a [u8]);

/// Tokens.
#[allow(missing_debug_implementations, reason = "it holds tokens")]
pub(super) struct Granted {
    pub(super) access: Secret,
    pub(super) refresh: Option<Secret>,
    pub(super) lasts: Span,
    pub(super) scope: Option<String>,
}

/// What an answer says.
#[allow(missing_debug_implementations, reason = "it holds tokens")]
pub(super) enum Heard {
    /// Yes.
    Granted(Granted),
    /// No.
    Denied(Denied),
    /// Nothing that counts: the provider is not itself, or something else answers in its place.
    Nothing,
}

/// A code for tokens.
pub(super) fn redeem<'a>(
    provider: &'a Provider,
    begun: &'a Begun,
    code: &'a Secret,
    client: Option<&'a Secret>,
) -> Vec<Field<'a>> {
    let mut fields = vec![
        ("grant_type", b"authorization_code".as_slice()),
        ("code", code.expose()),
        ("redirect_uri", begun.redirect.as_bytes()),
        ("code_verifier", begun.verifier.expose()),
        ("client_id", provider.client_id.as_bytes()),
    ];
    fields.extend(client.map(|secret| ("client_secret", secret.expose())));
    fields
}

/// A refresh token for an access token.
pub(super) fn renew<'a>(provider: &'a Provider, refresh: &'a Secret, client: Option<&'a Secret>) -> Vec<Field<'a>> {
    let mut fields = vec![
        ("grant_type", b"refresh_token".as_slice()),
        ("refresh_token", refresh.expose()),
        ("client_id", provider.client_id.as_bytes()),
    ];
    fields.extend(client.map(|secret| ("client_secret", secret.expose())));
    fields
}

/// A refresh token that is no longer wanted, and everything that came of it.
pub(super) fn give_back<'a>(provider: &'a Provider, refresh: &'a Secret, client: Option<&'a Secret>) -> Vec<Field<'a>> {
    let mut fields = vec![
        ("token", refresh.expose()),
        ("token_type_hint", b"refresh_token".as_slice()),
        ("client_id", provider.client_id.as_bytes()),
    ];
    fields.extend(client.map(|secret| ("client_secret", secret.expose())));
    fields
}

/// Reads the answer of a token endpoint.
pub(super) fn heard(answer: &Answer) -> Heard {
    if reading(&answer.body) == Reading::Repeated {
        return Heard::Nothing;
    }
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else { return Heard::Nothing };
    match answer.status {
        200 => granted(&body).map_or(Heard::Nothing, Heard::Granted),
        // RFC 6749, 5.2: 400 and 401; some say 403. Only with a code is it the provider's word.
        400 | 401 | 403 => match body.get("error").and_then(Value::as_str) {
            None | Some("temporarily_unavailable" | "server_error" | "slow_down") => Heard::Nothing,
            Some(word) => Heard::Denied(Denied::from_word(word)),
        },
        _ => Heard::Nothing,
    }
}

fn granted(body: &Value) -> Option<Granted> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let secret = |value: &str| (value.len() >= SHORTEST).then(|| Secret::new(value.as_bytes().to_vec()));
    if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return None;
    }
    let told = body.get("expires_in").and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    Some(Granted {
        access: secret(text("access_token")?)?,
        refresh: text("refresh_token").and_then(secret),
        lasts: told.map_or(UNTOLD, |secs| Span::from_secs(secs.min(LONGEST))),
        scope: text("scope").map(str::to_owned),
    })
}

/// Whether a grant is gone: taken back now, or no longer known.
pub(super) fn is_taken_back(answer: &Answer) -> bool {
    let code = || serde_json::from_slice::<Value>(&answer.body).ok()?.get("error")?.as_str().map(str::to_owned);
    match answer.status {
        200 | 204 => true,
        400 => code().is_some_and(|code| code == "invalid_token"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, headers: Vec::new(), body: body.to_owned().into(), url: String::new() }
    }

    fn word(status: u16, body: &str) -> String {
        match heard(&answer(status, body)) {
            Heard::Granted(granted) => format!("granted for {} s", granted.lasts.as_secs()),
            Heard::Denied(denied) => format!("denied: {}", denied.as_str()),
            Heard::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn a_yes_is_told_from_a_no_and_both_from_noise() {
        let yes = |life: Value| {
            json!({"access_token": "access-token", "token_type": "Bearer", "expires_in": life}).to_string()
        };
        for (status, body, wanted) in [
            (200, yes(json!(3599)), "granted for 3599 s"),
            (200, yes(json!("60")), "granted for 60 s"),
            (200, yes(Value::Null), "granted for 3600 s"),
            (200, yes(json!(u64::MAX)), "granted for 86400 s"),
            (
                400,
                json!({"error": "invalid_grant", "error_description": "Token 1//0abc"}).to_string(),
                "denied: invalid_grant",
            ),
            (401, json!({"error": "invalid_client"}).to_string(), "denied: invalid_client"),
            (400, json!({"error": "<script>1//0abc"}).to_string(), "denied: refused"),
            (400, json!({"error": "temporarily_unavailable"}).to_string(), "nothing"),
            (403, "<html>sign in to the hotel</html>".to_owned(), "nothing"),
            (403, json!({"message": "no"}).to_string(), "nothing"),
            (429, json!({"error": "invalid_grant"}).to_string(), "nothing"),
            (503, json!({"error": "invalid_grant"}).to_string(), "nothing"),
            (200, json!({"token_type": "mac", "access_token": "access-token"}).to_string(), "nothing"),
            (200, json!({"token_type": "bearer", "access_token": "x"}).to_string(), "nothing"),
            (200, "[]".to_owned(), "nothing"),
        ] {
            assert_eq!(word(status, &body), wanted, "{status} {body}");
        }
    }

    #[test]
    fn a_grant_is_gone_when_the_provider_says_so_or_never_heard_of_it() {
        assert!(is_taken_back(&answer(200, "")));
        assert!(is_taken_back(&answer(400, r#"{"error": "invalid_token"}"#)));
        assert!(!is_taken_back(&answer(400, r#"{"error": "invalid_request"}"#)));
        assert!(!is_taken_back(&answer(503, "")));
    }
}
