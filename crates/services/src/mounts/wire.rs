//! The line to a program: one JSON message per line, each checked before anything acts on it.
//!
//! Takes the pipes of a third-party program; gives messages to the protocol library. Promise: no line is longer than
//! allowed, lines that are not messages are skipped and counted, the requests of a server are limited, and a server
//! that breaks a rule is cut off with a reason.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, RequestId, ServerNotification, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use sluice_core::json::{JsonTextKind, classify};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, watch};

/// A message of a server.
pub(super) type McpServerMessage = RxJsonRpcMessage<RoleClient>;

/// Most lines that are not messages.
const NOISE: u32 = 1_000;
/// Most requests of a server to us. Each is refused; an honest server sends a few at most.
const REQUESTS: u32 = 100;
/// Most notifications of a server without an answer between them: a long call reports its progress every now and then.
const NOTIFICATIONS: u32 = 10_000;
/// The error code that replaces an answer of the server with a duplicate key in an object.
pub(super) const AMBIGUOUS: i32 = -32_797;

/// Watches one connection.
#[derive(Debug)]
pub(super) struct MountTransportMonitor {
    /// Largest message, in bytes.
    most: usize,
    counts: Mutex<MountTransportCounts>,
    /// The last tool list: the request that it answers, and each tool as the server sent it. The library's own form of
    /// a tool has only the members that the library knows.
    listed: Mutex<Option<(RequestId, Vec<Value>)>>,
    /// Signals that the server reported changed tools.
    pub(super) changed: Notify,
    /// True once the connection must not be used any more.
    cut: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct MountTransportCounts {
    noise: u32,
    requests: u32,
    /// Notifications since the last answer.
    notifications: u32,
    why: Option<String>,
}

impl MountTransportMonitor {
    pub(super) fn new(most: u64) -> Arc<Self> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let (counts, listed) = (Mutex::default(), Mutex::default());
        Arc::new(Self { most, counts, listed, changed: Notify::new(), cut: watch::Sender::new(false) })
    }

    /// Largest message, in bytes.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Ends the connection. The first reason counts.
    pub(super) fn cut(&self, why: impl Into<String>) {
        self.counts().why.get_or_insert_with(|| why.into());
        self.cut.send_replace(true);
    }

    /// Waits until the connection is ended.
    pub(super) async fn until_cut(&self) {
        // This never fails: we hold the other end ourselves.
        let mut cut = self.cut.subscribe();
        let _cut = cut.wait_for(|cut| *cut).await;
    }

    /// Why it was ended, if it was.
    pub(super) fn why(&self) -> Option<String> {
        self.counts().why.clone()
    }

    /// How often the server sent us a request.
    pub(super) fn requests(&self) -> u32 {
        self.counts().requests
    }

    /// The tools that came in answer to a request, complete. `None` if the last list answered another request.
    pub(super) fn listed(&self, request: &RequestId) -> Option<Vec<Value>> {
        let last = self.listed.lock().take();
        last.filter(|(id, _)| id == request).map(|(_, tools)| tools)
    }

    fn keep_list(&self, request: RequestId, text: &[u8]) {
        let Ok(Value::Object(mut message)) = serde_json::from_slice(text) else { return };
        let tools = message.get_mut("result").and_then(|result| result.get_mut("tools")).map(Value::take);
        if let Some(Value::Array(tools)) = tools {
            *self.listed.lock() = Some((request, tools));
        }
    }

