//! Backups of a real gateway: made under load, damaged, restored, practised.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::postgres::TestDatabase;

use crate::running::{RunningGateway, TestInstallation, ask, pause};

const ORG: &str = "defaults: {tier: autonomous}\n";
const HELD: &str = "holds: {delays: {\"filesystem.*\": 3s}}\nbatch: {services: {filesystem: off}}\n";
const PHRASE: &str = "correct horse battery staple";

fn sluice(place: &TestInstallation, arguments: &[&str]) -> Output {
    let phrase = place.folder.path().join("phrase");
    fs::write(&phrase, format!("{PHRASE}\n")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("SLUICE_CONFIG", place.folder.path().join("sluice.yaml"))
        .env("SLUICE_TOKEN", &place.operator_token)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn good(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
    said(output)
}

fn at(place: &TestInstallation, name: &str) -> String {
    place.folder.path().join(name).display().to_string()
}

fn stop(mut running: RunningGateway) {
    rustix::process::kill_process(rustix::process::Pid::from_child(&running.0), rustix::process::Signal::TERM).unwrap();
    running.0.wait().unwrap();
}

fn until(what: &str, done: impl Fn() -> bool) {
    let seen = (0..3_000).any(|_| {
        pause(Duration::from_millis(20));
        done()
    });
    assert!(seen, "{what}");
}

fn write(place: &TestInstallation, name: &str) -> u16 {
    let path = fs::canonicalize(place.work()).unwrap().join(name);
    let arguments = json!({"path": path, "content": name});
    let call = json!({"capability": "filesystem.write", "arguments": arguments, "wait_ms": 0});
    place.call(&call).map_or(0, |answer| answer.status)
}

fn operator(place: &TestInstallation, path: &str) -> Value {
    ask(place.main, "GET", path, &place.operator_token, None).unwrap().body
}

fn create(place: &TestInstallation, name: &str) -> (String, String) {
    let (backup, keys) = (at(place, &format!("{name}.backup")), at(place, &format!("elsewhere/{name}.keys")));
    fs::create_dir_all(place.folder.path().join("elsewhere")).unwrap();
    let phrase = at(place, "phrase");
    let made = sluice(place, &["backup", "create", "--out", &backup, "--keys-to", &keys, "--passphrase-file", &phrase]);
    good(&made);
    (backup, keys)
}

fn verify(place: &TestInstallation, backup: &str, keys: &str) -> Output {
    let phrase = at(place, "phrase");
    sluice(place, &["backup", "verify", backup, "--keys", keys, "--passphrase-file", &phrase])
}

/// Everything a folder holds, by name; lock files and the like aside.
fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A backup made while agents write, restored: what was open waits for a person, nothing is sent, the record says so.
fn made_under_load_and_restored(postgres: Option<&TestDatabase>, fresh: Option<&TestDatabase>) {
    let place = TestInstallation::new(HELD, ORG, postgres.map(TestDatabase::url));
    let running = place.start();
    let (go_on, admitted) = (AtomicBool::new(true), AtomicUsize::new(0));
    let (backup, keys) = std::thread::scope(|scope| {
        for thread in 0..2 {
            let (place, go_on, admitted) = (&place, &go_on, &admitted);
            scope.spawn(move || {
                for n in (0..60).take_while(|_| go_on.load(Ordering::SeqCst)) {
                    if write(place, &format!("load-{thread}-{n}")) == 202 {
                        admitted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        until("writes come in", || admitted.load(Ordering::SeqCst) > 10);
        let made = create(&place, "loaded");
        go_on.store(false, Ordering::SeqCst);
        made
    });
    let whole = good(&verify(&place, &backup, &keys));
    assert!(
        whole.contains("covered by signed checkpoints") && whole.contains("the root key opens the vault"),
        "{whole}"
    );
    assert!(!listing(&place.folder.path().join("data")).iter().any(|name| name.starts_with(".backup-")));
    // Every write is carried out in the first life; what a restored database would send again is counted.
    let total = admitted.load(Ordering::SeqCst);
    until("what was admitted is done", || listing(&place.work()).len() >= total);
    stop(running);
    listing(&place.work()).iter().for_each(|name| fs::remove_file(place.work().join(name)).unwrap());

    if let Some(fresh) = fresh {
        let file = place.folder.path().join("sluice.yaml");
        let text = fs::read_to_string(&file).unwrap().replace(postgres.unwrap().url(), fresh.url());
        fs::write(&file, text).unwrap();
    }
    let phrase = at(&place, "phrase");
    let restore = ["backup", "restore", &backup, "--keys", &keys, "--passphrase-file", &phrase];
    let refused = sluice(&place, &restore);
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
    assert!(said(&refused).contains("backup.not_empty"), "{}", said(&refused));
    let restored = good(&sluice(&place, &[restore.as_slice(), &["--replace"]].concat()));
    assert!(restored.contains("wait for a person; none is sent automatically"), "{restored}");

    let running = place.start();
    let standing = operator(&place, "/v1/recovery");
    assert_eq!(standing["standing"], "suspected", "{standing}");
    assert!(standing.to_string().contains("recovery.restored_from_backup"), "{standing}");
    let stale = operator(&place, "/v1/holds?state=stale,needs_human&limit=500");
    assert!(!stale["data"].as_array().unwrap().is_empty(), "{stale}");
    let open = operator(&place, "/v1/holds?state=held,ready,awaiting_approval,preparing,armed,in_doubt");
    assert_eq!(open["data"], json!([]), "nothing is on its way");
    // Longer than every hold: nothing leaves by itself, neither before nor after the admin has decided.
    pause(Duration::from_secs(4));
    assert_eq!(listing(&place.work()), Vec::<String>::new());
    good(&sluice(&place, &["recover", "--restored-from-backup"]));
    pause(Duration::from_secs(4));
    assert_eq!(listing(&place.work()), Vec::<String>::new());
    assert_eq!(write(&place, "new"), 202);
    until("what is new goes its way", || place.work().join("new").exists());
    let record = good(&sluice(&place, &["audit", "show", "--last", "400", "--json"]));
    for kind in ["recovery.suspected", "recovery.restored_from_backup", "recovery.accepted"] {
        assert!(record.contains(kind), "{kind}");
    }
    good(&sluice(&place, &["audit", "verify"]));
    stop(running);
}

#[test]
fn a_backup_under_load_is_restored_frozen_and_sends_nothing() {
    made_under_load_and_restored(None, None);
}

#[test]
fn a_backup_of_postgres_under_load_is_restored_frozen_and_sends_nothing() {
    let (Some(first), Some(second)) = (TestDatabase::fresh(), TestDatabase::fresh()) else { return };
    made_under_load_and_restored(Some(&first), Some(&second));
}

#[test]
fn whatever_is_wrong_with_a_backup_is_named_and_nothing_is_restored() {
    let place = TestInstallation::new(HELD, ORG, None);
    let running = place.start();
    assert_eq!(write(&place, "a"), 202);
    let (backup, keys) = create(&place, "whole");
    let phrase = at(&place, "phrase");
    good(&verify(&place, &backup, &keys));
    // Under a running gateway nothing is put back.
    let refused =
        sluice(&place, &["backup", "restore", &backup, "--keys", &keys, "--passphrase-file", &phrase, "--replace"]);
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
    assert!(said(&refused).contains("backup.running"), "{}", said(&refused));
    stop(running);

    let bytes = fs::read(&backup).unwrap();
    let bad = at(&place, "bad.backup");
    let body = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0 + 1;
    let places: Vec<usize> =
        [3, body / 2, body - 3, body + 5].into_iter().chain((1..12).map(|n| n * (bytes.len() - 1) / 11)).collect();
    for at in places {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(&bad, &damaged).unwrap();
        let found = verify(&place, &bad, &keys);
        assert_eq!(found.status.code(), Some(9), "byte {at}: {}", said(&found));
        let named = said(&found);
        assert!(
            named.contains("backup.damaged")
                && (named.contains("header") || named.contains('`') || named.contains("its beginning: bytes ")),
            "byte {at}: {named}"
        );
    }
    for length in [0, 10, body, body + 1, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&bad, &bytes[..length]).unwrap();
        assert_eq!(verify(&place, &bad, &keys).status.code(), Some(9), "cut at {length}");
        let refused = sluice(
            &place,
            &[
                "backup",
                "restore",
                &bad,
                "--keys",
                &keys,
                "--passphrase-file",
                &phrase,
                "--to",
                &at(&place, "restored"),
            ],
        );
        assert_eq!(refused.status.code(), Some(9), "{}", said(&refused));
        assert!(!place.folder.path().join("restored/data/sluice.db").exists());
    }
    let mut envelope = fs::read(&keys).unwrap();
    *envelope.last_mut().unwrap() ^= 1;
    let bad_keys = at(&place, "bad.keys");
    fs::write(&bad_keys, envelope).unwrap();
    assert_eq!(verify(&place, &backup, &bad_keys).status.code(), Some(9));
    // A backup in the place of its keys, and keys in the place of a backup.
    assert_eq!(verify(&place, &keys, &backup).status.code(), Some(9));

    let other = at(&place, "other");
    fs::File::create(&other).unwrap().write_all(b"another horse battery staple\n").unwrap();
    let wrong = sluice(&place, &["backup", "verify", &backup, "--passphrase-file", &other]);
    assert_eq!(wrong.status.code(), Some(6), "{}", said(&wrong));
    assert!(said(&wrong).contains("backup.wrong_key") && !said(&wrong).contains("another horse"), "{}", said(&wrong));
}

#[test]
fn a_backup_to_a_folder_that_is_not_there_names_the_folder_and_what_to_do() {
    let place = TestInstallation::new("", ORG, None);
    drop(place.start());
    let phrase = at(&place, "phrase");
    let missing = at(&place, "no/such");
    for out in [format!("{missing}/gate.backup"), format!("{missing}/")] {
        let made = sluice(&place, &["backup", "create", "--out", &out, "--no-keys", "--passphrase-file", &phrase]);
        let text = said(&made);
        assert_eq!(made.status.code(), Some(3), "{text}");
        assert!(text.contains(&format!("there is no folder `{missing}")), "{text}");
        assert!(text.contains("backup.no_folder") && text.contains("mkdir -p"), "{text}");
    }
    let (out, keys) = (at(&place, "gate.backup"), format!("{missing}/keys"));
    let create = ["backup", "create", "--out", &out, "--keys-to", &keys, "--passphrase-file", &phrase];
    assert!(said(&sluice(&place, &create)).contains(&format!("there is no folder `{missing}`")));
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_drill_restores_and_leaves_nothing_and_keys_beside_a_backup_are_warned_of() {
    let place = TestInstallation::new(HELD, ORG, None);
    let running = place.start();
    assert_eq!(write(&place, "a"), 202);
    let (backup, beside, phrase) = (at(&place, "b/one.backup"), at(&place, "b/one.keys"), at(&place, "phrase"));
    fs::create_dir(place.folder.path().join("b")).unwrap();
    let made =
        sluice(&place, &["backup", "create", "--out", &backup, "--keys-to", &beside, "--passphrase-file", &phrase]);
    assert!(good(&made).contains("WARNING: the keys are in the same folder as the backup"), "{}", said(&made));
    let listed = good(&sluice(&place, &["backup", "list", &at(&place, "b")]));
    assert!(listed.contains("one.backup") && listed.contains("passphrase"), "{listed}");
    let scratch = place.folder.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let arguments = ["backup", "drill", &backup, "--keys", &beside, "--passphrase-file", &phrase, "--scratch"];
    let drilled = good(&sluice(&place, &[arguments.as_slice(), &[scratch.to_str().unwrap()]].concat()));
    for part in
        ["verify ", "restore ", "open ", "1 would wait for a person", "vault        opens", "its files are removed"]
    {
        assert!(drilled.contains(part), "{part}: {drilled}");
    }
    assert_eq!(listing(&scratch), Vec::<String>::new());
    // Neither keys nor credentials are in the backup itself.
    let shown = sluice(&place, &["backup", "verify", &backup, "--passphrase-file", &phrase, "--json"]);
    let manifest: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let files = manifest["manifest"]["files"].to_string();
    for secret in ["keys/", "operator.token", ".lock", "-wal"] {
        assert!(!files.contains(secret), "{secret}: {files}");
    }
    assert!(files.contains("config/sluice.yaml") && files.contains("config/policies/org.yaml"), "{files}");
    stop(running);
}

#[test]
fn a_backup_for_a_recipient_needs_its_identity_and_moves_to_another_folder() {
    let place = TestInstallation::new(HELD, ORG, None);
    let running = place.start();
    assert_eq!(write(&place, "a"), 202);
    let identity = at(&place, "identity");
    let recipient = sluice(&place, &["backup", "key", "--out", &identity]);
    let recipient = String::from_utf8(recipient.stdout).unwrap().trim().to_owned();
    let (backup, keys) = (at(&place, "r.backup"), at(&place, "r.keys"));
    good(&sluice(&place, &["backup", "create", "--out", &backup, "--keys-to", &keys, "--recipient", &recipient]));
    stop(running);
    let moved = place.folder.path().join("moved");
    let to = moved.display().to_string();
    let restored =
        good(&sluice(&place, &["backup", "restore", &backup, "--keys", &keys, "--identity", &identity, "--to", &to]));
    assert!(restored.contains("restored"), "{restored}");
    for file in ["sluice.yaml", "policies/org.yaml", "data/sluice.db", "data/keys/audit.key"] {
        assert!(moved.join(file).exists(), "{file}");
    }
    let phrase = at(&place, "phrase");
    let wrong = sluice(&place, &["backup", "verify", &backup, "--passphrase-file", &phrase]);
    assert_eq!(wrong.status.code(), Some(2), "{}", said(&wrong));
}

#[test]
fn a_create_that_is_killed_leaves_no_half_backup_under_its_name() {
    let place = TestInstallation::new(HELD, ORG, None);
    let running = place.start();
    assert_eq!(write(&place, "a"), 202);
    let (_, keys) = create(&place, "first");
    let phrase = at(&place, "phrase");
    for n in 0..12_u64 {
        let (backup, other) = (at(&place, &format!("killed-{n}.backup")), at(&place, &format!("killed-{n}.keys")));
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["backup", "create", "--out", &backup, "--keys-to", &other, "--passphrase-file", &phrase])
            .env_clear()
            .env("SLUICE_CONFIG", place.folder.path().join("sluice.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        pause(Duration::from_millis(20 * n));
        drop(child.kill());
        child.wait().unwrap();
        // A name is given to whole files only. What was still being written is no backup, unless the kill came between
        // its last byte and its name.
        if Path::new(&backup).exists() {
            good(&verify(&place, &backup, &keys));
        }
        let partial = format!("{backup}.partial");
        if Path::new(&partial).exists() && verify(&place, &partial, &keys).status.code() == Some(0) {
            let scratch = at(&place, "scratch");
            fs::create_dir_all(&scratch).unwrap();
            let drill = ["backup", "drill", &partial, "--keys", &keys, "--passphrase-file", &phrase, "--scratch"];
            good(&sluice(&place, &[drill.as_slice(), &[&scratch]].concat()));
        }
        assert_ne!(verify(&place, &other, &keys).status.code(), Some(0), "keys are no backup");
    }
    let (backup, keys) = create(&place, "last");
    good(&verify(&place, &backup, &keys));
    assert!(!listing(&place.folder.path().join("data")).iter().any(|name| name.starts_with(".backup-")));
    stop(running);
}
