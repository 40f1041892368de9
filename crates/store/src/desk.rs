//! Where a use case does its work: it asks, decides, and leaves its changes and facts on the desk.
//!
//! Takes a use case; gives its answer once everything it left is committed. Promise: the changes, the
//! audit entries and the counters of one use case appear together or not at all, and its answer is
//! handed out only after they are durable. A use case that refuses leaves nothing behind.

use futures_util::future::LocalBoxFuture;
use sluice_core::audit::{Fact, Head, Told};
use sluice_core::{Actor, AgentName, NodeName, Timestamp};
use tokio::sync::oneshot;

use crate::ahead::Ahead;
use crate::error::StoreError;
use crate::packed;
use crate::sql::{Row, Tx, Val, Write, params};

/// One thing callers want, done in one transaction.
pub(crate) trait UseCase: Send + 'static {
    type Out: Send + 'static;
    /// Decides. Reads first; changes go to the desk and are made when this has returned `Ok`.
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Self::Out, StoreError>;
    /// Whose turn it takes, if it takes one.
    fn turn(&self) -> Option<&AgentName> {
        None
    }
    /// Questions it will ask, in the order it asks them. One that is missing here costs a round trip.
    fn foreseen(&self, now: Timestamp) -> Vec<Ahead> {
        let _nothing_to_say = now;
        Vec::new()
    }
    /// Whether it puts on record that the database lacks what it had: the only thing that is done while it does.
    fn is_about_loss(&self) -> bool {
        false
    }
}

/// One thing callers want to know.
pub(crate) trait Query: Send + 'static {
    type Out: Send + 'static;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out, StoreError>;
}

pub(crate) struct Desk<'a, T> {
    tx: &'a mut T,
    /// The group's time: the database's clock, never earlier than any time this node has seen.
    pub now: Timestamp,
    /// Who works here.
    pub node: &'a NodeName,
    /// Since its how-manieth start.
    pub life: u64,
    facts: Vec<Told>,
    writes: Vec<Write>,
    /// The time from which the node goes on, if a person has set it.
    set_to: Option<Timestamp>,
}

impl<T: Tx> Desk<'_, T> {
    /// The node goes on from this time, also if it has seen a later one. Only for a person's decision.
    pub fn set_time(&mut self, now: Timestamp) {
        self.set_to = Some(now);
    }

    pub async fn rows(&mut self, sql: &'static str, params: Vec<Val>) -> Result<Vec<Row>, StoreError> {
        debug_assert!(self.writes.is_empty() || !sql.contains("/*lock*/"), "a use case reads before it writes");
        self.tx.rows(sql, &params).await
    }

    pub async fn row(&mut self, sql: &'static str, params: Vec<Val>) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, params).await?.into_iter().next())
    }

    /// The open transaction, for reads shared with queries.
    pub fn tx(&mut self) -> &mut T {
        self.tx
    }

    /// A change that always fits.
    pub fn write(&mut self, sql: &'static str, params: Vec<Val>) {
        self.writes.push(Write { sql, params, exactly_one: false });
    }

    /// A compare-and-set: hits one row, or the whole use case did not happen.
    pub fn write_one(&mut self, sql: &'static str, params: Vec<Val>) {
        self.writes.push(Write { sql, params, exactly_one: true });
    }

    /// What the record will say.
    pub fn record(&mut self, fact: Fact) {
        self.facts.push(fact.told());
    }

    /// The same, written down before.
    pub fn record_told(&mut self, fact: Told) {
        self.facts.push(fact);
    }

    pub fn actor(&self) -> Actor {
        Actor::Node(self.node.clone())
    }
}

/// What the use cases of one commit share.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub now: Timestamp,
    pub log: NodeName,
    pub life: u64,
    pub head: Head,
}

