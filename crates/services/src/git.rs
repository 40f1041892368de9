//! The git service: repositories in the folders that an operator opened, processed by the real git program in a
//! sandbox.
//!
//! Takes reads and permitted writes on the folder of a repository. Promise: git reaches that folder and nothing else,
//! reads only the gateway's configuration, executes no program but its own, and has no network unless a connection was
//! opened for it; a write is bound to the state that was shown, and its outcome can be read from the repository alone.

mod change;
mod inspect;
mod relay;
mod remote;
mod repository;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_core::hold::{Hold, HoldState, Permit};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, BoxedFuture, CapabilityName, Clock, HoldId, Ids};
use sluice_egress::Egress;
use tokio::sync::{OnceCell, Semaphore};

use self::change::{GitPlan, GitPlanKind, PreparedGitPlan};
use self::repository::GitCommand;
use super::files::FilesystemService;
use super::{CompletedWrite, LookupOutcome, PreparedWrite, ReadSource, Service, ServiceRead, WriteError};
use crate::intake::ContentRecipient;
use crate::value::put;
use crate::workers::GatewayWorkers;

/// The most git steps at the same time.
const AT_ONCE: usize = 4;
/// The most remote addresses that are remembered between a lookup and settling.
const REMEMBERED: usize = 256;

/// The parts that the service works with.
pub struct GitDeps {
    /// The opened folders.
    pub files: Arc<FilesystemService>,
    /// The sandbox for programs.
    pub workers: Arc<GatewayWorkers>,
    /// The egress.
    pub egress: Arc<Egress>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids for folder names.
    pub ids: Arc<dyn Ids>,
    /// A folder of the gateway for files that git needs while it runs.
    pub scratch: PathBuf,
}

impl std::fmt::Debug for GitDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitGround").field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// The service.
pub struct GitService {
    files: Arc<FilesystemService>,
    workers: Arc<GatewayWorkers>,
    egress: Arc<Egress>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    scratch: PathBuf,
    settings: sluice_config::Git,
    /// The folder of git's own programs, once it was looked up.
    programs: OnceCell<PathBuf>,
    turns: Semaphore,
    /// A lock: writes of this gateway happen one at a time.
    writing: tokio::sync::Mutex<()>,
    /// The address and branch of a call's remote, between a lookup and settling.
    remotes: Mutex<HashMap<String, (String, Option<String>)>>,
}

impl std::fmt::Debug for GitService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Git").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The meaning of a refusal for a write. Failures of the machine can be retried.
fn trouble(refusal: Refusal) -> WriteError {
    match refusal.code() {
        Code::GitFailed | Code::GitTooSlow | Code::FilesNotAsApproved | Code::FilesDiskFull => {
            WriteError::NotDone(refusal)
        }
        _ => WriteError::Refused(refusal),
    }
}

fn text<'a>(action: &'a Action, name: &str) -> Option<&'a str> {
    action.arguments().get(name).and_then(Value::as_str)
}

fn path(action: &Action) -> &str {
    text(action, "path").unwrap_or_default()
}

/// Whether a write only lists.
fn only_lists(action: &Action) -> bool {
    action.capability().as_str() == "git.branch" && text(action, "action") == Some("list")
}

impl GitService {
    /// The service over these folders.
    #[must_use]
    pub fn new(deps: GitDeps, settings: sluice_config::Git) -> Self {
        let GitDeps { files, workers, egress, clock, ids, scratch } = deps;
        // Left behind by a gateway that was killed.
        let _gone = std::fs::remove_dir_all(&scratch);
        Self {
            files,
            workers,
            egress,
            clock,
            ids,
            scratch,
            settings,
            programs: OnceCell::new(),
            turns: Semaphore::new(AT_ONCE),
            writing: tokio::sync::Mutex::new(()),
            remotes: Mutex::default(),
        }
    }

