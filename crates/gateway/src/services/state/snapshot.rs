//! Snapshots of what an agent keeps for itself: made, listed and put back.
//!
//! Promise: putting one back touches the agent's own values only, leaves their older versions readable, and can itself be
//! taken back as long as the agent wrote nothing since.

use serde_json::{Value, json};
use sluice_core::hold::{Hold, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, AgentName, CapabilityName, HoldId};
use sluice_store::SnapshotContent;

use super::super::{Ask, Performed, Prepared, Trouble};
use super::{State, store, trouble};

const PREFIX: &str = "snap_";

/// A write of this service that is about a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SnapshotVerb {
    /// Makes one.
    Create,
    /// Puts one back.
    Load,
}

impl SnapshotVerb {
    /// What a capability does with snapshots, if it writes one or by one.
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

fn print(content: &SnapshotContent) -> Result<Fingerprint, Trouble> {
    let text = serde_json::to_vec(content).map_err(|_| Trouble::refused(Code::GatewayInternal))?;
    Ok(Fingerprint::of(&text))
}

impl State {
    async fn content_of(&self, action: &Action) -> Result<SnapshotContent, Refusal> {
        let found = self.store.snapshot_content(action.agent().clone(), named(action)?).await.map_err(store)?;
        found.ok_or_else(|| Refusal::new(Code::StoreNotFound).with_text("there is no such snapshot"))
    }

    pub(super) async fn foresee_snapshot(&self, verb: SnapshotVerb, action: &Action) -> Result<(), Refusal> {
        match verb {
            SnapshotVerb::Create => Ok(()),
            SnapshotVerb::Load => self.content_of(action).await.map(drop),
        }
    }

    pub(super) async fn list_snapshots(&self, ask: &Ask) -> Result<Value, Refusal> {
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

    pub(super) async fn before_snapshot(&self, verb: SnapshotVerb, hold: &Hold) -> Result<Prepared, Trouble> {
        match verb {
            SnapshotVerb::Create => Ok(Prepared::default()),
            SnapshotVerb::Load => {
                let now = self.store.state_content(hold.agent().clone()).await.map_err(trouble)?;
                let content = serde_json::to_vec(&now).map_err(|_| Trouble::refused(Code::GatewayInternal))?;
                Ok(Prepared { handle: None, before: Some((content, print(&now)?)) })
            }
        }
    }

    pub(super) async fn change_by_snapshot(
        &self,
        verb: SnapshotVerb,
        hold: &Hold,
        id: HoldId,
    ) -> Result<Performed, Trouble> {
        let agent = hold.agent().clone();
        match verb {
            SnapshotVerb::Create => {
                let made = self.store.make_snapshot(id, agent).await.map_err(trouble)?;
                let result = json!({
                    "snapshot_id": snapshot_id(made.id), "timestamp": made.created_at.to_string(),
                    "items": made.items, "size_bytes": made.size,
                });
                Ok(Performed { receipt: snapshot_id(made.id), result, after: None, undo_until: None })
            }
            SnapshotVerb::Load => {
                let content = self.content_of(&hold.action).await.map_err(Trouble::Refused)?;
                let after = Some(print(&content)?);
                let changed = self.store.put_state(id, agent, content).await.map_err(trouble)?;
                let (receipt, result) = (format!("{changed} values changed"), json!({"changed": changed}));
                Ok(Performed { receipt, result, after, undo_until: None })
            }
        }
    }

    /// A print of everything an agent keeps for itself.
    pub(super) async fn print_of_all(&self, agent: &AgentName) -> Result<Fingerprint, Trouble> {
        print(&self.store.state_content(agent.clone()).await.map_err(trouble)?)
    }

    pub(super) async fn put_all_back(&self, permit: Permit, done: &Hold, before: &[u8]) -> Result<Performed, Trouble> {
        let broken = |_| Trouble::refused(Code::RollbackNotPossible);
        let content: SnapshotContent = serde_json::from_slice(before).map_err(broken)?;
        let changed = self.store.put_state(permit.hold(), done.agent().clone(), content).await.map_err(trouble)?;
        let (receipt, result) = (format!("{changed} values put back"), json!({"restored": true, "changed": changed}));
        Ok(Performed { receipt, result, after: None, undo_until: None })
    }
}
