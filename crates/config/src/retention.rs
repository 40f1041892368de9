//! Retention settings: how long data that is over stays in the database.

use sluice_core::Millis;

use super::section::section;

const LONGEST: Millis = Millis::from_hours(3_650 * 24);
/// A write can be undone for three days, and is asked about for some days more; the same week is the minimum for every
/// kind.
const WEEK_OR_MORE: std::ops::RangeInclusive<Millis> = Millis::from_hours(7 * 24)..=LONGEST;
/// Rules explain writes, so they stay at least as long as writes.
const MONTH_OR_MORE: std::ops::RangeInclusive<Millis> = Millis::from_hours(30 * 24)..=LONGEST;

section! {
    /// How long data that is over stays in the database. Data that is open, waits for a person or can still be undone
    /// stays however old it is. Nothing is deleted while the clock of the machine is uncertain.
    Retention at "retention" {
        /// Writes that were carried out, cancelled, denied, expired, discarded or blocked, with their contents, results and
        /// approvals. Idempotency keys are always kept for 30 days.
        writes: Millis = Millis::from_hours(90 * 24); within WEEK_OR_MORE,
        /// Sessions that have ended, with the state that the agent stored in them. A session that is open or tainted
        /// stays.
        sessions: Millis = Millis::from_hours(90 * 24); within WEEK_OR_MORE,
        /// Tasks of security proxies that have ended, with their crash reports.
        proxy_tasks: Millis = Millis::from_hours(90 * 24); within WEEK_OR_MORE,
        /// Rules that were replaced, counted from their replacement. Rules in force stay.
        policies: Millis = Millis::from_hours(400 * 24); within MONTH_OR_MORE,
        /// Entries of the audit log. Older ones are moved to signed, compressed segments in `archive` in the data folder, 4,096 or
        /// more at a time, and verified there before they leave the database.
        audit: Millis = Millis::from_hours(400 * 24); within WEEK_OR_MORE,
    }
}
