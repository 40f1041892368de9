//! The life of a connection: begun, live, paused, ended.
//!
//! Takes a person's word, gives how the connection stands. Promise: nothing is offered before a credential worked
//! once; what is ended leaves no copy, no secret and no held write behind, and says so in a receipt.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::json;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::ids::SecretName;
use sluice_core::refusal::Code;
use sluice_core::{Actor, ServiceName};
use sluice_store::{Connection as Row, ConnectionMove, Ended, NewConnection, Store, StoreError};

use super::answer::{SyncNo, Why};
use super::job::Errand;
use super::mail::MailService;
use super::manifest::{self, Step};
use super::program::ProgramService;
use super::view::{ConnectionView, Receipt, Tested};
use super::{Connect, Connections, Endpoints, Line, apart, sync, unknown};
use crate::No;
use crate::services::Service;
use crate::vault::VaultError;

/// A connection that was ended, and what is still to be destroyed of it.
pub(crate) struct Over {
    row: Row,
    line: Option<Arc<Line>>,
    ended: Ended,
}

impl Connections {
    /// Every connection there is or was.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn list(&self, store: &Store) -> Result<Vec<ConnectionView>, No> {
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
    pub async fn show(&self, name: &ServiceName) -> Result<ConnectionView, No> {
        self.view(&self.ground.store, self.row(name).await?).await
    }

    /// Where a connection is reached and signed in to.
    ///
    /// # Errors
    /// When there is none of this name.
    pub async fn endpoints(&self, name: &ServiceName) -> Result<Endpoints, No> {
        let row = self.row(name).await?;
        serde_json::from_value(row.endpoints).map_err(|_| No::new(Code::StoreDamaged))
    }

    /// Begins a connection, or begins to sign in again. Nothing is offered yet.
    ///
    /// # Errors
    /// When there is no such adapter, an address cannot be used, or another connection stands behind the same service.
    pub async fn begin(&self, connect: Connect) -> Result<ConnectionView, No> {
        let Connect { name, adapter, mut endpoints, by } = connect;
        let _turn = self.changing.lock().await;
        // It names a folder and a secret.
        if name.as_str().starts_with('.') || name.as_str().len() > 40 {
            return Err(No::saying(
                Code::SchemaBadName,
                "a connection has a short name that does not begin with a dot",
            ));
        }
        self.ask_anew(&adapter);
        let manifest = self.manifest(&adapter).await?;
        endpoints.adapter_print = manifest.foreign.as_ref().map(|foreign| foreign.print.clone());
        manifest::address(endpoints.api.as_deref().unwrap_or(&manifest.home))?;
        let new = NewConnection {
            name: name.clone(),
            adapter,
            service: manifest.service.clone(),
            account: None,
            endpoints: json!(endpoints),
            by,
        };
        let row = self.ground.store.begin_connection(new).await.map_err(|error| match error {
            StoreError::Conflict => {
                let text =
                    format!("another connection already stands behind `{}`; disconnect it first", manifest.service);
                No::saying(Code::StoreConflict, &text)
            }
            other => other.into(),
        })?;
        match self.known(&name).filter(|line| line.row().endpoints == row.endpoints) {
            Some(line) => line.keep(row.clone()),
            // Where it is reached is another place now.
            None => {
                self.lines.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
                let line = self.line(&name).await?;
                if row.state.answers() {
                    self.stand(&line).await?;
                }
            }
        }
        self.view(&self.ground.store, row).await
    }

    /// The credential is in the vault: the account is looked up, its copy begins, its capabilities are offered.
    ///
    /// # Errors
    /// When the service does not take the credential, it is for another account than before, or people are asked there.
    pub async fn live(&self, name: &ServiceName, by: Actor) -> Result<ConnectionView, No> {
        let _turn = self.changing.lock().await;
        let line = self.line(name).await?;
        let before = line.row();
        if before.state == ConnectionState::Disconnected {
            return Err(unknown(name));
        }
        let (gw, account) = (self.gateway()?, self.account(&line).await.map_err(|no| self.not_let_in(&no))?);
        if let (Some(known), Some(found)) = (&before.account, &account)
            && known != found
        {
            let text = format!("`{name}` is the account {known}, and this is {found}: disconnect it first");
            return Err(No::saying(Code::StoreConflict, &text));
        }
        if let Some(no) = account.as_deref().and_then(|account| apart::refused(&gw.config, account)) {
            return Err(no.into());
        }
        let row = self.step(name, ConnectionStep::SignedIn, account, by).await?;
        line.keep(row.clone());
        self.stand(&line).await?;
        if line.manifest.foreign.is_some() {
            // There is nothing to copy.
            self.copied(&line).await?;
            return self.view(&self.ground.store, line.row()).await;
        }
        self.want(&line);
        self.view(&self.ground.store, row).await
    }

