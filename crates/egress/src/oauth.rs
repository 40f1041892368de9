//! OAuth 2: a person grants the gateway access to an account; the gateway keeps the grant and can revoke it.
//!
//! Takes the addresses of a provider and the client id; gives a link for the person, keeps the tokens in the vault,
//! renews them before they expire, and revokes them. The addresses are configured, or discovered from the server that
//! the access is for. Only the authorization code flow with PKCE (S256) and a loopback
//! redirect. Promise: a link works once, for ten minutes, with its own state and verifier; a token is only in the vault
//! or on its way to the provider, and in no log, error or answer; if many callers need a fresh token at once, one of
//! them requests it; a request that the provider refuses is made once and then left to a person.

mod challenge;
mod discovery;
mod error;
mod exchanges;
mod keep;
mod pending;
mod provider;
mod refresh;
mod registration;
mod terms;
mod token;
mod token_state;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::{Actor, Clock, Entropy, GatewayDeps, Millis, ServiceName, UtcMillis};
use sluice_store::Store;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::task::JoinSet;

use crate::Egress;
use crate::vault::{SecretUse, SecretValue, Vault, VaultError};

pub use challenge::{BearerChallenge, scope_words};
pub use discovery::{AuthorizationServer, ProtectedServer, ServerDiscovery};
pub use error::{OauthError, OauthErrorCode};
pub use pending::AuthorizationLink;
pub use provider::{OFFLINE, OauthProvider, redirect_is_loopback};
pub use refresh::{CredentialRefreshError, CredentialRefresher, ServiceEndpoints};
pub use registration::{RegisteredClient, authentication, client_document, register};
pub use terms::{ClientAuthentication, ClientOrigin, GrantTerms, ServerGrantTerms, ServerReach};

use pending::AuthorizationTable;
use token::TokenEndpointOutcome;
use token_state::{TokenStanding, TokenState};

/// The name under which the vault records the use of a refresh token.
pub const CAPABILITY: &str = "oauth.token";
/// The kind of a token that is renewed regularly: a renewal ends no job that holds the previous token.
pub const ACCESS_KIND: &str = "access_token";
/// How long the leak scan still looks for a replaced access token.
const OVERLAP: Millis = Millis::from_hours(1);

/// The answer of the provider, as the person's browser returned it.
#[allow(missing_debug_implementations, reason = "it holds a code")]
pub struct OauthCallback {
    /// The state of the link that it answers.
    pub state: String,
    /// The authorization code.
    pub code: SecretValue,
    /// The issuer, if the provider names itself.
    pub issuer: Option<String>,
}

/// The result of a granted access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedScopes {
    /// The scopes, as the provider names them.
    pub scopes: Vec<String>,
}

/// A grant that was given a moment ago.
#[derive(Debug, Clone)]
pub struct FinishedGrant {
    /// The provider that gave it.
    pub provider: Arc<OauthProvider>,
    /// The scopes, as the provider names them.
    pub scopes: Vec<String>,
    /// How long it can be used without a person, if it cannot be renewed.
    pub ends_after: Option<Millis>,
}

/// The result of revoking a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantRevocation {
    /// The provider has revoked it.
    Taken,
    /// There was nothing to revoke.
    Nothing,
    /// The provider could not be reached or did not confirm; the gateway's tokens are destroyed anyway.
    Unheard,
}

impl GrantRevocation {
    /// The result as text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "revoked",
            Self::Nothing => "nothing to revoke",
            Self::Unheard => "not confirmed by the provider",
        }
    }
}

/// Why there is no fresh token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreshTokenError {
    /// A person has to connect again.
    NeedsReauth,
    /// The provider cannot be reached at present.
    Later,
}

/// All grants of one gateway.
pub struct OauthGrants {
    inner: Arc<OauthGrantsInner>,
    /// Renewals in progress: a caller that gives up does not interrupt one between the provider's answer and the vault.
    running: Mutex<JoinSet<()>>,
}

