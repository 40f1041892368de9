//! The context of services: everything that services, connections, mounts and proxies may use of a gateway.
//!
//! Takes the parts of a gateway when it is opened; gives them to services. Promise: a service reaches the database, the
//! catalogue and the network through this context and nothing of the corridor, the approvals or the loops; the only way
//! to stop a held write is [`HoldStopper`].

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use sluice_config::Config;
use sluice_core::hold::Hold;
use sluice_core::policy::LivePolicy;
use sluice_core::refusal::Code;
use sluice_core::timekeeping::UndoWindows;
use sluice_core::{Actor, BoxedFuture, Clock, Entropy, HoldId, Ids, Millis, UtcMillis};
use sluice_egress::Egress;
use sluice_egress::leak::LeakScanner;
use sluice_egress::oauth::OauthGrants;
use sluice_egress::vault::Vault;
use sluice_store::Store;
use tokio::sync::Notify;

use crate::active_freezes::ActiveFreezes;
use crate::catalogue::LiveCatalogue;
use crate::connections::ServiceConnections;
use crate::events::EventFeed;
use crate::intake::Intake;
use crate::mounts::MountedServers;
use crate::proxies::SecurityProxies;
use crate::wait_list::WaitList;
use crate::workers::GatewayWorkers;
use crate::{CallError, Services};

/// Stops held writes: implemented by the gateway that owns the context.
pub trait HoldStopper: Send + Sync {
    /// Cancels a held write for an actor.
    fn stop_hold(&self, hold: HoldId, by: Actor) -> BoxedFuture<'_, Result<Hold, CallError>>;
}

/// What services may use of a gateway.
pub struct ServiceContext {
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
    /// The leak scan: content that must not leave.
    pub scan: Arc<dyn LeakScanner>,
    /// The vault with the credentials.
    pub vault: Arc<Vault>,
    /// The only way out to the network.
    pub egress: Arc<Egress>,
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
    /// The freezes in force, as last seen.
    pub standstill: Arc<ActiveFreezes>,
    /// What changes while the gateway runs.
    pub signals: ServiceSignals,
}

/// The signals between services and the loops of a gateway.
#[derive(Default)]
pub struct ServiceSignals {
    /// The live stream of audit entries.
    pub events: EventFeed,
    /// Wakes the loop that sends messages to people.
    pub letters: Notify,
    /// The callers that wait for a held write to change.
    pub waiting: WaitList<HoldId>,
    /// Locked while the rules are loaded.
    pub reloading: tokio::sync::Mutex<()>,
    /// Undo windows that this process opened, measured by a clock that nobody can set.
    windows: Mutex<UndoWindows>,
    stopper: OnceLock<Weak<dyn HoldStopper>>,
}

impl std::fmt::Debug for ServiceContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceContext").field("store", &self.store).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ServiceSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceSignals").finish_non_exhaustive()
    }
}

impl ServiceContext {
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

    /// Starts the undo window of a write.
    pub fn open_undo_window(&self, hold: HoldId, span: Millis) {
        let mut windows = self.signals.windows.lock();
        windows.open(hold, self.clock.since_boot(), span);
    }

    /// Whether a write's undo window has closed by both clocks.
    #[must_use]
    pub fn is_undo_window_closed(&self, hold: HoldId, not_before: UtcMillis) -> bool {
        let windows = self.signals.windows.lock();
        windows.is_closed(hold, not_before, self.now(), self.clock.since_boot())
    }

    /// Forgets the undo window of a write that ended.
    pub fn forget_window(&self, hold: HoldId) {
        self.signals.windows.lock().forget(hold);
    }

    /// Wakes the waiters of a write whose state has changed.
    pub fn notify_hold_changed(&self, hold: HoldId) {
        self.signals.waiting.wake(hold);
        self.signals.events.notify_written();
    }

    /// Sets who stops held writes. Called once, when the gateway is built.
    pub fn attach_hold_stopper(&self, stopper: Weak<dyn HoldStopper>) {
        // A gateway is built only once.
        let _first = self.signals.stopper.set(stopper);
    }

    /// Cancels a held write for an actor.
    ///
    /// # Errors
    /// When there is no such write, it is too late, or the gateway is stopping.
    pub async fn stop_hold(&self, hold: HoldId, by: Actor) -> Result<Hold, CallError> {
        let stopper = self.signals.stopper.get().and_then(Weak::upgrade);
        stopper.ok_or_else(|| CallError::new(Code::GatewayStopping))?.stop_hold(hold, by).await
    }
}
