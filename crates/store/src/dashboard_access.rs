//! Access to the dashboard: one-time codes that sign a person in, and the sessions of browsers.
//!
//! Takes hashes of codes and cookies; gives the operator's credential behind them. Promise: a code works once and within
//! its time; a session ends with its credential, on its own time, or when a person ends it; neither code nor cookie is
//! stored, and the audit log names sessions by their ids.

use sluice_core::audit::AuditFact;
use sluice_core::ids::{DashboardSessionId, KeyId};
use sluice_core::{Actor, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

/// How long a one-time code works.
const SIGN_IN_CODE_LIFETIME: Millis = Millis::from_mins(10);
/// How long a session lasts, however often it is used.
pub const DASHBOARD_SESSION_LIFETIME: Millis = Millis::from_hours(7 * 24);
/// How long a session lasts without use.
const DASHBOARD_SESSION_IDLE: Millis = Millis::from_hours(12);
/// How far apart two recorded uses of a session are at least.
const SEEN_EVERY: Millis = Millis::from_mins(5);
/// Sessions that a list returns at most.
const MOST: u32 = 500;
/// The longest name of a browser, in characters.
const LONGEST_BROWSER: usize = 160;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.key, k.hash, k.name, s.browser, s.made_at, s.seen_at, s.expires_at, s.ended_at ",
            "FROM dashboard_sessions s JOIN keys k ON k.id = s.key ",
            $rest
        )
    };
}

const MAKE_LINK: &str = "INSERT INTO dashboard_links (hash, key, made_at, expires_at) VALUES (?1, ?2, ?3, ?4)";
const KEY_HOLDER: &str = "SELECT name FROM keys WHERE id = ?1";
const FIND_LINK: &str = "SELECT key, expires_at, used_at FROM dashboard_links WHERE hash = ?1 /*lock*/";
const USE_LINK: &str = "UPDATE dashboard_links SET used_at = ?2 WHERE hash = ?1 AND used_at IS NULL";
const ANY: &str = "SELECT (SELECT COUNT(*) FROM dashboard_links) + (SELECT COUNT(*) FROM dashboard_sessions)";
const OPEN: &str = "INSERT INTO dashboard_sessions (id, hash, key, browser, made_at, seen_at, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)";
const BY_HASH: &str = select!("WHERE s.hash = ?1");
const LIVE: &str =
    select!("WHERE s.ended_at IS NULL AND s.expires_at > ?1 AND s.seen_at > ?2 ORDER BY s.id DESC LIMIT ?3");
const OWNER: &str = "SELECT k.name, s.ended_at FROM dashboard_sessions s JOIN keys k ON k.id = s.key WHERE s.id = ?1";
const SEEN: &str = "UPDATE dashboard_sessions SET seen_at = ?2 WHERE id = ?1 AND ended_at IS NULL";
const END: &str = "UPDATE dashboard_sessions SET ended_at = ?2, ended_by = ?3 WHERE id = ?1 AND ended_at IS NULL";

/// The session of a browser.
#[derive(Clone, PartialEq, Eq)]
pub struct DashboardSession {
    /// Its id: names the session and gives no access.
    pub id: DashboardSessionId,
    /// The operator's credential behind it.
    pub key: KeyId,
    /// The hash of that credential.
    pub key_hash: [u8; 32],
    /// The person who is signed in.
    pub person: String,
    /// The browser, by the name it gives itself.
    pub browser: String,
    /// When the person signed in.
    pub made_at: UtcMillis,
    /// When it was last used, to within a few minutes.
    pub seen_at: UtcMillis,
    /// When it ends in any case.
    pub expires_at: UtcMillis,
    /// When a person ended it.
    pub ended_at: Option<UtcMillis>,
}

impl std::fmt::Debug for DashboardSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DashboardSession").field("id", &self.id).finish_non_exhaustive()
    }
}

impl DashboardSession {
    /// Whether it can be used at this moment.
    #[must_use]
    pub fn is_live(&self, now: UtcMillis) -> bool {
        self.ended_at.is_none() && now < self.expires_at && now < self.seen_at + DASHBOARD_SESSION_IDLE
    }

