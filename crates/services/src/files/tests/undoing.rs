//! Tests of rollback, and of finding out the outcome of unrecorded writes.

use super::*;

/// One write of each kind, on files that exist for it.
fn one_of_each(world: &TestFilesystem) -> Vec<(&'static str, Value)> {
    for (way, text) in [("w", "old w"), ("e", "old e"), ("p", "old p"), ("c", "old c"), ("o", "old o"), ("s", "source")]
    {
        world.put(way, text);
    }
    for way in ["m", "m2", "d", "r"] {
        world.put(way, format!("old {way}"));
    }
    fs::create_dir(world.root.join("f")).unwrap();
    let path = |way: &str| world.path(way);
    world.write("delete", json!({"path": path("r")})).unwrap();
    vec![
        ("write", json!({"path": path("w"), "content": "new"})),
        ("write", json!({"path": path("n"), "content": "new"})),
        ("write", json!({"path": path("q/r/s"), "content": "new", "create_parents": true})),
        ("append", json!({"path": path("p"), "content": "new"})),
        ("append", json!({"path": path("pn"), "content": "new"})),
        ("edit", json!({"path": path("e"), "pattern": "old", "replace": "new"})),
        ("copy", json!({"source": path("s"), "destination": path("c"), "overwrite": true})),
        ("copy", json!({"source": path("s"), "destination": path("cn")})),
        ("move", json!({"source": path("m"), "destination": path("mn")})),
        ("move", json!({"source": path("m2"), "destination": path("o"), "overwrite": true})),
        ("delete", json!({"path": path("d")})),
        ("delete", json!({"path": path("f")})),
        ("restore", json!({"path": path("r")})),
    ]
}

/// Every name and content inside the root, without those of the gateway.
fn picture(world: &TestFilesystem) -> Vec<(String, Option<String>)> {
    fn below(folder: &Path, found: &mut Vec<(String, Option<String>)>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let path = entry.path();
            if roots::is_own(entry.file_name().to_str().unwrap()) {
                continue;
            }
            if path.is_dir() {
                found.push((path.display().to_string(), None));
                below(&path, found);
            } else {
                found.push((path.display().to_string(), Some(fs::read_to_string(path).unwrap())));
            }
        }
    }
    let mut found = Vec::new();
    below(&world.root, &mut found);
    found.sort();
    found
}

#[test]
fn every_write_can_be_undone_to_the_last_byte() {
    let world = TestFilesystem::new();
    for (capability, arguments) in one_of_each(&world) {
        let before = picture(&world);
        let (write, made) = world.write(capability, arguments.clone()).unwrap();
        assert_ne!(picture(&world), before, "{capability} {arguments} did nothing");
        assert_eq!(made.after, Some(world.present(&write)), "{capability} {arguments}");
        world.undo(&write).unwrap();
        assert_eq!(picture(&world), before, "{capability} {arguments}");
        assert_eq!(Some(world.present(&write)), write.print, "{capability} {arguments}");
        // A second undo finds it already done.
        world.undo(&write).unwrap();
        assert_eq!(picture(&world), before, "{capability} {arguments}");
        assert_eq!(world.litter(), [] as [PathBuf; 0], "{capability} {arguments}");
    }
}

#[test]
fn newer_work_is_never_overwritten_by_an_undo() {
    for newer in [Some("newer work"), None] {
        let world = TestFilesystem::new();
        for (capability, arguments) in one_of_each(&world) {
            let (write, made) = world.write(capability, arguments.clone()).unwrap();
            let target = ["destination", "path"].iter().find_map(|key| arguments[key].as_str()).unwrap();
            match newer {
                Some(text) => fs::write(target, text).unwrap(),
                None if capability == "delete" => continue,
                None => fs::remove_file(target).unwrap(),
            }
            let before = picture(&world);
            assert_ne!(made.after, Some(world.present(&write)), "{capability} {arguments}");
            // An object that did not exist before the write and is gone again is as it was: there is nothing to undo.
            match world.undo(&write) {
                Ok(_) => assert_eq!(Some(world.present(&write)), write.print, "{capability} {arguments}"),
                other => assert_eq!(code(other), Code::RollbackConflict, "{capability} {arguments}"),
            }
            assert_eq!(picture(&world), before, "{capability} {arguments}");
            fs::remove_file(target).ok();
        }
    }
}

#[test]
fn a_write_cut_off_before_it_began_is_found_absent() {
    let world = TestFilesystem::new();
    for (capability, arguments) in one_of_each(&world) {
        let before = picture(&world);
        let write = world.prepare(capability, arguments.clone()).unwrap();
        assert!(matches!(world.look_up(&write), LookupOutcome::Absent), "{capability} {arguments}");
        assert_eq!(picture(&world), before, "preparing changes nothing an agent can see");
        assert_eq!(Some(world.present(&write)), write.print);
        // And it can be tried again.
        world.perform(&write).unwrap();
    }
}

