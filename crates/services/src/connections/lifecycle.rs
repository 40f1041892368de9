//! The lifecycle of a connection: begun, live, paused, ended.
//!
//! Takes a person's command, gives the state of the connection. Promise: nothing is offered before a credential has
//! worked once; a connection that ended leaves no replica, no secret and no held write behind, and the receipt says so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use serde_json::json;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::ids::SecretName;
use sluice_core::refusal::Code;
use sluice_core::{Actor, ServiceName};
use sluice_egress::oauth::ServiceEndpoints;
use sluice_egress::vault::VaultError;
use sluice_protocol::{AdapterJobRequest, FailureCause};
use sluice_store::{
    BeginConnection, MoveConnection, ServiceConnection as Row, ServiceHoldsCancelled, Store, StoreError,
};

use super::answer::{AdapterFailure, SyncStepError};
use super::job::AdapterJob;
use super::mail::MailService;
use super::manifest::{self, AdapterStep};
use super::program::ThirdPartyAdapterService;
use super::view::{ConnectionTestView, DisconnectReceiptView, ServiceConnectionView};
use super::{ConnectServiceParams, ConnectionHandle, ServiceConnections, apart, sync, unknown};
use crate::{CallError, Service};

/// A connection that has ended, and what must still be destroyed.
#[allow(missing_debug_implementations, reason = "handed over once; it holds a live connection")]
pub struct EndedConnection {
    row: Row,
    line: Option<Arc<ConnectionHandle>>,
    ended: ServiceHoldsCancelled,
}

