//! Signing in to mounted servers: a person grants the gateway access to a server that protects itself by OAuth.
//!
//! Takes what a person wants and what the server published; gives a link, and then the grant. Promise: the tokens are for
//! this server alone and are only in the vault; an authorization server that no person accepted gets nothing; a server
//! that asks again for what was granted sends nobody into another consent.

use std::collections::BTreeSet;

use sluice_config::{MountAddress, MountTransport};
use sluice_core::ids::SecretName;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Millis, ServiceName, UtcMillis};
use sluice_egress::oauth::{
    AuthorizationServer, BearerChallenge, ClientAuthentication, ClientOrigin, FinishedGrant, GrantRevocation,
    GrantTerms, OFFLINE, OauthCallback, OauthError, OauthProvider, ProtectedServer, ServerDiscovery, ServerGrantTerms,
    ServerReach, access_name, authentication, client_name, redirect_is_loopback, register,
};
use sluice_egress::vault::SecretValue;
use sluice_store::MountGrant;

use super::service::MountService;
use super::{connection_name, service_name};
use crate::{CallError, ServiceContext};

/// What a person wants for a sign-in; what is not given comes from the configuration, the server or the earlier grant.
#[derive(Default)]
#[allow(missing_debug_implementations, reason = "it holds a secret")]
pub struct MountSignInParams {
    /// The client id of the gateway at the authorization server.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<SecretValue>,
    /// The authorization server that the person accepts.
    pub issuer: Option<String>,
    /// The scopes to ask for in addition.
    pub scopes: Vec<String>,
}

/// A link for a person, and what it asks for.
#[derive(Debug, Clone)]
pub struct MountSignInLink {
    /// The address at which the person grants access.
    pub link: String,
    /// The value that identifies the answer.
    pub state: String,
    /// When the link expires.
    pub expires_at: UtcMillis,
    /// The authorization server.
    pub issuer: String,
    /// How the gateway is known there.
    pub client: ClientOrigin,
    /// The scopes that are asked for.
    pub scopes: Vec<String>,
}

/// What a server wants before it does more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountSignInNeed {
    /// A person has to sign in, or to sign in again.
    SignIn(BearerChallenge),
    /// A person has to grant more access.
    MoreAccess(BearerChallenge),
}

impl MountSignInNeed {
    /// The challenge of the server.
    #[must_use]
    pub fn challenge(&self) -> &BearerChallenge {
        match self {
            Self::SignIn(challenge) | Self::MoreAccess(challenge) => challenge,
        }
    }

    /// What happened and what to do, for people and agents.
    ///
    /// SECURITY: without the scopes: they are words of the server, which could speak to an agent through them.
    pub(super) fn text(&self, mount: &str) -> String {
        let wants = match self {
            Self::SignIn(_) => "a person to sign in",
            Self::MoreAccess(_) => "more access than a person granted",
        };
        format!("the server `{mount}` wants {wants}: run `sluice mounts connect {mount}`")
    }
}

/// Makes a link with which a person grants access to a mounted server.
///
/// # Errors
/// When the mount has no address or another credential, is frozen, or what its server published cannot be used.
pub async fn begin(
    context: &ServiceContext,
    service: &MountService,
    (params, redirect): (MountSignInParams, &str),
    by: Actor,
) -> Result<MountSignInLink, CallError> {
    let (name, address) = (own_name(service)?, signable(service)?);
    if !redirect_is_loopback(redirect) {
        return Err(OauthError::Redirect.refusal().into());
    }
    if let Some(why) = context.standstill.of_service(&name) {
        return Err(CallError::with_text(Code::FreezeActive, &why));
    }
    let before = context.store.mount_grant(&service.mount().name).await?.filter(|grant| grant.url == address.url);
    let reach = reach(address);
    let discovery = ServerDiscovery::new(&context.egress, &name, (&address.url, &reach), by.clone());
    let need = service.sign_in_need();
    let challenge = need.as_ref().map(MountSignInNeed::challenge);
    let found = async {
        let protected = discovery.protected_server(challenge).await?;
        let issuer = issuer(&protected, address, &params, before.as_ref())?;
        let server = discovery.authorization_server(&issuer).await?;
        Ok((protected, server))
    };
    let (protected, server) = found.await.map_err(OauthError::refusal)?;
    let scopes = scopes((&protected, &server), address, &params, (need.as_ref(), before.as_ref()));
    let client = client(context, (&name, address, before.as_ref()), (&server, &reach), (params, redirect, &by)).await;
    let client = client.map_err(OauthError::refusal)?;
    let origin = client.origin;
    let provider = OauthProvider {
        authorize: server.authorize,
        token: server.token,
        revoke: server.revoke,
        issuer: Some(server.issuer.clone()),
        client_id: client.id,
        scopes: scopes.clone(),
        capabilities: vec![format!("{}.*", service.mount().name)],
        api_hosts: vec![host(address)?],
        terms: GrantTerms::Server(Box::new(ServerGrantTerms {
            resource: protected.resource,
            authentication: client.authentication,
            origin,
            names_issuer: server.names_issuer,
            reach,
        })),
    };
    let link = context.oauth.begin_with(&name, (provider, client.secret), redirect).map_err(OauthError::refusal)?;
    let (issuer, expires_at) = (server.issuer, link.expires_at);
    Ok(MountSignInLink { link: link.url, state: link.state, expires_at, issuer, client: origin, scopes })
}

