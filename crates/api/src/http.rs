//! The HTTP door: connections, and the way of one request to its handler.
//!
//! Takes bytes within limits of size, number and time; gives the answer of one route of the table
//! ([`routes::all`]). Promise: a request with a foreign host or origin, a wrong kind of credential, or a body that is
//! too large or too slow never reaches a handler; a client that does not read its answers is disconnected; every
//! refusal is a problem document with a stable code; the stop lane has its own listener, connections and thread.

mod admission;
mod agents;
mod approvals;
mod body;
pub(crate) mod calls;
mod channels;
mod clock;
mod dashboard_sessions;
mod dead_letters;
mod egress;
mod events;
mod findings;
mod gate;
mod head_deadline;
mod holds;
mod inbox;
mod mount_sign_in;
mod mounts;
mod nodes;
pub mod openapi;
mod policy;
mod proxies;
mod proxy_reports;
mod record;
pub mod record_search;
mod recovery;
pub mod reply;
pub mod route;
pub mod routes;
mod secrets;
mod services;
mod sessions;
mod settling;
mod status;
mod suggest;
pub mod views;
mod watches;
mod write_deadline;

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use sluice_config::ByteSize;
use sluice_core::ids::RequestId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Millis, json};
use sluice_dashboard::Dashboard;
use sluice_gateway::rooms::hold::LONGEST_WAIT;
use sluice_gateway::rooms::identity::{self, Principal};
use sluice_gateway::tls::LiveTls;
use sluice_gateway::{Gateway, GatewayPhase, keys};
use sluice_services::CallError;
use sluice_store::Store;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::admission::{BusyCounter, ConnectionAdmission};
use self::head_deadline::{HeadDeadlineStream, HeadProgress};
use self::reply::{HttpReply, HttpReplyBody};
use self::route::{ListenerLane, MatchedRoute, RouteAccess, RouteTable, RoutedRequest};
use self::write_deadline::{WriteBacklog, WriteDeadlineStream};
use crate::mcp::{self, McpDoor};
use crate::telegram_webhook::{self, TelegramWebhookDoor};
use crate::{approval_page, dashboard_door};

/// The answer to a connection above the limit.
const FULL: &str = "{\"type\":\"urn:sluice:problem:door.overloaded\",\"title\":\"the gateway has more work than it can \
take\",\"status\":503,\"detail\":\"too many connections\",\"code\":\"door.overloaded\",\"hint\":\"wait as long as advised \
and send the same call again\",\"retry\":\"after\",\"retry_after_ms\":5000}";

/// Tells a connection above the limit to come back later, and waits a moment until the answer was received.
async fn turn_away(mut stream: TcpStream) {
    let length = FULL.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 5\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{FULL}"
    );
    // Closing with unread bytes would reset the connection, and the answer would be lost.
    let _heard = timeout(Millis::from_secs(1).as_duration(), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    })
    .await;
}

/// The door of one listener.
#[derive(Debug)]
pub struct HttpDoor {
    gw: Arc<Gateway>,
    /// The database as this door uses it: a request on the stop lane never waits for an ordinary connection.
    store: Arc<Store>,
    /// The database for credential checks: on the stop lane, not even counting uses is waited for.
    credentials: Arc<Store>,
    routes: RouteTable,
    lane: ListenerLane,
    /// The MCP door. Only the main listener has it.
    mcp: Option<McpDoor>,
    /// The dashboard. Only the main listener has it.
    dashboard: Option<Dashboard>,
    /// The Telegram webhook door, if configured. Only the main listener has it.
    hook: Option<TelegramWebhookDoor>,
}

