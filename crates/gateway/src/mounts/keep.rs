//! Keeps one server there: start it, look at its tools, notice its end, start it again.
//!
//! Takes a mount and the gateway; changes what the gate offers. Promise: calls reach a server only while the tools it
//! names were held against their pins; one server that dies, hangs or lies costs the others nothing; a server that
//! keeps dying is tried ever more rarely.

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
use sluice_core::ids::MessageId;
use sluice_core::{Actor, Span};
use sluice_store::{Message, SeenTool, Severity};
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::answer::{self, Look};
use super::child::{self, Alive, Child};
use super::guest::{Era, Guest};
use super::http::{Asking, Http};
use super::service::{MountService, Phase};
use super::service_name;
use super::tools::{self, Listed};
use super::wire::{Line, Watch};
use crate::Gateway;
use crate::config::{MountAddress, Way};
use crate::loops::tick;
use crate::programs::hatch::Hatch;
use crate::workers::LayerName;

/// Pauses before a server is started again, in seconds; the last one for ever after.
const PAUSES: [u64; 7] = [1, 2, 4, 8, 16, 32, 60];
/// A server that stayed this long has done well: pauses begin anew.
const WELL: Span = Span::from_mins(5);
/// Most pages of a list of tools.
const PAGES: usize = 200;
/// How much of what a program complains about is kept, in bytes.
const WORDS: usize = 4 << 10;
/// A server that says so often that its tools changed is looked at ever more rarely; one that was quiet this long begins
/// anew.
const QUIET: Span = Span::from_mins(2);
/// How long the end of a program is waited for.
const BURIED: Duration = Duration::from_secs(5);
/// What is said of a program with hosts that has no network namespace.
const SHARES_NETWORK: &str = "degraded: it shares this machine's network, and filters alone keep it to its hosts";
/// People are told when a server was started so often in a row and did not stay.
const TOLD: usize = 3;

/// Keeps a server until it is told to stop. Its program is gone when this returns.
pub(super) async fn keep(gw: Arc<Gateway>, service: Arc<MountService>) {
    keep_on(&gw, &service).await;
    service.connect(None);
    let mut programs = service.programs.subscribe();
    if timeout(BURIED, programs.wait_for(|count| *count == 0)).await.is_err() {
        tracing::error!(mount = %service.mount().name, "the program of `{}` does not end", service.mount().name);
    }
    service.is_over();
    looked(&service);
}

/// Puts a server in its place behind the gate, with what is known of its tools; none can be called yet.
pub(super) async fn stand(gw: &Gateway, service: &Arc<MountService>) {
    if let Some(name) = service_name(&service.mount().name) {
        gw.services.put(name, Arc::clone(service) as _);
    }
    if let Err(why) = remember(gw, service).await {
        tracing::warn!(mount = %service.mount().name, "what is known of its tools cannot be used: {why}");
    }
}

