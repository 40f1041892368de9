//! Reads that a person had to approve: their content is recorded, by ids and hashes, before the agent receives it.

use sluice_core::Actor;
use sluice_core::audit::AuditFact;
use sluice_core::hold::Hold;
use sluice_core::read_trace::ReadTrace;

use super::READ_GIVEN;
use crate::Store;
use crate::error::StoreError;
use crate::sql::StoreTx;
use crate::unit_of_work::{UnitOfWork, UseCase};

/// Describes what an approved read is about to return.
struct RecordGivenRead {
    fact: AuditFact,
}

impl UseCase for RecordGivenRead {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        unit.record(self.fact.clone());
        Ok(())
    }
}

impl Store {
    /// Records what an approved read is about to return.
    ///
    /// # Errors
    /// When it cannot be recorded: then the content must not be returned.
    pub async fn record_given_read(&self, hold: &Hold, read: &ReadTrace) -> Result<(), StoreError> {
        let agent = Actor::Agent(hold.agent().clone());
        let mut fact = AuditFact::new(READ_GIVEN, agent).with("capability", hold.action.capability());
        if let Some(session) = hold.session {
            fact = fact.with("session", session);
        }
        read.write(&mut fact.detail);
        fact.call = Some(hold.call);
        fact.hold = Some(hold.id);
        self.submit(RecordGivenRead { fact }).await
    }
}
