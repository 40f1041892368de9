//! The transport to a server at an address: each message is a request through egress.
//!
//! Takes the connection that egress has for the mount; gives messages to the protocol library. Promise: nothing is sent
//! except through egress, with its checks and its credential; only messages of an answer are passed on; when a session
//! ends, the connection ends. In revisions without sessions, the headers of a request repeat what its body says.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, ServerResult};
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use serde_json::Value;
use sluice_config::network::EgressConnection;
use sluice_core::{Actor, Millis, ServiceName};
use sluice_egress::oauth::{BearerChallenge, FreshTokenError, OauthGrants};
use sluice_egress::{Egress, EgressError, EgressRequest, EgressResponse, ExchangeFailure, ExchangeFault};
use tokio::sync::mpsc;

use super::headers::{self, ArgumentHeader};
use super::service::MountService;
use super::sign_in::{self, MountSignInNeed};
use super::wire::{McpServerMessage, MountTransportMonitor};
use crate::ServiceContext;

/// Most messages that wait to be received.
const WAITING: usize = 64;
const SESSION: &str = "mcp-session-id";

/// The transport to one address.
pub(super) struct HttpMountTransport {
    shared: Arc<HttpMountState>,
    heard: mpsc::Receiver<McpServerMessage>,
}

/// How requests are sent to an address.
pub(super) struct HttpMountTarget {
    pub(super) egress: Arc<Egress>,
    pub(super) connection: Arc<EgressConnection>,
    pub(super) url: String,
    /// What a credential must be bound to: `name.connect`.
    pub(super) capability: String,
    pub(super) by: Actor,
    pub(super) timeout: Millis,
    /// The server, and the grant with which it is reached, if the server may want one.
    pub(super) access: Option<HttpMountAccess>,
}

/// How the server is reached when it wants a person to sign in.
pub(super) struct HttpMountAccess {
    pub(super) context: Arc<ServiceContext>,
    pub(super) service: Arc<MountService>,
    pub(super) name: ServiceName,
    /// Whether there is a grant.
    pub(super) granted: bool,
}

/// The error of a message that the server did not carry out because a person has to act.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct SignInRequired(String);

impl SignInRequired {
    fn error(text: String) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, Self(text))
    }
}

impl HttpMountAccess {
    fn oauth(&self) -> &OauthGrants {
        &self.context.oauth
    }

    /// Makes sure that the token is valid for a while.
    async fn ensure_fresh(&self) -> io::Result<()> {
        if !self.granted {
            return Ok(());
        }
        match self.oauth().ensure_fresh(&self.name).await {
            Ok(()) => Ok(()),
            Err(FreshTokenError::NeedsReauth) => Err(self.need(MountSignInNeed::SignIn(BearerChallenge::default()))),
            Err(FreshTokenError::Later) => {
                let why = "its authorization server does not answer, so the access cannot be renewed at the moment";
                Err(io::Error::new(io::ErrorKind::ConnectionRefused, why))
            }
        }
    }

    /// Gets another token after the server refused the present one. False if there is none.
    async fn replace(&self) -> bool {
        if !self.granted {
            return false;
        }
        self.oauth().mark_rejected(&self.name).await;
        self.oauth().ensure_fresh(&self.name).await.is_ok()
    }

    fn need(&self, need: MountSignInNeed) -> io::Error {
        let text = need.text(&self.service.mount().name);
        self.service.set_sign_in_need(Some(need));
        SignInRequired::error(text)
    }

    /// Notes that the server wants more access. A server that wants what it has asks for nothing that a person can give.
    async fn need_more(&self, challenge: BearerChallenge) -> io::Error {
        let name = &self.service.mount().name;
        if sign_in::has_granted(&self.context, name, &challenge).await {
            return SignInRequired::error(format!(
                "the server `{name}` still refuses although the access it asks for was granted; signing in again does \
                 not help"
            ));
        }
        self.need(MountSignInNeed::MoreAccess(challenge))
    }
}

