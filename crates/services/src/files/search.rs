//! File search by name: `search`, with counts.
//!
//! Takes a folder and a pattern; gives matches, or groups of them. Promise: the time is linear in the number of
//! entries, and the amount visited, read and answered is limited; an incomplete answer says so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use rustix::fs::FileType;
use serde_json::{Value, json};
use sluice_core::refusal::{Code, Refusal};

use super::arguments::{FileArguments, odd};
use super::fingerprint::FileFingerprint;
use super::open::{WHOLE, kind, kind_word, modified, moment, size};
use super::roots::{OpenedRoots, RootedPath};
use super::visibility::FolderVisibility;
use super::walk::{FolderWalk, WalkEntry};

/// The default number of matches in one answer.
const USUAL: u64 = 100;
/// The most matches in one answer.
const MOST: u64 = 10_000;
/// The most groups in one answer.
const GROUPS: u64 = 1_000;
/// The default size up to which files are hashed.
const HASHED: u64 = 16 << 20;
/// The most bytes read for hashes in one search.
const READ: u64 = 512 << 20;

/// Searches files in a folder by name.
pub fn search(
    scope: &OpenedRoots,
    place: &RootedPath,
    sight: FolderVisibility,
    arguments: FileArguments<'_>,
) -> Result<Value, Refusal> {
    let glob = arguments.glob("pattern")?.ok_or_else(|| Refusal::new(Code::FilesPattern))?;
    let most = arguments.count("max_results")?.unwrap_or(USUAL).min(MOST);
    let mut hashing = ContentHasher {
        scope,
        largest: arguments.count("max_hash_bytes")?.unwrap_or(HASHED).min(WHOLE),
        left: READ,
        cut: false,
    };
    let mut groups = arguments.object("aggregate").map(SearchGroups::new).transpose()?;
    let with_hash = arguments.flag("include_hash");
    let mut walk = FolderWalk::below(scope, place, Some(sight), arguments.flag("include_hidden"))?;
    let (mut matches, mut total) = (Vec::new(), 0_u64);
    for found in walk.by_ref().filter(|found| glob.takes(&found.way)) {
        total += 1;
        if let Some(groups) = &mut groups {
            groups.take(&found, &mut hashing);
        } else if total <= most {
            let mut shown = shown(&found);
            if let (true, Some(shown)) = (with_hash, shown.as_object_mut()) {
                shown.insert("hash".into(), hashing.of(&found).into());
            }
            matches.push(shown);
        }
    }
    let cut = walk.cut || hashing.cut;
    Ok(match groups {
        Some(groups) => groups.answer(total, cut),
        None => json!({"matches": matches, "total_matches": total, "truncated": cut || total > most}),
    })
}

fn shown(found: &WalkEntry) -> Value {
    json!({
        "path": found.place.path,
        "name": found.place.name(),
        "type": kind_word(&found.stat),
        "size": size(&found.stat),
        "modified": modified(&found.stat),
    })
}

/// Hashes of contents, up to a budget.
struct ContentHasher<'s> {
    scope: &'s OpenedRoots,
    largest: u64,
    left: u64,
    cut: bool,
}

impl ContentHasher<'_> {
    /// The SHA-256 of a file; nothing for an entry that is not a file, is too large or is not accessible.
    fn of(&mut self, found: &WalkEntry) -> Option<String> {
        if kind(&found.stat) != FileType::RegularFile || size(&found.stat) > self.largest {
            return None;
        }
        let Some(left) = self.left.checked_sub(size(&found.stat)) else {
            self.cut = true;
            return None;
        };
        self.left = left;
        let print = self.scope.fingerprint(&found.place).ok()?;
        print.checksum().map(str::to_owned)
    }
}

#[derive(Clone, Copy)]
enum SearchGroupBy {
    Extension,
    Folder,
    Month,
    Nothing,
}

#[derive(Default)]
struct SearchGroup {
    count: u64,
    total_size: u64,
}

