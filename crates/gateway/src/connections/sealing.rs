//! Copies that are encrypted on the disk: their keys, and what is done when one is gone.
//!
//! Takes what configuration wants and what lies in the folder; gives an open copy. A key is random, one for each
//! connection, sealed in the vault and bound to nothing but this use. Promise: no key is made while a copy needs another
//! one; a copy whose key is gone is never deleted before a person says so.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde_json::json;
use sluice_core::refusal::Code;
use sluice_core::{ServiceName, Span};
use sluice_store::replica::{Keeping, Key, Replica};
use sluice_store::{Message, Severity, StoreError};

use super::{Connections, Line};
use crate::No;
use crate::vault::{NewValue, Scope, Secret, Use, VaultError};

/// What a key is bound to: a name that leads nowhere, and a use that no agent can ask for.
const NOWHERE: &str = "copy.invalid";
const USE: &str = "copy.open";

impl Connections {
    /// Opens the copy of a connection as configuration wants it kept. One whose key is gone stays closed, and people hear
    /// of it.
    pub(super) async fn open_copy(&self, line: &Line) -> Result<(), No> {
        if line.copy().is_some() {
            return Ok(());
        }
        let name = line.row().name;
        let opened = self.opened(&name).await;
        line.locked.store(matches!(&opened, Err(no) if no.refusal.code() == Code::StoreWrongKey), Ordering::SeqCst);
        match opened {
            Ok(copy) => {
                *line.copy.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(copy));
                Ok(())
            }
            // It stands behind the gate all the same: whoever asks is told why there is no answer.
            Err(no) if no.refusal.code() == Code::StoreWrongKey => {
                self.tell_locked(&name).await;
                Ok(())
            }
            Err(no) => Err(no),
        }
    }

    /// Gives up a copy whose key is gone, with what is left of its key. The next one has a key of its own.
    pub(super) async fn give_up_locked(&self, line: &Line) -> Result<(), No> {
        let name = line.row().name;
        match self.ground.vault.revoke(&Self::copy_secret(&name)?, self.node()).await {
            Ok(()) | Err(VaultError::Unknown) => {}
            Err(error) => return Err(error.refusal().into()),
        }
        self.remove_files(&name)?;
        self.open_copy(line).await
    }

    /// Whether the copy of a connection is encrypted; nothing if there is none.
    pub(super) fn is_encrypted(&self, line: Option<&Line>, name: &ServiceName) -> Option<bool> {
        match line.and_then(Line::copy) {
            Some(copy) => Some(copy.is_sealed()),
            None => Replica::lies_sealed(&self.folder(name)).then_some(true),
        }
    }

    pub(super) fn folder(&self, name: &ServiceName) -> PathBuf {
        self.ground.folder.join(name.as_str())
    }

    async fn opened(&self, name: &ServiceName) -> Result<Replica, No> {
        let (wanted, folder) = (self.gateway()?.config.services.encrypt_copies, self.folder(name));
        let key = self.copy_key(name).await?;
        let keeping = match (wanted, key) {
            (true, Some(key)) => Keeping::Sealed(key),
            (true, None) if Replica::lies_sealed(&folder) => return Err(StoreError::WrongKey.into()),
            (true, None) => Keeping::Sealed(self.first_key(name).await?),
            (false, key) => Keeping::Clear(key),
        };
        let no_longer_needed = matches!(keeping, Keeping::Clear(Some(_)));
        let connection = name.clone();
        // It may have to be turned into the other form, which takes as long as copying it.
        let opening = tokio::task::spawn_blocking(move || open_or_begin(&connection, &folder, &keeping));
        let copy = opening.await.map_err(|_| No::new(Code::GatewayInternal))??;
        if no_longer_needed {
            match self.ground.vault.revoke(&Self::copy_secret(name)?, self.node()).await {
                Ok(()) | Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.refusal().into()),
            }
        }
        Ok(copy)
    }

    /// The key of a copy, if there is one. What is no key is as good as another one.
    async fn copy_key(&self, name: &ServiceName) -> Result<Option<Key>, No> {
        let (secret, way, hosts) = (Self::copy_secret(name)?, Line::way(name)?, [NOWHERE.to_owned()]);
        let wanted = Use { capability: USE, connection: &way, hosts: &hosts, by: self.node() };
        match self.ground.vault.take(&secret, &wanted).await {
            Ok(value) => Key::from_hex(value.expose()).map(Some).ok_or_else(|| StoreError::WrongKey.into()),
            Err(VaultError::Unknown) => Ok(None),
            Err(VaultError::OutOfScope) => Err(StoreError::WrongKey.into()),
            Err(error) => Err(error.refusal().into()),
        }
    }

    /// Makes a key. If another node was faster, it is the other's.
    async fn first_key(&self, name: &ServiceName) -> Result<Key, No> {
        let key = self.ground.vault.random_key();
        let scope = Scope::new(vec![USE.to_owned()], &[NOWHERE.to_owned()]);
        let scope = scope.map_err(|why| No::saying(Code::SchemaWrongType, &why))?;
        let new = NewValue {
            value: Secret::new(key.to_hex().as_bytes().to_vec()),
            kind: Some("encryption_key".into()),
            scope: Some(scope),
            overlap: Span::ZERO,
        };
        let begun = self.ground.vault.begin(&Self::copy_secret(name)?, new, self.node()).await;
        begun.map_err(|error| No::from(error.refusal()))?;
        self.copy_key(name).await?.ok_or_else(|| StoreError::WrongKey.into())
    }

    async fn tell_locked(&self, name: &ServiceName) {
        tracing::error!(connection = %name, code = "store.wrong_key", "the copy of {name} is encrypted, and its key is gone");
        let body = json!({"connection": name});
        let message = Message { id: self.message(), topic: "copy.locked".into(), severity: Severity::Critical, body };
        if let Err(error) = self.ground.store.alert(message, self.node()).await {
            tracing::error!(code = error.code(), "an alert about {name} could not be recorded: {error}");
        }
    }
}

/// Opens a copy; one that is damaged is made anew, for what it holds is the service's.
fn open_or_begin(name: &ServiceName, folder: &Path, keeping: &Keeping) -> Result<Replica, StoreError> {
    match Replica::open(folder, keeping) {
        Err(StoreError::Damaged { .. }) => {
            tracing::error!(connection = %name, "the copy of {name} is damaged and is made anew");
            std::fs::remove_dir_all(folder).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
            Replica::open(folder, keeping)
        }
        other => other,
    }
}
