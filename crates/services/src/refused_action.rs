//! Refused calls: decides what is kept of a call that the rules refused.
//!
//! Takes the refused action; says whether it may be kept. Promise: a kept action is small and holds nothing that must
//! not leave. The rules refuse before the leak scan runs, so this file scans. Kept actions let an operator see which of
//! them other rules would have allowed.

use serde_json::Value;
use sluice_content::leak::{LeakScope, parts_of};
use sluice_core::Action;
use sluice_core::target::{TracedTarget, origins};

use sluice_egress::leak::LeakScanner;

/// The largest action that is kept, in bytes. An agent with a thousand refused calls must not fill the disk.
const LARGEST: usize = 8 << 10;

/// A refused call.
pub struct RefusedAction {
    /// The action.
    pub action: Action,
    /// The origins of its targets, if it has any: `asked, seen`.
    pub origins: Option<String>,
}

/// SECURITY: the action has not been scanned yet, so it must not be printed.
impl std::fmt::Debug for RefusedAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RefusedAction").field("capability", self.action.capability()).finish_non_exhaustive()
    }
}

impl RefusedAction {
    /// Builds one from an action and its targets.
    #[must_use]
    pub fn new(action: Action, targets: &[TracedTarget]) -> Self {
        Self { action, origins: (!targets.is_empty()).then(|| origins(targets).to_string()) }
    }

    /// Whether the action may be kept.
    pub fn may_be_kept(&self, scan: &dyn LeakScanner) -> bool {
        if self.action.bytes().len() > LARGEST {
            return false;
        }
        let arguments = Value::Object(self.action.arguments().clone());
        let spawn = self.action.spawn().map(|options| Value::Object(options.fields()));
        let mut parts = parts_of("", &arguments);
        parts.extend(spawn.iter().flat_map(|options| parts_of("spawn", options)));
        !scan.scan(&parts, LeakScope::Service).blocks()
    }
}
