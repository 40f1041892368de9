//! Start check: whether this is the database that this gateway last wrote to.
//!
//! Takes the configuration and an open store; gives the recovery state of this node. Promise: the start is noted in the
//! state file before the database counts it, and confirmed there before anything is served, so that a crash at any
//! point can be told apart from a restore. A suspected database is frozen before anything else reads it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_config::Config;
use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::ids::MessageId;
use sluice_core::recovery::{
    DatabaseFacts, DatabaseSuspicion, FORM, GatewayState, LoadedStateFile, LogMark, RecoveryFinding,
    RecoveryFindingKind, SignedMark, StartupDecision, StartupFacts, judge,
};
use sluice_core::{Actor, GatewayDeps, NodeName, hex};
use sluice_store::{MessageSeverity, OutboxMessage, Store};

use super::{RecoveryFiles, RecoveryMemory, freeze, marks, place, remembered, state_file};
use crate::OpenError;

/// Checks the database and takes it over, or freezes it. `key_is_new` says that the data folder was just created.
///
/// # Errors
/// When the state file or the database cannot be read or written.
pub async fn open(
    config: &Config,
    store: &Arc<Store>,
    world: &GatewayDeps,
    key_is_new: bool,
) -> Result<RecoveryMemory, OpenError> {
    let files = files(config)?;
    let found = state_file::read(&files.state);
    let own = store.own_logs();
    let (facts, node) = facts(store, &found, &own).await?;
    let around = StartupFacts {
        missing_checkpoints: missing_checkpoints(store, &files, &found, &own).await?,
        own_logs: own.clone(),
        key_is_new,
    };
    let start = RecoveryStart { files, own, node, store, world };
    let judgement = judge(&found, &facts, &around);
    if !matches!(judgement, StartupDecision::Suspect(_)) {
        start.name_for_next_time(config);
    }
    match judgement {
        StartupDecision::Suspect(findings) => {
            let findings = findings.into_iter().map(|finding| start.with_place(finding)).collect();
            start.distrust(found, &facts, findings).await
        }
        StartupDecision::Found => start.begin(found, facts, None).await,
        StartupDecision::Adopt => start.begin(found, facts, Some("recovery.adopted")).await,
        StartupDecision::Join => start.begin(LoadedStateFile::Nothing, facts, Some("recovery.joined")).await,
        StartupDecision::Continue => start.begin(found, facts, None).await,
        StartupDecision::Replace => start.replace(&found, facts).await,
    }
}

/// The paths of the files. If no other folder can be written, they lie in the data folder.
fn files(config: &Config) -> Result<RecoveryFiles, OpenError> {
    let refuse = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| OpenError::Folder { path, why: error.to_string() }
    };
    let mut files = RecoveryFiles {
        state: config.state_file.clone(),
        checkpoints: config.checkpoints_file.clone(),
        in_data: false,
    };
    let made = state_file::make_folder(&files.state);
    if let (Err(error), None) = (&made, &config.recovery.state_file) {
        let inside: PathBuf = config.data.join("recovery").join("state.json");
        tracing::warn!(
            "`{}` cannot be created ({error}); the state file lies in the data folder, so a restored copy of the whole \
             folder is not noticed: set `recovery.state_file`",
            files.state.display()
        );
        files.checkpoints = config.recovery.checkpoints_file.clone().unwrap_or(inside.with_file_name("checkpoints"));
        files.state = inside;
        state_file::make_folder(&files.state).map_err(refuse(&files.state))?;
    } else {
        made.map_err(refuse(&files.state))?;
    }
    state_file::make_folder(&files.checkpoints).map_err(refuse(&files.checkpoints))?;
    files.in_data = files.state.starts_with(&config.data);
    Ok(files)
}

