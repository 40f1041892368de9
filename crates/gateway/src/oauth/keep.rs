//! Grants for connections: each job gets a token that lasts, and each connection knows who granted it.
//!
//! Promise: a connection nobody granted by a provider is used as it is; one whose grant is refused is refused once.

use sluice_core::ServiceName;
use sluice_core::refusal::Code;

use super::no::OauthNo;
use super::provider::Provider;
use super::{Oauth, Stale, refresh_name};
use crate::connections::{Endpoints, KeepFresh, NotFresh};
use crate::egress::Target;
use crate::services::Work;
use crate::{Gateway, No};

impl KeepFresh for Oauth {
    fn fresh<'a>(&'a self, connection: &'a ServiceName) -> Work<'a, Result<(), NotFresh>> {
        Box::pin(async move {
            if !self.knows(connection) {
                // Somebody put its credential into the vault by hand, and looks after it.
                return if self.has_grant(connection).await { Err(NotFresh::Later) } else { Ok(()) };
            }
            Oauth::fresh(self, connection).await.map_err(NotFresh::from)
        })
    }

    fn refused<'a>(&'a self, connection: &'a ServiceName) -> Work<'a, Result<(), NotFresh>> {
        Box::pin(async move {
            if !self.knows(connection) {
                let later = self.has_grant(connection).await;
                return Err(if later { NotFresh::Later } else { NotFresh::NeedsReauth });
            }
            self.rejected(connection).await;
            Oauth::fresh(self, connection).await.map_err(NotFresh::from)
        })
    }
}

impl Oauth {
    /// Whether a grant is kept that nobody here can renew at present: its provider could not be learnt.
    async fn has_grant(&self, connection: &ServiceName) -> bool {
        match refresh_name(connection) {
            Ok(name) => self.inner.vault.show(&name).await.is_ok_and(|row| row.revoked.is_none()),
            Err(_) => false,
        }
    }
}

impl From<Stale> for NotFresh {
    fn from(stale: Stale) -> Self {
        match stale {
            Stale::NeedsReauth => Self::NeedsReauth,
            Stale::Later => Self::Later,
        }
    }
}

impl Provider {
    /// Who grants access to the service an adapter speaks, as far as its addresses are not given.
    ///
    /// # Errors
    /// When nothing says who that is, or as what we are known there.
    pub fn of(adapter: &str, endpoints: &Endpoints) -> Result<Self, OauthNo> {
        let Endpoints { api, authorize, token, revoke, client_id, scopes, .. } = endpoints.clone();
        let missing = |what: &str| {
            OauthNo::Address(format!("`{what}` of the service is not set under `services.connections` in sluice.yaml"))
        };
        let client_id = client_id.ok_or_else(|| missing("client_id"))?;
        let known = match adapter {
            "gmail" => Some(Self::google(client_id.clone(), "gmail.googleapis.com")),
            _ => None,
        };
        let is_their_own = authorize.is_none();
        let mut provider = match (known, authorize, token) {
            (Some(known), authorize, token) => Self {
                authorize: authorize.unwrap_or(known.authorize),
                token: token.unwrap_or(known.token),
                issuer: known.issuer.filter(|_| is_their_own),
                revoke: revoke.or(known.revoke.filter(|_| is_their_own)),
                ..known
            },
            (None, Some(authorize), Some(token)) => {
                let (capabilities, api_hosts) = (Vec::new(), Vec::new());
                Self { authorize, token, revoke, issuer: None, client_id, scopes: Vec::new(), capabilities, api_hosts }
            }
            (None, None, _) => return Err(missing("authorize")),
            (None, Some(_), None) => return Err(missing("token")),
        };
        if !scopes.is_empty() {
            provider.scopes = scopes;
        }
        if let Some(api) = api {
            let host = Target::parse(&api).map_err(|why| OauthNo::Address(format!("api: {why}")))?;
            provider.api_hosts = vec![host.host().to_owned()];
        }
        Ok(provider)
    }
}

/// Learns who grants access to a connection, as it was begun. One without a client is nobody's to grant.
///
/// # Errors
/// When there is no such connection, or its addresses cannot be used.
pub(crate) async fn take_up(gw: &Gateway, name: &ServiceName) -> Result<(), No> {
    let endpoints = gw.connections.endpoints(name).await?;
    if endpoints.client_id.is_none() {
        return Ok(());
    }
    let adapter = gw.connections.show(name).await?.adapter;
    let mut provider = Provider::of(&adapter, &endpoints).map_err(OauthNo::refusal)?;
    // The adapter knows best; where it cannot be asked, what is known about it has to do.
    match gw.connections.access_scope(name).await {
        Ok(scope) => (provider.capabilities, provider.api_hosts) = (scope.capabilities, scope.hosts),
        Err(_) if !provider.capabilities.is_empty() && !provider.api_hosts.is_empty() => {}
        Err(no) => return Err(no),
    }
    gw.oauth.configure(name.clone(), provider).map_err(OauthNo::refusal)?;
    Ok(())
}

/// Learns who grants access to every connection there is. One that cannot be used is named; the others go on.
pub(crate) async fn take_up_all(gw: &Gateway) {
    let names = match gw.store.connections().await {
        Ok(rows) => rows.into_iter().filter(|row| row.state.answers()).map(|row| row.name),
        Err(error) => return tracing::error!(code = error.code(), "connections cannot be read: {error}"),
    };
    for name in names {
        match take_up(gw, &name).await {
            Ok(()) => {}
            Err(no) if no.refusal.code() == Code::StoreNotFound => {}
            Err(no) => tracing::error!(connection = %name, "nobody renews the access to {name}: {}", no.refusal),
        }
    }
}
