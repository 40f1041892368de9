//! The kinds of job a worker can do.
//!
//! A new kind (an adapter's sync or write, say) is a type with [`Kind`] and a line
//! in [`ALL`]; neither the sandbox nor the protocol changes.

use serde_json::Value;
use sluice_sandbox::protocol::Job;

use crate::adapter::{AdapterDescribe, AdapterRun};
use crate::clean::{Cleaning, Reading};
use crate::definitions::Definitions;
use crate::describe::Describe;
use crate::echo::Echo;
use crate::net::Gate;
use crate::proxy::ProxyRun;
use crate::reply::ReplyRead;

/// Every kind, by name.
pub const ALL: &[&dyn Kind] =
    &[&Describe, &Echo, &Cleaning, &Reading, &Definitions, &ProxyRun, &AdapterDescribe, &AdapterRun, &ReplyRead];

/// One kind of job.
pub trait Kind: Sync {
    /// Its name: `content.clean`.
    fn name(&self) -> &'static str;
    /// What it does, in one line.
    fn about(&self) -> &'static str;
    /// Does it.
    ///
    /// # Errors
    /// It could not be done for a reason that was foreseen. What was not foreseen may panic: the gateway sees
    /// a worker that broke, and where.
    fn perform(&self, job: Job, gate: &mut Gate<'_>) -> Result<Done, Fault>;
}

/// What a kind gives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Done {
    /// As the kind says.
    pub payload: Value,
    /// Bytes that belong to it.
    pub attachments: Vec<Vec<u8>>,
}

/// Why a kind did not do its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Stable code.
    pub code: &'static str,
    /// Safe to show: nothing of what was read.
    pub text: String,
}

/// The kind of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Kind> {
    ALL.iter().copied().find(|kind| kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_own_name() {
        for kind in ALL {
            let found = find(kind.name()).map(Kind::about);
            assert_eq!(found, Some(kind.about()), "two kinds have the name {}", kind.name());
            let job = Job { kind: kind.name().into(), payload: Value::Null, attachments: Vec::new() };
            assert!(job.has_a_kind(), "{}", kind.name());
        }
        assert!(find("sh").is_none());
    }
}
