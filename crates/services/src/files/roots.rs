//! Roots: the folders that an operator opened, and the meaning of an agent's path inside them.
//!
//! Takes the text of a path and the agent; gives a [`RootedPath`]: a root and the path inside it. Promise: one place has one
//! spelling, `..` is never resolved but refused, a place is always inside a root that is open to the agent, and what
//! the gateway keeps for itself (`.sluice-…`) cannot be named.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sluice_core::AgentName;
use sluice_core::policy::{LivePolicy, Policy};
use sluice_core::refusal::{Code, Refusal};

/// Names with this prefix, in any case, belong to the gateway.
const OWN: &str = ".sluice-";
/// The longest path, in bytes; the limit of Linux.
const LONGEST_PATH: usize = 4095;
/// The longest name in a path, in bytes.
const LONGEST_NAME: usize = 255;
/// Kernel file systems. Nothing inside them is an ordinary file.
const NEVER: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The only folder inside them with ordinary files.
const MEMORY: &str = "/dev/shm";

/// The agents that may use a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootAgents {
    /// Every agent.
    All,
    /// Only these agents.
    Named(Vec<AgentName>),
}

/// A folder opened to agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRoot {
    /// The absolute path on the host. Symbolic links in it are the operator's choice and are followed.
    pub path: String,
    /// The agents it is open to.
    pub agents: RootAgents,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Whether its files were written by the person. Files in other folders are outside text.
    pub trusted: bool,
}

/// All folders opened to agents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentRoots {
    /// The folders. If one lies inside another, the inner one applies to its content.
    pub list: Vec<AgentRoot>,
    /// Whether files with hard links are read and replaced. By default they are refused, because one of their names may
    /// lie outside.
    pub allow_hard_links: bool,
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum FilesystemOpenError {
    /// The path is not one of a folder that can be opened to agents.
    #[error(
        "the root `{path}` must be an absolute path without `.`, `..` and empty parts, below `/` and outside /proc, /sys and /dev"
    )]
    Path {
        /// The path as configured.
        path: String,
    },
    /// The same folder is listed twice.
    #[error("the root `{path}` is listed twice")]
    Twice {
        /// The path as configured.
        path: String,
    },
    /// The folder does not exist, is not a folder, or is not accessible.
    #[error("the root `{path}` cannot be opened")]
    Open {
        /// The path as configured.
        path: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The kernel cannot confine a path to a folder.
    #[error("this kernel has no openat2 (Linux 5.6), without which paths cannot be confined to their root")]
    NoConfinement,
}

/// An opened root.
#[derive(Debug)]
pub struct OpenedRoot {
    /// Its path, as configured.
    pub path: String,
    /// Its folder.
    pub folder: OwnedFd,
    /// The agents that it is opened to.
    pub agents: RootAgents,
    /// Whether nothing in it can be written.
    pub read_only: bool,
    /// Whether its content is not outside content.
    pub trusted: bool,
}

/// All opened roots.
#[derive(Debug)]
pub struct OpenedRoots {
    /// The roots, in the order of the configuration.
    pub opened_roots: Vec<OpenedRoot>,
    /// Whether files with several hard links can be written.
    pub hard_links: bool,
    /// The rules that judge entries inside a folder.
    pub rules: Option<Arc<LivePolicy>>,
}

/// A place inside a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath {
    /// The index of the root.
    pub opened_root: usize,
    /// The absolute path.
    pub path: String,
    /// The path from the root; empty for the root itself.
    pub way: String,
}

impl OpenedRoots {
    /// Sets the rules for entries inside a folder.
    pub fn judged_by(self, rules: Arc<LivePolicy>) -> Self {
        Self { rules: Some(rules), ..self }
    }

    /// The rules in force.
    pub fn policy(&self) -> Option<Arc<Policy>> {
        self.rules.as_ref().map(|rules| rules.get())
    }