struct OauthGrantsInner {
    vault: Arc<Vault>,
    egress: Arc<Egress>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    providers: RwLock<HashMap<ServiceName, Arc<OauthProvider>>>,
    pending: Mutex<AuthorizationTable>,
    lived: Mutex<HashMap<ServiceName, Arc<tokio::sync::Mutex<TokenState>>>>,
}

impl std::fmt::Debug for OauthGrants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Oauth")
    }
}

impl OauthGrants {
    /// All grants, kept in this vault and renewed through this egress.
    #[must_use]
    pub fn new(store: Arc<Store>, vault: Arc<Vault>, egress: Arc<Egress>, world: &GatewayDeps) -> Self {
        let inner = OauthGrantsInner {
            vault,
            egress,
            store,
            clock: Arc::clone(&world.clock),
            entropy: Arc::clone(&world.entropy),
            providers: RwLock::default(),
            pending: Mutex::default(),
            lived: Mutex::default(),
        };
        Self { inner: Arc::new(inner), running: Mutex::default() }
    }

    /// Sets the provider of a service, and opens the connection to it.
    ///
    /// # Errors
    /// When an address of the provider is not valid.
    pub fn configure(&self, service: ServiceName, provider: OauthProvider) -> Result<(), OauthError> {
        self.inner.egress.open(provider.way_out(&service)?);
        let mut all = self.inner.providers.write();
        all.insert(service, Arc::new(provider));
        Ok(())
    }

    /// Whether a provider grants access to this service.
    #[must_use]
    pub fn knows(&self, service: &ServiceName) -> bool {
        self.inner.provider(service).is_ok()
    }

    /// Makes a link for a person, which works once and for a short time.
    ///
    /// # Errors
    /// When the service has no provider, or the redirect does not lead to the person's own machine.
    pub fn begin(&self, service: &ServiceName, redirect: &str) -> Result<AuthorizationLink, OauthError> {
        let provider = self.inner.provider(service)?;
        self.link(service, (provider, None), redirect)
    }

    /// Makes such a link for a provider that is set only when the person has granted access. The secret of a client that
    /// was registered for it is kept from then on, too.
    ///
    /// # Errors
    /// As [`OauthGrants::begin`], and when an address of the provider is not valid.
    pub fn begin_with(
        &self,
        service: &ServiceName,
        (provider, client): (OauthProvider, Option<SecretValue>),
        redirect: &str,
    ) -> Result<AuthorizationLink, OauthError> {
        provider.way_out(service)?;
        self.link(service, (Arc::new(provider), client), redirect)
    }

    fn link(
        &self,
        service: &ServiceName,
        client: (Arc<OauthProvider>, Option<SecretValue>),
        redirect: &str,
    ) -> Result<AuthorizationLink, OauthError> {
        if !redirect_is_loopback(redirect) {
            return Err(OauthError::Redirect);
        }
        let now = self.inner.clock.now();
        let mut pending = self.inner.pending.lock();
        pending.begin(service, client, redirect, (self.inner.entropy.as_ref(), now))
    }

    /// Exchanges the code from the browser for tokens, and keeps them.
    ///
    /// # Errors
    /// When it answers no open link, the provider refuses it, or not all required scopes were granted.
    pub async fn finish(
        &self,
        service: &ServiceName,
        returned: OauthCallback,
        by: Actor,
    ) -> Result<GrantedScopes, OauthError> {
        let finished = self.finish_link(service, returned, by).await?;
        Ok(GrantedScopes { scopes: finished.scopes })
    }

