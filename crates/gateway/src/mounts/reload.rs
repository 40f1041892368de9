//! Mounts follow the configuration while the gateway runs.
//!
//! Takes a nudge (SIGHUP, an operator); reads the file again and gives what changed. Promise: a file that cannot be
//! used changes nothing and people are told, with the place; a server that is set up as before is not touched; one
//! that is gone answers nothing, and what was held for it is cancelled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::ids::MessageId;
use sluice_core::policy::Fault;
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId};
use sluice_store::{Message, MountsChange, Severity};
use tokio::task::JoinSet;

use super::{MountService, keep, service_name};
use crate::config::{Config, Mount};
use crate::{Gateway, No};

/// How long calls that are under way may take to end. What was not answered by then is in doubt.
const GRACE: Duration = Duration::from_secs(10);
/// Most of a refusal that an alert repeats.
const WHY: usize = 600;
/// Where the gateway's own files lie. Mounts are held against these, so they must be those in force.
const OWN_PLACES: [&str; 5] = ["data", "policies", "database.path", "database.url_file", "tls.key"];

/// What taking up the configuration did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reloaded {
    /// Mounts that were not there before.
    pub added: Vec<String>,
    /// Mounts that are set up otherwise now.
    pub changed: Vec<String>,
    /// Mounts that are gone.
    pub removed: Vec<String>,
    /// Held writes that were cancelled with them.
    pub cancelled: Vec<HoldId>,
    /// Keys beside the mounts that wait for the next start.
    pub after_restart: Vec<String>,
}

impl Reloaded {
    /// Whether any mount is another.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// What has to be done to get from the mounts there are to those that are wanted.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    added: Vec<Mount>,
    changed: Vec<Mount>,
    removed: Vec<String>,
}

