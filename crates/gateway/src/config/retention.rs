//! How long what is over stays in the database.

use sluice_core::Span;

use super::section::section;

const LONGEST: Span = Span::from_hours(3_650 * 24);
/// A write can be taken back for three days, and is asked about for some days more; the same week serves every kind.
const WEEK_OR_MORE: std::ops::RangeInclusive<Span> = Span::from_hours(7 * 24)..=LONGEST;
/// Rules explain writes, so that they stay at least as long as the shortest time of those.
const MONTH_OR_MORE: std::ops::RangeInclusive<Span> = Span::from_hours(30 * 24)..=LONGEST;

section! {
    /// How long what is over stays in the database. What is open, waits for a person or can still be taken back stays however
    /// old it is. The audit record is not shortened. Nothing is forgotten while the clock of the machine is in doubt.
    Retention at "retention" {
        /// Writes that were carried out, cancelled, denied, expired, discarded or blocked, with their contents, results and
        /// the questions about them. Idempotency keys are remembered for 30 days all the same.
        writes: Span = Span::from_hours(90 * 24); within WEEK_OR_MORE,
        /// Sessions that have ended, with what the agent remembered in them. A session that is open or tainted stays.
        sessions: Span = Span::from_hours(90 * 24); within WEEK_OR_MORE,
        /// Tasks of security proxies that have ended, with their crash reports.
        proxy_tasks: Span = Span::from_hours(90 * 24); within WEEK_OR_MORE,
        /// Rules that were replaced, counted from when they were. Rules in force stay.
        policies: Span = Span::from_hours(400 * 24); within MONTH_OR_MORE,
    }
}