    async fn answer(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let repository = self.open(&ask.action, path(&ask.action), false).await?;
        let (arguments, reader) = (Value::Object(ask.action.arguments().clone()), ContentRecipient::of(ask));
        match ask.action.capability().as_str() {
            "git.status" => repository.show_status(reader).await,
            "git.log" => repository.show_log(&arguments, reader).await,
            "git.diff" => repository.show_diff(&arguments, reader).await,
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    /// The plan of a write and the lines for people. Nothing is changed.
    async fn look(&self, action: &Action, hold: HoldId) -> Result<(Option<GitPlan>, Vec<String>), Refusal> {
        match action.capability().as_str() {
            _ if only_lists(action) => Ok((None, Vec::new())),
            "git.init" | "git.clone" => {
                if action.capability().as_str() == "git.clone" {
                    self.reached(text(action, "url").unwrap_or_default())?;
                }
                self.installed().await?;
                if !self.files.is_free(action, path(action)).await? {
                    let words = "there is already something in this folder; name a new or an empty one";
                    return Err(Refusal::new(Code::GitExists).with_text(words));
                }
                Ok((None, vec![format!("state of the repository: nothing is at {}", path(action))]))
            }
            "git.push" => {
                let url = text(action, "remote").unwrap_or_default();
                self.reached(url)?;
                let repository = self.open(action, path(action), false).await?;
                let (commit, mut lines) = repository.outgoing(action).await?;
                lines.insert(0, format!("publishes to {url}"));
                lines.push(format!("state of the repository: commit {commit}"));
                Ok((None, lines))
            }
            _ => {
                if action.capability().as_str() == "git.pull" {
                    self.reached(text(action, "remote").unwrap_or_default())?;
                }
                let repository = self.open(action, path(action), true).await?;
                let PreparedGitPlan { plan, lines } = repository.work_out(action, hold, self.clock.now()).await?;
                Ok((Some(plan), lines))
            }
        }
    }

    async fn get_ready(&self, hold: &Hold) -> Result<PreparedWrite, Refusal> {
        let (plan, lines) = self.look(&hold.action, hold.id).await?;
        // SECURITY: a person approved exactly the state that they were shown.
        let bound = hold.action.found().last();
        if hold.consent.is_some() && bound.is_some() && bound != lines.last() {
            return Err(Refusal::new(Code::FilesNotAsApproved));
        }
        let handle = match hold.action.capability().as_str() {
            "git.push" => lines.last().and_then(|line| line.rsplit(' ').next()).map(str::to_owned),
            _ => None,
        };
        let before = plan.map(|plan| plan.write().map(|content| (content, plan.before()))).transpose()?;
        Ok(PreparedWrite { handle, before })
    }

    async fn carry_out(
        &self,
        permit: Permit,
        hold: &Hold,
        before: Option<&[u8]>,
    ) -> Result<CompletedWrite, WriteError> {
        let _alone = self.writing.lock().await;
        let action = permit.action();
        match (action.capability().as_str(), before) {
            ("git.branch", None) => self.list(hold).await.map_err(trouble),
            ("git.init", None) => self.begin(action).await.map_err(trouble),
            ("git.clone", None) => {
                self.begin(action).await.map_err(trouble)?;
                let mut repository = self.open(action, path(action), true).await.map_err(trouble)?;
                repository.fill(action).await
            }
            ("git.push", None) => {
                let repository = self.open(action, path(action), true).await.map_err(trouble)?;
                let (commit, _) = repository.outgoing(action).await.map_err(trouble)?;
                let bound = action.found().last().and_then(|line| line.rsplit(' ').next());
                if bound.is_some_and(|bound| bound != commit) {
                    return Err(WriteError::refused(Code::FilesChanged));
                }
                repository.push(action, &commit).await
            }
            (_, Some(before)) => {
                let plan = GitPlan::read(before).map_err(trouble)?;
                if plan.hold != permit.hold() {
                    return Err(WriteError::refused(Code::ExecuteRefusedMismatch));
                }
                let repository = self.open(action, path(action), true).await.map_err(trouble)?;
                match plan.kind {
                    GitPlanKind::Pull => repository.pull(action, &plan).await,
                    GitPlanKind::Commit | GitPlanKind::Branch | GitPlanKind::Switch => {
                        repository.carry_out(action, &plan).await
                    }
                }
            }
            _ => Err(WriteError::refused(Code::GatewayUnsupported)),
        }
    }

    /// `git.branch` that lists.
    async fn list(&self, hold: &Hold) -> Result<CompletedWrite, Refusal> {
        let repository = self.open(&hold.action, path(&hold.action), false).await?;
        let args =
            ["for-each-ref", "--count=1000", "--format=%(refname)%00%(objectname)", "refs/heads", "refs/remotes"];
        let said = String::from_utf8_lossy(&repository.run_checked(GitCommand::new(args)).await?).into_owned();
        let current = repository.head_branch().await?;
        let refs: Vec<(&str, &str)> = said.lines().filter_map(|line| line.split_once('\0')).collect();
        let names = refs.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut may =
            self.files.screen_names(ContentRecipient::of_write(hold), &repository.folder, names).await?.into_iter();
        let shown = refs.iter().filter(|_| may.next().unwrap_or(false)).map(|(name, commit)| {
            let short = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/remotes/"));
            json!({"name": short, "commit": commit, "remote": name.starts_with("refs/remotes/"),
                   "current": current.as_deref() == Some(*name)})
        });
        let result = json!({"branches": shown.collect::<Vec<_>>()});
        Ok(CompletedWrite { receipt: "listed".into(), result, after: None, undo_until: None })
    }

    /// Creates an empty repository.
    async fn begin(&self, action: &Action) -> Result<CompletedWrite, Refusal> {
        self.files.make_hosted(action, path(action)).await?;
        let repository = self.open_folder(action, path(action), true).await?;
        if self.files.hosts(&repository.folder, ".git").await?.is_none() {
            repository.begin().await?;
        }
        let result = json!({"path": path(action), "branch": "main"});
        Ok(CompletedWrite { receipt: "repository created".into(), result, after: None, undo_until: None })
    }

    async fn find_out(&self, hold: &Hold, before: Option<&[u8]>) -> Result<LookupOutcome, Refusal> {
        let action = &hold.action;
        let performed = |receipt: &str| CompletedWrite {
            receipt: receipt.to_owned(),
            result: json!({"path": path(action)}),
            after: None,
            undo_until: None,
        };
        match (action.capability().as_str(), before) {
            ("git.branch", None) => Ok(LookupOutcome::Absent),
            ("git.init", None) => match self.open(action, path(action), false).await {
                Ok(_) => Ok(LookupOutcome::Applied(performed("repository created"))),
                Err(_) => Ok(LookupOutcome::Absent),
            },
            ("git.clone", None) => match self.open(action, path(action), false).await {
                Ok(repository) if repository.commit_of("HEAD").await?.is_some() => {
                    Ok(LookupOutcome::Applied(performed("cloned")))
                }
                Ok(_) => Ok(LookupOutcome::Unknown),
                Err(_) => Ok(LookupOutcome::Absent),
            },
            ("git.push", None) => match &hold.handle {
                Some(commit) => Ok(self.open(action, path(action), false).await?.pushed(action, commit).await),
                None => Ok(LookupOutcome::Absent),
            },
            (_, Some(before)) => {
                let plan = GitPlan::read(before)?;
                let repository = self.open(action, path(action), false).await?;
                let present = repository.present(&plan).await?;
                Ok(match plan.kind {
                    _ if present == plan.before() => LookupOutcome::Absent,
                    GitPlanKind::Commit | GitPlanKind::Branch | GitPlanKind::Switch if present == plan.after() => {
                        LookupOutcome::Applied(repository.performed(&plan))
                    }
                    GitPlanKind::Commit | GitPlanKind::Branch | GitPlanKind::Switch | GitPlanKind::Pull => {
                        LookupOutcome::Unknown
                    }
                })
            }
            _ => Ok(LookupOutcome::Unknown),
        }
    }

    /// Looks up the remote of a call, for [`Service::settle`].
    async fn remember_remote(&self, key: String, path: &str, remote: &str) -> Result<(), Refusal> {
        let found = self.open_settled(path).await;
        let Ok(repository) = found else { return Ok(()) };
        let url = repository.settings.remotes.get(remote).cloned().unwrap_or_else(|| remote.to_owned());
        let branch = repository.head_branch().await?;
        let branch = branch.and_then(|name| name.strip_prefix("refs/heads/").map(str::to_owned));
        let mut remotes = self.remotes.lock();
        if remotes.len() >= REMEMBERED {
            remotes.clear();
        }
        remotes.insert(key, (url, branch));
        Ok(())
    }
}

/// The remote that a call names: its path, the remote, and the key under which both are remembered.
fn remote_of(arguments: &Value) -> Option<(&str, &str, String)> {
    let path = arguments.get("path")?.as_str()?;
    let remote = arguments.get("remote").and_then(Value::as_str).unwrap_or("origin");
    Some((path, remote, format!("{path}\0{remote}")))
}

fn has_remote(capability: &CapabilityName) -> bool {
    ["git.pull", "git.push"].contains(&capability.as_str())
}

impl Service for GitService {
    fn is_local(&self) -> bool {
        true
    }

    fn offers(&self, capability: &CapabilityName) -> bool {
        capability.as_str().starts_with("git.")
    }

    fn reads_from(&self, capability: &CapabilityName) -> ReadSource {
        match capability.as_str() {
            "git.clone" | "git.pull" | "git.push" => ReadSource::Outside,
            _ => ReadSource::OwnState,
        }
    }

    fn before_settling<'a>(
        &'a self,
        capability: &CapabilityName,
        arguments: &'a Value,
    ) -> Option<BoxedFuture<'a, Result<(), Refusal>>> {
        let (path, remote, key) = remote_of(arguments).filter(|_| has_remote(capability))?;
        Some(Box::pin(async move { self.remember_remote(key, path, remote).await }))
    }

