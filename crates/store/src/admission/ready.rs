//! An admission got ready by its caller: the rows and the entry of a write that will simply be held.
//!
//! Takes an admission; gives a use case. The writer is one thread and everybody waits for it: what can be worked out
//! without asking the database is worked out before. Promise: what is used here is what the writer would have made;
//! where the admission ends otherwise, or is tried a second time, it is made anew.

use std::sync::{Mutex, PoisonError};

use sluice_core::audit::Told;
use sluice_core::hold::HoldState;
use sluice_core::{AgentName, Tier, Timestamp};

use super::{Admission, Admitted, remember};
use crate::ahead::Ahead;
use crate::desk::{Desk, UseCase};
use crate::error::StoreError;
use crate::holds::NewHold;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Tx, Val};

/// An admission on its way to the writer.
pub(crate) struct Admit {
    admission: Admission,
    /// Taken by the first try. A transaction that is lost takes them with it.
    rows: Mutex<Option<Rows>>,
}

/// What a write leaves that is held at this tier, but for the times.
pub(super) struct Rows {
    pub tier: Tier,
    hold: NewHold,
    fact: Told,
    key: Option<Vec<Val>>,
    message: Option<Vec<Val>>,
}

impl Admit {
    /// Gets an admission ready.
    pub fn new(admission: Admission) -> Self {
        let rows = (admission.tier != Tier::Blocked).then(|| Rows::held(&admission, admission.tier));
        Self { admission, rows: Mutex::new(rows) }
    }
}

impl UseCase for Admit {
    type Out = Admitted;

    fn turn(&self) -> Option<&AgentName> {
        Some(self.admission.action.agent())
    }

    fn foreseen(&self, now: Timestamp) -> Vec<Ahead> {
        self.admission.foreseen(now)
    }

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Admitted, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.admission.admit(desk, rows).await
    }
}

impl Rows {
    pub fn held(admission: &Admission, tier: Tier) -> Self {
        let some_time = Timestamp::default();
        let hold = admission.new_hold(some_time, HoldState::Held { not_before: some_time }, tier);
        let message = (tier == Tier::Notify).then(|| {
            let agent = admission.action.agent();
            let targets: Vec<&str> = admission.targets.iter().take(5).map(|target| target.value.as_str()).collect();
            let body = serde_json::json!({
                "call": admission.call, "hold": admission.hold, "agent": agent,
                "capability": admission.action.capability(), "targets": targets,
            });
            let (id, topic) = (admission.message, outbox::NOTICE.into());
            outbox::row(&Message { id, topic, severity: Severity::Info, body })
        });
        Self {
            tier,
            fact: admission.placed(&hold).told(),
            hold: NewHold::of(&hold, &admission.record_key, &admission.targets, admission.reason.as_deref()),
            key: admission.key_row(),
            message,
        }
    }

    /// Leaves them on the desk, admitted now.
    pub fn put<T: Tx>(self, desk: &mut Desk<'_, T>, not_before: Timestamp) {
        self.hold.held(desk.now, not_before).put(desk);
        desk.record_told(self.fact);
        if let Some(key) = self.key {
            remember(desk, key);
        }
        if let Some(message) = self.message {
            outbox::put_row(desk, message);
        }
    }
}