    /// Stops copying and sending for a while. What is copied stays readable.
    ///
    /// # Errors
    /// When there is no such connection at work.
    pub async fn pause(&self, name: &ServiceName, by: Actor) -> Result<ConnectionView, No> {
        let line = self.line(name).await?;
        let row = self.step(name, ConnectionStep::Pause, None, by).await?;
        line.keep(row.clone());
        self.view(&self.ground.store, row).await
    }

    /// Goes on.
    ///
    /// # Errors
    /// When it was not paused.
    pub async fn resume(&self, name: &ServiceName, by: Actor) -> Result<ConnectionView, No> {
        let line = self.line(name).await?;
        let row = self.step(name, ConnectionStep::Resume, None, by).await?;
        line.keep(row.clone());
        self.want(&line);
        self.view(&self.ground.store, row).await
    }

    /// Looks whether the service is there and takes our credential. Changes nothing.
    ///
    /// # Errors
    /// When there is no such connection.
    pub async fn test(&self, name: &ServiceName) -> Result<Tested, No> {
        let line = self.line(name).await?;
        let connection = name.clone();
        Ok(match self.account(&line).await {
            Ok(account) => Tested { connection, works: true, account, error: None },
            Err(no) => Tested { connection, works: false, account: None, error: Some(self.words(&no)) },
        })
    }

    /// Ends a connection at once: from here on nothing of it starts, its capabilities are withdrawn and its held writes
    /// stopped. Whoever wants the provider to know does that next, while there is still a credential to say it with, and
    /// then clears the rest.
    ///
    /// # Errors
    /// When there is none, or it cannot be recorded.
    pub(crate) async fn end(&self, name: &ServiceName, by: &Actor) -> Result<Over, No> {
        let _turn = self.changing.lock().await;
        let row = self.row(name).await?;
        if row.state == ConnectionState::Disconnected {
            return self.end_the_rest(row, by).await;
        }
        // Its adapter may be gone or another by now: it is ended all the same.
        let line = self.line(name).await.ok();
        let row = self.step(name, ConnectionStep::End, None, by.clone()).await?;
        if let Some(line) = &line {
            line.keep(row.clone());
        }
        self.gateway()?.withdraw(&row.service).await;
        let ended = self.cancel_all(&row.service, by).await?;
        self.ground.egress.close(&Line::way(name)?);
        Ok(Over { row, line, ended })
    }