    /// Replaces the remote of a call by its address, and sets the branch that it means: both are judged and shown.
    fn settle(&self, capability: &CapabilityName, mut arguments: Value) -> Result<Value, Refusal> {
        let spelled = |url: &str| self.reached(url).map_or_else(|_| url.to_owned(), |(url, _)| url);
        if capability.as_str() == "git.clone"
            && let Some(url) = arguments.get("url").and_then(Value::as_str)
        {
            let url = spelled(url);
            put(&mut arguments, "url", url);
        }
        if has_remote(capability)
            && let Some((_, _, key)) = remote_of(&arguments)
        {
            let found = self.remotes.lock().get(&key).cloned();
            if let Some((url, branch)) = found {
                put(&mut arguments, "remote", spelled(&url));
                if let (None, Some(branch)) = (arguments.get("branch"), branch) {
                    put(&mut arguments, "branch", branch);
                }
            }
        }
        Ok(arguments)
    }

    fn describe_targets(&self, action: &Action) -> Vec<String> {
        action.found().to_vec()
    }

    fn describe_current_state<'a>(&'a self, action: &'a Action) -> BoxedFuture<'a, Result<Vec<String>, Refusal>> {
        if ["git.status", "git.log", "git.diff"].contains(&action.capability().as_str()) {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        Box::pin(async move { self.look(action, HoldId::from_bits(0)).await.map(|(_, lines)| lines) })
    }

    fn read<'a>(&'a self, ask: &'a ServiceRead) -> BoxedFuture<'a, Result<Value, Refusal>> {
        Box::pin(self.answer(ask))
    }

    fn prepare<'a>(&'a self, hold: &'a Hold) -> BoxedFuture<'a, Result<PreparedWrite, WriteError>> {
        Box::pin(async move { self.get_ready(hold).await.map_err(trouble) })
    }

    fn perform<'a>(
        &'a self,
        permit: Permit,
        hold: &'a Hold,
        before: Option<&'a [u8]>,
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(self.carry_out(permit, hold, before))
    }

