//! The running gateway: everything a room may use, in one place.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sluice_core::audit::checkpoint::CheckpointSigner;
use sluice_core::audit::key::VerifierKey;
use sluice_core::pace::SlowStart;
use sluice_core::policy::LivePolicy;
use sluice_core::refusal::Code;
use sluice_core::timekeeping::UndoWindows;
use sluice_core::{ApprovalId, Clock, Entropy, HoldId, Ids, Millis, NodeName, UtcMillis};
use sluice_store::{RetentionCursor, StopLane, Store};
use tokio::sync::{Notify, watch};

use crate::CallError;
use crate::active_freezes::ActiveFreezes;
use crate::catalogue::LiveCatalogue;
use crate::channels::health::ChannelHealthRegistry;
use crate::config::Config;
use crate::connections::ServiceConnections;
use crate::doors::mcp::changes::ToolListChanges;
use crate::egress::Egress;
use crate::events::EventFeed;
use crate::intake::Intake;
use crate::keyring::Keyring;
use crate::loops::health_watch::HealthWatch;
use crate::mounts::MountedServers;
use crate::nodes::NodeReports;
use crate::oauth::OauthGrants;
use crate::proxies::SecurityProxies;
use crate::queues::WaitingQueues;
use crate::recovery::RecoveryMemory;
use crate::rooms::leak::LeakScanner;
use crate::services::Services;
use crate::services::about::AboutService;
use crate::tls::LiveTls;
use crate::vault::Vault;
use crate::wait_list::WaitList;
use crate::workers::GatewayWorkers;

/// The parts of a gateway.
#[allow(missing_debug_implementations, reason = "handed over once; most of it has nothing to print")]
pub struct GatewayParts {
    /// The database.
    pub store: Arc<Store>,
    /// The rules in force.
    pub policy: Arc<LivePolicy>,
    /// The capabilities that can be called.
    pub catalogue: Arc<LiveCatalogue>,
    /// The configuration.
    pub config: Config,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The services behind the gate.
    pub services: Services,
    /// What callers can learn about this gateway.
    pub about: Arc<AboutService>,
    /// The leak scan: content that must not leave.
    pub scan: Box<dyn LeakScanner>,
    /// The vault with the credentials.
    pub vault: Arc<Vault>,
    /// The only way out to the network.
    pub egress: Arc<Egress>,
    /// The worker pool; started once the gateway is served.
    pub workers: Arc<GatewayWorkers>,
    /// The only way in for outside content.
    pub intake: Arc<Intake>,
    /// Proxies: isolated interfaces to untrusted services.
    pub proxies: SecurityProxies,
    /// The connected services.
    pub connections: Arc<ServiceConnections>,
    /// The grants that people gave for the connected services.
    pub oauth: Arc<OauthGrants>,
    /// Mounted third-party servers.
    pub mounts: MountedServers,
    /// The freezes in force, as last seen.
    pub standstill: Arc<ActiveFreezes>,
    /// Sign the ends of this node's logs, each with a key of its own; without signatures, nobody outside can prove
    /// what the audit log said.
    pub signers: Vec<(NodeName, CheckpointSigner)>,
    /// The state that is kept outside the database.
    pub recovery: RecoveryMemory,
}

