//! Repositories: runs the real git program on one, inside a sandbox.
//!
//! Takes a folder inside an opened one; gives a way to run git on it. Promise: git never reads the configuration, the
//! hooks or the attributes file of the repository. It gets a folder of the gateway as the place of shared files, with a
//! configuration that the gateway wrote and links to refs, and executes only its own programs. A few values of the
//! repository's configuration are taken over as data, each checked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use sluice_core::Action;
use sluice_core::refusal::{Code, Refusal};

use super::GitService;
use super::relay::GitHttpRelay;
use crate::files::HostedFolder;
use crate::programs::{ProgramOutcome, ProgramTask, ProgramTaskError, find, run};
use crate::workers::{PinnedFolder, ThirdPartyNetwork, ThirdPartyProfile, ThirdPartyTerms};

/// The largest file that git writes, in bytes.
const FILE_BYTES: u64 = 1 << 30;
/// The most processes of one step.
const PROCESSES: u64 = 64;
/// The most processor time of one step.
const PROCESSOR_SECONDS: u64 = 60;
/// The largest configuration of a repository, in bytes.
const CONFIGURATION: usize = 256 << 10;
/// Shared files that git finds in the repository itself. Hooks, configuration and attributes are not among them.
const LINKED: [&str; 4] = ["refs", "packed-refs", "logs", "shallow"];
/// Settings that say how files are stored, and the values that are accepted.
const TAKEN_OVER: [(&str, &[&str]); 6] = [
    ("core.filemode", &["true", "false"]),
    ("core.symlinks", &["true", "false"]),
    ("core.ignorecase", &["true", "false"]),
    ("core.autocrlf", &["true", "false", "input"]),
    ("core.eol", &["lf", "crlf", "native"]),
    ("core.precomposeunicode", &["true", "false"]),
];
/// The settings for every repository. The repository's own configuration is not read, so this is not a deny list but a
/// second safeguard: it disables what git does by itself.
const SETTINGS: &str = "\
[core]\n\tbare = false\n\thooksPath = /dev/null\n\tfsmonitor = false\n\tuntrackedCache = false\n\tattributesFile = /dev/null\n\
\texcludesFile = /dev/null\n\tquotePath = false\n\tpager = cat\n\teditor = false\n\tsshCommand = false\n\
[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[submodule]\n\trecurse = false\n[diff]\n\tignoreSubmodules = all\n\
[status]\n\tsubmoduleSummary = false\n[protocol]\n\tallow = never\n[credential]\n\thelper =\n\
[fetch]\n\trecurseSubmodules = false\n\tfsckObjects = true\n[push]\n\trecurseSubmodules = no\n\tgpgSign = false\n\
[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n[log]\n\tshowSignature = false\n[http]\n\tfollowRedirects = false\n";

/// A temporary folder of the gateway, deleted when dropped.
#[derive(Debug)]
pub(super) struct GitScratchFolder(PathBuf);

impl GitScratchFolder {
    fn new(path: PathBuf) -> Result<Self, Refusal> {
        for folder in ["common/info", "work/objects"] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path.join(folder));
            made.map_err(|error| Refusal::new(Code::GitFailed).with_source(error))?;
        }
        Ok(Self(path))
    }

    fn common(&self) -> PathBuf {
        self.0.join("common")
    }

    /// The folder where git may write files that are not for the repository.
    pub(super) fn work(&self) -> PathBuf {
        self.0.join("work")
    }
}

impl Drop for GitScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("a folder of a finished call of git could not be removed: {error}");
        }
    }
}

/// The values taken over from the configuration of a repository, as data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RepositorySettings {
    /// `user.name` and `user.email`.
    pub author: (Option<String>, Option<String>),
    /// The address of each remote.
    pub remotes: BTreeMap<String, String>,
    /// Settings for how files are stored, by key.
    stored: BTreeMap<&'static str, String>,
    /// Whether object names are SHA-256.
    pub sha256: bool,
}

