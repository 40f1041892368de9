//! Checks that a server keeps the work it acknowledges.
//!
//! Takes a connection; gives an error where a setting allows acknowledged work to be lost. Promise: no such server is
//! used, neither at the start nor after a reconnect.

use super::{PgTx, fault};
use crate::error::StoreError;

impl PgTx {
    /// Refuses a server that may lose what it has acknowledged.
    pub(super) async fn demand_durability(&self) -> Result<(), StoreError> {
        for (setting, question) in [
            ("fsync", "SHOW fsync"),
            ("full_page_writes", "SHOW full_page_writes"),
            ("synchronous_commit", "SHOW synchronous_commit"),
        ] {
            let row = self.client.query_one(question, &[]).await.map_err(fault)?;
            judge(setting, row.try_get(0).map_err(fault)?)?;
        }
        Ok(())
    }
}

/// Whether a setting lets the server keep the work it acknowledges. For `synchronous_commit`, the server's default does
/// not matter, because every session of ours sets it; the value that is read back does.
fn judge(setting: &'static str, found: String) -> Result<(), StoreError> {
    match (setting, found.as_str()) {
        ("fsync" | "full_page_writes", "on") | ("synchronous_commit", "on" | "remote_apply") => Ok(()),
        _ => Err(StoreError::DurabilityOff { setting, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_forget_what_it_acknowledged_is_refused() {
        let verdict = |setting, found: &str| judge(setting, found.to_owned()).map_err(|error| error.code());
        for good in ["on", "remote_apply"] {
            assert_eq!(verdict("synchronous_commit", good), Ok(()));
        }
        for weak in ["off", "local", "remote_write", ""] {
            assert_eq!(verdict("synchronous_commit", weak), Err("store.durability_off"));
        }
        for setting in ["fsync", "full_page_writes"] {
            assert_eq!(verdict(setting, "on"), Ok(()));
            assert_eq!(verdict(setting, "off"), Err("store.durability_off"));
            assert_eq!(verdict(setting, "remote_apply"), Err("store.durability_off"));
        }
    }
}
