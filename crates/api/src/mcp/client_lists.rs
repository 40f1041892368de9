//! The lists of tools that clients have: which list each was given last, and which tools it has found.
//!
//! Takes the name of a conversation; keeps its last list as a fingerprint, and the capabilities that a search found.
//! Promise: a bounded number of conversations is kept, in memory only; what is forgotten makes a list shorter or a
//! notification superfluous, and changes nothing about what a call may do.

use std::collections::{BTreeSet, HashMap, VecDeque};

use parking_lot::Mutex;
use sluice_core::{CapabilityName, UtcMillis};

/// How many conversations are kept.
const KEPT: usize = 2_048;
/// Most tools that one conversation can add to its list.
const FOUND: usize = 100;

/// A fingerprint of a list of tools.
pub(super) type ToolListFingerprint = [u8; 32];

/// What is kept of one conversation.
#[derive(Debug, Default, Clone)]
struct ClientToolList {
    found: BTreeSet<CapabilityName>,
    listed: Option<ToolListFingerprint>,
}

/// The lists of all conversations.
#[derive(Debug)]
pub(super) struct ClientToolLists {
    /// When this program began to keep them: it knows nothing of lists that were given before.
    since: UtcMillis,
    kept: Mutex<KeptToolLists>,
}

#[derive(Debug, Default)]
struct KeptToolLists {
    by_owner: HashMap<String, ClientToolList>,
    order: VecDeque<String>,
}

impl KeptToolLists {
    fn entry(&mut self, owner: &str) -> &mut ClientToolList {
        if !self.by_owner.contains_key(owner) {
            self.order.push_back(owner.to_owned());
            while self.order.len() > KEPT {
                if let Some(oldest) = self.order.pop_front() {
                    self.by_owner.remove(&oldest);
                }
            }
        }
        self.by_owner.entry(owner.to_owned()).or_default()
    }
}

impl ClientToolLists {
    /// Keeps lists from now on.
    pub fn new(since: UtcMillis) -> Self {
        Self { since, kept: Mutex::default() }
    }

    /// Whether a conversation that began at this time may have a list that is not known here.
    pub fn may_have_forgotten(&self, opened_at: UtcMillis) -> bool {
        opened_at < self.since
    }

    /// The capabilities that this conversation has found.
    pub fn found(&self, owner: &str) -> BTreeSet<CapabilityName> {
        self.kept.lock().by_owner.get(owner).map(|list| list.found.clone()).unwrap_or_default()
    }

    /// Adds capabilities to the list of this conversation. Returns whether its list grew.
    pub fn add_found(&self, owner: &str, names: impl IntoIterator<Item = CapabilityName>) -> bool {
        let mut kept = self.kept.lock();
        let found = &mut kept.entry(owner).found;
        let before = found.len();
        for name in names {
            if found.len() < FOUND {
                found.insert(name);
            }
        }
        found.len() > before
    }

    /// Notes the list that this conversation was given.
    pub fn note_listed(&self, owner: &str, print: ToolListFingerprint) {
        self.kept.lock().entry(owner).listed = Some(print);
    }

    /// The list that this conversation was given last, if it is still known.
    pub fn listed(&self, owner: &str) -> Option<ToolListFingerprint> {
        self.kept.lock().by_owner.get(owner).and_then(|list| list.listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> CapabilityName {
        CapabilityName::new(text).unwrap()
    }

    #[test]
    fn a_conversation_keeps_what_it_found_and_no_other_sees_it() {
        let lists = ClientToolLists::new(UtcMillis::from_millis(5));
        assert!(lists.add_found("a", [name("git.log")]));
        assert!(!lists.add_found("a", [name("git.log")]), "nothing new");
        lists.note_listed("a", [1; 32]);
        assert_eq!((lists.found("a").len(), lists.found("b").len()), (1, 0));
        assert_eq!((lists.listed("a"), lists.listed("b")), (Some([1; 32]), None));
        let older = [4, 5].map(|millis| lists.may_have_forgotten(UtcMillis::from_millis(millis)));
        assert_eq!(older, [true, false]);
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let lists = ClientToolLists::new(UtcMillis::from_millis(5));
        lists.add_found("greedy", (0..1_000).map(|n| name(&format!("a.b{n}"))));
        assert_eq!(lists.found("greedy").len(), FOUND);
        for n in 0..KEPT {
            lists.note_listed(&n.to_string(), [0; 32]);
        }
        assert!(lists.found("greedy").is_empty(), "the oldest is forgotten");
        assert_eq!(lists.listed("0"), Some([0; 32]));
    }
}
