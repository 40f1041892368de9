//! Recovery decisions: an admin's decision about a suspected database, and the view it is based on.
//!
//! Promise: only a decision here lifts the freeze, a damaged audit log cannot be accepted, and open writes stay with a
//! person afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::Actor;
use sluice_core::recovery::{GatewayState, RecoveryFinding, RecoveryFindingKind};
use sluice_core::refusal::Code;
use sluice_services::CallError;

use super::{marks, set_open_aside, state_file};
use crate::Gateway;

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryDecision {
    /// The database was restored from a backup on purpose: it is trusted from now on.
    RestoredFromBackup,
    /// The cause is not known yet: the database stays frozen.
    Investigate,
}

/// The state outside the database, and what is wrong with the database.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecoveryView {
    /// `trusted`, `suspected` or `investigating`.
    pub standing: &'static str,
    /// The instance id of the gateway in the state file.
    pub instance: String,
    /// How often it was started.
    pub epoch: u64,
    /// Since when the database is suspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The differences.
    pub findings: Vec<RecoveryFindingView>,
    /// The state file.
    pub state_file: String,
    /// Whether it lies in the data folder, so that a copy of the whole folder includes it.
    pub state_file_in_data: bool,
    /// The file with every signed checkpoint.
    pub checkpoints_file: String,
    /// The last known checkpoint, as a signed note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Nodes that suspect this database. Each one needs its own decision.
    pub suspected_by: Vec<String>,
}

/// One difference between the database and the state file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecoveryFindingView {
    /// The stable code.
    pub code: &'static str,
    /// The audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// The value in the database: a position, a start or a gateway.
    pub database: String,
    /// The value in the state file.
    pub remembered: String,
    /// The difference as text.
    pub text: String,
}

impl From<&RecoveryFinding> for RecoveryFindingView {
    fn from(finding: &RecoveryFinding) -> Self {
        Self {
            code: finding.kind.code(),
            log: finding.log.as_ref().map(ToString::to_string),
            database: finding.database.clone(),
            remembered: finding.remembered.clone(),
            text: finding.to_string(),
        }
    }
}

/// The current state.
///
/// # Errors
/// When the database cannot be read.
pub async fn view(gw: &Gateway) -> Result<RecoveryView, CallError> {
    let state = gw.recovery.kept.lock().await.state.clone();
    let suspicion = state.suspicion.as_ref();
    let standing = match suspicion {
        None => "trusted",
        Some(suspicion) if suspicion.investigating => "investigating",
        Some(_) => "suspected",
    };
    let signed = state.logs.get(gw.store.node()).or_else(|| state.logs.get(&state.node));
    Ok(RecoveryView {
        standing,
        instance: state.instance.clone(),
        epoch: state.epoch,
        since: suspicion.map(|suspicion| suspicion.at.to_string()),
        findings: suspicion
            .map_or_else(Vec::new, |known| known.findings.iter().map(RecoveryFindingView::from).collect()),
        state_file: gw.recovery.files.state.display().to_string(),
        state_file_in_data: gw.recovery.files.in_data,
        checkpoints_file: gw.recovery.files.checkpoints.display().to_string(),
        checkpoint: signed.and_then(|mark| mark.checkpoint.as_ref()).map(|signed| signed.note.clone()),
        suspected_by: gw.store.suspecting_nodes().await?.iter().map(ToString::to_string).collect(),
    })
}

/// Takes an admin's decision.
///
/// # Errors
/// When there is nothing to decide, the audit log is damaged, or the decision cannot be recorded.
pub async fn decide(gw: &Gateway, decision: RecoveryDecision, by: Actor) -> Result<(), CallError> {
    if !gw.recovery.is_suspected() {
        return Err(CallError::new(Code::RecoveryNotNeeded));
    }
    match decision {
        RecoveryDecision::Investigate => investigate(gw, by).await?,
        RecoveryDecision::RestoredFromBackup => accept(gw, by).await?,
    }
    gw.signals.events.notify_written();
    gw.due.notify_one();
    Ok(())
}

async fn investigate(gw: &Gateway, by: Actor) -> Result<(), CallError> {
    let mut kept = gw.recovery.kept.lock().await;
    let Some(suspicion) = kept.state.suspicion.clone() else { return Err(CallError::new(Code::RecoveryNotNeeded)) };
    gw.store.investigate(by, suspicion.findings.clone()).await?;
    let suspicion = Some(sluice_core::recovery::DatabaseSuspicion { investigating: true, ..suspicion });
    let next = GatewayState { suspicion, ..kept.state.clone() };
    gw.recovery.write(&mut kept, next).await.map_err(|_| CallError::new(Code::RecoveryStateFile))
}

async fn accept(gw: &Gateway, by: Actor) -> Result<(), CallError> {
    // Lock the signers first, in the same order as the signing loop.
    let mut signers = gw.signers.lock().await;
    let mut kept = gw.recovery.kept.lock().await;
    for log in &gw.recovery.own {
        if let Some(damage) = gw.store.tail_damage(log.clone()).await? {
            let damage = RecoveryFinding::new(RecoveryFindingKind::RecordDamaged, damage, "-").of(log);
            return Err(CallError::with_text(Code::RecoveryDamaged, &damage.to_string()));
        }
    }
    for (log, signer) in signers.iter_mut() {
        let last = gw.store.last_checkpoint(log.clone()).await?;
        signer.restart_from(log, last.as_ref().map(|last| &last.note)).map_err(|error| {
            let text = format!("log {log}: its last checkpoint is not signed by this gateway's key ({error})");
            CallError::with_text(Code::RecoveryDamaged, &text)
        })?;
    }
    // Writes that a node opened since the freeze, because it did not notice, are set aside too.
    for hold in set_open_aside(&gw.store).await? {
        gw.notify_hold_changed(hold);
    }
    let state = kept.state.clone();
    let facts = gw.store.recovery_facts(gw.store.node().clone(), BTreeMap::new()).await?;
    let epoch = state.epoch.max(facts.epoch.unwrap_or(0)).max(state.starting.unwrap_or(0)) + 1;
    let instance = facts.instance.unwrap_or_else(|| state.instance.clone());
    let findings = state.suspicion.as_ref().map_or_else(Vec::new, |suspicion| suspicion.findings.clone());
    let accepted = (epoch, instance.clone());
    gw.store.accept_restored(by, state.node.clone(), accepted, findings).await?;
    let facts = gw.store.recovery_facts(gw.store.node().clone(), BTreeMap::new()).await?;
    let length = state_file::checkpoints(&gw.recovery.files.checkpoints, u64::MAX).map_or(0, |(length, _)| length);
    let mut logs = marks(&gw.recovery.own, None, &facts);
    for (log, mark) in &mut logs {
        if gw.recovery.own.contains(log)
            && let Some(last) = gw.store.last_checkpoint(log.clone()).await?
        {
            mark.checkpoint = Some(sluice_core::recovery::SignedMark { size: last.size, note: last.note.to_string() });
        }
    }
    let next = GatewayState {
        instance,
        node: gw.store.node().clone(),
        epoch,
        starting: None,
        logs,
        checkpoints_from: length,
        checkpoints_length: length,
        suspicion: None,
        ..state
    };
    gw.recovery.write(&mut kept, next).await.map_err(|_| CallError::new(Code::RecoveryStateFile))?;
    gw.recovery.suspected.store(false, Ordering::SeqCst);
    Ok(())
}
