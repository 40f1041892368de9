//! Taking back what a coding client wrote: the plan, and one attempt.
//!
//! Takes what was kept before calls of clients; gives a step for each call, with its files. Promise: a file that is
//! neither as the call left it nor as it was before is not overwritten, unless a person was shown the difference and said
//! so; then exactly the state they were shown is overwritten.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::{Value, json};
use sluice_core::capability::service_of;
use sluice_core::hold::Hold;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, HoldId, Span};
use sluice_store::{ClientWrite, ClientWriteState, Outcome};

use super::super::client_writes;
use super::super::execute::{self, Armed};
use super::{Step, Undoing};
use crate::services::files::client_files::{self, ClientFile, FileNow};
use crate::services::files::print::Print;
use crate::services::files::roots::Scope;
use crate::services::{Found, Performed, Prepared, Trouble};
use crate::{Gateway, No};

/// What taking a call back does to one file.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct FileStep {
    /// The file.
    pub path: String,
    /// `restore` (its old content comes back), `remove` (it was not there), `nothing` (it is as it was), `changed`
    /// (somebody changed it since, or the client did not report what it left) or `cannot`.
    pub does: &'static str,
    /// Why it cannot be put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Lines that go and lines that come, for a file that was changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
}

/// A step, and the states that it overwrites because a person says so.
pub(super) struct Planned {
    pub step: Step,
    pub overwrites: BTreeMap<String, Print>,
}

/// How files will be once the steps so far are done, by their paths.
pub(super) type Ahead = HashMap<String, Print>;

/// Says what taking back one call would do.
pub(super) async fn plan(gw: &Gateway, write: &ClientWrite, force: bool, ahead: &mut Ahead) -> Result<Planned, No> {
    let id = HoldId::from_bits(write.call.bits());
    let step = Step {
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
        let step = Step { code: Some(code.as_str()), why: Some(why), ..step.clone() };
        Ok(Planned { step, overwrites: BTreeMap::new() })
    };
    match write.state {
        ClientWriteState::Undone => {
            return refused(Code::RollbackNotPossible, "it was taken back before");
        }
        ClientWriteState::Expired => return refused(Code::RollbackExpired, Code::RollbackExpired.meaning()),
        ClientWriteState::Kept if write.until <= gw.now() => {
            return refused(Code::RollbackExpired, Code::RollbackExpired.meaning());
        }
        ClientWriteState::Kept => {}
    }
    if write.node != gw.config.node {
        return refused(Code::RollbackNotPossible, "another node keeps the contents; ask there");
    }
    let kept = client_writes::read(write)?;
    let unclear = kept.unclear.clone();
    let (scope, data, call) = (client_writes::scope_of(gw, &write.agent), client_writes::folder(gw), write.call);
    let known = ahead.clone();
    let look = move || {
        let each = |file: &ClientFile| one(&scope, (&data, call), file, &known);
        kept.files.iter().map(each).collect::<Vec<_>>()
    };
    let seen = tokio::task::spawn_blocking(look).await.map_err(|_| No::new(Code::FilesFailed))?;
    let (mut files, mut overwrites) = (Vec::new(), BTreeMap::new());
    let (mut does, mut conflicts) = (0, 0);
    for (mut file, now, before) in seen {
        match now {
            Some(FileNow::After) => does += 1,
            Some(FileNow::Other(print)) if force => {
                overwrites.insert(file.path.clone(), print);
                file.does = if before.as_ref().is_some_and(Print::is_absent) { "remove" } else { "restore" };
                does += 1;
            }
            Some(FileNow::Other(_)) => conflicts += 1,
            Some(FileNow::Before) | None => {}
        }
        if let (Some(before), true) = (before, matches!(file.does, "restore" | "remove")) {
            ahead.insert(file.path.clone(), before);
        }
        files.push(file);
    }
    if let Some(why) = unclear {
        files.push(FileStep { path: "(others)".into(), does: "cannot", why: Some(why), difference: None });
    }
    let (possible, code, why) = match (conflicts, does) {
        (0, 0) if files.iter().any(|file| file.does == "nothing") => {
            (false, Some(Code::RollbackNotPossible), Some("the files are as they were before"))
        }
        (0, 0) => (false, Some(Code::RollbackIrreversible), Some("nothing was kept that could be put back")),
        (0, _) => (true, None, None),
        _ => (
            false,
            Some(Code::RollbackConflict),
            Some(
                "a file was changed since, or the client did not report what it left; see the difference, then --force",
            ),
        ),
    };
    let until = possible.then(|| write.until.to_string());
    let can_be_forced = code == Some(Code::RollbackConflict);
    let step = Step { possible, code: code.map(Code::as_str), why, until, can_be_forced, files, ..step };
    Ok(Planned { step, overwrites })
}