#[test]
fn a_write_cut_off_before_it_was_recorded_is_found_applied() {
    let world = TestFilesystem::new();
    for (capability, arguments) in one_of_each(&world) {
        let (write, mut made) = world.write(capability, arguments.clone()).unwrap();
        let found = applied(world.look_up(&write));
        assert_eq!(found.after, made.after, "{capability} {arguments}");
        assert_eq!((found.receipt, found.undo_until), (made.receipt, made.undo_until));
        if capability == "edit" {
            assert_eq!(found.result["per_file"], made.result["per_file"]);
        } else {
            assert_eq!(found.result, made.result.take(), "{capability} {arguments}");
        }
        world.undo(&write).unwrap();
        let mut reversing = write.hold.clone();
        reversing.reverses = Some(write.hold.id);
        let undone = TestFileWrite { hold: reversing, ..write };
        applied(world.look_up(&undone));
    }
}

#[test]
fn what_somebody_else_did_meanwhile_is_for_a_person() {
    let world = TestFilesystem::new();
    world.put("a", "old");
    let (write, _) = world.write("write", json!({"path": world.path("a"), "content": "new"})).unwrap();
    world.put("a", "newer");
    assert!(matches!(world.look_up(&write), LookupOutcome::Unknown));
}

#[test]
fn a_crash_between_two_files_is_told_as_it_is_and_can_be_undone() {
    let world = TestFilesystem::new();
    world.put("a", "old");
    world.put("b", "old");
    let arguments = json!({"path": world.path(""), "pattern": "old", "replace": "new", "replace_all": true});
    let write = world.prepare("edit", arguments).unwrap();
    // As after a crash: the first file is exchanged and its old one not yet removed.
    fs::rename(world.root.join("a"), world.root.join(format!(".sluice-new-{}-0", write.hold.id))).unwrap();
    world.put("a", "new");
    fs::write(world.root.join(format!(".sluice-new-{}-1", write.hold.id)), "ne").unwrap();
    let unfinished = fs::Permissions::from_mode(0o200);
    fs::set_permissions(world.root.join(format!(".sluice-new-{}-1", write.hold.id)), unfinished).unwrap();
    let found = applied(world.look_up(&write));
    assert_eq!((&found.result["applied"], &found.result["files_changed"]), (&json!("partial"), &json!(1)));
    assert_eq!(found.after, Some(world.present(&write)));
    world.undo(&write).unwrap();
    assert_eq!((world.text("a"), world.text("b")), ("old".into(), "old".into()));
    world.forget(&write);
    assert_eq!(world.litter(), [] as [PathBuf; 0], "what the crash left is gone as well");
}

#[test]
fn newer_work_that_a_crash_left_beside_ours_is_not_called_applied() {
    let world = TestFilesystem::new();
    world.put("a", "old");
    let write = world.prepare("write", json!({"path": world.path("a"), "content": "new"})).unwrap();
    world.put("a", "new");
    let beside = format!(".sluice-new-{}-0", write.hold.id);
    world.put(&beside, "somebody's newer work");
    assert!(matches!(world.look_up(&write), LookupOutcome::Unknown));
    world.forget(&write);
    assert_eq!(world.text(&beside), "somebody's newer work");
}

#[test]
fn what_was_kept_is_closed_to_others_and_gone_when_forgotten() {
    let world = TestFilesystem::new();
    world.put("a", "once upon a time");
    let (write, _) = world.write("write", json!({"path": world.path("a"), "content": "new"})).unwrap();
    let kept = world.root.join(format!(".sluice-trash/{}/before", write.hold.id));
    assert_eq!(fs::read_to_string(&kept).unwrap(), "once upon a time");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let before: Value = serde_json::from_slice(write.before.as_deref().unwrap()).unwrap();
    assert!(!before.to_string().contains("once upon"), "contents are not in the database: {before}");
    world.forget(&write);
    let (delete, _) = world.write("delete", json!({"path": world.path("a")})).unwrap();
    world.forget(&delete);
    assert_eq!(fs::read_dir(world.root.join(".sluice-trash")).unwrap().count(), 0);
    assert_eq!(code(world.undo(&delete)), Code::RollbackConflict);
}

#[test]
fn a_kept_content_that_was_damaged_is_not_put_back() {
    let world = TestFilesystem::new();
    world.put("a", "old");
    let (write, _) = world.write("write", json!({"path": world.path("a"), "content": "new"})).unwrap();
    fs::write(world.root.join(format!(".sluice-trash/{}/before", write.hold.id)), "odd").unwrap();
    assert_eq!(code(world.undo(&write)), Code::FilesFailed);
    assert_eq!(world.text("a"), "new");
}

#[test]
fn a_plan_of_another_write_is_refused() {
    let world = TestFilesystem::new();
    world.put("a", "old");
    let one = world.prepare("write", json!({"path": world.path("a"), "content": "one"})).unwrap();
    let two = world.prepare("write", json!({"path": world.path("a"), "content": "two"})).unwrap();
    let mixed = TestFileWrite { before: two.before, ..one };
    assert_eq!(code(world.perform(&mixed)), Code::ExecuteRefusedMismatch);
    let without = TestFileWrite { before: None, ..mixed };
    assert_eq!(code(world.perform(&without)), Code::FilesFailed);
    assert_eq!(world.text("a"), "old");
}
