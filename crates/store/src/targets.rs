//! Origins of targets: what sessions were shown, which targets people have approved, and the targets of a write.
//!
//! Promise: a target becomes known in the transaction in which a person approves the one write that has it. Approving a
//! batch makes no target known.

use sluice_core::audit::AuditFact;
use sluice_core::ids::SessionId;
use sluice_core::target::{TextValueHashes, TracedTarget};
use sluice_core::{AgentName, ApprovalId, CallId, HoldId};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{RowReader, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const OBSERVE: &str = "INSERT INTO observations (session, id, seen_at, source, met) VALUES (?1, ?2, ?3, ?4, ?5)";
const OBSERVED: &str = "SELECT source, met FROM observations WHERE session = ?1 ORDER BY id LIMIT 2000";
const KNOWN: &str = "SELECT print FROM known_targets WHERE agent = ?1 AND print = ?2";
const LEARN: &str = "INSERT INTO known_targets (agent, print, since, approval) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (agent, print) DO NOTHING";
pub(crate) const OF_HOLD: &str = "SELECT targets FROM contents WHERE hold = ?1";
const REASON: &str = "SELECT reason FROM contents WHERE hold = ?1";
const TAINTED: &str = "SELECT id FROM sessions WHERE agent = ?1 AND tainted_at IS NOT NULL LIMIT 1";

/// An outside text that a session is about to be shown.
#[derive(Debug, Clone)]
pub struct SessionObservation {
    /// The session.
    pub session: SessionId,
    /// Its own id.
    pub id: CallId,
    /// The call that requested it, if there was one.
    pub call: Option<CallId>,
    /// Its source, as the gateway knows it.
    pub source: String,
    /// The possible targets in it.
    pub met: TextValueHashes,
}

impl UseCase for SessionObservation {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        observe(unit, self);
        Ok(())
    }
}

/// Records an observation in the current transaction.
pub(crate) fn observe<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, seen: &SessionObservation) {
    let now = unit.now;
    let met = seen.met.to_bytes();
    let fact = AuditFact::new("session.observed", unit.actor()).with("session", seen.session);
    let mut fact = fact.with("values", met.len() / 8);
    unit.write(OBSERVE, params![seen.session, seen.id, now, seen.source.as_str(), met]);
    fact.call = seen.call;
    unit.record(fact);
}

struct ListSessionObservations(SessionId);

impl StoreQuery for ListSessionObservations {
    type Out = Vec<(String, TextValueHashes)>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(OBSERVED, &params![self.0]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("observations");
                Ok((row.text()?, TextValueHashes::from_bytes(&row.blob()?)))
            })
            .collect()
    }
}

struct FindKnownTargets {
    agent: AgentName,
    prints: Vec<String>,
}

impl StoreQuery for FindKnownTargets {
    type Out = Vec<String>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<String>, StoreError> {
        let each: Vec<_> = self.prints.iter().map(|print| params![&self.agent, print.as_str()]).collect();
        let found = tx.rows_each(KNOWN, &each).await?;
        found.into_iter().flatten().map(|row| row.of("known_targets").text()).collect()
    }
}

struct GetHoldTargets(HoldId);

impl StoreQuery for GetHoldTargets {
    type Out = Vec<TracedTarget>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<TracedTarget>, StoreError> {
        of_hold(tx, self.0).await
    }
}

struct GetHoldReason(HoldId);

impl StoreQuery for GetHoldReason {
    type Out = Option<String>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        let row = tx.rows(REASON, &params![self.0]).await?.into_iter().next();
        row.map_or(Ok(None), |row| row.of("contents").maybe_text())
    }
}

struct HasTaintedSession(AgentName);

impl StoreQuery for HasTaintedSession {
    type Out = bool;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        Ok(!tx.rows(TAINTED, &params![&self.0]).await?.is_empty())
    }
}

async fn of_hold<T: StoreTx>(tx: &mut T, hold: HoldId) -> Result<Vec<TracedTarget>, StoreError> {
    let Some(row) = tx.rows(OF_HOLD, &params![hold]).await?.into_iter().next() else { return Ok(Vec::new()) };
    read(&mut row.of("contents"))
}

/// Reads the column of a write's targets.
pub(crate) fn read(row: &mut RowReader) -> Result<Vec<TracedTarget>, StoreError> {
    match row.maybe_text()? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(&text).map_err(|_| row.impossible("targets that cannot be read")),
    }
}

/// The targets of one write, while its approval request is being decided.
pub(crate) async fn targets_to_learn<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: HoldId,
) -> Result<Vec<String>, StoreError> {
    Ok(of_hold(unit.tx(), hold).await?.into_iter().filter_map(|target| target.print).collect())
}

/// Makes targets known.
pub(crate) fn learn<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    agent: &AgentName,
    approval: ApprovalId,
    prints: &[String],
) {
    let now = unit.now;
    for print in prints {
        unit.write(LEARN, params![agent, print.as_str(), now, approval]);
    }
}

impl Store {
    /// Records that a session is shown an outside text.
    ///
    /// # Errors
    /// When it cannot be recorded: then the text must not be shown.
    pub async fn observe(&self, observation: SessionObservation) -> Result<(), StoreError> {
        self.submit(observation).await
    }

    /// The outside texts that a session was shown, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn session_observations(&self, session: SessionId) -> Result<Vec<(String, TextValueHashes)>, StoreError> {
        self.ask(ListSessionObservations(session)).await
    }

    /// Which of these targets people have approved for an agent before.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn known_targets(&self, agent: AgentName, prints: Vec<String>) -> Result<Vec<String>, StoreError> {
        self.ask(FindKnownTargets { agent, prints }).await
    }

    /// The targets of a write with their origins, as they were when it was admitted.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hold_targets(&self, hold: HoldId) -> Result<Vec<TracedTarget>, StoreError> {
        self.ask(GetHoldTargets(hold)).await
    }

    /// Why an agent wants a write, in its own words.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hold_reason(&self, hold: HoldId) -> Result<Option<String>, StoreError> {
        self.ask(GetHoldReason(hold)).await
    }

    /// Whether any session of an agent has read suspicious content, without a person having cleared it since. Ending a
    /// session clears nothing.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn has_tainted_session(&self, agent: AgentName) -> Result<bool, StoreError> {
        self.ask(HasTaintedSession(agent)).await
    }
}

/// How long observations are remembered.
pub(crate) const REMEMBERED: sluice_core::Millis = sluice_core::Millis::from_hours(31 * 24);

/// The text of the column.
pub(crate) fn column(targets: &[TracedTarget]) -> Option<String> {
    if targets.is_empty() { None } else { serde_json::to_string(targets).ok() }
}
