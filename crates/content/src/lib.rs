//! Turns raw bytes into clean content or a finding: six stages for what comes in, a leak scan for what goes out.

pub mod leak;
