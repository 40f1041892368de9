//! Reloads the mounts from the configuration while the gateway runs.
//!
//! Takes a signal (SIGHUP) or an operator's command; reads the file again and gives what changed. Promise: a file that
//! cannot be used changes nothing, and people are notified with the place of the error; an unchanged server is not
//! touched; a removed server answers nothing, and its held writes are cancelled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::{Config, MountConfig, MountTransport};
use sluice_core::ids::MessageId;
use sluice_core::policy::FileFault;
use sluice_core::refusal::Code;
use sluice_core::{Actor, HoldId};
use sluice_store::{MessageSeverity, MountsChange, OutboxMessage};
use tokio::task::JoinSet;

use super::{MountService, service_name, sign_in, supervisor};
use crate::CallError;
use crate::ServiceContext;

/// How long calls in progress may take to end. A write without an answer by then is in doubt.
const GRACE: Duration = Duration::from_secs(10);
/// Most characters of a refusal that an alert repeats.
const WHY: usize = 600;
/// Keys that name the gateway's own files. Mounts are checked against these places, so they must be those in force.
const OWN_PLACES: [&str; 5] = ["data", "policies", "database.path", "database.url_file", "tls.key"];

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountsReloadSummary {
    /// Mounts that were added.
    pub added: Vec<String>,
    /// Mounts whose settings changed.
    pub changed: Vec<String>,
    /// Mounts of which only the facts about tools changed; they were not restarted.
    pub restated: Vec<String>,
    /// Mounts that were removed.
    pub removed: Vec<String>,
    /// Held writes that were cancelled with them.
    pub cancelled: Vec<HoldId>,
    /// Keys outside the mounts that take effect at the next start.
    pub after_restart: Vec<String>,
}

impl MountsReloadSummary {
    /// Whether any mount changed.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.restated.is_empty() && self.removed.is_empty()
    }
}

/// The steps from the mounts in force to those that are wanted.
#[derive(Debug, PartialEq, Eq)]
struct MountsReloadPlan {
    added: Vec<MountConfig>,
    changed: Vec<MountConfig>,
    restated: Vec<MountConfig>,
    removed: Vec<String>,
}

