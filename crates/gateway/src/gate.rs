//! The approval gate: turns a person's words, from any channel, into the one answer to an approval request.
//!
//! These are rooms beside the corridor: [`deciding`] takes every answer, [`amending`] a changed action,
//! [`rendering`] what a person is shown, [`repeating`] a reply that could not be understood, [`standing`] an approval that lasts longer than its request.
//! Channels and doors bring the words; no credential of an agent opens any of it.

pub mod amending;
pub mod deciding;
pub mod rendering;
pub mod repeating;
pub mod replies;
pub mod standing;