impl HttpDoor {
    /// Makes the door of the main listener, or of the stop lane.
    ///
    /// # Errors
    /// When two routes of the table conflict.
    pub fn new(gw: Arc<Gateway>, lane: ListenerLane) -> Result<Arc<Self>, CallError> {
        let mcp = (lane == ListenerLane::Main).then(|| McpDoor::new(&gw));
        let dashboard = (lane == ListenerLane::Main).then(|| Dashboard::new(&gw));
        let hook = if lane == ListenerLane::Main { TelegramWebhookDoor::new(&gw) } else { None };
        let store = match lane {
            ListenerLane::Main => Arc::clone(&gw.store),
            ListenerLane::Stop => Arc::new(gw.store.with_status_reads()),
        };
        let credentials = match lane {
            ListenerLane::Main => Arc::clone(&gw.store),
            ListenerLane::Stop => Arc::new(gw.store.with_stop_reads()),
        };
        Ok(Arc::new(Self { gw, store, credentials, routes: RouteTable::new(lane)?, lane, mcp, dashboard, hook }))
    }

    fn most_connections(&self) -> usize {
        match self.lane {
            ListenerLane::Main => self.gw.config.limits.connections as usize,
            ListenerLane::Stop => 256,
        }
    }
}

/// Serves a listener until told to stop; then lets requests under way finish.
pub async fn serve(
    door: Arc<HttpDoor>,
    listener: TcpListener,
    tls: Option<Arc<LiveTls>>,
    mut stop: watch::Receiver<bool>,
) {
    let of_a_peer = door.gw.config.limits.connections_per_peer as usize;
    let mut crowd = ConnectionAdmission::new(door.lane, door.most_connections(), of_a_peer);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = accepted else { continue };
        let Some(place) = crowd.place(peer.ip()).await else {
            // The client is told why, instead of waiting in a queue that may never move.
            connections.spawn(turn_away(stream));
            continue;
        };
        // Small answers are sent at once.
        let _ignored = stream.set_nodelay(true);
        let (door, tls, stop) = (Arc::clone(&door), tls.clone(), stop.clone());
        let (busy, backlog, head) = (BusyCounter::default(), WriteBacklog::default(), HeadProgress::default());
        let connected = HttpConnection { peer, busy: busy.clone(), backlog: backlog.clone(), head: head.clone() };
        let task = connections.spawn(async move {
            match tls {
                Some(tls) => {
                    let head = door.gw.config.limits.head_timeout.as_duration();
                    if let Ok(Ok(stream)) = timeout(head, tls.acceptor().accept(stream)).await {
                        talk(door, stream, connected, stop).await;
                    }
                }
                None => talk(door, stream, connected, stop).await,
            }
            drop(place);
        });
        crowd.entered(task, (busy, backlog, head), peer.ip());
    }
    let patience = Millis::from_secs(10).as_duration();
    let _cut = timeout(patience, async { while connections.join_next().await.is_some() {} }).await;
}

/// What the listener knows of a connection.
struct HttpConnection {
    peer: SocketAddr,
    busy: BusyCounter,
    backlog: WriteBacklog,
    head: HeadProgress,
}