async fn keep_on(gw: &Arc<Gateway>, service: &Arc<MountService>) {
    let mut stop = service.stops();
    if service.pins().is_empty() {
        stand(gw, service).await;
    }
    let mut failures = 0_usize;
    while !*stop.borrow() {
        // Nothing is started or reached while it is frozen. Whoever wants it looked at is told that at once.
        if let Some(why) = frozen(gw, service) {
            service.enter(Phase::Down, Some(why));
            looked(service);
            tokio::select! {
                () = gw.standstill.until(|_| frozen(gw, service).is_none()) => {}
                () = service.again.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            continue;
        }
        service.enter(Phase::Starting, service.condition().reason);
        let begun = gw.clock.since_boot();
        let why = tokio::select! {
            why = live(gw, service) => why,
            _ = stop.wait_for(|stop| *stop) => "it was told to stop".to_owned(),
        };
        service.connect(None);
        if *stop.borrow() {
            return;
        }
        let stayed = gw.clock.since_boot().as_millis().saturating_sub(begun.as_millis());
        failures = if stayed >= WELL.as_millis() { 0 } else { failures + 1 };
        let pause = PAUSES.get(failures.saturating_sub(1)).or(PAUSES.last()).copied().unwrap_or(60);
        tracing::warn!(mount = %service.mount().name, "the server `{}` is gone: {why}; again in {pause} s", service.mount().name);
        service.enter(Phase::Down, Some(why));
        service.change(|condition| condition.restarts += 1);
        looked(service);
        gw.events.wrote();
        if failures == TOLD {
            tell(gw, service).await;
        }
        if !tick(&mut stop, Duration::from_secs(pause), service.again.notified()).await {
            return;
        }
    }
}

/// Tells people that a server does not come up. They are told once: a server that then does well begins anew.
async fn tell(gw: &Gateway, service: &MountService) {
    let (name, reason) = (&service.mount().name, service.condition().reason.unwrap_or_default());
    let text = format!("the server `{name}` was started {TOLD} times and did not stay: sluice mounts show {name}");
    let body = serde_json::json!({"mount": name, "reason": reason, "text": text});
    let id = MessageId::mint(gw.ids.as_ref());
    let alert = Message { id, topic: "mount.down".into(), severity: Severity::Warning, body };
    if let Err(error) = gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await {
        tracing::warn!(code = error.code(), "people could not be told that `{name}` is down");
    }
}

/// Offers what was accepted before, so that rules and agents know it; nothing can be called yet.
async fn remember(gw: &Gateway, service: &Arc<MountService>) -> Result<(), String> {
    let pins = gw.store.mount_tools(&service.mount().name).await.map_err(|error| error.to_string())?;
    if pins.is_empty() {
        return Ok(());
    }
    settle(gw, service, Vec::new(), pins).await
}

/// One connection, from its start to its end. Gives why it ended.
async fn live(gw: &Gateway, service: &Arc<MountService>) -> String {
    let connected = match begin(gw, service).await {
        Err(why) => return why,
        Ok(connected) => connected,
    };
    let Connected { running, watch, child, beside } = connected;
    let peer = running.peer().clone();
    let info = running.peer().peer_info();
    service.change(|condition| {
        condition.server = info.map(|info| {
            let about = &info.server_info;
            let name = about.as_ref().map(|one| format!("{} {}", one.name, one.version)).unwrap_or_default();
            (short(&name), info.protocol_version.to_string())
        });
        let missing = child.as_ref().map(|child| child.layers.missing()).unwrap_or_default();
        // The looser profile has neither of these.
        let never = ["empty_root", "dumpable"];
        condition.missing_layers =
            missing.iter().map(ToString::to_string).filter(|name| !never.contains(&name.as_str())).collect();
        let networked = matches!(&service.mount().way, Way::Program(program) if !program.network.is_empty());
        let shares = networked && missing.contains(&LayerName::Namespaces);
        condition.caveat = shares.then(|| SHARES_NETWORK.to_owned());
    });
    let listening = child.is_some() && service.era() == Era::Stateless;
    let _listening = if listening { listen(&peer).await } else { None };
    let ended = running.waiting();
    tokio::pin!(ended);
    tokio::select! {
        _ = &mut ended => {}
        () = watch.until_cut() => {}
        why = tend(gw, service, &peer, &watch) => watch.cut(why),
    }
    service.change(|condition| condition.refused_requests += watch.requests());
    drop((child, beside));
    watch.why().unwrap_or_else(|| "it has ended".into())
}

/// Asks a program that has no handshake to say when its tools change. What it says then is heard on the wire; the
/// request itself stays open as long as what this gives is kept.
async fn listen(peer: &Peer<RoleClient>) -> Option<RequestHandle<RoleClient>> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    let request = SubscriptionsListenRequest::new(SubscriptionsListenRequestParams::new(filter));
    let request = ClientRequest::SubscriptionsListenRequest(request);
    peer.send_request_with_option(request, PeerRequestOptions::no_options()).await.ok()
}

