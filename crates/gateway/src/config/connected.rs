//! Connected services.

use sluice_core::Span;

use super::section::section;

section! {
    /// Connected services.
    Connected at "services" {
        /// How often the copy of a connected service is brought up to date.
        sync_every: Span = Span::from_mins(2); within Span::from_secs(10)..=Span::from_hours(24),
    }
}
