//! `describe`: what this worker can do.

use serde_json::json;
use sluice_sandbox::protocol::Job;

use crate::net::Gate;
use crate::registry::{ALL, Done, Fault, Kind};

/// Lists the kinds.
#[derive(Debug)]
pub(crate) struct Describe;

impl Kind for Describe {
    fn name(&self) -> &'static str {
        "describe"
    }

    fn about(&self) -> &'static str {
        "what this worker can do"
    }

    fn perform(&self, _: Job, _: &mut Gate<'_>) -> Result<Done, Fault> {
        let kinds: Vec<_> = ALL.iter().map(|kind| json!({"kind": kind.name(), "about": kind.about()})).collect();
        let payload = json!({"release": env!("CARGO_PKG_VERSION"), "kinds": kinds});
        Ok(Done { payload, attachments: Vec::new() })
    }
}