    /// The same, with what is known about the grant.
    ///
    /// # Errors
    /// As [`OauthGrants::finish`].
    pub async fn finish_link(
        &self,
        service: &ServiceName,
        returned: OauthCallback,
        by: Actor,
    ) -> Result<FinishedGrant, OauthError> {
        let inner = &self.inner;
        let begun = {
            let mut pending = inner.pending.lock();
            pending.take(service, &returned.state, inner.clock.now()).ok_or(OauthError::State)?
        };
        let provider = Arc::clone(&begun.provider);
        // SECURITY: a code from another provider must not be redeemed at this one (RFC 9207). The names are compared as
        // they are written: two spellings of one address can be two providers.
        match (&provider.issuer, &returned.issuer) {
            (Some(wanted), Some(said)) if wanted != said => return Err(OauthError::Issuer),
            (Some(_), None) if provider.terms.server().is_some_and(|terms| terms.names_issuer) => {
                return Err(OauthError::Issuer);
            }
            _ => {}
        }
        let mut lived = inner.lived(service).lock_owned().await;
        let stored = if begun.client.is_some() { None } else { inner.client_secret(service, &provider, &by).await? };
        let client = begun.client.as_ref().or(stored.as_ref());
        let form = token::redeem(&provider, &begun, &returned.code, client);
        let granted = match inner.ask(service, &provider, &form, client).await? {
            TokenEndpointOutcome::Granted(granted) => granted,
            TokenEndpointOutcome::Denied(denied) => return Err(OauthError::Refused(denied)),
            TokenEndpointOutcome::Nothing => return Err(OauthError::Garbled),
        };
        if provider.terms.server().is_none() {
            inner.check_account(service, &provider, &granted, &by).await?;
        } else {
            // Nothing of an earlier grant is mixed with this one.
            inner.renew_client(service, (&provider, begun.client), &by).await?;
        }
        inner.keep(service, &provider, &granted, &by).await?;
        let ends_after = granted.refresh.is_none().then(|| granted.usable());
        lived.mark_renewed(inner.clock.now(), granted.usable());
        self.configure(service.clone(), OauthProvider::clone(&provider))?;
        let scopes = match (&granted.scope, &provider.terms) {
            (None, _) => provider.scopes.clone(),
            (Some(scope), GrantTerms::Account) => provider::words(scope),
            (Some(scope), GrantTerms::Server(_)) => scope_words(scope),
        };
        Ok(FinishedGrant { provider, scopes, ends_after })
    }

    /// Notes when a grant that cannot be renewed ends, after a restart.
    pub async fn note_end(&self, service: &ServiceName, ends_at: UtcMillis) {
        let now = self.inner.clock.now();
        let left = Millis::from_millis(ends_at.as_millis().saturating_sub(now.as_millis()).try_into().unwrap_or(0));
        self.inner.lived(service).lock_owned().await.mark_renewed(now, left);
    }

    /// Removes the provider of a service, so that its grant is neither used nor renewed here.
    pub fn forget(&self, service: &ServiceName) {
        self.inner.providers.write().remove(service);
        self.inner.pending.lock().forget(service);
        way_name(service).iter().for_each(|way| self.inner.egress.close(way));
    }

    /// Makes sure that the access token in the vault is valid for some time.
    ///
    /// # Errors
    /// When a person has to connect again, or the provider cannot be reached.
    pub async fn ensure_fresh(&self, service: &ServiceName) -> Result<(), FreshTokenError> {
        let lived = self.inner.lived(service).lock_owned().await;
        match lived.standing(self.inner.clock.now()) {
            TokenStanding::Fresh => return Ok(()),
            TokenStanding::Refused => return Err(FreshTokenError::NeedsReauth),
            TokenStanding::NotYet => return Err(FreshTokenError::Later),
            TokenStanding::Renew => {}
        }
        let (tell, told) = oneshot::channel();
        let (inner, name) = (Arc::clone(&self.inner), service.clone());
        {
            let mut running = self.running.lock();
            while running.try_join_next().is_some() {}
            running.spawn(async move {
                let outcome = inner.renew(&name, lived).await;
                // The caller may be gone; the token is in the vault in any case.
                let _heard = tell.send(outcome);
            });
        }
        told.await.unwrap_or(Err(FreshTokenError::Later))
    }

