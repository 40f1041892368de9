//! Links: under which a person can open one question, and previews that were kept from a channel.
//!
//! Takes the hash of a token nobody can guess; gives whose link it is and to what. Promise: the token itself is never
//! here; a link names one person and one question for good, and reading it changes nothing.

use sluice_core::audit::Fact;
use sluice_core::{ApprovalId, PersonName};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Tx, params};

const MAKE: &str = "INSERT INTO links (token, approval, person, channel, made_at) VALUES (?1, ?2, ?3, ?4, ?5)";
const FIND: &str = "SELECT approval, person, channel FROM links WHERE token = ?1";

/// A link of one person to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Which question.
    pub approval: ApprovalId,
    /// Whose it is.
    pub person: PersonName,
    /// Over which channel it was sent.
    pub channel: String,
}

struct Make {
    link: Link,
    token: [u8; 32],
}

impl UseCase for Make {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let Link { approval, person, channel } = &self.link;
        let now = desk.now;
        desk.write(MAKE, params![self.token.as_slice(), *approval, person.as_str(), channel.as_str(), now]);
        Ok(())
    }
}

struct ByToken([u8; 32]);

impl Query for ByToken {
    type Out = Option<Link>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<Link>, StoreError> {
        let Some(row) = tx.rows(FIND, &params![self.0.as_slice()]).await?.into_iter().next() else { return Ok(None) };
        let mut row = row.of("links");
        let (approval, person) = (ApprovalId::from_bits(row.bits()?), row.text()?);
        let person = PersonName::new(person).map_err(|_| row.impossible("a name that is none"))?;
        Ok(Some(Link { approval, person, channel: row.text()? }))
    }
}

struct Withheld {
    approval: ApprovalId,
    channel: String,
    findings: String,
}

impl UseCase for Withheld {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let fact = Fact::new("approval.withheld", desk.actor()).with("channel", &self.channel);
        let mut fact = fact.with("findings", &self.findings);
        fact.approval = Some(self.approval);
        fact.code = Some("leak.found".into());
        desk.record(fact);
        Ok(())
    }
}

impl Store {
    /// Writes down that a person can open a question under a token, by the token's hash.
    ///
    /// # Errors
    /// When that cannot be recorded; the link must not be sent then.
    pub async fn make_link(&self, link: Link, token: [u8; 32]) -> Result<(), StoreError> {
        self.submit(Make { link, token }).await
    }

    /// The link under a token, by the token's hash.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn link_with(&self, token: [u8; 32]) -> Result<Option<Link>, StoreError> {
        self.ask(ByToken(token)).await
    }

    /// Records that a question is shown over a channel without what it is about, and why: pattern ids, lengths and
    /// hashes.
    ///
    /// # Errors
    /// When that cannot be recorded; nothing may be sent then.
    pub async fn withheld(&self, approval: ApprovalId, channel: &str, findings: String) -> Result<(), StoreError> {
        self.submit(Withheld { approval, channel: channel.to_owned(), findings }).await
    }
}
