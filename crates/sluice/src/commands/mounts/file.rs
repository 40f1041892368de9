//! Edits the `mounts:` section of `sluice.yaml` as text.
//!
//! Takes the text of the file; gives it with one mount added or removed. Promise: every other line stays unchanged, and
//! a file that is invalid afterwards is restored.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_config::MountConfig;

use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::ConfigFileArgs;

/// A file that was changed.
pub(super) struct ChangedConfigFile {
    pub(super) file: PathBuf,
    /// The mounts before; `None` if the file was invalid.
    pub(super) before: Option<Vec<MountConfig>>,
    /// The mounts after.
    pub(super) after: Vec<MountConfig>,
    /// The text before.
    text: String,
}

impl ChangedConfigFile {
    /// Restores the file, and says why.
    pub(super) fn put_back(self, why: &str) -> CliError {
        match whole(&self.file, &self.text) {
            Ok(()) => CliError::new(CommandExit::Failed, "sluice.yaml was not changed")
                .why(why)
                .hint(format!("edit `{}` by hand, then: sluice mounts reload", self.file.display())),
            Err(error) => {
                CliError::new(CommandExit::Failed, "sluice.yaml cannot be restored").why(describe_io_error(&error))
            }
        }
    }
}

/// Changes the file. If it is invalid afterwards, it is restored.
pub(super) fn change(
    which: &ConfigFileArgs,
    screen: &CommandConsole,
    edit: impl FnOnce(&str) -> Result<String, CliError>,
) -> Result<ChangedConfigFile, CliError> {
    let file = which.file()?.ok_or_else(|| {
        CliError::new(CommandExit::NotFound, "no sluice.yaml here")
            .hint("create one: sluice init; or give its path: --config FILE")
    })?;
    let broken = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| CliError::new(CommandExit::Failed, what).why(describe_io_error(&error))
    };
    let text = fs::read_to_string(&file).map_err(broken("sluice.yaml cannot be read"))?;
    let before = which.load(Vec::new())?.loaded.ok().map(|(config, _)| config.mounts.0);
    whole(&file, &edit(&text)?).map_err(broken("sluice.yaml cannot be written"))?;
    match which.load(Vec::new()).and_then(|settings| settings.or_fail(screen)) {
        Ok((config, _)) => Ok(ChangedConfigFile { file, before, after: config.mounts.0, text }),
        Err(failure) => {
            whole(&file, &text).map_err(broken("sluice.yaml cannot be restored"))?;
            Err(failure.hint("sluice.yaml was not changed"))
        }
    }
}

/// The text with a block added below its `mounts:`.
pub(super) fn joined(before: &str, block: &str) -> String {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    match lines.iter().position(|line| is_head(line)) {
        Some(at) => {
            let (head, tail) = lines.split_at(at + 1);
            let end = if head.last().is_some_and(|line| line.ends_with('\n')) { "" } else { "\n" };
            let block = indented(block, child_indent(tail));
            format!("{}{end}{block}{}", head.concat(), tail.concat())
        }
        None => {
            let end = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
            format!("{before}{end}\nmounts:\n{block}")
        }
    }
}

/// The lines of one mount: what is above them, theirs, and what is below, with the indentation of the mount.
struct MountLines<'t> {
    above: Vec<&'t str>,
    own: Vec<&'t str>,
    below: Vec<&'t str>,
    indent: usize,
}

/// Whether a line at this depth is this key.
fn is_key(line: &str, indent: usize, name: &str) -> bool {
    let rest = line.trim_start();
    let keys = [format!("{name}:"), format!("\"{name}\":"), format!("'{name}':")];
    depth(line) == Some(indent) && keys.iter().any(|key| rest.strip_prefix(key.as_str()).is_some_and(is_end))
}

/// The lines of the mount of this name, if it has a line of its own below `mounts:`.
fn lines_of<'t>(before: &'t str, name: &str) -> Option<MountLines<'t>> {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let head = lines.iter().position(|line| is_head(line))?;
    let (above, below) = lines.split_at(head + 1);
    let indent = child_indent(below)?;
    let inside = below.iter().position(|line| depth(line).is_some_and(|depth| depth == 0)).unwrap_or(below.len());
    let from = below.iter().take(inside).position(|line| is_key(line, indent, name))?;
    let to = end_of(below, from, indent);
    let (kept, after) = (below.get(..from)?, below.get(to..)?);
    let above = above.iter().chain(kept).copied().collect();
    Some(MountLines { above, own: below.get(from..to)?.to_vec(), below: after.to_vec(), indent })
}