    /// Notes that the service refused the access token before it expired: the token counts as expired, unless it was
    /// renewed a moment ago.
    pub async fn mark_rejected(&self, service: &ServiceName) {
        let now = self.inner.clock.now();
        self.inner.lived(service).lock_owned().await.mark_rejected(now);
    }

    /// Allows a refused renewal to be tried again, after a person has looked at it.
    pub async fn forgive(&self, service: &ServiceName) {
        *self.inner.lived(service).lock_owned().await = TokenState::default();
    }

    /// The state of a grant: `fresh`, `unknown` or `needs_reauth`; nothing if no provider grants one.
    pub async fn standing(&self, service: &ServiceName) -> Option<&'static str> {
        self.inner.provider(service).ok()?;
        let lived = self.inner.lived(service).lock_owned().await;
        Some(match lived.standing(self.inner.clock.now()) {
            TokenStanding::Fresh => "fresh",
            TokenStanding::Refused => "needs_reauth",
            TokenStanding::NotYet | TokenStanding::Renew => "unknown",
        })
    }

    /// Revokes a grant: at the provider, if it cooperates, and in the vault in any case.
    ///
    /// # Errors
    /// When the vault cannot destroy the tokens.
    pub async fn revoke(&self, service: &ServiceName, by: &Actor) -> Result<GrantRevocation, OauthError> {
        let inner = &self.inner;
        let provider = inner.provider(service)?;
        inner.pending.lock().forget(service);
        let mut lived = inner.lived(service).lock_owned().await;
        let told = match inner.take(service, &provider, by).await {
            Ok(refresh) => inner.give_back(service, &provider, (&refresh, "refresh_token"), by).await,
            Err(OauthError::Vault(VaultError::Unknown)) => inner.give_back_access(service, &provider, by).await,
            Err(_) => GrantRevocation::Unheard,
        };
        let mut names = vec![refresh_name(service)?, access_name(service)?];
        if provider.terms.server().is_some() {
            // The client is bound to the authorization server of this grant.
            names.push(client_name(service)?);
        }
        for name in names {
            match inner.vault.revoke(&name, by.clone()).await {
                Ok(()) | Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.into()),
            }
        }
        inner.egress.refresh().await.map_err(VaultError::from)?;
        *lived = TokenState::default();
        Ok(told)
    }

    /// Keeps the client secret for a provider.
    ///
    /// # Errors
    /// When the vault refuses it.
    pub async fn keep_client_secret(
        &self,
        service: &ServiceName,
        value: SecretValue,
        by: Actor,
    ) -> Result<(), OauthError> {
        let provider = self.inner.provider(service)?;
        self.inner.keep_client(service, &provider, value, by).await
    }
}

impl OauthGrantsInner {
    fn provider(&self, service: &ServiceName) -> Result<Arc<OauthProvider>, OauthError> {
        let all = self.providers.read();
        all.get(service).cloned().ok_or(OauthError::Unknown)
    }

    fn lived(&self, service: &ServiceName) -> Arc<tokio::sync::Mutex<TokenState>> {
        let mut all = self.lived.lock();
        Arc::clone(all.entry(service.clone()).or_default())
    }

    fn node(&self) -> Actor {
        Actor::Node(self.store.node().clone())
    }

    /// One renewal. The guard is held until the result is in the vault.
    async fn renew(
        &self,
        service: &ServiceName,
        mut lived: OwnedMutexGuard<TokenState>,
    ) -> Result<(), FreshTokenError> {
        let outcome = self.renewed(service).await;
        let now = self.clock.now();
        match outcome {
            Ok(lasts) => {
                lived.mark_renewed(now, lasts);
                Ok(())
            }
            Err(OauthError::Refused(denied)) => {
                lived.mark_refused();
                tracing::warn!("{service} must be connected again: the provider answered {}", denied.as_str());
                Err(FreshTokenError::NeedsReauth)
            }
            Err(OauthError::Unknown | OauthError::Vault(VaultError::Unknown)) => {
                lived.mark_refused();
                Err(FreshTokenError::NeedsReauth)
            }
            Err(no) => {
                tracing::warn!("the access to {service} could not be renewed yet: {no}");
                // A token that is still valid is used until it expires, even while the provider fails.
                if lived.mark_failed(now) { Ok(()) } else { Err(FreshTokenError::Later) }
            }
        }
    }

