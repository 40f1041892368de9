//! The loops: the background tasks of the gateway.
//!
//! Each has a step that tests call directly; [`run`] is only the timer around them. Promise: recovery comes
//! before release, a loop that fails logs it once and continues, a loop that ends unexpectedly stops the gateway, and
//! all of them end when asked to.

pub mod archive;
pub mod events;
pub mod health_watch;
pub mod housekeeping;
pub mod outbox;
pub mod policy;
pub mod proxies;
pub mod release;
pub mod schedule;
pub mod sync;
pub mod tools;

use std::sync::Arc;

use sluice_core::grace::SHORTEST_REHOLD;
use sluice_core::ids::MessageId;
use sluice_services::CallError;
use sluice_store::AbandonedClaims;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::gateway::{FatalGatewayError, GatewayPhase};
use crate::{Gateway, channels, nodes};

/// Most rows one recovery step takes.
const PAGE: u32 = 500;
/// Most rounds of recovery before the gateway opens: more rounds mean that something does not converge.
const ROUNDS: usize = 10_000;

/// Recovers what was left open, then opens the gateway.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn start(gw: &Gateway, release: &'static str) -> Result<(), CallError> {
    look_through(gw).await?;
    gw.store.record_start(release).await?;
    nodes::report(gw).await?;
    gw.standstill.look(&gw.store).await;
    gw.keyring.refresh(&gw.store).await?;
    gw.egress.refresh().await?;
    sluice_services::proxies::end_interrupted_tasks(gw).await?;
    for _ in 0..ROUNDS {
        let message = MessageId::mint(gw.ids.as_ref());
        if gw.store.recover(AbandonedClaims::Own, PAGE, message).await?.is_empty() {
            break;
        }
    }
    announce_late(gw).await?;
    // Services that renew their credentials must be known before the first credential is used.
    sluice_services::connections::grants::take_up_all(gw).await;
    gw.connections.open().await;
    gw.enter(GatewayPhase::Open);
    nodes::report(gw).await
}

/// Checks every page of the database file. A large file takes long, but only new calls wait for it.
async fn look_through(gw: &Gateway) -> Result<(), CallError> {
    let store = Arc::clone(&gw.store);
    let looked = tokio::task::spawn_blocking(move || store.check_pages()).await;
    looked.map_err(|_| CallError::new(sluice_core::refusal::Code::GatewayInternal))??;
    Ok(())
}

/// The grace rule: writes that came due while no gateway ran are announced again or left to a person, before any
/// leaves.
///
/// # Errors
/// When the database cannot be read or written.
pub(crate) async fn announce_late(gw: &Gateway) -> Result<(), CallError> {
    for _ in 0..ROUNDS {
        let late = gw.store.apply_grace_rule(PAGE, MessageId::mint(gw.ids.as_ref())).await?;
        if late.reheld.is_empty() && late.stale.is_empty() {
            break;
        }
        tracing::warn!(
            "{} late writes are announced again, {} late writes wait for a person",
            late.reheld.len(),
            late.stale.len()
        );
        for hold in late.reheld {
            gw.open_undo_window(hold, SHORTEST_REHOLD);
            gw.notify_hold_changed(hold);
        }
        late.stale.into_iter().for_each(|hold| gw.notify_hold_changed(hold));
    }
    Ok(())
}

/// Runs every loop until told to stop. Writes under way end first, within their grace; the loops that they need end
/// after them.
pub async fn run(gw: Arc<Gateway>, stop: watch::Receiver<bool>) {
    let (mut releasing, mut loops) = (JoinSet::new(), JoinSet::new());
    let (end, ends) = watch::channel(false);
    releasing.spawn(release::run(Arc::clone(&gw), stop));
    loops.spawn(housekeeping::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(archive::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(events::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(tools::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(sync::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(proxies::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(schedule::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(sluice_services::mounts::run(Arc::clone(gw.context()), ends.clone()));
    loops.spawn(crate::recovery::run(Arc::clone(&gw), ends.clone()));
    loops.spawn(crate::recovery::witness::run(Arc::clone(&gw), ends.clone()));
    match channels::configured(&gw.config) {
        Ok(channels) => outbox::spawn(&mut loops, &gw, channels, &ends),
        Err(why) => tracing::error!("the channels to people cannot be set up: {why}"),
    }
    loops.spawn(policy::run(Arc::clone(&gw), ends));
    let fell = |ended: Result<(), tokio::task::JoinError>| {
        if let Err(error) = ended {
            // A gateway that continues without one of them looks healthy and is not: nothing expires, or nothing
            // leaves.
            tracing::error!("a loop ended unexpectedly: {error}");
            gw.give_up(FatalGatewayError::Loop);
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
