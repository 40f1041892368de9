//! Unit of work: a use case reads, decides, and leaves its changes and facts here.
//!
//! Takes a use case; gives its answer once its changes are committed. Promise: the changes, the audit entries and the
//! counters of one use case appear together or not at all, and its answer is given only after they are durable. A use
//! case that refuses leaves nothing behind.

use futures_util::future::LocalBoxFuture;
use sluice_core::audit::{AuditFact, ChainHead, EncodedAuditFact};
use sluice_core::{Actor, AgentName, NodeName, UtcMillis};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::packed;
use crate::prefetch::PrefetchQuery;
use crate::sql::{SqlRow, SqlValue, SqlWrite, StoreTx, params};

/// One operation that callers want, done in one transaction.
pub(crate) trait UseCase: Send + 'static {
    type Out: Send + 'static;
    /// Decides. Reads first; changes go to the unit of work and are made after this has returned `Ok`.
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Self::Out, StoreError>;
    /// The agent whose turn it takes, if it takes one.
    fn turn(&self) -> Option<&AgentName> {
        None
    }
    /// Queries it will make, in order. A query that is missing here costs a round trip.
    fn prefetch_queries(&self, now: UtcMillis) -> Vec<PrefetchQuery> {
        let _nothing_to_say = now;
        Vec::new()
    }
    /// Whether it records that the database lost acknowledged work: the only use case that runs while that is so.
    fn is_about_loss(&self) -> bool {
        false
    }
}

/// One read that callers want.
pub(crate) trait StoreQuery: Send + 'static {
    type Out: Send + 'static;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError>;
}

pub(crate) struct UnitOfWork<'a, T> {
    tx: &'a mut T,
    /// The group's time: the database's clock, never earlier than any time this node has seen.
    pub now: UtcMillis,
    /// The node that runs the use case.
    pub node: &'a NodeName,
    /// The number of this start of the node.
    pub life: u64,
    facts: Vec<EncodedAuditFact>,
    writes: Vec<SqlWrite>,
    /// The time from which the node continues, if a person has set it.
    set_to: Option<UtcMillis>,
}

impl<T: StoreTx> UnitOfWork<'_, T> {
    /// The node continues from this time, even if it has seen a later one. Only for a person's decision.
    pub fn set_time(&mut self, now: UtcMillis) {
        self.set_to = Some(now);
    }

    pub async fn rows(&mut self, sql: &'static str, params: Vec<SqlValue>) -> Result<Vec<SqlRow>, StoreError> {
        debug_assert!(self.writes.is_empty() || !sql.contains("/*lock*/"), "a use case reads before it writes");
        self.tx.rows(sql, &params).await
    }

    pub async fn row(&mut self, sql: &'static str, params: Vec<SqlValue>) -> Result<Option<SqlRow>, StoreError> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// The open transaction, for reads shared with queries.
    pub fn tx(&mut self) -> &mut T {
        self.tx
    }

    /// A change that always fits.
    pub fn write(&mut self, sql: &'static str, params: Vec<SqlValue>) {
        self.writes.push(SqlWrite { sql, params, exactly_one: false });
    }

    /// A compare-and-set: changes exactly one row, or the whole use case is rolled back.
    pub fn write_one(&mut self, sql: &'static str, params: Vec<SqlValue>) {
        self.writes.push(SqlWrite { sql, params, exactly_one: true });
    }

    /// Adds a fact for the audit log.
    pub fn record(&mut self, fact: AuditFact) {
        self.facts.push(fact.encode());
    }

    /// The same for a fact that was serialized before.
    pub fn record_told(&mut self, fact: EncodedAuditFact) {
        self.facts.push(fact);
    }

    pub fn actor(&self) -> Actor {
        Actor::Node(self.node.clone())
    }
}

/// What the use cases of one commit share.
#[derive(Debug, Clone)]
pub(crate) struct CommitGroup {
    pub now: UtcMillis,
    pub log: NodeName,
    pub life: u64,
    pub head: ChainHead,
}

/// A use case waiting for its turn, with a caller waiting for its answer.
pub(crate) trait StoreCommand<T>: Send {
    /// Does the work inside the open transaction. An error here means the transaction is lost.
    fn run<'a>(&'a mut self, tx: &'a mut T, group: &'a mut CommitGroup) -> LocalBoxFuture<'a, Result<(), StoreError>>;
    /// The agent whose turn it takes. Groups of two nodes that take turns in one order never wait for each other.
    fn turn(&self) -> Option<&AgentName>;
    /// Queries it will make.
    fn prefetch_queries(&self, now: UtcMillis) -> Vec<PrefetchQuery>;
    /// Whether it records that the database lost acknowledged work.
    fn is_about_loss(&self) -> bool;
    /// Delivers the answer, or the fault that failed the whole group.
    fn deliver(self: Box<Self>, fault: Option<&StoreError>);
}

