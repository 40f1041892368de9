//! Event notification: tells listeners about new audit entries, of this node and of other nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::tick;
use crate::Gateway;
use crate::events::EventCursor;

/// How often entries of other nodes are looked for.
const EVERY: Duration = Duration::from_millis(500);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut cursor = EventCursor::present(&gw.store).await.unwrap_or_default();
    while tick(&mut stop, EVERY, gw.events.wait_for_write()).await {
        if let Err(error) = gw.events.tell(&gw.store, &mut cursor).await {
            tracing::warn!(code = error.code(), "the audit log could not be read for event listeners");
        }
    }
}
