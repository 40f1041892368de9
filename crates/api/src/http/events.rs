//! Events: the audit log as a stream (SSE): for operators all of it, for agents their own part.
//!
//! Promise: a client that reconnects with the last id has missed nothing; a gateway that stops ends its streams at
//! once; a stream ends with the credential that opened it.

use std::sync::Arc;

use futures_util::stream;
use hyper::body::Bytes;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, HoldId, Millis};
use sluice_gateway::rooms::identity::Principal;
use sluice_gateway::{Gateway, GatewayPhase};
use sluice_services::CallError;
use sluice_services::events::{self, EventCursor, EventListener, EventStreamSlot, FeedEvent};
use sluice_services::value::at;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::reply::HttpReply;
use super::route::RoutedRequest;

/// The interval of heartbeats, so that neither side takes silence for a broken connection.
const HEARTBEAT: Millis = Millis::from_secs(15);

/// The state of one stream.
struct EventSubscriber {
    gw: Arc<Gateway>,
    /// The principal that opened it.
    principal: Principal,
    /// How far the audit log has been read.
    cursor: EventCursor,
    /// How far it has been sent: the position in the ids of events.
    sent: EventCursor,
    agent: Option<AgentName>,
    kinds: Vec<String>,
    waiting: std::collections::VecDeque<FeedEvent>,
    live: bool,
    /// Returned when the stream ends.
    _seat: EventStreamSlot,
}

/// `GET /v1/events`.
pub(super) async fn listen(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = Arc::clone(&visit.gw);
    let limits = &gw.config.limits;
    let seat = gw.signals.events.reserve_slot(visit.principal()?.key(), limits.streams, limits.streams_per_key);
    let seat = seat.ok_or_else(|| CallError::new(Code::DoorTooMany))?;
    let text = visit.last_event.clone().or(visit.query_param("after")?);
    let cursor = match text {
        Some(text) => {
            text.parse().map_err(|()| CallError::with_text(Code::SchemaBadName, "this is not an id of an event"))?
        }
        None => EventCursor::present(&gw.store).await?,
    };
    let kinds = visit.query_param::<String>("types")?.unwrap_or_default();
    let kinds = kinds.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
    let principal = visit.principal()?.clone();
    let listener = EventSubscriber {
        gw,
        sent: cursor.clone(),
        cursor,
        agent: principal.agent().cloned(),
        principal,
        kinds,
        waiting: std::collections::VecDeque::new(),
        live: false,
        _seat: seat,
    };
    Ok(HttpReply::stream(stream::unfold(listener, next)))
}

/// The next part of the stream: an event, or a heartbeat.
async fn next(mut listener: EventSubscriber) -> Option<(Bytes, EventSubscriber)> {
    let gw = Arc::clone(&listener.gw);
    let mut listening: Option<EventListener<'_>> = None;
    loop {
        while let Some(event) = listener.waiting.pop_front() {
            listener.sent.pass(&event);
            if listener.cares(&event).await {
                return listener.may_see().await.then(|| (listener.written(&event), listener));
            }
        }
        if gw.phase() == GatewayPhase::Stopping || !listener.may_see().await {
            return None;
        }
        // From here on no entry can be missed: subscribe first, then read what there is.
        let live = listening.get_or_insert_with(|| gw.signals.events.listen());
        let read = events::after(&gw.store, &mut listener.cursor).await.ok()?;
        if !read.is_empty() {
            listener.waiting = read.into();
            continue;
        }
        if !listener.live {
            listener.live = true;
            return Some((Bytes::from_static(b": listening\n\n"), listener));
        }
        let heard = tokio::select! {
            heard = timeout(HEARTBEAT.as_duration(), live.receiver.recv()) => heard,
            () = gw.wait_for_stop() => return None,
        };
        match heard {
            // Whatever the event was, the database has it.
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => {}
            Ok(Err(RecvError::Closed)) => return None,
            Err(_) if !listener.may_see().await => return None,
            Err(_) => return Some((Bytes::from_static(b": alive\n\n"), listener)),
        }
    }
}

impl EventSubscriber {
    /// SECURITY: a revoked or expired credential opens no stream and keeps none open.
    async fn may_see(&self) -> bool {
        self.principal.is_still_valid(&self.gw).await
    }

    async fn cares(&self, event: &FeedEvent) -> bool {
        let kind = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => event.kind.starts_with(start),
            None => event.kind == *wanted,
        };
        if !self.kinds.is_empty() && !self.kinds.iter().any(kind) {
            return false;
        }
        match &self.agent {
            Some(agent) => concerns(&self.gw, event, agent).await,
            None => true,
        }
    }

    /// One event in the SSE format. Its id is the position to continue from after it.
    fn written(&self, event: &FeedEvent) -> Bytes {
        Bytes::from(format!("id: {}\nevent: {}\ndata: {}\n\n", self.sent, event.kind, event.entry))
    }
}

/// SECURITY: an agent sees its own actions and the progress of its writes, and nothing of other agents.
async fn concerns(gw: &Gateway, event: &FeedEvent, agent: &AgentName) -> bool {
    if *at(&event.entry, "/fact/actor") == format!("agent:{agent}") {
        return true;
    }
    let Some(hold) = at(&event.entry, "/fact/hold").as_str().and_then(|id| id.parse::<HoldId>().ok()) else {
        return false;
    };
    gw.store.hold(hold).await.ok().flatten().is_some_and(|hold| hold.agent() == agent)
}
