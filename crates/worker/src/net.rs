//! The only way out of a worker: asking the gateway.
//!
//! Takes what a kind wants sent, handed over or said; gives the gateway's answer. It blocks: a worker does one
//! thing. Promise: nothing here holds a socket, a host name or a credential; when the gateway is gone, so is
//! the worker.

use serde_json::Value;
use sluice_sandbox::child::{self, EXIT_FAULT, Inside, Scratch, WorkerError};
use sluice_sandbox::protocol::{Exchange, Item, Malformed, Progress, Reply};

use crate::registry::Fault;

/// A kind's way to the gateway.
#[derive(Debug)]
pub struct Gate<'a>(&'a mut Inside);

impl<'a> Gate<'a> {
    pub(crate) fn new(inside: &'a mut Inside) -> Self {
        Self(inside)
    }

    /// Asks the gateway's egress to send something, and waits for what becomes of it.
    ///
    /// # Errors
    /// It is too large to be asked.
    pub fn exchange(&mut self, exchange: Exchange) -> Result<Reply, Fault> {
        spoken(self.0.exchange(exchange))
    }

    /// Hands over one result while the job goes on.
    ///
    /// # Errors
    /// It is too large.
    pub fn item(&mut self, payload: Value, attachments: Vec<Vec<u8>>) -> Result<(), Fault> {
        spoken(self.0.item(Item { payload, attachments }))
    }

    /// Says how far the job is.
    ///
    /// # Errors
    /// Never for the size of it.
    pub fn progress(&mut self, done: u64, of: Option<u64>) -> Result<(), Fault> {
        spoken(self.0.progress(Progress { done, of }))
    }

    /// The folder of this job, if it has one.
    #[must_use]
    pub fn scratch(&self) -> Option<Scratch<'_>> {
        self.0.scratch()
    }
}

fn spoken<T>(result: Result<T, WorkerError>) -> Result<T, Fault> {
    match result {
        Ok(value) => Ok(value),
        Err(WorkerError::Frame(Malformed::TooLarge)) => {
            Err(Fault { code: "worker.too_large", text: "a frame would be larger than it may be".into() })
        }
        // Without the gateway there is nobody to report to.
        Err(_) => child::exit(EXIT_FAULT),
    }
}
