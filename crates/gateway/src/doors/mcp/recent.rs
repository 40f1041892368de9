//! Calls a client has named: made again under the same name, a call is answered, not made.
//!
//! Takes the client's own name for a call and what it asked; gives the call it was the first time. Promise: a name is
//! only good for the same agent and the same arguments. Names are kept in memory, the latest few thousand, so that a call
//! that was accepted is not judged anew; behind them stands the store, which keeps the names of writes for 30 days.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_core::{AgentName, CallId};

/// How many are remembered.
const KEPT: usize = 4096;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Recent {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    calls: HashMap<[u8; 32], CallId>,
    order: VecDeque<[u8; 32]>,
}

/// A print of who asked what under which name.
pub(super) fn print(agent: &AgentName, name: &str, tool: &str, arguments: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [agent.as_str(), name, tool, &arguments.to_string()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

impl Recent {
    /// The call this was before.
    pub fn find(&self, print: &[u8; 32]) -> Option<CallId> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).calls.get(print).copied()
    }

    /// Remembers a call; forgets the oldest.
    pub fn keep(&self, print: [u8; 32], call: CallId) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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
        let recent = Recent::default();
        let first = print(&clerk, "1", "a", &serde_json::json!({"x": 1}));
        recent.keep(first, CallId::from_bits(1));
        assert_eq!(recent.find(&first), Some(CallId::from_bits(1)));
        for other in [
            print(&maid, "1", "a", &serde_json::json!({"x": 1})),
            print(&clerk, "2", "a", &serde_json::json!({"x": 1})),
            print(&clerk, "1", "a", &serde_json::json!({"x": 2})),
        ] {
            assert_eq!(recent.find(&other), None);
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let recent = Recent::default();
        let clerk = AgentName::new("clerk").unwrap();
        let prints: Vec<_> = (0..=KEPT).map(|n| print(&clerk, &n.to_string(), "a", &Value::Null)).collect();
        for (n, print) in prints.iter().enumerate() {
            recent.keep(*print, CallId::from_bits(n as u128));
        }
        assert_eq!(
            (recent.find(&prints[0]), recent.find(&prints[KEPT])),
            (None, Some(CallId::from_bits(KEPT as u128)))
        );
    }
}
