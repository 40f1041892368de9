//! Tests of reads and watches.

use std::time::Duration;

use sha2::Digest as _;

use super::*;

#[test]
fn a_file_is_read_whole_or_in_part_with_its_checksum() {
    let world = TestFilesystem::new();
    world.put("a.txt", "grün und blau");
    let answer = world.read("read", json!({"path": world.path("a.txt")})).unwrap();
    assert_eq!(answer["content"], "grün und blau");
    assert_eq!((&answer["size"], &answer["truncated"]), (&json!(14), &json!(false)));
    assert_eq!(answer["checksum"], sluice_core::hex::encode(&sha2::Sha256::digest("grün und blau")));
    assert!(answer["modified"].as_str().unwrap().ends_with('Z'));

    let part = world.read("read", json!({"path": world.path("a.txt"), "limit": 3})).unwrap();
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("gr"), &json!(2)), "ü is not cut in two");
    assert_eq!((&part["truncated"], &part["checksum"]), (&json!(true), &answer["checksum"]));
    let rest = world.read("read", json!({"path": world.path("a.txt"), "offset": 2})).unwrap();
    assert_eq!(rest["content"], "ün und blau");
    assert_eq!(world.read("read", json!({"path": world.path("a.txt"), "offset": 3})), Err(Code::FilesEncoding));
    assert_eq!(world.read("read", json!({"path": world.path("a.txt"), "offset": 99})).unwrap()["content"], "");
}

#[test]
fn what_is_not_text_is_read_as_base64_only() {
    let world = TestFilesystem::new();
    world.put("b", [0xff, 0, 1]);
    assert_eq!(world.read("read", json!({"path": world.path("b")})), Err(Code::FilesEncoding));
    let answer = world.read("read", json!({"path": world.path("b"), "encoding": "binary"})).unwrap();
    assert_eq!(answer["content"], "/wAB");
    assert_eq!(world.read("read", json!({"path": world.path("c")})), Err(Code::FilesNotFound));
    assert_eq!(world.read("read", json!({"path": world.path("")})), Err(Code::FilesNotAFile));
}

#[test]
fn a_folder_is_listed_in_the_order_asked_for() {
    let world = TestFilesystem::new();
    for (name, size) in [("b", 3), ("a", 9), (".h", 1)] {
        world.put(name, "x".repeat(size));
    }
    fs::create_dir(world.root.join("c")).unwrap();
    let names = |more: Value| {
        let mut arguments = more;
        arguments["path"] = json!(world.path(""));
        let answer = world.read("list", arguments).unwrap();
        let entries = answer["entries"].as_array().unwrap();
        assert_eq!(answer["total"], entries.len());
        entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(json!({})), ["a", "b", "c"]);
    assert_eq!(names(json!({"sort_by": "-name", "include_hidden": true})), ["c", "b", "a", ".h"]);
    let by_size = names(json!({"sort_by": "size"}));
    let at = |name: &str| by_size.iter().position(|one| one == name).unwrap();
    assert!(at("b") < at("a"), "{by_size:?}");
    assert_eq!(world.read("list", json!({"path": world.path("a")})), Err(Code::FilesNotAFolder));
    assert_eq!(world.read("list", json!({"path": world.path(""), "sort_by": "colour"})), Err(Code::SchemaWrongType));
    let stat = world.read("stat", json!({"path": world.path("c")})).unwrap();
    assert_eq!((&stat["exists"], &stat["type"]), (&json!(true), &json!("directory")));
    assert_eq!(world.read("stat", json!({"path": world.path("nothing")})).unwrap()["exists"], false);
}

#[test]
fn a_listing_is_cut_after_ten_thousand_names_and_says_so() {
    let world = TestFilesystem::new();
    for n in 0..10_003 {
        world.put(&format!("{n:05}"), "");
    }
    let answer = world.read("list", json!({"path": world.path("")})).unwrap();
    assert_eq!(answer["entries"].as_array().unwrap().len(), 10_000);
    assert_eq!((&answer["total"], &answer["truncated"]), (&json!(10_003), &json!(true)));
    let found = world.read("search", json!({"path": world.path(""), "pattern": "0000?"})).unwrap();
    assert_eq!((&found["total_matches"], &found["truncated"]), (&json!(10), &json!(false)));
    let found = world.read("search", json!({"path": world.path(""), "pattern": "*", "max_results": 7})).unwrap();
    assert_eq!((found["matches"].as_array().unwrap().len(), &found["truncated"]), (7, &json!(true)));
}