impl Plan {
    fn between(now: &BTreeMap<&str, &Mount>, wanted: &[Mount]) -> Self {
        let fresh = |mount: &&Mount| !now.contains_key(mount.name.as_str());
        let another = |mount: &&Mount| now.get(mount.name.as_str()).is_some_and(|before| *before != *mount);
        let gone = |name: &&&str| !wanted.iter().any(|mount| mount.name == ***name);
        Self {
            added: wanted.iter().filter(fresh).cloned().collect(),
            changed: wanted.iter().filter(another).cloned().collect(),
            removed: now.keys().filter(gone).map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// Takes up the mounts of the configuration as it is now.
///
/// # Errors
/// When the file cannot be used: the mounts stay as they are. People are told.
pub async fn reload(gw: &Gateway, by: Actor) -> Result<Reloaded, No> {
    let turn = gw.mounts.turn.lock().await;
    let wanted = match read(gw) {
        Ok(wanted) => wanted,
        Err(why) => return Err(refuse(gw, why).await?),
    };
    let before = gw.mounts.all();
    let now = before.iter().map(|service| (service.mount().name.as_str(), service.mount())).collect();
    let Plan { added, changed, removed } = Plan::between(&now, &wanted.mounts.0);
    let names = |mounts: &[Mount]| mounts.iter().map(|mount| mount.name.clone()).collect::<Vec<_>>();
    let mut done = Reloaded {
        added: names(&added),
        changed: names(&changed),
        removed,
        cancelled: Vec::new(),
        after_restart: others(&gw.config, &wanted),
    };
    if !done.is_nothing() {
        let (added, changed, removed) = (done.added.clone(), done.changed.clone(), done.removed.clone());
        gw.store.mounts_changed(MountsChange { added, changed, removed }, by.clone()).await?;
    }
    for name in &done.removed {
        done.cancelled.extend(cancel_all(gw, name, &by).await?);
        if let Some(service) = service_name(name) {
            gw.retire(&service).await;
        }
    }
    end(before, |name| done.removed.iter().chain(&done.changed).any(|other| other == name)).await;
    for name in &done.removed {
        // What was on its way in while the first were cancelled.
        done.cancelled.extend(cancel_all(gw, name, &by).await?);
        gw.mounts.take(name, &gw.egress);
    }
    for mount in added.into_iter().chain(changed) {
        let service = gw.mounts.put(mount, &gw.egress);
        // In its place before anybody keeps it, so that a held write finds a server that starts, not none.
        keep::stand(gw, &service).await;
    }
    gw.mounts.came.notify_one();
    gw.events.wrote();
    drop(turn);
    Ok(done)
}

/// Ends these servers, all at once.
async fn end(services: Vec<Arc<MountService>>, which: impl Fn(&str) -> bool) {
    let mut ends = JoinSet::new();
    for service in services.into_iter().filter(|service| which(&service.mount().name)) {
        ends.spawn(async move { service.end(GRACE).await });
    }
    while ends.join_next().await.is_some() {}
}

/// Cancels every write to a mount that has not left.
async fn cancel_all(gw: &Gateway, name: &str, by: &Actor) -> Result<Vec<HoldId>, No> {
    let Some(service) = service_name(name) else { return Ok(Vec::new()) };
    let cancelled = gw.store.cancel_mount(service, by.clone()).await?;
    for hold in &cancelled {
        gw.forget_window(*hold);
        gw.moved(*hold);
    }
    Ok(cancelled)
}

/// The configuration as it is now, or why it cannot be used.
fn read(gw: &Gateway) -> Result<Config, String> {
    let source = gw.mounts.source.get().ok_or("this gateway does not know where its configuration is read from")?;
    let wanted = source().map_err(|errors| errors.faults.iter().map(place).collect::<Vec<_>>().join("; "))?;
    let moved: Vec<String> =
        others(&gw.config, &wanted).into_iter().filter(|key| OWN_PLACES.contains(&key.as_str())).collect();
    // SECURITY: mounts were held against places of the gateway's own files that are not those in force.
    match moved.first() {
        None => Ok(wanted),
        Some(key) => Err(format!("`{key}` is another than this gateway started with; start it again")),
    }
}

/// A problem without the line it stands on: people write secrets there, against our advice.
fn place(fault: &Fault) -> String {
    let hint = fault.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}:{} {}: {}{hint}", fault.file, fault.place.line, fault.code, fault.message)
}

/// Keys beside the mounts that are not as in force.
fn others(now: &Config, wanted: &Config) -> Vec<String> {
    let differs = |key: &str, value| now.shown().iter().find(|(name, _)| name == key).map(|(_, value)| value) != value;
    let all = wanted.shown().iter().filter(|(key, _)| key != "mounts");
    all.filter(|(key, value)| differs(key, Some(value))).map(|(key, _)| key.clone()).collect()
}

async fn refuse(gw: &Gateway, why: String) -> Result<No, No> {
    let why: String = why.chars().take(WHY).collect();
    let text = "the mounts of sluice.yaml cannot be used; those in force stay as they are";
    let body = serde_json::json!({"why": why, "text": text});
    let id = MessageId::mint(gw.ids.as_ref());
    let alert = Message { id, topic: "mounts.refused".into(), severity: Severity::Warning, body };
    gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await?;
    Ok(No::saying(Code::MountInvalid, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Around;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sluice.yaml");
        std::fs::write(&file, text).unwrap();
        let around = Around { here: "/somewhere".into(), host: Some("gw".into()), flags: Vec::new() };
        Config::load(Some(&file), &[], &around).unwrap().0
    }

    #[test]
    fn only_what_is_set_up_otherwise_is_touched() {
        let before = config("mounts:\n  a: {command: x}\n  b: {command: x}\n  c: {command: x}\n");
        let wanted = config("mounts:\n  d: {command: x}\n  a: {command: x}\n  b: {command: x, env: {K: v}}\n");
        let now = before.mounts.0.iter().map(|mount| (mount.name.as_str(), mount)).collect();
        let plan = Plan::between(&now, &wanted.mounts.0);
        let names = |list: &[Mount]| list.iter().map(|mount| mount.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&plan.added), names(&plan.changed)), (vec!["d".to_owned()], vec!["b".to_owned()]));
        assert_eq!(plan.removed, ["c"]);
        let same = Plan::between(&now, &before.mounts.0);
        assert_eq!((same.added.len(), same.changed.len(), same.removed.len()), (0, 0, 0));
    }

    #[test]
    fn keys_that_wait_for_a_start_are_named() {
        let (before, after) =
            (config("data: /d\npolicies: /p\n"), config("data: /e\npolicies: /p\nmounts:\n  a: {command: x}\n"));
        let others = others(&before, &after);
        assert!(others.contains(&"data".to_owned()) && !others.contains(&"mounts".to_owned()), "{others:?}");
        assert!(!others.contains(&"policies".to_owned()));
    }
}
