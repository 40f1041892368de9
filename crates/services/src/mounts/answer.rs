//! Answers and definitions of servers, as an agent may see them.
//!
//! Takes what a server said; gives it as plain data after the six stages: answers through the intake, and definitions
//! through a worker of their own; images and sounds pass checks of their type and size. Promise: nothing from a server
//! reaches an agent in any other way.

use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};
use sluice_content::media::{self, MediaError};
use sluice_core::refusal::{Code, Refusal};
use sluice_protocol::{DefinitionVerdict, MountDefinitionsReport, MountDefinitionsTask, base64_text};

use crate::intake::{CleanedContent, IncomingItem, Intake, IntakeOutcome, ReaderChoice};
use crate::value::at;
use crate::workers::{GatewayWorkers, RefusingWorkerHost, WorkerAssignment, WorkerEnd, WorkerJob, WorkerJobOutcome};

/// Most images and sounds of one result; further ones are left out.
const MOST_MEDIA: usize = 16;

/// A result of a tool on its way to an agent.
#[derive(Debug, PartialEq)]
pub(super) struct PlainResult {
    /// Everything that can be read: text, links, structured content. Each image or sound is a number in its place.
    pub(super) readable: Value,
    /// The images and sounds that passed their checks, by that number.
    media: Vec<PassedMedia>,
}

/// An image or a sound that is passed on.
#[derive(Debug, PartialEq)]
struct PassedMedia {
    kind: &'static str,
    data: String,
}

/// The result of a tool in parts: what can be read goes through the stages; images and sounds are checked here, by
/// their types and sizes.
pub(super) fn plain(result: &CallToolResult) -> PlainResult {
    let blocks = serde_json::to_value(&result.content).unwrap_or_default();
    let mut media = Vec::new();
    let content: Vec<Value> = blocks.as_array().into_iter().flatten().map(|one| block(one, &mut media)).collect();
    let mut readable = json!({"content": content, "is_error": result.is_error.unwrap_or(false)});
    if let (Value::Object(map), Some(structured)) = (&mut readable, &result.structured_content) {
        map.insert("structured".into(), structured.clone());
    }
    PlainResult { readable, media }
}

impl PlainResult {
    /// The readable part after the stages, with the images and sounds in their places again. Where it was withheld, they
    /// are withheld too.
    pub(super) fn put_back(mut self, mut cleaned: Value) -> Value {
        let blocks = cleaned.get_mut("content").and_then(Value::as_array_mut);
        for block in blocks.into_iter().flatten() {
            let number = block.get("media").and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
            if let Some(found) = number.and_then(|number| self.media.get_mut(number)) {
                let word = if found.kind.starts_with("image/") { "image" } else { "audio" };
                *block = json!({"type": word, "mimeType": found.kind, "data": std::mem::take(&mut found.data)});
            }
        }
        cleaned
    }
}

/// One block in the form in which it is read and passed on: nothing but its known members.
fn block(block: &Value, media: &mut Vec<PassedMedia>) -> Value {
    let text = |pointer: &str| at(block, pointer).as_str().unwrap_or_default();
    match text("/type") {
        "text" => json!({"type": "text", "text": text("/text")}),
        "resource" if at(block, "/resource/text").is_string() => {
            let inner = members(at(block, "/resource"), &["uri", "mimeType", "text"]);
            json!({"type": "resource", "resource": inner})
        }
        "resource_link" => {
            let mut link = members(block, &["uri", "name", "title", "description", "mimeType", "size"]);
            link.insert("type".into(), json!("resource_link"));
            Value::Object(link)
        }
        kind @ ("image" | "audio") => match passed(text("/data"), text("/mimeType"), kind, media.len()) {
            Ok(found) => {
                media.push(found);
                json!({"type": kind, "media": media.len() - 1})
            }
            Err(why) => left_out(kind, &why, text("/data").len()),
        },
        kind => left_out(kind, "media of this type are not passed on", text("/resource/blob").len()),
    }
}

