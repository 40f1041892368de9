//! Repository changes: what a write will do, computed before it does it.
//!
//! Takes an action; gives the plan with the ref before and after, and the lines that a person is shown. Commits are
//! built from plain objects, so that their name is known before anything is changed. Promise: a ref moves only from the
//! state that was shown to the planned one, in one step of git; with the plan, the repository alone shows whether it
//! happened, and the plan holds what a rollback needs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::ObjectFingerprint;
use sluice_core::{Action, HoldId, UtcMillis};

use super::inspect::GitStatusEntry;
use super::repository::{GitCommand, GitRepository, check_revision, is_object};
use super::trouble;
use crate::{CompletedWrite, WriteError};

/// The beginning of the line that an approval is bound to.
const BINDING: &str = "state of the repository: ";
/// The most lines of a difference that are shown.
const DIFF_LINES: usize = 200;
/// The most characters of one line of a difference.
const DIFF_LINE: usize = 500;
/// The most files that are named.
const NAMED: usize = 200;

/// The kind of a repository change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GitPlanKind {
    /// Records files.
    Commit,
    /// Creates, moves or removes a branch; files do not change.
    Branch,
    /// Checks another branch out.
    Switch,
    /// Moves the branch and the files to the state of a remote.
    Pull,
}

/// A computed write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GitPlan {
    pub v: u8,
    pub hold: HoldId,
    pub kind: GitPlanKind,
    /// The repository's folder.
    pub path: String,
    /// The ref that is moved. For a switch: the branch that is checked out afterwards.
    pub reference: String,
    /// For a switch: the branch that is checked out before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The commit before; nothing if there is none.
    pub old: Option<String>,
    /// The commit after; nothing if the ref is removed, or if it is not known yet.
    pub new: Option<String>,
    /// The tree of a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The files of a commit.
    #[serde(default)]
    pub ways: Vec<String>,
    /// The time of the commit.
    pub at: UtcMillis,
}

impl GitPlan {
    pub fn read(before: &[u8]) -> Result<Self, Refusal> {
        let plan: Self =
            serde_json::from_slice(before).map_err(|error| Refusal::new(Code::GitFailed).with_source(error))?;
        if plan.v == 1 {
            Ok(plan)
        } else {
            Err(Refusal::new(Code::GitFailed).with_source("a plan with an unknown format"))
        }
    }

    pub fn write(&self) -> Result<Vec<u8>, Refusal> {
        serde_json::to_vec(self).map_err(|error| Refusal::new(Code::GitFailed).with_source(error))
    }

    /// The fingerprint of the ref at this commit.
    pub fn fingerprint(&self, commit: Option<&str>) -> ObjectFingerprint {
        let what = if self.kind == GitPlanKind::Switch { "HEAD" } else { self.reference.as_str() };
        ObjectFingerprint::of(format!("{} {what} {}", self.path, commit.unwrap_or("absent")).as_bytes())
    }

    /// The fingerprint before the write.
    pub fn before(&self) -> ObjectFingerprint {
        match self.kind {
            GitPlanKind::Switch => self.fingerprint(self.from.as_deref()),
            GitPlanKind::Commit | GitPlanKind::Branch | GitPlanKind::Pull => self.fingerprint(self.old.as_deref()),
        }
    }

    /// The fingerprint after the write.
    pub fn after(&self) -> ObjectFingerprint {
        match self.kind {
            GitPlanKind::Switch => self.fingerprint(Some(&self.reference)),
            GitPlanKind::Commit | GitPlanKind::Branch | GitPlanKind::Pull => self.fingerprint(self.new.as_deref()),
        }
    }
}

/// The result of computing an action: the plan, and the lines for people. An approval is bound to the last line.
#[derive(Debug)]
pub(super) struct PreparedGitPlan {
    pub plan: GitPlan,
    pub lines: Vec<String>,
}

fn text<'a>(action: &'a Action, name: &str) -> Option<&'a str> {
    action.arguments().get(name).and_then(Value::as_str)
}

/// The full name of a branch.
pub(super) fn branch_ref(name: &str) -> Result<String, Refusal> {
    let name = check_revision(name)?;
    if name.contains(['~', '^', '@']) || name.ends_with(['/', '.']) || name.ends_with(".lock") || name == "HEAD" {
        return Err(Refusal::new(Code::SchemaBadName).with_text("this cannot be the name of a branch"));
    }
    Ok(format!("refs/heads/{name}"))
}

