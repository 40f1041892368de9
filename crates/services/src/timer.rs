//! Ticks of loops: the one place of the gateway that waits for time to pass.
//!
//! Takes a span and what ends the wait early; gives whether to go on. Promise: steps of a loop take the time as a
//! parameter; only their timer is here.

use std::time::Duration;

use tokio::sync::watch;

/// Waits for the next tick, a wake, or the end. Returns false at the end.
pub async fn tick(stop: &mut watch::Receiver<bool>, every: Duration, wake: impl Future<Output = ()>) -> bool {
    if *stop.borrow() {
        return false;
    }
    tokio::select! {
        _ = stop.changed() => !*stop.borrow(),
        () = wake => true,
        () = pause(every) => true,
    }
}

/// Waits for a span.
#[expect(clippy::disallowed_methods, reason = "the timer around the steps; steps take the time as a parameter")]
pub async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}
