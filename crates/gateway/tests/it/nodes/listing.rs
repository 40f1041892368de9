//! Every node says what it is; who is gone and what differs is seen, and people are told once.

use serde_json::{Value, json};
use sluice_core::nodes::{NodePhase, NodeReport};
use sluice_core::{Millis, NodeName};
use sluice_gateway::loops::housekeeping;
use sluice_gateway::{GatewayPhase, nodes};
use sluice_store::{AlertFilter, MessageSeverity, Store};

use super::TwoTestNodes;
use crate::http::ask;
use crate::test_gateway::TestGatewayPlan;

/// A round of housekeeping that beats and does nothing else now and then.
const BEATS: u64 = 5;

/// What makes a node's report another one.
type NodeReportChange = fn(&mut NodeReport);

impl TwoTestNodes {
    /// The list as the first node gives it.
    async fn listed(&self) -> Value {
        let answer = self.admin("GET", "/v1/nodes", None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Both nodes keep house.
    async fn keep(&self) {
        housekeeping::step(&self.house.gw, BEATS).await.unwrap();
        housekeeping::step(&self.other, BEATS).await.unwrap();
    }

    /// The texts of all alerts of a topic.
    async fn told(&self, topic: &str) -> Vec<String> {
        let all = AlertFilter { open_only: false, severity_at_least: MessageSeverity::Info, agent: None };
        let alerts = self.house.gw.store.alerts(all, None, 100).await.unwrap();
        let of = alerts.iter().filter(|alert| alert.message.topic == topic);
        of.map(|alert| alert.message.body["text"].as_str().unwrap().to_owned()).collect()
    }
}

fn states(list: &Value) -> Vec<(String, String)> {
    let text = |node: &Value, name: &str| node[name].as_str().unwrap().to_owned();
    list["nodes"].as_array().unwrap().iter().map(|node| (text(node, "name"), text(node, "state"))).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect()
}

#[tokio::test]
async fn every_node_is_listed_with_what_it_is_and_whether_it_is_there() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let list = nodes.listed().await;
    assert_eq!(states(&list), pairs(&[("other", "open"), ("test", "open")]));
    assert_eq!(list["differences"], json!([]));
    let [other, own] = &list["nodes"].as_array().unwrap()[..] else { panic!("{list}") };
    assert_eq!((&own["answers"], &other["answers"]), (&json!(true), &json!(false)));
    assert_eq!((&own["release"], &own["policy_version"]), (&json!("0.0.0"), &other["policy_version"]));
    assert_eq!(own["services"], other["services"]);
    let files = json!({"name": "filesystem", "kind": "built_in", "ready": true});
    assert!(own["services"].as_array().unwrap().contains(&files), "{own}");
    // The other says nothing more; only this one is awake.
    nodes.house.pass(Millis::from_secs(60));
    housekeeping::step(&nodes.house.gw, BEATS).await.unwrap();
    assert_eq!(states(&nodes.listed().await)[0].1, "open");
    nodes.house.pass(Millis::from_secs(1));
    housekeeping::step(&nodes.house.gw, BEATS).await.unwrap();
    let list = nodes.listed().await;
    assert_eq!(states(&list), pairs(&[("other", "gone"), ("test", "open")]));
    assert_eq!(list["nodes"][0]["lag_ms"], 61_000);
    housekeeping::step(&nodes.other, BEATS).await.unwrap();
    assert_eq!(states(&nodes.listed().await)[0].1, "open");
    nodes.other.enter(GatewayPhase::Stopping);
    nodes::report(&nodes.other).await.unwrap();
    assert_eq!(states(&nodes.listed().await)[0].1, "stopping");
    // Who may not look, and what is in it.
    assert_eq!(ask(nodes.a[0], "GET", "/v1/nodes", &nodes.house.agent_key, None).await.status, 403);
    let text = nodes.listed().await.to_string();
    for secret in [&nodes.house.agent_key, &nodes.house.operator_token, nodes.house.database().unwrap().url()] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn a_gateway_on_a_file_lists_itself_and_writes_only_what_changed() {
    let open = crate::http::open(TestGatewayPlan::default()).await;
    let gw = &open.house.gw;
    let list = ask(open.main, "GET", "/v1/nodes", &open.house.viewer_token, None).await.json();
    assert_eq!(states(&list), pairs(&[("test", "open")]));
    let head = gw.store.logs().await.unwrap();
    open.house.pass(Millis::from_mins(5));
    for _ in 0..3 {
        nodes::report(gw).await.unwrap();
    }
    assert_eq!(gw.store.logs().await.unwrap(), head);
    let seen = gw.store.known_nodes().await.unwrap();
    assert!(seen[0].alive_at < gw.now() - Millis::from_mins(1), "nothing was written");
    let list = ask(open.main, "GET", "/v1/nodes", &open.house.viewer_token, None).await.json();
    assert_eq!(states(&list), pairs(&[("test", "open")]), "whoever answers is there");
}

#[tokio::test]
async fn people_are_told_once_that_nodes_differ_and_once_that_it_is_over() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let gw = &nodes.house.gw;
    let clock = std::sync::Arc::clone(&nodes.house.world().clock);
    let third = NodeName::new("third").unwrap();
    let third = Store::open_server_with_clock(nodes.house.database().unwrap().url(), third, clock).unwrap();
    nodes.keep().await;
    let same = gw.store.known_nodes().await.unwrap().remove(0).report;
    let kinds: [(&str, NodeReportChange); 4] = [
        ("release: other has 0.0.0, test has 0.0.0, third has 9.9.9", |report| report.release = "9.9.9".into()),
        ("policy version: other has", |report| report.policy_version = "sha256:other".into()),
        ("service filesystem: other has it, test has it, third does not have it", |report| {
            report.services.retain(|service| service.name.as_str() != "filesystem");
        }),
        ("service filesystem: other has it, test has it, third cannot use it now", |report| {
            report
                .services
                .iter_mut()
                .filter(|one| one.name.as_str() == "filesystem")
                .for_each(|one| one.ready = false);
        }),
    ];
    for (n, (words, change)) in kinds.into_iter().enumerate() {
        let mut differs = same.clone();
        change(&mut differs);
        third.report_node(differs).await.unwrap();
        for round in 0..=15_u64 {
            nodes.keep().await;
            third.record_heartbeat().await.unwrap();
            let told = nodes.told("nodes.diverge").await;
            assert_eq!(told.len(), n + usize::from(round * 5 > 60), "{words} after {} s: {told:?}", round * 5);
            assert_eq!(nodes.told("nodes.agree").await.len(), n);
            nodes.house.pass(Millis::from_secs(5));
        }
        let told = nodes.told("nodes.diverge").await;
        assert!(told[0].contains(words) && told[0].contains("sluice nodes list"), "{}", told[0]);
        let list = nodes.listed().await;
        assert!(list["differences"][0].as_str().unwrap().contains(words), "{list}");
        let status = nodes.admin("GET", "/v1/status", None).await.json();
        assert_eq!(status["nodes_differ"], list["differences"]);
        third.report_node(same.clone()).await.unwrap();
        nodes.keep().await;
        nodes.keep().await;
        assert_eq!(nodes.told("nodes.agree").await.len(), n + 1, "that it is over is told once");
        assert_eq!(nodes.listed().await["differences"], json!([]));
        nodes.house.pass(Millis::from_secs(30));
        third.record_heartbeat().await.unwrap();
    }
    // A node that stops, or is gone, differs from nobody.
    let stopping = NodeReport { phase: NodePhase::Stopping, release: "9.9.9".into(), ..same.clone() };
    third.report_node(stopping).await.unwrap();
    nodes.keep().await;
    assert_eq!(nodes.listed().await["differences"], json!([]));
    third.report_node(NodeReport { release: "9.9.9".into(), ..same }).await.unwrap();
    assert_ne!(nodes.listed().await["differences"], json!([]));
    nodes.house.pass(Millis::from_secs(61));
    nodes.keep().await;
    assert_eq!(nodes.listed().await["differences"], json!([]), "it is gone");
    assert_eq!(nodes.told("nodes.diverge").await.len(), 4);
}

/// The rules of a node are part of what it says.
#[tokio::test]
async fn rules_that_were_changed_on_one_node_are_a_difference() {
    let Some(nodes) = TwoTestNodes::open(TestGatewayPlan::default()).await else { return };
    let rules = nodes.house.folder.path().join("other/policies/agents/clerk.yaml");
    std::fs::write(rules, "rules: [{capability: \"state.*\", tier: blocked}]\n").unwrap();
    sluice_gateway::loops::policy::reload(&nodes.other, crate::test_gateway::ana()).await.unwrap();
    nodes.keep().await;
    let list = nodes.listed().await;
    assert!(list["differences"][0].as_str().unwrap().starts_with("policy version: other has sha256:"), "{list}");
}
