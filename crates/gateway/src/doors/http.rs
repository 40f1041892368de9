//! The HTTP door: connections, and the way of one request to its handler.
//!
//! Takes bytes within limits of size, number and time; gives the answer of one route of the table
//! ([`routes::all`]). Promise: a foreign host or origin, a wrong kind of credential, a body too large or
//! too slow never reach a handler; a client that does not read its answers is disconnected; every no is a problem
//! document with a stable code; the stop lane has a listener, connections and a thread of its own.

mod agents;
mod approvals;
mod body;
pub(crate) mod calls;
mod channels;
mod clock;
mod crowd;
mod dead;
mod egress;
mod events;
mod findings;
mod gate;
mod head;
mod holds;
mod inbox;
mod mounts;
mod nodes;
pub mod openapi;
mod pace;
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
use serde_json::Value;
use sluice_core::ids::RequestId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Span, json};
use sluice_store::Store;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::crowd::{Busy, Crowd};
use self::head::{Head, Headed};
use self::pace::{Backlog, Paced};
use self::reply::{Body, Reply};
use self::route::{Access, Lane, Matched, Routes, Visit};
use crate::config::Size;
use crate::doors::hook::{self, Hook};
use crate::doors::mcp::{self, Mcp};
use crate::doors::page;
use crate::gateway::Phase;
use crate::rooms::hold::LONGEST_WAIT;
use crate::rooms::identity::{self, Visitor};
use crate::tls::LiveTls;
use crate::{Gateway, No, keys};

/// What is said to a connection too many.
const FULL: &str = "{\"type\":\"urn:sluice:problem:door.overloaded\",\"title\":\"the gateway has more work than it can \
take\",\"status\":503,\"detail\":\"too many connections\",\"code\":\"door.overloaded\",\"hint\":\"wait as long as advised \
and send the same call again\",\"retry\":\"after\",\"retry_after_ms\":5000}";

/// Tells a connection too many to come again, and waits a moment until it has heard.
async fn turn_away(mut stream: TcpStream) {
    let length = FULL.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 5\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{FULL}"
    );
    // Closed with bytes unread, the line would be reset and the answer lost.
    let _heard = timeout(Span::from_secs(1).as_duration(), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, std::io::Error>(())
    })
    .await;
}

/// One listener's door.
#[derive(Debug)]
pub struct Door {
    gw: Arc<Gateway>,
    /// The database as this door asks it: what comes by the stop lane never waits for an ordinary connection.
    store: Arc<Store>,
    /// The database as it is asked for credentials: on the stop lane not even counting is waited for.
    credentials: Arc<Store>,
    routes: Routes,
    lane: Lane,
    /// Agents that speak the Model Context Protocol come in by the main listener only.
    mcp: Option<Mcp>,
    /// So do news of Telegram, where they are brought.
    hook: Option<Hook>,
}

impl Door {
    /// The door for everything, or the one for stopping.
    ///
    /// # Errors
    /// When two routes of the table contradict each other.
    pub fn new(gw: Arc<Gateway>, lane: Lane) -> Result<Arc<Self>, No> {
        let mcp = (lane == Lane::Main).then(|| Mcp::new(&gw));
        let hook = if lane == Lane::Main { Hook::new(&gw) } else { None };
        let store = match lane {
            Lane::Main => Arc::clone(&gw.store),
            Lane::Stop => Arc::new(gw.store.asked_for_status()),
        };
        let credentials = match lane {
            Lane::Main => Arc::clone(&gw.store),
            Lane::Stop => Arc::new(gw.store.asked_to_stop()),
        };
        Ok(Arc::new(Self { gw, store, credentials, routes: Routes::new(lane)?, lane, mcp, hook }))
    }

    fn most_connections(&self) -> usize {
        match self.lane {
            Lane::Main => self.gw.config.limits.connections as usize,
            Lane::Stop => 256,
        }
    }
}

