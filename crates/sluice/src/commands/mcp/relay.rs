//! The relay: sends one message to the gateway and returns its answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::wire::{McpStreamParser, headers};
use crate::client::RawGatewayClient;
use crate::client_process;

/// Pauses between attempts to reach a gateway that does not respond, in milliseconds.
const PAUSES: [u64; 7] = [100, 300, 1_000, 2_000, 4_000, 8_000, 15_000];
/// The header that names the client's session of a call.
const JOINED: &str = "sluice-session";
/// The header that names the last event of a stream that was cut off.
const LAST_EVENT: &str = "last-event-id";
/// Largest answer, in bytes.
const LARGEST: usize = 64 << 20;

/// How the bridge ended.
#[derive(Debug)]
pub(super) enum McpBridgeEnd {
    /// The client closed the connection.
    Closed,
    /// The gateway does not accept the key.
    Refused(String),
}

/// The state between two messages.
#[derive(Debug, Default)]
struct McpRelayState {
    /// The message that opened the conversation, to reopen it.
    opening: Option<Value>,
    agreed: Option<String>,
    session: Option<String>,
    refused: Option<String>,
    /// The last event of the gateway's own stream: with it, the gateway knows what the client was told.
    last_event: Option<String>,
}

/// Writes one message to the client; false if the client is gone.
type McpClientWriter = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// Forwards messages.
pub(super) struct McpRelay {
    wire: RawGatewayClient,
    say: McpClientWriter,
    known: Mutex<McpRelayState>,
    /// Open requests by their ids; notifying one closes the request.
    open: Mutex<HashMap<String, Arc<Notify>>>,
    over: Notify,
}

/// One message of the client.
pub(super) struct McpClientMessage {
    value: Value,
    pub(super) kind: McpMessageKind,
    /// Its entry among the open requests, if it is a request.
    place: Option<(String, Arc<Notify>)>,
}

/// What the bridge itself does with a message.
pub(super) enum McpMessageKind {
    /// Opens a conversation.
    Opening,
    /// Only forwards it.
    Other,
}

/// Why a message got no answer.
enum McpRelayError {
    /// It was not sent.
    NotSent(String),
    /// It may have arrived.
    Unclear(String),
}

impl McpRelay {
    pub(super) fn new(wire: RawGatewayClient, say: McpClientWriter) -> Self {
        Self { wire, say, known: Mutex::default(), open: Mutex::default(), over: Notify::new() }
    }

    /// Parses a line as a message to forward, if it is one. A cancel notification is handled here: for the gateway, a
    /// cancelled request is one whose connection closes.
    pub(super) fn read(&self, line: &str) -> Option<McpClientMessage> {
        let value = match serde_json::from_str::<Value>(line) {
            Ok(value) if value.is_object() => value,
            Ok(_) => {
                self.complain(&Value::Null, -32600, "a message must be one JSON object", None);
                return None;
            }
            Err(error) => {
                self.complain(&Value::Null, -32700, &format!("this is not JSON: {error}"), None);
                return None;
            }
        };
        if is(&value, "notifications/cancelled") {
            let named = value.pointer("/params/requestId").map(ToString::to_string);
            if let Some(stop) = named.and_then(|id| self.open().remove(&id)) {
                stop.notify_one();
            }
            return None;
        }
        if is(&value, "initialize") {
            return Some(McpClientMessage { value, kind: McpMessageKind::Opening, place: None });
        }
        let place = value.get("method").and(value.get("id")).map(|id| (id.to_string(), Arc::<Notify>::default()));
        if let Some((id, stop)) = &place {
            self.open().insert(id.clone(), Arc::clone(stop));
        }
        Some(McpClientMessage { value, kind: McpMessageKind::Other, place })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.open.lock()
    }

    /// The reason why the gateway does not accept the key, if it does not.
    pub(super) fn refused(&self) -> Option<String> {
        self.known().refused.clone()
    }