    /// A connection that was ended, but not everything of it could be destroyed then.
    async fn end_the_rest(&self, row: Row, by: &Actor) -> Result<Over, No> {
        let mut left = self.folder(&row.name).exists();
        for secret in Self::secrets(&row.name)? {
            match self.ground.vault.show(&secret).await {
                Ok(found) => left |= found.revoked.is_none(),
                Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.refusal().into()),
            }
        }
        if !left {
            return Err(unknown(&row.name));
        }
        let rows = self.ground.store.connections().await?;
        let ended = if stands_behind(&rows, &row.service) {
            Ended { cancelled: Vec::new(), on_their_way: Vec::new() }
        } else {
            self.cancel_all(&row.service, by).await?
        };
        Ok(Over { line: self.known(&row.name), row, ended })
    }

    /// Destroys what is left of a connection that was ended: secrets and copy.
    ///
    /// # Errors
    /// When something of it cannot be destroyed. The rest is; whoever ends it again, or the next start, tries once more.
    pub(crate) async fn clear(&self, over: Over, by: &Actor) -> Result<Receipt, No> {
        let Over { row, line, ended } = over;
        let name = &row.name;
        let encrypted = self.is_encrypted(line.as_deref(), name).unwrap_or(false);
        let secrets = self.revoke_all(name, by).await;
        let withheld = line.as_ref().and_then(|line| line.copy()).map_or(Ok(0), |copy| copy.withheld_count());
        // A vault that cannot be written to does not keep the mail of somebody who wants it gone.
        let messages = match &line {
            Some(line) => self.destroy(line).await,
            None => self.remove_files(name).map(|()| 0),
        };
        // Another account may stand behind the service by now: its content stays.
        let in_use = stands_behind(&self.ground.store.connections().await?, &row.service);
        let service = if in_use { name.clone() } else { row.service.clone() };
        let forgotten = self.ground.store.forget_content(name.clone(), service, by.clone()).await;
        let (secrets, messages, forgotten) = (secrets?, messages?, forgotten?);
        let withheld = withheld.unwrap_or(0);
        self.lines.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        let capabilities = line.map(|line| line.manifest.capabilities.clone()).unwrap_or_default();
        let Ended { cancelled, on_their_way } = ended;
        let (connection, account) = (row.name, row.account);
        Ok(Receipt {
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

    /// Ends a connection and destroys what is left of it, without a word to the provider.
    ///
    /// # Errors
    /// When there is none, or it cannot be recorded or destroyed.
    pub async fn disconnect(&self, name: &ServiceName, by: Actor) -> Result<Receipt, No> {
        let over = self.end(name, &by).await?;
        self.clear(over, &by).await
    }

    /// Takes up every connection as it stood. Those that cannot be are named, and the others go on.
    pub(crate) async fn open(&self) {
        let rows = match self.ground.store.connections().await {
            Ok(rows) => rows,
            Err(error) => return tracing::error!(code = error.code(), "connections cannot be read: {error}"),
        };
        for row in rows.iter().filter(|row| row.state == ConnectionState::Disconnected) {
            let in_use = stands_behind(&rows, &row.service);
            if let Err(no) = self.finish_ending(row, in_use).await {
                tracing::error!(connection = %row.name, "what is left of {} cannot be removed: {}", row.name, no.refusal);
            }
        }
        for row in rows.into_iter().filter(|row| row.state.answers()) {
            let taken_up = match self.line(&row.name).await {
                Ok(line) => self.stand(&line).await,
                Err(no) => Err(no),
            };
            if let Err(no) = taken_up {
                tracing::error!(connection = %row.name, "the connection {} cannot be taken up: {}", row.name, no.refusal);
            }
        }
    }

    /// Stops every write of a service that still waits.
    async fn cancel_all(&self, service: &ServiceName, by: &Actor) -> Result<Ended, No> {
        let ended = self.ground.store.cancel_service(service.clone(), by.clone()).await?;
        let gw = self.gateway()?;
        for hold in &ended.cancelled {
            gw.forget_window(*hold);
            gw.moved(*hold);
        }
        Ok(ended)
    }

    /// Everything of a connection that is in the vault.
    fn secrets(name: &ServiceName) -> Result<[SecretName; 3], No> {
        Ok([Self::access_secret(name)?, Self::oauth_secret(name)?, Self::copy_secret(name)?])
    }

    /// Destroys the credentials of a connection. Gives the names of those there were.
    async fn revoke_all(&self, name: &ServiceName, by: &Actor) -> Result<Vec<String>, No> {
        let mut secrets = Vec::new();
        for secret in Self::secrets(name)? {
            match self.ground.vault.revoke(&secret, by.clone()).await {
                Ok(()) => secrets.push(secret.to_string()),
                Err(VaultError::Unknown) => {}
                Err(error) => return Err(error.refusal().into()),
            }
        }
        Ok(secrets)
    }

    /// Does the rest of an ending that a gateway died in. Where all was done, there is nothing to do.
    async fn finish_ending(&self, row: &Row, in_use: bool) -> Result<(), No> {
        if !in_use {
            self.cancel_all(&row.service, &self.node()).await?;
        }
        self.revoke_all(&row.name, &self.node()).await?;
        if !in_use {
            let node = self.node();
            self.ground.store.forget_content(row.name.clone(), row.service.clone(), node).await?;
        }
        self.remove_files(&row.name)
    }

    /// Deletes whatever a copy left on the disk.
    pub(super) fn remove_files(&self, name: &ServiceName) -> Result<(), No> {
        match std::fs::remove_dir_all(self.folder(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::Unavailable(Box::new(error)).into())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn row(&self, name: &ServiceName) -> Result<Row, No> {
        let rows = self.ground.store.connections().await?;
        rows.into_iter().find(|row| row.name == *name).ok_or_else(|| unknown(name))
    }

    async fn step(
        &self,
        name: &ServiceName,
        step: ConnectionStep,
        account: Option<String>,
        by: Actor,
    ) -> Result<Row, No> {
        let step = ConnectionMove { name: name.clone(), step, reason: None, account, by, message: self.message() };
        let moved = self.ground.store.move_connection(step).await.map_err(|error| match error {
            StoreError::NotFound { .. } => unknown(name),
            StoreError::Conflict => {
                No::saying(Code::StoreConflict, "the connection does not stand where this is possible")
            }
            other => other.into(),
        })?;
        if let Ok(gw) = self.gateway() {
            gw.events.wrote();
        }
        Ok(moved.now)
    }

    /// The connection in this process; made if there is none yet.
    pub(super) async fn line(&self, name: &ServiceName) -> Result<Arc<Line>, No> {
        if let Some(line) = self.known(name) {
            return Ok(line);
        }
        let row = self.row(name).await?;
        let manifest = self.manifest(&row.adapter).await?;
        let endpoints: Endpoints =
            serde_json::from_value(row.endpoints.clone()).map_err(|_| No::new(Code::StoreDamaged))?;
        let print = manifest.foreign.as_ref().map(|foreign| &foreign.print);
        if print != endpoints.adapter_print.as_ref() {
            // SECURITY: a person connected what it said then. A new release may offer or reach something else.
            let text =
                format!("the adapter of `{name}` says something else than when it was connected; connect it again");
            return Err(No::saying(Code::StoreConflict, &text));
        }
        let (target, base_path) = manifest::address(endpoints.api.as_deref().unwrap_or(&manifest.home))?;
        let mut way = manifest
            .way(Line::way(name)?, &target, &base_path)
            .map_err(|why| No::saying(Code::SchemaWrongType, &why))?;
        way.credential = Some((Self::access_secret(name)?, crate::egress::Placement::Bearer));
        if row.state != ConnectionState::Disconnected {
            self.ground.egress.open(way);
        }
        let line = Arc::new(Line {
            row: RwLock::new(row),
            manifest,
            target,
            base_path,
            copy: RwLock::default(),
            locked: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            pace: Mutex::new(sync::Pace::default()),
            wanted: AtomicBool::new(false),
        });
        let mut lines = self.lines.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(lines.entry(name.clone()).or_insert(line)))
    }

    /// Opens the copy and stands behind the gate.
    pub(super) async fn stand(&self, line: &Arc<Line>) -> Result<(), No> {
        let (row, gw) = (line.row(), self.gateway()?);
        // SECURITY: people may be asked there since it was connected.
        if let Some(no) = row.account.as_deref().and_then(|account| apart::refused(&gw.config, account)) {
            return Err(no.into());
        }
        if let Some(foreign) = &line.manifest.foreign {
            let service: Arc<dyn Service> =
                Arc::new(ProgramService::new(Arc::clone(&gw.connections), &row.name, &line.manifest));
            return gw.offer(row.service, service, foreign.specs.clone()).await;
        }
        self.open_copy(line).await?;
        let known = gw.catalogue.known();
        let ours = line.manifest.capabilities.iter().filter_map(|name| known.get(name).cloned()).collect();
        let service: Arc<dyn Service> =
            Arc::new(MailService::new(Arc::clone(&gw.connections), &row.name, &line.manifest));
        gw.offer(row.service, service, ours).await
    }

    /// Deletes the copy. Gives how many messages it held.
    pub(super) async fn destroy(&self, line: &Line) -> Result<u64, No> {
        let copy = line.copy.write().unwrap_or_else(PoisonError::into_inner).take();
        // A page that was on its way is given up; whoever wrote it has let go of the copy then.
        let _turn = line.turn.lock().await;
        let Some(copy) = copy else { return self.remove_files(&line.row().name).map(|()| 0) };
        let messages = copy.count()?;
        match Arc::into_inner(copy) {
            Some(copy) => copy.destroy()?,
            // A reader still holds it open: its files go all the same.
            None => {
                let folder = self.folder(&line.row().name);
                std::fs::remove_dir_all(folder).map_err(|error| StoreError::Unavailable(Box::new(error)))?;
            }
        }
        Ok(messages)
    }

    async fn account(&self, line: &Line) -> Result<Option<String>, SyncNo> {
        let capability = format!("{}.account", line.manifest.service);
        let errand = Errand {
            capability: &capability,
            by: self.node(),
            step: Step::Look,
            job: json!({"job": "account"}),
            copies: false,
            files: Vec::new(),
        };
        match self.ask(line, &errand).await {
            Ok(given) => given.answer.account(),
            Err(not) => {
                let cause = if not.refusal.code() == Code::ExecuteReconnect { "needs_reauth" } else { "unavailable" };
                let why =
                    Why { cause: cause.to_owned(), text: not.refusal.to_string(), retry_after_s: None, said: None };
                Err(SyncNo::Later(why))
            }
        }
    }

    fn not_let_in(&self, no: &SyncNo) -> No {
        match no {
            SyncNo::Later(why) | SyncNo::Stopped(why) => why.refusal().into(),
            SyncNo::Expired | SyncNo::Nonsense => No::saying(Code::WorkerCrashed, &self.words(no)),
        }
    }

    fn words(&self, no: &SyncNo) -> String {
        match no {
            SyncNo::Later(why) | SyncNo::Stopped(why) => why.text.clone(),
            SyncNo::Expired | SyncNo::Nonsense => "the worker reported nonsense".to_owned(),
        }
    }
}

/// Whether a connection that answers stands behind a service.
fn stands_behind(rows: &[Row], service: &ServiceName) -> bool {
    rows.iter().any(|row| row.service == *service && row.state.answers())
}
