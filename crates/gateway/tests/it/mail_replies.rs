//! What people write back is heard whole or not at all, over every channel.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluice_gateway::channels;
use sluice_gateway::loops::outbox::OutboxLoop;
use tokio::task::JoinSet;

use crate::http::{OpenTestGateway, RawHttpAnswer, ask, open};
use crate::mail::server;
use crate::telegram::{ANA, PEOPLE, TelegramFixture, written};
use crate::test_gateway::TestGatewayPlan;

/// A gateway that asks by mail and takes replies at its endpoint.
struct MailReplyFixture {
    open: OpenTestGateway,
    outbox: OutboxLoop,
    mails: Arc<Mutex<Vec<String>>>,
    asked: u32,
    _serves: JoinSet<()>,
}

impl MailReplyFixture {
    async fn new() -> Self {
        let (port, mails, serves) = server().await;
        let config = format!(
            "approvals: {{people: [{{name: ana, email: ana@example.test}}], prompts_per_hour: 1000, prompts_per_agent: 1000}}\n\
             email: {{smtp_host: 127.0.0.1, smtp_port: {port}, smtp_security: off, from: gate@example.test}}\n"
        );
        let open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
        let outbox = OutboxLoop::new(channels::configured(&open.house.gw.config).unwrap());
        Self { open, outbox, mails, asked: 0, _serves: serves }
    }

    /// Asks, and gives the question's id and the token of its letter.
    async fn ask(&mut self) -> (String, String) {
        self.asked += 1;
        let preview = format!("kubectl delete pod {}", self.asked);
        let wish = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Run it", "preview": preview});
        let made = ask(self.open.main, "POST", "/v1/approvals", &self.open.house.agent_key, Some(&wish)).await.json();
        (made["approval_id"].as_str().unwrap().to_owned(), self.token().await)
    }

    /// The token of the newest mail.
    async fn token(&self) -> String {
        let mail = self.mail().await;
        let at = mail.rfind("sgr_").unwrap_or_else(|| panic!("a token in {mail}"));
        mail[at..at + 26].to_owned()
    }

    /// The newest mail, after everything has been sent.
    async fn mail(&self) -> String {
        self.outbox.step(&self.open.house.gw).await.unwrap();
        self.mails.lock().unwrap().last().cloned().unwrap_or_default().replace("=\n", "").replace("=E2=94=82", "│")
    }

    async fn reply(&self, id: &str, token: &str, body: &str) -> RawHttpAnswer {
        let reply = json!({"from": "ana@example.test", "subject": format!("Re: [{id}] [{token}]"), "body": body});
        ask(self.open.main, "POST", "/v1/inbox/email-reply", &self.open.house.inbox_key, Some(&reply)).await
    }

    async fn seen(&self, id: &str) -> Value {
        ask(self.open.main, "GET", &format!("/v1/approvals/{id}"), &self.open.house.agent_key, None).await.json()
    }
}

/// A quote of a letter as mail programs make it.
fn quote(id: &str) -> String {
    format!("On Tue, 5 Nov 2024 at 10:02, Gate <gate@example.test> wrote:\n> Approve? Run it\n>\n> {id}\n> 3  Deny")
}

#[tokio::test]
async fn a_changed_text_counts_whole() {
    let mut desk = MailReplyFixture::new().await;
    for text in [
        "kubectl delete pod x\n--dry-run=client",
        "make\n__all__",
        "test a\n== b",
        "x\n**bold** y",
        "To: bob@example.com\nSubject: no",
        "one\n\ntwo\n\nthree",
    ] {
        for end in [String::new(), "\n\nOn Tue...".into(), format!("\n\n{}", quote("appr_X"))] {
            let (id, token) = desk.ask().await;
            let body = format!("5 {text}{}", end.replace("appr_X", &id));
            let answer = desk.reply(&id, &token, &body).await;
            assert_eq!(answer.status, 200, "{body:?}: {answer:?}");
            assert_eq!(desk.seen(&id).await["decision"]["override"], json!(text), "{body:?}");
        }
    }
}

