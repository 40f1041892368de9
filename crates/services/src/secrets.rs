//! The secrets service: agents see names of secrets and can request a new value.
//!
//! Promise: no answer holds a value; requesting a new value notifies people and changes nothing.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::{MessageId, SecretName, SessionId};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor, BoxedFuture, CapabilityName};
use sluice_egress::vault::{SecretScope, Vault, VaultError};
use sluice_store::{SecretRow, Store, StoreError};

use super::{CompletedWrite, LookupOutcome, ReadSource, Service, ServiceRead, WriteError};

const REASONS: [&str; 3] = ["expiring", "compromised", "auth_failure"];

/// The service.
#[derive(Debug)]
pub struct SecretsService {
    store: Arc<Store>,
    vault: Arc<Vault>,
}

impl SecretsService {
    /// The service over this vault.
    #[must_use]
    pub fn new(store: Arc<Store>, vault: Arc<Vault>) -> Self {
        Self { store, vault }
    }

    async fn list(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let all = ask.action.arguments().get("include_revoked").and_then(Value::as_bool).unwrap_or(false);
        let rows = self.vault.list().await.map_err(VaultError::refusal)?;
        let shown: Vec<Value> = rows.iter().filter(|row| all || row.revoked.is_none()).map(as_json).collect();
        Ok(json!({"secrets": shown, "total": shown.len()}))
    }

    async fn ask_for(&self, hold: &Hold, permit: Permit) -> Result<CompletedWrite, WriteError> {
        let (name, reason) = wish(&hold.action).map_err(WriteError::Refused)?;
        // The request gets its id from the write, so that a repeated request is the same one.
        let request = MessageId::from_bits(permit.hold().bits());
        let asked =
            self.store.ask_rotation(request, name.clone(), reason.to_owned(), Actor::Agent(hold.agent().clone())).await;
        match asked {
            Ok(()) => {}
            Err(StoreError::NotFound { .. }) => return Err(WriteError::refused(Code::VaultUnknown)),
            Err(error) => return Err(WriteError::NotDone(VaultError::Store(error).refusal())),
        }
        let result = json!({"request_id": request, "secret_name": name, "status": "submitted"});
        Ok(CompletedWrite { receipt: request.to_string(), result, after: None, undo_until: None })
    }
}

/// A secret as every agent may see it.
#[must_use]
pub fn as_json(row: &SecretRow) -> Value {
    let scope = SecretScope::from_text(&row.scope).ok();
    json!({
        "name": row.name,
        "type": row.kind,
        "allowed_capabilities": scope.as_ref().map(|scope| &scope.capabilities),
        "allowed_hosts": scope.as_ref().map(|scope| &scope.hosts),
        "version": row.version,
        "created_at": row.created_at.to_string(),
        "updated_at": row.updated_at.to_string(),
        "revoked": row.revoked.is_some(),
    })
}

fn wish(action: &Action) -> Result<(SecretName, &str), Refusal> {
    let arguments = action.arguments();
    let name = arguments.get("secret_name").and_then(Value::as_str).unwrap_or_default();
    let name = SecretName::new(name).map_err(|_| Refusal::new(Code::SchemaBadName))?;
    let reason = arguments.get("reason").and_then(Value::as_str).unwrap_or("expiring");
    if !REASONS.contains(&reason) {
        let text = "reason is `expiring`, `compromised` or `auth_failure`";
        return Err(Refusal::new(Code::SchemaWrongType).with_text(text));
    }
    Ok((name, reason))
}

impl Service for SecretsService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        ["secrets.list", "secrets.rotate_request"].contains(&capability.as_str())
    }

    fn check_feasible<'a>(&'a self, action: &'a Action, _: Option<SessionId>) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let (name, _) = wish(action)?;
            self.vault.show(&name).await.map(drop).map_err(VaultError::refusal)
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.list(ask))
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.ask_for(hold, permit))
    }

    /// A repeat has no further effect.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(std::future::ready(LookupOutcome::Absent))
    }
}
