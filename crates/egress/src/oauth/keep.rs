//! Grants for connections: keeps each job's token fresh and knows the provider of each connection.
//!
//! Promise: a connection without a provider is used as it is; one whose grant is refused is refused once.

use sluice_config::network::EgressUrl;
use sluice_core::{BoxedFuture, ServiceName};

use super::error::OauthError;
use super::provider::OauthProvider;
use super::refresh::{CredentialRefreshError, CredentialRefresher, ServiceEndpoints};
use super::terms::GrantTerms;
use super::{FreshTokenError, OauthGrants, refresh_name};

impl CredentialRefresher for OauthGrants {
    fn refresh<'a>(&'a self, connection: &'a ServiceName) -> BoxedFuture<'a, Result<(), CredentialRefreshError>> {
        Box::pin(async move {
            if !self.knows(connection) {
                // Its credential was put into the vault by hand, and a person maintains it.
                return if self.has_grant(connection).await { Err(CredentialRefreshError::Later) } else { Ok(()) };
            }
            OauthGrants::ensure_fresh(self, connection).await.map_err(CredentialRefreshError::from)
        })
    }

    fn replace_refused<'a>(
        &'a self,
        connection: &'a ServiceName,
    ) -> BoxedFuture<'a, Result<(), CredentialRefreshError>> {
        Box::pin(async move {
            if !self.knows(connection) {
                let later = self.has_grant(connection).await;
                return Err(if later { CredentialRefreshError::Later } else { CredentialRefreshError::NeedsReauth });
            }
            self.mark_rejected(connection).await;
            OauthGrants::ensure_fresh(self, connection).await.map_err(CredentialRefreshError::from)
        })
    }
}

impl OauthGrants {
    /// Whether there is a grant that cannot be renewed at present, because its provider is not known yet.
    async fn has_grant(&self, connection: &ServiceName) -> bool {
        match refresh_name(connection) {
            Ok(name) => self.inner.vault.show(&name).await.is_ok_and(|row| row.revoked.is_none()),
            Err(_) => false,
        }
    }
}

impl From<FreshTokenError> for CredentialRefreshError {
    fn from(stale: FreshTokenError) -> Self {
        match stale {
            FreshTokenError::NeedsReauth => Self::NeedsReauth,
            FreshTokenError::Later => Self::Later,
        }
    }
}

impl OauthProvider {
    /// The provider of the service that an adapter connects to, with defaults for addresses that are not given.
    ///
    /// # Errors
    /// When the provider or the client id is not known.
    pub fn of(adapter: &str, endpoints: &ServiceEndpoints) -> Result<Self, OauthError> {
        let ServiceEndpoints { api, authorize, token, revoke, client_id, scopes, .. } = endpoints.clone();
        let missing = |what: &str| {
            OauthError::Address(format!(
                "`{what}` of the service is not set under `services.connections` in sluice.yaml"
            ))
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
                let (capabilities, api_hosts, terms) = (Vec::new(), Vec::new(), GrantTerms::Account);
                let (issuer, scopes) = (None, Vec::new());
                Self { authorize, token, revoke, issuer, client_id, scopes, capabilities, api_hosts, terms }
            }
            (None, None, _) => return Err(missing("authorize")),
            (None, Some(_), None) => return Err(missing("token")),
        };
        if !scopes.is_empty() {
            provider.scopes = scopes;
        }
        if let Some(api) = api {
            let host = EgressUrl::parse(&api).map_err(|why| OauthError::Address(format!("api: {why}")))?;
            provider.api_hosts = vec![host.host().to_owned()];
        }
        Ok(provider)
    }
}
