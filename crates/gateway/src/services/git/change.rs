//! Changing a repository: what a write will do, worked out before it does it.
//!
//! Takes an action; gives the plan with the ref before and after, and the lines that a person is shown. Commits are made
//! from plain objects, so that their name is known before anything is changed. Promise: a ref moves only from the
//! state that was looked at to the one that was planned, in one step of git; whoever holds the plan can tell from the
//! repository alone whether it happened, and has what it takes to go back.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::rollback::Fingerprint;
use sluice_core::{Action, HoldId, Timestamp};

use super::look::Entry;
use super::repository::{GitStep, Repository, check_revision, is_object};
use super::trouble;
use crate::services::{Performed, Trouble};

/// How the line begins that an approval is bound to.
const BINDING: &str = "state of the repository: ";
/// Lines of a difference that are shown.
const DIFF_LINES: usize = 200;
/// Characters of one line of a difference.
const DIFF_LINE: usize = 500;
/// Files that are named.
const NAMED: usize = 200;

/// What a write does to a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Records files.
    Commit,
    /// Makes, moves or removes a branch; files stay as they are.
    Branch,
    /// Checks another branch out.
    Switch,
    /// Moves the branch and the files to what a remote has.
    Pull,
}

/// A write, worked out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    pub v: u8,
    pub hold: HoldId,
    pub kind: Kind,
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
    /// When the commit is made.
    pub at: Timestamp,
}

impl Plan {
    pub fn read(before: &[u8]) -> Result<Self, Refusal> {
        let plan: Self =
            serde_json::from_slice(before).map_err(|error| Refusal::new(Code::GitFailed).because(error))?;
        if plan.v == 1 { Ok(plan) } else { Err(Refusal::new(Code::GitFailed).because("a plan of another form")) }
    }

    pub fn write(&self) -> Result<Vec<u8>, Refusal> {
        serde_json::to_vec(self).map_err(|error| Refusal::new(Code::GitFailed).because(error))
    }

    /// The print of the ref with this commit.
    pub fn print(&self, commit: Option<&str>) -> Fingerprint {
        let what = if self.kind == Kind::Switch { "HEAD" } else { self.reference.as_str() };
        Fingerprint::of(format!("{} {what} {}", self.path, commit.unwrap_or("absent")).as_bytes())
    }

    /// The print before the write.
    pub fn before(&self) -> Fingerprint {
        match self.kind {
            Kind::Switch => self.print(self.from.as_deref()),
            Kind::Commit | Kind::Branch | Kind::Pull => self.print(self.old.as_deref()),
        }
    }

    /// The print after the write.
    pub fn after(&self) -> Fingerprint {
        match self.kind {
            Kind::Switch => self.print(Some(&self.reference)),
            Kind::Commit | Kind::Branch | Kind::Pull => self.print(self.new.as_deref()),
        }
    }
}

/// What an action finds: the plan, and the lines for people. The last line is the one that an approval is bound to.
#[derive(Debug)]
pub(super) struct WorkedOut {
    pub plan: Plan,
    pub lines: Vec<String>,
}

fn text<'a>(action: &'a Action, name: &str) -> Option<&'a str> {
    action.arguments().get(name).and_then(Value::as_str)
}

/// The whole name of a branch.
pub(super) fn branch_ref(name: &str) -> Result<String, Refusal> {
    let name = check_revision(name)?;
    if name.contains(['~', '^', '@']) || name.ends_with(['/', '.']) || name.ends_with(".lock") || name == "HEAD" {
        return Err(Refusal::new(Code::SchemaBadName).with_text("this cannot be the name of a branch"));
    }
    Ok(format!("refs/heads/{name}"))
}

