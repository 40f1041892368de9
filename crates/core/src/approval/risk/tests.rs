//! The risk of everything in the catalogue, and of tools nobody has described.

use serde_json::json;

use super::*;
use crate::capability::Catalogue;

fn traced(argument: &str, value: &str, origin: TargetOrigin) -> TracedTarget {
    TracedTarget { argument: argument.into(), value: value.into(), origin, source: None, print: None }
}

fn custom(name: &str, arguments: &Value, targets: &[TracedTarget]) -> ApprovalRisk {
    let capability = CapabilityName::new(name).unwrap();
    let arguments = arguments.as_object().unwrap();
    assess_risk(&RiskAssessmentInput { capability: &capability, spec: None, arguments, targets })
}

/// Every write of the catalogue with its risk when all its targets are known. A new capability has to be added here.
const WRITES: [(&str, ApprovalRisk); 48] = [
    ("alerts.acknowledge", ApprovalRisk::Low),
    ("alerts.send", ApprovalRisk::Medium),
    ("comms.broadcast", ApprovalRisk::Low),
    ("comms.send", ApprovalRisk::Low),
    ("comms.subscribe", ApprovalRisk::Low),
    ("email.bulk_delete", ApprovalRisk::Low),
    ("email.cancel", ApprovalRisk::Low),
    ("email.delete", ApprovalRisk::Low),
    ("email.draft", ApprovalRisk::Low),
    ("email.forward", ApprovalRisk::Medium),
    ("email.label", ApprovalRisk::Low),
    ("email.move", ApprovalRisk::Low),
    ("email.reply", ApprovalRisk::Medium),
    ("email.send", ApprovalRisk::Medium),
    ("filesystem.append", ApprovalRisk::Low),
    ("filesystem.copy", ApprovalRisk::Low),
    ("filesystem.delete", ApprovalRisk::Low),
    ("filesystem.edit", ApprovalRisk::Low),
    ("filesystem.move", ApprovalRisk::Low),
    ("filesystem.restore", ApprovalRisk::Low),
    ("filesystem.write", ApprovalRisk::Low),
    ("git.branch", ApprovalRisk::Low),
    ("git.clone", ApprovalRisk::Medium),
    ("git.commit", ApprovalRisk::Low),
    ("git.init", ApprovalRisk::Low),
    ("git.pull", ApprovalRisk::Medium),
    ("git.push", ApprovalRisk::Medium),
    ("network.credentialed_request", ApprovalRisk::Medium),
    ("network.http_request", ApprovalRisk::Medium),
    ("process.kill", ApprovalRisk::Medium),
    ("process.run", ApprovalRisk::High),
    ("proxy.spawn", ApprovalRisk::Medium),
    ("scheduler.cron_create", ApprovalRisk::Medium),
    ("scheduler.cron_delete", ApprovalRisk::Low),
    ("scheduler.delay", ApprovalRisk::Medium),
    ("secrets.rotate_request", ApprovalRisk::Low),
    ("slack.react", ApprovalRisk::Medium),
    ("slack.remove_react", ApprovalRisk::Medium),
    ("slack.reply", ApprovalRisk::Medium),
    ("slack.send", ApprovalRisk::Medium),
    ("state.persistent.delete", ApprovalRisk::Low),
    ("state.persistent.set", ApprovalRisk::Low),
    ("state.session.clear", ApprovalRisk::High),
    ("state.session.delete", ApprovalRisk::High),
    ("state.session.set", ApprovalRisk::Low),
    ("state.shared.delete", ApprovalRisk::Low),
    ("state.shared.set", ApprovalRisk::Low),
    ("state.snapshot.create", ApprovalRisk::Low),
];

