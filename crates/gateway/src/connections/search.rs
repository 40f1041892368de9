//! Looking into a copy, for people.
//!
//! Takes words and filters, gives messages. Promise: the service is not asked; what is withheld from agents is shown.

use sluice_core::ServiceName;
use sluice_core::mail::query::Query;
use sluice_core::refusal::Code;
use sluice_store::replica::{Hits, Order, Reader, Search};

use super::Connections;
use crate::No;

impl Connections {
    /// The messages of a copy that fit, the best first; without words, the newest.
    ///
    /// # Errors
    /// When there is no such connection or it has no copy.
    pub async fn search(&self, name: &ServiceName, query: Query, limit: usize) -> Result<Hits, No> {
        let line = self.line(name).await?;
        line.has_a_copy()?;
        let copy = line.copy().ok_or_else(|| line.no_copy())?;
        let order = if query.terms.is_empty() { Order::Newest } else { Order::Ranked };
        let looked = tokio::task::spawn_blocking(move || {
            copy.search(&Search { query: &query, order, limit, offset: 0, reader: Reader::Person })
        });
        Ok(looked.await.map_err(|_| No::new(Code::GatewayInternal))??)
    }
}
