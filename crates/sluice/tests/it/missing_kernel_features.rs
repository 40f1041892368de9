//! A kernel that lacks a layer of the sandbox: the calls that would give it answer as they do where they do not exist.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use serde_json::json;

use crate::mounts::stub;
use crate::proxies::{ORG, ProxiedServiceReply, ProxiedTestService, WIDE};
use crate::running::{TestInstallation, ask, pause};

const LANDLOCK_CREATE_RULESET: i64 = 444;
#[cfg(target_arch = "x86_64")]
const SECCOMP: i64 = 317;
#[cfg(target_arch = "aarch64")]
const SECCOMP: i64 = 277;
#[cfg(target_arch = "x86_64")]
const PRCTL: i64 = 157;
#[cfg(target_arch = "aarch64")]
const PRCTL: i64 = 167;
#[cfg(target_arch = "x86_64")]
const CLONE: i64 = 56;
#[cfg(target_arch = "aarch64")]
const CLONE: i64 = 220;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const PR_SET_SECCOMP: u64 = 22;
const ENOSYS: u32 = 38;

/// What a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingKernelFeature {
    Landlock,
    Seccomp,
    Namespaces,
}

/// Does something where everything that is started lacks a layer. The filter stays with the thread, so it has its own.
fn on_a_kernel_without<T: Send>(what: MissingKernelFeature, act: impl FnOnce() -> T + Send) -> T {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = match what {
        MissingKernelFeature::Landlock => BTreeMap::from([(LANDLOCK_CREATE_RULESET, vec![])]),
        MissingKernelFeature::Seccomp => {
            let asked = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PR_SET_SECCOMP).unwrap();
            BTreeMap::from([(SECCOMP, vec![]), (PRCTL, vec![SeccompRule::new(vec![asked]).unwrap()])])
        }
        MissingKernelFeature::Namespaces => {
            let asked = SeccompCmpOp::MaskedEq(CLONE_NEWUSER);
            let asked = SeccompCondition::new(0, SeccompCmpArgLen::Dword, asked, CLONE_NEWUSER).unwrap();
            BTreeMap::from([(CLONE, vec![SeccompRule::new(vec![asked]).unwrap()])])
        }
    };
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(ENOSYS), arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            seccompiler::apply_filter(&program).unwrap();
            act()
        });
        there.join().unwrap()
    })
}

fn word(what: MissingKernelFeature) -> &'static str {
    match what {
        MissingKernelFeature::Landlock => "landlock",
        MissingKernelFeature::Seccomp => "seccomp",
        MissingKernelFeature::Namespaces => "namespaces",
    }
}

fn doctor(place: &TestInstallation, what: MissingKernelFeature) -> String {
    let ran = on_a_kernel_without(what, || {
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["doctor", "--config"])
            .arg(place.folder.path().join("sluice.yaml"))
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .unwrap()
    });
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn a_gateway_that_requires_a_layer_does_not_start_without_it() {
    for what in [MissingKernelFeature::Landlock, MissingKernelFeature::Seccomp] {
        let place = TestInstallation::new("sandbox: required\n", ORG, None);
        let ran = on_a_kernel_without(what, || {
            Command::new(env!("CARGO_BIN_EXE_sluice"))
                .args(["serve", "--config"])
                .arg(place.folder.path().join("sluice.yaml"))
                .env_clear()
                .stdin(Stdio::null())
                .output()
                .unwrap()
        });
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(1), "{said}");
        assert!(said.contains("worker.layers") && said.contains(word(what)), "{what:?}: {said}");
        let doctor = doctor(&place, what);
        let line = doctor.lines().find(|line| line.contains(word(what))).unwrap_or_default();
        assert!(line.to_lowercase().contains("fail"), "{what:?}: {doctor}");
    }
}

