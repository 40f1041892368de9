//! What is exchanged with a provider and what is kept of it: the vault's side of a grant.
//!
//! Takes the answers of a token endpoint; gives tokens in the vault, or their end there and at the provider. Promise: the
//! refresh token is kept first, so that it is not lost; nothing of an earlier grant stays with a new one.

use sluice_core::{Actor, Millis, ServiceName};

use super::error::OauthError;
use super::provider::OauthProvider;
use super::terms::ClientAuthentication;
use super::token::{self, GrantedTokens, TokenEndpointOutcome};
use super::{
    ACCESS_KIND, CAPABILITY, GrantRevocation, OVERLAP, OauthGrantsInner, access_name, client_name, refresh_name,
    way_name,
};
use crate::vault::{NewSecretValue, SecretScope, SecretUse, SecretValue, VaultError};
use crate::{EgressResponse, ProviderForm};

impl OauthGrantsInner {
    /// Checks that the access to an account can be renewed and is complete.
    pub(super) async fn check_account(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        granted: &GrantedTokens,
        by: &Actor,
    ) -> Result<(), OauthError> {
        let Some(refresh) = &granted.refresh else { return Err(OauthError::NotOffline) };
        let missing = provider.missing(granted.scope.as_deref());
        if missing.is_empty() {
            return Ok(());
        }
        // A partial grant is not kept: it is revoked, if the provider cooperates.
        let _told = self.give_back(service, provider, (refresh, "refresh_token"), by).await;
        Err(OauthError::Scope(missing))
    }

    /// Removes the earlier refresh token, and keeps the secret of the client that has the new grant.
    pub(super) async fn renew_client(
        &self,
        service: &ServiceName,
        (provider, client): (&OauthProvider, Option<SecretValue>),
        by: &Actor,
    ) -> Result<(), OauthError> {
        let is_public =
            provider.terms.server().is_some_and(|terms| terms.authentication == ClientAuthentication::Public);
        let mut gone = vec![refresh_name(service)?];
        if is_public {
            gone.push(client_name(service)?);
        }
        for name in gone {
            match self.vault.revoke(&name, by.clone()).await {
                Ok(()) | Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match client {
            Some(secret) if !is_public => self.keep_client(service, provider, secret, by.clone()).await,
            Some(_) | None => Ok(()),
        }
    }

    pub(super) async fn keep_client(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        value: SecretValue,
        by: Actor,
    ) -> Result<(), OauthError> {
        let scope = SecretScope::new(vec![CAPABILITY.into()], &provider.own_hosts()?).map_err(VaultError::Wrong)?;
        let new = NewSecretValue { value, kind: Some("other".into()), scope: Some(scope), overlap: Millis::ZERO };
        self.vault.set(&client_name(service)?, new, by).await?;
        self.egress.refresh().await.map_err(VaultError::from)?;
        Ok(())
    }

    /// Puts the granted tokens into the vault: the refresh token first, so that it is not lost.
    pub(super) async fn keep(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        granted: &GrantedTokens,
        by: &Actor,
    ) -> Result<(), OauthError> {
        let wrong = |why: String| OauthError::Vault(VaultError::Wrong(why));
        if let Some(refresh) = &granted.refresh {
            let scope = SecretScope::new(vec![CAPABILITY.into()], &provider.own_hosts()?).map_err(wrong)?;
            let new = NewSecretValue {
                value: SecretValue::new(refresh.expose().to_vec()),
                kind: Some("oauth_token".into()),
                scope: Some(scope),
                overlap: Millis::ZERO,
            };
            self.vault.set(&refresh_name(service)?, new, by.clone()).await?;
        }
        let scope = SecretScope::new(provider.capabilities.clone(), &provider.api_hosts).map_err(wrong)?;
        let value = SecretValue::new(granted.access.expose().to_vec());
        let new = NewSecretValue { value, kind: Some(ACCESS_KIND.into()), scope: Some(scope), overlap: OVERLAP };
        self.vault.set(&access_name(service)?, new, by.clone()).await?;
        // From here on the leak scan looks for the new token.
        self.egress.refresh().await.map_err(VaultError::from)?;
        Ok(())
    }

    pub(super) async fn give_back(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        token: (&SecretValue, &str),
        by: &Actor,
    ) -> GrantRevocation {
        let Some(url) = &provider.revoke else { return GrantRevocation::Unheard };
        let Ok(client) = self.client_secret(service, provider, by).await else { return GrantRevocation::Unheard };
        let form = token::give_back(provider, token, client.as_ref());
        match self.post(service, (provider, url), &form, client.as_ref()).await {
            Ok(answer) if token::is_taken_back(&answer) => GrantRevocation::Taken,
            Ok(_) | Err(_) => GrantRevocation::Unheard,
        }
    }

    /// Revokes the access token of a grant without a refresh token.
    pub(super) async fn give_back_access(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        by: &Actor,
    ) -> GrantRevocation {
        if provider.terms.server().is_none() {
            return GrantRevocation::Nothing;
        }
        let Ok(name) = access_name(service) else { return GrantRevocation::Unheard };
        let Ok(connection) = way_name(service) else { return GrantRevocation::Unheard };
        let Some(pattern) = provider.capabilities.first() else { return GrantRevocation::Unheard };
        let (capability, hosts) = (pattern.replace('*', "connect"), provider.api_hosts.clone());
        let wanted = SecretUse { capability: &capability, connection: &connection, hosts: &hosts, by: by.clone() };
        match self.vault.take(&name, &wanted).await {
            Ok(access) => self.give_back(service, provider, (&access, "access_token"), by).await,
            Err(VaultError::Unknown) => GrantRevocation::Nothing,
            Err(_) => GrantRevocation::Unheard,
        }
    }

    pub(super) async fn ask(
        &self,
        service: &ServiceName,
        provider: &OauthProvider,
        form: &[token::OauthFormField<'_>],
        client: Option<&SecretValue>,
    ) -> Result<TokenEndpointOutcome, OauthError> {
        let answer = self.post(service, (provider, &provider.token), form, client).await?;
        Ok(token::parse_response(&answer))
    }

    pub(super) async fn post(
        &self,
        service: &ServiceName,
        (provider, url): (&OauthProvider, &str),
        fields: &[token::OauthFormField<'_>],
        client: Option<&SecretValue>,
    ) -> Result<EgressResponse, OauthError> {
        let way = provider.way_out(service)?;
        let is_basic = provider.terms.server().is_some_and(|terms| terms.authentication == ClientAuthentication::Basic);
        let client = client.filter(|_| is_basic).map(|secret| (provider.client_id.as_str(), secret));
        Ok(self.egress.submit(&way, ProviderForm { url, fields, client }).await?)
    }
}