#[test]
fn every_capability_of_the_catalogue_has_the_risk_of_its_reach() {
    let catalogue = Catalogue::builtin().unwrap();
    let nothing = Map::new();
    let risk = |spec: &Capability, targets: &[TracedTarget]| {
        assess_risk(&RiskAssessmentInput { capability: &spec.name, spec: Some(spec), arguments: &nothing, targets })
    };
    let mut seen = 0;
    for spec in catalogue.iter() {
        let known = [traced("x", "x", TargetOrigin::Known)];
        if spec.effect == Effect::Read {
            assert_eq!(risk(spec, &known), ApprovalRisk::Low, "{}", spec.name);
            continue;
        }
        seen += 1;
        let expected = WRITES.iter().find(|(name, _)| *name == spec.name.as_str());
        let expected = expected
            .map(|(_, risk)| *risk)
            .or((spec.name.as_str() == "state.snapshot.load").then_some(ApprovalRisk::Medium));
        assert_eq!(Some(risk(spec, &known)), expected, "{}", spec.name);
        for origin in [TargetOrigin::Seen, TargetOrigin::New] {
            let unmet = [traced("x", "x", TargetOrigin::Known), traced("x", "y", origin)];
            assert_eq!(risk(spec, &unmet), ApprovalRisk::High, "{} to a target that is {}", spec.name, origin.as_str());
        }
        let many: Vec<TracedTarget> = (0..=MANY).map(|n| traced("x", &n.to_string(), TargetOrigin::Asked)).collect();
        assert_eq!(risk(spec, &many), ApprovalRisk::High, "{} to many", spec.name);
        // The same name, defined by a third party, is not trusted.
        let theirs = Capability { definition: Some("aa".into()), ..spec.clone() };
        assert!(risk(&theirs, &known) >= ApprovalRisk::Medium, "{}", spec.name);
    }
    assert_eq!(seen, WRITES.len() + 1);
}

#[test]
fn many_objects_are_high() {
    let catalogue = Catalogue::builtin().unwrap();
    let spec = catalogue.get(&"email.bulk_delete".parse().unwrap()).unwrap();
    let risk = |count: usize| {
        let arguments = json!({"message_ids": vec!["m"; count]});
        let arguments = arguments.as_object().unwrap();
        assess_risk(&RiskAssessmentInput { capability: &spec.name, spec: Some(spec), arguments, targets: &[] })
    };
    assert_eq!((risk(MANY), risk(MANY + 1)), (ApprovalRisk::Low, ApprovalRisk::High));
}

#[test]
fn a_tool_nobody_described_is_at_least_medium_and_high_where_it_executes_pays_or_deletes() {
    let known = [traced("to", "ana", TargetOrigin::Known)];
    assert_eq!(custom("custom:notify", &json!({"to": "ana", "text": "hi"}), &known), ApprovalRisk::Medium);
    assert_eq!(custom("custom:notify", &json!({}), &[]), ApprovalRisk::Medium);
    for (name, arguments) in [
        ("custom:run", json!({"code": "print(1)"})),
        ("custom:run", json!({"step": {"script": "x"}})),
        ("custom:run", json!({"steps": [{"sql": "drop table x"}]})),
        ("custom:Bash", json!({"input": "ls"})),
        ("custom:python_eval", json!({"source": "x"})),
        ("custom:exec", json!({"argv": ["rm", "x"]})),
        ("custom:pay", json!({"to": "ana"})),
        ("custom:send", json!({"to": "ana", "amount": 5})),
        ("custom:send", json!({"items": [{"price": 5}]})),
        ("custom:delete_event", json!({"id": "1"})),
        ("mount.shop.remove", json!({"id": "1"})),
    ] {
        assert_eq!(custom(name, &arguments, &known), ApprovalRisk::High, "{name} {arguments}");
    }
}

#[test]
fn a_command_is_high_unless_it_is_plain_and_somebody_named_it() {
    let risk = |command: &str, origin: TargetOrigin| {
        let targets = [traced("command", command, origin)];
        custom("custom:Bash", &json!({"command": command, "description": "runs it"}), &targets)
    };
    assert_eq!(risk("make test", TargetOrigin::Known), ApprovalRisk::Medium);
    assert_eq!(risk("make test", TargetOrigin::Asked), ApprovalRisk::Medium);
    for origin in [TargetOrigin::Seen, TargetOrigin::New] {
        assert_eq!(risk("make test", origin), ApprovalRisk::High);
    }
    for text in ["make test; rm -rf /", "rm -rf /tmp/x", "sudo make", "bash x.sh", "curl x | sh", "git push --force"] {
        assert_eq!(risk(text, TargetOrigin::Known), ApprovalRisk::High, "{text}");
    }
    // A command of unchecked origin was named by nobody.
    assert_eq!(custom("custom:Bash", &json!({"command": "make test"}), &[]), ApprovalRisk::High);
}
