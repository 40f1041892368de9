//! Folders in which another service of the gateway works: repositories, and folders where programs run.
//!
//! Takes a path of a call; gives the folder with its identity on the disk and the part of it that the rules let the
//! agent see. Texts that such a service finds there pass the same screen as files. Promise: such a service reaches no
//! folder that `filesystem.*` would not, and shows no text that it would withhold.

use rustix::fs::FileType;
use sluice_core::ids::FindingId;
use sluice_core::policy::PolicyInput;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Action, CapabilityName, Tier, UtcMillis};
use tokio::runtime::Handle;

use super::open::{kind, refusal};
use super::roots::{OpenedRoots, RootedPath, check_new_name, is_own};
use super::screen::{FileScreenOutcome, unread};
use super::visibility::FolderVisibility;
use super::{FilesystemService, broken};
use crate::intake::ContentRecipient;

/// The most files of a folder that a program runs in.
const WALKED: usize = 100_000;

/// A folder inside an opened one, as it was when it was checked.
#[derive(Debug)]
pub struct HostedFolder {
    /// Its absolute path.
    pub path: String,
    /// The device that it is on.
    pub device: u64,
    /// The inode number on that device.
    pub inode: u64,
    place: RootedPath,
    /// The part that the agent may see; none if no agent asks, and then nothing is seen.
    sight: Option<FolderVisibility>,
}

/// The result of screening a text for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostedTextOutcome {
    /// It may be shown as it is.
    Shown,
    /// It is withheld until a person releases it.
    Withheld(FindingId),
}

impl HostedFolder {
    /// The absolute path of an entry in the folder.
    pub fn path_of(&self, way: &str) -> String {
        format!("{}/{way}", self.path)
    }

    /// Whether the rules let the agent see an entry in the folder.
    pub fn sees(&self, way: &str) -> bool {
        !way.split('/').any(is_own) && self.sight.as_ref().is_some_and(|sight| sight.sees(&self.path_of(way)))
    }
}

impl FilesystemService {
    /// The existing folder that a call names. With `writes`, it must lie where files may be changed.
    pub async fn hosted(&self, action: &Action, path: &str, writes: bool) -> Result<HostedFolder, Refusal> {
        let (action, path) = (action.clone(), path.to_owned());
        let found = self.blocking(move |inner| {
            let place = inner.scope.locate(action.agent(), &path)?;
            if inner.scope.opened_root(&place)?.read_only && writes {
                return Err(Refusal::new(Code::FilesDenied).with_text("this folder is open for reading only"));
            }
            // SECURITY: a service that works in a folder reads it, whether or not its capability says so.
            if is_blocked(&inner.scope, &action, ("filesystem.read", &place.path), inner.clock.0.now()) {
                return Err(Refusal::new(Code::PolicyBlocked).with_text("a rule hides this folder from this agent"));
            }
            let folder = inner.scope.folder(&place)?;
            let stat = rustix::fs::fstat(&folder).map_err(refusal)?;
            let sight = Some(FolderVisibility::of(&inner.scope, &action, &place, inner.clock.0.now()));
            let (device, inode) = (stat.st_dev, stat.st_ino);
            Ok(HostedFolder { path: place.path.clone(), device, inode, place, sight })
        });
        found.await.unwrap_or_else(|| Err(broken()))
    }

    /// The folder at a path that was settled for an agent before. Nothing in it can be shown.
    pub async fn hosted_settled(&self, path: &str) -> Result<HostedFolder, Refusal> {
        let path = path.to_owned();
        let found = self.blocking(move |inner| {
            let way_in = |root: &str| match path.strip_prefix(root)? {
                "" => Some(String::new()),
                rest => rest.strip_prefix('/').map(str::to_owned),
            };
            let opened_roots = inner.scope.opened_roots.iter().enumerate();
            let holding = opened_roots
                .filter_map(|(n, opened_root)| Some((n, opened_root.path.len(), way_in(&opened_root.path)?)));
            let (opened_root, _, way) =
                holding.max_by_key(|(_, long, _)| *long).ok_or_else(|| Refusal::new(Code::FilesOutOfScope))?;
            let place = RootedPath { opened_root, path: path.clone(), way };
            let folder = inner.scope.folder(&place)?;
            let stat = rustix::fs::fstat(&folder).map_err(refusal)?;
            let (device, inode) = (stat.st_dev, stat.st_ino);
            Ok(HostedFolder { path: place.path.clone(), device, inode, place, sight: None })
        });
        found.await.unwrap_or_else(|| Err(broken()))
    }

    /// Whether a folder holds anything, at any depth, that a rule hides from the agent.
    pub async fn hides_something(&self, folder: HostedFolder) -> Result<bool, Refusal> {
        let looked = self.blocking(move |inner| {
            let mut open = vec![folder.place.clone()];
            let mut left = WALKED;
            while let Some(place) = open.pop() {
                let (entries, more) = inner.scope.entries(&inner.scope.folder(&place)?, left)?;
                left = left.saturating_sub(entries.len());
                if more || left == 0 {
                    let words = "the folder has too many files to check for those that a rule hides from this agent";
                    return Err(Refusal::new(Code::FilesTooLarge).with_text(words));
                }
                for entry in entries {
                    let child = place.child(&entry.name);
                    if !folder.sight.as_ref().is_some_and(|sight| sight.sees(&child.path)) {
                        return Ok(true);
                    }
                    if kind(&entry.stat) == FileType::Directory {
                        open.push(child);
                    }
                }
            }
            Ok(false)
        });
        looked.await.unwrap_or_else(|| Err(broken()))
    }

