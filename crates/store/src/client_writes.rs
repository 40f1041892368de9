//! Files that a coding client changes itself: what was there before each call, for as long as it can be put back.
//!
//! Takes the files as the gateway found them before it answered `allowed`; gives them when a person wants them back.
//! The contents lie beside the database, in the data folder of the node that kept them. Promise: the row and its entry
//! in the record appear together, before the client hears its answer; a report of what a call left counts once.

use sluice_core::audit::Fact;
use sluice_core::ids::SessionId;
use sluice_core::{Actor, AgentName, CallId, CapabilityName, NodeName, Span, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, agent, session, capability, node, wish, state, version, files, bytes, captured_at, reported_at, ",
            "until FROM client_writes ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE id = ?1");
const LOCKED: &str = select!("WHERE id = ?1 /*lock*/");
const SINCE: &str = select!(
    "WHERE agent = ?1 AND captured_at >= ?2 AND (?3 IS NULL OR session = ?3) AND id < ?4 ORDER BY id DESC LIMIT ?5"
);
const LATEST: &str = select!(
    "WHERE agent = ?1 AND wish = ?2 AND state = 'kept' AND reported_at IS NULL AND captured_at >= ?3 \
     ORDER BY id DESC LIMIT 1"
);
const OVER: &str = select!("WHERE state = 'kept' AND until <= ?1 AND node = ?2 ORDER BY until, id LIMIT ?3");
const USED: &str =
    "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM client_writes WHERE node = ?1 AND captured_at > ?2";
const KEEP: &str = "INSERT INTO client_writes (id, agent, session, capability, node, wish, state, version, files, \
     bytes, captured_at, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'kept', 1, ?7, ?8, ?9, ?10) \
     ON CONFLICT (id) DO UPDATE SET node = excluded.node, files = excluded.files, bytes = excluded.bytes, \
     captured_at = excluded.captured_at, until = excluded.until, version = client_writes.version + 1";
const REPORT: &str = "UPDATE client_writes SET files = ?3, reported_at = ?4, version = version + 1 \
     WHERE id = ?1 AND version = ?2";
const END: &str = "UPDATE client_writes SET state = ?3, version = version + 1 WHERE id = ?1 AND version = ?2";
const FORGET: &str = "DELETE FROM client_writes WHERE until <= ?1 AND node = ?2 AND state <> 'kept'";

/// How long after its end a row still says what became of it.
const KEPT: Span = Span::from_hours(30 * 24);
/// How long after a call its client may report what it left. Later, what is there may be the work of a person.
pub const REPORTED_WITHIN: Span = Span::from_hours(1);

/// Whether the files of a call can still be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientWriteState {
    /// Yes, if nothing else stands against it.
    Kept,
    /// They were.
    Undone,
    /// The time is over.
    Expired,
}

impl ClientWriteState {
    const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Undone => "undone",
            Self::Expired => "expired",
        }
    }

    fn read(word: &str) -> Option<Self> {
        [Self::Kept, Self::Undone, Self::Expired].into_iter().find(|state| state.word() == word)
    }
}

/// One call of a client that changes files, and what was there before.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientWrite {
    /// The call that was allowed.
    pub call: CallId,
    /// Whose call it was.
    pub agent: AgentName,
    /// In which session it was made.
    pub session: Option<SessionId>,
    /// What was allowed.
    pub capability: CapabilityName,
    /// The node that keeps the contents.
    pub node: NodeName,
    /// A hash of what was asked, by which a report finds its call.
    pub wish: Vec<u8>,
    /// Whether the files can still be put back.
    pub state: ClientWriteState,
    /// Counts its changes.
    pub version: u64,
    /// The files, as JSON of the gateway. Holds paths.
    pub files: Vec<u8>,
    /// How many bytes are kept for it.
    pub bytes: u64,
    /// When the files were looked at.
    pub captured_at: Timestamp,
    /// When the client said that it was done.
    pub reported_at: Option<Timestamp>,
    /// Until when the files can be put back.
    pub until: Timestamp,
}

