//! Client writes: keeps the content of files that a coding client is about to change.
//!
//! Takes a call that is about to be answered as allowed; keeps the bytes of the regular files that it names inside the
//! folders of its agent. Promise: they are kept, and the audit log says so, before the client gets its answer. A file
//! that cannot be kept does not stop the call; the audit log and the plan of a rollback report it.

use serde_json::{Map, Value};
use sluice_core::ids::SessionId;
use sluice_core::policy::PolicyInput;
use sluice_core::refusal::Code;
use sluice_core::rollback::RETENTION;
use sluice_core::{Action, AgentName, CallId, CapabilityName, Millis, UtcMillis};
use sluice_services::CallError;
use sluice_services::files::client_files::{self, ClientBackupLimits, ClientCallBackup, ClientFileRecorder};
use sluice_services::files::roots::OpenedRoots;
use sluice_store::{ClientWrite, KeepClientWrite, StoreError};

use crate::Gateway;

/// The period over which the kept bytes are added up.
const DAY: Millis = Millis::from_hours(24);

/// Keeps the files that a client's call names.
///
/// # Errors
/// When that cannot be recorded: in that case the call must not be allowed.
pub(crate) async fn keep(
    gw: &Gateway,
    call: CallId,
    action: &Action,
    session: Option<SessionId>,
) -> Result<(), CallError> {
    let limits = &gw.config.filesystem;
    if limits.undo_files == 0 {
        return Ok(());
    }
    let (agent, now) = (action.agent().clone(), gw.now());
    let named = {
        let question = PolicyInput::new(&agent, action.capability(), action.arguments(), now);
        gw.policy.get().changed_files(&question)
    };
    if named.is_none() {
        return Ok(());
    }
    let used = gw.store.sum_client_write_bytes(gw.config.node.clone(), now - DAY).await?;
    let limits = ClientBackupLimits {
        file: limits.undo_file.as_bytes(),
        files: limits.undo_files as usize,
        left: limits.undo_day.as_bytes().saturating_sub(used),
    };
    let (scope, data, own) = (scope_of(gw, &agent), folder(gw), own_paths(gw));
    let (whose, arguments) = (agent.clone(), Value::Object(action.arguments().clone()));
    let work = move || {
        let keeper = ClientFileRecorder { scope: &scope, agent: &whose, data: &data, call, limits, own: &own };
        keeper.keep(&named, &arguments)
    };
    let (kept, bytes) = tokio::task::spawn_blocking(work).await.map_err(|_| CallError::new(Code::FilesFailed))?;
    if kept.files.is_empty() && kept.unclear.is_none() {
        return Ok(());
    }
    let not_kept = kept.files.iter().filter(|file| file.why.is_some()).count() + usize::from(kept.unclear.is_some());
    let keep = KeepClientWrite {
        call,
        session,
        capability: action.capability().clone(),
        wish: wish(&agent, action.capability(), action.arguments())?,
        agent,
        kept: kept.files.iter().filter(|file| file.why.is_none()).count(),
        files: written(&kept)?,
        bytes,
        not_kept,
        until: now + RETENTION,
    };
    gw.store.keep_client_write(keep).await?;
    gw.signals.events.notify_written();
    Ok(())
}

/// Records a client's report that a call is done, and reads the files as the call left them. Returns whether there was
/// such a call.
///
/// # Errors
/// When the database cannot be read or written.
pub async fn report(
    gw: &Gateway,
    agent: &AgentName,
    capability: &CapabilityName,
    arguments: &Map<String, Value>,
) -> Result<bool, CallError> {
    let wish = wish(agent, capability, arguments)?;
    let found = gw.store.unreported_client_write(agent.clone(), wish, gw.now()).await?;
    let Some(write) = found.filter(|write| write.node == gw.config.node) else { return Ok(false) };
    let (scope, mut kept) = (scope_of(gw, agent), read(&write)?);
    let work = move || {
        client_files::note_after(&scope, &mut kept);
        kept
    };
    let kept = tokio::task::spawn_blocking(work).await.map_err(|_| CallError::new(Code::FilesFailed))?;
    match gw.store.report_client_write(&write, written(&kept)?).await {
        Ok(()) => {
            gw.signals.events.notify_written();
            Ok(true)
        }
        // Another request reported it meanwhile.
        Err(StoreError::Conflict) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The kept files of a call.
pub(crate) fn read(write: &ClientWrite) -> Result<ClientCallBackup, CallError> {
    serde_json::from_slice(&write.files).map_err(|_| CallError::new(Code::StoreDamaged))
}

fn written(kept: &ClientCallBackup) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(kept).map_err(|_| CallError::new(Code::GatewayInternal))
}

/// The request, without the folder the client was in: that folder may have changed when the tool is done.
fn wish(agent: &AgentName, capability: &CapabilityName, arguments: &Map<String, Value>) -> Result<Vec<u8>, CallError> {
    let mut arguments = arguments.clone();
    arguments.remove("cwd");
    let action = Action::custom(capability.clone(), agent.clone(), Value::Object(arguments));
    Ok(action.map_err(|_| CallError::new(Code::GatewayInternal))?.digest().to_bytes().to_vec())
}

/// The folders in which files of an agent are kept and restored: its projects, and the folders it may write to.
pub(crate) fn scope_of(gw: &Gateway, agent: &AgentName) -> OpenedRoots {
    let policy = gw.policy.get();
    let mut folders: Vec<String> = policy.projects_of(agent).map(str::to_owned).collect();
    let opened = gw.config.filesystem.roots.iter().filter(|root| root.agents.contains(agent) && !root.read_only);
    folders.extend(opened.map(|root| root.path.display().to_string()));
    client_files::scope_of(agent, &folders, gw.config.filesystem.allow_hard_links)
}

/// The folder with the kept contents.
pub(crate) fn folder(gw: &Gateway) -> std::path::PathBuf {
    gw.config.data.join("undo")
}

fn own_paths(gw: &Gateway) -> Vec<String> {
    let config = &gw.config;
    let own = [&config.data, &config.policies, &config.state_file, &config.checkpoints_file];
    own.into_iter().chain(config.file.as_ref()).map(|path| path.display().to_string()).collect()
}

/// Deletes kept contents that can no longer be restored, at most this many. Returns whether there may be more.
///
/// # Errors
/// When that cannot be recorded.
pub(crate) async fn expire(gw: &Gateway, limit: u32) -> Result<bool, CallError> {
    let calls = gw.store.expire_client_writes(limit).await?;
    let is_full = calls.len() >= limit as usize;
    let data = folder(gw);
    let work = move || calls.into_iter().for_each(|call| client_files::forget(&data, call));
    tokio::task::spawn_blocking(work).await.map_err(|_| CallError::new(Code::FilesFailed))?;
    Ok(is_full)
}

/// Deletes kept contents that nothing refers to: left over when the gateway died between two steps.
///
/// # Errors
/// When the database cannot be read.
pub(crate) async fn sweep(gw: &Gateway) -> Result<(), CallError> {
    let data = folder(gw);
    for call in client_files::kept_calls(&data) {
        let kept = gw.store.client_write(call).await?;
        let is_kept = kept.is_some_and(|write| write.state == sluice_store::ClientWriteState::Kept);
        // A call that is being kept right now has no row yet.
        let minted = UtcMillis::from_millis(i64::try_from(call.bits() >> 80).unwrap_or(0));
        let is_new = gw.now().since(minted) < Millis::from_hours(1);
        if !is_kept && !is_new {
            client_files::forget(&data, call);
        }
    }
    Ok(())
}
