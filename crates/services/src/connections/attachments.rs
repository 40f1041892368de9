//! Attachments by their hash: shown to agents, and sent with writes.
//!
//! Takes a hash, gives what the replica holds under it. Promise: an attachment that only withheld messages hold does
//! not exist for agents; text reaches an agent through all six stages or not at all; a file that goes out with a write
//! is named in its arguments by name, size and hash before anyone judges them, and its bytes match the hash.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::mail::MailAttachment;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, ServiceName, hex};
use sluice_store::replica::{HeldAttachment, Replica, ReplicaReader as For};

use super::mail::{text, unavailable, wrong};
use super::withheld::kept_back;
use crate::intake::{CleanedContent, ContentRecipient, IncomingItem, Intake, IntakeOutcome};
use crate::value::put;
use crate::{AttachedText, ServiceRead};

/// Most files in one mail.
const MOST: usize = 20;
/// Most bytes of all files in one mail. Encoded twice, they fit into one exchange.
const MOST_BYTES: u64 = 12 << 20;
/// Longest name of a file in the arguments of a write.
const NAME: usize = 120;
/// Largest content that is given to an agent as bytes.
const OPAQUE: usize = 256 << 10;
/// Longest text of an attachment that is given to an agent, in bytes.
const LONGEST: usize = 1 << 20;

/// Answers `email.attachment`.
pub(super) async fn show(
    copy: &Replica,
    intake: &Intake,
    name: &ServiceName,
    ask: &ServiceRead,
) -> Result<Value, Refusal> {
    let arguments = ask.action.arguments();
    let held = find(copy, text(arguments, "sha256"))?;
    let content = content(copy, &held.about)?;
    let HeldAttachment { message, sender, about } = held;
    let mut shown = json!({
        "message_id": message, "name": about.name, "media_type": about.media_type, "size": about.size,
        "sha256": about.sha256, "untrusted": true,
    });
    // The declared type decides nothing: whatever can be read as text is read as text.
    let text = std::str::from_utf8(&content).is_ok_and(|text| !text.contains('\0'));
    if !text {
        return opaque(shown, &content);
    }
    let declared = Some(about.media_type.as_str()).filter(|kind| kind.starts_with("text/") || kind.contains("json"));
    let item = IncomingItem {
        declared: Some(format!("{}; charset=utf-8", declared.unwrap_or("text/plain"))),
        bytes: content,
        service: name.clone(),
        source: format!("an attachment of the message {message}"),
        author: sender,
        at: ask.now,
        beside: about.name,
        reader: Some(ContentRecipient::of(ask)),
        enveloped: false,
    };
    match intake.take_in(&item).await? {
        IntakeOutcome::Clean(CleanedContent { withheld: Some(finding), .. }) => Err(kept_back("attachment", finding)),
        IntakeOutcome::Clean(cleaned) => {
            let text = cleaned.text.as_str();
            let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            put(&mut shown, "text", text.get(..end).unwrap_or_default());
            put(&mut shown, "cut", end < text.len());
            Ok(shown)
        }
        IntakeOutcome::Refused { code } => {
            let text = format!("the attachment cannot be shown as text ({code})");
            Err(Refusal::new(Code::ContentUnread).with_text(&text))
        }
    }
}

/// The stages cannot read bytes that are not text; they are given as they are, up to a small size.
fn opaque(mut shown: Value, content: &[u8]) -> Result<Value, Refusal> {
    if content.len() > OPAQUE {
        let text =
            format!("the attachment is not text and larger than {} KB: it can be sent but not read", OPAQUE >> 10);
        return Err(Refusal::new(Code::ContentUnread).with_text(&text));
    }
    put(&mut shown, "opaque", true);
    put(&mut shown, "base64", STANDARD.encode(content));
    Ok(shown)
}

