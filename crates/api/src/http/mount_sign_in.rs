//! Signing in to mounted servers, for operators; and the document that describes the gateway as a client.
//!
//! Promise: a code and a client secret are accepted and never returned, and no token is ever shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::refusal::Code;
use sluice_egress::oauth::{OauthCallback, client_document, scope_words};
use sluice_gateway::Gateway;
use sluice_services::CallError;
use sluice_services::mounts::{self, MountService, MountSignInLink, MountSignInNeed, MountSignInParams, sign_in};
use sluice_store::MountGrant;

use super::mounts::{MountView, known, shown};
use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::secrets::{SecretInput, value};

/// How to sign in to a mounted server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectMountBody {
    /// The address to which the person's browser returns: `http://127.0.0.1:PORT/`.
    pub redirect: String,
    /// The client id of the gateway at the authorization server, in place of any other.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The client secret; it is stored in the vault.
    #[serde(default)]
    pub client_secret: Option<SecretInput>,
    /// The authorization server that the person accepts, as the server names it.
    #[serde(default)]
    pub issuer: Option<String>,
    /// Scopes to ask for in addition to those that the server names.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// A link for a person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountLinkView {
    /// The address at which the person grants access.
    pub link: String,
    /// The value that identifies the answer to this link.
    pub state: String,
    /// When the link expires.
    pub expires_at: String,
    /// The authorization server.
    pub issuer: String,
    /// How the gateway is known there: `document`, `registered` or `dynamic`.
    pub client: String,
    /// The scopes that are asked for.
    pub scopes: Vec<String>,
}

/// The answer that the browser brought back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishMountBody {
    /// The state of the link.
    pub state: String,
    /// The code.
    pub code: SecretInput,
    /// The issuer, if the authorization server named itself.
    #[serde(default)]
    pub issuer: Option<String>,
}

/// The access to a server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountSignInView {
    /// `connected`, `needed` (a person has to sign in), or `more_access` (a person has to grant more).
    pub state: String,
    /// The authorization server of the grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// How the gateway is known there: `document`, `registered` or `dynamic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The scopes that were granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The scopes that the server asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<String>,
    /// Who granted the access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_by: Option<String>,
    /// When it was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_at: Option<String>,
    /// When it ends, if it cannot be renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
}

/// The result of giving up the access to a server.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MountDisconnectView {
    /// What the authorization server said: `revoked`, `nothing to revoke` or `not confirmed by the provider`.
    pub grant: String,
}

/// The access to a server; nothing if it wants none and has none.
pub(super) async fn view(gw: &Gateway, service: &MountService) -> Result<Option<MountSignInView>, CallError> {
    let (grant, need) = (gw.store.mount_grant(&service.mount().name).await?, service.sign_in_need());
    let state = match (&grant, &need) {
        (_, Some(MountSignInNeed::SignIn(_))) => "needed",
        (_, Some(MountSignInNeed::MoreAccess(_))) => "more_access",
        (Some(_), None) => "connected",
        (None, None) => return Ok(None),
    };
    let wanted = need.as_ref().map(|need| need.challenge().scopes.clone()).unwrap_or_default();
    let empty = MountSignInView {
        state: state.into(),
        issuer: None,
        client: None,
        scopes: Vec::new(),
        wanted,
        granted_by: None,
        granted_at: None,
        ends_at: None,
    };
    let Some(MountGrant { issuer, client_origin, granted, by, at, ends_at, .. }) = grant else {
        return Ok(Some(empty));
    };
    Ok(Some(MountSignInView {
        issuer: Some(issuer),
        client: Some(client_origin),
        scopes: granted,
        granted_by: Some(by),
        granted_at: Some(at.to_string()),
        ends_at: ends_at.map(|at| at.to_string()),
        ..empty
    }))
}

/// `POST /v1/mounts/{name}/connect`.
pub(super) async fn connect(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ConnectMountBody { redirect, client_id, client_secret, issuer, scopes } = visit.parse_body()?;
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    let fits = |id: &String| !id.is_empty() && id.len() <= 2048 && id.bytes().all(|b| b.is_ascii_graphic());
    if !client_id.iter().all(fits) || scope_words(&scopes.join(" ")).len() != scopes.len() {
        let text = "`client_id` and `scopes` are words of printable characters";
        return Err(CallError::with_text(Code::SchemaWrongType, text));
    }
    let params = MountSignInParams { client_id, client_secret: client_secret.map(value), issuer, scopes };
    let MountSignInLink { link, state, expires_at, issuer, client, scopes } =
        sign_in::begin(&visit.gw, &service, (params, &redirect), visit.actor()?).await?;
    let (expires_at, client) = (expires_at.to_string(), client.as_str().to_owned());
    Ok(HttpReply::json(200, &MountLinkView { link, state, expires_at, issuer, client, scopes }))
}

/// `POST /v1/mounts/{name}/finish`.
pub(super) async fn finish(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let FinishMountBody { state, code, issuer } = visit.parse_body()?;
    let service = known(&visit.gw, &visit.path_param::<String>("name")?)?;
    let returned = OauthCallback { state, code: value(code), issuer };
    sign_in::finish(&visit.gw, &service, returned, visit.actor()?).await?;
    mounts::look_again(&service).await;
    let view: MountView = shown(&visit.gw, &service).await?;
    Ok(HttpReply::json(200, &view))
}

/// `POST /v1/mounts/{name}/disconnect`.
pub(super) async fn disconnect(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let told = sign_in::end(&visit.gw, &visit.path_param::<String>("name")?, visit.actor()?).await?;
    Ok(HttpReply::json(200, &MountDisconnectView { grant: told.as_str().into() }))
}

/// `GET /oauth/client.json`.
pub(super) async fn document(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let missing = || CallError::with_text(Code::StoreNotFound, "`oauth.client_document` is not set in sluice.yaml");
    let url = visit.gw.config.oauth.client_document.as_ref().ok_or_else(missing)?;
    Ok(HttpReply::json(200, &client_document(url.as_str())))
}
