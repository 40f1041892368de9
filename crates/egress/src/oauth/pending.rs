//! Pending links: sign-in links that wait for their answer.
//!
//! Promise: a link is answered once, within ten minutes, for the service it was made for; its verifier leaves this
//! memory only to the provider; the number of open links is limited.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use sluice_core::{Entropy, Millis, ServiceName, UtcMillis};

use super::error::OauthError;
use super::provider::OauthProvider;
use crate::vault::SecretValue;

/// How long a link is valid.
const LIFE: Millis = Millis::from_mins(10);
/// The most links that wait at once.
const MOST: usize = 64;

/// A sign-in link for a person.
#[derive(Clone)]
pub struct AuthorizationLink {
    /// The URL that the person opens.
    pub url: String,
    /// The state that its answer carries.
    pub state: String,
    /// When it expires.
    pub expires_at: UtcMillis,
}

impl std::fmt::Debug for AuthorizationLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The details of a link that was issued.
pub(super) struct PendingAuthorization {
    service: ServiceName,
    /// The provider that the link leads to.
    pub(super) provider: Arc<OauthProvider>,
    /// The secret of the client, if it is not in the vault yet.
    pub(super) client: Option<SecretValue>,
    pub(super) redirect: String,
    pub(super) verifier: SecretValue,
    expires_at: UtcMillis,
}

/// Links by the hash of their state: reading the map does not reveal a valid state.
#[derive(Default)]
pub(super) struct AuthorizationTable(HashMap<[u8; 32], PendingAuthorization>);

fn key(state: &str) -> [u8; 32] {
    Sha256::digest(state.as_bytes()).into()
}

/// 32 random bytes as text: the length that RFC 7636 recommends for a verifier, and more than enough for a state.
fn random(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 32];
    entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

impl AuthorizationTable {
    pub(super) fn begin(
        &mut self,
        service: &ServiceName,
        (provider, client): (Arc<OauthProvider>, Option<SecretValue>),
        redirect: &str,
        (entropy, now): (&dyn Entropy, UtcMillis),
    ) -> Result<AuthorizationLink, OauthError> {
        self.0.retain(|_, begun| now < begun.expires_at);
        if self.0.len() >= MOST {
            return Err(OauthError::TooMany);
        }
        let (state, verifier) = (random(entropy), random(entropy));
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let url = provider.link(redirect, &state, &challenge)?;
        let expires_at = now + LIFE;
        let begun = PendingAuthorization {
            service: service.clone(),
            provider,
            client,
            redirect: redirect.to_owned(),
            verifier: SecretValue::new(verifier.into_bytes()),
            expires_at,
        };
        self.0.insert(key(&state), begun);
        Ok(AuthorizationLink { url, state, expires_at })
    }

    /// Drops the open links of a service.
    pub(super) fn forget(&mut self, service: &ServiceName) {
        self.0.retain(|_, begun| begun.service != *service);
    }

    /// The link with this state. The lookup uses it up, whatever the result.
    pub(super) fn take(&mut self, service: &ServiceName, state: &str, now: UtcMillis) -> Option<PendingAuthorization> {
        let begun = self.0.remove(&key(state))?;
        (begun.service == *service && now < begun.expires_at).then_some(begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_testkit::ids::SeededEntropy;

    fn name(text: &str) -> ServiceName {
        ServiceName::new(text).unwrap()
    }

    fn at(secs: u64) -> UtcMillis {
        UtcMillis::from_millis(1_790_000_000_000) + Millis::from_secs(secs)
    }

    fn begin(
        pending: &mut AuthorizationTable,
        entropy: &SeededEntropy,
        now: UtcMillis,
    ) -> Result<AuthorizationLink, OauthError> {
        let provider = OauthProvider::google("client".into(), "gmail.googleapis.com");
        pending.begin(&name("gmail"), (Arc::new(provider), None), "http://127.0.0.1:9000/", (entropy, now))
    }

    #[test]
    fn the_link_carries_the_hash_of_a_verifier_that_stays_here() {
        let (mut pending, entropy) = (AuthorizationTable::default(), SeededEntropy::new(1));
        let link = begin(&mut pending, &entropy, at(0)).unwrap();
        let begun = pending.take(&name("gmail"), &link.state, at(1)).unwrap();
        let verifier = std::str::from_utf8(begun.verifier.expose()).unwrap().to_owned();
        assert_eq!(verifier.len(), 43);
        assert!(!link.url.contains(&verifier));
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        assert!(link.url.contains(&format!("code_challenge={challenge}")), "{}", link.url);
        assert!(link.url.contains("code_challenge_method=S256") && link.url.contains(&format!("state={}", link.state)));
        assert!(!format!("{link:?}").contains(&link.state));
    }

    #[test]
    fn a_state_works_once_in_time_and_for_its_own_service() {
        let (mut pending, entropy) = (AuthorizationTable::default(), SeededEntropy::new(1));
        let links: Vec<AuthorizationLink> = (0..4).map(|_| begin(&mut pending, &entropy, at(0)).unwrap()).collect();
        assert!(pending.take(&name("gmail"), &links[0].state, at(599)).is_some());
        assert!(pending.take(&name("gmail"), &links[0].state, at(599)).is_none(), "a second time");
        assert!(pending.take(&name("gmail"), &links[1].state, at(600)).is_none(), "too late");
        assert!(pending.take(&name("other"), &links[2].state, at(1)).is_none(), "another service");
        assert!(pending.take(&name("gmail"), &links[2].state, at(1)).is_none(), "it was spent by that");
        assert!(pending.take(&name("gmail"), "made up", at(1)).is_none());
    }

    #[test]
    fn links_nobody_answers_do_not_pile_up() {
        let (mut pending, entropy) = (AuthorizationTable::default(), SeededEntropy::new(1));
        for _ in 0..MOST {
            begin(&mut pending, &entropy, at(0)).unwrap();
        }
        assert!(matches!(begin(&mut pending, &entropy, at(1)), Err(OauthError::TooMany)));
        assert!(begin(&mut pending, &entropy, at(601)).is_ok(), "the old ones have lapsed");
    }
}
