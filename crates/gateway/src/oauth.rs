//! OAuth 2: how a person lends the gateway the right to use their account, and how that right is kept and given back.
//!
//! Takes where a provider is and who we are there; gives a link for the person, keeps what comes of it in the vault,
//! renews it before it ends, and takes it back. Authorization code with PKCE (S256) and a loopback redirect, nothing
//! else. Promise: a link works once, for ten minutes, with its own state and verifier; a token is in the vault or on
//! its way to the provider, and in no log, error or answer; of many who need a fresh token at once, one asks for it;
//! what the provider refuses is asked for once and then left to a person.

mod keep;
mod lived;
mod no;
mod pending;
mod provider;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::{Actor, Clock, Entropy, ServiceName, Span};
use sluice_store::Store;
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::task::JoinSet;

use crate::egress::{Connection, Egress, Form};
use crate::open::World;
use crate::vault::{NewValue, Scope, Secret, Use, Vault, VaultError};

pub(crate) use keep::{take_up, take_up_all};
pub use no::{Denied, OauthNo};
pub use pending::Link;
pub use provider::{Provider, redirect_is_loopback};

use lived::{Lived, Standing};
use pending::Pending;
use token::{Granted, Heard};

/// What the vault calls using a refresh token.
pub const CAPABILITY: &str = "oauth.token";
/// The kind of a token that is renewed all the time: a renewed one ends no job that holds the one before.
pub const ACCESS_KIND: &str = "access_token";
/// How long a replaced access token is still kept out of what leaves.
const OVERLAP: Span = Span::from_hours(1);

/// What came back from the person's browser.
#[allow(missing_debug_implementations, reason = "it holds a code")]
pub struct Returned {
    /// Which link it answers.
    pub state: String,
    /// What the provider gave the browser.
    pub code: Secret,
    /// Who says so, if the provider names itself.
    pub issuer: Option<String>,
}

/// What a person granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// The scopes, as the provider names them.
    pub scopes: Vec<String>,
}

/// What became of a grant that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// The provider has taken it back.
    Taken,
    /// There was nothing to give back.
    Nothing,
    /// The provider could not be told, or did not listen; ours is destroyed all the same.
    Unheard,
}

impl Revoked {
    /// In a word.
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
pub enum Stale {
    /// A person has to connect again.
    NeedsReauth,
    /// The provider cannot be reached at present.
    Later,
}

/// Every grant of one gateway.
pub struct Oauth {
    inner: Arc<Inner>,
    /// Renewals under way: a caller that gives up does not cut one off between the provider's answer and the vault.
    running: Mutex<JoinSet<()>>,
}

struct Inner {
    vault: Arc<Vault>,
    egress: Arc<Egress>,
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    providers: RwLock<HashMap<ServiceName, Arc<Provider>>>,
    pending: Mutex<Pending>,
    lived: Mutex<HashMap<ServiceName, Arc<tokio::sync::Mutex<Lived>>>>,
}

impl std::fmt::Debug for Oauth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Oauth")
    }
}

