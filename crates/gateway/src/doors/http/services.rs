//! Connected services, for operators: connecting, looking after and ending them, and looking into their copies.
//!
//! Promise: a code and a client's secret come in and never go out again; a service is offered only once its own word
//! was heard with the new credential.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::mail::query;
use sluice_core::refusal::Code;
use sluice_core::{ServiceName, Span};
use sluice_store::replica::MOST_HITS;

use super::reply::Reply;
use super::route::Visit;
use super::secrets::{Hidden, value};
use super::views::Page;
use crate::config::Account;
use crate::connections::{Connect, ConnectionView, Connections, Endpoints, Progress, Receipt, Synced};
use crate::oauth::{OauthNo, Provider, Returned, Revoked};
use crate::services::describe;
use crate::vault::NewValue;
use crate::{Gateway, No};

/// Where a service comes from that nobody has connected yet.
const AVAILABLE: &str = "available";

/// How to connect a service.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectBody {
    /// Where the person's browser brings the answer: `http://127.0.0.1:PORT/`.
    pub redirect: String,
    /// The adapter; as configured, or the service's own name, if not given.
    #[serde(default)]
    pub adapter: Option<String>,
    /// As what we are known at the provider; as configured if not given.
    #[serde(default)]
    pub client_id: Option<String>,
    /// The secret that goes with it; the one in the vault if not given.
    #[serde(default)]
    pub client_secret: Option<Hidden>,
}

/// A link for a person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LinkView {
    /// Where they say yes.
    pub link: String,
    /// Which answer belongs to it.
    pub state: String,
    /// Until when it works.
    pub expires_at: String,
    /// How the connection stands.
    pub service: ConnectionView,
}

/// What came back from the browser.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishBody {
    /// Which link it answers.
    pub state: String,
    /// The code.
    pub code: Hidden,
    /// Who says so, if the answer names them (`iss`).
    #[serde(default)]
    pub issuer: Option<String>,
}

/// A token somebody made at the service by hand.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    /// The token. It goes into the vault and is never shown again.
    pub token: Hidden,
}

/// What was granted.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConnectedView {
    /// What the provider calls it.
    pub scopes: Vec<String>,
    /// How the connection stands.
    pub service: ConnectionView,
}

/// What is left of a service that was disconnected.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReceiptView {
    /// What became of the grant: `revoked`, `nothing to revoke` or `not confirmed by the provider`.
    pub grant: String,
    /// When.
    pub at: String,
    /// Everything else.
    #[serde(flatten)]
    pub receipt: Receipt,
}

/// What bringing a copy up to date did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SyncView {
    /// Pages that were read.
    pub pages: u64,
    /// Changes that were taken over.
    pub changes: u64,
    /// Whether the copy was made anew.
    pub made_anew: bool,
    /// Messages that broke each worker that opened them, and were set aside.
    pub set_aside: u64,
    /// Messages that had been set aside and could be opened now.
    pub recovered: u64,
    /// How the connection stands.
    pub service: ConnectionView,
}

/// A message as people find it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FoundView {
    /// The service's id.
    pub message_id: String,
    /// Its thread.
    pub thread_id: String,
    /// When it came.
    pub received_at: String,
    /// From whom; both readings where two readers name different senders.
    pub from: String,
    /// What the receiving server recorded about the sender; left out where it recorded nothing that can be trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<String>,
    /// Its subject; both readings where there are two.
    pub subject: String,
    /// Where the words were found, or how it begins.
    pub snippet: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// Whether it is unread.
    pub unread: bool,
    /// Whether it is kept from agents.
    pub withheld: bool,
    /// Whether two readers read it differently.
    pub ambiguous: bool,
}

/// What a search found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FoundPage {
    /// Messages, the best first.
    pub data: Vec<FoundView>,
    /// Whether there are more.
    pub has_more: bool,
    /// When the copy was last known to be as the service is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced_at: Option<String>,
}

fn no(error: OauthNo) -> No {
    error.refusal().into()
}

fn name(visit: &Visit) -> Result<ServiceName, No> {
    visit.part("name")
}

