//! Events: the record as a stream (SSE), for operators whole, for agents their own part.
//!
//! Promise: whoever comes back with the last id has missed nothing; a gateway that stops ends its streams at once; a
//! stream ends with the credential that opened it.

use std::sync::Arc;

use futures_util::stream;
use hyper::body::Bytes;
use sluice_core::refusal::Code;
use sluice_core::{AgentName, HoldId, Span};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::reply::Reply;
use super::route::Visit;
use crate::events::{self, Cursor, Event, Listening, Seat};
use crate::gateway::Phase;
use crate::rooms::identity::Visitor;
use crate::value::at;
use crate::{Gateway, No};

/// A sign of life, so that neither side takes silence for a broken line.
const HEARTBEAT: Span = Span::from_secs(15);

/// Everything one stream remembers.
struct Listener {
    gw: Arc<Gateway>,
    /// Whose credential opened it.
    visitor: Visitor,
    /// How far the record has been read.
    cursor: Cursor,
    /// How far it has been sent: what the ids of events say.
    sent: Cursor,
    agent: Option<AgentName>,
    kinds: Vec<String>,
    waiting: std::collections::VecDeque<Event>,
    live: bool,
    /// Given back when the stream ends.
    _seat: Seat,
}

/// `GET /v1/events`.
pub(super) async fn listen(visit: Visit) -> Result<Reply, No> {
    let gw = Arc::clone(&visit.gw);
    let limits = &gw.config.limits;
    let seat = gw.events.seat(visit.visitor()?.key(), limits.streams, limits.streams_per_key);
    let seat = seat.ok_or_else(|| No::new(Code::DoorTooMany))?;
    let text = visit.last_event.clone().or(visit.asked("after")?);
    let cursor = match text {
        Some(text) => text.parse().map_err(|()| No::saying(Code::SchemaBadName, "this is not an id of an event"))?,
        None => Cursor::present(&gw.store).await?,
    };
    let kinds = visit.asked::<String>("types")?.unwrap_or_default();
    let kinds = kinds.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
    let visitor = visit.visitor()?.clone();
    let listener = Listener {
        gw,
        sent: cursor.clone(),
        cursor,
        agent: visitor.agent().cloned(),
        visitor,
        kinds,
        waiting: std::collections::VecDeque::new(),
        live: false,
        _seat: seat,
    };
    Ok(Reply::stream(stream::unfold(listener, next)))
}

/// The next piece of the stream: an event, or a heartbeat.
async fn next(mut listener: Listener) -> Option<(Bytes, Listener)> {
    let gw = Arc::clone(&listener.gw);
    let mut listening: Option<Listening<'_>> = None;
    loop {
        while let Some(event) = listener.waiting.pop_front() {
            listener.sent.pass(&event);
            if listener.cares(&event).await {
                return listener.may_see().await.then(|| (listener.written(&event), listener));
            }
        }
        if gw.phase() == Phase::Stopping || !listener.may_see().await {
            return None;
        }
        // From here on nothing that is written can be missed: first listen, then read what there is.
        let live = listening.get_or_insert_with(|| gw.events.listen());
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
            () = gw.stops() => return None,
        };
        match heard {
            // Whatever it was, the database has it.
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => {}
            Ok(Err(RecvError::Closed)) => return None,
            Err(_) if !listener.may_see().await => return None,
            Err(_) => return Some((Bytes::from_static(b": alive\n\n"), listener)),
        }
    }
}

impl Listener {
    /// SECURITY: a credential that was revoked or has expired opens nothing, and keeps nothing open.
    async fn may_see(&self) -> bool {
        self.visitor.still_known(&self.gw).await
    }

    async fn cares(&self, event: &Event) -> bool {
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

    /// One event as it goes over the line. Its id is where to go on from after it.
    fn written(&self, event: &Event) -> Bytes {
        Bytes::from(format!("id: {}\nevent: {}\ndata: {}\n\n", self.sent, event.kind, event.entry))
    }
}

/// SECURITY: an agent sees its own doings and what becomes of its writes, and nothing of others.
async fn concerns(gw: &Gateway, event: &Event, agent: &AgentName) -> bool {
    if *at(&event.entry, "/fact/actor") == format!("agent:{agent}") {
        return true;
    }
    let Some(hold) = at(&event.entry, "/fact/hold").as_str().and_then(|id| id.parse::<HoldId>().ok()) else {
        return false;
    };
    gw.store.hold(hold).await.ok().flatten().is_some_and(|hold| hold.agent() == agent)
}