impl GitRepository<'_> {
    /// Computes a write. Changes nothing in the repository.
    pub(super) async fn work_out(
        &self,
        action: &Action,
        hold: HoldId,
        now: UtcMillis,
    ) -> Result<PreparedGitPlan, Refusal> {
        let blank = GitPlan {
            v: 1,
            hold,
            kind: GitPlanKind::Branch,
            path: self.folder.path.clone(),
            reference: String::new(),
            from: None,
            old: None,
            new: None,
            tree: None,
            ways: Vec::new(),
            at: now,
        };
        match (action.capability().as_str(), text(action, "action")) {
            ("git.commit", _) => self.plan_commit(action, blank).await,
            ("git.branch", Some("create")) => self.plan_create(action, blank).await,
            ("git.branch", Some("delete")) => self.plan_delete(action, blank).await,
            ("git.branch", Some("switch")) => self.plan_switch(action, blank).await,
            ("git.pull", _) => self.plan_pull(blank).await,
            _ => Err(Refusal::new(Code::GatewayUnsupported)),
        }
    }

    async fn plan_pull(&self, blank: GitPlan) -> Result<PreparedGitPlan, Refusal> {
        let reference = self.current_branch().await?;
        let old = self.commit_of("HEAD").await?;
        let shown = old.as_deref().unwrap_or("none");
        let lines =
            vec![format!("repository {}, {reference}", self.folder.path), format!("{BINDING}{reference} at {shown}")];
        Ok(PreparedGitPlan { plan: GitPlan { kind: GitPlanKind::Pull, reference, old, ..blank }, lines })
    }

    pub(super) async fn current_branch(&self) -> Result<String, Refusal> {
        let none = || Refusal::new(Code::GitUnknownRevision).with_text("no branch is checked out; switch to one first");
        self.head_branch().await?.ok_or_else(none)
    }

    /// The files that a commit records.
    async fn recorded(&self, action: &Action) -> Result<Vec<GitStatusEntry>, Refusal> {
        let mut entries = self.status().await?.entries;
        entries.retain(|entry| !entry.is_repository);
        let Some(files) = action.arguments().get("files").and_then(Value::as_array) else { return Ok(entries) };
        let mut wanted = Vec::with_capacity(files.len());
        for file in files.iter().filter_map(Value::as_str) {
            let way = file.strip_prefix(&format!("{}/", self.folder.path)).unwrap_or(file).trim_end_matches('/');
            let odd =
                way.is_empty() || way.starts_with('/') || way.split('/').any(|part| part == ".." || part == ".git");
            if odd || way.chars().any(char::is_control) {
                let words = "files are named by their path in the repository, without `..`";
                return Err(Refusal::new(Code::SchemaWrongType).with_text(words));
            }
            if !self.folder.sees(way) {
                return Err(Refusal::new(Code::GitHiddenPath));
            }
            let below = format!("{way}/");
            if !entries.iter().any(|entry| entry.way == way || entry.way.starts_with(&below)) {
                return Err(Refusal::new(Code::GitNothingToCommit).with_text(&format!("`{way}` did not change")));
            }
            wanted.push((way.to_owned(), below));
        }
        entries.retain(|entry| wanted.iter().any(|(way, below)| entry.way == *way || entry.way.starts_with(below)));
        Ok(entries)
    }

    /// Environment variables for a run with an index of its own. Unless `for_good` is set, objects stay out of the
    /// repository.
    fn apart(&self, for_good: bool) -> Vec<(&'static str, String)> {
        let work = self.scratch.work();
        let mut variables = vec![("GIT_INDEX_FILE", work.join("index").display().to_string())];
        if !for_good {
            variables.push(("GIT_OBJECT_DIRECTORY", work.join("objects").display().to_string()));
            variables.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.folder.path_of(".git/objects")));
        }
        variables
    }

    /// The tree of the last commit with these files as they are on the disk.
    async fn tree_of(&self, old: Option<&str>, ways: &[String], for_good: bool) -> Result<String, Refusal> {
        let step = |args: &[&str]| GitCommand {
            variables: self.apart(for_good),
            writes: for_good,
            ..GitCommand::new(args.iter().copied())
        };
        // The rest of an earlier index is replaced.
        self.run_checked(step(&["read-tree", old.unwrap_or_else(|| self.empty_tree())])).await.or_else(|refused| {
            // The empty tree is valid even if it was never stored.
            if old.is_none() { Ok(Vec::new()) } else { Err(refused) }
        })?;
        let mut input = ways.join("\0").into_bytes();
        input.push(0);
        let add = step(&["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"]);
        self.run_checked(GitCommand { input, ..add }).await?;
        self.object(step(&["write-tree"])).await
    }

    async fn object(&self, step: GitCommand) -> Result<String, Refusal> {
        let id = self.line(step).await?;
        if is_object(&id) {
            Ok(id)
        } else {
            Err(Refusal::new(Code::GitFailed).with_source("not the name of an object"))
        }
    }

    async fn plan_commit(&self, action: &Action, blank: GitPlan) -> Result<PreparedGitPlan, Refusal> {
        self.author(action)?;
        let reference = self.current_branch().await?;
        let old = self.commit_of("HEAD").await?;
        let entries = self.recorded(action).await?;
        if entries.is_empty() {
            return Err(Refusal::new(Code::GitNothingToCommit));
        }
        let ways: Vec<String> = entries.iter().map(|entry| entry.way.clone()).collect();
        let tree = self.tree_of(old.as_deref(), &ways, false).await?;
        let mut lines = vec![format!(
            "repository {}, {reference}, last commit {}",
            self.folder.path,
            old.as_deref().unwrap_or("none")
        )];
        lines.push(format!("records {} files", ways.len()));
        lines.extend(ways.iter().take(NAMED).map(|way| format!("file {way}")));
        let sides = [old.as_deref().unwrap_or_else(|| self.empty_tree()), tree.as_str()];
        let before = if old.is_some() || self.has_empty_tree().await? { Some(sides) } else { None };
        if let Some(sides) = before {
            let found = self.difference_with(&["diff-tree", "-r"], &sides, &self.apart(false)).await?;
            lines.extend(shown_difference(&found.parts, found.is_cut));
        }
        lines.push(format!("{BINDING}{reference} at {}, tree {tree}", old.as_deref().unwrap_or("none")));
        let plan = GitPlan { kind: GitPlanKind::Commit, reference, old, tree: Some(tree), ways, ..blank };
        let new = self.commit_object(action, &plan, false).await?;
        Ok(PreparedGitPlan { plan: GitPlan { new: Some(new), ..plan }, lines })
    }

    /// Whether git can compare with the empty tree here.
    async fn has_empty_tree(&self) -> Result<bool, Refusal> {
        let step =
            GitCommand { variables: self.apart(false), ..GitCommand::new(["cat-file", "-e", self.empty_tree()]) };
        Ok(self.run_any_exit(step).await?.is_success())
    }

    fn author(&self, action: &Action) -> Result<(String, String), Refusal> {
        let (name, mail) = &self.settings.author;
        let name = text(action, "author_name").map(str::to_owned).or_else(|| name.clone());
        let mail = text(action, "author_email").map(str::to_owned).or_else(|| mail.clone());
        let plain = |text: &String| {
            !text.trim().is_empty() && text.len() <= 200 && !text.chars().any(|c| c.is_control() || "<>".contains(c))
        };
        match (name.filter(plain), mail.filter(plain)) {
            (Some(name), Some(mail)) => Ok((name, mail)),
            _ => Err(Refusal::new(Code::GitNoAuthor)),
        }
    }

    /// The commit of a plan. Its name depends only on the plan.
    async fn commit_object(&self, action: &Action, plan: &GitPlan, for_good: bool) -> Result<String, Refusal> {
        let (name, mail) = self.author(action)?;
        let at = format!("@{} +0000", plan.at.as_millis() / 1000);
        let mut variables = self.apart(for_good);
        for (key, value) in [
            ("GIT_AUTHOR_NAME", &name),
            ("GIT_AUTHOR_EMAIL", &mail),
            ("GIT_AUTHOR_DATE", &at),
            ("GIT_COMMITTER_NAME", &name),
            ("GIT_COMMITTER_EMAIL", &mail),
            ("GIT_COMMITTER_DATE", &at),
        ] {
            variables.push((key, value.clone()));
        }
        let mut args = vec!["commit-tree", plan.tree.as_deref().unwrap_or_default()];
        if let Some(old) = &plan.old {
            args.extend(["-p", old.as_str()]);
        }
        args.extend(["-F", "-"]);
        let mut message = text(action, "message").unwrap_or_default().trim_end().to_owned();
        message.push('\n');
        let step = GitCommand { variables, input: message.into_bytes(), writes: for_good, ..GitCommand::new(args) };
        self.object(step).await
    }

    async fn plan_create(&self, action: &Action, blank: GitPlan) -> Result<PreparedGitPlan, Refusal> {
        let reference = branch_ref(text(action, "name").ok_or_else(no_name)?)?;
        if self.commit_of(&reference).await?.is_some() {
            return Err(Refusal::new(Code::GitExists));
        }
        let start = check_revision(text(action, "start_point").unwrap_or("HEAD"))?;
        let new = self.commit_of(start).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))?;
        let lines = vec![format!("new branch in {}", self.folder.path), format!("{BINDING}{reference} will be {new}")];
        Ok(PreparedGitPlan { plan: GitPlan { reference, new: Some(new), ..blank }, lines })
    }

    async fn plan_delete(&self, action: &Action, blank: GitPlan) -> Result<PreparedGitPlan, Refusal> {
        let reference = branch_ref(text(action, "name").ok_or_else(no_name)?)?;
        let old = self.commit_of(&reference).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))?;
        if self.head_branch().await?.as_deref() == Some(reference.as_str()) {
            return Err(Refusal::new(Code::GitConflict).with_text("the branch is checked out; switch to another first"));
        }
        let lines =
            vec![format!("deletes a branch of {}", self.folder.path), format!("{BINDING}{reference} was {old}")];
        Ok(PreparedGitPlan { plan: GitPlan { reference, old: Some(old), ..blank }, lines })
    }

    async fn plan_switch(&self, action: &Action, blank: GitPlan) -> Result<PreparedGitPlan, Refusal> {
        let reference = branch_ref(text(action, "name").ok_or_else(no_name)?)?;
        let from = self.current_branch().await?;
        let unknown = || Refusal::new(Code::GitUnknownRevision);
        let (old, new) = (self.commit_of("HEAD").await?, self.commit_of(&reference).await?.ok_or_else(unknown)?);
        let old = old.ok_or_else(unknown)?;
        let ways = self.replaced(action, &old, &new).await?;
        let mut lines = vec![format!("checks {reference} out in {}, replacing {} files", self.folder.path, ways.len())];
        lines.extend(ways.iter().take(NAMED).map(|way| format!("file {way}")));
        lines.push(format!("{BINDING}{from} at {old}, {reference} at {new}"));
        let plan =
            GitPlan { kind: GitPlanKind::Switch, reference, from: Some(from), old: Some(old), new: Some(new), ..blank };
        Ok(PreparedGitPlan { plan, lines })
    }

    /// The files that differ between two commits. Refuses files that the agent may not replace.
    pub(super) async fn replaced(&self, action: &Action, old: &str, new: &str) -> Result<Vec<String>, Refusal> {
        let args = ["diff-tree", "-r", "--name-only", "-z", "--no-renames", "--no-commit-id", old, new];
        let said = self.run_checked(GitCommand { most: Some(8 << 20), ..GitCommand::new(args) }).await?;
        let ways: Vec<String> =
            String::from_utf8_lossy(&said).split('\0').filter(|way| !way.is_empty()).map(str::to_owned).collect();
        self.git.files.may_replace(action, &self.folder, &ways).map(|()| ways)
    }

    /// Carries a plan out.
    pub(super) async fn carry_out(&self, action: &Action, plan: &GitPlan) -> Result<CompletedWrite, WriteError> {
        let (old, new) = (plan.old.as_deref(), plan.new.as_deref());
        match plan.kind {
            GitPlanKind::Commit => {
                let changed = || WriteError::Refused(Refusal::new(Code::FilesChanged));
                let tree = self.tree_of(old, &plan.ways, true).await.map_err(trouble)?;
                if plan.tree.as_deref() != Some(tree.as_str()) {
                    return Err(changed());
                }
                let commit = self.commit_object(action, plan, true).await.map_err(trouble)?;
                if new != Some(commit.as_str()) {
                    return Err(changed());
                }
                // Updates the index of the people who work here, so that recorded files are no longer shown as changed.
                let mut input = plan.ways.join("\0").into_bytes();
                input.push(0);
                let add = GitCommand::new(["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"]).writing();
                self.run_checked(GitCommand { input, ..add }).await.map_err(trouble)?;
                self.move_ref(&plan.reference, old, new).await?;
            }
            GitPlanKind::Branch => self.move_ref(&plan.reference, old, new).await?,
            GitPlanKind::Switch => {
                self.move_files(old.unwrap_or_default(), new.unwrap_or_default()).await?;
                self.point_head(&plan.reference).await?;
            }
            GitPlanKind::Pull => return Err(WriteError::refused(Code::GatewayUnsupported)),
        }
        Ok(self.performed(plan))
    }

    /// The answer to the agent for a plan that was carried out.
    pub(super) fn performed(&self, plan: &GitPlan) -> CompletedWrite {
        let short = plan.reference.strip_prefix("refs/heads/").unwrap_or(&plan.reference);
        CompletedWrite {
            receipt: format!("{} {}", plan.reference, plan.new.as_deref().unwrap_or("deleted")),
            result: json!({"path": plan.path, "branch": short, "before": plan.old, "commit": plan.new,
                           "files": plan.ways.len()}),
            after: Some(plan.after()),
            undo_until: None,
        }
    }

    /// Rolls a plan back.
    pub(super) async fn take_back(&self, plan: &GitPlan) -> Result<(), WriteError> {
        let (old, new) = (plan.old.as_deref(), plan.new.as_deref());
        match plan.kind {
            // The files stay as they are, so that no work is lost.
            GitPlanKind::Commit | GitPlanKind::Branch => self.move_ref(&plan.reference, new, old).await,
            GitPlanKind::Switch => {
                self.move_files(new.unwrap_or_default(), old.unwrap_or_default()).await?;
                self.point_head(plan.from.as_deref().unwrap_or_default()).await
            }
            GitPlanKind::Pull => {
                let (Some(old), Some(new)) = (old, new) else {
                    return Err(WriteError::refused(Code::RollbackIrreversible));
                };
                self.move_files(new, old).await?;
                self.move_ref(&plan.reference, Some(new), Some(old)).await
            }
        }
    }

    /// Moves a ref from one commit to another in one step, or not at all.
    pub(super) async fn move_ref(&self, name: &str, old: Option<&str>, new: Option<&str>) -> Result<(), WriteError> {
        let none = self.no_object();
        let args = match new {
            Some(new) => vec!["update-ref", "-m", "sluicegate", name, new, old.unwrap_or(&none)],
            None => vec!["update-ref", "-d", name, old.unwrap_or(&none)],
        };
        let outcome = self.run_any_exit(GitCommand::new(args).writing()).await;
        match outcome {
            Ok(outcome) if outcome.is_success() => Ok(()),
            Ok(_) => Err(WriteError::refused(Code::FilesChanged)),
            Err(_) => Err(WriteError::Unclear),
        }
    }

    /// Replaces the files of one commit by those of another; refuses to overwrite uncommitted changes.
    pub(super) async fn move_files(&self, old: &str, new: &str) -> Result<(), WriteError> {
        // The index stores owner and time of files as another user saw them; in the sandbox owners have other numbers.
        // Files that really differ stay different, and the next step refuses them.
        let _refreshed = self.run_any_exit(GitCommand::new(["update-index", "-q", "--refresh"]).writing()).await;
        let outcome = self.run_any_exit(GitCommand::new(["read-tree", "-m", "-u", old, new]).writing()).await;
        match outcome {
            Ok(outcome) if outcome.is_success() => Ok(()),
            Ok(_) => Err(WriteError::refused(Code::GitConflict)),
            Err(_) => Err(WriteError::Unclear),
        }
    }

    async fn point_head(&self, reference: &str) -> Result<(), WriteError> {
        let step = GitCommand::new(["symbolic-ref", "-m", "sluicegate", "HEAD", reference]).writing();
        match self.run_any_exit(step).await {
            Ok(outcome) if outcome.is_success() => Ok(()),
            Ok(_) | Err(_) => Err(WriteError::Unclear),
        }
    }

    /// The fingerprint of a plan's object, as it is now.
    pub(super) async fn present(&self, plan: &GitPlan) -> Result<ObjectFingerprint, Refusal> {
        let now = match plan.kind {
            GitPlanKind::Switch => self.head_branch().await?,
            GitPlanKind::Commit | GitPlanKind::Branch | GitPlanKind::Pull => self.commit_of(&plan.reference).await?,
        };
        Ok(plan.fingerprint(now.as_deref()))
    }
}

fn no_name() -> Refusal {
    Refusal::new(Code::SchemaMissingArgument).with_text("the argument `name` is missing")
}

fn shown_difference(parts: &[(String, String)], is_cut: bool) -> Vec<String> {
    let cut = |line: &str| line.chars().take(DIFF_LINE).collect::<String>();
    let all = || parts.iter().flat_map(|(_, text)| text.lines());
    let mut lines: Vec<String> = all().take(DIFF_LINES).map(cut).collect();
    let more = all().skip(DIFF_LINES).count();
    if more > 0 || is_cut {
        lines.push(format!("({more} more lines of the difference are not shown)"));
    }
    lines
}
