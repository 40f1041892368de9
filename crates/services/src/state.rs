//! State: values that agents keep, for a session, for themselves, or shared by all.
//!
//! Values live in the store with their versions. Promise: the same write applied twice changes nothing the second time,
//! a shared value is replaced only at the version that its writer saw, and a replaced value can be restored as long as
//! nobody wrote since.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::ids::SessionId;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, AgentName, BoxedFuture, CapabilityName, HoldId, UtcMillis};
use sluice_store::{LONGEST_VALUE, SetState, StateItem, StateScope, Store, StoreError};

use self::screen::StateScreen;
use self::snapshot::SnapshotOperation;
use self::watch::{KeyListCoverage, StateSubscriptionTable};
use super::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};
use crate::intake::{ContentRecipient, Intake, break_imitations_in};
use crate::value::put;

mod briefing;
mod screen;
mod snapshot;
mod watch;

pub use watch::{StateKeyChange, StateKeyChanges};

/// The longest key, in characters.
const LONGEST_KEY: usize = 512;
/// The most keys in one list.
const PAGE: u32 = 1_000;
/// The size of an answer, in bytes, after which no further value is added.
const PAGE_BYTES: u64 = 4 << 20;
/// How many values are read at once: an answer is limited by their size, not by their number.
const STEP: u32 = 16;
/// The most keys that a subscription checks.
const WATCHED: usize = 10_000;

/// The service.
#[derive(Debug)]
pub struct StateService {
    store: Arc<Store>,
    quotas: sluice_config::State,
    subscriptions: StateSubscriptionTable,
    screen: StateScreen,
}

/// The content needed to restore a value.
#[derive(Debug, Serialize, Deserialize)]
struct StateUndo {
    shelf: String,
    key: String,
    item: Option<StateUndoItem>,
}

/// A value at an earlier time.
#[derive(Debug, Serialize, Deserialize)]
struct StateUndoItem {
    value: String,
    version: u64,
    created_at: UtcMillis,
    updated_at: UtcMillis,
    by: AgentName,
    size: u64,
}

/// A capability of this service, parsed.
struct StateCall<'a> {
    shelf: StateScope,
    verb: &'a str,
    arguments: &'a Map<String, Value>,
}

impl StateService {
    /// The service on this store, within these limits; what agents read of each other passes through this intake.
    #[must_use]
    pub fn new(store: Arc<Store>, quotas: sluice_config::State, intake: Arc<Intake>) -> Self {
        Self { store, quotas, subscriptions: StateSubscriptionTable::default(), screen: StateScreen::new(intake) }
    }

    /// The changes of a subscription without the keys that are withheld from agents.
    ///
    /// # Errors
    /// When they cannot be screened.
    pub async fn screen_changes(
        &self,
        reader: &ContentRecipient,
        at: UtcMillis,
        mut changes: StateKeyChanges,
    ) -> Result<StateKeyChanges, Refusal> {
        let keys: Vec<&str> = changes.events.iter().map(|change| change.key.as_str()).collect();
        let withheld = self.screen.keys(reader, at, &keys).await?;
        changes.events.retain(|change| !withheld.contains(&change.key));
        Ok(changes)
    }

