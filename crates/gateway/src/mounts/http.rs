//! What goes to a server at an address: each message as a request through egress.
//!
//! Takes the connection egress has for the mount; gives messages to the protocol library. Promise: nothing is sent but
//! by egress, with its checks and its credential; of an answer only messages are passed on, and the end of a session is
//! the end of the connection.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Method;
use rmcp::RoleClient;
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use serde_json::Value;
use sluice_core::{Actor, Span};
use tokio::sync::mpsc;

use super::wire::{Incoming, Watch};
use crate::egress::{Answer, Connection, Egress, Request};

/// Messages that wait to be heard.
const WAITING: usize = 64;
const SESSION: &str = "mcp-session-id";

/// The way to an address.
pub(super) struct Http {
    shared: Arc<Shared>,
    heard: mpsc::Receiver<Incoming>,
}

/// How an address is asked.
pub(super) struct Asking {
    pub(super) egress: Arc<Egress>,
    pub(super) connection: Arc<Connection>,
    pub(super) url: String,
    /// What a credential must be for: `name.connect`.
    pub(super) capability: String,
    pub(super) by: Actor,
    pub(super) timeout: Span,
}

struct Shared {
    asking: Asking,
    watch: Arc<Watch>,
    tell: mpsc::Sender<Incoming>,
    agreed: Mutex<Agreed>,
}

/// What the first answer settled.
#[derive(Debug, Clone, Default)]
struct Agreed {
    session: Option<String>,
    version: Option<String>,
}

impl Http {
    pub(super) fn new(asking: Asking, watch: Arc<Watch>) -> Self {
        let (tell, heard) = mpsc::channel(WAITING);
        Self { shared: Arc::new(Shared { asking, watch, tell, agreed: Mutex::default() }), heard }
    }
}

impl Shared {
    fn agreed(&self) -> std::sync::MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One message there, and what comes back.
    async fn post(&self, body: Vec<u8>) -> io::Result<()> {
        let Agreed { session, version } = self.agreed().clone();
        let had_session = session.is_some();
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        headers.extend(session.map(|id| (SESSION.to_owned(), id)));
        headers.extend(version.map(|version| ("mcp-protocol-version".to_owned(), version)));
        let Asking { egress, connection, url, capability, by, timeout } = &self.asking;
        let request = Request {
            method: Method::POST,
            url: url.clone(),
            headers,
            body: Bytes::from(body),
            follow: false,
            timeout: Some(*timeout),
        };
        let answer = egress.request(connection, capability, by.clone(), request).await;
        let answer = answer.map_err(|no| {
            let kind = if no.may_have_left() { io::ErrorKind::TimedOut } else { io::ErrorKind::NotConnected };
            io::Error::new(kind, no.to_string())
        })?;
        match answer.status {
            200..=299 => self.hear(&answer).await,
            404 if had_session => {
                self.watch.cut("it has ended the session");
                Err(io::ErrorKind::NotConnected.into())
            }
            401 | 403 => {
                self.watch.cut("it refused the credential");
                Err(io::Error::new(io::ErrorKind::NotConnected, "it refused the credential"))
            }
            status => Err(io::Error::other(format!("it answered with status {status}"))),
        }
    }

    async fn hear(&self, answer: &Answer) -> io::Result<()> {
        let header = |name: &str| answer.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        if let Some(id) = header(SESSION).filter(|id| id.len() <= 256) {
            self.agreed().session.get_or_insert_with(|| id.to_owned());
        }
        if answer.body.is_empty() {
            return Ok(());
        }
        let streamed = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let texts = if streamed { events(&answer.body) } else { vec![answer.body.to_vec()] };
        for text in texts {
            self.note_version(&text);
            if let Some(message) = self.watch.read(&text) {
                // Whoever listened is gone: so is the question.
                let _heard = self.tell.send(message).await;
            }
        }
        Ok(())
    }

    /// The revision that was agreed on, from the first answer that names one.
    fn note_version(&self, text: &[u8]) {
        if self.agreed().version.is_some() {
            return;
        }
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return };
        let version = value.pointer("/result/protocolVersion").and_then(Value::as_str);
        if let Some(version) = version.filter(|text| text.len() <= 32) {
            self.agreed().version = Some(version.to_owned());
        }
    }
}

/// The data of each event of a stream that has ended.
fn events(body: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(body);
    let mut found = Vec::new();
    let mut data = String::new();
    for line in text.lines().chain([""]) {
        if line.is_empty() {
            if !data.is_empty() {
                found.push(std::mem::take(&mut data).into_bytes());
            }
        } else if let Some(rest) = line.strip_prefix("data:") {
            if !data.is_empty() {
                data.push('\n');
            }
            data.push_str(rest.strip_prefix(' ').unwrap_or(rest));
        }
    }
    found
}

impl Transport<RoleClient> for Http {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let body = serde_json::to_vec(&item)?;
            tokio::select! {
                sent = shared.post(body) => sent,
                () = shared.watch.until_cut() => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<Incoming> {
        tokio::select! {
            message = self.heard.recv() => message,
            () = self.shared.watch.until_cut() => None,
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.shared.watch.cut("it was let go");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_events_is_put_together_and_everything_else_left_out() {
        let body = b": hello\nid: 1\nevent: message\ndata: {\"a\":\ndata: 1}\n\ndata:{\"b\":2}\r\n\r\nretry: 5\n\n";
        let found = events(body);
        assert_eq!(found, [b"{\"a\":\n1}".to_vec(), b"{\"b\":2}".to_vec()]);
        assert_eq!(events(b"data: cut off"), [b"cut off".to_vec()]);
        assert!(events(b"").is_empty());
    }
}
