//! Creates the database of a new gateway: the first agent, its key and task key, and the operator's token.
//!
//! Promise: only hashes of keys are stored, and everything is in the audit log.

use std::path::Path;
use std::sync::Arc;

use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, NodeName, PersonName};
use sluice_gateway::keys::KeyToken;
use sluice_store::{AccessKeyKind, IssueKey, OperatorRole, Store, StoreError};

use super::InitialCredentials;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::system::{SystemClock, SystemIds};

/// The name of the first operator.
const FIRST_PERSON: &str = "admin";

/// Where the state is stored.
#[derive(Clone, Copy)]
pub(super) enum InitDatabaseLocation<'a> {
    /// In a file.
    File(&'a Path),
    /// At a PostgreSQL server, by its URL.
    Server(&'a str),
}

/// Creates the database: a new file, or the tables in an empty PostgreSQL database.
pub(super) fn create_database(
    place: InitDatabaseLocation<'_>,
    node: &NodeName,
    agent: &AgentName,
    made: &InitialCredentials,
) -> Result<(), CliError> {
    let person = PersonName::new(FIRST_PERSON).map_err(|why| CliError::new(CommandExit::Failed, why.to_string()))?;
    let by = Actor::Operator(person.clone());
    let store = match place {
        InitDatabaseLocation::File(path) => Store::open_file(path, node.clone(), Arc::new(SystemClock)),
        InitDatabaseLocation::Server(url) => Store::open_server(url, node.clone()),
    };
    let store = store.map_err(of_store)?;
    let key = |kind: AccessKeyKind, token: &KeyToken| IssueKey {
        id: KeyId::mint(&SystemIds),
        kind,
        label: Some("created by sluice init".into()),
        hash: token.hash(),
        expires_at: None,
        by: by.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        CliError::new(CommandExit::Failed, "the runtime cannot be started").why(describe_io_error(&error))
    })?;
    let taken = runtime.block_on(store.keys()).map_err(of_store)?;
    if taken.iter().any(|key| matches!(key.kind, AccessKeyKind::Operator(_, OperatorRole::Admin))) {
        return Err(CliError::new(CommandExit::Conflict, "this database already belongs to a gateway")
            .why("it has an administrator; nothing was created")
            .hint("to add a node, copy sluice.yaml, policies/, data/database.url and data/keys/root.key, and give it another `node:` name: \
                docs/nodes.md"));
    }
    let founded = runtime.block_on(async {
        store.issue_key(key(AccessKeyKind::Operator(person, OperatorRole::Admin), &made.operator)).await?;
        store.add_agent(agent.clone(), "created by sluice init".into(), by.clone()).await?;
        store.issue_key(key(AccessKeyKind::Task(agent.clone()), &made.task)).await?;
        store.issue_key(key(AccessKeyKind::Agent(agent.clone()), &made.agent)).await
    });
    founded.map(drop).map_err(of_store)
}

fn of_store(error: StoreError) -> CliError {
    CliError::new(CommandExit::Failed, format!("the database could not be created ({})", error.code()))
        .why(error.to_string())
}
