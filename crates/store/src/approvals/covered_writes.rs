//! Which writes of a card a decision covers.
//!
//! Takes a decision and the writes of its request; gives their places on the card. Promise: an approval covers only
//! writes whose digests the person was shown; a card that has changed since is not approved but shown again.

use std::collections::HashSet;

use sluice_core::Digest;
use sluice_core::approval::{self, Approval, ApprovalAnswer, ApprovalSubject};

use super::{ApprovalRuling, BatchChoice, DecideApproval};
use crate::error::StoreError;

impl DecideApproval {
    /// The places on the card that are approved.
    pub(crate) fn allowed(
        &self,
        approval: &Approval,
        items: &[approval::ApprovalItem],
    ) -> Result<Vec<u32>, StoreError> {
        let places = self.chosen(approval, items)?;
        if self.shown.is_empty() {
            return Ok(places);
        }
        let shown: HashSet<&Digest> = self.shown.iter().collect();
        let chosen: HashSet<&u32> = places.iter().collect();
        let is_unseen = |item: &approval::ApprovalItem| chosen.contains(&item.place) && !shown.contains(&item.digest);
        match (items.iter().any(is_unseen), approval.subject) {
            (false, _) => Ok(places),
            (true, ApprovalSubject::Batch) => Err(StoreError::Grown { now: approval.items }),
            (true, ApprovalSubject::Write | ApprovalSubject::Request) => Err(StoreError::Conflict),
        }
    }

    /// Digest of what a vote covers: the approved writes, and the words that replace a client's.
    pub(crate) fn vote_digest(&self, items: &[approval::ApprovalItem], places: &[u32]) -> Digest {
        let covered = items.iter().filter(|item| places.contains(&item.place)).map(|item| &item.digest);
        let mut bytes = approval::card_digest(covered).to_bytes().to_vec();
        if let ApprovalRuling::Reword(text) = &self.ruling {
            bytes.extend(text.as_bytes());
        }
        Digest::of(&bytes)
    }

    /// The places that a ruling names, without regard to what was shown.
    fn chosen(&self, approval: &Approval, items: &[approval::ApprovalItem]) -> Result<Vec<u32>, StoreError> {
        let all = || items.iter().map(|item| item.place).collect();
        match (&self.ruling, approval.subject) {
            (
                ApprovalRuling::Deny { .. },
                ApprovalSubject::Write | ApprovalSubject::Batch | ApprovalSubject::Request,
            ) => Ok(Vec::new()),
            (ApprovalRuling::Reword(_), ApprovalSubject::Request) => Ok(Vec::new()),
            (ApprovalRuling::Reword(_), ApprovalSubject::Write | ApprovalSubject::Batch) => Err(StoreError::NotOffered),
            (
                ApprovalRuling::Allow { answer: ApprovalAnswer::Deny | ApprovalAnswer::Amend, .. }
                | ApprovalRuling::Choose(_),
                ApprovalSubject::Write | ApprovalSubject::Request,
            ) => Err(StoreError::NotOffered),
            (ApprovalRuling::Allow { .. }, ApprovalSubject::Request) => Ok(Vec::new()),
            (ApprovalRuling::Allow { .. }, ApprovalSubject::Write) => Ok(all()),
            // A standing approval must not come from a batch, and a plain approval does not say how many writes it
            // covers.
            (ApprovalRuling::Allow { .. }, ApprovalSubject::Batch) => Err(StoreError::NotOffered),
            (ApprovalRuling::Choose(BatchChoice::All { seen }), ApprovalSubject::Batch) if *seen != approval.items => {
                Err(StoreError::Grown { now: approval.items })
            }
            (ApprovalRuling::Choose(BatchChoice::All { .. }), ApprovalSubject::Batch) => Ok(all()),
            (ApprovalRuling::Choose(BatchChoice::First(n)), ApprovalSubject::Batch) => {
                Ok((0..(*n).min(approval.items)).collect())
            }
            (ApprovalRuling::Choose(BatchChoice::These(chosen)), ApprovalSubject::Batch) => {
                let places = chosen.iter().map(|id| items.iter().find(|item| item.hold == *id).map(|item| item.place));
                places.collect::<Option<Vec<_>>>().ok_or(StoreError::NotFound { what: "held write on this card" })
            }
        }
    }
}
