//! `proxy.run`: one task of a security proxy.
//!
//! Takes the declared operation, a call's arguments, the history of earlier tasks and a ticket; makes the one request,
//! passes the answer through all six stages, gives data or a summary and proposes what to keep of it. Promise: the raw
//! answer never leaves the worker; after one injection finding, nothing of the answer is given.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use sluice_content::stages::SafeSchema;
use sluice_content::{ContentError, ContentVerdict, RawContent, ScreeningPlan, clean};
use sluice_core::proxy::{
    ProxyIdentity, ProxyOperation, ProxyOutput, ProxyTaskHistory, ProxyTrust, SchemaStrictness, project, summary,
    tighten,
};
use sluice_sandbox::protocol::{ExchangeReply, WorkerExchange, WorkerJob};

use crate::excerpt;
use crate::net::GatewayLink;
use crate::registry::{JobError, JobKind, JobResult};

/// Runs one task.
#[derive(Debug)]
pub(crate) struct ProxyRun;

/// The parameters of the task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyRunTask {
    operation: ProxyOperation,
    trust: ProxyTrust,
    /// The path that every request path starts with.
    base_path: String,
    arguments: Map<String, Value>,
    ticket: String,
    /// The declaration of a lasting account, if there is one.
    #[serde(default)]
    identity: Option<ProxyIdentity>,
    /// The history: the other side, the last exchanges with it, drafts in progress.
    #[serde(default)]
    told: ProxyTaskHistory,
}

impl JobKind for ProxyRun {
    fn name(&self) -> &'static str {
        "proxy.run"
    }

    fn about(&self) -> &'static str {
        "makes one request to an untrusted service and gives what its schema allows of the answer"
    }

    fn perform(&self, job: WorkerJob, gate: &mut GatewayLink<'_>) -> Result<JobResult, JobError> {
        let task: ProxyRunTask =
            serde_json::from_value(job.payload).map_err(|_| fault("worker.job", "the payload is not a proxy task"))?;
        let schema =
            task.operation.answer.as_ref().ok_or_else(|| fault("proxy.no_schema", "the answer has no schema"))?;
        let schema = tighten(schema, task.trust);
        let compiled =
            SafeSchema::compile(&schema).map_err(|_| fault("proxy.no_schema", "the schema cannot be used"))?;
        let (status, content_type, body) = ask(&task, gate)?;
        let seen = json!({"answer_bytes": body.len(), "answer_hash": prefix(&body)});
        match status {
            200..=299 => {}
            401 | 403 => return Err(fault("proxy.auth", "the service refused the credential")),
            429 => return Err(fault("proxy.rate", "the service asked to slow down")),
            // An ordinary answer, but not a success.
            400..=499 => {
                let payload = json!({"verdict": "refused", "said": excerpt::of_body(&body)});
                return Ok(JobResult { payload, attachments: Vec::new() });
            }
            _ => return Err(fault("proxy.status", &format!("the service answered with status {status}"))),
        }
        if body.is_empty() {
            // There is no content, so nothing can be wrong with it; the schema decides whether that is an answer.
            return shaped(&task, Value::Null, &schema, seen, &[]);
        }
        let plan = ScreeningPlan { schema: None, shape: Some(schema.clone()), ..ScreeningPlan::default() };
        let kind = content_type.unwrap_or_else(|| "application/json".into());
        let cleaned = clean(RawContent::new(&body).declared(&kind), &plan).map_err(|refused| match refused {
            ContentError::DuplicateKey => fault("proxy.ambiguous", "an object of the answer has the same key twice"),
            other => fault("proxy.answer", other.code()),
        })?;
        let findings: Vec<Value> =
            cleaned.findings().iter().map(|finding| serde_json::to_value(finding).unwrap_or(Value::Null)).collect();
        if cleaned.verdict() != ContentVerdict::Pass {
            // Not our error: the gateway decides what an attack means.
            let payload = json!({"verdict": "injection", "findings": findings.len(), "seen": seen});
            return Ok(JobResult { payload, attachments: Vec::new() });
        }
        let value = cleaned.value().cloned().ok_or_else(|| fault("proxy.answer", "the answer is not JSON"))?;
        let value = match task.trust.strictness() {
            SchemaStrictness::Exact => value,
            SchemaStrictness::Drop => project(&value, &schema),
        };
        if !compiled.allows(&value) {
            return Err(fault("proxy.answer", "the answer does not follow its schema"));
        }
        shaped(&task, value, &schema, seen, &findings)
    }
}

fn shaped(
    task: &ProxyRunTask,
    value: Value,
    schema: &Value,
    seen: Value,
    findings: &[Value],
) -> Result<JobResult, JobError> {
    if value.is_null() && schema.get("type").and_then(Value::as_str) != Some("null") {
        return Err(fault("proxy.answer", "the answer is empty"));
    }
    // Only a proposal: the gateway checks it like everything else from a worker.
    let proposals = task.identity.as_ref().map(|identity| task.operation.propose(identity, &task.arguments, &value));
    let data = match task.operation.output {
        ProxyOutput::Data => value,
        ProxyOutput::Summary => summary(&value),
    };
    // What an agent must know about how the data was obtained.
    let replaced = findings.iter().any(|finding| finding.get("rule").is_some_and(|rule| rule == "charset.broken"));
    let payload = json!({
        "verdict": "clean", "data": data, "findings": findings.len(), "seen": seen, "proposals": proposals,
        "replaced": replaced,
    });
    Ok(JobResult { payload, attachments: Vec::new() })
}

/// Makes the one request. Gives status, type and bytes.
fn ask(task: &ProxyRunTask, gate: &mut GatewayLink<'_>) -> Result<(u16, Option<String>, Vec<u8>), JobError> {
    let request = task.operation.request_with_history(&task.arguments, &task.told);
    let request = request.map_err(|why| fault("proxy.arguments", &why.to_string()))?;
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
        ExchangeReply::Refused { text, .. } => Err(fault("proxy.refused", &text)),
    }
}

fn prefix(body: &[u8]) -> String {
    Sha256::digest(body).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn fault(code: &'static str, text: &str) -> JobError {
    JobError { code, text: text.to_owned() }
}
