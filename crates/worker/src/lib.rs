//! The locked-in role of the binary: read one job, lock the door, do it, report, die.
//!
//! [`run`] is called before anything else of the program is set up. Jobs come in kinds ([`registry`]); a kind
//! reaches the outside only by asking through its [`net::Gate`]. Promise: not a byte of a job is read before the
//! locks are on, nothing of it is ever written to stderr, and a panic tells its place and nothing else.
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

use sluice_sandbox::child::{self, EXIT_DONE, EXIT_FAULT, EXIT_PANICKED, Inside, WorkerError};
use sluice_sandbox::protocol::{Outcome, Report};

use net::Gate;

/// The whole life of a worker. Returns only to a person who started it by hand.
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

/// The role that becomes a program of others, behind the looser profile. Does not return.
pub fn stranger() -> ! {
    sluice_sandbox::stranger::enter()
}

fn live(mut inside: Inside) -> Result<(), WorkerError> {
    // Behind the locks and without an item: what every copy needs is built once.
    if inside.is_mould() {
        sluice_content::rehearse();
        inside = inside.copies()?;
    }
    let job = inside.job()?;
    let (outcome, attachments) = match registry::find(&job.kind) {
        Some(kind) => match kind.perform(job, &mut Gate::new(&mut inside)) {
            Ok(done) => (Outcome::Done(done.payload), done.attachments),
            Err(fault) => (Outcome::Failed { code: fault.code.into(), text: fault.text }, Vec::new()),
        },
        None => {
            let text = "this worker does not know this kind of job".to_owned();
            (Outcome::Failed { code: "worker.kind".into(), text }, Vec::new())
        }
    };
    inside.report(Report { outcome, attachments })
}
