//! Findings: items from outside that are withheld from agents until a person has reviewed them.
//!
//! Promise: an item is recorded before anyone is notified that it is withheld, its session is tainted in the same
//! transaction, and only a person releases it. The content is stored encrypted; this crate cannot decrypt it.

use sluice_core::audit::AuditFact;
use sluice_core::ids::{FindingId, MessageId, SessionId};
use sluice_core::{Actor, AgentName, CallId, ServiceName, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::outbox::{self, MessageSeverity, OutboxMessage};
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, found_at, service, source, author, agent, session, call, score, threshold, notes, bytes, hash, \
             root, wrapped, sealed, released_at, released_by, until FROM findings ",
            $rest
        )
    };
}

const ONE: &str = select!("WHERE id = ?1");
const LOCKED: &str = select!("WHERE id = ?1 /*lock*/");
const PAGE: &str = select!("WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
const PAGE_OPEN: &str = select!("WHERE id < ?1 AND released_at IS NULL ORDER BY id DESC LIMIT ?2");
const RELEASED: &str =
    select!("WHERE service = ?1 AND hash = ?2 AND released_at IS NOT NULL AND until > ?3 ORDER BY id DESC LIMIT 1");
const OPEN: &str = select!(
    "WHERE service = ?1 AND hash = ?2 AND session = ?3 AND released_at IS NULL AND until > ?4 ORDER BY id DESC LIMIT 1"
);
const UNDER: &str = select!("WHERE root = ?1 ORDER BY id LIMIT 1000");
const INSERT: &str = "INSERT INTO findings (id, found_at, service, source, author, agent, session, call, score, threshold, \
     notes, bytes, hash, root, wrapped, sealed, until) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
const RELEASE: &str = "UPDATE findings SET released_at = ?2, released_by = ?3 WHERE id = ?1 AND released_at IS NULL";
const REWRAP: &str = "UPDATE findings SET root = ?3, wrapped = ?4 WHERE id = ?1 AND root = ?2";
const SESSION: &str = "SELECT tainted_at FROM sessions WHERE id = ?1 /*lock*/";
const TAINT: &str = "UPDATE sessions SET tainted_at = ?2 WHERE id = ?1 AND tainted_at IS NULL";

/// The withheld content, encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedContent {
    /// The fingerprint of the root key.
    pub root: String,
    /// The data key, wrapped with the root key.
    pub wrapped: Vec<u8>,
    /// The encrypted content.
    pub sealed: Vec<u8>,
}

impl std::fmt::Debug for SealedContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedContent").field("bytes", &self.sealed.len()).finish_non_exhaustive()
    }
}

/// One withheld item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithheldFinding {
    /// Its id.
    pub id: FindingId,
    /// When the item arrived.
    pub found_at: UtcMillis,
    /// The service it came through.
    pub service: ServiceName,
    /// The source of the item.
    pub source: String,
    /// Its author, as far as that can be determined.
    pub author: String,
    /// The agent it was withheld from.
    pub agent: Option<AgentName>,
    /// The session of that agent.
    pub session: Option<SessionId>,
    /// The call that read it.
    pub call: Option<CallId>,
    /// The score, in thousandths.
    pub score: u32,
    /// The score at which its service withholds items, in thousandths.
    pub threshold: u32,
    /// What the stages found, as JSON: stages, rules, ranges and scores, never content.
    pub notes: String,
    /// The length of the item in bytes.
    pub bytes: u64,
    /// Hash of the item as it arrived.
    pub hash: [u8; 32],
    /// The item as an agent would have received it.
    pub content: SealedContent,
    /// Who released it and when, if anyone has.
    pub released: Option<(Actor, UtcMillis)>,
    /// When it is deleted.
    pub until: UtcMillis,
}

/// Withholds an item.
struct WithholdFinding {
    finding: WithheldFinding,
    message: MessageId,
}