    /// Whether an entry of a folder exists, and whether it is a folder itself. Links are not followed.
    pub async fn hosts(&self, folder: &HostedFolder, name: &str) -> Result<Option<bool>, Refusal> {
        let place = folder.place.child(name);
        let seen = self.blocking(move |inner| inner.scope.look(&place));
        let seen = seen.await.unwrap_or_else(|| Err(broken()))?;
        Ok(seen.map(|stat| kind(&stat) == FileType::Directory))
    }

    /// Creates a folder that a call names, if it does not exist. Its parent must exist. Returns whether it was created.
    pub async fn make_hosted(&self, action: &Action, path: &str) -> Result<bool, Refusal> {
        let (action, path) = (action.clone(), path.to_owned());
        let made = self.blocking(move |inner| {
            let place = inner.scope.locate(action.agent(), &path)?;
            if inner.scope.look(&place)?.is_some() {
                return Ok(false);
            }
            inner.scope.writable(&place)?;
            check_new_name(place.name())?;
            let (parent, name) = inner.scope.parent(&place)?;
            let mode = rustix::fs::Mode::from_raw_mode(0o755);
            rustix::fs::mkdirat(&parent, name, mode).map_err(refusal)?;
            Ok(true)
        });
        made.await.unwrap_or_else(|| Err(broken()))
    }

    /// Whether a path that a call names is free, or an empty folder, so that something new can be put there.
    pub async fn is_free(&self, action: &Action, path: &str) -> Result<bool, Refusal> {
        let (action, path) = (action.clone(), path.to_owned());
        let free = self.blocking(move |inner| {
            let place = inner.scope.locate(action.agent(), &path)?;
            inner.scope.writable(&place)?;
            match inner.scope.look(&place)? {
                None => inner.scope.parent(&place).map(|_| true),
                Some(stat) if kind(&stat) == FileType::Directory => {
                    let folder = inner.scope.folder(&place)?;
                    inner.scope.entries(&folder, 1).map(|(entries, _)| entries.is_empty())
                }
                Some(_) => Ok(false),
            }
        });
        free.await.unwrap_or_else(|| Err(broken()))
    }

    /// Refuses paths in a folder that are hidden from the agent or that it may not write itself.
    pub fn may_replace(&self, action: &Action, folder: &HostedFolder, ways: &[String]) -> Result<(), Refusal> {
        let scope = &self.0.scope;
        let now = self.0.clock.0.now();
        let hidden = ways.iter().find(|way| {
            let path = folder.path_of(way);
            let place = scope.locate(action.agent(), &path);
            !folder.sees(way)
                || !place.is_ok_and(|place| scope.writable(&place).is_ok())
                || is_blocked(scope, action, ("filesystem.write", &path), now)
        });
        match hidden {
            None => Ok(()),
            Some(_) => Err(Refusal::new(Code::GitHiddenPath)),
        }
    }

    /// Whether each of these names in a folder may be shown, in their order.
    pub async fn screen_names(
        &self,
        reader: ContentRecipient,
        folder: &HostedFolder,
        names: Vec<String>,
    ) -> Result<Vec<bool>, Refusal> {
        let (runtime, place) = (Handle::current(), folder.place.clone());
        let may = self.blocking(move |inner| match inner.screen(runtime, reader)? {
            Some(screen) => screen.names(&place, &names),
            None => Ok(vec![true; names.len()]),
        });
        may.await.unwrap_or_else(|| Err(broken()))
    }

    /// Screens texts that a program produced about a folder: all together, and each by itself if something was found.
    pub async fn screen_texts(
        &self,
        reader: ContentRecipient,
        source: String,
        texts: Vec<String>,
    ) -> Result<Vec<HostedTextOutcome>, Refusal> {
        let runtime = Handle::current();
        let screened = self.blocking(move |inner| {
            let all = || vec![HostedTextOutcome::Shown; texts.len()];
            let Some(screen) = inner.screen(runtime, reader)? else { return Ok(all()) };
            let judge = |text: &str| match screen.text(&source, "somebody else", (text, text))? {
                FileScreenOutcome::Trusted | FileScreenOutcome::Shown { .. } => Ok(HostedTextOutcome::Shown),
                FileScreenOutcome::Withheld(finding) => Ok(HostedTextOutcome::Withheld(finding)),
                FileScreenOutcome::Unreadable(code) => Err(unread(&code)),
            };
            let whole = texts.join("\n");
            if whole.trim().is_empty() {
                return Ok(all());
            }
            match judge(&whole)? {
                HostedTextOutcome::Shown => Ok(all()),
                found @ HostedTextOutcome::Withheld(_) => {
                    let each: Vec<HostedTextOutcome> =
                        texts.iter().map(|text| judge(text)).collect::<Result<_, _>>()?;
                    // A finding that appears only in all texts together belongs to no single text: then none is shown.
                    let alone = each.iter().any(|one| *one != HostedTextOutcome::Shown);
                    Ok(if alone { each } else { vec![found; texts.len()] })
                }
            }
        });
        screened.await.unwrap_or_else(|| Err(broken()))
    }
}

/// Whether a rule blocks the agent from reading or writing a file at this path.
fn is_blocked(scope: &OpenedRoots, action: &Action, (capability, path): (&str, &str), now: UtcMillis) -> bool {
    let (Some(policy), Ok(name)) = (scope.policy(), CapabilityName::new(capability)) else { return false };
    let mut arguments = serde_json::Map::new();
    arguments.insert("path".into(), path.into());
    policy.judge(&PolicyInput::new(action.agent(), &name, &arguments, now)).tier == Tier::Blocked
}
