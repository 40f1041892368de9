//! Reads that a person had to allow: what they gave goes on record before it is handed over.

use sluice_core::Actor;
use sluice_core::audit::Fact;
use sluice_core::hold::Hold;
use sluice_core::read_trace::ReadTrace;

use super::READ_GIVEN;
use crate::Store;
use crate::desk::{Desk, UseCase};
use crate::error::StoreError;
use crate::sql::Tx;

/// What an allowed read is about to give.
struct GivenRead {
    fact: Fact,
}

impl UseCase for GivenRead {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        desk.record(self.fact.clone());
        Ok(())
    }
}

impl Store {
    /// Records what an allowed read is about to give.
    ///
    /// # Errors
    /// When it cannot be recorded: then it must not be given.
    pub async fn read_given(&self, hold: &Hold, read: &ReadTrace) -> Result<(), StoreError> {
        let agent = Actor::Agent(hold.agent().clone());
        let mut fact = Fact::new(READ_GIVEN, agent).with("capability", hold.action.capability());
        if let Some(session) = hold.session {
            fact = fact.with("session", session);
        }
        read.write(&mut fact.detail);
        fact.call = Some(hold.call);
        fact.hold = Some(hold.id);
        self.submit(GivenRead { fact }).await
    }
}
