//! `echo`: gives back what it was given. For measurements and for `sluice doctor`.

use sluice_sandbox::protocol::Job;

use crate::net::Gate;
use crate::registry::{Done, Fault, Kind};

/// Gives back.
#[derive(Debug)]
pub(crate) struct Echo;

impl Kind for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn about(&self) -> &'static str {
        "gives back what it was given"
    }

    fn perform(&self, job: Job, _: &mut Gate<'_>) -> Result<Done, Fault> {
        Ok(Done { payload: job.payload, attachments: job.attachments })
    }
}
