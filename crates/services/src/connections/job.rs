//! One job of an adapter: a fresh credential, a ticket for its step, a worker, an answer.
//!
//! Takes a step to perform at a service; gives the adapter's answer, or why there is none and whether something may
//! have changed. Promise: the worker holds a ticket and no credential; a refused credential is renewed once, and the
//! job is repeated once only where it provably changed nothing; after a second refusal, the connection stops.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use sluice_content::leak::LeakScope;
use sluice_core::connection::ConnectionStep;
use sluice_core::crash::CrashCause;
use sluice_core::ids::JobId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::service_status::WriteFate;
use sluice_core::{Actor, Millis, ServiceName, UtcMillis};
use sluice_egress::oauth::CredentialRefreshError;
use sluice_egress::{
    Egress, EgressError, EgressRequest, EgressResponse as Heard, EgressTicket, ExchangeFailure, ExchangeFault,
    TicketScope,
};
use sluice_protocol::{AdapterJobRequest, AdapterRunTask, EXCHANGE_TOO_LARGE};
use sluice_store::replica::ReplicaChange;
use sluice_store::{MoveConnection, StoreError};
use tokio::runtime::Handle;

use super::answer::{AdapterAnswer, SyncedItem, parse_synced_item};
use super::manifest::{AdapterStep, origin};
use super::{ConnectionHandle, ServiceConnections};
use crate::workers::{
    ExchangeReply, WorkerAssignment, WorkerEnd, WorkerExchange, WorkerHost, WorkerItem, WorkerJob, WorkerJobOutcome,
    WorkerLimits,
};
use crate::{LookupOutcome, WriteError};

/// How long one job of a write may take: two such jobs fit into a claim.
const WRITE_WALL: Millis = Millis::from_secs(25);
/// How long one page of a sync may take.
const COPY_WALL: Millis = Millis::from_mins(5);
/// Most requests of one job. A page has a few more than fifty; a bulk delete has three for each message.
const EXCHANGES: u64 = 2_000;

/// One job for an adapter.
#[derive(Debug)]
pub(super) struct AdapterJob<'a> {
    /// The capability it serves: the scope of the credential is checked against it.
    pub capability: &'a str,
    /// The actor on whose behalf it runs.
    pub by: Actor,
    /// The step, which decides what the job may do.
    pub step: AdapterStep,
    /// The job, in the adapter's terms.
    pub job: AdapterJobRequest,
    /// Whether it is a page of a sync.
    pub copies: bool,
    /// Files that go out with it, in the order in which the job names them.
    pub files: Vec<Vec<u8>>,
}

/// The result of a worker.
#[derive(Debug)]
pub(super) struct AdapterJobResult {
    pub answer: AdapterAnswer,
    pub changes: Vec<ReplicaChange>,
    /// The number of changes as the worker counts them: contents of attachments are part of their message.
    pub counted: usize,
    /// When our egress allows requests again, if it stopped one.
    pub again: Option<UtcMillis>,
    /// Whether a request got no answer to what it asked: it did not reach the service, one of our limits stopped it, or
    /// the service was busy.
    pub unheard: bool,
    unauthorized: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct AdapterJobError {
    pub refusal: Refusal,
    /// Whether something may have changed at the service.
    pub changed: bool,
    /// The message that the worker had just begun to open, if it crashed on one.
    pub opening: Option<String>,
}

impl AdapterJobError {
    pub fn before(refusal: Refusal) -> Self {
        Self { refusal, changed: false, opening: None }
    }

    /// What this means for a write.
    pub fn trouble(self) -> WriteError {
        if self.changed { WriteError::Unclear } else { WriteError::NotDone(self.refusal) }
    }
}

impl ServiceConnections {
    /// Runs a job.
    pub(super) async fn run_job(
        &self,
        line: &ConnectionHandle,
        assignment: &AdapterJob<'_>,
    ) -> Result<AdapterJobResult, AdapterJobError> {
        let name = line.row().name;
        if let Some(keeper) = self.fresh.get() {
            self.require_credential(&name, keeper.refresh(&name).await).await?;
        }
        let given = self.once(line, &name, assignment).await?;
        if !given.unauthorized || !given.answer.may_be_asked_again() {
            return Ok(given);
        }
        let given = match self.fresh.get() {
            Some(keeper) => {
                self.require_credential(&name, keeper.replace_refused(&name).await).await?;
                self.once(line, &name, assignment).await?
            }
            None => given,
        };
        if given.unauthorized && given.answer.may_be_asked_again() {
            self.require_reauth(&name, "the service no longer accepts the credential").await;
        }
        Ok(given)
    }