    fn counts(&self) -> parking_lot::MutexGuard<'_, MountTransportCounts> {
        self.counts.lock()
    }

    /// One line or body as a message, if it is one to pass on.
    pub(super) fn read(&self, text: &[u8]) -> Option<McpServerMessage> {
        let ambiguous = if classify(text) == JsonTextKind::Repeated { ambiguous(text) } else { None };
        let message = ambiguous.map_or_else(|| serde_json::from_slice::<McpServerMessage>(text), Ok);
        let Ok(message) = message else {
            let mut counts = self.counts();
            counts.noise += 1;
            let many = counts.noise > NOISE;
            drop(counts);
            if many {
                self.cut("it sent too many lines that are not messages");
            }
            return None;
        };
        match &message {
            JsonRpcMessage::Response(answer) => {
                self.counts().notifications = 0;
                if matches!(answer.result, ServerResult::ListToolsResult(_)) {
                    self.keep_list(answer.id.clone(), text);
                }
                Some(message)
            }
            JsonRpcMessage::Error(_) => Some(message),
            JsonRpcMessage::Request(_) => {
                let mut counts = self.counts();
                counts.requests += 1;
                let many = counts.requests > REQUESTS;
                drop(counts);
                if many {
                    self.cut("it sent too many requests to the gateway");
                    return None;
                }
                Some(message)
            }
            JsonRpcMessage::Notification(notification) => {
                if matches!(notification.notification, ServerNotification::ToolListChangedNotification(_)) {
                    self.changed.notify_one();
                }
                let mut counts = self.counts();
                counts.notifications += 1;
                let many = counts.notifications > NOTIFICATIONS;
                drop(counts);
                if many {
                    self.cut("it sent too many notifications");
                }
                // Progress, log lines and similar messages have no effect here.
                None
            }
        }
    }
}

/// Replaces an answer with a duplicate key: two readers would read two different answers. The request that it answers
/// still gets this answer; `None` if it answers no request.
fn ambiguous(text: &[u8]) -> Option<McpServerMessage> {
    let said: Value = serde_json::from_slice(text).ok()?;
    let id = said.get("id").filter(|_| said.get("method").is_none())?;
    let why = "an object of the answer has the same key twice";
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "error": {"code": AMBIGUOUS, "message": why}})).ok()
}

/// The line to a program.
#[derive(Debug)]
pub(super) struct StdioMountTransport {
    from: pipe::Receiver,
    held: Vec<u8>,
    /// How much of `held` was already searched for the end of a line.
    looked: usize,
    to: Arc<tokio::sync::Mutex<Option<pipe::Sender>>>,
    watch: Arc<MountTransportMonitor>,
}

impl StdioMountTransport {
    pub(super) fn new(from: pipe::Receiver, to: pipe::Sender, watch: Arc<MountTransportMonitor>) -> Self {
        Self { from, held: Vec::new(), looked: 0, to: Arc::new(tokio::sync::Mutex::new(Some(to))), watch }
    }

    /// The next complete line, if there is one.
    fn line(&mut self) -> Option<Vec<u8>> {
        let fresh = self.held.get(self.looked..).unwrap_or_default();
        match fresh.iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                let rest = self.held.split_off(self.looked + at + 1);
                self.looked = 0;
                Some(std::mem::replace(&mut self.held, rest))
            }
            None => {
                self.looked = self.held.len();
                None
            }
        }
    }

    /// The next message, or `None` at the end of the connection.
    async fn next(&mut self) -> Option<McpServerMessage> {
        let mut piece = vec![0; 64 << 10];
        loop {
            while let Some(line) = self.line() {
                if line.len() > self.watch.most() {
                    self.watch.cut(format!("it sent more than {} bytes in one message", self.watch.most()));
                    return None;
                }
                let text = line.trim_ascii();
                if let Some(message) = (!text.is_empty()).then(|| self.watch.read(text)).flatten() {
                    return Some(message);
                }
            }
            if self.held.len() > self.watch.most() {
                self.watch.cut(format!("it sent more than {} bytes in one message", self.watch.most()));
                return None;
            }
            self.from.readable().await.ok()?;
            match self.from.try_read(&mut piece) {
                Ok(0) => {
                    self.watch.cut("the server has ended");
                    return None;
                }
                Ok(count) => self.held.extend_from_slice(piece.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => {
                    self.watch.cut("its output cannot be read any more");
                    return None;
                }
            }
        }
    }
}

