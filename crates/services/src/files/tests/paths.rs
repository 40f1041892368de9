//! Tests of paths that try to escape, and of files that are not what they seem.

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode};

use super::*;

/// Every capability that takes a path, applied to one path.
fn everything_at(world: &TestFilesystem, path: &str) -> Vec<(&'static str, Result<(), Code>)> {
    let mut answers = Vec::new();
    for (capability, more) in [
        ("read", json!({})),
        ("list", json!({})),
        ("search", json!({"pattern": "*"})),
        ("search_content", json!({"pattern": "canary"})),
        ("watch", json!({})),
    ] {
        let mut arguments = more;
        arguments["path"] = json!(path);
        answers.push((capability, world.read(capability, arguments).map(drop)));
    }
    let other = world.path("ordinary");
    for (capability, arguments) in [
        ("write", json!({"path": path, "content": "x"})),
        ("write", json!({"path": path, "content": "x", "create_parents": true})),
        ("append", json!({"path": path, "content": "x"})),
        ("edit", json!({"path": path, "pattern": "canary", "replace": "x"})),
        ("copy", json!({"source": path, "destination": world.path("copied")})),
        ("copy", json!({"source": other, "destination": path, "overwrite": true})),
        ("move", json!({"source": path, "destination": world.path("moved")})),
        ("move", json!({"source": other, "destination": path, "overwrite": true})),
        ("delete", json!({"path": path})),
        ("restore", json!({"path": path})),
    ] {
        let answer = match world.write(capability, arguments) {
            Ok(_) => Ok(()),
            Err(WriteError::Refused(refusal)) => Err(refusal.code()),
            Err(other) => panic!("{capability} of {path}: {other:?}"),
        };
        answers.push((capability, answer));
    }
    answers
}

#[test]
fn no_spelling_of_a_path_gets_out() {
    let world = TestFilesystem::new();
    world.put("ordinary", "ordinary");
    let outside = world.top.path().join("outside/canary");
    for path in [
        world.path("../outside/canary"),
        world.path("a/../../outside/canary"),
        world.path("./../outside/canary"),
        outside.to_str().unwrap().to_owned(),
        format!("{}/../outside/canary", world.path("")),
        format!("{}x", world.path("")),
        "/etc/passwd".into(),
        "/proc/self/environ".into(),
        "/proc/self/root/etc/passwd".into(),
        "/proc/self/cwd".into(),
        "../outside/canary".into(),
        world.path("\0"),
        world.path("..\u{0}/canary"),
        world.path(&"x".repeat(256)),
        world.path(&"x/".repeat(2100)),
        world.path(".sluice-trash"),
        world.path(".Sluice-Trash/x"),
        world.path("a/.sluice-trash/buf_1/before"),
        String::new(),
    ] {
        for (capability, answer) in everything_at(&world, &path) {
            assert_eq!(answer, Err(Code::FilesOutOfScope), "{capability} of {path:?}");
        }
    }
    // Look-alikes of dots and slashes are ordinary names inside the root.
    for look_alike in ["\u{2024}\u{2024}", "..\u{2215}outside\u{2215}canary", "\u{ff0e}\u{ff0e}", "%2e%2e%2foutside"] {
        world.write("write", json!({"path": world.path(look_alike), "content": "x"})).unwrap();
        assert!(world.is_there(look_alike));
    }
    world.canary_is_untouched();
}

#[test]
fn links_are_never_followed_at_the_end_or_on_the_way() {
    let world = TestFilesystem::new();
    world.put("ordinary", "ordinary");
    fs::create_dir(world.root.join("real")).unwrap();
    symlink(world.top.path().join("outside/canary"), world.root.join("link")).unwrap();
    symlink(world.top.path().join("outside"), world.root.join("folder")).unwrap();
    symlink("/proc/self/root", world.root.join("magic")).unwrap();
    symlink("ordinary", world.root.join("inner")).unwrap();
    symlink("../outside", world.root.join("real/up")).unwrap();
    for path in
        ["link", "folder", "folder/canary", "folder/new/deep", "magic", "magic/etc/passwd", "inner", "real/up/canary"]
    {
        for (capability, answer) in everything_at(&world, &world.path(path)) {
            // The link is not what was deleted there: the answer says only that something exists.
            let expected = match (capability, answer) {
                ("restore", Err(Code::FilesExists)) => Code::FilesExists,
                ("list" | "search" | "watch", Err(Code::FilesNotAFolder)) => Code::FilesNotAFolder,
                _ => Code::FilesSymlink,
            };
            assert_eq!(answer, Err(expected), "{capability} of {path}");
        }
    }
    assert_eq!(world.read("stat", json!({"path": world.path("link")})).unwrap()["type"], "symlink");
    let found = world.read("search_content", json!({"path": world.path(""), "pattern": "canary"})).unwrap();
    assert_eq!(found["total_matches"], 0);
    let found = world.read("search", json!({"path": world.path(""), "pattern": "canary"})).unwrap();
    assert_eq!(found["total_matches"], 0);
    world.canary_is_untouched();
}