    async fn require_credential(
        &self,
        name: &ServiceName,
        kept: Result<(), CredentialRefreshError>,
    ) -> Result<(), AdapterJobError> {
        match kept {
            Ok(()) => Ok(()),
            Err(CredentialRefreshError::Later) => {
                let text = "the authorization server does not answer";
                Err(AdapterJobError::before(Refusal::new(Code::ExecuteUnavailable).with_text(text)))
            }
            Err(CredentialRefreshError::NeedsReauth) => {
                self.require_reauth(name, "the credential cannot be renewed").await;
                Err(AdapterJobError::before(Refusal::new(Code::ExecuteReconnect)))
            }
        }
    }

    /// The service does not accept our credential: all work stops, and people are notified once.
    pub(super) async fn require_reauth(&self, name: &ServiceName, why: &str) {
        let step = MoveConnection {
            name: name.clone(),
            step: ConnectionStep::Refused,
            reason: Some(why.to_owned()),
            account: None,
            by: self.node(),
            message: self.message(),
        };
        match self.deps.store.move_connection(step).await {
            Ok(moved) => {
                if let Some(line) = self.known(name) {
                    line.keep(moved.now);
                }
                if let Ok(context) = self.context() {
                    context.signals.events.notify_written();
                    context.signals.letters.notify_one();
                }
            }
            // It has ended or is not signed in yet: there is nothing to stop.
            Err(StoreError::Conflict | StoreError::NotFound { .. }) => {}
            Err(error) => tracing::error!(code = error.code(), "could not stop the connection {name}: {error}"),
        }
    }

    async fn once(
        &self,
        line: &ConnectionHandle,
        name: &ServiceName,
        assignment: &AdapterJob<'_>,
    ) -> Result<AdapterJobResult, AdapterJobError> {
        let id = JobId::mint(self.deps.ids.as_ref());
        let ran = self.run(id, line, name, assignment).await;
        self.deps.egress.end_job(id);
        ran
    }

