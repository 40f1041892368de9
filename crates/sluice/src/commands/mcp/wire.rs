//! Wire format: the headers of a message, and events from a stream.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// The field in which a message of the newest revision states its revision.
const REVISION: &str = "io.modelcontextprotocol/protocolVersion";

/// Headers that repeat fields of the body, as the revision requires.
pub(super) fn headers(message: &Value, agreed: Option<&str>, session: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("accept", "application/json, text/event-stream");
    put("content-type", "application/json");
    let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
    let params = message.get("params");
    let stated = params.and_then(|params| params.get("_meta")?.get(REVISION)?.as_str());
    match stated {
        Some(revision) => {
            put("mcp-protocol-version", revision);
            put("mcp-method", method);
            let named = ["name", "uri", "taskId"].iter().find_map(|name| params?.get(*name)?.as_str());
            if let Some(named) = named {
                put("mcp-name", named);
            }
        }
        None if method == "initialize" => {}
        None => {
            if let Some(agreed) = agreed {
                put("mcp-protocol-version", agreed);
            }
            if let Some(session) = session {
                put("mcp-session-id", session);
            }
        }
    }
    headers
}

/// Bytes of a stream that become messages.
#[derive(Debug, Default)]
pub(super) struct McpStreamParser {
    waiting: Vec<u8>,
    data: String,
    last_id: Option<String>,
}

impl McpStreamParser {
    /// Adds bytes; returns every message that is complete now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.waiting.extend_from_slice(bytes);
        let mut whole = Vec::new();
        while let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.waiting.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                if !self.data.is_empty() {
                    whole.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            } else if let Some(id) = line.strip_prefix("id:") {
                self.last_id = Some(id.trim().to_owned());
            }
        }
        whole
    }

    /// The id of the last event, to be named when the stream is opened again.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How many bytes of an incomplete message are kept.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn headers_say_what_the_body_says() {
        let newest =
            json!({"method": "tools/call", "params": {"name": "email_send", "_meta": {REVISION: "2026-07-28"}}});
        let headers_of = |message: &Value| headers(message, Some("2025-11-25"), Some("sess_1"));
        let found = headers_of(&newest);
        assert_eq!(
            (&found["mcp-protocol-version"], &found["mcp-name"]),
            (&"2026-07-28".parse().unwrap(), &"email_send".parse().unwrap())
        );
        assert!(found.get("mcp-session-id").is_none());
        let older = headers_of(&json!({"method": "tools/list"}));
        assert_eq!(older["mcp-session-id"], "sess_1");
        assert!(older.get("mcp-method").is_none());
        assert!(headers_of(&json!({"method": "initialize"})).get("mcp-session-id").is_none());
    }

    #[test]
    fn messages_come_out_whole_whatever_the_pieces() {
        let stream = b": alive\nid: 7\n\nevent: message\ndata: {\"a\":1}\n\ndata: {\"b\":\r\ndata: 2}\n\n";
        for size in 1..stream.len() {
            let mut events = McpStreamParser::default();
            let whole: Vec<String> = stream.chunks(size).flat_map(|piece| events.push(piece)).collect();
            assert_eq!(whole, ["{\"a\":1}", "{\"b\":2}"], "{size}");
            assert_eq!(events.last_id(), Some("7"), "{size}");
        }
    }
}
