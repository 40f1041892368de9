//! Links: each lets one person open one approval request. Also records previews that were withheld from a channel.
//!
//! Takes the hash of an unguessable token; gives whose link it is and to what. Promise: the token itself is never
//! stored; a link names one person and one approval request permanently, and reading it changes nothing.

use sluice_core::audit::AuditFact;
use sluice_core::{ApprovalId, PersonName};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};

const MAKE: &str = "INSERT INTO links (token, approval, person, channel, made_at) VALUES (?1, ?2, ?3, ?4, ?5)";
const FIND: &str = "SELECT approval, person, channel FROM links WHERE token = ?1";

/// A link of one person to one approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalLink {
    /// The approval request.
    pub approval: ApprovalId,
    /// The person it belongs to.
    pub person: PersonName,
    /// The channel it was sent over.
    pub channel: String,
}

struct CreateApprovalLink {
    link: ApprovalLink,
    token: [u8; 32],
}

impl UseCase for CreateApprovalLink {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let ApprovalLink { approval, person, channel } = &self.link;
        let now = unit.now;
        unit.write(MAKE, params![self.token.as_slice(), *approval, person.as_str(), channel.as_str(), now]);
        Ok(())
    }
}

struct FindApprovalLink([u8; 32]);

impl StoreQuery for FindApprovalLink {
    type Out = Option<ApprovalLink>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<ApprovalLink>, StoreError> {
        let Some(row) = tx.rows(FIND, &params![self.0.as_slice()]).await?.into_iter().next() else { return Ok(None) };
        let mut row = row.of("links");
        let (approval, person) = (ApprovalId::from_bits(row.bits()?), row.text()?);
        let person = PersonName::new(person).map_err(|_| row.impossible("an invalid name"))?;
        Ok(Some(ApprovalLink { approval, person, channel: row.text()? }))
    }
}

struct RecordContentWithheld {
    approval: ApprovalId,
    channel: String,
    findings: String,
}

impl UseCase for RecordContentWithheld {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let fact = AuditFact::new("approval.withheld", unit.actor()).with("channel", &self.channel);
        let mut fact = fact.with("findings", &self.findings);
        fact.approval = Some(self.approval);
        fact.code = Some("leak.found".into());
        unit.record(fact);
        Ok(())
    }
}

impl Store {
    /// Stores that a person can open an approval request with a token, by the token's hash.
    ///
    /// # Errors
    /// When that cannot be recorded; the link must not be sent then.
    pub async fn make_link(&self, link: ApprovalLink, token: [u8; 32]) -> Result<(), StoreError> {
        self.submit(CreateApprovalLink { link, token }).await
    }

    /// The link under a token, by the token's hash.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn link_by_token(&self, token: [u8; 32]) -> Result<Option<ApprovalLink>, StoreError> {
        self.ask(FindApprovalLink(token)).await
    }

    /// Records that an approval request is shown over a channel without its content, and why: pattern ids, lengths and
    /// hashes.
    ///
    /// # Errors
    /// When that cannot be recorded; nothing may be sent then.
    pub async fn record_content_withheld(
        &self,
        approval: ApprovalId,
        channel: &str,
        findings: String,
    ) -> Result<(), StoreError> {
        self.submit(RecordContentWithheld { approval, channel: channel.to_owned(), findings }).await
    }
}
