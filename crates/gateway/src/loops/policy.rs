//! Policy reload: puts the rules in force when their files change.
//!
//! Watches the policy folder and reacts to a request (SIGHUP, an operator). Promise: either all of the new rules
//! are in force or all of the old; files that are still being written are not read, broken files change nothing,
//! and people are notified once, with the place of the error.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{RecursiveMode, Watcher as _};
use sluice_core::ids::MessageId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Millis};
use sluice_services::timer::tick;
use sluice_services::{CallError, policies};
use sluice_store::{MessageSeverity, OutboxMessage};
use tokio::sync::{MutexGuard, Notify, watch};

use crate::Gateway;

/// How often the folder is checked without an event.
const EVERY: Duration = Duration::from_secs(2);
/// How often the folder is checked while its files change.
const CLOSELY: Duration = Duration::from_millis(100);
/// How long the files must be unchanged before they are read. Half of a file can be valid, and less strict.
const STILL: Millis = Millis::from_millis(300);
/// How much of a refusal an alert repeats, in characters.
const WHY: usize = 600;

/// The files of the folder with their sizes and times.
type PolicyFolderStamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// The state of the files: as read, or changing.
#[derive(Debug)]
pub(super) struct PolicyFilesState {
    read: PolicyFolderStamp,
    /// What they look like now, and since when, in time since boot.
    changing: Option<(PolicyFolderStamp, Millis)>,
}

impl PolicyFilesState {
    /// The state right after the files were read.
    pub(super) const fn read(read: PolicyFolderStamp) -> Self {
        Self { read, changing: None }
    }

    /// Checks the files. Returns true if they differ from what was read, and have been unchanged for a while.
    pub(super) fn look(&mut self, now: PolicyFolderStamp, boot: Millis) -> bool {
        if now == self.read {
            self.changing = None;
            return false;
        }
        match &self.changing {
            Some((stamp, since)) if *stamp == now => {
                let still = boot.as_millis().saturating_sub(since.as_millis()) >= STILL.as_millis();
                if still {
                    *self = Self { read: now, changing: None };
                }
                still
            }
            _ => {
                self.changing = Some((now, boot));
                false
            }
        }
    }

    pub(super) fn pace(&self) -> Duration {
        if self.changing.is_some() { CLOSELY } else { EVERY }
    }
}

/// Runs the loop.
pub async fn run(gw: Arc<Gateway>, mut stop: watch::Receiver<bool>) {
    let changed = Arc::new(Notify::new());
    let tell = Arc::clone(&changed);
    // Reading the folder is an event too. If the loop reacted to it, it would read again at once, forever and without
    // yielding, and other tasks on its thread would starve.
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
        tracing::warn!("the policy folder cannot be watched ({error}); it is checked every two seconds");
    }
    let mut files = PolicyFilesState::read(policies::stamp(&gw.config.policies));
    while tick(&mut stop, files.pace(), changed.notified()).await {
        if !files.look(policies::stamp(&gw.config.policies), gw.clock.since_boot()) {
            continue;
        }
        let node = Actor::Node(gw.store.node().clone());
        match reload(&gw, node).await {
            Ok(Some(version)) => tracing::info!(policy = %version, "new rules are in force: {version}"),
            Ok(None) => {}
            Err(no) => tracing::error!("the new rules were refused, the old ones stay in force: {}", no.refusal),
        }
    }
}

/// Reloads the policy folder. Returns the version if it has changed.
///
/// # Errors
/// When the files are broken: the old rules stay in force, and people are notified.
pub async fn reload(gw: &Gateway, by: Actor) -> Result<Option<String>, CallError> {
    // One reload at a time: a reload that read the files before they changed must not win.
    let turn = gw.signals.reloading.lock().await;
    reload_in_turn(gw, by, &turn).await
}

/// Replaces the files of the folder and puts them in force. Returns the version before, and whether the version has
/// changed.
///
/// # Errors
/// When the rules in force are not those that the sender has seen, or the files are broken: then nothing is written.
pub async fn put_in_force(
    gw: &Gateway,
    files: &serde_json::Map<String, serde_json::Value>,
    if_version: Option<String>,
    by: Actor,
) -> Result<(String, bool), CallError> {
    let turn = gw.signals.reloading.lock().await;
    let before = gw.policy.get().version().to_owned();
    if if_version.is_some_and(|seen| seen != before) {
        return Err(CallError::with_text(
            Code::StoreConflict,
            &format!("the rules have changed: version {before} is in force now"),
        ));
    }
    // Tested without putting them in force, so that broken files never reach the folder.
    policies::try_out(&policies::from_json(files)?, &gw.catalogue.known())?;
    policies::write(&gw.config.policies, files)
        .map_err(|error| CallError::from(Refusal::new(Code::GatewayUnavailable).with_source(error)))?;
    let changed = reload_in_turn(gw, by, &turn).await?.is_some();
    Ok((before, changed))
}

/// Like [`reload`], for a caller that holds the lock already: a caller that writes the files keeps it until they are in
/// force, so that the audit log names that caller and not the watcher that saw the files change.
pub(crate) async fn reload_in_turn(
    gw: &Gateway,
    by: Actor,
    _turn: &MutexGuard<'_, ()>,
) -> Result<Option<String>, CallError> {
    let before = gw.policy.get().version().to_owned();
    let known = gw.catalogue.known();
    let folder = &gw.config.policies;
    // Rules that fail their own tests are refused here, as they are when they are sent. Files that cannot be read are
    // reported by the loading.
    let found = policies::PolicyFiles::folder(folder);
    let tried = if found.faults.is_empty() { policies::try_out(&found.sources, &known) } else { Ok(()) };
    match tried.and_then(|()| policies::load(&gw.policy, folder, &known)) {
        Ok((version, sources)) if version != before => {
            gw.store.record_policy_loaded(version.clone(), sources, by).await?;
            gw.signals.events.notify_written();
            Ok(Some(version))
        }
        Ok(_) => Ok(None),
        Err(no) => {
            let why: String = no.refusal.to_string().chars().take(WHY).collect();
            let body = serde_json::json!({"stays": before, "why": why});
            let id = MessageId::mint(gw.ids.as_ref());
            let alert = OutboxMessage { id, topic: "policy.refused".into(), severity: MessageSeverity::Warning, body };
            gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await?;
            Err(no)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(size: u64) -> PolicyFolderStamp {
        vec![(PathBuf::from("org.yaml"), size, None)]
    }

    #[test]
    fn files_are_read_once_they_have_been_left_alone() {
        let at = Millis::from_millis;
        let mut files = PolicyFilesState { read: stamp(100), changing: None };
        assert!(!files.look(stamp(100), at(0)));
        // Empty, half written, complete: each change starts the wait again.
        assert!(!files.look(stamp(0), at(1_000)));
        assert!(!files.look(stamp(60), at(1_250)));
        assert!(!files.look(stamp(110), at(1_500)));
        assert!(!files.look(stamp(110), at(1_799)));
        assert_eq!(files.pace(), CLOSELY);
        assert!(files.look(stamp(110), at(1_800)));
        assert!(!files.look(stamp(110), at(9_000)), "once");
        assert_eq!(files.pace(), EVERY);
    }

    #[test]
    fn a_change_taken_back_is_none() {
        let mut files = PolicyFilesState { read: stamp(100), changing: None };
        assert!(!files.look(stamp(0), Millis::from_secs(1)));
        assert!(!files.look(stamp(100), Millis::from_secs(2)));
        assert!(!files.look(stamp(0), Millis::from_secs(3)), "the wait begins anew");
    }
}
