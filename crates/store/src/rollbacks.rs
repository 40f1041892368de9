//! Rollback points as rows: captured before a write, sealed after it, kept as long as they can be used.

use sluice_core::audit::Fact;
use sluice_core::ids::RollbackId;
use sluice_core::rollback::{Fingerprint, RollbackState, Written};
use sluice_core::{Actor, HoldId, Timestamp};

use crate::Store;
use crate::ahead::Ahead;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::release::Before;
use crate::sql::{Row, Tx, Val, params};

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

/// A rollback point, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Its id.
    pub id: RollbackId,
    /// The write it takes back.
    pub hold: HoldId,
    /// What the adapter needs to go back. Emptied when it can no longer be used.
    pub content: Vec<u8>,
    /// Where it stands.
    pub state: RollbackState,
    /// Counts its moves.
    pub version: u64,
}

impl Point {
    pub(crate) fn is_captured(&self) -> bool {
        matches!(self.state, RollbackState::Captured { .. })
    }
}

pub(crate) struct OfHold(pub HoldId);

impl Query for OfHold {
    type Out = Option<Point>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Point>, StoreError> {
        tx.rows(OF_HOLD, &params![self.0]).await?.into_iter().next().map(decode).transpose()
    }
}

pub(crate) async fn of_hold<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId) -> Result<Option<Point>, StoreError> {
    OfHold(hold).run(desk.tx()).await
}

/// The question of [`of_hold`], asked early.
pub(crate) fn of_hold_ahead(hold: HoldId) -> Ahead {
    Ahead {
        sql: OF_HOLD,
        params: params![hold],
        rests_on: vec![("rollback_points", vec![("hold", Val::from(hold))])],
        follows: None,
    }
}

/// A new point. One that was abandoned makes room for it.
pub(crate) fn capture<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId, before: &Before) {
    let now = desk.now;
    let print = before.print.to_bytes();
    desk.write(REPLACE, params![hold]);
    desk.write(CAPTURE, params![before.id, hold, before.content.as_slice(), print.as_slice(), now]);
    record(desk, hold, before.id, "rollback.captured");
}

pub(crate) fn seal<T: Tx>(
    desk: &mut Desk<'_, T>,
    point: Point,
    after: Fingerprint,
    service_until: Option<Timestamp>,
) -> Result<(), StoreError> {
    let written = Written { at: desk.now, after, service_until };
    shift(desk, point, |state| state.seal(written))
}

pub(crate) fn abandon<T: Tx>(desk: &mut Desk<'_, T>, point: Point) -> Result<(), StoreError> {
    let now = desk.now;
    shift(desk, point, |state| state.abandon(now))
}

/// The write has been taken back by another write.
pub(crate) struct Undo {
    pub hold: HoldId,
    pub present: Fingerprint,
    pub by: Actor,
}

impl UseCase for Undo {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let point = of_hold(desk, self.hold).await?.ok_or(StoreError::NotFound { what: "rollback point" })?;
        let (now, by) = (desk.now, self.by.clone());
        shift(desk, point, |state| state.undo(self.present, by, now))
    }
}

/// Forgets what can no longer be undone.
pub(crate) struct ExpireDue {
    pub limit: u32,
}

impl UseCase for ExpireDue {
    type Out = Vec<Point>;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Vec<Point>, StoreError> {
        let now = desk.now;
        let rows = desk.rows(EXPIRED, params![now, self.limit]).await?;
        let points = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        for point in &points {
            shift(desk, point.clone(), |state| state.expire(now))?;
        }
        Ok(points)
    }
}

fn shift<T: Tx>(
    desk: &mut Desk<'_, T>,
    point: Point,
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
    desk.write_one(MOVED, params![point.id, point.version, state.word(), after, until, by, at, content]);
    record(desk, point.hold, point.id, &format!("rollback.{}", state.word()));
    Ok(())
}

fn record<T: Tx>(desk: &mut Desk<'_, T>, hold: HoldId, id: RollbackId, kind: &str) {
    let mut fact = Fact::new(kind, desk.actor()).with("rollback", id);
    fact.hold = Some(hold);
    desk.record(fact);
}

fn decode(row: Row) -> Result<Point, StoreError> {
    let mut row = row.of("rollback_points");
    let (id, hold) = (RollbackId::from_bits(row.bits()?), HoldId::from_bits(row.bits()?));
    let (content, word, version) = (row.blob()?, row.text()?, row.count()?);
    let before = Fingerprint::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a print of the wrong length"))?;
    let after = row.maybe_blob()?.map(|bytes| Fingerprint::from_bytes(&bytes));
    let after = match after {
        Some(None) => return Err(row.impossible("a print of the wrong length")),
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
        _ => return Err(row.impossible("a state with columns it does not have")),
    };
    Ok(Point { id, hold, content, state, version })
}

impl Store {
    /// The rollback point of a write.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn rollback_of(&self, hold: HoldId) -> Result<Option<Point>, StoreError> {
        self.ask(OfHold(hold)).await
    }

    /// Records that a write has been taken back.
    ///
    /// # Errors
    /// When the object has changed since, or it is too late.
    pub async fn undone(&self, hold: HoldId, present: Fingerprint, by: Actor) -> Result<(), StoreError> {
        self.submit(Undo { hold, present, by }).await
    }

    /// Ends rollback points that can no longer be used. Gives them as they were, so that what they kept can go.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn expire_rollbacks(&self, limit: u32) -> Result<Vec<Point>, StoreError> {
        self.submit(ExpireDue { limit }).await
    }
}
