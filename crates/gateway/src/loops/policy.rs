//! Reload: the rules follow their files.
//!
//! Watches the policy folder and takes a nudge (SIGHUP, an operator). Promise: either all of the new rules
//! are in force or all of the old; files that are still being written are not read, broken ones change nothing,
//! and people are told once, with the place.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use notify::{RecursiveMode, Watcher as _};
use sluice_core::ids::MessageId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Actor, Span};
use sluice_store::{Message, Severity};
use tokio::sync::{MutexGuard, Notify, watch};

use super::tick;
use crate::policies;
use crate::{Gateway, No};

/// How often the folder is looked at without being told.
const EVERY: Duration = Duration::from_secs(2);
/// How often while someone is writing.
const CLOSELY: Duration = Duration::from_millis(100);
/// How long the files must have been left alone before they are read. Half of a file can be valid, and looser.
const STILL: Span = Span::from_millis(300);
/// Most of a refusal that an alert repeats.
const WHY: usize = 600;

/// What the folder looked like.
type Stamp = Vec<(PathBuf, u64, Option<SystemTime>)>;

/// The state of the files: as read, or being changed.
#[derive(Debug)]
pub(super) struct Files {
    read: Stamp,
    /// What they look like now, and since when, in time since boot.
    changing: Option<(Stamp, Span)>,
}

impl Files {
    /// As they were read.
    pub(super) const fn read(read: Stamp) -> Self {
        Self { read, changing: None }
    }

    /// Looks at them. True when they are others than were read, and nobody has touched them for a while.
    pub(super) fn look(&mut self, now: Stamp, boot: Span) -> bool {
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
    let mut files = Files::read(policies::stamp(&gw.config.policies));
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

/// Loads the policy folder anew. Gives the version if it is another one than before.
///
/// # Errors
/// When the files are broken: the old rules stay. People are told.
pub async fn reload(gw: &Gateway, by: Actor) -> Result<Option<String>, No> {
    // One after the other: whoever read the files before they changed must not have the last word.
    let turn = gw.reloading.lock().await;
    reload_in_turn(gw, by, &turn).await
}

/// Puts files in force in place of those in the folder. Gives the version before, and whether it is another one now.
///
/// # Errors
/// When other rules are in force than whoever sends them has seen, or the files are broken: then nothing is written.
pub async fn put_in_force(
    gw: &Gateway,
    files: &serde_json::Map<String, serde_json::Value>,
    if_version: Option<String>,
    by: Actor,
) -> Result<(String, bool), No> {
    let turn = gw.reloading.lock().await;
    let before = gw.policy.get().version().to_owned();
    if if_version.is_some_and(|seen| seen != before) {
        return Err(No::saying(Code::StoreConflict, &format!("the rules in force are {before}")));
    }
    // Tried without consequence, so that broken files never reach the folder.
    policies::try_out(&policies::from_json(files)?, &gw.catalogue.known())?;
    policies::write(&gw.config.policies, files)
        .map_err(|error| No::from(Refusal::new(Code::GatewayUnavailable).because(error)))?;
    let changed = reload_in_turn(gw, by, &turn).await?.is_some();
    Ok((before, changed))
}

/// As [`reload`], for someone who has the turn already: who writes the files has it until they are in force, so
/// that the record names them and not the watcher that saw the files change.
pub(crate) async fn reload_in_turn(gw: &Gateway, by: Actor, _turn: &MutexGuard<'_, ()>) -> Result<Option<String>, No> {
    let before = gw.policy.get().version().to_owned();
    let known = gw.catalogue.known();
    let folder = &gw.config.policies;
    // Rules that fail their own tests are refused here as they are where they are sent. What cannot be read is for the
    // loading to say.
    let found = policies::Found::folder(folder);
    let tried = if found.faults.is_empty() { policies::try_out(&found.sources, &known) } else { Ok(()) };
    match tried.and_then(|()| policies::load(gw, folder, &known)) {
        Ok((version, sources)) if version != before => {
            gw.store.policy_loaded(version.clone(), sources, by).await?;
            gw.events.wrote();
            Ok(Some(version))
        }
        Ok(_) => Ok(None),
        Err(no) => {
            let why: String = no.refusal.to_string().chars().take(WHY).collect();
            let body = serde_json::json!({"stays": before, "why": why});
            let id = MessageId::mint(gw.ids.as_ref());
            let alert = Message { id, topic: "policy.refused".into(), severity: Severity::Warning, body };
            gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await?;
            Err(no)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(size: u64) -> Stamp {
        vec![(PathBuf::from("org.yaml"), size, None)]
    }

    #[test]
    fn files_are_read_once_they_have_been_left_alone() {
        let at = Span::from_millis;
        let mut files = Files { read: stamp(100), changing: None };
        assert!(!files.look(stamp(100), at(0)));
        // Emptied, half written, whole: each is another look from the beginning.
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
        let mut files = Files { read: stamp(100), changing: None };
        assert!(!files.look(stamp(0), Span::from_secs(1)));
        assert!(!files.look(stamp(100), Span::from_secs(2)));
        assert!(!files.look(stamp(0), Span::from_secs(3)), "the wait begins anew");
    }
}