/// One run of git.
#[derive(Default)]
pub(super) struct GitCommand {
    /// The arguments.
    pub args: Vec<String>,
    /// The standard input.
    pub input: Vec<u8>,
    /// Additional environment variables.
    pub variables: Vec<(&'static str, String)>,
    /// Whether it may change the repository.
    pub writes: bool,
    /// The largest output in bytes, if it differs from the configured one.
    pub most: Option<usize>,
    /// The relay to its remote.
    pub relay: Option<std::sync::Arc<GitHttpRelay>>,
}

impl GitCommand {
    /// A step with these arguments that changes nothing.
    pub fn new<I: IntoIterator<Item = S>, S: Into<String>>(args: I) -> Self {
        Self { args: args.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same step, but it may change the repository.
    pub fn writing(self) -> Self {
        Self { writes: true, ..self }
    }
}

/// An opened repository.
pub(super) struct GitRepository<'g> {
    pub git: &'g GitService,
    pub folder: HostedFolder,
    pub settings: RepositorySettings,
    pub scratch: GitScratchFolder,
    program: PathBuf,
    programs: PathBuf,
}

impl GitService {
    /// The path of git, and the folder of its own programs.
    pub(super) async fn installed(&self) -> Result<(PathBuf, PathBuf), Refusal> {
        let named = self.settings.program.as_deref().map_or("git", |path| path.to_str().unwrap_or_default());
        let program = find(named).ok_or_else(|| Refusal::new(Code::GitNotInstalled))?;
        let folder = self.programs.get_or_try_init(|| async {
            let mut terms = self.terms(&program, Path::new("/"));
            terms.arguments = vec!["--exec-path".into()];
            let outcome = self.run(terms, GitCommand::default()).await?;
            let text = String::from_utf8(outcome.output).unwrap_or_default();
            let folder = PathBuf::from(text.trim());
            if outcome.complaints.is_empty() && folder.is_absolute() && folder.is_dir() {
                Ok(folder)
            } else {
                Err(Refusal::new(Code::GitNotInstalled))
            }
        });
        Ok((program.clone(), folder.await?.clone()))
    }

    fn terms(&self, program: &Path, folder: &Path) -> ThirdPartyTerms {
        ThirdPartyTerms {
            program: program.to_path_buf(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: folder.to_path_buf(),
            read: Vec::new(),
            look: Vec::new(),
            write: Vec::new(),
            pinned: Vec::new(),
            network: ThirdPartyNetwork::None,
            memory: self.settings.memory.as_bytes(),
            file_bytes: FILE_BYTES,
            processes: PROCESSES,
            profile: ThirdPartyProfile::Tool { cpu_seconds: PROCESSOR_SECONDS },
            mode: crate::workers::JailMode::Required,
            namespaces: Ok(()),
        }
    }

    async fn run(&self, terms: ThirdPartyTerms, step: GitCommand) -> Result<ProgramOutcome, Refusal> {
        let _turn = self.turns.acquire().await.map_err(|_| Refusal::new(Code::GitFailed))?;
        let most = step.most.unwrap_or_else(|| usize::try_from(self.settings.output.as_bytes()).unwrap_or(usize::MAX));
        let time = self.settings.time.as_duration();
        let task = ProgramTask { terms, input: step.input, time, most, listener: None };
        let outcome = match step.relay {
            None => run(&self.workers, task).await,
            Some(relay) => relay.run(&self.workers, task).await?,
        };
        outcome.map_err(|failure| match failure {
            ProgramTaskError::TooSlow => Refusal::new(Code::GitTooSlow),
            other => Refusal::new(Code::GitFailed).with_source(other),
        })
    }

    /// A temporary folder for one call.
    fn scratch(&self) -> Result<GitScratchFolder, Refusal> {
        GitScratchFolder::new(self.scratch.join(format!("{:032x}", self.ids.mint())))
    }

    /// Opens the repository at a path of a call. With `writes`, it must lie where files may be changed.
    pub(super) async fn open(&self, action: &Action, path: &str, writes: bool) -> Result<GitRepository<'_>, Refusal> {
        let repository = self.open_folder(action, path, writes).await?;
        self.open_in(repository).await
    }

    /// Opens the repository at a path that was settled for an agent before. Nothing in it can be shown.
    pub(super) async fn open_settled(&self, path: &str) -> Result<GitRepository<'_>, Refusal> {
        let folder = self.files.hosted_settled(path).await?;
        let (program, programs) = self.installed().await?;
        let (settings, scratch) = (RepositorySettings::default(), self.scratch()?);
        self.open_in(GitRepository { git: self, folder, settings, scratch, program, programs }).await
    }

    /// A folder that may become a repository.
    pub(super) async fn open_folder(
        &self,
        action: &Action,
        path: &str,
        writes: bool,
    ) -> Result<GitRepository<'_>, Refusal> {
        let folder = self.files.hosted(action, path, writes).await?;
        let (program, programs) = self.installed().await?;
        let (settings, scratch) = (RepositorySettings::default(), self.scratch()?);
        Ok(GitRepository { git: self, folder, settings, scratch, program, programs })
    }

