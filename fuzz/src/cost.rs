//! The cost of a piece of work, counted the same on every machine: the memory loads that it executes.
//!
//! Takes nothing; gives the number so far. The compiler inserts a call here for each load of everything that `cargo
//! xtask fuzz` builds (not the standard library, which is prebuilt: processor time covers it). Promise: the same input
//! has the same cost again.

use std::sync::atomic::{AtomicU64, Ordering};

static LOADS: AtomicU64 = AtomicU64::new(0);

/// The number of loads so far.
pub fn loads() -> u64 {
    LOADS.load(Ordering::Relaxed)
}

macro_rules! hooks {
    ($($name:ident),*) => {$(
        #[no_mangle]
        extern "C" fn $name(_: usize) {
            LOADS.fetch_add(1, Ordering::Relaxed);
        }
    )*};
}

hooks!(
    __sanitizer_cov_load1,
    __sanitizer_cov_load2,
    __sanitizer_cov_load4,
    __sanitizer_cov_load8,
    __sanitizer_cov_load16
);
