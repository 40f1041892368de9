//! Files that a coding client changes itself: their content before each call, for as long as it can be restored.
//!
//! Takes the files as the gateway found them before it answered `allowed`; gives them back when a person wants to
//! restore them. The contents lie beside the database, in the data folder of the node that kept them. Promise: the row
//! and its audit entry appear together, before the client receives its answer; a report about what a call changed
//! counts once.

use sluice_core::audit::AuditFact;
use sluice_core::ids::SessionId;
use sluice_core::{Actor, AgentName, CallId, CapabilityName, Millis, NodeName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

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

/// How long a row is kept after its end.
const KEPT: Millis = Millis::from_hours(30 * 24);
/// How long after a call its client may report what it changed. Later changes may be the work of a person.
pub const REPORTED_WITHIN: Millis = Millis::from_hours(1);

/// Whether the files of a call can still be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientWriteState {
    /// They can be restored, if nothing else prevents it.
    Kept,
    /// They were restored.
    Undone,
    /// They can no longer be restored: the time is over.
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

/// One call of a client that changes files, and their content before it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientWrite {
    /// The call that was allowed.
    pub call: CallId,
    /// The agent that made it.
    pub agent: AgentName,
    /// The session in which it was made.
    pub session: Option<SessionId>,
    /// The capability that was allowed.
    pub capability: CapabilityName,
    /// The node that keeps the contents.
    pub node: NodeName,
    /// A hash of the arguments, by which a report finds its call.
    pub wish: Vec<u8>,
    /// Whether the files can still be restored.
    pub state: ClientWriteState,
    /// The version of the row.
    pub version: u64,
    /// The files, as JSON of the gateway. Holds paths.
    pub files: Vec<u8>,
    /// How many bytes are kept for it.
    pub bytes: u64,
    /// When the gateway read the files.
    pub captured_at: UtcMillis,
    /// When the client reported that it was done.
    pub reported_at: Option<UtcMillis>,
    /// Until when the files can be restored.
    pub until: UtcMillis,
}

impl std::fmt::Debug for ClientWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientWrite").field("call", &self.call).field("state", &self.state).finish_non_exhaustive()
    }
}

/// Files to be kept for a call that is about to be allowed.
pub struct KeepClientWrite {
    /// The call.
    pub call: CallId,
    /// The agent that makes it.
    pub agent: AgentName,
    /// The session in which it is made.
    pub session: Option<SessionId>,
    /// The capability that is allowed.
    pub capability: CapabilityName,
    /// A hash of the arguments.
    pub wish: Vec<u8>,
    /// The files, as JSON of the gateway.
    pub files: Vec<u8>,
    /// How many bytes are kept.
    pub bytes: u64,
    /// How many files are kept, for the audit log.
    pub kept: usize,
    /// How many files, or unnamed ones, cannot be restored, for the audit log.
    pub not_kept: usize,
    /// Until when they can be restored.
    pub until: UtcMillis,
}

impl std::fmt::Debug for KeepClientWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepClientWrite").field("call", &self.call).finish_non_exhaustive()
    }
}

impl UseCase for KeepClientWrite {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let (now, node) = (unit.now, unit.node.clone());
        unit.write(
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
        let fact =
            AuditFact::new("client_write.kept", unit.actor()).with("agent", &self.agent).with("files", self.kept);
        let fact = fact.with("bytes", self.bytes).with("cannot_be_taken_back", self.not_kept);
        unit.record(AuditFact { call: Some(self.call), ..fact });
        Ok(())
    }
}

/// What a call changed, as the gateway found it when the client reported that it was done.
struct ReportClientWrite {
    call: CallId,
    version: u64,
    files: Vec<u8>,
}

impl UseCase for ReportClientWrite {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write_one(REPORT, params![self.call, self.version, self.files.as_slice(), now]);
        let fact = AuditFact::new("client_write.reported", unit.actor());
        unit.record(AuditFact { call: Some(self.call), ..fact });
        Ok(())
    }
}

struct MarkClientWriteUndone {
    call: CallId,
    by: Actor,
}

impl UseCase for MarkClientWriteUndone {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "rollback point" };
        let row = unit.row(LOCKED, params![self.call]).await?.map(decode).transpose()?.ok_or_else(missing)?;
        if row.state == ClientWriteState::Kept {
            end(unit, &row, ClientWriteState::Undone, self.by.clone());
        }
        Ok(())
    }
}

struct ExpireDueClientWrites {
    limit: u32,
}

