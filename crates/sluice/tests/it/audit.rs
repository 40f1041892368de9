//! `sluice demo` and `sluice audit` as a person uses them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

fn sluice(arguments: &[&str]) -> Output {
    // A gateway that the user of this machine has must not be found.
    let nowhere = "/nonexistent";
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.env("XDG_CONFIG_HOME", nowhere).env_remove("SLUICE_CONFIG").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A demo that was played once and kept, as each test finds it: the folder it left.
fn played() -> (TempDir, PathBuf) {
    static PLAYED: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_around, kept) = PLAYED.get_or_init(play);
    let own = tempfile::tempdir().unwrap();
    let folder = own.path().join("kept");
    std::fs::create_dir_all(folder.join("export")).unwrap();
    for name in ["sluice.db", "sluice.db-wal", "audit.pub"] {
        drop(std::fs::copy(kept.join(name), folder.join(name)));
    }
    for name in ["log.json", "entries.jsonl", "checkpoints.txt"] {
        std::fs::copy(kept.join("export").join(name), folder.join("export").join(name)).unwrap();
    }
    (own, folder)
}

fn play() -> (TempDir, PathBuf) {
    let around = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["demo", "--headless", "--keep"])
        .env("TMPDIR", around.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}\n{}", text(&run.stdout), text(&run.stderr));
    let told = text(&run.stdout);
    let kept = PathBuf::from(told.lines().find_map(|line| line.strip_prefix("kept: ")).unwrap());
    assert!(told.contains("sent twice 0"), "{told}");
    assert!(kept.starts_with(around.path()), "nothing is written elsewhere: {}", kept.display());
    (around, kept)
}

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn an_export_verifies_with_the_key_and_a_changed_byte_is_named() {
    let (_around, folder) = played();
    let (export, key) = (at(&folder, "export"), at(&folder, "audit.pub"));
    let verified = sluice(&["audit", "verify", "--export", &export, "--key", &key, "--json"]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stderr));
    let report: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&report["verified"], &report["key_known"]), (&true.into(), &true.into()));

    let entries = folder.join("export/entries.jsonl");
    let lines = std::fs::read_to_string(&entries).unwrap();
    let first = lines.lines().position(|line| line.contains("\"weight\":\"1\"")).unwrap();
    std::fs::write(&entries, lines.replacen("\"weight\":\"1\"", "\"weight\":\"2\"", 1)).unwrap();
    let changed = sluice(&["audit", "verify", "--export", &export, "--key", &key]);
    assert_eq!(changed.status.code(), Some(9));
    let named = format!("audit.changed: entry {first}:");
    assert!(text(&changed.stderr).contains(&named), "{}", text(&changed.stderr));
}

#[test]
fn a_database_is_shown_walked_and_exported_once() {
    let (_around, folder) = played();
    let (data, key, out) = (at(&folder, ""), at(&folder, "audit.pub"), at(&folder, "again"));
    let shown = sluice(&["audit", "show", "0", "--data", &data]);
    assert!(text(&shown.stdout).contains("vault.began"), "{}", text(&shown.stdout));
    let walked = sluice(&["audit", "verify", "--data", &data]);
    assert_eq!(walked.status.code(), Some(0), "{}", text(&walked.stderr));

    let export = ["audit", "export", "--data", &data, "--key", &key, "--out", &out];
    assert_eq!(sluice(&export).status.code(), Some(0));
    let same = |name: &str| std::fs::read(folder.join("again").join(name)).unwrap();
    for name in ["log.json", "entries.jsonl", "checkpoints.txt"] {
        assert_eq!(same(name), std::fs::read(folder.join("export").join(name)).unwrap(), "{name}");
    }
    assert_eq!(sluice(&export).status.code(), Some(7), "an export is not overwritten");
    assert_eq!(sluice(&["audit", "show", "999999", "--data", &data]).status.code(), Some(3));
}

#[test]
fn one_entry_is_proven_without_the_rest() {
    let (_around, folder) = played();
    let (data, key, proof) = (at(&folder, ""), at(&folder, "audit.pub"), at(&folder, "entry.proof"));
    let made = sluice(&["audit", "prove", "42", "--data", &data]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    std::fs::write(&proof, &made.stdout).unwrap();
    let verified = sluice(&["audit", "verify", "--proof", &proof, "--key", &key]);
    assert!(text(&verified.stdout).contains("entry #42 of demo"), "{}", text(&verified.stderr));
    std::fs::write(&proof, text(&made.stdout).replacen("index 42", "index 43", 1)).unwrap();
    assert_eq!(sluice(&["audit", "verify", "--proof", &proof, "--key", &key]).status.code(), Some(9));
    assert_eq!(sluice(&["audit", "prove", "999999", "--data", &data]).status.code(), Some(3));
}

#[test]
fn what_is_not_there_or_not_ours_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = at(folder.path(), "nowhere");
    for (arguments, code) in [
        (vec!["audit", "verify"], 4),
        (vec!["audit", "verify", "--export", &nowhere], 3),
        (vec!["audit", "show", "--data", &nowhere], 3),
        (vec!["audit", "verify", "--proof", &nowhere], 2),
    ] {
        let run = sluice(&arguments);
        assert_eq!(run.status.code(), Some(code), "{arguments:?}: {}", text(&run.stderr));
        assert!(text(&run.stderr).starts_with("error: "));
    }
    std::fs::write(folder.path().join("sluice.db"), b"something else entirely, long enough to be read").unwrap();
    let data = at(folder.path(), "");
    let foreign = sluice(&["audit", "show", "--data", &data]);
    assert_eq!(foreign.status.code(), Some(9), "{}", text(&foreign.stderr));
    assert!(text(&foreign.stderr).contains("store.damaged"));
}
