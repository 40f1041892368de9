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
use crate::CallError;
use crate::ServiceContext;

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
pub async fn reload(context: &ServiceContext, by: Actor) -> Result<ProxiesReloadSummary, CallError> {
    let _turn = context.proxies.reloading.lock().await;
    let before = context.proxies.current();
    let (mut changes, mut by_name, mut found) = (ProxiesReloadSummary::default(), BTreeMap::new(), Vec::new());
    for one in find(&context.config.proxies, context.scan.as_ref()) {
        let old = before.by_name.get(&one.name);
        match (&one.declared, old) {
            (Ok(declared), Some(old)) if one.is_whole() && old.declared() == declared => {
                by_name.insert(one.name.clone(), Arc::clone(old));
            }
            (Ok(declared), old) if one.is_whole() => match put(context, &one.name, declared, old).await {
                Ok(service) => {
                    by_name.insert(one.name.clone(), service);
                    let (list, what) = match old {
                        Some(_) => (&mut changes.changed, "proxy.changed"),
                        None => (&mut changes.opened, "proxy.opened"),
                    };
                    list.push(one.name.clone());
                    context.store.note_proxy(&one.name, what, by.clone()).await?;
                }
                Err(why) => {
                    by_name.extend(old.map(|old| (one.name.clone(), Arc::clone(old))));
                    tell(context, &one.name, old.is_some(), &why).await?;
                    changes.refused.push(one.name.clone());
                }
            },
            (_, old) => {
                by_name.extend(old.map(|old| (one.name.clone(), Arc::clone(old))));
                if is_news(&before.found, &one) {
                    tell(context, &one.name, old.is_some(), &wrong(&one)).await?;
                }
                changes.refused.push(one.name.clone());
            }
        }
        found.push(Arc::new(one));
    }
    for (name, old) in &before.by_name {
        if !by_name.contains_key(name) {
            take_away(context, old).await;
            changes.closed.push(name.clone());
            context.store.note_proxy(name, "proxy.closed", by.clone()).await?;
        }
    }
    context.proxies.replace(LoadedProxies { found, by_name });
    super::spawn::follow(context).await?;
    context.signals.events.notify_written();
    Ok(changes)
}

/// Puts a declaration in force: the way out first, so that a call that is accepted can also be answered.
async fn put(
    context: &ServiceContext,
    name: &str,
    declared: &Proxy,
    old: Option<&Arc<ProxyService>>,
) -> Result<Arc<ProxyService>, String> {
    let deps = Arc::clone(&context.proxies.deps);
    let no = || "it cannot be opened".to_owned();
    let way = connection(declared, name)?;
    let named = way.name.clone();
    let workspace = ProxyWorkspace::new(&deps.folder, name).ok_or_else(no)?;
    let fresh = ProxyService::new(name.to_owned(), declared.clone(), workspace, deps).ok_or_else(no)?;
    let service = Arc::new(match old {
        Some(old) => fresh.after(old),
        None => fresh,
    });
    context.egress.open(way);
    let title = Proxy::service_name(name).ok_or_else(no)?;
    let offered = context.offer(title, Arc::clone(&service) as _, declared.capabilities(name)).await;
    if let Err(refused) = offered {
        match old.map(|old| connection(old.declared(), name)) {
            Some(Ok(way)) => context.egress.open(way),
            Some(Err(_)) | None => context.egress.retire(&named),
        }
        return Err(refused.refusal.to_string());
    }
    Ok(service)
}

/// Stops new calls to a proxy. A running task finishes.
async fn take_away(context: &ServiceContext, old: &ProxyService) {
    if let Some(title) = Proxy::service_name(old.name()) {
        context.withdraw(&title).await;
    }
    if let Ok(name) = ConnectionName::new(format!("proxy.{}", old.name())) {
        context.egress.retire(&name);
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

async fn tell(context: &ServiceContext, name: &str, stays: bool, why: &str) -> Result<(), CallError> {
    tracing::error!(proxy = name, "the declaration of `{name}` cannot be used; what was in force stays");
    let body = json!({"proxy": name, "stays": stays, "why": why});
    let id = MessageId::mint(context.ids.as_ref());
    let alert = OutboxMessage { id, topic: "proxy.refused".into(), severity: MessageSeverity::Warning, body };
    context.store.alert(alert, Actor::Node(context.store.node().clone())).await?;
    Ok(())
}
