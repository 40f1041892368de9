//! What the end of a declared program means for its write, and what a changed program means for an approval.

use std::fs;

use serde_json::json;

use super::{ALLOWED, DeclaredProgramFolders, complaints, deploy, placed, result, runs, settled};

/// Runs once for each code of the list, the last one again and again.
const COUNTING: &str = "echo run >> runs; n=$(wc -l < runs); code=$(sed -n \"${n}p\" codes); echo oh >&2; \
                        exit ${code:-$(tail -n 1 codes)}";
const CODES: &str = "  exit_codes: {done: [0], not_applied: [75], refused: [64]}\n";

/// Every kind of end of a program, for each effect class: how the write ends, and how often the program ran.
#[tokio::test]
async fn an_exit_code_ends_a_write_as_its_file_and_class_say() {
    let lookup = |word: &str| format!("  lookup: {{command: [BIN/find, {word}]}}\n");
    let key = "  environment: {KEY: \"{call.key}\"}\n".to_owned();
    let classes = [
        ("opaque", String::new(), ("needs_human", 1)),
        ("absolute", String::new(), ("done", 2)),
        ("consume_once", key, ("done", 2)),
        ("findable", lookup("absent"), ("done", 2)),
        ("findable", lookup("applied"), ("done", 1)),
        ("findable", lookup("unknown"), ("needs_human", 1)),
        ("findable", lookup("appliedx"), ("needs_human", 1)),
    ];
    for (class, more, unclear) in classes {
        for (codes, expected) in [
            ("0", ("done", 1)),
            ("75\n0", ("done", 2)),
            ("64", ("dead", 1)),
            ("1\n0", unclear),
            ("137\n0", unclear),
            ("255\n0", unclear),
        ] {
            let programs = DeclaredProgramFolders::new();
            programs.script("deploy", COUNTING);
            programs.script("find", "echo \"$1\"");
            fs::write(programs.path("state/codes"), codes).unwrap();
            programs.declare(
                "deploy",
                &deploy(&format!("{CODES}{more}")).replace("effect: write", &format!("effect: write\nclass: {class}")),
            );
            let mut house = programs.house(ALLOWED).await;
            let id = placed(&house, json!({"service": "a"})).await;
            let state = settled(&mut house, id).await;
            assert_eq!((state, runs(&programs)), expected, "{class} {more:?} {codes:?}");
        }
    }
}

#[tokio::test]
async fn one_that_takes_too_long_or_prints_too_much_is_ended_whole_and_in_doubt() {
    for (body, mark) in [("sleep 98761 & sleep 98762", "9876"), ("sleep 98763 & yes", "98763")] {
        let programs = DeclaredProgramFolders::new();
        programs.script("deploy", &format!("echo run >> runs; {body}"));
        programs.declare("deploy", &deploy("  limits: {timeout_seconds: 1, answer_kb: 16}\n"));
        let mut house = programs.house(ALLOWED).await;
        let id = placed(&house, json!({"service": "a"})).await;
        assert_eq!((settled(&mut house, id).await, runs(&programs)), ("needs_human", 1), "{body}");
        assert!(!is_running(mark), "everything it started ended with it: {body}");
    }
}

fn is_running(mark: &str) -> bool {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|line| line.starts_with(b"sleep\0") && String::from_utf8_lossy(&line).contains(mark))
}

#[tokio::test]
async fn people_are_shown_what_a_program_complained_about_and_agents_are_not() {
    let programs = DeclaredProgramFolders::new();
    programs.script("deploy", "echo 'the disk is full' >&2; exit $(cat code)");
    programs.declare("deploy", &deploy(CODES));
    let mut house = programs.house(ALLOWED).await;
    for (code, state) in [("64", "dead"), ("1", "needs_human")] {
        fs::write(programs.path("state/code"), code).unwrap();
        let id = placed(&house, json!({"service": code})).await;
        assert_eq!(settled(&mut house, id).await, state);
        assert_eq!(complaints(&house, id).await.as_deref(), Some("the disk is full"), "{code}");
        assert!(!result(&house, id).await.to_string().contains("disk"));
    }
}

#[tokio::test]
async fn a_program_that_changed_after_its_approval_is_asked_about_again() {
    let programs = DeclaredProgramFolders::new();
    programs.script("deploy", "echo old >> runs");
    programs.declare("deploy", &deploy(""));
    let mut house = programs.house("").await;
    let (approval, id) = house.asked("deploy", json!({"service": "a"})).await;
    let before = house.hold(id).await.action.digest();
    house.approve(approval).await;
    programs.script("deploy", "echo new >> runs");
    assert_eq!(house.settle(id).await, "awaiting_approval");
    assert_eq!(runs(&programs), 0, "nothing runs that nobody approved");
    let hold = house.hold(id).await;
    assert_ne!(hold.action.digest(), before, "the digest covers the program");
    let sluice_core::hold::HoldState::AwaitingApproval { approval, .. } = hold.state else { panic!("{hold:?}") };
    house.approve(approval).await;
    assert_eq!(settled(&mut house, id).await, "done");
    assert_eq!(programs.text("runs"), "new\n");
}

/// A script that an interpreter is given belongs to what is approved, too, and so do the files that are named.
#[tokio::test]
async fn a_changed_script_or_module_is_another_program() {
    let programs = DeclaredProgramFolders::new();
    programs.script("deploy", "echo old >> runs");
    programs.script("module", "x=1");
    let declared = deploy("  files: [BIN/module]\n").replace("[BIN/deploy,", "[/bin/sh, BIN/deploy,");
    programs.declare("deploy", &declared);
    let mut house = programs.house("").await;
    for name in ["deploy", "module"] {
        let (approval, id) = house.asked("deploy", json!({"service": name})).await;
        house.approve(approval).await;
        programs.script(name, "echo changed >> runs");
        assert_eq!(house.settle(id).await, "awaiting_approval", "{name}");
    }
    assert_eq!(runs(&programs), 0);
}

/// Where nobody is asked, only the program that the gateway started with is run.
#[tokio::test]
async fn without_a_person_a_changed_program_is_not_run() {
    let programs = DeclaredProgramFolders::new();
    programs.script("deploy", "echo old >> runs");
    programs.script("list", "echo listed");
    programs.declare("deploy", &deploy(""));
    programs.declare("shop.list", "summary: Lists.\neffect: read\nprogram: {command: [BIN/list]}\n");
    let mut house = programs.house(ALLOWED).await;
    assert_eq!(house.read("shop.list", json!({})).await["data"], json!("listed\n"));
    let held = placed(&house, json!({"service": "a"})).await;
    programs.script("deploy", "echo new >> runs");
    programs.script("list", "echo other");
    assert_eq!(settled(&mut house, held).await, "dead");
    let later = placed(&house, json!({"service": "b"})).await;
    assert_eq!(settled(&mut house, later).await, "dead");
    assert_eq!(house.refused("shop.list", json!({})).await, "execute.refused_mismatch");
    assert_eq!(runs(&programs), 0);
}
