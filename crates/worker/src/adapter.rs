//! `adapter.run` and `adapter.describe`: one job of a connected service, done while locked in.
//!
//! Takes a job, an account and a ticket; runs the adapter and gives its answer. Content from a service leaves only
//! after all six stages, item by item (`mail`). Promise: an adapter's exchange is one exchange of the gateway's egress,
//! and a broken one is called not done only where egress knows that nothing was sent.

mod mail;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_adapters::adapter::{Adapter, RawItem, SyncChange, SyncPage, WriteExecutor as _};
use sluice_adapters::gmail::GmailAdapter;
use sluice_adapters::job::{self, AdapterJobResponse};
use sluice_adapters::net::{Net, NetError, NetPhase, NetRequest, NetResponse};
use sluice_sandbox::protocol::{self, WorkerExchange, WorkerJob};

use crate::excerpt;
use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Runs one job of an adapter.
#[derive(Debug)]
pub(crate) struct AdapterRun;

/// Reports what an adapter offers and which requests it needs.
#[derive(Debug)]
pub(crate) struct AdapterDescribe;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdapterRunTask {
    adapter: String,
    account: String,
    ticket: String,
    /// The path that every request path starts with.
    base_path: String,
    job: job::AdapterJobRequest,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdapterDescribeTask {
    adapter: String,
}

fn adapter(name: &str, account: &str) -> Result<GmailAdapter, JobError> {
    match name {
        "gmail" => {
            GmailAdapter::new(account).map_err(|_| fault("worker.adapter", "the adapter's manifest cannot be read"))
        }
        _ => Err(fault("worker.adapter", "this worker knows no adapter of that name")),
    }
}

impl JobKind for AdapterDescribe {
    fn name(&self) -> &'static str {
        "adapter.describe"
    }

    fn about(&self) -> &'static str {
        "what an adapter offers, and every kind of request it makes"
    }

    fn perform(&self, job: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let which: AdapterDescribeTask =
            serde_json::from_value(job.payload).map_err(|_| fault("worker.job", "no adapter is named"))?;
        let payload = adapter(&which.adapter, "")?.manifest().to_json();
        Ok(JobResult { payload, attachments: Vec::new() })
    }
}

impl JobKind for AdapterRun {
    fn name(&self) -> &'static str {
        "adapter.run"
    }

    fn about(&self) -> &'static str {
        "one job of a connected service: sync, look up, write, undo"
    }

    fn perform(&self, job: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let WorkerJob { payload, attachments, .. } = job;
        let mut task: AdapterRunTask =
            serde_json::from_value(payload).map_err(|_| fault("worker.job", "not a job of an adapter"))?;
        fill(&mut task.job, attachments)?;
        let adapter = adapter(&task.adapter, &task.account)?;
        let mut answer = walk(&adapter, &task, gate);
        answer.screen_service_texts(excerpt::screened);
        let payload = match answer {
            AdapterJobResponse::Page(Ok(page)) => hand_over(page, set_aside(&task.job), gate)?,
            other => other.to_json(),
        };
        Ok(JobResult { payload, attachments: Vec::new() })
    }
}

fn walk(adapter: &dyn Adapter, task: &AdapterRunTask, gate: &mut GatewayLink<'_>) -> AdapterJobResponse {
    let mut net = GatewayNet { gate, ticket: &task.ticket, base: &task.base_path };
    job::run(adapter, &mut net, &task.job)
}

/// The files of a write come beside the job: they would not fit into it.
fn fill(job: &mut job::AdapterJobRequest, attachments: Vec<Vec<u8>>) -> Result<(), JobError> {
    let blobs = match job {
        job::AdapterJobRequest::Prepare { write, .. } | job::AdapterJobRequest::Perform { write, .. } => {
            write.blobs.as_mut_slice()
        }
        _ => &mut [],
    };
    if blobs.len() != attachments.len() {
        return Err(fault("worker.job", "some files of the write are missing"));
    }
    for (blob, bytes) in blobs.iter_mut().zip(attachments) {
        blob.bytes = bytes;
    }
    Ok(())
}

/// Messages that must not be opened.
fn set_aside(job: &job::AdapterJobRequest) -> &[String] {
    match job {
        job::AdapterJobRequest::Sync { aside, .. } => aside,
        _ => &[],
    }
}

