//! Repeated calls: a call with an idempotency key that was used before, and a write identical to a recent one.
//!
//! Takes an admission; gives the earlier operation that it repeats, if there is one. Promise: while a key is
//! remembered, it stands for one action; a call that uses it for another action is refused. A write without a key of
//! the agent's own that is identical to a recent one is refused as a possible duplicate, unless the agent says that it
//! repeats it.

use sluice_core::{CallId, Digest, HoldId, Millis, Tier, UtcMillis};

use super::{Admission, AdmissionOutcome};
use crate::error::StoreError;
use crate::prefetch::PrefetchQuery;
use crate::recent_writes::DUPLICATE_SPAN;
use crate::sql::{SqlRow, SqlValue, StoreTx, params};
use crate::unit_of_work::UnitOfWork;

/// How long an idempotency key is remembered.
const KEY_LIFE: Millis = Millis::from_hours(30 * 24);

const BY_KEY: &str = "SELECT digest, call, hold, expires_at FROM idempotency WHERE agent = ?1 AND name = ?2 /*lock*/";
const REMEMBER: &str = "INSERT INTO idempotency (agent, name, digest, call, hold, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (agent, name) DO UPDATE SET digest = excluded.digest, \
     call = excluded.call, hold = excluded.hold, expires_at = excluded.expires_at";
macro_rules! twin {
    ($which:literal) => {
        concat!(
            "SELECT id FROM holds WHERE ",
            $which,
            "digest = ?1 AND admitted_at > ?2 \
             AND state NOT IN ('cancelled', 'denied', 'expired', 'discarded', 'blocked') ORDER BY admitted_at LIMIT 1"
        )
    };
}
const TWIN: &str = twin!("");
const IS_TWIN: &str = twin!("id = ?3 AND ");

impl Admission {
    /// The operation that this call repeats, if there is one.
    pub(super) async fn repeated<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
    ) -> Result<Option<AdmissionOutcome>, StoreError> {
        if let Some(key) = &self.idempotency_key {
            if let Some(again) = self.under(unit, key).await? {
                return Ok(Some(again));
            }
            if !self.named {
                return Ok(None);
            }
        }
        if self.allow_duplicate || self.tier == Tier::Blocked {
            return Ok(None);
        }
        match self.twin(unit).await? {
            Some(row) => {
                let first = HoldId::from_bits(row.of("holds").bits()?);
                Err(StoreError::PossibleDuplicate { first })
            }
            None => Ok(None),
        }
    }

    /// The earlier call that was made with this key.
    async fn under<T: StoreTx>(
        &self,
        unit: &mut UnitOfWork<'_, T>,
        key: &str,
    ) -> Result<Option<AdmissionOutcome>, StoreError> {
        let Some(row) = unit.row(BY_KEY, params![self.action.agent(), key]).await? else { return Ok(None) };
        let mut row = row.of("idempotency");
        let digest = Digest::from_bytes(&row.blob()?).ok_or_else(|| row.impossible("a digest of unknown format"))?;
        let (call, hold, expires_at) = (row.bits()?, row.bits()?, row.time()?);
        if unit.now >= expires_at {
            return Ok(None);
        }
        if digest != self.action.asked_digest() {
            return Err(StoreError::KeyReuse);
        }
        Ok(Some(AdmissionOutcome::Again { call: CallId::from_bits(call), hold: HoldId::from_bits(hold) }))
    }

    /// An identical write of the last minutes that still counts.
    async fn twin<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<Option<SqlRow>, StoreError> {
        let (digest, since) = (self.action.call_digest(), unit.now - DUPLICATE_SPAN);
        let Some(alike) = unit.tx().recent_like(digest) else {
            return unit.row(TWIN, params![digest, since]).await;
        };
        for hold in alike {
            if let Some(twin) = unit.row(IS_TWIN, params![digest, since, hold]).await? {
                return Ok(Some(twin));
            }
        }
        Ok(None)
    }

    /// The query of [`Self::repeated`], made early.
    pub(super) fn repeated_ahead(&self, now: UtcMillis) -> Option<PrefetchQuery> {
        if let Some(key) = &self.idempotency_key {
            let params = params![self.action.agent(), key.as_str()];
            let values = ["agent", "name"].into_iter().zip(params.iter().cloned()).collect();
            return Some(PrefetchQuery { sql: BY_KEY, params, rests_on: vec![("idempotency", values)], follows: None });
        }
        let (digest, since) = (self.action.call_digest(), now - DUPLICATE_SPAN);
        let rests_on = vec![("holds", vec![("digest", SqlValue::from(digest))])];
        (!self.allow_duplicate && self.tier != Tier::Blocked).then(|| PrefetchQuery {
            sql: TWIN,
            params: params![digest, since],
            rests_on,
            follows: None,
        })
    }

    /// The row for [`REMEMBER`], without the expiry.
    pub(super) fn key_row(&self) -> Option<Vec<SqlValue>> {
        let key = self.idempotency_key.as_deref()?;
        Some(params![self.action.agent(), key, self.action.asked_digest(), self.call, self.hold])
    }
}

/// Stores an idempotency key with the operation it stands for.
pub(super) fn remember<T: StoreTx>(unit: &mut UnitOfWork<'_, T>, mut row: Vec<SqlValue>) {
    row.push((unit.now + KEY_LIFE).into());
    unit.write(REMEMBER, row);
}
