//! Tool changes: notices when what agents can do has changed, so that listeners can list their tools again.

use std::sync::Arc;
use std::time::Duration;

use sluice_services::timer::tick;
use tokio::sync::watch;

use crate::Gateway;

/// How often the loop checks.
const EVERY: Duration = Duration::from_millis(500);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    while tick(&mut stop, EVERY, std::future::pending()).await {
        step(&gw).await;
    }
    gw.changes.end();
}

/// Checks once.
pub async fn step(gw: &Gateway) {
    // A freeze by another node changes what depends on the snapshot here.
    gw.standstill.look(&gw.store).await;
    if let Err(error) = gw.changes.look(gw).await {
        tracing::warn!(code = error.code(), "changes of what agents can do could not be checked");
    }
}