/// Takes the answer of the browser, keeps the grant, and has the server reached with it.
///
/// # Errors
/// When it answers no open link, or the authorization server refuses.
pub async fn finish(
    context: &ServiceContext,
    service: &MountService,
    returned: OauthCallback,
    by: Actor,
) -> Result<MountGrant, CallError> {
    let (name, address) = (own_name(service)?, signable(service)?);
    let finished = context.oauth.finish_link(&name, returned, by.clone()).await.map_err(OauthError::refusal)?;
    let grant = row(service, address, &finished, (context.now(), &by)).map_err(OauthError::refusal)?;
    context.store.keep_mount_grant(grant.clone(), by).await?;
    service.set_sign_in_need(None);
    service.sign_in_changed.notify_waiters();
    context.signals.events.notify_written();
    Ok(grant)
}

/// Revokes the access to a mounted server, destroys its tokens, and forgets the grant.
///
/// # Errors
/// When there is no grant, or the tokens cannot be destroyed.
pub async fn end(context: &ServiceContext, mount: &str, by: Actor) -> Result<GrantRevocation, CallError> {
    let service = context.mounts.get(mount);
    let missing = || CallError::with_text(Code::StoreNotFound, "nobody has signed in to this server");
    let grant = context.store.mount_grant(mount).await?.ok_or_else(missing)?;
    let name = service_name(mount).ok_or_else(missing)?;
    let reach = service.as_ref().and_then(|service| signable(service).ok().map(reach)).unwrap_or_default();
    let known = provider(&grant, reach).and_then(|provider| context.oauth.configure(name.clone(), provider));
    let told = match known {
        Ok(()) => context.oauth.revoke(&name, &by).await.map_err(OauthError::refusal)?,
        Err(why) => {
            tracing::warn!(mount, "the access to `{mount}` could not be revoked at its authorization server: {why}");
            destroy(context, &name, &by).await?;
            GrantRevocation::Unheard
        }
    };
    context.oauth.forget(&name);
    context.store.drop_mount_grant(mount, told.as_str(), by).await?;
    if let Some(service) = service {
        service.sign_in_changed.notify_waiters();
    }
    context.signals.events.notify_written();
    Ok(told)
}

/// Destroys the tokens of a grant whose authorization server cannot be asked.
async fn destroy(context: &ServiceContext, name: &ServiceName, by: &Actor) -> Result<(), CallError> {
    let names: [Result<SecretName, OauthError>; 3] =
        [sluice_egress::oauth::refresh_name(name), access_name(name), client_name(name)];
    for secret in names {
        let secret = secret.map_err(OauthError::refusal)?;
        match context.vault.revoke(&secret, by.clone()).await {
            Ok(()) | Err(sluice_egress::vault::VaultError::Unknown) => {}
            Err(error) => return Err(error.refusal().into()),
        }
    }
    Ok(())
}

