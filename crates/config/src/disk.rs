//! Disk limits: what happens before the disk is full.

use super::section::section;
use super::size::{ByteSize, FreeDiskFloor};

section! {
    /// How much of the disk of the data folder must stay free: an amount and a share; falling below either one counts.
    Disk at "disk" {
        /// Below this, new writes are refused.
        low: FreeDiskFloor = FreeDiskFloor { free: ByteSize::from_mb(512), percent: 10 },
        /// Below this, nothing is sent; cancel, deny, freeze and status still work.
        stop: FreeDiskFloor = FreeDiskFloor { free: ByteSize::from_mb(256), percent: 5 },
    }
}
