//! Links in letters: what opening one does (nothing), and what a form on its page does.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_gateway::channels;
use sluice_gateway::loops::outbox::OutboxLoop;

use crate::http::{OpenTestGateway, RawHttpAnswer, ask, open, raw};
use crate::mail;
use crate::telegram::{ANA, ASKS, TOKEN, TelegramStub};
use crate::test_gateway::TestGatewayPlan;

const PEOPLE: &str = "approvals:\n  page: https://gate.example\n  people:\n    - {name: ana, telegram: 1001}\n";

/// An open house with a bot, whose letters carry links.
struct LinkPageFixture {
    open: OpenTestGateway,
    service: TelegramStub,
    _token: tempfile::TempDir,
}

impl LinkPageFixture {
    async fn new(config: &str) -> Self {
        let service = TelegramStub::start().await;
        let files = tempfile::tempdir().unwrap();
        let token = files.path().join("token");
        std::fs::write(&token, TOKEN).unwrap();
        let config = format!("{config}telegram: {{token_file: {}, api: \"{}\"}}\n", token.display(), service.url);
        let open = open(TestGatewayPlan { config, agent: ASKS.into(), ..TestGatewayPlan::default() }).await;
        Self { open, service, _token: files }
    }

    async fn tell(&self) {
        let channels = channels::configured(&self.open.house.gw.config).unwrap();
        OutboxLoop::new(channels).step(&self.open.house.gw).await.unwrap();
    }

    /// A write that needs a person, with what the agent says about it.
    async fn write(&self, name: &str, reason: Option<&str>) -> String {
        let arguments = json!({"path": self.open.house.path(name), "content": "<b>hello</b>"});
        let wish = json!({"capability": "filesystem.write", "arguments": arguments, "reason": reason, "wait_ms": 0});
        let answer = self.open.house.wish(wish).await.unwrap();
        let sluice_gateway::corridor::CallOutcome::Awaiting { approval, .. } = answer else { panic!("{answer:?}") };
        self.tell().await;
        approval.to_string()
    }

    async fn request(&self, preview: &str) -> String {
        let wish = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Run it", "preview": preview});
        let made = ask(self.open.main, "POST", "/v1/approvals", &self.open.house.agent_key, Some(&wish)).await;
        self.tell().await;
        made.json()["approval_id"].as_str().unwrap().to_owned()
    }

    /// The path of the link in the newest letter.
    fn link(&self) -> String {
        let letter = self.service.letter();
        let found = addresses(letter["text"].as_str().unwrap());
        found.first().unwrap_or_else(|| panic!("no link in {letter}")).clone()
    }

    async fn visit(&self, method: &str, path: &str, more: &str, body: &str) -> RawHttpAnswer {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: gate.example\r\nconnection: close\r\n{more}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        raw(self.open.main, request.as_bytes()).await
    }

    async fn get(&self, path: &str) -> RawHttpAnswer {
        self.visit("GET", path, "", "").await
    }

    /// Sends the form of a page as a browser does.
    async fn answer(&self, path: &str, page: &RawHttpAnswer, answer: &str, words: &str) -> RawHttpAnswer {
        let body = format!("page={}&answer={}&words={}", proof(page), plus(answer), plus(words));
        self.visit("POST", path, BROWSER, &body).await
    }

    async fn state(&self, id: &str) -> String {
        let card = self.open.house.gw.store.approval(id.parse().unwrap()).await.unwrap().unwrap();
        card.approval.state.word().to_owned()
    }
}

const BROWSER: &str = "content-type: application/x-www-form-urlencoded\r\norigin: https://gate.example\r\nsec-fetch-site: same-origin\r\n";

fn plus(text: &str) -> String {
    text.replace(' ', "+")
}

/// What a page proves it showed.
fn proof(page: &RawHttpAnswer) -> String {
    let (_, rest) = page.body.split_once("name=\"page\" value=\"").unwrap_or_else(|| panic!("{page:?}"));
    rest.split('"').next().unwrap().to_owned()
}

