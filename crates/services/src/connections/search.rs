//! Search in a replica, for people.
//!
//! Takes words and filters, gives messages. Promise: no request goes to the service; messages that are withheld from
//! agents are shown.

use sluice_core::ServiceName;
use sluice_core::mail::query::MailSearchQuery;
use sluice_core::refusal::Code;
use sluice_store::replica::{ReplicaReader, ReplicaSearch, ReplicaSearchHits, ReplicaSearchOrder};

use super::ServiceConnections;
use crate::CallError;

impl ServiceConnections {
    /// The messages of a replica that match, best first; without words, newest first.
    ///
    /// # Errors
    /// When there is no such connection or it has no replica.
    pub async fn search(
        &self,
        name: &ServiceName,
        query: MailSearchQuery,
        limit: usize,
    ) -> Result<ReplicaSearchHits, CallError> {
        let line = self.find_or_open(name).await?;
        line.require_replica()?;
        let copy = line.copy().ok_or_else(|| line.no_copy())?;
        let order = if query.terms.is_empty() { ReplicaSearchOrder::Newest } else { ReplicaSearchOrder::Ranked };
        let looked = tokio::task::spawn_blocking(move || {
            copy.search(&ReplicaSearch { query: &query, order, limit, offset: 0, reader: ReplicaReader::Person })
        });
        Ok(looked.await.map_err(|_| CallError::new(Code::GatewayInternal))??)
    }
}
