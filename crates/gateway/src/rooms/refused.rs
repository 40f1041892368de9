//! What is kept of a call that the rules refused.
//!
//! Takes the action that was refused; says whether it may be kept. Promise: what is kept is small, and nothing in it is
//! what must not leave: the rules refuse before the leak scan looks, so it looks here. Whoever tries other rules can then
//! see what they would have let through.

use serde_json::Value;
use sluice_content::leak::{Scope, parts_of};
use sluice_core::Action;
use sluice_core::target::{Traced, origins};

use crate::Gateway;

/// The largest action that is kept, in bytes. An agent that is refused a thousand times must not fill the disk.
const LARGEST: usize = 8 << 10;

/// A call that was refused.
pub struct Wanted {
    /// What it would have done.
    pub action: Action,
    /// Where its targets come from, if it has any: `asked, seen`.
    pub origins: Option<String>,
}

/// SECURITY: nobody has looked into it yet, so nobody prints it.
impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("capability", self.action.capability()).finish_non_exhaustive()
    }
}

impl Wanted {
    /// With its targets.
    #[must_use]
    pub fn new(action: Action, targets: &[Traced]) -> Self {
        Self { action, origins: (!targets.is_empty()).then(|| origins(targets).to_string()) }
    }

    /// Whether it may be kept.
    pub(crate) fn may_be_kept(&self, gw: &Gateway) -> bool {
        if self.action.bytes().len() > LARGEST {
            return false;
        }
        let arguments = Value::Object(self.action.arguments().clone());
        let spawn = self.action.spawn().map(|options| Value::Object(options.fields()));
        let mut parts = parts_of("", &arguments);
        parts.extend(spawn.iter().flat_map(|options| parts_of("spawn", options)));
        !gw.scan.scan(&parts, Scope::Service).blocks()
    }
}
