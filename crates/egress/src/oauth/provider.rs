//! OAuth providers: their addresses, our client id, and the scopes to request.
//!
//! Promise: the connection to a provider reaches only its token and revocation addresses; a private address is opened
//! only if the operator wrote exactly that address.

use http::Method;
use sluice_config::network::{EgressConnection, EgressUrl, HostPattern, IpNetwork, PathPattern};
use sluice_core::ServiceName;
use sluice_core::throttle::ConnectionLimits;
use url::Url;

use super::error::OauthError;
use super::terms::GrantTerms;
use super::way_name;

/// The scope that asks for a refresh token.
pub const OFFLINE: &str = "offline_access";

/// One provider, for one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthProvider {
    /// The address where people grant access.
    pub authorize: String,
    /// The address where codes and refresh tokens are exchanged for access tokens.
    pub token: String,
    /// The address where grants are revoked, if there is one.
    pub revoke: Option<String>,
    /// The issuer name that it uses in its answers, if it does.
    pub issuer: Option<String>,
    /// The client id of the gateway.
    pub client_id: String,
    /// The scopes to request.
    pub scopes: Vec<String>,
    /// The capabilities that the access token is for.
    pub capabilities: Vec<String>,
    /// The hosts that the access token is for.
    pub api_hosts: Vec<String>,
    /// What it is for, and what its addresses may open.
    pub terms: GrantTerms,
}

impl OauthProvider {
    /// Google, for a mailbox.
    #[must_use]
    pub fn google(client_id: String, api_host: &str) -> Self {
        Self {
            authorize: "https://accounts.google.com/o/oauth2/v2/auth".into(),
            token: "https://oauth2.googleapis.com/token".into(),
            revoke: Some("https://oauth2.googleapis.com/revoke".into()),
            issuer: Some("https://accounts.google.com".into()),
            client_id,
            scopes: vec!["https://www.googleapis.com/auth/gmail.modify".into()],
            capabilities: vec!["email.*".into()],
            api_hosts: vec![api_host.to_owned()],
            terms: GrantTerms::Account,
        }
    }

    /// The link where a person grants access.
    pub(super) fn link(&self, redirect: &str, state: &str, challenge: &str) -> Result<String, OauthError> {
        let bad = || OauthError::Address("the authorization address is not a valid URL".into());
        let mut url = Url::parse(&self.authorize).map_err(|_| bad())?;
        if !matches!(url.scheme(), "https" | "http") || url.host().is_none() {
            return Err(bad());
        }
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", redirect)
            .append_pair("state", state)
            .append_pair("code_challenge", challenge)
            .append_pair("code_challenge_method", "S256");
        if !self.scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &self.scopes.join(" "));
        }
        match &self.terms {
            // Google issues a refresh token only with this parameter; other providers ignore it.
            GrantTerms::Account => url.query_pairs_mut().append_pair("access_type", "offline"),
            GrantTerms::Server(terms) => url.query_pairs_mut().append_pair("resource", &terms.resource),
        };
        // OpenID Connect Core, 11: `offline_access` counts only with this prompt.
        if self.terms.server().is_none() || self.scopes.iter().any(|scope| scope == OFFLINE) {
            url.query_pairs_mut().append_pair("prompt", "consent");
        }
        Ok(url.into())
    }

    fn targets(&self) -> Result<Vec<EgressUrl>, OauthError> {
        let urls = std::iter::once(&self.token).chain(&self.revoke);
        urls.map(|url| {
            EgressUrl::parse(url).map_err(|why| OauthError::Address(format!("an address of the provider: {why}")))
        })
        .collect()
    }

    /// The hosts of the provider itself.
    pub(super) fn own_hosts(&self) -> Result<Vec<String>, OauthError> {
        Ok(self.targets()?.iter().map(|target| target.host().to_owned()).collect())
    }

    /// The egress connection to the provider.
    pub(super) fn way_out(&self, service: &ServiceName) -> Result<EgressConnection, OauthError> {
        let wrong = |why: String| OauthError::Address(why);
        let targets = self.targets()?;
        let hosts: Result<Vec<_>, _> = targets.iter().map(|target| HostPattern::parse(target.host())).collect();
        let mut way = EgressConnection::new(way_name(service)?, hosts.map_err(wrong)?);
        let paths: Result<Vec<_>, _> = targets.iter().map(|target| PathPattern::parse(target.path())).collect();
        way.paths = paths.map_err(wrong)?;
        way.ports = targets.iter().map(EgressUrl::port).collect();
        way.methods = vec![Method::POST];
        if let Some(terms) = self.terms.server() {
            // SECURITY: the server published these addresses: they open nothing by themselves.
            for url in std::iter::once(&self.token).chain(&self.revoke) {
                way.plain_http |= !terms.reach.check("token_endpoint", url)?.is_tls();
            }
            way.allow_addresses = terms.reach.allow_addresses.clone();
        }
        for target in targets.iter().filter(|_| self.terms.server().is_none()) {
            let opened = target.address().and_then(|address| IpNetwork::parse(&address.to_string()).ok());
            // SECURITY: a token must not cross a network in plain text; a loopback address crosses none.
            if !target.is_tls() && !target.address().is_some_and(|address| address.is_loopback()) {
                return Err(OauthError::Address("a provider is reached over https, or on 127.0.0.1".into()));
            }
            way.plain_http |= !target.is_tls();
            way.allow_addresses.extend(opened);
        }
        // A grant is renewed without end: no total limit, but no bursts either.
        way.limits = ConnectionLimits { per_minute: Some(20), per_hour: Some(200), burn: None };
        way.max_answer = 64 << 10;
        Ok(way)
    }

    /// The requested scopes that were not granted. If the provider names no scopes, it granted all of them.
    pub(super) fn missing(&self, granted: Option<&str>) -> Vec<String> {
        let Some(granted) = granted.map(words) else { return Vec::new() };
        self.scopes.iter().filter(|wanted| !granted.contains(wanted)).cloned().collect()
    }
}