/// Matches that are counted instead of listed.
struct SearchGroups {
    by: SearchGroupBy,
    count: bool,
    total_size: bool,
    by_size: bool,
    by_key: bool,
    most: u64,
    dedupe: bool,
    seen: HashSet<FileFingerprint>,
    groups: BTreeMap<String, SearchGroup>,
    /// Matches that were left out because the same content was already counted.
    repeated: u64,
}

impl SearchGroups {
    fn new(arguments: FileArguments<'_>) -> Result<Self, Refusal> {
        let by = match arguments.text("group_by") {
            Some("extension") => SearchGroupBy::Extension,
            Some("dir") => SearchGroupBy::Folder,
            Some("mtime-bucket" | "mtime_bucket") => SearchGroupBy::Month,
            None | Some("none") => SearchGroupBy::Nothing,
            Some(_) => return Err(odd("group_by", "`extension`, `dir`, `mtime-bucket` or `none`")),
        };
        let metrics = arguments.texts("metrics").unwrap_or_else(|| vec!["count", "total_size"]);
        if !metrics.iter().all(|metric| ["count", "total_size"].contains(metric)) {
            return Err(odd("metrics", "a list of `count` and `total_size`"));
        }
        let sort = arguments.text("sort_by").unwrap_or("count").trim_start_matches('-');
        if !["count", "total_size", "key"].contains(&sort) {
            return Err(odd("sort_by", "`count`, `total_size` or `key`"));
        }
        Ok(Self {
            by,
            count: metrics.contains(&"count"),
            total_size: metrics.contains(&"total_size"),
            by_size: sort == "total_size",
            by_key: sort == "key",
            most: arguments.count("max_groups")?.unwrap_or(GROUPS).min(GROUPS),
            dedupe: arguments.flag("dedupe"),
            seen: HashSet::new(),
            groups: BTreeMap::new(),
            repeated: 0,
        })
    }

    fn take(&mut self, found: &WalkEntry, hashing: &mut ContentHasher<'_>) {
        if self.dedupe
            && let Some(hash) = hashing.of(found)
            && !self.seen.insert(FileFingerprint::content(size(&found.stat), &hash))
        {
            self.repeated += 1;
            return;
        }
        let key = match self.by {
            SearchGroupBy::Extension => found.place.name().rsplit_once('.').map_or("", |(_, end)| end).to_owned(),
            SearchGroupBy::Folder => found.way.rsplit_once('/').map_or(".", |(folder, _)| folder).to_owned(),
            SearchGroupBy::Month => moment(found.stat.st_mtime, 0).chars().take(7).collect(),
            SearchGroupBy::Nothing => "all".to_owned(),
        };
        let group = self.groups.entry(key).or_default();
        group.count += 1;
        if kind(&found.stat) == FileType::RegularFile {
            group.total_size += size(&found.stat);
        }
    }

    fn answer(self, total: u64, cut: bool) -> Value {
        let all = self.groups.len() as u64;
        let mut groups: Vec<(String, SearchGroup)> = self.groups.into_iter().collect();
        if self.by_size {
            groups.sort_by_key(|(_, group)| Reverse(group.total_size));
        } else if !self.by_key {
            groups.sort_by_key(|(_, group)| Reverse(group.count));
        }
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        let shown: Vec<Value> = groups
            .into_iter()
            .take(most)
            .map(|(key, group)| {
                let mut shown = json!({"key": key});
                if let Some(shown) = shown.as_object_mut() {
                    if self.count {
                        shown.insert("count".into(), group.count.into());
                    }
                    if self.total_size {
                        shown.insert("total_size".into(), group.total_size.into());
                    }
                }
                shown
            })
            .collect();
        json!({
            "groups": shown,
            "total_groups": all,
            "total_matches": total,
            "duplicates": self.repeated,
            "truncated": cut || all > self.most,
        })
    }
}
