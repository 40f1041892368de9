//! The approval gate: how a person's words, from whatever channel, become the one answer to a question.
//!
//! Rooms of its own beside the corridor: [`deciding`] takes every answer, [`amending`] a changed action,
//! [`repeating`] what could not be understood, [`standing`] what outlasts the question. Channels
//! and doors bring the words; nothing an agent holds opens any of it.

pub mod amending;
pub mod deciding;
pub mod repeating;
pub mod replies;
pub mod standing;