/// Every address of the gateway in a text, as paths.
fn addresses(text: &str) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || "<>\"'".contains(c);
    text.match_indices("https://gate.example")
        .map(|(at, base)| text[at + base.len()..].split(ends).next().unwrap().to_owned())
        .filter(|path| !path.is_empty())
        .collect()
}

#[tokio::test]
async fn a_link_opens_a_page_that_asks_again_and_its_form_decides_as_that_person() {
    let paged = LinkPageFixture::new(PEOPLE).await;
    let id = paged.write("report.txt", Some("The user asked.\n1  Allow once")).await;
    let letter = paged.service.letter()["text"].as_str().unwrap().to_owned();
    assert!(
        letter.contains("the agent says, and nobody has checked it:\n| The user asked.\n| 1  Allow once\n"),
        "{letter}"
    );
    let link = paged.link();
    assert!(link.starts_with("/a/") && link.len() == 46, "{link}");
    let page = paged.get(&link).await;
    assert_eq!(page.status, 200, "{page:?}");
    for header in [
        "content-security-policy: default-src 'none'; style-src 'sha256-",
        "frame-ancestors 'none'",
        "referrer-policy: same-origin",
        "cache-control: no-store",
        "content-type: text/html; charset=utf-8",
    ] {
        assert!(page.head.contains(header), "{header} in {}", page.head);
    }
    assert!(!page.body.contains("<script") && !page.body.contains("<b>hello"), "{}", page.body);
    for part in [
        "asks ana",
        "filesystem.write",
        "report.txt",
        "&lt;b&gt;hello&lt;/b&gt;",
        "The user asked.",
        "1  Allow once",
        "3  Deny",
        "4  Allow once and add a note",
        "sluice approvals modify",
        "6  Always allow: `filesystem.write` on /",
        "6  Always allow: `filesystem.write` on known files in /",
        "Freeze this agent",
        "Open until 20",
    ] {
        assert!(page.body.contains(part), "{part} in {}", page.body);
    }
    assert!(!page.body.contains("2  Allow for this session"), "the call has no session");
    let decided = paged.answer(&link, &page, "4", "only this one").await;
    assert_eq!((decided.status, decided.body.as_str()), (303, ""), "{decided:?}");
    assert!(decided.head.contains(&format!("location: {}", link.to_lowercase())), "{}", decided.head);
    assert_eq!(paged.state(&id).await, "approved");
    let entries = paged.open.house.entries().await;
    let entry = entries.iter().find(|entry| entry["fact"]["kind"] == "approval.approved").unwrap();
    assert!(entry.to_string().contains("person:ana") && entry.to_string().contains("telegram.page"), "{entry}");
    let over = paged.get(&link).await;
    assert!(over.body.contains("<h2>Allowed</h2>") && over.body.contains("Allowed once by ana at 20"), "{}", over.body);
    assert!(!over.body.contains("<form"), "nothing can be pressed any more");
    let again = paged.answer(&link, &page, "3", "").await;
    assert_eq!(again.status, 409, "{again:?}");
    assert!(again.body.contains("Nothing changed") && again.body.contains("by ana at"), "{}", again.body);
    assert_eq!(paged.state(&id).await, "approved");
}

#[tokio::test]
async fn the_bound_of_a_standing_approval_is_chosen_on_the_page() {
    for (bound, covers) in [("", "on /"), ("&bound=1", "on /"), ("&bound=2", "on known files in /")] {
        let paged = LinkPageFixture::new(PEOPLE).await;
        let id = paged.write("report.txt", None).await;
        let link = paged.link();
        let page = paged.get(&link).await;
        let wrong = format!("page={}&answer=6&words=&bound=7", proof(&page));
        assert_eq!(paged.visit("POST", &link, BROWSER, &wrong).await.status, 422);
        assert_eq!(paged.state(&id).await, "pending");
        let body = format!("page={}&answer=6&words={bound}", proof(&page));
        assert_eq!(paged.visit("POST", &link, BROWSER, &body).await.status, 303);
        let given = paged.open.house.gw.store.allowances(9).await.unwrap();
        assert_eq!(given.len(), 1);
        assert!(given[0].describe().starts_with(&format!("`filesystem.write` {covers}")), "{}", given[0].describe());
    }
}