#[tokio::test]
async fn a_text_of_which_something_was_left_out_decides_nothing_until_it_is_confirmed() {
    let mut desk = MailReplyFixture::new().await;
    for (code, words, rest) in [
        ("5", "echo hi", "\n> /tmp/x"),
        ("5", "cat x", "\n| grep y"),
        ("5", "git checkout", "\n--\nfile"),
        ("5", "run it", "\n\n-- \nAna"),
        ("4", "fine", "\n\nSent from my iPhone"),
        ("4", "fine", "\n\nOn 5 Nov 2024 Bob wrote:\n> not today"),
        ("5", "a", "\n\n-----Original Message-----\nFrom: Bob\n\nb"),
        ("4", "fine", "\n> 1\nbut not today"),
    ] {
        let (id, token) = desk.ask().await;
        let body = format!("{code} {words}{rest}");
        let answer = desk.reply(&id, &token, &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (422, "approval.unclear_reply"), "{body:?}: {answer:?}");
        assert_eq!(desk.seen(&id).await["status"], "pending", "{body:?}");
        let mail = desk.mail().await;
        assert!(mail.contains("Confirm?") && mail.contains(&format!("│ {words}")), "{body:?}: {mail}");
        let second = desk.token().await;
        assert_ne!(second, token, "a token of its own");
        // The first letter's token confirms nothing, and neither does a plain yes.
        assert_eq!(desk.reply(&id, &token, "confirm").await.status, 422);
        assert_eq!(desk.reply(&id, &second, "1").await.status, 422, "which of the two would that be");
        assert_eq!(desk.reply(&id, &second, "confirm\n> 1\nor not").await.status, 422);
        assert_eq!(desk.seen(&id).await["status"], "pending", "{body:?}");
        let confirmed = desk.reply(&id, &second, &format!("Confirm\n\n{}", quote(&id))).await;
        assert_eq!(confirmed.status, 200, "{body:?}: {confirmed:?}");
        let decision = desk.seen(&id).await["decision"].clone();
        let said = if code == "5" { &decision["override"] } else { &decision["note"] };
        assert_eq!((decision["code"].as_str(), said), (Some(code), &json!(words)), "{body:?}");
    }
}