    /// Opens every root, once.
    pub fn open(roots: AgentRoots) -> Result<Self, FilesystemOpenError> {
        let mut opened_roots: Vec<OpenedRoot> = Vec::with_capacity(roots.list.len());
        for root in roots.list {
            let usable = spelling(&root.path).is_ok_and(|normal| normal == root.path)
                && root.path != "/"
                && (!NEVER.iter().any(|never| way_below(never, &root.path).is_some())
                    || way_below(MEMORY, &root.path).is_some_and(|way| !way.is_empty()));
            if !usable {
                return Err(FilesystemOpenError::Path { path: root.path });
            }
            if opened_roots.iter().any(|opened_root| opened_root.path == root.path) {
                return Err(FilesystemOpenError::Twice { path: root.path });
            }
            let folder = match rustix::fs::openat(
                CWD,
                root.path.as_str(),
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            ) {
                Ok(folder) => folder,
                Err(errno) => return Err(FilesystemOpenError::Open { path: root.path, source: errno.into() }),
            };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let probe = rustix::fs::openat2(&folder, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
            if probe.is_err_and(|errno| errno == Errno::NOSYS) {
                return Err(FilesystemOpenError::NoConfinement);
            }
            let AgentRoot { path, agents, read_only, trusted } = root;
            opened_roots.push(OpenedRoot { path, folder, agents, read_only, trusted });
        }
        Ok(Self { opened_roots, hard_links: roots.allow_hard_links, rules: None })
    }

    /// The canonical spelling of a path, for this agent.
    pub fn normalise(&self, agent: &AgentName, text: &str) -> Result<String, Refusal> {
        self.locate(agent, text).map(|place| place.path)
    }

    /// The roots open to an agent.
    pub fn open_to(&self, agent: &AgentName) -> impl Iterator<Item = &OpenedRoot> {
        self.opened_roots.iter().filter(|opened_root| opened_root.is_open_to(agent))
    }

    /// The place that an agent's path names.
    pub fn locate(&self, agent: &AgentName, text: &str) -> Result<RootedPath, Refusal> {
        let open = || self.opened_roots.iter().enumerate().filter(|(_, opened_root)| opened_root.is_open_to(agent));
        let path = if text.starts_with('/') {
            spelling(text)?
        } else {
            let mut roots = open();
            match (roots.next(), roots.next()) {
                (Some((_, only)), None) if !text.is_empty() => spelling(&format!("{}/{text}", only.path))?,
                _ => return Err(out_of_scope("the path is relative; write the full path from `/`")),
            }
        };
        if path.split('/').any(is_own) {
            return Err(Refusal::new(Code::FilesOutOfScope));
        }
        open()
            .filter_map(|(n, opened_root)| Some((n, opened_root, way_below(&opened_root.path, &path)?)))
            .max_by_key(|(_, opened_root, _)| opened_root.path.len())
            .map(|(opened_root, _, way)| RootedPath { opened_root, way: way.to_owned(), path: path.clone() })
            .ok_or_else(|| Refusal::new(Code::FilesOutOfScope))
    }

    /// A place in a root that is known by its path, whichever agents it is open to now.
    pub fn within(&self, root: &str, way: &str) -> Result<RootedPath, Refusal> {
        let opened_root = self.opened_roots.iter().position(|opened_root| opened_root.path == root);
        let opened_root = opened_root.ok_or_else(|| out_of_scope("the folder is no longer opened to any agent"))?;
        Ok(RootedPath { opened_root, path: format!("{root}/{way}"), way: way.to_owned() })
    }

    /// The root of a place.
    pub fn opened_root(&self, place: &RootedPath) -> Result<&OpenedRoot, Refusal> {
        self.opened_roots.get(place.opened_root).ok_or_else(|| Refusal::new(Code::FilesOutOfScope))
    }

    /// The root of a place, if it may be written to.
    pub fn writable(&self, place: &RootedPath) -> Result<&OpenedRoot, Refusal> {
        let opened_root = self.opened_root(place)?;
        if opened_root.read_only {
            return Err(Refusal::new(Code::FilesDenied).with_text("this folder is open for reading only"));
        }
        if place.way.is_empty() {
            return Err(out_of_scope("the root itself cannot be written, moved or deleted"));
        }
        Ok(opened_root)
    }
}

impl OpenedRoot {
    fn is_open_to(&self, agent: &AgentName) -> bool {
        match &self.agents {
            RootAgents::All => true,
            RootAgents::Named(names) => names.contains(agent),
        }
    }
}

impl RootedPath {
    /// The parent folder as a path from the root, and the name inside it. Nothing for the root itself.
    pub fn split(&self) -> Option<(&str, &str)> {
        match self.way.rsplit_once('/') {
            Some(split) => Some(split),
            None if self.way.is_empty() => None,
            None => Some(("", &self.way)),
        }
    }