    /// The changes of this agent's subscription after a number; nothing if there is no such subscription.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn changes(
        &self,
        agent: &AgentName,
        id: &str,
        after: u64,
    ) -> Result<Option<StateKeyChanges>, StoreError> {
        let Some(prefix) = self.subscriptions.prefix(agent, id) else { return Ok(None) };
        let (items, reach) = self.watched(&prefix).await?;
        Ok(self.subscriptions.look(id, (&items, reach), after))
    }

    /// The shared keys with a prefix, up to the limit of a subscription, and whether these are all of them.
    async fn watched(&self, prefix: &str) -> Result<(Vec<StateItem>, KeyListCoverage), StoreError> {
        let mut items: Vec<StateItem> = Vec::new();
        while items.len() < WATCHED {
            let after = items.last().map(|item| item.key.clone());
            let page = self.store.state_list(StateScope::Shared, prefix.to_owned(), after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            items.extend(page);
            if is_last {
                return Ok((items, KeyListCoverage::All));
            }
        }
        Ok((items, KeyListCoverage::Part))
    }

    /// Values with a prefix, read page by page up to the limit, and whether there are more.
    async fn values(
        &self,
        shelf: &StateScope,
        prefix: &str,
        mut after: Option<String>,
    ) -> Result<(Vec<StateItem>, bool), StoreError> {
        let (mut items, mut bytes): (Vec<StateItem>, u64) = (Vec::new(), 0);
        loop {
            let page = self.store.state_query(shelf.clone(), prefix.to_owned(), after.take(), STEP).await?;
            let is_last = page.len() < STEP as usize;
            for item in page {
                if items.len() >= PAGE as usize || bytes >= PAGE_BYTES {
                    return Ok((items, true));
                }
                bytes = bytes.saturating_add(item.size);
                items.push(item);
            }
            if is_last {
                return Ok((items, false));
            }
            after = items.last().map(|item| item.key.clone());
        }
    }

    /// Ends a subscription of this agent. Returns whether there was one.
    pub fn unwatch(&self, agent: &AgentName, id: &str) -> bool {
        self.subscriptions.end(agent, id)
    }

    fn quota(&self, shelf: &StateScope) -> u64 {
        match shelf {
            StateScope::Session(_) => self.quotas.session.as_bytes(),
            StateScope::Persistent(_) => self.quotas.persistent.as_bytes(),
            StateScope::Shared => self.quotas.shared.as_bytes(),
        }
    }

    async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let wanted = wanted(&ask.action, ask.session)?;
        let StateCall { shelf, verb, arguments } = &wanted;
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        match *verb {
            "get" => {
                let version = arguments.get("version").and_then(Value::as_u64);
                let item = self.store.state_get(shelf.clone(), wanted.key()?, version).await.map_err(store)?;
                if item.is_none() && version.is_some() {
                    return Err(Refusal::new(Code::StateVersion));
                }
                let is_shared = matches!(shelf, StateScope::Shared);
                let foreign = item.as_ref().filter(|item| is_shared && item.by != *ask.action.agent());
                let Some(foreign) = foreign else { return Ok(told(shelf, item)) };
                if let Some(finding) = self.screen.value(&ContentRecipient::of(ask), ask.now, foreign).await? {
                    return Err(screen::kept_back(finding));
                }
                let mut told = told(shelf, item);
                // The value is returned unchanged, except where it imitates the gateway.
                if let Some(value) = told.get_mut("value") {
                    break_imitations_in(value);
                }
                put(&mut told, "untrusted", true);
                Ok(told)
            }
            "list" => {
                let (prefix, after) = (text("prefix").unwrap_or_default().to_owned(), text("after").map(str::to_owned));
                let mut items = self.store.state_list(shelf.clone(), prefix, after, PAGE + 1).await.map_err(store)?;
                let is_cut = items.len() > PAGE as usize;
                items.truncate(PAGE as usize);
                let used = self.store.state_usage(shelf.clone()).await.map_err(store)?;
                let is_foreign =
                    |item: &&StateItem| matches!(shelf, StateScope::Shared) && item.by != *ask.action.agent();
                let keys: Vec<&str> = items.iter().filter(is_foreign).map(|item| item.key.as_str()).collect();
                let withheld = self.screen.keys(&ContentRecipient::of(ask), ask.now, &keys).await?;
                items.retain(|item| !withheld.contains(&item.key));
                let mut told = listed(shelf, &items, used);
                if !withheld.is_empty() {
                    put(&mut told, "keys_withheld", withheld.len());
                }
                put(&mut told, "truncated", is_cut);
                Ok(told)
            }
            "watch" => {
                let prefix = text("prefix").unwrap_or_default().to_owned();
                let (items, reach) = self.watched(&prefix).await.map_err(store)?;
                if reach == KeyListCoverage::Part {
                    let text = format!("more than {WATCHED} keys begin with this; watch a longer prefix");
                    return Err(Refusal::new(Code::FilesTooManyWatches).with_text(&text));
                }
                let id = format!("watch_{:032x}", ask.call.bits());
                self.subscriptions.begin(ask.action.agent(), id.clone(), prefix.clone(), &items)?;
                Ok(json!({"subscription_id": id, "prefix": prefix}))
            }
            "query" => {
                let (prefix, after) = (text("prefix").unwrap_or_default(), text("after").map(str::to_owned));
                let (items, is_cut) = self.values(shelf, prefix, after).await.map_err(store)?;
                let entries: Vec<Value> = items
                    .iter()
                    .map(|item| json!({"key": item.key, "value": value_of(item), "version": item.version}))
                    .collect();
                Ok(json!({"count": entries.len(), "entries": entries, "truncated": is_cut}))
            }
            "history" => {
                let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(100).clamp(1, 100);
                let limit = u32::try_from(limit).unwrap_or(100);
                let items = self.store.state_history(shelf.clone(), wanted.key()?, limit).await.map_err(store)?;
                let versions: Vec<Value> = items.iter().map(|item| json!({"version": item.version, "updated_at": item.updated_at.to_string(), "size": item.size})).collect();
                Ok(json!({"count": versions.len(), "versions": versions}))
            }
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    async fn change(&self, hold: &Hold, id: HoldId) -> Result<CompletedWrite, WriteError> {
        let wanted = wanted(&hold.action, hold.session).map_err(WriteError::Refused)?;
        let StateCall { shelf, verb, arguments } = &wanted;
        let by = hold.agent().clone();
        let expected = arguments.get("expected_version").and_then(Value::as_u64);
        let key = || wanted.key().map_err(WriteError::Refused);
        let (receipt, result, after) = match *verb {
            "set" => {
                let value = arguments.get("value").cloned().unwrap_or(Value::Null).to_string();
                let set = SetState {
                    hold: id,
                    shelf: shelf.clone(),
                    key: key()?,
                    value: value.clone(),
                    by,
                    expected,
                    quota: self.quota(shelf),
                };
                let changed = self.store.state_set(set).await.map_err(trouble)?;
                let before = changed.previous.as_ref().map(value_of).unwrap_or(Value::Null);
                let result = match shelf {
                    StateScope::Session(_) => {
                        json!({"previous_value": before, "overwritten": changed.previous.is_some()})
                    }
                    StateScope::Persistent(_) => {
                        json!({"version": changed.version, "previous_version": changed.previous.map(|item| item.version)})
                    }
                    StateScope::Shared => json!({"version": changed.version}),
                };
                (format!("version {}", changed.version), result, Some(fingerprint(Some(&value))))
            }
            "delete" => {
                let gone = self.store.state_delete(id, shelf.clone(), key()?, by, expected).await.map_err(trouble)?;
                let result = match shelf {
                    StateScope::Session(_) => {
                        json!({"deleted": gone.is_some(), "previous_value": gone.as_ref().map(value_of)})
                    }
                    StateScope::Persistent(_) | StateScope::Shared => json!({"deleted": gone.is_some()}),
                };
                ("deleted".to_owned(), result, Some(fingerprint(None)))
            }
            "clear" => match shelf {
                StateScope::Session(session) => {
                    let gone = self.store.state_clear(id, *session).await.map_err(trouble)?;
                    ("cleared".to_owned(), json!({"removed_count": gone}), None)
                }
                StateScope::Persistent(_) | StateScope::Shared => {
                    return Err(WriteError::refused(Code::GatewayUnsupported));
                }
            },
            _ => return Err(WriteError::refused(Code::GatewayUnsupported)),
        };
        Ok(CompletedWrite { receipt, result, after, undo_until: None })
    }

    async fn before(&self, hold: &Hold) -> Result<PreparedWrite, WriteError> {
        let wanted = wanted(&hold.action, hold.session).map_err(WriteError::Refused)?;
        if wanted.verb == "clear" {
            return Ok(PreparedWrite::default());
        }
        let key = wanted.key().map_err(WriteError::Refused)?;
        let item = self.store.state_get(wanted.shelf.clone(), key.clone(), None).await.map_err(trouble)?;
        let print = fingerprint(item.as_ref().map(|item| item.value.as_str()));
        let item = item.map(|StateItem { value, version, created_at, updated_at, by, size, .. }| StateUndoItem {
            value,
            version,
            created_at,
            updated_at,
            by,
            size,
        });
        let kept = StateUndo { shelf: shelf_text(&wanted.shelf), key, item };
        let content = serde_json::to_vec(&kept).map_err(|_| WriteError::refused(Code::GatewayInternal))?;
        Ok(PreparedWrite { handle: None, before: Some((content, print)) })
    }

    async fn put_back(&self, permit: Permit, before: &[u8]) -> Result<CompletedWrite, WriteError> {
        let (shelf, kept) = kept(before)?;
        let current = self.store.state_get(shelf.clone(), kept.key.clone(), None).await.map_err(trouble)?;
        let seen = current.map(|item| item.version);
        let StateUndo { key, item, .. } = kept;
        let item = item.map(|StateUndoItem { value, version, created_at, updated_at, by, size }| StateItem {
            key: key.clone(),
            value,
            version,
            created_at,
            updated_at,
            by,
            size,
        });
        self.store.state_put_back(permit.hold(), shelf, key, item, seen).await.map_err(trouble)?;
        Ok(CompletedWrite {
            receipt: "restored".into(),
            result: json!({"restored": true}),
            after: None,
            undo_until: None,
        })
    }
}

impl Service for StateService {
    fn is_local(&self) -> bool {
        true
    }

    fn reads_from(&self, _: &CapabilityName) -> ReadSource {
        ReadSource::OwnState
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        let Some((shelf, verb)) = parts(capability) else { return false };
        match shelf {
            "session" => ["get", "set", "delete", "list", "clear"].contains(&verb),
            "persistent" => ["get", "set", "delete", "list", "query", "history"].contains(&verb),
            "shared" => ["get", "set", "delete", "list", "watch"].contains(&verb),
            "snapshot" => ["create", "list", "load"].contains(&verb),
            "briefing" => verb == "generate",
            _ => false,
        }
    }

    fn check_feasible<'a>(
        &'a self,
        action: &'a Action,
        session: Option<SessionId>,
    ) -> BoxedFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if let Some(verb) = SnapshotOperation::of(action.capability()) {
                return self.foresee_snapshot(verb, action).await;
            }
            if matches!(action.capability().as_str(), "state.briefing.generate" | "state.snapshot.list") {
                return Ok(());
            }
            let wanted = wanted(action, session)?;
            // A write that can only be refused is refused before it is held: a dead hold would alert people for
            // nothing.
            if ["set", "delete"].contains(&wanted.verb) {
                wanted.key()?;
            }
            if wanted.arguments.get("value").is_some_and(|value| value.to_string().len() > LONGEST_VALUE) {
                return Err(Refusal::new(Code::StateQuota).with_text("a value has at most 1 MiB, written as JSON"));
            }
            let Some(expected) = wanted.arguments.get("expected_version").and_then(Value::as_u64) else {
                return Ok(());
            };
            let item = self.store.state_get(wanted.shelf.clone(), wanted.key()?, None).await.map_err(store)?;
            let current = item.map_or(0, |item| item.version);
            if current == expected {
                return Ok(());
            }
            let text = format!("the value is at version {current}, not {expected}");
            Err(Refusal::new(Code::StateConflict).with_text(&text))
        })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(async move {
            match ask.action.capability().as_str() {
                "state.briefing.generate" => self.briefing(ask).await,
                "state.snapshot.list" => self.list_snapshots(ask).await,
                _ => self.answer(ask).await,
            }
        })
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async move {
            match SnapshotOperation::of(hold.action.capability()) {
                Some(verb) => self.before_snapshot(verb, hold).await,
                None => self.before(hold).await,
            }
        })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        _: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            match SnapshotOperation::of(hold.action.capability()) {
                Some(verb) => self.change_by_snapshot(verb, hold, permit.hold()).await,
                None => self.change(hold, permit.hold()).await,
            }
        })
    }

    /// Repeating it is harmless: the value remembers the write that made it.
    fn look_up<'a>(&'a self, _: &'a Hold, _: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(std::future::ready(LookupOutcome::Absent))
    }

    fn current_fingerprint<'a>(
        &'a self,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async move {
            if SnapshotOperation::of(done.action.capability()).is_some() {
                return self.print_of_all(done.agent()).await;
            }
            let (shelf, kept) = kept(before)?;
            let item = self.store.state_get(shelf, kept.key, None).await.map_err(trouble)?;
            Ok(fingerprint(item.as_ref().map(|item| item.value.as_str())))
        })
    }

    fn undo<'a>(
        &'a self,
        permit: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            match SnapshotOperation::of(done.action.capability()) {
                Some(_) => self.put_all_back(permit, done, before).await,
                None => self.put_back(permit, before).await,
            }
        })
    }

    fn discard_undo_data<'a>(&'a self, _: &'a [u8]) -> BoxedFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl StateCall<'_> {
    fn key(&self) -> Result<String, Refusal> {
        let key = self.arguments.get("key").and_then(Value::as_str).unwrap_or_default();
        let usable = !key.is_empty() && key.chars().count() <= LONGEST_KEY && !key.chars().any(char::is_control);
        if usable { Ok(key.to_owned()) } else { Err(Refusal::new(Code::StateKey)) }
    }
}