pub(crate) type CommandReply<Out> = oneshot::Receiver<Result<Out, StoreError>>;

/// A use case on its way to a writer.
pub(crate) struct PendingCommand<U: UseCase> {
    case: U,
    answer: Option<Result<U::Out, StoreError>>,
    reply: oneshot::Sender<Result<U::Out, StoreError>>,
}

impl<U: UseCase> PendingCommand<U> {
    pub fn new(case: U) -> (Box<Self>, CommandReply<U::Out>) {
        let (reply, answered) = oneshot::channel();
        (Box::new(Self { case, answer: None, reply }), answered)
    }
}

impl<U: UseCase + Sync, T: StoreTx> StoreCommand<T> for PendingCommand<U> {
    fn run<'a>(&'a mut self, tx: &'a mut T, group: &'a mut CommitGroup) -> LocalBoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.answer = Some(perform(&self.case, tx, group).await?);
            Ok(())
        })
    }

    fn turn(&self) -> Option<&AgentName> {
        self.case.turn()
    }

    fn prefetch_queries(&self, now: UtcMillis) -> Vec<PrefetchQuery> {
        self.case.prefetch_queries(now)
    }

    fn is_about_loss(&self) -> bool {
        self.case.is_about_loss()
    }

    fn deliver(self: Box<Self>, fault: Option<&StoreError>) {
        let answer = match (fault, self.answer) {
            (Some(fault), _) => Err(fault.share()),
            (None, Some(answer)) => answer,
            (None, None) => Err(StoreError::Unavailable("the writer stopped".into())),
        };
        // The caller may have gone away; what is committed stays committed.
        drop(self.reply.send(answer));
    }
}

/// Runs one use case: its answer, with its changes made and its facts sealed; or the engine's fault.
pub(crate) async fn perform<U: UseCase, T: StoreTx>(
    case: &U,
    tx: &mut T,
    group: &mut CommitGroup,
) -> Result<Result<U::Out, StoreError>, StoreError> {
    let mut unit = UnitOfWork {
        tx,
        now: group.now,
        node: &group.log,
        life: group.life,
        facts: Vec::new(),
        writes: Vec::new(),
        set_to: None,
    };
    let answer = match case.run(&mut unit).await {
        Ok(answer) => answer,
        Err(fault) if fault.is_fault() => return Err(fault),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let UnitOfWork { facts, mut writes, set_to, .. } = unit;
    // Its audit entries, and everything after it, have the time that was set.
    group.now = set_to.unwrap_or(group.now);
    for fact in facts {
        let sealed = group.head.seal_encoded(&group.log, group.now, &fact);
        // A node of the previous release, on the same server, reads them too.
        let body = if T::IS_SHARED { sealed.body } else { packed::pack(sealed.body) };
        let params = params![&group.log, sealed.seq, sealed.hash, body];
        writes.push(SqlWrite { sql: APPEND, params, exactly_one: false });
    }
    tx.apply_writes(writes).await?;
    Ok(Ok(answer))
}

pub(crate) const APPEND: &str = "INSERT INTO audit_entries (log, seq, hash, body) VALUES (?1, ?2, ?3, ?4)";

/// The node's row, locked for the length of the group.
pub(crate) const OPEN_GROUP: &str =
    "SELECT epoch, last_seen, commits, log_size, log_hash FROM nodes WHERE node = ?1 /*lock*/";

/// Closes the group: time seen, commits counted, head moved, all under the epoch of its start.
pub(crate) const CLOSE_GROUP: &str = "UPDATE nodes SET alive_at = ?2, last_seen = ?2, commits = commits + 1, \
     log_size = ?3, log_hash = ?4 WHERE node = ?1 AND epoch = ?5";

/// The row that [`OPEN_GROUP`] returns.
pub(crate) struct NodeRow {
    pub epoch: u64,
    pub last_seen: UtcMillis,
    pub commits: u64,
    pub head: ChainHead,
}

impl NodeRow {
    pub fn read(row: SqlRow) -> Result<Self, StoreError> {
        let mut row = row.of("nodes");
        let (epoch, last_seen, commits, size) = (row.count()?, row.time()?, row.count()?, row.count()?);
        let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
        Ok(Self { epoch, last_seen, commits, head: ChainHead { size, hash: sluice_core::audit::AuditHash(hash) } })
    }
}
