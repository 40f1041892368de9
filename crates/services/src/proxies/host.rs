//! The gateway's side of one task: sends, counts and logs the worker's requests.
//!
//! Promise: a second request, beyond the one that the operation declares, ends the task; a leak or an exceeded limit
//! ends it too, each with its own cause.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sluice_core::crash::CrashCause;
use sluice_core::ids::JobId;
use sluice_core::service_status::WriteFate;
use sluice_core::{AgentName, Clock, Millis, ServiceName};
use sluice_egress::{Egress, EgressError, EgressRequest, EgressResponse, EgressTicket};
use sluice_store::Store;
use tokio::runtime::Handle;

use crate::workers::{ExchangeReply, WorkerExchange, WorkerHost, WorkerItem};

/// Serves one worker.
pub(super) struct ProxyTaskHost {
    pub egress: Arc<Egress>,
    pub store: Arc<Store>,
    /// The agent that it works for, and the service name by which freezes cover its proxy.
    pub scope: (AgentName, ServiceName),
    pub clock: Arc<dyn Clock>,
    pub handle: Handle,
    /// Scheme, host and port of every request.
    pub origin: String,
    /// The task, under whose id requests are counted.
    pub task: JobId,
    /// Number of requests made.
    pub requests: u64,
    /// The status that the service answered with, as the gateway saw it.
    pub status: Option<u16>,
    /// Whether a request that changes something may have been sent.
    pub changed: bool,
    /// Lines for the log of the workspace: hashes and lengths, never content.
    pub lines: Vec<Value>,
    /// The last answer, or the request that would have leaked: kept to be hashed if it turns out to be an attack.
    pub last: Option<Bytes>,
    /// Why egress refused, if it did.
    pub refused: Option<EgressError>,
    /// The largest answer that is read.
    pub largest: u64,
    /// Requests that may have been sent, and the most bytes that may have come back.
    pub spent: (u64, u64),
    /// Whether the leak scan stopped the request.
    pub leaked: bool,
    /// The size of the answer, if one came.
    pub answer_bytes: Option<u64>,
    /// The part of the task's time that the service does not get.
    pub margin: Millis,
}

impl WorkerHost for ProxyTaskHost {
    fn exchange(&mut self, exchange: WorkerExchange, left: Millis) -> Result<ExchangeReply, CrashCause> {
        let WorkerExchange { ticket, method, path, headers, body } = exchange;
        // One task, one request. A second request is not declared.
        if self.requests > 0 {
            return Err(CrashCause::Forbidden);
        }
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| CrashCause::MalformedFrame)?;
        let reads = method == Method::GET;
        let (length, body) = (body.len(), Bytes::from(body));
        let leaving = if body.is_empty() { Bytes::from(path.clone()) } else { body.clone() };
        let request = EgressRequest {
            method: method.clone(),
            url: format!("{}{path}", self.origin),
            headers,
            body,
            follow: false,
            timeout: Some(Millis::from_millis(left.as_millis().saturating_sub(self.margin.as_millis()))),
        };
        self.requests += 1;
        // Until the outcome is known, it counts with its maximum.
        self.spent = (1, self.largest);
        let task = self.task;
        let (egress, ticket) = (Arc::clone(&self.egress), EgressTicket::presented(&ticket));
        let (store, (agent, service)) = (Arc::clone(&self.store), self.scope.clone());
        let answered = self.handle.block_on(async {
            // A freeze may have come since the task began: its ticket is no longer valid then.
            store.refuse_if_frozen(agent, service).await?;
            // Before it is sent: after a crash of the gateway, the count shows that there was a request.
            store.count_task_request(task).await?;
            egress.exchange(&ticket, request).await
        });
        self.note(&method, length, &answered);
        match answered {
            Ok(EgressResponse { status, headers, body, .. }) => {
                self.changed |= !reads && !WriteFate::of_status(status).is_not_applied();
                self.status = Some(status);
                (self.spent.1, self.answer_bytes) = (body.len() as u64, Some(body.len() as u64));
                self.last = Some(body.clone());
                Ok(ExchangeReply::Answer { status, headers, body: body.to_vec() })
            }
            Err(EgressError::Leak(found)) => {
                self.last = Some(leaving);
                self.spent = (0, 0);
                self.leaked = true;
                Err(CrashCause::Leak { findings: u32::try_from(found.len()).unwrap_or(u32::MAX) })
            }
            Err(no) => {
                self.changed |= !reads && no.may_have_left();
                if !no.may_have_left() {
                    self.spent = (0, 0);
                }
                let reply = ExchangeReply::Refused {
                    code: no.code().as_str().into(),
                    text: no.to_string(),
                    not_sent: !no.may_have_left(),
                };
                self.refused = Some(no);
                Ok(reply)
            }
        }
    }

    fn item(&mut self, _: WorkerItem) -> Result<(), CrashCause> {
        Err(CrashCause::MalformedFrame)
    }
}

impl ProxyTaskHost {
    fn note(&mut self, method: &Method, length: usize, answered: &Result<EgressResponse, EgressError>) {
        let at = self.clock.now().to_string();
        let (status, bytes, code) = match answered {
            Ok(answer) => (Some(answer.status), answer.body.len(), None),
            Err(no) => (None, 0, Some(no.code().as_str())),
        };
        let mut line = json!({
            "at": at, "event": "exchange", "method": method.as_str(), "request_bytes": length, "status": status,
            "answer_bytes": bytes, "refused": code,
        });
        if let (Err(EgressError::Leak(found)), Some(line)) = (answered, line.as_object_mut()) {
            line.insert("patterns".into(), json!(found));
        }
        self.lines.push(line);
    }
}
