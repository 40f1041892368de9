//! Connected services: which account, how it is reached, how it stands.
//!
//! Promise: at most one connection stands behind a service at a time; a step is taken once, and what follows
//! from it (the brake on its writes, which is its state itself, and the word to people) is in the same transaction.

mod forgetting;

use serde_json::Value;
use sluice_core::audit::Fact;
use sluice_core::connection::{ConnectionState, ConnectionStep};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, ServiceName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

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
// A connection that was ended begins as anybody's: the account it was is forgotten.
const AGAIN: &str = "UPDATE connections SET adapter = ?2, service = ?3, \
     account = CASE WHEN state = 'disconnected' THEN ?4 ELSE COALESCE(?4, account) END, endpoints = ?5, state = ?6, since = ?7, version = version + 1 WHERE name = ?1 AND version = ?8";
const MOVE: &str = "UPDATE connections SET state = ?2, reason = ?3, account = COALESCE(?4, account), since = ?5, \
     moved_by = ?7, version = version + 1 WHERE name = ?1 AND version = ?6";

/// One connection.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// What people call it.
    pub name: ServiceName,
    /// The adapter behind it.
    pub adapter: String,
    /// The service it stands behind: what its capabilities begin with.
    pub service: ServiceName,
    /// The account, once it is known.
    pub account: Option<String>,
    /// Addresses, as the adapter's own words.
    pub endpoints: Value,
    /// Where it stands.
    pub state: ConnectionState,
    /// Why, where that is not plain.
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
    /// Counts its moves.
    pub version: u64,
}

/// A connection to be begun.
#[derive(Debug, Clone)]
pub struct NewConnection {
    /// What people call it.
    pub name: ServiceName,
    /// The adapter behind it.
    pub adapter: String,
    /// The service it stands behind.
    pub service: ServiceName,
    /// The account, if it is known.
    pub account: Option<String>,
    /// Addresses.
    pub endpoints: Value,
    /// Who begins it.
    pub by: Actor,
}

impl UseCase for NewConnection {
    type Out = Connection;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Connection, StoreError> {
        let all = desk.rows(ALL_LOCKED, params![]).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let taken = |other: &&Connection| {
            other.name != self.name && other.service == self.service && other.state != ConnectionState::Disconnected
        };
        if all.iter().any(|other| taken(&other)) {
            return Err(StoreError::Conflict);
        }
        let (now, endpoints) = (desk.now, self.endpoints.to_string());
        let (name, adapter, account) = (&self.name, self.adapter.as_str(), self.account.as_deref());
        let before = all.into_iter().find(|one| one.name == self.name);
        let (state, version) = match &before {
            None => {
                desk.write_one(BEGIN, params![name, adapter, &self.service, account, endpoints, now]);
                (ConnectionState::Connecting, 1)
            }
            Some(before) => {
                let state = before.state.after(ConnectionStep::Begin).map_err(|_| StoreError::Conflict)?;
                let word = state.as_str();
                desk.write_one(
                    AGAIN,
                    params![name, adapter, &self.service, account, endpoints, word, now, before.version],
                );
                (state, before.version + 1)
            }
        };
        let fact = Fact::new("connection.begun", self.by.clone()).with("connection", name);
        desk.record(fact.with("adapter", &self.adapter).with("service", &self.service));
        Ok(Connection {
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
pub struct ConnectionMove {
    /// Which.
    pub name: ServiceName,
    /// What happens.
    pub step: ConnectionStep,
    /// Why, in our words.
    pub reason: Option<String>,
    /// The account, where this step found it out.
    pub account: Option<String>,
    /// Who.
    pub by: Actor,
    /// The id of the word to people, should one be needed.
    pub message: MessageId,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The connection as it is now.
    pub now: Connection,
    /// Where it stood before.
    pub from: ConnectionState,
}

impl Moved {
    /// Whether anything changed.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.now.state != self.from
    }
}

impl UseCase for ConnectionMove {
    type Out = Moved;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Moved, StoreError> {
        let all = desk.rows(ALL_LOCKED, params![]).await?.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let missing = StoreError::NotFound { what: "connection" };
        let before = all.into_iter().find(|one| one.name == self.name).ok_or(missing)?;
        let from = before.state;
        let to = from.after(self.step).map_err(|_| StoreError::Conflict)?;
        if from == to && self.account.is_none() {
            return Ok(Moved { now: before, from });
        }
        let now = desk.now;
        let since = if from == to { before.since } else { now };
        desk.write_one(
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
        let moved = Connection {
            state: to,
            reason: self.reason.clone(),
            account,
            since,
            version: before.version + 1,
            ..before
        };
        if from == to {
            return Ok(Moved { now: moved, from });
        }
        let fact = Fact::new("connection.moved", self.by.clone()).with("connection", &self.name);
        desk.record(fact.with("from", from).with("to", to));
        if to == ConnectionState::NeedsReauth {
            let body = serde_json::json!({
                "connection": self.name, "service": moved.service, "reason": self.reason,
                "text": format!("{} has to be connected again", self.name),
            });
            let (topic, severity) = ("connection.needs_reauth".to_owned(), Severity::Critical);
            outbox::put(desk, &Message { id: self.message, topic, severity, body });
        }
        Ok(Moved { now: moved, from })
    }
}

struct List;

impl Query for List {
    type Out = Vec<Connection>;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Connection>, StoreError> {
        tx.rows(ALL, &[]).await?.into_iter().map(decode).collect()
    }
}

fn decode(row: Row) -> Result<Connection, StoreError> {
    let mut row = row.of("connections");
    let (name, adapter, service, account) = (row.parsed()?, row.text()?, row.parsed()?, row.maybe_text()?);
    let endpoints = serde_json::from_str(&row.text()?).map_err(|_| row.impossible("endpoints that are not JSON"))?;
    let word = row.text()?;
    let state = ConnectionState::from_word(&word).ok_or_else(|| row.impossible("an unknown state"))?;
    let (reason, since, version) = (row.maybe_text()?, row.time()?, row.count()?);
    Ok(Connection { name, adapter, service, account, endpoints, state, reason, since, version })
}

impl Store {
    /// Begins a connection, or begins to sign in again.
    ///
    /// # Errors
    /// When another connection stands behind the same service.
    pub async fn begin_connection(&self, new: NewConnection) -> Result<Connection, StoreError> {
        self.submit(new).await
    }

    /// Takes a step of a connection. One that changes nothing leaves nothing.
    ///
    /// # Errors
    /// When there is none, or the step is not possible from where it stands.
    pub async fn move_connection(&self, step: ConnectionMove) -> Result<Moved, StoreError> {
        self.submit(step).await
    }

    /// Every connection there is or was, by name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn connections(&self) -> Result<Vec<Connection>, StoreError> {
        self.ask(List).await
    }
}