    async fn renewed(&self, service: &ServiceName) -> Result<Millis, OauthError> {
        let (provider, by) = (self.provider(service)?, self.node());
        let before = self.version(service).await?;
        let refresh = self.take(service, &provider, &by).await?;
        let client = self.client_secret(service, &provider, &by).await?;
        let form = token::renew(&provider, &refresh, client.as_ref());
        match self.ask(service, &provider, &form, client.as_ref()).await? {
            TokenEndpointOutcome::Granted(granted) => {
                self.keep(service, &provider, &granted, &by).await?;
                Ok(granted.lasts)
            }
            // Another node was faster, and the provider issues each refresh token once: this node uses the tokens of
            // the other one.
            TokenEndpointOutcome::Denied(_) if self.version(service).await? != before => Err(OauthError::Garbled),
            TokenEndpointOutcome::Denied(denied) => Err(OauthError::Refused(denied)),
            TokenEndpointOutcome::Nothing => Err(OauthError::Garbled),
        }
    }

    /// The version of the refresh token in the vault.
    async fn version(&self, service: &ServiceName) -> Result<u64, OauthError> {
        Ok(self.vault.show(&refresh_name(service)?).await?.version)
    }

    async fn take(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        by: &Actor,
    ) -> Result<SecretValue, OauthError> {
        self.taken(&refresh_name(service)?, service, provider, by).await
    }

    /// The client secret for a provider; nothing if it needs none.
    async fn client_secret(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        by: &Actor,
    ) -> Result<Option<SecretValue>, OauthError> {
        if provider.terms.server().is_some_and(|terms| terms.authentication == ClientAuthentication::Public) {
            return Ok(None);
        }
        match self.taken(&client_name(service)?, service, provider, by).await {
            Ok(secret) => Ok(Some(secret)),
            Err(OauthError::Vault(VaultError::Unknown)) => Ok(None),
            Err(no) => Err(no),
        }
    }

    async fn taken(
        &self,
        name: &SecretName,
        service: &ServiceName,
        provider: &OauthProvider,
        by: &Actor,
    ) -> Result<SecretValue, OauthError> {
        let (connection, hosts) = (way_name(service)?, provider.own_hosts()?);
        let wanted = SecretUse { capability: CAPABILITY, connection: &connection, hosts: &hosts, by: by.clone() };
        Ok(self.vault.take(name, &wanted).await?)
    }
}

/// The name of the egress connection to a provider.
fn way_name(service: &ServiceName) -> Result<ConnectionName, OauthError> {
    ConnectionName::new(format!("oauth.{service}")).map_err(|_| OauthError::Unknown)
}

fn secret_name(service: &ServiceName, what: &str) -> Result<SecretName, OauthError> {
    SecretName::new(format!("service/{service}/{what}")).map_err(|_| OauthError::Unknown)
}

/// The vault name of the refresh token.
///
/// # Errors
/// When the name of the service does not fit a secret name.
pub fn refresh_name(service: &ServiceName) -> Result<SecretName, OauthError> {
    secret_name(service, "oauth")
}

/// The vault name of the access token, which egress adds to requests.
///
/// # Errors
/// When the name of the service does not fit a secret name.
pub fn access_name(service: &ServiceName) -> Result<SecretName, OauthError> {
    secret_name(service, "access")
}

/// The vault name of the client secret.
///
/// # Errors
/// When the name of the service does not fit a secret name.
pub fn client_name(service: &ServiceName) -> Result<SecretName, OauthError> {
    secret_name(service, "client")
}
