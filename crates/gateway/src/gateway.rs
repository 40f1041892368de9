//! The running gateway: everything a room may look at, in one place.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sluice_core::audit::checkpoint::Signer;
use sluice_core::audit::key::VerifierKey;
use sluice_core::pace::SlowStart;
use sluice_core::policy::LivePolicy;
use sluice_core::refusal::Code;
use sluice_core::timekeeping::Windows;
use sluice_core::{ApprovalId, Clock, Entropy, HoldId, Ids, NodeName, Span, Timestamp};
use sluice_store::{RetentionPlace, StopLane, Store};
use tokio::sync::{Notify, watch};

use crate::No;
use crate::catalogue::LiveCatalogue;
use crate::channels::hearing::Hearing;
use crate::config::Config;
use crate::connections::Connections;
use crate::doors::mcp::changes::Changes;
use crate::egress::Egress;
use crate::events::Events;
use crate::intake::Intake;
use crate::keyring::Keyring;
use crate::loops::watching::Watch;
use crate::mounts::Mounts;
use crate::nodes::Nodes;
use crate::oauth::Oauth;
use crate::proxies::Proxies;
use crate::queues::WaitingQueues;
use crate::recovery::Recovery;
use crate::rooms::leak::Scan;
use crate::services::Services;
use crate::services::about::About;
use crate::standstill::Standstill;
use crate::tls::LiveTls;
use crate::vault::Vault;
use crate::waiting::Waiting;
use crate::workers::Workers;

/// What a gateway is put together from.
#[allow(missing_debug_implementations, reason = "handed over once; most of it has nothing to print")]
pub struct Parts {
    /// Everything that must not be forgotten.
    pub store: Arc<Store>,
    /// The rules in force.
    pub policy: Arc<LivePolicy>,
    /// What can be asked.
    pub catalogue: Arc<LiveCatalogue>,
    /// How it was set up.
    pub config: Config,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// Where randomness comes from.
    pub entropy: Arc<dyn Entropy>,
    /// What stands behind the gate.
    pub services: Services,
    /// What callers can learn about it.
    pub about: Arc<About>,
    /// What must not leave.
    pub scan: Box<dyn Scan>,
    /// Credentials.
    pub vault: Arc<Vault>,
    /// The only way out.
    pub egress: Arc<Egress>,
    /// Locked-in processes; started once the gateway is served.
    pub workers: Arc<Workers>,
    /// The only way in.
    pub intake: Arc<Intake>,
    /// Isolated interfaces to services nobody trusts.
    pub proxies: Proxies,
    /// Connected services.
    pub connections: Arc<Connections>,
    /// What people granted for them.
    pub oauth: Arc<Oauth>,
    /// Servers of others behind the gate.
    pub mounts: Mounts,
    /// The freezes in force, as last seen.
    pub standstill: Arc<Standstill>,
    /// Sign the ends of this node's logs, each with a key of its own; without them, nobody outside can hold us to
    /// the record.
    pub signers: Vec<(NodeName, Signer)>,
    /// What is remembered outside the database.
    pub recovery: Recovery,
}

