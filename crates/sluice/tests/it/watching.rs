//! What a running gateway stands on is taken away, and settings that are to be believed.

use std::fs;
use std::time::Duration;

use serde_json::json;

use crate::running::{TestInstallation, ask, pause};

const FREE: &str = "defaults: {tier: autonomous}\n";

#[test]
fn a_gateway_whose_database_file_is_removed_acknowledges_nothing_more_and_ends() {
    let place = TestInstallation::new("sandbox: degraded\nbatch: {services: {state: off}}\n", FREE, None);
    let mut running = place.start();
    let set = |key: &str| {
        let body =
            json!({"capability": "state.persistent.set", "arguments": {"key": key, "value": 1}, "wait_ms": 5_000});
        place.call(&body).ok().filter(|answer| answer.status == 200 && answer.body["status"] == "done")
    };
    assert!(set("before").is_some());
    fs::remove_file(place.folder.path().join("data/sluice.db")).unwrap();
    assert!(set("after").is_none(), "it went into a file that nobody finds again");
    let ended = (0..3_000).find_map(|_| {
        pause(Duration::from_millis(20));
        running.0.try_wait().unwrap()
    });
    assert!(!ended.expect("it ends by itself").success());
    let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
    assert!(log.contains("the database file was removed or replaced while the gateway ran"), "{log}");
}

#[test]
fn trace_lines_are_written_at_that_level_and_at_no_other() {
    for (level, traced) in [("trace", true), ("debug", false), ("info", false)] {
        let place =
            TestInstallation::new(&format!("sandbox: degraded\nlog: {{level: {level}, format: text}}\n"), FREE, None);
        let running = place.start();
        assert_eq!(ask(place.main, "GET", "/v1/whoami", &place.agent_key, None).unwrap().status, 200);
        drop(running);
        let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
        assert_eq!(log.contains("TRACE") && log.contains("/v1/whoami"), traced, "{level}: {log}");
        assert!(!log.contains(&place.agent_key), "{level}");
    }
}
