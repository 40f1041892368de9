//! Sight: what of a folder policy lets an agent see.
//!
//! A search or an edit of a folder is judged by the folder it names. Promise: what lies deeper and would be
//! judged more strictly on its own is passed by, as if it were not there, so that a wide call is no way
//! around a narrow rule.

use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_core::policy::{Policy, Question};
use sluice_core::{Action, AgentName, CapabilityName, Tier, Timestamp};

use super::roots::{Place, Scope};

/// What one call may see below its folder.
#[derive(Debug)]
pub(crate) struct Sight {
    policy: Option<Arc<Policy>>,
    agent: AgentName,
    now: Timestamp,
    /// Under which names each thing is judged, and how strictly the folder itself is.
    judged: Vec<(CapabilityName, Tier)>,
}

impl Sight {
    /// Of a call about a folder. Whatever it does, it reads what it finds.
    pub fn of(scope: &Scope, action: &Action, place: &Place, now: Timestamp) -> Self {
        let mut sight = Self { policy: scope.policy(), agent: action.agent().clone(), now, judged: Vec::new() };
        let reads = CapabilityName::new("filesystem.read").ok();
        for name in std::iter::once(action.capability().clone()).chain(reads) {
            // What people are only told about can be passed by no more than what runs unasked.
            let folder = sight.tier(&name, &place.path).raise(Tier::Notify);
            sight.judged.push((name, folder));
        }
        sight
    }

    /// The same by the rules in force now: what they hide since is no longer seen, and a folder that is judged more
    /// strictly than it was shows no more than it did.
    pub fn renewed(&self, scope: &Scope, now: Timestamp) -> Self {
        Self { policy: scope.policy(), now, agent: self.agent.clone(), judged: self.judged.clone() }
    }

    /// Whether something below the folder may be seen.
    pub fn sees(&self, path: &str) -> bool {
        self.judged.iter().all(|(name, folder)| self.tier(name, path) <= *folder)
    }

    fn tier(&self, name: &CapabilityName, path: &str) -> Tier {
        let Some(policy) = &self.policy else { return Tier::Autonomous };
        let mut arguments = Map::new();
        arguments.insert("path".to_owned(), Value::String(path.to_owned()));
        policy.judge(&Question::new(&self.agent, name, &arguments, self.now)).tier
    }
}
