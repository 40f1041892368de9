//! The mailbox behind the demo: the needed part of the Gmail API over HTTP, on this machine.
//!
//! Takes requests, keeps a mailbox with threads, labels, drafts, trash and a change feed, counts every call
//! and fails on command. Promise: a request that fails "after" was carried out and one that fails "before" was not, so
//! that a test can compare what the gateway believes with what happened.

mod api;
mod control;
mod drafts;
mod faults;
mod mailbox;
mod oauth;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use sluice_core::Clock;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use faults::{FaultTiming, InjectedFault};
pub use mailbox::EmulatedMailbox;

use faults::InjectedFaults;
use oauth::OauthEmulator;

/// Largest request, as at the real service.
const LARGEST: usize = 40 << 20;

/// The emulated service.
pub struct GmailEmulator {
    inner: Mutex<GmailEmulatorState>,
    clock: Arc<dyn Clock>,
}

struct GmailEmulatorState {
    mailbox: EmulatedMailbox,
    oauth: OauthEmulator,
    faults: InjectedFaults,
    calls: BTreeMap<String, u64>,
    /// Delay of responses to requests that change something, in milliseconds.
    slow_ms: u64,
}

/// A parsed request.
#[derive(Debug, Clone)]
pub struct EmulatorRequest {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub token: Option<String>,
    pub body: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone)]
pub struct EmulatorResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl EmulatorResponse {
    fn ok(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body }
    }

    fn error(status: u16, reason: &str, message: &str) -> Self {
        let errors = json!([{"domain": "global", "reason": reason, "message": message}]);
        Self {
            status,
            headers: Vec::new(),
            body: json!({"error": {"code": status, "message": message, "errors": errors}}),
        }
    }
}

impl std::fmt::Debug for GmailEmulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl GmailEmulator {
    /// A service with this mailbox.
    pub fn new(mailbox: EmulatedMailbox, clock: Arc<dyn Clock>) -> Self {
        let inner = GmailEmulatorState {
            mailbox,
            oauth: OauthEmulator::default(),
            faults: InjectedFaults::default(),
            calls: BTreeMap::new(),
            slow_ms: 0,
        };
        Self { inner: Mutex::new(inner), clock }
    }

    fn lock(&self) -> MutexGuard<'_, GmailEmulatorState> {
        self.inner.lock()
    }

    /// How many requests there were in total.
    pub fn calls(&self) -> u64 {
        self.lock().calls.values().sum()
    }

    /// How many requests there were of each kind, such as `POST drafts/send`.
    #[cfg(test)]
    pub fn calls_by_kind(&self) -> BTreeMap<String, u64> {
        self.lock().calls.clone()
    }

    /// How many requests there were of one kind.
    pub fn calls_of(&self, kind: &str) -> u64 {
        self.lock().calls.get(kind).copied().unwrap_or(0)
    }

    /// Reads or changes the mailbox as its owner, without the API.
    pub fn as_owner<Out>(&self, look: impl FnOnce(&mut EmulatedMailbox, i64) -> Out) -> Out {
        let now = self.clock.now().as_millis();
        look(&mut self.lock().mailbox, now)
    }

    /// Makes the next requests of a kind fail.
    pub fn fail(&self, failing: InjectedFault) {
        self.lock().faults.add(failing);
    }

    /// A valid token, without the browser.
    #[cfg(test)]
    pub fn token(&self) -> String {
        let now = self.clock.now().as_millis();
        self.lock().oauth.grant(now)
    }

    /// Answers one request; `None` if the response is to be lost.
    fn answer(&self, ask: &EmulatorRequest) -> Option<EmulatorResponse> {
        let now = self.clock.now().as_millis();
        let mut inner = self.lock();
        if ask.path == "/__control" {
            return Some(control::answer(&mut inner, ask, now));
        }
        let GmailEmulatorState { mailbox, oauth, faults, calls, .. } = &mut *inner;
        let kind = api::kind(ask);
        *calls.entry(kind.clone()).or_default() += 1;
        if let Some(answer) = oauth.answer(ask, now) {
            return (!std::mem::take(&mut oauth.lost)).then_some(answer);
        }
        let fault = faults.take(&kind);
        match fault {
            Some(fault) if fault.when == FaultTiming::Before => return fault.answer(),
            Some(_) | None => {}
        }
        if !ask.token.as_deref().is_some_and(|token| oauth.knows(token, now)) {
            return Some(EmulatorResponse::error(401, "authError", "Invalid Credentials"));
        }
        let done = api::answer(mailbox, ask, now);
        match fault {
            Some(fault) => fault.answer(),
            None => Some(done),
        }
    }
}

/// Serves until the listener is dropped with its task.
pub async fn serve(upstream: Arc<GmailEmulator>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let _ignored = stream.set_nodelay(true);
        let upstream = Arc::clone(&upstream);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let upstream = Arc::clone(&upstream);
                async move { respond(&upstream, request).await }
            });
            let builder = hyper::server::conn::http1::Builder::new();
            let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// The connection is closed without a response: that is what a lost response looks like.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the answer is lost")]
struct LostResponseError;

async fn respond(
    upstream: &GmailEmulator,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, LostResponseError> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST).collect().await else {
        return Ok(respond_with(&EmulatorResponse::error(413, "tooLarge", "Request too large")));
    };
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let token = header("authorization").and_then(|text| text.strip_prefix("Bearer ")).map(str::to_owned);
    let ask = EmulatorRequest {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: form(head.uri.query().unwrap_or_default()),
        token,
        body: body.to_bytes().to_vec(),
    };
    let answer = upstream.answer(&ask);
    let slow = upstream.lock().slow_ms;
    if slow > 0 && ask.path != "/__control" && ask.method != "GET" {
        // The request was carried out; only the response is delayed.
        #[expect(clippy::disallowed_methods, reason = "a slow service is slow in real time")]
        tokio::time::sleep(std::time::Duration::from_millis(slow)).await;
    }
    answer.map(|answer| respond_with(&answer)).ok_or(LostResponseError)
}

fn respond_with(answer: &EmulatorResponse) -> Response<Full<Bytes>> {
    let body = if answer.body.is_null() { Bytes::new() } else { Bytes::from(answer.body.to_string()) };
    let mut builder = Response::builder().status(answer.status).header("content-type", "application/json");
    for (name, value) in &answer.headers {
        builder = builder.header(name, value);
    }
    builder.body(Full::new(body)).unwrap_or_else(|_| Response::new(Full::new(Bytes::new())))
}

/// Names and values of a query or a form.
pub fn form(text: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}
