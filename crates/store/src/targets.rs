//! Where targets come from: what sessions were shown, which targets people have approved, and what a write's are.
//!
//! Promise: a target becomes known in the transaction of the yes that a person gave to the one write that has it; a
//! yes to a batch makes nothing known.

use sluice_core::audit::Fact;
use sluice_core::ids::SessionId;
use sluice_core::target::{Met, Traced};
use sluice_core::{AgentName, ApprovalId, CallId, HoldId};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Columns, Tx, params};

const OBSERVE: &str = "INSERT INTO observations (session, id, seen_at, source, met) VALUES (?1, ?2, ?3, ?4, ?5)";
const OBSERVED: &str = "SELECT source, met FROM observations WHERE session = ?1 ORDER BY id LIMIT 2000";
const KNOWN: &str = "SELECT print FROM known_targets WHERE agent = ?1 AND print = ?2";
const LEARN: &str = "INSERT INTO known_targets (agent, print, since, approval) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (agent, print) DO NOTHING";
const OF_HOLD: &str = "SELECT targets FROM contents WHERE hold = ?1";
const REASON: &str = "SELECT reason FROM contents WHERE hold = ?1";
const TAINTED: &str = "SELECT id FROM sessions WHERE agent = ?1 AND tainted_at IS NOT NULL LIMIT 1";

/// An outside text a session is about to be shown.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Whose.
    pub session: SessionId,
    /// Its own number.
    pub id: CallId,
    /// The call that asked for it, if one did.
    pub call: Option<CallId>,
    /// Where it is from, as the gateway knows it.
    pub source: String,
    /// What could become a target in it.
    pub met: Met,
}

impl UseCase for Observation {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        observe(desk, self);
        Ok(())
    }
}

/// Notes one, in the transaction at hand.
pub(crate) fn observe<T: Tx>(desk: &mut Desk<'_, T>, seen: &Observation) {
    let now = desk.now;
    let met = seen.met.to_bytes();
    let fact = Fact::new("session.observed", desk.actor()).with("session", seen.session);
    let mut fact = fact.with("values", met.len() / 8);
    desk.write(OBSERVE, params![seen.session, seen.id, now, seen.source.as_str(), met]);
    fact.call = seen.call;
    desk.record(fact);
}

struct Observed(SessionId);

impl Query for Observed {
    type Out = Vec<(String, Met)>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let rows = tx.rows(OBSERVED, &params![self.0]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("observations");
                Ok((row.text()?, Met::from_bytes(&row.blob()?)))
            })
            .collect()
    }
}

struct Known {
    agent: AgentName,
    prints: Vec<String>,
}

impl Query for Known {
    type Out = Vec<String>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<String>, StoreError> {
        let each: Vec<_> = self.prints.iter().map(|print| params![&self.agent, print.as_str()]).collect();
        let found = tx.rows_each(KNOWN, &each).await?;
        found.into_iter().flatten().map(|row| row.of("known_targets").text()).collect()
    }
}

struct OfHold(HoldId);

impl Query for OfHold {
    type Out = Vec<Traced>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Traced>, StoreError> {
        of_hold(tx, self.0).await
    }
}

struct ReasonOf(HoldId);

impl Query for ReasonOf {
    type Out = Option<String>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        let row = tx.rows(REASON, &params![self.0]).await?.into_iter().next();
        row.map_or(Ok(None), |row| row.of("contents").maybe_text())
    }
}

struct Tainted(AgentName);

impl Query for Tainted {
    type Out = bool;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        Ok(!tx.rows(TAINTED, &params![&self.0]).await?.is_empty())
    }
}

async fn of_hold<T: Tx>(tx: &mut T, hold: HoldId) -> Result<Vec<Traced>, StoreError> {
    let Some(row) = tx.rows(OF_HOLD, &params![hold]).await?.into_iter().next() else { return Ok(Vec::new()) };
    read(&mut row.of("contents"))
}

/// The column of a write's targets.
pub(crate) fn read(row: &mut Columns) -> Result<Vec<Traced>, StoreError> {
    match row.maybe_text()? {
        None => Ok(Vec::new()),
        Some(text) => serde_json::from_str(&text).map_err(|_| row.impossible("targets that cannot be read")),
    }
}

/// The targets of one write, while its question is being answered.
pub(crate) async fn to_learn<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId) -> Result<Vec<String>, StoreError> {
    Ok(of_hold(desk.tx(), hold).await?.into_iter().filter_map(|target| target.print).collect())
}

/// Makes targets known.
pub(crate) fn learn<T: Tx>(desk: &mut Desk<'_, T>, agent: &AgentName, approval: ApprovalId, prints: &[String]) {
    let now = desk.now;
    for print in prints {
        desk.write(LEARN, params![agent, print.as_str(), now, approval]);
    }
}

impl Store {
    /// Notes that a session was shown an outside text.
    ///
    /// # Errors
    /// When it cannot be recorded: then the text must not be shown.
    pub async fn observe(&self, observation: Observation) -> Result<(), StoreError> {
        self.submit(observation).await
    }

    /// What a session was shown from outside, the oldest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn observed(&self, session: SessionId) -> Result<Vec<(String, Met)>, StoreError> {
        self.ask(Observed(session)).await
    }

    /// Which of these targets people have approved for an agent before.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn known_targets(&self, agent: AgentName, prints: Vec<String>) -> Result<Vec<String>, StoreError> {
        self.ask(Known { agent, prints }).await
    }

    /// Where the targets of a write come from, as it was when it was admitted.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn targets_of(&self, hold: HoldId) -> Result<Vec<Traced>, StoreError> {
        self.ask(OfHold(hold)).await
    }

    /// Why an agent wants a write, in its own words.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn reason_of(&self, hold: HoldId) -> Result<Option<String>, StoreError> {
        self.ask(ReasonOf(hold)).await
    }

    /// Whether any session of an agent has read something bad that no person has cleared since. Ending it clears nothing.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn any_tainted(&self, agent: AgentName) -> Result<bool, StoreError> {
        self.ask(Tainted(agent)).await
    }
}

/// How long what a session was shown is remembered.
pub(crate) const REMEMBERED: sluice_core::Span = sluice_core::Span::from_hours(31 * 24);

/// The text of the column.
pub(crate) fn column(targets: &[Traced]) -> Option<String> {
    if targets.is_empty() { None } else { serde_json::to_string(targets).ok() }
}
