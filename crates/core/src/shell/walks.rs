//! Folders that a text reads, copies, changes or removes with everything below them.
//!
//! Takes a text that was understood; gives those folders as they are written. Promise: a prohibition that covers a file
//! can also cover a command of these programs that only names a folder above it. Programs that only list names are
//! included where the names go to another program.

use super::programs::operands;
use super::wrappers::find_roots;
use super::{BaseFolders, ShellCommand, ShellScript, ShellWord, WordCertainty, word_paths};

/// Programs that read everything below the folders they are given, or below the current one.
const SEARCHES: [&str; 9] = ["rg", "ag", "ack", "ack-grep", "rgrep", "ugrep", "ug", "sift", "pt"];
/// Programs that do so with an option.
const GREPS: [&str; 5] = ["grep", "egrep", "fgrep", "zgrep", "bzgrep"];
/// Programs that pack folders.
const PACKS: [&str; 11] = ["zip", "7z", "7za", "7zr", "rar", "cpio", "pax", "ditto", "rclone", "restic", "borg"];
/// Programs that give names, and what else they can do with what they find.
const LISTS: [&str; 6] = ["find", "fd", "fdfind", "ls", "tree", "du"];
const ACTIONS: [&str; 13] = [
    "-exec",
    "-execdir",
    "-ok",
    "-okdir",
    "-delete",
    "-fprint",
    "-fprint0",
    "-fprintf",
    "-fls",
    "-x",
    "-X",
    "--exec",
    "--exec-batch",
];

/// One folder, and where it begins if it is relative.
type WalkedFolder<'s> = (ShellWord, &'s BaseFolders);

/// The folders of a whole text.
pub(super) fn walked(script: &ShellScript) -> Vec<WalkedFolder<'_>> {
    let mut found = Vec::new();
    for command in &script.commands {
        let folders = match LISTS.contains(&command.name()) {
            true if passes_names_on(script, command) => roots(command),
            true => Vec::new(),
            false => of_command(command),
        };
        found.extend(folders.into_iter().map(|word| (word, &command.bases)));
    }
    found
}

/// Whether the names that a command finds go to something that may open them.
fn passes_names_on(script: &ShellScript, command: &ShellCommand) -> bool {
    let takes_names = |other: &ShellCommand| {
        !LISTS.contains(&other.name())
            && other.words.iter().skip(1).any(|word| word.certainty == WordCertainty::Unknown)
    };
    command.words.iter().any(|word| ACTIONS.contains(&word.text.as_str())) || script.commands.iter().any(takes_names)
}

fn roots(command: &ShellCommand) -> Vec<ShellWord> {
    let words = command.words.get(1..).unwrap_or_default();
    match command.name() {
        "find" => find_roots(words),
        _ => or_here(operands(words)),
    }
}

fn or_here(folders: Vec<ShellWord>) -> Vec<ShellWord> {
    if folders.is_empty() { vec![ShellWord::literal(".")] } else { folders }
}

fn of_command(command: &ShellCommand) -> Vec<ShellWord> {
    let words = command.words.get(1..).unwrap_or_default();
    let name = command.name().rsplit('/').next().unwrap_or_default();
    let has = |letters: &str, long: &[&str]| {
        words.iter().any(|word| {
            let text = word.text.as_str();
            let bare = text.split_once('=').map_or(text, |(name, _)| name);
            match bare.strip_prefix("--") {
                // Programs accept the beginning of a long option for the whole.
                Some(begun) => begun.len() > 1 && long.iter().any(|option| option.starts_with(begun)),
                None => text.starts_with('-') && text.contains(|c| letters.contains(c)),
            }
        })
    };
    let has_word = |wanted: &str| words.iter().any(|word| word.text == wanted);
    match name {
        _ if SEARCHES.contains(&name) => or_here(after_pattern(words)),
        _ if GREPS.contains(&name) => {
            let recurses = has("rR", &["recursive", "dereference-recursive"]) || has("d", &["directories"]);
            if recurses { or_here(after_pattern(words)) } else { Vec::new() }
        }
        "git" if has_word("grep") && has_word("--no-index") => or_here(operands(words)),
        "git" if has_word("diff") && has_word("--no-index") => operands(words),
        "cp" | "scp" if has("rRa", &["recursive", "archive"]) => sources(words),
        "mv" | "rsync" => sources(words),
        "diff" if has("r", &["recursive"]) => operands(words),
        "rm" | "chmod" | "chown" | "chgrp" | "setfacl" if has("rR", &["recursive"]) => operands(words),
        "tar" | "bsdtar" | "gtar" => packed(words),
        _ if PACKS.contains(&name) => or_here(operands(words)),
        _ => Vec::new(),
    }
}