#[test]
fn a_link_swapped_in_at_any_moment_leads_nowhere() {
    let world = TestFilesystem::new();
    let (real, link, at) = (world.root.join("real"), world.root.join("link"), world.root.join("at"));
    fs::create_dir(&real).unwrap();
    fs::write(real.join("canary"), "inside").unwrap();
    symlink(world.top.path().join("outside"), &link).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (over, at) = (Arc::clone(&over), at.clone());
        std::thread::spawn(move || {
            let mut swaps = 0_u64;
            while !over.load(Ordering::Relaxed) {
                for from in [&real, &link] {
                    fs::rename(from, &at).unwrap();
                    fs::rename(&at, from).unwrap();
                    swaps += 1;
                }
            }
            fs::rename(&real, &at).unwrap();
            swaps
        })
    };
    let path = world.path("at/canary");
    let (mut got_in, mut refused) = (0, 0);
    for n in 0..2_000 {
        match world.read("read", json!({"path": path})) {
            Ok(answer) => {
                assert!(answer["content"].as_str().unwrap().starts_with("inside"), "read {answer}");
                got_in += 1;
            }
            Err(_) => refused += 1,
        }
        let arguments = match n % 4 {
            0 => ("append", json!({"path": path, "content": "+"})),
            1 => ("write", json!({"path": world.path("at/new"), "content": "new"})),
            2 => ("edit", json!({"path": path, "pattern": "+", "replace": "", "replace_all": true})),
            _ => ("delete", json!({"path": world.path("at/new")})),
        };
        match world.write(arguments.0, arguments.1) {
            Ok(_) => got_in += 1,
            Err(_) => refused += 1,
        }
    }
    over.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    assert!(swaps > 2_000 && got_in > 50 && refused > 50, "{swaps} swaps, {got_in} got in, {refused} refused");
    world.canary_is_untouched();
    assert!(world.text("at/canary").starts_with("inside"));
}

#[test]
fn a_file_with_a_second_name_is_refused_unless_the_operator_allows_it() {
    let world = TestFilesystem::new();
    world.put("ordinary", "ordinary");
    fs::hard_link(world.top.path().join("outside/canary"), world.root.join("second")).unwrap();
    for (capability, answer) in everything_at(&world, &world.path("second")) {
        match capability {
            "list" | "search" | "watch" => assert_eq!(answer, Err(Code::FilesNotAFolder)),
            "restore" => assert_eq!(answer, Err(Code::FilesExists)),
            _ => assert_eq!(answer, Err(Code::FilesHardLink), "{capability}"),
        }
    }
    let found = world.read("search_content", json!({"path": world.path(""), "pattern": "canary"})).unwrap();
    assert_eq!((&found["total_matches"], &found["files_skipped"]), (&json!(0), &json!(1)));
    let edit = json!({"path": world.path(""), "pattern": "canary", "replace": "x"});
    assert_eq!(world.refused("edit", edit), Code::FilesCount);
    world.canary_is_untouched();

    let open = TestFilesystem::with(
        |path| AgentRoot { path, agents: RootAgents::All, read_only: false, trusted: false },
        true,
    );
    open.put("one", "shared");
    fs::hard_link(open.root.join("one"), open.root.join("two")).unwrap();
    assert_eq!(open.read("read", json!({"path": open.path("two")})).unwrap()["content"], "shared");
    open.write("write", json!({"path": open.path("two"), "content": "own"})).unwrap();
    assert_eq!((open.text("one"), open.text("two")), ("shared".into(), "own".into()), "the other name is left alone");
}