    /// An entry of this folder.
    pub fn child(&self, name: &str) -> Self {
        let way = if self.way.is_empty() { name.to_owned() } else { format!("{}/{name}", self.way) };
        Self { opened_root: self.opened_root, path: format!("{}/{name}", self.path), way }
    }

    /// The name; for the root, the root's name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// Whether the gateway reserves this name for itself.
pub fn is_own(name: &str) -> bool {
    name.as_bytes().get(..OWN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OWN.as_bytes()))
}

/// Whether a new file may have this name: it must be readable as what it is.
pub fn check_new_name(name: &str) -> Result<(), Refusal> {
    let hides = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    if name.chars().any(hides) {
        let words = "a new name must not contain control, invisible or direction-changing characters";
        return Err(Refusal::new(Code::SchemaBadName).with_text(words));
    }
    Ok(())
}

/// An absolute path without `.`, empty parts or a slash at its end. `..` is refused, not resolved: its meaning depends
/// on links, and no call needs it.
fn spelling(text: &str) -> Result<String, Refusal> {
    if text.contains('\0') {
        return Err(out_of_scope("the path has a NUL byte in it"));
    }
    let mut path = String::with_capacity(text.len());
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err(out_of_scope("`..` is not allowed in paths")),
            long if long.len() > LONGEST_NAME => return Err(out_of_scope("a name in the path is too long")),
            name => {
                path.push('/');
                path.push_str(name);
            }
        }
    }
    if path.len() > LONGEST_PATH {
        return Err(out_of_scope("the path is too long"));
    }
    if path.is_empty() {
        path.push('/');
    }
    Ok(path)
}