    fn look_up<'a>(&'a self, hold: &'a Hold, before: Option<&'a [u8]>) -> BoxedFuture<'a, LookupOutcome> {
        Box::pin(async move { self.find_out(hold, before).await.unwrap_or(LookupOutcome::Unknown) })
    }

    fn current_fingerprint<'a>(
        &'a self,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<ObjectFingerprint, WriteError>> {
        Box::pin(async move {
            let plan = GitPlan::read(before).map_err(trouble)?;
            let repository = self.open(&done.action, &plan.path, false).await.map_err(trouble)?;
            repository.present(&plan).await.map_err(trouble)
        })
    }

    fn undo<'a>(
        &'a self,
        permit: Permit,
        done: &'a Hold,
        before: &'a [u8],
    ) -> BoxedFuture<'a, Result<CompletedWrite, WriteError>> {
        Box::pin(async move {
            let _alone = self.writing.lock().await;
            // Spent by this one change, whatever the result.
            drop(permit);
            let mut plan = GitPlan::read(before).map_err(trouble)?;
            if plan.hold != done.id {
                return Err(WriteError::refused(Code::ExecuteRefusedMismatch));
            }
            // The commit that a pull led to is known only after it happened.
            if let (GitPlanKind::Pull, HoldState::Done { receipt, .. }) = (plan.kind, &done.state) {
                plan.new = receipt.rsplit(' ').next().map(str::to_owned);
            }
            let repository = self.open(&done.action, &plan.path, true).await.map_err(trouble)?;
            repository.take_back(&plan).await?;
            let result = json!({"path": plan.path, "reference": plan.reference, "commit": plan.old});
            Ok(CompletedWrite { receipt: "rolled back".into(), result, after: None, undo_until: None })
        })
    }
}