impl UseCase for WithholdFinding {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let one = &self.finding;
        let taints = match one.session {
            Some(session) => match unit.row(SESSION, params![session]).await? {
                Some(row) => row.of("sessions").maybe_time()?.is_none(),
                None => false,
            },
            None => false,
        };
        let now = unit.now;
        unit.write(
            INSERT,
            params![
                one.id.bits(),
                one.found_at,
                &one.service,
                one.source.as_str(),
                one.author.as_str(),
                one.agent.as_ref(),
                one.session,
                one.call,
                one.score,
                one.threshold,
                one.notes.as_str(),
                one.bytes,
                one.hash.as_slice(),
                one.content.root.as_str(),
                one.content.wrapped.as_slice(),
                one.content.sealed.as_slice(),
                one.until,
            ],
        );
        let mut fact = AuditFact::new("content.withheld", unit.actor())
            .with("finding", one.id)
            .with("service", &one.service)
            .with("score", one.score)
            .with("bytes", one.bytes)
            .with("hash", sluice_core::hex::encode(&one.hash));
        if let Some(agent) = &one.agent {
            fact = fact.with("agent", agent);
        }
        fact.call = one.call;
        fact.code = Some("content.withheld".into());
        unit.record(fact);
        if let (Some(session), true) = (one.session, taints) {
            unit.write(TAINT, params![session, now]);
            let mut fact =
                AuditFact::new("session.tainted", unit.actor()).with("session", session).with("finding", one.id);
            fact.code = Some("content.withheld".into());
            unit.record(fact);
        }
        let body =
            serde_json::json!({"finding": one.id, "service": one.service, "agent": one.agent, "score": one.score});
        let topic = "content.withheld".into();
        outbox::put(unit, &OutboxMessage { id: self.message, topic, severity: MessageSeverity::Warning, body });
        Ok(())
    }
}

/// Releases an item.
struct ReleaseFinding {
    id: FindingId,
    by: Actor,
    note: String,
}

impl UseCase for ReleaseFinding {
    type Out = WithheldFinding;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<WithheldFinding, StoreError> {
        // SECURITY: an agent must not release what is withheld from it.
        if matches!(self.by, Actor::Agent(_) | Actor::Node(_)) {
            return Err(StoreError::NotAPerson);
        }
        let missing = StoreError::NotFound { what: "finding" };
        let mut one = unit.row(LOCKED, params![self.id.bits()]).await?.map(decode).transpose()?.ok_or(missing)?;
        if one.released.is_some() {
            return Ok(one);
        }
        let now = unit.now;
        unit.write_one(RELEASE, params![self.id.bits(), now, &self.by]);
        let mut fact = AuditFact::new("content.released", self.by.clone())
            .with("finding", self.id)
            .with("service", &one.service)
            .with("hash", sluice_core::hex::encode(&one.hash));
        if !self.note.is_empty() {
            fact = fact.with("note_bytes", self.note.len());
        }
        fact.call = one.call;
        unit.record(fact);
        one.released = Some((self.by.clone(), now));
        Ok(one)
    }
}

/// Wraps data keys with another root key.
struct RewrapFindings {
    from: String,
    to: String,
    wrapped: Vec<(FindingId, Vec<u8>)>,
}

impl UseCase for RewrapFindings {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        for (id, wrapped) in &self.wrapped {
            unit.write(REWRAP, params![id.bits(), self.from.as_str(), self.to.as_str(), wrapped.as_slice()]);
        }
        Ok(())
    }
}

enum ListFindings {
    One(FindingId),
    Page { open: bool, before: Option<FindingId>, limit: u32 },
    Released { service: ServiceName, hash: [u8; 32], now: UtcMillis },
    Open { service: ServiceName, hash: [u8; 32], session: SessionId, now: UtcMillis },
    Under(String),
}

