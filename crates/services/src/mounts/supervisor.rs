//! Keeps one server running: starts it, checks its tools, notices its end, starts it again.
//!
//! Takes a mount and the gateway; changes what the gate offers. Promise: calls reach a server only while the tools it
//! lists have been compared with their pins; a server that dies, hangs or lies does not affect the others; a server
//! that keeps dying is restarted at growing intervals.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};
use rmcp::service::{
    ClientInitializeError, Peer, PeerRequestOptions, RequestHandle, RunningService, serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use serde_json::Value;
use sluice_config::{MountAddress, MountTransport};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, Millis};
use sluice_store::{MessageSeverity, OutboxMessage, SeenTool};
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::{self, ScreenedDocument};
use super::child::{self, LiveProgramGuard, MountProcess};
use super::client::{McpConversationStart, MountClientHandler};
use super::http::{HttpMountAccess, HttpMountTarget, HttpMountTransport};
use super::service::{MountPhase, MountService};
use super::service_name;
use super::sign_in;
use super::tool_checks::ToolChecks;
use super::tools::{self, ListedTool};
use super::wire::{MountTransportMonitor, StdioMountTransport};
use crate::ServiceContext;
use crate::programs::connect_proxy::ConnectProxy;
use crate::timer::tick;
use crate::workers::JailLayerName;

/// Pauses before a server is started again, in seconds; the last one repeats.
const PAUSES: [u64; 7] = [1, 2, 4, 8, 16, 32, 60];
/// A server that stayed up this long is healthy: the pauses begin again.
const WELL: Millis = Millis::from_mins(5);
/// Most pages of a tool list.
const PAGES: usize = 200;
/// How much of a program's error output is read at once, in bytes.
const PIECE: usize = 16 << 10;
/// A server that often reports changed tools is checked at growing intervals; after this much quiet, the intervals
/// begin again.
const QUIET: Millis = Millis::from_mins(2);
/// How long to wait for the end of a program.
const BURIED: Duration = Duration::from_secs(5);
/// What is said about a program with hosts that has no network namespace.
const SHARES_NETWORK: &str = "degraded: it shares this machine's network, and filters alone keep it to its hosts";
/// People are notified after this many starts in a row that did not last.
const TOLD: usize = 3;

/// Applies new facts about the tools of a running server: nothing is called until its tools were checked with them.
pub(super) async fn restate(context: &ServiceContext, service: &Arc<MountService>) {
    if let Err(why) = remember(context, service).await {
        tracing::warn!(mount = %service.mount().name, "the stored tools cannot be used: {why}");
    }
    super::look_again(service).await;
}

/// Keeps a server until it is told to stop. Its program is gone when this returns.
pub(super) async fn keep(context: Arc<ServiceContext>, service: Arc<MountService>) {
    keep_on(&context, &service).await;
    service.connect(None);
    let mut programs = service.programs.subscribe();
    if timeout(BURIED, programs.wait_for(|count| *count == 0)).await.is_err() {
        tracing::error!(mount = %service.mount().name, "the program of `{}` does not end", service.mount().name);
    }
    service.mark_ended();
    service.checks.finish(service.checks.begin());
}

/// Puts a server behind the gate, with what is known of its tools; none can be called yet.
pub(super) async fn offer_service(context: &ServiceContext, service: &Arc<MountService>) {
    if let Some(name) = service_name(&service.mount().name) {
        context.services.put(name, Arc::clone(service) as _);
    }
    if let Err(why) = remember(context, service).await {
        tracing::warn!(mount = %service.mount().name, "the stored tools cannot be used: {why}");
    }
}