/// Serves one connection, from its first request to its last.
async fn talk<S>(door: Arc<HttpDoor>, stream: S, connected: HttpConnection, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &door.gw.config.limits;
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Also runs between two requests. The time for a head that has begun is measured where it is read.
        .header_read_timeout(limits.idle_timeout.max(limits.head_timeout).as_duration())
        .max_headers(limits.headers as usize)
        .max_buf_size(bytes(limits.head))
        .keep_alive(true);
    let HttpConnection { peer, busy, backlog, head } = connected;
    let stream = HeadDeadlineStream::new(
        WriteDeadlineStream::new(stream, limits.write_timeout, backlog.clone()),
        limits.head_timeout,
        head.clone(),
    );
    let served = Arc::clone(&door);
    let too_far_ahead = Arc::new(Notify::new());
    let ends = Arc::clone(&too_far_ahead);
    let service = service_fn(move |request| {
        let (door, at_work, behind) = (Arc::clone(&served), busy.begin(), backlog.since().is_some());
        head.arrived();
        if behind {
            // The client has not read the earlier answers: this request is not handled, and the connection ends.
            ends.notify_one();
        }
        let head = head.clone();
        async move {
            if behind {
                std::future::pending::<()>().await;
            }
            let answered = answer(&door, request, peer).await;
            drop(at_work);
            head.expected();
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    loop {
        tokio::select! {
            // A broken connection is the client's problem; committed work stays committed.
            _ended = connection.as_mut() => return,
            () = too_far_ahead.notified() => return,
            changed = stop.changed() => {
                if changed.is_err() || *stop.borrow() {
                    connection.as_mut().graceful_shutdown();
                    let _ended = timeout(Millis::from_secs(5).as_duration(), connection.as_mut()).await;
                    return;
                }
            }
        }
    }
}

/// Handles one request and answers it.
async fn answer(door: &Arc<HttpDoor>, request: Request<Incoming>, peer: SocketAddr) -> Response<HttpReplyBody> {
    let id = RequestId::mint(door.gw.ids.as_ref());
    let handled = AssertUnwindSafe(async {
        check_head(&door.gw, &request)?;
        if let (Some(hook), telegram_webhook::PATH) = (&door.hook, request.uri().path()) {
            return hook.visit(&door.gw, request, id).await;
        }
        if let Some(dashboard) = door.dashboard.as_ref().filter(|_| dashboard_door::is_for_dashboard(&request)) {
            return dashboard_door::visit(&door.gw, dashboard, request, (peer, id)).await;
        }
        match &door.mcp {
            Some(mcp) if request.uri().path() == mcp::PATH => {
                check_started(door, RouteAccess::Agent)?;
                mcp.visit(request, id).await
            }
            Some(_) if approval_page::is_at(&door.gw, request.uri().path()) => {
                Ok(approval_page::visit(&door.gw, request, id).await)
            }
            Some(_) | None => Ok(handle(door, request, id).await?.into_response(id)),
        }
    });
    let reply = match handled.catch_unwind().await {
        Ok(Ok(response)) => return response,
        Ok(Err(no)) => {
            if no.refusal.code().status() >= 500 {
                let inside = std::error::Error::source(&no.refusal).map(ToString::to_string).unwrap_or_default();
                let (code, is_early) = (no.refusal.code().as_str(), no.refusal.code() == Code::GatewayStarting);
                match is_early {
                    true => tracing::debug!(request = %id, code, %peer, "request before the gateway was open"),
                    false => tracing::error!(request = %id, code, %peer, "{}: {inside}", no.refusal),
                }
            }
            HttpReply::refuse(no, id)
        }
        Err(_panic) => {
            tracing::error!(request = %id, "a handler panicked");
            HttpReply::refuse(CallError::new(Code::GatewayInternal), id)
        }
    };
    reply.into_response(id)
}

async fn handle(door: &Arc<HttpDoor>, request: Request<Incoming>, id: RequestId) -> Result<HttpReply, CallError> {
    let gw = &door.gw;
    let (head, body) = request.into_parts();
    check_host(gw, &head.headers)?;
    check_origin(gw, &head.headers)?;
    let path = head.uri.path();
    let MatchedRoute { route, params } = door.routes.find(&head.method, path)?;
    tracing::trace!(request = %id, method = route.method, path = route.path, "request for {} {}", route.method, route.path);
    check_started(door, route.access)?;
    let who = check_access(gw, &door.credentials, route.access, &head.headers).await?;
    let query = query_of(head.uri.query().unwrap_or_default())?;
    check_query(route, &query)?;
    let body = match route.body {
        Some(_) => Some(read_body(gw, &head.headers, body).await?),
        None => None,
    };
    if let Some(who) = &who {
        who.recheck_credential(gw, &door.credentials).await?;
    }
    let last_event = text_header(&head.headers, "last-event-id")?.map(str::to_owned);
    let idempotency_key = text_header(&head.headers, "idempotency-key")?.map(str::to_owned);
    let store = Arc::clone(&door.store);
    let (gw, lane) = (Arc::clone(&door.gw), door.lane);
    let visit = RoutedRequest { who, params, query, body, request: id, last_event, idempotency_key, gw, store, lane };
    // Waiting for an outcome is not part of the work, and has its own limit.
    let limit = (door.gw.config.limits.request_timeout + LONGEST_WAIT).as_duration();
    let done =
        timeout(limit, (route.handler)(visit)).await.unwrap_or_else(|_| Err(CallError::new(Code::GatewayUnavailable)));
    if let Err(no) = &done {
        let code = no.refusal.code();
        // Errors of the gateway itself are documented once for all routes.
        let known = code.status() >= 500 || route.codes().contains(&code);
        debug_assert!(known, "{} refuses with {}, which it does not document", route.path, code.as_str());
    }
    done
}

/// Until the gateway has recovered what was left open, only the stop lane and open routes answer.
fn check_started(door: &HttpDoor, access: RouteAccess) -> Result<(), CallError> {
    match (door.lane, access, door.gw.phase()) {
        (ListenerLane::Stop, _, _)
        | (_, RouteAccess::Open, _)
        | (_, _, GatewayPhase::Open | GatewayPhase::Stopping) => Ok(()),
        (ListenerLane::Main, _, GatewayPhase::Starting) => Err(CallError::new(Code::GatewayStarting)),
    }
}

/// The reader's buffer grows in steps, so the limit is checked here to the byte.
fn check_head(gw: &Gateway, request: &Request<Incoming>) -> Result<(), CallError> {
    let uri = request.uri().path_and_query().map_or(0, |address| address.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let size: usize = uri + headers.sum::<usize>();
    if size > bytes(gw.config.limits.head) { Err(CallError::new(Code::DoorHeadTooLarge)) } else { Ok(()) }
}

/// Refuses unknown parameters: an unknown filter would otherwise be ignored and return everything.
fn check_query(route: &route::Route, query: &[(String, String)]) -> Result<(), CallError> {
    let unknown = query.iter().find(|(name, _)| !route.query.iter().any(|known| known.name == name));
    let Some((name, _)) = unknown else { return Ok(()) };
    let known: Vec<&str> = route.query.iter().map(|known| known.name).collect();
    let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    let text = match known.as_slice() {
        [] => format!("there is no parameter `{name}` here; this route has no parameters"),
        known => format!("there is no parameter `{name}` here; the parameters are {}", known.join(", ")),
    };
    Err(CallError::with_text(Code::DoorParameter, &text))
}

/// SECURITY: a page whose name was made to resolve to us (DNS rebinding) sends its own name as the host.
pub(crate) fn check_host(gw: &Gateway, headers: &HeaderMap) -> Result<(), CallError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(CallError::with_text(Code::DoorHeaders, "a request names exactly one host"));
    };
    let host = host.to_str().map_err(|_| CallError::new(Code::DoorHeaders))?;
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    let local = ["localhost", "127.0.0.1", "::1"].contains(&name);
    let listens = gw.config.listen.ip().to_string() == name;
    let public = gw.config.public_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if local || listens || public { Ok(()) } else { Err(CallError::new(Code::DoorOrigin)) }
}

/// SECURITY: browsers say which page a request comes from; programs do not.
pub(crate) fn check_origin(gw: &Gateway, headers: &HeaderMap) -> Result<(), CallError> {
    match headers.get(header::ORIGIN) {
        None => Ok(()),
        Some(origin) if gw.config.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) => Ok(()),
        Some(_) => Err(CallError::new(Code::DoorOrigin)),
    }
}

/// Whether the principal may use this route.
pub(crate) async fn check_access(
    gw: &Gateway,
    store: &Store,
    access: RouteAccess,
    headers: &HeaderMap,
) -> Result<Option<Principal>, CallError> {
    if access == RouteAccess::Open {
        return Ok(None);
    }
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next(), given.next());
    let first = first.ok_or_else(|| CallError::new(Code::IdentityMissing))?;
    if second.is_some() {
        return Err(CallError::with_text(Code::DoorHeaders, "a request carries one credential"));
    }
    let text = first.to_str().map_err(|_| CallError::new(Code::IdentityUnknown))?;
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        Some(_) | None => return Err(CallError::new(Code::IdentityMissing)),
    };
    let principal = match identity::principal(gw, token) {
        Err(no)
            if store.is_shared() && no.refusal.code() == Code::IdentityUnknown && keys::hash_of(token).is_some() =>
        {
            gw.keyring.look_for_unknown(store).await?;
            identity::principal(gw, token)?
        }
        known => known?,
    };
    access.admits(&principal)?;
    Ok(Some(principal))
}