impl StoreQuery for ListFindings {
    type Out = Vec<WithheldFinding>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<WithheldFinding>, StoreError> {
        let rows = match self {
            Self::One(id) => tx.rows(ONE, &params![id.bits()]).await?,
            Self::Page { open, before, limit } => {
                let before = before.map_or(u128::MAX, FindingId::bits);
                tx.rows(if *open { PAGE_OPEN } else { PAGE }, &params![before, *limit]).await?
            }
            Self::Released { service, hash, now } => {
                tx.rows(RELEASED, &params![service, hash.as_slice(), *now]).await?
            }
            Self::Open { service, hash, session, now } => {
                tx.rows(OPEN, &params![service, hash.as_slice(), *session, *now]).await?
            }
            Self::Under(root) => tx.rows(UNDER, &params![root.as_str()]).await?,
        };
        rows.into_iter().map(decode).collect()
    }
}

fn decode(row: SqlRow) -> Result<WithheldFinding, StoreError> {
    let mut row = row.of("findings");
    let (id, found_at) = (FindingId::from_bits(row.bits()?), row.time()?);
    let (service, source, author) = (row.parsed()?, row.text()?, row.text()?);
    let (agent, session, call) = (row.maybe_parsed()?, row.maybe_bits()?, row.maybe_bits()?);
    let (score, threshold, notes, bytes) = (row.count()?, row.count()?, row.text()?, row.count()?);
    let hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    let content = SealedContent { root: row.text()?, wrapped: row.blob()?, sealed: row.blob()? };
    let released = match (row.maybe_time()?, row.maybe_parsed()?) {
        (Some(at), Some(by)) => Some((by, at)),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => return Err(row.impossible("a release without a time or a person")),
    };
    let (session, call) = (session.map(SessionId::from_bits), call.map(CallId::from_bits));
    let until = row.time()?;
    Ok(WithheldFinding {
        id,
        found_at,
        service,
        source,
        author,
        agent,
        session,
        call,
        score,
        threshold,
        notes,
        bytes,
        hash,
        content,
        released,
        until,
    })
}

impl Store {
    /// Withholds an item, notifies people, and taints the session that was about to see it.
    ///
    /// # Errors
    /// When it cannot be recorded: then the agent must not receive the item either.
    pub async fn withhold(&self, finding: WithheldFinding, message: MessageId) -> Result<(), StoreError> {
        self.submit(WithholdFinding { finding, message }).await
    }

    /// Releases an item. Releasing it again changes nothing.
    ///
    /// # Errors
    /// When there is none, or the caller is not a person.
    pub async fn release_finding(&self, id: FindingId, by: Actor, note: String) -> Result<WithheldFinding, StoreError> {
        self.submit(ReleaseFinding { id, by, note }).await
    }

    /// One item.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn finding(&self, id: FindingId) -> Result<Option<WithheldFinding>, StoreError> {
        Ok(self.ask(ListFindings::One(id)).await?.into_iter().next())
    }

    /// Items, the newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn findings(
        &self,
        open: bool,
        before: Option<FindingId>,
        limit: u32,
    ) -> Result<Vec<WithheldFinding>, StoreError> {
        self.ask(ListFindings::Page { open, before, limit }).await
    }

    /// The release that covers exactly these bytes of this service, if a person has given one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn released_like(
        &self,
        service: ServiceName,
        hash: [u8; 32],
        now: UtcMillis,
    ) -> Result<Option<WithheldFinding>, StoreError> {
        Ok(self.ask(ListFindings::Released { service, hash, now }).await?.into_iter().next())
    }

    /// The finding under which exactly these bytes of this service are already withheld from a session.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn withheld_like(
        &self,
        service: ServiceName,
        hash: [u8; 32],
        session: SessionId,
        now: UtcMillis,
    ) -> Result<Option<WithheldFinding>, StoreError> {
        Ok(self.ask(ListFindings::Open { service, hash, session, now }).await?.into_iter().next())
    }

    /// Items encrypted under a root key, a batch at a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn findings_under(&self, root: String) -> Result<Vec<WithheldFinding>, StoreError> {
        self.ask(ListFindings::Under(root)).await
    }

    /// Wraps the data keys of items with another root key.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn rewrap_findings(
        &self,
        from: String,
        to: String,
        wrapped: Vec<(FindingId, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        self.submit(RewrapFindings { from, to, wrapped }).await
    }
}
