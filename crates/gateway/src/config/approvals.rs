//! Questions put to people.

use sluice_core::Span;

use super::section::section;

section! {
    /// Questions put to people.
    Approvals at "approvals" {
        /// How long a question may be answered. After that the write is denied.
        expiry: Span = Span::from_hours(1); within Span::from_secs(30)..=Span::from_hours(7 * 24),
    }
}
