//! One job of an adapter: a fresh credential, a ticket for its step, a worker, an answer.
//!
//! Takes what is to be done at a service; gives the adapter's answer, or why there is none and whether something may
//! have changed. Promise: the worker holds a ticket and no credential; a refused credential is renewed once and the
//! job done once more only where it provably changed nothing; refused again, the connection stops.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sluice_content::leak::Scope as LeakScope;
use sluice_core::connection::ConnectionStep;
use sluice_core::crash::Cause;
use sluice_core::ids::JobId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::service_status::WriteFate;
use sluice_core::{Actor, ServiceName, Span, Timestamp};
use sluice_store::replica::Change;
use sluice_store::{ConnectionMove, StoreError};
use tokio::runtime::Handle;

use super::answer::{Answer, Handed, handed};
use super::manifest::{Step, origin};
use super::{Connections, Line, NotFresh};
use crate::egress::{Answer as Heard, Egress, EgressNo, Failed, Request, Scope, Ticket, What};
use crate::services::{Found, Trouble};
use crate::workers::{End, Exchange, Host, Item, Job, Limits, Order, Outcome, Reply};

/// How long one job of a write may take: both of them fit into a claim.
const WRITE_WALL: Span = Span::from_secs(25);
/// How long one page of a copy may take.
const COPY_WALL: Span = Span::from_mins(5);
/// Requests of one job. A page has at most a few more than fifty; a bulk delete has three for each message.
const EXCHANGES: u64 = 2_000;

/// What is to be done at a service.
#[derive(Debug)]
pub(super) struct Errand<'a> {
    /// On behalf of which capability: what the credential's own scope is checked against.
    pub capability: &'a str,
    /// On whose behalf.
    pub by: Actor,
    /// What the job may do.
    pub step: Step,
    /// The job, in the adapter's words.
    pub job: Value,
    /// Whether it is a page of the copy.
    pub copies: bool,
    /// Files that go out with it, in the order in which the job names them.
    pub files: Vec<Vec<u8>>,
}

/// What a worker gave.
#[derive(Debug)]
pub(super) struct Given {
    pub answer: Answer,
    pub changes: Vec<Change>,
    /// Changes as the worker counts them: contents of attachments are part of their message.
    pub counted: usize,
    /// When our own way out lets requests through again, if it stopped one.
    pub again: Option<Timestamp>,
    /// Whether a request of it got no answer to what it asked: it did not reach the service, a limit of ours kept it in, or
    /// the service had no time.
    pub unheard: bool,
    unauthorized: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct NotGiven {
    pub refusal: Refusal,
    /// Whether something may have changed at the service.
    pub changed: bool,
    /// The message the worker had just begun to open, if it broke over one.
    pub opening: Option<String>,
}

impl NotGiven {
    pub fn before(refusal: Refusal) -> Self {
        Self { refusal, changed: false, opening: None }
    }

    /// What it means for a write.
    pub fn trouble(self) -> Trouble {
        if self.changed { Trouble::Unclear } else { Trouble::NotDone(self.refusal) }
    }
}

impl Connections {
    /// Does a job.
    pub(super) async fn ask(&self, line: &Line, errand: &Errand<'_>) -> Result<Given, NotGiven> {
        let name = line.row().name;
        if let Some(keeper) = self.fresh.get() {
            self.usable(&name, keeper.fresh(&name).await).await?;
        }
        let given = self.once(line, &name, errand).await?;
        if !given.unauthorized || !given.answer.may_be_asked_again() {
            return Ok(given);
        }
        let given = match self.fresh.get() {
            Some(keeper) => {
                self.usable(&name, keeper.refused(&name).await).await?;
                self.once(line, &name, errand).await?
            }
            None => given,
        };
        if given.unauthorized && given.answer.may_be_asked_again() {
            self.signed_out(&name, "the service no longer accepts the credential").await;
        }
        Ok(given)
    }