/// Serves a listener until told to stop; then lets requests under way finish.
pub async fn serve(door: Arc<Door>, listener: TcpListener, tls: Option<Arc<LiveTls>>, mut stop: watch::Receiver<bool>) {
    let of_a_peer = door.gw.config.limits.connections_per_peer as usize;
    let mut crowd = Crowd::new(door.lane, door.most_connections(), of_a_peer);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, peer)) = accepted else { continue };
        let Some(place) = crowd.place(peer.ip()).await else {
            // Told why, instead of waiting in a queue that may never move.
            connections.spawn(turn_away(stream));
            continue;
        };
        // Small answers leave at once.
        let _ignored = stream.set_nodelay(true);
        let (door, tls, stop) = (Arc::clone(&door), tls.clone(), stop.clone());
        let (busy, backlog, head) = (Busy::default(), Backlog::default(), Head::default());
        let connected = Connected { peer, busy: busy.clone(), backlog: backlog.clone(), head: head.clone() };
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
    let patience = Span::from_secs(10).as_duration();
    let _cut = timeout(patience, async { while connections.join_next().await.is_some() {} }).await;
}

/// What the listener knows of a connection.
struct Connected {
    peer: SocketAddr,
    busy: Busy,
    backlog: Backlog,
    head: Head,
}

/// One connection, from its first request to its last.
async fn talk<S>(door: Arc<Door>, stream: S, connected: Connected, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &door.gw.config.limits;
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // Also runs between two requests. How long a head may take that has begun is measured where it is read.
        .header_read_timeout(limits.idle_timeout.max(limits.head_timeout).as_duration())
        .max_headers(limits.headers as usize)
        .max_buf_size(bytes(limits.head))
        .keep_alive(true);
    let Connected { peer, busy, backlog, head } = connected;
    let stream =
        Headed::new(Paced::new(stream, limits.write_timeout, backlog.clone()), limits.head_timeout, head.clone());
    let served = Arc::clone(&door);
    let too_far_ahead = Arc::new(Notify::new());
    let ends = Arc::clone(&too_far_ahead);
    let service = service_fn(move |request| {
        let (door, at_work, behind) = (Arc::clone(&served), busy.begin(), backlog.since().is_some());
        head.arrived();
        if behind {
            // The sender has not taken the answers before this request: nothing is done for it, and the connection ends.
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
            // Broken connections are the client's affair; what was committed stays committed.
            _ended = connection.as_mut() => return,
            () = too_far_ahead.notified() => return,
            changed = stop.changed() => {
                if changed.is_err() || *stop.borrow() {
                    connection.as_mut().graceful_shutdown();
                    let _ended = timeout(Span::from_secs(5).as_duration(), connection.as_mut()).await;
                    return;
                }
            }
        }
    }
}

/// One request: to its handler and back.
async fn answer(door: &Arc<Door>, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
    let id = RequestId::mint(door.gw.ids.as_ref());
    let handled = AssertUnwindSafe(async {
        check_head(&door.gw, &request)?;
        if let (Some(hook), hook::PATH) = (&door.hook, request.uri().path()) {
            return hook.visit(&door.gw, request, id).await;
        }
        match &door.mcp {
            Some(mcp) if request.uri().path() == mcp::PATH => {
                check_started(door, Access::Agent)?;
                mcp.visit(request, id).await
            }
            Some(_) if page::is_at(&door.gw, request.uri().path()) => Ok(page::visit(&door.gw, request, id).await),
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
                    true => tracing::debug!(request = %id, code, %peer, "asked before the gateway was open"),
                    false => tracing::error!(request = %id, code, %peer, "{}: {inside}", no.refusal),
                }
            }
            Reply::refuse(no, id)
        }
        Err(_panic) => {
            tracing::error!(request = %id, "a handler panicked");
            Reply::refuse(No::new(Code::GatewayInternal), id)
        }
    };
    reply.into_response(id)
}

