//! Secrets and the root key, for operators.
//!
//! Promise: a secret value is accepted and never returned.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_core::ids::SecretName;
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretValue, VaultError};
use sluice_services::CallError;
use sluice_services::secrets::as_json;
use zeroize::Zeroizing;

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::views::ListPage;

/// How many seconds the old value stays known after a rotation, by default.
const OVERLAP: u64 = 3600;

/// A secret text that is never shown.
#[derive(Deserialize, JsonSchema)]
#[serde(from = "String")]
#[schemars(with = "String")]
pub struct SecretInput(Zeroizing<String>);

impl From<String> for SecretInput {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl std::fmt::Debug for SecretInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hidden")
    }
}

/// A secret with its first or next value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecretBody {
    /// The value. It is never shown again.
    pub value: SecretInput,
    /// `api_key`, `oauth_token` or `password`.
    #[serde(default)]
    pub kind: Option<String>,
    /// Capabilities that may use it: `network.credentialed_request`, `email.*`.
    pub capabilities: Vec<String>,
    /// Hosts it may be sent to: `api.example.com`, `*.example.com`.
    pub hosts: Vec<String>,
}

/// A new value for a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecretBody {
    /// The new value. It is never shown again.
    pub value: SecretInput,
    /// How long the old value is still removed from answers, in seconds; by default an hour.
    #[serde(default)]
    pub overlap_s: Option<u64>,
}

/// Where the root key comes from.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VaultView {
    /// The source of the root key, as text.
    pub root_key: String,
    /// Identifies the root key without revealing it.
    pub fingerprint: String,
    /// How many secrets there are.
    pub secrets: usize,
}

fn no(error: VaultError) -> CallError {
    error.refusal().into()
}

const KINDS: [&str; 4] = ["api_key", "oauth_token", "password", "other"];

fn kind(kind: Option<String>) -> Result<Option<String>, CallError> {
    match kind {
        Some(kind) if !KINDS.contains(&kind.as_str()) => {
            Err(no(VaultError::Wrong(format!("kind is one of {}", KINDS.join(", ")))))
        }
        kind => Ok(kind),
    }
}

pub(super) fn value(SecretInput(text): SecretInput) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec())
}

/// `GET /v1/secrets`.
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let data: Vec<Value> = visit.gw.vault.list().await.map_err(no)?.iter().map(as_json).collect();
    Ok(HttpReply::json(200, &ListPage { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/secrets/{name}`.
pub(super) async fn show(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: SecretName = visit.path_param("name")?;
    Ok(HttpReply::json(200, &as_json(&visit.gw.vault.show(&name).await.map_err(no)?)))
}

/// `PUT /v1/secrets/{name}`.
pub(super) async fn set(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let SetSecretBody { value: text, kind: word, capabilities, hosts } = visit.parse_body()?;
    let name: SecretName = visit.path_param("name")?;
    let scope = SecretScope::new(capabilities, &hosts).map_err(|why| no(VaultError::Wrong(why)))?;
    let new = NewSecretValue {
        value: value(text),
        kind: kind(word)?,
        scope: Some(scope),
        overlap: Millis::from_secs(OVERLAP),
    };
    put(&visit, &name, new).await
}

/// `POST /v1/secrets/{name}/rotate`.
pub(super) async fn rotate(mut visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let RotateSecretBody { value: text, overlap_s } = visit.parse_body()?;
    let name: SecretName = visit.path_param("name")?;
    let overlap = Millis::from_secs(overlap_s.unwrap_or(OVERLAP).min(30 * 24 * 3600));
    // Only an existing secret can be rotated, and a revoked one stays revoked.
    if visit.gw.vault.show(&name).await.map_err(no)?.revoked.is_some() {
        return Err(no(VaultError::Unknown));
    }
    put(&visit, &name, NewSecretValue { value: value(text), kind: None, scope: None, overlap }).await
}

async fn put(visit: &RoutedRequest, name: &SecretName, new: NewSecretValue) -> Result<HttpReply, CallError> {
    let row = visit.gw.vault.set(name, new, visit.actor()?).await.map_err(no)?;
    visit.gw.egress.refresh().await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &as_json(&row)))
}

/// `DELETE /v1/secrets/{name}`.
pub(super) async fn revoke(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let name: SecretName = visit.path_param("name")?;
    visit.gw.vault.revoke(&name, visit.actor()?).await.map_err(no)?;
    visit.gw.egress.refresh().await?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::nothing())
}

/// `GET /v1/vault`.
pub(super) async fn vault(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let vault = &visit.gw.vault;
    let secrets = vault.list().await.map_err(no)?.iter().filter(|row| row.revoked.is_none()).count();
    let view = VaultView { root_key: vault.source().describe(), fingerprint: vault.fingerprint(), secrets };
    Ok(HttpReply::json(200, &view))
}

/// `POST /v1/vault/rekey`.
pub(super) async fn rekey(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let fingerprint = visit.gw.vault.rekey(visit.actor()?).await.map_err(no)?;
    visit.gw.signals.events.notify_written();
    Ok(HttpReply::json(200, &json!({"fingerprint": fingerprint})))
}