#[tokio::test]
async fn a_yes_with_more_below_it_is_none_and_a_no_takes_its_reason() {
    let mut desk = MailReplyFixture::new().await;
    for body in
        ["1 thanks", "1\n\nno wait", "1\n--dry-run", "1\n> 1  Allow once\nno wait", "2\n\nThanks,\nAna", "6\n\nP.S."]
    {
        let (id, token) = desk.ask().await;
        let answer = desk.reply(&id, &token, body).await;
        assert_eq!(answer.status, 422, "{body:?}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("1  Allow once"), "what would count: {answer:?}");
        assert_eq!(desk.seen(&id).await["status"], "pending", "{body:?}");
    }
    for (body, reason) in [
        ("3", None),
        ("3 too risky", Some("too risky")),
        ("3\n\nnot before Monday\n\nAna", Some("not before Monday\n\nAna")),
        ("3 no\n-- \nAna", Some("no")),
    ] {
        let (id, token) = desk.ask().await;
        assert_eq!(desk.reply(&id, &token, body).await.json()["status"], "denied", "{body:?}");
        let decision = desk.seen(&id).await["decision"].clone();
        assert_eq!((&decision["code"], &decision["note"]), (&json!("3"), &json!(reason)), "{body:?}");
    }
    for body in
        ["1", "1\n-- \nAna", "1\n\nSent from my iPhone", "1\n\nOn Tue, 5 Nov 2024, gate@example.test wrote:\n> 3  Deny"]
    {
        let (id, token) = desk.ask().await;
        assert_eq!(desk.reply(&id, &token, body).await.json()["status"], "approved", "{body:?}");
    }
}

#[tokio::test]
async fn a_telegram_text_that_lost_its_marks_is_confirmed_first() {
    let world = TelegramFixture::new(PEOPLE).await;
    let say = |letter: &Value, text: &str, kinds: &[&str]| {
        let (chat, number) = (letter["chat"]["id"].as_i64().unwrap(), letter["message_id"].as_i64().unwrap());
        let mut update = written(ANA, chat, number, text);
        let entity = |kind: &&str| json!({"type": kind, "offset": 2, "length": 1});
        update["message"]["entities"] = kinds.iter().map(entity).collect();
        world.service.push(update);
    };
    for (kinds, needs_confirming) in [
        (&["code"][..], true),
        (&["bold"], true),
        (&["strikethrough"], true),
        (&["text_link"], true),
        (&["url", "mention"], false),
        (&[], false),
    ] {
        let id = world.ask(&format!("{}.txt", kinds.join("-"))).await;
        world.tell().await;
        let letter = world.service.letter();
        say(&letter, "4 echo date --utc", kinds);
        world.hear().await.unwrap();
        assert_eq!(world.state(&id).await, if needs_confirming { "pending" } else { "approved" }, "{kinds:?}");
        if !needs_confirming {
            continue;
        }
        world.tell().await;
        let confirm = world.service.letter();
        let text = confirm["text"].as_str().unwrap();
        assert!(text.starts_with("Confirm?") && text.contains("│ echo date --utc"), "{text}");
        world.service.write(ANA, &confirm, "1");
        world.hear().await.unwrap();
        assert_eq!(world.state(&id).await, "pending", "a plain yes could mean either");
        world.service.press(ANA, &confirm, "Allow exactly this");
        world.hear().await.unwrap();
        let card = world.house.gw.store.approval(id.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!((card.approval.state.word(), card.approval.note.as_deref()), ("approved", Some("echo date --utc")));
    }
}

#[tokio::test]
async fn a_telegram_text_cut_by_its_length_is_not_taken_for_whole() {
    let world = TelegramFixture::new(PEOPLE).await;
    let id = world.ask("long.txt").await;
    world.tell().await;
    let letter = world.service.letter();
    world.service.write(ANA, &letter, &format!("4 {}", "x".repeat(4094)));
    world.hear().await.unwrap();
    assert_eq!(world.state(&id).await, "pending");
    world.service.write(ANA, &letter, "3 too risky");
    world.hear().await.unwrap();
    let card = world.house.gw.store.approval(id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((card.approval.state.word(), card.approval.note.as_deref()), ("denied", Some("too risky")));
}

#[tokio::test]
async fn a_decision_of_which_something_would_be_left_out_is_refused() {
    let desk = &mut MailReplyFixture::new().await;
    let (id, _) = desk.ask().await;
    let path = format!("/v1/approvals/{id}/decision");
    let token = &desk.open.house.operator_token;
    for body in [
        json!({"decision": "approve", "text": "npm test"}),
        json!({"decision": "approve", "arguments": {"x": 1}}),
        json!({"decision": "approve", "first": 3}),
        json!({"decision": "modify", "text": "npm test", "note": "please"}),
    ] {
        let answer = ask(desk.open.main, "POST", &path, token, Some(&body)).await;
        assert_eq!(answer.code(), "door.parameter", "{body}: {answer:?}");
        assert_eq!(desk.seen(&id).await["status"], "pending", "{body}");
    }
    let denied = ask(desk.open.main, "POST", &path, token, Some(&json!({"decision": "deny", "text": "no"}))).await;
    assert_eq!(denied.json()["status"], "denied", "a denial counts, whatever else was sent");
}

#[tokio::test]
async fn impossible_places_wrong_types_and_unknown_ids_are_said_at_once() {
    let open =
        open(TestGatewayPlan { config: "approvals: {targets: any}\n".into(), ..TestGatewayPlan::default() }).await;
    let base = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Run", "preview": "ls"});
    let with = |fields: Value| {
        let mut body = base.clone();
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let create = async |body: &Value| ask(open.main, "POST", "/v1/approvals", &open.house.agent_key, Some(body)).await;
    for (fields, text) in [
        (json!({"channel": "email", "target": {"email_to": "not-an-address"}}), "`target.email_to`"),
        (json!({"channel": "email", "target": {"email_to": "a@b"}}), "`target.email_to`"),
        (json!({"channel": "email", "target": {"email_to": ["a@b.example"]}}), "`target.email_to`"),
        (json!({"channel": "telegram", "target": {"tg_chat_id": "9".repeat(500)}}), "`target.tg_chat_id`"),
        (json!({"channel": "telegram", "target": {"tg_chat_id": {"id": 1}}}), "`target.tg_chat_id`"),
        (json!({"channel": "telegram", "target": ["123", "a@b.example"]}), "`target`"),
        (json!({"title": 5}), "`title`"),
        (json!({"expires_in_sec": "soon"}), "`expires_in_sec`"),
        (json!({"options": [1]}), "`options`"),
    ] {
        let answer = create(&with(fields.clone())).await;
        assert_eq!(answer.status, 422, "{fields}: {answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(text), "{fields}: {answer:?}");
    }
    let positional = create(&json!(["s", "exec_cmd", "Run", "ls"])).await;
    assert_eq!(positional.code(), "schema.wrong_type", "{positional:?}");
    assert_eq!(
        create(&with(json!({"channel": "telegram", "target": {"tg_chat_id": -1001234567890_i64}}))).await.status,
        200
    );
    for id in ["appr_unknown".to_owned(), format!("appr_{:032x}", 9)] {
        let (main, house) = (open.main, &open.house);
        let path = format!("/v1/approvals/{id}");
        assert_eq!(ask(main, "GET", &path, &house.operator_token, None).await.code(), "approval.not_found", "{id}");
        assert_eq!(ask(main, "GET", &path, &house.agent_key, None).await.code(), "approval.not_found", "{id}");
        let decide = Some(json!({"decision": "deny"}));
        let decided = ask(main, "POST", &format!("{path}/decision"), &house.operator_token, decide.as_ref()).await;
        assert_eq!(decided.code(), "approval.not_found", "{id}");
        let reply = json!({"subject": format!("Re: [{id}]"), "body": "1"});
        let replied = ask(main, "POST", "/v1/inbox/email-reply", &house.inbox_key, Some(&reply)).await;
        assert_eq!(replied.code(), "approval.not_found", "{id}");
    }
}
