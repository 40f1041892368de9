//! The running gateway: everything a room may use, in one place.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluice_core::audit::checkpoint::CheckpointSigner;
use sluice_core::audit::key::VerifierKey;
use sluice_core::hold::Hold;
use sluice_core::pace::SlowStart;
use sluice_core::refusal::Code;
use sluice_core::{Actor, ApprovalId, BoxedFuture, HoldId, Millis, NodeName};
use sluice_services::about::AboutService;
use sluice_services::wait_list::WaitList;
use sluice_services::{CallError, HoldStopper, ServiceContext};
use sluice_store::{RetentionCursor, StopLane};
use tokio::sync::{Notify, watch};

use crate::channels::health::ChannelHealthRegistry;
use crate::keyring::Keyring;
use crate::loops::health_watch::HealthWatch;
use crate::nodes::NodeReports;
use crate::queues::WaitingQueues;
use crate::recovery::RecoveryMemory;
use crate::rooms;
use crate::tls::LiveTls;
use crate::tool_list_changes::ToolListChanges;

/// The parts of a gateway.
#[allow(missing_debug_implementations, reason = "handed over once; most of it has nothing to print")]
pub struct GatewayParts {
    /// What services may use.
    pub context: Arc<ServiceContext>,
    /// What callers can learn about this gateway.
    pub about: Arc<AboutService>,
    /// Sign the ends of this node's logs, each with a key of its own; without signatures, nobody outside can prove
    /// what the audit log said.
    pub signers: Vec<(NodeName, CheckpointSigner)>,
    /// The state that is kept outside the database.
    pub recovery: RecoveryMemory,
}

/// One running gateway: the context of its services, and what only the corridor, the approvals and the loops use.
pub struct Gateway {
    /// What services may use. The fields and methods of the context can be reached through the gateway itself.
    context: Arc<ServiceContext>,
    /// What callers can learn about this gateway.
    pub about: Arc<AboutService>,
    /// The credentials that may call the gateway.
    pub keyring: Keyring,
    /// How reliably replies of people arrive over each channel.
    pub hearing: ChannelHealthRegistry,
    /// How reliably each channel delivers messages.
    pub sending: ChannelHealthRegistry,
    /// The state that is kept outside the database.
    pub recovery: RecoveryMemory,
    pub(crate) signers: tokio::sync::Mutex<Vec<(NodeName, CheckpointSigner)>>,
    /// The keys that verify this node's logs.
    pub audit_keys: Vec<(NodeName, VerifierKey)>,
    /// The callers that wait for a decision on an approval request.
    pub questions: WaitList<ApprovalId>,
    /// Wakes the loops that handle due work.
    pub due: Notify,
    /// Whether the capabilities of agents have changed.
    pub changes: ToolListChanges,
    /// The report of this node, and its view of the other nodes.
    pub(crate) nodes: NodeReports,
    /// The number of waiting writes, by service and agent.
    pub queues: WaitingQueues,
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
    pub tls: OnceLock<Arc<LiveTls>>,
    /// Where retention continues.
    pub(crate) retention: Mutex<RetentionState>,
    /// How slowly writes leave after the gateway was away.
    slow_start: Mutex<SlowStart>,
    room: AtomicU8,
    /// When the machine was last seen awake, in milliseconds since boot.
    awake_at: AtomicU64,
}

/// The work that retention still has to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RetentionState {
    /// Whether there may be more expired rows.
    pub rows: bool,
    /// Whether there may be more rollback points whose time is up.
    pub points: bool,
    /// Whether there may be more kept files of coding clients whose time is up.
    pub client_writes: bool,
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

/// What services may use, a gateway may use: `gateway.store` is the store of its context.
impl Deref for Gateway {
    type Target = ServiceContext;

    fn deref(&self) -> &ServiceContext {
        &self.context
    }
}

impl HoldStopper for Gateway {
    fn stop_hold(&self, hold: HoldId, by: Actor) -> BoxedFuture<'_, Result<Hold, CallError>> {
        Box::pin(rooms::hold::stop(self, hold, by))
    }
}

impl Gateway {
    /// Builds a gateway from its parts. It is not open yet: see [`crate::loops::start`].
    #[must_use]
    pub fn new(parts: GatewayParts) -> Self {
        let GatewayParts { context, about, signers, recovery } = parts;
        let watch = HealthWatch::over(&context.config.data);
        Self {
            context,
            about,
            hearing: ChannelHealthRegistry::default(),
            sending: ChannelHealthRegistry::default(),
            recovery,
            audit_keys: signers.iter().map(|(log, signer)| (log.clone(), signer.key().clone())).collect(),
            signers: tokio::sync::Mutex::new(signers),
            keyring: Keyring::default(),
            questions: WaitList::default(),
            due: Notify::new(),
            changes: ToolListChanges::default(),
            nodes: NodeReports::default(),
            queues: WaitingQueues::default(),
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
        }
    }

    /// The context of the services, for tasks that outlive a borrow.
    #[must_use]
    pub fn context(&self) -> &Arc<ServiceContext> {
        &self.context
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
    pub async fn wait_for_stop(&self) {
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
        *self.slow_start.lock() = start;
    }

    /// How many piled-up writes may leave per second at each service, while that is limited after an absence.
    #[must_use]
    pub fn slow_start(&self) -> Option<u32> {
        let start = *self.slow_start.lock();
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

    /// Wakes the waiters of an approval request, and the loop that shows it to people, when it was created or decided.
    pub fn notify_approval_changed(&self, question: ApprovalId) {
        self.questions.wake(question);
        self.signals.events.notify_written();
        self.signals.letters.notify_one();
    }

    /// The database over the connection of the stop lane, which does not wait for other work.
    pub fn stop_lane(&self) -> StopLane<'_> {
        self.store.stop_lane()
    }

    /// Refuses new calls while the gateway is not open or has no space for audit entries.
    pub fn require_accepting_calls(&self) -> Result<(), CallError> {
        match (self.phase(), self.disk_space()) {
            (GatewayPhase::Starting, _) => Err(CallError::new(Code::GatewayStarting)),
            (GatewayPhase::Stopping, _) => Err(CallError::new(Code::GatewayStopping)),
            (GatewayPhase::Open, DiskSpace::None) => Err(CallError::new(Code::StoreDiskFull)),
            (GatewayPhase::Open, DiskSpace::Enough | DiskSpace::Low) => Ok(()),
        }
    }
}
