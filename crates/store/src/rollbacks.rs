//! Rollback points as rows: captured before a write, completed after it, kept as long as they can be used.

use sluice_core::audit::AuditFact;
use sluice_core::ids::RollbackId;
use sluice_core::rollback::{ObjectFingerprint, RollbackState, RollbackWriteRecord};
use sluice_core::{Actor, HoldId, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::prefetch::PrefetchQuery;
use crate::release::StateBeforeWrite;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, hold, content, state, version, before_print, after_print, captured_at, until, ended_by, ended_at ",
            "FROM rollback_points ",
            $rest
        )
    };
}

const OF_HOLD: &str = select!("WHERE hold = ?1");
const EXPIRED: &str = select!("WHERE state = 'sealed' AND until <= ?1 ORDER BY until, id LIMIT ?2 /*skip*/");
const REPLACE: &str = "DELETE FROM rollback_points WHERE hold = ?1 AND state = 'abandoned'";
const CAPTURE: &str = "INSERT INTO rollback_points (id, hold, content, state, version, before_print, captured_at) \
     VALUES (?1, ?2, ?3, 'captured', 1, ?4, ?5)";
const MOVED: &str = "UPDATE rollback_points SET state = ?3, version = version + 1, after_print = ?4, until = ?5, \
     ended_by = ?6, ended_at = ?7, content = ?8 WHERE id = ?1 AND version = ?2";

/// A complete rollback point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollbackPoint {
    /// Its id.
    pub id: RollbackId,
    /// The write it undoes.
    pub hold: HoldId,
    /// What the adapter needs to restore the object. Emptied when it can no longer be used.
    pub content: Vec<u8>,
    /// Its state.
    pub state: RollbackState,
    /// The version of the row.
    pub version: u64,
}

impl RollbackPoint {
    pub(crate) fn is_captured(&self) -> bool {
        matches!(self.state, RollbackState::Captured { .. })
    }
}

pub(crate) struct GetHoldRollback(pub HoldId);

impl StoreQuery for GetHoldRollback {
    type Out = Option<RollbackPoint>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<RollbackPoint>, StoreError> {
        tx.rows(OF_HOLD, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

pub(crate) async fn of_hold<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    hold: HoldId,
) -> Result<Option<RollbackPoint>, StoreError> {
    GetHoldRollback(hold).run(unit.tx()).await
}

/// The query of [`of_hold`], made early.
pub(crate) fn of_hold_ahead(hold: HoldId) -> PrefetchQuery {
    PrefetchQuery {
        sql: OF_HOLD,
        params: params![hold],
        rests_on: vec![("rollback_points", vec![("hold", SqlValue::from(hold))])],
        follows: None,
    }
}

/// Stores a new point. It replaces one that was abandoned.
pub(crate) fn capture<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: HoldId, before: &StateBeforeWrite) {
    let now = unit.now;
    let print = before.print.to_bytes();
    unit.write(REPLACE, params![hold]);
    unit.write(CAPTURE, params![before.id, hold, before.content.as_slice(), print.as_slice(), now]);
    record(unit, hold, before.id, "rollback.captured");
}

pub(crate) fn seal<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    point: RollbackPoint,
    after: ObjectFingerprint,
    service_until: Option<UtcMillis>,
) -> Result<(), StoreError> {
    let written = RollbackWriteRecord { at: unit.now, after, service_until };
    shift(unit, point, |state| state.seal(written))
}

pub(crate) fn abandon<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, point: RollbackPoint) -> Result<(), StoreError> {
    let now = unit.now;
    shift(unit, point, |state| state.abandon(now))
}

/// Records that the write was undone by another write.
pub(crate) struct MarkRollbackUndone {
    pub hold: HoldId,
    pub present: ObjectFingerprint,
    pub by: Actor,
}

impl UseCase for MarkRollbackUndone {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let point = of_hold(unit, self.hold).await?.ok_or(StoreError::NotFound { what: "rollback point" })?;
        let (now, by) = (unit.now, self.by.clone());
        shift(unit, point, |state| state.undo(self.present, by, now))
    }
}

