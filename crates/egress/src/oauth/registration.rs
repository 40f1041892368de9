//! Registration: the gateway as a client that an authorization server knows.
//!
//! Takes the metadata of an authorization server; gives a client id, its secret if it has one, and how both are sent; or
//! the document that describes the gateway. Promise: a client is bound to the authorization server that issued it.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sluice_core::{Actor, ServiceName};

use super::CAPABILITY;
use super::discovery::{self, AuthorizationServer};
use super::error::{OauthError, OauthErrorCode};
use super::terms::{ClientAuthentication, ServerReach};
use crate::vault::{SHORTEST, SecretValue};
use crate::{Egress, EgressRequest};

/// The name that people see on a consent page.
const NAME: &str = "Sluicegate";
/// The longest client id that is accepted.
const LONGEST_ID: usize = 2048;

/// A client as an authorization server knows it.
#[allow(missing_debug_implementations, reason = "it holds a secret")]
pub struct RegisteredClient {
    /// Its id.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<SecretValue>,
    /// How it proves who it is.
    pub authentication: ClientAuthentication,
}

/// The document that describes the gateway to authorization servers that read such documents.
#[must_use]
pub fn client_document(url: &str) -> Value {
    // RFC 8252, 7.3: the port of a loopback address is chosen when the browser is sent there.
    let mut document = description(&["http://127.0.0.1/", "http://[::1]/"], ClientAuthentication::Public);
    if let Some(members) = document.as_object_mut() {
        members.insert("client_id".into(), json!(url));
    }
    document
}

fn description(redirects: &[&str], authentication: ClientAuthentication) -> Value {
    json!({
        "client_name": NAME,
        "redirect_uris": redirects,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": authentication.as_str(),
        "application_type": "native",
    })
}

/// How a client with or without a secret proves who it is at this server.
///
/// # Errors
/// When the server accepts no method that the gateway knows.
pub fn authentication(server: &AuthorizationServer, has_secret: bool) -> Result<ClientAuthentication, OauthError> {
    // RFC 8414, 2: a server that does not say accepts the header.
    let accepts = |method: ClientAuthentication| match server.methods.is_empty() {
        true => method == ClientAuthentication::Basic,
        false => server.methods.iter().any(|known| known == method.as_str()),
    };
    if !has_secret {
        return Ok(ClientAuthentication::Public);
    }
    let known = [ClientAuthentication::Basic, ClientAuthentication::Form, ClientAuthentication::Public];
    let unknown =
        || OauthError::Client("the authorization server accepts no way to prove a client that we know".into());
    known.into_iter().find(|method| accepts(*method)).ok_or_else(unknown)
}

/// Registers the gateway at an authorization server (RFC 7591).
///
/// # Errors
/// When the server registers no clients, refuses, or answers with something else.
pub async fn register(
    egress: &Egress,
    service: &ServiceName,
    (server, reach): (&AuthorizationServer, &ServerReach),
    redirect: &str,
    by: Actor,
) -> Result<RegisteredClient, OauthError> {
    let none = || {
        let text = "the authorization server does not register clients by itself; register the gateway there, then \
                    use `--client-id` (and `--client-secret-file`)";
        OauthError::Client(text.into())
    };
    let url = server.register.as_deref().ok_or_else(none)?;
    let wanted = if server.methods.is_empty() || server.methods.iter().any(|method| method == "none") {
        ClientAuthentication::Public
    } else {
        authentication(server, true)?
    };
    let body = description(&[redirect], wanted).to_string();
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("accept".to_owned(), "application/json".to_owned()),
    ];
    let connection = discovery::way_to(service, reach, Method::POST, ("registration_endpoint", url))?;
    let (method, body) = (Method::POST, Bytes::from(body));
    let request = EgressRequest { method, url: url.to_owned(), headers, body, follow: false, timeout: None };
    let answer = egress.request(&connection, CAPABILITY, by, request).await?;
    match answer.status {
        200 | 201 => registered(server, &discovery::json("registration_endpoint", &answer)?),
        400..=499 => {
            let body = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            Err(OauthError::Refused(OauthErrorCode::from_word(discovery::text(&body, "error").unwrap_or_default())))
        }
        _ => Err(OauthError::Garbled),
    }
}

fn registered(server: &AuthorizationServer, answer: &Value) -> Result<RegisteredClient, OauthError> {
    let fits = |id: &&str| !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|b| (0x20..0x7f).contains(&b));
    let id = discovery::text(answer, "client_id").filter(fits).ok_or(OauthError::Garbled)?.to_owned();
    let secret = discovery::text(answer, "client_secret").filter(|secret| secret.len() >= SHORTEST);
    let told = discovery::text(answer, "token_endpoint_auth_method").and_then(ClientAuthentication::from_word);
    let authentication = match told {
        Some(told) if secret.is_some() || told == ClientAuthentication::Public => told,
        Some(_) | None => authentication(server, secret.is_some())?,
    };
    let is_secret = authentication != ClientAuthentication::Public;
    let secret = secret.filter(|_| is_secret).map(|secret| SecretValue::new(secret.as_bytes().to_vec()));
    Ok(RegisteredClient { id, secret, authentication })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(methods: &[&str]) -> AuthorizationServer {
        AuthorizationServer {
            issuer: "https://auth.example".into(),
            authorize: "https://auth.example/authorize".into(),
            token: "https://auth.example/token".into(),
            revoke: None,
            register: None,
            methods: methods.iter().map(|&method| method.to_owned()).collect(),
            reads_client_documents: false,
            names_issuer: false,
            scopes: Vec::new(),
        }
    }

    #[test]
    fn a_client_proves_itself_as_the_server_accepts_it() {
        use ClientAuthentication::{Basic, Form, Public};
        for (methods, has_secret, wanted) in [
            (&[][..], true, Basic),
            (&[], false, Public),
            (&["client_secret_post", "client_secret_basic"], true, Basic),
            (&["client_secret_post"], true, Form),
            (&["none"], true, Public),
            (&["private_key_jwt", "none"], false, Public),
        ] {
            assert_eq!(authentication(&server(methods), has_secret).unwrap(), wanted, "{methods:?}");
        }
        assert!(authentication(&server(&["private_key_jwt"]), true).is_err());
    }

    #[test]
    fn the_answer_of_a_registration_decides_how_the_client_proves_itself() {
        let read = |answer: Value| registered(&server(&["none"]), &answer).map(|one| (one.authentication, one.secret));
        let with = json!({"client_id": "a", "client_secret": "long-enough-secret"});
        let (authentication, secret) = read(with.clone()).unwrap_or_else(|no| panic!("{no}"));
        assert!(
            authentication == ClientAuthentication::Public && secret.is_none(),
            "the server accepts only public clients"
        );
        let mut told = with;
        told["token_endpoint_auth_method"] = json!("client_secret_post");
        let (authentication, secret) = read(told).unwrap_or_else(|no| panic!("{no}"));
        assert!(authentication == ClientAuthentication::Form && secret.is_some());
        for bad in [json!({}), json!({"client_id": ""}), json!({"client_id": "a\nb"}), json!({"client_id": 7})] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_document_names_itself_and_returns_only_to_this_machine() {
        let document = client_document("https://gate.example/client.json");
        assert_eq!(document["client_id"], "https://gate.example/client.json");
        assert_eq!(document["redirect_uris"], json!(["http://127.0.0.1/", "http://[::1]/"]));
        assert_eq!(document["token_endpoint_auth_method"], "none");
    }
}