impl UseCase for ExpireDueClientWrites {
    type Out = Vec<CallId>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<CallId>, StoreError> {
        let (now, node) = (unit.now, unit.node.clone());
        let rows = unit.rows(OVER, params![now, node.as_str(), self.limit]).await?;
        let rows = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        for row in &rows {
            let by = unit.actor();
            end(unit, row, ClientWriteState::Expired, by);
        }
        unit.write(FORGET, params![now - KEPT, node.as_str()]);
        Ok(rows.into_iter().map(|row| row.call).collect())
    }
}

fn end<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, row: &ClientWrite, state: ClientWriteState, by: Actor) {
    unit.write_one(END, params![row.call, row.version, state.word()]);
    let fact = AuditFact::new(format!("client_write.{}", state.word()), by).with("agent", &row.agent);
    unit.record(AuditFact { call: Some(row.call), ..fact });
}

struct GetClientWrite(CallId);

impl StoreQuery for GetClientWrite {
    type Out = Option<ClientWrite>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<ClientWrite>, StoreError> {
        tx.rows(ONE, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

struct ListClientWrites {
    agent: AgentName,
    since: UtcMillis,
    session: Option<SessionId>,
    before: Option<CallId>,
    limit: u32,
}

impl StoreQuery for ListClientWrites {
    type Out = Vec<ClientWrite>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ClientWrite>, StoreError> {
        let before = self.before.map_or(u128::MAX, CallId::bits);
        let rows = tx.rows(SINCE, &params![&self.agent, self.since, self.session, before, self.limit]).await?;
        rows.into_iter().map(decode).collect()
    }
}

struct FindUnreportedClientWrite {
    agent: AgentName,
    wish: Vec<u8>,
    since: UtcMillis,
}

impl StoreQuery for FindUnreportedClientWrite {
    type Out = Option<ClientWrite>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<ClientWrite>, StoreError> {
        let rows = tx.rows(LATEST, &params![&self.agent, self.wish.as_slice(), self.since]).await?;
        rows.into_iter().next().map(decode).transpose()
    }
}

struct SumClientWriteBytes {
    node: NodeName,
    since: UtcMillis,
}

impl StoreQuery for SumClientWriteBytes {
    type Out = u64;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u64, StoreError> {
        let rows = tx.rows(USED, &params![self.node.as_str(), self.since]).await?;
        rows.into_iter().next().map_or(Ok(0), |row| row.of("client_writes").count())
    }
}

fn decode(row: SqlRow) -> Result<ClientWrite, StoreError> {
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
    /// Keeps the content of files before a call of a client.
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
        self.ask(GetClientWrite(call)).await
    }

    /// What was kept for the calls of an agent since a time, newest id first; of one session, if one is named.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn client_writes_since(
        &self,
        (agent, session): (AgentName, Option<SessionId>),
        since: UtcMillis,
        before: Option<CallId>,
        limit: u32,
    ) -> Result<Vec<ClientWrite>, StoreError> {
        self.ask(ListClientWrites { agent, since, session, before, limit }).await
    }

    /// The latest call of an agent with this hash that was not reported yet.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn unreported_client_write(
        &self,
        agent: AgentName,
        wish: Vec<u8>,
        now: UtcMillis,
    ) -> Result<Option<ClientWrite>, StoreError> {
        self.ask(FindUnreportedClientWrite { agent, wish, since: now - REPORTED_WITHIN }).await
    }

    /// Stores what a call changed, once.
    ///
    /// # Errors
    /// When it was stored meanwhile, or cannot be recorded.
    pub async fn report_client_write(&self, write: &ClientWrite, files: Vec<u8>) -> Result<(), StoreError> {
        self.submit(ReportClientWrite { call: write.call, version: write.version, files }).await
    }

    /// Records that the files of a call were restored.
    ///
    /// # Errors
    /// When there is no such call, or it cannot be recorded.
    pub async fn mark_client_write_undone(&self, call: CallId, by: Actor) -> Result<(), StoreError> {
        self.submit(MarkClientWriteUndone { call, by }).await
    }

    /// How many bytes a node has kept since a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn sum_client_write_bytes(&self, node: NodeName, since: UtcMillis) -> Result<u64, StoreError> {
        self.ask(SumClientWriteBytes { node, since }).await
    }

    /// Expires what can no longer be restored; gives the calls, so that their files on this node can be deleted.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn expire_client_writes(&self, limit: u32) -> Result<Vec<CallId>, StoreError> {
        self.submit(ExpireDueClientWrites { limit }).await
    }
}