async fn handle(door: &Arc<Door>, request: Request<Incoming>, id: RequestId) -> Result<Reply, No> {
    let gw = &door.gw;
    let (head, body) = request.into_parts();
    check_host(gw, &head.headers)?;
    check_origin(gw, &head.headers)?;
    let path = head.uri.path();
    let Matched { route, params } = door.routes.find(&head.method, path)?;
    tracing::trace!(request = %id, method = route.method, path = route.path, "asked for {} {}", route.method, route.path);
    check_started(door, route.access)?;
    let who = check_access(gw, &door.credentials, route.access, &head.headers).await?;
    let query = query_of(head.uri.query().unwrap_or_default())?;
    check_query(route, &query)?;
    let body = match route.body {
        Some(_) => Some(read_body(gw, &head.headers, body).await?),
        None => None,
    };
    if let Some(who) = &who {
        who.again(gw, &door.credentials).await?;
    }
    let last_event = text_header(&head.headers, "last-event-id")?.map(str::to_owned);
    let idempotency_key = text_header(&head.headers, "idempotency-key")?.map(str::to_owned);
    let store = Arc::clone(&door.store);
    let (gw, lane) = (Arc::clone(&door.gw), door.lane);
    let visit = Visit { who, params, query, body, request: id, last_event, idempotency_key, gw, store, lane };
    // Waiting for an outcome is not part of the work, and has its own end.
    let limit = (door.gw.config.limits.request_timeout + LONGEST_WAIT).as_duration();
    let done = timeout(limit, (route.handler)(visit)).await.unwrap_or_else(|_| Err(No::new(Code::GatewayUnavailable)));
    if let Err(no) = &done {
        let code = no.refusal.code();
        // What is wrong with us is documented once for all routes.
        let known = code.status() >= 500 || route.codes().contains(&code);
        debug_assert!(known, "{} refuses with {}, which it does not document", route.path, code.as_str());
    }
    done
}

/// Until the gateway has looked after what was left open, the stop lane and what anyone may ask answer, and nothing else.
fn check_started(door: &Door, access: Access) -> Result<(), No> {
    match (door.lane, access, door.gw.phase()) {
        (Lane::Stop, _, _) | (_, Access::Open, _) | (_, _, Phase::Open | Phase::Stopping) => Ok(()),
        (Lane::Main, _, Phase::Starting) => Err(No::new(Code::GatewayStarting)),
    }
}

/// The reader's buffer grows in steps, so the limit is held here to the byte.
fn check_head(gw: &Gateway, request: &Request<Incoming>) -> Result<(), No> {
    let uri = request.uri().path_and_query().map_or(0, |address| address.as_str().len());
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let size: usize = uri + headers.sum::<usize>();
    if size > bytes(gw.config.limits.head) { Err(No::new(Code::DoorHeadTooLarge)) } else { Ok(()) }
}

/// A filter that is not known would silently let everything through.
fn check_query(route: &route::Route, query: &[(String, String)]) -> Result<(), No> {
    let unknown = query.iter().find(|(name, _)| !route.query.iter().any(|known| known.name == name));
    let Some((name, _)) = unknown else { return Ok(()) };
    let known: Vec<&str> = route.query.iter().map(|known| known.name).collect();
    let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    let text = match known.as_slice() {
        [] => format!("there is no parameter `{name}` here, nor any other"),
        known => format!("there is no parameter `{name}` here; there are {}", known.join(", ")),
    };
    Err(No::saying(Code::DoorParameter, &text))
}

/// SECURITY: a page whose name was made to point at us (DNS rebinding) sends its own name as the host.
pub(crate) fn check_host(gw: &Gateway, headers: &HeaderMap) -> Result<(), No> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(No::saying(Code::DoorHeaders, "a request names exactly one host"));
    };
    let host = host.to_str().map_err(|_| No::new(Code::DoorHeaders))?;
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    let local = ["localhost", "127.0.0.1", "::1"].contains(&name);
    let listens = gw.config.listen.ip().to_string() == name;
    let public = gw.config.public_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
    if local || listens || public { Ok(()) } else { Err(No::new(Code::DoorOrigin)) }
}