/// An image or a sound, if its bytes are of the type that they claim and unpack to a bounded size.
fn passed(data: &str, claimed: &str, word: &str, before: usize) -> Result<PassedMedia, String> {
    if before >= MOST_MEDIA {
        return Err(format!("a result has at most {MOST_MEDIA} images and sounds"));
    }
    let bytes = base64_text::decode(data).ok_or_else(|| MediaError::Damaged.to_string())?;
    let facts = media::check(&bytes, claimed).map_err(|why| why.to_string())?;
    if !facts.kind.starts_with(word) {
        return Err(MediaError::OtherType.to_string());
    }
    // Written again: no two readers find different bytes in it.
    Ok(PassedMedia { kind: facts.kind, data: base64_text::encode(&bytes) })
}

fn left_out(kind: &str, why: &str, characters: usize) -> Value {
    let kind: String = kind.chars().filter(|c| c.is_ascii_alphabetic() || *c == '_').take(16).collect();
    json!({"type": kind, "left_out": true, "reason": why, "bytes": characters / 4 * 3})
}

/// The members of these names that are texts or numbers.
fn members(value: &Value, names: &[&str]) -> Map<String, Value> {
    let known = names.iter().filter_map(|name| Some(((*name).to_owned(), value.get(*name)?.clone())));
    known.filter(|(_, member)| member.is_string() || member.is_number()).collect()
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

    /// One pixel.
    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";

    #[test]
    fn a_result_keeps_its_blocks_and_only_its_images_and_sounds_go_past_the_reader() {
        let mut result = CallToolResult::success(vec![
            ContentBlock::text("hello"),
            ContentBlock::image(PIXEL, "image/png"),
            ContentBlock::image("aGVsbG8gd29ybGQh", "image/png"),
        ]);
        result.structured_content = Some(json!({"a": 1}));
        let given = plain(&result);
        assert!(!given.readable.to_string().contains(PIXEL));
        assert_eq!(given.readable["content"][1], json!({"type": "image", "media": 0}));
        let cleaned = given.readable.clone();
        let whole = given.put_back(cleaned);
        assert_eq!(whole["content"][0], json!({"type": "text", "text": "hello"}));
        assert_eq!(whole["content"][1], json!({"type": "image", "mimeType": "image/png", "data": PIXEL}));
        assert_eq!((&whole["content"][2]["left_out"], &whole["content"][2]["bytes"]), (&json!(true), &json!(12)));
        assert_eq!((&whole["structured"], &whole["is_error"]), (&json!({"a": 1}), &json!(false)));
        // What is withheld brings no image along.
        let withheld = json!({"withheld": {"finding_id": "find_1"}, "text": "ours"});
        assert_eq!(plain(&result).put_back(withheld.clone()), withheld);
    }

    #[test]
    fn a_link_and_a_resource_stay_what_they_are_without_members_nobody_knows() {
        let link = json!({
            "type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "size": 7, "_meta": {"x": 1},
            "media": 0, "icons": [],
        });
        let resource =
            json!({"type": "resource", "resource": {"uri": "u:1", "mimeType": "text/plain", "text": "t", "x": 1}});
        let pdf = json!({"type": "resource", "resource": {"uri": "u:2", "blob": "JVBERi0="}});
        let mut media = Vec::new();
        assert_eq!(
            block(&link, &mut media),
            json!({"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "size": 7})
        );
        let inner = json!({"uri": "u:1", "mimeType": "text/plain", "text": "t"});
        assert_eq!(block(&resource, &mut media), json!({"type": "resource", "resource": inner}));
        assert_eq!(block(&pdf, &mut media)["left_out"], true);
        let many = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
        let blocks: Vec<Value> = (0..=MOST_MEDIA).map(|_| block(&many, &mut media)).collect();
        assert_eq!((media.len(), &blocks[MOST_MEDIA]["left_out"]), (MOST_MEDIA, &json!(true)));
        let sound = json!({"type": "audio", "data": PIXEL, "mimeType": "image/png"});
        assert_eq!(block(&sound, &mut Vec::new())["left_out"], true, "a picture is no sound");
    }

    #[test]
    fn a_verdict_nobody_knows_is_a_refusal() {
        let verdict = |word: &str| serde_json::from_value(json!({"verdict": word})).unwrap();
        assert_eq!(one(verdict("fine"), json!(1)), ScreenedDocument::Refused("unreadable".into()));
        assert_eq!(one(verdict("pass"), json!(1)), ScreenedDocument::Passed(json!(1)));
    }
}