/// Deletes the content of points that can no longer be used.
pub(crate) struct ExpireRollbacks {
    pub limit: u32,
}

impl UseCase for ExpireRollbacks {
    type Out = Vec<RollbackPoint>;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Vec<RollbackPoint>, StoreError> {
        let now = unit.now;
        let rows = unit.rows(EXPIRED, params![now, self.limit]).await?;
        let points = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        for point in &points {
            shift(unit, point.clone(), |state| state.expire(now))?;
        }
        Ok(points)
    }
}

fn shift<T: StoreTx>(
    unit: &mut UnitOfWork<'_, T>,
    point: RollbackPoint,
    step: impl FnOnce(RollbackState) -> Result<RollbackState, sluice_core::rollback::RollbackError>,
) -> Result<(), StoreError> {
    let state = step(point.state)?;
    let (mut after, mut until, mut by, mut at) = (None, None, None, None);
    let mut content = Vec::new();
    match &state {
        RollbackState::Captured { .. } => content = point.content,
        RollbackState::Sealed { after: print, until: end, .. } => {
            (after, until, content) = (Some(print.to_bytes().to_vec()), Some(*end), point.content);
        }
        RollbackState::Undone { by: who, at: when } => (by, at) = (Some(who), Some(*when)),
        RollbackState::Expired { at: when } | RollbackState::Abandoned { at: when } => at = Some(*when),
    }
    unit.write_one(MOVED, params![point.id, point.version, state.word(), after, until, by, at, content]);
    record(unit, point.hold, point.id, &format!("rollback.{}", state.word()));
    Ok(())
}

fn record<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, hold: HoldId, id: RollbackId, kind: &str) {
    let mut fact = AuditFact::new(kind, unit.actor()).with("rollback", id);
    fact.hold = Some(hold);
    unit.record(fact);
}

fn decode(row: SqlRow) -> Result<RollbackPoint, StoreError> {
    let mut row = row.of("rollback_points");
    let (id, hold) = (RollbackId::from_bits(row.bits()?), HoldId::from_bits(row.bits()?));
    let (content, word, version) = (row.blob()?, row.text()?, row.count()?);
    let before =
        ObjectFingerprint::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a malformed fingerprint"))?;
    let after = row.maybe_blob()?.map(|bytes| ObjectFingerprint::from_bytes(&bytes));
    let after = match after {
        Some(None) => return Err(row.impossible("a malformed fingerprint")),
        Some(print) => print,
        None => None,
    };
    let (captured_at, until) = (row.time()?, row.maybe_time()?);
    let (by, at): (Option<Actor>, _) = (row.maybe_parsed()?, row.maybe_time()?);
    let state = match (word.as_str(), after, until, by, at) {
        ("captured", None, None, None, None) => RollbackState::Captured { at: captured_at, before },
        ("sealed", Some(after), Some(until), None, None) => RollbackState::Sealed { before, after, until },
        ("undone", None, None, Some(by), Some(at)) => RollbackState::Undone { by, at },
        ("expired", None, None, None, Some(at)) => RollbackState::Expired { at },
        ("abandoned", None, None, None, Some(at)) => RollbackState::Abandoned { at },
        _ => return Err(row.impossible("a state with columns of another state")),
    };
    Ok(RollbackPoint { id, hold, content, state, version })
}

impl Store {
    /// The rollback point of a write.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn hold_rollback(&self, hold: HoldId) -> Result<Option<RollbackPoint>, StoreError> {
        self.ask(GetHoldRollback(hold)).await
    }

    /// Records that a write was rolled back.
    ///
    /// # Errors
    /// When the object has changed since, or it is too late.
    pub async fn mark_undone(&self, hold: HoldId, present: ObjectFingerprint, by: Actor) -> Result<(), StoreError> {
        self.submit(MarkRollbackUndone { hold, present, by }).await
    }

    /// Ends rollback points that can no longer be used. Gives them as they were, so that their content can be deleted.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn expire_rollbacks(&self, limit: u32) -> Result<Vec<RollbackPoint>, StoreError> {
        self.submit(ExpireRollbacks { limit }).await
    }
}
