//! Answers and definitions of servers, as an agent may see them.
//!
//! Takes what a server said; gives it as plain data after the six stages: answers through the intake, and definitions
//! through a worker of their own. Promise: nothing from a server reaches an agent in any other way.

use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_protocol::{DefinitionVerdict, MountDefinitionsReport, MountDefinitionsTask};

use crate::intake::{CleanedContent, IncomingItem, Intake, IntakeOutcome, ReaderChoice};
use crate::value::at;
use crate::workers::{GatewayWorkers, RefusingWorkerHost, WorkerAssignment, WorkerEnd, WorkerJob, WorkerJobOutcome};

/// The result of a tool, without the parts that only a client would show: images and audio are named and left out.
pub(super) fn plain(result: &CallToolResult) -> Value {
    let blocks = serde_json::to_value(&result.content).unwrap_or_default();
    let content: Vec<Value> = blocks.as_array().into_iter().flatten().map(block).collect();
    let mut given = json!({"content": content, "is_error": result.is_error.unwrap_or(false)});
    if let (Value::Object(map), Some(structured)) = (&mut given, &result.structured_content) {
        map.insert("structured".into(), structured.clone());
    }
    given
}

fn block(block: &Value) -> Value {
    let text = |pointer: &str| at(block, pointer).as_str().unwrap_or_default();
    match text("/type") {
        "text" => json!({"type": "text", "text": text("/text")}),
        "resource" if at(block, "/resource/text").is_string() => {
            json!({"type": "resource", "uri": text("/resource/uri"), "text": text("/resource/text")})
        }
        "resource_link" => json!({"type": "link", "uri": text("/uri"), "name": text("/name")}),
        kind => {
            let size = text("/data").len().max(text("/resource/blob").len()) / 4 * 3;
            let kind: String = kind.chars().filter(char::is_ascii_alphabetic).take(16).collect();
            json!({"type": kind, "left_out": true, "bytes": size})
        }
    }
}

/// Data that came in through the intake, or our words where it is withheld.
///
/// # Errors
/// When it could not be read, or the result could not be recorded.
pub(super) async fn taken_in(intake: &Intake, item: &IncomingItem, by: ReaderChoice) -> Result<Value, Refusal> {
    match intake.take_in_by(item, by).await? {
        IntakeOutcome::Clean(CleanedContent { withheld: Some(finding), text, .. }) => {
            Ok(json!({"withheld": {"finding_id": finding}, "text": text}))
        }
        IntakeOutcome::Clean(CleanedContent { value: Some(value), .. }) => Ok(value),
        IntakeOutcome::Clean(_) => Err(Refusal::new(Code::MountFailed).with_text("the server's answer cannot be read")),
        IntakeOutcome::Refused { code } => {
            let text = format!("the server's answer cannot be read ({code})");
            Err(Refusal::new(Code::MountFailed).with_text(&text))
        }
    }
}

/// What the stages decided about one document.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ScreenedDocument {
    /// The document after the stages.
    Passed(Value),
    /// It looks like an attack; the rules that matched.
    Withheld(Vec<String>),
    /// It cannot be read.
    Refused(String),
}

/// Passes each of several documents through the stages separately.
///
/// # Errors
/// When they could not be screened.
pub(super) async fn each(workers: &GatewayWorkers, documents: Vec<Value>) -> Result<Vec<ScreenedDocument>, Refusal> {
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let count = documents.len();
    let looked = look(workers, Value::Array(documents).to_string().into_bytes()).await?;
    if looked.len() == count { Ok(looked) } else { Err(Refusal::new(Code::WorkerCrashed)) }
}

async fn look(workers: &GatewayWorkers, bytes: Vec<u8>) -> Result<Vec<ScreenedDocument>, Refusal> {
    let crashed = |text: &str| Refusal::new(Code::WorkerCrashed).with_text(text);
    let job = WorkerJob::of(&MountDefinitionsTask, vec![bytes]);
    let order = WorkerAssignment { job, scratch: None, limits: None, mode: None };
    let (end, _) = workers.run(order, RefusingWorkerHost).await.map_err(|error| {
        let code = error.refusal_code();
        Refusal::new(code).with_text(&error.to_string())
    })?;
    let WorkerEnd::Clean(done) = end else { return Err(crashed("the content could not be screened")) };
    let WorkerJobOutcome::Done(payload) = done.report.outcome else {
        return Err(crashed("the content could not be looked at"));
    };
    let kept = done.report.attachments.first().and_then(|bytes| serde_json::from_slice::<Vec<Value>>(bytes).ok());
    let report = serde_json::from_value::<MountDefinitionsReport>(payload).ok();
    let (Some(kept), Some(MountDefinitionsReport { verdicts })) = (kept, report) else {
        return Err(crashed("the worker reported nonsense"));
    };
    if kept.len() != verdicts.len() {
        return Err(crashed("the worker reported nonsense"));
    }
    Ok(verdicts.into_iter().zip(kept).map(|(verdict, value)| one(verdict, value)).collect())
}

fn one(verdict: DefinitionVerdict, value: Value) -> ScreenedDocument {
    match verdict {
        DefinitionVerdict::Pass { .. } => ScreenedDocument::Passed(value),
        DefinitionVerdict::Withheld { mut rules } => {
            rules.truncate(8);
            ScreenedDocument::Withheld(rules)
        }
        DefinitionVerdict::Refused { mut rules } => {
            rules.truncate(8);
            ScreenedDocument::Refused(rules.pop().unwrap_or_else(|| "unreadable".into()))
        }
        DefinitionVerdict::Unknown => ScreenedDocument::Refused("unreadable".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ContentBlock;

    #[test]
    fn pictures_are_left_out_and_texts_are_given() {
        let mut result = CallToolResult::success(vec![
            ContentBlock::text("hello"),
            ContentBlock::image("aGVsbG8gd29ybGQh", "image/png"),
        ]);
        result.structured_content = Some(json!({"a": 1}));
        let given = plain(&result);
        assert_eq!(given["content"][0], json!({"type": "text", "text": "hello"}));
        assert_eq!(given["content"][1], json!({"type": "image", "left_out": true, "bytes": 12}));
        assert_eq!((&given["structured"], &given["is_error"]), (&json!({"a": 1}), &json!(false)));
    }

    #[test]
    fn a_verdict_nobody_knows_is_a_refusal() {
        let verdict = |word: &str| serde_json::from_value(json!({"verdict": word})).unwrap();
        assert_eq!(one(verdict("fine"), json!(1)), ScreenedDocument::Refused("unreadable".into()));
        assert_eq!(one(verdict("pass"), json!(1)), ScreenedDocument::Passed(json!(1)));
    }
}