struct HttpMountState {
    asking: HttpMountTarget,
    watch: Arc<MountTransportMonitor>,
    tell: mpsc::Sender<McpServerMessage>,
    agreed: Mutex<NegotiatedSession>,
    /// The arguments of each tool that headers repeat, as the server last listed them.
    repeated: Mutex<BTreeMap<String, Vec<ArgumentHeader>>>,
    /// Whether the server has ever answered.
    reached: AtomicBool,
}

/// What the first answer established.
#[derive(Debug, Clone, Default)]
struct NegotiatedSession {
    session: Option<String>,
    version: Option<String>,
}

impl HttpMountTransport {
    pub(super) fn new(asking: HttpMountTarget, watch: Arc<MountTransportMonitor>) -> Self {
        let (tell, heard) = mpsc::channel(WAITING);
        let (agreed, repeated, reached) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let shared = HttpMountState { asking, watch, tell, agreed, repeated, reached };
        Self { shared: Arc::new(shared), heard }
    }
}

/// Host and port of an address, without the rest.
fn place(url: &str) -> String {
    let place = url::Url::parse(url).ok().and_then(|url| {
        let port = url.port_or_known_default()?;
        Some(format!("{}:{port}", url.host_str()?))
    });
    place.unwrap_or_else(|| "its address".to_owned())
}

impl HttpMountState {
    fn agreed(&self) -> parking_lot::MutexGuard<'_, NegotiatedSession> {
        self.agreed.lock()
    }

    fn repeated(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, Vec<ArgumentHeader>>> {
        self.repeated.lock()
    }

    /// The headers of a message: they name its session, or repeat parts of it.
    fn headers(&self, message: &Value) -> Vec<(String, String)> {
        let own = headers::of(message, &self.repeated());
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("accept".to_owned(), "application/json, text/event-stream".to_owned()),
        ];
        if own.is_empty() {
            let NegotiatedSession { session, version } = self.agreed().clone();
            headers.extend(session.map(|id| (SESSION.to_owned(), id)));
            headers.extend(version.map(|version| ("mcp-protocol-version".to_owned(), version)));
        }
        headers.extend(own);
        headers
    }

    /// Sends one message and handles the answer.
    async fn post(&self, message: &Value) -> io::Result<()> {
        let access = self.asking.access.as_ref();
        if let Some(access) = access
            && let Err(error) = access.ensure_fresh().await
        {
            return Err(self.unsigned(message, error));
        }
        let headers = self.headers(message);
        let had_session = headers.iter().any(|(name, _)| name == SESSION);
        let mut answer = self.exchange(message, headers.clone()).await?;
        if answer.status == 401
            && let Some(access) = access
            && access.replace().await
        {
            answer = self.exchange(message, headers).await?;
        }
        self.reached.store(true, Ordering::SeqCst);
        match (answer.status, access) {
            (200..=299, _) => self.hear(&answer).await,
            (404, _) if had_session => {
                self.watch.cut("the server ended the session");
                Err(io::ErrorKind::NotConnected.into())
            }
            (401, Some(access)) => {
                let challenge = BearerChallenge::of(&answer.headers).unwrap_or_default();
                Err(self.unsigned(message, access.need(MountSignInNeed::SignIn(challenge))))
            }
            (403, Some(access)) if let Some(challenge) = scope_challenge(&answer) => {
                let error = access.need_more(challenge).await;
                // Only a call can wait for a person while the others go on.
                if is_call(message) { Err(error) } else { Err(self.unsigned(message, error)) }
            }
            (401 | 403, _) => {
                self.watch.cut("the server refused the credential");
                Err(io::Error::new(io::ErrorKind::NotConnected, "the server refused the credential"))
            }
            // An error answer to this message in the protocol's own form: nothing was done.
            (400..=499, _) if is_no_to(message, &answer.body) => self.hear(&answer).await,
            (status, _) => Err(io::Error::other(format!("the server answered with status {status}"))),
        }
    }

    /// Ends the conversation that no longer has access. The caller of a tool gets the error first: the end follows when
    /// the tools are checked again.
    fn unsigned(&self, message: &Value, error: io::Error) -> io::Error {
        if is_call(message) {
            self.watch.changed.notify_one();
        } else {
            self.watch.cut(error.to_string());
        }
        error
    }

    /// One message over egress.
    async fn exchange(&self, message: &Value, headers: Vec<(String, String)>) -> io::Result<EgressResponse> {
        let HttpMountTarget { egress, connection, url, capability, by, timeout, .. } = &self.asking;
        let request = EgressRequest {
            method: Method::POST,
            url: url.clone(),
            headers,
            body: Bytes::from(serde_json::to_vec(message)?),
            follow: false,
            timeout: Some(*timeout),
        };
        let answer = egress.request(connection, capability, by.clone(), request).await;
        answer.map_err(|no| {
            let said = format!("{no}, at {}", place(url));
            // A server that was never reached has no conversation, and people are told why.
            if !no.may_have_left() && !self.reached.load(Ordering::SeqCst) {
                self.watch.cut(said.clone());
            }
            let refused = matches!(&no, EgressError::Failed(ExchangeFailure { what: ExchangeFault::Refused, .. }));
            let kind = match no.may_have_left() {
                true => io::ErrorKind::TimedOut,
                false if refused => io::ErrorKind::ConnectionRefused,
                false => io::ErrorKind::NotConnected,
            };
            io::Error::new(kind, said)
        })
    }

    async fn hear(&self, answer: &EgressResponse) -> io::Result<()> {
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
                self.note_tools(&message);
                // If the receiver is gone, nobody waits for the answer.
                let _heard = self.tell.send(message).await;
            }
        }
        Ok(())
    }

    /// Notes which arguments the headers of later calls must repeat.
    fn note_tools(&self, message: &McpServerMessage) {
        let JsonRpcMessage::Response(answer) = message else { return };
        let ServerResult::ListToolsResult(page) = &answer.result else { return };
        let mut repeated = self.repeated();
        for tool in &page.tools {
            let schema = Value::Object(tool.input_schema.as_ref().clone());
            repeated.insert(tool.name.to_string(), headers::repeated(&schema).unwrap_or_default());
        }
    }

    /// Notes the negotiated revision, from the first answer that names one.
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

