//! Tool names: the names of capabilities where dots are not allowed.
//!
//! Takes every capability that the gateway offers; gives one tool name each and the way back. Promise: two capabilities
//! never share a name, none takes the name of a companion tool, and a name does not depend on the agent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use sluice_core::CapabilityName;
use sluice_core::capability::Capability;
use sluice_services::catalogue::LiveCatalogue;

/// Longest tool name: clients add their own prefix, and some models accept no more than 64 characters.
const LONGEST: usize = 50;
/// The prefix of our own tools.
pub(super) const OWN: &str = "sluice_";
pub(super) const STATUS: &str = "sluice_status";
pub(super) const WAIT: &str = "sluice_wait";
pub(super) const CANCEL: &str = "sluice_cancel";
pub(super) const WHOAMI: &str = "sluice_whoami";
pub(super) const APPROVALS: &str = "sluice_approvals";
pub(super) const PERMISSION: &str = "sluice_permission_prompt";
pub(super) const FIND_TOOLS: &str = "sluice_find_tools";
/// The names of all companion tools.
const COMPANIONS: [&str; 7] = [STATUS, WAIT, CANCEL, WHOAMI, APPROVALS, PERMISSION, FIND_TOOLS];

/// All names, in both directions.
#[derive(Debug, Default)]
pub struct ToolNames {
    by_tool: BTreeMap<String, CapabilityName>,
    by_capability: HashMap<CapabilityName, String>,
}

impl ToolNames {
    /// The names of these capabilities.
    pub fn of<'c>(offered: impl Iterator<Item = &'c CapabilityName>) -> Self {
        let mut plain: BTreeMap<String, Vec<&CapabilityName>> = BTreeMap::new();
        for capability in offered {
            plain.entry(plainly(capability)).or_default().push(capability);
        }
        let mut names = Self::default();
        for (name, capabilities) in plain {
            let alone = capabilities.len() == 1 && name.len() <= LONGEST && !name.starts_with(OWN);
            for capability in capabilities {
                let name = if alone { name.clone() } else { marked(&name, capability) };
                names.by_tool.insert(name.clone(), capability.clone());
                names.by_capability.insert(capability.clone(), name);
            }
        }
        names
    }

    /// The capability a tool stands for.
    #[must_use]
    pub fn capability(&self, tool: &str) -> Option<&CapabilityName> {
        self.by_tool.get(tool)
    }

    /// The tool that stands for a capability.
    #[must_use]
    pub fn tool(&self, capability: &CapabilityName) -> Option<&str> {
        self.by_capability.get(capability).map(String::as_str)
    }

    /// Whether the gateway has a tool of this name, a companion or a capability.
    #[must_use]
    pub fn knows(&self, tool: &str) -> bool {
        COMPANIONS.contains(&tool) || self.by_tool.contains_key(tool)
    }

    /// Every tool with its capability, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &CapabilityName)> {
        self.by_tool.iter().map(|(tool, capability)| (tool.as_str(), capability))
    }
}

/// The plain name: dots and colons become underscores.
fn plainly(capability: &CapabilityName) -> String {
    capability.as_str().chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' }).collect()
}

/// The marked name of a capability whose plain name is taken, too long or reserved: it ends in a hash of the
/// capability.
fn marked(name: &str, capability: &CapabilityName) -> String {
    let print = Sha256::digest(capability.as_str().as_bytes());
    let print: String = print.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    // The mark is last, so that no tool name of a mount can look like one of ours.
    let start: String = name.strip_prefix(OWN).map_or_else(|| name.to_owned(), |rest| format!("x_{OWN}{rest}"));
    let start: String = start.chars().take(LONGEST - print.len() - 1).collect();
    format!("{start}_{print}")
}

/// The names of what a gateway offers now: services come and go while it runs.
#[derive(Debug)]
pub struct LiveToolNames {
    catalogue: Arc<LiveCatalogue>,
    kept: Mutex<(Arc<Vec<Capability>>, Arc<ToolNames>)>,
}

impl LiveToolNames {
    /// The names of this catalogue.
    #[must_use]
    pub fn new(catalogue: Arc<LiveCatalogue>) -> Self {
        Self { catalogue, kept: Mutex::default() }
    }

    /// The current names. A name that two capabilities would share after a change means neither of them.
    #[must_use]
    pub fn now(&self) -> Arc<ToolNames> {
        let offered = self.catalogue.offered();
        let mut kept = self.kept.lock();
        if !Arc::ptr_eq(&kept.0, &offered) {
            let names = ToolNames::of(offered.iter().map(|spec| &spec.name));
            *kept = (offered, Arc::new(names));
        }
        Arc::clone(&kept.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(list: &[&str]) -> ToolNames {
        let list: Vec<CapabilityName> = list.iter().map(|name| CapabilityName::new(*name).unwrap()).collect();
        ToolNames::of(list.iter())
    }

    #[test]
    fn dots_become_underscores_and_lead_back() {
        let names = names(&["email.send", "state.shared.set"]);
        assert_eq!(names.tool(&CapabilityName::new("email.send").unwrap()), Some("email_send"));
        assert_eq!(names.capability("state_shared_set").unwrap().as_str(), "state.shared.set");
        assert!(names.capability("email.send").is_none());
    }

    #[test]
    fn two_capabilities_that_would_share_a_name_get_one_each() {
        let names = names(&["a.b_c", "a_b.c", "a.b.c"]);
        let tools: Vec<&str> = names.iter().map(|(tool, _)| tool).collect();
        assert_eq!(tools.len(), 3);
        assert!(tools.iter().all(|tool| tool.starts_with("a_b_c_")), "{tools:?}");
        assert!(names.capability("a_b_c").is_none(), "the bare name means none of them");
    }

    #[test]
    fn only_tools_that_exist_are_known() {
        let names = names(&["email.send"]);
        assert!(names.knows("email_send") && names.knows("sluice_wait"));
        assert!(!names.knows("evil__run") && !names.knows("sluice_evil") && !names.knows("email.send"));
    }

    #[test]
    fn no_capability_takes_the_name_of_a_companion_tool() {
        let names = names(&["sluice.status", "sluice.cancel"]);
        assert!(names.iter().all(|(tool, _)| !tool.starts_with(OWN)));
        assert_eq!(names.iter().count(), 2);
    }

    proptest! {
        #[test]
        fn every_capability_has_its_own_name_and_comes_back(list in proptest::collection::btree_set("[a-c_]{1,3}(\\.[a-c_]{1,40}){0,3}", 0..40)) {
            let list: Vec<CapabilityName> = list.iter().filter_map(|name| CapabilityName::new(name.as_str()).ok()).collect();
            let names = ToolNames::of(list.iter());
            for capability in &list {
                let tool = names.tool(capability).unwrap();
                prop_assert!(tool.len() <= LONGEST);
                prop_assert_eq!(names.capability(tool), Some(capability));
            }
        }
    }
}