/// `GET /v1/services`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let data = all(&visit.gw).await?;
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// Every service that is, was or can be connected.
pub(super) async fn all(gw: &Gateway) -> Result<Vec<ConnectionView>, No> {
    let mut list = gw.connections.list(&gw.store).await?;
    for account in &gw.config.services.connections.0 {
        if !list.iter().any(|known| known.name == account.name) {
            list.push(available(gw, account));
        }
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(list)
}

fn available(gw: &Gateway, account: &Account) -> ConnectionView {
    ConnectionView {
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
        progress: None::<Progress>,
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

async fn one(gw: &Gateway, name: &ServiceName) -> Result<ConnectionView, No> {
    let found = all(gw).await?.into_iter().find(|known| known.name == *name);
    found.ok_or_else(|| No::new(Code::ServiceUnknown))
}

/// `GET /v1/services/{name}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &one(&visit.gw, &name(&visit)?).await?))
}

/// `POST /v1/services/{name}/connect`.
pub(super) async fn connect(mut visit: Visit) -> Result<Reply, No> {
    let ConnectBody { redirect, adapter, client_id, client_secret } = visit.take()?;
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    if !crate::oauth::redirect_is_loopback(&redirect) {
        return Err(no(OauthNo::Redirect));
    }
    let configured = gw.config.services.connections.get(&name).cloned();
    let mut account = configured.unwrap_or_else(|| Account::new(name.clone()));
    account.adapter = adapter.unwrap_or(account.adapter);
    account.client_id = client_id.or(account.client_id);
    if account.client_id.is_none() {
        // A connection that is to be signed in to again knows its own.
        account.client_id = gw.connections.endpoints(&name).await.ok().and_then(|before| before.client_id);
    }
    let endpoints = endpoints(&account);
    // Looked at before anything is written down.
    Provider::of(&account.adapter, &endpoints).map_err(no)?;
    let begun = Connect { name: name.clone(), adapter: account.adapter.clone(), endpoints, by: by.clone() };
    let service = gw.connections.begin(begun).await?;
    crate::oauth::take_up(gw, &name).await?;
    if let Some(secret) = client_secret {
        gw.oauth.keep_client_secret(&name, value(secret), by).await.map_err(no)?;
    }
    let link = gw.oauth.begin(&name, &redirect).map_err(no)?;
    gw.events.wrote();
    let expires_at = link.expires_at.to_string();
    Ok(Reply::json(200, &LinkView { link: link.url, state: link.state, expires_at, service }))
}

fn endpoints(account: &Account) -> Endpoints {
    let Account { api, authorize, token, revoke, client_id, scopes, .. } = account.clone();
    Endpoints { api, authorize, token, revoke, client_id, scopes, adapter_print: None }
}

/// `POST /v1/services/{name}/token`.
pub(super) async fn token(mut visit: Visit) -> Result<Reply, No> {
    let TokenBody { token } = visit.take()?;
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    let account = gw.config.services.connections.get(&name).ok_or_else(|| No::new(Code::ServiceUnknown))?;
    let endpoints = Endpoints { client_id: None, ..endpoints(account) };
    let begun = Connect { name: name.clone(), adapter: account.adapter.clone(), endpoints, by: by.clone() };
    let before = gw.connections.begin(begun).await?;
    let works = ["live", "syncing"].contains(&before.state);
    if works {
        // SECURITY: as in `finish`: nobody knows yet whose the new credential is.
        gw.connections.pause(&name, by.clone()).await?;
    }
    let scope = gw.connections.access_scope(&name).await?;
    let (secret, kind) = (Connections::access_secret(&name)?, Some(crate::oauth::ACCESS_KIND.to_owned()));
    let new = NewValue { value: value(token), kind, scope: Some(scope), overlap: Span::ZERO };
    gw.vault.set(&secret, new, by.clone()).await.map_err(|error| No::from(error.refusal()))?;
    let mut service = gw.connections.live(&name, by.clone()).await?;
    if works {
        service = gw.connections.resume(&name, by).await?;
    }
    gw.events.wrote();
    Ok(Reply::json(200, &ConnectedView { scopes: Vec::new(), service }))
}

/// `POST /v1/services/{name}/finish`.
pub(super) async fn finish(mut visit: Visit) -> Result<Reply, No> {
    let FinishBody { state, code, issuer } = visit.take()?;
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    let returned = Returned { state, code: value(code), issuer };
    let works = ["live", "syncing"].contains(&gw.connections.show(&name).await?.state);
    if works {
        // SECURITY: until the service has said whose the new credential is, no job may use it: it could be of another
        // account.
        gw.connections.pause(&name, by.clone()).await?;
    }
    let granted = match gw.oauth.finish(&name, returned, by.clone()).await {
        Ok(granted) => granted,
        Err(failed) => {
            // The credential in the vault is the one before, unless the vault itself failed.
            if works && !matches!(failed, OauthNo::Vault(_)) {
                gw.connections.resume(&name, by).await?;
            }
            return Err(no(failed));
        }
    };
    let mut service = match gw.connections.live(&name, by.clone()).await {
        Ok(service) => service,
        Err(why) => {
            // Nobody knows whose it is: it is given back, and a person begins again.
            gw.oauth.revoke(&name, &by).await.map_err(no)?;
            gw.events.wrote();
            return Err(why);
        }
    };
    if works {
        service = gw.connections.resume(&name, by).await?;
    }
    gw.events.wrote();
    Ok(Reply::json(200, &ConnectedView { scopes: granted.scopes, service }))
}

/// `POST /v1/services/{name}/disconnect`.
pub(super) async fn disconnect(visit: Visit) -> Result<Reply, No> {
    let (gw, name, by) = (&visit.gw, name(&visit)?, visit.actor()?);
    // What a person ends is over before the provider has answered, however long it takes.
    let over = gw.connections.end(&name, &by).await?;
    gw.events.wrote();
    let told = gw.oauth.revoke(&name, &by).await;
    // Whatever that said, what is here goes.
    let receipt = gw.connections.clear(over, &by).await;
    gw.events.wrote();
    let receipt = receipt?;
    let grant = match told {
        Ok(told) => told,
        Err(OauthNo::Unknown) => Revoked::Nothing,
        Err(other) => {
            tracing::warn!(connection = %name, "whether the provider of {name} was told is not known: {other}");
            Revoked::Unheard
        }
    };
    let grant = grant.as_str();
    Ok(Reply::json(200, &ReceiptView { grant: grant.into(), at: gw.now().to_string(), receipt }))
}

/// `POST /v1/services/{name}/sync`.
pub(super) async fn sync(visit: Visit) -> Result<Reply, No> {
    let (gw, name) = (&visit.gw, name(&visit)?);
    // Somebody wants it: what was set aside is tried again, too.
    let synced = match visit.asked::<bool>("afresh")?.unwrap_or(false) {
        true => gw.connections.sync_afresh(&name).await?,
        false => gw.connections.sync_whole(&name).await?,
    };
    let Synced { pages, changes, made_anew, set_aside, recovered } = synced;
    let service = gw.connections.show(&name).await?;
    Ok(Reply::json(200, &SyncView { pages, changes, made_anew, set_aside, recovered, service }))
}

/// `POST /v1/services/{name}/pause`.
pub(super) async fn pause(visit: Visit) -> Result<Reply, No> {
    let view = visit.gw.connections.pause(&name(&visit)?, visit.actor()?).await?;
    visit.gw.events.wrote();
    Ok(Reply::json(200, &view))
}

/// `POST /v1/services/{name}/resume`.
pub(super) async fn resume(visit: Visit) -> Result<Reply, No> {
    let view = visit.gw.connections.resume(&name(&visit)?, visit.actor()?).await?;
    visit.gw.events.wrote();
    Ok(Reply::json(200, &view))
}

/// `POST /v1/services/{name}/test`.
pub(super) async fn test(visit: Visit) -> Result<Reply, No> {
    Ok(Reply::json(200, &visit.gw.connections.test(&name(&visit)?).await?))
}

/// `GET /v1/services/{name}/capabilities`.
pub(super) async fn capabilities(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let (service, known) = (one(gw, &name(&visit)?).await?, gw.catalogue.known());
    let data = service.capabilities.iter().filter_map(|name| known.get(name)).map(describe).collect::<Vec<_>>();
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/services/{name}/messages`.
pub(super) async fn search(visit: Visit) -> Result<Reply, No> {
    let wanted = visit.asked::<String>("q")?.unwrap_or_default();
    let query = query::parse(&wanted).map_err(|why| No::saying(Code::SchemaWrongType, &why.to_string()))?;
    let limit = usize::try_from(visit.limit()?).unwrap_or(MOST_HITS).min(MOST_HITS);
    let found = visit.gw.connections.search(&name(&visit)?, query, limit).await?;
    let data = found.hits.into_iter().map(|hit| FoundView {
        message_id: hit.id,
        thread_id: hit.thread,
        received_at: sluice_core::Timestamp::from_millis(hit.received).to_string(),
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
    Ok(Reply::json(200, &FoundPage { data: data.collect(), has_more: found.more, synced_at }))
}
