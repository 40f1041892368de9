//! A data folder that was restored under the real program, and the record compared with checkpoints kept elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::running::{RunningGateway, TestInstallation, ask, pause};

const ORG: &str = "defaults: {tier: autonomous}\n";

fn copy(from: &Path, to: &Path) {
    let _there = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn stop(mut running: RunningGateway) {
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    running.0.wait().unwrap();
}

fn until(what: &str, done: impl Fn() -> bool) {
    let seen = (0..3_000).any(|_| {
        pause(Duration::from_millis(20));
        done()
    });
    assert!(seen, "{what}");
}

fn write(place: &TestInstallation, name: &str) -> Value {
    let path = fs::canonicalize(place.work()).unwrap().join(name);
    let arguments = json!({"path": path, "content": "x"});
    let answer = place.call(&json!({"capability": "filesystem.write", "arguments": arguments, "wait_ms": 0})).unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.body
}

fn sluice(place: &TestInstallation, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_clear()
        .env("SLUICE_CONFIG", place.folder.path().join("sluice.yaml"))
        .env("SLUICE_TOKEN", &place.operator_token)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn operator(place: &TestInstallation, method: &str, path: &str) -> Value {
    ask(place.main, method, path, &place.operator_token, None).unwrap().body
}

#[test]
fn a_gateway_started_with_a_home_and_without_one_finds_its_state_file_and_says_where_it_looked() {
    let place = TestInstallation::new("", ORG, None);
    let home = place.folder.path().join("home");
    let standing = || operator(&place, "GET", "/v1/recovery");
    for _ in 0..2 {
        for variables in [&[][..], &[("HOME", home.as_path())][..]] {
            let running = place.start_with(variables);
            let found = standing();
            assert_eq!(found["standing"], "trusted", "{variables:?}: {found}");
            stop(running);
        }
    }
    // Where the file named in the data folder is gone or could be written by others, it is frozen and says where it looked.
    let named = place.folder.path().join("data/state_file.path");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&named).unwrap().permissions());
    assert_eq!(mode & 0o077, 0, "nobody else reads what is in the data folder");
    let state = PathBuf::from(fs::read_to_string(&named).unwrap());
    fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let running = place.start_with(&[("HOME", home.as_path())]);
    let found = standing();
    assert_eq!(found["standing"], "suspected", "{found}");
    let text = found["findings"][0]["text"].as_str().unwrap();
    let looked = home.join(".local/state/sluice").display().to_string();
    assert!(text.contains(&looked) && text.contains("recovery.state_file") && text.contains("HOME"), "{text}");
    stop(running);
}

#[test]
fn the_name_of_a_state_file_in_the_data_folder_leads_to_no_other_file() {
    let place = TestInstallation::new("", ORG, None);
    stop(place.start());
    let named = place.folder.path().join("data/state_file.path");
    let state = PathBuf::from(fs::read_to_string(&named).unwrap());
    let text = fs::read_to_string(&state).unwrap();
    // Somebody who can write to the data folder forges a state file and names it.
    let forged = [place.folder.path().join("data/state.json"), place.folder.path().join("sluice/0011/state.json")];
    for path in &forged {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &text).unwrap();
    }
    fs::remove_file(&state).unwrap();
    for path in &forged {
        fs::write(&named, path.display().to_string()).unwrap();
        let running = place.start();
        let found = operator(&place, "GET", "/v1/recovery");
        assert_eq!(found["standing"], "suspected", "{}: {found}", path.display());
        assert_eq!(found["state_file"], state.display().to_string());
        stop(running);
        fs::remove_file(&state).unwrap();
    }
}

