//! Freeze: no new effect starts, anywhere, until someone unfreezes. Survives restarts.
//!
//! Takes a person's freezes and how connections stand; gives everything in force. Promise: a freeze that a person
//! placed is lifted by a person only; the brake of a connection ends when the connection goes on, and not before.

use sluice_core::audit::Fact;
use sluice_core::connection::ConnectionState;
use sluice_core::{Actor, AgentName, HoldId, ServiceName, Timestamp};

use crate::Store;
use crate::ahead::Ahead;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::instance;
use crate::sql::{Row, Tx, params};

/// What is frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
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
    /// Of what.
    pub scope: Scope,
    /// By whom.
    pub by: Actor,
    /// Why, in the operator's words.
    pub reason: String,
    /// Since when.
    pub at: Timestamp,
    /// The connection that stands still by itself; nothing where somebody froze it.
    pub brake: Option<Brake>,
}

/// A connection that keeps its service from moving, because it is paused or needs a new sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brake {
    /// Which.
    pub connection: ServiceName,
    /// How it stands.
    pub state: ConnectionState,
}

impl Brake {
    /// Why nothing moves, in our words.
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
/// What people froze, the connections that stand still, and nodes that do not trust the database.
const IN_FORCE: &str = "SELECT scope, name, placed_by, reason, placed_at, '' AS brake, '' AS state FROM freezes \
     UNION ALL SELECT 'service', service, moved_by, '', since, name, state FROM connections \
     WHERE state IN ('paused', 'needs_reauth') \
     UNION ALL SELECT 'all', '', 'node:' || node, \
     'the database was restored or changed; an admin has to run: sluice recover', suspected_at, '', '' \
     FROM recovery_nodes WHERE suspected_at IS NOT NULL ORDER BY 1, 2, 6";
const IN_FLIGHT: &str = "SELECT id, agent, service FROM holds WHERE state = 'armed' ORDER BY id";
/// Every group of every node holds its node's row: with all of them locked, none is half way to
/// arming something that the list of writes in flight would miss.
const EVERYONE: &str = "SELECT node FROM nodes ORDER BY node /*lock*/";

impl Scope {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::All => ("all", ""),
            Self::Agent(name) => ("agent", name.as_str()),
            Self::Service(name) => ("service", name.as_str()),
        }
    }

    /// Whether it covers what this agent does at this service.
    #[must_use]
    pub fn covers(&self, agent: &AgentName, service: &ServiceName) -> bool {
        match self {
            Self::All => true,
            Self::Agent(name) => name == agent,
            Self::Service(name) => name == service,
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.words() {
            (word, "") => f.write_str(word),
            (word, name) => write!(f, "{word} {name}"),
        }
    }
}

/// Stops everything of a scope. Answers with what could no longer be stopped.
pub(crate) struct Place {
    pub scope: Scope,
    pub by: Actor,
    pub reason: String,
}

impl UseCase for Place {
    type Out = Vec<HoldId>;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        desk.rows(EVERYONE, params![]).await?;
        let in_flight = in_flight(desk.tx(), &self.scope).await?;
        self.place(desk);
        Ok(in_flight)
    }
}

/// Freezes everything unless everything is frozen already. Answers whether it was this that did.
pub(crate) struct PlaceOnce {
    pub by: Actor,
    pub reason: String,
}

impl UseCase for PlaceOnce {
    type Out = bool;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<bool, StoreError> {
        let freezes = in_force(desk.tx()).await?;
        if freezes.iter().any(|freeze| freeze.scope == Scope::All && freeze.brake.is_none()) {
            return Ok(false);
        }
        Place { scope: Scope::All, by: self.by.clone(), reason: self.reason.clone() }.place(desk);
        Ok(true)
    }
}

impl Place {
    pub fn place<T: Tx>(&self, desk: &mut Desk<'_, T>) {
        let ((word, name), now) = (self.scope.words(), desk.now);
        desk.write(FREEZE, params![word, name, &self.by, self.reason.as_str(), now]);
        desk.record(Fact::new("freeze.placed", self.by.clone()).with("scope", &self.scope));
    }
}

/// The same, without waiting for anyone: what was half way is asked for afterwards.
pub(crate) struct AtOnce(pub Place);

impl UseCase for AtOnce {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        self.0.place(desk);
        Ok(())
    }
}

