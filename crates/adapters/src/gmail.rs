//! Gmail: translates between its API and our words.
//!
//! Takes jobs for one account, gives pages of raw mail and receipts. Sends go through a draft, which prevents a second
//! send; delete moves to the trash; labels are set absolutely. Promise: it handles the service as it is: ids and
//! history positions are opaque texts, and a sent mail is found again by its thread and our mark, never by a
//! `Message-ID`, which the service rewrites.

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
    NetAccess, RollbackCapable, SyncAdapter, SyncChange, SyncCursor, SyncError, SyncPage, WriteExecutor,
    WriteOperation, WriteReversal,
};
use crate::manifest::Manifest;

/// The adapter for one account.
#[derive(Debug)]
pub struct GmailAdapter {
    manifest: Manifest,
    send: send::SendMail,
    draft: draft::DraftMail,
    trash: trash::TrashMail,
    labels: labels::LabelMail,
}

impl GmailAdapter {
    /// Creates the adapter for the account with this address.
    ///
    /// # Errors
    /// When the built-in catalogue cannot be read, which cannot happen in a build whose tests pass.
    pub fn new(address: &str) -> Result<Self, sluice_core::capability::CatalogueError> {
        Ok(Self {
            manifest: manifest::read()?,
            send: send::SendMail { me: address.to_owned() },
            draft: draft::DraftMail { me: address.to_owned() },
            trash: trash::TrashMail,
            labels: labels::LabelMail,
        })
    }
}

impl SyncAdapter for GmailAdapter {
    fn changes(&self, net: NetAccess<'_>, since: Option<&SyncCursor>) -> Result<SyncPage, SyncError> {
        sync::changes(net, since)
    }

    fn fetch(&self, net: NetAccess<'_>, ids: &[String]) -> Result<Vec<SyncChange>, SyncError> {
        sync::refetch_messages(net, ids)
    }

    fn account(&self, net: NetAccess<'_>) -> Result<Option<String>, SyncError> {
        sync::account(net)
    }
}

impl WriteExecutor for GmailAdapter {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn operation(&self, capability: &CapabilityName) -> Option<WriteOperation<'_>> {
        match capability.as_str() {
            "email.send" | "email.reply" | "email.forward" => Some(WriteOperation::ConsumeOnce(&self.send)),
            "email.draft" => Some(WriteOperation::Findable(&self.draft)),
            "email.delete" | "email.bulk_delete" => Some(WriteOperation::Absolute(&self.trash)),
            "email.label" | "email.move" => Some(WriteOperation::Absolute(&self.labels)),
            _ => None,
        }
    }
}

impl RollbackCapable for GmailAdapter {
    fn reversal(&self, capability: &CapabilityName) -> Option<&dyn WriteReversal> {
        match capability.as_str() {
            "email.draft" => Some(&self.draft),
            "email.delete" | "email.bulk_delete" => Some(&self.trash),
            "email.label" | "email.move" => Some(&self.labels),
            // A mail that was sent cannot be unsent.
            _ => None,
        }
    }
}
