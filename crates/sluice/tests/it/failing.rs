//! A disk that fails under a running gateway: it ends, says why, and loses nothing it has acknowledged.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::running::{RunningGateway, TestInstallation, ask, pause};

/// Of each thread, the syncs from this one on fail.
const FIRST: u32 = 40;

/// A gateway under a tracer.
struct TracedGateway(RunningGateway);

impl Drop for TracedGateway {
    fn drop(&mut self) {
        // A tracer that is killed lets go of what it traces.
        let tracer = self.0.0.id();
        let traced = fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).unwrap_or_default();
        for pid in traced.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _gone = kill_process(pid, Signal::KILL);
        }
    }
}

/// The gateway under a tracer that makes syncs fail; nothing where there is none.
fn start(place: &TestInstallation) -> Option<TracedGateway> {
    if !Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        sluice_testkit::skip("strace is not installed");
        return None;
    }
    let log = fs::File::create(place.folder.path().join("log")).unwrap();
    let child = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fdatasync,fsync", "-e"])
        .arg(format!("inject=fdatasync,fsync:error=EIO:when={FIRST}+"))
        .arg("-o")
        .arg(place.folder.path().join("trace"))
        .arg(env!("CARGO_BIN_EXE_sluice"))
        .args(["serve", "--config"])
        .arg(place.folder.path().join("sluice.yaml"))
        // As `TestInstallation::start` does: with a home here and none there, the second start would look for the state file in
        // another place. The path is what finds the tracer.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let running = TracedGateway(RunningGateway(child));
    let ready = |_: &u32| {
        pause(Duration::from_millis(20));
        ask(place.main, "GET", "/readyz", "", None).is_ok_and(|answer| answer.status == 200)
    };
    assert!((0..3_000).any(|n| ready(&n)), "{}", fs::read_to_string(place.folder.path().join("log")).unwrap());
    Some(running)
}

fn call(place: &TestInstallation, capability: &str, arguments: &Value) -> Option<Value> {
    let body = json!({"capability": capability, "arguments": arguments, "wait_ms": 5_000});
    let answer = place.call(&body).ok()?;
    (answer.status == 200 && answer.body["status"] == "done").then(|| answer.body["result"].clone())
}

#[test]
fn a_gateway_whose_disk_fails_ends_and_has_everything_it_acknowledged() {
    let place = TestInstallation::new(
        "sandbox: degraded\nbatch: {services: {state: off}}\n",
        "defaults: {tier: autonomous}\n",
        None,
    );
    let Some(mut running) = start(&place) else { return };
    let set = |n: &u32| call(&place, "state.persistent.set", &json!({"key": format!("k{n}"), "value": n})).is_some();
    let acknowledged: Vec<u32> = (0..200).take_while(set).collect();
    assert!((1..200).contains(&acknowledged.len()), "{} calls went through", acknowledged.len());
    // Nobody tells it to: it finds out by itself, and ends.
    let ended = (0..3_000).find_map(|_| {
        pause(Duration::from_millis(20));
        running.0.0.try_wait().unwrap()
    });
    let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
    assert_eq!(ended.and_then(|status| status.code()), Some(1), "{log}");
    assert!(log.contains("the gateway had to stop") && log.contains("a sync to the disk failed"), "{log}");
    drop(running);
    let again = place.start();
    for n in acknowledged {
        let found = call(&place, "state.persistent.get", &json!({"key": format!("k{n}")})).unwrap();
        assert_eq!(found["value"], n, "{found}");
    }
    assert!(set(&999), "and it works again");
    drop(again);
}
