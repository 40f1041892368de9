//! Streams: telling a client that its tools have changed.
//!
//! Takes a client that listens, by `GET` in the older revisions and by `subscriptions/listen` in the newest; gives
//! `notifications/tools/list_changed` when its own list is another one. Promise: a key that stops working ends its
//! streams, and every key has a limited number of them.

use std::sync::Arc;

use futures_util::stream;
use http::{HeaderMap, Response, header};
use hyper::body::Bytes;
use rmcp::ErrorData;
use rmcp::model::{ServerNotification, ToolListChangedNotification};
use rmcp::service::SubscriptionContext;
use sluice_core::Span;
use sluice_core::refusal::Code;
use tokio::sync::watch;
use tokio::time::timeout;

use super::handler::{Handler, broken, guest_of};
use super::names::LiveNames;
use super::{Guest, STATELESS, notification, tools};
use crate::doors::http::reply::{Body, Reply};
use crate::doors::http::text_header;
use crate::events::Seat;
use crate::gateway::Phase;
use crate::{Gateway, No};

/// A sign of life, and the longest a revoked key keeps a stream.
const HEARTBEAT: Span = Span::from_secs(15);

/// One who listens.
struct Listener {
    gw: Arc<Gateway>,
    names: Arc<LiveNames>,
    guest: Arc<Guest>,
    client: Option<String>,
    changes: watch::Receiver<u64>,
    /// The list as the client knows it.
    seen: Option<[u8; 32]>,
    /// Given back when the stream ends.
    _seat: Seat,
}

/// What a listener wakes up to.
enum Woken {
    /// Its list is another one.
    Changed,
    /// Nothing, for a while.
    Alive,
    /// There is nothing more to listen to.
    Over,
}

/// `GET`: the stream of the older revisions.
pub(super) fn open(
    gw: &Arc<Gateway>,
    names: &Arc<LiveNames>,
    headers: &HeaderMap,
    guest: Guest,
) -> Result<Response<Body>, No> {
    let id = guest.request;
    let revision = text_header(headers, "mcp-protocol-version")?.unwrap_or_default();
    let accepts = text_header(headers, header::ACCEPT.as_str())?.unwrap_or_default();
    if revision >= STATELESS {
        return Err(No::new(Code::DoorMethod));
    }
    if !accepts.contains("text/event-stream") && !accepts.contains("*/*") {
        return Err(No::saying(Code::DoorMediaType, "a stream is asked for with accept: text/event-stream"));
    }
    let client = guest.session.as_ref().and_then(|session| session.client.clone());
    let listener = Listener::new(gw, names, Arc::new(guest), client)?;
    let pieces = stream::unfold((listener, true), |(mut listener, first)| async move {
        if first {
            listener.seen = listener.print().await;
            return Some((Bytes::from_static(b": listening\n\n"), (listener, false)));
        }
        match listener.next().await {
            Woken::Changed => Some((notification("notifications/tools/list_changed"), (listener, false))),
            Woken::Alive => Some((Bytes::from_static(b": alive\n\n"), (listener, false))),
            Woken::Over => None,
        }
    });
    Ok(Reply::stream(pieces).into_response(id))
}

/// `subscriptions/listen`: the stream of the newest revision.
pub(super) async fn listen(handler: &Handler, context: SubscriptionContext) -> Result<(), ErrorData> {
    let request = context.request_context();
    let guest = guest_of(request)?;
    let client = request.client_info().map(|client| client.name);
    let mut listener = Listener::new(&handler.gw, &handler.names, guest, client).map_err(|no| broken(&no))?;
    listener.seen = listener.print().await;
    loop {
        let woken = tokio::select! {
            woken = listener.next() => woken,
            () = context.cancelled() => return Ok(()),
        };
        match woken {
            Woken::Changed => {
                let changed = ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default());
                if context.sink().send(changed).await.is_err() {
                    return Ok(());
                }
            }
            Woken::Alive => {}
            Woken::Over => return Ok(()),
        }
    }
}

impl Listener {
    fn new(gw: &Arc<Gateway>, names: &Arc<LiveNames>, guest: Arc<Guest>, client: Option<String>) -> Result<Self, No> {
        let limits = &gw.config.limits;
        let seat = gw.events.seat(guest.visitor.key(), limits.streams, limits.streams_per_key);
        let seat = seat.ok_or_else(|| {
            tracing::warn!(
                agent.id = %guest.agent,
                "a client of {} is not told when its tools change: its key has {} streams, or the gateway all it may \
                 (limits.streams_per_key, limits.streams)",
                guest.agent, limits.streams_per_key
            );
            No::new(Code::DoorTooMany)
        })?;
        let (gw, names) = (Arc::clone(gw), Arc::clone(names));
        Ok(Self { changes: gw.changes.listen(), gw, names, guest, client, seen: None, _seat: seat })
    }

    /// The list as it is now.
    async fn print(&self) -> Option<[u8; 32]> {
        let viewer = self.guest.viewer(self.client.as_deref());
        let list = tools::list(&self.gw, &self.names.now(), viewer).await;
        list.ok().map(|list| tools::print(&list))
    }

    async fn next(&mut self) -> Woken {
        loop {
            let changed = timeout(HEARTBEAT.as_duration(), self.changes.changed()).await;
            if self.gw.phase() == Phase::Stopping || !self.guest.visitor.still_known(&self.gw).await {
                return Woken::Over;
            }
            match changed {
                Err(_) => return Woken::Alive,
                Ok(Err(_)) => return Woken::Over,
                Ok(Ok(())) => {
                    let now = self.print().await;
                    if now.is_some() && now != self.seen {
                        self.seen = now;
                        return Woken::Changed;
                    }
                }
            }
        }
    }
}
