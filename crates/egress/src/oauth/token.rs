//! Token requests and their answers.
//!
//! Promise: of an answer, only the codes of the standard are repeated; an answer that is neither a token nor a valid
//! refusal decides nothing.

use serde_json::Value;
use sluice_core::Millis;
use sluice_core::json::{JsonTextKind, classify};

use super::error::OauthErrorCode;
use super::pending::PendingAuthorization;
use super::provider::OauthProvider;
use super::terms::ClientAuthentication;
use crate::EgressResponse;
use crate::vault::{SHORTEST, SecretValue};

/// The assumed lifetime of a token if the provider gives none.
const UNTOLD: Millis = Millis::from_hours(1);
/// The longest lifetime that is accepted, in seconds.
const LONGEST: u64 = 24 * 3600;

/// The lifetime of a token that cannot be renewed and has no end that we were told.
const ENDLESS: Millis = Millis::from_hours(10 * 365 * 24);

/// A field of a form.
pub(super) type OauthFormField<'a> = (&'a str, &'a [u8]);

/// The tokens of a grant.
#[allow(missing_debug_implementations, reason = "it holds tokens")]
pub(super) struct GrantedTokens {
    pub(super) access: SecretValue,
    pub(super) refresh: Option<SecretValue>,
    pub(super) lasts: Millis,
    /// The lifetime as the provider gave it.
    pub(super) told: Option<Millis>,
    pub(super) scope: Option<String>,
}

impl GrantedTokens {
    /// How long the grant can be used without a person. A token without a refresh token is used as long as it lasts.
    pub(super) fn usable(&self) -> Millis {
        if self.refresh.is_some() { self.lasts } else { self.told.unwrap_or(ENDLESS) }
    }
}

/// The meaning of an answer.
#[allow(missing_debug_implementations, reason = "it holds tokens")]
pub(super) enum TokenEndpointOutcome {
    /// Access is granted.
    Granted(GrantedTokens),
    /// Access is refused.
    Denied(OauthErrorCode),
    /// No valid answer: the provider fails, or something else answers in its place.
    Nothing,
}

/// The form that exchanges a code for tokens.
pub(super) fn redeem<'a>(
    provider: &'a OauthProvider,
    begun: &'a PendingAuthorization,
    code: &'a SecretValue,
    client: Option<&'a SecretValue>,
) -> Vec<OauthFormField<'a>> {
    let mut fields = vec![
        ("grant_type", b"authorization_code".as_slice()),
        ("code", code.expose()),
        ("redirect_uri", begun.redirect.as_bytes()),
        ("code_verifier", begun.verifier.expose()),
    ];
    fields.extend(identification(provider, client));
    fields.extend(audience(provider));
    fields
}

/// The form that exchanges a refresh token for an access token.
pub(super) fn renew<'a>(
    provider: &'a OauthProvider,
    refresh: &'a SecretValue,
    client: Option<&'a SecretValue>,
) -> Vec<OauthFormField<'a>> {
    let mut fields = vec![("grant_type", b"refresh_token".as_slice()), ("refresh_token", refresh.expose())];
    fields.extend(identification(provider, client));
    fields.extend(audience(provider));
    fields
}

/// The form that revokes a refresh token and everything issued with it.
pub(super) fn give_back<'a>(
    provider: &'a OauthProvider,
    (token, hint): (&'a SecretValue, &'a str),
    client: Option<&'a SecretValue>,
) -> Vec<OauthFormField<'a>> {
    let mut fields = vec![("token", token.expose()), ("token_type_hint", hint.as_bytes())];
    fields.extend(identification(provider, client));
    fields
}

/// The fields by which a client names and proves itself; none if both are in the header.
fn identification<'a>(provider: &'a OauthProvider, client: Option<&'a SecretValue>) -> Vec<OauthFormField<'a>> {
    let named = ("client_id", provider.client_id.as_bytes());
    match (provider.terms.server().map(|terms| terms.authentication), client) {
        (Some(ClientAuthentication::Basic), Some(_)) => Vec::new(),
        (Some(ClientAuthentication::Public), _) | (_, None) => vec![named],
        (Some(ClientAuthentication::Form) | None, Some(secret)) => {
            vec![named, ("client_secret", secret.expose())]
        }
    }
}

/// The server that a token is for (RFC 8707).
fn audience(provider: &OauthProvider) -> Option<OauthFormField<'_>> {
    provider.terms.server().map(|terms| ("resource", terms.resource.as_bytes()))
}

/// Reads the answer of a token endpoint.
pub(super) fn parse_response(answer: &EgressResponse) -> TokenEndpointOutcome {
    if classify(&answer.body) == JsonTextKind::Repeated {
        return TokenEndpointOutcome::Nothing;
    }
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else { return TokenEndpointOutcome::Nothing };
    match answer.status {
        200 => granted(&body).map_or(TokenEndpointOutcome::Nothing, TokenEndpointOutcome::Granted),
        // RFC 6749, 5.2: 400 and 401; some providers send 403. Only an answer with a code comes from the provider.
        400 | 401 | 403 => match body.get("error").and_then(Value::as_str) {
            None | Some("temporarily_unavailable" | "server_error" | "slow_down") => TokenEndpointOutcome::Nothing,
            Some(word) => TokenEndpointOutcome::Denied(OauthErrorCode::from_word(word)),
        },
        _ => TokenEndpointOutcome::Nothing,
    }
}

fn granted(body: &Value) -> Option<GrantedTokens> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let secret = |value: &str| (value.len() >= SHORTEST).then(|| SecretValue::new(value.as_bytes().to_vec()));
    if !text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
        return None;
    }
    let told = body.get("expires_in").and_then(|value| value.as_u64().or_else(|| value.as_str()?.parse().ok()));
    Some(GrantedTokens {
        access: secret(text("access_token")?)?,
        refresh: text("refresh_token").and_then(secret),
        lasts: told.map_or(UNTOLD, |secs| Millis::from_secs(secs.min(LONGEST))),
        told: told.map(|secs| Millis::from_secs(secs.min(ENDLESS.as_secs()))),
        scope: text("scope").map(str::to_owned),
    })
}

/// Whether a grant is gone: revoked now, or no longer known.
pub(super) fn is_taken_back(answer: &EgressResponse) -> bool {
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

    fn answer(status: u16, body: &str) -> EgressResponse {
        EgressResponse { status, headers: Vec::new(), body: body.to_owned().into(), url: String::new() }
    }

    fn word(status: u16, body: &str) -> String {
        match parse_response(&answer(status, body)) {
            TokenEndpointOutcome::Granted(granted) => format!("granted for {} s", granted.lasts.as_secs()),
            TokenEndpointOutcome::Denied(denied) => format!("denied: {}", denied.as_str()),
            TokenEndpointOutcome::Nothing => "nothing".into(),
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
