//! Checking and carrying out agree: where the rules block, both say so, whatever else stands in the way.

use serde_json::{Map, Value, json};
use sluice_core::capability::{Capability, Catalogue, ParamKind};
use sluice_core::policy::TEMPLATES;
use sluice_gateway::corridor::CallOutcome;
use sluice_services::CallError;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

/// Arguments that fit a capability, with paths nobody opened.
fn arguments(spec: &Capability) -> Value {
    let mut all = Map::new();
    for param in spec.params.iter().filter(|param| param.required) {
        let value = match param.kind {
            ParamKind::Path => json!("/somewhere/else/a.txt"),
            ParamKind::Url => json!("https://elsewhere.example/"),
            _ => param
                .examples
                .first()
                .cloned()
                .or_else(|| param.choices.first().map(|word| json!(word)))
                .unwrap_or(json!("x")),
        };
        all.insert(param.name.clone(), value);
    }
    Value::Object(all)
}

/// One word for how a call ended.
fn word(answer: Result<CallOutcome, CallError>) -> String {
    match answer {
        Ok(
            CallOutcome::Done { .. }
            | CallOutcome::Allowed { .. }
            | CallOutcome::Held { .. }
            | CallOutcome::Awaiting { .. },
        ) => "yes".into(),
        Ok(other) => format!("{other:?}"),
        Err(no) => no.refusal.code().as_str().into(),
    }
}

#[tokio::test]
async fn where_the_rules_block_check_and_execute_both_say_so_for_every_capability_and_template() {
    let builtin = Catalogue::builtin().unwrap();
    let mut blocked = 0;
    for template in &TEMPLATES {
        let text = |path: &str| template.files.iter().find(|file| file.path == path).map(|file| file.text.to_owned());
        let agent = template.files.iter().find(|file| file.path.starts_with("agents/")).unwrap();
        let plan = TestGatewayPlan {
            org: text("org.yaml").unwrap(),
            agent: agent.text.to_owned(),
            ..TestGatewayPlan::default()
        };
        let house = TestGateway::new(plan).await;
        for spec in builtin.iter() {
            let (name, input) = (spec.name.as_str(), arguments(spec));
            let ask = |mode: &str| json!({"capability": name, "arguments": input, "mode": mode, "wait_ms": 0});
            let checked = word(house.wish(ask("check")).await);
            let executed = word(house.wish(ask("execute")).await);
            let case = format!("{} {name}: check {checked}, execute {executed}", template.name);
            assert_eq!(checked == "policy.blocked", executed == "policy.blocked", "{case}");
            blocked += usize::from(checked == "policy.blocked");
            // What nobody carries out is said to be that, not something else.
            let is_carried = house.gw.services.of(spec).is_some();
            assert_eq!(executed == "gateway.unsupported", !is_carried && executed != "policy.blocked", "{case}");
        }
    }
    assert!(blocked > 20, "the walk met {blocked} blocks only");
}

#[tokio::test]
async fn a_rule_that_blocks_is_shown_before_a_folder_that_is_not_opened() {
    let org = "defaults: {tier: autonomous}\noverrides:\n  - {capability: filesystem.read, tier: blocked, \
               conditions: {path_prefix: /etc/}, reason: system files are nobody's business}\n";
    let house = TestGateway::new(TestGatewayPlan { org: org.into(), ..TestGatewayPlan::default() }).await;
    let no = house.call("filesystem.read", json!({"path": "/etc/passwd"})).await.unwrap_err();
    assert_eq!(no.refusal.code().as_str(), "policy.blocked", "{}", no.refusal);
    assert!(no.refusal.text().contains("nobody's business"), "{}", no.refusal);
    let no = house.call("filesystem.read", json!({"path": "/opt/x"})).await.unwrap_err();
    assert_ne!(no.refusal.code().as_str(), "policy.blocked", "no rule says anything about it");
}

#[tokio::test]
async fn a_misspelt_capability_gets_the_nearest_name() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    for (typed, meant) in
        [("filesystem.raed", "filesystem.read"), ("emial.send", "email.send"), ("git.statuss", "git.status")]
    {
        let no = house.call(typed, json!({})).await.unwrap_err();
        assert_eq!(no.refusal.code().as_str(), "schema.unknown_capability");
        assert!(no.refusal.hint().contains(&format!("did you mean `{meant}`")), "{typed}: {}", no.refusal.hint());
    }
    let no = house.call("zzzz.qqqq", json!({})).await.unwrap_err();
    assert!(!no.refusal.hint().contains("did you mean"), "{}", no.refusal.hint());
}