impl Oauth {
    /// On this vault, out through this egress.
    #[must_use]
    pub fn new(store: Arc<Store>, vault: Arc<Vault>, egress: Arc<Egress>, world: &World) -> Self {
        let inner = Inner {
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

    /// Says who grants access to a service, and opens the way there.
    ///
    /// # Errors
    /// When an address of the provider cannot be one.
    pub fn configure(&self, service: ServiceName, provider: Provider) -> Result<(), OauthNo> {
        self.inner.egress.open(provider.way_out(&service)?);
        let mut all = self.inner.providers.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(service, Arc::new(provider));
        Ok(())
    }

    /// Whether access to this service is granted by a provider.
    #[must_use]
    pub fn knows(&self, service: &ServiceName) -> bool {
        self.inner.provider(service).is_ok()
    }

    /// A link for a person, which works once and not for long.
    ///
    /// # Errors
    /// When the service has no provider, or the redirect does not lead to the person's own machine.
    pub fn begin(&self, service: &ServiceName, redirect: &str) -> Result<Link, OauthNo> {
        let provider = self.inner.provider(service)?;
        if !redirect_is_loopback(redirect) {
            return Err(OauthNo::Redirect);
        }
        let now = self.inner.clock.now();
        let mut pending = self.inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.begin(service, &provider, redirect, (self.inner.entropy.as_ref(), now))
    }

    /// Turns what came back from the browser into tokens, and keeps them.
    ///
    /// # Errors
    /// When it answers no link of ours, the provider refuses it, or less was granted than is needed.
    pub async fn finish(&self, service: &ServiceName, returned: Returned, by: Actor) -> Result<Connected, OauthNo> {
        let inner = &self.inner;
        let provider = inner.provider(service)?;
        let begun = {
            let mut pending = inner.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.take(service, &returned.state, inner.clock.now()).ok_or(OauthNo::State)?
        };
        // SECURITY: an answer of another provider must not be redeemed at this one (RFC 9207).
        if let (Some(wanted), Some(said)) = (&provider.issuer, &returned.issuer)
            && wanted != said
        {
            return Err(OauthNo::State);
        }
        let mut lived = inner.lived(service).lock_owned().await;
        let client = inner.client_secret(service, &provider, &by).await?;
        let form = token::redeem(&provider, &begun, &returned.code, client.as_ref());
        let granted = match inner.ask(service, &provider.token, &form).await? {
            Heard::Granted(granted) => granted,
            Heard::Denied(denied) => return Err(OauthNo::Refused(denied)),
            Heard::Nothing => return Err(OauthNo::Garbled),
        };
        let Some(refresh) = &granted.refresh else { return Err(OauthNo::NotOffline) };
        let missing = provider.missing(granted.scope.as_deref());
        if !missing.is_empty() {
            // Half a grant is none: it is given back as far as the provider listens.
            let _told = inner.give_back(service, &provider, refresh, &by).await;
            return Err(OauthNo::Scope(missing));
        }
        inner.keep(service, &provider, &granted, &by).await?;
        lived.renewed(inner.clock.now(), granted.lasts);
        let scopes = granted.scope.map_or_else(|| provider.scopes.clone(), |scope| provider::words(&scope));
        Ok(Connected { scopes })
    }

    /// Makes sure that the access token in the vault works for a while.
    ///
    /// # Errors
    /// When a person has to connect again, or the provider cannot be reached.
    pub async fn fresh(&self, service: &ServiceName) -> Result<(), Stale> {
        let lived = self.inner.lived(service).lock_owned().await;
        match lived.standing(self.inner.clock.now()) {
            Standing::Fresh => return Ok(()),
            Standing::Refused => return Err(Stale::NeedsReauth),
            Standing::NotYet => return Err(Stale::Later),
            Standing::Renew => {}
        }
        let (tell, told) = oneshot::channel();
        let (inner, name) = (Arc::clone(&self.inner), service.clone());
        {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            while running.try_join_next().is_some() {}
            running.spawn(async move {
                let outcome = inner.renew(&name, lived).await;
                // Whoever asked may have gone; the token is in the vault all the same.
                let _heard = tell.send(outcome);
            });
        }
        told.await.unwrap_or(Err(Stale::Later))
    }

    /// The service refused the access token before its time: it counts as ended, unless it was renewed a moment ago.
    pub async fn rejected(&self, service: &ServiceName) {
        let now = self.inner.clock.now();
        self.inner.lived(service).lock_owned().await.rejected(now);
    }

    /// A person will look: what was refused may be tried again.
    pub async fn forgive(&self, service: &ServiceName) {
        *self.inner.lived(service).lock_owned().await = Lived::default();
    }

    /// How a grant stands, in a word: `fresh`, `unknown` or `needs_reauth`; nothing where no provider grants one.
    pub async fn standing(&self, service: &ServiceName) -> Option<&'static str> {
        self.inner.provider(service).ok()?;
        let lived = self.inner.lived(service).lock_owned().await;
        Some(match lived.standing(self.inner.clock.now()) {
            Standing::Fresh => "fresh",
            Standing::Refused => "needs_reauth",
            Standing::NotYet | Standing::Renew => "unknown",
        })
    }

    /// Gives a grant back: at the provider, if it listens, and in the vault in any case.
    ///
    /// # Errors
    /// When the vault cannot destroy what it has.
    pub async fn revoke(&self, service: &ServiceName, by: &Actor) -> Result<Revoked, OauthNo> {
        let inner = &self.inner;
        let provider = inner.provider(service)?;
        inner.pending.lock().unwrap_or_else(PoisonError::into_inner).forget(service);
        let mut lived = inner.lived(service).lock_owned().await;
        let told = match inner.take(service, &provider, by).await {
            Ok(refresh) => inner.give_back(service, &provider, &refresh, by).await,
            Err(OauthNo::Vault(VaultError::Unknown)) => Revoked::Nothing,
            Err(_) => Revoked::Unheard,
        };
        for name in [refresh_name(service)?, access_name(service)?] {
            match inner.vault.revoke(&name, by.clone()).await {
                Ok(()) | Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.into()),
            }
        }
        inner.egress.refresh().await.map_err(VaultError::from)?;
        *lived = Lived::default();
        Ok(told)
    }