/// Sets the provider of a mount from its stored grant. Gives the vault name of its token, or nothing if nobody has
/// signed in to the server at this address.
pub(super) async fn take_up(context: &ServiceContext, service: &MountService) -> Result<Option<SecretName>, String> {
    let (Ok(name), Ok(address)) = (own_name(service), signable(service)) else { return Ok(None) };
    let grant = context.store.mount_grant(&service.mount().name).await.map_err(|error| error.to_string())?;
    let Some(grant) = grant.filter(|grant| grant.url == address.url) else {
        context.oauth.forget(&name);
        return Ok(None);
    };
    let provider = provider(&grant, reach(address)).map_err(|error| error.to_string())?;
    context.oauth.configure(name.clone(), provider).map_err(|error| error.to_string())?;
    if let Some(ends_at) = grant.ends_at {
        context.oauth.note_end(&name, ends_at).await;
    }
    access_name(&name).map(Some).map_err(|error| error.to_string())
}

/// Whether a server asks for access that this grant has already: another consent would not help.
pub(super) async fn has_granted(context: &ServiceContext, mount: &str, challenge: &BearerChallenge) -> bool {
    let grant = context.store.mount_grant(mount).await.ok().flatten();
    grant.is_some_and(|grant| {
        !challenge.scopes.is_empty() && challenge.scopes.iter().all(|scope| grant.granted.contains(scope))
    })
}

fn own_name(service: &MountService) -> Result<ServiceName, CallError> {
    service_name(&service.mount().name).ok_or_else(|| CallError::new(Code::StoreNotFound))
}

/// The address of a mount to which people can sign in.
fn signable(service: &MountService) -> Result<&MountAddress, CallError> {
    let no = |text: &str| CallError::with_text(Code::ServiceSettings, text);
    match &service.mount().way {
        MountTransport::Program(_) => Err(no("this mount is a program; only a server at a URL can be signed in to")),
        MountTransport::Address(address) if address.credential.is_some() => {
            Err(no("this mount sends a `secret`; remove `secret` from it in sluice.yaml to sign in instead"))
        }
        MountTransport::Address(address) => Ok(address),
    }
}

fn reach(address: &MountAddress) -> ServerReach {
    ServerReach { plain_http: address.http, allow_addresses: address.allow_addresses.clone() }
}

fn host(address: &MountAddress) -> Result<String, CallError> {
    let target = sluice_config::network::EgressUrl::parse(&address.url);
    let target = target.map_err(|why| CallError::with_text(Code::ServiceSettings, why))?;
    Ok(target.host().to_owned())
}

/// The authorization server to use.
///
/// SECURITY: a server that suddenly names another one may be another server. A person has to accept the new name.
fn issuer(
    protected: &ProtectedServer,
    address: &MountAddress,
    params: &MountSignInParams,
    before: Option<&MountGrant>,
) -> Result<String, OauthError> {
    let named = |issuer: &String| protected.issuers.contains(issuer);
    let first = || protected.issuers.first().cloned().unwrap_or_default();
    let expected = params.issuer.as_ref().or(address.sign_in.issuer.as_ref()).or(before.map(|grant| &grant.issuer));
    match expected {
        Some(expected) if named(expected) => Ok(expected.clone()),
        Some(_) => Err(OauthError::IssuerChanged(first().chars().filter(|c| !c.is_control()).take(200).collect())),
        None => Ok(first()),
    }
}

/// The scopes to ask for: those of the configuration, or those that the server names, and those that were asked for
/// before, so that a new grant is never smaller than the one it replaces.
fn scopes(
    (protected, server): (&ProtectedServer, &AuthorizationServer),
    address: &MountAddress,
    params: &MountSignInParams,
    (need, before): (Option<&MountSignInNeed>, Option<&MountGrant>),
) -> Vec<String> {
    let challenged = need.map(|need| need.challenge().scopes.as_slice()).unwrap_or_default();
    let base = match (address.sign_in.scopes.as_slice(), challenged) {
        ([], []) => protected.scopes.as_slice(),
        ([], challenged) => challenged,
        (own, _) => own,
    };
    let extra = if let Some(MountSignInNeed::MoreAccess(_)) = need { challenged } else { &[] };
    let earlier = before.map(|grant| grant.requested.as_slice()).unwrap_or_default();
    let offline = server.scopes.iter().filter(|scope| *scope == OFFLINE);
    let mut known = BTreeSet::new();
    let all = earlier.iter().chain(base).chain(extra).chain(&params.scopes).chain(offline);
    all.filter(|scope| known.insert((*scope).clone())).cloned().collect()
}

/// The client that the gateway is at an authorization server.
struct ChosenClient {
    id: String,
    secret: Option<SecretValue>,
    authentication: ClientAuthentication,
    origin: ClientOrigin,
}

