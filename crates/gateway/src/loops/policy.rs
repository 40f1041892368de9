//! Reload: the rules follow their files.
//!
//! Watches the policy folder and takes a nudge (SIGHUP, an operator). Promise: either all of the new rules
//! are in force or all of the old; broken files change nothing, and people are told once.

use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use sluice_core::Actor;
use sluice_core::ids::MessageId;
use sluice_store::{Message, Severity};
use tokio::sync::{MutexGuard, Notify, watch};

use super::tick;
use crate::policies;
use crate::{Gateway, No};

/// How often the folder is looked at without being told.
const EVERY: Duration = Duration::from_secs(2);

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let changed = Arc::new(Notify::new());
    let tell = Arc::clone(&changed);
    // Looking at the folder is an event too. Told of it, the loop would look again at once and for ever, never
    // giving way, and whatever woke on its thread would starve behind it.
    let heard = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        tell.notify_one();
    };
    let watcher = notify::recommended_watcher(heard).and_then(|mut watcher| {
        watcher.watch(&gw.config.policies, RecursiveMode::Recursive)?;
        Ok(watcher)
    });
    if let Err(error) = &watcher {
        tracing::warn!("the policy folder cannot be watched ({error}); it is looked at every two seconds");
    }
    let mut seen = policies::stamp(&gw.config.policies);
    while tick(&mut stop, EVERY, changed.notified()).await {
        let now = policies::stamp(&gw.config.policies);
        if now == seen {
            continue;
        }
        seen = now;
        let node = Actor::Node(gw.store.node().clone());
        match reload(&gw, node).await {
            Ok(Some(version)) => tracing::info!(policy = %version, "new rules are in force: {version}"),
            Ok(None) => {}
            Err(no) => tracing::error!("the new rules were refused, the old ones stay in force: {}", no.refusal),
        }
    }
}

/// Loads the policy folder anew. Gives the version if it is another one than before.
///
/// # Errors
/// When the files are broken: the old rules stay. People are told.
pub async fn reload(gw: &Gateway, by: Actor) -> Result<Option<String>, No> {
    // One after the other: whoever read the files before they changed must not have the last word.
    let turn = gw.reloading.lock().await;
    reload_in_turn(gw, by, &turn).await
}

/// As [`reload`], for someone who has the turn already: who writes the files has it until they are in force, so
/// that the record names them and not the watcher that saw the files change.
pub(crate) async fn reload_in_turn(gw: &Gateway, by: Actor, _turn: &MutexGuard<'_, ()>) -> Result<Option<String>, No> {
    let before = gw.policy.get().version().to_owned();
    match policies::load(gw, &gw.config.policies, &gw.catalogue.known()) {
        Ok((version, sources)) if version != before => {
            gw.store.policy_loaded(version.clone(), sources, by).await?;
            gw.events.wrote();
            Ok(Some(version))
        }
        Ok(_) => Ok(None),
        Err(no) => {
            let body = serde_json::json!({"stays": before});
            let id = MessageId::mint(gw.ids.as_ref());
            let alert = Message { id, topic: "policy.refused".into(), severity: Severity::Warning, body };
            gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await?;
            Err(no)
        }
    }
}
