//! The flow of writes: how many were made in each hour, and what became of them.
//!
//! Takes a time; gives counts by hour and state of the writes admitted since. Reads no content.

use sluice_core::UtcMillis;

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::StoreQuery;

/// The ids of writes begin with the time they were made, so this reads one range of the primary key.
const SINCE: &str = "SELECT admitted_at / 3600000, state, COUNT(*) FROM holds WHERE id >= ?1 AND admitted_at >= ?2 \
     GROUP BY 1, 2 ORDER BY 1, 2";

/// How many writes of one hour are in one state now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HourlyWriteCount {
    /// The hour, counted from 1970.
    pub hour: i64,
    /// The state of the writes, by name.
    pub state: String,
    /// How many there are.
    pub count: u64,
}

struct CountWritesByHour(UtcMillis);

impl StoreQuery for CountWritesByHour {
    type Out = Vec<HourlyWriteCount>;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Out, StoreError> {
        let from = u128::try_from(self.0.as_millis()).unwrap_or(0) << 80;
        let rows = tx.rows(SINCE, &params![from, self.0]).await?;
        rows.into_iter()
            .map(|row| {
                let mut row = row.of("holds");
                Ok(HourlyWriteCount { hour: row.int()?, state: row.text()?, count: row.count()? })
            })
            .collect()
    }
}

impl Store {
    /// The writes admitted since a time, counted by hour and present state.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn write_flow(&self, since: UtcMillis) -> Result<Vec<HourlyWriteCount>, StoreError> {
        self.ask(CountWritesByHour(since)).await
    }
}
