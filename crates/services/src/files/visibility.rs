//! Sight: the part of a folder that policy lets an agent see.
//!
//! A search or an edit of a folder is judged by the folder it names. Promise: an entry inside it that would be judged
//! more strictly on its own is skipped, as if it did not exist, so that a wide call cannot bypass a narrow rule.

use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_core::policy::{Policy, PolicyInput};
use sluice_core::{Action, AgentName, CapabilityName, Tier, UtcMillis};

use super::roots::{OpenedRoots, RootedPath};

/// What one call may see inside its folder.
#[derive(Debug)]
pub struct FolderVisibility {
    policy: Option<Arc<Policy>>,
    agent: AgentName,
    now: UtcMillis,
    /// The names under which each entry is judged, and the tier of the folder itself.
    judged: Vec<(CapabilityName, Tier)>,
}

impl FolderVisibility {
    /// The sight of a call about a folder. Whatever the call does, it reads what it finds.
    pub fn of(scope: &OpenedRoots, action: &Action, place: &RootedPath, now: UtcMillis) -> Self {
        let mut sight = Self { policy: scope.policy(), agent: action.agent().clone(), now, judged: Vec::new() };
        let reads = CapabilityName::new("filesystem.read").ok();
        for name in std::iter::once(action.capability().clone()).chain(reads) {
            // A notice to people does not hide entries: up to that tier everything runs without asking.
            let folder = sight.tier(&name, &place.path).raise(Tier::Notify);
            sight.judged.push((name, folder));
        }
        sight
    }

    /// The same by the rules in force now: entries that they hide since are no longer seen, and a folder that is now
    /// judged more strictly shows no more than before.
    pub fn renewed(&self, scope: &OpenedRoots, now: UtcMillis) -> Self {
        Self { policy: scope.policy(), now, agent: self.agent.clone(), judged: self.judged.clone() }
    }

    /// Whether an entry inside the folder may be seen.
    pub fn sees(&self, path: &str) -> bool {
        self.judged.iter().all(|(name, folder)| self.tier(name, path) <= *folder)
    }

    fn tier(&self, name: &CapabilityName, path: &str) -> Tier {
        let Some(policy) = &self.policy else { return Tier::Autonomous };
        let mut arguments = Map::new();
        arguments.insert("path".to_owned(), Value::String(path.to_owned()));
        policy.judge(&PolicyInput::new(&self.agent, name, &arguments, self.now)).tier
    }
}
