//! The kinds of job that a worker can do.
//!
//! A new kind (for example an adapter's sync or write) is a type with [`JobKind`] and a line in [`ALL`]; neither the
//! sandbox nor the protocol changes.

use serde_json::Value;
use sluice_protocol::{JobFailureCode, WorkerJob};

use crate::adapter::{AdapterDescribe, AdapterRun};
use crate::clean::{ContentClean, ContentCleanMany};
use crate::definitions::MountDefinitions;
use crate::describe::WorkerDescribe;
use crate::echo::WorkerEcho;
use crate::net::GatewayLink;
use crate::proxy::ProxyRun;
use crate::reply::MailReplyRead;

/// Every kind, by name.
pub const ALL: &[&dyn JobKind] = &[
    &WorkerDescribe,
    &WorkerEcho,
    &ContentClean,
    &ContentCleanMany,
    &MountDefinitions,
    &ProxyRun,
    &AdapterDescribe,
    &AdapterRun,
    &MailReplyRead,
];

/// One kind of job.
pub trait JobKind: Sync {
    /// Its name: `content.clean`.
    fn name(&self) -> &'static str;
    /// What it does, in one line.
    fn about(&self) -> &'static str;
    /// Does the job.
    ///
    /// # Errors
    /// When it could not be done for an expected reason. Unexpected errors may panic: the gateway sees a worker that
    /// crashed, and where.
    fn perform(&self, job: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError>;
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobResult {
    /// The result, as the kind defines it.
    pub payload: Value,
    /// Attached bytes.
    pub attachments: Vec<Vec<u8>>,
}

/// Why a job was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobError {
    /// Stable code.
    pub code: JobFailureCode,
    /// A text that is safe to show: it contains nothing of the content.
    pub text: String,
}

/// The kind with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn JobKind> {
    ALL.iter().copied().find(|kind| kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_own_name() {
        for kind in ALL {
            let found = find(kind.name()).map(JobKind::about);
            assert_eq!(found, Some(kind.about()), "two kinds have the name {}", kind.name());
            let job = WorkerJob { kind: kind.name().into(), payload: Value::Null, attachments: Vec::new() };
            assert!(job.has_a_kind(), "{}", kind.name());
        }
        assert!(find("sh").is_none());
    }
}
