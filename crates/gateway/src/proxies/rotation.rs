//! When a lasting account gets a new credential: the gateway keeps the date, people make the new value.
//!
//! Takes the declarations with an identity; gives one request for each value that is old enough. Promise: a value is
//! asked for once in each period it is overdue, across restarts too, and never by a task.

use sha2::{Digest as _, Sha256};
use sluice_core::ids::{MessageId, SecretName};
use sluice_core::proxy::Proxy;
use sluice_core::{Actor, Span, Timestamp};

use crate::vault::VaultError;
use crate::{Gateway, No};

/// A credential that is replaced by the calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// Which.
    pub secret: SecretName,
    /// When its value is old enough.
    pub due: Timestamp,
    every: Span,
    version: u64,
}

/// When the credential of this proxy is to be replaced; nothing where it has no lasting account or no value yet.
///
/// # Errors
/// When the vault cannot be read.
pub async fn of(gw: &Gateway, declared: &Proxy) -> Result<Option<Rotation>, No> {
    let (Some(identity), Some(name)) = (&declared.identity, &declared.credential) else { return Ok(None) };
    let Ok(secret) = SecretName::new(name.as_str()) else { return Ok(None) };
    let row = match gw.vault.show(&secret).await {
        Ok(row) if row.revoked.is_none() => row,
        Ok(_) | Err(VaultError::Unknown) => return Ok(None),
        Err(error) => return Err(No::from(error.refusal())),
    };
    let every = Span::from_hours(u64::from(identity.rotate_days.max(1)) * 24);
    Ok(Some(Rotation { secret, due: row.updated_at + every, every, version: row.version }))
}

impl Rotation {
    /// Names the request of the period `now` lies in, so that asking twice is asking once.
    fn request(&self, now: Timestamp) -> MessageId {
        let late = now.since(self.due).as_millis() / self.every.as_millis().max(1);
        let named = format!("rotation/{}/{}/{late}", self.secret, self.version);
        let hash = Sha256::digest(named.as_bytes());
        let bits = hash.iter().take(16).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        MessageId::from_bits(bits)
    }
}

/// Asks people for what is due.
///
/// # Errors
/// When a request cannot be recorded.
pub(crate) async fn ask(gw: &Gateway) -> Result<(), No> {
    let now = gw.now();
    for proxy in gw.proxies.all() {
        let Some(rotation) = of(gw, proxy.declared()).await?.filter(|rotation| now >= rotation.due) else { continue };
        let by = Actor::Node(gw.store.node().clone());
        let (request, secret) = (rotation.request(now), rotation.secret.clone());
        gw.store.ask_rotation(request, secret, "expiring".into(), by).await?;
    }
    Ok(())
}