async fn keep_on(context: &Arc<ServiceContext>, service: &Arc<MountService>) {
    let mut stop = service.subscribe_stop();
    if service.pins().is_empty() {
        offer_service(context, service).await;
    }
    let mut failures = 0_usize;
    let mut told_text = None;
    while !*stop.borrow() {
        // Nothing is started or reached while it is frozen. A caller that requests a check gets this answer at once.
        if let Some(why) = frozen(context, service) {
            let round = service.checks.begin();
            service.enter(MountPhase::Down, Some(why));
            service.checks.finish(round);
            tokio::select! {
                () = context.standstill.wait_until(|_| frozen(context, service).is_none()) => {}
                () = service.checks.requested() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            continue;
        }
        service.enter(MountPhase::Starting, service.condition().reason);
        let begun = context.clock.since_boot();
        let why = tokio::select! {
            why = live(context, service) => why,
            _ = stop.wait_for(|stop| *stop) => "it was stopped".to_owned(),
        };
        service.connect(None);
        if *stop.borrow() {
            return;
        }
        let unsigned = service.sign_in_reason();
        let why = unsigned.clone().unwrap_or(why);
        let stayed = context.clock.since_boot().as_millis().saturating_sub(begun.as_millis());
        failures = if stayed >= WELL.as_millis() { 0 } else { failures + 1 };
        let pause = PAUSES.get(failures.saturating_sub(1)).or(PAUSES.last()).copied().unwrap_or(60);
        tracing::warn!(mount = %service.mount().name, "the server `{}` is gone: {why}; again in {pause} s", service.mount().name);
        service.log(format!("the server is down: {why}"));
        service.enter(MountPhase::Down, Some(why));
        service.change(|condition| condition.restarts += 1);
        service.checks.finish(service.checks.begin());
        context.signals.events.notify_written();
        match &unsigned {
            Some(text) if told_text.as_ref() != Some(text) => {
                tell_sign_in(context, service, text).await;
                told_text = unsigned;
            }
            None if failures == TOLD => tell(context, service).await,
            Some(_) | None => {}
        }
        if !tick(&mut stop, Duration::from_secs(pause), service.checks.requested()).await {
            return;
        }
    }
}

/// Notifies people that a server does not stay up. They are notified once; a healthy period resets this.
async fn tell(context: &ServiceContext, service: &MountService) {
    let (name, reason) = (&service.mount().name, service.condition().reason.unwrap_or_default());
    let text =
        format!("the server `{name}` was started {TOLD} times and did not stay up: run `sluice mounts show {name}`");
    let body = serde_json::json!({"mount": name, "reason": reason, "text": text});
    let id = MessageId::mint(context.ids.as_ref());
    let alert = OutboxMessage { id, topic: "mount.down".into(), severity: MessageSeverity::Warning, body };
    if let Err(error) = context.store.alert(alert, Actor::Node(context.store.node().clone())).await {
        tracing::warn!(code = error.code(), "people could not be notified that `{name}` is down");
    }
}

/// Notifies people that a server wants a sign-in.
async fn tell_sign_in(context: &ServiceContext, service: &MountService, text: &str) {
    let name = &service.mount().name;
    let body = serde_json::json!({"mount": name, "text": text});
    let id = MessageId::mint(context.ids.as_ref());
    let alert = OutboxMessage { id, topic: "mount.sign_in".into(), severity: MessageSeverity::Warning, body };
    if let Err(error) = context.store.alert(alert, Actor::Node(context.store.node().clone())).await {
        tracing::warn!(code = error.code(), "people could not be notified that `{name}` wants a sign-in");
    }
}

/// Offers what was accepted before, so that rules and agents know it; nothing can be called yet.
async fn remember(context: &ServiceContext, service: &Arc<MountService>) -> Result<(), String> {
    let pins = context.store.mount_tools(&service.mount().name).await.map_err(|error| error.to_string())?;
    if pins.is_empty() {
        return Ok(());
    }
    settle(context, service, Vec::new(), pins).await
}

/// One connection, from its start to its end. Gives why it ended.
async fn live(context: &Arc<ServiceContext>, service: &Arc<MountService>) -> String {
    let connected = match begin(context, service).await {
        Err(why) => return why,
        Ok(connected) => connected,
    };
    let ConnectedMount { running, watch, child, beside } = connected;
    let peer = running.peer().clone();
    let info = running.peer().peer_info();
    service.change(|condition| {
        condition.server = info.map(|info| {
            let about = &info.server_info;
            let name = about.as_ref().map(|one| format!("{} {}", one.name, one.version)).unwrap_or_default();
            (short(&name), info.protocol_version.to_string())
        });
        let missing = child.as_ref().map(|child| child.layers.missing()).unwrap_or_default();
        // The looser profile has neither of these layers.
        let never = ["empty_root", "dumpable"];
        condition.missing_layers =
            missing.iter().map(ToString::to_string).filter(|name| !never.contains(&name.as_str())).collect();
        let networked = matches!(&service.mount().way, MountTransport::Program(program) if !program.network.is_empty());
        let shares = networked && missing.contains(&JailLayerName::Namespaces);
        condition.caveat = shares.then(|| SHARES_NETWORK.to_owned());
    });
    let listening = child.is_some() && service.era() == McpConversationStart::Stateless;
    let _listening = if listening { listen(&peer).await } else { None };
    let ended = running.waiting();
    tokio::pin!(ended);
    tokio::select! {
        _ = &mut ended => {}
        () = watch.until_cut() => {}
        why = tend(context, service, &peer, &watch) => watch.cut(why),
        () = service.sign_in_changed.notified() => watch.cut("a person changed the access to it"),
    }
    service.change(|condition| condition.refused_requests += watch.requests());
    drop((child, beside));
    watch.why().unwrap_or_else(|| "the server has ended".into())
}

/// Asks a program without a handshake to report when its tools change. The reports arrive on the wire; the request
/// stays open as long as the returned handle is kept.
async fn listen(peer: &Peer<RoleClient>) -> Option<RequestHandle<RoleClient>> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let request = SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(filter));
    let request = ClientRequest::SubscriptionsListenRequest(request);
    peer.send_request_with_option(request, PeerRequestOptions::no_options()).await.ok()
}

