//! The first look: is this the database that this gateway wrote to last?
//!
//! Takes the configuration and an open store; gives the memory of this node. Promise: the start is announced in the
//! state file before the database counts it, and confirmed there before anything is served; so a crash at any point is
//! told apart from a restore. A suspected database is frozen before anything else looks at it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::ids::MessageId;
use sluice_core::recovery::{
    Circumstances, DatabaseFacts, FORM, Finding, FindingKind, GatewayState, Judgement, LogMark, Remembered, SignedMark,
    Suspicion, judge,
};
use sluice_core::{Actor, NodeName, hex};
use sluice_store::{Message, Severity, Store};

use super::{Files, Recovery, freeze, marks, place, remembered, state_file};
use crate::config::Config;
use crate::open::{OpenError, World};

/// Looks at the database and takes it over, or freezes it. `key_is_new` says that the data folder was made just now.
///
/// # Errors
/// When the state file or the database cannot be read or written.
pub async fn open(config: &Config, store: &Arc<Store>, world: &World, key_is_new: bool) -> Result<Recovery, OpenError> {
    let files = files(config)?;
    let found = state_file::read(&files.state);
    let own = store.own_logs();
    let (facts, node) = facts(store, &found, &own).await?;
    let around = Circumstances {
        missing_checkpoints: missing_checkpoints(store, &files, &found, &own).await?,
        own_logs: own.clone(),
        key_is_new,
    };
    let start = Start { files, own, node, store, world };
    let judgement = judge(&found, &facts, &around);
    if !matches!(judgement, Judgement::Suspect(_)) {
        start.name_for_next_time(config);
    }
    match judgement {
        Judgement::Suspect(findings) => {
            let findings = findings.into_iter().map(|finding| start.with_place(finding)).collect();
            start.distrust(found, &facts, findings).await
        }
        Judgement::Found => start.begin(found, facts, None).await,
        Judgement::Adopt => start.begin(found, facts, Some("recovery.adopted")).await,
        Judgement::Join => start.begin(Remembered::Nothing, facts, Some("recovery.joined")).await,
        Judgement::Continue => start.begin(found, facts, None).await,
        Judgement::Replace => start.replace(&found, facts).await,
    }
}

