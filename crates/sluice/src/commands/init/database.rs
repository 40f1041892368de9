//! The database of a new gateway: the first agent, its key and task key, and the operator's token.
//!
//! Promise: only hashes of keys go in, and all of it is on record.

use std::path::Path;
use std::sync::Arc;

use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, NodeName, PersonName};
use sluice_gateway::keys::Token;
use sluice_store::{KeyKind, NewKey, Role, Store, StoreError};

use super::Made;
use crate::failure::{Exit, Failure, io_words};
use crate::system::{SystemClock, SystemIds};

/// The one who makes a gateway.
const FIRST_PERSON: &str = "admin";

/// Makes the database.
pub(super) fn found(path: &Path, node: &NodeName, agent: &AgentName, made: &Made) -> Result<(), Failure> {
    let person = PersonName::new(FIRST_PERSON).map_err(|why| Failure::new(Exit::Failed, why.to_string()))?;
    let by = Actor::Operator(person.clone());
    let store = Store::open_file(path, node.clone(), Arc::new(SystemClock)).map_err(of_store)?;
    let key = |kind: KeyKind, token: &Token| NewKey {
        id: KeyId::mint(&SystemIds),
        kind,
        label: Some("made by sluice init".into()),
        hash: token.hash(),
        expires_at: None,
        by: by.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "nothing can be run").why(io_words(&error)))?;
    let founded = runtime.block_on(async {
        store.issue_key(key(KeyKind::Operator(person, Role::Admin), &made.operator)).await?;
        store.add_agent(agent.clone(), "made by sluice init".into(), by.clone()).await?;
        store.issue_key(key(KeyKind::Task(agent.clone()), &made.task)).await?;
        store.issue_key(key(KeyKind::Agent(agent.clone()), &made.agent)).await
    });
    founded.map(drop).map_err(of_store)
}

fn of_store(error: StoreError) -> Failure {
    Failure::new(Exit::Failed, format!("the database could not be made ({})", error.code())).why(error.to_string())
}