/// Looks at the tools now and whenever there is reason to. Gives why the server cannot stay.
async fn tend(gw: &Gateway, service: &Arc<MountService>, peer: &Peer<RoleClient>, watch: &Watch) -> String {
    let (mut changes, mut last) = (0_usize, gw.clock.since_boot());
    loop {
        let mount = service.mount();
        while frozen(gw, service).is_some() {
            tokio::select! {
                () = gw.standstill.until(|_| frozen(gw, service).is_none()) => {}
                () = service.again.notified() => looked(service),
            }
        }
        let listed = timeout(mount.start_timeout.as_duration(), list(peer, service, watch)).await;
        let listed = match listed {
            Err(_) => return "it did not list its tools in time".into(),
            Ok(Err(why)) => return why,
            Ok(Ok(listed)) => listed,
        };
        if let Err(why) = look(gw, service, listed).await {
            return why;
        }
        service.connect(Some(peer.clone()));
        service.enter(Phase::Open, service.condition().caveat);
        looked(service);
        gw.events.wrote();
        let wanted = wait(&service.again, mount.recheck.as_duration());
        tokio::select! {
            () = watch.changed.notified() => {
                // Until they were looked at again nothing is called.
                service.connect(None);
                let now = gw.clock.since_boot();
                let quiet = now.as_millis().saturating_sub(last.as_millis()) >= QUIET.as_millis();
                (changes, last) = (if quiet { 0 } else { changes + 1 }, now);
                wait(&service.again, breath(changes)).await;
            }
            () = wanted => {}
        }
    }
}

/// The freeze that keeps a server from being started, reached or asked, in words.
fn frozen(gw: &Gateway, service: &MountService) -> Option<String> {
    gw.standstill.of_service(&service_name(&service.mount().name)?)
}

/// How long nobody looks after so many changes in a row: a second at first.
fn breath(changes: usize) -> Duration {
    Duration::from_secs(PAUSES.get(changes / 2).or(PAUSES.last()).copied().unwrap_or(60))
}

/// Waits for a wake, or as long as said.
async fn wait(wake: &Notify, span: Duration) {
    let _late = timeout(span, wake.notified()).await;
}

fn looked(service: &MountService) {
    service.looked.send_modify(|times| *times += 1);
}

/// A server that answers.
struct Connected {
    running: RunningService<RoleClient, Guest>,
    watch: Arc<Watch>,
    child: Option<Child>,
    /// What goes on beside it: its complaints are overheard, its hosts are reached.
    beside: JoinSet<()>,
}

/// Why a conversation did not begin.
struct Unheard {
    why: String,
    /// Whether it may begin in the other way.
    other: bool,
}

/// Begins in the way that did last, and in the other one where the server does not know that.
async fn begin(gw: &Gateway, service: &Arc<MountService>) -> Result<Connected, String> {
    let era = service.era();
    let first = match in_time(service, attempt(gw, service, era)).await {
        Err(Unheard { why, other: true }) => why,
        ended => return ended.map_err(|unheard| unheard.why),
    };
    let connected = in_time(service, attempt(gw, service, era.other())).await.map_err(|_| first)?;
    service.begin_with(era.other());
    Ok(connected)
}

/// One beginning within the time a start may take. Each has that time for itself: a program that says no to the first is
/// started anew for the second, and on a busy machine a start is what takes longest.
async fn in_time(
    service: &MountService,
    attempt: impl Future<Output = Result<Connected, Unheard>>,
) -> Result<Connected, Unheard> {
    let limit = service.mount().start_timeout;
    match timeout(limit.as_duration(), attempt).await {
        Ok(ended) => ended,
        Err(_) => {
            // Perhaps it does not even say no to the beginning that it does not know.
            service.begin_with(service.era().other());
            Err(Unheard { why: format!("it did not answer within {limit}"), other: false })
        }
    }
}