/// The database's answer about the remembered state, and the node of that state.
async fn facts(
    store: &Store,
    found: &LoadedStateFile,
    own: &[NodeName],
) -> Result<(DatabaseFacts, NodeName), OpenError> {
    let (node, logs) = match found {
        LoadedStateFile::State(state) => {
            let logs = state.logs.keys().map(|log| (log.clone(), remembered(state, log)));
            (state.node.clone(), logs.collect())
        }
        LoadedStateFile::Nothing | LoadedStateFile::Unreadable(_) => (store.node().clone(), BTreeMap::new()),
    };
    let mut facts = store.recovery_facts(node.clone(), logs).await?;
    for log in own {
        let damage = store.tail_damage(log.clone()).await?;
        if let Some(there) = facts.logs.get_mut(log) {
            there.damage = damage;
        }
    }
    Ok((facts, node))
}

/// Checkpoints of this node in the checkpoints file that the database does not have.
async fn missing_checkpoints(
    store: &Store,
    files: &RecoveryFiles,
    found: &LoadedStateFile,
    own: &[NodeName],
) -> Result<Vec<(NodeName, u64)>, OpenError> {
    let (from, length) = match found {
        LoadedStateFile::State(state) => (state.checkpoints_from, state.checkpoints_length),
        // Without a state file it is unknown which checkpoints were given up; its absence is a finding of its own.
        LoadedStateFile::Nothing | LoadedStateFile::Unreadable(_) => return Ok(Vec::new()),
    };
    let (there, notes) = match state_file::checkpoints(&files.checkpoints, from) {
        Ok(read) => read,
        Err(error) => {
            tracing::error!("the checkpoints file cannot be read: {error}");
            return Ok(Vec::new());
        }
    };
    if there < length {
        tracing::error!("the checkpoints file was truncated: it has {there} bytes and had {length}");
    }
    let mut missing = Vec::new();
    for note in notes {
        let Ok(checkpoint) = Checkpoint::parse(note.text_unverified()) else { continue };
        let log = own.iter().find(|log| sluice_core::audit::checkpoint::origin(log) == checkpoint.origin);
        let Some(log) = log else { continue };
        let size = checkpoint.tree.size;
        if !store.has_checkpoint(log.clone(), size, note.to_string()).await? {
            missing.push((log.clone(), size));
        }
    }
    Ok(missing)
}

struct RecoveryStart<'a> {
    files: RecoveryFiles,
    own: Vec<NodeName>,
    /// The node of the state file.
    node: NodeName,
    store: &'a Arc<Store>,
    world: &'a GatewayDeps,
}

