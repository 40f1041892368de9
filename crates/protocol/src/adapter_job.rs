//! Jobs of an adapter: describe yourself, or do one step of a sync, a read or a write.
//!
//! Takes the gateway's order; gives the JSON that a worker or a third-party adapter reads. Promise: the JSON of every
//! job is pinned by a test, because third-party adapters read it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_core::CapabilityName;

use crate::base64_text;
use crate::worker_job::WorkerTaskPayload;

/// `adapter.describe`: what an adapter offers and which requests it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdapterDescribeTask {
    /// The name of the adapter.
    pub adapter: String,
}

/// `adapter.run`: one job of a connected service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdapterRunTask {
    /// The name of the adapter.
    pub adapter: String,
    /// The account at the service; empty if it is not known.
    pub account: String,
    /// The ticket that every exchange repeats.
    pub ticket: String,
    /// The path that every request path starts with.
    pub base_path: String,
    /// The job.
    pub job: AdapterJobRequest,
}

impl WorkerTaskPayload for AdapterDescribeTask {
    const KIND: &'static str = "adapter.describe";
}

impl WorkerTaskPayload for AdapterRunTask {
    const KIND: &'static str = "adapter.run";
}

/// The request of the gateway to an adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "job")]
pub enum AdapterJobRequest {
    /// Read the account's name, and whether the service answers.
    Account,
    /// Answer a read capability. Only third-party adapters get it: the gateway answers reads of its own services from
    /// their replica.
    Read {
        /// The capability to answer.
        #[schemars(with = "String")]
        capability: CapabilityName,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// The next changes of the replica. Only our own adapters get it.
    Sync {
        /// The position of the replica.
        since: Option<SyncCursor>,
        /// Messages that crashed each worker that opened them: only their ids are wanted.
        #[serde(default)]
        aside: Vec<String>,
    },
    /// Messages by id, as they are now. Only our own adapters get it.
    Fetch {
        /// The ids of the messages.
        ids: Vec<String>,
    },
    /// Capture the state before a write; create its handle unless it has one.
    Prepare {
        /// The write.
        write: ServiceWrite,
        /// The handle of an earlier attempt.
        handle: Option<ServiceHandle>,
    },
    /// Perform the write.
    Perform {
        /// The write.
        write: ServiceWrite,
        /// Its handle, as stored.
        handle: Option<ServiceHandle>,
    },
    /// Find out whether the write happened.
    LookUp {
        /// The write.
        write: ServiceWrite,
        /// Its handle, as stored.
        handle: Option<ServiceHandle>,
    },
    /// A fingerprint of the changed object, as it is now.
    Present {
        /// The write.
        write: ServiceWrite,
        /// The state before the write, as base64.
        #[serde(with = "base64_text")]
        #[schemars(with = "String")]
        before: Vec<u8>,
        /// The receipt of the service.
        receipt: String,
    },
    /// What a rollback would change now, in words. Only our own adapters get it.
    Difference {
        /// The write.
        write: ServiceWrite,
        /// The state before the write, as base64.
        #[serde(with = "base64_text")]
        #[schemars(with = "String")]
        before: Vec<u8>,
        /// The receipt of the service.
        receipt: String,
    },
    /// Undo the write.
    Undo {
        /// The write.
        write: ServiceWrite,
        /// The state before the write, as base64.
        #[serde(with = "base64_text")]
        #[schemars(with = "String")]
        before: Vec<u8>,
        /// The receipt of the service.
        receipt: String,
    },
}

/// A write on its way to a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceWrite {
    /// The hold's id: the effect is marked with it where the service allows that.
    pub op: String,
    /// The capability to perform.
    #[schemars(with = "String")]
    pub capability: CapabilityName,
    /// Its arguments, exactly as they were approved.
    pub arguments: Map<String, Value>,
    /// When the write was admitted, in milliseconds since the epoch. Every attempt has the same time.
    pub at: i64,
    /// Files the arguments name by their hash.
    #[serde(default)]
    pub blobs: Vec<AttachedFile>,
}

/// A file that goes out with a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedFile {
    /// The file name that its reader sees.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// The content of the file. Empty in a job: the contents are attached to it, in the same order.
    #[serde(with = "base64_text")]
    #[schemars(with = "String")]
    pub bytes: Vec<u8>,
}

/// The inert object at the service that a second step consumes. Once stored, it is the only one for its write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceHandle(pub String);