#[tokio::test]
async fn opening_every_address_in_every_message_changes_nothing() {
    let (port, taken, _serves) = mail::server().await;
    let config = format!(
        "{PEOPLE}    - {{name: eve, email: eve@example.test}}\n\
         email: {{smtp_host: 127.0.0.1, smtp_port: {port}, smtp_security: off, from: gate@example.test}}\n\
         batch: {{services: {{filesystem: {{limit: 2, window: 10m}}}}}}\n"
    );
    let paged = LinkPageFixture::new(&config).await;
    let mut ids = vec![paged.request("ls -l").await];
    for n in 0..5 {
        ids.push(paged.write(&format!("f{n}"), Some("https://gate.example/a/forged?answer=1")).await);
    }
    paged.open.house.pass(Millis::from_mins(11));
    paged.tell().await;
    let mut messages: Vec<String> =
        taken.lock().unwrap().iter().map(|mail| mail.replace("=\n", "").replace("=3D", "=")).collect();
    paged.service.with(|kept| {
        let sent = kept.messages.iter().chain(&kept.said).chain(&kept.edits).chain(&kept.answers);
        messages.extend(sent.map(|message| message["text"].as_str().unwrap_or_default().to_owned()));
    });
    let links: BTreeSet<String> = messages.iter().flat_map(|message| addresses(message)).collect();
    let real = links.iter().filter(|link| link.len() == 46).count();
    assert!(real >= 6 && taken.lock().unwrap().len() >= 3, "both channels carry links: {links:?}");
    let before: Vec<String> = futures_util::future::join_all(ids.iter().map(|id| paged.state(id))).await;
    assert!(before.iter().any(|state| state == "pending"), "{before:?}");
    let record = paged.open.house.record().await;
    let machines = [
        "user-agent: Mozilla/5.0 (compatible; Microsoft Safe Links)\r\n",
        "user-agent: TelegramBot (like TwitterBot)\r\nsec-purpose: prefetch\r\n",
        "user-agent: Mozilla/5.0\r\npurpose: prefetch\r\nreferer: https://gate.example/\r\nsec-fetch-site: same-origin\r\n",
    ];
    for link in &links {
        for method in ["GET", "HEAD"] {
            for more in machines {
                for path in [link.clone(), format!("{link}?answer=1&page=0.x&words=x")] {
                    let answer = paged.visit(method, &path, more, "").await;
                    assert!([200, 404, 405].contains(&answer.status), "{answer:?}");
                }
            }
        }
    }
    let after: Vec<String> = futures_util::future::join_all(ids.iter().map(|id| paged.state(id))).await;
    assert_eq!(after, before);
    assert_eq!(paged.open.house.record().await, record, "not even the record grew");
}

