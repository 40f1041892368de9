//! Remotes: clone, pull and push over the network.
//!
//! Takes an action whose remote is already an address; gives what happened. Promise: the address is one that a
//! connection of `git.connections` reaches, it is the one that was judged and shown, nothing is forced, and every
//! commit that would leave is scanned for content that must not leave.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use sluice_config::network::{EgressConnection, EgressUrl};
use sluice_content::leak::LeakScope;
use sluice_core::ids::ConnectionName;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, Actor};

use super::change::{GitPlan, branch_ref};
use super::relay::GitHttpRelay;
use super::repository::{GitCommand, GitRepository, is_object};
use super::{GitService, trouble};
use crate::{CompletedWrite, LookupOutcome, WriteError};

/// The most bytes of commits that are scanned before they leave.
const SCANNED: usize = 16 << 20;

fn text<'a>(action: &'a Action, name: &str) -> Option<&'a str> {
    action.arguments().get(name).and_then(Value::as_str)
}

impl GitService {
    /// The canonical address of a remote repository, and the connection that reaches it.
    pub(super) fn reached(&self, url: &str) -> Result<(String, Arc<EgressConnection>), Refusal> {
        let refused = |words: &str| Refusal::new(Code::GitRemoteNotAllowed).with_text(words);
        let target = EgressUrl::parse(url)
            .map_err(|_| refused("the address of a remote is `https://host/path`, without user, query and fragment"))?;
        let spelled = target.as_str().trim_end_matches('/').to_owned();
        if spelled.contains(['?', '#', '{']) {
            return Err(refused("the address of a remote has no query and no fragment"));
        }
        let refs = EgressUrl::parse(&format!("{spelled}/info/refs")).map_err(refused)?;
        let mut open = self.settings.connections.iter().filter_map(|name| {
            let connection = self.egress.connection(&ConnectionName::new(name.as_str()).ok()?)?;
            let admits = |method: &Method| connection.admit(method, &refs).is_ok();
            (admits(&Method::GET) && admits(&Method::POST)).then_some(connection)
        });
        let words = format!("no connection of `git.connections` reaches `{}` with GET and POST", target.host());
        let connection = open.next().ok_or_else(|| refused(&words))?;
        Ok((spelled, connection))
    }

    fn relay(&self, action: &Action, url: &str) -> Result<Arc<GitHttpRelay>, Refusal> {
        let (url, connection) = self.reached(url)?;
        let by = Actor::Agent(action.agent().clone());
        Ok(Arc::new(GitHttpRelay::new(&self.egress, connection, &url, action.capability().as_str(), by)))
    }
}