/// One running gateway.
pub struct Gateway {
    /// Everything that must not be forgotten.
    pub store: Arc<Store>,
    /// The rules in force.
    pub policy: Arc<LivePolicy>,
    /// What can be asked.
    pub catalogue: Arc<LiveCatalogue>,
    /// How it was set up.
    pub config: Config,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub ids: Arc<dyn Ids>,
    /// Where randomness comes from.
    pub entropy: Arc<dyn Entropy>,
    /// What stands behind the gate.
    pub services: Services,
    /// What callers can learn about it.
    pub about: Arc<About>,
    /// Who may knock.
    pub keyring: Keyring,
    /// What happens, as it happens.
    pub events: Events,
    /// Locked-in processes that read what services send.
    pub workers: Arc<Workers>,
    /// The only way in.
    pub intake: Arc<Intake>,
    /// Isolated interfaces to services nobody trusts.
    pub proxies: Proxies,
    /// Connected services.
    pub connections: Arc<Connections>,
    /// What people granted for them.
    pub oauth: Arc<Oauth>,
    /// Servers of others behind the gate.
    pub mounts: Mounts,
    /// Credentials.
    pub vault: Arc<Vault>,
    /// The only way out.
    pub egress: Arc<Egress>,
    /// How well people are heard over each channel.
    pub hearing: Hearing,
    /// How well each channel takes what is sent over it.
    pub sending: Hearing,
    /// What is remembered outside the database.
    pub recovery: Recovery,
    pub(crate) scan: Box<dyn Scan>,
    pub(crate) signers: tokio::sync::Mutex<Vec<(NodeName, Signer)>>,
    /// What this node's logs are checked with.
    pub(crate) audit_keys: Vec<(NodeName, VerifierKey)>,
    /// Whoever loads the rules holds it.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    pub(crate) waiting: Waiting<HoldId>,
    /// Who waits for an answer to a question.
    pub(crate) questions: Waiting<ApprovalId>,
    /// There may be something to tell people.
    pub(crate) letters: Notify,
    /// Something may be due now.
    pub(crate) due: Notify,
    /// Whether what agents can do has changed.
    pub(crate) changes: Changes,
    /// What this node said of itself, and what it sees of the others.
    pub(crate) nodes: Nodes,
    /// How many writes wait, by service and agent.
    pub queues: WaitingQueues,
    /// The freezes in force, as last seen.
    pub standstill: Arc<Standstill>,
    phase: AtomicU8,
    /// Turns true when the gateway stops, for whoever would otherwise wait on.
    stopping: watch::Sender<bool>,
    /// Why it cannot go on, once it cannot.
    lost: watch::Sender<Option<Lost>>,
    clock_suspect: AtomicBool,
    /// Whether people were told that the clock is not followed.
    pub(crate) clock_told: AtomicBool,
    /// What the gateway stands on, and what people were told of it.
    pub(crate) watch: Watch,
    /// The certificate in use, where there is one and the gateway is served.
    pub(crate) tls: OnceLock<Arc<LiveTls>>,
    /// Where retention goes on.
    pub(crate) retention: Mutex<RetentionState>,
    /// How slowly writes leave since the gateway was last away.
    slow_start: Mutex<SlowStart>,
    room: AtomicU8,
    /// When somebody was last awake, in milliseconds since boot.
    awake_at: AtomicU64,
    /// Undo windows opened in this life, measured by a clock nobody can set.
    windows: Mutex<Windows>,
}

/// What retention has still to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RetentionState {
    /// Whether there may be more rows that are over.
    pub rows: bool,
    /// Where the look through old writes goes on.
    pub writes: Option<RetentionPlace>,
}

/// Where a gateway is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking after what was left open.
    Starting,
    /// At work.
    Open,
    /// Taking nothing new.
    Stopping,
}

/// Why a gateway cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// After a failed sync the page cache can no longer be believed.
    #[error("the database can no longer be believed: a sync to the disk failed, or the file is damaged")]
    Record,
    /// The file that the record is kept in is not there any more.
    #[error("the database file was removed or replaced while the gateway ran; put it back, or restore a backup")]
    Removed,
    /// What expires, revokes, releases or signs is no longer done.
    #[error("one of its loops broke off")]
    Loop,
}

