//! Discovery: where the tokens of a server come from (RFC 9728, RFC 8414, OpenID Connect discovery).
//!
//! Takes the address of a server and its challenge; gives its identifier and its authorization server. Promise: every
//! request goes through egress, to one address, with its address rules; metadata that names another server, another
//! issuer, an address without TLS, or no PKCE with S256 is refused; nothing is guessed where nothing is published.

use http::Method;
use serde_json::Value;
use sluice_config::network::{EgressConnection, EgressUrl, HostPattern, PathPattern};
use sluice_core::json::{JsonTextKind, classify};
use sluice_core::throttle::ConnectionLimits;
use sluice_core::{Actor, Millis, ServiceName};
use url::Url;

use super::challenge::{BearerChallenge, scope_words};
use super::error::OauthError;
use super::terms::ServerReach;
use super::{CAPABILITY, way_name};
use crate::{Egress, EgressRequest, EgressResponse};

/// The largest metadata document.
const LARGEST: u64 = 256 << 10;
/// The most authorization servers that a server may name.
const SERVERS: usize = 16;
/// How long one request may take.
const SOON: Millis = Millis::from_secs(10);

/// A server that protects itself by OAuth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedServer {
    /// Its identifier, exactly as published.
    pub resource: String,
    /// The issuers it accepts tokens from.
    pub issuers: Vec<String>,
    /// The scopes that it publishes.
    pub scopes: Vec<String>,
}

/// An authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorizationServer {
    /// Its identifier, exactly as published.
    pub issuer: String,
    /// The address where people grant access.
    pub authorize: String,
    /// The address that exchanges codes and refresh tokens for access tokens.
    pub token: String,
    /// The address that revokes tokens.
    pub revoke: Option<String>,
    /// The address at which clients register themselves.
    pub register: Option<String>,
    /// The methods by which clients prove who they are; empty if it does not say.
    pub methods: Vec<String>,
    /// Whether a client may be the address of a document that describes it.
    pub reads_client_documents: bool,
    /// Whether it names itself in every answer.
    pub names_issuer: bool,
    /// The scopes that it publishes.
    pub scopes: Vec<String>,
}

/// Asks a server and its authorization server for their metadata.
#[derive(Debug)]
pub struct ServerDiscovery<'a> {
    egress: &'a Egress,
    service: &'a ServiceName,
    url: &'a str,
    reach: &'a ServerReach,
    by: Actor,
}

impl<'a> ServerDiscovery<'a> {
    /// Discovery for the server at this address.
    #[must_use]
    pub fn new(
        egress: &'a Egress,
        service: &'a ServiceName,
        (url, reach): (&'a str, &'a ServerReach),
        by: Actor,
    ) -> Self {
        Self { egress, service, url, reach, by }
    }

    /// The server's own metadata. A server that publishes none is taken to be its own authorization server, as the
    /// revision 2025-03-26 says.
    ///
    /// # Errors
    /// When a request fails, or the metadata is for another server.
    pub async fn protected_server(&self, challenge: Option<&BearerChallenge>) -> Result<ProtectedServer, OauthError> {
        let named = challenge.and_then(|challenge| challenge.metadata.clone());
        let is_named = named.is_some();
        let places = match named {
            Some(place) => vec![place],
            None => well_known(self.url, &["oauth-protected-resource"], WellKnownPlace::Before, true)?,
        };
        for place in places {
            if let Some(document) = self.get("resource_metadata", &place).await? {
                return protected_server(self.url, &document);
            }
        }
        if is_named {
            return Err(OauthError::Metadata("there is nothing at the address that the server named".into()));
        }
        let own = Url::parse(self.url).map_err(|_| OauthError::Metadata("its address is not valid".into()))?;
        let origin = own.origin().ascii_serialization();
        Ok(ProtectedServer { resource: self.url.to_owned(), issuers: vec![origin], scopes: Vec::new() })
    }