fn wanted(action: &Action, session: Option<SessionId>) -> Result<StateCall<'_>, Refusal> {
    let (shelf, verb) = parts(action.capability()).ok_or_else(|| Refusal::new(Code::GatewayUnsupported))?;
    let shelf = match shelf {
        "session" => StateScope::Session(session.ok_or_else(|| Refusal::new(Code::StateNoSession))?),
        "persistent" => StateScope::Persistent(action.agent().clone()),
        "shared" => StateScope::Shared,
        _ => return Err(Refusal::new(Code::GatewayUnsupported)),
    };
    Ok(StateCall { shelf, verb, arguments: action.arguments() })
}

/// The parts of `state.<shelf>.<verb>`.
fn parts(capability: &CapabilityName) -> Option<(&str, &str)> {
    capability.as_str().strip_prefix("state.")?.split_once('.')
}

fn value_of(item: &StateItem) -> Value {
    serde_json::from_str(&item.value).unwrap_or(Value::Null)
}

fn told(shelf: &StateScope, item: Option<StateItem>) -> Value {
    let Some(item) = item else { return json!({"found": false, "value": null}) };
    let mut told = json!({
        "found": true, "value": value_of(&item), "version": item.version, "updated_at": item.updated_at.to_string(),
    });
    match shelf {
        StateScope::Session(_) => told = json!({"found": true, "value": value_of(&item)}),
        StateScope::Persistent(_) => put(&mut told, "created_at", item.created_at.to_string()),
        StateScope::Shared => put(&mut told, "owner_agent", item.by.as_str()),
    }
    told
}