/// The rest of a path inside another; empty if they are the same.
fn way_below<'p>(root: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(root)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn out_of_scope(words: &str) -> Refusal {
    Refusal::new(Code::FilesOutOfScope).with_text(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    fn root(path: &std::path::Path, agents: RootAgents) -> AgentRoot {
        AgentRoot { path: path.to_str().unwrap().to_owned(), agents, read_only: false, trusted: false }
    }

    /// `books` for the clerk, `books/inner` for all agents.
    fn nested() -> (tempfile::TempDir, OpenedRoots, String) {
        let folder = tempfile::tempdir().unwrap();
        let books = folder.path().join("books");
        std::fs::create_dir_all(books.join("inner")).unwrap();
        let list =
            vec![root(&books, RootAgents::Named(vec![agent("clerk")])), root(&books.join("inner"), RootAgents::All)];
        let scope = OpenedRoots::open(AgentRoots { list, allow_hard_links: false }).unwrap();
        (folder, scope, books.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_path_has_one_spelling_and_dots_are_not_resolved() {
        let (_folder, scope, books) = nested();
        let clerk = agent("clerk");
        for same in [format!("{books}/a"), format!("{books}//a/"), format!("{books}/./a/."), format!("/{books}/a")] {
            assert_eq!(scope.normalise(&clerk, &same).unwrap(), format!("{books}/a"), "{same}");
        }
        for bad in [
            format!("{books}/x/../a"),
            format!("{books}/.."),
            format!("{books}/a\0"),
            format!("{books}x/a"),
            format!("{books}/{}", "x".repeat(256)),
            format!("{books}{}", "/x".repeat(2100)),
            format!("{books}/.sluice-trash"),
            format!("{books}/inner/.SLUICE-Trash/buf_1/a"),
            format!("{books}/.sluice-new-1"),
            "/".into(),
            "/etc/passwd".into(),
            "/proc/self/root/etc/passwd".into(),
            "..".into(),
            String::new(),
        ] {
            assert_eq!(scope.normalise(&clerk, &bad).unwrap_err().code(), Code::FilesOutOfScope, "{bad:?}");
        }
    }

    #[test]
    fn a_root_is_open_only_to_whom_it_was_opened_and_the_inner_one_counts() {
        let (_folder, scope, books) = nested();
        let (clerk, guest) = (agent("clerk"), agent("guest"));
        assert_eq!(scope.locate(&clerk, &format!("{books}/a")).unwrap().opened_root, 0);
        let inner = scope.locate(&clerk, &format!("{books}/inner/a")).unwrap();
        assert_eq!((inner.opened_root, inner.way.as_str()), (1, "a"));
        assert!(scope.locate(&guest, &format!("{books}/a")).is_err());
        assert!(scope.locate(&guest, &format!("{books}/innerer")).is_err());
        assert_eq!(scope.locate(&guest, &format!("{books}/inner")).unwrap().way, "");
    }

    #[test]
    fn a_relative_path_is_taken_only_by_an_agent_with_exactly_one_root() {
        let (_folder, scope, books) = nested();
        assert_eq!(scope.normalise(&agent("guest"), "x/y").unwrap(), format!("{books}/inner/x/y"));
        assert!(scope.normalise(&agent("clerk"), "x/y").is_err());
        assert!(scope.normalise(&agent("guest"), "../x").is_err());
    }

    #[test]
    fn roots_that_cannot_be_confined_are_refused_at_start() {
        let open = |path: &str| {
            OpenedRoots::open(AgentRoots {
                list: vec![AgentRoot { path: path.into(), agents: RootAgents::All, read_only: false, trusted: false }],
                allow_hard_links: false,
            })
        };
        for bad in [
            "/",
            "/proc",
            "/proc/self",
            "/dev",
            "/dev/shm",
            "/dev/shmx",
            "/sys/kernel",
            "srv",
            "/srv/",
            "/srv/../etc",
            "",
        ] {
            assert!(matches!(open(bad), Err(FilesystemOpenError::Path { .. })), "{bad}");
        }
        assert!(matches!(open("/no/such/folder/anywhere"), Err(FilesystemOpenError::Open { .. })));
    }

    #[test]
    fn new_names_must_read_as_what_they_are() {
        for bad in ["a\u{202e}fdp.exe", "a\nb", "a\u{200b}", "\u{feff}a", "a\u{2066}b", "a\u{7f}", "a\u{e0041}"] {
            assert_eq!(check_new_name(bad).unwrap_err().code(), Code::SchemaBadName, "{bad:?}");
        }
        for fine in ["Bücher 2024.txt", "日本.md", ".profile", "а (cyrillic)"] {
            assert!(check_new_name(fine).is_ok(), "{fine}");
        }
    }

    proptest! {
        #[test]
        fn spelling_twice_changes_nothing_and_never_climbs(text in "(/|/\\.|/\\.\\.|/a|/b|/\u{e9}|\\.\\.|\\.){0,12}") {
            if let Ok(once) = spelling(&text) {
                prop_assert_eq!(spelling(&once).unwrap(), once.clone());
                prop_assert!(once.split('/').skip(1).all(|part| part != ".." && part != "." ), "{}", once);
            }
        }
    }
}