/// The operands after the pattern of a search.
fn after_pattern(words: &[ShellWord]) -> Vec<ShellWord> {
    let given = |word: &ShellWord| {
        let text = word.text.as_str();
        matches!(text, "--regexp" | "--file" | "--files") || text.starts_with("-e") || text.starts_with("-f")
    };
    operands(words).into_iter().skip(usize::from(!words.iter().any(given))).collect()
}

/// All operands but the destination.
fn sources(words: &[ShellWord]) -> Vec<ShellWord> {
    let named = words.iter().any(|word| word.text.starts_with("-t") || word.text.starts_with("--target-directory"));
    let mut found = operands(words);
    if !named {
        found.pop();
    }
    found
}

/// What an archive is made of. Nothing if it is unpacked.
fn packed(words: &[ShellWord]) -> Vec<ShellWord> {
    let packs = |(at, word): (usize, &ShellWord)| {
        let text = word.text.as_str();
        let is_mode = (at == 0 && !text.starts_with("--")) || (text.starts_with('-') && !text.starts_with("--"));
        (is_mode && text.contains(['c', 'r', 'u']))
            || ["--create", "--append", "--update", "--catenate"].iter().any(|long| text.starts_with(long))
    };
    if !words.iter().enumerate().any(packs) {
        return Vec::new();
    }
    let mut found = operands(words);
    let bases: Vec<ShellWord> = words
        .iter()
        .zip(words.iter().skip(1))
        .filter(|(option, _)| matches!(option.text.as_str(), "-C" | "--directory" | "--cd"))
        .map(|(_, folder)| folder.clone())
        .collect();
    for base in bases {
        let joined = found.iter().map(|word| ShellWord {
            text: format!("{}/{}", base.text.trim_end_matches('/'), word.text),
            home: base.home,
            ..word.clone()
        });
        found = joined.chain(found.clone()).collect();
    }
    found
}

/// The folders as texts, put behind the folders that `cd` leads to.
pub(super) fn as_written(walked: &[WalkedFolder<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for (word, bases) in walked {
        let is_relative = !word.text.starts_with(['/', '~']);
        let below = bases.folders.iter().filter(|base| is_relative && !base.text.is_empty());
        found.extend(below.map(|base| format!("{}/{}", base.text, word.text)));
        if !is_relative || bases.folders.iter().any(|base| base.text.is_empty()) || bases.anywhere {
            found.push(word.text.clone());
        }
    }
    found
}

/// The pieces of a text that is not understood, if it names one of these programs. Only pieces that are whole paths by
/// themselves: a dot or a slash is as likely a part of an expression.
pub(super) fn of_unread(text: &str) -> Vec<String> {
    let programs = [&SEARCHES[..], &GREPS[..], &PACKS[..], &["find", "cp", "scp", "rsync", "tar"]];
    let is_program = |piece: &str| {
        let name = piece.rsplit('/').next().unwrap_or_default();
        programs.iter().any(|names| names.contains(&name))
    };
    if !word_paths::raw_pieces(text).any(is_program) {
        return Vec::new();
    }
    let is_path = |piece: &&str| piece.starts_with(['/', '~']) && *piece != "/";
    word_paths::raw_pieces(text).filter(is_path).map(str::to_owned).collect()
}