/// The end of the entry that begins at this line.
fn end_of(lines: &[&str], from: usize, indent: usize) -> usize {
    let rest = lines.iter().skip(from + 1);
    let mut to = from + 1 + rest.take_while(|line| depth(line).is_none_or(|depth| depth > indent)).count();
    // Empty lines and comments above the next entry belong to that entry.
    while to > from + 1 && lines.get(to - 1).is_some_and(|line| depth(line).is_none()) {
        to -= 1;
    }
    to
}

/// The text without the mount of this name, if it has a line of its own below `mounts:`.
pub(super) fn without(before: &str, name: &str) -> Option<String> {
    let MountLines { above, below, .. } = lines_of(before, name)?;
    Some(format!("{}{}", above.concat(), below.concat()))
}

/// The text with these facts about one tool of a mount, in the place of those that are there. `None` if the mount or
/// its facts are not written in lines.
pub(super) fn with_facts(before: &str, mount: &str, tool: &str, facts: Option<&str>) -> Option<String> {
    let MountLines { above, own, below, indent } = lines_of(before, mount)?;
    let head = own.first()?;
    let end = if head.ends_with("\r\n") { "\r\n" } else { "\n" };
    let is_open = |line: &str| {
        let rest = line.split_once(':').map(|(_, rest)| rest.trim());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    };
    if !is_open(head) {
        return None;
    }
    let inner = own.iter().skip(1).find_map(|line| depth(line)).filter(|inner| *inner > indent)?;
    let key = if is_plain(tool) { tool.to_owned() } else { serde_json::Value::from(tool).to_string() };
    let mut lines: Vec<String> = own.iter().map(|line| (*line).to_owned()).collect();
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        last.push_str(end);
    }
    match own.iter().position(|line| is_key(line, inner, "facts")) {
        None => {
            let facts = facts?;
            lines.push(format!("{}facts:{end}", " ".repeat(inner)));
            lines.push(format!("{}{key}: {facts}{end}", " ".repeat(inner + 2)));
        }
        Some(at) => {
            if !own.get(at).is_some_and(|line| is_open(line)) {
                return None;
            }
            let to = end_of(&own, at, inner);
            let entries = own.get(at + 1..to)?;
            let deeper = entries.iter().find_map(|line| depth(line)).unwrap_or(inner + 2);
            let new = facts.map(|facts| format!("{}{key}: {facts}{end}", " ".repeat(deeper)));
            let known = entries.iter().position(|line| is_key(line, deeper, tool) || is_key(line, deeper, &key));
            match known.map(|known| at + 1 + known) {
                Some(known) => {
                    let last = end_of(&own, known, deeper).min(to);
                    drop(lines.splice(known..last, new));
                }
                None => drop(lines.splice(at + 1..at + 1, new)),
            }
            // A key without entries would not be a map.
            if lines.get(at + 1).and_then(|line| depth(line)).is_none_or(|depth| depth <= inner) {
                lines.remove(at);
            }
        }
    }
    Some(format!("{}{}{}", above.concat(), lines.concat(), below.concat()))
}

/// Whether a key needs no quotation marks.
pub(super) fn is_plain(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key.chars().all(plain)
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&key.to_ascii_lowercase().as_str())
}

/// Whether this line is the key `mounts:`, with nothing but a comment after it.
fn is_head(line: &str) -> bool {
    line.strip_prefix("mounts:").is_some_and(|rest| rest.trim().is_empty() || rest.trim_start().starts_with('#'))
}

/// Whether this may follow a key.
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r'])
}

/// The indentation of a line; `None` if it is empty or a comment.
fn depth(line: &str) -> Option<usize> {
    let rest = line.trim_start_matches(' ');
    let says = !rest.trim().is_empty() && !rest.starts_with('#');
    says.then(|| line.len() - rest.len())
}

/// The indentation of the existing mounts.
fn child_indent(below: &[&str]) -> Option<usize> {
    below.iter().find_map(|line| depth(line)).filter(|depth| *depth > 0)
}

/// A block written with two spaces, indented like its neighbours.
fn indented(block: &str, indent: Option<usize>) -> String {
    let Some(more) = indent.and_then(|indent| indent.checked_sub(2)).filter(|more| *more > 0) else {
        return match indent {
            // One space: the block's own two become one.
            Some(1) => block.split_inclusive('\n').map(|line| line.strip_prefix(' ').unwrap_or(line)).collect(),
            _ => block.to_owned(),
        };
    };
    let space = " ".repeat(more);
    let deeper = |line: &str| if line.trim().is_empty() { line.to_owned() } else { format!("{space}{line}") };
    block.split_inclusive('\n').map(deeper).collect()
}