/// Whether a message calls a tool.
fn is_call(message: &Value) -> bool {
    message.get("method").and_then(Value::as_str) == Some("tools/call")
}

/// The challenge of a server that wants more access.
fn scope_challenge(answer: &EgressResponse) -> Option<BearerChallenge> {
    let challenge = BearerChallenge::of(&answer.headers)?;
    (challenge.error.as_deref() == Some("insufficient_scope")).then_some(challenge)
}

/// Whether a body is an error in answer to this message.
fn is_no_to(message: &Value, body: &[u8]) -> bool {
    let Ok(said) = serde_json::from_slice::<Value>(body) else { return false };
    let id = message.get("id");
    said.get("error").is_some() && id.is_some() && said.get("id") == id
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

impl Transport<RoleClient> for HttpMountTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let message = serde_json::to_value(&item)?;
            tokio::select! {
                sent = shared.post(&message) => sent,
                () = shared.watch.until_cut() => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<McpServerMessage> {
        tokio::select! {
            message = self.heard.recv() => message,
            () = self.shared.watch.until_cut() => None,
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.shared.watch.cut("the connection was closed by the gateway");
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

    #[test]
    fn only_an_error_under_its_own_id_is_a_no_to_a_message() {
        let message = serde_json::json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call"});
        let no = |body: &str| is_no_to(&message, body.as_bytes());
        assert!(no(r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"x"}}"#));
        assert!(!no(r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"x"}}"#));
        assert!(!no(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"x"}}"#));
        assert!(!no(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#) && !no("<html>"));
        let said = serde_json::json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert!(!is_no_to(&said, br#"{"error":{}}"#));
    }
}