/// One running gateway.
pub struct Gateway {
    /// The database.
    pub store: Arc<Store>,
    /// The rules in force.
    pub policy: Arc<LivePolicy>,
    /// The capabilities that can be called.
    pub catalogue: Arc<LiveCatalogue>,
    /// The configuration.
    pub config: Config,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub ids: Arc<dyn Ids>,
    /// The source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// The services behind the gate.
    pub services: Services,
    /// What callers can learn about this gateway.
    pub about: Arc<AboutService>,
    /// The credentials that may call the gateway.
    pub keyring: Keyring,
    /// The live stream of audit entries.
    pub events: EventFeed,
    /// The worker pool that reads what services send.
    pub workers: Arc<GatewayWorkers>,
    /// The only way in for outside content.
    pub intake: Arc<Intake>,
    /// Proxies: isolated interfaces to untrusted services.
    pub proxies: SecurityProxies,
    /// The connected services.
    pub connections: Arc<ServiceConnections>,
    /// The grants that people gave for the connected services.
    pub oauth: Arc<OauthGrants>,
    /// Mounted third-party servers.
    pub mounts: MountedServers,
    /// The vault with the credentials.
    pub vault: Arc<Vault>,
    /// The only way out to the network.
    pub egress: Arc<Egress>,
    /// How reliably replies of people arrive over each channel.
    pub hearing: ChannelHealthRegistry,
    /// How reliably each channel delivers messages.
    pub sending: ChannelHealthRegistry,
    /// The state that is kept outside the database.
    pub recovery: RecoveryMemory,
    pub(crate) scan: Box<dyn LeakScanner>,
    pub(crate) signers: tokio::sync::Mutex<Vec<(NodeName, CheckpointSigner)>>,
    /// The keys that verify this node's logs.
    pub(crate) audit_keys: Vec<(NodeName, VerifierKey)>,
    /// Locked while the rules are loaded.
    pub(crate) reloading: tokio::sync::Mutex<()>,
    pub(crate) waiting: WaitList<HoldId>,
    /// The callers that wait for a decision on an approval request.
    pub(crate) questions: WaitList<ApprovalId>,
    /// Wakes the loop that sends messages to people.
    pub(crate) letters: Notify,
    /// Wakes the loops that handle due work.
    pub(crate) due: Notify,
    /// Whether the capabilities of agents have changed.
    pub(crate) changes: ToolListChanges,
    /// The report of this node, and its view of the other nodes.
    pub(crate) nodes: NodeReports,
    /// The number of waiting writes, by service and agent.
    pub queues: WaitingQueues,
    /// The freezes in force, as last seen.
    pub standstill: Arc<ActiveFreezes>,
    phase: AtomicU8,
    /// Turns true when the gateway stops, so that waiting tasks can end.
    stopping: watch::Sender<bool>,
    /// The reason why the gateway cannot continue, if there is one.
    lost: watch::Sender<Option<FatalGatewayError>>,
    clock_suspect: AtomicBool,
    /// Whether people were notified that the gateway does not follow the clock.
    pub(crate) clock_told: AtomicBool,
    /// What the gateway depends on, and which alerts about it were sent.
    pub(crate) watch: HealthWatch,
    /// The certificate in use, if TLS is configured and the gateway is served.
    pub(crate) tls: OnceLock<Arc<LiveTls>>,
    /// Where retention continues.
    pub(crate) retention: Mutex<RetentionState>,
    /// How slowly writes leave after the gateway was away.
    slow_start: Mutex<SlowStart>,
    room: AtomicU8,
    /// When the machine was last seen awake, in milliseconds since boot.
    awake_at: AtomicU64,
    /// Undo windows that this process opened, measured by a clock that nobody can set.
    windows: Mutex<UndoWindows>,
}

/// The work that retention still has to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RetentionState {
    /// Whether there may be more expired rows.
    pub rows: bool,
    /// Where the scan of old writes continues.
    pub writes: Option<RetentionCursor>,
}

/// The phase of a gateway between start and stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayPhase {
    /// Recovers what the last run left open.
    Starting,
    /// Takes calls.
    Open,
    /// Takes no new calls.
    Stopping,
}

/// Why a gateway cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FatalGatewayError {
    /// After a failed sync the page cache can no longer be trusted.
    #[error("the database can no longer be trusted: a sync to the disk failed, or the file is damaged")]
    Record,
    /// The file of the database no longer exists.
    #[error("the database file was removed or replaced while the gateway ran; put it back, or restore a backup")]
    Removed,
    /// A loop ended, so nothing expires, revokes, releases or signs any more.
    #[error("one of its background loops ended unexpectedly")]
    Loop,
}

