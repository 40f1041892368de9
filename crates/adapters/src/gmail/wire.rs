//! The wire format of the API: paths, JSON and errors.
//!
//! Takes a request, gives its JSON or a [`ExchangeError`]. Promise: an id is exactly one segment of a path, whatever it
//! contains, and the service's words about an error are kept apart from ours, short and not yet screened.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use sluice_core::json::{JsonTextKind, classify};

use crate::adapter::{NetAccess, RawItem};
use crate::error::ExchangeError;
use crate::net::{NetRequest, escape};

/// How much of an error's own words is kept, in characters.
const LONGEST_SAID: usize = 1_000;
/// The path of the connected account.
pub const ME: &str = "/gmail/v1/users/me";
/// The name under which the service's receiving servers record their checks of a sender.
const RECEIVER: &str = "mx.google.com";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Sends a request and reads the answer.
pub fn ask(net: NetAccess<'_>, request: NetRequest) -> Result<Value, ExchangeError> {
    let reply = net.exchange(request).map_err(ExchangeError::Net)?;
    if (200..300).contains(&reply.status) {
        return match reply.body.as_slice() {
            [] => Ok(Value::Null),
            // Two readers take two values of a key that is given twice.
            body if classify(body) == JsonTextKind::Repeated => Err(ExchangeError::Garbled),
            body => serde_json::from_slice(body).map_err(|_| ExchangeError::Garbled),
        };
    }
    let retry_after_s = reply.header("retry-after").and_then(|text| text.trim().parse().ok());
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let reason = body.pointer("/error/errors/0/reason").and_then(Value::as_str).unwrap_or_default();
    let known = reason.chars().take(40).filter(char::is_ascii_alphanumeric).collect();
    let said = body.pointer("/error/message").and_then(Value::as_str);
    let said = said.map(|text| text.chars().take(LONGEST_SAID).collect());
    Err(ExchangeError::Status { status: reply.status, reason: known, retry_after_s, said })
}

/// A message by id, in a form the API knows: `minimal`, `metadata`, `raw`.
pub fn message(id: &str, form: &str) -> NetRequest {
    NetRequest::get(format!("{ME}/messages/{}?format={form}", escape(id)))
}

/// A message's head: only these headers.
pub fn head(id: &str, names: &[&str]) -> NetRequest {
    let mut path = format!("{ME}/messages/{}?format=metadata", escape(id));
    for name in names {
        path.push_str("&metadataHeaders=");
        path.push_str(&escape(name));
    }
    NetRequest::get(path)
}

/// A member that is text.
pub fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str)
}

/// A required member.
pub fn need(value: &Value, name: &str) -> Result<String, ExchangeError> {
    text(value, name).filter(|text| !text.is_empty()).map(str::to_owned).ok_or(ExchangeError::Garbled)
}

/// The labels of a message.
pub fn label_ids(message: &Value) -> Vec<String> {
    let list = message.get("labelIds").and_then(Value::as_array);
    let mut labels: Vec<String> = list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// The first header of this name in a message's head.
pub fn header<'v>(message: &'v Value, name: &str) -> Option<&'v str> {
    let headers = message.pointer("/payload/headers").and_then(Value::as_array)?;
    let found = headers.iter().find(|one| text(one, "name").is_some_and(|found| found.eq_ignore_ascii_case(name)))?;
    text(found, "value")
}

/// A number that the API writes as text.
pub fn number(value: &Value, name: &str) -> Option<i64> {
    match value.get(name)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_i64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Encodes bytes as the API does.
pub fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes bytes that the API encoded.
pub fn decode(text: &str) -> Result<Vec<u8>, ExchangeError> {
    BASE64.decode(text).map_err(|_| ExchangeError::Garbled)
}

/// A complete message as an item.
pub fn item(message: &Value) -> Result<RawItem, ExchangeError> {
    let raw = decode(text(message, "raw").ok_or(ExchangeError::Garbled)?)?;
    Ok(RawItem { size: raw.len() as u64, raw, ..bare(message)? })
}

/// A message of which only the head could be fetched.
pub fn cut_item(message: &Value) -> Result<RawItem, ExchangeError> {
    let headers = message.pointer("/payload/headers").and_then(Value::as_array);
    let mut raw = String::new();
    for header in headers.into_iter().flatten() {
        if let (Some(name), Some(value)) = (text(header, "name"), text(header, "value")) {
            let plain = |c: &char| !c.is_control();
            raw.extend(name.chars().filter(plain).chain(": ".chars()).chain(value.chars().filter(plain)));
            raw.push_str("\r\n");
        }
    }
    raw.push_str("\r\n");
    let size = number(message, "sizeEstimate").and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    Ok(RawItem { raw: raw.into_bytes(), cut: true, size, ..bare(message)? })
}

fn bare(message: &Value) -> Result<RawItem, ExchangeError> {
    let id = need(message, "id")?;
    Ok(RawItem {
        thread: text(message, "threadId").unwrap_or(&id).to_owned(),
        id,
        labels: label_ids(message),
        received: number(message, "internalDate").unwrap_or(0),
        raw: Vec::new(),
        cut: false,
        size: 0,
        receiver: Some(RECEIVER),
    })
}
