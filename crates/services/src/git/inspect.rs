//! Repository reads: uncommitted files, differences and commits.
//!
//! Takes an opened repository and the arguments of a call; gives the answer. Promise: a file that a rule blocks for
//! `filesystem.read` is in no answer, and every text that another author may have written passed the screen for files.

use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};

use super::repository::{GitCommand, GitRepository, check_revision};
use crate::files::HostedTextOutcome;
use crate::intake::ContentRecipient;

/// The most entries of a status.
pub(super) const ENTRIES: usize = 5_000;
/// The most files of a difference.
const FILES: usize = 500;

/// One entry of a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitStatusEntry {
    /// The path from the repository's folder.
    pub way: String,
    /// The change against the last commit: `M`, `A`, `D`, `.`.
    pub staged: char,
    /// The change against the staged state; `?` for an untracked file.
    pub unstaged: char,
    /// Whether it is a nested repository.
    pub is_repository: bool,
}

/// The state of a repository.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GitStatus {
    pub branch: Option<String>,
    pub head: Option<String>,
    pub entries: Vec<GitStatusEntry>,
}

impl GitStatus {
    /// Parses `git status --porcelain=v2 -z`.
    fn parse(said: &[u8]) -> Self {
        let text = String::from_utf8_lossy(said);
        let mut status = Self::default();
        for record in text.split('\0') {
            let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
            match kind {
                "#" => match rest.split_once(' ') {
                    Some(("branch.head", name)) if name != "(detached)" => status.branch = Some(name.to_owned()),
                    Some(("branch.oid", id)) if id != "(initial)" => status.head = Some(id.to_owned()),
                    _ => {}
                },
                "?" => status.entries.push(GitStatusEntry {
                    way: rest.trim_end_matches('/').to_owned(),
                    staged: '.',
                    unstaged: '?',
                    is_repository: rest.ends_with('/'),
                }),
                "1" | "u" => {
                    let fields = if kind == "1" { 8 } else { 10 };
                    let mut parts = rest.splitn(fields, ' ');
                    let (changed, sub) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                    let mut letters = changed.chars();
                    let (staged, unstaged) = (letters.next().unwrap_or('.'), letters.next().unwrap_or('.'));
                    if let Some(way) = parts.last() {
                        let is_repository = sub.starts_with('S');
                        status.entries.push(GitStatusEntry { way: way.to_owned(), staged, unstaged, is_repository });
                    }
                }
                _ => {}
            }
        }
        status
    }
}