    /// The metadata of an authorization server.
    ///
    /// # Errors
    /// When a request fails, there is no metadata, or it cannot be used.
    pub async fn authorization_server(&self, issuer: &str) -> Result<AuthorizationServer, OauthError> {
        self.reach.check("issuer", issuer)?;
        let names = ["oauth-authorization-server", "openid-configuration"];
        let mut places = well_known(issuer, &names, WellKnownPlace::Before, false)?;
        for place in well_known(issuer, &names[1..], WellKnownPlace::After, false)? {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        for place in places {
            if let Some(document) = self.get("authorization server metadata", &place).await? {
                return self.server_of(issuer, &document);
            }
        }
        Err(OauthError::Metadata(format!("the authorization server `{}` publishes no metadata", short(issuer))))
    }

    fn server_of(&self, issuer: &str, document: &Value) -> Result<AuthorizationServer, OauthError> {
        // SECURITY: metadata of another issuer would send the code to it (RFC 8414, 3.3).
        if text(document, "issuer") != Some(issuer) {
            return Err(OauthError::Issuer);
        }
        let required = |name: &str| {
            let missing = || OauthError::Metadata(format!("the authorization server publishes no `{name}`"));
            let url = text(document, name).ok_or_else(missing)?;
            self.reach.check(name, url)?;
            Ok::<_, OauthError>(url.to_owned())
        };
        let optional = |name: &str| match text(document, name) {
            Some(url) => self.reach.check(name, url).map(|_| Some(url.to_owned())),
            None => Ok(None),
        };
        let challenges = list(document, "code_challenge_methods_supported");
        if !challenges.iter().any(|method| method == "S256") {
            return Err(OauthError::Metadata("the authorization server does not support PKCE with S256".into()));
        }
        let is_true = |name: &str| document.get(name) == Some(&Value::Bool(true));
        Ok(AuthorizationServer {
            issuer: issuer.to_owned(),
            authorize: required("authorization_endpoint")?,
            token: required("token_endpoint")?,
            revoke: optional("revocation_endpoint")?,
            register: optional("registration_endpoint")?,
            methods: list(document, "token_endpoint_auth_methods_supported"),
            reads_client_documents: is_true("client_id_metadata_document_supported"),
            names_issuer: is_true("authorization_response_iss_parameter_supported"),
            scopes: scope_words(&list(document, "scopes_supported").join(" ")),
        })
    }

    /// One document; nothing if there is none at this address.
    async fn get(&self, what: &str, url: &str) -> Result<Option<Value>, OauthError> {
        let connection = way_to(self.service, self.reach, Method::GET, (what, url))?;
        let headers = vec![("accept".to_owned(), "application/json".to_owned())];
        let request = EgressRequest { headers, follow: false, ..EgressRequest::get(url) };
        let answer = self.egress.request(&connection, CAPABILITY, self.by.clone(), request).await?;
        match answer.status {
            200 => json(what, &answer).map(Some),
            400..=499 => Ok(None),
            status => Err(OauthError::Metadata(format!("`{what}` is answered with status {status}"))),
        }
    }
}

/// A connection to exactly one address that a server published.
pub(super) fn way_to(
    service: &ServiceName,
    reach: &ServerReach,
    method: Method,
    (what, url): (&str, &str),
) -> Result<EgressConnection, OauthError> {
    let target = reach.check(what, url)?;
    let wrong = |why: String| OauthError::Metadata(format!("`{what}`: {why}"));
    let host = HostPattern::parse(target.host()).map_err(wrong)?;
    let mut way = EgressConnection::new(way_name(service)?, vec![host]);
    way.paths = vec![PathPattern::parse(target.path()).map_err(wrong)?];
    way.ports = vec![target.port()];
    way.methods = vec![method];
    way.plain_http = !target.is_tls();
    way.allow_addresses = reach.allow_addresses.clone();
    way.redirects = 0;
    way.max_answer = LARGEST;
    way.timeout = SOON;
    way.limits = ConnectionLimits { per_minute: Some(60), per_hour: Some(600), burn: None };
    Ok(way)
}

/// The object of an answer.
pub(super) fn json(what: &str, answer: &EgressResponse) -> Result<Value, OauthError> {
    let bad = || OauthError::Metadata(format!("`{what}` is not an unambiguous JSON object"));
    if classify(&answer.body) == JsonTextKind::Repeated {
        return Err(bad());
    }
    let value: Value = serde_json::from_slice(&answer.body).map_err(|_| bad())?;
    if value.is_object() { Ok(value) } else { Err(bad()) }
}

pub(super) fn text<'v>(document: &'v Value, name: &str) -> Option<&'v str> {
    document.get(name).and_then(Value::as_str)
}