    /// Keeps the secret a provider knows us by.
    ///
    /// # Errors
    /// When the vault refuses it.
    pub async fn keep_client_secret(&self, service: &ServiceName, value: Secret, by: Actor) -> Result<(), OauthNo> {
        let provider = self.inner.provider(service)?;
        let scope = Scope::new(vec![CAPABILITY.into()], &provider.own_hosts()?).map_err(VaultError::Wrong)?;
        let new = NewValue { value, kind: Some("other".into()), scope: Some(scope), overlap: Span::ZERO };
        self.inner.vault.set(&client_name(service)?, new, by).await?;
        self.inner.egress.refresh().await.map_err(VaultError::from)?;
        Ok(())
    }
}

impl Inner {
    fn provider(&self, service: &ServiceName) -> Result<Arc<Provider>, OauthNo> {
        let all = self.providers.read().unwrap_or_else(PoisonError::into_inner);
        all.get(service).cloned().ok_or(OauthNo::Unknown)
    }

    fn lived(&self, service: &ServiceName) -> Arc<tokio::sync::Mutex<Lived>> {
        let mut all = self.lived.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(service.clone()).or_default())
    }

    fn node(&self) -> Actor {
        Actor::Node(self.store.node().clone())
    }

    /// One renewal. The guard is held until its end is in the vault.
    async fn renew(&self, service: &ServiceName, mut lived: OwnedMutexGuard<Lived>) -> Result<(), Stale> {
        let outcome = self.renewed(service).await;
        let now = self.clock.now();
        match outcome {
            Ok(lasts) => {
                lived.renewed(now, lasts);
                Ok(())
            }
            Err(OauthNo::Refused(denied)) => {
                lived.refused();
                tracing::warn!("{service} must be connected again: the provider says {}", denied.as_str());
                Err(Stale::NeedsReauth)
            }
            Err(OauthNo::Unknown | OauthNo::Vault(VaultError::Unknown)) => {
                lived.refused();
                Err(Stale::NeedsReauth)
            }
            Err(no) => {
                tracing::warn!("the access to {service} could not be renewed yet: {no}");
                // A token that still works is used to its end, whatever the provider is up to.
                if lived.failed(now) { Ok(()) } else { Err(Stale::Later) }
            }
        }
    }

    async fn renewed(&self, service: &ServiceName) -> Result<Span, OauthNo> {
        let (provider, by) = (self.provider(service)?, self.node());
        let before = self.version(service).await?;
        let refresh = self.take(service, &provider, &by).await?;
        let client = self.client_secret(service, &provider, &by).await?;
        let form = token::renew(&provider, &refresh, client.as_ref());
        match self.ask(service, &provider.token, &form).await? {
            Heard::Granted(granted) => {
                self.keep(service, &provider, &granted, &by).await?;
                Ok(granted.lasts)
            }
            // Another node was faster, and the provider gives each refresh token once: what it got is ours, too.
            Heard::Denied(_) if self.version(service).await? != before => Err(OauthNo::Garbled),
            Heard::Denied(denied) => Err(OauthNo::Refused(denied)),
            Heard::Nothing => Err(OauthNo::Garbled),
        }
    }

    /// Which value of the refresh token this is.
    async fn version(&self, service: &ServiceName) -> Result<u64, OauthNo> {
        Ok(self.vault.show(&refresh_name(service)?).await?.version)
    }

    async fn take(&self, service: &ServiceName, provider: &Provider, by: &Actor) -> Result<Secret, OauthNo> {
        self.taken(&refresh_name(service)?, service, provider, by).await
    }

    /// The secret a provider knows us by; nothing where it wants none.
    async fn client_secret(
        &self,
        service: &ServiceName,
        provider: &Provider,
        by: &Actor,
    ) -> Result<Option<Secret>, OauthNo> {
        match self.taken(&client_name(service)?, service, provider, by).await {
            Ok(secret) => Ok(Some(secret)),
            Err(OauthNo::Vault(VaultError::Unknown)) => Ok(None),
            Err(no) => Err(no),
        }
    }

    async fn taken(
        &self,
        name: &SecretName,
        service: &ServiceName,
        provider: &Provider,
        by: &Actor,
    ) -> Result<Secret, OauthNo> {
        let (connection, hosts) = (way_name(service)?, provider.own_hosts()?);
        let wanted = Use { capability: CAPABILITY, connection: &connection, hosts: &hosts, by: by.clone() };
        Ok(self.vault.take(name, &wanted).await?)
    }

    /// Puts what was granted into the vault: the right to renew first, so that it is not lost.
    async fn keep(
        &self,
        service: &ServiceName,
        provider: &Provider,
        granted: &Granted,
        by: &Actor,
    ) -> Result<(), OauthNo> {
        let wrong = |why: String| OauthNo::Vault(VaultError::Wrong(why));
        if let Some(refresh) = &granted.refresh {
            let scope = Scope::new(vec![CAPABILITY.into()], &provider.own_hosts()?).map_err(wrong)?;
            let new = NewValue {
                value: Secret::new(refresh.expose().to_vec()),
                kind: Some("oauth_token".into()),
                scope: Some(scope),
                overlap: Span::ZERO,
            };
            self.vault.set(&refresh_name(service)?, new, by.clone()).await?;
        }
        let scope = Scope::new(provider.capabilities.clone(), &provider.api_hosts).map_err(wrong)?;
        let value = Secret::new(granted.access.expose().to_vec());
        let new = NewValue { value, kind: Some(ACCESS_KIND.into()), scope: Some(scope), overlap: OVERLAP };
        self.vault.set(&access_name(service)?, new, by.clone()).await?;
        // What leaves is looked through for the new token from here on.
        self.egress.refresh().await.map_err(VaultError::from)?;
        Ok(())
    }

    async fn give_back(&self, service: &ServiceName, provider: &Provider, refresh: &Secret, by: &Actor) -> Revoked {
        let Some(url) = &provider.revoke else { return Revoked::Unheard };
        let Ok(client) = self.client_secret(service, provider, by).await else { return Revoked::Unheard };
        match self.post(service, url, &token::give_back(provider, refresh, client.as_ref())).await {
            Ok(answer) if token::is_taken_back(&answer) => Revoked::Taken,
            Ok(_) | Err(_) => Revoked::Unheard,
        }
    }

    async fn ask(&self, service: &ServiceName, url: &str, form: &[token::Field<'_>]) -> Result<Heard, OauthNo> {
        Ok(token::heard(&self.post(service, url, form).await?))
    }

    async fn post(
        &self,
        service: &ServiceName,
        url: &str,
        fields: &[token::Field<'_>],
    ) -> Result<crate::egress::Answer, OauthNo> {
        let connection: Arc<Connection> = self.egress.connection(&way_name(service)?).ok_or(OauthNo::Unknown)?;
        Ok(self.egress.submit(&connection, Form { url, fields }).await?)
    }
}

/// What egress calls the way to a provider.
fn way_name(service: &ServiceName) -> Result<ConnectionName, OauthNo> {
    ConnectionName::new(format!("oauth.{service}")).map_err(|_| OauthNo::Unknown)
}

fn secret_name(service: &ServiceName, what: &str) -> Result<SecretName, OauthNo> {
    SecretName::new(format!("service/{service}/{what}")).map_err(|_| OauthNo::Unknown)
}

/// Where the right to renew is kept.
///
/// # Errors
/// When the service has no name a secret could have.
pub fn refresh_name(service: &ServiceName) -> Result<SecretName, OauthNo> {
    secret_name(service, "oauth")
}

/// Where the token is kept that egress adds to requests.
///
/// # Errors
/// When the service has no name a secret could have.
pub fn access_name(service: &ServiceName) -> Result<SecretName, OauthNo> {
    secret_name(service, "access")
}

/// Where the secret is kept that a provider knows us by.
///
/// # Errors
/// When the service has no name a secret could have.
pub fn client_name(service: &ServiceName) -> Result<SecretName, OauthNo> {
    secret_name(service, "client")
}