impl ServiceConnections {
    /// Every connection, including those that ended.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list(&self, store: &Store) -> Result<Vec<ServiceConnectionView>, CallError> {
        let mut list = Vec::new();
        for row in store.connections().await? {
            list.push(self.view(store, row).await?);
        }
        Ok(list)
    }

    /// One connection.
    ///
    /// # Errors
    /// When there is none of this name.
    pub async fn show(&self, name: &ServiceName) -> Result<ServiceConnectionView, CallError> {
        self.view(&self.deps.store, self.row(name).await?).await
    }

    /// The addresses at which a connection is reached and signed in to.
    ///
    /// # Errors
    /// When there is none of this name.
    pub async fn endpoints(&self, name: &ServiceName) -> Result<ServiceEndpoints, CallError> {
        let row = self.row(name).await?;
        serde_json::from_value(row.endpoints).map_err(|_| CallError::new(Code::StoreDamaged))
    }

    /// Begins a connection, or a new sign-in. Nothing is offered yet.
    ///
    /// # Errors
    /// When there is no such adapter, an address cannot be used, or another connection uses the same service.
    pub async fn begin(&self, connect: ConnectServiceParams) -> Result<ServiceConnectionView, CallError> {
        let ConnectServiceParams { name, adapter, mut endpoints, by } = connect;
        let _turn = self.changing.lock().await;
        // The name becomes part of a folder and of a secret's name.
        if name.as_str().starts_with('.') || name.as_str().len() > 40 {
            return Err(CallError::with_text(
                Code::SchemaBadName,
                "the name of a connection must be short and must not begin with a dot",
            ));
        }
        self.ask_anew(&adapter);
        let manifest = self.manifest(&adapter).await?;
        endpoints.adapter_print = manifest.foreign.as_ref().map(|foreign| foreign.print.clone());
        manifest::address(endpoints.api.as_deref().unwrap_or(&manifest.home))?;
        let new = BeginConnection {
            name: name.clone(),
            adapter,
            service: manifest.service.clone(),
            account: None,
            endpoints: json!(endpoints),
            by,
        };
        let row = self.deps.store.begin_connection(new).await.map_err(|error| match error {
            StoreError::Conflict => {
                let text =
                    format!("another connection already uses the service `{}`; disconnect it first", manifest.service);
                CallError::with_text(Code::StoreConflict, &text)
            }
            other => other.into(),
        })?;
        match self.known(&name).filter(|line| line.row().endpoints == row.endpoints) {
            Some(line) => line.keep(row.clone()),
            // Its address has changed.
            None => {
                self.lines.write().remove(&name);
                let line = self.find_or_open(&name).await?;
                if row.state.has_readable_copy() {
                    self.offer_service(&line).await?;
                }
            }
        }
        self.view(&self.deps.store, row).await
    }

    /// Makes a connection live once the credential is in the vault: looks up the account, begins the sync, offers the
    /// capabilities.
    ///
    /// # Errors
    /// When the service does not accept the credential, the account differs from before, or people are asked in it.
    pub async fn go_live(&self, name: &ServiceName, by: Actor) -> Result<ServiceConnectionView, CallError> {
        let _turn = self.changing.lock().await;
        let line = self.find_or_open(name).await?;
        let before = line.row();
        if before.state == ConnectionState::Disconnected {
            return Err(unknown(name));
        }
        let (context, account) = (self.context()?, self.account(&line).await.map_err(|no| self.not_let_in(&no))?);
        if let (Some(known), Some(found)) = (&before.account, &account)
            && known != found
        {
            let text = format!(
                "`{name}` is connected to the account {known}, but the credential is for {found}: disconnect it first"
            );
            return Err(CallError::with_text(Code::StoreConflict, &text));
        }
        if let Some(no) = account.as_deref().and_then(|account| apart::refused(&context.config, account)) {
            return Err(no.into());
        }
        let row = self.step(name, ConnectionStep::SignedIn, account, by).await?;
        line.keep(row.clone());
        self.offer_service(&line).await?;
        if line.manifest.foreign.is_some() {
            // There is no replica to sync.
            self.mark_live_if_syncing(&line).await?;
            return self.view(&self.deps.store, line.row()).await;
        }
        self.request_sync(&line);
        self.view(&self.deps.store, row).await
    }

    /// Stops syncing and sending for a while. The replica stays readable.
    ///
    /// # Errors
    /// When there is no such connection, or it is not at work.
    pub async fn pause(&self, name: &ServiceName, by: Actor) -> Result<ServiceConnectionView, CallError> {
        let line = self.find_or_open(name).await?;
        let row = self.step(name, ConnectionStep::Pause, None, by).await?;
        line.keep(row.clone());
        self.view(&self.deps.store, row).await
    }

    /// Resumes a paused connection.
    ///
    /// # Errors
    /// When it is not paused.
    pub async fn resume(&self, name: &ServiceName, by: Actor) -> Result<ServiceConnectionView, CallError> {
        let line = self.find_or_open(name).await?;
        let row = self.step(name, ConnectionStep::Resume, None, by).await?;
        line.keep(row.clone());
        self.request_sync(&line);
        self.view(&self.deps.store, row).await
    }

    /// Tests whether the service answers and accepts our credential. Changes nothing.
    ///
    /// # Errors
    /// When there is no such connection.
    pub async fn test(&self, name: &ServiceName) -> Result<ConnectionTestView, CallError> {
        let line = self.find_or_open(name).await?;
        let connection = name.clone();
        Ok(match self.account(&line).await {
            Ok(account) => ConnectionTestView { connection, works: true, account, error: None },
            Err(no) => ConnectionTestView { connection, works: false, account: None, error: Some(self.words(&no)) },
        })
    }

    /// Ends a connection at once: from here on it starts nothing, its capabilities are withdrawn and its held writes
    /// are stopped. The caller then notifies the provider, while there is still a credential to do so, and clears the
    /// rest.
    ///
    /// # Errors
    /// When there is none, or it cannot be recorded.
    pub async fn end(&self, name: &ServiceName, by: &Actor) -> Result<EndedConnection, CallError> {
        let _turn = self.changing.lock().await;
        let row = self.row(name).await?;
        if row.state == ConnectionState::Disconnected {
            return self.end_the_rest(row, by).await;
        }
        // Its adapter may be missing or different by now: the connection is ended all the same.
        let line = self.find_or_open(name).await.ok();
        let row = self.step(name, ConnectionStep::End, None, by.clone()).await?;
        if let Some(line) = &line {
            line.keep(row.clone());
        }
        self.context()?.withdraw(&row.service).await;
        let ended = self.cancel_all(&row.service, by).await?;
        self.deps.egress.close(&ConnectionHandle::egress_connection_name(name)?);
        Ok(EndedConnection { row, line, ended })
    }

    /// Continues with a connection that ended before, but of which not everything could be destroyed.
    async fn end_the_rest(&self, row: Row, by: &Actor) -> Result<EndedConnection, CallError> {
        let mut left = self.folder(&row.name).exists();
        for secret in Self::secrets(&row.name)? {
            match self.deps.vault.show(&secret).await {
                Ok(found) => left |= found.revoked.is_none(),
                Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.refusal().into()),
            }
        }
        if !left {
            return Err(unknown(&row.name));
        }
        let rows = self.deps.store.connections().await?;
        let ended = if stands_behind(&rows, &row.service) {
            ServiceHoldsCancelled { cancelled: Vec::new(), on_their_way: Vec::new() }
        } else {
            self.cancel_all(&row.service, by).await?
        };
        Ok(EndedConnection { line: self.known(&row.name), row, ended })
    }

    /// Destroys what is left of a connection that has ended: secrets and replica.
    ///
    /// # Errors
    /// When a part of it cannot be destroyed. The rest is destroyed; the next end command or the next start tries
    /// again.
    pub async fn destroy_ended(&self, over: EndedConnection, by: &Actor) -> Result<DisconnectReceiptView, CallError> {
        let EndedConnection { row, line, ended } = over;
        let name = &row.name;
        let encrypted = self.is_encrypted(line.as_deref(), name).unwrap_or(false);
        let secrets = self.revoke_all(name, by).await;
        let withheld = line.as_ref().and_then(|line| line.copy()).map_or(Ok(0), |copy| copy.withheld_count());
        // A vault that cannot be written must not keep the mail of a person who wants it deleted.
        let messages = match &line {
            Some(line) => self.destroy(line).await,
            None => self.remove_files(name).map(|()| 0),
        };
        // Another account may use the service by now: its content stays.
        let in_use = stands_behind(&self.deps.store.connections().await?, &row.service);
        let service = if in_use { name.clone() } else { row.service.clone() };
        let forgotten = self.deps.store.forget_content(name.clone(), service, by.clone()).await;
        let (secrets, messages, forgotten) = (secrets?, messages?, forgotten?);
        let withheld = withheld.unwrap_or(0);
        self.lines.write().remove(name);
        let capabilities = line.map(|line| line.manifest.capabilities.clone()).unwrap_or_default();
        let ServiceHoldsCancelled { cancelled, on_their_way } = ended;
        let (connection, account) = (row.name, row.account);
        Ok(DisconnectReceiptView {
            connection,
            account,
            cancelled,
            on_their_way,
            messages,
            withheld,
            findings: forgotten.findings,
            rollback_points: forgotten.rollback_points,
            results: forgotten.results,
            encrypted,
            secrets,
            capabilities,
        })
    }

    /// Ends a connection and destroys what is left of it, without notifying the provider.
    ///
    /// # Errors
    /// When there is none, or it cannot be recorded or destroyed.
    pub async fn disconnect(&self, name: &ServiceName, by: Actor) -> Result<DisconnectReceiptView, CallError> {
        let over = self.end(name, &by).await?;
        self.destroy_ended(over, &by).await
    }

    /// Opens every connection in its stored state. Those that cannot be opened are logged, and the others go on.
    pub async fn open(&self) {
        let rows = match self.deps.store.connections().await {
            Ok(rows) => rows,
            Err(error) => return tracing::error!(code = error.code(), "connections cannot be read: {error}"),
        };
        for row in rows.iter().filter(|row| row.state == ConnectionState::Disconnected) {
            let in_use = stands_behind(&rows, &row.service);
            if let Err(no) = self.finish_ending(row, in_use).await {
                tracing::error!(connection = %row.name, "leftovers of {} cannot be removed: {}", row.name, no.refusal);
            }
        }
        for row in rows.into_iter().filter(|row| row.state.has_readable_copy()) {
            let taken_up = match self.find_or_open(&row.name).await {
                Ok(line) => self.offer_service(&line).await,
                Err(no) => Err(no),
            };
            if let Err(no) = taken_up {
                tracing::error!(connection = %row.name, "the connection {} cannot be opened: {}", row.name, no.refusal);
            }
        }
    }

    /// Stops every write of a service that still waits.
    async fn cancel_all(&self, service: &ServiceName, by: &Actor) -> Result<ServiceHoldsCancelled, CallError> {
        let ended = self.deps.store.cancel_service(service.clone(), by.clone()).await?;
        let context = self.context()?;
        for hold in &ended.cancelled {
            context.forget_window(*hold);
            context.notify_hold_changed(*hold);
        }
        Ok(ended)
    }

    /// The names of all secrets of a connection in the vault.
    fn secrets(name: &ServiceName) -> Result<[SecretName; 3], CallError> {
        Ok([Self::access_secret(name)?, Self::oauth_secret(name)?, Self::copy_secret(name)?])
    }

    /// Destroys the credentials of a connection. Gives the names of those that existed.
    async fn revoke_all(&self, name: &ServiceName, by: &Actor) -> Result<Vec<String>, CallError> {
        let mut secrets = Vec::new();
        for secret in Self::secrets(name)? {
            match self.deps.vault.revoke(&secret, by.clone()).await {
                Ok(()) => secrets.push(secret.to_string()),
                Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.refusal().into()),
            }
        }
        Ok(secrets)
    }

    /// Completes an ending during which a gateway died. If it was complete, there is nothing to do.
    async fn finish_ending(&self, row: &Row, in_use: bool) -> Result<(), CallError> {
        if !in_use {
            self.cancel_all(&row.service, &self.node()).await?;
        }
        self.revoke_all(&row.name, &self.node()).await?;
        if !in_use {
            let node = self.node();
            self.deps.store.forget_content(row.name.clone(), row.service.clone(), node).await?;
        }
        self.remove_files(&row.name)
    }

    /// Deletes the files that a replica left on the disk.
    pub(super) fn remove_files(&self, name: &ServiceName) -> Result<(), CallError> {
        match std::fs::remove_dir_all(self.folder(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::Unavailable(Box::new(error)).into())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn row(&self, name: &ServiceName) -> Result<Row, CallError> {
        let rows = self.deps.store.connections().await?;
        rows.into_iter().find(|row| row.name == *name).ok_or_else(|| unknown(name))
    }

    async fn step(
        &self,
        name: &ServiceName,
        step: ConnectionStep,
        account: Option<String>,
        by: Actor,
    ) -> Result<Row, CallError> {
        let step = MoveConnection { name: name.clone(), step, reason: None, account, by, message: self.message() };
        let moved = self.deps.store.move_connection(step).await.map_err(|error| match error {
            StoreError::NotFound { .. } => unknown(name),
            StoreError::Conflict => {
                CallError::with_text(Code::StoreConflict, "the state of the connection does not allow this")
            }
            other => other.into(),
        })?;
        if let Ok(context) = self.context() {
            context.signals.events.notify_written();
        }
        Ok(moved.now)
    }

    /// The connection in this process; created if there is none yet.
    pub(super) async fn find_or_open(&self, name: &ServiceName) -> Result<Arc<ConnectionHandle>, CallError> {
        if let Some(line) = self.known(name) {
            return Ok(line);
        }
        let row = self.row(name).await?;
        let manifest = self.manifest(&row.adapter).await?;
        let endpoints: ServiceEndpoints =
            serde_json::from_value(row.endpoints.clone()).map_err(|_| CallError::new(Code::StoreDamaged))?;
        let print = manifest.foreign.as_ref().map(|foreign| &foreign.print);
        if print != endpoints.adapter_print.as_ref() {
            // SECURITY: a person connected the adapter as it described itself then. A new release may offer or reach
            // something else.
            let text = format!(
                "the adapter of `{name}` describes itself differently than when it was connected; connect it again"
            );
            return Err(CallError::with_text(Code::StoreConflict, &text));
        }
        let (target, base_path) = manifest::address(endpoints.api.as_deref().unwrap_or(&manifest.home))?;
        let mut way = manifest
            .way(ConnectionHandle::egress_connection_name(name)?, &target, &base_path)
            .map_err(|why| CallError::with_text(Code::SchemaWrongType, &why))?;
        way.credential = Some((Self::access_secret(name)?, sluice_config::network::CredentialPlacement::Bearer));
        if row.state != ConnectionState::Disconnected {
            self.deps.egress.open(way);
        }
        let line = Arc::new(ConnectionHandle {
            row: RwLock::new(row),
            manifest,
            target,
            base_path,
            copy: RwLock::default(),
            locked: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            pace: Mutex::new(sync::SyncPacing::default()),
            wanted: AtomicBool::new(false),
        });
        let mut lines = self.lines.write();
        Ok(Arc::clone(lines.entry(name.clone()).or_insert(line)))
    }

    /// Opens the replica and puts the connection behind the gate.
    pub(super) async fn offer_service(&self, line: &Arc<ConnectionHandle>) -> Result<(), CallError> {
        let (row, context) = (line.row(), self.context()?);
        // SECURITY: the account may have become one in which people are asked since it was connected.
        if let Some(no) = row.account.as_deref().and_then(|account| apart::refused(&context.config, account)) {
            return Err(no.into());
        }
        if let Some(foreign) = &line.manifest.foreign {
            let service: Arc<dyn Service> =
                Arc::new(ThirdPartyAdapterService::new(Arc::clone(&context.connections), &row.name, &line.manifest));
            return context.offer(row.service, service, foreign.specs.clone()).await;
        }
        self.open_copy(line).await?;
        let known = context.catalogue.known();
        let ours = line.manifest.capabilities.iter().filter_map(|name| known.get(name).cloned()).collect();
        let service: Arc<dyn Service> =
            Arc::new(MailService::new(Arc::clone(&context.connections), &row.name, &line.manifest));
        context.offer(row.service, service, ours).await
    }

    /// Deletes the replica. Gives how many messages it held.
    pub(super) async fn destroy(&self, line: &ConnectionHandle) -> Result<u64, CallError> {
        let copy = line.copy.write().take();
        // A page in flight is given up; after this lock its writer no longer holds the replica.
        let _turn = line.turn.lock().await;
        let Some(copy) = copy else { return self.remove_files(&line.row().name).map(|()| 0) };
        let messages = copy.count()?;
        match Arc::into_inner(copy) {
            Some(copy) => copy.destroy()?,
            // A reader still holds it open: its files are deleted all the same.
            None => {
                let folder = self.folder(&line.row().name);
                std::fs::remove_dir_all(folder).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
            }
        }
        Ok(messages)
    }

    async fn account(&self, line: &ConnectionHandle) -> Result<Option<String>, SyncStepError> {
        let capability = format!("{}.account", line.manifest.service);
        let assignment = AdapterJob {
            capability: &capability,
            by: self.node(),
            step: AdapterStep::Look,
            job: AdapterJobRequest::Account,
            copies: false,
            files: Vec::new(),
        };
        match self.run_job(line, &assignment).await {
            Ok(given) => given.answer.account(),
            Err(not) => {
                let cause = match not.refusal.code() {
                    Code::ExecuteReconnect => FailureCause::NeedsReauth,
                    _ => FailureCause::Unavailable,
                };
                let why = AdapterFailure { cause, text: not.refusal.to_string(), retry_after: None, said: None };
                Err(SyncStepError::Later(why))
            }
        }
    }

    fn not_let_in(&self, no: &SyncStepError) -> CallError {
        match no {
            SyncStepError::Later(why) | SyncStepError::Stopped(why) => why.refusal().into(),
            SyncStepError::Expired | SyncStepError::Nonsense => {
                CallError::with_text(Code::WorkerCrashed, &self.words(no))
            }
        }
    }

    fn words(&self, no: &SyncStepError) -> String {
        match no {
            SyncStepError::Later(why) | SyncStepError::Stopped(why) => why.text.clone(),
            SyncStepError::Expired | SyncStepError::Nonsense => "the worker reported nonsense".to_owned(),
        }
    }
}

/// Whether a connection that is not disconnected uses a service.
fn stands_behind(rows: &[Row], service: &ServiceName) -> bool {
    rows.iter().any(|row| row.service == *service && row.state.has_readable_copy())
}
