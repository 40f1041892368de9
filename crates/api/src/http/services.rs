//! Connected services, for operators: connecting, maintaining and disconnecting them, and searching their replicas.
//!
//! Promise: a code and a client secret are accepted and never returned; a service is offered only after it has answered
//! with the new credential.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_config::ConnectableService;
use sluice_core::mail::query;
use sluice_core::refusal::Code;
use sluice_core::{Millis, ServiceName};
use sluice_egress::oauth::{GrantRevocation, OauthCallback, OauthError, OauthProvider, ServiceEndpoints};
use sluice_egress::vault::NewSecretValue;
use sluice_gateway::Gateway;
use sluice_services::connections::{
    ConnectServiceParams, DisconnectReceiptView, ServiceConnectionView, ServiceConnections, SyncProgressView,
    SyncSummary,
};
use sluice_services::{CallError, describe};
use sluice_store::replica::MOST_HITS;

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::secrets::{SecretInput, value};
use super::views::ListPage;

/// The state of a service that nobody has connected yet.
const AVAILABLE: &str = "available";

/// How to connect a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectServiceBody {
    /// The address to which the person's browser returns: `http://127.0.0.1:PORT/`.
    pub redirect: String,
    /// The adapter; by default as configured, or the service's own name.
    #[serde(default)]
    pub adapter: Option<String>,
    /// The client id of the gateway at the provider; by default as configured.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The client secret; by default the one in the vault.
    #[serde(default)]
    pub client_secret: Option<SecretInput>,
}

/// A link for a person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConsentLinkView {
    /// The address at which the person grants access.
    pub link: String,
    /// The value that identifies the answer to this link.
    pub state: String,
    /// When the link expires.
    pub expires_at: String,
    /// The state of the connection.
    pub service: ServiceConnectionView,
}

/// The answer that the browser brought back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishConnectBody {
    /// The `state` of the link that it answers.
    pub state: String,
    /// The authorization code.
    pub code: SecretInput,
    /// The issuer, if the answer names it (`iss`).
    #[serde(default)]
    pub issuer: Option<String>,
}

/// A token that a person created at the service by hand.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceTokenBody {
    /// The token. It goes into the vault and is never shown again.
    pub token: SecretInput,
}

/// What was granted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConnectedServiceView {
    /// The scopes, as the provider names them.
    pub scopes: Vec<String>,
    /// The state of the connection.
    pub service: ServiceConnectionView,
}

/// What is left of a service after it was disconnected.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DisconnectedServiceView {
    /// What happened to the grant: `revoked`, `nothing to revoke` or `not confirmed by the provider`.
    pub grant: String,
    /// When the service was disconnected.
    pub at: String,
    /// The receipt for everything else.
    #[serde(flatten)]
    pub receipt: DisconnectReceiptView,
}

/// The result of updating a replica.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReplicaSyncView {
    /// Pages that were read.
    pub pages: u64,
    /// Changes that were applied.
    pub changes: u64,
    /// Whether the replica was built anew.
    pub made_anew: bool,
    /// Messages that crashed every worker that opened them, and were set aside.
    pub set_aside: u64,
    /// Messages that had been set aside and could now be opened.
    pub recovered: u64,
    /// The state of the connection.
    pub service: ServiceConnectionView,
}

/// A message as people find it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FoundMessageView {
    /// The service's id of the message.
    pub message_id: String,
    /// The id of its thread.
    pub thread_id: String,
    /// When it arrived.
    pub received_at: String,
    /// The sender; both readings if two parsers name different senders.
    pub from: String,
    /// What the receiving server recorded about the sender; absent if it recorded nothing that can be trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<String>,
    /// The subject; both readings if there are two.
    pub subject: String,
    /// The text around the match, or the start of the message.
    pub snippet: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// Whether it is unread.
    pub unread: bool,
    /// Whether it is withheld from agents.
    pub withheld: bool,
    /// Whether two parsers read it differently.
    pub ambiguous: bool,
}

/// The result of a search.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MessageSearchPage {
    /// Messages, the best first.
    pub data: Vec<FoundMessageView>,
    /// Whether there are more.
    pub has_more: bool,
    /// When the replica was last known to match the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<String>,
}

fn no(error: OauthError) -> CallError {
    error.refusal().into()
}

fn name(visit: &RoutedRequest) -> Result<ServiceName, CallError> {
    visit.path_param("name")
}

