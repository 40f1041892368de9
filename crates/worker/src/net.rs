//! The only way out of a worker: requests to the gateway.
//!
//! Takes what a kind of job wants to send, hand over or report; gives the gateway's answer. It blocks: a worker does
//! one thing. Promise: nothing here holds a socket, a host name or a credential; when the gateway is gone, the worker
//! ends.

use serde_json::Value;
use sluice_protocol::{
    ExchangeReply, JobFailureCode, NextItemReply, WorkerExchange, WorkerFrameError, WorkerItem, WorkerProgress,
};
use sluice_sandbox::child::{self, EXIT_FAULT, LockedInWorker, WorkerError, WorkerScratchFolder};

use crate::registry::JobError;

/// The access of a kind of job to the gateway.
#[derive(Debug)]
pub struct GatewayLink<'a>(&'a mut LockedInWorker);

impl<'a> GatewayLink<'a> {
    pub(crate) fn new(inside: &'a mut LockedInWorker) -> Self {
        Self(inside)
    }

    /// Asks the gateway's egress to send a request, and waits for the result.
    ///
    /// # Errors
    /// When the request is too large.
    pub fn exchange(&mut self, exchange: WorkerExchange) -> Result<ExchangeReply, JobError> {
        spoken(self.0.exchange(exchange))
    }

    /// Asks the gateway for the next item of this conversation, and waits for it.
    ///
    /// # Errors
    /// Never because of its size.
    pub fn next_item(&mut self) -> Result<NextItemReply, JobError> {
        spoken(self.0.next_item())
    }

    /// Sends one result while the job continues.
    ///
    /// # Errors
    /// When it is too large.
    pub fn item(&mut self, payload: Value, attachments: Vec<Vec<u8>>) -> Result<(), JobError> {
        spoken(self.0.item(WorkerItem { payload, attachments }))
    }

    /// Reports the progress of the job.
    ///
    /// # Errors
    /// Never because of its size.
    pub fn progress(&mut self, done: u64, of: Option<u64>) -> Result<(), JobError> {
        spoken(self.0.progress(WorkerProgress { done, of }))
    }

    /// The folder of this job, if it has one.
    #[must_use]
    pub fn scratch(&self) -> Option<WorkerScratchFolder<'_>> {
        self.0.scratch()
    }
}

fn spoken<T>(result: Result<T, WorkerError>) -> Result<T, JobError> {
    match result {
        Ok(value) => Ok(value),
        Err(WorkerError::Frame(WorkerFrameError::TooLarge)) => Err(JobError {
            code: JobFailureCode::WorkerTooLarge,
            text: "the frame would be larger than allowed".into(),
        }),
        // Without the gateway there is nobody to report to.
        Err(_) => child::exit(EXIT_FAULT),
    }
}