    /// Whether its last recorded use is old enough to be recorded again.
    #[must_use]
    pub fn should_note_use(&self, now: UtcMillis) -> bool {
        now.since(self.seen_at) >= SEEN_EVERY
    }
}

/// A session to be opened.
#[derive(Clone)]
pub struct OpenDashboardSession {
    /// Its id.
    pub id: DashboardSessionId,
    /// The hash of the cookie.
    pub hash: [u8; 32],
    /// The browser, by the name it gives itself.
    pub browser: String,
    /// How the person proves who they are.
    pub proof: SignInProof,
}

/// How a person proves who they are.
#[derive(Clone, PartialEq, Eq)]
pub enum SignInProof {
    /// With an operator's credential that was checked.
    Key(KeyId),
    /// With a one-time code, by its hash.
    Code([u8; 32]),
}

impl std::fmt::Debug for OpenDashboardSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenDashboardSession").field("id", &self.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SignInProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Key",
            Self::Code(_) => "Code",
        })
    }
}

struct MakeSignInCode {
    hash: [u8; 32],
    key: KeyId,
    by: Actor,
}

impl UseCase for MakeSignInCode {
    type Out = UtcMillis;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<UtcMillis, StoreError> {
        let (now, until) = (unit.now, unit.now + SIGN_IN_CODE_LIFETIME);
        unit.write(MAKE_LINK, params![self.hash.as_slice(), self.key, now, until]);
        unit.record(AuditFact::new("dashboard.code_made", self.by.clone()).with("key", self.key));
        Ok(until)
    }
}

impl UseCase for OpenDashboardSession {
    type Out = Option<KeyId>;

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Option<KeyId>, StoreError> {
        let now = unit.now;
        // Every read comes before the first write.
        let (key, way) = match self.proof {
            SignInProof::Key(key) => (key, "token"),
            SignInProof::Code(hash) => match usable(unit, hash).await? {
                Some(key) => (key, "code"),
                None => return Ok(None),
            },
        };
        let name = unit.row(KEY_HOLDER, params![key]).await?.ok_or(StoreError::NotFound { what: "key" })?;
        let by = Actor::Operator(name.of("keys").parsed()?);
        let browser: String = self.browser.chars().filter(|c| !c.is_control()).take(LONGEST_BROWSER).collect();
        let end = now + DASHBOARD_SESSION_LIFETIME;
        if let SignInProof::Code(hash) = self.proof {
            unit.write_one(USE_LINK, params![hash.as_slice(), now]);
        }
        unit.write(OPEN, params![self.id.bits(), self.hash.as_slice(), key, browser, now, end]);
        unit.record(
            AuditFact::new("dashboard.signed_in", by).with("session", self.id).with("key", key).with("way", way),
        );
        Ok(Some(key))
    }
}

/// The credential that a code signs in, if the code still works.
async fn usable<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hash: [u8; 32]) -> Result<Option<KeyId>, StoreError> {
    let now = unit.now;
    let Some(row) = unit.row(FIND_LINK, params![hash.as_slice()]).await? else { return Ok(None) };
    let mut row = row.of("dashboard_links");
    let (key, expires_at, used_at) = (KeyId::from_bits(row.bits()?), row.time()?, row.maybe_time()?);
    if used_at.is_some() || now >= expires_at {
        return Ok(None);
    }
    Ok(Some(key))
}

struct FindDashboardSession([u8; 32]);

impl StoreQuery for FindDashboardSession {
    type Out = Option<DashboardSession>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        tx.rows(BY_HASH, &params![self.0.as_slice()]).await?.into_iter().next().map(decode).transpose()
    }
}

struct ListDashboardSessions(UtcMillis);

impl StoreQuery for ListDashboardSessions {
    type Out = Vec<DashboardSession>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let idle = self.0 - DASHBOARD_SESSION_IDLE;
        tx.rows(LIVE, &params![self.0, idle, MOST]).await?.into_iter().map(decode).collect()
    }
}