#[test]
fn pipes_sockets_and_devices_are_refused_at_once() {
    let world = TestFilesystem::new();
    world.put("ordinary", "ordinary");
    rustix::fs::mknodat(CWD, world.root.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = UnixListener::bind(world.root.join("socket")).unwrap();
    let mut special = vec!["pipe", "socket"];
    // Only a privileged test can make a device; /dev/null has the number 1:3.
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(CWD, world.root.join("device"), FileType::CharacterDevice, Mode::RWXU, null).is_ok() {
        special.push("device");
    }
    for name in special {
        for (capability, answer) in everything_at(&world, &world.path(name)) {
            match capability {
                "list" | "search" | "watch" => assert_eq!(answer, Err(Code::FilesNotAFolder)),
                "restore" => assert_eq!(answer, Err(Code::FilesExists)),
                _ => assert_eq!(answer, Err(Code::FilesNotAFile), "{capability} of {name}"),
            }
        }
        assert_eq!(world.read("stat", json!({"path": world.path(name)})).unwrap()["type"], "other");
    }
    // A search skips them without stopping.
    world.put("text", "needle");
    let found = world.read("search_content", json!({"path": world.path(""), "pattern": "needle"})).unwrap();
    assert_eq!(found["total_matches"], 1);
}

#[test]
fn what_the_gateway_keeps_is_never_shown() {
    let world = TestFilesystem::new();
    world.put("a", "secret old text");
    world.write("write", json!({"path": world.path("a"), "content": "new"})).unwrap();
    world.write("delete", json!({"path": world.path("a")})).unwrap();
    assert!(world.is_there(".sluice-trash"));
    let listed = world.read("list", json!({"path": world.path(""), "include_hidden": true})).unwrap();
    assert_eq!(listed["entries"], json!([]));
    for pattern in ["*", "**", "before", ".sluice-trash/**"] {
        let arguments = json!({"path": world.path(""), "pattern": pattern, "include_hidden": true});
        assert_eq!(world.read("search", arguments).unwrap()["total_matches"], 0, "{pattern}");
    }
    let found = world.read("search_content", json!({"path": world.path(""), "pattern": "secret"})).unwrap();
    assert_eq!(found["total_matches"], 0);
    let edit = json!({"path": world.path(""), "pattern": "secret", "replace": "x", "include_all": true});
    assert_eq!(world.refused("edit", edit), Code::FilesCount);
    let mode = fs::metadata(world.root.join(".sluice-trash")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_trash_that_is_a_link_is_not_used() {
    let world = TestFilesystem::new();
    world.put("a", "text");
    symlink(world.top.path().join("outside"), world.root.join(".sluice-trash")).unwrap();
    assert_eq!(world.refused("delete", json!({"path": world.path("a")})), Code::FilesSymlink);
    assert_eq!(world.refused("write", json!({"path": world.path("a"), "content": "b"})), Code::FilesSymlink);
    assert_eq!(world.text("a"), "text");
    world.canary_is_untouched();
}

#[test]
fn new_names_that_deceive_are_refused_and_old_ones_can_be_used() {
    let world = TestFilesystem::new();
    let path = world.path("a\u{202e}txt.exe");
    assert_eq!(world.refused("write", json!({"path": path, "content": "x"})), Code::SchemaBadName);
    let deep = world.path("b\u{200b}/c");
    let arguments = json!({"path": deep, "content": "x", "create_parents": true});
    assert_eq!(world.refused("write", arguments), Code::SchemaBadName);
    world.put("a\u{202e}txt.exe", "old");
    assert_eq!(world.read("read", json!({"path": path})).unwrap()["content"], "old");
}

#[test]
fn a_root_opened_for_reading_is_never_written() {
    let world = TestFilesystem::with(
        |path| AgentRoot { path, agents: RootAgents::All, read_only: true, trusted: false },
        false,
    );
    world.put("ordinary", "text");
    world.put("a", "text");
    for (capability, answer) in everything_at(&world, &world.path("a")) {
        if ["write", "append", "edit", "copy", "move", "delete", "restore"].contains(&capability) {
            assert!(matches!(answer, Err(Code::FilesDenied | Code::FilesCount)), "{capability}: {answer:?}");
        }
    }
    let edit = json!({"path": world.path("a"), "pattern": "text", "replace": "x"});
    assert_eq!(world.refused("edit", edit), Code::FilesDenied);
    assert_eq!(fs::read_dir(&world.root).unwrap().count(), 2, "not even a trash was made");
}

#[test]
fn a_root_is_closed_to_agents_it_was_not_opened_to() {
    let other = |path| AgentRoot {
        path,
        agents: RootAgents::Named(vec![AgentName::new("other").unwrap()]),
        read_only: false,
        trusted: false,
    };
    let world = TestFilesystem::with(other, false);
    world.put("ordinary", "text");
    for (capability, answer) in everything_at(&world, &world.path("ordinary")) {
        assert_eq!(answer, Err(Code::FilesOutOfScope), "{capability}");
    }
    assert_eq!(world.files.roots_of(&AgentName::new("clerk").unwrap()), []);
    let open = world.files.roots_of(&AgentName::new("other").unwrap());
    assert_eq!(open, [(world.path(""), false)]);
}