    async fn usable(&self, name: &ServiceName, kept: Result<(), NotFresh>) -> Result<(), NotGiven> {
        match kept {
            Ok(()) => Ok(()),
            Err(NotFresh::Later) => {
                let text = "whoever gives out credentials does not answer";
                Err(NotGiven::before(Refusal::new(Code::ExecuteUnavailable).with_text(text)))
            }
            Err(NotFresh::NeedsReauth) => {
                self.signed_out(name, "the credential cannot be renewed").await;
                Err(NotGiven::before(Refusal::new(Code::ExecuteReconnect)))
            }
        }
    }

    /// The service does not take our credential: all work stops, and people are told, once.
    pub(super) async fn signed_out(&self, name: &ServiceName, why: &str) {
        let step = ConnectionMove {
            name: name.clone(),
            step: ConnectionStep::Refused,
            reason: Some(why.to_owned()),
            account: None,
            by: self.node(),
            message: self.message(),
        };
        match self.ground.store.move_connection(step).await {
            Ok(moved) => {
                if let Some(line) = self.known(name) {
                    line.keep(moved.now);
                }
                if let Ok(gw) = self.gateway() {
                    gw.events.wrote();
                    gw.letters.notify_one();
                }
            }
            // It was ended or is not signed in yet: there is nothing to stop.
            Err(StoreError::Conflict | StoreError::NotFound { .. }) => {}
            Err(error) => tracing::error!(code = error.code(), "could not stop the connection {name}: {error}"),
        }
    }

    async fn once(&self, line: &Line, name: &ServiceName, errand: &Errand<'_>) -> Result<Given, NotGiven> {
        let id = JobId::mint(self.ground.ids.as_ref());
        let ran = self.run(id, line, name, errand).await;
        self.ground.egress.end_job(id);
        ran
    }

