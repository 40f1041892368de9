//! How a worker is locked in, spoken to, timed out and buried.