    async fn open_in<'g>(&self, mut repository: GitRepository<'g>) -> Result<GitRepository<'g>, Refusal> {
        if self.files.hosts(&repository.folder, ".git").await? != Some(true) {
            return Err(Refusal::new(Code::GitNotARepository));
        }
        repository.read_settings().await?;
        Ok(repository)
    }
}

impl GitRepository<'_> {
    fn inside(&self, name: &str) -> String {
        self.folder.path_of(&format!(".git/{name}"))
    }

    /// Reads the repository's settings, and writes the configuration for git.
    pub(super) async fn read_settings(&mut self) -> Result<(), Refusal> {
        let file = self.inside("config");
        let args = ["config", "--file", &file, "--no-includes", "--null", "--list"];
        let step = GitCommand { most: Some(CONFIGURATION), ..GitCommand::new(args) };
        // It lists a file: git searches for no repository, and reads none.
        let mut terms = self.terms(&step);
        terms.folder = self.scratch.work();
        without_repository(&mut terms);
        let outcome = self.git.run(terms, step).await?;
        if !outcome.is_success() || outcome.is_cut {
            let words = "the configuration of the repository cannot be read";
            return Err(Refusal::new(Code::GitUnsupportedRepository).with_text(words));
        }
        self.settings = RepositorySettings::parse(&outcome.output)?;
        self.write_shared()
    }

    /// Creates an empty repository in the folder.
    pub(super) async fn begin(&self) -> Result<(), Refusal> {
        let step = GitCommand::new(["init", "--quiet", "--template=", "--initial-branch=main"]).writing();
        let mut terms = self.terms(&step);
        without_repository(&mut terms);
        let outcome = self.git.run(terms, step).await?;
        if outcome.is_success() { Ok(()) } else { Err(Refusal::new(Code::GitFailed).with_source("git init failed")) }
    }

    /// Writes the folder that git uses as the one with the shared files of the repository.
    fn write_shared(&self) -> Result<(), Refusal> {
        let failed = |error: std::io::Error| Refusal::new(Code::GitFailed).with_source(error);
        let common = self.scratch.common();
        std::fs::write(common.join("config"), self.settings.written()).map_err(failed)?;
        for name in LINKED {
            link(&self.inside(name), &common.join(name)).map_err(failed)?;
        }
        link(&self.inside("info/exclude"), &common.join("info/exclude")).map_err(failed)
    }

    fn terms(&self, step: &GitCommand) -> ThirdPartyTerms {
        let (common, work) = (self.scratch.common(), self.scratch.work());
        let mut terms = self.git.terms(&self.program, Path::new(&self.folder.path));
        let text = |path: &Path| path.display().to_string();
        let mut environment: Vec<(String, String)> = [
            ("PATH", text(&self.programs)),
            ("HOME", text(&work)),
            ("XDG_CONFIG_HOME", text(&work)),
            ("TMPDIR", text(&work)),
            ("LC_ALL", "C.UTF-8".into()),
            ("TZ", "UTC".into()),
            ("GIT_EXEC_PATH", text(&self.programs)),
            ("GIT_DIR", self.folder.path_of(".git")),
            ("GIT_COMMON_DIR", text(&common)),
            ("GIT_OBJECT_DIRECTORY", self.inside("objects")),
            ("GIT_WORK_TREE", self.folder.path.clone()),
            ("GIT_CONFIG_NOSYSTEM", "1".into()),
            ("GIT_CONFIG_SYSTEM", "/dev/null".into()),
            ("GIT_CONFIG_GLOBAL", "/dev/null".into()),
            ("GIT_ATTR_NOSYSTEM", "1".into()),
            ("GIT_TEMPLATE_DIR", String::new()),
            ("GIT_LITERAL_PATHSPECS", "1".into()),
            ("GIT_NO_REPLACE_OBJECTS", "1".into()),
            ("GIT_NO_LAZY_FETCH", "1".into()),
            ("GIT_OPTIONAL_LOCKS", "0".into()),
            ("GIT_TERMINAL_PROMPT", "0".into()),
            ("GIT_PAGER", "cat".into()),
            ("GIT_COMMITTER_NAME", "sluicegate".into()),
            ("GIT_COMMITTER_EMAIL", "sluicegate@localhost".into()),
            ("GIT_ASKPASS", String::new()),
            ("GIT_PROTOCOL_FROM_USER", "0".into()),
            ("GIT_ALLOW_PROTOCOL", if step.relay.is_some() { "http" } else { "" }.into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (name, value) in &step.variables {
            environment.retain(|(known, _)| known != name);
            environment.push(((*name).to_owned(), value.clone()));
        }
        terms.environment = environment;
        terms.arguments = std::iter::once("--no-pager".to_owned()).chain(step.args.iter().cloned()).collect();
        terms.read = vec![self.programs.clone()];
        let folder = PathBuf::from(&self.folder.path);
        terms.pinned =
            vec![PinnedFolder { path: folder.clone(), device: self.folder.device, inode: self.folder.inode }];
        terms.look = vec![common];
        terms.write = vec![work];
        if step.writes {
            terms.write.push(folder)
        } else {
            terms.look.push(folder)
        }
        terms
    }

    /// Runs git to its end, with any exit code.
    pub(super) async fn run_any_exit(&self, step: GitCommand) -> Result<ProgramOutcome, Refusal> {
        let terms = self.terms(&step);
        self.git.run(terms, step).await
    }

    /// Runs git and returns its output. Any exit code but success is a failure.
    pub(super) async fn run_checked(&self, step: GitCommand) -> Result<Vec<u8>, Refusal> {
        let name = step.args.first().cloned().unwrap_or_default();
        let outcome = self.run_any_exit(step).await?;
        if outcome.is_cut {
            return Err(Refusal::new(Code::GitTooMuch));
        }
        if !outcome.is_success() {
            // Git's output may hold outside text: the operator gets its length, nobody its text.
            let why = format!("git {name} ended with {:?} and {} bytes", outcome.exit, outcome.complaints.len());
            return Err(Refusal::new(Code::GitFailed).with_source(why));
        }
        Ok(outcome.output)
    }

    /// One line of git's output.
    pub(super) async fn line(&self, step: GitCommand) -> Result<String, Refusal> {
        let said = self.run_checked(step).await?;
        let text = String::from_utf8(said).map_err(|_| Refusal::new(Code::GitFailed).with_source("not a text"))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// The full name of the branch that is checked out; nothing if none is.
    pub(super) async fn head_branch(&self) -> Result<Option<String>, Refusal> {
        let outcome = self.run_any_exit(GitCommand::new(["symbolic-ref", "--quiet", "HEAD"])).await?;
        let text = String::from_utf8(outcome.output).unwrap_or_default();
        Ok(Some(text.trim_end().to_owned()).filter(|name| name.starts_with("refs/heads/")))
    }

    /// The commit that a name resolves to; nothing if there is none.
    pub(super) async fn commit_of(&self, name: &str) -> Result<Option<String>, Refusal> {
        let asked = format!("{name}^{{commit}}");
        let outcome = self
            .run_any_exit(GitCommand::new(["rev-parse", "--quiet", "--verify", "--end-of-options", &asked]))
            .await?;
        let text = String::from_utf8(outcome.output).unwrap_or_default();
        Ok(Some(text.trim().to_owned()).filter(|id| is_object(id)))
    }

    /// The name of the empty tree.
    pub(super) const fn empty_tree(&self) -> &'static str {
        if self.settings.sha256 {
            "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"
        } else {
            "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
        }
    }

    /// The name that stands for no object.
    pub(super) fn no_object(&self) -> String {
        "0".repeat(if self.settings.sha256 { 64 } else { 40 })
    }
}

/// Removes the variables that name the repository. Git then searches for none above its start folder.
fn without_repository(terms: &mut ThirdPartyTerms) {
    let places = ["GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY"];
    terms.environment.retain(|(name, _)| !places.contains(&name.as_str()));
    let above = terms.folder.parent().map(|above| above.display().to_string()).unwrap_or_default();
    terms.environment.push(("GIT_CEILING_DIRECTORIES".into(), above));
}

/// Creates a link, or keeps an existing one.
fn link(to: &str, at: &Path) -> std::io::Result<()> {
    match symlink(to, at) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Whether a text is the name of an object.
pub(super) fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase())
}