/// Checks the tools now and after each reported change. Gives why the server cannot stay.
async fn tend(
    context: &ServiceContext,
    service: &Arc<MountService>,
    peer: &Peer<RoleClient>,
    watch: &MountTransportMonitor,
) -> String {
    let (mut changes, mut last) = (0_usize, context.clock.since_boot());
    loop {
        let mount = service.mount();
        while frozen(context, service).is_some() {
            tokio::select! {
                () = context.standstill.wait_until(|_| frozen(context, service).is_none()) => {}
                () = service.checks.requested() => service.checks.finish(service.checks.begin()),
            }
        }
        let round = service.checks.begin();
        let listed = timeout(mount.start_timeout.as_duration(), list(peer, service, watch)).await;
        let listed = match listed {
            Err(_) => return "the server did not list its tools in time".into(),
            Ok(Err(why)) => return why,
            Ok(Ok(listed)) => listed,
        };
        if let Err(why) = look(context, service, listed).await {
            return why;
        }
        service.connect(Some(peer.clone()));
        service.enter(MountPhase::Open, service.condition().caveat);
        if service.sign_in_reason().is_some() {
            service.set_sign_in_need(None);
        }
        service.checks.finish(round);
        context.signals.events.notify_written();
        let wanted = wait(&service.checks, mount.recheck.as_duration());
        tokio::select! {
            () = watch.changed.notified() => {
                // Nothing is called until they were checked again.
                service.connect(None);
                let now = context.clock.since_boot();
                let quiet = now.as_millis().saturating_sub(last.as_millis()) >= QUIET.as_millis();
                (changes, last) = (if quiet { 0 } else { changes + 1 }, now);
                wait(&service.checks, breath(changes)).await;
            }
            () = wanted => {}
        }
    }
}

/// The freeze that keeps a server from being started, reached or called, in words.
fn frozen(context: &ServiceContext, service: &MountService) -> Option<String> {
    context.standstill.of_service(&service_name(&service.mount().name)?)
}