#[test]
fn a_degraded_gateway_runs_says_so_and_still_refuses_what_wants_all_of_it() {
    for what in [MissingKernelFeature::Landlock, MissingKernelFeature::Seccomp] {
        let service = ProxiedTestService::open();
        service.say(ProxiedServiceReply::Json(r#"{"posts": []}"#.into()));
        let place = TestInstallation::new("sandbox: degraded\n", ORG, None);
        let proxies = place.folder.path().join("proxies");
        fs::create_dir_all(&proxies).unwrap();
        let declared = service.declaration(WIDE).replace("credential: board/token\n", "");
        fs::write(proxies.join("loose.yaml"), &declared).unwrap();
        fs::write(proxies.join("strict.yaml"), declared.replace("isolation: configured", "isolation: maximum"))
            .unwrap();
        let _running = on_a_kernel_without(what, || place.start());
        let status = ask(place.main, "GET", "/v1/status", &place.operator_token, None).unwrap().body;
        assert_eq!(status["sandbox"]["mode"], "degraded", "{status}");
        assert!(status["sandbox"]["missing"].to_string().contains(word(what)), "{status}");
        let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
        assert!(log.contains(&format!("locked in without {}", word(what))), "{log}");
        let call = |proxy: &str| {
            let capability = format!("proxy.{proxy}.feed");
            place.call(&json!({"capability": capability, "arguments": {"author": "ana"}})).unwrap()
        };
        let loose = call("loose");
        assert_eq!(loose.status, 200, "{what:?}: {loose:?}");
        let strict = call("strict");
        assert_eq!((strict.status, &strict.body["code"]), (503, &json!("gateway.sandbox")), "{what:?}: {strict:?}");
        assert_eq!(service.asked(), 1, "what was not locked in asked for nothing");
        let shown = ask(place.main, "GET", "/v1/proxies/strict", &place.operator_token, None).unwrap().body;
        assert_eq!(shown["tasks"][0]["state"], "crashed", "the task has an end: {shown}");
        let doctor = doctor(&place, what);
        let line = doctor.lines().find(|line| line.contains(word(what))).unwrap_or_default();
        assert!(line.to_lowercase().contains("warn"), "{what:?}: {doctor}");
    }
}

/// A mount once it is as wanted.
fn mount_that(place: &TestInstallation, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    for _ in 0..9_000 {
        let mount = ask(place.main, "GET", "/v1/mounts/looks", &place.operator_token, None).unwrap().body;
        if wanted(&mount) {
            return mount;
        }
        pause(Duration::from_millis(20));
    }
    panic!("the mount did not get there: {}", fs::read_to_string(place.folder.path().join("log")).unwrap());
}

#[test]
fn a_mount_with_a_network_is_refused_without_namespaces_unless_degraded_and_says_so() {
    let lines =
        stub("looks", "looks", "").replace("    delay: 0s\n", "    delay: 0s\n    network: [api.example.com]\n");
    for (mode, state, reason, finding) in [
        ("required", "down", "needs a network namespace", "fail"),
        ("degraded", "open", "shares this machine's network", "warn"),
    ] {
        let place = TestInstallation::new(&format!("sandbox: {mode}\nmounts:\n{lines}"), ORG, None);
        let _running = on_a_kernel_without(MissingKernelFeature::Namespaces, || place.start());
        let mount = mount_that(&place, |mount| mount["state"] == state && !mount["reason"].is_null());
        assert!(mount["reason"].as_str().unwrap().contains(reason), "{mode}: {mount}");
        assert_eq!(mount["open_tools"] != 0, state == "open", "{mode}: {mount}");
        let status = ask(place.main, "GET", "/v1/status", &place.operator_token, None).unwrap().body;
        assert!(status["mounts"][0]["reason"].as_str().unwrap().contains(reason), "{mode}: {status}");
        let doctor = doctor(&place, MissingKernelFeature::Namespaces);
        let line = doctor.lines().find(|line| line.contains("`looks`") && line.contains("network")).unwrap_or_default();
        assert!(line.to_lowercase().contains(finding), "{mode}: {doctor}");
        let listed = ask(place.main, "GET", "/v1/mounts", &place.operator_token, None).unwrap().body.to_string();
        assert!(listed.contains(reason), "{mode}: {listed}");
    }
}