/// Whether a text can be given to git as the name of a branch or commit.
pub(super) fn check_revision(text: &str) -> Result<&str, Refusal> {
    let plain = |c: char| c.is_alphanumeric() || "._/~^-+@#=".contains(c);
    let odd = text.is_empty() || text.len() > 200 || !text.chars().all(plain) || text.starts_with(['-', '/']);
    if odd || text.contains("..") || text.contains("//") || text.contains("@@") {
        let words = "the name of a branch or commit has letters, digits and `._/~^-+@#=`, and does not begin with `-`";
        return Err(Refusal::new(Code::SchemaBadName).with_text(words));
    }
    Ok(text)
}

impl RepositorySettings {
    /// Parses `key\nvalue\0…`, as git lists it.
    fn parse(listed: &[u8]) -> Result<Self, Refusal> {
        let mut settings = Self::default();
        for entry in String::from_utf8_lossy(listed).split('\0').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            let plain = !value.chars().any(char::is_control) && value.len() <= 1000;
            let lower = key.to_ascii_lowercase();
            if let Some(extension) = lower.strip_prefix("extensions.") {
                match (extension, value) {
                    ("objectformat", "sha256") => settings.sha256 = true,
                    // The last three add files next to those used here, or change nothing that is used.
                    ("objectformat", "sha1") | ("refstorage", "files") | ("worktreeconfig" | "noop" | "noop-v1", _) => {
                    }
                    _ => {
                        let name: String = extension.chars().filter(|c| c.is_ascii_alphanumeric()).take(40).collect();
                        let words = format!("the repository uses the extension `{name}`, which is not supported here");
                        return Err(Refusal::new(Code::GitUnsupportedRepository).with_text(&words));
                    }
                }
            }
            if !plain {
                continue;
            }
            match lower.as_str() {
                "user.name" => settings.author.0 = Some(value.to_owned()),
                "user.email" => settings.author.1 = Some(value.to_owned()),
                _ => {}
            }
            if let Some((key, values)) = TAKEN_OVER.iter().find(|(known, _)| *known == lower)
                && values.contains(&value)
            {
                settings.stored.insert(*key, value.to_owned());
            }
            // Only the key of a remote is lower-cased, not its name.
            if lower.starts_with("remote.") && lower.ends_with(".url") && key.len() > "remote..url".len() {
                let name = key.get("remote.".len()..key.len() - ".url".len()).unwrap_or_default();
                settings.remotes.entry(name.to_owned()).or_insert_with(|| value.to_owned());
            }
        }
        Ok(settings)
    }

    /// The configuration file for git.
    fn written(&self) -> String {
        let mut text = SETTINGS.to_owned();
        // Writing into a String cannot fail.
        for (key, value) in &self.stored {
            let name = key.strip_prefix("core.").unwrap_or(key);
            let _ = write!(text, "[core]\n\t{name} = {value}\n");
        }
        let version = u8::from(self.sha256);
        let _ = write!(text, "[core]\n\trepositoryformatversion = {version}\n");
        if self.sha256 {
            text.push_str("[extensions]\n\tobjectFormat = sha256\n");
        }
        text.push_str("[protocol \"http\"]\n\tallow = always\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hostile_configuration_only_plain_data_is_taken_over() {
        let listed = "core.fsmonitor\ntouch /tmp/x\0core.filemode\nfalse\0core.autocrlf\n$(x)\0include.path\n/etc/x\0\
                      user.name\nAna\0user.email\na\nb\0remote.Origin.url\nhttps://example.com/a.git\0remote..url\nx\0\
                      url.ext::sh.insteadof\nhttps://\0core.worktree\n/\0alias.status\n!x\0flag\0";
        let settings = RepositorySettings::parse(listed.as_bytes()).unwrap();
        assert_eq!(settings.author, (Some("Ana".into()), None));
        assert_eq!(settings.remotes.keys().collect::<Vec<_>>(), ["Origin"]);
        let written = settings.written();
        for bad in ["touch", "$(x)", "/etc/x", "ext::", "worktree", "alias", "!x"] {
            assert!(!written.contains(bad), "{bad}: {written}");
        }
        assert!(written.contains("filemode = false"));
    }

    #[test]
    fn extensions_that_are_not_known_are_refused_by_name() {
        let refused = RepositorySettings::parse(b"extensions.partialclone\norigin\0").unwrap_err();
        assert_eq!(refused.code(), Code::GitUnsupportedRepository);
        assert!(refused.to_string().contains("partialclone"), "{refused}");
        assert!(RepositorySettings::parse(b"extensions.objectformat\nsha256\0").unwrap().sha256);
    }

    #[test]
    fn a_revision_is_no_option_and_no_range() {
        for bad in ["", "-x", "--output=/x", "a..b", "a b", "a\nb", "HEAD@{1}", ":/x", "a:b", "/x", "a//b"] {
            assert!(check_revision(bad).is_err(), "{bad:?}");
        }
        for fine in ["main", "HEAD~1", "feature/prices-2", "v1.0^", "bücher"] {
            assert!(check_revision(fine).is_ok(), "{fine}");
        }
    }
}