impl MountsReloadPlan {
    fn between(now: &BTreeMap<&str, &MountConfig>, wanted: &[MountConfig]) -> Self {
        let fresh = |mount: &&MountConfig| !now.contains_key(mount.name.as_str());
        let another = |mount: &&MountConfig| now.get(mount.name.as_str()).is_some_and(|before| *before != *mount);
        let gone = |name: &&&str| !wanted.iter().any(|mount| mount.name == ***name);
        let (restated, changed) = wanted.iter().filter(another).cloned().partition(|mount| {
            now.get(mount.name.as_str()).is_some_and(|before| differs_in_facts_alone(before, mount))
        });
        Self {
            added: wanted.iter().filter(fresh).cloned().collect(),
            changed,
            restated,
            removed: now.keys().filter(gone).map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// Whether two settings of one mount differ only in what is stated about its tools.
fn differs_in_facts_alone(before: &MountConfig, after: &MountConfig) -> bool {
    MountConfig { facts: before.facts.clone(), ..after.clone() } == *before
}

/// Applies the mounts of the configuration as it is now.
///
/// # Errors
/// When the file cannot be used: the mounts stay as they are. People are notified.
pub async fn reload(context: &ServiceContext, by: Actor) -> Result<MountsReloadSummary, CallError> {
    let turn = context.mounts.turn.lock().await;
    let wanted = match read(context) {
        Ok(wanted) => wanted,
        Err(why) => return Err(refuse(context, why).await?),
    };
    let before = context.mounts.all();
    let current: Vec<MountConfig> = before.iter().map(|service| service.current()).collect();
    let now = current.iter().map(|mount| (mount.name.as_str(), mount)).collect();
    let MountsReloadPlan { added, changed, restated, removed } = MountsReloadPlan::between(&now, &wanted.mounts.0);
    let names = |mounts: &[MountConfig]| mounts.iter().map(|mount| mount.name.clone()).collect::<Vec<_>>();
    let mut done = MountsReloadSummary {
        added: names(&added),
        changed: names(&changed),
        restated: names(&restated),
        removed,
        cancelled: Vec::new(),
        after_restart: others(&context.config, &wanted),
    };
    if !done.is_nothing() {
        let (added, removed) = (done.added.clone(), done.removed.clone());
        let changed = done.changed.iter().chain(&done.restated).cloned().collect();
        context.store.record_mounts_change(MountsChange { added, changed, removed }, by.clone()).await?;
    }
    for name in &done.removed {
        done.cancelled.extend(cancel_all(context, name, &by).await?);
        if let Some(service) = service_name(name) {
            context.retire(&service).await;
        }
    }
    end(before, |name| done.removed.iter().chain(&done.changed).any(|other| other == name)).await;
    for name in done.removed.iter().chain(&done.changed) {
        give_back(context, name, &wanted, &by).await;
    }
    for name in &done.removed {
        // Writes that were admitted while the first ones were cancelled.
        done.cancelled.extend(cancel_all(context, name, &by).await?);
        context.mounts.take(name, &context.egress);
    }
    for mount in added.into_iter().chain(changed) {
        let service = context.mounts.put(mount, &context.egress);
        // In its place before it is kept, so that a held write finds a server that starts, not none.
        supervisor::offer_service(context, &service).await;
    }
    for mount in restated {
        let Some(service) = context.mounts.get(&mount.name) else { continue };
        service.state(mount.facts);
        supervisor::restate(context, &service).await;
    }
    context.mounts.came.notify_one();
    context.signals.events.notify_written();
    drop(turn);
    Ok(done)
}

/// Revokes the access to a server that is no longer mounted at the address for which a person granted it.
async fn give_back(context: &ServiceContext, name: &str, wanted: &Config, by: &Actor) {
    let Ok(Some(grant)) = context.store.mount_grant(name).await else { return };
    let is_there = wanted.mounts.0.iter().any(|mount| {
        mount.name == name && matches!(&mount.way, MountTransport::Address(address) if address.url == grant.url)
    });
    if is_there {
        return;
    }
    match sign_in::end(context, name, by.clone()).await {
        Ok(told) => tracing::info!(mount = name, "the access to `{name}` was given up: {}", told.as_str()),
        // The mount is gone all the same; the grant can be revoked again by name.
        Err(error) => tracing::error!(mount = name, "the access to `{name}` could not be revoked: {}", error.refusal),
    }
}

/// Ends these servers, all at once.
async fn end(services: Vec<Arc<MountService>>, which: impl Fn(&str) -> bool) {
    let mut ends = JoinSet::new();
    for service in services.into_iter().filter(|service| which(&service.mount().name)) {
        ends.spawn(async move { service.end(GRACE).await });
    }
    while ends.join_next().await.is_some() {}
}

/// Cancels every write to a mount that has not been sent.
async fn cancel_all(context: &ServiceContext, name: &str, by: &Actor) -> Result<Vec<HoldId>, CallError> {
    let Some(service) = service_name(name) else { return Ok(Vec::new()) };
    let cancelled = context.store.cancel_mount(service, by.clone()).await?;
    for hold in &cancelled {
        context.forget_window(*hold);
        context.notify_hold_changed(*hold);
    }
    Ok(cancelled)
}

/// The configuration as it is now, or why it cannot be used.
fn read(context: &ServiceContext) -> Result<Config, String> {
    let source =
        context.mounts.source.get().ok_or("this gateway does not know where its configuration is read from")?;
    let wanted = source().map_err(|errors| errors.faults.iter().map(place).collect::<Vec<_>>().join("; "))?;
    let moved: Vec<String> =
        others(&context.config, &wanted).into_iter().filter(|key| OWN_PLACES.contains(&key.as_str())).collect();
    // SECURITY: mounts were checked against places of the gateway's own files that are not those in force.
    match moved.first() {
        None => Ok(wanted),
        Some(key) => Err(format!("`{key}` differs from the value this gateway started with; restart the gateway")),
    }
}

/// A problem without its source line: people write secrets there, against our advice.
fn place(fault: &FileFault) -> String {
    let hint = fault.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}:{} {}: {}{hint}", fault.file, fault.place.line, fault.code, fault.message)
}

/// Keys outside the mounts that differ from those in force.
fn others(now: &Config, wanted: &Config) -> Vec<String> {
    let differs = |key: &str, value| now.shown().iter().find(|(name, _)| name == key).map(|(_, value)| value) != value;
    let all = wanted.shown().iter().filter(|(key, _)| key != "mounts");
    all.filter(|(key, value)| differs(key, Some(value))).map(|(key, _)| key.clone()).collect()
}

async fn refuse(context: &ServiceContext, why: String) -> Result<CallError, CallError> {
    let why: String = why.chars().take(WHY).collect();
    let text = "the mounts of sluice.yaml cannot be used; those in force stay as they are";
    let body = serde_json::json!({"why": why, "text": text});
    let id = MessageId::mint(context.ids.as_ref());
    let alert = OutboxMessage { id, topic: "mounts.refused".into(), severity: MessageSeverity::Warning, body };
    context.store.alert(alert, Actor::Node(context.store.node().clone())).await?;
    Ok(CallError::with_text(Code::MountInvalid, &why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_config::ConfigContext;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sluice.yaml");
        std::fs::write(&file, text).unwrap();
        let around = ConfigContext { here: "/somewhere".into(), host: Some("gw".into()), flags: Vec::new() };
        Config::load(Some(&file), &[], &around).unwrap().0
    }

    #[test]
    fn only_what_is_set_up_otherwise_is_touched() {
        let before = config("mounts:\n  a: {command: x}\n  b: {command: x}\n  c: {command: x}\n");
        let wanted = config("mounts:\n  d: {command: x}\n  a: {command: x}\n  b: {command: x, env: {K: v}}\n");
        let now = before.mounts.0.iter().map(|mount| (mount.name.as_str(), mount)).collect();
        let plan = MountsReloadPlan::between(&now, &wanted.mounts.0);
        let names = |list: &[MountConfig]| list.iter().map(|mount| mount.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&plan.added), names(&plan.changed)), (vec!["d".to_owned()], vec!["b".to_owned()]));
        assert_eq!(plan.removed, ["c"]);
        let same = MountsReloadPlan::between(&now, &before.mounts.0);
        assert_eq!((same.added.len(), same.changed.len(), same.removed.len()), (0, 0, 0));
        let stated =
            config("mounts:\n  a: {command: x, facts: {t: {read: true}}}\n  b: {command: x}\n  c: {command: x}\n");
        let plan = MountsReloadPlan::between(&now, &stated.mounts.0);
        assert_eq!((names(&plan.changed).len(), names(&plan.restated)), (0, vec!["a".to_owned()]));
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
