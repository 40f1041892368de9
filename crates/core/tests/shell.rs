//! Compares the reader of shell text with the shells of this machine.
//!
//! Random texts consist of harmless programs that record how they were called. Promise: every program that a real shell
//! runs for a text that the reader understood was named by the reader.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_core::shell::ShellScript;

const PIECES: [&str; 44] = [
    "aa",
    "bb",
    "cc",
    "aa",
    "bb",
    " ",
    " ",
    " ",
    " ",
    ";",
    "&&",
    "||",
    "|",
    "\n",
    "\"",
    "'",
    "\\",
    "$(",
    ")",
    "(",
    "`",
    "{ ",
    "; }",
    "#",
    "<<x\n",
    "\nx\n",
    "> f",
    "2>&1",
    "$v",
    "v=bb",
    "*",
    "?",
    "sh -c ",
    "eval ",
    "env ",
    "xargs ",
    "if aa; then ",
    "; fi",
    "for v in cc; do ",
    "; done",
    "${v}",
    "bb() ",
    "~",
    "!",
];

/// A repeatable source of numbers.
struct ShellTestRandom(u64);

impl ShellTestRandom {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// A folder whose programs record how they were called.
fn stage(place: &Path) -> PathBuf {
    let programs = place.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    // One write for each call: two ends of a pipe run at the same time.
    let script = "#!/bin/sh\nline=\nfor word in \"${0##*/}\" \"$@\"; do line=\"$line$word\u{1f}\"; done\nprintf '%s\\036' \"$line\" >> \"$LOG\"\n";
    for name in ["aa", "bb", "cc"] {
        let program = programs.join(name);
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (name, path) in [("sh", "/bin/sh"), ("env", "/usr/bin/env"), ("xargs", "/usr/bin/xargs")] {
        let _there = std::os::unix::fs::symlink(path, programs.join(name));
    }
    programs
}

/// The programs a shell runs for a text, with their words.
fn really_run(shell: &str, text: &str, place: &Path, programs: &Path) -> Vec<Vec<String>> {
    let log = place.join("log");
    let folder = place.join("folder");
    let _gone = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(&log, "").unwrap();
    Command::new(shell)
        .args(["-c", text])
        .env_clear()
        .env("PATH", programs)
        .env("LOG", &log)
        .env("HOME", "/home/nobody-here")
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let log = String::from_utf8_lossy(&std::fs::read(&log).unwrap()).into_owned();
    let calls = log.split('\u{1e}').filter(|call| !call.is_empty());
    calls.map(|call| call.split_terminator('\u{1f}').map(str::to_owned).collect()).collect()
}

/// Whether a call is one of the commands that were read.
fn is_named(call: &[String], script: &ShellScript) -> bool {
    script.words().iter().any(|words| {
        if words.iter().all(Option::is_some) {
            return words.len() == call.len()
                && words.iter().zip(call).all(|(word, said)| {
                    let home = said.strip_prefix("/home/nobody-here").map(|rest| format!("~{rest}"));
                    *word == Some(said) || word.map(str::to_owned) == home
                });
        }
        // Known words come in this order; unknown ones may be any number of words.
        let mut said = call.iter();
        words[0] == call.first().map(String::as_str)
            && words.iter().flatten().all(|word| said.any(|said| said.contains(word.trim_start_matches('~'))))
    })
}

#[test]
fn no_shell_runs_a_program_that_the_reader_of_its_text_did_not_name() {
    let place = std::env::temp_dir().join(format!("sluice-shell-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let programs = stage(&place);
    let shells: Vec<&str> = ["/bin/sh", "/bin/bash", "/bin/zsh", "/bin/dash"]
        .into_iter()
        .filter(|shell| Path::new(shell).exists())
        .collect();
    assert!(!shells.is_empty(), "there is no shell to compare with");
    let mut dice = ShellTestRandom(18);
    let (mut understood, mut ran) = (0, 0);
    while understood < 400 {
        let text: String = (0..2 + dice.below(11)).map(|_| PIECES[dice.below(PIECES.len())]).collect();
        let Ok(script) = ShellScript::parse(&text) else { continue };
        // A text with only one program shows little.
        if script.words().len() < 2 && dice.below(4) > 0 {
            continue;
        }
        understood += 1;
        for shell in &shells {
            for call in really_run(shell, &text, &place, &programs) {
                ran += 1;
                assert!(is_named(&call, &script), "{shell} ran {call:?} for {text:?}, read as {:?}", script.words());
            }
        }
    }
    assert!(ran > 400, "the texts ran only {ran} programs, which shows nothing");
    std::fs::remove_dir_all(&place).unwrap();
}