/// Writes a file atomically; its permissions stay.
fn whole(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays a link: its target is written.
    let path = fs::canonicalize(path)?;
    let beside = path.with_extension("yaml.new");
    fs::write(&beside, text)?;
    fs::set_permissions(&beside, fs::metadata(&path)?.permissions())?;
    fs::File::open(&beside)?.sync_all()?;
    fs::rename(&beside, &path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "  time:\n    command: x\n";

    #[test]
    fn a_block_goes_below_the_mounts_that_are_there() {
        assert_eq!(joined("node: a\n", BLOCK), "node: a\n\nmounts:\n  time:\n    command: x\n");
        assert_eq!(joined("node: a\nmounts:", BLOCK), "node: a\nmounts:\n  time:\n    command: x\n");
        let had = "mounts: # ours\n  git:\n    command: y\nlog: {level: info}\n";
        assert_eq!(
            joined(had, BLOCK),
            "mounts: # ours\n  time:\n    command: x\n  git:\n    command: y\nlog: {level: info}\n"
        );
        assert_eq!(
            joined("mounts:\n    git: {command: y}\n", BLOCK),
            "mounts:\n    time:\n      command: x\n    git: {command: y}\n"
        );
    }

    #[test]
    fn what_was_added_is_taken_out_to_the_byte() {
        for before in [
            "mounts:\n  git: {command: y}\n",
            "node: a\r\nmounts:\r\n  # one\r\n  git:\r\n    command: y\r\n",
            "mounts:\n    git:\n        command: y\n\n# end\nlog: {}\n",
        ] {
            assert_eq!(without(&joined(before, BLOCK), "time").as_deref(), Some(before));
        }
    }

    #[test]
    fn facts_are_added_replaced_and_removed_in_lines_of_their_own() {
        let before = "mounts:\n  time:\n    command: x\n    # why\n    args: [a]\n\n  git: {command: y}\nlog: {}\n";
        let read = with_facts(before, "time", "get", Some("{read: true}")).unwrap();
        let facts = "    args: [a]\n    facts:\n      get: {read: true}\n";
        assert_eq!(read, before.replace("    args: [a]\n", facts));
        let two = with_facts(&read, "time", "a b", Some("{hide: true}")).unwrap();
        assert!(two.contains("facts:\n      \"a b\": {hide: true}\n      get: {read: true}\n"), "{two}");
        let other = with_facts(&two, "time", "get", Some("{tier: notify}")).unwrap();
        assert_eq!(other, two.replace("{read: true}", "{tier: notify}"));
        let one = with_facts(&other, "time", "a b", None).unwrap();
        assert_eq!(with_facts(&one, "time", "get", None).as_deref(), Some(before));
        let spread = "mounts:\n  time:\n    facts: # ours\n      get:\n        read: true\n        # both\n        tier: notify\n      put: {}\n    command: x\n";
        let folded = with_facts(spread, "time", "get", Some("{read: false}")).unwrap();
        assert_eq!(
            folded,
            "mounts:\n  time:\n    facts: # ours\n      get: {read: false}\n      put: {}\n    command: x\n"
        );
        assert_eq!(with_facts(before, "git", "log", Some("{read: true}")), None, "not written in lines");
        assert_eq!(with_facts("mounts:\n  a:\n    facts: {x: {read: true}}\n", "a", "x", None), None);
    }

    #[test]
    fn only_the_lines_of_that_mount_go() {
        let text = "time: {}\nmounts:\n  # first\n  time:\n    env:\n      time: x\n\n    command: x\n\n  # second\n  timer: {command: z}\n  'git':\n    command: y\nlog: {level: info}\n";
        let left = "time: {}\nmounts:\n  # first\n\n  # second\n  timer: {command: z}\n  'git':\n    command: y\nlog: {level: info}\n";
        assert_eq!(without(text, "time").as_deref(), Some(left));
        assert!(!without(text, "git").unwrap().contains("command: y"));
        assert_eq!(without(text, "env"), None, "a key of a mount is no mount");
        assert_eq!(without(text, "log"), None);
        assert_eq!(without("mounts: {time: {command: x}}\n", "time"), None, "not written in lines");
    }
}
