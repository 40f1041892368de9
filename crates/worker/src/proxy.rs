//! `proxy.run`: one task of a security proxy.
//!
//! Takes the declared operation, a call's arguments, what was kept of earlier tasks and a ticket; makes the one request,
//! reads the answer through all six stages, gives data or a summary and proposes what to keep of it. Promise:
//! the answer as it came never leaves the worker; one finding of an injection, and nothing of the answer is given at all.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use sluice_content::stages::Schema;
use sluice_content::{Plan, Raw, Refused, Verdict, clean};
use sluice_core::proxy::{Identity, Operation, Output, Strictness, Told, Trust, project, summary, tighten};
use sluice_sandbox::protocol::{Exchange, Job, Reply};

use crate::excerpt;
use crate::net::Gate;
use crate::registry::{Done, Fault, Kind};

/// Runs one task.
#[derive(Debug)]
pub(crate) struct ProxyRun;

/// What it is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    operation: Operation,
    trust: Trust,
    /// A path that every request starts with.
    base_path: String,
    arguments: Map<String, Value>,
    ticket: String,
    /// What a lasting account declares, if there is one.
    #[serde(default)]
    identity: Option<Identity>,
    /// What went before: the other side, the last exchanges with it, drafts in progress.
    #[serde(default)]
    told: Told,
}

impl Kind for ProxyRun {
    fn name(&self) -> &'static str {
        "proxy.run"
    }

    fn about(&self) -> &'static str {
        "makes one request to an untrusted service and gives what its schema allows of the answer"
    }

    fn perform(&self, job: Job, gate: &mut Gate<'_>) -> Result<Done, Fault> {
        let task: Task =
            serde_json::from_value(job.payload).map_err(|_| fault("worker.job", "not a task of a proxy"))?;
        let schema =
            task.operation.answer.as_ref().ok_or_else(|| fault("proxy.no_schema", "the answer has no schema"))?;
        let schema = tighten(schema, task.trust);
        let compiled = Schema::compile(&schema).map_err(|_| fault("proxy.no_schema", "the schema cannot be used"))?;
        let (status, content_type, body) = ask(&task, gate)?;
        let seen = json!({"answer_bytes": body.len(), "answer_hash": prefix(&body)});
        match status {
            200..=299 => {}
            401 | 403 => return Err(fault("proxy.auth", "the service refused the credential")),
            429 => return Err(fault("proxy.rate", "the service asked to slow down")),
            // An answer like any other, only not the one that was hoped for.
            400..=499 => {
                let payload = json!({"verdict": "refused", "said": excerpt::of_body(&body)});
                return Ok(Done { payload, attachments: Vec::new() });
            }
            _ => return Err(fault("proxy.status", &format!("the service answered with status {status}"))),
        }
        if body.is_empty() {
            // Nothing was said, so nothing can be wrong with it; the schema decides whether that is an answer.
            return shaped(&task, Value::Null, &schema, seen, &[]);
        }
        let plan = Plan { schema: None, shape: Some(schema.clone()), ..Plan::default() };
        let kind = content_type.unwrap_or_else(|| "application/json".into());
        let cleaned = clean(Raw::new(&body).declared(&kind), &plan).map_err(|refused| match refused {
            Refused::DuplicateKey => fault("proxy.ambiguous", "an object of the answer has the same key twice"),
            other => fault("proxy.answer", other.code()),
        })?;
        let findings: Vec<Value> =
            cleaned.findings().iter().map(|finding| serde_json::to_value(finding).unwrap_or(Value::Null)).collect();
        if cleaned.verdict() != Verdict::Pass {
            // Not an error of ours: the gateway decides what an attack means.
            let payload = json!({"verdict": "injection", "findings": findings.len(), "seen": seen});
            return Ok(Done { payload, attachments: Vec::new() });
        }
        let value = cleaned.value().cloned().ok_or_else(|| fault("proxy.answer", "the answer is not JSON"))?;
        let value = match task.trust.strictness() {
            Strictness::Exact => value,
            Strictness::Drop => project(&value, &schema),
        };
        if !compiled.allows(&value) {
            return Err(fault("proxy.answer", "the answer does not follow its schema"));
        }
        shaped(&task, value, &schema, seen, &findings)
    }
}

fn shaped(task: &Task, value: Value, schema: &Value, seen: Value, findings: &[Value]) -> Result<Done, Fault> {
    if value.is_null() && schema.get("type").and_then(Value::as_str) != Some("null") {
        return Err(fault("proxy.answer", "the answer is empty"));
    }
    // Only a proposal: the gateway looks at it as at anything else a worker says.
    let proposals = task.identity.as_ref().map(|identity| task.operation.propose(identity, &task.arguments, &value));
    let data = match task.operation.output {
        Output::Data => value,
        Output::Summary => summary(&value),
    };
    // What an agent has to know about how the data came to be.
    let replaced = findings.iter().any(|finding| finding.get("rule").is_some_and(|rule| rule == "charset.broken"));
    let payload = json!({
        "verdict": "clean", "data": data, "findings": findings.len(), "seen": seen, "proposals": proposals,
        "replaced": replaced,
    });
    Ok(Done { payload, attachments: Vec::new() })
}

/// Makes the one request. Gives status, type and bytes.
fn ask(task: &Task, gate: &mut Gate<'_>) -> Result<(u16, Option<String>, Vec<u8>), Fault> {
    let request = task.operation.request_told(&task.arguments, &task.told);
    let request = request.map_err(|why| fault("proxy.arguments", &why.to_string()))?;
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    if request.body.is_some() {
        headers.push(("content-type".into(), "application/json".into()));
    }
    let exchange = Exchange {
        ticket: task.ticket.clone(),
        method: request.method.as_str().to_owned(),
        path: format!("{}{}", task.base_path, request.target),
        headers,
        body: request.body.unwrap_or_default(),
    };
    match gate.exchange(exchange)? {
        Reply::Answer { status, headers, body } => {
            let kind = headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            Ok((status, kind.map(|(_, value)| value), body))
        }
        Reply::Refused { text, .. } => Err(fault("proxy.refused", &text)),
    }
}

fn prefix(body: &[u8]) -> String {
    Sha256::digest(body).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn fault(code: &'static str, text: &str) -> Fault {
    Fault { code, text: text.to_owned() }
}
