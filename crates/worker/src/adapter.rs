//! `adapter.run` and `adapter.describe`: one job of a connected service, done while locked in.
//!
//! Takes a job, an account and a ticket; runs the adapter and gives its answer. Content from a service leaves only
//! after all six stages, item by item (`mail`). Promise: an adapter's exchange is one exchange of the gateway's egress,
//! and a broken one is called not done only where egress knows that nothing was sent.

mod mail;

use serde::Serialize;
use serde_json::Value;
use sluice_adapters::adapter::{Adapter, RawItem, SyncChange, SyncPage, WriteExecutor as _};
use sluice_adapters::gmail::GmailAdapter;
use sluice_adapters::job::{self, AdapterJobResponse};
use sluice_adapters::net::{ExchangePhase, Net, NetError, NetRequest, NetResponse};
use sluice_protocol::{
    AdapterDescribeTask, AdapterRunTask, EXCHANGE_TOO_LARGE, ExchangeReply, JobFailureCode, WireAdapterAnswer,
    WireSyncItem, WireSyncPage, WorkerExchange, WorkerJob, WorkerTaskPayload as _,
};

use crate::excerpt;
use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Runs one job of an adapter.
#[derive(Debug)]
pub(crate) struct AdapterRun;

/// Reports what an adapter offers and which requests it needs.
#[derive(Debug)]
pub(crate) struct AdapterDescribe;

fn adapter(name: &str, account: &str) -> Result<GmailAdapter, JobError> {
    match name {
        "gmail" => GmailAdapter::new(account)
            .map_err(|_| fault(JobFailureCode::WorkerAdapter, "the adapter's manifest cannot be read")),
        _ => Err(fault(JobFailureCode::WorkerAdapter, "this worker knows no adapter of that name")),
    }
}

impl JobKind for AdapterDescribe {
    fn name(&self) -> &'static str {
        AdapterDescribeTask::KIND
    }

    fn about(&self) -> &'static str {
        "what an adapter offers, and every kind of request it makes"
    }

    fn perform(&self, job: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let which: AdapterDescribeTask =
            serde_json::from_value(job.payload).map_err(|_| fault(JobFailureCode::WorkerJob, "no adapter is named"))?;
        let payload = adapter(&which.adapter, "")?.manifest().to_json();
        Ok(JobResult { payload, attachments: Vec::new() })
    }
}

impl JobKind for AdapterRun {
    fn name(&self) -> &'static str {
        AdapterRunTask::KIND
    }

    fn about(&self) -> &'static str {
        "one job of a connected service: sync, look up, write, undo"
    }

    fn perform(&self, job: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let WorkerJob { payload, attachments, .. } = job;
        let mut task: AdapterRunTask =
            serde_json::from_value(payload).map_err(|_| fault(JobFailureCode::WorkerJob, "not a job of an adapter"))?;
        fill(&mut task.job, attachments)?;
        let adapter = adapter(&task.adapter, &task.account)?;
        let mut answer = walk(&adapter, &task, gate);
        answer.screen_service_texts(excerpt::screened);
        let payload = match answer {
            AdapterJobResponse::Page(Ok(page)) => hand_over(page, set_aside(&task.job), gate)?,
            other => other.into_wire().map_or(Value::Null, |answer| written(&answer)),
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
        return Err(fault(JobFailureCode::WorkerJob, "some files of the write are missing"));
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
            SyncChange::Put(raw) if aside.contains(&raw.id) => WireSyncItem::Aside(Box::new(mail::closed(&raw))),
            SyncChange::Put(raw) => {
                open(&raw, gate)?;
                continue;
            }
            SyncChange::Labels { id, labels } => WireSyncItem::Labels { id, labels },
            SyncChange::Gone { id } => WireSyncItem::Gone(id),
            SyncChange::LabelNames(names) => WireSyncItem::LabelNames(mail::names(names)),
        };
        gate.item(written(&item), Vec::new())?;
    }
    let page = WireSyncPage { next: next.0, more, progress, changes: count };
    Ok(written(&WireAdapterAnswer::Page(page)))
}

fn open(raw: &RawItem, gate: &mut GatewayLink<'_>) -> Result<(), JobError> {
    gate.item(written(&WireSyncItem::Opening(raw.id.clone())), Vec::new())?;
    let (mail, files) = mail::cleaned(raw);
    gate.item(written(&WireSyncItem::Put(Box::new(mail))), files)
}

/// The JSON of a message. The gateway takes `null` for nonsense; these types are never written as that.
fn written<T: Serialize>(message: &T) -> Value {
    serde_json::to_value(message).unwrap_or(Value::Null)
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
            Ok(ExchangeReply::Answer { status, headers, body }) => Ok(NetResponse { status, headers, body }),
            Ok(ExchangeReply::Refused { code, not_sent, .. }) => Err(refused(code, not_sent)),
            // The request did not even fit into the pipe to the gateway.
            Err(fault) => Err(NetError::Denied { code: fault.code.as_str().to_owned(), retry_after_s: None }),
        }
    }
}

/// What a refusal of egress means for an adapter.
fn refused(code: String, not_sent: bool) -> NetError {
    if code == EXCHANGE_TOO_LARGE {
        return NetError::TooLarge;
    }
    match (ExchangePhase::of_code(&code), not_sent) {
        (Some(phase), sure) if phase.proves_nothing_sent() == sure => NetError::Broken(phase),
        // Egress knows more than the phase says.
        (Some(_), true) => NetError::Broken(ExchangePhase::Connect),
        (None, true) => NetError::Denied { code, retry_after_s: None },
        (_, false) => NetError::Broken(ExchangePhase::Reply),
    }
}

fn fault(code: JobFailureCode, text: &str) -> JobError {
    JobError { code, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_adapters::error::{AdapterWriteError, ExchangeError};

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
    fn an_answer_of_which_no_byte_came_leaves_a_write_unclear() {
        let broken = refused(ExchangePhase::BeforeFirstByte.code().as_str().to_owned(), false);
        assert_eq!(broken, NetError::Broken(ExchangePhase::BeforeFirstByte));
        assert_eq!(ExchangeError::Net(broken).into_write_error(), AdapterWriteError::Unclear);
    }

    #[test]
    fn an_adapter_that_is_not_there_is_said_so() {
        assert_eq!(adapter("slack", "").unwrap_err().code, JobFailureCode::WorkerAdapter);
        let manifest = adapter("gmail", "").unwrap().manifest().to_json();
        assert_eq!(manifest["home"], "https://gmail.googleapis.com");
        assert!(manifest["reach"].as_array().unwrap().len() > 10, "{manifest}");
    }
}
