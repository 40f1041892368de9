//! Command lines as plain words.
//!
//! Takes the text of a command; gives its words if it is one simple command that a shell reads in one way only.
//! Promise: strict rather than clever. A line that chains, redirects, substitutes, quotes, expands or assigns is not
//! plain, and neither is a line with a character outside a short list.

/// Longest command line that is read.
const LONGEST: usize = 2000;
/// Programs and switches that delete, change owners, raise rights or override a protection.
const DECIDED_EACH_TIME: [&str; 24] = [
    "rm",
    "rmdir",
    "unlink",
    "shred",
    "truncate",
    "dd",
    "mkfs",
    "wipefs",
    "chown",
    "chgrp",
    "chmod",
    "sudo",
    "su",
    "doas",
    "kill",
    "killall",
    "pkill",
    "reset",
    "clean",
    "--force",
    "-f",
    "--delete",
    "--hard",
    "--no-verify",
];
/// Programs that execute what their arguments say, or hand them to another program.
const CARRIES_OUT: [&str; 31] = [
    "sh",
    "bash",
    "zsh",
    "dash",
    "fish",
    "ksh",
    "csh",
    "eval",
    "exec",
    "source",
    ".",
    "env",
    "xargs",
    "nohup",
    "time",
    "timeout",
    "nice",
    "watch",
    "ssh",
    "docker",
    "podman",
    "kubectl",
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "php",
    "lua",
    "awk",
    "osascript",
];

/// The words of a command line that consists of plain words only.
#[must_use]
pub fn plain_words(text: &str) -> Option<Vec<&str>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c);
    if text.len() > LONGEST || !text.chars().all(|c| plain(c) || c == ' ') {
        return None;
    }
    let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
    // `PATH=/tmp make` is an assignment, and a program's name begins with a letter, a digit or a place.
    let first = words.first()?;
    let named = first.starts_with(|c: char| c.is_ascii_alphanumeric() || "./_".contains(c));
    (named && !first.contains('=')).then_some(words)
}

/// Whether this command must be approved each time: it is not plain words, it deletes, changes
/// owners or rights, overrides a protection, or runs whatever its arguments say.
#[must_use]
pub fn is_decided_each_time(text: &str) -> bool {
    let Some(words) = plain_words(text) else { return true };
    let base = |word: &&str| word.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let listed = |word: &String, list: &[&str]| list.contains(&word.as_str());
    let carries_out = words.first().map(base).is_some_and(|first| listed(&first, &CARRIES_OUT));
    carries_out || words.iter().map(base).any(|word| listed(&word, &DECIDED_EACH_TIME))
}

/// The first words of a command that name what it does: a program and its subcommand. None where the second word is a
/// switch, a file or missing.
#[must_use]
pub fn first_words(text: &str) -> Option<Vec<&str>> {
    let words = plain_words(text)?;
    let [program, subcommand, ..] = words.as_slice() else { return None };
    let is_word = subcommand.starts_with(|c: char| c.is_ascii_alphabetic())
        && subcommand.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c));
    is_word.then(|| vec![*program, *subcommand])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_words() {
        assert_eq!(plain_words("make  test"), Some(vec!["make", "test"]));
        assert_eq!(plain_words("cargo test --lib -p a_b"), Some(vec!["cargo", "test", "--lib", "-p", "a_b"]));
        for text in [
            "",
            "  ",
            "make test; rm -rf /",
            "make test && rm x",
            "make test || x",
            "make test | sh",
            "make test & x",
            "make test\nrm x",
            "make test\rrm x",
            "make test\trm",
            "make test > /etc/x",
            "make < x",
            "make $(rm x)",
            "make `rm x`",
            "make $HOME",
            "make ${X}",
            "make \"test\"",
            "make 'test'",
            "make te\\st",
            "make *",
            "make ~",
            "make {a,b}",
            "make [a]",
            "make ?",
            "make #x",
            "make !x",
            "make (x)",
            "make ^x",
            "make %1",
            "PATH=/tmp make",
            "-x",
            "make te\u{200b}st",
            "make \u{ff1b} x",
            "make\0test",
        ] {
            assert_eq!(plain_words(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_deletion_or_an_interpreter_is_decided_each_time() {
        for text in [
            "rm -rf x",
            "/bin/rm x",
            "git push --force",
            "sudo make",
            "bash x.sh",
            "python3 x.py",
            "git reset --hard",
            "make; x",
        ] {
            assert!(is_decided_each_time(text), "{text}");
        }
        for text in ["make test", "cargo build", "git status", "ls -la /tmp"] {
            assert!(!is_decided_each_time(text), "{text}");
        }
    }

    #[test]
    fn first_words_are_a_program_and_its_subcommand() {
        assert_eq!(first_words("cargo test --lib"), Some(vec!["cargo", "test"]));
        assert_eq!(first_words("make test"), Some(vec!["make", "test"]));
        for text in ["ls", "ls /tmp", "ls -la", "cat a.txt", "make test; x"] {
            assert_eq!(first_words(text), None, "{text}");
        }
    }
}
