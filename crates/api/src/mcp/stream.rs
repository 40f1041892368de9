//! Streams: tell a client that its tools have changed.
//!
//! Takes a client that listens, by `GET` in the older revisions and by `subscriptions/listen` in the newest; sends
//! `notifications/tools/list_changed` when its own list changes. Promise: a key that stops working ends its
//! streams, and every key has a limited number of them.

use std::sync::Arc;

use futures_util::stream;
use http::{HeaderMap, Response, header};
use hyper::body::Bytes;
use rmcp::ErrorData;
use rmcp::model::{ServerNotification, ToolListChangedNotification};
use rmcp::service::SubscriptionContext;
use sluice_core::Millis;
use sluice_core::refusal::Code;
use sluice_gateway::{Gateway, GatewayPhase};
use sluice_services::CallError;
use sluice_services::events::EventStreamSlot;
use tokio::sync::watch;
use tokio::time::timeout;

use super::handler::{McpHandler, broken, guest_of};
use super::names::LiveToolNames;
use super::{McpCaller, STATELESS, notification, tools};
use crate::http::reply::{HttpReply, HttpReplyBody};
use crate::http::text_header;

/// The interval of heartbeats, and the longest time that a revoked key keeps a stream.
const HEARTBEAT: Millis = Millis::from_secs(15);

/// The state of one listener.
struct ToolListListener {
    gw: Arc<Gateway>,
    names: Arc<LiveToolNames>,
    guest: Arc<McpCaller>,
    client: Option<String>,
    changes: watch::Receiver<u64>,
    /// The list as the client knows it.
    seen: Option<[u8; 32]>,
    /// Returned when the stream ends.
    _seat: EventStreamSlot,
}

/// Why a listener wakes up.
enum ListenerWakeup {
    /// Its list has changed.
    Changed,
    /// Nothing happened for a while.
    Alive,
    /// The stream is over.
    Over,
}

/// `GET`: the stream of the older revisions.
pub(super) fn open(
    gw: &Arc<Gateway>,
    names: &Arc<LiveToolNames>,
    headers: &HeaderMap,
    guest: McpCaller,
) -> Result<Response<HttpReplyBody>, CallError> {
    let id = guest.request;
    let revision = text_header(headers, "mcp-protocol-version")?.unwrap_or_default();
    let accepts = text_header(headers, header::ACCEPT.as_str())?.unwrap_or_default();
    if revision >= STATELESS {
        return Err(CallError::new(Code::DoorMethod));
    }
    if !accepts.contains("text/event-stream") && !accepts.contains("*/*") {
        return Err(CallError::with_text(Code::DoorMediaType, "a stream is asked for with accept: text/event-stream"));
    }
    let client = guest.session.as_ref().and_then(|session| session.client.clone());
    let listener = ToolListListener::new(gw, names, Arc::new(guest), client)?;
    let pieces = stream::unfold((listener, true), |(mut listener, first)| async move {
        if first {
            listener.seen = listener.list_fingerprint().await;
            return Some((Bytes::from_static(b": listening\n\n"), (listener, false)));
        }
        match listener.next().await {
            ListenerWakeup::Changed => Some((notification("notifications/tools/list_changed"), (listener, false))),
            ListenerWakeup::Alive => Some((Bytes::from_static(b": alive\n\n"), (listener, false))),
            ListenerWakeup::Over => None,
        }
    });
    Ok(HttpReply::stream(pieces).into_response(id))
}

/// `subscriptions/listen`: the stream of the newest revision.
pub(super) async fn listen(handler: &McpHandler, context: SubscriptionContext) -> Result<(), ErrorData> {
    let request = context.request_context();
    let guest = guest_of(request)?;
    let client = request.client_info().map(|client| client.name);
    let mut listener = ToolListListener::new(&handler.gw, &handler.names, guest, client).map_err(|no| broken(&no))?;
    listener.seen = listener.list_fingerprint().await;
    loop {
        let woken = tokio::select! {
            woken = listener.next() => woken,
            () = context.cancelled() => return Ok(()),
        };
        match woken {
            ListenerWakeup::Changed => {
                let changed = ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default());
                if context.sink().send(changed).await.is_err() {
                    return Ok(());
                }
            }
            ListenerWakeup::Alive => {}
            ListenerWakeup::Over => return Ok(()),
        }
    }
}

impl ToolListListener {
    fn new(
        gw: &Arc<Gateway>,
        names: &Arc<LiveToolNames>,
        guest: Arc<McpCaller>,
        client: Option<String>,
    ) -> Result<Self, CallError> {
        let limits = &gw.config.limits;
        let seat = gw.signals.events.reserve_slot(guest.principal.key(), limits.streams, limits.streams_per_key);
        let seat = seat.ok_or_else(|| {
            tracing::warn!(
                agent.id = %guest.agent,
                "a client of {} is not notified when its tools change: its key has {} streams, or the gateway has the \
                 most it may (limits.streams_per_key, limits.streams)",
                guest.agent, limits.streams_per_key
            );
            CallError::new(Code::DoorTooMany)
        })?;
        let (gw, names) = (Arc::clone(gw), Arc::clone(names));
        Ok(Self { changes: gw.changes.listen(), gw, names, guest, client, seen: None, _seat: seat })
    }

    /// The fingerprint of the current list.
    async fn list_fingerprint(&self) -> Option<[u8; 32]> {
        let viewer = self.guest.viewer(self.client.as_deref());
        let list = tools::list(&self.gw, &self.names.now(), viewer).await;
        list.ok().map(|list| tools::fingerprint(&list))
    }

    async fn next(&mut self) -> ListenerWakeup {
        loop {
            let changed = timeout(HEARTBEAT.as_duration(), self.changes.changed()).await;
            if self.gw.phase() == GatewayPhase::Stopping || !self.guest.principal.is_still_valid(&self.gw).await {
                return ListenerWakeup::Over;
            }
            match changed {
                Err(_) => return ListenerWakeup::Alive,
                Ok(Err(_)) => return ListenerWakeup::Over,
                Ok(Ok(())) => {
                    let now = self.list_fingerprint().await;
                    if now.is_some() && now != self.seen {
                        self.seen = now;
                        return ListenerWakeup::Changed;
                    }
                }
            }
        }
    }
}
