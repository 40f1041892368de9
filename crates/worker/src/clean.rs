//! `content.clean`: bytes from outside through the six stages, and what is left of them.
//!
//! Takes one JSON document, or a list of documents that are looked at one by one; gives each as the stages leave it,
//! with a verdict and the rules that found something. Promise: what was flagged is not given back at all.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_content::{Plan, Raw, Verdict, clean};
use sluice_sandbox::protocol::Job;

use crate::net::Gate;
use crate::registry::{Done, Fault, Kind};

/// Most findings that are named per document.
const NAMED: usize = 8;

/// Cleans.
#[derive(Debug)]
pub(crate) struct ContentClean;

/// What it is told; the content itself is attached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    /// Whether the document is a list whose entries stand for themselves.
    each: bool,
}

impl Kind for ContentClean {
    fn name(&self) -> &'static str {
        "content.clean"
    }

    fn about(&self) -> &'static str {
        "passes JSON from outside through the six stages and gives what is left of it"
    }

    fn perform(&self, job: Job, _: &mut Gate<'_>) -> Result<Done, Fault> {
        let bad = |text: &str| Fault { code: "worker.job", text: text.to_owned() };
        let task: Task = serde_json::from_value(job.payload).map_err(|_| bad("not a task of cleaning"))?;
        let bytes = job.attachments.first().ok_or_else(|| bad("there is nothing to clean"))?;
        let (verdicts, kept): (Vec<Value>, Vec<Value>) = if task.each {
            let list: Vec<Value> = serde_json::from_slice(bytes).map_err(|_| bad("not a list"))?;
            list.iter().map(|one| look(one.to_string().as_bytes())).unzip()
        } else {
            let (verdict, kept) = look(bytes);
            (vec![verdict], vec![kept])
        };
        let kept = Value::Array(kept).to_string().into_bytes();
        Ok(Done { payload: json!({"verdicts": verdicts}), attachments: vec![kept] })
    }
}

/// What the stages say to one document, and what they leave of it.
fn look(bytes: &[u8]) -> (Value, Value) {
    match clean(Raw::new(bytes).declared("application/json"), &Plan::default()) {
        Err(refused) => (json!({"verdict": "refused", "rules": [refused.code()]}), Value::Null),
        Ok(cleaned) => {
            let rules: Vec<String> =
                cleaned.findings().iter().take(NAMED).map(|finding| finding.rule.to_string()).collect();
            match (cleaned.verdict(), cleaned.value()) {
                (Verdict::Pass, Some(value)) => (json!({"verdict": "pass", "rules": rules}), value.clone()),
                (Verdict::Pass, None) => (json!({"verdict": "refused", "rules": ["not_json"]}), Value::Null),
                (Verdict::Flag | Verdict::Block, _) => (json!({"verdict": "withheld", "rules": rules}), Value::Null),
            }
        }
    }
}