impl std::fmt::Debug for ClientWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientWrite").field("call", &self.call).field("state", &self.state).finish_non_exhaustive()
    }
}

/// Files that are kept for a call that is about to be allowed.
pub struct KeepClientWrite {
    /// The call.
    pub call: CallId,
    /// Whose call it is.
    pub agent: AgentName,
    /// In which session it is made.
    pub session: Option<SessionId>,
    /// What is allowed.
    pub capability: CapabilityName,
    /// A hash of what was asked.
    pub wish: Vec<u8>,
    /// The files, as JSON of the gateway.
    pub files: Vec<u8>,
    /// How many bytes are kept.
    pub bytes: u64,
    /// How many files are kept, for the record.
    pub kept: usize,
    /// How many files, or unnamed ones, cannot be put back, for the record.
    pub not_kept: usize,
    /// Until when they can be put back.
    pub until: Timestamp,
}

impl std::fmt::Debug for KeepClientWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepClientWrite").field("call", &self.call).finish_non_exhaustive()
    }
}

impl UseCase for KeepClientWrite {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let (now, node) = (desk.now, desk.node.clone());
        desk.write(
            KEEP,
            params![
                self.call,
                &self.agent,
                self.session,
                self.capability.as_str(),
                node.as_str(),
                self.wish.as_slice(),
                self.files.as_slice(),
                self.bytes,
                now,
                self.until
            ],
        );
        let fact = Fact::new("client_write.kept", desk.actor()).with("agent", &self.agent).with("files", self.kept);
        let fact = fact.with("bytes", self.bytes).with("cannot_be_taken_back", self.not_kept);
        desk.record(Fact { call: Some(self.call), ..fact });
        Ok(())
    }
}

/// What a call left, as the gateway found it when the client said that it was done.
struct Report {
    call: CallId,
    version: u64,
    files: Vec<u8>,
}

impl UseCase for Report {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        desk.write_one(REPORT, params![self.call, self.version, self.files.as_slice(), now]);
        let fact = Fact::new("client_write.reported", desk.actor());
        desk.record(Fact { call: Some(self.call), ..fact });
        Ok(())
    }
}

struct Undone {
    call: CallId,
    by: Actor,
}

impl UseCase for Undone {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "rollback point" };
        let row = desk.row(LOCKED, params![self.call]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        if row.state == ClientWriteState::Kept {
            end(desk, &row, ClientWriteState::Undone, self.by.clone());
        }
        Ok(())
    }
}

struct ExpireDue {
    limit: u32,
}

impl UseCase for ExpireDue {
    type Out = Vec<CallId>;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<CallId>, StoreError> {
        let (now, node) = (desk.now, desk.node.clone());
        let rows = desk.rows(OVER, params![now, node.as_str(), self.limit]).await?;
        let rows = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        for row in &rows {
            let by = desk.actor();
            end(desk, row, ClientWriteState::Expired, by);
        }
        desk.write(FORGET, params![now - KEPT, node.as_str()]);
        Ok(rows.into_iter().map(|row| row.call).collect())
    }
}

fn end<T: Tx>(desk: &mut Desk<'_, T>, row: &ClientWrite, state: ClientWriteState, by: Actor) {
    desk.write_one(END, params![row.call, row.version, state.word()]);
    let fact = Fact::new(format!("client_write.{}", state.word()), by).with("agent", &row.agent);
    desk.record(Fact { call: Some(row.call), ..fact });
}

struct ById(CallId);