/// SECURITY: browsers say which page a request comes from; programs do not.
pub(crate) fn check_origin(gw: &Gateway, headers: &HeaderMap) -> Result<(), No> {
    match headers.get(header::ORIGIN) {
        None => Ok(()),
        Some(origin) if gw.config.origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()) => Ok(()),
        Some(_) => Err(No::new(Code::DoorOrigin)),
    }
}

/// Whether whoever knocks may use this route.
pub(crate) async fn check_access(
    gw: &Gateway,
    store: &Store,
    access: Access,
    headers: &HeaderMap,
) -> Result<Option<Visitor>, No> {
    if access == Access::Open {
        return Ok(None);
    }
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next(), given.next());
    let first = first.ok_or_else(|| No::new(Code::IdentityMissing))?;
    if second.is_some() {
        return Err(No::saying(Code::DoorHeaders, "a request carries one credential"));
    }
    let text = first.to_str().map_err(|_| No::new(Code::IdentityUnknown))?;
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        Some(_) | None => return Err(No::new(Code::IdentityMissing)),
    };
    let visitor = match identity::visitor(gw, token) {
        Err(no)
            if store.is_shared() && no.refusal.code() == Code::IdentityUnknown && keys::hash_of(token).is_some() =>
        {
            gw.keyring.look_for_unknown(store).await?;
            identity::visitor(gw, token)?
        }
        known => known?,
    };
    access.admits(&visitor)?;
    Ok(Some(visitor))
}

/// The body as one unambiguous JSON value, within its limits of size and time.
async fn read_body(gw: &Gateway, headers: &HeaderMap, body: Incoming) -> Result<Value, No> {
    parse_body(&read_bytes(gw, headers, body).await?)
}

/// The body as bytes of JSON, within its limits of size and time.
pub(crate) async fn read_bytes(gw: &Gateway, headers: &HeaderMap, body: Incoming) -> Result<Bytes, No> {
    let kind = text_header(headers, "content-type")?.unwrap_or_default();
    let is_json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(No::new(Code::DoorMediaType));
    }
    let limits = &gw.config.limits;
    let collected = timeout(limits.body_timeout.as_duration(), Limited::new(body, bytes(limits.body)).collect()).await;
    match collected {
        Err(_) => Err(No::new(Code::DoorTooSlow)),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(No::new(Code::DoorTooLarge)),
        Ok(Err(_)) => Err(No::saying(Code::DoorHeaders, "the body ended before it was complete")),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}

/// One unambiguous JSON value.
pub(crate) fn parse_body(bytes: &[u8]) -> Result<Value, No> {
    json::parse(bytes, &json::REQUEST).map_err(|error| {
        let code = Code::from_code(error.code()).unwrap_or(Code::JsonSyntax);
        Refusal::new(code).with_text(&error.to_string()).into()
    })
}

pub(crate) fn text_header<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, No> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| No::new(Code::DoorHeaders)),
        (Some(_), Some(_)) => Err(No::saying(Code::DoorHeaders, "a header appears twice")),
    }
}

/// Query parameters, decoded; one value each.
pub(crate) fn query_of(query: &str) -> Result<Vec<(String, String)>, No> {
    let mut found: Vec<(String, String)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name)?, decode(value)?);
        if found.iter().any(|(other, _)| *other == name) {
            return Err(No::saying(Code::DoorParameter, &format!("the parameter `{name}` is given twice")));
        }
        found.push((name, value));
    }
    Ok(found)
}

/// Percent-decodes one part of a query or path.
pub(crate) fn decode(text: &str) -> Result<String, No> {
    let bad = || No::saying(Code::SchemaBadName, "a part of the address is not well encoded");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else { return Err(bad()) };
                u8::try_from(high * 16 + low).map_err(|_| bad())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn bytes(size: Size) -> usize {
    usize::try_from(size.as_bytes()).unwrap_or(usize::MAX)
}

/// Methods a route can have.
pub(crate) const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::PUT, Method::DELETE];
