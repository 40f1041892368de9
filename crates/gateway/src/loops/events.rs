//! Event notification: tells listeners about new audit entries, of this node and of other nodes.

use std::sync::Arc;
use std::time::Duration;

use sluice_services::events::EventCursor;
use sluice_services::timer::tick;
use tokio::sync::watch;

use crate::Gateway;

/// How often entries of other nodes are looked for.
const EVERY: Duration = Duration::from_millis(500);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let mut cursor = EventCursor::present(&gw.store).await.unwrap_or_default();
    while tick(&mut stop, EVERY, gw.signals.events.wait_for_write()).await {
        if let Err(error) = gw.signals.events.tell(&gw.store, &mut cursor).await {
            tracing::warn!(code = error.code(), "the audit log could not be read for event listeners");
        }
    }
}