/// `GET /v1/services`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let data = all(&visit.gw).await?;
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// Every service that is, was or can be connected.
pub(super) async fn all(gw: &Gateway) -> Result<Vec<ServiceConnectionView>, CallError> {
    let mut list = gw.connections.list(&gw.store).await?;
    for account in &gw.config.services.connections.0 {
        if !list.iter().any(|known| known.name == account.name) {
            list.push(available(gw, account));
        }
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(list)
}

fn available(gw: &Gateway, account: &ConnectableService) -> ServiceConnectionView {
    ServiceConnectionView {
        name: account.name.clone(),
        adapter: account.adapter.clone(),
        service: account.name.clone(),
        account: None,
        state: AVAILABLE,
        reason: None,
        since: gw.now().to_string(),
        endpoint: account.api.clone(),
        messages: None,
        encrypted: None,
        complete: false,
        synced_at: None,
        age_s: None,
        progress: None::<SyncProgressView>,
        pending: 0,
        retrying: 0,
        next_retry: None,
        in_doubt: 0,
        set_aside: 0,
        dead: 0,
        error: None,
        capabilities: Vec::new(),
    }
}

async fn one(gw: &Gateway, name: &ServiceName) -> Result<ServiceConnectionView, CallError> {
    let found = all(gw).await?.into_iter().find(|known| known.name == *name);
    found.ok_or_else(|| CallError::new(Code::ServiceUnknown))
}

/// `GET /v1/services/{name}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &one(&visit.gw, &name(&visit)?).await?))
}

/// `POST /v1/services/{name}/connect`.
pub(super) async fn connect(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ConnectServiceBody { redirect, adapter, client_id, client_secret } = visit.parse_body()?;
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    if !sluice_egress::oauth::redirect_is_loopback(&redirect) {
        return Err(no(OauthError::Redirect));
    }
    let configured = gw.config.services.connections.get(&name).cloned();
    let mut account = configured.unwrap_or_else(|| ConnectableService::new(name.clone()));
    account.adapter = adapter.unwrap_or(account.adapter);
    account.client_id = client_id.or(account.client_id);
    if account.client_id.is_none() {
        // A connection that is signed in to again has its own client id.
        account.client_id = gw.connections.endpoints(&name).await.ok().and_then(|before| before.client_id);
    }
    let endpoints = endpoints(&account);
    // Checked before anything is stored.
    OauthProvider::of(&account.adapter, &endpoints).map_err(no)?;
    let begun =
        ConnectServiceParams { name: name.clone(), adapter: account.adapter.clone(), endpoints, by: by.clone() };
    let service = gw.connections.begin(begun).await?;
    sluice_services::connections::grants::take_up(gw, &name).await?;
    if let Some(secret) = client_secret {
        gw.oauth.keep_client_secret(&name, value(secret), by).await.map_err(no)?;
    }
    let link = gw.oauth.begin(&name, &redirect).map_err(no)?;
    gw.signals.events.notify_written();
    let expires_at = link.expires_at.to_string();
    Ok(HttpReply::json(200, &ConsentLinkView { link: link.url, state: link.state, expires_at, service }))
}

fn endpoints(account: &ConnectableService) -> ServiceEndpoints {
    let ConnectableService { api, authorize, token, revoke, client_id, scopes, .. } = account.clone();
    ServiceEndpoints { api, authorize, token, revoke, client_id, scopes, adapter_print: None }
}

/// `POST /v1/services/{name}/token`.
pub(super) async fn token(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let ServiceTokenBody { token } = visit.parse_body()?;
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    let account = gw.config.services.connections.get(&name).ok_or_else(|| CallError::new(Code::ServiceUnknown))?;
    let endpoints = ServiceEndpoints { client_id: None, ..endpoints(account) };
    let begun =
        ConnectServiceParams { name: name.clone(), adapter: account.adapter.clone(), endpoints, by: by.clone() };
    let before = gw.connections.begin(begun).await?;
    let works = ["live", "syncing"].contains(&before.state);
    if works {
        // SECURITY: as in `finish`: it is not known yet which account the new credential belongs to.
        gw.connections.pause(&name, by.clone()).await?;
    }
    let scope = gw.connections.access_scope(&name).await?;
    let (secret, kind) =
        (ServiceConnections::access_secret(&name)?, Some(sluice_egress::oauth::ACCESS_KIND.to_owned()));
    let new = NewSecretValue { value: value(token), kind, scope: Some(scope), overlap: Millis::ZERO };
    gw.vault.set(&secret, new, by.clone()).await.map_err(|error| CallError::from(error.refusal()))?;
    let mut service = gw.connections.go_live(&name, by.clone()).await?;
    if works {
        service = gw.connections.resume(&name, by).await?;
    }
    gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &ConnectedServiceView { scopes: Vec::new(), service }))
}