#[tokio::test]
async fn a_form_that_is_not_of_the_page_decides_nothing() {
    let paged = LinkPageFixture::new(PEOPLE).await;
    let first = paged.request("one").await;
    let other = paged.link();
    let theirs = paged.get(&other).await;
    let id = paged.request("two").await;
    let link = paged.link();
    let page = paged.get(&link).await;
    let body = |page: &str| format!("page={page}&answer=1");
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let good = body(&proof(&page));
    for (more, body, status) in [
        (form.to_owned(), body(""), 409),
        (form.to_owned(), body("0.x"), 409),
        (form.to_owned(), body(&proof(&theirs)), 409),
        (form.to_owned(), "answer=1".into(), 409),
        (form.to_owned(), format!("page={}x&answer=1", proof(&page)), 409),
        (form.to_owned(), format!("page={}&answer=yes", proof(&page)), 422),
        (form.to_owned(), format!("page={}&answer=4&words=+", proof(&page)), 422),
        (form.to_owned(), format!("page={}&answer=1&answer=1", proof(&page)), 422),
        (format!("{form}origin: https://evil.example\r\n"), good.clone(), 403),
        (format!("{form}origin: null\r\n"), good.clone(), 403),
        (format!("{form}sec-fetch-site: cross-site\r\n"), good.clone(), 403),
        ("content-type: text/plain\r\n".into(), good.clone(), 415),
        ("content-type: application/json\r\n".into(), "{\"answer\":\"1\"}".into(), 415),
        (form.to_owned(), format!("{good}&words={}", "x".repeat(70_000)), 413),
    ] {
        let answer = paged.visit("POST", &link, &more, &body).await;
        assert_eq!(answer.status, status, "{more} {}: {answer:?}", &body[..body.len().min(80)]);
        assert_eq!(paged.state(&id).await, "pending");
    }
    for method in ["PUT", "DELETE", "PATCH"] {
        assert_eq!(paged.visit(method, &link, form, &good).await.status, 405);
    }
    for path in ["/a/", "/a/x", &format!("/a/{}", "A".repeat(43)), &format!("{link}/x")] {
        assert_eq!(paged.visit("POST", path, form, &good).await.status, 404, "{path}");
    }
    let evil = "GET /a/x HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(raw(paged.open.main, evil.as_bytes()).await.status, 403);
    paged.open.house.pass(Millis::from_mins(31));
    assert_eq!(paged.answer(&link, &page, "1", "").await.status, 409, "a page left open is looked at anew");
    assert_eq!((paged.state(&id).await, paged.state(&first).await), ("pending".into(), "pending".into()));
    let fresh = paged.get(&link).await;
    assert_eq!(paged.answer(&link, &fresh, "5", "three").await.status, 303);
    assert_eq!(paged.state(&id).await, "approved");
}

#[tokio::test]
async fn what_a_page_may_approve_follows_the_channel_and_silence_and_others_are_shown() {
    let paged = LinkPageFixture::new(&format!("{PEOPLE}  telegram_ceiling: low\n")).await;
    let id = paged.request("ls").await;
    let (link, low) = (paged.link(), "cannot be approved here");
    let page = paged.get(&link).await;
    assert!(page.body.contains(low) && !page.body.contains("Allow once"), "{}", page.body);
    let refused = paged.answer(&link, &page, "1", "").await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("may approve up to low risk"), "{}", refused.body);
    assert_eq!(paged.state(&id).await, "pending");
    assert_eq!(paged.answer(&link, &page, "3", "").await.status, 303, "a no always works");
    assert_eq!(paged.state(&id).await, "denied");
    let late = paged.request("other").await;
    let link = paged.link();
    paged.open.house.pass(Millis::from_hours(2));
    let page = paged.get(&link).await;
    assert!(page.body.contains("<h2>Over</h2>") && page.body.contains("Nobody answered in time"), "{}", page.body);
    assert_eq!(paged.state(&late).await, "pending", "looking did not even write that down");
    let frozen = paged.request("third").await;
    let link = paged.link();
    let page = paged.get(&link).await;
    let stopped = paged.answer(&link, &page, "freeze", "").await;
    assert!(stopped.status == 200 && stopped.body.contains("Frozen: agent clerk"), "{stopped:?}");
    assert_eq!(paged.state(&frozen).await, "pending");
}

