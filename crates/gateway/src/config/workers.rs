//! How workers are locked in, and how much they may use.

use sluice_core::Span;

use super::section::section;
use super::setting::choice;
use super::size::Size;

section! {
    /// How much workers may use: the locked-in processes that read what services send.
    Workers at "workers" {
        /// Workers at once. More wait for their turn.
        at_once: u32 = 4; within 1..=256,
        /// How long one may take, from its start to its end.
        time: Span = Span::from_mins(5); within Span::from_secs(1)..=Span::from_hours(2),
        /// Processor time of one.
        processor: Span = Span::from_secs(30); within Span::from_secs(1)..=Span::from_hours(1),
        /// Memory of one, as address space.
        memory: Size = Size::from_mb(256); within Size::from_mb(128)..=Size::from_mb(65_536),
    }
}

choice! {
    /// What happens when a layer that locks workers in is missing.
    Sandbox {
        /// Nothing runs without it.
        Required = "required",
        /// Workers run with what there is, and everyone is told.
        Degraded = "degraded",
    }
}
