//! Tests of writes: complete or absent, alone or concurrent.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn each_write_answers_with_what_it_left() {
    let world = TestFilesystem::new();
    let a = world.path("a.txt");
    let (_, made) = world.write("write", json!({"path": a, "content": "one\n"})).unwrap();
    let sum = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806";
    assert_eq!(made.result, json!({"path": a, "size": 4, "checksum": sum}));
    let (_, made) = world.write("append", json!({"path": a, "content": "two\n"})).unwrap();
    assert_eq!(made.result, json!({"path": a, "new_size": 8}));
    let b = world.path("b.txt");
    let (_, made) = world.write("copy", json!({"source": a, "destination": b})).unwrap();
    assert_eq!((&made.result["source"], &made.result["destination"]), (&json!(a), &json!(b)));
    assert_eq!((&made.result["size"], made.result["checksum"].as_str().unwrap().len()), (&json!(8), 64));
    let c = world.path("c.txt");
    let (_, made) = world.write("move", json!({"source": b, "destination": c})).unwrap();
    assert_eq!(made.result, json!({"source": b, "destination": c, "size": 8}));
    let (delete, made) = world.write("delete", json!({"path": c})).unwrap();
    assert_eq!(made.result["deleted_path"], c);
    assert_eq!(made.result["trash_path"], format!("{}/c.txt", delete.hold.id));
    let until = world.clock.now() + Millis::from_hours(72);
    assert_eq!((&made.result["recoverable_until"], made.undo_until), (&json!(until.to_string()), Some(until)));
    let (_, made) = world.write("restore", json!({"path": c})).unwrap();
    assert_eq!((&made.result["path"], &made.result["size"]), (&json!(c), &json!(8)));
    assert_eq!(world.text("c.txt"), "one\ntwo\n");
    assert!(!world.is_there("b.txt"));
    let (_, made) = world.write("write", json!({"path": a, "content": "/wA=", "encoding": "binary"})).unwrap();
    assert_eq!((fs::read(world.root.join("a.txt")).unwrap(), &made.result["size"]), (vec![0xff, 0], &json!(2)));
    assert_eq!(world.litter(), [] as [PathBuf; 0]);
}