/// Reads the body as one unambiguous JSON value, within its limits of size and time.
async fn read_body(gw: &Gateway, headers: &HeaderMap, body: Incoming) -> Result<Value, CallError> {
    parse_body(&read_bytes(gw, headers, body).await?)
}

/// Reads the body as bytes of JSON, within its limits of size and time.
pub(crate) async fn read_bytes(gw: &Gateway, headers: &HeaderMap, body: Incoming) -> Result<Bytes, CallError> {
    let kind = text_header(headers, "content-type")?.unwrap_or_default();
    let is_json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(CallError::new(Code::DoorMediaType));
    }
    let limits = &gw.config.limits;
    let collected = timeout(limits.body_timeout.as_duration(), Limited::new(body, bytes(limits.body)).collect()).await;
    match collected {
        Err(_) => Err(CallError::new(Code::DoorTooSlow)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(CallError::new(Code::DoorTooLarge)),
        Ok(Err(_)) => Err(CallError::with_text(Code::DoorHeaders, "the body ended before it was complete")),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}

/// One unambiguous JSON value.
pub(crate) fn parse_body(bytes: &[u8]) -> Result<Value, CallError> {
    json::parse(bytes, &json::REQUEST).map_err(|error| {
        let code = Code::from_code(error.code()).unwrap_or(Code::JsonSyntax);
        Refusal::new(code).with_text(&error.to_string()).into()
    })
}

pub(crate) fn text_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, CallError> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| CallError::new(Code::DoorHeaders)),
        (Some(_), Some(_)) => Err(CallError::with_text(Code::DoorHeaders, "a header appears twice")),
    }
}