pub(super) fn words(scope: &str) -> Vec<String> {
    scope.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Whether a redirect leads to a port of the machine that the browser runs on.
#[must_use]
pub fn redirect_is_loopback(redirect: &str) -> bool {
    let Ok(url) = Url::parse(redirect) else { return false };
    let host = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        // SECURITY: `localhost` is a name that must be resolved (RFC 8252, 8.3).
        Some(url::Host::Domain(_)) | None => false,
    };
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    host && url.scheme() == "http" && url.port().is_some() && plain && url.query().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gmail() -> ServiceName {
        ServiceName::new("gmail").unwrap()
    }

    #[test]
    fn only_a_port_of_this_machine_gets_the_code() {
        for fine in ["http://127.0.0.1:8080/", "http://127.0.0.1:8080/callback", "http://[::1]:9/"] {
            assert!(redirect_is_loopback(fine), "{fine}");
        }
        for bad in [
            "https://evil.example/",
            "http://localhost:8080/",
            "http://127.0.0.1/",
            "http://127.0.0.1.evil.example:80/",
            "http://user@127.0.0.1:8080/",
            "http://10.0.0.1:8080/",
            "http://127.0.0.1:8080/?x=1",
            "javascript:alert(1)",
            "",
        ] {
            assert!(!redirect_is_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn the_way_leads_to_two_addresses_by_one_method() {
        let way = OauthProvider::google("id".into(), "gmail.googleapis.com").way_out(&gmail()).unwrap();
        assert_eq!(way.name.as_str(), "oauth.gmail");
        let admit = |method: Method, url: &str| way.admit(&method, &EgressUrl::parse(url).unwrap()).is_ok();
        assert!(admit(Method::POST, "https://oauth2.googleapis.com/token"));
        assert!(admit(Method::POST, "https://oauth2.googleapis.com/revoke"));
        assert!(!admit(Method::GET, "https://oauth2.googleapis.com/token"));
        assert!(!admit(Method::POST, "https://oauth2.googleapis.com/other"));
        assert!(!admit(Method::POST, "https://gmail.googleapis.com/token"));
        assert!(!admit(Method::POST, "http://oauth2.googleapis.com:443/token"));
        assert!(way.agents.is_none() && way.credential.is_none());
    }

    #[test]
    fn tokens_cross_no_network_in_clear() {
        let mut provider = OauthProvider::google("id".into(), "gmail.googleapis.com");
        provider.token = "http://oauth2.googleapis.com/token".into();
        assert!(matches!(provider.way_out(&gmail()), Err(OauthError::Address(_))));
        (provider.token, provider.revoke) = ("http://127.0.0.1:4713/token".into(), None);
        let way = provider.way_out(&gmail()).unwrap();
        assert!(way.plain_http && way.allow_addresses.len() == 1);
    }

    #[test]
    fn what_was_not_granted_is_named() {
        let mut provider = OauthProvider::google("id".into(), "gmail.googleapis.com");
        provider.scopes = vec!["read".into(), "send".into()];
        assert_eq!(provider.missing(Some("email read")), ["send"]);
        assert!(provider.missing(Some("send read openid")).is_empty());
        assert!(provider.missing(None).is_empty(), "silence means all (RFC 6749, 5.1)");
    }
}
