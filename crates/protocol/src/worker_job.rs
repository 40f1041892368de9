//! A job of a worker: its kind, its parameters and attached bytes.
//!
//! Takes parameters of a type; gives the job that holds them. Promise: the kind and the parameters of a job belong together,
//! and a kind is a short plain name.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest name of a kind.
pub(crate) const LONGEST_KIND: usize = 64;

/// One job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerJob {
    /// The kind of job: `content.clean`.
    pub kind: String,
    /// The parameters of the job.
    pub payload: Value,
    /// Attached bytes.
    #[serde(skip)]
    pub attachments: Vec<Vec<u8>>,
}

/// The parameters of one kind of job.
pub trait WorkerTaskPayload: Serialize + DeserializeOwned {
    /// The kind of job: `content.clean`.
    const KIND: &'static str;
}

impl WorkerJob {
    /// Whether this can be given to a worker.
    #[must_use]
    pub fn has_a_kind(&self) -> bool {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'_';
        !self.kind.is_empty() && self.kind.len() <= LONGEST_KIND && self.kind.bytes().all(plain)
    }

    /// The job with these parameters and attached bytes. Parameters that cannot be written become `null`, which the
    /// worker refuses.
    #[must_use]
    pub fn of<T: WorkerTaskPayload>(task: &T, attachments: Vec<Vec<u8>>) -> Self {
        let payload = serde_json::to_value(task).unwrap_or(Value::Null);
        Self { kind: T::KIND.to_owned(), payload, attachments }
    }
}
