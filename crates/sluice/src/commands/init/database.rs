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

/// Where the state is kept.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// In a file.
    File(&'a Path),
    /// At a PostgreSQL server, by its URL.
    Server(&'a str),
}

/// Makes the database: a new file, or the tables of an empty PostgreSQL database.
pub(super) fn found(place: Place<'_>, node: &NodeName, agent: &AgentName, made: &Made) -> Result<(), Failure> {
    let person = PersonName::new(FIRST_PERSON).map_err(|why| Failure::new(Exit::Failed, why.to_string()))?;
    let by = Actor::Operator(person.clone());
    let store = match place {
        Place::File(path) => Store::open_file(path, node.clone(), Arc::new(SystemClock)),
        Place::Server(url) => Store::open_server(url, node.clone()),
    };
    let store = store.map_err(of_store)?;
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
    let taken = runtime.block_on(store.keys()).map_err(of_store)?;
    if taken.iter().any(|key| matches!(key.kind, KeyKind::Operator(_, Role::Admin))) {
        return Err(Failure::new(Exit::Conflict, "this database already belongs to a gateway")
            .why("it has an administrator; nothing was made")
            .hint("to add a node, copy sluice.yaml, policies/, data/database.url and data/keys/root.key, and give it another `node:` name: \
                docs/nodes.md"));
    }
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
