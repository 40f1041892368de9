//! The locked-in role of the binary: read one job, lock the door, do it, report, die.
