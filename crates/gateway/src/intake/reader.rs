//! Readers: whom an item is for, and what they are about to be shown.
//!
//! Takes a call; gives what the intake has to know of it. Promise: what a read is about to show is kept with the call until
//! it goes on record together with the answer; where nobody gathers, it goes on record by itself, at once.

use std::sync::{Arc, Mutex, PoisonError};

use sluice_core::hold::Hold;
use sluice_core::ids::SessionId;
use sluice_core::{AgentName, CallId};
use sluice_store::Observation;

use crate::services::Ask;

/// Whom an item is for.
#[derive(Debug, Clone)]
pub struct Reader {
    /// The agent.
    pub agent: AgentName,
    /// Its session, if it named one.
    pub session: Option<SessionId>,
    /// The call that asked for it.
    pub call: CallId,
    /// Where it is kept what was shown, if whoever answers records it with the answer.
    pub notes: Option<Notes>,
}

impl Reader {
    /// Whoever made this call.
    #[must_use]
    pub fn of(ask: &Ask) -> Self {
        let Ask { call, action, session, notes, .. } = ask;
        Self { agent: action.agent().clone(), session: *session, call: *call, notes: notes.clone() }
    }

    /// Whoever made this write.
    #[must_use]
    pub fn of_write(hold: &Hold) -> Self {
        Self { agent: hold.agent().clone(), session: hold.session, call: hold.call, notes: None }
    }
}

/// What a call is about to show, on its way into the record.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<Observation>>>);

impl Notes {
    /// Keeps one more.
    pub(super) fn put(&self, observation: Observation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(observation);
    }

    /// All of them, the first one first; nothing is left.
    #[must_use]
    pub fn take(&self) -> Vec<Observation> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