    async fn run(&self, id: JobId, line: &Line, name: &ServiceName, errand: &Errand<'_>) -> Result<Given, NotGiven> {
        let internal = |why: &str| NotGiven::before(Refusal::new(Code::GatewayInternal).with_text(why));
        let wall = if errand.copies { COPY_WALL } else { WRITE_WALL };
        let scope = Scope {
            job: id,
            capability: errand.capability.to_owned(),
            hosts: vec![line.target.host().to_owned()],
            operations: line.manifest.operations(errand.step, &line.base_path).map_err(|why| internal(&why))?,
            by: errand.by.clone(),
            lasts: wall,
        };
        let way = Line::way(name).map_err(|no| NotGiven::before(*no.refusal))?;
        let ticket = self.ground.egress.issue(&way, scope).await.map_err(|no| NotGiven::before(no.refusal()))?;
        let row = line.row();
        let payload = json!({
            "adapter": row.adapter, "account": row.account.unwrap_or_default(), "ticket": ticket.expose(),
            "base_path": line.base_path, "job": errand.job,
        });
        let job = Job { kind: "adapter.run".into(), payload, attachments: errand.files.clone() };
        let limits = Limits { wall, exchanges: EXCHANGES, ..Limits::default() };
        let order = Order { job, scratch: None, limits: Some(limits), mode: None };
        let host = JobHost {
            egress: Arc::clone(&self.ground.egress),
            handle: Handle::current(),
            origin: origin(line),
            changed: false,
            acted: false,
            unauthorized: false,
            unheard: false,
            changes: errand.copies.then(Vec::new),
            counted: 0,
            again: None,
            opening: None,
        };
        let program = line.manifest.foreign.as_ref().map(|foreign| &foreign.program);
        let (end, host) = self.start(program, order, host).await.map_err(|error| {
            let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
            NotGiven::before(Refusal::new(code).with_text(&error.to_string()))
        })?;
        let crashed = |text: &str| NotGiven {
            refusal: Refusal::new(Code::WorkerCrashed).with_text(text),
            changed: host.changed,
            opening: host.opening.clone(),
        };
        match end {
            End::Clean(done) => match done.report.outcome {
                Outcome::Done(said) => {
                    let said = self.ground.egress.secrets().scrub_json(&said).unwrap_or(said);
                    let must_stay = |text: &str| self.ground.egress.must_stay(text, LeakScope::Service);
                    Ok(Given {
                        answer: match program {
                            None => Answer::read(said).quoting(|text| !must_stay(text)),
                            Some(_) => Answer::read(said).of_stranger(host.acted && errand.step == Step::Effect),
                        },
                        changes: host.changes.unwrap_or_default(),
                        counted: host.counted,
                        again: host.again,
                        unheard: host.unheard,
                        unauthorized: host.unauthorized,
                    })
                }
                Outcome::Failed { .. } if program.is_some() => Err(crashed("the adapter could not do it")),
                Outcome::Failed { text, .. } => {
                    let text = self.ground.egress.secrets().scrub_text(&text).unwrap_or(text);
                    Err(crashed(&text))
                }
            },
            End::Crashed(crash) => {
                tracing::warn!(connection = %name, cause = ?crash.cause, "a worker of {name} did not end well");
                Err(crashed("the worker did not end well"))
            }
            End::CutOff { .. } => {
                let late = Refusal::new(Code::ExecuteUnavailable).with_text("the service took too long");
                Err(NotGiven { refusal: late, ..crashed("") })
            }
        }
    }
}

/// The gateway's side of one job.
struct JobHost {
    egress: Arc<Egress>,
    handle: Handle,
    origin: String,
    /// Whether a request that changes something may have left.
    changed: bool,
    /// Whether such a request was not plainly refused: it may have had its effect.
    acted: bool,
    unauthorized: bool,
    /// Whether a request got no answer to what it asked.
    unheard: bool,
    /// Changes of a copy; nothing where none is being made.
    changes: Option<Vec<Change>>,
    counted: usize,
    again: Option<Timestamp>,
    /// The message that is being opened.
    opening: Option<String>,
}

impl Host for JobHost {
    fn exchange(&mut self, exchange: Exchange, left: Span) -> Result<Reply, Cause> {
        let Exchange { ticket, method, path, headers, body } = exchange;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| Cause::MalformedFrame)?;
        let reads = method == Method::GET;
        let request = Request {
            method,
            url: format!("{}{path}", self.origin),
            headers,
            body: Bytes::from(body),
            follow: false,
            timeout: Some(left),
        };
        let (egress, ticket) = (Arc::clone(&self.egress), Ticket::presented(&ticket));
        match self.handle.block_on(async { egress.exchange(&ticket, request).await }) {
            Ok(Heard { status, headers, body, .. }) => {
                self.changed |= !reads;
                self.acted |= !reads && !WriteFate::of_status(status).is_not_applied();
                self.unauthorized |= status == 401;
                self.unheard |= Found::is_no_time(status);
                Ok(Reply::Answer { status, headers, body: body.to_vec() })
            }
            Err(EgressNo::Leak(found)) => Err(Cause::Leak { findings: u32::try_from(found.len()).unwrap_or(u32::MAX) }),
            Err(no) => {
                if let EgressNo::Stopped { again, .. } = &no {
                    self.again = self.again.max(*again);
                }
                let not_sent = !no.may_have_left();
                self.unheard |= no.code().is_unreached();
                self.changed |= !reads && !not_sent;
                self.acted |= !reads && !not_sent;
                let code = match &no {
                    EgressNo::Failed(Failed { what: What::TooLarge | What::Bomb, .. }) => "egress.too_large",
                    other => other.code().as_str(),
                };
                Ok(Reply::Refused { code: code.to_owned(), text: no.to_string(), not_sent })
            }
        }
    }

    fn item(&mut self, item: Item) -> Result<(), Cause> {
        let changes = self.changes.as_mut().ok_or(Cause::MalformedFrame)?;
        // Decoding may have put a reflected credential together.
        let secrets = self.egress.secrets();
        let payload = secrets.scrub_json(&item.payload).unwrap_or(item.payload);
        let contents = item.attachments.into_iter().map(|bytes| secrets.scrub(&bytes).unwrap_or(bytes)).collect();
        match handed(payload, contents).ok_or(Cause::MalformedFrame)? {
            Handed::Opening(id) => self.opening = Some(id),
            Handed::Change(change, contents) => {
                changes.push(change);
                changes.extend(contents);
                (self.opening, self.counted) = (None, self.counted + 1);
            }
        }
        Ok(())
    }
}