/// How long to wait after this many changes in a row: one second at first.
fn breath(changes: usize) -> Duration {
    Duration::from_secs(PAUSES.get(changes / 2).or(PAUSES.last()).copied().unwrap_or(60))
}

/// Waits until a check is requested, or for this long.
async fn wait(checks: &ToolChecks, span: Duration) {
    let _late = timeout(span, checks.requested()).await;
}

/// A server that answers.
struct ConnectedMount {
    running: RunningService<RoleClient, MountClientHandler>,
    watch: Arc<MountTransportMonitor>,
    child: Option<MountProcess>,
    /// Tasks that run beside it: reading its error output, and serving its hosts.
    beside: JoinSet<()>,
}

/// Why a conversation did not begin.
struct MountConnectError {
    why: String,
    /// Whether it may begin in the other way.
    other: bool,
}

/// Begins in the way that worked last, and in the other one where the server does not know that way.
async fn begin(context: &Arc<ServiceContext>, service: &Arc<MountService>) -> Result<ConnectedMount, String> {
    let era = service.era();
    let first = match in_time(service, attempt(context, service, era)).await {
        Err(MountConnectError { why, other: true }) => why,
        ended => return ended.map_err(|unheard| unheard.why),
    };
    let connected = in_time(service, attempt(context, service, era.other())).await.map_err(|_| first)?;
    service.set_era(era.other());
    Ok(connected)
}

/// One attempt to begin within the start time-out. Each attempt has the full time: a program that refuses the first is
/// started again for the second, and on a busy machine the start takes longest.
async fn in_time(
    service: &MountService,
    attempt: impl Future<Output = Result<ConnectedMount, MountConnectError>>,
) -> Result<ConnectedMount, MountConnectError> {
    let limit = service.mount().start_timeout;
    match timeout(limit.as_duration(), attempt).await {
        Ok(ended) => ended,
        Err(_) => {
            // The server may not even refuse a beginning that it does not know.
            service.set_era(service.era().other());
            Err(MountConnectError { why: format!("the server did not answer within {limit}"), other: false })
        }
    }
}

async fn attempt(
    context: &Arc<ServiceContext>,
    service: &Arc<MountService>,
    era: McpConversationStart,
) -> Result<ConnectedMount, MountConnectError> {
    let (mount, deps) = (service.mount(), service.deps());
    service.log(match era {
        McpConversationStart::Handshake => "the server is started or reached, with a handshake",
        McpConversationStart::Stateless => "the server is started or reached, without a handshake",
    });
    let watch = MountTransportMonitor::new(mount.max_answer.as_bytes());
    let never = |why: String| MountConnectError { why, other: false };
    let mut beside = JoinSet::new();
    match &mount.way {
        MountTransport::Program(program) => {
            let tunnel = ConnectProxy::plan(&program.network, &deps.workers).await.map_err(never)?;
            let terms = child::terms(deps, mount, program, tunnel.network()).await.map_err(never)?;
            let alive = LiveProgramGuard::new(&service.programs);
            let started = child::start(Arc::clone(&deps.workers), &mount.name, terms, alive).await;
            let (child, pipes) = started.map_err(never)?;
            let name = service_name(&mount.name).ok_or_else(|| never("it has no name".to_owned()))?;
            let reach = (program.network.as_slice(), program.allow_addresses.as_slice());
            tunnel.open(reach, pipes.listener, (&context.standstill, name), &mut beside).map_err(never)?;
            beside.spawn(overhear(Arc::clone(service), pipes.error));
            let line = StdioMountTransport::new(pipes.output, pipes.input, Arc::clone(&watch));
            let running = shake(line, &watch, era).await?;
            Ok(ConnectedMount { running, watch, child: Some(child), beside })
        }
        MountTransport::Address(address) => {
            let asking = asking(context, service, address).await.map_err(never)?;
            let http = HttpMountTransport::new(asking, Arc::clone(&watch));
            let running = shake(http, &watch, era).await;
            // An address gets a new request with each message; it may refuse what it does not know with any status.
            let open = |unheard: MountConnectError| MountConnectError {
                other: unheard.other || watch.why().is_none(),
                ..unheard
            };
            let running = running.map_err(open)?;
            Ok(ConnectedMount { running, watch, child: None, beside })
        }
    }
}

