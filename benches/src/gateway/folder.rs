//! A gateway's folder: configuration, rules, an agent and an operator, on one of the engines.

use std::path::Path;
use std::sync::Arc;

use sluice_core::ids::KeyId;
use sluice_core::{Actor, AgentName, Clock, Millis, NodeName, PersonName, UtcMillis};
use sluice_gateway::keys::{KeyToken, TokenKind};
use sluice_store::{AccessKeyKind, IssueKey, OperatorRole, Store};
use sluice_testkit::postgres::TestDatabase;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::server::{RealEntropy, RealIds};
use crate::load::{self, WallClock};
use crate::machine;

/// Where rows are stored.
pub enum BenchEngine {
    /// In a file; the folder belongs to the floor.
    File(TempDir),
    /// On a server; one database for us, one for the floor.
    Server(TestDatabase, TestDatabase),
}

impl BenchEngine {
    /// SQLite.
    pub fn file() -> anyhow::Result<Self> {
        Ok(Self::File(load::folder()?))
    }

    /// PostgreSQL, if there is a server.
    pub fn server() -> Option<Self> {
        machine::server()?;
        Some(Self::Server(TestDatabase::fresh()?, TestDatabase::fresh()?))
    }

    pub fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// The name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "SQLite",
            Self::Server(..) => "PostgreSQL",
        }
    }

    /// The argument for the floor: a file or an address.
    pub fn floor(&self) -> String {
        match self {
            Self::File(folder) => folder.path().join("floor.db").display().to_string(),
            Self::Server(_, floor) => floor.url().to_owned(),
        }
    }
}

/// One gateway's folder.
pub struct GatewayFolder {
    folder: TempDir,
    agent_key: String,
    operator_token: String,
}

/// A stopped clock: everything that is admitted with it is due at one instant.
#[derive(Debug, Clone, Copy)]
pub struct FixedClock(pub UtcMillis);

impl Clock for FixedClock {
    fn now(&self) -> UtcMillis {
        self.0
    }

    fn since_boot(&self) -> Millis {
        Millis::ZERO
    }
}

impl GatewayFolder {
    /// Creates the folder, with one agent and one operator.
    pub fn new(runtime: &Runtime, engine: &BenchEngine) -> anyhow::Result<Self> {
        Self::with(runtime, engine, "")
    }

    /// The same with more lines of configuration.
    pub fn with(runtime: &Runtime, engine: &BenchEngine, more: &str) -> anyhow::Result<Self> {
        let folder = load::folder()?;
        let root = folder.path();
        std::fs::create_dir_all(root.join("policies/agents"))?;
        std::fs::create_dir_all(root.join("data"))?;
        std::fs::write(root.join("policies/org.yaml"), "defaults: {tier: approval_required}\n")?;
        std::fs::write(
            root.join("policies/agents/clerk.yaml"),
            "rules:\n  - {capability: \"filesystem.*\", tier: blocked}\n  - {capability: alerts.send, tier: autonomous, \
             conditions: {severity_in: [info, warning]}}\n  - {capability: \"state.*\", tier: autonomous}\n",
        )?;
        let database = match engine {
            BenchEngine::File(_) => String::new(),
            BenchEngine::Server(ours, _) => format!("database: {{url: \"{}\"}}\n", ours.url()),
        };
        let config = format!(
            "node: bench\nlisten: 127.0.0.1:0\nstop_listen: 127.0.0.1:0\ndata: data\npolicies: policies\nlog: {{level: error}}\n\
             disk: {{low: 1MB/0%, stop: 1MB/0%}}\nholds: {{delays: {{\"alerts.*\": 1h}}}}\n\
             batch: {{services: {{alerts: {{limit: 1000000}}}}}}\n{database}{more}"
        );
        std::fs::write(root.join("sluice.yaml"), config)?;
        let store = match engine {
            BenchEngine::File(_) => Self::store_at(root, Arc::new(WallClock))?,
            BenchEngine::Server(ours, _) => Store::open_server(ours.url(), NodeName::new("bench")?)?,
        };
        let (agent_key, operator_token) = runtime.block_on(async {
            store.add_agent(clerk()?, "asks much".into(), ana()?).await?;
            let agent = key(&store, AccessKeyKind::Agent(clerk()?), TokenKind::Agent).await?;
            let admin = AccessKeyKind::Operator(PersonName::new("ana")?, OperatorRole::Admin);
            anyhow::Ok((agent, key(&store, admin, TokenKind::Operator).await?))
        })?;
        Ok(Self { folder, agent_key, operator_token })
    }

    /// Adds another agent, before the gateway is started. Gives its key.
    pub fn another(&self, runtime: &Runtime, name: &str) -> anyhow::Result<String> {
        let store = Self::store_at(self.path(), Arc::new(WallClock))?;
        runtime.block_on(async {
            store.add_agent(AgentName::new(name)?, String::new(), ana()?).await?;
            key(&store, AccessKeyKind::Agent(AgentName::new(name)?), TokenKind::Agent).await
        })
    }

    /// Opens the store in such a folder, with this clock. One process at a time.
    pub fn store_at(root: &Path, clock: Arc<dyn Clock>) -> anyhow::Result<Store> {
        Ok(Store::open_file(&root.join("data/sluice.db"), NodeName::new("bench")?, clock)?)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn agent_key(&self) -> &str {
        &self.agent_key
    }

    pub fn operator_token(&self) -> &str {
        &self.operator_token
    }
}

pub fn clerk() -> anyhow::Result<AgentName> {
    Ok(AgentName::new("clerk")?)
}

fn ana() -> anyhow::Result<Actor> {
    Ok(Actor::Operator(PersonName::new("ana")?))
}

async fn key(store: &Store, kind: AccessKeyKind, word: TokenKind) -> anyhow::Result<String> {
    let token = KeyToken::generate(word, &RealEntropy);
    let id = KeyId::mint(&RealIds);
    store.issue_key(IssueKey { id, kind, label: None, hash: token.hash(), expires_at: None, by: ana()? }).await?;
    Ok(token.expose().to_owned())
}
