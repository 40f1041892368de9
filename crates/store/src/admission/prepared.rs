//! An admission prepared by its caller: the rows and the entry of a write that will simply be held.
//!
//! Takes an admission; gives a use case. The writer is one thread and everyone waits for it, so everything that needs
//! no database is computed before. Promise: the prepared rows are the ones the writer would have made. If the admission
//! ends differently, or is tried a second time, they are made anew.

use parking_lot::Mutex;
use sluice_core::audit::EncodedAuditFact;
use sluice_core::hold::HoldState;
use sluice_core::{AgentName, Tier, UtcMillis};

use super::{Admission, AdmissionOutcome, remember};
use crate::error::StoreError;
use crate::holds::NewHold;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::prefetch::PrefetchQuery;
use crate::sql::{SqlValue, StoreTx};
use crate::unit_of_work::{UnitOfWork, UseCase};

/// An admission on its way to the writer.
pub(crate) struct AdmitWrite {
    admission: Admission,
    /// Taken by the first try. A transaction that fails loses them.
    rows: Mutex<Option<PreparedHoldRows>>,
}

/// The rows of a write that is held at this tier, without the times.
pub(super) struct PreparedHoldRows {
    pub tier: Tier,
    hold: NewHold,
    fact: EncodedAuditFact,
    key: Option<Vec<SqlValue>>,
    message: Option<Vec<SqlValue>>,
}

impl AdmitWrite {
    /// Prepares an admission.
    pub fn new(admission: Admission) -> Self {
        let rows = (admission.tier != Tier::Blocked).then(|| PreparedHoldRows::held(&admission, admission.tier));
        Self { admission, rows: Mutex::new(rows) }
    }
}

impl UseCase for AdmitWrite {
    type Out = AdmissionOutcome;

    fn turn(&self) -> Option<&AgentName> {
        Some(self.admission.action.agent())
    }

    fn prefetch_queries(&self, now: UtcMillis) -> Vec<PrefetchQuery> {
        self.admission.foreseen(now)
    }

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<AdmissionOutcome, StoreError> {
        let rows = self.rows.lock().take();
        self.admission.admit(unit, rows).await
    }
}

impl PreparedHoldRows {
    pub fn held(admission: &Admission, tier: Tier) -> Self {
        let some_time = UtcMillis::default();
        let hold = admission.new_hold(some_time, HoldState::Held { not_before: some_time }, tier);
        let message = (tier == Tier::Notify).then(|| {
            let agent = admission.action.agent();
            let targets: Vec<&str> = admission.targets.iter().take(5).map(|target| target.value.as_str()).collect();
            let body = serde_json::json!({
                "call": admission.call, "hold": admission.hold, "agent": agent,
                "capability": admission.action.capability(), "targets": targets,
            });
            let (id, topic) = (admission.message, outbox::NOTICE.into());
            outbox::row(&OutboxMessage { id, topic, severity: MessageSeverity::Info, body })
        });
        Self {
            tier,
            fact: admission.placed(&hold).encode(),
            hold: NewHold::of(&hold, &admission.record_key, &admission.targets, admission.reason.as_deref()),
            key: admission.key_row(),
            message,
        }
    }

    /// Adds them to the unit of work, admitted now.
    pub fn put<T: StoreTx>(self, unit: &mut UnitOfWork<'_, T>, not_before: UtcMillis) {
        self.hold.held(unit.now, not_before).put(unit);
        unit.record_told(self.fact);
        if let Some(key) = self.key {
            remember(unit, key);
        }
        if let Some(message) = self.message {
            outbox::put_row(unit, message);
        }
    }
}
