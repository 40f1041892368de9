//! The loops: what the gateway does by itself.
//!
//! Each has a step that tests call directly; [`run`] is only the timer around them. Promise: recovery comes
//! before release, a loop that fails says so once and goes on, one that breaks off takes the gateway with it, and all
//! of them end when asked to.

pub mod events;
pub mod keep;
pub mod outbox;
pub mod policy;
pub mod proxies;
pub mod release;
pub mod sync;
pub mod tools;

use std::sync::Arc;
use std::time::Duration;

use sluice_core::grace::SHORTEST_REHOLD;
use sluice_core::ids::MessageId;
use sluice_store::Abandoned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gateway::{Lost, Phase};
use crate::{Gateway, No, channels};

/// Most rows one recovery step takes.
const PAGE: u32 = 500;
/// Most rounds of recovery before the gateway opens: beyond it something does not converge.
const ROUNDS: usize = 10_000;

/// Looks after what was left open, then opens the gateway.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn start(gw: &Gateway, release: &'static str) -> Result<(), No> {
    gw.store.started(release).await?;
    gw.standstill.look(&gw.store).await;
    gw.keyring.refresh(&gw.store).await?;
    gw.egress.refresh().await?;
    crate::proxies::bury_left(gw).await?;
    for _ in 0..ROUNDS {
        let message = MessageId::mint(gw.ids.as_ref());
        if gw.store.recover(Abandoned::Own, PAGE, message).await?.is_empty() {
            break;
        }
    }
    announce_late(gw).await?;
    // Whoever renews their credentials has to be known before the first of them is used.
    crate::oauth::take_up_all(gw).await;
    gw.connections.open().await;
    gw.enter(Phase::Open);
    Ok(())
}

/// The grace rule: what came due while nobody was awake is announced again or left to a person, before anything leaves.
///
/// # Errors
/// When the database cannot be read or written.
pub(crate) async fn announce_late(gw: &Gateway) -> Result<(), No> {
    for _ in 0..ROUNDS {
        let late = gw.store.overdue(PAGE, MessageId::mint(gw.ids.as_ref())).await?;
        if late.reheld.is_empty() && late.stale.is_empty() {
            break;
        }
        tracing::warn!(
            "{} writes are announced again, {} wait for a person: they are late",
            late.reheld.len(),
            late.stale.len()
        );
        for hold in late.reheld {
            gw.opened_window(hold, SHORTEST_REHOLD);
            gw.moved(hold);
        }
        late.stale.into_iter().for_each(|hold| gw.moved(hold));
    }
    Ok(())
}

/// Runs every loop until told to stop; then waits for what is under way.
pub async fn run(gw: Arc<Gateway>, stop: watch::Receiver<bool>) {
    let mut loops = JoinSet::new();
    loops.spawn(release::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(keep::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(events::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(tools::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(sync::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(proxies::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(crate::mounts::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(crate::recovery::run(Arc::clone(&gw), stop.clone()));
    loops.spawn(crate::recovery::witness::run(Arc::clone(&gw), stop.clone()));
    match channels::configured(&gw.config) {
        Ok(channels) => outbox::spawn(&mut loops, &gw, channels, &stop),
        Err(why) => tracing::error!("people cannot be asked over their channels: {why}"),
    }
    loops.spawn(policy::run(Arc::clone(&gw), stop));
    while let Some(ended) = loops.join_next().await {
        if let Err(error) = ended {
            // A gateway that goes on without one of them looks well and no longer is: nothing expires, or nothing leaves.
            tracing::error!("a loop ended unexpectedly: {error}");
            gw.give_up(Lost::Loop);
        }
    }
}

/// Waits for the next tick, a wake, or the end. False at the end.
pub(crate) async fn tick(stop: &mut watch::Receiver<bool>, every: Duration, wake: impl Future<Output = ()>) -> bool {
    if *stop.borrow() {
        return false;
    }
    tokio::select! {
        _ = stop.changed() => !*stop.borrow(),
        () = wake => true,
        // The tick of a loop, the one place where time is waited for.
        () = pause(every) => true,
    }
}

#[expect(clippy::disallowed_methods, reason = "the timer around the steps; steps themselves take the time")]
pub(crate) async fn pause(span: Duration) {
    tokio::time::sleep(span).await;
}
