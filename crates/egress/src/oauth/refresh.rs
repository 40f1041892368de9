//! What connections need from their grants: a credential that stays valid, and the addresses of a service.

use serde::{Deserialize, Serialize};
use sluice_core::{BoxedFuture, ServiceName};

/// Why there is no fresh credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialRefreshError {
    /// The service no longer accepts our credential: a person has to sign in.
    NeedsReauth,
    /// No credential now: the authorization server does not answer.
    Later,
}

/// Keeps the credential at `service/<connection>/access` usable.
pub trait CredentialRefresher: Send + Sync {
    /// Called before each job: makes sure that the credential stays valid for a while.
    fn refresh<'a>(&'a self, connection: &'a ServiceName) -> BoxedFuture<'a, Result<(), CredentialRefreshError>>;

    /// Called once after the service refused the credential (401): gets a new one, whatever the age of the old one.
    fn replace_refused<'a>(
        &'a self,
        connection: &'a ServiceName,
    ) -> BoxedFuture<'a, Result<(), CredentialRefreshError>> {
        self.refresh(connection)
    }
}

/// Addresses of a service and of its authorization server. What is not set comes from the adapter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceEndpoints {
    /// Address of the service: `https://gmail.googleapis.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The authorization endpoint, where a person consents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorize: Option<String>,
    /// The token endpoint, where a code is exchanged for tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The revocation endpoint, where tokens are revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoke: Option<String>,
    /// Our client id there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The scopes that are requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// A fingerprint of the description that a third-party adapter gave when a person connected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter_print: Option<String>,
}
