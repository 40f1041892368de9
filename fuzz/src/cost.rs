//! What a piece of work costs, counted the same on every machine: the memory loads it executes.
//!
//! Takes nothing; gives the number so far. The compiler calls one of these for each load of everything that
//! `cargo xtask fuzz` builds (not of the standard library, which comes built: the clock of the processor watches that).
//! Promise: the same input costs the same again.

use std::sync::atomic::{AtomicU64, Ordering};

static LOADS: AtomicU64 = AtomicU64::new(0);

/// How many there were.
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
