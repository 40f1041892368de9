//! Tells listeners what was written, by this node and others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::tick;
use crate::Gateway;
use crate::events::Cursor;

/// How often other nodes' entries are looked for.
const EVERY: Duration = Duration::from_millis(500);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut cursor = Cursor::present(&gw.store).await.unwrap_or_default();
    while tick(&mut stop, EVERY, gw.events.written()).await {
        if let Err(error) = gw.events.tell(&gw.store, &mut cursor).await {
            tracing::warn!(code = error.code(), "the record could not be read for those who listen");
        }
    }
}
