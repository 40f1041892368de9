//! Reading is one permission: whatever tells about a file is judged as a read of it, too.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use sluice_core::capability::{Catalogue, ParamKind};
use sluice_core::policy::PolicyInput;
use sluice_core::refusal::Code;
use sluice_core::{CapabilityName, Tier};
use sluice_gateway::corridor::CallOutcome;
use sluice_services::CallError;

use crate::test_gateway::{TestGateway, TestGatewayPlan, ana, clerk};

const CANARY: &str = "the canary sings";

/// Every capability about files, and whether it tells about what it names: with which arguments it is called for a path.
fn arguments(capability: &str, path: &str, out: &str) -> (Value, bool) {
    match capability {
        "filesystem.read" | "filesystem.list" | "filesystem.stat" => (json!({"path": path}), true),
        "filesystem.watch" => (json!({"path": path, "recursive": true}), true),
        "filesystem.search" => (json!({"path": path, "pattern": "**"}), true),
        "filesystem.search_content" => (json!({"path": path, "pattern": "canary"}), true),
        "filesystem.edit" => {
            (json!({"path": path, "pattern": "canary", "replace": "x", "replace_all": true, "dry_run": true}), true)
        }
        "filesystem.copy" | "filesystem.move" => (json!({"source": path, "destination": out}), true),
        "filesystem.write" | "filesystem.append" => (json!({"path": path, "content": "more"}), false),
        "filesystem.delete" | "filesystem.restore" => (json!({"path": path}), false),
        other => panic!("say of `{other}` whether it tells about the files it names"),
    }
}

fn capabilities() -> Vec<String> {
    let all = Catalogue::builtin().unwrap();
    all.iter().map(|spec| spec.name.to_string()).filter(|name| name.starts_with("filesystem.")).collect()
}

/// A house in which reads below `secret` have this tier, and everything else is free.
async fn house(tier: &str) -> TestGateway {
    let house = TestGateway::new(TestGatewayPlan {
        config: "batch: {services: {filesystem: off}}\n".into(),
        ..TestGatewayPlan::default()
    })
    .await;
    fs::create_dir_all(house.work().join("secret/sub")).unwrap();
    for name in ["secret/key.txt", "secret/sub/deep.txt"] {
        fs::write(house.work().join(name), CANARY).unwrap();
    }
    fs::write(house.work().join("open.txt"), "nothing canary about it").unwrap();
    symlink(house.work().join("secret"), house.work().join("link")).unwrap();
    let rule = format!(
        "rules:\n  - {{capability: filesystem.read, tier: {tier}, reason: keep out, conditions: {{path_prefix: {}}}}}\n",
        house.path("secret")
    );
    fs::write(house.folder.path().join("policies/agents/clerk.yaml"), rule).unwrap();
    sluice_gateway::loops::policy::reload(&house.gw, ana()).await.unwrap().expect("another version");
    house
}

/// Everything an agent hears of a call, carried out if it is free.
async fn heard(
    house: &mut TestGateway,
    capability: &str,
    arguments: Value,
) -> (Result<CallOutcome, CallError>, String) {
    let answer = house.call(capability, arguments).await;
    house.let_go().await;
    let mut text = match &answer {
        Ok(CallOutcome::Done { result, .. }) => result.to_string(),
        Ok(_) => String::new(),
        Err(no) => no.refusal.to_string(),
    };
    if let Ok(CallOutcome::Held { hold, .. }) = &answer {
        text += &house.gw.store.hold_result(*hold).await.unwrap().unwrap_or_default();
    }
    (answer, text)
}

#[tokio::test]
async fn every_capability_that_tells_about_a_path_is_judged_as_a_read_of_it() {
    let spellings = ["secret", "secret/key.txt", "secret/sub/deep.txt", "./secret//key.txt", "secret/sub/"];
    for capability in capabilities() {
        for path in spellings {
            let mut house = house("blocked").await;
            let out = house.path("out.txt");
            let (arguments, tells) = arguments(&capability, &format!("{}/{path}", house.work().display()), &out);
            let (answer, text) = heard(&mut house, &capability, arguments).await;
            assert!(!text.contains("sings"), "{capability} of {path}: {text}");
            assert!(!house.work().join("out.txt").exists(), "{capability} of {path}");
            if tells {
                let no = answer.expect_err(&format!("{capability} of {path}"));
                assert_eq!(no.refusal.code(), Code::PolicyBlocked, "{capability} of {path}");
                assert!(no.rule.is_some_and(|rule| rule.contains("clerk.yaml")), "{capability} of {path}");
            }
        }
    }
}

