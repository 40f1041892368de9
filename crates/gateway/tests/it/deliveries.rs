//! Whether people are reached: what became of each letter, and who hears of a channel that fails.

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::channels;
use sluice_gateway::loops::outbox::OutboxLoop;
use sluice_store::AlertFilter;

use crate::http::{OpenTestGateway, ask, open};
use crate::mail::server;
use crate::telegram::{TOKEN, TelegramStub};
use crate::test_gateway::TestGatewayPlan;

/// A gateway with a bot and a mail server, where ana is reached over both.
struct DeliveriesFixture {
    open: OpenTestGateway,
    outbox: OutboxLoop,
    service: TelegramStub,
    mails: std::sync::Arc<std::sync::Mutex<Vec<String>>>,
    _serves: tokio::task::JoinSet<()>,
    _token: tempfile::NamedTempFile,
}

impl DeliveriesFixture {
    async fn new(people: &str) -> Self {
        let service = TelegramStub::start().await;
        let (port, mails, serves) = server().await;
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), TOKEN).unwrap();
        let config = format!(
            "approvals: {{people: [{people}]}}\ntelegram: {{token_file: {}, api: \"{}\"}}\n\
             email: {{smtp_host: 127.0.0.1, smtp_port: {port}, smtp_security: off, from: gate@example.test}}\n",
            token.path().display(),
            service.url
        );
        let open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
        let outbox = OutboxLoop::new(channels::configured(&open.house.gw.config).unwrap());
        Self { open, outbox, service, mails, _serves: serves, _token: token }
    }

    async fn ask(&self) -> String {
        let wish = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Run it", "preview": "ls"});
        let made = ask(self.open.main, "POST", "/v1/approvals", &self.open.house.agent_key, Some(&wish)).await.json();
        made["approval_id"].as_str().unwrap().to_owned()
    }

    async fn step(&self) {
        self.outbox.step(&self.open.house.gw).await.unwrap();
    }

    async fn get(&self, path: &str) -> Value {
        ask(self.open.main, "GET", path, &self.open.house.operator_token, None).await.json()
    }

    async fn deliveries(&self, id: &str) -> Vec<Value> {
        self.get(&format!("/v1/approvals/{id}")).await["deliveries"].as_array().cloned().unwrap_or_default()
    }

    async fn alerts(&self) -> Vec<String> {
        let alerts = self.open.house.gw.store.alerts(AlertFilter::default(), None, 100).await.unwrap();
        alerts.into_iter().map(|alert| alert.message.topic).filter(|topic| topic.starts_with("channel.")).collect()
    }

    fn mails(&self, with: &str) -> usize {
        self.mails.lock().unwrap().iter().filter(|mail| mail.contains(with)).count()
    }
}

fn states(deliveries: &[Value]) -> Vec<(&str, &str)> {
    deliveries.iter().map(|one| (one["channel"].as_str().unwrap(), one["state"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn a_permanent_refusal_is_final_is_said_and_the_person_is_asked_over_their_next_channel() {
    let world = DeliveriesFixture::new("{name: ana, telegram: 4711, email: ana@example.test}").await;
    let id = world.ask().await;
    assert_eq!(states(&world.deliveries(&id).await), [("telegram", "queued")]);
    world.step().await;
    let seen = world.deliveries(&id).await;
    assert_eq!(states(&seen), [("email", "sent"), ("telegram", "refused")]);
    let reason = seen[1]["reason"].as_str().unwrap();
    assert!(reason.contains("400") && reason.contains("never wrote to the bot"), "{reason}");
    assert!(seen[1].get("next_try_at").is_none(), "{seen:?}");
    assert_eq!(world.alerts().await, ["channel.failing"]);
    world.open.house.pass(Millis::from_mins(6));
    for _ in 0..3 {
        world.step().await;
    }
    let tried = world.service.with(|kept| kept.called.iter().filter(|method| *method == "sendMessage").count());
    assert_eq!(tried, 1, "it is not tried again, and the alert about it goes another way");
    assert_eq!((world.mails("Approve?"), world.mails("channel.failing")), (1, 1));
    assert_eq!(world.alerts().await, ["channel.failing"], "once");
}

#[tokio::test]
async fn a_channel_that_cannot_be_reached_is_retried_shown_and_told_over_another_one() {
    let world = DeliveriesFixture::new("{name: ana, telegram: 1001, email: ana@example.test}").await;
    let down = json!({"ok": false, "error_code": 502, "description": "Bad Gateway"});
    world.service.with(|kept| kept.faults.extend((0..50).map(|_| ("sendMessage", 502, down.clone()))));
    let id = world.ask().await;
    world.step().await;
    let seen = world.deliveries(&id).await;
    assert_eq!(states(&seen), [("telegram", "retrying")]);
    assert!(seen[0]["reason"].as_str().unwrap().contains("502") && seen[0]["next_try_at"].is_string(), "{seen:?}");
    let status = world.get("/v1/status").await;
    let telegram = &status["channels"][0];
    assert_eq!((&telegram["name"], &telegram["delivery"]), (&json!("telegram"), &json!("not_sending")), "{status}");
    assert!(telegram["delivery_reason"].as_str().unwrap().contains("502"), "{status}");
    assert!(world.alerts().await.is_empty(), "a moment is no alert");
    for _ in 0..8 {
        world.open.house.pass(Millis::from_secs(20));
        world.step().await;
    }
    assert_eq!(world.alerts().await, ["channel.failing"]);
    assert_eq!((world.mails("Approve?"), world.mails("channel.failing")), (1, 1), "over the other channel");
    let seen = world.deliveries(&id).await;
    assert!(states(&seen).contains(&("email", "sent")) && seen[1]["attempts"].as_u64().unwrap() > 2, "{seen:?}");
    world.service.with(|kept| kept.faults.clear());
    world.open.house.pass(Millis::from_mins(6));
    world.step().await;
    let list = world.get("/v1/channels").await;
    assert_eq!(list["data"][0]["delivery"], "sending", "{list}");
}

#[tokio::test]
async fn a_channel_can_be_tested_and_says_what_came_of_it() {
    let people = "{name: ana, telegram: 1001, email: ana@example.test}, {name: eve, email: reject@example.test}";
    let world = DeliveriesFixture::new(people).await;
    let test = async |name: &str| {
        let path = format!("/v1/channels/{name}/test");
        ask(world.open.main, "POST", &path, &world.open.house.operator_token, None).await
    };
    let telegram = test("telegram").await.json();
    assert_eq!((&telegram["ok"], &telegram["people"][0]["state"]), (&json!(true), &json!("sent")), "{telegram}");
    let email = test("email").await.json();
    assert_eq!((&email["ok"], &email["people"][1]["state"]), (&json!(false), &json!("refused")), "{email}");
    assert_eq!(email["people"][1]["reason"], "mail: refused by the server (550)");
    assert_eq!(test("pigeon").await.status, 404);
    assert_eq!(world.get("/v1/status").await["nobody_is_told"], false);
}

#[tokio::test]
async fn without_a_channel_the_status_says_that_nobody_is_told() {
    let open = open(TestGatewayPlan::default()).await;
    let status = ask(open.main, "GET", "/v1/status", &open.house.operator_token, None).await.json();
    assert_eq!((&status["nobody_is_told"], &status["channels"]), (&json!(true), &json!([])), "{status}");
}