impl Repository<'_> {
    /// Works a write out. Changes nothing in the repository.
    pub(super) async fn work_out(&self, action: &Action, hold: HoldId, now: Timestamp) -> Result<WorkedOut, Refusal> {
        let blank = Plan {
            v: 1,
            hold,
            kind: Kind::Branch,
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

    async fn plan_pull(&self, blank: Plan) -> Result<WorkedOut, Refusal> {
        let reference = self.current_branch().await?;
        let old = self.commit_of("HEAD").await?;
        let shown = old.as_deref().unwrap_or("none");
        let lines =
            vec![format!("repository {}, {reference}", self.folder.path), format!("{BINDING}{reference} at {shown}")];
        Ok(WorkedOut { plan: Plan { kind: Kind::Pull, reference, old, ..blank }, lines })
    }

    pub(super) async fn current_branch(&self) -> Result<String, Refusal> {
        let none = || Refusal::new(Code::GitUnknownRevision).with_text("no branch is checked out; switch to one first");
        self.head_branch().await?.ok_or_else(none)
    }

    /// The files that a commit records.
    async fn recorded(&self, action: &Action) -> Result<Vec<Entry>, Refusal> {
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

    /// Variables of a run that works on an index of its own. Unless it is for good, objects stay out of the repository.
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
        let step = |args: &[&str]| GitStep {
            variables: self.apart(for_good),
            writes: for_good,
            ..GitStep::new(args.iter().copied())
        };
        // What is left of an index that was made before is replaced.
        self.done(step(&["read-tree", old.unwrap_or_else(|| self.empty_tree())])).await.or_else(|refused| {
            // A tree that nobody has stored yet is still the empty one.
            if old.is_none() { Ok(Vec::new()) } else { Err(refused) }
        })?;
        let mut input = ways.join("\0").into_bytes();
        input.push(0);
        let add = step(&["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"]);
        self.done(GitStep { input, ..add }).await?;
        self.object(step(&["write-tree"])).await
    }

    async fn object(&self, step: GitStep) -> Result<String, Refusal> {
        let id = self.line(step).await?;
        if is_object(&id) { Ok(id) } else { Err(Refusal::new(Code::GitFailed).because("not the name of an object")) }
    }

    async fn plan_commit(&self, action: &Action, blank: Plan) -> Result<WorkedOut, Refusal> {
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
        let plan = Plan { kind: Kind::Commit, reference, old, tree: Some(tree), ways, ..blank };
        let new = self.commit_object(action, &plan, false).await?;
        Ok(WorkedOut { plan: Plan { new: Some(new), ..plan }, lines })
    }

    /// Whether the empty tree can be compared with here.
    async fn has_empty_tree(&self) -> Result<bool, Refusal> {
        let step = GitStep { variables: self.apart(false), ..GitStep::new(["cat-file", "-e", self.empty_tree()]) };
        Ok(self.tried(step).await?.is_success())
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

    /// The commit of a plan. Its name follows from the plan alone.
    async fn commit_object(&self, action: &Action, plan: &Plan, for_good: bool) -> Result<String, Refusal> {
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
        let step = GitStep { variables, input: message.into_bytes(), writes: for_good, ..GitStep::new(args) };
        self.object(step).await
    }

    async fn plan_create(&self, action: &Action, blank: Plan) -> Result<WorkedOut, Refusal> {
        let reference = branch_ref(text(action, "name").ok_or_else(no_name)?)?;
        if self.commit_of(&reference).await?.is_some() {
            return Err(Refusal::new(Code::GitExists));
        }
        let start = check_revision(text(action, "start_point").unwrap_or("HEAD"))?;
        let new = self.commit_of(start).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))?;
        let lines = vec![format!("new branch in {}", self.folder.path), format!("{BINDING}{reference} will be {new}")];
        Ok(WorkedOut { plan: Plan { reference, new: Some(new), ..blank }, lines })
    }

    async fn plan_delete(&self, action: &Action, blank: Plan) -> Result<WorkedOut, Refusal> {
        let reference = branch_ref(text(action, "name").ok_or_else(no_name)?)?;
        let old = self.commit_of(&reference).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))?;
        if self.head_branch().await?.as_deref() == Some(reference.as_str()) {
            return Err(Refusal::new(Code::GitConflict).with_text("the branch is checked out; switch to another first"));
        }
        let lines =
            vec![format!("deletes a branch of {}", self.folder.path), format!("{BINDING}{reference} was {old}")];
        Ok(WorkedOut { plan: Plan { reference, old: Some(old), ..blank }, lines })
    }

    async fn plan_switch(&self, action: &Action, blank: Plan) -> Result<WorkedOut, Refusal> {
        let reference = branch_ref(text(action, "name").ok_or_else(no_name)?)?;
        let from = self.current_branch().await?;
        let unknown = || Refusal::new(Code::GitUnknownRevision);
        let (old, new) = (self.commit_of("HEAD").await?, self.commit_of(&reference).await?.ok_or_else(unknown)?);
        let old = old.ok_or_else(unknown)?;
        let ways = self.replaced(action, &old, &new).await?;
        let mut lines = vec![format!("checks {reference} out in {}, replacing {} files", self.folder.path, ways.len())];
        lines.extend(ways.iter().take(NAMED).map(|way| format!("file {way}")));
        lines.push(format!("{BINDING}{from} at {old}, {reference} at {new}"));
        let plan = Plan { kind: Kind::Switch, reference, from: Some(from), old: Some(old), new: Some(new), ..blank };
        Ok(WorkedOut { plan, lines })
    }

    /// The files that differ between two commits. Refuses those that the agent may not have replaced.
    pub(super) async fn replaced(&self, action: &Action, old: &str, new: &str) -> Result<Vec<String>, Refusal> {
        let args = ["diff-tree", "-r", "--name-only", "-z", "--no-renames", "--no-commit-id", old, new];
        let said = self.done(GitStep { most: Some(8 << 20), ..GitStep::new(args) }).await?;
        let ways: Vec<String> =
            String::from_utf8_lossy(&said).split('\0').filter(|way| !way.is_empty()).map(str::to_owned).collect();
        self.git.files.may_replace(action, &self.folder, &ways).map(|()| ways)
    }

    /// Does what a plan says.
    pub(super) async fn carry_out(&self, action: &Action, plan: &Plan) -> Result<Performed, Trouble> {
        let (old, new) = (plan.old.as_deref(), plan.new.as_deref());
        match plan.kind {
            Kind::Commit => {
                let changed = || Trouble::Refused(Refusal::new(Code::FilesChanged));
                let tree = self.tree_of(old, &plan.ways, true).await.map_err(trouble)?;
                if plan.tree.as_deref() != Some(tree.as_str()) {
                    return Err(changed());
                }
                let commit = self.commit_object(action, plan, true).await.map_err(trouble)?;
                if new != Some(commit.as_str()) {
                    return Err(changed());
                }
                // The index of the people who work here: what was recorded is no longer shown as changed.
                let mut input = plan.ways.join("\0").into_bytes();
                input.push(0);
                let add = GitStep::new(["add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"]).writing();
                self.done(GitStep { input, ..add }).await.map_err(trouble)?;
                self.move_ref(&plan.reference, old, new).await?;
            }
            Kind::Branch => self.move_ref(&plan.reference, old, new).await?,
            Kind::Switch => {
                self.move_files(old.unwrap_or_default(), new.unwrap_or_default()).await?;
                self.point_head(&plan.reference).await?;
            }
            Kind::Pull => return Err(Trouble::refused(Code::GatewayUnsupported)),
        }
        Ok(self.performed(plan))
    }

    /// What the agent is told of a plan that was carried out.
    pub(super) fn performed(&self, plan: &Plan) -> Performed {
        let short = plan.reference.strip_prefix("refs/heads/").unwrap_or(&plan.reference);
        Performed {
            receipt: format!("{} {}", plan.reference, plan.new.as_deref().unwrap_or("deleted")),
            result: json!({"path": plan.path, "branch": short, "before": plan.old, "commit": plan.new,
                           "files": plan.ways.len()}),
            after: Some(plan.after()),
            undo_until: None,
        }
    }

    /// Takes back what a plan did.
    pub(super) async fn take_back(&self, plan: &Plan) -> Result<(), Trouble> {
        let (old, new) = (plan.old.as_deref(), plan.new.as_deref());
        match plan.kind {
            // The files stay as they are, so that nothing anybody wrote is lost.
            Kind::Commit | Kind::Branch => self.move_ref(&plan.reference, new, old).await,
            Kind::Switch => {
                self.move_files(new.unwrap_or_default(), old.unwrap_or_default()).await?;
                self.point_head(plan.from.as_deref().unwrap_or_default()).await
            }
            Kind::Pull => {
                let (Some(old), Some(new)) = (old, new) else {
                    return Err(Trouble::refused(Code::RollbackIrreversible));
                };
                self.move_files(new, old).await?;
                self.move_ref(&plan.reference, Some(new), Some(old)).await
            }
        }
    }

    /// Moves a ref from one commit to another in one step, or not at all.
    pub(super) async fn move_ref(&self, name: &str, old: Option<&str>, new: Option<&str>) -> Result<(), Trouble> {
        let none = self.no_object();
        let args = match new {
            Some(new) => vec!["update-ref", "-m", "sluicegate", name, new, old.unwrap_or(&none)],
            None => vec!["update-ref", "-d", name, old.unwrap_or(&none)],
        };
        let outcome = self.tried(GitStep::new(args).writing()).await;
        match outcome {
            Ok(outcome) if outcome.is_success() => Ok(()),
            Ok(_) => Err(Trouble::refused(Code::FilesChanged)),
            Err(_) => Err(Trouble::Unclear),
        }
    }

    /// Replaces the files of one commit by those of another; refuses to overwrite what is not committed.
    pub(super) async fn move_files(&self, old: &str, new: &str) -> Result<(), Trouble> {
        // The index knows files by owner and time as whoever wrote it last saw them; in here owners have other numbers.
        // Files that really differ stay so, and are refused by the next step.
        let _refreshed = self.tried(GitStep::new(["update-index", "-q", "--refresh"]).writing()).await;
        let outcome = self.tried(GitStep::new(["read-tree", "-m", "-u", old, new]).writing()).await;
        match outcome {
            Ok(outcome) if outcome.is_success() => Ok(()),
            Ok(_) => Err(Trouble::refused(Code::GitConflict)),
            Err(_) => Err(Trouble::Unclear),
        }
    }

    async fn point_head(&self, reference: &str) -> Result<(), Trouble> {
        let step = GitStep::new(["symbolic-ref", "-m", "sluicegate", "HEAD", reference]).writing();
        match self.tried(step).await {
            Ok(outcome) if outcome.is_success() => Ok(()),
            Ok(_) | Err(_) => Err(Trouble::Unclear),
        }
    }

    /// The print of what a plan is about, as it is now.
    pub(super) async fn present(&self, plan: &Plan) -> Result<Fingerprint, Refusal> {
        let now = match plan.kind {
            Kind::Switch => self.head_branch().await?,
            Kind::Commit | Kind::Branch | Kind::Pull => self.commit_of(&plan.reference).await?,
        };
        Ok(plan.print(now.as_deref()))
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
