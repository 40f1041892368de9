//! `proxy.run`: one task of a security proxy.
//!
//! Takes the declared operation, a call's arguments, the history of earlier tasks and a ticket; makes the one request,
//! passes the answer through all six stages, gives data or a summary and proposes what to keep of it. Promise: the raw
//! answer never leaves the worker; after one injection finding, nothing of the answer is given.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_content::stages::SafeSchema;
use sluice_content::{ContentError, ContentVerdict, RawContent, ScreeningPlan, clean};
use sluice_core::proxy::{ProxyOutput, SchemaStrictness, project, summary, tighten};
use sluice_protocol::{
    ExchangeReply, JobFailureCode, ProxyAnswerMeasure, ProxyRunReport, ProxyRunTask, WorkerExchange, WorkerJob,
    WorkerTaskPayload as _,
};

use crate::excerpt;
use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Runs one task.
#[derive(Debug)]
pub(crate) struct ProxyRun;

impl JobKind for ProxyRun {
    fn name(&self) -> &'static str {
        ProxyRunTask::KIND
    }

    fn about(&self) -> &'static str {
        "makes one request to an untrusted service and gives what its schema allows of the answer"
    }

    fn perform(&self, job: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let task: ProxyRunTask = serde_json::from_value(job.payload)
            .map_err(|_| fault(JobFailureCode::WorkerJob, "the payload is not a proxy task"))?;
        let schema = task
            .operation
            .answer
            .as_ref()
            .ok_or_else(|| fault(JobFailureCode::ProxyNoSchema, "the answer has no schema"))?;
        let schema = tighten(schema, task.trust);
        let compiled = SafeSchema::compile(&schema)
            .map_err(|_| fault(JobFailureCode::ProxyNoSchema, "the schema cannot be used"))?;
        let (status, content_type, body) = ask(&task, gate)?;
        let seen = ProxyAnswerMeasure { answer_bytes: body.len(), answer_hash: prefix(&body) };
        match status {
            200..=299 => {}
            401 | 403 => return Err(fault(JobFailureCode::ProxyAuth, "the service refused the credential")),
            429 => return Err(fault(JobFailureCode::ProxyRate, "the service asked to slow down")),
            // An ordinary answer, but not a success.
            400..=499 => {
                return reported(&ProxyRunReport::Refused { said: excerpt::of_body(&body) });
            }
            _ => return Err(fault(JobFailureCode::ProxyStatus, &format!("the service answered with status {status}"))),
        }
        if body.is_empty() {
            // There is no content, so nothing can be wrong with it; the schema decides whether that is an answer.
            return shaped(&task, Value::Null, &schema, seen, &[]);
        }
        let plan = ScreeningPlan { schema: None, shape: Some(schema.clone()), ..ScreeningPlan::default() };
        let kind = content_type.unwrap_or_else(|| "application/json".into());
        let cleaned = clean(RawContent::new(&body).declared(&kind), &plan).map_err(|refused| match refused {
            ContentError::DuplicateKey => {
                fault(JobFailureCode::ProxyAmbiguous, "an object of the answer has the same key twice")
            }
            other => fault(JobFailureCode::ProxyAnswer, other.code()),
        })?;
        let findings: Vec<Value> =
            cleaned.findings().iter().map(|finding| serde_json::to_value(finding).unwrap_or(Value::Null)).collect();
        if cleaned.verdict() != ContentVerdict::Pass {
            // Not our error: the gateway decides what an attack means.
            return reported(&ProxyRunReport::Injection { findings: findings.len() as u64, seen });
        }
        let value =
            cleaned.value().cloned().ok_or_else(|| fault(JobFailureCode::ProxyAnswer, "the answer is not JSON"))?;
        let value = match task.trust.strictness() {
            SchemaStrictness::Exact => value,
            SchemaStrictness::Drop => project(&value, &schema),
        };
        if !compiled.allows(&value) {
            return Err(fault(JobFailureCode::ProxyAnswer, "the answer does not follow its schema"));
        }
        shaped(&task, value, &schema, seen, &findings)
    }
}

fn shaped(
    task: &ProxyRunTask,
    value: Value,
    schema: &Value,
    seen: ProxyAnswerMeasure,
    findings: &[Value],
) -> Result<JobResult, JobError> {
    if value.is_null() && schema.get("type").and_then(Value::as_str) != Some("null") {
        return Err(fault(JobFailureCode::ProxyAnswer, "the answer is empty"));
    }
    // Only a proposal: the gateway checks it like everything else from a worker.
    let proposals = task.identity.as_ref().map(|identity| task.operation.propose(identity, &task.arguments, &value));
    let data = match task.operation.output {
        ProxyOutput::Data => value,
        ProxyOutput::Summary => summary(&value),
    };
    // What an agent must know about how the data was obtained.
    let replaced = findings.iter().any(|finding| finding.get("rule").is_some_and(|rule| rule == "charset.broken"));
    let proposals = serde_json::to_value(proposals).map_err(|_| fault(JobFailureCode::ProxyAnswer, "no proposals"))?;
    reported(&ProxyRunReport::Clean { data, findings: findings.len() as u64, seen, proposals, replaced })
}

fn reported(report: &ProxyRunReport) -> Result<JobResult, JobError> {
    let payload =
        serde_json::to_value(report).map_err(|_| fault(JobFailureCode::ProxyAnswer, "the report cannot be written"))?;
    Ok(JobResult { payload, attachments: Vec::new() })
}

/// Makes the one request. Gives status, type and bytes.
fn ask(task: &ProxyRunTask, gate: &mut GatewayLink<'_>) -> Result<(u16, Option<String>, Vec<u8>), JobError> {
    let request = task.operation.request_with_history(&task.arguments, &task.told);
    let request = request.map_err(|why| fault(JobFailureCode::ProxyArguments, &why.to_string()))?;
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    if request.body.is_some() {
        headers.push(("content-type".into(), "application/json".into()));
    }
    let exchange = WorkerExchange {
        ticket: task.ticket.clone(),
        method: request.method.as_str().to_owned(),
        path: format!("{}{}", task.base_path, request.target),
        headers,
        body: request.body.unwrap_or_default(),
    };
    match gate.exchange(exchange)? {
        ExchangeReply::Answer { status, headers, body } => {
            let kind = headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            Ok((status, kind.map(|(_, value)| value), body))
        }
        ExchangeReply::Refused { text, .. } => Err(fault(JobFailureCode::ProxyRefused, &text)),
    }
}

fn prefix(body: &[u8]) -> String {
    Sha256::digest(body).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn fault(code: JobFailureCode, text: &str) -> JobError {
    JobError { code, text: text.to_owned() }
}