type Looked = (FileStep, Option<FileNow>, Option<Print>);

fn one(scope: &Scope, kept: (&std::path::Path, CallId), file: &ClientFile, ahead: &Ahead) -> Looked {
    let path = file.path();
    let cannot = |why: String| {
        (FileStep { path: path.clone(), does: "cannot", why: Some(why), difference: None }, None, file.before.clone())
    };
    let Some(before) = file.before.as_ref() else {
        return cannot(file.why.clone().unwrap_or_else(|| "it was not kept".to_owned()));
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
        FileNow::Before => ("nothing", None),
        FileNow::After if before.is_absent() => ("remove", None),
        FileNow::After => ("restore", None),
        FileNow::Other(_) => ("changed", client_files::difference(scope, kept, file)),
    };
    (FileStep { path, does, why: None, difference }, Some(now), Some(before.clone()))
}

/// What the write that takes a call back is made of.
pub(super) fn undoing(write: &ClientWrite, by: &Actor, overwrites: &BTreeMap<String, Print>) -> Undoing {
    let id = HoldId::from_bits(write.call.bits());
    let mut arguments = json!({"buffer_id": id, "by": by});
    if let (false, Some(members)) = (overwrites.is_empty(), arguments.as_object_mut()) {
        members.insert("overwrites".into(), json!(overwrites));
    }
    Undoing {
        id,
        agent: write.agent.clone(),
        service: service_of(&write.capability),
        // One after the other: two calls may have changed the same file.
        object_key: Some(format!("client-files:{}", write.agent)),
        arguments,
    }
}

/// One attempt at putting the files of a call back.
pub(super) async fn attempt(gw: &Gateway, hold: &Hold, write: ClientWrite, until: Span) -> Result<Outcome, No> {
    let possible = write.state == ClientWriteState::Kept && write.until > gw.now();
    if !possible || write.node != gw.config.node {
        return Ok(execute::refused(Code::RollbackNotPossible));
    }
    let overwrites = hold.action.arguments().get("overwrites").cloned().unwrap_or_else(|| json!({}));
    let Ok(overwrites) = serde_json::from_value::<BTreeMap<String, Print>>(overwrites) else {
        return Ok(execute::refused(Code::ExecuteRefusedMismatch));
    };
    let kept = client_writes::read(&write)?;
    let (scope, data, call) = (client_writes::scope_of(gw, &write.agent), client_writes::folder(gw), write.call);
    match execute::arm(gw, hold, Prepared::default()).await? {
        Armed::Stopped(outcome) => Ok(outcome),
        Armed::Permit(..) if execute::left(gw, until) == Span::ZERO => Ok(execute::out_of_time()),
        Armed::Permit(permit, _) => {
            let work = move || {
                // Spent here, on the thread that does the work.
                let _spent = permit;
                client_files::put_back(&scope, (&data, call), &kept, &overwrites)
            };
            let done = tokio::task::spawn_blocking(work).await.unwrap_or(Err(Trouble::Unclear));
            let done = match done {
                Ok(paths) => {
                    gw.store.undone_client_write(call, super::who(hold)).await?;
                    client_files::forget(&client_writes::folder(gw), call);
                    let result = json!({"undone": true, "paths": paths});
                    Ok(Performed { receipt: "taken back".into(), result, after: None, undo_until: None })
                }
                Err(trouble) => Err(trouble),
            };
            Ok(execute::outcome_of(gw.now(), done))
        }
    }
}

/// Whether an interrupted attempt has put everything back. What is left can be done again: each file is looked at anew.
pub(super) async fn look_up(gw: &Gateway, hold: &Hold, write: &ClientWrite) -> Result<Found, No> {
    let receipt = || Performed { receipt: "taken back".into(), result: Value::Null, after: None, undo_until: None };
    if write.state == ClientWriteState::Undone {
        return Ok(Found::Applied(receipt()));
    }
    let kept = client_writes::read(write)?;
    let scope = client_writes::scope_of(gw, &write.agent);
    let is_back = |file: &ClientFile| {
        file.before.is_none()
            || file.why.is_some()
            || client_files::look(&scope, file).is_ok_and(|print| file.now(print) == FileNow::Before)
    };
    if kept.files.iter().all(is_back) {
        gw.store.undone_client_write(write.call, super::who(hold)).await?;
        return Ok(Found::Applied(receipt()));
    }
    Ok(Found::Absent)
}
