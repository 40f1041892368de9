//! Connected services: which account, how it is reached, and its state.
//!
//! Promise: at most one connection stands behind a service at a time. A step is taken once, and its consequences (its
//! writes stop, because the state itself stops them, and people are notified) are in the same transaction.

mod forgetting;

use serde_json::Value;
use sluice_core::audit::AuditFact;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, ServiceName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

pub use forgetting::ForgottenContent;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT name, adapter, service, account, endpoints, state, reason, since, version FROM connections ",
            $rest
        )
    };
}

const ALL: &str = select!("ORDER BY name");
const ALL_LOCKED: &str = select!("ORDER BY name /*lock*/");
const BEGIN: &str = "INSERT INTO connections \
     (name, adapter, service, account, endpoints, state, reason, since, version) \
     VALUES (?1, ?2, ?3, ?4, ?5, 'connecting', NULL, ?6, 1)";
// A connection that was ended starts without an owner: its earlier account is forgotten.
const AGAIN: &str = "UPDATE connections SET adapter = ?2, service = ?3, \
     account = CASE WHEN state = 'disconnected' THEN ?4 ELSE COALESCE(?4, account) END, endpoints = ?5, state = ?6, since = ?7, version = version + 1 WHERE name = ?1 AND version = ?8";
const MOVE: &str = "UPDATE connections SET state = ?2, reason = ?3, account = COALESCE(?4, account), since = ?5, \
     moved_by = ?7, version = version + 1 WHERE name = ?1 AND version = ?6";

/// One connection.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceConnection {
    /// The name that people gave it.
    pub name: ServiceName,
    /// The adapter behind it.
    pub adapter: String,
    /// The service it stands behind: the prefix of its capabilities.
    pub service: ServiceName,
    /// The account, once it is known.
    pub account: Option<String>,
    /// Addresses, in the adapter's own format.
    pub endpoints: Value,
    /// Its state.
    pub state: ConnectionState,
    /// Why it is in this state, if that is not obvious.
    pub reason: Option<String>,
    /// Since when it is in this state.
    pub since: UtcMillis,
    /// The version of the row.
    pub version: u64,
}

/// A connection to be created.
#[derive(Debug, Clone)]
pub struct BeginConnection {
    /// The name that people give it.
    pub name: ServiceName,
    /// The adapter behind it.
    pub adapter: String,
    /// The service it stands behind.
    pub service: ServiceName,
    /// The account, if it is known.
    pub account: Option<String>,
    /// Addresses, in the adapter's own format.
    pub endpoints: Value,
    /// Who creates it.
    pub by: Actor,
}

impl UseCase for BeginConnection {
    type Out = ServiceConnection;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ServiceConnection, StoreError> {
        let all = unit.rows(ALL_LOCKED, params![]).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let taken = |other: &&ServiceConnection| {
            other.name != self.name && other.service == self.service && other.state != ConnectionState::Disconnected
        };
        if all.iter().any(|other| taken(&other)) {
            return Err(StoreError::Conflict);
        }
        let (now, endpoints) = (unit.now, self.endpoints.to_string());
        let (name, adapter, account) = (&self.name, self.adapter.as_str(), self.account.as_deref());
        let before = all.into_iter().find(|one| one.name == self.name);
        let (state, version) = match &before {
            None => {
                unit.write_one(BEGIN, params![name, adapter, &self.service, account, endpoints, now]);
                (ConnectionState::Connecting, 1)
            }
            Some(before) => {
                let state = before.state.apply(ConnectionStep::Begin).map_err(|_| StoreError::Conflict)?;
                let word = state.as_str();
                unit.write_one(
                    AGAIN,
                    params![name, adapter, &self.service, account, endpoints, word, now, before.version],
                );
                (state, before.version + 1)
            }
        };
        let fact = AuditFact::new("connection.begun", self.by.clone()).with("connection", name);
        unit.record(fact.with("adapter", &self.adapter).with("service", &self.service));
        Ok(ServiceConnection {
            name: name.clone(),
            adapter: self.adapter.clone(),
            service: self.service.clone(),
            account: self.account.clone().or_else(|| {
                let same = before.as_ref().filter(|one| one.state != ConnectionState::Disconnected);
                same.and_then(|one| one.account.clone())
            }),
            endpoints: self.endpoints.clone(),
            state,
            reason: before.and_then(|one| one.reason),
            since: now,
            version,
        })
    }
}

