//! Rollback of a coding client's file changes: the plan, and one attempt.
//!
//! Takes the contents that were kept before calls of clients; gives a step for each call, with its files. Promise: a
//! file that is neither as the call left it nor as it was before is not overwritten, unless a person was shown the
//! difference and confirmed it; then exactly the state they were shown is overwritten.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::capability::service_of;
use sluice_core::hold::Hold;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, HoldId, Millis};
use sluice_services::files::client_files::{self, ClientFileBackup, ClientFileState};
use sluice_services::files::fingerprint::FileFingerprint;
use sluice_services::files::roots::OpenedRoots;
use sluice_services::{CallError, CompletedWrite, LookupOutcome, PreparedWrite, WriteError};
use sluice_store::{AttemptOutcome, ClientWrite, ClientWriteState};

use super::super::client_writes;
use super::super::execute::{self, ArmOutcome};
use super::{RollbackStep, RollbackWrite};
use crate::Gateway;

/// What undoing a call does to one file.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct FileRollbackStep {
    /// The file.
    pub path: String,
    /// `restore` (the old content comes back), `remove` (the file did not exist), `nothing` (the file is as it was),
    /// `changed` (the file was changed since, or the client did not report how it left it) or `cannot`.
    pub does: &'static str,
    /// Why it cannot be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Removed and added lines, for a file that was changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

/// A step, and the file states that a person confirmed to overwrite.
pub(super) struct PlannedRollbackStep {
    pub step: RollbackStep,
    pub overwrites: BTreeMap<String, FileFingerprint>,
}

/// The file states after the steps so far, by path.
pub(super) type PredictedFiles = HashMap<String, FileFingerprint>;

/// Plans the rollback of one call.
pub(super) async fn plan(
    gw: &Gateway,
    write: &ClientWrite,
    force: bool,
    ahead: &mut PredictedFiles,
) -> Result<PlannedRollbackStep, CallError> {
    let id = HoldId::from_bits(write.call.bits());
    let step = RollbackStep {
        buffer_id: id,
        capability: write.capability.clone(),
        possible: false,
        code: None,
        after: None,
        why: None,
        until: None,
        undone_by: None,
        undone_at: None,
        can_be_forced: false,
        difference: Vec::new(),
        files: Vec::new(),
    };
    let refused = |code: Code, why: &'static str| {
        let step = RollbackStep { code: Some(code.as_str()), why: Some(why), ..step.clone() };
        Ok(PlannedRollbackStep { step, overwrites: BTreeMap::new() })
    };
    match write.state {
        ClientWriteState::Undone => {
            return refused(Code::RollbackNotPossible, "it was rolled back before");
        }
        ClientWriteState::Expired => return refused(Code::RollbackExpired, Code::RollbackExpired.meaning()),
        ClientWriteState::Kept if write.until <= gw.now() => {
            return refused(Code::RollbackExpired, Code::RollbackExpired.meaning());
        }
        ClientWriteState::Kept => {}
    }
    if write.node != gw.config.node {
        return refused(Code::RollbackNotPossible, "another node keeps the contents; run the rollback on that node");
    }
    let kept = client_writes::read(write)?;
    let unclear = kept.unclear.clone();
    let (scope, data, call) = (client_writes::scope_of(gw, &write.agent), client_writes::folder(gw), write.call);
    let known = ahead.clone();
    let look = move || {
        let each = |file: &ClientFileBackup| one(&scope, (&data, call), file, &known);
        kept.files.iter().map(each).collect::<Vec<_>>()
    };
    let seen = tokio::task::spawn_blocking(look).await.map_err(|_| CallError::new(Code::FilesFailed))?;
    let (mut files, mut overwrites) = (Vec::new(), BTreeMap::new());
    let (mut does, mut conflicts) = (0, 0);
    for (mut file, now, before) in seen {
        match now {
            Some(ClientFileState::After) => does += 1,
            Some(ClientFileState::Other(print)) if force => {
                overwrites.insert(file.path.clone(), print);
                file.does = if before.as_ref().is_some_and(FileFingerprint::is_absent) { "remove" } else { "restore" };
                does += 1;
            }
            Some(ClientFileState::Other(_)) => conflicts += 1,
            Some(ClientFileState::Before) | None => {}
        }
        if let (Some(before), true) = (before, matches!(file.does, "restore" | "remove")) {
            ahead.insert(file.path.clone(), before);
        }
        files.push(file);
    }
    if let Some(why) = unclear {
        files.push(FileRollbackStep { path: "(others)".into(), does: "cannot", why: Some(why), difference: None });
    }
    let (possible, code, why) = match (conflicts, does) {
        (0, 0) if files.iter().any(|file| file.does == "nothing") => {
            (false, Some(Code::RollbackNotPossible), Some("the files are as they were before"))
        }
        (0, 0) => (false, Some(Code::RollbackIrreversible), Some("no content was kept that could be restored")),
        (0, _) => (true, None, None),
        _ => (
            false,
            Some(Code::RollbackConflict),
            Some("a file was changed since, or the client did not report its result; see the difference, then --force"),
        ),
    };
    let until = possible.then(|| write.until.to_string());
    let can_be_forced = code == Some(Code::RollbackConflict);
    let step = RollbackStep { possible, code: code.map(Code::as_str), why, until, can_be_forced, files, ..step };
    Ok(PlannedRollbackStep { step, overwrites })
}

