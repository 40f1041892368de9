//! Freeze: no new effect starts, anywhere, until someone unfreezes. Survives restarts.
//!
//! Takes people's freezes and the states of connections; gives everything in force. Promise: a freeze placed by a
//! person is lifted only by a person; the stop of a connection ends when the connection works again, and not before.

use sluice_core::audit::AuditFact;
use sluice_core::connection::ConnectionState;
use sluice_core::{Actor, AgentName, HoldId, ServiceName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::instance;
use crate::prefetch::PrefetchQuery;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// What is frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreezeTarget {
    /// Everything.
    All,
    /// One agent.
    Agent(AgentName),
    /// One service.
    Service(ServiceName),
}

/// A freeze that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// What it freezes.
    pub scope: FreezeTarget,
    /// Who placed it.
    pub by: Actor,
    /// Why, in the operator's words.
    pub reason: String,
    /// Since when it is in force.
    pub at: UtcMillis,
    /// The connection that has stopped by itself; `None` where someone placed the freeze.
    pub brake: Option<StoppedConnection>,
}

/// A connection that stops its service, because it is paused or needs a new sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedConnection {
    /// The connection.
    pub connection: ServiceName,
    /// Its state.
    pub state: ConnectionState,
}

impl StoppedConnection {
    /// Why the service has stopped, in our words.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self.state {
            ConnectionState::Paused => "the connection is paused",
            ConnectionState::NeedsReauth
            | ConnectionState::Connecting
            | ConnectionState::Syncing
            | ConnectionState::Live
            | ConnectionState::Disconnected => "the connection needs a new sign-in",
        }
    }
}

const FREEZE: &str = "INSERT INTO freezes (scope, name, placed_by, reason, placed_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT (scope, name) DO NOTHING";
const UNFREEZE: &str = "DELETE FROM freezes WHERE scope = ?1 AND name = ?2";
/// Freezes of people, stopped connections, and nodes that do not trust the database.
const IN_FORCE: &str = "SELECT scope, name, placed_by, reason, placed_at, '' AS brake, '' AS state FROM freezes \
     UNION ALL SELECT 'service', service, moved_by, '', since, name, state FROM connections \
     WHERE state IN ('paused', 'needs_reauth') \
     UNION ALL SELECT 'all', '', 'node:' || node, \
     'the database was restored or changed; an admin has to run: sluice recover', suspected_at, '', '' \
     FROM recovery_nodes WHERE suspected_at IS NOT NULL ORDER BY 1, 2, 6";
const IN_FLIGHT: &str = "SELECT id, agent, service FROM holds WHERE state = 'armed' ORDER BY id";
/// Every group of every node locks its node's row: with all rows locked, no node is in the middle of arming something
/// that the list of writes in flight would miss.
const EVERYONE: &str = "SELECT node FROM nodes ORDER BY node /*lock*/";

impl FreezeTarget {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::All => ("all", ""),
            Self::Agent(name) => ("agent", name.as_str()),
            Self::Service(name) => ("service", name.as_str()),
        }
    }

    /// Whether it covers calls of this agent at this service.
    #[must_use]
    pub fn covers(&self, agent: &AgentName, service: &ServiceName) -> bool {
        match self {
            Self::All => true,
            Self::Agent(name) => name == agent,
            Self::Service(name) => name == service,
        }
    }
}

impl std::fmt::Display for FreezeTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.words() {
            (word, "") => f.write_str(word),
            (word, name) => write!(f, "{word} {name}"),
        }
    }
}

/// Freezes a scope. Gives the writes that could no longer be stopped.
pub(crate) struct PlaceFreeze {
    pub scope: FreezeTarget,
    pub by: Actor,
    pub reason: String,
}

impl UseCase for PlaceFreeze {
    type Out = Vec<HoldId>;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        unit.rows(EVERYONE, params![]).await?;
        let in_flight = in_flight(unit.tx(), &self.scope).await?;
        self.place(unit);
        Ok(in_flight)
    }
}