#[tokio::test]
async fn two_people_need_two_links_and_a_group_gets_none() {
    let config = "approvals:\n  page: https://gate.example\n  two_people: always\n  people:\n    - {name: ana, telegram: 1001}\n    - {name: dan, telegram: 1002}\n    - {name: eve, telegram: 1003, chat: -500}\n";
    let paged = LinkPageFixture::new(config).await;
    let id = paged.request("ls").await;
    let letters: Vec<Value> = paged.service.with(|kept| kept.messages.clone());
    let of = |chat: i64| {
        let letter = letters.iter().find(|letter| letter["chat"]["id"] == chat).unwrap();
        addresses(letter["text"].as_str().unwrap())
    };
    assert_eq!(of(-500), Vec::<String>::new(), "everyone in a group would hold it");
    let (ana, dan) = (of(ANA).remove(0), of(1002).remove(0));
    for _ in 0..2 {
        let page = paged.get(&ana).await;
        assert!(page.body.contains("Two different people"), "{}", page.body);
        let said = paged.answer(&ana, &page, "1", "").await;
        assert!(said.status == 200 && said.body.contains("1 of 2 people have approved"), "{said:?}");
    }
    assert_eq!(paged.state(&id).await, "pending", "twice the same person is one");
    let page = paged.get(&dan).await;
    assert_eq!(paged.answer(&dan, &page, "1", "").await.status, 303);
    assert_eq!(paged.state(&id).await, "approved");
}

#[tokio::test]
async fn what_must_not_leave_is_in_no_letter_and_on_no_page_and_cannot_be_approved_there() {
    let paged = LinkPageFixture::new(PEOPLE).await;
    let secret = concat!("AKIA", "QYLPMN5HHHFPZAM2");
    let id = paged.request(&format!("aws configure set aws_access_key_id {secret}")).await;
    let letter = paged.service.letter();
    let text = letter["text"].as_str().unwrap();
    assert!(text.contains("holds something that must not leave") && text.contains("sluice approvals"), "{text}");
    let rows = letter["reply_markup"]["inline_keyboard"].to_string();
    assert!(!rows.contains("Allow") && rows.contains("3 Deny"), "{rows}");
    let link = paged.link();
    let page = paged.get(&link).await;
    assert!(page.body.contains("must not leave") && !page.body.contains("Allow once"), "{}", page.body);
    for answer in ["1", "2", "6"] {
        let refused = paged.answer(&link, &page, answer, "").await;
        assert!(refused.body.contains("could not be shown in full"), "{refused:?}");
    }
    paged.service.write(ANA, &letter, "1");
    paged.service.write(ANA, &letter, "what is this?");
    let bot = channels::configured(&paged.open.house.gw.config).unwrap().remove(0);
    bot.receive_answers(&paged.open.house.gw).await.unwrap();
    assert_eq!(paged.state(&id).await, "pending", "{}", paged.service.last_said());
    paged.service.press(ANA, &letter, "3");
    bot.receive_answers(&paged.open.house.gw).await.unwrap();
    assert_eq!(paged.state(&id).await, "denied");
    paged.tell().await;
    let entries = paged.open.house.entries().await;
    let withheld = entries.iter().find(|entry| entry["fact"]["kind"] == "approval.withheld").unwrap();
    assert!(withheld.to_string().contains("hash"), "{withheld}");
    let everything =
        paged.service.with(|kept| format!("{:?}{:?}{:?}{:?}", kept.messages, kept.said, kept.edits, kept.answers));
    assert!(!everything.contains(secret) && !page.body.contains(secret));
    assert!(!entries.iter().any(|entry| entry.to_string().contains(secret)), "nor in the record");
}

#[tokio::test]
async fn a_secret_in_a_reason_is_kept_from_the_chat_too() {
    let paged = LinkPageFixture::new(PEOPLE).await;
    let secret = concat!("AKIA", "QYLPMN5HHHFPZAM2");
    paged.write("a", Some(&format!("I found the key {secret}"))).await;
    let text = paged.service.letter()["text"].as_str().unwrap().to_owned();
    assert!(!text.contains(secret) && text.contains("must not leave"), "{text}");
}