/// A use case waiting for its turn, with someone waiting for its answer.
pub(crate) trait Errand<T>: Send {
    /// Does the work inside the open transaction. An error here means the transaction is lost.
    fn run<'a>(&'a mut self, tx: &'a mut T, group: &'a mut Group) -> LocalBoxFuture<'a, Result<(), StoreError>>;
    /// Whose turn it takes. Groups of two nodes that take turns in one order never wait for each other.
    fn turn(&self) -> Option<&AgentName>;
    /// Questions it will ask.
    fn foreseen(&self, now: Timestamp) -> Vec<Ahead>;
    /// Whether it puts on record that the database lacks what it had.
    fn is_about_loss(&self) -> bool;
    /// Hands out the answer, or the fault that took the whole group.
    fn deliver(self: Box<Self>, fault: Option<&StoreError>);
}

pub(crate) type Answered<Out> = oneshot::Receiver<Result<Out, StoreError>>;

/// A use case on its way to a writer.
pub(crate) struct Pending<U: UseCase> {
    case: U,
    answer: Option<Result<U::Out, StoreError>>,
    reply: oneshot::Sender<Result<U::Out, StoreError>>,
}

impl<U: UseCase> Pending<U> {
    pub fn new(case: U) -> (Box<Self>, Answered<U::Out>) {
        let (reply, answered) = oneshot::channel();
        (Box::new(Self { case, answer: None, reply }), answered)
    }
}

impl<U: UseCase + Sync, T: Tx> Errand<T> for Pending<U> {
    fn run<'a>(&'a mut self, tx: &'a mut T, group: &'a mut Group) -> LocalBoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.answer = Some(perform(&self.case, tx, group).await?);
            Ok(())
        })
    }

    fn turn(&self) -> Option<&AgentName> {
        self.case.turn()
    }

    fn foreseen(&self, now: Timestamp) -> Vec<Ahead> {
        self.case.foreseen(now)
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
pub(crate) async fn perform<U: UseCase, T: Tx>(
    case: &U,
    tx: &mut T,
    group: &mut Group,
) -> Result<Result<U::Out, StoreError>, StoreError> {
    let mut desk = Desk {
        tx,
        now: group.now,
        node: &group.log,
        life: group.life,
        facts: Vec::new(),
        writes: Vec::new(),
        set_to: None,
    };
    let answer = match case.run(&mut desk).await {
        Ok(answer) => answer,
        Err(fault) if fault.is_fault() => return Err(fault),
        Err(refusal) => return Ok(Err(refusal)),
    };
    let Desk { facts, mut writes, set_to, .. } = desk;
    // What the record says of it, and all that follows, has the time that was set.
    group.now = set_to.unwrap_or(group.now);
    for fact in facts {
        let sealed = group.head.seal_told(&group.log, group.now, &fact);
        // A node of the release before, on the same server, reads them too.
        let body = if T::IS_SHARED { sealed.body } else { packed::pack(sealed.body) };
        let params = params![&group.log, sealed.seq, sealed.hash, body];
        writes.push(Write { sql: APPEND, params, exactly_one: false });
    }
    tx.make(writes).await?;
    Ok(Ok(answer))
}

pub(crate) const APPEND: &str = "INSERT INTO audit_entries (log, seq, hash, body) VALUES (?1, ?2, ?3, ?4)";

/// The node's row, locked for the length of the group.
pub(crate) const OPEN_GROUP: &str =
    "SELECT epoch, last_seen, commits, log_size, log_hash FROM nodes WHERE node = ?1 /*lock*/";

/// Closes the group: time seen, commits counted, head moved, all under the epoch we started with.
pub(crate) const CLOSE_GROUP: &str = "UPDATE nodes SET alive_at = ?2, last_seen = ?2, commits = commits + 1, \
     log_size = ?3, log_hash = ?4 WHERE node = ?1 AND epoch = ?5";

/// What [`OPEN_GROUP`] says.
pub(crate) struct NodeRow {
    pub epoch: u64,
    pub last_seen: Timestamp,
    pub commits: u64,
    pub head: Head,
}

impl NodeRow {
    pub fn read(row: Row) -> Result<Self, StoreError> {
        let mut row = row.of("nodes");
        let (epoch, last_seen, commits, size) = (row.count()?, row.time()?, row.count()?, row.count()?);
        let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
        Ok(Self { epoch, last_seen, commits, head: Head { size, hash: sluice_core::audit::Hash(hash) } })
    }
}
