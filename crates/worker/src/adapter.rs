//! `adapter.run` and `adapter.describe`: one job of a connected service, done locked in.
//!
//! Takes a job, an account and a ticket; walks the adapter and gives its answer. Whatever a service sent leaves
//! only after all six stages, item by item (`mail`). Promise: an adapter's exchange is one exchange of the
//! gateway's egress, and a broken one is called not done only where egress knows that nothing left.

mod mail;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_adapters::adapter::{Adapter, Change, Page, RawItem, WriteExecutor as _};
use sluice_adapters::gmail::Gmail;
use sluice_adapters::job::{self, Answer};
use sluice_adapters::net::{Net, NetError, Phase, Reply, Request};
use sluice_sandbox::protocol::{self, Exchange, Job};

use crate::excerpt;
use crate::net::Gate;
use crate::registry::{Done, Fault, Kind};

/// Does one job of an adapter.
#[derive(Debug)]
pub(crate) struct AdapterRun;

/// Says what an adapter offers and where it has to go for it.
#[derive(Debug)]
pub(crate) struct AdapterDescribe;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    adapter: String,
    account: String,
    ticket: String,
    /// A path that every request starts with.
    base_path: String,
    job: job::Job,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    adapter: String,
}

fn adapter(name: &str, account: &str) -> Result<Gmail, Fault> {
    match name {
        "gmail" => Gmail::new(account).map_err(|_| fault("worker.adapter", "the adapter's manifest cannot be read")),
        _ => Err(fault("worker.adapter", "this worker knows no adapter of that name")),
    }
}

impl Kind for AdapterDescribe {
    fn name(&self) -> &'static str {
        "adapter.describe"
    }

    fn about(&self) -> &'static str {
        "what an adapter offers, and every kind of request it makes"
    }

    fn perform(&self, job: Job, _: &mut Gate<'_>) -> Result<Done, Fault> {
        let which: Which =
            serde_json::from_value(job.payload).map_err(|_| fault("worker.job", "no adapter is named"))?;
        let payload = adapter(&which.adapter, "")?.manifest().to_json();
        Ok(Done { payload, attachments: Vec::new() })
    }
}

impl Kind for AdapterRun {
    fn name(&self) -> &'static str {
        "adapter.run"
    }

    fn about(&self) -> &'static str {
        "one job of a connected service: copy, look, write, take back"
    }

    fn perform(&self, job: Job, gate: &mut Gate<'_>) -> Result<Done, Fault> {
        let Job { payload, attachments, .. } = job;
        let mut task: Task =
            serde_json::from_value(payload).map_err(|_| fault("worker.job", "not a job of an adapter"))?;
        fill(&mut task.job, attachments)?;
        let adapter = adapter(&task.adapter, &task.account)?;
        let mut answer = walk(&adapter, &task, gate);
        answer.screen_said(excerpt::screened);
        let payload = match answer {
            Answer::Page(Ok(page)) => hand_over(page, set_aside(&task.job), gate)?,
            other => other.to_json(),
        };
        Ok(Done { payload, attachments: Vec::new() })
    }
}

fn walk(adapter: &dyn Adapter, task: &Task, gate: &mut Gate<'_>) -> Answer {
    let mut net = Through { gate, ticket: &task.ticket, base: &task.base_path };
    job::run(adapter, &mut net, &task.job)
}

/// Files of a write come beside the job: they would not fit into it.
fn fill(job: &mut job::Job, attachments: Vec<Vec<u8>>) -> Result<(), Fault> {
    let blobs = match job {
        job::Job::Prepare { write, .. } | job::Job::Perform { write, .. } => write.blobs.as_mut_slice(),
        _ => &mut [],
    };
    if blobs.len() != attachments.len() {
        return Err(fault("worker.job", "the files of the write are not all there"));
    }
    for (blob, bytes) in blobs.iter_mut().zip(attachments) {
        blob.bytes = bytes;
    }
    Ok(())
}

/// Messages that are not to be opened.
fn set_aside(job: &job::Job) -> &[String] {
    match job {
        job::Job::Sync { aside, .. } => aside,
        _ => &[],
    }
}

/// Each change as an item of its own, in order, clean; then where to go on. What is about to be opened is named
/// first: should it break this worker, the gateway knows which message it was.
fn hand_over(page: Page, aside: &[String], gate: &mut Gate<'_>) -> Result<Value, Fault> {
    let Page { changes, next, more, progress } = page;
    let count = changes.len();
    for change in changes {
        let item = match change {
            Change::Put(raw) if aside.contains(&raw.id) => json!({"aside": mail::closed(&raw)}),
            Change::Put(raw) => {
                open(&raw, gate)?;
                continue;
            }
            Change::Labels { id, labels } => json!({"labels": {"id": id, "labels": labels}}),
            Change::Gone { id } => json!({"gone": id}),
            Change::LabelNames(names) => json!({"label_names": mail::names(names)}),
        };
        gate.item(item, Vec::new())?;
    }
    Ok(json!({"page": {"next": next, "more": more, "progress": progress, "changes": count}}))
}

fn open(raw: &RawItem, gate: &mut Gate<'_>) -> Result<(), Fault> {
    gate.item(json!({"opening": raw.id}), Vec::new())?;
    let (mail, files) = mail::cleaned(raw);
    gate.item(json!({"put": mail}), files)
}

/// The adapter's way out: through the gateway.
struct Through<'a, 'g> {
    gate: &'a mut Gate<'g>,
    ticket: &'a str,
    base: &'a str,
}

impl Net for Through<'_, '_> {
    fn exchange(&mut self, request: Request) -> Result<Reply, NetError> {
        let Request { method, path, headers, body } = request;
        let exchange = Exchange {
            ticket: self.ticket.to_owned(),
            method: method.as_str().to_owned(),
            path: format!("{}{path}", self.base),
            headers,
            body,
        };
        match self.gate.exchange(exchange) {
            Ok(protocol::Reply::Answer { status, headers, body }) => Ok(Reply { status, headers, body }),
            Ok(protocol::Reply::Refused { code, not_sent, .. }) => Err(refused(code, not_sent)),
            // It did not even fit into the pipe to the gateway.
            Err(fault) => Err(NetError::Denied { code: fault.code.to_owned(), retry_after_s: None }),
        }
    }
}

/// What a refusal of egress means to an adapter.
fn refused(code: String, not_sent: bool) -> NetError {
    match (code.as_str(), not_sent) {
        ("egress.too_large", _) => NetError::TooLarge,
        ("egress.dns", true) => NetError::Broken(Phase::Dns),
        ("egress.tls", true) => NetError::Broken(Phase::Tls),
        ("egress.connect" | "egress.no_answer" | "egress.broken" | "egress.reply", true) => {
            NetError::Broken(Phase::Connect)
        }
        (_, true) => NetError::Denied { code, retry_after_s: None },
        ("egress.no_answer", false) => NetError::Broken(Phase::After),
        (_, false) => NetError::Broken(Phase::Reply),
    }
}

fn fault(code: &'static str, text: &str) -> Fault {
    Fault { code, text: text.to_owned() }
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
                assert_eq!(phase.nothing_left(), not_sent, "{code}");
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