/// How much room the disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Enough.
    Enough,
    /// Too little for new writes.
    Low,
    /// Too little for anything but stopping.
    None,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Puts a gateway together. It is not open yet: see [`crate::loops::start`].
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { store, policy, catalogue, config, clock, ids, entropy, services, about, scan, .. } = parts;
        let (vault, egress, signers) = (parts.vault, parts.egress, parts.signers);
        let watch = Watch::over(&config.data);
        Self {
            store,
            policy,
            catalogue,
            config,
            clock,
            ids,
            entropy,
            services,
            about,
            vault,
            egress,
            hearing: Hearing::default(),
            sending: Hearing::default(),
            recovery: parts.recovery,
            scan,
            audit_keys: signers.iter().map(|(log, signer)| (log.clone(), signer.key().clone())).collect(),
            signers: tokio::sync::Mutex::new(signers),
            keyring: Keyring::default(),
            events: Events::default(),
            workers: parts.workers,
            intake: parts.intake,
            proxies: parts.proxies,
            connections: parts.connections,
            oauth: parts.oauth,
            mounts: parts.mounts,
            reloading: tokio::sync::Mutex::new(()),
            waiting: Waiting::default(),
            questions: Waiting::default(),
            letters: Notify::new(),
            due: Notify::new(),
            changes: Changes::default(),
            nodes: Nodes::default(),
            queues: WaitingQueues::default(),
            standstill: parts.standstill,
            phase: AtomicU8::new(0),
            stopping: watch::Sender::new(false),
            lost: watch::Sender::new(None),
            clock_suspect: AtomicBool::new(false),
            clock_told: AtomicBool::new(false),
            watch,
            tls: OnceLock::new(),
            retention: Mutex::default(),
            slow_start: Mutex::default(),
            room: AtomicU8::new(0),
            awake_at: AtomicU64::new(0),
            windows: Mutex::default(),
        }
    }

    /// What must not leave: the vault tells it about each change, others ask it about what they send.
    #[must_use]
    pub fn leak_scan(&self) -> &dyn Scan {
        self.scan.as_ref()
    }

    /// Wall time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Where it is in its life.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Starting,
            1 => Phase::Open,
            _ => Phase::Stopping,
        }
    }

    /// Moves on in its life; never back.
    pub fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::Starting => 0,
            Phase::Open => 1,
            Phase::Stopping => 2,
        };
        self.phase.fetch_max(number, Ordering::SeqCst);
        if phase == Phase::Stopping {
            self.stopping.send_replace(true);
            self.changes.end();
        }
    }

    /// Waits until the gateway stops.
    pub(crate) async fn stops(&self) {
        // The sender lives as long as the gateway does.
        drop(self.stopping.subscribe().wait_for(|stopping| *stopping).await);
    }

    /// Takes nothing new and ends, because it cannot go on. The first reason is the one that counts.
    pub(crate) fn give_up(&self, why: Lost) {
        let first = self.lost.send_if_modified(|lost| lost.is_none() && lost.replace(why).is_none());
        if first {
            tracing::error!("the gateway cannot go on and ends: {why}");
            self.enter(Phase::Stopping);
        }
    }

    /// Waits until the gateway cannot go on, and says why.
    pub async fn lost(&self) -> Lost {
        // The sender lives as long as the gateway does.
        let mut lost = self.lost.subscribe();
        lost.wait_for(Option::is_some).await.ok().and_then(|lost| *lost).unwrap_or(Lost::Loop)
    }

    /// Whether the wall clock has jumped a moment ago.
    #[must_use]
    pub fn clock_is_suspect(&self) -> bool {
        self.clock_suspect.load(Ordering::SeqCst)
    }

    pub(crate) fn suspect_clock(&self, suspect: bool) {
        self.clock_suspect.store(suspect, Ordering::SeqCst);
    }

    /// How much room the disk has, as last looked at.
    #[must_use]
    pub fn room(&self) -> Room {
        match self.room.load(Ordering::SeqCst) {
            0 => Room::Enough,
            1 => Room::Low,
            _ => Room::None,
        }
    }

    /// Writes down how much room there is.
    pub fn found_room(&self, room: Room) {
        let number = match room {
            Room::Enough => 0,
            Room::Low => 1,
            Room::None => 2,
        };
        self.room.store(number, Ordering::SeqCst);
    }

    /// Writes leave slowly from now on, or no longer.
    pub(crate) fn start_slowly(&self, start: SlowStart) {
        *self.slow_start.lock().unwrap_or_else(PoisonError::into_inner) = start;
    }

    /// How many writes that piled up while the gateway was away leave in a second at each service, while that is limited.
    #[must_use]
    pub fn slow_start(&self) -> Option<u32> {
        let start = *self.slow_start.lock().unwrap_or_else(PoisonError::into_inner);
        start.per_second(self.clock.since_boot())
    }

    /// Notes that this gateway was awake at this time since boot. Never goes back: whoever lets time pass by hand says so
    /// ahead.
    pub fn awake(&self, boot: Span) {
        self.awake_at.fetch_max(boot.as_millis(), Ordering::SeqCst);
    }

    /// How long nobody was awake until now.
    pub(crate) fn slept(&self, boot: Span) -> Span {
        Span::from_millis(boot.as_millis().saturating_sub(self.awake_at.load(Ordering::SeqCst)))
    }

    /// An undo window opens now.
    pub(crate) fn opened_window(&self, hold: HoldId, span: Span) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.open(hold, self.clock.since_boot(), span);
    }

    /// Whether a write's undo window has closed by both clocks.
    pub(crate) fn window_closed(&self, hold: HoldId, not_before: Timestamp) -> bool {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.closed(hold, not_before, self.now(), self.clock.since_boot())
    }

    /// A write is on its way or over: whoever waits for it looks again.
    pub(crate) fn moved(&self, hold: HoldId) {
        self.waiting.wake(hold);
        self.events.wrote();
    }

    /// A question was put or has its answer: whoever waits for it, or shows it to people, looks again.
    pub(crate) fn asked(&self, question: ApprovalId) {
        self.questions.wake(question);
        self.events.wrote();
        self.letters.notify_one();
    }

    pub(crate) fn forget_window(&self, hold: HoldId) {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).forget(hold);
    }

    /// The database as the stop lane reaches it: not behind ordinary work.
    pub(crate) fn stop_lane(&self) -> StopLane<'_> {
        self.store.stop_lane()
    }

    /// Refuses new work while the gateway is not open or has no room for its record.
    pub(crate) fn takes_calls(&self) -> Result<(), No> {
        match (self.phase(), self.room()) {
            (Phase::Starting, _) => Err(No::new(Code::GatewayStarting)),
            (Phase::Stopping, _) => Err(No::new(Code::GatewayStopping)),
            (Phase::Open, Room::None) => Err(No::new(Code::StoreDiskFull)),
            (Phase::Open, Room::Enough | Room::Low) => Ok(()),
        }
    }
}
