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
pub mod schedule;
pub mod sync;
pub mod tools;
pub mod watching;

use std::sync::Arc;
use std::time::Duration;

use sluice_core::grace::SHORTEST_REHOLD;
use sluice_core::ids::MessageId;
use sluice_store::Abandoned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gateway::{Lost, Phase};
use crate::{Gateway, No, channels, nodes};

/// Most rows one recovery step takes.
const PAGE: u32 = 500;
/// Most rounds of recovery before the gateway opens: beyond it something does not converge.
const ROUNDS: usize = 10_000;

/// Looks after what was left open, then opens the gateway.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn start(gw: &Gateway, release: &'static str) -> Result<(), No> {
    look_through(gw).await?;
    gw.store.started(release).await?;
    nodes::report(gw).await?;
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
    nodes::report(gw).await
}

/// Looks at every page of the database file. It takes as long as the file is large, so nobody but new calls waits for it.
async fn look_through(gw: &Gateway) -> Result<(), No> {
    let store = Arc::clone(&gw.store);
    let looked = tokio::task::spawn_blocking(move || store.look_through()).await;
    looked.map_err(|_| No::new(sluice_core::refusal::Code::GatewayInternal))??;
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

/// Runs every loop until told to stop. Writes under way end first, within their grace; what carries them out ends after
/// them.
pub async fn run(gw: Arc<Gateway>, stop: watch::Receiver<bool>) {
    let (mut releasing, mut loops) = (JoinSet::new(), JoinSet::new());
    let (end, ends) = watch::channel(false);
    releasing.spawn(release::run(Arc::clone(&gw), stop));
    loops.spawn(keep::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(events::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(tools::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(sync::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(proxies::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(schedule::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(crate::mounts::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(crate::recovery::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(crate::recovery::witness::run(Arc::clone(&gw), ends.clone()));
    match channels::configured(&gw.config) {
        Ok(channels) => outbox::spawn(&mut loops, &gw, channels, &ends),
        Err(why) => tracing::error!("people cannot be asked over their channels: {why}"),
    }
    loops.spawn(policy::run(Arc::clone(&gw), ends));
    let fell = |ended: Result<(), tokio::task::JoinError>| {
        if let Err(error) = ended {
            // A gateway that goes on without one of them looks well and no longer is: nothing expires, or nothing leaves.
            tracing::error!("a loop ended unexpectedly: {error}");
            gw.give_up(Lost::Loop);
        }
    };
    loop {
        tokio::select! {
            Some(ended) = releasing.join_next() => {
                fell(ended);
                end.send_replace(true);
            }
            Some(ended) = loops.join_next() => fell(ended),
            else => break,
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
