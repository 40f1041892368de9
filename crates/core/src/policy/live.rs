//! The policy in force, and how it is replaced while calls are judged.
//!
//! Takes new sources; serves either all of the new or all of the old. Promise: files that do not
//! load, or that fail their own tests, change nothing.

use std::sync::Arc;

use parking_lot::RwLock;

use super::fault::FileFault;
use super::{LoadedPolicy, Policy, PolicyLoadError, PolicySources, PolicyTestOutcome};
use crate::capability::Catalogue;

/// The policy in force.
#[derive(Debug)]
pub struct LivePolicy {
    current: RwLock<Arc<Policy>>,
}

impl LivePolicy {
    /// Starts with these files.
    ///
    /// # Errors
    /// When they do not load or fail their own tests.
    pub fn new(sources: &PolicySources, catalogue: &Arc<Catalogue>) -> Result<(Self, Vec<FileFault>), PolicyLoadError> {
        let LoadedPolicy { policy, warnings } = verified(sources, catalogue)?;
        Ok((Self { current: RwLock::new(policy) }, warnings))
    }

    /// The policy in force now. A caller keeps it for the whole call.
    #[must_use]
    pub fn get(&self) -> Arc<Policy> {
        // Nothing panics while the lock is held for writing: it only swaps a pointer.
        Arc::clone(&self.current.read())
    }

    /// Loads, verifies and swaps. On error the old policy stays in force.
    ///
    /// # Errors
    /// When the new files do not load or fail their own tests.
    pub fn replace(
        &self,
        sources: &PolicySources,
        catalogue: &Arc<Catalogue>,
    ) -> Result<LoadedPolicy, PolicyLoadError> {
        let loaded = verified(sources, catalogue)?;
        *self.current.write() = Arc::clone(&loaded.policy);
        Ok(loaded)
    }
}

/// Loads and runs the tests of the files.
fn verified(sources: &PolicySources, catalogue: &Arc<Catalogue>) -> Result<LoadedPolicy, PolicyLoadError> {
    let loaded = Policy::load(sources, catalogue)?;
    let mut faults: Vec<FileFault> =
        loaded.policy.test().iter().filter(|outcome| !outcome.passed).map(PolicyTestOutcome::as_fault).collect();
    if faults.is_empty() {
        return Ok(loaded);
    }
    faults.extend(loaded.warnings);
    Err(PolicyLoadError { faults })
}

impl PolicyTestOutcome {
    /// A failed test as a problem of its file.
    #[must_use]
    pub fn as_fault(&self) -> FileFault {
        let message =
            format!("a test fails: {} for {} is {}, not {}", self.capability, self.agent, self.got, self.expected);
        let mut fault = FileFault::of_file("policy.test", self.file.clone(), message);
        fault.place = self.place;
        let by = self.decided_by.as_deref().unwrap_or("the default");
        match &self.expected_rule {
            Some(expected) => fault.why(format!("{by} decided (`{}`), the test wants `{expected}`", self.got_rule)),
            None => fault.why(format!("{by} decided")),
        };
        fault
    }
}
