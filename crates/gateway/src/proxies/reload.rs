//! Reloads declarations that change while the gateway runs.
//!
//! Takes the folder as it is now; gives what was opened, changed, closed or refused. Promise: a file with a flaw
//! changes nothing, and people are notified; a proxy whose file changed keeps its workspace and its counters; a running
//! task finishes with the declaration that it began with.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sluice_core::Actor;
use sluice_core::ids::{ConnectionName, MessageId};
use sluice_core::proxy::Proxy;
use sluice_store::{MessageSeverity, OutboxMessage};

use super::{LoadedProxies, ProxyFile, ProxyService, ProxyWorkspace, connection, find};
use crate::{CallError, Gateway};

/// Most characters of the flaws that an alert repeats.
const WHY: usize = 600;

/// The result of a reload, by name of proxy.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProxiesReloadSummary {
    /// Proxies that were added.
    pub opened: Vec<String>,
    /// Proxies whose declaration changed.
    pub changed: Vec<String>,
    /// Proxies that were removed.
    pub closed: Vec<String>,
    /// Files that cannot be used; the earlier declaration stays in force.
    pub refused: Vec<String>,
}

/// Reads the folder of declarations again.
///
/// # Errors
/// When a change cannot be recorded.
pub async fn reload(gw: &Gateway, by: Actor) -> Result<ProxiesReloadSummary, CallError> {
    let _turn = gw.proxies.reloading.lock().await;
    let before = gw.proxies.current();
    let (mut changes, mut by_name, mut found) = (ProxiesReloadSummary::default(), BTreeMap::new(), Vec::new());
    for one in find(&gw.config.proxies, gw.scan.as_ref()) {
        let old = before.by_name.get(&one.name);
        match (&one.declared, old) {
            (Ok(declared), Some(old)) if one.is_whole() && old.declared() == declared => {
                by_name.insert(one.name.clone(), Arc::clone(old));
            }
            (Ok(declared), old) if one.is_whole() => match put(gw, &one.name, declared, old).await {
                Ok(service) => {
                    by_name.insert(one.name.clone(), service);
                    let (list, what) = match old {
                        Some(_) => (&mut changes.changed, "proxy.changed"),
                        None => (&mut changes.opened, "proxy.opened"),
                    };
                    list.push(one.name.clone());
                    gw.store.note_proxy(&one.name, what, by.clone()).await?;
                }
                Err(why) => {
                    by_name.extend(old.map(|old| (one.name.clone(), Arc::clone(old))));
                    tell(gw, &one.name, old.is_some(), &why).await?;
                    changes.refused.push(one.name.clone());
                }
            },
            (_, old) => {
                by_name.extend(old.map(|old| (one.name.clone(), Arc::clone(old))));
                if is_news(&before.found, &one) {
                    tell(gw, &one.name, old.is_some(), &wrong(&one)).await?;
                }
                changes.refused.push(one.name.clone());
            }
        }
        found.push(Arc::new(one));
    }
    for (name, old) in &before.by_name {
        if !by_name.contains_key(name) {
            take_away(gw, old).await;
            changes.closed.push(name.clone());
            gw.store.note_proxy(name, "proxy.closed", by.clone()).await?;
        }
    }
    gw.proxies.replace(LoadedProxies { found, by_name });
    super::spawn::follow(gw).await?;
    gw.events.notify_written();
    Ok(changes)
}

/// Puts a declaration in force: the way out first, so that a call that is accepted can also be answered.
async fn put(
    gw: &Gateway,
    name: &str,
    declared: &Proxy,
    old: Option<&Arc<ProxyService>>,
) -> Result<Arc<ProxyService>, String> {
    let ground = Arc::clone(&gw.proxies.ground);
    let no = || "it cannot be opened".to_owned();
    let way = connection(declared, name)?;
    let named = way.name.clone();
    let workspace = ProxyWorkspace::new(&ground.folder, name).ok_or_else(no)?;
    let fresh = ProxyService::new(name.to_owned(), declared.clone(), workspace, ground).ok_or_else(no)?;
    let service = Arc::new(match old {
        Some(old) => fresh.after(old),
        None => fresh,
    });
    gw.egress.open(way);
    let title = Proxy::service_name(name).ok_or_else(no)?;
    let offered = gw.offer(title, Arc::clone(&service) as _, declared.capabilities(name)).await;
    if let Err(refused) = offered {
        match old.map(|old| connection(old.declared(), name)) {
            Some(Ok(way)) => gw.egress.open(way),
            Some(Err(_)) | None => gw.egress.retire(&named),
        }
        return Err(refused.refusal.to_string());
    }
    Ok(service)
}

/// Stops new calls to a proxy. A running task finishes.
async fn take_away(gw: &Gateway, old: &ProxyService) {
    if let Some(title) = Proxy::service_name(old.name()) {
        gw.withdraw(&title).await;
    }
    if let Ok(name) = ConnectionName::new(format!("proxy.{}", old.name())) {
        gw.egress.retire(&name);
    }
}

/// Whether the flaws of a file are not those of the last read.
fn is_news(before: &[Arc<ProxyFile>], one: &ProxyFile) -> bool {
    before.iter().find(|known| known.name == one.name).is_none_or(|known| wrong(known) != wrong(one))
}

fn wrong(found: &ProxyFile) -> String {
    let mut all: Vec<String> = found.flaws.iter().map(ToString::to_string).collect();
    all.extend(found.declared.as_ref().err().map(ToString::to_string));
    all.join("; ").chars().take(WHY).collect()
}

async fn tell(gw: &Gateway, name: &str, stays: bool, why: &str) -> Result<(), CallError> {
    tracing::error!(proxy = name, "the declaration of `{name}` cannot be used; what was in force stays");
    let body = json!({"proxy": name, "stays": stays, "why": why});
    let id = MessageId::mint(gw.ids.as_ref());
    let alert = OutboxMessage { id, topic: "proxy.refused".into(), severity: MessageSeverity::Warning, body };
    gw.store.alert(alert, Actor::Node(gw.store.node().clone())).await?;
    Ok(())
}