impl GitRepository<'_> {
    /// The state of the repository, without files that the agent may not see.
    pub(super) async fn status(&self) -> Result<GitStatus, Refusal> {
        let step = GitCommand::new([
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--untracked-files=all",
            "--ignore-submodules=all",
            "--no-renames",
            "--no-ahead-behind",
        ]);
        let mut status = GitStatus::parse(&self.run_checked(GitCommand { most: Some(8 << 20), ..step }).await?);
        status.entries.retain(|entry| self.folder.sees(&entry.way));
        if status.entries.len() > ENTRIES {
            return Err(Refusal::new(Code::GitTooMuch));
        }
        Ok(status)
    }

    /// `git.status`.
    pub(super) async fn show_status(&self, reader: ContentRecipient) -> Result<Value, Refusal> {
        let status = self.status().await?;
        let mut names: Vec<String> = status.entries.iter().map(|entry| entry.way.clone()).collect();
        names.extend(status.branch.clone());
        let mut may = self.git.files.screen_names(reader, &self.folder, names).await?.into_iter();
        let shown: Vec<Value> = status
            .entries
            .iter()
            .filter(|_| may.next().unwrap_or(false))
            .map(|entry| {
                json!({"path": entry.way, "staged": word(entry.staged), "unstaged": word(entry.unstaged),
                       "is_repository": entry.is_repository})
            })
            .collect();
        let branch = status.branch.filter(|_| may.next().unwrap_or(false));
        Ok(json!({
            "branch": branch,
            "head": status.head,
            "clean": status.entries.is_empty(),
            "names_withheld": status.entries.len() - shown.len(),
            "entries": shown,
        }))
    }

    /// `git.log`.
    pub(super) async fn show_log(&self, arguments: &Value, reader: ContentRecipient) -> Result<Value, Refusal> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let from = match text("branch") {
            Some(name) => self.commit_of(check_revision(name)?).await?,
            None => self.commit_of("HEAD").await?,
        };
        let Some(from) = from else {
            return match text("branch") {
                Some(_) => Err(Refusal::new(Code::GitUnknownRevision)),
                None => Ok(json!({"commits": []})),
            };
        };
        let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(20).min(500);
        let mut args: Vec<String> =
            ["log", "--no-show-signature", "--no-notes", "--no-mailmap", "--no-decorate"].map(str::to_owned).into();
        args.push(format!("--max-count={limit}"));
        args.push("--format=tformat:%H%x00%P%x00%an%x00%ae%x00%aI%x00%B%x00".into());
        if let Some(since) = text("since") {
            let since: jiff::Timestamp = since.parse().map_err(|_| {
                Refusal::new(Code::SchemaWrongType).with_text("the argument `since` must be a time as RFC 3339")
            })?;
            args.push(format!("--since={}", since.as_second()));
        }
        if let Some(author) = text("author") {
            if author.chars().any(char::is_control) {
                return Err(Refusal::new(Code::SchemaWrongType).with_text("the argument `author` must be one line"));
            }
            args.extend(["--fixed-strings".to_owned(), format!("--author={author}")]);
        }
        args.extend(["--end-of-options".to_owned(), from]);
        let said = String::from_utf8_lossy(&self.run_checked(GitCommand::new(args)).await?).into_owned();
        let fields: Vec<&str> = said.split('\0').collect();
        let commits: Vec<&[&str]> = fields.chunks_exact(6).collect();
        let texts = commits.iter().map(|commit| commit.get(2..).unwrap_or_default().join("\n")).collect();
        let source = format!("commits of {}", self.folder.path);
        let screened = self.git.files.screen_texts(reader, source, texts).await?;
        let shown = commits.iter().zip(screened).filter_map(|(commit, screened)| {
            let [id, parents, name, mail, at, message] = **commit else { return None };
            let id = id.trim_start_matches('\n');
            let parents: Vec<&str> = parents.split(' ').filter(|parent| !parent.is_empty()).collect();
            Some(match screened {
                HostedTextOutcome::Shown => {
                    json!({"commit": id, "parents": parents, "author": {"name": name, "email": mail},
                                            "at": at, "message": message.trim_end()})
                }
                HostedTextOutcome::Withheld(finding) => {
                    json!({"commit": id, "parents": parents, "at": at, "withheld": {"finding_id": finding}})
                }
            })
        });
        Ok(json!({"commits": shown.collect::<Vec<_>>()}))
    }

    /// `git.diff`.
    pub(super) async fn show_diff(&self, arguments: &Value, reader: ContentRecipient) -> Result<Value, Refusal> {
        let cached = arguments.get("cached").and_then(Value::as_bool).unwrap_or(false);
        let against = match arguments.get("commit").and_then(Value::as_str) {
            Some(name) => {
                self.commit_of(check_revision(name)?).await?.ok_or_else(|| Refusal::new(Code::GitUnknownRevision))?
            }
            None => self.commit_of("HEAD").await?.unwrap_or_else(|| self.empty_tree().to_owned()),
        };
        let mut base = vec!["diff"];
        base.extend(cached.then_some("--cached"));
        let files = self.difference(&base, &[&against]).await?;
        let is_cut = files.is_cut;
        let texts = files.parts.iter().map(|(way, text)| format!("{way}\n{text}")).collect();
        let source = format!("changes in {}", self.folder.path);
        let screened = self.git.files.screen_texts(reader, source, texts).await?;
        let shown = files.parts.iter().zip(screened).map(|((way, text), screened)| match screened {
            HostedTextOutcome::Shown => json!({"path": way, "diff": text}),
            HostedTextOutcome::Withheld(finding) => json!({"withheld": {"finding_id": finding}}),
        });
        Ok(json!({"against": against, "cached": cached, "truncated": is_cut, "files": shown.collect::<Vec<_>>()}))
    }

    /// The difference of the files that the agent may see, file by file.
    pub(super) async fn difference(&self, base: &[&str], sides: &[&str]) -> Result<GitDiff, Refusal> {
        self.difference_with(base, sides, &[]).await
    }

    pub(super) async fn difference_with(
        &self,
        base: &[&str],
        sides: &[&str],
        variables: &[(&'static str, String)],
    ) -> Result<GitDiff, Refusal> {
        let plain = ["--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=all", "--no-color"];
        let args = |more: &[&str]| -> Vec<String> {
            base.iter().chain(plain.iter()).chain(more).chain(sides).map(|arg| (*arg).to_owned()).collect()
        };
        let names = GitCommand {
            variables: variables.to_vec(),
            most: Some(8 << 20),
            ..GitCommand::new(args(&["--name-only", "-z"]))
        };
        let names = String::from_utf8_lossy(&self.run_checked(names).await?).into_owned();
        let seen = |way: &&str| !way.is_empty() && self.folder.sees(way);
        let mut ways: Vec<String> = names.split('\0').filter(seen).map(str::to_owned).collect();
        let mut is_cut = ways.len() > FILES;
        ways.truncate(FILES);
        if ways.is_empty() {
            return Ok(GitDiff { parts: Vec::new(), is_cut });
        }
        let mut whole = args(&["-p"]);
        whole.push("--".to_owned());
        whole.extend(ways.iter().cloned());
        let outcome = self.run_any_exit(GitCommand { variables: variables.to_vec(), ..GitCommand::new(whole) }).await?;
        if !outcome.is_cut && !outcome.is_success() {
            return Err(Refusal::new(Code::GitFailed).with_source("git could not show a difference"));
        }
        is_cut |= outcome.is_cut;
        let text = String::from_utf8_lossy(&outcome.output).into_owned();
        // Lines of a file have a mark in front, so that no file can imitate the beginning of another file's part.
        let mut parts: Vec<String> = Vec::new();
        for line in text.split_inclusive('\n') {
            match parts.last_mut() {
                Some(part) if !line.starts_with("diff --git ") => part.push_str(line),
                _ => parts.push(line.to_owned()),
            }
        }
        let named = |n: usize| ways.get(n).cloned().unwrap_or_default();
        let parts = parts.into_iter().enumerate().map(|(n, part)| (named(n), part)).collect();
        Ok(GitDiff { parts, is_cut })
    }
}

/// A difference, file by file.
#[derive(Debug)]
pub(super) struct GitDiff {
    /// Each file with its part of the difference.
    pub parts: Vec<(String, String)>,
    /// Whether parts were left out.
    pub is_cut: bool,
}

fn word(letter: char) -> &'static str {
    match letter {
        'M' | 'T' => "modified",
        'A' => "added",
        'D' => "deleted",
        'U' => "conflicting",
        '?' => "untracked",
        _ => "unchanged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_with_blanks_in_names_and_repositories_inside() {
        let said = b"# branch.oid 96\0# branch.head main\0\
                     1 .M N... 100644 100644 100644 aa bb a b.txt\x001 M. SC.. 160000 160000 160000 aa bb sub\0\
                     u UU N... 1 2 3 4 a b c both\0? new file\0? nested/\0";
        let status = GitStatus::parse(said);
        assert_eq!((status.branch.as_deref(), status.head.as_deref()), (Some("main"), Some("96")));
        let ways: Vec<(&str, char, char, bool)> = status
            .entries
            .iter()
            .map(|entry| (entry.way.as_str(), entry.staged, entry.unstaged, entry.is_repository))
            .collect();
        let wanted = [
            ("a b.txt", '.', 'M', false),
            ("sub", 'M', '.', true),
            ("both", 'U', 'U', false),
            ("new file", '.', '?', false),
            ("nested", '.', '?', true),
        ];
        assert_eq!(ways, wanted);
    }
}
