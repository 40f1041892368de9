//! What happens before the disk is full.

use super::section::section;
use super::size::{Floor, Size};

section! {
    /// How much of the disk of the data folder must stay free: an amount and a share, whichever is undercut first.
    Disk at "disk" {
        /// Below this no new write is taken.
        low: Floor = Floor { free: Size::from_mb(512), percent: 10 },
        /// Below this nothing is sent any more; cancel, deny, freeze and status still work.
        stop: Floor = Floor { free: Size::from_mb(256), percent: 5 },
    }
}