/// How much free space the disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskSpace {
    /// Enough.
    Enough,
    /// Too little for new writes.
    Low,
    /// Too little for anything but the stop lane.
    None,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Builds a gateway from its parts. It is not open yet: see [`crate::loops::start`].
    #[must_use]
    pub fn new(parts: GatewayParts) -> Self {
        let GatewayParts { store, policy, catalogue, config, clock, ids, entropy, services, about, scan, .. } = parts;
        let (vault, egress, signers) = (parts.vault, parts.egress, parts.signers);
        let watch = HealthWatch::over(&config.data);
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
            hearing: ChannelHealthRegistry::default(),
            sending: ChannelHealthRegistry::default(),
            recovery: parts.recovery,
            scan,
            audit_keys: signers.iter().map(|(log, signer)| (log.clone(), signer.key().clone())).collect(),
            signers: tokio::sync::Mutex::new(signers),
            keyring: Keyring::default(),
            events: EventFeed::default(),
            workers: parts.workers,
            intake: parts.intake,
            proxies: parts.proxies,
            connections: parts.connections,
            oauth: parts.oauth,
            mounts: parts.mounts,
            reloading: tokio::sync::Mutex::new(()),
            waiting: WaitList::default(),
            questions: WaitList::default(),
            letters: Notify::new(),
            due: Notify::new(),
            changes: ToolListChanges::default(),
            nodes: NodeReports::default(),
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

    /// The leak scan: the vault reports each change to it, and other parts check with it what they send.
    #[must_use]
    pub fn leak_scan(&self) -> &dyn LeakScanner {
        self.scan.as_ref()
    }

    /// The wall-clock time.
    #[must_use]
    pub fn now(&self) -> UtcMillis {
        self.clock.now()
    }

    /// The current phase.
    #[must_use]
    pub fn phase(&self) -> GatewayPhase {
        match self.phase.load(Ordering::SeqCst) {
            0 => GatewayPhase::Starting,
            1 => GatewayPhase::Open,
            _ => GatewayPhase::Stopping,
        }
    }

    /// Enters a later phase; never goes back.
    pub fn enter(&self, phase: GatewayPhase) {
        let number = match phase {
            GatewayPhase::Starting => 0,
            GatewayPhase::Open => 1,
            GatewayPhase::Stopping => 2,
        };
        self.phase.fetch_max(number, Ordering::SeqCst);
        if phase == GatewayPhase::Stopping {
            self.stopping.send_replace(true);
            self.changes.end();
        }
    }

    /// Waits until the gateway stops.
    pub(crate) async fn wait_for_stop(&self) {
        // The sender lives as long as the gateway does.
        drop(self.stopping.subscribe().wait_for(|stopping| *stopping).await);
    }

    /// Takes nothing new and ends, because it cannot go on. The first reason is the one that counts.
    pub(crate) fn give_up(&self, why: FatalGatewayError) {
        let first = self.lost.send_if_modified(|lost| lost.is_none() && lost.replace(why).is_none());
        if first {
            tracing::error!("the gateway cannot go on and ends: {why}");
            self.enter(GatewayPhase::Stopping);
        }
    }

    /// Waits until the gateway cannot go on, and says why.
    pub async fn wait_for_failure(&self) -> FatalGatewayError {
        // The sender lives as long as the gateway does.
        let mut lost = self.lost.subscribe();
        lost.wait_for(Option::is_some).await.ok().and_then(|lost| *lost).unwrap_or(FatalGatewayError::Loop)
    }

    /// Whether the wall clock has jumped a moment ago.
    #[must_use]
    pub fn clock_is_suspect(&self) -> bool {
        self.clock_suspect.load(Ordering::SeqCst)
    }

    pub(crate) fn suspect_clock(&self, suspect: bool) {
        self.clock_suspect.store(suspect, Ordering::SeqCst);
    }

    /// How much free space the disk has, as last checked.
    #[must_use]
    pub fn disk_space(&self) -> DiskSpace {
        match self.room.load(Ordering::SeqCst) {
            0 => DiskSpace::Enough,
            1 => DiskSpace::Low,
            _ => DiskSpace::None,
        }
    }

    /// Records how much free space the disk has.
    pub fn set_disk_space(&self, room: DiskSpace) {
        let number = match room {
            DiskSpace::Enough => 0,
            DiskSpace::Low => 1,
            DiskSpace::None => 2,
        };
        self.room.store(number, Ordering::SeqCst);
    }

    /// Sets whether writes leave slowly from now on.
    pub(crate) fn start_slowly(&self, start: SlowStart) {
        *self.slow_start.lock().unwrap_or_else(PoisonError::into_inner) = start;
    }

    /// How many piled-up writes may leave per second at each service, while that is limited after an absence.
    #[must_use]
    pub fn slow_start(&self) -> Option<u32> {
        let start = *self.slow_start.lock().unwrap_or_else(PoisonError::into_inner);
        start.per_second(self.clock.since_boot())
    }

    /// Notes that this gateway was awake at this time since boot. Never goes back: a test that moves time by hand
    /// reports the new time first.
    pub fn record_awake(&self, boot: Millis) {
        self.awake_at.fetch_max(boot.as_millis(), Ordering::SeqCst);
    }

    /// How long the gateway was not awake until now.
    pub(crate) fn time_asleep(&self, boot: Millis) -> Millis {
        Millis::from_millis(boot.as_millis().saturating_sub(self.awake_at.load(Ordering::SeqCst)))
    }

    /// Starts the undo window of a write.
    pub(crate) fn open_undo_window(&self, hold: HoldId, span: Millis) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.open(hold, self.clock.since_boot(), span);
    }

    /// Whether a write's undo window has closed by both clocks.
    pub(crate) fn is_undo_window_closed(&self, hold: HoldId, not_before: UtcMillis) -> bool {
        let windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.is_closed(hold, not_before, self.now(), self.clock.since_boot())
    }

    /// Wakes the waiters of a write whose state has changed.
    pub(crate) fn notify_hold_changed(&self, hold: HoldId) {
        self.waiting.wake(hold);
        self.events.notify_written();
    }

    /// Wakes the waiters of an approval request, and the loop that shows it to people, when it was created or decided.
    pub(crate) fn notify_approval_changed(&self, question: ApprovalId) {
        self.questions.wake(question);
        self.events.notify_written();
        self.letters.notify_one();
    }

    pub(crate) fn forget_window(&self, hold: HoldId) {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).forget(hold);
    }

    /// The database over the connection of the stop lane, which does not wait for other work.
    pub(crate) fn stop_lane(&self) -> StopLane<'_> {
        self.store.stop_lane()
    }

    /// Refuses new calls while the gateway is not open or has no space for audit entries.
    pub(crate) fn require_accepting_calls(&self) -> Result<(), CallError> {
        match (self.phase(), self.disk_space()) {
            (GatewayPhase::Starting, _) => Err(CallError::new(Code::GatewayStarting)),
            (GatewayPhase::Stopping, _) => Err(CallError::new(Code::GatewayStopping)),
            (GatewayPhase::Open, DiskSpace::None) => Err(CallError::new(Code::StoreDiskFull)),
            (GatewayPhase::Open, DiskSpace::Enough | DiskSpace::Low) => Ok(()),
        }
    }
}
