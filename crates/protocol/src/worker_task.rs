//! The parameters of our own workers' jobs: screening, tool definitions, a proxy's task, a reply to an approval request.
//!
//! Takes what the gateway wants done; gives a [`WorkerJob`](crate::WorkerJob), whose kind and parameters belong together. Promise: the
//! writer and the reader of a job share its type, and a worker refuses parameters of another shape.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sluice_core::proxy::{ProxyIdentity, ProxyOperation, ProxyTaskHistory, ProxyTrust};

use crate::worker_job::WorkerTaskPayload;

/// `describe`: what a worker can do. It has no parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerDescribeTask;

/// `content.clean`: one item from outside, through all six stages. The item is the one attachment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentCleanTask {
    /// The type the bytes claim to have.
    #[serde(default)]
    pub declared: Option<String>,
    /// Text that is shown beside the content, such as headers: it is checked but not given back.
    #[serde(default)]
    pub beside: Option<String>,
    /// Provenance to put around the text; without it the bare text is given.
    #[serde(default)]
    pub envelope: Option<ContentProvenance>,
}

/// The source of the content, as the gateway knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentProvenance {
    /// The source of the content: a capability or a message.
    pub source: String,
    /// Its author.
    pub author: String,
    /// When the gateway received it.
    pub time: String,
    /// 64 hex digits that nobody outside can know.
    pub seal: String,
}

/// `content.clean.many`: items of one source, one after the other. The worker asks for each item; the job has no
/// parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentCleanManyTask;

/// `mount.definitions`: the tool definitions of a third-party server. The list is the one attachment; the job has no
/// parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountDefinitionsTask;

/// `mail.reply`: a mail that may answer an approval request. The mail is the one attachment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MailReplyTask {
    /// Domains whose seal on a forwarded mail is trusted.
    #[serde(default)]
    pub forwarders: Vec<String>,
    /// Seconds since 1970. If unknown, a signature with an expiry counts as expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<u64>,
    /// TXT records by name. Without them nothing is proven; the names to look up are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<BTreeMap<String, Vec<String>>>,
}

/// `proxy.run`: one task of a security proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxyRunTask {
    /// The declared operation.
    pub operation: ProxyOperation,
    /// How far the service is trusted.
    pub trust: ProxyTrust,
    /// The path that every request path starts with.
    pub base_path: String,
    /// The arguments of the call.
    pub arguments: Map<String, Value>,
    /// The ticket for the one request.
    pub ticket: String,
    /// The declaration of a lasting account, if there is one.
    #[serde(default)]
    pub identity: Option<ProxyIdentity>,
    /// The history: the other side, the last exchanges with it, drafts in progress.
    #[serde(default)]
    pub told: ProxyTaskHistory,
}

impl WorkerTaskPayload for WorkerDescribeTask {
    const KIND: &'static str = "describe";
}

impl WorkerTaskPayload for ContentCleanTask {
    const KIND: &'static str = "content.clean";
}

impl WorkerTaskPayload for ContentCleanManyTask {
    const KIND: &'static str = "content.clean.many";
}

impl WorkerTaskPayload for MountDefinitionsTask {
    const KIND: &'static str = "mount.definitions";
}

impl WorkerTaskPayload for MailReplyTask {
    const KIND: &'static str = "mail.reply";
}

impl WorkerTaskPayload for ProxyRunTask {
    const KIND: &'static str = "proxy.run";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkerJob;
    use serde_json::json;

    /// The head of the frame, byte for byte.
    fn head<T: WorkerTaskPayload>(task: &T) -> String {
        serde_json::to_string(&WorkerJob::of(task, Vec::new())).unwrap()
    }

    #[test]
    fn jobs_without_parameters_are_pinned() {
        assert_eq!(head(&WorkerDescribeTask), r#"{"kind":"describe","payload":null}"#);
        assert_eq!(head(&ContentCleanManyTask), r#"{"kind":"content.clean.many","payload":null}"#);
        assert_eq!(head(&MountDefinitionsTask), r#"{"kind":"mount.definitions","payload":null}"#);
    }

    #[test]
    fn the_json_of_a_screening_is_pinned() {
        let envelope = ContentProvenance {
            source: "s".into(),
            author: "a".into(),
            time: "2026-01-01T00:00:00Z".into(),
            seal: "00".repeat(32),
        };
        let task = ContentCleanTask {
            declared: Some("text/plain".into()),
            beside: Some("Subject".into()),
            envelope: Some(envelope),
        };
        let seal = "00".repeat(32);
        let text = format!(
            r#"{{"kind":"content.clean","payload":{{"beside":"Subject","declared":"text/plain","envelope":{{"author":"a","seal":"{seal}","source":"s","time":"2026-01-01T00:00:00Z"}}}}}}"#
        );
        assert_eq!(head(&task), text);
        let bare = r#"{"kind":"content.clean","payload":{"beside":null,"declared":null,"envelope":null}}"#;
        assert_eq!(head(&ContentCleanTask::default()), bare);
        assert_eq!(serde_json::from_str::<ContentCleanTask>("{}").unwrap(), ContentCleanTask::default());
    }

    #[test]
    fn the_json_of_a_reply_is_pinned() {
        let read = MailReplyTask { forwarders: vec!["f.example".into()], ..MailReplyTask::default() };
        assert_eq!(head(&read), r#"{"kind":"mail.reply","payload":{"forwarders":["f.example"]}}"#);
        let records = BTreeMap::from([("k._domainkey.x.example".to_owned(), vec!["v=DKIM1".to_owned()])]);
        let judge = MailReplyTask { now: Some(7), records: Some(records), ..read };
        let text = r#"{"kind":"mail.reply","payload":{"forwarders":["f.example"],"now":7,"records":{"k._domainkey.x.example":["v=DKIM1"]}}}"#;
        assert_eq!(head(&judge), text);
    }

    #[test]
    fn parameters_of_another_shape_are_refused() {
        assert!(serde_json::from_value::<ContentCleanTask>(json!({"declare": "x"})).is_err());
        assert!(serde_json::from_value::<MailReplyTask>(json!({"records": 7})).is_err());
        assert!(serde_json::from_value::<ProxyRunTask>(Value::Null).is_err());
    }
}