/// Freezes everything unless everything is frozen already. Returns whether this call did it.
pub(crate) struct FreezeAllOnce {
    pub by: Actor,
    pub reason: String,
}

impl UseCase for FreezeAllOnce {
    type Out = bool;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let freezes = in_force(unit.tx()).await?;
        if freezes.iter().any(|freeze| freeze.scope == FreezeTarget::All && freeze.brake.is_none()) {
            return Ok(false);
        }
        PlaceFreeze { scope: FreezeTarget::All, by: self.by.clone(), reason: self.reason.clone() }.place(unit);
        Ok(true)
    }
}

impl PlaceFreeze {
    pub fn place<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) {
        let ((word, name), now) = (self.scope.words(), unit.now);
        unit.write(FREEZE, params![word, name, &self.by, self.reason.as_str(), now]);
        unit.record(AuditFact::new("freeze.placed", self.by.clone()).with("scope", &self.scope));
    }
}

/// The same, without waiting for anyone: groups in progress are queried afterwards.
pub(crate) struct PlaceFreezeNow(pub PlaceFreeze);

impl UseCase for PlaceFreezeNow {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        self.0.place(unit);
        Ok(())
    }
}

/// The writes of a frozen scope that could no longer be stopped. Waits for groups in progress.
pub(crate) struct ListUnstoppableWrites(pub FreezeTarget);

impl UseCase for ListUnstoppableWrites {
    type Out = Vec<HoldId>;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        unit.rows(EVERYONE, params![]).await?;
        in_flight(unit.tx(), &self.0).await
    }
}

/// The same, as far as it can be seen without waiting.
pub(crate) struct ListInFlightWrites(pub FreezeTarget);

impl StoreQuery for ListInFlightWrites {
    type Out = Vec<HoldId>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<HoldId>, StoreError> {
        in_flight(tx, &self.0).await
    }
}

async fn in_flight<T: StoreTx>(tx: &mut T, scope: &FreezeTarget) -> Result<Vec<HoldId>, StoreError> {
    let mut in_flight = Vec::new();
    for row in tx.rows(IN_FLIGHT, &[]).await? {
        let mut row = row.of("holds");
        let (id, agent, service) = (HoldId::from_bits(row.bits()?), row.parsed()?, row.parsed()?);
        if scope.covers(&agent, &service) {
            in_flight.push(id);
        }
    }
    Ok(in_flight)
}

/// Lifts a freeze.
pub(crate) struct LiftFreeze {
    pub scope: FreezeTarget,
    pub by: Actor,
}

impl UseCase for LiftFreeze {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        // SECURITY: an agent may be the reason for the freeze.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        // SECURITY: only a decision about the database lifts the freeze that protects against it.
        if self.scope == FreezeTarget::All && instance::is_suspected(unit.tx()).await? {
            return Err(StoreError::NeedsRecovery);
        }
        let freezes = in_force(unit.tx()).await?;
        let mut these = freezes.iter().filter(|freeze| freeze.scope == self.scope).peekable();
        let braked = these.peek().map(|freeze| refusal(freeze));
        if !these.any(|freeze| freeze.brake.is_none()) {
            return Err(braked.unwrap_or(StoreError::NotFound { what: "freeze" }));
        }
        self.lift(unit);
        Ok(())
    }
}

impl LiftFreeze {
    pub fn lift<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) {
        let (word, name) = self.scope.words();
        unit.write(UNFREEZE, params![word, name]);
        unit.record(AuditFact::new("freeze.lifted", self.by.clone()).with("scope", &self.scope));
    }
}

/// Refuses what is frozen. A freeze placed before this query is always seen.
pub(crate) struct RefuseIfFrozen {
    pub agent: AgentName,
    pub service: ServiceName,
}