/// What of a frozen scope could no longer be stopped. Waits for whoever is half way.
pub(crate) struct Stragglers(pub Scope);

impl UseCase for Stragglers {
    type Out = Vec<HoldId>;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<HoldId>, StoreError> {
        desk.rows(EVERYONE, params![]).await?;
        in_flight(desk.tx(), &self.0).await
    }
}

/// The same, as far as it can be seen without waiting.
pub(crate) struct InFlight(pub Scope);

impl Query for InFlight {
    type Out = Vec<HoldId>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<HoldId>, StoreError> {
        in_flight(tx, &self.0).await
    }
}

async fn in_flight<T: Tx>(tx: &mut T, scope: &Scope) -> Result<Vec<HoldId>, StoreError> {
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

/// Lets a scope move again.
pub(crate) struct Lift {
    pub scope: Scope,
    pub by: Actor,
}

impl UseCase for Lift {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        // SECURITY: an agent may be the very reason for the freeze.
        if matches!(self.by, Actor::Agent(_)) {
            return Err(StoreError::NotAPerson);
        }
        // SECURITY: only a decision about the database lifts the freeze that protects from it.
        if self.scope == Scope::All && instance::is_suspected(desk.tx()).await? {
            return Err(StoreError::NeedsRecovery);
        }
        let freezes = in_force(desk.tx()).await?;
        let mut these = freezes.iter().filter(|freeze| freeze.scope == self.scope).peekable();
        let braked = these.peek().map(|freeze| refusal(freeze));
        if !these.any(|freeze| freeze.brake.is_none()) {
            return Err(braked.unwrap_or(StoreError::NotFound { what: "freeze" }));
        }
        self.lift(desk);
        Ok(())
    }
}

impl Lift {
    pub fn lift<T: Tx>(&self, desk: &mut Desk<'_, T>) {
        let (word, name) = self.scope.words();
        desk.write(UNFREEZE, params![word, name]);
        desk.record(Fact::new("freeze.lifted", self.by.clone()).with("scope", &self.scope));
    }
}

/// Refuses what is frozen. A freeze that was placed before this is asked is always seen.
pub(crate) struct Refuse {
    pub agent: AgentName,
    pub service: ServiceName,
}

impl Query for Refuse {
    type Out = ();
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(), StoreError> {
        let freezes = in_force(tx).await?;
        covering(&freezes, &self.agent, &self.service).map_or(Ok(()), |freeze| Err(refusal(freeze)))
    }
}

/// Every freeze there is.
pub(crate) struct InForce;

impl Query for InForce {
    type Out = Vec<Freeze>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Freeze>, StoreError> {
        in_force(tx).await
    }
}

pub(crate) async fn in_force<T: Tx>(tx: &mut T) -> Result<Vec<Freeze>, StoreError> {
    tx.rows(IN_FORCE, &[]).await?.into_iter().map(decode).collect()
}

/// The question of [`in_force`], asked early.
pub(crate) fn in_force_ahead() -> Ahead {
    Ahead {
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

pub(crate) async fn refuse_if_frozen<T: Tx>(
    desk: &mut Desk<'_, T>,
    agent: &AgentName,
    service: &ServiceName,
) -> Result<(), StoreError> {
    let freezes = in_force(desk.tx()).await?;
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

fn decode(row: Row) -> Result<Freeze, StoreError> {
    let mut row = row.of("freezes");
    let (word, name) = (row.text()?, row.text()?);
    let scope = match word.as_str() {
        "all" => Some(Scope::All),
        "agent" => name.parse().ok().map(Scope::Agent),
        "service" => name.parse().ok().map(Scope::Service),
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
    let brake = Brake { connection, state };
    Ok(Freeze { scope, by, reason: brake.reason().to_owned(), at, brake: Some(brake) })
}

impl Store {
    /// Freezes everything, unless everything is frozen already. Answers whether it was this that did.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub async fn freeze_all_once(&self, by: Actor, reason: String) -> Result<bool, StoreError> {
        self.submit(PlaceOnce { by, reason }).await
    }

    /// Refuses what this agent does at this service while it is frozen. A freeze that was placed before this is asked is
    /// always seen, whichever node placed it.
    ///
    /// # Errors
    /// The freeze that covers it, or why that cannot be read.
    pub async fn refuse_if_frozen(&self, agent: AgentName, service: ServiceName) -> Result<(), StoreError> {
        self.ask(Refuse { agent, service }).await
    }
}
