//! Floors: the least work with which an engine keeps the same promise, written without any code of ours.
//!
//! One row for each write, durable before it is acknowledged; no audit, no counters, no keys, no checks.

pub mod postgres;
pub mod sqlite;

use crate::load;

/// One row of a floor: an id and as many bytes as ours would have to store.
#[derive(Debug, Clone)]
pub struct FloorRow {
    /// Ids that sort by age, as ours do.
    pub id: [u8; 16],
    /// Its content.
    pub body: Vec<u8>,
}

/// Makes rows with ascending ids.
#[derive(Debug)]
pub struct FloorRows {
    made: u64,
    length: usize,
}

impl FloorRows {
    /// Rows with this many bytes each.
    pub fn new(length: usize) -> Self {
        Self { made: 0, length }
    }

    /// This many rows for each of this many callers.
    pub fn dealt(&mut self, callers: usize, each: usize) -> Vec<Vec<FloorRow>> {
        load::dealt(callers, (0..callers * each).map(|_| self.next()).collect())
    }

    fn next(&mut self) -> FloorRow {
        self.made += 1;
        let id =
            (u128::from(self.made) << 64 | u128::from(self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_be_bytes();
        FloorRow { id, body: vec![b'x'; self.length] }
    }
}