    fn known(&self) -> MutexGuard<'_, McpRelayState> {
        self.known.lock()
    }

    /// Sends one message to the gateway and returns its answers.
    pub(super) async fn forward(&self, message: McpClientMessage) {
        let McpClientMessage { value, kind, place } = message;
        if matches!(kind, McpMessageKind::Opening) {
            let mut known = self.known();
            *known = McpRelayState {
                opening: Some(value.clone()),
                refused: known.refused.take(),
                ..McpRelayState::default()
            };
        }
        let exchanged = match &place {
            None => self.exchange(&value).await,
            Some((_, stop)) => tokio::select! {
                exchanged = self.exchange(&value) => exchanged,
                // Dropping the exchange closes its connection. Nobody waits for an answer any more, so none is sent.
                () = stop.notified() => return,
            },
        };
        if let Some((id, stop)) = place {
            let mut open = self.open();
            // Another request may use the id meanwhile.
            if open.get(&id).is_some_and(|other| Arc::ptr_eq(other, &stop)) {
                open.remove(&id);
            }
        }
        if let (Err((code, text, data)), Some(id)) = (exchanged, value.get("id")) {
            self.complain(id, code, &text, data);
        }
    }

    async fn exchange(&self, message: &Value) -> Result<(), (i32, String, Option<Value>)> {
        let gone = |fault: McpRelayError| match fault {
            McpRelayError::NotSent(why) => {
                (-32000, format!("the gateway cannot be reached, and nothing was sent: {why}"), None)
            }
            McpRelayError::Unclear(why) => {
                let text = format!(
                    "the connection broke before an answer arrived ({why}): use sluice_status to check whether the call arrived before \
                     making it again"
                );
                (-32000, text, None)
            }
        };
        let mut response = self.send(message).await.map_err(gone)?;
        if response.status() == StatusCode::NOT_FOUND && self.known().session.is_some() && self.reopen().await {
            response = self.send(message).await.map_err(gone)?;
        }
        self.answer(message, response).await.map_err(|fault| match fault {
            Ok(fault) => gone(fault),
            Err((text, data)) => (-32000, text, Some(data)),
        })
    }

    /// Sends a message, and repeats it as long as it provably did not arrive.
    async fn send(&self, message: &Value) -> Result<Response, McpRelayError> {
        let mut pauses = PAUSES.iter();
        loop {
            let (agreed, session) = {
                let known = self.known();
                (known.agreed.clone(), known.session.clone())
            };
            let request = self.wire.request(Method::POST, "/mcp");
            let mut request = request.headers(headers(message, agreed.as_deref(), session.as_deref()));
            // The client's hooks use a session that knows the user's task: this call belongs to that session too.
            if is(message, "tools/call")
                && let Some(joined) = client_process::session(self.wire.address())
            {
                request = request.header(JOINED, joined);
            }
            match request.body(message.to_string()).send().await {
                Ok(response) => return Ok(response),
                Err(error) if error.is_connect() => match pauses.next() {
                    Some(pause) => wait(*pause).await,
                    None => return Err(McpRelayError::NotSent(plain(&error))),
                },
                Err(error) => return Err(McpRelayError::Unclear(plain(&error))),
            }
        }
    }

    /// Passes on the gateway's answer as it arrives.
    async fn answer(
        &self,
        message: &Value,
        mut response: Response,
    ) -> Result<(), Result<McpRelayError, (String, Value)>> {
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (kind, session) = (text("content-type").unwrap_or_default(), text("mcp-session-id"));
        let status = response.status();
        let streams = kind.starts_with("text/event-stream");
        let (mut events, mut body) = (McpStreamParser::default(), Vec::new());
        // Only a request expects an answer; one that gets none must get an error, or its client waits forever.
        let mut answered = message.get("id").is_none() || message.get("method").is_none();
        loop {
            let piece = match response.chunk().await {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Err(Ok(McpRelayError::Unclear(plain(&error)))),
            };
            if streams {
                for event in events.push(&piece) {
                    answered |= answers(message, &event);
                    self.tell(message, &event, session.as_deref());
                }
            } else {
                body.extend_from_slice(&piece);
            }
            if body.len() + events.waiting() > LARGEST {
                return Err(Ok(McpRelayError::Unclear("the answer is too large".into())));
            }
        }
        if streams || body.is_empty() {
            let none = || {
                Err(Ok(McpRelayError::Unclear(format!("the response had status {} and no answer", status.as_u16()))))
            };
            return if answered { Ok(()) } else { none() };
        }
        let body = String::from_utf8_lossy(&body);
        if kind.starts_with("application/json") {
            self.tell(message, &body, session.as_deref());
            return Ok(());
        }
        let problem: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let word = |name: &str| problem.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let said = if problem.is_null() { body.chars().take(200).collect() } else { word("detail") };
        if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            self.known().refused = Some(said.clone());
        }
        Err(Err((format!("the gateway responded {}: {said} {}", status.as_u16(), word("hint")), problem)))
    }

    /// Passes one message of the gateway to the client; remembers the answer to an opening.
    fn tell(&self, asked: &Value, text: &str, session: Option<&str>) {
        if is(asked, "initialize")
            && let Ok(answer) = serde_json::from_str::<Value>(text)
            && let Some(agreed) = answer.pointer("/result/protocolVersion").and_then(Value::as_str)
        {
            let mut known = self.known();
            known.agreed = Some(agreed.to_owned());
            known.session = session.map(str::to_owned);
        }
        // One message is one line, whatever line breaks its text has.
        (self.say)(&text.replace(['\n', '\r'], " "));
    }

    /// Reopens the conversation without involving the client.
    async fn reopen(&self) -> bool {
        let Some(opening) = self.known().opening.clone() else { return false };
        self.known().session = None;
        let Ok(response) = self.send(&opening).await else { return false };
        let session = response.headers().get("mcp-session-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let opened = response.status().is_success() && session.is_some();
        self.known().session = session;
        opened
    }

    /// Listens for messages the gateway sends on its own, as long as there is a client.
    pub(super) async fn listen(&self) {
        if self.known().session.is_none() {
            return;
        }
        let mut pauses = PAUSES.iter();
        loop {
            let last = tokio::select! {
                last = self.read_event_stream() => last,
                () = self.over.notified() => return,
            };
            let pause = match last {
                McpListenOutcome::Something => {
                    pauses = PAUSES.iter();
                    PAUSES.first().copied().unwrap_or(100)
                }
                McpListenOutcome::Nothing => pauses.next().copied().unwrap_or(15_000),
                McpListenOutcome::Never => return,
            };
            tokio::select! {
                () = wait(pause) => {}
                () = self.over.notified() => return,
            }
        }
    }

    async fn read_event_stream(&self) -> McpListenOutcome {
        let (agreed, session, last_event) = {
            let known = self.known();
            (known.agreed.clone(), known.session.clone(), known.last_event.clone())
        };
        let headers = headers(&Value::Null, agreed.as_deref(), session.as_deref());
        let mut request = self.wire.request(Method::GET, "/mcp").headers(headers);
        if let Some(last) = last_event {
            request = request.header(LAST_EVENT, last);
        }
        let Ok(mut response) = request.send().await else {
            return McpListenOutcome::Nothing;
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return McpListenOutcome::Never;
        }
        if !response.status().is_success() {
            return McpListenOutcome::Nothing;
        }
        let mut events = McpStreamParser::default();
        while let Ok(Some(piece)) = response.chunk().await {
            events.push(&piece).iter().for_each(|event| self.tell(&Value::Null, event, None));
            if let Some(id) = events.last_id() {
                self.known().last_event = Some(id.to_owned());
            }
            if events.waiting() > LARGEST {
                break;
            }
        }
        McpListenOutcome::Something
    }

    /// Called when no more messages come.
    pub(super) fn finish(&self) {
        // The permit is stored for a task that starts waiting later.
        self.over.notify_one();
    }

    /// Closes the conversation.
    pub(super) async fn end(&self) {
        let (agreed, session) = {
            let mut known = self.known();
            (known.agreed.clone(), known.session.take())
        };
        if session.is_some() {
            let headers = headers(&Value::Null, agreed.as_deref(), session.as_deref());
            let ending = self.wire.request(Method::DELETE, "/mcp").headers(headers).send();
            let _ended = tokio::time::timeout(Duration::from_secs(2), ending).await;
        }
    }

    fn complain(&self, id: &Value, code: i32, text: &str, data: Option<Value>) {
        let mut error = json!({"code": code, "message": text});
        if let (Some(data), Some(error)) = (data.filter(|data| !data.is_null()), error.as_object_mut()) {
            error.insert("data".into(), data);
        }
        (self.say)(&json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
    }
}

/// The result of listening.
enum McpListenOutcome {
    Something,
    Nothing,
    Never,
}

/// Whether this text is the answer to a request.
fn answers(request: &Value, text: &str) -> bool {
    let Ok(answer) = serde_json::from_str::<Value>(text) else { return false };
    answer.get("id") == request.get("id") && (answer.get("result").is_some() || answer.get("error").is_some())
}

fn is(message: &Value, method: &str) -> bool {
    message.get("method").and_then(Value::as_str) == Some(method)
}

async fn wait(millis: u64) {
    let _elapsed = tokio::time::timeout(Duration::from_millis(millis), std::future::pending::<()>()).await;
}

/// The error without the address, which may be long.
fn plain(error: &reqwest::Error) -> String {
    let mut source: &dyn std::error::Error = error;
    while let Some(deeper) = source.source() {
        source = deeper;
    }
    source.to_string()
}
