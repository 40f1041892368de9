//! Replicas that are encrypted on the disk: their keys, and what happens when a key is gone.
//!
//! Takes what the configuration wants and what is in the folder; gives an open replica. A key is random, one for each
//! connection, sealed in the vault and bound to this use only. Promise: no key is made while an existing replica needs
//! another one; a replica whose key is gone is never deleted before a person says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use sluice_core::refusal::Code;
use sluice_core::{Millis, ServiceName};
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretUse, SecretValue, VaultError};
use sluice_store::replica::{Replica, ReplicaEncryption, SealKey};
use sluice_store::{MessageSeverity, OutboxMessage, StoreError};

use super::{ConnectionHandle, ServiceConnections};
use crate::CallError;

/// The scope of a key: a host name that resolves to nothing, and a use that no agent can request.
const NOWHERE: &str = "copy.invalid";
const USE: &str = "copy.open";

impl ServiceConnections {
    /// Opens the replica of a connection in the form that the configuration wants. A replica whose key is gone stays
    /// closed, and people are notified.
    pub(super) async fn open_copy(&self, line: &ConnectionHandle) -> Result<(), CallError> {
        if line.copy().is_some() {
            return Ok(());
        }
        let name = line.row().name;
        let opened = self.opened(&name).await;
        line.locked.store(matches!(&opened, Err(no) if no.refusal.code() == Code::StoreWrongKey), Ordering::SeqCst);
        match opened {
            Ok(copy) => {
                *line.copy.write() = Some(Arc::new(copy));
                Ok(())
            }
            // It is put behind the gate all the same: callers are told why there is no answer.
            Err(no) if no.refusal.code() == Code::StoreWrongKey => {
                self.tell_locked(&name).await;
                Ok(())
            }
            Err(no) => Err(no),
        }
    }

    /// Deletes a replica whose key is gone, with what is left of its key. The next one gets its own key.
    pub(super) async fn give_up_locked(&self, line: &ConnectionHandle) -> Result<(), CallError> {
        let name = line.row().name;
        match self.deps.vault.revoke(&Self::copy_secret(&name)?, self.node()).await {
            Ok(()) | Err(VaultError::Unknown) => {}
            Err(error) => return Err(error.refusal().into()),
        }
        self.remove_files(&name)?;
        self.open_copy(line).await
    }

    /// Whether the replica of a connection is encrypted; `None` if there is no replica.
    pub(super) fn is_encrypted(&self, line: Option<&ConnectionHandle>, name: &ServiceName) -> Option<bool> {
        match line.and_then(ConnectionHandle::copy) {
            Some(copy) => Some(copy.is_sealed()),
            None => Replica::is_sealed_on_disk(&self.folder(name)).then_some(true),
        }
    }

    pub(super) fn folder(&self, name: &ServiceName) -> PathBuf {
        self.deps.folder.join(name.as_str())
    }

    async fn opened(&self, name: &ServiceName) -> Result<Replica, CallError> {
        let (wanted, folder) = (self.context()?.config.services.encrypt_copies, self.folder(name));
        let key = self.copy_key(name).await?;
        let keeping = match (wanted, key) {
            (true, Some(key)) => ReplicaEncryption::Sealed(key),
            (true, None) if Replica::is_sealed_on_disk(&folder) => return Err(StoreError::WrongKey.into()),
            (true, None) => ReplicaEncryption::Sealed(self.first_key(name).await?),
            (false, key) => ReplicaEncryption::Clear(key),
        };
        let no_longer_needed = matches!(keeping, ReplicaEncryption::Clear(Some(_)));
        let connection = name.clone();
        // It may have to be converted to the other form, which takes as long as copying it.
        let opening = tokio::task::spawn_blocking(move || open_or_begin(&connection, &folder, &keeping));
        let copy = opening.await.map_err(|_| CallError::new(Code::GatewayInternal))??;
        if no_longer_needed {
            match self.deps.vault.revoke(&Self::copy_secret(name)?, self.node()).await {
                Ok(()) | Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.refusal().into()),
            }
        }
        Ok(copy)
    }

    /// The key of a replica, if there is one. A secret that is not a valid key is treated as a wrong key.
    async fn copy_key(&self, name: &ServiceName) -> Result<Option<SealKey>, CallError> {
        let (secret, way, hosts) =
            (Self::copy_secret(name)?, ConnectionHandle::egress_connection_name(name)?, [NOWHERE.to_owned()]);
        let wanted = SecretUse { capability: USE, connection: &way, hosts: &hosts, by: self.node() };
        match self.deps.vault.take(&secret, &wanted).await {
            Ok(value) => SealKey::from_hex(value.expose()).map(Some).ok_or_else(|| StoreError::WrongKey.into()),
            Err(VaultError::Unknown) => Ok(None),
            Err(VaultError::OutOfScope) => Err(StoreError::WrongKey.into()),
            Err(error) => Err(error.refusal().into()),
        }
    }

    /// Makes a key. If another node was faster, uses that node's key.
    async fn first_key(&self, name: &ServiceName) -> Result<SealKey, CallError> {
        let key = self.deps.vault.random_key();
        let scope = SecretScope::new(vec![USE.to_owned()], &[NOWHERE.to_owned()]);
        let scope = scope.map_err(|why| CallError::with_text(Code::SchemaWrongType, &why))?;
        let new = NewSecretValue {
            value: SecretValue::new(key.to_hex().as_bytes().to_vec()),
            kind: Some("encryption_key".into()),
            scope: Some(scope),
            overlap: Millis::ZERO,
        };
        let begun = self.deps.vault.begin(&Self::copy_secret(name)?, new, self.node()).await;
        begun.map_err(|error| CallError::from(error.refusal()))?;
        self.copy_key(name).await?.ok_or_else(|| StoreError::WrongKey.into())
    }

    async fn tell_locked(&self, name: &ServiceName) {
        tracing::error!(connection = %name, code = "store.wrong_key", "the key of the replica of {name} is missing");
        let body = json!({"connection": name});
        let message = OutboxMessage {
            id: self.message(),
            topic: "copy.locked".into(),
            severity: MessageSeverity::Critical,
            body,
        };
        if let Err(error) = self.deps.store.alert(message, self.node()).await {
            tracing::error!(code = error.code(), "an alert about {name} could not be recorded: {error}");
        }
    }
}

/// Opens a replica; a damaged one is made again, because the service has all that it held.
fn open_or_begin(name: &ServiceName, folder: &Path, keeping: &ReplicaEncryption) -> Result<Replica, StoreError> {
    match Replica::open(folder, keeping) {
        Err(StoreError::Damaged { .. }) => {
            tracing::error!(connection = %name, "the replica of {name} is damaged and is made again");
            std::fs::remove_dir_all(folder).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
            Replica::open(folder, keeping)
        }
        other => other,
    }
}