#[tokio::test]
async fn a_read_that_needs_a_person_needs_one_whatever_reads() {
    for capability in capabilities() {
        for path in ["secret", "secret/key.txt"] {
            let mut house = house("approval_required").await;
            let out = house.path("out.txt");
            let (arguments, tells) = arguments(&capability, &house.path(path), &out);
            let (answer, text) = heard(&mut house, &capability, arguments).await;
            assert!(!text.contains("sings"), "{capability} of {path}: {text}");
            // A copy of a folder is impossible, and a person need not hear of it.
            let impossible = matches!(&answer, Err(no) if no.refusal.code() != Code::PolicyBlocked) && path == "secret";
            if tells && !impossible {
                assert!(matches!(answer, Ok(CallOutcome::Awaiting { .. })), "{capability} of {path}: {answer:?}");
            }
            assert!(!house.work().join("out.txt").exists(), "{capability} of {path}");
        }
    }
}

#[tokio::test]
async fn a_call_about_the_folder_above_passes_by_what_may_not_be_read() {
    for tier in ["blocked", "approval_required"] {
        for capability in capabilities() {
            let mut house = house(tier).await;
            let (above, out) = (house.work().display().to_string(), house.path("out.txt"));
            let (arguments, tells) = arguments(&capability, &above, &out);
            let (_, text) = heard(&mut house, &capability, arguments).await;
            for hidden in ["sings", "key.txt", "deep.txt", "\"secret\""] {
                assert!(!tells || !text.contains(hidden), "{tier} {capability}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn neither_a_link_nor_dots_nor_the_trash_are_ways_around() {
    for capability in capabilities() {
        for path in ["link", "link/key.txt", "open/../secret/key.txt", "secret/../secret", "link/../secret/key.txt"] {
            let mut house = house("blocked").await;
            let out = house.path("out.txt");
            let (arguments, _) = arguments(&capability, &format!("{}/{path}", house.work().display()), &out);
            let (_, text) = heard(&mut house, &capability, arguments).await;
            for hidden in ["sings", "deep.txt"] {
                assert!(!text.contains(hidden), "{capability} of {path}: {text}");
            }
            assert!(!house.work().join("out.txt").exists(), "{capability} of {path}");
        }
    }
    let mut house = house("blocked").await;
    let key = house.path("secret/key.txt");
    for capability in ["filesystem.delete", "filesystem.restore"] {
        let (answer, text) = heard(&mut house, capability, json!({"path": key})).await;
        assert!(answer.is_ok() && !text.contains("sings"), "{capability}: {text}");
    }
    assert_eq!(fs::read_to_string(&key).unwrap(), CANARY);
    for capability in ["filesystem.read", "filesystem.stat"] {
        let (answer, _) = heard(&mut house, capability, json!({"path": key})).await;
        assert_eq!(answer.unwrap_err().refusal.code(), Code::PolicyBlocked);
    }
}

#[tokio::test]
async fn explain_shows_the_read_that_decided() {
    let house = house("blocked").await;
    let name = CapabilityName::new("filesystem.copy").unwrap();
    let arguments = json!({"source": house.path("secret/key.txt"), "destination": house.path("out.txt")});
    let policy = house.gw.policy.get();
    let agent = clerk();
    let explained = policy.explain(&PolicyInput::new(&agent, &name, arguments.as_object().unwrap(), house.gw.now()));
    assert_eq!((explained.tier, explained.verdict.tier), (Tier::Blocked, Tier::Autonomous));
    let [read] = explained.reads.as_slice() else { panic!("{:?}", explained.reads) };
    assert_eq!((read.tier, read.reason.as_deref()), (Tier::Blocked, Some("keep out")));
    assert!(read.decided_by.as_ref().is_some_and(|at| at.contains("clerk.yaml:2")), "{read:?}");
    let text = explained.to_string();
    assert!(text.contains("reads: filesystem.read of") && text.contains("verdict: blocked"), "{text}");
}

#[test]
fn every_path_that_a_call_only_looks_at_is_marked_as_read() {
    let all = Catalogue::builtin().unwrap();
    for spec in all.iter().filter(|spec| spec.name.as_str().starts_with("filesystem.")) {
        let (_, tells) = arguments(spec.name.as_str(), "/x", "/y");
        let marked = spec.params_of(ParamKind::Path).filter(|param| param.reads).count();
        let expected = usize::from(tells && spec.name.as_str() != "filesystem.read");
        assert_eq!(marked, expected, "{}", spec.name);
    }
}