/// Where the files lie. Where nothing else can be written, that is the data folder.
fn files(config: &Config) -> Result<Files, OpenError> {
    let refuse = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| OpenError::Folder { path, why: error.to_string() }
    };
    let mut files =
        Files { state: config.state_file.clone(), checkpoints: config.checkpoints_file.clone(), in_data: false };
    let made = state_file::make_folder(&files.state);
    if let (Err(error), None) = (&made, &config.recovery.state_file) {
        let inside: PathBuf = config.data.join("recovery").join("state.json");
        tracing::warn!(
            "`{}` cannot be made ({error}); the state file lies in the data folder, so a restored copy of the whole \
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

/// What the database says about what is remembered, and the node that remembers it.
async fn facts(store: &Store, found: &Remembered, own: &[NodeName]) -> Result<(DatabaseFacts, NodeName), OpenError> {
    let (node, logs) = match found {
        Remembered::State(state) => {
            let logs = state.logs.keys().map(|log| (log.clone(), remembered(state, log)));
            (state.node.clone(), logs.collect())
        }
        Remembered::Nothing | Remembered::Unreadable(_) => (store.node().clone(), BTreeMap::new()),
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
    files: &Files,
    found: &Remembered,
    own: &[NodeName],
) -> Result<Vec<(NodeName, u64)>, OpenError> {
    let (from, length) = match found {
        Remembered::State(state) => (state.checkpoints_from, state.checkpoints_length),
        // Without a state file nothing says which of them were given up; its absence is judged by itself.
        Remembered::Nothing | Remembered::Unreadable(_) => return Ok(Vec::new()),
    };
    let (there, notes) = match state_file::checkpoints(&files.checkpoints, from) {
        Ok(read) => read,
        Err(error) => {
            tracing::error!("the checkpoints file cannot be read: {error}");
            return Ok(Vec::new());
        }
    };
    if there < length {
        tracing::error!("the checkpoints file was cut: it has {there} bytes and had {length}");
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

struct Start<'a> {
    files: Files,
    own: Vec<NodeName>,
    /// The node that the state file is of.
    node: NodeName,
    store: &'a Arc<Store>,
    world: &'a World,
}

impl Start<'_> {
    /// Announces the start, counts it in the database, confirms it.
    async fn begin(
        self,
        found: Remembered,
        facts: DatabaseFacts,
        note: Option<&'static str>,
    ) -> Result<Recovery, OpenError> {
        let state = match found {
            Remembered::State(state) => *state,
            Remembered::Nothing | Remembered::Unreadable(_) => self.blank(&facts),
        };
        let epoch = state.epoch.max(facts.epoch.unwrap_or(0)).max(state.starting.unwrap_or(0)) + 1;
        let announced = GatewayState { starting: Some(epoch), ..state };
        self.write(&announced)?;
        self.store.begin_epoch(announced.instance.clone(), epoch, note).await?;
        // Two nodes may found an instance at the same time; the database has one of their ids.
        let logs = announced.logs.keys().map(|log| (log.clone(), remembered(&announced, log)));
        let facts = self.store.recovery_facts(self.store.node().clone(), logs.collect()).await?;
        let instance = facts.instance.clone().unwrap_or_else(|| announced.instance.clone());
        let mut logs = marks(&self.own, Some(&announced), &facts);
        for log in &self.own {
            // A checkpoint that was kept in the database just before a crash.
            if let Some(last) = self.store.last_checkpoint(log.clone()).await?
                && let Some(mark) = logs.get_mut(log)
            {
                mark.checkpoint = Some(SignedMark { size: last.size, note: last.note.to_string() });
            }
        }
        let confirmed =
            GatewayState { instance, node: self.store.node().clone(), epoch, starting: None, logs, ..announced };
        self.write(&confirmed)?;
        Ok(Recovery::new(self.files, self.own, confirmed))
    }

    /// A new gateway in the place of another: the old state file is kept beside the new one.
    async fn replace(self, found: &Remembered, facts: DatabaseFacts) -> Result<Recovery, OpenError> {
        let before = match found {
            Remembered::State(state) => state.instance.clone(),
            Remembered::Nothing | Remembered::Unreadable(_) => String::new(),
        };
        let aside = state_file::set_aside(&self.files.state, &before).map_err(|error| self.unwritable(&error))?;
        tracing::warn!(
            "a new gateway begins where gateway {before} was; what was remembered of that one is kept in `{}`",
            aside.display()
        );
        let (store, world) = (Arc::clone(self.store), self.world);
        let recovery = self.begin(Remembered::Nothing, facts, Some("recovery.replaced")).await?;
        let body = serde_json::json!({"text": format!(
            "A new, empty gateway began where gateway {before} was. If nobody removed that one on purpose, its record \
             was taken away.")});
        let id = MessageId::mint(world.ids.as_ref());
        let message = Message { id, topic: "recovery.replaced".into(), severity: Severity::Warning, body };
        store.alert(message, Actor::Node(store.node().clone())).await?;
        Ok(recovery)
    }

    /// Freezes everything. What is remembered stays as it is: it is the evidence.
    async fn distrust(
        self,
        found: Remembered,
        facts: &DatabaseFacts,
        findings: Vec<Finding>,
    ) -> Result<Recovery, OpenError> {
        let state = match found {
            Remembered::State(state) => *state,
            Remembered::Nothing | Remembered::Unreadable(_) => GatewayState { epoch: 0, ..self.blank(facts) },
        };
        let before = state.suspicion.clone().or_else(|| facts.suspicion.clone());
        let suspicion = Suspicion {
            at: before.as_ref().map_or_else(|| self.world.clock.now(), |before| before.at),
            findings: findings.clone(),
            investigating: before.is_some_and(|before| before.investigating),
        };
        // In the database first: whoever reads it, on whichever node, is stopped.
        let message = MessageId::mint(self.world.ids.as_ref());
        freeze(self.store, findings, message).await?;
        let state = GatewayState { suspicion: Some(suspicion), ..state };
        self.write(&state)?;
        Ok(Recovery::new(self.files, self.own, state))
    }

    /// Names the state file in the data folder, for a start in another environment.
    fn name_for_next_time(&self, config: &Config) {
        if config.recovery.state_file.is_some() || self.files.in_data {
            return;
        }
        if let Err(error) = place::name(&config.data, &self.files.state) {
            tracing::warn!("where the state file is cannot be noted in the data folder: {error}");
        }
    }

    /// The same finding, with where the state file was looked for.
    fn with_place(&self, finding: Finding) -> Finding {
        if finding.kind == FindingKind::StateFileMissing {
            return Finding { remembered: self.files.state.display().to_string(), ..finding };
        }
        finding
    }

    /// A state that remembers nothing yet.
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
