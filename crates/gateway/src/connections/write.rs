//! One write at a connected service, step by step, each a job of its adapter.
//!
//! Takes a held write in the adapter's words; gives what the adapter found or did. Promise: only `perform` and `undo`
//! hold a ticket with which anything can be changed for others to see; what nobody answered for is unclear wherever a
//! request may have left.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Actor, ServiceName, Timestamp};

use super::Connections;
use super::job::{Errand, Given, NotGiven};
use super::manifest::Step;
use crate::services::{Found, Performed, Place, Prepared, Trouble};

/// A write in the adapter's words, and the files that go with it.
pub(super) struct Load {
    pub write: Value,
    pub files: Vec<Vec<u8>>,
}

impl Load {
    /// Without files. Its time is that of its admission: the same for every attempt.
    pub fn bare(hold: &Hold) -> Self {
        let write = json!({
            "op": hold.id, "capability": hold.action.capability(), "arguments": hold.action.arguments(),
            "at": hold.admitted_at.as_millis(), "blobs": [],
        });
        Self { write, files: Vec::new() }
    }
}

/// The steps of writes at one connection.
pub(super) struct Writer<'a> {
    pub connections: &'a Connections,
    pub name: &'a ServiceName,
}

impl Writer<'_> {
    /// One job about a write.
    async fn job(&self, hold: &Hold, step: Step, job: Value, files: Vec<Vec<u8>>) -> Result<Given, NotGiven> {
        let line = self.connections.known(self.name);
        let line = line.ok_or_else(|| NotGiven::before(Refusal::new(Code::ExecuteReconnect)))?;
        if !line.state().is_at_work() {
            let text = format!("the connection `{}` is {}", self.name, line.state());
            return Err(NotGiven::before(Refusal::new(Code::ExecuteReconnect).with_text(&text)));
        }
        let capability = hold.action.capability().as_str();
        let errand = Errand { capability, by: Actor::Agent(hold.agent().clone()), step, job, copies: false, files };
        self.connections.ask(&line, &errand).await
    }

    /// The service is now ahead of its copy.
    fn changed(&self) {
        if let Some(line) = self.connections.known(self.name) {
            self.connections.want(&line);
        }
    }

    /// A write our own way out stopped, because the service asked for quiet, is not tried before that is over.
    fn put_off(&self, trouble: Trouble, again: Option<Timestamp>) -> Trouble {
        match (trouble, again) {
            (Trouble::NotDone(no), Some(again)) => {
                let wait = again.since(self.connections.ground.clock.now());
                Trouble::NotDone(
                    Refusal::new(Code::EgressLimit).with_text(no.text()).quoting(no.service_words()).retry_after(wait),
                )
            }
            (other, _) => other,
        }
    }

    /// Looks before it, and makes its handle.
    pub async fn prepare(&self, hold: &Hold, load: Load) -> Result<Prepared, Trouble> {
        let job = json!({"job": "prepare", "write": load.write, "handle": hold.handle});
        match self.job(hold, Step::Prepare, job, load.files).await {
            Ok(Given { answer, again, .. }) => answer.prepared().map_err(|trouble| self.put_off(trouble, again)),
            // Whatever a preparation left behind is inert.
            Err(not) => Err(Trouble::NotDone(not.refusal)),
        }
    }

    /// Carries it out.
    pub async fn perform(&self, permit: &Permit, hold: &Hold, load: Load) -> Result<Performed, Trouble> {
        let job = json!({"job": "perform", "write": load.write, "handle": permit.handle()});
        let done = match self.job(hold, Step::Effect, job, load.files).await {
            Ok(Given { answer, again, .. }) => answer.done().map_err(|trouble| self.put_off(trouble, again)),
            Err(not) => Err(not.trouble()),
        };
        self.changed();
        done
    }

    /// The place of the worker that carries it out.
    pub async fn reserve(&self) -> Result<Place, Refusal> {
        let place = self.connections.ground.workers.reserve().await;
        place.map(Place::Worker).map_err(|error| {
            let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
            Refusal::new(code).with_text(&error.to_string())
        })
    }

    /// Finds out whether it happened.
    pub async fn look_up(&self, hold: &Hold) -> Found {
        let job = json!({"job": "look_up", "write": Load::bare(hold).write, "handle": hold.handle});
        let found = match self.job(hold, Step::Look, job, Vec::new()).await {
            Ok(given) => match given.answer.found() {
                Found::Unknown if given.unheard => Found::NotLooked,
                found => found,
            },
            // A worker that breaks over the answer would break over it again.
            Err(not) if not.refusal.code() == Code::WorkerCrashed => Found::Unknown,
            Err(_) => Found::NotLooked,
        };
        self.changed();
        found
    }

    /// A print of what it changed, as it is now.
    pub async fn present(&self, done: &Hold, before: &[u8]) -> Result<Fingerprint, Trouble> {
        match self.job(done, Step::Look, past("present", done, before), Vec::new()).await {
            Ok(given) => given.answer.print(),
            Err(not) => Err(Trouble::NotDone(not.refusal)),
        }
    }

    /// What taking it back would change now, in words for people.
    pub async fn difference(&self, done: &Hold, before: &[u8]) -> Vec<String> {
        match self.job(done, Step::Look, past("difference", done, before), Vec::new()).await {
            Ok(given) => given.answer.difference(),
            Err(_) => Vec::new(),
        }
    }

    /// Takes it back.
    pub async fn undo(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<Performed, Trouble> {
        drop(permit);
        let undone = match self.job(done, Step::Effect, past("undo", done, before), Vec::new()).await {
            Ok(given) => given.answer.done(),
            Err(not) => Err(not.trouble()),
        };
        self.changed();
        undone
    }
}

/// A job about a write that was done.
fn past(job: &str, done: &Hold, before: &[u8]) -> Value {
    let receipt = match &done.state {
        HoldState::Done { receipt, .. } => receipt,
        _ => "",
    };
    json!({"job": job, "write": Load::bare(done).write, "before": STANDARD.encode(before), "receipt": receipt})
}