impl StoreQuery for RefuseIfFrozen {
    type Out = ();
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<(), StoreError> {
        let freezes = in_force(tx).await?;
        covering(&freezes, &self.agent, &self.service).map_or(Ok(()), |freeze| Err(refusal(freeze)))
    }
}

/// Every freeze in force.
pub(crate) struct ListFreezes;

impl StoreQuery for ListFreezes {
    type Out = Vec<Freeze>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<Freeze>, StoreError> {
        in_force(tx).await
    }
}

pub(crate) async fn in_force<T: StoreTx>(tx: &mut T) -> Result<Vec<Freeze>, StoreError> {
    tx.rows(IN_FORCE, &[]).await?.into_iter().map(decode).collect()
}

/// The query of [`in_force`], made early.
pub(crate) fn in_force_ahead() -> PrefetchQuery {
    PrefetchQuery {
        sql: IN_FORCE,
        params: params![],
        rests_on: vec![("freezes", Vec::new()), ("connections", Vec::new()), ("recovery_nodes", Vec::new())],
        follows: None,
    }
}

/// The freeze that covers a write, if one does: a person's before a connection's.
pub(crate) fn covering<'a>(freezes: &'a [Freeze], agent: &AgentName, service: &ServiceName) -> Option<&'a Freeze> {
    let covering = || freezes.iter().filter(|freeze| freeze.scope.covers(agent, service));
    covering().find(|freeze| freeze.brake.is_none()).or_else(|| covering().next())
}

pub(crate) async fn refuse_if_frozen<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    agent: &AgentName,
    service: &ServiceName,
) -> Result<(), StoreError> {
    let freezes = in_force(unit.tx()).await?;
    match covering(&freezes, agent, service) {
        Some(freeze) => Err(refusal(freeze)),
        None => Ok(()),
    }
}

fn refusal(freeze: &Freeze) -> StoreError {
    match &freeze.brake {
        Some(brake) => StoreError::Braked { brake: brake.clone(), since: freeze.at },
        None => StoreError::Frozen { scope: freeze.scope.to_string(), since: freeze.at, reason: freeze.reason.clone() },
    }
}

fn decode(row: SqlRow) -> Result<Freeze, StoreError> {
    let mut row = row.of("freezes");
    let (word, name) = (row.text()?, row.text()?);
    let scope = match word.as_str() {
        "all" => Some(FreezeTarget::All),
        "agent" => name.parse().ok().map(FreezeTarget::Agent),
        "service" => name.parse().ok().map(FreezeTarget::Service),
        _ => None,
    };
    let scope = scope.ok_or_else(|| row.impossible("an unknown scope"))?;
    let (by, reason, at) = (row.parsed()?, row.text()?, row.time()?);
    let (connection, state) = (row.text()?, row.text()?);
    if connection.is_empty() {
        return Ok(Freeze { scope, by, reason, at, brake: None });
    }
    let state = ConnectionState::from_word(&state).ok_or_else(|| row.impossible("an unknown state"))?;
    let connection = connection.parse().map_err(|_| row.impossible("a connection without a name"))?;
    let brake = StoppedConnection { connection, state };
    Ok(Freeze { scope, by, reason: brake.reason().to_owned(), at, brake: Some(brake) })
}

impl Store {
    /// Freezes everything, unless everything is frozen already. Returns whether this call did it.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn freeze_all_once(&self, by: Actor, reason: String) -> Result<bool, StoreError> {
        self.submit(FreezeAllOnce { by, reason }).await
    }

    /// Refuses calls of this agent at this service while they are frozen. A freeze placed before this query is always
    /// seen, no matter which node placed it.
    ///
    /// # Errors
    /// The freeze that covers it, or why the freezes cannot be read.
    pub async fn refuse_if_frozen(&self, agent: AgentName, service: ServiceName) -> Result<(), StoreError> {
        self.ask(RefuseIfFrozen { agent, service }).await
    }
}
