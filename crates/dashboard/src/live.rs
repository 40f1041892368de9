//! The stream of changes: the regions of one page, rendered again when something happened.
//!
//! Takes the page and the last id that a browser has seen; gives events with the regions that changed since the last
//! one. Promise: a browser that reconnects with its last id gets what changed meanwhile; nothing is sent to a session
//! that has ended; every event carries the gateway's time.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use serde_json::json;
use sluice_core::Millis;
use sluice_core::refusal::Code;
use sluice_gateway::{Gateway, GatewayPhase};
use sluice_services::CallError;
use sluice_services::events::{self, EventCursor, EventListener, EventStreamSlot};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::context::{PageAddress, PageContext, SignedInVisitor};
use crate::fields::FormFields;
use crate::pages::{self, PageRegion, layout};
use crate::reply::DashboardReply;

/// The interval of heartbeats.
const HEARTBEAT: Millis = Millis::from_secs(15);
/// How long changes are collected before a page is rendered again.
const COLLECT: Millis = Millis::from_millis(80);

/// One open page.
struct PageStream {
    gw: Arc<Gateway>,
    visitor: SignedInVisitor,
    page: PageAddress,
    query: FormFields,
    cursor: EventCursor,
    /// What the browser shows: the regions by id.
    shown: HashMap<&'static str, String>,
    /// Whether the page was rendered since the stream began.
    has_rendered: bool,
    said_hello: bool,
    /// Returned when the stream ends.
    _slot: EventStreamSlot,
}

/// Opens the stream of one page.
pub(crate) async fn open(
    gw: &Arc<Gateway>,
    visitor: SignedInVisitor,
    query: &FormFields,
    headers: &HeaderMap,
) -> Result<DashboardReply, CallError> {
    let (path, filter) = query.get("page").split_once('?').unwrap_or((query.get("page"), ""));
    let page = PageAddress::parse(path).ok_or_else(|| CallError::new(Code::DoorNotFound))?;
    let limits = &gw.config.limits;
    let slot = gw.signals.events.reserve_slot(visitor.principal.key(), limits.streams, limits.streams_per_key);
    let slot = slot.ok_or_else(|| CallError::new(Code::DoorTooMany))?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).unwrap_or_else(|| query.get("after"));
    let cursor =
        last.parse().map_err(|()| CallError::with_text(Code::DoorParameter, "this is no position in the stream"))?;
    let stream = PageStream {
        gw: Arc::clone(gw),
        visitor,
        page,
        query: FormFields::parse(filter)?,
        cursor,
        shown: HashMap::new(),
        has_rendered: false,
        said_hello: false,
        _slot: slot,
    };
    Ok(DashboardReply::events(stream::unfold(stream, next)))
}

/// The next part of the stream.
async fn next(mut open: PageStream) -> Option<(Bytes, PageStream)> {
    let gw = Arc::clone(&open.gw);
    if !open.said_hello {
        open.said_hello = true;
        // Sent at once, so that the browser knows that the stream is open.
        return Some((Bytes::from_static(b"retry: 2000\n: open\n\n"), open));
    }
    let mut listening: Option<EventListener<'_>> = None;
    loop {
        if gw.phase() == GatewayPhase::Stopping || !open.may_see().await {
            return None;
        }
        // From here on no entry can be missed: subscribe first, then read what there is.
        let live = listening.get_or_insert_with(|| gw.signals.events.listen());
        let mut is_new = false;
        while !events::after(&gw.store, &mut open.cursor).await.ok()?.is_empty() {
            is_new = true;
        }
        if is_new {
            if let Some(bytes) = open.render().await {
                return Some((bytes, open));
            }
            continue;
        }
        let heard = tokio::select! {
            heard = timeout(HEARTBEAT.as_duration(), live.receiver.recv()) => heard,
            () = gw.wait_for_stop() => return None,
        };
        match heard {
            // One use case writes several entries, and several follow each other closely: they are one change.
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => {
                let _collected = timeout(COLLECT.as_duration(), gw.wait_for_stop()).await;
            }
            Ok(Err(RecvError::Closed)) => return None,
            Err(_) => {
                let clock = format!("event: clock\ndata: {}\n\n", gw.now().as_millis());
                return Some((Bytes::from(clock), open));
            }
        }
    }
}

impl PageStream {
    /// SECURITY: a session that was ended, and one whose credential was revoked, keeps no stream open.
    async fn may_see(&self) -> bool {
        let found = self.gw.store.dashboard_session(self.visitor.cookie_hash).await;
        let is_live = found.is_ok_and(|found| found.is_some_and(|session| session.is_live(self.gw.now())));
        is_live && self.visitor.principal.is_still_valid(&self.gw).await
    }

    /// The regions that differ from what the browser shows, as one event; nothing if none does.
    async fn render(&mut self) -> Option<Bytes> {
        let context = PageContext { gw: &self.gw, visitor: &self.visitor, query: &self.query, typed: None };
        let content = pages::content(&context, self.page).await.ok()?;
        let frame = layout::frame(&context, self.page.section()).await.ok()?;
        let all: Vec<PageRegion> = frame.into_iter().chain(content.regions).collect();
        // The first time, everything is sent: the browser drops what it shows already.
        let changed: Vec<&PageRegion> =
            all.iter().filter(|region| self.shown.get(region.id) != Some(&region.html)).collect();
        if changed.is_empty() && self.has_rendered {
            return None;
        }
        let gone: Vec<&str> =
            self.shown.keys().copied().filter(|id| !all.iter().any(|region| region.id == *id)).collect();
        let regions: Vec<_> = changed.iter().map(|region| json!({"id": region.id, "html": region.html})).collect();
        let data = json!({
            "now": self.gw.now().as_millis(), "title": content.title, "regions": regions, "gone": gone,
            "all": all.iter().map(|region| region.id).collect::<Vec<_>>(),
        });
        let bytes = Bytes::from(format!("id: {}\nevent: regions\ndata: {data}\n\n", self.cursor));
        self.shown = all.into_iter().map(|region| (region.id, region.html)).collect();
        self.has_rendered = true;
        Some(bytes)
    }
}
