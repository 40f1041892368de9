//! Worker settings: the sandbox of workers, and how much they may use.

use sluice_core::Millis;

use super::section::section;
use super::setting::choice;
use super::size::ByteSize;

section! {
    /// How much workers may use: the sandboxed processes that read what services send.
    Workers at "workers" {
        /// Most workers at once. Further jobs wait for their turn.
        at_once: u32 = 4; within 1..=256,
        /// How long one worker may run, from its start to its end.
        time: Millis = Millis::from_mins(5); within Millis::from_secs(1)..=Millis::from_hours(2),
        /// Processor time of one worker.
        processor: Millis = Millis::from_secs(30); within Millis::from_secs(1)..=Millis::from_hours(1),
        /// Memory of one worker, as address space.
        memory: ByteSize = ByteSize::from_mb(256); within ByteSize::from_mb(128)..=ByteSize::from_mb(65_536),
    }
}

choice! {
    /// What happens if a sandbox layer of the workers is missing.
    Sandbox {
        /// Workers do not run without it.
        Required = "required",
        /// Workers run with the layers that exist, and people are told.
        Degraded = "degraded",
    }
}