fn list(document: &Value, name: &str) -> Vec<String> {
    let items = document.get(name).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

fn protected_server(url: &str, document: &Value) -> Result<ProtectedServer, OauthError> {
    let resource = text(document, "resource").unwrap_or_default();
    // SECURITY: a token for another audience would be worth something there (RFC 9728, 3.3).
    if !is_resource_of(resource, url) {
        return Err(OauthError::Metadata(format!("the metadata is for `{}`, not for this server", short(resource))));
    }
    let issuers = list(document, "authorization_servers");
    if issuers.is_empty() || issuers.len() > SERVERS {
        return Err(OauthError::Metadata("the server names no authorization server, or too many".into()));
    }
    let scopes = scope_words(&list(document, "scopes_supported").join(" "));
    Ok(ProtectedServer { resource: resource.to_owned(), issuers, scopes })
}

/// Whether an identifier stands for the server at this address: the same origin, and its path or one above it.
fn is_resource_of(resource: &str, url: &str) -> bool {
    let (Ok(named), Ok(own)) = (Url::parse(resource), Url::parse(url)) else { return false };
    if named.origin() != own.origin() || !named.username().is_empty() || named.fragment().is_some() {
        return false;
    }
    let (named, own) = (named.path().trim_end_matches('/'), own.path().trim_end_matches('/'));
    own.strip_prefix(named).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where the well-known part stands in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WellKnownPlace {
    Before,
    After,
}

/// The addresses at which metadata of an identifier may be, in the order in which they are tried.
fn well_known(
    identifier: &str,
    names: &[&str],
    place: WellKnownPlace,
    root_too: bool,
) -> Result<Vec<String>, OauthError> {
    let bad = || OauthError::Metadata(format!("`{}` is not a valid address", short(identifier)));
    EgressUrl::parse(identifier).map_err(|_| bad())?;
    let url = Url::parse(identifier).map_err(|_| bad())?;
    let (origin, path) = (url.origin().ascii_serialization(), url.path().trim_end_matches('/'));
    let mut found = Vec::new();
    for name in names {
        found.push(match place {
            WellKnownPlace::Before => format!("{origin}/.well-known/{name}{path}"),
            WellKnownPlace::After => format!("{origin}{path}/.well-known/{name}"),
        });
        if root_too && !path.is_empty() {
            found.push(format!("{origin}/.well-known/{name}"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_where_the_standards_say_and_in_their_order() {
        let places = |url: &str| well_known(url, &["oauth-protected-resource"], WellKnownPlace::Before, true).unwrap();
        assert_eq!(
            places("https://mcp.example/public/mcp"),
            [
                "https://mcp.example/.well-known/oauth-protected-resource/public/mcp",
                "https://mcp.example/.well-known/oauth-protected-resource",
            ]
        );
        assert_eq!(places("https://mcp.example"), ["https://mcp.example/.well-known/oauth-protected-resource"]);
        let names = ["oauth-authorization-server", "openid-configuration"];
        assert_eq!(
            well_known("https://auth.example/tenant1", &names, WellKnownPlace::Before, false).unwrap(),
            [
                "https://auth.example/.well-known/oauth-authorization-server/tenant1",
                "https://auth.example/.well-known/openid-configuration/tenant1",
            ]
        );
        assert_eq!(
            well_known("https://auth.example/tenant1", &names[1..], WellKnownPlace::After, false).unwrap(),
            ["https://auth.example/tenant1/.well-known/openid-configuration"]
        );
        assert!(well_known("ftp://auth.example", &names, WellKnownPlace::Before, false).is_err());
    }

    #[test]
    fn metadata_for_another_server_is_not_for_this_one() {
        let url = "https://mcp.example/public/mcp";
        for own in ["https://mcp.example/public/mcp", "https://mcp.example", "https://mcp.example/public/"] {
            assert!(is_resource_of(own, url), "{own}");
        }
        for other in [
            "https://evil.example/public/mcp",
            "https://mcp.example:8443/public/mcp",
            "http://mcp.example/public/mcp",
            "https://mcp.example/pub",
            "https://mcp.example/public/mcp/deeper",
            "https://mcp.example.evil.example/",
            "https://mcp.example@evil.example/public/mcp",
            "https://mcp.example/#x",
            "",
        ] {
            assert!(!is_resource_of(other, url), "{other}");
        }
    }
}
