//! Secrets and the root key, for operators.
//!
//! Promise: a value comes in and never goes out again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::Span;
use sluice_core::ids::SecretName;
use zeroize::Zeroizing;

use super::reply::Reply;
use super::route::Visit;
use super::views::Page;
use crate::No;
use crate::services::secrets::as_json;
use crate::vault::{NewValue, Scope, Secret, VaultError};

/// How long the old value is known after a rotation, unless said otherwise.
const OVERLAP: u64 = 3600;

/// A text nobody may see.
#[derive(Deserialize, JsonSchema)]
#[serde(from = "String")]
#[schemars(with = "String")]
pub struct Hidden(Zeroizing<String>);

impl From<String> for Hidden {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hidden")
    }
}

/// A secret with its first or next value.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// The value. It is never shown again.
    pub value: Hidden,
    /// `api_key`, `oauth_token` or `password`.
    #[serde(default)]
    pub kind: Option<String>,
    /// Capabilities it may be used by: `network.credentialed_request`, `email.*`.
    pub capabilities: Vec<String>,
    /// Hosts it may be sent to: `api.example.com`, `*.example.com`.
    pub hosts: Vec<String>,
}

/// A new value for a secret.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateSecret {
    /// The new value. It is never shown again.
    pub value: Hidden,
    /// How long the old value is still kept out of answers, in seconds; an hour if not given.
    #[serde(default)]
    pub overlap_s: Option<u64>,
}

/// Where the root key comes from.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VaultView {
    /// In words.
    pub root_key: String,
    /// Names it without giving it away.
    pub fingerprint: String,
    /// How many secrets there are.
    pub secrets: usize,
}

fn no(error: VaultError) -> No {
    error.refusal().into()
}

const KINDS: [&str; 4] = ["api_key", "oauth_token", "password", "other"];

fn kind(kind: Option<String>) -> Result<Option<String>, No> {
    match kind {
        Some(kind) if !KINDS.contains(&kind.as_str()) => {
            Err(no(VaultError::Wrong(format!("kind is one of {}", KINDS.join(", ")))))
        }
        kind => Ok(kind),
    }
}

pub(super) fn value(Hidden(text): Hidden) -> Secret {
    Secret::new(text.as_bytes().to_vec())
}

/// `GET /v1/secrets`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let data: Vec<Value> = visit.gw.vault.list().await.map_err(no)?.iter().map(as_json).collect();
    Ok(Reply::json(200, &Page { data, next_cursor: None, has_more: false }))
}

/// `GET /v1/secrets/{name}`.
pub(super) async fn show(visit: Visit) -> Result<Reply, No> {
    let name: SecretName = visit.part("name")?;
    Ok(Reply::json(200, &as_json(&visit.gw.vault.show(&name).await.map_err(no)?)))
}

/// `PUT /v1/secrets/{name}`.
pub(super) async fn set(mut visit: Visit) -> Result<Reply, No> {
    let SetSecret { value: text, kind: word, capabilities, hosts } = visit.take()?;
    let name: SecretName = visit.part("name")?;
    let scope = Scope::new(capabilities, &hosts).map_err(|why| no(VaultError::Wrong(why)))?;
    let new = NewValue { value: value(text), kind: kind(word)?, scope: Some(scope), overlap: Span::from_secs(OVERLAP) };
    put(&visit, &name, new).await
}

/// `POST /v1/secrets/{name}/rotate`.
pub(super) async fn rotate(mut visit: Visit) -> Result<Reply, No> {
    let RotateSecret { value: text, overlap_s } = visit.take()?;
    let name: SecretName = visit.part("name")?;
    let overlap = Span::from_secs(overlap_s.unwrap_or(OVERLAP).min(30 * 24 * 3600));
    // Only what is there can be replaced, and what was revoked stays so.
    if visit.gw.vault.show(&name).await.map_err(no)?.revoked.is_some() {
        return Err(no(VaultError::Unknown));
    }
    put(&visit, &name, NewValue { value: value(text), kind: None, scope: None, overlap }).await
}

async fn put(visit: &Visit, name: &SecretName, new: NewValue) -> Result<Reply, No> {
    let row = visit.gw.vault.set(name, new, visit.actor()?).await.map_err(no)?;
    visit.gw.egress.refresh().await?;
    visit.gw.events.wrote();
    Ok(Reply::json(200, &as_json(&row)))
}

/// `DELETE /v1/secrets/{name}`.
pub(super) async fn revoke(visit: Visit) -> Result<Reply, No> {
    let name: SecretName = visit.part("name")?;
    visit.gw.vault.revoke(&name, visit.actor()?).await.map_err(no)?;
    visit.gw.egress.refresh().await?;
    visit.gw.events.wrote();
    Ok(Reply::nothing())
}

/// `GET /v1/vault`.
pub(super) async fn vault(visit: Visit) -> Result<Reply, No> {
    let vault = &visit.gw.vault;
    let secrets = vault.list().await.map_err(no)?.iter().filter(|row| row.revoked.is_none()).count();
    let view = VaultView { root_key: vault.source().describe(), fingerprint: vault.fingerprint(), secrets };
    Ok(Reply::json(200, &view))
}

/// `POST /v1/vault/rekey`.
pub(super) async fn rekey(visit: Visit) -> Result<Reply, No> {
    let fingerprint = visit.gw.vault.rekey(visit.actor()?).await.map_err(no)?;
    visit.gw.events.wrote();
    Ok(Reply::json(200, &json!({"fingerprint": fingerprint})))
}
