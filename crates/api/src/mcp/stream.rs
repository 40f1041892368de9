//! Streams: tell a client that its tools have changed.
//!
//! Takes a client that listens, by `GET` in the older revisions and by `subscriptions/listen` in the newest; sends
//! `notifications/tools/list_changed` when its own list changes, also when it changed while the client was away. Promise: a
//! key that stops working ends its streams, and every key has a limited number of them.

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

use super::client_lists::{ClientToolLists, ToolListFingerprint};
use super::handler::{McpHandler, broken, guest_of};
use super::names::LiveToolNames;
use super::{McpCaller, STATELESS, notification, tools};
use crate::http::reply::{HttpReply, HttpReplyBody};
use crate::http::text_header;

/// The interval of heartbeats, and the longest time that a revoked key keeps a stream.
const HEARTBEAT: Millis = Millis::from_secs(15);

/// The header with the id of the last event that a client received.
const LAST_EVENT: &str = "last-event-id";

/// The list that the id of an event names. Another text names none.
fn fingerprint_of(id: &str) -> Option<ToolListFingerprint> {
    sluice_core::hex::decode(id)
}

/// The state of one listener.
struct ToolListListener {
    gw: Arc<Gateway>,
    names: Arc<LiveToolNames>,
    lists: Arc<ClientToolLists>,
    guest: Arc<McpCaller>,
    client: Option<String>,
    changes: watch::Receiver<u64>,
    /// The current list, as far as the client was told.
    seen: Option<ToolListFingerprint>,
    /// Whether the client had another list before it listened, and was not told yet.
    is_behind: bool,
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
    (names, lists): (&Arc<LiveToolNames>, &Arc<ClientToolLists>),
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
    // A client that comes back names the list that it was told of last; the gateway may have been restarted meanwhile.
    let before = text_header(headers, LAST_EVENT)?.and_then(fingerprint_of);
    let listener = ToolListListener::new(gw, (names, lists), Arc::new(guest), client)?;
    let pieces = stream::unfold((listener, true), move |(mut listener, first)| async move {
        if first {
            listener.begin(before).await;
            // An event without data: the client keeps its id and is told nothing.
            let id = if listener.is_behind { String::new() } else { format!("id: {}\n", listener.event_id()) };
            return Some((Bytes::from(format!(": listening\n{id}\n")), (listener, false)));
        }
        match listener.next().await {
            ListenerWakeup::Changed => {
                let told = notification("notifications/tools/list_changed", &listener.event_id());
                Some((told, (listener, false)))
            }
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
    let sources = (&handler.names, &handler.lists);
    let mut listener = ToolListListener::new(&handler.gw, sources, guest, client).map_err(|no| broken(&no))?;
    listener.begin(None).await;
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
        (names, lists): (&Arc<LiveToolNames>, &Arc<ClientToolLists>),
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
        let (gw, names, lists) = (Arc::clone(gw), Arc::clone(names), Arc::clone(lists));
        let changes = gw.changes.listen();
        Ok(Self { changes, gw, names, lists, guest, client, seen: None, is_behind: false, _seat: seat })
    }

    /// Compares the current list with the one that the client has: `before`, or the one it was given last.
    async fn begin(&mut self, before: Option<ToolListFingerprint>) {
        self.seen = self.list_fingerprint().await;
        let owner = self.guest.list_owner(self.client.as_deref());
        let opened_at = self.guest.session.as_ref().map(|session| session.opened_at);
        self.is_behind = match self.lists.listed(&owner).or(before) {
            Some(has) => Some(has) != self.seen,
            // Its list is of an earlier run of the gateway.
            None => opened_at.is_some_and(|at| self.lists.may_have_forgotten(at)),
        };
    }

    /// The id of an event: the list that the client knows of from then on.
    fn event_id(&self) -> String {
        sluice_core::hex::encode(&self.seen.unwrap_or_default())
    }

    /// The fingerprint of the current list.
    async fn list_fingerprint(&self) -> Option<[u8; 32]> {
        let viewer = self.guest.viewer(self.client.as_deref(), &self.lists);
        let list = tools::list(&self.gw, &self.names.now(), viewer).await;
        list.ok().map(|list| tools::fingerprint(&list))
    }

    async fn next(&mut self) -> ListenerWakeup {
        if std::mem::take(&mut self.is_behind) {
            return ListenerWakeup::Changed;
        }
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