async fn attempt(gw: &Gateway, service: &Arc<MountService>, era: Era) -> Result<Connected, Unheard> {
    let (mount, ground) = (service.mount(), service.ground());
    let watch = Watch::new(mount.max_answer.as_bytes());
    let never = |why: String| Unheard { why, other: false };
    let mut beside = JoinSet::new();
    match &mount.way {
        Way::Program(program) => {
            let hatch = Hatch::plan(&program.network, &ground.workers).await.map_err(never)?;
            let terms = child::terms(ground, mount, program, hatch.network()).await.map_err(never)?;
            let alive = Alive::new(&service.programs);
            let started = child::start(Arc::clone(&ground.workers), &mount.name, terms, alive).await;
            let (child, pipes) = started.map_err(never)?;
            let name = service_name(&mount.name).ok_or_else(|| never("it has no name".to_owned()))?;
            let reach = (program.network.as_slice(), program.allow_addresses.as_slice());
            hatch.open(reach, pipes.listener, (&gw.standstill, name), &mut beside).map_err(never)?;
            beside.spawn(overhear(Arc::clone(service), pipes.error));
            let line = Line::new(pipes.output, pipes.input, Arc::clone(&watch));
            let running = shake(line, &watch, era).await?;
            Ok(Connected { running, watch, child: Some(child), beside })
        }
        Way::Address(address) => {
            let http = Http::new(asking(gw, service, address).map_err(never)?, Arc::clone(&watch));
            let running = shake(http, &watch, era).await;
            // An address is asked anew with each message; what it does not know, it may say with any status.
            let open = |unheard: Unheard| Unheard { other: unheard.other || watch.why().is_none(), ..unheard };
            let running = running.map_err(open)?;
            Ok(Connected { running, watch, child: None, beside })
        }
    }
}

async fn shake<T>(transport: T, watch: &Watch, era: Era) -> Result<RunningService<RoleClient, Guest>, Unheard>
where
    T: Transport<RoleClient, Error = std::io::Error> + Send + 'static,
{
    let begun = serve_client_with_lifecycle(Guest, transport, era.lifecycle()).await;
    begun.map_err(|error| {
        // The words of the error may be the server's.
        let why = "it did not shake hands as a server does";
        let why = watch.why().map_or(why.to_owned(), |cut| format!("{why}: {cut}"));
        Unheard { why, other: matches!(error, ClientInitializeError::JsonRpcError(_)) }
    })
}

fn asking(gw: &Gateway, service: &MountService, address: &MountAddress) -> Result<Asking, String> {
    let mount = service.mount();
    let name = super::connection_name(&mount.name).ok_or_else(|| "it has no connection".to_owned())?;
    let connection = gw.egress.connection(&name).ok_or_else(|| "it has no connection".to_owned())?;
    Ok(Asking {
        egress: Arc::clone(&gw.egress),
        connection,
        url: address.url.clone(),
        capability: format!("{}.connect", mount.name),
        by: Actor::Node(gw.store.node().clone()),
        timeout: mount.timeout,
    })
}

