//! Credential rotation of lasting accounts: the gateway watches the date, people make the new value.
//!
//! Takes the declarations with an identity; gives one request for each value that is due. Promise: a new value is
//! requested once in each period it is overdue, also across restarts, and never by a task.

use sha2::{Digest as _, Sha256};
use sluice_core::ids::{MessageId, SecretName};
use sluice_core::proxy::Proxy;
use sluice_core::{Actor, Millis, UtcMillis};
use sluice_egress::vault::VaultError;

use crate::CallError;
use crate::ServiceContext;

/// A credential that is rotated on a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRotation {
    /// The name of the secret.
    pub secret: SecretName,
    /// When its value is due for rotation.
    pub due: UtcMillis,
    every: Millis,
    version: u64,
}

/// When the credential of this proxy is due; `None` where it has no lasting account or no value yet.
///
/// # Errors
/// When the vault cannot be read.
pub async fn of(context: &ServiceContext, declared: &Proxy) -> Result<Option<CredentialRotation>, CallError> {
    let (Some(identity), Some(name)) = (&declared.identity, &declared.credential) else { return Ok(None) };
    let Ok(secret) = SecretName::new(name.as_str()) else { return Ok(None) };
    let row = match context.vault.show(&secret).await {
        Ok(row) if row.revoked.is_none() => row,
        Ok(_) | Err(VaultError::Unknown) => return Ok(None),
        Err(error) => return Err(CallError::from(error.refusal())),
    };
    let every = Millis::from_hours(u64::from(identity.rotate_days.max(1)) * 24);
    Ok(Some(CredentialRotation { secret, due: row.updated_at + every, every, version: row.version }))
}

impl CredentialRotation {
    /// The id of the request for the period that contains `now`; a second request in it has the same id.
    fn request(&self, now: UtcMillis) -> MessageId {
        let late = now.since(self.due).as_millis() / self.every.as_millis().max(1);
        let named = format!("rotation/{}/{}/{late}", self.secret, self.version);
        let hash = Sha256::digest(named.as_bytes());
        let bits = hash.iter().take(16).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        MessageId::from_bits(bits)
    }
}

/// Asks people for the values that are due.
///
/// # Errors
/// When a request cannot be recorded.
pub async fn ask(context: &ServiceContext) -> Result<(), CallError> {
    let now = context.now();
    for proxy in context.proxies.all() {
        let Some(rotation) = of(context, proxy.declared()).await?.filter(|rotation| now >= rotation.due) else {
            continue;
        };
        let by = Actor::Node(context.store.node().clone());
        let (request, secret) = (rotation.request(now), rotation.secret.clone());
        context.store.ask_rotation(request, secret, "expiring".into(), by).await?;
    }
    Ok(())
}