fn listed(shelf: &StateScope, items: &[StateItem], used: u64) -> Value {
    match shelf {
        StateScope::Session(_) => {
            let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
            json!({"count": keys.len(), "keys": keys})
        }
        StateScope::Persistent(_) | StateScope::Shared => {
            let entries: Vec<Value> = items
                .iter()
                .map(|item| json!({"key": item.key, "version": item.version, "size": item.size, "updated_at": item.updated_at.to_string()}))
                .collect();
            json!({"count": entries.len(), "entries": entries, "total_size_bytes": used})
        }
    }
}

/// A fingerprint of a value, or of its absence.
fn fingerprint(value: Option<&str>) -> ObjectFingerprint {
    match value {
        Some(value) => ObjectFingerprint::of(format!("value {value}").as_bytes()),
        None => ObjectFingerprint::of(b"absent"),
    }
}

fn shelf_text(shelf: &StateScope) -> String {
    match shelf {
        StateScope::Session(id) => format!("session {id}"),
        StateScope::Persistent(agent) => format!("persistent {agent}"),
        StateScope::Shared => "shared".into(),
    }
}

fn kept(before: &[u8]) -> Result<(StateScope, StateUndo), WriteError> {
    let broken = || WriteError::refused(Code::RollbackNotPossible);
    let kept: StateUndo = serde_json::from_slice(before).map_err(|_| broken())?;
    let shelf = match kept.shelf.split_once(' ') {
        Some(("session", id)) => StateScope::Session(id.parse().map_err(|_| broken())?),
        Some(("persistent", agent)) => StateScope::Persistent(agent.parse().map_err(|_| broken())?),
        None if kept.shelf == "shared" => StateScope::Shared,
        Some(_) | None => return Err(broken()),
    };
    Ok((shelf, kept))
}

fn store(error: StoreError) -> Refusal {
    let code = Code::from_code(error.code()).unwrap_or(Code::GatewayInternal);
    let refusal = Refusal::new(code);
    match code {
        Code::StateConflict | Code::StateQuota => refusal.with_text(&error.to_string()),
        _ => refusal.with_source(error),
    }
}

/// A refused change did nothing; a failed one may be repeated without further effect.
fn trouble(error: StoreError) -> WriteError {
    let no = store(error);
    match no.code() {
        Code::StateConflict | Code::StateQuota | Code::StoreNotFound => WriteError::Refused(no),
        _ => WriteError::NotDone(no),
    }
}