    async fn run(
        &self,
        id: JobId,
        line: &ConnectionHandle,
        name: &ServiceName,
        assignment: &AdapterJob<'_>,
    ) -> Result<AdapterJobResult, AdapterJobError> {
        let internal = |why: &str| AdapterJobError::before(Refusal::new(Code::GatewayInternal).with_text(why));
        let wall = if assignment.copies { COPY_WALL } else { WRITE_WALL };
        let scope = TicketScope {
            job: id,
            capability: assignment.capability.to_owned(),
            hosts: vec![line.target.host().to_owned()],
            operations: line.manifest.operations(assignment.step, &line.base_path).map_err(|why| internal(&why))?,
            by: assignment.by.clone(),
            lasts: wall,
        };
        let way = ConnectionHandle::egress_connection_name(name).map_err(|no| AdapterJobError::before(*no.refusal))?;
        let ticket = self.deps.egress.issue(&way, scope).await.map_err(|no| AdapterJobError::before(no.refusal()))?;
        let row = line.row();
        let task = AdapterRunTask {
            adapter: row.adapter,
            account: row.account.unwrap_or_default(),
            ticket: ticket.expose().to_owned(),
            base_path: line.base_path.clone(),
            job: assignment.job.clone(),
        };
        let job = WorkerJob::of(&task, assignment.files.clone());
        let limits = WorkerLimits { wall, exchanges: EXCHANGES, ..WorkerLimits::default() };
        let order = WorkerAssignment { job, scratch: None, limits: Some(limits), mode: None };
        let host = AdapterJobHost {
            egress: Arc::clone(&self.deps.egress),
            handle: Handle::current(),
            origin: origin(line),
            changed: false,
            acted: false,
            unauthorized: false,
            unheard: false,
            changes: assignment.copies.then(Vec::new),
            counted: 0,
            again: None,
            opening: None,
        };
        let program = line.manifest.foreign.as_ref().map(|foreign| &foreign.program);
        let (end, host) = self.start(program, order, host).await.map_err(|error| {
            let code = error.refusal_code();
            AdapterJobError::before(Refusal::new(code).with_text(&error.to_string()))
        })?;
        let crashed = |text: &str| AdapterJobError {
            refusal: Refusal::new(Code::WorkerCrashed).with_text(text),
            changed: host.changed,
            opening: host.opening.clone(),
        };
        match end {
            WorkerEnd::Clean(done) => match done.report.outcome {
                WorkerJobOutcome::Done(said) => {
                    let said = self.deps.egress.secrets().scrub_json(&said).unwrap_or(said);
                    let must_stay = |text: &str| self.deps.egress.contains_blocked_content(text, LeakScope::Service);
                    Ok(AdapterJobResult {
                        answer: match program {
                            None => AdapterAnswer::read(said).quoting(|text| !must_stay(text)),
                            Some(_) => AdapterAnswer::read(said)
                                .distrust_third_party(host.acted && assignment.step == AdapterStep::Effect),
                        },
                        changes: host.changes.unwrap_or_default(),
                        counted: host.counted,
                        again: host.again,
                        unheard: host.unheard,
                        unauthorized: host.unauthorized,
                    })
                }
                WorkerJobOutcome::Failed { .. } if program.is_some() => {
                    Err(crashed("the adapter could not do the job"))
                }
                WorkerJobOutcome::Failed { text, .. } => {
                    let text = self.deps.egress.secrets().scrub_text(&text).unwrap_or(text);
                    Err(crashed(&text))
                }
            },
            WorkerEnd::Crashed(crash) => {
                tracing::warn!(connection = %name, cause = ?crash.cause, "a worker of {name} ended with a failure");
                Err(crashed("the worker ended with a failure"))
            }
            WorkerEnd::CutOff { .. } => {
                let late = Refusal::new(Code::ExecuteUnavailable).with_text("the service took too long");
                Err(AdapterJobError { refusal: late, ..crashed("") })
            }
        }
    }
}

/// The gateway's side of one job.
struct AdapterJobHost {
    egress: Arc<Egress>,
    handle: Handle,
    origin: String,
    /// Whether a request that changes something may have been sent.
    changed: bool,
    /// Whether such a request was not plainly refused: it may have had its effect.
    acted: bool,
    unauthorized: bool,
    /// Whether a request got no answer to what it asked.
    unheard: bool,
    /// Changes for the replica; `None` if this job is not a sync.
    changes: Option<Vec<ReplicaChange>>,
    counted: usize,
    again: Option<UtcMillis>,
    /// The message that is being opened.
    opening: Option<String>,
}

impl WorkerHost for AdapterJobHost {
    fn exchange(&mut self, exchange: WorkerExchange, left: Millis) -> Result<ExchangeReply, CrashCause> {
        let WorkerExchange { ticket, method, path, headers, body } = exchange;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| CrashCause::MalformedFrame)?;
        let reads = method == Method::GET;
        let request = EgressRequest {
            method,
            url: format!("{}{path}", self.origin),
            headers,
            body: Bytes::from(body),
            follow: false,
            timeout: Some(left),
        };
        let (egress, ticket) = (Arc::clone(&self.egress), EgressTicket::presented(&ticket));
        match self.handle.block_on(async { egress.exchange(&ticket, request).await }) {
            Ok(Heard { status, headers, body, .. }) => {
                self.changed |= !reads;
                self.acted |= !reads && !WriteFate::of_status(status).is_not_applied();
                self.unauthorized |= status == 401;
                self.unheard |= LookupOutcome::is_no_time(status);
                Ok(ExchangeReply::Answer { status, headers, body: body.to_vec() })
            }
            Err(EgressError::Leak(found)) => {
                Err(CrashCause::Leak { findings: u32::try_from(found.len()).unwrap_or(u32::MAX) })
            }
            Err(no) => {
                if let EgressError::Stopped { again, .. } = &no {
                    self.again = self.again.max(*again);
                }
                let not_sent = !no.may_have_left();
                self.unheard |= no.code().is_unreached();
                self.changed |= !reads && !not_sent;
                self.acted |= !reads && !not_sent;
                let code = match &no {
                    EgressError::Failed(ExchangeFailure {
                        what: ExchangeFault::TooLarge | ExchangeFault::Bomb,
                        ..
                    }) => EXCHANGE_TOO_LARGE,
                    other => other.code().as_str(),
                };
                Ok(ExchangeReply::Refused { code: code.to_owned(), text: no.to_string(), not_sent })
            }
        }
    }

    fn item(&mut self, item: WorkerItem) -> Result<(), CrashCause> {
        let changes = self.changes.as_mut().ok_or(CrashCause::MalformedFrame)?;
        // Decoding may have reassembled a credential that the service reflected.
        let secrets = self.egress.secrets();
        let payload = secrets.scrub_json(&item.payload).unwrap_or(item.payload);
        let contents = item.attachments.into_iter().map(|bytes| secrets.scrub(&bytes).unwrap_or(bytes)).collect();
        match parse_synced_item(payload, contents).ok_or(CrashCause::MalformedFrame)? {
            SyncedItem::Opening(id) => self.opening = Some(id),
            SyncedItem::Change(change, contents) => {
                changes.push(change);
                changes.extend(contents);
                (self.opening, self.counted) = (None, self.counted + 1);
            }
        }
        Ok(())
    }
}