impl GitRepository<'_> {
    /// Runs a git step that reaches the remote.
    async fn reach(&self, action: &Action, url: &str, step: GitCommand) -> Result<Vec<u8>, Refusal> {
        let relay = self.git.relay(action, url)?;
        let outcome = self.run_any_exit(GitCommand { relay: Some(Arc::clone(&relay)), ..step }).await?;
        if outcome.is_success() && !outcome.is_cut {
            return Ok(outcome.output);
        }
        Err(relay.why().unwrap_or_else(|| {
            let why = format!("git ended with {:?} and {} bytes", outcome.exit, outcome.complaints.len());
            Refusal::new(Code::GitRemoteRefused).with_source(why)
        }))
    }

    /// The refs of a remote: its default branch, and the commit of each branch.
    async fn remote_refs(
        &self,
        action: &Action,
        url: &str,
    ) -> Result<(Option<String>, Vec<(String, String)>), Refusal> {
        let said = self.reach(action, url, GitCommand::new(["ls-remote", "--symref", "--", "{remote}"])).await?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let (mut head, mut refs) = (None, Vec::new());
        for line in said.lines() {
            match line.split_once('\t') {
                Some((first, "HEAD")) => {
                    if let Some(name) = first.strip_prefix("ref: refs/heads/") {
                        head = Some(name.to_owned());
                    }
                }
                Some((id, name)) if is_object(id) && name.starts_with("refs/heads/") => {
                    refs.push((name.to_owned(), id.to_owned()));
                }
                _ => {}
            }
        }
        Ok((head, refs))
    }

    /// The name of a remote in this repository, or the default name.
    fn remote_name(&self, url: &str) -> String {
        let same = |known: &&String| known.trim_end_matches('/') == url;
        let named = self.settings.remotes.iter().find(|(_, known)| same(known)).map(|(name, _)| name.clone());
        named.filter(|name| branch_ref(name).is_ok()).unwrap_or_else(|| "sluicegate".into())
    }

    /// Fetches a branch; returns its commit.
    async fn fetch(&self, action: &Action, url: &str, branch: &str, depth: Option<u64>) -> Result<String, Refusal> {
        let from = branch_ref(branch)?;
        let tracked = format!("refs/remotes/{}/{branch}", self.remote_name(url));
        let mut args: Vec<String> = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
        ]
        .map(str::to_owned)
        .into();
        args.extend(depth.map(|depth| format!("--depth={depth}")));
        args.extend(["--".to_owned(), "{remote}".to_owned(), format!("+{from}:{tracked}")]);
        self.reach(action, url, GitCommand::new(args).writing()).await?;
        self.commit_of(&tracked).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))
    }

    /// Carries a pull out: fetches new commits, and fast-forwards the branch or leaves it unchanged.
    pub(super) async fn pull(&self, action: &Action, plan: &GitPlan) -> Result<CompletedWrite, WriteError> {
        let refused = trouble;
        let url = text(action, "remote").unwrap_or_default();
        let own = plan.reference.strip_prefix("refs/heads/").unwrap_or_default();
        let new = self.fetch(action, url, text(action, "branch").unwrap_or(own), None).await.map_err(refused)?;
        let current = self.commit_of(&plan.reference).await.map_err(refused)?;
        if current != plan.old {
            return Err(WriteError::refused(Code::FilesChanged));
        }
        let old = plan.old.clone().unwrap_or_else(|| self.empty_tree().to_owned());
        if plan.old.is_some() {
            let ahead = GitCommand::new(["merge-base", "--is-ancestor", &old, &new]);
            if !self.run_any_exit(ahead).await.map_err(refused)?.is_success() {
                return Err(WriteError::refused(Code::GitConflict));
            }
        }
        let ways = self.replaced(action, &old, &new).await.map_err(refused)?;
        self.move_files(&old, &new).await?;
        self.move_ref(&plan.reference, plan.old.as_deref(), Some(&new)).await?;
        let done = GitPlan { new: Some(new), ways, ..plan.clone() };
        Ok(self.performed(&done))
    }

    /// What a push would publish, and where. Refuses commits with files that a rule hides, or with content that must
    /// not leave.
    pub(super) async fn outgoing(&self, action: &Action) -> Result<(String, Vec<String>), Refusal> {
        let branch = text(action, "branch").unwrap_or_default();
        let commit =
            self.commit_of(&branch_ref(branch)?).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))?;
        let range = [commit.as_str(), "--not", "--remotes"];
        let range = || range.iter().map(|arg| (*arg).to_owned());
        let log = |args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned());
            GitCommand { most: Some(SCANNED), ..GitCommand::new(args) }
        };
        let mut names =
            log(&["log", "--no-show-signature", "--no-notes", "--name-only", "--no-renames", "-m", "-z", "--format="]);
        names.args.extend(range());
        let names = String::from_utf8_lossy(&self.run_checked(names).await?).into_owned();
        let hidden = names.split(['\0', '\n']).any(|way| !way.is_empty() && !self.folder.sees(way));
        if hidden {
            return Err(Refusal::new(Code::GitHiddenPath));
        }
        let plain = [
            "log",
            "-p",
            "-m",
            "--no-show-signature",
            "--no-notes",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--text",
        ];
        let mut whole = log(&plain);
        whole.args.extend(range());
        let whole = String::from_utf8_lossy(&self.run_checked(whole).await?).into_owned();
        if self.git.egress.contains_blocked_content(&whole, LeakScope::Service) {
            return Err(Refusal::new(Code::LeakFound));
        }
        let mut list = log(&["log", "--no-show-signature", "--no-notes", "--format=%H %s", "--max-count=200"]);
        list.args.extend(range());
        let list = String::from_utf8_lossy(&self.run_checked(list).await?).into_owned();
        Ok((commit, list.lines().map(|line| format!("publishes {line}")).collect()))
    }

    /// Carries a push out.
    pub(super) async fn push(&self, action: &Action, commit: &str) -> Result<CompletedWrite, WriteError> {
        let (url, branch) = (text(action, "remote").unwrap_or_default(), text(action, "branch").unwrap_or_default());
        let reference = branch_ref(branch).map_err(trouble)?;
        let spec = format!("{commit}:{reference}");
        let args =
            ["push", "--quiet", "--no-signed", "--no-follow-tags", "--recurse-submodules=no", "--", "{remote}", &spec];
        match self.reach(action, url, GitCommand::new(args)).await {
            Ok(_) => {}
            // Nothing was sent to the remote, or the remote refused all of it.
            Err(no) if no.code() == Code::GitRemoteRefused => {
                return match self.pushed(action, commit).await {
                    LookupOutcome::Applied(performed) => Ok(performed),
                    LookupOutcome::Absent => Err(WriteError::Refused(no)),
                    LookupOutcome::Unknown | LookupOutcome::NotLooked => Err(WriteError::Unclear),
                };
            }
            Err(_) => return Err(WriteError::Unclear),
        }
        let tracked = format!("refs/remotes/{}/{branch}", self.remote_name(url));
        let track = GitCommand::new(["update-ref", &tracked, commit]).writing();
        // The publication stands, whether or not it is noted here.
        let _noted = self.run_any_exit(track).await;
        Ok(published(&reference, commit, url))
    }

    /// Whether a remote has the commit of a push.
    pub(super) async fn pushed(&self, action: &Action, commit: &str) -> LookupOutcome {
        let (url, branch) = (text(action, "remote").unwrap_or_default(), text(action, "branch").unwrap_or_default());
        let Ok(reference) = branch_ref(branch) else { return LookupOutcome::Unknown };
        let refs = match self.remote_refs(action, url).await {
            Ok((_, refs)) => refs,
            Err(no) => return LookupOutcome::not_given(&no),
        };
        match refs.iter().find(|(name, _)| *name == reference) {
            Some((_, id)) if id == commit => LookupOutcome::Applied(published(&reference, commit, url)),
            Some(_) | None => LookupOutcome::Absent,
        }
    }

    /// Fills a new repository from a remote.
    pub(super) async fn fill(&mut self, action: &Action) -> Result<CompletedWrite, WriteError> {
        let refused = trouble;
        let url = text(action, "url").unwrap_or_default().to_owned();
        let (head, refs) = self.remote_refs(action, &url).await.map_err(refused)?;
        let branch = text(action, "branch").map(str::to_owned).or(head);
        let branch = branch.or_else(|| Some(refs.first()?.0.strip_prefix("refs/heads/")?.to_owned()));
        let branch = branch.unwrap_or_else(|| "main".into());
        let reference = branch_ref(&branch).map_err(refused)?;
        let file = self.folder.path_of(".git/config");
        for (key, value) in
            [("remote.origin.url", url.as_str()), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")]
        {
            let step = GitCommand::new(["config", "--file", &file, key, value]).writing();
            self.run_checked(step).await.map_err(refused)?;
        }
        self.read_settings().await.map_err(refused)?;
        self.run_checked(GitCommand::new(["symbolic-ref", "HEAD", &reference]).writing()).await.map_err(refused)?;
        let mut commit = None;
        if refs.iter().any(|(name, _)| *name == reference) {
            let depth = action.arguments().get("depth").and_then(Value::as_u64);
            let new = self.fetch(action, &url, &branch, depth).await.map_err(refused)?;
            let all = self
                .run_checked(GitCommand::new(["ls-tree", "-r", "-z", "--name-only", &new]))
                .await
                .map_err(refused)?;
            let ways: Vec<String> =
                String::from_utf8_lossy(&all).split('\0').filter(|way| !way.is_empty()).map(str::to_owned).collect();
            self.git.files.may_replace(action, &self.folder, &ways).map_err(refused)?;
            self.run_checked(GitCommand::new(["read-tree", "-m", "-u", &new]).writing()).await.map_err(refused)?;
            self.move_ref(&reference, None, Some(&new)).await?;
            commit = Some(new);
        } else if text(action, "branch").is_some() {
            return Err(WriteError::refused(Code::GitUnknownRevision));
        }
        Ok(CompletedWrite {
            receipt: format!("cloned {}", commit.as_deref().unwrap_or("nothing yet")),
            result: json!({"path": self.folder.path, "url": url, "branch": branch, "commit": commit}),
            after: None,
            undo_until: None,
        })
    }
}

fn published(reference: &str, commit: &str, url: &str) -> CompletedWrite {
    let branch = reference.strip_prefix("refs/heads/").unwrap_or(reference);
    CompletedWrite {
        receipt: format!("{reference} {commit}"),
        result: json!({"remote": url, "branch": branch, "commit": commit}),
        after: None,
        undo_until: None,
    }
}
