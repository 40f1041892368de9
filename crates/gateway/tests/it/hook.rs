//! News that Telegram brings: the same handling as news we ask for, behind a secret.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_gateway::channels;
use sluice_gateway::channels::telegram::TelegramChannel;
use sluice_gateway::channels::{Channel as _, ChannelError};
use sluice_gateway::loops::outbox::{self, OutboxLoop};

use crate::http::{OpenTestGateway, RawHttpAnswer, open, raw};
use crate::telegram::{ANA, ASKS, PEOPLE, TOKEN, TelegramFixture, TelegramStub, button, press};
use crate::test_gateway::TestGatewayPlan;

const AT: &str = "https://gate.example";

/// An open house whose news are brought.
struct TelegramHookFixture {
    open: OpenTestGateway,
    service: TelegramStub,
    _token: tempfile::TempDir,
}

impl TelegramHookFixture {
    async fn new() -> Self {
        let service = TelegramStub::start().await;
        let files = tempfile::tempdir().unwrap();
        let token = files.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let config = format!(
            "{PEOPLE}telegram: {{token_file: {}, api: \"{}\", webhook: \"{AT}\"}}\n",
            token.display(),
            service.url
        );
        let open = open(TestGatewayPlan { config, agent: ASKS.into(), ..TestGatewayPlan::default() }).await;
        Self { open, service, _token: files }
    }

    async fn asked(&self) -> (String, Value) {
        let arguments = json!({"path": self.open.house.path("a"), "content": "hello"});
        let answer = self.open.house.call("filesystem.write", arguments).await.unwrap();
        let sluice_gateway::corridor::CallOutcome::Awaiting { approval, .. } = answer else { panic!("{answer:?}") };
        let channels = channels::configured(&self.open.house.gw.config).unwrap();
        OutboxLoop::new(channels).step(&self.open.house.gw).await.unwrap();
        (approval.to_string(), self.service.letter())
    }

    async fn bring(&self, secret: Option<&str>, body: &str) -> RawHttpAnswer {
        let secret = secret.map(|s| format!("x-telegram-bot-api-secret-token: {s}\r\n")).unwrap_or_default();
        let request = format!(
            "POST /hooks/telegram HTTP/1.1\r\nhost: gate.example\r\nconnection: close\r\n{secret}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        raw(self.open.main, request.as_bytes()).await
    }

    fn secret(&self) -> String {
        let bot = TelegramChannel::configured(&self.open.house.gw.config).unwrap().unwrap();
        bot.hook_secret().unwrap().to_owned()
    }

    async fn state(&self, id: &str) -> String {
        let card = self.open.house.gw.store.approval(id.parse().unwrap()).await.unwrap().unwrap();
        card.approval.state.word().to_owned()
    }
}

#[tokio::test]
async fn news_with_the_secret_decide_once_and_without_it_are_not_read() {
    let brought = TelegramHookFixture::new().await;
    let (id, letter) = brought.asked().await;
    let mut update = press(ANA, ANA, letter["message_id"].as_i64().unwrap(), &button(&letter, "1"));
    update["update_id"] = 7.into();
    let (update, secret) = (update.to_string(), brought.secret());
    let almost = format!("{}0", &secret[..63]);
    for wrong in [None, Some(""), Some("x"), Some(almost.as_str()), Some(&brought.open.house.agent_key), Some(TOKEN)] {
        let answer = brought.bring(wrong, &update).await;
        assert_eq!(answer.status, 401, "{wrong:?}: {answer:?}");
        assert_eq!(brought.state(&id).await, "pending");
    }
    assert_eq!(brought.bring(Some(&secret), "nonsense").await.status, 400);
    assert_eq!(brought.bring(Some(&secret), "{\"update_id\": 6, \"message\": 3}").await.status, 200, "passed over");
    assert_eq!(brought.bring(Some(&secret), &update).await.status, 200);
    assert_eq!(brought.state(&id).await, "approved");
    for _ in 0..100 {
        assert_eq!(brought.bring(Some(&secret), &update).await.status, 200, "redelivered");
    }
    assert_eq!(brought.service.with(|kept| kept.answers.len()), 1, "and nobody is told twice");
    let decided = brought.open.house.record().await.iter().filter(|kind| *kind == "approval.approved").count();
    assert_eq!(decided, 1);
}

#[tokio::test]
async fn without_a_webhook_there_is_no_such_door() {
    let open = open(TestGatewayPlan::default()).await;
    let request = "POST /hooks/telegram HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(raw(open.main, request.as_bytes()).await.code(), "door.not_found");
}

#[tokio::test]
async fn the_webhook_is_set_watched_set_right_and_taken_back() {
    let world = TelegramFixture::new(PEOPLE).await;
    let (gw, token) = (&world.house.gw, world.house.folder.path().join("token"));
    let hooked = TelegramChannel::new(&token, &world.service.url).unwrap().with_webhook(AT);
    hooked.watch(gw).await.unwrap();
    let set = world.service.with(|kept| kept.webhook.clone());
    assert_eq!(set, (format!("{AT}/hooks/telegram"), hooked.hook_secret().unwrap().to_owned()));
    hooked.watch(gw).await.unwrap();
    let count = |method: &str| world.service.with(|kept| kept.called.iter().filter(|one| *one == method).count());
    assert_eq!(count("setWebhook"), 1, "what is right is left alone");
    for hijacked in ["https://evil.example/take", ""] {
        world.service.with(|kept| kept.webhook.0 = hijacked.into());
        let fault = hooked.watch(gw).await.unwrap_err();
        assert!(matches!(&fault, ChannelError::Broken { why } if why.contains("another program")), "{fault}");
        assert_eq!(world.service.with(|kept| kept.webhook.0.clone()), set.0, "and set right");
    }
    assert!(matches!(world.hear().await, Ok(())), "whoever asks for news instead takes back what was set before");
    assert_eq!(world.service.with(|kept| kept.webhook.0.clone()), "");
    hooked.watch(gw).await.expect("nobody else did that");
    hooked.shut_down(gw).await;
    assert_eq!(world.service.with(|kept| kept.webhook.0.clone()), "", "taken back at the end");
    assert_eq!(count("deleteWebhook"), 2);
}

#[tokio::test]
async fn somebody_else_at_the_token_is_a_critical_alert_once() {
    let world = TelegramFixture::new(PEOPLE).await;
    world.service.with(|kept| kept.webhook.0 = "https://evil.example/".into());
    let telegram: Arc<dyn channels::Channel> = world.telegram.clone();
    for failures in 0..3 {
        assert!(outbox::turn(&world.house.gw, telegram.as_ref(), failures).await.is_some());
    }
    let told = world.house.gw.store.due_messages(world.house.gw.now(), 10).await.unwrap();
    let alerts: Vec<_> = told.iter().filter(|one| one.message.topic == "channel.broken").collect();
    assert_eq!(alerts.len(), 1, "{told:?}");
    assert_eq!(alerts[0].message.severity, sluice_store::MessageSeverity::Critical);
    let why = alerts[0].message.body["why"].as_str().unwrap();
    assert!(why.contains("409") && why.contains("another program uses the token"), "{why}");
    assert!(!why.contains(TOKEN));
}
