//! Findings: items from outside that are kept from agents until a person has looked.
//!
//! Promise: an item is on record before anybody is told that it is withheld, its session is tainted in the same
//! transaction, and only a person releases it. Content is held sealed; this crate cannot open it.

use sluice_core::audit::Fact;
use sluice_core::ids::{FindingId, MessageId, SessionId};
use sluice_core::{Actor, AgentName, CallId, ServiceName, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::outbox::{self, Message, Severity};
use crate::sql::{Row, Tx, params};

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

/// What is withheld, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedContent {
    /// The fingerprint of the root key.
    pub root: String,
    /// The data key, wrapped.
    pub wrapped: Vec<u8>,
    /// The content.
    pub sealed: Vec<u8>,
}

impl std::fmt::Debug for SealedContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedContent").field("bytes", &self.sealed.len()).finish_non_exhaustive()
    }
}

/// One withheld item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its id.
    pub id: FindingId,
    /// When it came.
    pub found_at: Timestamp,
    /// Through which service.
    pub service: ServiceName,
    /// Where it is from.
    pub source: String,
    /// Who wrote it, as far as anyone can tell.
    pub author: String,
    /// The agent it was kept from.
    pub agent: Option<AgentName>,
    /// In which session.
    pub session: Option<SessionId>,
    /// In which call.
    pub call: Option<CallId>,
    /// In thousandths.
    pub score: u32,
    /// The score from which its service withholds, in thousandths.
    pub threshold: u32,
    /// What the stages noticed, as JSON: stages, rules, spans and scores, never content.
    pub notes: String,
    /// How long the item is.
    pub bytes: u64,
    /// Of the item as it came.
    pub hash: [u8; 32],
    /// The item as an agent would have been given it.
    pub content: SealedContent,
    /// Who released it and when, if somebody has.
    pub released: Option<(Actor, Timestamp)>,
    /// When it is forgotten.
    pub until: Timestamp,
}

/// Withholds an item.
struct Withhold {
    finding: Finding,
    message: MessageId,
}

impl UseCase for Withhold {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let one = &self.finding;
        let taints = match one.session {
            Some(session) => match desk.row(SESSION, params![session]).await? {
                Some(row) => row.of("sessions").maybe_time()?.is_none(),
                None => false,
            },
            None => false,
        };
        let now = desk.now;
        desk.write(
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
        let mut fact = Fact::new("content.withheld", desk.actor())
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
        desk.record(fact);
        if let (Some(session), true) = (one.session, taints) {
            desk.write(TAINT, params![session, now]);
            let mut fact = Fact::new("session.tainted", desk.actor()).with("session", session).with("finding", one.id);
            fact.code = Some("content.withheld".into());
            desk.record(fact);
        }
        let body =
            serde_json::json!({"finding": one.id, "service": one.service, "agent": one.agent, "score": one.score});
        let topic = "content.withheld".into();
        outbox::put(desk, &Message { id: self.message, topic, severity: Severity::Warning, body });
        Ok(())
    }
}

/// Releases an item.
struct Release {
    id: FindingId,
    by: Actor,
    note: String,
}

impl UseCase for Release {
    type Out = Finding;

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Finding, StoreError> {
        // SECURITY: what is kept from an agent is not the agent's to release.
        if matches!(self.by, Actor::Agent(_) | Actor::Node(_)) {
            return Err(StoreError::NotAPerson);
        }
        let missing = StoreError::NotFound { what: "finding" };
        let mut one = desk.row(LOCKED, params![self.id.bits()]).await?.map(decode).transpose()?.ok_or(missing)?;
        if one.released.is_some() {
            return Ok(one);
        }
        let now = desk.now;
        desk.write_one(RELEASE, params![self.id.bits(), now, &self.by]);
        let mut fact = Fact::new("content.released", self.by.clone())
            .with("finding", self.id)
            .with("service", &one.service)
            .with("hash", sluice_core::hex::encode(&one.hash));
        if !self.note.is_empty() {
            fact = fact.with("note_bytes", self.note.len());
        }
        fact.call = one.call;
        desk.record(fact);
        one.released = Some((self.by.clone(), now));
        Ok(one)
    }
}

/// Puts data keys under another root key.
struct Rewrap {
    from: String,
    to: String,
    wrapped: Vec<(FindingId, Vec<u8>)>,
}

impl UseCase for Rewrap {
    type Out = ();

    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        for (id, wrapped) in &self.wrapped {
            desk.write(REWRAP, params![id.bits(), self.from.as_str(), self.to.as_str(), wrapped.as_slice()]);
        }
        Ok(())
    }
}

enum Wanted {
    One(FindingId),
    Page { open: bool, before: Option<FindingId>, limit: u32 },
    Released { service: ServiceName, hash: [u8; 32], now: Timestamp },
    Open { service: ServiceName, hash: [u8; 32], session: SessionId, now: Timestamp },
    Under(String),
}

impl Query for Wanted {
    type Out = Vec<Finding>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Finding>, StoreError> {
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

fn decode(row: Row) -> Result<Finding, StoreError> {
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
    Ok(Finding {
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
    /// Withholds an item, tells people, and taints the session that was about to see it.
    ///
    /// # Errors
    /// When it cannot be recorded: then the item must not be given either.
    pub async fn withhold(&self, finding: Finding, message: MessageId) -> Result<(), StoreError> {
        self.submit(Withhold { finding, message }).await
    }

    /// Releases an item. Releasing it again changes nothing.
    ///
    /// # Errors
    /// When there is none, or the one who says so is no person.
    pub async fn release_finding(&self, id: FindingId, by: Actor, note: String) -> Result<Finding, StoreError> {
        self.submit(Release { id, by, note }).await
    }

    /// One item.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn finding(&self, id: FindingId) -> Result<Option<Finding>, StoreError> {
        Ok(self.ask(Wanted::One(id)).await?.into_iter().next())
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
    ) -> Result<Vec<Finding>, StoreError> {
        self.ask(Wanted::Page { open, before, limit }).await
    }

    /// The release that covers these very bytes of this service, if a person has given one.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn released_like(
        &self,
        service: ServiceName,
        hash: [u8; 32],
        now: Timestamp,
    ) -> Result<Option<Finding>, StoreError> {
        Ok(self.ask(Wanted::Released { service, hash, now }).await?.into_iter().next())
    }

    /// The finding under which these very bytes of this service are kept from a session already.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn withheld_like(
        &self,
        service: ServiceName,
        hash: [u8; 32],
        session: SessionId,
        now: Timestamp,
    ) -> Result<Option<Finding>, StoreError> {
        Ok(self.ask(Wanted::Open { service, hash, session, now }).await?.into_iter().next())
    }

    /// Items sealed under a root key, some at a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn findings_under(&self, root: String) -> Result<Vec<Finding>, StoreError> {
        self.ask(Wanted::Under(root)).await
    }

    /// Puts the data keys of items under another root key.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn rewrap_findings(
        &self,
        from: String,
        to: String,
        wrapped: Vec<(FindingId, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        self.submit(Rewrap { from, to, wrapped }).await
    }
}
