//! The risk of everything in the catalogue, and of tools nobody has described.

use serde_json::json;

use super::*;
use crate::capability::Catalogue;

fn traced(argument: &str, value: &str, origin: Origin) -> Traced {
    Traced { argument: argument.into(), value: value.into(), origin, source: None, print: None }
}

fn custom(name: &str, arguments: &Value, targets: &[Traced]) -> Risk {
    let capability = CapabilityName::new(name).unwrap();
    let arguments = arguments.as_object().unwrap();
    of_call(&RiskQuestion { capability: &capability, spec: None, arguments, targets })
}

/// Every write of the catalogue with its risk when all its targets are known. A new capability has to be added here.
const WRITES: [(&str, Risk); 48] = [
    ("alerts.acknowledge", Risk::Low),
    ("alerts.send", Risk::Medium),
    ("comms.broadcast", Risk::Low),
    ("comms.send", Risk::Low),
    ("comms.subscribe", Risk::Low),
    ("email.bulk_delete", Risk::Low),
    ("email.cancel", Risk::Low),
    ("email.delete", Risk::Low),
    ("email.draft", Risk::Low),
    ("email.forward", Risk::Medium),
    ("email.label", Risk::Low),
    ("email.move", Risk::Low),
    ("email.reply", Risk::Medium),
    ("email.send", Risk::Medium),
    ("filesystem.append", Risk::Low),
    ("filesystem.copy", Risk::Low),
    ("filesystem.delete", Risk::Low),
    ("filesystem.edit", Risk::Low),
    ("filesystem.move", Risk::Low),
    ("filesystem.restore", Risk::Low),
    ("filesystem.write", Risk::Low),
    ("git.branch", Risk::Low),
    ("git.clone", Risk::Medium),
    ("git.commit", Risk::Low),
    ("git.init", Risk::Low),
    ("git.pull", Risk::Medium),
    ("git.push", Risk::Medium),
    ("network.credentialed_request", Risk::Medium),
    ("network.http_request", Risk::Medium),
    ("process.kill", Risk::Medium),
    ("process.run", Risk::High),
    ("proxy.spawn", Risk::Medium),
    ("scheduler.cron_create", Risk::Medium),
    ("scheduler.cron_delete", Risk::Low),
    ("scheduler.delay", Risk::Medium),
    ("secrets.rotate_request", Risk::Low),
    ("slack.react", Risk::Medium),
    ("slack.remove_react", Risk::Medium),
    ("slack.reply", Risk::Medium),
    ("slack.send", Risk::Medium),
    ("state.persistent.delete", Risk::Low),
    ("state.persistent.set", Risk::Low),
    ("state.session.clear", Risk::High),
    ("state.session.delete", Risk::High),
    ("state.session.set", Risk::Low),
    ("state.shared.delete", Risk::Low),
    ("state.shared.set", Risk::Low),
    ("state.snapshot.create", Risk::Low),
];

#[test]
fn every_capability_of_the_catalogue_has_the_risk_of_its_reach() {
    let catalogue = Catalogue::builtin().unwrap();
    let nothing = Map::new();
    let risk = |spec: &Capability, targets: &[Traced]| {
        of_call(&RiskQuestion { capability: &spec.name, spec: Some(spec), arguments: &nothing, targets })
    };
    let mut seen = 0;
    for spec in catalogue.iter() {
        let known = [traced("x", "x", Origin::Known)];
        if spec.effect == Effect::Read {
            assert_eq!(risk(spec, &known), Risk::Low, "{}", spec.name);
            continue;
        }
        seen += 1;
        let expected = WRITES.iter().find(|(name, _)| *name == spec.name.as_str());
        let expected =
            expected.map(|(_, risk)| *risk).or((spec.name.as_str() == "state.snapshot.load").then_some(Risk::Medium));
        assert_eq!(Some(risk(spec, &known)), expected, "{}", spec.name);
        for origin in [Origin::Seen, Origin::New] {
            let unmet = [traced("x", "x", Origin::Known), traced("x", "y", origin)];
            assert_eq!(risk(spec, &unmet), Risk::High, "{} to a target that is {}", spec.name, origin.as_str());
        }
        let many: Vec<Traced> = (0..=MANY).map(|n| traced("x", &n.to_string(), Origin::Asked)).collect();
        assert_eq!(risk(spec, &many), Risk::High, "{} to many", spec.name);
        // The same name, defined by somebody else, is not trusted.
        let theirs = Capability { definition: Some("aa".into()), ..spec.clone() };
        assert!(risk(&theirs, &known) >= Risk::Medium, "{}", spec.name);
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
        of_call(&RiskQuestion { capability: &spec.name, spec: Some(spec), arguments, targets: &[] })
    };
    assert_eq!((risk(MANY), risk(MANY + 1)), (Risk::Low, Risk::High));
}

#[test]
fn a_tool_nobody_described_is_at_least_medium_and_high_where_it_executes_pays_or_deletes() {
    let known = [traced("to", "ana", Origin::Known)];
    assert_eq!(custom("custom:notify", &json!({"to": "ana", "text": "hi"}), &known), Risk::Medium);
    assert_eq!(custom("custom:notify", &json!({}), &[]), Risk::Medium);
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
        assert_eq!(custom(name, &arguments, &known), Risk::High, "{name} {arguments}");
    }
}

#[test]
fn a_command_is_high_unless_it_is_plain_and_somebody_named_it() {
    let risk = |command: &str, origin: Origin| {
        let targets = [traced("command", command, origin)];
        custom("custom:Bash", &json!({"command": command, "description": "runs it"}), &targets)
    };
    assert_eq!(risk("make test", Origin::Known), Risk::Medium);
    assert_eq!(risk("make test", Origin::Asked), Risk::Medium);
    for origin in [Origin::Seen, Origin::New] {
        assert_eq!(risk("make test", origin), Risk::High);
    }
    for text in ["make test; rm -rf /", "rm -rf /tmp/x", "sudo make", "bash x.sh", "curl x | sh", "git push --force"] {
        assert_eq!(risk(text, Origin::Known), Risk::High, "{text}");
    }
    // A command whose origin nobody looked at was named by nobody.
    assert_eq!(custom("custom:Bash", &json!({"command": "make test"}), &[]), Risk::High);
}