type FileRollbackCheck = (FileRollbackStep, Option<ClientFileState>, Option<FileFingerprint>);

fn one(
    scope: &OpenedRoots,
    kept: (&std::path::Path, CallId),
    file: &ClientFileBackup,
    ahead: &PredictedFiles,
) -> FileRollbackCheck {
    let path = file.path();
    let cannot = |why: String| {
        (
            FileRollbackStep { path: path.clone(), does: "cannot", why: Some(why), difference: None },
            None,
            file.before.clone(),
        )
    };
    let Some(before) = file.before.as_ref() else {
        return cannot(file.why.clone().unwrap_or_else(|| "its content was not kept".to_owned()));
    };
    if let Some(why) = &file.why {
        return cannot(why.clone());
    }
    let present = match ahead.get(&path) {
        Some(print) => Ok(print.clone()),
        None => client_files::look(scope, file),
    };
    let present = match present {
        Ok(print) => print,
        Err(refusal) => return cannot(refusal.text().to_owned()),
    };
    let now = file.now(present);
    let (does, difference) = match &now {
        ClientFileState::Before => ("nothing", None),
        ClientFileState::After if before.is_absent() => ("remove", None),
        ClientFileState::After => ("restore", None),
        ClientFileState::Other(_) => ("changed", client_files::difference(scope, kept, file)),
    };
    (FileRollbackStep { path, does, why: None, difference }, Some(now), Some(before.clone()))
}

/// The parts of the write that undoes a call.
pub(super) fn undoing(
    write: &ClientWrite,
    by: &Actor,
    overwrites: &BTreeMap<String, FileFingerprint>,
) -> RollbackWrite {
    let id = HoldId::from_bits(write.call.bits());
    let mut arguments = json!({"buffer_id": id, "by": by});
    if let (false, Some(members)) = (overwrites.is_empty(), arguments.as_object_mut()) {
        members.insert("overwrites".into(), json!(overwrites));
    }
    RollbackWrite {
        id,
        agent: write.agent.clone(),
        service: service_of(&write.capability),
        // One after the other: two calls may have changed the same file.
        object_key: Some(format!("client-files:{}", write.agent)),
        arguments,
    }
}

/// One attempt to restore the files of a call.
pub(super) async fn attempt(
    gw: &Gateway,
    hold: &Hold,
    write: ClientWrite,
    until: Millis,
) -> Result<AttemptOutcome, CallError> {
    let possible = write.state == ClientWriteState::Kept && write.until > gw.now();
    if !possible || write.node != gw.config.node {
        return Ok(execute::refused(Code::RollbackNotPossible));
    }
    let overwrites = hold.action.arguments().get("overwrites").cloned().unwrap_or_else(|| json!({}));
    let Ok(overwrites) = serde_json::from_value::<BTreeMap<String, FileFingerprint>>(overwrites) else {
        return Ok(execute::refused(Code::ExecuteRefusedMismatch));
    };
    let kept = client_writes::read(&write)?;
    let (scope, data, call) = (client_writes::scope_of(gw, &write.agent), client_writes::folder(gw), write.call);
    match execute::arm(gw, hold, PreparedWrite::default()).await? {
        ArmOutcome::Stopped(outcome) => Ok(outcome),
        ArmOutcome::Permit(..) if execute::left(gw, until) == Millis::ZERO => Ok(execute::out_of_time()),
        ArmOutcome::Permit(permit, _) => {
            let work = move || {
                // Spent here, on the thread that does the work.
                let _spent = permit;
                client_files::put_back(&scope, (&data, call), &kept, &overwrites)
            };
            let done = tokio::task::spawn_blocking(work).await.unwrap_or(Err(WriteError::Unclear));
            let done = match done {
                Ok(paths) => {
                    gw.store.mark_client_write_undone(call, super::who(hold)).await?;
                    client_files::forget(&client_writes::folder(gw), call);
                    let result = json!({"undone": true, "paths": paths});
                    Ok(CompletedWrite { receipt: "rolled back".into(), result, after: None, undo_until: None })
                }
                Err(trouble) => Err(trouble),
            };
            Ok(execute::outcome_of(gw.now(), done))
        }
    }
}

/// Whether an interrupted attempt has restored everything. The rest can be done again: each file is read anew.
pub(super) async fn look_up(gw: &Gateway, hold: &Hold, write: &ClientWrite) -> Result<LookupOutcome, CallError> {
    let receipt =
        || CompletedWrite { receipt: "rolled back".into(), result: Value::Null, after: None, undo_until: None };
    if write.state == ClientWriteState::Undone {
        return Ok(LookupOutcome::Applied(receipt()));
    }
    let kept = client_writes::read(write)?;
    let scope = client_writes::scope_of(gw, &write.agent);
    let is_back = |file: &ClientFileBackup| {
        file.before.is_none()
            || file.why.is_some()
            || client_files::look(&scope, file).is_ok_and(|print| file.now(print) == ClientFileState::Before)
    };
    if kept.files.iter().all(is_back) {
        gw.store.mark_client_write_undone(write.call, super::who(hold)).await?;
        return Ok(LookupOutcome::Applied(receipt()));
    }
    Ok(LookupOutcome::Absent)
}