/// Sends each change as an item of its own, in order and clean; then the next cursor. A message is named before it is
/// opened: if it crashes this worker, the gateway knows which message it was.
fn hand_over(page: SyncPage, aside: &[String], gate: &mut GatewayLink<'_>) -> Result<Value, JobError> {
    let SyncPage { changes, next, more, progress } = page;
    let count = changes.len();
    for change in changes {
        let item = match change {
            SyncChange::Put(raw) if aside.contains(&raw.id) => json!({"aside": mail::closed(&raw)}),
            SyncChange::Put(raw) => {
                open(&raw, gate)?;
                continue;
            }
            SyncChange::Labels { id, labels } => json!({"labels": {"id": id, "labels": labels}}),
            SyncChange::Gone { id } => json!({"gone": id}),
            SyncChange::LabelNames(names) => json!({"label_names": mail::names(names)}),
        };
        gate.item(item, Vec::new())?;
    }
    Ok(json!({"page": {"next": next, "more": more, "progress": progress, "changes": count}}))
}

fn open(raw: &RawItem, gate: &mut GatewayLink<'_>) -> Result<(), JobError> {
    gate.item(json!({"opening": raw.id}), Vec::new())?;
    let (mail, files) = mail::cleaned(raw);
    gate.item(json!({"put": mail}), files)
}

/// The adapter's way out, through the gateway.
struct GatewayNet<'a, 'g> {
    gate: &'a mut GatewayLink<'g>,
    ticket: &'a str,
    base: &'a str,
}

impl Net for GatewayNet<'_, '_> {
    fn exchange(&mut self, request: NetRequest) -> Result<NetResponse, NetError> {
        let NetRequest { method, path, headers, body } = request;
        let exchange = WorkerExchange {
            ticket: self.ticket.to_owned(),
            method: method.as_str().to_owned(),
            path: format!("{}{path}", self.base),
            headers,
            body,
        };
        match self.gate.exchange(exchange) {
            Ok(protocol::ExchangeReply::Answer { status, headers, body }) => Ok(NetResponse { status, headers, body }),
            Ok(protocol::ExchangeReply::Refused { code, not_sent, .. }) => Err(refused(code, not_sent)),
            // The request did not even fit into the pipe to the gateway.
            Err(fault) => Err(NetError::Denied { code: fault.code.to_owned(), retry_after_s: None }),
        }
    }
}

/// What a refusal of egress means for an adapter.
fn refused(code: String, not_sent: bool) -> NetError {
    match (code.as_str(), not_sent) {
        ("egress.too_large", _) => NetError::TooLarge,
        ("egress.dns", true) => NetError::Broken(NetPhase::Dns),
        ("egress.tls", true) => NetError::Broken(NetPhase::Tls),
        ("egress.connect" | "egress.no_answer" | "egress.broken" | "egress.reply", true) => {
            NetError::Broken(NetPhase::Connect)
        }
        (_, true) => NetError::Denied { code, retry_after_s: None },
        ("egress.no_answer", false) => NetError::Broken(NetPhase::After),
        (_, false) => NetError::Broken(NetPhase::Reply),
    }
}

fn fault(code: &'static str, text: &str) -> JobError {
    JobError { code, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_egress_knows_not_to_have_left_counts_as_not_done() {
        let codes = ["egress.no_answer", "egress.broken", "egress.reply", "egress.connect", "egress.tls", "egress.dns"];
        for code in codes {
            for not_sent in [true, false] {
                let NetError::Broken(phase) = refused(code.to_owned(), not_sent) else { panic!("{code}") };
                assert_eq!(phase.proves_nothing_sent(), not_sent, "{code}");
            }
        }
        assert!(matches!(refused("egress.ticket".into(), true), NetError::Denied { .. }));
        assert_eq!(refused("egress.too_large".into(), false), NetError::TooLarge);
    }

    #[test]
    fn an_adapter_that_is_not_there_is_said_so() {
        assert_eq!(adapter("slack", "").unwrap_err().code, "worker.adapter");
        let manifest = adapter("gmail", "").unwrap().manifest().to_json();
        assert_eq!(manifest["home"], "https://gmail.googleapis.com");
        assert!(manifest["reach"].as_array().unwrap().len() > 10, "{manifest}");
    }
}