/// A step of a connection.
#[derive(Debug, Clone)]
pub struct MoveConnection {
    /// The name of the connection.
    pub name: ServiceName,
    /// The step to take.
    pub step: ConnectionStep,
    /// Why, in the gateway's words.
    pub reason: Option<String>,
    /// The account, if this step learned it.
    pub account: Option<String>,
    /// Who takes the step.
    pub by: Actor,
    /// The id of the message to people, if one is needed.
    pub message: MessageId,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct MovedConnection {
    /// The connection as it is now.
    pub now: ServiceConnection,
    /// Its state before.
    pub from: ConnectionState,
}

impl MovedConnection {
    /// Whether the state changed.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.now.state != self.from
    }
}

impl UseCase for MoveConnection {
    type Out = MovedConnection;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<MovedConnection, StoreError> {
        let all = unit.rows(ALL_LOCKED, params![]).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let missing = StoreError::NotFound { what: "connection" };
        let before = all.into_iter().find(|one| one.name == self.name).ok_or(missing)?;
        let from = before.state;
        let to = from.apply(self.step).map_err(|_| StoreError::Conflict)?;
        if from == to && self.account.is_none() {
            return Ok(MovedConnection { now: before, from });
        }
        let now = unit.now;
        let since = if from == to { before.since } else { now };
        unit.write_one(
            MOVE,
            params![
                &self.name,
                to.as_str(),
                self.reason.as_deref(),
                self.account.as_deref(),
                since,
                before.version,
                &self.by
            ],
        );
        let account = self.account.clone().or_else(|| before.account.clone());
        let moved = ServiceConnection {
            state: to,
            reason: self.reason.clone(),
            account,
            since,
            version: before.version + 1,
            ..before
        };
        if from == to {
            return Ok(MovedConnection { now: moved, from });
        }
        let fact = AuditFact::new("connection.moved", self.by.clone()).with("connection", &self.name);
        unit.record(fact.with("from", from).with("to", to));
        if to == ConnectionState::NeedsReauth {
            let body = serde_json::json!({
                "connection": self.name, "service": moved.service, "reason": self.reason,
                "text": format!("{} has to be connected again", self.name),
            });
            let (topic, severity) = ("connection.needs_reauth".to_owned(), MessageSeverity::Critical);
            outbox::put(unit, &OutboxMessage { id: self.message, topic, severity, body });
        }
        Ok(MovedConnection { now: moved, from })
    }
}

struct ListConnections;

impl StoreQuery for ListConnections {
    type Out = Vec<ServiceConnection>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ServiceConnection>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: SqlRow) -> Result<ServiceConnection, StoreError> {
    let mut row = row.of("connections");
    let (name, adapter, service, account) = (row.parsed()?, row.text()?, row.parsed()?, row.maybe_text()?);
    let endpoints = serde_json::from_str(&row.text()?).map_err(|_| row.impossible("endpoints that are not JSON"))?;
    let word = row.text()?;
    let state = ConnectionState::from_word(&word).ok_or_else(|| row.impossible("an unknown state"))?;
    let (reason, since, version) = (row.maybe_text()?, row.time()?, row.count()?);
    Ok(ServiceConnection { name, adapter, service, account, endpoints, state, reason, since, version })
}

impl Store {
    /// Creates a connection, or starts a new sign-in for it.
    ///
    /// # Errors
    /// When another connection stands behind the same service.
    pub async fn begin_connection(&self, new: BeginConnection) -> Result<ServiceConnection, StoreError> {
        self.submit(new).await
    }

    /// Takes a step of a connection. A step without effect writes nothing.
    ///
    /// # Errors
    /// When there is no such connection, or its state does not allow the step.
    pub async fn move_connection(&self, step: MoveConnection) -> Result<MovedConnection, StoreError> {
        self.submit(step).await
    }

    /// All connections, including ended ones, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn connections(&self) -> Result<Vec<ServiceConnection>, StoreError> {
        self.ask(ListConnections).await
    }
}