impl Query for ById {
    type Out = Option<ClientWrite>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<ClientWrite>, StoreError> {
        tx.rows(ONE, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

struct Since {
    agent: AgentName,
    since: Timestamp,
    session: Option<SessionId>,
    before: Option<CallId>,
    limit: u32,
}

impl Query for Since {
    type Out = Vec<ClientWrite>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<ClientWrite>, StoreError> {
        let before = self.before.map_or(u128::MAX, CallId::bits);
        let rows = tx.rows(SINCE, &params![&self.agent, self.since, self.session, before, self.limit]).await?;
        rows.into_iter().map(decode).collect()
    }
}

struct Latest {
    agent: AgentName,
    wish: Vec<u8>,
    since: Timestamp,
}

impl Query for Latest {
    type Out = Option<ClientWrite>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<ClientWrite>, StoreError> {
        let rows = tx.rows(LATEST, &params![&self.agent, self.wish.as_slice(), self.since]).await?;
        rows.into_iter().next().map(decode).transpose()
    }
}

struct Used {
    node: NodeName,
    since: Timestamp,
}

impl Query for Used {
    type Out = u64;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        let rows = tx.rows(USED, &params![self.node.as_str(), self.since]).await?;
        rows.into_iter().next().map_or(Ok(0), |row| row.of("client_writes").count())
    }
}

fn decode(row: Row) -> Result<ClientWrite, StoreError> {
    let mut row = row.of("client_writes");
    let (call, agent) = (CallId::from_bits(row.bits()?), row.parsed()?);
    let session = row.maybe_bits()?.map(SessionId::from_bits);
    let (capability, node, wish, word) = (row.parsed()?, row.parsed()?, row.blob()?, row.text()?);
    let state = ClientWriteState::read(&word).ok_or_else(|| row.impossible("an unknown state"))?;
    Ok(ClientWrite {
        call,
        agent,
        session,
        capability,
        node,
        wish,
        state,
        version: row.count()?,
        files: row.blob()?,
        bytes: row.count()?,
        captured_at: row.time()?,
        reported_at: row.maybe_time()?,
        until: row.time()?,
    })
}

impl Store {
    /// Keeps what was there before a call of a client.
    ///
    /// # Errors
    /// When it cannot be recorded: then the call must not be allowed.
    pub async fn keep_client_write(&self, kept: KeepClientWrite) -> Result<(), StoreError> {
        self.submit(kept).await
    }

    /// What was kept for a call.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn client_write(&self, call: CallId) -> Result<Option<ClientWrite>, StoreError> {
        self.ask(ById(call)).await
    }

    /// What was kept for the calls of an agent since a moment, by falling id; of one session, if one is named.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn client_writes_since(
        &self,
        (agent, session): (AgentName, Option<SessionId>),
        since: Timestamp,
        before: Option<CallId>,
        limit: u32,
    ) -> Result<Vec<ClientWrite>, StoreError> {
        self.ask(Since { agent, since, session, before, limit }).await
    }

    /// The latest call of an agent with this wish that nothing was reported of yet.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn unreported_client_write(
        &self,
        agent: AgentName,
        wish: Vec<u8>,
        now: Timestamp,
    ) -> Result<Option<ClientWrite>, StoreError> {
        self.ask(Latest { agent, wish, since: now - REPORTED_WITHIN }).await
    }

    /// Notes what a call left, once.
    ///
    /// # Errors
    /// When it was noted meanwhile, or cannot be recorded.
    pub async fn report_client_write(&self, write: &ClientWrite, files: Vec<u8>) -> Result<(), StoreError> {
        self.submit(Report { call: write.call, version: write.version, files }).await
    }

    /// Records that the files of a call were put back.
    ///
    /// # Errors
    /// When there is no such call, or it cannot be recorded.
    pub async fn undone_client_write(&self, call: CallId, by: Actor) -> Result<(), StoreError> {
        self.submit(Undone { call, by }).await
    }

    /// How many bytes a node has kept since a moment.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn client_writes_used(&self, node: NodeName, since: Timestamp) -> Result<u64, StoreError> {
        self.ask(Used { node, since }).await
    }

    /// Ends what can no longer be put back; gives the calls, so that what this node kept for them can go.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn expire_client_writes(&self, limit: u32) -> Result<Vec<CallId>, StoreError> {
        self.submit(ExpireDue { limit }).await
    }
}
