//! The gateway's side of one task: what the worker asks for is sent, counted and noted.
//!
//! Promise: a request beyond the one the operation declares ends the task; what leaks or runs over ends it too, as
//! what it is.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sluice_core::crash::Cause;
use sluice_core::ids::JobId;
use sluice_core::service_status::WriteFate;
use sluice_core::{AgentName, Clock, ServiceName, Span};
use sluice_store::Store;
use tokio::runtime::Handle;

use crate::egress::{Answer, Egress, EgressNo, Request, Ticket};
use crate::workers::{Exchange, Host, Item, Reply};

/// Answers one worker.
pub(super) struct TaskHost {
    pub egress: Arc<Egress>,
    pub store: Arc<Store>,
    /// For whom it works, and what freezes call its proxy.
    pub scope: (AgentName, ServiceName),
    pub clock: Arc<dyn Clock>,
    pub handle: Handle,
    /// Scheme, host and port that every request goes to.
    pub origin: String,
    /// The task, under whose name requests are counted.
    pub task: JobId,
    /// Requests made.
    pub requests: u64,
    /// The status the service answered with, as the gateway saw it.
    pub status: Option<u16>,
    /// Whether one that changes something may have left.
    pub changed: bool,
    /// Lines for the workspace's log: hashes and lengths, never content.
    pub lines: Vec<Value>,
    /// The last answer, or what would have leaked: kept to be hashed if it turns out to be an attack.
    pub last: Option<Bytes>,
    /// Why egress said no, if it did.
    pub refused: Option<EgressNo>,
    /// The largest answer that is read.
    pub largest: u64,
    /// Requests that may have left, and the most bytes that can have come back.
    pub spent: (u64, u64),
    /// Whether the request held what must not leave.
    pub leaked: bool,
    /// How large the answer was, if one came.
    pub answer_bytes: Option<u64>,
    /// How much of the task's time the service does not get.
    pub margin: Span,
}

impl Host for TaskHost {
    fn exchange(&mut self, exchange: Exchange, left: Span) -> Result<Reply, Cause> {
        let Exchange { ticket, method, path, headers, body } = exchange;
        // One task, one request. A second one is not what was declared.
        if self.requests > 0 {
            return Err(Cause::Forbidden);
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| Cause::MalformedFrame)?;
        let reads = method == Method::GET;
        let (length, body) = (body.len(), Bytes::from(body));
        let leaving = if body.is_empty() { Bytes::from(path.clone()) } else { body.clone() };
        let request = Request {
            method: method.clone(),
            url: format!("{}{path}", self.origin),
            headers,
            body,
            follow: false,
            timeout: Some(Span::from_millis(left.as_millis().saturating_sub(self.margin.as_millis()))),
        };
        self.requests += 1;
        // Until the outcome is known, it counts as what it can be at most.
        self.spent = (1, self.largest);
        let task = self.task;
        let (egress, ticket) = (Arc::clone(&self.egress), Ticket::presented(&ticket));
        let (store, (agent, service)) = (Arc::clone(&self.store), self.scope.clone());
        let answered = self.handle.block_on(async {
            // A freeze may have come since the task began: its ticket is good for nothing then.
            store.refuse_if_frozen(agent, service).await?;
            // Before it leaves: whoever finds the task after a crash of the gateway knows of the request.
            store.count_task_request(task).await?;
            egress.exchange(&ticket, request).await
        });
        self.note(&method, length, &answered);
        match answered {
            Ok(Answer { status, headers, body, .. }) => {
                self.changed |= !reads && !WriteFate::of_status(status).is_not_applied();
                self.status = Some(status);
                (self.spent.1, self.answer_bytes) = (body.len() as u64, Some(body.len() as u64));
                self.last = Some(body.clone());
                Ok(Reply::Answer { status, headers, body: body.to_vec() })
            }
            Err(EgressNo::Leak(found)) => {
                self.last = Some(leaving);
                self.spent = (0, 0);
                self.leaked = true;
                Err(Cause::Leak { findings: u32::try_from(found.len()).unwrap_or(u32::MAX) })
            }
            Err(no) => {
                self.changed |= !reads && no.may_have_left();
                if !no.may_have_left() {
                    self.spent = (0, 0);
                }
                let reply = Reply::Refused {
                    code: no.code().as_str().into(),
                    text: no.to_string(),
                    not_sent: !no.may_have_left(),
                };
                self.refused = Some(no);
                Ok(reply)
            }
        }
    }

    fn item(&mut self, _: Item) -> Result<(), Cause> {
        Err(Cause::MalformedFrame)
    }
}

impl TaskHost {
    fn note(&mut self, method: &Method, length: usize, answered: &Result<Answer, EgressNo>) {
        let at = self.clock.now().to_string();
        let (status, bytes, code) = match answered {
            Ok(answer) => (Some(answer.status), answer.body.len(), None),
            Err(no) => (None, 0, Some(no.code().as_str())),
        };
        let mut line = json!({
            "at": at, "event": "exchange", "method": method.as_str(), "request_bytes": length, "status": status,
            "answer_bytes": bytes, "refused": code,
        });
        if let (Err(EgressNo::Leak(found)), Some(line)) = (answered, line.as_object_mut()) {
            line.insert("patterns".into(), json!(found));
        }
        self.lines.push(line);
    }
}
