//! `content.clean`: one item from outside, through all six stages; `content.clean.many`: items of one source, one after
//! the other.
//!
//! Takes the bytes as its one attachment, with their metadata; gives the clean text, its JSON value if it is JSON, and
//! the findings. The second kind asks the gateway for each item and sends the result. Promise: nothing about the sender
//! reaches the injection stage; content that a stage refuses is reported by a code, and none of it is given.

use serde_json::{Value, json};
use sluice_content::finding::scale;
use sluice_content::stages::{OutputContext, ProvenanceEnvelope};
use sluice_content::{CleanContent, Finding, RawContent, ScreeningPlan, clean};
use sluice_protocol::{
    ContentCleanFacts, ContentCleanManyTask, ContentCleanReport, ContentCleanTask, ContentProvenance, ContentRefusal,
    ContentStageNote, JobFailureCode, NextItemReply, WorkerJob, WorkerTaskPayload as _,
};

use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Most findings that are reported; more add nothing.
const REPORTED: usize = 64;

/// Cleans one item.
#[derive(Debug)]
pub(crate) struct ContentClean;

impl JobKind for ContentClean {
    fn name(&self) -> &'static str {
        ContentCleanTask::KIND
    }

    fn about(&self) -> &'static str {
        "reads one item from outside through the six stages"
    }

    fn perform(&self, job: WorkerJob, _: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let [bytes] = job.attachments.as_slice() else { return Err(wrong("this job needs exactly one attachment")) };
        let task = serde_json::from_value(job.payload).map_err(|_| wrong("the payload is not a cleaning job"))?;
        read(task, bytes)
    }
}

/// Cleans items of one source, one after the other.
#[derive(Debug)]
pub(crate) struct ContentCleanMany;

impl JobKind for ContentCleanMany {
    fn name(&self) -> &'static str {
        ContentCleanManyTask::KIND
    }

    fn about(&self) -> &'static str {
        "reads items of one source through the six stages, one after the other"
    }

    fn perform(&self, _: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        loop {
            let NextItemReply::Item { task, bytes } = gate.next_item()? else { return Ok(JobResult::default()) };
            let JobResult { payload, attachments } = read(task, &bytes)?;
            gate.item(payload, attachments)?;
        }
    }
}

fn wrong(text: &str) -> JobError {
    JobError { code: JobFailureCode::WorkerJob, text: text.to_owned() }
}

/// Reads one item, as the job says.
fn read(task: ContentCleanTask, bytes: &[u8]) -> Result<JobResult, JobError> {
    let envelope = task.envelope.map(envelope).transpose().map_err(wrong)?;
    let plan = ScreeningPlan { place: OutputContext::Text, envelope, ..ScreeningPlan::default() };
    let mut raw = RawContent::new(bytes);
    if let Some(declared) = &task.declared {
        raw = raw.declared(declared);
    }
    let cleaned = match clean(raw, &plan) {
        Ok(cleaned) => cleaned,
        // Not our error: the gateway decides what happens with an item that a stage refused.
        Err(refused) => return Ok(refusal(refused.code())),
    };
    let beside =
        match task.beside.as_deref().map(|text| clean(RawContent::new(text.as_bytes()), &ScreeningPlan::default())) {
            Some(Err(refused)) => return Ok(refusal(refused.code())),
            Some(Ok(beside)) => Some(beside),
            None => None,
        };
    let all = || [Some(&cleaned), beside.as_ref()].into_iter().flatten();
    let score = all().map(CleanContent::score).fold(0.0, f32::max);
    let mut heaviest: Vec<&Finding> = all().flat_map(CleanContent::findings).collect();
    let found = heaviest.len() as u64;
    heaviest.sort_by(|one, other| other.score.total_cmp(&one.score));
    let findings = heaviest.iter().take(REPORTED).map(|finding| shown(finding)).collect();
    let facts = ContentCleanFacts { score, found, findings, json: cleaned.value().is_some() };
    let mut attachments = vec![cleaned.text().as_bytes().to_vec()];
    attachments.extend(cleaned.value().map(|value| value.to_string().into_bytes()));
    Ok(JobResult { payload: written(&ContentCleanReport::Clean(facts)), attachments })
}

fn refusal(code: &str) -> JobResult {
    let report = ContentCleanReport::Refused(ContentRefusal { refused: code.to_owned() });
    JobResult { payload: written(&report), attachments: Vec::new() }
}

/// The JSON of a report. The gateway takes `null` for nonsense; a report is never written as that.
fn written(report: &ContentCleanReport) -> Value {
    serde_json::to_value(report).unwrap_or(Value::Null)
}

/// A finding, with its weight between 0 and 1.
fn shown(finding: &Finding) -> ContentStageNote {
    let word = |value: Value| value.as_str().map(str::to_owned).unwrap_or_default();
    ContentStageNote {
        stage: word(json!(finding.stage)),
        rule: word(json!(finding.rule)),
        carrier: word(json!(finding.carrier)),
        start: finding.span.start as u64,
        end: finding.span.end as u64,
        score: scale(finding.score),
    }
}

fn envelope(from: ContentProvenance) -> Result<ProvenanceEnvelope, &'static str> {
    let ContentProvenance { source, author, time, seal } = from;
    let seal = sluice_core::hex::decode(&seal).ok_or("the seal is not valid")?;
    Ok(ProvenanceEnvelope { source, author, time, seal })
}
