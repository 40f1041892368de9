//! Snapshots of an agent's own values: created, listed and restored.
//!
//! Promise: restoring one changes only the agent's own values, leaves their older versions readable, and can itself be
//! undone as long as the agent wrote nothing since.

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, AgentName, CapabilityName, HoldId};
use sluice_store::SnapshotContent;

use super::super::{CompletedWrite, PreparedWrite, ServiceRead, WriteError};
use super::{StateService, store, trouble};

const PREFIX: &str = "snap_";

/// A write about a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotOperation {
    /// Creates a snapshot.
    Create,
    /// Restores a snapshot.
    Load,
}

impl SnapshotOperation {
    /// The snapshot verb of a capability, if it has one.
    pub fn of(capability: &CapabilityName) -> Option<Self> {
        match capability.as_str() {
            "state.snapshot.create" => Some(Self::Create),
            "state.snapshot.load" => Some(Self::Load),
            _ => None,
        }
    }
}

fn snapshot_id(id: HoldId) -> String {
    format!("{PREFIX}{:032x}", id.bits())
}

fn named(action: &Action) -> Result<HoldId, Refusal> {
    let text = action.arguments().get("snapshot_id").and_then(Value::as_str).unwrap_or_default();
    let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == 32);
    let bits = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
    bits.map(HoldId::from_bits).ok_or_else(|| Refusal::new(Code::SchemaBadName))
}

fn print(content: &SnapshotContent) -> Result<ObjectFingerprint, WriteError> {
    let text = serde_json::to_vec(content).map_err(|_| WriteError::refused(Code::GatewayInternal))?;
    Ok(ObjectFingerprint::of(&text))
}

impl StateService {
    async fn content_of(&self, action: &Action) -> Result<SnapshotContent, Refusal> {
        let found = self.store.snapshot_content(action.agent().clone(), named(action)?).await.map_err(store)?;
        found.ok_or_else(|| Refusal::new(Code::StoreNotFound).with_text("there is no such snapshot"))
    }

    pub(super) async fn foresee_snapshot(&self, verb: SnapshotOperation, action: &Action) -> Result<(), Refusal> {
        match verb {
            SnapshotOperation::Create => Ok(()),
            SnapshotOperation::Load => self.content_of(action).await.map(drop),
        }
    }

    pub(super) async fn list_snapshots(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let found = self.store.snapshots(ask.action.agent().clone()).await.map_err(store)?;
        let entries: Vec<Value> = found
            .iter()
            .map(|one| {
                json!({
                    "snapshot_id": snapshot_id(one.id), "timestamp": one.created_at.to_string(), "items": one.items,
                    "size_bytes": one.size,
                })
            })
            .collect();
        Ok(json!({"count": entries.len(), "snapshots": entries}))
    }

    pub(super) async fn before_snapshot(
        &self,
        verb: SnapshotOperation,
        hold: &Hold,
    ) -> Result<PreparedWrite, WriteError> {
        match verb {
            SnapshotOperation::Create => Ok(PreparedWrite::default()),
            SnapshotOperation::Load => {
                let now = self.store.state_content(hold.agent().clone()).await.map_err(trouble)?;
                let content = serde_json::to_vec(&now).map_err(|_| WriteError::refused(Code::GatewayInternal))?;
                Ok(PreparedWrite { handle: None, before: Some((content, print(&now)?)) })
            }
        }
    }

    pub(super) async fn change_by_snapshot(
        &self,
        verb: SnapshotOperation,
        hold: &Hold,
        id: HoldId,
    ) -> Result<CompletedWrite, WriteError> {
        let agent = hold.agent().clone();
        match verb {
            SnapshotOperation::Create => {
                let made = self.store.make_snapshot(id, agent).await.map_err(trouble)?;
                let result = json!({
                    "snapshot_id": snapshot_id(made.id), "timestamp": made.created_at.to_string(),
                    "items": made.items, "size_bytes": made.size,
                });
                Ok(CompletedWrite { receipt: snapshot_id(made.id), result, after: None, undo_until: None })
            }
            SnapshotOperation::Load => {
                let content = self.content_of(&hold.action).await.map_err(WriteError::Refused)?;
                let after = Some(print(&content)?);
                let changed = self.store.put_state(id, agent, content).await.map_err(trouble)?;
                let (receipt, result) = (format!("{changed} values changed"), json!({"changed": changed}));
                Ok(CompletedWrite { receipt, result, after, undo_until: None })
            }
        }
    }

    /// A fingerprint of all values that an agent keeps for itself.
    pub(super) async fn print_of_all(&self, agent: &AgentName) -> Result<ObjectFingerprint, WriteError> {
        print(&self.store.state_content(agent.clone()).await.map_err(trouble)?)
    }

    pub(super) async fn put_all_back(
        &self,
        permit: Permit,
        done: &Hold,
        before: &[u8],
    ) -> Result<CompletedWrite, WriteError> {
        let broken = |_| WriteError::refused(Code::RollbackNotPossible);
        let content: SnapshotContent = serde_json::from_slice(before).map_err(broken)?;
        let changed = self.store.put_state(permit.hold(), done.agent().clone(), content).await.map_err(trouble)?;
        let (receipt, result) = (format!("{changed} values restored"), json!({"restored": true, "changed": changed}));
        Ok(CompletedWrite { receipt, result, after: None, undo_until: None })
    }
}