/// The position of a replica, in the adapter's own form. Others store it and never read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncCursor(pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerJob;
    use serde_json::json;

    fn write() -> ServiceWrite {
        let arguments = json!({"to": "a@x.example", "n": 1.5}).as_object().unwrap().clone();
        let blobs = vec![AttachedFile { name: "a.txt".into(), media_type: "text/plain".into(), bytes: Vec::new() }];
        ServiceWrite {
            op: "buf_1".into(),
            capability: CapabilityName::new("email.send").unwrap(),
            arguments,
            at: 5,
            blobs,
        }
    }

    /// What a program reads, byte for byte.
    fn payload(job: AdapterJobRequest) -> String {
        let task = AdapterRunTask {
            adapter: "todo".into(),
            account: "ana".into(),
            ticket: "tk_1".into(),
            base_path: "/v1".into(),
            job,
        };
        WorkerJob::of(&task, Vec::new()).payload["job"].to_string()
    }

    #[test]
    fn the_json_of_every_job_is_pinned() {
        const WRITE: &str = r#"{"arguments":{"n":1.5,"to":"a@x.example"},"at":5,"blobs":[{"bytes":"","media_type":"text/plain","name":"a.txt"}],"capability":"email.send","op":"buf_1"}"#;
        let (write, before, receipt) = (write(), vec![0, 255], "r".to_owned());
        let handle = Some(ServiceHandle("h".into()));
        let capability = CapabilityName::new("todo.list").unwrap();
        for (job, text) in [
            (AdapterJobRequest::Account, r#"{"job":"account"}"#.to_owned()),
            (
                AdapterJobRequest::Read { capability, arguments: Map::new() },
                r#"{"arguments":{},"capability":"todo.list","job":"read"}"#.to_owned(),
            ),
            (
                AdapterJobRequest::Sync { since: None, aside: Vec::new() },
                r#"{"aside":[],"job":"sync","since":null}"#.to_owned(),
            ),
            (
                AdapterJobRequest::Sync { since: Some(SyncCursor("c".into())), aside: vec!["m1".into()] },
                r#"{"aside":["m1"],"job":"sync","since":"c"}"#.to_owned(),
            ),
            (AdapterJobRequest::Fetch { ids: vec!["m1".into()] }, r#"{"ids":["m1"],"job":"fetch"}"#.to_owned()),
            (
                AdapterJobRequest::Prepare { write: write.clone(), handle: None },
                format!(r#"{{"handle":null,"job":"prepare","write":{WRITE}}}"#),
            ),
            (
                AdapterJobRequest::Perform { write: write.clone(), handle: handle.clone() },
                format!(r#"{{"handle":"h","job":"perform","write":{WRITE}}}"#),
            ),
            (
                AdapterJobRequest::LookUp { write: write.clone(), handle },
                format!(r#"{{"handle":"h","job":"look_up","write":{WRITE}}}"#),
            ),
            (
                AdapterJobRequest::Present { write: write.clone(), before: before.clone(), receipt: receipt.clone() },
                format!(r#"{{"before":"AP8=","job":"present","receipt":"r","write":{WRITE}}}"#),
            ),
            (
                AdapterJobRequest::Difference {
                    write: write.clone(),
                    before: before.clone(),
                    receipt: receipt.clone(),
                },
                format!(r#"{{"before":"AP8=","job":"difference","receipt":"r","write":{WRITE}}}"#),
            ),
            (
                AdapterJobRequest::Undo { write, before, receipt },
                format!(r#"{{"before":"AP8=","job":"undo","receipt":"r","write":{WRITE}}}"#),
            ),
        ] {
            assert_eq!(payload(job.clone()), text);
            assert_eq!(serde_json::from_str::<AdapterJobRequest>(&text).unwrap(), job, "{text}");
        }
    }

    #[test]
    fn the_json_around_a_job_is_pinned() {
        let task = AdapterRunTask {
            adapter: "todo".into(),
            account: String::new(),
            ticket: "tk_1".into(),
            base_path: "/v1".into(),
            job: AdapterJobRequest::Account,
        };
        let job = WorkerJob::of(&task, Vec::new());
        let head = r#"{"kind":"adapter.run","payload":{"account":"","adapter":"todo","base_path":"/v1","job":{"job":"account"},"ticket":"tk_1"}}"#;
        assert_eq!(serde_json::to_string(&job).unwrap(), head);
        let job = WorkerJob::of(&AdapterDescribeTask { adapter: "todo".into() }, Vec::new());
        let head = r#"{"kind":"adapter.describe","payload":{"adapter":"todo"}}"#;
        assert_eq!(serde_json::to_string(&job).unwrap(), head);
    }
}
