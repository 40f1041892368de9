//! Which writes of a card a decision covers.
//!
//! Takes a decision and the writes of its question; gives their places on the card. Promise: a yes covers only writes
//! whose digests the person was shown; a card that has changed since is not approved but shown again.

use std::collections::HashSet;

use sluice_core::Digest;
use sluice_core::approval::{self, Answer, Approval, Subject};

use super::{Choice, Decision, Ruling};
use crate::error::StoreError;

impl Decision {
    /// The places on the card that may go.
    pub(crate) fn allowed(&self, approval: &Approval, items: &[approval::Item]) -> Result<Vec<u32>, StoreError> {
        let places = self.chosen(approval, items)?;
        if self.shown.is_empty() {
            return Ok(places);
        }
        let shown: HashSet<&Digest> = self.shown.iter().collect();
        let chosen: HashSet<&u32> = places.iter().collect();
        let is_unseen = |item: &approval::Item| chosen.contains(&item.place) && !shown.contains(&item.digest);
        match (items.iter().any(is_unseen), approval.subject) {
            (false, _) => Ok(places),
            (true, Subject::Batch) => Err(StoreError::Grown { now: approval.items }),
            (true, Subject::Write | Subject::Request) => Err(StoreError::Conflict),
        }
    }

    /// Names what a vote covers: the writes that would go, and the words that would replace a client's.
    pub(crate) fn vote_digest(&self, items: &[approval::Item], places: &[u32]) -> Digest {
        let covered = items.iter().filter(|item| places.contains(&item.place)).map(|item| &item.digest);
        let mut bytes = approval::card_digest(covered).to_bytes().to_vec();
        if let Ruling::Reword(text) = &self.ruling {
            bytes.extend(text.as_bytes());
        }
        Digest::of(&bytes)
    }

    /// The places a ruling names, whatever was shown.
    fn chosen(&self, approval: &Approval, items: &[approval::Item]) -> Result<Vec<u32>, StoreError> {
        let all = || items.iter().map(|item| item.place).collect();
        match (&self.ruling, approval.subject) {
            (Ruling::Deny { .. }, Subject::Write | Subject::Batch | Subject::Request) => Ok(Vec::new()),
            (Ruling::Reword(_), Subject::Request) => Ok(Vec::new()),
            (Ruling::Reword(_), Subject::Write | Subject::Batch) => Err(StoreError::NotOffered),
            (
                Ruling::Allow { answer: Answer::Deny | Answer::Amend, .. } | Ruling::Choose(_),
                Subject::Write | Subject::Request,
            ) => Err(StoreError::NotOffered),
            (Ruling::Allow { .. }, Subject::Request) => Ok(Vec::new()),
            (Ruling::Allow { .. }, Subject::Write) => Ok(all()),
            // A standing yes must not grow out of a batch, and a plain yes does not say to how many.
            (Ruling::Allow { .. }, Subject::Batch) => Err(StoreError::NotOffered),
            (Ruling::Choose(Choice::All { seen }), Subject::Batch) if *seen != approval.items => {
                Err(StoreError::Grown { now: approval.items })
            }
            (Ruling::Choose(Choice::All { .. }), Subject::Batch) => Ok(all()),
            (Ruling::Choose(Choice::First(n)), Subject::Batch) => Ok((0..(*n).min(approval.items)).collect()),
            (Ruling::Choose(Choice::These(chosen)), Subject::Batch) => {
                let places = chosen.iter().map(|id| items.iter().find(|item| item.hold == *id).map(|item| item.place));
                places.collect::<Option<Vec<_>>>().ok_or(StoreError::NotFound { what: "held write on this card" })
            }
        }
    }
}