impl Transport<RoleClient> for StdioMountTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (to, watch) = (Arc::clone(&self.to), Arc::clone(&self.watch));
        async move {
            let mut bytes = serde_json::to_vec(&item)?;
            bytes.push(b'\n');
            let to = to.lock().await;
            let Some(to) = to.as_ref() else { return Err(io::ErrorKind::NotConnected.into()) };
            let mut left = bytes.as_slice();
            while !left.is_empty() {
                tokio::select! {
                    ready = to.writable() => ready?,
                    () = watch.until_cut() => return Err(io::ErrorKind::NotConnected.into()),
                }
                match to.try_write(left) {
                    Ok(count) => left = left.get(count..).unwrap_or_default(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<McpServerMessage> {
        let watch = Arc::clone(&self.watch);
        tokio::select! {
            message = self.next() => message,
            () = watch.until_cut() => None,
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.watch.cut("the connection was closed by the gateway");
        drop(self.to.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_passed_over_until_there_is_too_much_of_it() {
        let watch = MountTransportMonitor::new(1000);
        assert!(watch.read(b"Server started on stdio").is_none());
        assert!(watch.why().is_none());
        for _ in 0..NOISE {
            assert!(watch.read(b"{\"jsonrpc\": \"1.0\"}").is_none());
        }
        assert!(watch.why().unwrap().contains("not messages"));
    }

    #[test]
    fn an_answer_with_a_key_twice_becomes_an_error_to_the_same_request() {
        let watch = MountTransportMonitor::new(1000);
        for result in [r#"{"content":[],"content":[]}"#, r#"{"content":[],"structuredContent":{"a":1,"\u0061":2}}"#] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
            let Some(JsonRpcMessage::Error(error)) = watch.read(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(error.error.code.0, AMBIGUOUS);
        }
    }

    #[test]
    fn a_server_that_keeps_asking_is_cut_off() {
        let watch = MountTransportMonitor::new(1000);
        let ask = br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
        for _ in 0..REQUESTS {
            assert!(watch.read(ask).is_some());
        }
        assert!(watch.read(ask).is_none() && watch.why().is_some());
    }

    #[test]
    fn a_flood_of_notifications_ends_the_connection_and_an_answer_begins_the_count_again() {
        let watch = MountTransportMonitor::new(1000);
        let progress =
            br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
        let flood = |count: u32| (0..count).for_each(|_| assert!(watch.read(progress).is_none()));
        flood(NOTIFICATIONS);
        assert!(watch.read(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#).is_some() && watch.why().is_none());
        flood(NOTIFICATIONS);
        assert!(watch.why().is_none());
        flood(1);
        assert!(watch.why().unwrap().contains("notifications"));
    }

    #[test]
    fn a_list_of_tools_is_kept_whole_and_for_the_request_it_answers() {
        let watch = MountTransportMonitor::new(1000);
        let tool = r#"{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"forbidden"},"x-reach":[1,null]}"#;
        let list = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"tools":[{tool}],"x":1}}}}"#);
        assert!(watch.read(list.as_bytes()).is_some());
        assert_eq!(watch.listed(&RequestId::Number(7)).unwrap(), [serde_json::from_str::<Value>(tool).unwrap()]);
        assert!(watch.listed(&RequestId::Number(7)).is_none(), "once");
        assert!(watch.read(list.as_bytes()).is_some());
        assert!(watch.listed(&RequestId::Number(8)).is_none(), "another question was asked");
    }

    #[test]
    fn only_changes_of_the_tools_are_heard_of_all_notifications() {
        let watch = MountTransportMonitor::new(1000);
        assert!(
            watch
                .read(br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#)
                .is_none()
        );
        assert!(watch.read(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).is_none());
        assert_eq!(watch.counts().noise, 0);
    }
}