/// `POST /v1/services/{name}/finish`.
pub(super) async fn finish(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let FinishConnectBody { state, code, issuer } = visit.parse_body()?;
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    let returned = OauthCallback { state, code: value(code), issuer };
    let works = ["live", "syncing"].contains(&gw.connections.show(&name).await?.state);
    if works {
        // SECURITY: until the service has named the account of the new credential, no job may use it: it could belong
        // to another account.
        gw.connections.pause(&name, by.clone()).await?;
    }
    let granted = match gw.oauth.finish(&name, returned, by.clone()).await {
        Ok(granted) => granted,
        Err(failed) => {
            // The vault still holds the earlier credential, unless the vault itself failed.
            if works && !matches!(failed, OauthError::Vault(_)) {
                gw.connections.resume(&name, by).await?;
            }
            return Err(no(failed));
        }
    };
    let mut service = match gw.connections.go_live(&name, by.clone()).await {
        Ok(service) => service,
        Err(why) => {
            // It is not known whose credential it is: it is revoked, and a person starts again.
            gw.oauth.revoke(&name, &by).await.map_err(no)?;
            gw.signals.events.notify_written();
            return Err(why);
        }
    };
    if works {
        service = gw.connections.resume(&name, by).await?;
    }
    gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &ConnectedServiceView { scopes: granted.scopes, service }))
}

/// `POST /v1/services/{name}/disconnect`.
pub(super) async fn disconnect(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    // The connection is over before the provider has answered, however long the provider takes.
    let over = gw.connections.end(&name, &by).await?;
    gw.signals.events.notify_written();
    let told = gw.oauth.revoke(&name, &by).await;
    // Whatever the provider answered, the local data is removed.
    let receipt = gw.connections.destroy_ended(over, &by).await;
    gw.signals.events.notify_written();
    let receipt = receipt?;
    let grant = match told {
        Ok(told) => told,
        Err(OauthError::Unknown) => GrantRevocation::Nothing,
        Err(other) => {
            tracing::warn!(connection = %name, "it is not known whether the provider of {name} revoked the grant: \
                                                {other}");
            GrantRevocation::Unheard
        }
    };
    let grant = grant.as_str();
    Ok(HttpReply::json(200, &DisconnectedServiceView { grant: grant.into(), at: gw.now().to_string(), receipt }))
}

/// `POST /v1/services/{name}/sync`.
pub(super) async fn sync(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let (gw, name) = (&visit.gw, name(&visit)?);
    // A person requested this, so messages that were set aside are tried again, too.
    let synced = match visit.query_param::<bool>("afresh")?.unwrap_or(false) {
        true => gw.connections.sync_afresh(&name).await?,
        false => gw.connections.sync_whole(&name).await?,
    };
    let SyncSummary { pages, changes, made_anew, set_aside, recovered } = synced;
    let service = gw.connections.show(&name).await?;
    Ok(HttpReply::json(200, &ReplicaSyncView { pages, changes, made_anew, set_aside, recovered, service }))
}

/// `POST /v1/services/{name}/pause`.
pub(super) async fn pause(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let view = visit.gw.connections.pause(&name(&visit)?, visit.actor()?).await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &view))
}

/// `POST /v1/services/{name}/resume`.
pub(super) async fn resume(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let view = visit.gw.connections.resume(&name(&visit)?, visit.actor()?).await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &view))
}

/// `POST /v1/services/{name}/test`.
pub(super) async fn test(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    Ok(HttpReply::json(200, &visit.gw.connections.test(&name(&visit)?).await?))
}

/// `GET /v1/services/{name}/capabilities`.
pub(super) async fn capabilities(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let (service, known) = (one(gw, &name(&visit)?).await?, gw.catalogue.known());
    let data = service.capabilities.iter().filter_map(|name| known.get(name)).map(describe).collect::<Vec<_>>();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/services/{name}/messages`.
pub(super) async fn search(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let wanted = visit.query_param::<String>("q")?.unwrap_or_default();
    let query = query::parse(&wanted).map_err(|why| CallError::with_text(Code::SchemaWrongType, &why.to_string()))?;
    let limit = usize::try_from(visit.limit()?).unwrap_or(MOST_HITS).min(MOST_HITS);
    let found = visit.gw.connections.search(&name(&visit)?, query, limit).await?;
    let data = found.hits.into_iter().map(|hit| FoundMessageView {
        message_id: hit.id,
        thread_id: hit.thread,
        received_at: sluice_core::UtcMillis::from_millis(hit.received).to_string(),
        from: hit.sender,
        authentication: hit.authentication.map(|said| said.to_string()),
        subject: hit.subject,
        snippet: hit.snippet,
        labels: hit.labels,
        unread: hit.unread,
        withheld: hit.withheld,
        ambiguous: hit.ambiguous,
    });
    let synced_at = found.freshness.synced_at.map(|at| at.to_string());
    Ok(HttpReply::json(200, &MessageSearchPage { data: data.collect(), has_more: found.more, synced_at }))
}