impl RecoveryStart<'_> {
    /// Notes the start, counts it in the database, and confirms it.
    async fn begin(
        self,
        found: LoadedStateFile,
        facts: DatabaseFacts,
        note: Option<&'static str>,
    ) -> Result<RecoveryMemory, OpenError> {
        let state = match found {
            LoadedStateFile::State(state) => *state,
            LoadedStateFile::Nothing | LoadedStateFile::Unreadable(_) => self.blank(&facts),
        };
        let epoch = state.epoch.max(facts.epoch.unwrap_or(0)).max(state.starting.unwrap_or(0)) + 1;
        let announced = GatewayState { starting: Some(epoch), ..state };
        self.write(&announced)?;
        self.store.begin_epoch(announced.instance.clone(), epoch, note).await?;
        // Two nodes may create an instance at the same time; the database keeps one of their ids.
        let logs = announced.logs.keys().map(|log| (log.clone(), remembered(&announced, log)));
        let facts = self.store.recovery_facts(self.store.node().clone(), logs.collect()).await?;
        let instance = facts.instance.clone().unwrap_or_else(|| announced.instance.clone());
        let mut logs = marks(&self.own, Some(&announced), &facts);
        for log in &self.own {
            // A checkpoint that was stored in the database just before a crash.
            if let Some(last) = self.store.last_checkpoint(log.clone()).await?
                && let Some(mark) = logs.get_mut(log)
            {
                mark.checkpoint = Some(SignedMark { size: last.size, note: last.note.to_string() });
            }
        }
        let confirmed =
            GatewayState { instance, node: self.store.node().clone(), epoch, starting: None, logs, ..announced };
        self.write(&confirmed)?;
        Ok(RecoveryMemory::new(self.files, self.own, confirmed))
    }

    /// Starts a new gateway in the place of another one: the old state file is kept next to the new one.
    async fn replace(self, found: &LoadedStateFile, facts: DatabaseFacts) -> Result<RecoveryMemory, OpenError> {
        let before = match found {
            LoadedStateFile::State(state) => state.instance.clone(),
            LoadedStateFile::Nothing | LoadedStateFile::Unreadable(_) => String::new(),
        };
        let aside = state_file::set_aside(&self.files.state, &before).map_err(|error| self.unwritable(&error))?;
        tracing::warn!(
            "a new gateway starts in the place of gateway {before}; the state file of that one is kept in `{}`",
            aside.display()
        );
        let (store, world) = (Arc::clone(self.store), self.world);
        let recovery = self.begin(LoadedStateFile::Nothing, facts, Some("recovery.replaced")).await?;
        let body = serde_json::json!({"text": format!(
            "A new, empty gateway started in the place of gateway {before}. If nobody removed that one on purpose, \
             its audit log was removed.")});
        let id = MessageId::mint(world.ids.as_ref());
        let message = OutboxMessage { id, topic: "recovery.replaced".into(), severity: MessageSeverity::Warning, body };
        store.alert(message, Actor::Node(store.node().clone())).await?;
        Ok(recovery)
    }

    /// Freezes everything. The remembered state stays unchanged, as evidence.
    async fn distrust(
        self,
        found: LoadedStateFile,
        facts: &DatabaseFacts,
        findings: Vec<RecoveryFinding>,
    ) -> Result<RecoveryMemory, OpenError> {
        let state = match found {
            LoadedStateFile::State(state) => *state,
            LoadedStateFile::Nothing | LoadedStateFile::Unreadable(_) => GatewayState { epoch: 0, ..self.blank(facts) },
        };
        let before = state.suspicion.clone().or_else(|| facts.suspicion.clone());
        let suspicion = DatabaseSuspicion {
            at: before.as_ref().map_or_else(|| self.world.clock.now(), |before| before.at),
            findings: findings.clone(),
            investigating: before.is_some_and(|before| before.investigating),
        };
        // In the database first: every node that reads it stops.
        let message = MessageId::mint(self.world.ids.as_ref());
        freeze(self.store, findings, message).await?;
        let state = GatewayState { suspicion: Some(suspicion), ..state };
        self.write(&state)?;
        Ok(RecoveryMemory::new(self.files, self.own, state))
    }

    /// Notes the path of the state file in the data folder, for a start in another environment.
    fn name_for_next_time(&self, config: &Config) {
        if config.recovery.state_file.is_some() || self.files.in_data {
            return;
        }
        if let Err(error) = place::name(&config.data, &self.files.state) {
            tracing::warn!("the path of the state file could not be noted in the data folder: {error}");
        }
    }

    /// The same finding, with the path where the state file was expected.
    fn with_place(&self, finding: RecoveryFinding) -> RecoveryFinding {
        if finding.kind == RecoveryFindingKind::StateFileMissing {
            return RecoveryFinding { remembered: self.files.state.display().to_string(), ..finding };
        }
        finding
    }

    /// An empty state.
    fn blank(&self, facts: &DatabaseFacts) -> GatewayState {
        let fresh = || {
            let mut id = [0; 16];
            self.world.entropy.fill(&mut id);
            hex::encode(&id)
        };
        GatewayState {
            form: FORM.to_owned(),
            instance: facts.instance.clone().unwrap_or_else(fresh),
            node: self.node.clone(),
            epoch: 0,
            starting: None,
            logs: BTreeMap::<NodeName, LogMark>::new(),
            checkpoints_from: self.length(),
            checkpoints_length: self.length(),
            suspicion: None,
        }
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.files.checkpoints).map_or(0, |data| data.len())
    }

    fn write(&self, state: &GatewayState) -> Result<(), OpenError> {
        state_file::write(&self.files.state, state).map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &std::io::Error) -> OpenError {
        OpenError::Folder { path: self.files.state.display().to_string(), why: error.to_string() }
    }
}
