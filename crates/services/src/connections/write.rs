//! One write at a connected service, step by step; each step is a job of its adapter.
//!
//! Takes a held write in the adapter's terms; gives what the adapter found or did. Promise: only `perform` and `undo`
//! hold a ticket that can change anything visible to others; a step without an answer is unclear wherever a request may
//! have been sent.

use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Actor, ServiceName, UtcMillis};
use sluice_protocol::{AdapterJobRequest, ServiceHandle, ServiceWrite};

use super::ServiceConnections;
use super::job::{AdapterJob, AdapterJobError, AdapterJobResult};
use super::manifest::AdapterStep;
use crate::{CompletedWrite, LookupOutcome, PreparedWrite, ServiceSlot, WriteError};

/// A write in the adapter's terms, and the files that go with it.
pub(super) struct AdapterWritePayload {
    pub write: ServiceWrite,
    pub files: Vec<Vec<u8>>,
}

impl AdapterWritePayload {
    /// A load without files. Its time is the time of admission: the same for every attempt.
    pub fn bare(hold: &Hold) -> Self {
        let write = ServiceWrite {
            op: hold.id.to_string(),
            capability: hold.action.capability().clone(),
            arguments: hold.action.arguments().clone(),
            at: hold.admitted_at.as_millis(),
            blobs: Vec::new(),
        };
        Self { write, files: Vec::new() }
    }
}

/// The steps of writes at one connection.
pub(super) struct ConnectionWriter<'a> {
    pub connections: &'a ServiceConnections,
    pub name: &'a ServiceName,
}

impl ConnectionWriter<'_> {
    /// Runs one job for a write.
    async fn job(
        &self,
        hold: &Hold,
        step: AdapterStep,
        job: AdapterJobRequest,
        files: Vec<Vec<u8>>,
    ) -> Result<AdapterJobResult, AdapterJobError> {
        let line = self.connections.known(self.name);
        let line = line.ok_or_else(|| AdapterJobError::before(Refusal::new(Code::ExecuteReconnect)))?;
        if !line.state().is_at_work() {
            let text = format!("the connection `{}` is {}", self.name, line.state());
            return Err(AdapterJobError::before(Refusal::new(Code::ExecuteReconnect).with_text(&text)));
        }
        let capability = hold.action.capability().as_str();
        let assignment =
            AdapterJob { capability, by: Actor::Agent(hold.agent().clone()), step, job, copies: false, files };
        self.connections.run_job(&line, &assignment).await
    }

    /// The service is now ahead of its replica.
    fn changed(&self) {
        if let Some(line) = self.connections.known(self.name) {
            self.connections.request_sync(&line);
        }
    }

    /// If egress stopped a write because the service asked for a pause, the write is not tried before the pause ends.
    fn put_off(&self, trouble: WriteError, again: Option<UtcMillis>) -> WriteError {
        match (trouble, again) {
            (WriteError::NotDone(no), Some(again)) => {
                let wait = again.since(self.connections.deps.clock.now());
                WriteError::NotDone(
                    Refusal::new(Code::EgressLimit)
                        .with_text(no.text())
                        .with_service_words(no.service_words())
                        .retry_after(wait),
                )
            }
            (other, _) => other,
        }
    }

    /// Captures the state before the write, and makes its handle.
    pub async fn prepare(&self, hold: &Hold, load: AdapterWritePayload) -> Result<PreparedWrite, WriteError> {
        let job = AdapterJobRequest::Prepare { write: load.write, handle: hold.handle.clone().map(ServiceHandle) };
        match self.job(hold, AdapterStep::Prepare, job, load.files).await {
            Ok(AdapterJobResult { answer, again, .. }) => {
                answer.prepared().map_err(|trouble| self.put_off(trouble, again))
            }
            // Whatever a preparation left behind has no effect.
            Err(not) => Err(WriteError::NotDone(not.refusal)),
        }
    }

    /// Performs the write.
    pub async fn perform(
        &self,
        permit: &Permit,
        hold: &Hold,
        load: AdapterWritePayload,
    ) -> Result<CompletedWrite, WriteError> {
        let job = AdapterJobRequest::Perform {
            write: load.write,
            handle: permit.handle().map(|text| ServiceHandle(text.to_owned())),
        };
        let done = match self.job(hold, AdapterStep::Effect, job, load.files).await {
            Ok(AdapterJobResult { answer, again, .. }) => answer.done().map_err(|trouble| self.put_off(trouble, again)),
            Err(not) => Err(not.trouble()),
        };
        self.changed();
        done
    }

    /// Reserves the place of the worker that will perform the write.
    pub async fn reserve(&self) -> Result<ServiceSlot, Refusal> {
        let place = self.connections.deps.workers.reserve().await;
        place.map(ServiceSlot::Worker).map_err(|error| {
            let code = error.refusal_code();
            Refusal::new(code).with_text(&error.to_string())
        })
    }

    /// Finds out whether the write happened.
    pub async fn look_up(&self, hold: &Hold) -> LookupOutcome {
        let job = AdapterJobRequest::LookUp {
            write: AdapterWritePayload::bare(hold).write,
            handle: hold.handle.clone().map(ServiceHandle),
        };
        let found = match self.job(hold, AdapterStep::Look, job, Vec::new()).await {
            Ok(given) => match given.answer.found() {
                LookupOutcome::Unknown if given.unheard => LookupOutcome::NotLooked,
                found => found,
            },
            // A worker that crashes on the answer would crash on it again.
            Err(not) if not.refusal.code() == Code::WorkerCrashed => LookupOutcome::Unknown,
            Err(_) => LookupOutcome::NotLooked,
        };
        self.changed();
        found
    }

    /// A fingerprint of the changed object, as it is now.
    pub async fn present(&self, done: &Hold, before: &[u8]) -> Result<ObjectFingerprint, WriteError> {
        let (write, before, receipt) = past(done, before);
        let job = AdapterJobRequest::Present { write, before, receipt };
        match self.job(done, AdapterStep::Look, job, Vec::new()).await {
            Ok(given) => given.answer.into_fingerprint(),
            Err(not) => Err(WriteError::NotDone(not.refusal)),
        }
    }

    /// What a rollback would change now, in words for people.
    pub async fn difference(&self, done: &Hold, before: &[u8]) -> Vec<String> {
        let (write, before, receipt) = past(done, before);
        let job = AdapterJobRequest::Difference { write, before, receipt };
        match self.job(done, AdapterStep::Look, job, Vec::new()).await {
            Ok(given) => given.answer.difference(),
            Err(_) => Vec::new(),
        }
    }

    /// Undoes the write.
    pub async fn undo(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<CompletedWrite, WriteError> {
        drop(permit);
        let (write, before, receipt) = past(done, before);
        let job = AdapterJobRequest::Undo { write, before, receipt };
        let undone = match self.job(done, AdapterStep::Effect, job, Vec::new()).await {
            Ok(given) => given.answer.done(),
            Err(not) => Err(not.trouble()),
        };
        self.changed();
        undone
    }
}

/// A write that is done, the state before it, and its receipt.
fn past(done: &Hold, before: &[u8]) -> (ServiceWrite, Vec<u8>, String) {
    let receipt = match &done.state {
        HoldState::Done { receipt, .. } => receipt.clone(),
        _ => String::new(),
    };
    (AdapterWritePayload::bare(done).write, before.to_vec(), receipt)
}
