//! Proxy reload: puts declarations of security proxies in force when their files change.
//!
//! Promise: files that are still being written are not read; an error in one changes nothing.

use std::sync::Arc;

use notify::{RecursiveMode, Watcher as _};
use sluice_core::Actor;
use sluice_services::policies;
use sluice_services::proxies::reload::{ProxiesReloadSummary, reload};
use tokio::sync::{Notify, watch};

use super::policy::PolicyFilesState;
use crate::Gateway;
use sluice_services::timer::tick;

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let folder = gw.config.proxies.clone();
    let changed = Arc::new(Notify::new());
    let tell = Arc::clone(&changed);
    let heard = move |event: notify::Result<notify::Event>| {
        // Reading the folder is an event too, and would cause the next read, forever.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            tell.notify_one();
        }
    };
    // A folder that does not exist yet, or cannot be watched, is checked every two seconds.
    let _watcher = notify::recommended_watcher(heard).and_then(|mut watcher| {
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    let mut files = PolicyFilesState::read(policies::stamp(&folder));
    while tick(&mut stop, files.pace(), changed.notified()).await {
        if !files.look(policies::stamp(&folder), gw.clock.since_boot()) {
            continue;
        }
        match reload(&gw, Actor::Node(gw.store.node().clone())).await {
            Ok(ProxiesReloadSummary { opened, changed, closed, refused }) => tracing::info!(
                "declarations were read: {} opened, {} changed, {} closed, {} refused",
                opened.len(),
                changed.len(),
                closed.len(),
                refused.len()
            ),
            Err(no) => tracing::error!("the declarations could not be put in force: {}", no.refusal),
        }
    }
}
