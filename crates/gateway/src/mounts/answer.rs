//! Answers and definitions of servers, as an agent may see them.
//!
//! Takes what a server said; gives it as plain data after the six stages, answers through the intake and definitions by
//! a worker of their own. Promise: nothing of a server reaches an agent on another way.

use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};

use crate::intake::{Cleaned, Incoming, Intake, ReadBy, Taken};
use crate::value::at;
use crate::workers::{Alone, End, Job, Order, Outcome, Workers};

/// What a tool gave, without what only a client would show: pictures and sounds are named and left out.
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

/// Data that came in through the intake; words of ours where it is withheld.
///
/// # Errors
/// When nobody could read it, or what became of it could not be recorded.
pub(super) async fn taken_in(intake: &Intake, item: &Incoming, by: ReadBy) -> Result<Value, Refusal> {
    match intake.take_in_by(item, by).await? {
        Taken::Clean(Cleaned { withheld: Some(finding), text, .. }) => {
            Ok(json!({"withheld": {"finding_id": finding}, "text": text}))
        }
        Taken::Clean(Cleaned { value: Some(value), .. }) => Ok(value),
        Taken::Clean(_) => Err(Refusal::new(Code::MountFailed).with_text("the server's answer cannot be read")),
        Taken::Refused { code } => {
            let text = format!("the server's answer cannot be read ({code})");
            Err(Refusal::new(Code::MountFailed).with_text(&text))
        }
    }
}

/// What the stages said to one document.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Look {
    /// What they left of it.
    Passed(Value),
    /// It looks like an attack; the rules that say so.
    Withheld(Vec<String>),
    /// It cannot be read.
    Refused(String),
}

/// Each of several documents, by itself.
///
/// # Errors
/// When they could not be looked at.
pub(super) async fn each(workers: &Workers, documents: Vec<Value>) -> Result<Vec<Look>, Refusal> {
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let count = documents.len();
    let looked = look(workers, Value::Array(documents).to_string().into_bytes()).await?;
    if looked.len() == count { Ok(looked) } else { Err(Refusal::new(Code::WorkerCrashed)) }
}

async fn look(workers: &Workers, bytes: Vec<u8>) -> Result<Vec<Look>, Refusal> {
    let crashed = |text: &str| Refusal::new(Code::WorkerCrashed).with_text(text);
    let job = Job { kind: "mount.definitions".into(), payload: Value::Null, attachments: vec![bytes] };
    let order = Order { job, scratch: None, limits: None, mode: None };
    let (end, _) = workers.run(order, Alone).await.map_err(|error| {
        let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
        Refusal::new(code).with_text(&error.to_string())
    })?;
    let End::Clean(done) = end else { return Err(crashed("the content could not be looked at")) };
    let Outcome::Done(payload) = done.report.outcome else { return Err(crashed("the content could not be looked at")) };
    let kept = done.report.attachments.first().and_then(|bytes| serde_json::from_slice::<Vec<Value>>(bytes).ok());
    let verdicts = at(&payload, "/verdicts").as_array();
    let (Some(kept), Some(verdicts)) = (kept, verdicts) else { return Err(crashed("the worker reported nonsense")) };
    if kept.len() != verdicts.len() {
        return Err(crashed("the worker reported nonsense"));
    }
    Ok(verdicts.iter().zip(kept).map(|(verdict, value)| one(verdict, value)).collect())
}

fn one(verdict: &Value, value: Value) -> Look {
    let rules = || -> Vec<String> {
        let list = at(verdict, "/rules").as_array().into_iter().flatten();
        list.filter_map(|rule| rule.as_str().map(str::to_owned)).take(8).collect()
    };
    match at(verdict, "/verdict").as_str() {
        Some("pass") => Look::Passed(value),
        Some("withheld") => Look::Withheld(rules()),
        _ => Look::Refused(rules().pop().unwrap_or_else(|| "unreadable".into())),
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
        assert_eq!(one(&json!({"verdict": "fine"}), json!(1)), Look::Refused("unreadable".into()));
        assert_eq!(one(&json!({"verdict": "pass"}), json!(1)), Look::Passed(json!(1)));
    }
}
