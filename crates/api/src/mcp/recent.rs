//! Calls that a client has named: a call that is repeated under the same name is answered, not made again.
//!
//! Takes the client's own name for a call and its arguments; gives the call that was first made under it. Promise: a
//! name counts only for the same agent and the same arguments. The latest few thousand names are kept in memory, so
//! that an accepted call is not judged anew; beyond that, the store keeps the names of writes for 30 days.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::{AgentName, CallId};

/// How many names are kept in memory.
const KEPT: usize = 4096;

/// The names that are kept in memory.
#[derive(Debug, Default)]
pub(super) struct RecentCalls {
    kept: Mutex<RememberedCalls>,
}

#[derive(Debug, Default)]
struct RememberedCalls {
    calls: HashMap<[u8; 32], CallId>,
    order: VecDeque<[u8; 32]>,
}

/// A fingerprint of agent, name, tool and arguments.
pub(super) fn fingerprint(agent: &AgentName, name: &str, tool: &str, arguments: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [agent.as_str(), name, tool, &arguments.to_string()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

impl RecentCalls {
    /// The earlier call with this fingerprint.
    pub fn find(&self, print: &[u8; 32]) -> Option<CallId> {
        self.kept.lock().calls.get(print).copied()
    }

    /// Remembers a call; drops the oldest one.
    pub fn keep(&self, print: [u8; 32], call: CallId) {
        let mut kept = self.kept.lock();
        if kept.calls.insert(print, call).is_none() {
            kept.order.push_back(print);
        }
        while kept.order.len() > KEPT {
            if let Some(oldest) = kept.order.pop_front() {
                kept.calls.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_for_one_agent_and_the_same_arguments() {
        let [clerk, maid] = ["clerk", "maid"].map(|name| AgentName::new(name).unwrap());
        let recent = RecentCalls::default();
        let first = fingerprint(&clerk, "1", "a", &serde_json::json!({"x": 1}));
        recent.keep(first, CallId::from_bits(1));
        assert_eq!(recent.find(&first), Some(CallId::from_bits(1)));
        for other in [
            fingerprint(&maid, "1", "a", &serde_json::json!({"x": 1})),
            fingerprint(&clerk, "2", "a", &serde_json::json!({"x": 1})),
            fingerprint(&clerk, "1", "a", &serde_json::json!({"x": 2})),
        ] {
            assert_eq!(recent.find(&other), None);
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let recent = RecentCalls::default();
        let clerk = AgentName::new("clerk").unwrap();
        let prints: Vec<_> = (0..=KEPT).map(|n| fingerprint(&clerk, &n.to_string(), "a", &Value::Null)).collect();
        for (n, print) in prints.iter().enumerate() {
            recent.keep(*print, CallId::from_bits(n as u128));
        }
        assert_eq!(
            (recent.find(&prints[0]), recent.find(&prints[KEPT])),
            (None, Some(CallId::from_bits(KEPT as u128)))
        );
    }
}