/// Query parameters, decoded; one value each.
pub(crate) fn query_of(query: &str) -> Result<Vec<(String, String)>, CallError> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode_query(name)?, decode_query(value)?);
        if found.iter().any(|(other, _)| *other == name) {
            return Err(CallError::with_text(Code::DoorParameter, &format!("the parameter `{name}` is given twice")));
        }
        found.push((name, value));
    }
    Ok(found)
}

/// Percent-decodes one segment of a path. A plus sign is a plus sign there; half an escape is refused, not kept.
pub(crate) fn decode(text: &str) -> Result<String, CallError> {
    let bad = || CallError::with_text(Code::SchemaBadName, "a part of the address is not valid percent-encoding");
    let is_escape = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return Err(bad());
    }
    percent_decode_str(text).decode_utf8().map(Cow::into_owned).map_err(|_| bad())
}

/// Decodes a name or a value of a query, where a plus sign is a blank.
fn decode_query(text: &str) -> Result<String, CallError> {
    decode(&text.replace('+', " "))
}

fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.as_bytes()).unwrap_or(usize::MAX)
}

/// Methods a route can have.
pub(crate) const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::PUT, Method::DELETE];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_sign_is_a_blank_in_a_query_and_itself_in_a_path() {
        assert_eq!(decode("a+b%20c%2B").unwrap(), "a+b c+");
        let query = query_of("q=a+b%20c%2B&r").unwrap();
        assert_eq!(query, [("q".to_owned(), "a b c+".to_owned()), ("r".to_owned(), String::new())]);
    }

    #[test]
    fn half_an_escape_and_bytes_that_are_no_text_are_refused() {
        for text in ["%", "%2", "a%zz", "%+5", "%%41", "%ff", "%e2%82"] {
            assert_eq!(decode(text).unwrap_err().refusal.code(), Code::SchemaBadName, "{text}");
            assert!(query_of(&format!("q={text}")).is_err(), "{text}");
        }
        assert_eq!(decode("%E2%82%AC").unwrap(), "€");
    }
}
