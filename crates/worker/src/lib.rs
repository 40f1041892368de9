//! The locked-in role of the binary: locks itself in, reads one job, does it, reports, ends.
//!
//! [`run`] is called before anything else of the program is set up. Jobs come in kinds ([`registry`]); a kind reaches
//! the outside only through its [`net::GatewayLink`]. Promise: no byte of a job is read before the locks are on, none of it is
//! ever written to stderr, and a panic reports its place and nothing else.
#![warn(missing_docs)]

mod adapter;
mod clean;
mod definitions;
mod describe;
mod echo;
mod excerpt;
pub mod net;
mod proxy;
pub mod registry;
pub mod reply;

use std::panic;
use std::process::ExitCode;

use sluice_protocol::{JobFailureCode, WorkerJobOutcome, WorkerReport};
use sluice_sandbox::child::{self, EXIT_DONE, EXIT_FAULT, EXIT_PANICKED, LockedInWorker, WorkerError};

use net::GatewayLink;

/// The whole lifetime of a worker. Returns only to a person who started it by hand.
pub fn run() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        // The words of a panic may hold content; its place does not.
        child::last_words(&info.location().map_or_else(String::new, |at| format!("{}:{}", at.file(), at.line())));
        child::exit(EXIT_PANICKED)
    }));
    match child::enter(sluice_content::warm) {
        Ok(inside) => child::exit(if live(inside).is_ok() { EXIT_DONE } else { EXIT_FAULT }),
        Err(error @ WorkerError::NoParent) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
        Err(_) => child::exit(EXIT_FAULT),
    }
}

/// The role that becomes a third-party program, behind the looser profile. Does not return.
pub fn stranger() -> ! {
    sluice_sandbox::third_party::enter()
}

fn live(mut inside: LockedInWorker) -> Result<(), WorkerError> {
    // After locking in and before any item: what every fork needs is built once.
    if inside.is_zygote() {
        sluice_content::rehearse();
        inside = inside.serve_as_zygote()?;
    }
    let job = inside.job()?;
    let (outcome, attachments) = match registry::find(&job.kind) {
        Some(kind) => match kind.perform(job, &mut GatewayLink::new(&mut inside)) {
            Ok(done) => (WorkerJobOutcome::Done(done.payload), done.attachments),
            Err(fault) => (WorkerJobOutcome::Failed { code: fault.code.as_str().into(), text: fault.text }, Vec::new()),
        },
        None => {
            let text = "this worker does not know this kind of job".to_owned();
            (WorkerJobOutcome::Failed { code: JobFailureCode::WorkerKind.as_str().into(), text }, Vec::new())
        }
    };
    inside.report(WorkerReport { outcome, attachments })
}
