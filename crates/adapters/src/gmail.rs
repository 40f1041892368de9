//! Gmail: its API turned into our words and back.
//!
//! Takes jobs for one account, gives pages of raw mail and receipts. Sends go through a draft, which is the
//! fence against doing it twice; delete is the trash; labels are set absolutely. Promise: right for the
//! service as it is: ids and history positions are opaque texts, and a sent mail is found again by its thread
//! and our mark, never by a `Message-ID`, which the service rewrites.

mod compose;
mod draft;
mod labels;
mod manifest;
mod send;
mod sync;
#[cfg(test)]
mod tests;
mod trash;
mod wire;

use sluice_core::CapabilityName;

use crate::adapter::{
    Change, Cursor, Operation, Page, Reversal, RollbackCapable, SyncAdapter, SyncTrouble, Way, WriteExecutor,
};
use crate::manifest::Manifest;

/// The adapter for one account.
#[derive(Debug)]
pub struct Gmail {
    manifest: Manifest,
    send: send::Send,
    draft: draft::Drafting,
    trash: trash::Trash,
    labels: labels::Labelling,
}

impl Gmail {
    /// For the account with this address.
    ///
    /// # Errors
    /// When the built-in catalogue cannot be read, which no build whose tests passed has.
    pub fn new(address: &str) -> Result<Self, sluice_core::capability::CatalogueError> {
        Ok(Self {
            manifest: manifest::read()?,
            send: send::Send { me: address.to_owned() },
            draft: draft::Drafting { me: address.to_owned() },
            trash: trash::Trash,
            labels: labels::Labelling,
        })
    }
}

impl SyncAdapter for Gmail {
    fn changes(&self, net: Way<'_>, since: Option<&Cursor>) -> Result<Page, SyncTrouble> {
        sync::changes(net, since)
    }

    fn fetch(&self, net: Way<'_>, ids: &[String]) -> Result<Vec<Change>, SyncTrouble> {
        sync::again(net, ids)
    }

    fn account(&self, net: Way<'_>) -> Result<Option<String>, SyncTrouble> {
        sync::account(net)
    }
}

impl WriteExecutor for Gmail {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn operation(&self, capability: &CapabilityName) -> Option<Operation<'_>> {
        match capability.as_str() {
            "email.send" | "email.reply" | "email.forward" => Some(Operation::ConsumeOnce(&self.send)),
            "email.draft" => Some(Operation::Findable(&self.draft)),
            "email.delete" | "email.bulk_delete" => Some(Operation::Absolute(&self.trash)),
            "email.label" | "email.move" => Some(Operation::Absolute(&self.labels)),
            _ => None,
        }
    }
}

impl RollbackCapable for Gmail {
    fn reversal(&self, capability: &CapabilityName) -> Option<&dyn Reversal> {
        match capability.as_str() {
            "email.draft" => Some(&self.draft),
            "email.delete" | "email.bulk_delete" => Some(&self.trash),
            "email.label" | "email.move" => Some(&self.labels),
            // A mail that was sent cannot be unsent.
            _ => None,
        }
    }
}