#[test]
fn files_are_found_by_name_hashed_and_counted() {
    let world = TestFilesystem::new();
    fs::create_dir_all(world.root.join("x/y")).unwrap();
    fs::create_dir(world.root.join(".git")).unwrap();
    for (way, text) in [("a.md", "one"), ("x/b.md", "one"), ("x/y/c.txt", "three"), (".git/d.md", "four")] {
        world.put(way, text);
    }
    let search = |more: Value| {
        let mut arguments = more;
        arguments["path"] = json!(world.path(""));
        world.read("search", arguments).unwrap()
    };
    let found = search(json!({"pattern": "*.md", "include_hash": true}));
    let paths: Vec<_> = found["matches"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect();
    assert_eq!(paths, [json!(world.path("a.md")), json!(world.path("x/b.md"))]);
    assert_eq!(found["matches"][0]["hash"], found["matches"][1]["hash"]);
    assert_eq!(found["matches"][0]["hash"].as_str().unwrap().len(), 64);
    assert_eq!(search(json!({"pattern": "*.md", "include_hidden": true}))["total_matches"], 3);
    assert_eq!(search(json!({"pattern": "x/**/*.txt"}))["total_matches"], 1);
    let groups = search(json!({"pattern": "*.*", "aggregate": {"group_by": "extension", "dedupe": true}}));
    assert_eq!(
        groups["groups"],
        json!([{"key": "md", "count": 1, "total_size": 3}, {"key": "txt", "count": 1, "total_size": 5}])
    );
    assert_eq!(groups["duplicates"], 1);
    let groups =
        search(json!({"pattern": "*.*", "aggregate": {"group_by": "dir", "metrics": ["count"], "max_groups": 1}}));
    assert_eq!((groups["groups"].as_array().unwrap().len(), &groups["truncated"]), (1, &json!(true)));
    let bad = world.read("search", json!({"path": world.path(""), "pattern": "[a"}));
    assert_eq!(bad, Err(Code::FilesPattern));
}

#[test]
fn lines_are_found_and_the_shortest_answer_asked_for_wins() {
    let world = TestFilesystem::new();
    fs::create_dir(world.root.join("x")).unwrap();
    world.put("a.md", "alpha\nbeta 12\nalpha 34\n");
    world.put("x/b.txt", "alpha 12\n");
    world.put("binary", [b'a', b'l', b'p', b'h', b'a', 0, 0xff]);
    let search = |more: Value| {
        let mut arguments = more;
        arguments["path"] = json!(world.path(""));
        world.read("search_content", arguments)
    };
    let found = search(json!({"pattern": "alpha"})).unwrap();
    assert_eq!((&found["total_matches"], &found["files_skipped"]), (&json!(3), &json!(1)));
    assert_eq!(found["matches"][1], json!({"path": world.path("a.md"), "line": 3, "text": "alpha 34"}));
    let all = json!({"pattern": "[0-9]+", "regex": true, "total_only": true, "count_by": "match", "files_only": true});
    let total = search(all).unwrap();
    assert_eq!(total["total_matches"], 3);
    assert!(total.get("counts").is_none() && total.get("files").is_none() && total.get("matches").is_none());
    let counts = search(json!({"pattern": "[0-9]+", "regex": true, "count_by": "match", "files_only": true})).unwrap();
    assert_eq!(counts["counts"], json!([{"key": "12", "count": 2}, {"key": "34", "count": 1}]));
    let counts = search(json!({"pattern": "alpha", "count_by": "extension"})).unwrap();
    assert_eq!(counts["counts"], json!([{"key": "md", "count": 2}, {"key": "txt", "count": 1}]));
    let files = search(json!({"pattern": "alpha", "files_only": true})).unwrap();
    assert_eq!(files["files"], json!([world.path("a.md"), world.path("x/b.txt")]));
    assert_eq!(search(json!({"pattern": "(?=a)", "regex": true})), Err(Code::FilesPattern));
}

/// Waits until a watch has seen the wanted changes; the kernel sends events in its own time.
fn wait_for(world: &TestFilesystem, watch: &str, wanted: impl Fn(&FileChanges) -> bool) -> FileChanges {
    let clerk = AgentName::new("clerk").unwrap();
    world.runtime.block_on(async {
        let mut timer = tokio::time::interval(Duration::from_millis(5));
        for _ in 0..2_000 {
            let seen = world.files.changes(&clerk, watch, 0).unwrap();
            if wanted(&seen) {
                return seen;
            }
            timer.tick().await;
        }
        panic!("the watch saw only {:?}", world.files.changes(&clerk, watch, 0));
    })
}

#[test]
fn a_watch_tells_its_agent_of_changes_and_of_nothing_the_gateway_keeps() {
    let world = TestFilesystem::new();
    fs::create_dir(world.root.join("x")).unwrap();
    let answer = world.read("watch", json!({"path": world.path(""), "recursive": true})).unwrap();
    assert_eq!((&answer["path"], &answer["recursive"]), (&json!(world.path("")), &json!(true)));
    let watch = answer["watch_id"].as_str().unwrap();
    world.write("write", json!({"path": world.path("x/a"), "content": "one"})).unwrap();
    world.write("write", json!({"path": world.path("x/a"), "content": "two"})).unwrap();
    world.write("delete", json!({"path": world.path("x/a")})).unwrap();
    world.put("last", "");
    let seen = wait_for(&world, watch, |seen| seen.events.iter().any(|change| change.path.ends_with("/last")));
    assert!(seen.events.iter().any(|change| change.path == world.path("x/a")), "{seen:?}");
    assert!(seen.events.iter().all(|change| !change.path.contains(".sluice")), "{seen:?}");
    assert!(!seen.overflow);
    let after = seen.events.last().unwrap().number;
    let clerk = AgentName::new("clerk").unwrap();
    assert!(world.files.changes(&clerk, watch, after).unwrap().events.iter().all(|change| change.number > after));
    let stranger = AgentName::new("stranger").unwrap();
    assert_eq!(world.files.changes(&stranger, watch, 0), None);
    assert!(!world.files.unwatch(&stranger, watch) && world.files.unwatch(&clerk, watch));
    assert_eq!(world.files.changes(&clerk, watch, 0), None);
}

#[test]
fn a_watch_holds_so_many_changes_and_says_when_it_dropped_some() {
    let world = TestFilesystem::new();
    let arguments = json!({"path": world.path(""), "event_types": ["create"], "pattern": "*.md"});
    let answer = world.read("watch", arguments).unwrap();
    let watch = answer["watch_id"].as_str().unwrap();
    world.put("not.txt", "");
    for n in 0..300 {
        world.put(&format!("{n}.md"), "");
    }
    let seen = wait_for(&world, watch, |seen| seen.events.last().is_some_and(|change| change.number == 300));
    assert_eq!((seen.events.len(), seen.overflow, seen.events[0].number), (256, true, 45));
    assert!(seen.events.iter().all(|change| change.kind == FileChangeKind::Create && change.path.ends_with(".md")));
    let clerk = AgentName::new("clerk").unwrap();
    assert!(!world.files.changes(&clerk, watch, 100).unwrap().overflow);
}

#[test]
fn two_watches_of_one_folder_both_see_its_changes() {
    let world = TestFilesystem::new();
    let begin = || world.read("watch", json!({"path": world.path("")})).unwrap()["watch_id"].clone();
    let (one, other) = (begin(), begin());
    world.put("a", "");
    for watch in [&one, &other] {
        wait_for(&world, watch.as_str().unwrap(), |seen| !seen.events.is_empty());
    }
    assert!(world.files.unwatch(&AgentName::new("clerk").unwrap(), other.as_str().unwrap()));
    world.put("b", "");
    wait_for(&world, one.as_str().unwrap(), |seen| seen.events.iter().any(|change| change.path.ends_with("/b")));
}

#[test]
fn an_agent_has_sixteen_watches() {
    let world = TestFilesystem::new();
    let watches: Vec<_> = (0..16).map(|_| world.read("watch", json!({"path": world.path("")})).unwrap()).collect();
    assert_eq!(world.read("watch", json!({"path": world.path("")})), Err(Code::FilesTooManyWatches));
    let clerk = AgentName::new("clerk").unwrap();
    assert!(world.files.unwatch(&clerk, watches[3]["watch_id"].as_str().unwrap()));
    assert!(world.read("watch", json!({"path": world.path("")})).is_ok());
}