/// Keeps the last of what a program complains about.
async fn overhear(service: Arc<MountService>, from: pipe::Receiver) {
    let mut piece = vec![0; WORDS];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        match from.try_read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                let said = String::from_utf8_lossy(piece.get(..count).unwrap_or_default()).into_owned();
                let said = service.ground().intake.secrets().scrub_text(&said).unwrap_or(said);
                service.change(|condition| {
                    condition.last_words.push_str(&said);
                    let over = condition.last_words.len().saturating_sub(WORDS);
                    let cut = (over..).find(|at| condition.last_words.is_char_boundary(*at)).unwrap_or(over);
                    condition.last_words.drain(..cut);
                });
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Every tool a server names, with every member it gives it.
async fn list(peer: &Peer<RoleClient>, service: &MountService, watch: &Watch) -> Result<Vec<Value>, String> {
    let most = service.mount().tools as usize;
    let wait = service.mount().start_timeout.as_duration();
    let mut found: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor.clone();
        let request = ListToolsRequest { params: Some(params), ..Default::default() };
        // Not by the library's own method: it answers from what the server allowed it to keep.
        let asked = peer
            .send_request_with_option(ClientRequest::ListToolsRequest(request), PeerRequestOptions::with_timeout(wait));
        let not_listed = || "it did not list its tools".to_owned();
        let handle = asked.await.map_err(|_| not_listed())?;
        let request = handle.id.clone();
        let Ok(ServerResult::ListToolsResult(page)) = handle.await_response().await else {
            return Err(not_listed());
        };
        // SECURITY: not what the library made of them: a pin of less than the server said would miss a change.
        let secrets = service.ground().intake.secrets();
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
    Err("its list of tools has no end".into())
}

/// Holds a list against the pins and offers what may be called.
async fn look(gw: &Gateway, service: &Arc<MountService>, found: Vec<Value>) -> Result<(), String> {
    let mount = service.mount();
    let pins = gw.store.mount_tools(&mount.name).await.map_err(|error| error.to_string())?;
    let pinned = |tool: &str| pins.iter().any(|pin| pin.tool == tool && pin.accepted.is_some());
    let (listed, refused) = tools::sift(&mount.name, found, &gw.catalogue.known(), &pinned);
    service.change(|condition| condition.refused = refused);
    let looks = clean(service, &listed).await?;
    let seen = listed.iter().zip(&looks).map(|(listed, look)| SeenTool {
        tool: listed.tool.clone(),
        definition: listed.text.clone(),
        suspicious: !matches!(look, Look::Passed(_)),
    });
    let message = MessageId::mint(gw.ids.as_ref());
    let pins = gw.store.note_mount(&mount.name, seen.collect(), message).await.map_err(|error| error.to_string())?;
    let present = listed.into_iter().zip(looks).collect();
    settle(gw, service, present, pins).await
}

async fn clean(service: &MountService, listed: &[Listed]) -> Result<Vec<Look>, String> {
    let documents = listed.iter().map(|listed| listed.definition.clone()).collect();
    let looks = answer::each(&service.ground().workers, documents).await;
    looks.map_err(|refusal| format!("its tools cannot be looked at: {refusal}"))
}

/// Makes what was accepted known, and open what the server still says exactly so.
async fn settle(
    gw: &Gateway,
    service: &Arc<MountService>,
    present: Vec<(Listed, Look)>,
    pins: Vec<sluice_store::PinnedTool>,
) -> Result<(), String> {
    let mount = service.mount();
    // What was accepted and is no longer said stays known, by its accepted definition.
    let mut absent = Vec::new();
    for pin in &pins {
        let Some((text, ..)) = &pin.accepted else { continue };
        let said = present.iter().any(|(listed, _)| listed.tool == pin.tool && listed.text == *text);
        if let (false, Ok(definition)) = (said, serde_json::from_str(text)) {
            absent.push(Listed { tool: pin.tool.clone(), definition, text: text.clone() });
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
        if accepted.is_none_or(|(text, ..)| *text != listed.text) {
            continue;
        }
        let cleaned = if let Look::Passed(value) = &look { Some(value) } else { None };
        match tools::tool(mount, &listed, cleaned, accepted_read) {
            Ok(tool) => made.push(tools::Tool { open, ..tool }),
            Err(why) => service.change(|condition| condition.refused.push((listed.tool.clone(), why))),
        }
    }
    let specs = made.iter().map(|tool| tool.spec.clone()).collect();
    if !service.settle(made, pins) {
        return Ok(());
    }
    let name = service_name(&mount.name).ok_or_else(|| "it has no name".to_owned())?;
    let offered = gw.offer(name, Arc::clone(service) as _, specs).await;
    offered.map_err(|no| format!("the rules do not fit its tools: {}", no.refusal))
}

/// A server's word, short and on one line.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
