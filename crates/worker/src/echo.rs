//! `echo`: returns its input. For measurements and for `sluice doctor`.

use sluice_protocol::WorkerJob;

use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Returns its input.
#[derive(Debug)]
pub(crate) struct WorkerEcho;

impl JobKind for WorkerEcho {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn about(&self) -> &'static str {
        "returns its input"
    }

    fn perform(&self, job: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        Ok(JobResult { payload: job.payload, attachments: job.attachments })
    }
}
