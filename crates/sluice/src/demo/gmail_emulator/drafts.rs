//! Drafts: inert until sent, sent once, and gone afterwards.
//!
//! Promise: sending a draft makes a message with a new id and a new `Message-ID` in the same thread, as the
//! real service does; every other header stays.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Value, json};

use super::EmulatorResponse;
use super::mailbox::{EmulatedMailbox, MailboxMessage};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Encodes bytes as the API does, with padding as at the real service.
pub fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes bytes as the API does.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// The headers of a mail, unfolded.
pub fn headers(raw: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(raw);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let mut found: Vec<(String, String)> = Vec::new();
    for line in head.split("\r\n") {
        match (line.strip_prefix([' ', '\t']), found.last_mut()) {
            (Some(more), Some((_, value))) => {
                value.push(' ');
                value.push_str(more.trim());
            }
            _ => found.extend(line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))),
        }
    }
    found
}

fn header(raw: &[u8], name: &str) -> Option<String> {
    headers(raw).into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The mail with another `Message-ID`.
fn renamed(raw: &[u8], id: &str) -> Vec<u8> {
    let mut out = format!("Message-ID: <{id}@mail.demo.invalid>\r\n").into_bytes();
    let mut dropping = false;
    let text = raw.split_inclusive(|byte| *byte == b'\n');
    let mut in_head = true;
    for line in text {
        if in_head {
            let folded = line.starts_with(b" ") || line.starts_with(b"\t");
            let ours = line.get(..11).is_some_and(|start| start.eq_ignore_ascii_case(b"message-id:"));
            dropping = ours || (dropping && folded);
            in_head = line != b"\r\n" && line != b"\n";
        }
        if !(in_head && dropping) {
            out.extend_from_slice(line);
        }
    }
    out
}

fn given(body: &Value) -> Result<(Vec<u8>, Option<String>), EmulatorResponse> {
    let message = body.get("message").cloned().unwrap_or_default();
    let raw = message.get("raw").and_then(Value::as_str).and_then(|raw| BASE64.decode(raw).ok());
    let raw = raw.filter(|raw| !headers(raw).is_empty());
    let raw = raw.ok_or_else(|| EmulatorResponse::error(400, "invalidArgument", "Missing or invalid raw message"))?;
    Ok((raw, message.get("threadId").and_then(Value::as_str).map(str::to_owned)))
}

/// `POST drafts`.
pub fn create(mailbox: &mut EmulatedMailbox, body: &Value, now: i64) -> EmulatorResponse {
    let (raw, thread) = match given(body) {
        Ok(given) => given,
        Err(answer) => return answer,
    };
    if thread.as_deref().is_some_and(|thread| mailbox.thread(thread).is_empty()) {
        return EmulatorResponse::error(404, "notFound", "Requested entity was not found.");
    }
    let message = mailbox.receive(raw, &["DRAFT"], now, thread.as_deref());
    let draft = format!("r{}", mailbox.next_id());
    mailbox.drafts.insert(draft.clone(), message);
    show(mailbox, &draft, "minimal")
}

/// `PUT drafts/{id}`: replaces the message in the draft.
pub fn update(mailbox: &mut EmulatedMailbox, draft: &str, body: &Value, now: i64) -> EmulatorResponse {
    let (raw, _) = match given(body) {
        Ok(given) => given,
        Err(answer) => return answer,
    };
    let Some(old) = mailbox.drafts.get(draft).cloned().and_then(|id| mailbox.remove(&id)) else { return gone() };
    let message = mailbox.receive(raw, &["DRAFT"], now, Some(&old.thread));
    mailbox.drafts.insert(draft.to_owned(), message);
    show(mailbox, draft, "minimal")
}

/// `GET drafts/{id}`.
pub fn show(mailbox: &EmulatedMailbox, draft: &str, form: &str) -> EmulatorResponse {
    match mailbox.drafts.get(draft).and_then(|id| mailbox.get(id)) {
        Some(message) => EmulatorResponse::ok(json!({"id": draft, "message": mailbox.show(message, form, &[])})),
        None => gone(),
    }
}

/// `DELETE drafts/{id}`.
pub fn delete(mailbox: &mut EmulatedMailbox, draft: &str) -> EmulatorResponse {
    match mailbox.drafts.remove(draft).and_then(|id| mailbox.remove(&id)) {
        Some(_) => EmulatorResponse { status: 204, headers: Vec::new(), body: Value::Null },
        None => gone(),
    }
}

/// `POST drafts/send`.
pub fn send(mailbox: &mut EmulatedMailbox, body: &Value, now: i64) -> EmulatorResponse {
    let draft = body.get("id").and_then(Value::as_str).unwrap_or_default();
    let Some(message) = mailbox.drafts.get(draft).and_then(|id| mailbox.get(id)) else { return gone() };
    if ["To", "Cc", "Bcc"].iter().all(|name| header(&message.raw, name).is_none()) {
        return EmulatorResponse::error(400, "invalidArgument", "Recipient address required");
    }
    let id = mailbox.drafts.remove(draft).unwrap_or_default();
    let Some(old) = mailbox.remove(&id) else { return gone() };
    let id = mailbox.next_id();
    let labels = std::iter::once("SENT".to_owned()).collect();
    let raw = renamed(&old.raw, &id);
    mailbox.add(MailboxMessage { id: id.clone(), thread: old.thread.clone(), labels, date: now, raw, history: 0 });
    EmulatorResponse::ok(json!({"id": id, "threadId": old.thread, "labelIds": ["SENT"]}))
}

fn gone() -> EmulatorResponse {
    EmulatorResponse::error(404, "notFound", "Requested entity was not found.")
}
