//! A mail and its parts.
//!
//! Takes the bytes of a message, gives its texts. Promise: depth, parts and headers are counted in one linear pass
//! before the parser reads a byte; attachments stay references.

use std::borrow::Cow;

use mail_parser::{HeaderName, HeaderValue, Message, MessageParser, MimeHeaders as _, PartType};
use sluice_core::mail::head::MailHead;

use super::{BoundedContent, ContentFormat, ContentLimits, ContentPiece};
use crate::finding::ContentError;

/// Reads a mail within its limits.
pub(super) fn parts<'a>(bytes: &[u8], limits: &ContentLimits) -> Result<BoundedContent<'a>, ContentError> {
    survey(bytes, limits)?;
    let message = MessageParser::default().parse(bytes).ok_or(ContentError::Mail)?;
    // SECURITY: one strict reading decides where the head ends. If the library splits it differently, lines of the body
    // could appear as the sender and the subject.
    if usize::try_from(message.root_part().raw_body_offset()) != Ok(MailHead::of(bytes).body) {
        return Err(ContentError::Mail);
    }
    let mut pieces = Vec::new();
    let mut left = limits.mime_parts;
    let mut waiting = vec![&message];
    while let Some(message) = waiting.pop() {
        pieces.push(heading(message));
        for (at, part) in message.parts.iter().enumerate() {
            left = left.checked_sub(1).ok_or(ContentError::Parts)?;
            let shown = message.text_body.iter().any(|id| usize::try_from(*id) == Ok(at));
            match &part.body {
                PartType::Text(text) => pieces.push(piece(text, ContentFormat::Plain, shown)),
                PartType::Html(text) => pieces.push(piece(text, ContentFormat::Html, shown)),
                PartType::Binary(_) | PartType::InlineBinary(_) => {
                    let name: String = part.attachment_name().unwrap_or("without a name").chars().take(200).collect();
                    pieces.push(piece(&format!("[attachment: {name}]"), ContentFormat::Plain, true));
                }
                PartType::Message(inner) => waiting.push(inner),
                PartType::Multipart(_) => {}
            }
        }
    }
    Ok(BoundedContent { pieces, findings: Vec::new() })
}

fn piece<'a>(text: &str, kind: ContentFormat, shown: bool) -> ContentPiece<'a> {
    ContentPiece { bytes: Cow::Owned(text.as_bytes().to_vec()), kind, charset: Some("utf-8".to_owned()), shown }
}

/// Sender and subject: names that people chose are content like any other.
fn heading<'a>(message: &Message<'_>) -> ContentPiece<'a> {
    let mut text = String::new();
    // All of them: each reader decides for itself which of several counts.
    for header in message.parts.first().map(|part| part.headers()).unwrap_or_default() {
        match (&header.name, &header.value) {
            (HeaderName::From, HeaderValue::Address(people)) => {
                for one in people.iter() {
                    let (name, address) = (one.name().unwrap_or_default(), one.address().unwrap_or_default());
                    text.push_str(&format!("From: {name} <{address}>\n"));
                }
            }
            (HeaderName::Subject, HeaderValue::Text(subject)) => text.push_str(&format!("Subject: {subject}\n")),
            _ => {}
        }
    }
    piece(&text, ContentFormat::Plain, true)
}

/// One pass over the lines: header sizes, number of parts, depth.
fn survey(bytes: &[u8], limits: &ContentLimits) -> Result<(), ContentError> {
    let mut open: Vec<Vec<u8>> = Vec::new();
    let mut waiting: Option<Vec<u8>> = None;
    let (mut in_header, mut header_bytes, mut header_lines, mut parts) = (true, 0_usize, 0_usize, 1_usize);
    let (mut in_type, mut nested) = (false, 0_usize);
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(rest) = line.strip_prefix(b"--")
            && let Some(at) = open.iter().rposition(|boundary| rest.starts_with(boundary))
        {
            let closes = open.get(at).is_some_and(|boundary| rest.get(boundary.len()..) == Some(b"--".as_slice()));
            open.truncate(if closes { at } else { at + 1 });
            (in_header, header_bytes, header_lines, in_type) = (!closes, 0, 0, false);
            parts += 1;
        } else if in_header && line.is_empty() {
            in_header = nested > 0;
            nested = nested.saturating_sub(1);
            open.extend(waiting.take());
            (header_bytes, header_lines) = (0, 0);
        } else if in_header {
            header_bytes += line.len();
            header_lines += 1;
            let too_long = line.len() > limits.header_line || header_bytes > limits.header_bytes;
            if too_long || header_lines > limits.header_lines {
                return Err(ContentError::Headers);
            }
            let lower = line.to_ascii_lowercase();
            let folded = line.first().is_some_and(u8::is_ascii_whitespace);
            in_type = if folded { in_type } else { lower.starts_with(b"content-type:") };
            if in_type && let Some(boundary) = boundary(line, &lower) {
                waiting = Some(boundary);
            }
            if in_type && holds(&lower, b"message/rfc822") {
                nested += 1;
                parts += 1;
            }
        }
        if open.len() + nested > limits.mime_depth || parts > limits.mime_parts {
            return Err(ContentError::Parts);
        }
    }
    Ok(())
}

fn holds(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|window| window == word)
}

fn boundary(line: &[u8], lower: &[u8]) -> Option<Vec<u8>> {
    const KEY: &[u8] = b"boundary=";
    let at = lower.windows(KEY.len()).position(|window| window == KEY)?;
    let value = line.get(at + KEY.len()..)?;
    let value = match value.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|&byte| byte == b'"').next()?,
        None => value.split(|byte| b"; \t".contains(byte)).next()?,
    };
    (!value.is_empty() && value.len() <= 200).then(|| value.to_vec())
}
