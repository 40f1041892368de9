//! `content.clean`: one item from outside, through all six stages; `content.clean.many`: items of one source, one after
//! the other.
//!
//! Takes the bytes as its one attachment, with their metadata; gives the clean text, its JSON value if it is JSON, and
//! the findings. The second kind asks the gateway for each item and sends the result. Promise: nothing about the sender
//! reaches the injection stage; content that a stage refuses is reported by a code, and none of it is given.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_content::finding::scale;
use sluice_content::stages::{OutputContext, ProvenanceEnvelope};
use sluice_content::{CleanContent, Finding, RawContent, ScreeningPlan, clean};
use sluice_sandbox::protocol::{ExchangeReply, WorkerExchange, WorkerJob};

use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Most findings that are reported; more add nothing.
const REPORTED: usize = 64;

/// Cleans one item.
#[derive(Debug)]
pub(crate) struct ContentClean;

/// The parameters of the job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentCleanTask {
    /// The type the bytes claim to have.
    #[serde(default)]
    declared: Option<String>,
    /// Text that is shown beside the content, such as headers: it is checked but not given back.
    #[serde(default)]
    beside: Option<String>,
    /// Provenance to put around the text; without it the bare text is given.
    #[serde(default)]
    envelope: Option<ContentProvenance>,
}

/// The source of the content, as the gateway knows it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentProvenance {
    source: String,
    author: String,
    time: String,
    /// 64 hex digits that nobody outside can know.
    seal: String,
}

impl JobKind for ContentClean {
    fn name(&self) -> &'static str {
        "content.clean"
    }

    fn about(&self) -> &'static str {
        "reads one item from outside through the six stages"
    }

    fn perform(&self, job: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let [bytes] = job.attachments.as_slice() else { return Err(wrong("this job needs exactly one attachment")) };
        read(job.payload, bytes)
    }
}

/// Cleans items of one source, one after the other.
#[derive(Debug)]
pub(crate) struct ContentCleanMany;

impl JobKind for ContentCleanMany {
    fn name(&self) -> &'static str {
        "content.clean.many"
    }

    fn about(&self) -> &'static str {
        "reads items of one source through the six stages, one after the other"
    }

    fn perform(&self, _: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        loop {
            let next = WorkerExchange {
                ticket: String::new(),
                method: "NEXT".into(),
                path: "/".into(),
                headers: Vec::new(),
                body: Vec::new(),
            };
            // No more items: the regular end.
            let ExchangeReply::Answer { headers, body, .. } = gate.exchange(next)? else {
                return Ok(JobResult::default());
            };
            let task = headers.first().map(|(_, task)| task.as_str()).unwrap_or_default();
            let task = serde_json::from_str(task).map_err(|_| wrong("the payload is not a cleaning job"))?;
            let JobResult { payload, attachments } = read(task, &body)?;
            gate.item(payload, attachments)?;
        }
    }
}

fn wrong(text: &str) -> JobError {
    JobError { code: "worker.job", text: text.to_owned() }
}

/// Reads one item, as the job says.
fn read(task: Value, bytes: &[u8]) -> Result<JobResult, JobError> {
    let task: ContentCleanTask =
        serde_json::from_value(task).map_err(|_| wrong("the payload is not a cleaning job"))?;
    let envelope = task.envelope.map(ContentProvenance::envelope).transpose().map_err(wrong)?;
    let plan = ScreeningPlan { place: OutputContext::Text, envelope, ..ScreeningPlan::default() };
    let mut raw = RawContent::new(bytes);
    if let Some(declared) = &task.declared {
        raw = raw.declared(declared);
    }
    let cleaned = match clean(raw, &plan) {
        Ok(cleaned) => cleaned,
        // Not our error: the gateway decides what happens with an item that a stage refused.
        Err(refused) => return Ok(JobResult { payload: json!({"refused": refused.code()}), attachments: Vec::new() }),
    };
    let beside =
        match task.beside.as_deref().map(|text| clean(RawContent::new(text.as_bytes()), &ScreeningPlan::default())) {
            Some(Err(refused)) => {
                return Ok(JobResult { payload: json!({"refused": refused.code()}), attachments: Vec::new() });
            }
            Some(Ok(beside)) => Some(beside),
            None => None,
        };
    let all = || [Some(&cleaned), beside.as_ref()].into_iter().flatten();
    let score = all().map(CleanContent::score).fold(0.0, f32::max);
    let mut heaviest: Vec<&Finding> = all().flat_map(CleanContent::findings).collect();
    let found = heaviest.len();
    heaviest.sort_by(|one, other| other.score.total_cmp(&one.score));
    let findings: Vec<Value> = heaviest.iter().take(REPORTED).map(|finding| shown(finding)).collect();
    let payload = json!({
        "score": score, "found": found, "findings": findings, "json": cleaned.value().is_some(),
    });
    let mut attachments = vec![cleaned.text().as_bytes().to_vec()];
    attachments.extend(cleaned.value().map(|value| value.to_string().into_bytes()));
    Ok(JobResult { payload, attachments })
}

/// A finding, with its weight between 0 and 1.
fn shown(finding: &Finding) -> Value {
    json!({
        "stage": finding.stage, "rule": finding.rule, "carrier": finding.carrier,
        "start": finding.span.start, "end": finding.span.end, "score": scale(finding.score),
    })
}

impl ContentProvenance {
    fn envelope(self) -> Result<ProvenanceEnvelope, &'static str> {
        let seal = sluice_core::hex::decode(&self.seal).ok_or("the seal is not valid")?;
        Ok(ProvenanceEnvelope { source: self.source, author: self.author, time: self.time, seal })
    }
}