/// The arguments of a write with each attachment named as it is judged, shown and sent: a name, a type, a size and the
/// hash. A forward without its own list takes the attachments of the message.
pub(super) fn settle(copy: &Replica, capability: &str, mut arguments: Value) -> Result<Value, Refusal> {
    let Value::Object(map) = &mut arguments else { return Ok(arguments) };
    // SECURITY: content that is not in the replica was never scanned; so it is not forwarded.
    let passed_on = match capability {
        "email.forward" => {
            let about = copy.get(text(map, "message_id"), For::Agent).map_err(unavailable)?;
            let none = || {
                Refusal::new(Code::StoreNotFound).with_text("there is no such message in the replica of the mailbox")
            };
            let about = about.ok_or_else(none)?;
            // It is refused by a later check: nothing can be named here.
            if !about.withheld.is_empty() {
                return Ok(arguments);
            }
            Some(about.attachments)
        }
        _ => None,
    };
    let named: Vec<MailAttachment> = match (map.get("attachments"), passed_on) {
        (None | Some(Value::Null), Some(attached)) => attached,
        (Some(Value::Array(list)), _) => {
            let one = |item: &Value| find(copy, item.as_str().unwrap_or_default()).map(|held| held.about);
            list.iter().map(one).collect::<Result<_, _>>()?
        }
        // The schema refuses what is not a list.
        (None | Some(_), _) => return Ok(arguments),
    };
    if named.len() > MOST {
        return Err(wrong(&format!("one mail can have at most {MOST} files")));
    }
    if named.iter().map(|file| file.size).sum::<u64>() > MOST_BYTES {
        return Err(wrong(&format!("the files of one mail can have at most {} MB", MOST_BYTES >> 20)));
    }
    let named: Vec<Value> = named.iter().map(|file| Value::String(line(file))).collect();
    map.insert("attachments".into(), Value::Array(named));
    Ok(arguments)
}

/// Everything that leaves with a write besides its arguments, for the leak scan: the texts of attachments, and what a
/// forward passes on.
pub(super) fn along(copy: &Replica, action: &Action) -> Result<Vec<AttachedText>, Refusal> {
    let arguments = action.arguments();
    let mut all = Vec::new();
    for (n, (_, bytes)) in files(copy, arguments)?.into_iter().enumerate() {
        if let Ok(text) = String::from_utf8(bytes) {
            all.push(AttachedText { field: format!("attachments[{n}]"), text });
        }
    }
    if action.capability().as_str() == "email.forward"
        && let Some(mail) = copy.get(text(arguments, "message_id"), For::Agent).map_err(unavailable)?
    {
        all.push(AttachedText { field: "message.subject".into(), text: mail.subject });
        all.push(AttachedText { field: "message.body".into(), text: mail.text });
    }
    Ok(all)
}

/// The files a write names, with their contents.
pub(super) fn files(copy: &Replica, arguments: &Map<String, Value>) -> Result<Vec<(MailAttachment, Vec<u8>)>, Refusal> {
    let named = arguments.get("attachments").and_then(Value::as_array);
    let mut files = Vec::new();
    for item in named.into_iter().flatten() {
        let about = find(copy, item.as_str().unwrap_or_default())?.about;
        let bytes = content(copy, &about)?;
        files.push((about, bytes));
    }
    Ok(files)
}

/// One file as arguments name it. The hash comes last.
fn line(file: &MailAttachment) -> String {
    // SECURITY: the name is untrusted text. It must not look like the end of one file and the start of another.
    let name = file.name.as_deref().unwrap_or("attachment").replace("sha256:", "sha256 ");
    let name: String = name.chars().take(NAME).collect();
    format!("{name} ({}, {} bytes) sha256:{}", file.media_type, file.size, file.sha256)
}

/// Finds an attachment by its hash, alone or at the end of a line that [`line`] wrote.
fn find(copy: &Replica, named: &str) -> Result<HeldAttachment, Refusal> {
    let hash = named.trim().rsplit("sha256:").next().unwrap_or_default().to_ascii_lowercase();
    let none =
        || Refusal::new(Code::StoreNotFound).with_text("there is no such attachment in the replica of the mailbox");
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong("an attachment is named by its SHA-256: `sha256:` and 64 hex digits"));
    }
    copy.attachment(&hash, For::Agent).map_err(unavailable)?.ok_or_else(none)
}

fn content(copy: &Replica, about: &MailAttachment) -> Result<Vec<u8>, Refusal> {
    let kept = copy.content(&about.sha256).map_err(unavailable)?;
    // SECURITY: a person approved the hash; a damaged replica must not send other content under it.
    let kept = kept.filter(|bytes| hex::encode(&Sha256::digest(bytes)) == about.sha256);
    let text = "the content of the attachment is not in the replica of the mailbox";
    kept.ok_or_else(|| Refusal::new(Code::StoreNotFound).with_text(text))
}