async fn shake<T>(
    transport: T,
    watch: &MountTransportMonitor,
    era: McpConversationStart,
) -> Result<RunningService<RoleClient, MountClientHandler>, MountConnectError>
where
    T: Transport<RoleClient, Error = std::io::Error> + Send + 'static,
{
    let begun = serve_client_with_lifecycle(MountClientHandler, transport, era.lifecycle()).await;
    begun.map_err(|error| {
        // The text of the error may come from the server.
        let why = "its handshake is not that of an MCP server";
        let why = watch.why().map_or(why.to_owned(), |cut| format!("{why}: {cut}"));
        MountConnectError { why, other: matches!(error, ClientInitializeError::JsonRpcError(_)) }
    })
}

async fn asking(
    context: &Arc<ServiceContext>,
    service: &Arc<MountService>,
    address: &MountAddress,
) -> Result<HttpMountTarget, String> {
    let mount = service.mount();
    let token = sign_in::take_up(context, service).await?;
    let granted = token.is_some();
    sign_in::open_way(context, service, token);
    let access = service_name(&mount.name).filter(|_| address.credential.is_none()).map(|name| HttpMountAccess {
        context: Arc::clone(context),
        service: Arc::clone(service),
        name,
        granted,
    });
    let name = super::connection_name(&mount.name).ok_or_else(|| "it has no connection".to_owned())?;
    let connection = context.egress.connection(&name).ok_or_else(|| "it has no connection".to_owned())?;
    Ok(HttpMountTarget {
        egress: Arc::clone(&context.egress),
        connection,
        url: address.url.clone(),
        capability: format!("{}.connect", mount.name),
        by: Actor::Node(context.store.node().clone()),
        timeout: mount.timeout,
        access,
    })
}

