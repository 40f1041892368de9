//! Readers: the agent that an item is for, and the record of what it is shown.
//!
//! Takes a call; gives what the intake needs to know about it. Promise: what a read is about to show is kept with the
//! call until it is recorded together with the answer; if nothing collects it, it is recorded at once by itself.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_core::hold::Hold;
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, CallId};
use sluice_store::SessionObservation;

use crate::ServiceRead;

/// The reader of an item.
#[derive(Debug, Clone)]
pub struct ContentRecipient {
    /// The agent.
    pub agent: AgentName,
    /// The session, if the call names one.
    pub session: Option<SessionId>,
    /// The call that asked for it.
    pub call: CallId,
    /// Collects what was shown, if it is recorded together with the answer.
    pub notes: Option<PendingObservations>,
}

impl ContentRecipient {
    /// The agent that made this call.
    #[must_use]
    pub fn of(ask: &ServiceRead) -> Self {
        let ServiceRead { call, action, session, notes, .. } = ask;
        Self { agent: action.agent().clone(), session: *session, call: *call, notes: notes.clone() }
    }

    /// The agent that made this write.
    #[must_use]
    pub fn of_write(hold: &Hold) -> Self {
        Self { agent: hold.agent().clone(), session: hold.session, call: hold.call, notes: None }
    }
}

/// What a call is about to show, until it is recorded.
#[derive(Debug, Clone, Default)]
pub struct PendingObservations(Arc<Mutex<Vec<SessionObservation>>>);

impl PendingObservations {
    /// Adds one observation.
    pub(super) fn put(&self, observation: SessionObservation) {
        self.0.lock().push(observation);
    }

    /// Takes all observations, the first one first.
    #[must_use]
    pub fn take(&self) -> Vec<SessionObservation> {
        std::mem::take(&mut *self.0.lock())
    }
}