struct WasDashboardUsed;

impl StoreQuery for WasDashboardUsed {
    type Out = bool;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        let row = tx.rows(ANY, &[]).await?.into_iter().next();
        Ok(row.ok_or(StoreError::NotFound { what: "count" })?.of("dashboard_links").int()? > 0)
    }
}

struct NoteDashboardUse(DashboardSessionId);

impl UseCase for NoteDashboardUse {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write(SEEN, params![self.0.bits(), now]);
        Ok(())
    }
}

struct EndDashboardSession {
    id: DashboardSessionId,
    by: Actor,
    /// Only if it is a session of this person.
    only_of: Option<String>,
}

impl UseCase for EndDashboardSession {
    type Out = ();

    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let missing = || StoreError::NotFound { what: "dashboard session" };
        let row = unit.row(OWNER, params![self.id.bits()]).await?.ok_or_else(missing)?;
        let mut row = row.of("dashboard_sessions");
        let (person, ended_at) = (row.text()?, row.maybe_time()?);
        // A person who may not see a session is told that there is none.
        if self.only_of.as_ref().is_some_and(|own| *own != person) {
            return Err(missing());
        }
        if ended_at.is_none() {
            let now = unit.now;
            unit.write(END, params![self.id.bits(), now, &self.by]);
            unit.record(AuditFact::new("dashboard.signed_out", self.by.clone()).with("session", self.id));
        }
        Ok(())
    }
}

fn decode(row: SqlRow) -> Result<DashboardSession, StoreError> {
    let mut row = row.of("dashboard_sessions");
    let (id, key) = (DashboardSessionId::from_bits(row.bits()?), KeyId::from_bits(row.bits()?));
    let key_hash = row.blob()?.try_into().map_err(|_| row.impossible("a hash does not have 32 bytes"))?;
    let (person, browser) = (row.text()?, row.text()?);
    let (made_at, seen_at, expires_at, ended_at) = (row.time()?, row.time()?, row.time()?, row.maybe_time()?);
    Ok(DashboardSession { id, key, key_hash, person, browser, made_at, seen_at, expires_at, ended_at })
}

impl Store {
    /// Stores a one-time code by its hash. Returns until when it works.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn make_sign_in_code(&self, hash: [u8; 32], key: KeyId, by: Actor) -> Result<UtcMillis, StoreError> {
        self.submit(MakeSignInCode { hash, key, by }).await
    }

    /// Opens a session. Returns the credential behind it, or nothing if the code does not work (any more).
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn open_dashboard_session(&self, open: OpenDashboardSession) -> Result<Option<KeyId>, StoreError> {
        self.submit(open).await
    }

    /// The session with this hash of its cookie, ended or not.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn dashboard_session(&self, hash: [u8; 32]) -> Result<Option<DashboardSession>, StoreError> {
        self.ask(FindDashboardSession(hash)).await
    }

    /// The sessions that can be used now, newest first.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn dashboard_sessions(&self, now: UtcMillis) -> Result<Vec<DashboardSession>, StoreError> {
        self.ask(ListDashboardSessions(now)).await
    }

    /// Whether anybody was ever signed in, or could have been, as far as that is still stored.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn was_dashboard_used(&self) -> Result<bool, StoreError> {
        self.ask(WasDashboardUsed).await
    }

    /// Records that a session is in use.
    ///
    /// # Errors
    /// When that cannot be written.
    pub async fn note_dashboard_use(&self, id: DashboardSessionId) -> Result<(), StoreError> {
        self.submit(NoteDashboardUse(id)).await
    }

    /// Ends a session at once; with `only_of`, only if it is a session of this person. Ending it again changes nothing.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn end_dashboard_session(
        &self,
        id: DashboardSessionId,
        by: Actor,
        only_of: Option<String>,
    ) -> Result<(), StoreError> {
        self.submit(EndDashboardSession { id, by, only_of }).await
    }
}