/// Keeps a program's error output.
async fn overhear(service: Arc<MountService>, from: pipe::Receiver) {
    let mut piece = vec![0; PIECE];
    loop {
        if from.readable().await.is_err() {
            break;
        }
        match from.try_read(&mut piece) {
            Ok(0) => break,
            Ok(count) => service.overhear(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    service.overhear(&[]);
}

/// Every tool that a server lists, with every member of its definition.
async fn list(
    peer: &Peer<RoleClient>,
    service: &MountService,
    watch: &MountTransportMonitor,
) -> Result<Vec<Value>, String> {
    let most = service.mount().tools as usize;
    let wait = service.mount().start_timeout.as_duration();
    let mut found: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor.clone();
        let request = ListToolsRequest { params: Some(params), ..Default::default() };
        // Not by the library's own method: that one answers from its cache.
        let asked = peer
            .send_request_with_option(ClientRequest::ListToolsRequest(request), PeerRequestOptions::with_timeout(wait));
        let not_listed = || "the server did not list its tools".to_owned();
        let handle = asked.await.map_err(|_| not_listed())?;
        let request = handle.id.clone();
        let Ok(ServerResult::ListToolsResult(page)) = handle.await_response().await else {
            return Err(not_listed());
        };
        // SECURITY: not the library's own form of a tool: a pin of less than the server said would miss a change.
        let secrets = service.deps().intake.secrets();
        let listed = watch.listed(&request).ok_or_else(not_listed)?;
        found.extend(listed.into_iter().map(|tool| secrets.scrub_json(&tool).unwrap_or(tool)));
        if found.len() > most {
            return Err(format!("it has more than {most} tools"));
        }
        match page.next_cursor {
            None => return Ok(found),
            Some(next) if Some(&next) == cursor.as_ref() || next.len() > 4096 => break,
            Some(next) => cursor = Some(next),
        }
    }
    Err("its tool list does not end".into())
}

/// Compares a list with the pins and offers what may be called.
async fn look(context: &ServiceContext, service: &Arc<MountService>, found: Vec<Value>) -> Result<(), String> {
    let mount = service.mount();
    let pins = context.store.mount_tools(&mount.name).await.map_err(|error| error.to_string())?;
    let pinned = |tool: &str| pins.iter().any(|pin| pin.tool == tool && pin.accepted.is_some());
    let (listed, refused) = tools::sift(&mount.name, found, &context.catalogue.known(), &pinned);
    service.change(|condition| condition.refused = refused);
    let looks = clean(service, &listed).await?;
    let seen = listed.iter().zip(&looks).map(|(listed, look)| SeenTool {
        tool: listed.tool.clone(),
        definition: listed.text.clone(),
        suspicious: !matches!(look, ScreenedDocument::Passed(_)),
    });
    let message = MessageId::mint(context.ids.as_ref());
    let pins = context
        .store
        .record_mount_tools(&mount.name, seen.collect(), message)
        .await
        .map_err(|error| error.to_string())?;
    let present = listed.into_iter().zip(looks).collect();
    settle(context, service, present, pins).await
}

async fn clean(service: &MountService, listed: &[ListedTool]) -> Result<Vec<ScreenedDocument>, String> {
    let documents = listed.iter().map(|listed| listed.definition.clone()).collect();
    let looks = answer::each(&service.deps().workers, documents).await;
    looks.map_err(|refusal| format!("its tools cannot be screened: {refusal}"))
}

/// Makes accepted tools known, and opens those that the server still describes exactly so.
async fn settle(
    context: &ServiceContext,
    service: &Arc<MountService>,
    present: Vec<(ListedTool, ScreenedDocument)>,
    pins: Vec<sluice_store::PinnedTool>,
) -> Result<(), String> {
    let mount = &service.current();
    // An accepted tool that is no longer listed stays known, by its accepted definition.
    let mut absent = Vec::new();
    for pin in &pins {
        let Some((text, ..)) = &pin.accepted else { continue };
        let said = present.iter().any(|(listed, _)| listed.tool == pin.tool && listed.text == *text);
        if let (false, Ok(definition)) = (said, serde_json::from_str(text)) {
            absent.push(ListedTool { tool: pin.tool.clone(), definition, text: text.clone() });
        }
    }
    let looks = clean(service, &absent).await?;
    let mut made = Vec::new();
    for ((listed, look), open) in
        present.into_iter().map(|one| (one, true)).chain(absent.into_iter().zip(looks).map(|one| (one, false)))
    {
        let pin = pins.iter().find(|pin| pin.tool == listed.tool);
        let accepted = pin.and_then(|pin| pin.accepted.as_ref());
        let accepted_read = pin.is_some_and(|pin| pin.read_only.is_some());
        let is_hidden = mount.facts.get(&listed.tool).is_some_and(|facts| facts.hide);
        if is_hidden || accepted.is_none_or(|(text, ..)| *text != listed.text) {
            continue;
        }
        let cleaned = if let ScreenedDocument::Passed(value) = &look { Some(value) } else { None };
        match tools::tool(mount, &listed, cleaned, accepted_read) {
            Ok(tool) => made.push(tools::MountTool { open, ..tool }),
            Err(why) => service.change(|condition| condition.refused.push((listed.tool.clone(), why))),
        }
    }
    let specs = made.iter().map(|tool| tool.spec.clone()).collect();
    if !service.settle(made, pins) {
        return Ok(());
    }
    let name = service_name(&mount.name).ok_or_else(|| "it has no name".to_owned())?;
    let offered = context.offer(name, Arc::clone(service) as _, specs).await;
    offered.map_err(|no| format!("the rules do not fit its tools: {}", no.refusal))
}

/// Text of a server, shortened and on one line.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