#[test]
fn a_replaced_file_keeps_its_permissions_and_a_new_one_has_ordinary_ones() {
    let world = TestFilesystem::new();
    world.put("a", "x");
    fs::set_permissions(world.root.join("a"), fs::Permissions::from_mode(0o4750)).unwrap();
    world.write("write", json!({"path": world.path("a"), "content": "y"})).unwrap();
    world.write("write", json!({"path": world.path("b"), "content": "y"})).unwrap();
    let mode = |name: &str| fs::metadata(world.root.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a"), mode("b")), (0o750, 0o644), "nobody becomes another user by new content");
}

#[test]
fn folders_are_made_only_when_asked_for() {
    let world = TestFilesystem::new();
    let deep = world.path("x/y/z.txt");
    assert_eq!(world.refused("write", json!({"path": deep, "content": "1"})), Code::FilesNotFound);
    assert!(!world.is_there("x"));
    let (write, _) = world.write("write", json!({"path": deep, "content": "1", "create_parents": true})).unwrap();
    assert_eq!(world.text("x/y/z.txt"), "1");
    world.undo(&write).unwrap();
    assert!(!world.is_there("x"), "and they go with the file");
}

#[test]
fn nothing_is_replaced_unless_the_call_says_so() {
    let world = TestFilesystem::new();
    world.put("a", "a");
    world.put("b", "b");
    fs::create_dir(world.root.join("folder")).unwrap();
    let (a, b) = (world.path("a"), world.path("b"));
    for capability in ["copy", "move"] {
        let arguments = json!({"source": a, "destination": b});
        assert_eq!(world.refused(capability, arguments), Code::FilesExists, "{capability}");
        let arguments = json!({"source": a, "destination": a, "overwrite": true});
        assert_eq!(world.refused(capability, arguments), Code::FilesExists, "{capability}");
        let arguments = json!({"source": a, "destination": world.path("folder"), "overwrite": true});
        assert_eq!(world.refused(capability, arguments), Code::FilesNotAFile, "{capability}");
        let arguments = json!({"source": world.path("folder"), "destination": world.path("other")});
        assert_eq!(world.refused(capability, arguments), Code::FilesNotAFile, "{capability}");
        let arguments = json!({"source": world.path("nothing"), "destination": world.path("other")});
        assert_eq!(world.refused(capability, arguments), Code::FilesNotFound, "{capability}");
    }
    world.write("copy", json!({"source": a, "destination": b, "overwrite": true})).unwrap();
    assert_eq!(world.text("b"), "a");
    world.put("a", "new");
    world.write("move", json!({"source": a, "destination": b, "overwrite": true})).unwrap();
    assert_eq!((world.text("b"), world.is_there("a")), ("new".into(), false));
}

#[test]
fn only_files_and_empty_folders_are_deleted() {
    let world = TestFilesystem::new();
    fs::create_dir_all(world.root.join("full/inner")).unwrap();
    assert_eq!(world.refused("delete", json!({"path": world.path("full")})), Code::FilesNotEmpty);
    assert_eq!(world.refused("delete", json!({"path": world.path("")})), Code::FilesOutOfScope);
    assert_eq!(world.refused("delete", json!({"path": world.path("nothing")})), Code::FilesNotFound);
    let write = world.prepare("delete", json!({"path": world.path("full/inner")})).unwrap();
    world.put("full/inner/late", "work");
    assert_eq!(code(world.perform(&write)), Code::FilesNotEmpty, "filled since it was looked at");
    assert_eq!(world.text("full/inner/late"), "work");
}

#[test]
fn the_version_deleted_last_comes_back_unless_another_is_named() {
    let world = TestFilesystem::new();
    let a = world.path("a");
    let mut named = Vec::new();
    for text in ["first", "second"] {
        world.put("a", text);
        named.push(world.write("delete", json!({"path": a})).unwrap().1.result["trash_path"].clone());
        world.clock.advance(Millis::from_mins(1));
    }
    world.put("a", "third");
    assert_eq!(world.refused("restore", json!({"path": a})), Code::FilesExists);
    fs::remove_file(world.root.join("a")).unwrap();
    world.write("restore", json!({"path": a})).unwrap();
    assert_eq!(world.text("a"), "second");
    fs::remove_file(world.root.join("a")).unwrap();
    let elsewhere = json!({"path": world.path("b"), "trash_path": named[0]});
    assert_eq!(world.refused("restore", elsewhere), Code::FilesNotFound, "only to where it was");
    world.write("restore", json!({"path": a, "trash_path": named[0]})).unwrap();
    assert_eq!(world.text("a"), "first");
    world.write("delete", json!({"path": a})).unwrap();
    world.clock.advance(Millis::from_hours(73));
    assert_eq!(world.refused("restore", json!({"path": a})), Code::FilesNotFound, "too late");
}

#[test]
fn an_edit_with_another_number_of_places_changes_nothing() {
    let world = TestFilesystem::new();
    let a = world.path("a");
    world.put("a", "x y x\n");
    let edit = |more: Value| {
        let mut arguments = more;
        arguments["path"] = json!(a);
        arguments
    };
    for (arguments, expected) in [
        (json!({"pattern": "x", "replace": "z"}), Code::FilesCount),
        (json!({"pattern": "x", "replace": "z", "expected_replacements": 3}), Code::FilesCount),
        (json!({"pattern": "q", "replace": "z", "replace_all": true}), Code::FilesCount),
        (
            json!({"pattern": "x", "replace": "z", "replace_all": true, "expected_replacements": 2}),
            Code::SchemaWrongType,
        ),
        (json!({"pattern": "", "replace": "z"}), Code::FilesPattern),
    ] {
        assert_eq!(world.refused("edit", edit(arguments.clone())), expected, "{arguments}");
    }
    assert_eq!(world.text("a"), "x y x\n");
    let preview = json!({"pattern": "x", "replace": "z", "expected_replacements": 2, "dry_run": true});
    let (write, shown) = world.write("edit", edit(preview)).unwrap();
    assert_eq!((&shown.result["applied"], write.before), (&json!("preview"), None));
    assert_eq!(world.text("a"), "x y x\n");
    let arguments = json!({"pattern": "(x) (y)", "replace": "$2 $1", "regex": true});
    let (_, made) = world.write("edit", edit(arguments)).unwrap();
    assert_eq!(world.text("a"), "y x x\n");
    assert_eq!(
        made.result,
        json!({
            "applied": "full", "total_replacements": 1, "files_changed": 1, "skipped": [],
            "per_file": [{"path": a, "replacements": 1}],
            "diff": format!("--- {a}\n+++ {a}\n@@ line 1 @@\n-x y x\n+y x x\n"),
        })
    );
    world.write("edit", edit(json!({"pattern": "y x", "replace": "$1"}))).unwrap();
    assert_eq!(world.text("a"), "$1 x\n", "without regex, a dollar is a dollar");
}

#[test]
fn an_edit_of_a_folder_changes_all_its_files_or_none() {
    let world = TestFilesystem::new();
    fs::create_dir(world.root.join("x")).unwrap();
    for (way, text) in [("a.md", "old old"), ("x/b.md", "old"), ("c.txt", "old"), (".h.md", "old")] {
        world.put(way, text);
    }
    world.put("binary.md", [0xff, 0]);
    let arguments = json!({"path": world.path(""), "include_glob": "*.md", "pattern": "old", "replace": "new", "expected_replacements": 3});
    let late = world.prepare("edit", arguments.clone()).unwrap();
    world.put("x/b.md", "old and newer");
    assert_eq!(code(world.perform(&late)), Code::FilesChanged);
    assert_eq!(world.text("a.md"), "old old", "the first file was not changed either");
    world.put("x/b.md", "old");
    let (write, made) = world.write("edit", arguments).unwrap();
    assert_eq!((&made.result["files_changed"], &made.result["total_replacements"]), (&json!(2), &json!(3)));
    assert_eq!(made.result["skipped"], json!([{"path": world.path("binary.md"), "reason": "filesystem.encoding"}]));
    let texts = ["a.md", "x/b.md", "c.txt", ".h.md"].map(|way| world.text(way));
    assert_eq!(texts, ["new new", "new", "old", "old"]);
    assert_eq!(world.litter(), [] as [PathBuf; 0]);
    world.undo(&write).unwrap();
    assert_eq!((world.text("a.md"), world.text("x/b.md")), ("old old".into(), "old".into()));
}

#[test]
fn a_file_too_large_to_be_worked_on_whole_is_moved_and_deleted_but_not_rewritten() {
    let world = TestFilesystem::new();
    fs::File::create(world.root.join("big")).unwrap().set_len((64 << 20) + 1).unwrap();
    let big = world.path("big");
    for (capability, arguments) in [
        ("write", json!({"path": big, "content": "x"})),
        ("append", json!({"path": big, "content": "x"})),
        ("edit", json!({"path": big, "pattern": "x", "replace": "y"})),
        ("copy", json!({"source": big, "destination": world.path("c")})),
    ] {
        assert_eq!(world.refused(capability, arguments), Code::FilesTooLarge, "{capability}");
    }
    let part = world.read("read", json!({"path": big, "limit": 4})).unwrap();
    assert_eq!((&part["truncated"], &part["checksum"]), (&json!(true), &Value::Null));
    let (moved, _) = world.write("move", json!({"source": big, "destination": world.path("c")})).unwrap();
    let (deleted, _) = world.write("delete", json!({"path": world.path("c")})).unwrap();
    world.undo(&deleted).unwrap();
    world.undo(&moved).unwrap();
    assert!(world.is_there("big"));
}

#[test]
fn a_reader_sees_the_old_file_or_the_new_one_and_never_a_part() {
    let world = TestFilesystem::new();
    let text = |c: char| c.to_string().repeat(100_000);
    world.put("a", text('a'));
    let over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (over, path) = (Arc::clone(&over), world.root.join("a"));
        std::thread::spawn(move || {
            let (mut reads, mut kinds) = (0_u64, [false, false]);
            while !over.load(Ordering::Relaxed) {
                let seen = fs::read(&path).unwrap();
                assert_eq!(seen.len(), 100_000);
                assert!(seen.iter().all(|byte| *byte == seen[0]), "two files in one");
                kinds[usize::from(seen[0] == b'a')] = true;
                reads += 1;
            }
            (reads, kinds)
        })
    };
    for n in 0..100 {
        let content = text(if n % 2 == 0 { 'b' } else { 'a' });
        world.write("write", json!({"path": world.path("a"), "content": content})).unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let (reads, kinds) = reader.join().unwrap();
    assert!(reads > 20 && kinds == [true, true], "{reads} reads saw {kinds:?}");
}

#[test]
fn of_two_edits_prepared_at_once_the_second_finds_the_file_changed() {
    let world = TestFilesystem::new();
    world.put("a", "one two");
    let edit = |from: &str, to: &str| json!({"path": world.path("a"), "pattern": from, "replace": to});
    let (first, second) =
        (world.prepare("edit", edit("one", "1")).unwrap(), world.prepare("edit", edit("two", "2")).unwrap());
    world.perform(&first).unwrap();
    assert_eq!(code(world.perform(&second)), Code::FilesChanged);
    assert_eq!(world.text("a"), "1 two");
}

#[test]
fn many_appends_at_once_are_refused_or_kept_and_never_lost() {
    let world = TestFilesystem::new();
    world.put("a", "");
    let threads: Vec<_> = (1..=4_u128)
        .map(|thread| {
            let (files, clock, path) = (world.files.clone(), world.clock.clone(), world.path("a"));
            // Each thread has its own runtime and shares the service.
            let own = TestFilesystem { files, clock, next: (thread << 64).into(), ..TestFilesystem::new() };
            std::thread::spawn(move || {
                (0..25).filter(|_| own.write("append", json!({"path": path, "content": "x\n"})).is_ok()).count()
            })
        })
        .collect();
    let wins: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(wins > 0);
    assert_eq!(world.text("a").lines().count(), wins, "every append that was acknowledged is there, once");
}

#[test]
fn work_of_others_between_look_and_exchange_is_put_back() {
    let world = TestFilesystem::new();
    let writers = 1_000;
    let over = Arc::new(AtomicBool::new(false));
    world.put("a", "0");
    let other = {
        let (over, path, beside) = (Arc::clone(&over), world.root.join("a"), world.root.join("b"));
        std::thread::spawn(move || {
            let mut n = 0_u64;
            while !over.load(Ordering::Relaxed) {
                // Another program that replaces the file in the same way, and expects to find its last work once our
                // write has been rolled back.
                let mine = |text: String| text.trim_end_matches('+') == n.to_string();
                let found = (0..100_000).any(|_| mine(fs::read_to_string(&path).unwrap()));
                assert!(found, "{n} was lost: {}", fs::read_to_string(&path).unwrap());
                n += 1;
                fs::write(&beside, n.to_string()).unwrap();
                fs::rename(&beside, &path).unwrap();
            }
            n
        })
    };
    let mut lost_to_the_other = 0;
    for _ in 0..writers {
        match world.write("append", json!({"path": world.path("a"), "content": "+"})) {
            Ok(_) => {}
            Err(WriteError::Refused(refusal)) if refusal.code() == Code::FilesChanged => lost_to_the_other += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    over.store(true, Ordering::Relaxed);
    let n = other.join().unwrap();
    assert!(lost_to_the_other > 0, "the race never happened");
    let left = world.text("a");
    assert_eq!(left.trim_end_matches('+'), n.to_string(), "the last work of the other is there");
    assert_eq!(world.litter(), [] as [PathBuf; 0]);
}

#[test]
fn a_full_disk_leaves_the_old_file_and_no_litter() {
    let world = TestFilesystem::new();
    let disk = world.root.join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&disk).status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("skipped: only a privileged test can make a small disk");
        return;
    }
    struct Unmount<'a>(&'a Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
    let _unmount = Unmount(&disk);
    let list = vec![AgentRoot {
        path: disk.to_str().unwrap().into(),
        agents: RootAgents::All,
        read_only: false,
        trusted: false,
    }];
    let files =
        FilesystemService::new(AgentRoots { list, allow_hard_links: false }, Arc::new(world.clock.clone())).unwrap();
    let world = TestFilesystem { files, root: disk.clone(), ..TestFilesystem::new() };
    world.put("a", "old");
    let arguments = json!({"path": world.path("a"), "content": "x".repeat(400_000)});
    let answer = world.write("write", arguments);
    assert!(
        matches!(&answer, Err(WriteError::NotDone(refusal)) if refusal.code() == Code::FilesDiskFull),
        "{answer:?}"
    );
    assert_eq!((world.text("a"), world.litter()), ("old".into(), vec![]));
    // There is room for the old content to be kept, or for the new one, and not for both.
    world.put("b", "y".repeat(100_000));
    let answer = world.write("append", json!({"path": world.path("b"), "content": "z".repeat(60_000)}));
    assert!(
        matches!(&answer, Err(WriteError::NotDone(refusal)) if refusal.code() == Code::FilesDiskFull),
        "{answer:?}"
    );
    assert_eq!((world.text("b").len(), world.litter()), (100_000, vec![]));
}