/// Chooses the client: the one that the person names, the document that describes the gateway, the one that an operator
/// registered, and only then a new registration.
async fn client(
    context: &ServiceContext,
    (name, address, before): (&ServiceName, &MountAddress, Option<&MountGrant>),
    (server, reach): (&AuthorizationServer, &ServerReach),
    (params, redirect, by): (MountSignInParams, &str, &Actor),
) -> Result<ChosenClient, OauthError> {
    let document = context.config.oauth.client_document.as_ref().filter(|_| server.reads_client_documents);
    if let (None, Some(url)) = (&params.client_id, document) {
        let (id, authentication) = (url.as_str().to_owned(), ClientAuthentication::Public);
        return Ok(ChosenClient { id, secret: None, authentication, origin: ClientOrigin::Document });
    }
    if let Some(id) = params.client_id.or_else(|| address.sign_in.client_id.clone()) {
        // SECURITY: the secret of an earlier sign-in is used only for the same client at the same authorization server.
        let is_same = before.is_some_and(|grant| grant.client_id == id && grant.issuer == server.issuer);
        let stored = client_name(name)?;
        let is_stored = is_same && context.vault.show(&stored).await.is_ok_and(|row| row.revoked.is_none());
        let authentication = authentication(server, params.client_secret.is_some() || is_stored)?;
        let secret = params.client_secret;
        return Ok(ChosenClient { id, secret, authentication, origin: ClientOrigin::Registered });
    }
    let registered = register(&context.egress, name, (server, reach), redirect, by.clone()).await?;
    Ok(ChosenClient {
        id: registered.id,
        secret: registered.secret,
        authentication: registered.authentication,
        origin: ClientOrigin::Dynamic,
    })
}

fn row(
    service: &MountService,
    address: &MountAddress,
    finished: &FinishedGrant,
    (at, by): (UtcMillis, &Actor),
) -> Result<MountGrant, OauthError> {
    let FinishedGrant { provider, scopes, ends_after } = finished;
    let GrantTerms::Server(terms) = &provider.terms else { return Err(OauthError::State) };
    Ok(MountGrant {
        mount: service.mount().name.clone(),
        url: address.url.clone(),
        resource: terms.resource.clone(),
        issuer: provider.issuer.clone().unwrap_or_default(),
        authorize: provider.authorize.clone(),
        token: provider.token.clone(),
        revoke: provider.revoke.clone(),
        client_id: provider.client_id.clone(),
        client_origin: terms.origin.as_str().into(),
        client_auth: terms.authentication.as_str().into(),
        requested: provider.scopes.clone(),
        granted: scopes.clone(),
        ends_at: ends_after.map(|span: Millis| at + span),
        by: by.to_string(),
        at,
    })
}

fn provider(grant: &MountGrant, reach: ServerReach) -> Result<OauthProvider, OauthError> {
    let host = sluice_config::network::EgressUrl::parse(&grant.url);
    let host = host.map_err(|why| OauthError::Metadata(why.into()))?.host().to_owned();
    let origin = ClientOrigin::from_word(&grant.client_origin).ok_or(OauthError::Garbled)?;
    let authentication = ClientAuthentication::from_word(&grant.client_auth).ok_or(OauthError::Garbled)?;
    Ok(OauthProvider {
        authorize: grant.authorize.clone(),
        token: grant.token.clone(),
        revoke: grant.revoke.clone(),
        issuer: Some(grant.issuer.clone()),
        client_id: grant.client_id.clone(),
        scopes: grant.requested.clone(),
        capabilities: vec![format!("{}.*", grant.mount)],
        api_hosts: vec![host],
        terms: GrantTerms::Server(Box::new(ServerGrantTerms {
            resource: grant.resource.clone(),
            authentication,
            origin,
            names_issuer: false,
            reach,
        })),
    })
}

/// The refusal of a call that was not carried out because a person has to act.
pub(super) fn refusal(text: &str) -> Refusal {
    Refusal::new(Code::MountSignIn).with_text(text)
}