#[test]
fn a_restored_data_folder_sends_nothing_and_says_so_until_an_admin_decides() {
    let place = TestInstallation::new("holds: {delays: {\"filesystem.*\": 5s}}\n", ORG, None);
    let root = place.folder.path().to_path_buf();
    let running = place.start();
    let (_sent, cancelled) = (write(&place, "sent"), write(&place, "cancelled"));
    stop(running);
    copy(&root.join("data"), &root.join("backup"));

    let running = place.start();
    let call = cancelled["call_id"].as_str().unwrap();
    let stopped = ask(place.main, "POST", &format!("/v1/calls/{call}/cancel"), &place.agent_key, None).unwrap();
    assert_eq!(stopped.status, 200, "{stopped:?}");
    until("the mail is sent once", || place.work().join("sent").exists());
    until("and its end is on record", || operator(&place, "GET", "/v1/holds?state=done").to_string().contains("buf_"));
    stop(running);
    fs::remove_file(place.work().join("sent")).unwrap();

    copy(&root.join("backup"), &root.join("data"));
    let running = place.start();
    assert_eq!(operator(&place, "GET", "/v1/recovery")["standing"], "suspected");
    let stale = operator(&place, "GET", "/v1/holds?state=stale");
    assert_eq!(stale["data"].as_array().unwrap().len(), 2, "{stale}");
    let refused = sluice(&place, &["unfreeze"]);
    assert_ne!(refused.status.code(), Some(0));
    assert!(said(&refused).contains("sluice recover"), "{}", said(&refused));
    let shown = sluice(&place, &["recover"]);
    assert!(said(&shown).contains("recovery.starts_behind"), "{}", said(&shown));
    let investigated = sluice(&place, &["recover", "--investigate"]);
    assert_eq!(investigated.status.code(), Some(0), "{}", said(&investigated));
    assert!(said(&investigated).contains("audit verify --against"), "{}", said(&investigated));
    // A kill changes nothing about it.
    running.kill();
    let running = place.start();
    assert_eq!(operator(&place, "GET", "/v1/recovery")["standing"], "investigating");
    let accepted = sluice(&place, &["recover", "--restored-from-backup"]);
    assert_eq!(accepted.status.code(), Some(0), "{}", said(&accepted));
    assert_eq!(operator(&place, "GET", "/v1/freezes")["data"], json!([]));
    write(&place, "new");
    until("what is new goes its way", || place.work().join("new").exists());
    assert!(!place.work().join("sent").exists() && !place.work().join("cancelled").exists());
    stop(running);
    let running = place.start();
    assert_eq!(operator(&place, "GET", "/v1/recovery")["standing"], "trusted");
    stop(running);
}

/// The size of the checkpoints file.
fn length(place: &TestInstallation) -> u64 {
    fs::metadata(place.folder.path().join("data.state/checkpoints")).map_or(0, |data| data.len())
}

#[test]
fn a_record_that_was_cut_is_named_by_a_checkpoint_kept_elsewhere() {
    let place = TestInstallation::new("holds: {delays: {\"filesystem.*\": 1h}}\n", ORG, None);
    let root = place.folder.path().to_path_buf();
    let running = place.start();
    until("the first checkpoint is signed", || length(&place) > 0);
    stop(running);
    copy(&root.join("data"), &root.join("backup"));
    let before = length(&place);
    let running = place.start();
    write(&place, "a");
    until("a later checkpoint is signed", || length(&place) > before);
    stop(running);

    let at = |name: &str| root.join(name).display().to_string();
    let (notes, key) = (at("data.state/checkpoints"), at("data/keys/audit.pub"));
    let all = fs::read_to_string(&notes).unwrap();
    let last = all.trim_end().rsplit("\n\nsluicegate/").next().map(|end| format!("sluicegate/{end}\n")).unwrap();
    let letter: PathBuf = root.join("letter.txt");
    fs::write(&letter, last.lines().map(|line| format!("> {line}\r\n")).collect::<String>()).unwrap();
    let state = at("data.state/state.json");
    for against in [notes.as_str(), state.as_str(), letter.to_str().unwrap(), last.as_str()] {
        let verify =
            |data: &str| sluice(&place, &["audit", "verify", "--data", data, "--key", &key, "--against", against]);
        let whole = verify(&at("data"));
        assert_eq!(whole.status.code(), Some(0), "{}", said(&whole));
        assert!(said(&whole).contains("kept elsewhere"), "{}", said(&whole));
        let cut = verify(&at("backup"));
        assert_eq!(cut.status.code(), Some(9), "{}", said(&cut));
        assert!(
            said(&cut).contains("audit.truncated") && said(&cut).contains("gw was cut: entries #"),
            "{}",
            said(&cut)
        );
    }
    // A checkpoint that was made up convinces nobody.
    let size = last.lines().nth(1).unwrap();
    let forged = last.replacen(&format!("\n{size}\n"), "\n1\n", 1);
    let refused = sluice(&place, &["audit", "verify", "--data", &at("data"), "--key", &key, "--against", &forged]);
    assert_eq!(refused.status.code(), Some(9), "{}", said(&refused));
    assert!(said(&refused).contains("audit.signature"), "{}", said(&refused));
    // The same for an export.
    let out = at("export");
    let exported = sluice(&place, &["audit", "export", "--data", &at("backup"), "--log", "gw", "--out", &out]);
    assert_eq!(exported.status.code(), Some(0), "{}", said(&exported));
    let cut = sluice(&place, &["audit", "verify", "--export", &out, "--key", &key, "--against", &notes]);
    assert_eq!(cut.status.code(), Some(9), "{}", said(&cut));
    assert!(said(&cut).contains("audit.truncated"), "{}", said(&cut));
}
