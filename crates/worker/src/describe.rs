//! `describe`: what this worker can do.

use serde_json::json;
use sluice_protocol::{WorkerDescribeTask, WorkerJob, WorkerTaskPayload as _};

use crate::net::GatewayLink;
use crate::registry::{ALL, JobError, JobKind, JobResult};

/// Lists the kinds of job.
#[derive(Debug)]
pub(crate) struct WorkerDescribe;

impl JobKind for WorkerDescribe {
    fn name(&self) -> &'static str {
        WorkerDescribeTask::KIND
    }

    fn about(&self) -> &'static str {
        "what this worker can do"
    }

    fn perform(&self, _: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let kinds: Vec<_> = ALL.iter().map(|kind| json!({"kind": kind.name(), "about": kind.about()})).collect();
        let payload = json!({"release": env!("CARGO_PKG_VERSION"), "kinds": kinds});
        Ok(JobResult { payload, attachments: Vec::new() })
    }
}