/// The egress connection of a mount, with the token of its grant as its credential.
pub(super) fn open_way(context: &ServiceContext, service: &MountService, token: Option<SecretName>) {
    let MountTransport::Address(address) = &service.mount().way else { return };
    if address.credential.is_some() {
        return;
    }
    let Some(name) = connection_name(&service.mount().name) else { return };
    let wanted = token.map(|token| (token, sluice_config::network::CredentialPlacement::Bearer));
    if let Some(now) = context.egress.connection(&name)
        && now.credential != wanted
    {
        let mut changed = sluice_config::network::EgressConnection::clone(&now);
        changed.credential = wanted;
        context.egress.open(changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(sign_in: sluice_config::MountSignIn) -> MountAddress {
        let url = "https://mcp.example/mcp".to_owned();
        MountAddress { url, http: false, credential: None, sign_in, allow_addresses: Vec::new(), per_minute: None }
    }

    fn protected(issuers: &[&str], scopes: &[&str]) -> ProtectedServer {
        let own = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        ProtectedServer { resource: "https://mcp.example".into(), issuers: own(issuers), scopes: own(scopes) }
    }

    fn before(issuer: &str, requested: &[&str]) -> MountGrant {
        MountGrant {
            mount: "m".into(),
            url: "https://mcp.example/mcp".into(),
            resource: "https://mcp.example".into(),
            issuer: issuer.into(),
            authorize: String::new(),
            token: String::new(),
            revoke: None,
            client_id: String::new(),
            client_origin: "dynamic".into(),
            client_auth: "none".into(),
            requested: requested.iter().map(|&word| word.to_owned()).collect(),
            granted: Vec::new(),
            ends_at: None,
            by: String::new(),
            at: UtcMillis::from_millis(0),
        }
    }

    #[test]
    fn a_server_that_changes_its_issuer_needs_a_person_who_accepts_the_new_one() {
        let (own, params) = (address(sluice_config::MountSignIn::default()), MountSignInParams::default());
        let (old, new) = ("https://auth.example", "https://new.example");
        let chosen = |issuers: &[&str], params: &MountSignInParams, grant: Option<&MountGrant>| {
            issuer(&protected(issuers, &[]), &own, params, grant).ok()
        };
        let grant = before(old, &[]);
        assert_eq!(chosen(&[old, new], &params, None).as_deref(), Some(old), "the first of them");
        assert_eq!(chosen(&[new, old], &params, Some(&grant)).as_deref(), Some(old), "the one that was accepted");
        assert_eq!(chosen(&[new], &params, Some(&grant)), None);
        let accepted = MountSignInParams { issuer: Some(new.into()), ..MountSignInParams::default() };
        assert_eq!(chosen(&[new], &accepted, Some(&grant)).as_deref(), Some(new));
        assert_eq!(chosen(&[old], &accepted, Some(&grant)), None, "accepted, but not named by the server");
    }

    #[test]
    fn a_new_grant_asks_for_what_was_granted_and_for_what_is_missing() {
        let (own, params) = (address(sluice_config::MountSignIn::default()), MountSignInParams::default());
        let server = |scopes: &[&str]| AuthorizationServer {
            issuer: String::new(),
            authorize: String::new(),
            token: String::new(),
            revoke: None,
            register: None,
            methods: Vec::new(),
            reads_client_documents: false,
            names_issuer: false,
            scopes: scopes.iter().map(|&word| word.to_owned()).collect(),
        };
        let challenge = |words: &[&str]| BearerChallenge {
            scopes: words.iter().map(|&word| word.to_owned()).collect(),
            ..BearerChallenge::default()
        };
        let (plain, published) = (server(&["a", "b"]), protected(&[], &["a", "b"]));
        let asked = |server: &AuthorizationServer, need: Option<MountSignInNeed>, grant: Option<&MountGrant>| {
            scopes((&published, server), &own, &params, (need.as_ref(), grant)).join(" ")
        };
        assert_eq!(asked(&plain, None, None), "a b", "what the server publishes");
        assert_eq!(asked(&plain, Some(MountSignInNeed::SignIn(challenge(&["a"]))), None), "a", "what it asks for");
        let grant = before("", &["a"]);
        let more = MountSignInNeed::MoreAccess(challenge(&["write"]));
        assert_eq!(asked(&plain, Some(more), Some(&grant)), "a write");
        assert_eq!(asked(&server(&["a", "offline_access"]), None, None), "a b offline_access");
        let none = protected(&[], &[]);
        assert!(scopes((&none, &plain), &own, &params, (None, None)).is_empty(), "nothing is published or asked for");
    }
}
