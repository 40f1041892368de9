//! Telegram from end to end: a strict stand-in of the Bot API, our channel, and people who press and write.
//!
//! The stand-in keeps what the real service keeps: updates come again until an offset confirms them, buttons carry at
//! most 64 bytes, a chat has to exist, and it can be told to fail.

mod bot_api;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::channels::telegram::TelegramChannel;
use sluice_gateway::channels::{Channel, ChannelError};
use sluice_gateway::loops::outbox::OutboxLoop;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::test_gateway::{TestGateway, TestGatewayPlan};

pub(crate) const TOKEN: &str = "123456:AAtest_token-0";
pub(crate) const ANA: i64 = 1001;
pub(crate) const DAN: i64 = 1002;

/// What the service remembers.
#[derive(Default)]
pub(crate) struct TelegramStubState {
    pub(crate) messages: Vec<Value>,
    pub(crate) said: Vec<Value>,
    pub(crate) edits: Vec<Value>,
    pub(crate) answers: Vec<Value>,
    pub(crate) updates: VecDeque<Value>,
    next_update: i64,
    next_message: i64,
    /// Errors to give, first to last, before anything works again: method and answer.
    pub(crate) faults: VecDeque<(&'static str, u16, Value)>,
    /// Where updates are brought, and with which secret.
    pub(crate) webhook: (String, String),
    /// Every method that was called.
    pub(crate) called: Vec<String>,
    /// After the message was taken the line breaks, so often.
    lose_answers: u32,
}

pub(crate) struct TelegramStub {
    kept: Arc<Mutex<TelegramStubState>>,
    pub(crate) url: String,
    _serves: JoinSet<()>,
}

impl TelegramStub {
    pub(crate) async fn start() -> Self {
        let kept = Arc::new(Mutex::new(TelegramStubState {
            next_update: 100,
            next_message: 500,
            ..TelegramStubState::default()
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serves = JoinSet::new();
        let shared = Arc::clone(&kept);
        serves.spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&shared);
                lines.spawn(async move {
                    let service = service_fn(move |request| bot_api::answer(Arc::clone(&kept), request));
                    let _ended = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { kept, url, _serves: serves }
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut TelegramStubState) -> T) -> T {
        f(&mut self.kept.lock().unwrap())
    }

    /// The newest question that was shown.
    pub(crate) fn letter(&self) -> Value {
        self.with(|kept| kept.messages.last().cloned().expect("a letter"))
    }

    pub(crate) fn letters(&self) -> usize {
        self.with(|kept| kept.messages.len())
    }

    pub(crate) fn push(&self, mut update: Value) -> i64 {
        self.with(|kept| {
            kept.next_update += 1;
            update["update_id"] = kept.next_update.into();
            kept.updates.push_back(update);
            kept.next_update
        })
    }

    /// Somebody presses a button of a message.
    pub(crate) fn press(&self, who: i64, message: &Value, label: &str) {
        let data = button(message, label);
        self.push(press(who, message["chat"]["id"].as_i64().unwrap(), message["message_id"].as_i64().unwrap(), &data));
    }

    pub(crate) fn write(&self, who: i64, message: &Value, text: &str) {
        self.push(written(who, message["chat"]["id"].as_i64().unwrap(), message["message_id"].as_i64().unwrap(), text));
    }

    pub(crate) fn last_answer(&self) -> String {
        self.with(|kept| kept.answers.last().map(|said| said["text"].as_str().unwrap().to_owned()).unwrap_or_default())
    }

    pub(crate) fn last_said(&self) -> String {
        self.with(|kept| kept.said.last().map(|said| said["text"].as_str().unwrap().to_owned()).unwrap_or_default())
    }
}

pub(crate) fn press(who: i64, chat: i64, message: i64, data: &str) -> Value {
    json!({"callback_query": {
        "id": "77", "from": {"id": who, "is_bot": false}, "data": data, "chat_instance": "1",
        "message": {"message_id": message, "chat": {"id": chat, "type": "private"}, "date": 1},
    }})
}

pub(crate) fn written(who: i64, chat: i64, to: i64, text: &str) -> Value {
    json!({"message": {
        "message_id": 9000, "from": {"id": who, "is_bot": false}, "chat": {"id": chat, "type": "private"}, "date": 1,
        "text": text, "reply_to_message": {"message_id": to, "chat": {"id": chat}},
    }})
}

pub(crate) fn button(message: &Value, label: &str) -> String {
    let rows = message["reply_markup"]["inline_keyboard"].as_array().unwrap();
    let mut all = rows.iter().flat_map(|row| row.as_array().unwrap());
    let found = all.find(|button| button["text"].as_str().unwrap().starts_with(label));
    found.unwrap_or_else(|| panic!("no button {label} in {rows:?}"))["callback_data"].as_str().unwrap().to_owned()
}

/// A house whose writes need a person, with a bot.
pub(crate) struct TelegramFixture {
    pub(crate) house: TestGateway,
    pub(crate) service: TelegramStub,
    pub(crate) telegram: Arc<TelegramChannel>,
    pub(crate) outbox: OutboxLoop,
}

pub(crate) const PEOPLE: &str = "approvals:\n  people:\n    - {name: ana, telegram: 1001}\n";
/// Writes wait a while, so that the batch window finds them.
const SLOWLY: &str = "holds: {delays: {\"filesystem.*\": 30s}}\n";
pub(crate) const ASKS: &str = "rules: [{capability: \"filesystem.*\", tier: approval_required}]\n";

impl TelegramFixture {
    pub(crate) async fn new(approvals: &str) -> Self {
        Self::under(approvals, ASKS).await
    }

    /// With these rules for the agent.
    pub(crate) async fn under(approvals: &str, rules: &str) -> Self {
        let plan = TestGatewayPlan { config: approvals.into(), agent: rules.into(), ..TestGatewayPlan::default() };
        let house = TestGateway::new(plan).await;
        let service = TelegramStub::start().await;
        let file = house.folder.path().join("token");
        std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
        let telegram = Arc::new(TelegramChannel::new(&file, &service.url).unwrap());
        let outbox = OutboxLoop::new(vec![telegram.clone()]);
        Self { house, service, telegram, outbox }
    }

    pub(crate) async fn ask(&self, name: &str) -> String {
        let arguments = json!({"path": self.house.path(name), "content": "hello"});
        let answer = self.house.call("filesystem.write", arguments).await.unwrap();
        let sluice_gateway::corridor::CallOutcome::Awaiting { approval, .. } = answer else { panic!("{answer:?}") };
        approval.to_string()
    }

    pub(crate) async fn tell(&self) {
        self.outbox.step(&self.house.gw).await.unwrap();
    }

    pub(crate) async fn hear(&self) -> Result<(), ChannelError> {
        self.telegram.receive_answers(&self.house.gw).await
    }

    pub(crate) async fn state(&self, id: &str) -> String {
        let card = self.house.gw.store.approval(id.parse().unwrap()).await.unwrap().unwrap();
        card.approval.state.word().to_owned()
    }

    fn exists(&self, name: &str) -> bool {
        self.house.work().join(name).exists()
    }
}

#[tokio::test]
async fn a_call_becomes_a_message_a_press_approves_it_and_the_gateway_carries_it_out() {
    let mut world = TelegramFixture::new(PEOPLE).await;
    let id = world.ask("report.txt").await;
    world.tell().await;
    let letter = world.service.letter();
    let text = letter["text"].as_str().unwrap();
    for part in ["Approve? filesystem.write", "agent clerk", "report.txt", &id, "open until 20", "6  Always allow"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    world.tell().await;
    assert_eq!(world.service.letters(), 1, "shown once");
    world.service.press(ANA, &letter, "1");
    world.hear().await.unwrap();
    assert!(
        world.service.last_answer().starts_with("Done: allowed once by ana at 20"),
        "{}",
        world.service.last_answer()
    );
    world.house.pass(Millis::from_mins(10));
    world.house.let_go().await;
    assert!(world.exists("report.txt"), "the gateway carried it out");
    world.tell().await;
    let edits = world.service.with(|kept| kept.edits.clone());
    assert_eq!(edits.len(), 1);
    let shown = edits[0]["text"].as_str().unwrap();
    assert!(shown.starts_with("Allowed: filesystem.write\nallowed once by ana at"), "{shown}");
    assert!(edits[0].get("reply_markup").is_none(), "nothing can be pressed any more");
    world.tell().await;
    assert_eq!(world.service.with(|kept| kept.edits.len()), 1);
}

#[tokio::test]
async fn replies_carry_notes_and_unclear_ones_decide_nothing() {
    let world = TelegramFixture::new(PEOPLE).await;
    let id = world.ask("a").await;
    world.tell().await;
    let letter = world.service.letter();
    for unclear in ["no", "3?", "1 and 2", "👍", "yes please", "4", "1\n\nno wait"] {
        world.service.write(ANA, &letter, unclear);
        world.hear().await.unwrap();
        assert_eq!(world.state(&id).await, "pending", "{unclear}");
        let said = world.service.with(|kept| kept.said.clone());
        assert_eq!(said.len(), 1, "the menu once, not each time: {unclear}");
        let words = said[0]["text"].as_str().unwrap();
        assert!(words.contains("Nothing was decided") && words.contains("6  Always allow"), "{words}");
    }
    let second = world.ask("b").await;
    world.tell().await;
    world.service.write(ANA, &world.service.letter(), "yes");
    world.hear().await.unwrap();
    assert_eq!(world.service.with(|kept| kept.said.len()), 2, "another question has its own");
    assert_eq!(world.state(&second).await, "pending");
    world.service.write(ANA, &letter, "5 other words");
    world.hear().await.unwrap();
    assert!(world.service.last_said().contains("sluice approvals modify"), "{}", world.service.last_said());
    assert_eq!(world.state(&id).await, "pending");
    world.service.write(ANA, &letter, "4 only this one");
    world.hear().await.unwrap();
    assert_eq!(world.state(&id).await, "approved");
    world.service.press(ANA, &letter, "3");
    world.hear().await.unwrap();
    assert!(world.service.last_answer().starts_with("Nothing changed: it was already allowed once by ana"));
}

#[tokio::test]
async fn a_replayed_update_is_heard_once_and_the_offset_survives_a_restart() {
    let mut world = TelegramFixture::new(PEOPLE).await;
    let first = world.ask("a").await;
    world.tell().await;
    world.service.press(ANA, &world.service.letter(), "1");
    world.hear().await.unwrap();
    let replay = world.service.with(|kept| kept.updates.front().cloned().unwrap());
    let answered = world.service.with(|kept| kept.answers.len());
    for _ in 0..100 {
        world.service.with(|kept| kept.updates.push_front(replay.clone()));
        // As if the confirmation had been lost: the service sends it again whatever we asked for.
        world.house.gw.store.set_channel_mark("telegram", "0@0".into()).await.unwrap();
        world.hear().await.unwrap();
        world.service.with(|kept| kept.updates.clear());
    }
    assert_eq!(world.service.with(|kept| kept.answers.len()), answered, "nobody is told twice");
    assert_eq!(world.state(&first).await, "approved");
    world.service.push(json!({"message": "nonsense"}));
    world.hear().await.unwrap();
    let kept = world.house.gw.store.channel_mark("telegram").await.unwrap();
    world.house = world.house.restart(Millis::from_secs(5)).await;
    assert_eq!(world.house.gw.store.channel_mark("telegram").await.unwrap(), kept);
    world.hear().await.unwrap();
    assert!(world.service.with(|kept| kept.updates.is_empty()), "confirmed updates are gone at the service");
}

#[tokio::test]
async fn a_lost_answer_repeats_the_letter_and_either_button_decides_once() {
    let world = TelegramFixture::new(PEOPLE).await;
    let id = world.ask("a").await;
    world.service.with(|kept| kept.lose_answers = 1);
    world.tell().await;
    assert_eq!(world.service.letters(), 1, "sent, but we do not know");
    world.house.pass(Millis::from_secs(61));
    world.tell().await;
    assert_eq!(world.service.letters(), 2, "so it is sent again");
    let (first, second) = world.service.with(|kept| (kept.messages[0].clone(), kept.messages[1].clone()));
    world.service.press(ANA, &first, "1");
    world.service.press(ANA, &second, "3");
    world.hear().await.unwrap();
    assert_eq!(world.state(&id).await, "approved");
    world.tell().await;
    let edited: Vec<Value> =
        world.service.with(|kept| kept.edits.iter().map(|edit| edit["message_id"].clone()).collect());
    assert_eq!(edited.len(), 2, "both letters show the outcome: {edited:?}");
}

#[tokio::test]
async fn limits_conflicts_and_missing_chats_are_told_apart() {
    let world = TelegramFixture::new(PEOPLE).await;
    world.ask("a").await;
    let busy =
        json!({"ok": false, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 9}});
    world.service.with(|kept| kept.faults.push_back(("sendMessage", 429, busy)));
    world.tell().await;
    assert_eq!(world.service.letters(), 0);
    world.house.pass(Millis::from_secs(8));
    world.tell().await;
    assert_eq!(world.service.letters(), 0, "not before it may");
    world.house.pass(Millis::from_secs(2));
    world.tell().await;
    assert_eq!(world.service.letters(), 1);
    let conflict =
        json!({"ok": false, "error_code": 409, "description": "Conflict: terminated by other getUpdates request"});
    world.service.with(|kept| kept.faults.push_back(("getUpdates", 409, conflict)));
    assert!(matches!(world.hear().await, Err(ChannelError::Broken { .. })));
    let elsewhere = TelegramFixture::new("approvals:\n  people:\n    - {name: eve, telegram: 666}\n").await;
    elsewhere.ask("a").await;
    elsewhere.tell().await;
    elsewhere.house.pass(Millis::from_mins(30));
    elsewhere.tell().await;
    assert_eq!(elsewhere.service.letters(), 0, "a chat that does not exist is not tried for ever");
}

#[tokio::test]
async fn a_question_decided_elsewhere_or_expired_is_edited_too() {
    let world = TelegramFixture::new(PEOPLE).await;
    let id = world.ask("a").await;
    world.tell().await;
    world.house.pass(Millis::from_hours(2));
    world.service.press(ANA, &world.service.letter(), "1");
    world.hear().await.unwrap();
    assert!(world.service.last_answer().starts_with("Nothing changed"), "{}", world.service.last_answer());
    sluice_gateway::loops::housekeeping::step(&world.house.gw, 1).await.unwrap();
    assert_eq!(world.state(&id).await, "expired");
    world.tell().await;
    let shown = world.service.with(|kept| kept.edits[0]["text"].as_str().unwrap().to_owned());
    assert!(shown.starts_with("Over: filesystem.write\nexpired at"), "{shown}");
}

#[tokio::test]
async fn nobody_answering_reminds_once_and_then_asks_a_second_person() {
    let config = "approvals:\n  people:\n    - {name: ana, telegram: 1001}\n    - {name: dan, telegram: 1002}\n  second: [dan]\n  remind_after: 5m\n  escalate_after: 20m\n";
    let world = TelegramFixture::new(config).await;
    let id = world.ask("a").await;
    world.tell().await;
    assert_eq!(world.service.letters(), 1);
    world.house.pass(Millis::from_mins(6));
    world.tell().await;
    world.tell().await;
    assert_eq!(world.service.with(|kept| kept.said.len()), 1, "{:?}", world.service.last_said());
    assert!(world.service.last_said().contains(&id));
    world.house.pass(Millis::from_mins(15));
    world.tell().await;
    world.tell().await;
    assert_eq!(world.service.letters(), 2);
    let letter = world.service.letter();
    assert_eq!(letter["chat"]["id"], DAN);
    world.service.press(DAN, &letter, "3");
    world.hear().await.unwrap();
    assert_eq!(world.state(&id).await, "denied");
    world.tell().await;
    assert_eq!(world.service.with(|kept| kept.edits.len()), 2, "everyone sees who decided");
}

#[tokio::test]
async fn freezing_works_by_button_by_reply_and_without_a_question() {
    let world = TelegramFixture::new(PEOPLE).await;
    world.ask("a").await;
    world.tell().await;
    world.service.press(ANA, &world.service.letter(), "Freeze");
    world.hear().await.unwrap();
    assert_eq!(world.service.last_answer(), "Frozen: agent clerk. Nothing covered by it starts until it is unfrozen.");
    let words = json!({"message": {"message_id": 1, "from": {"id": DAN}, "chat": {"id": DAN}, "date": 1, "text": "freeze all"}});
    world.service.push(words);
    world.hear().await.unwrap();
    assert_eq!(world.house.gw.store.freezes().await.unwrap().len(), 1, "a stranger stops nothing");
    let words = json!({"message": {"message_id": 1, "from": {"id": ANA}, "chat": {"id": ANA}, "date": 1, "text": "freeze all"}});
    world.service.push(words);
    world.hear().await.unwrap();
    assert_eq!(world.house.gw.store.freezes().await.unwrap().len(), 2);
}

#[tokio::test]
async fn more_questions_than_one_can_read_are_folded() {
    let world = TelegramFixture::new(&format!(
        "{PEOPLE}  prompts_per_hour: 2\n  expiry: 5h\n  remind_after: 0s\nbatch: {{services: {{filesystem: off}}}}\n"
    ))
    .await;
    for n in 0..5 {
        world.ask(&format!("f{n}")).await;
    }
    world.tell().await;
    assert_eq!(world.service.letters(), 2);
    let said = world.service.last_said();
    assert!(said.starts_with("agent clerk has 3 more approval requests waiting"), "{said}");
    world.house.pass(Millis::from_mins(2));
    world.tell().await;
    assert_eq!((world.service.letters(), world.service.with(|kept| kept.said.len())), (2, 1), "told once");
    for _ in 0..2 {
        world.house.pass(Millis::from_mins(61));
        world.tell().await;
    }
    assert_eq!(world.service.letters(), 5, "what was folded is shown when there is room again");
}

#[tokio::test]
async fn junk_questions_of_one_agent_take_no_prompt_from_another() {
    let world = TelegramFixture::new(&format!(
        "{PEOPLE}  prompts_per_hour: 10\n  expiry: 5h\n  remind_after: 0s\nbatch: {{services: {{filesystem: off}}}}\n"
    ))
    .await;
    for n in 0..31 {
        world.ask(&format!("junk{n}")).await;
    }
    world.tell().await;
    assert_eq!(world.service.letters(), 10, "the quota of one agent");
    let said = world.service.last_said();
    assert!(
        said.starts_with("agent clerk has 21 more approval requests waiting. See all: sluice approvals list"),
        "{said}"
    );
    // Others are asked as ever, even where all prompts of an hour are used up.
    let ids = sluice_testkit::ids::CountingIds::default();
    for (n, name) in ["scout", "porter", "cook"].into_iter().enumerate() {
        let mail = sluice_testkit::test_store::mail(&ids, name, "may I");
        let asked = sluice_store::Admission { tier: sluice_core::Tier::ApprovalRequired, ..mail };
        world.house.gw.store.admit(asked).await.unwrap();
        world.tell().await;
        assert_eq!(world.service.letters(), 11 + n, "{name}");
    }
    assert_eq!(world.service.with(|kept| kept.said.len()), 1, "one summary, not 21");
    let open = world.house.gw.store.open_approvals(100).await.unwrap();
    assert_eq!(open.len(), 34, "nothing is dropped: all of them are still open");
    world.house.pass(Millis::from_mins(61));
    world.tell().await;
    assert_eq!(world.service.letters(), 23, "the next ten follow when there is room again");
}

#[tokio::test]
async fn a_batch_is_one_message_and_is_answered_with_how_much_of_it() {
    let config = format!("{PEOPLE}batch: {{services: {{filesystem: {{limit: 1, window: 10m}}}}}}\n{SLOWLY}");
    let world = TelegramFixture::under(&config, "rules: []\n").await;
    let arguments = json!({"path": world.house.path("first"), "content": "hello"});
    world.house.call("filesystem.write", arguments).await.unwrap();
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(world.ask(&format!("f{n}")).await);
    }
    let card = ids.last().unwrap().clone();
    world.tell().await;
    let letter = world
        .service
        .with(|kept| kept.messages.iter().find(|m| m["text"].as_str().unwrap().contains(&card)).cloned())
        .unwrap();
    let text = letter["text"].as_str().unwrap();
    assert!(text.contains("writes at once") && text.contains("first N"), "{text}");
    world.service.write(ANA, &letter, "1");
    world.hear().await.unwrap();
    assert_eq!(world.state(&card).await, "pending", "a plain yes does not say to how many");
    world.service.write(ANA, &letter, "first 1");
    world.hear().await.unwrap();
    assert_eq!(world.state(&card).await, "approved", "{}", world.service.last_said());
}

#[tokio::test]
async fn what_is_above_the_channels_ceiling_has_no_yes_here() {
    let config = format!(
        "{PEOPLE}  telegram_ceiling: low\nbatch: {{services: {{filesystem: {{limit: 1, window: 10m}}}}}}\n{SLOWLY}"
    );
    let world = TelegramFixture::under(&config, "rules: []\n").await;
    let arguments = json!({"path": world.house.path("first"), "content": "hello"});
    world.house.call("filesystem.write", arguments).await.unwrap();
    let mut card = String::new();
    for n in 0..4 {
        card = world.ask(&format!("f{n}")).await;
    }
    world.tell().await;
    let letter = world
        .service
        .with(|kept| kept.messages.iter().find(|m| m["text"].as_str().unwrap().contains(&card)).cloned())
        .unwrap();
    assert!(letter["text"].as_str().unwrap().contains("cannot be approved here"));
    let rows = letter["reply_markup"]["inline_keyboard"].to_string();
    assert!(!rows.contains("Allow"), "{rows}");
    world.service.write(ANA, &letter, "first 1");
    world.hear().await.unwrap();
    assert!(world.service.last_said().contains("Nothing was decided"), "{}", world.service.last_said());
    assert_eq!(world.state(&card).await, "pending");
}
