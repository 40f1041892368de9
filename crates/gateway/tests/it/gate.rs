//! The approval API as existing clients speak it: what they send, what they read, and what never decides.

use serde_json::{Value, json};
use sluice_core::Millis;

use crate::http::{OpenTestGateway, RawHttpAnswer, ask, open, raw};
use crate::test_gateway::TestGatewayPlan;

fn plan() -> TestGatewayPlan {
    TestGatewayPlan {
        config: "inbox: {trust_sender: true}\napprovals:\n  people: [{name: mail, telegram: 123456789, email: you@domain.com}]\n  targets: [\"telegram:123456789\", \"email:you@domain.com\"]\n"
            .into(),
        ..TestGatewayPlan::default()
    }
}

fn run(session: &str) -> Value {
    json!({
        "session_id": session, "action_type": "exec_cmd", "title": "Run command",
        "preview": "rm -rf ./build && npm run build", "channel": "telegram", "target": {"tg_chat_id": "123456789"},
        "expires_in_sec": 600,
    })
}

/// Another preview, so that it is another request.
fn other(session: &str, preview: &str) -> Value {
    let mut body = run(session);
    body["preview"] = preview.into();
    body
}

impl OpenTestGateway {
    async fn create(&self, body: &Value) -> RawHttpAnswer {
        ask(self.main, "POST", "/v1/approvals", &self.house.agent_key, Some(body)).await
    }

    async fn pending(&self, body: &Value) -> String {
        let made = self.create(body).await;
        assert_eq!((made.status, made.json()["status"].as_str()), (200, Some("pending")), "{made:?}");
        made.json()["approval_id"].as_str().unwrap().to_owned()
    }

    async fn look(&self, id: &str) -> RawHttpAnswer {
        ask(self.main, "GET", &format!("/v1/approvals/{id}"), &self.house.agent_key, None).await
    }

    async fn reply(&self, subject: &str, body: &str) -> RawHttpAnswer {
        let reply = json!({"from": "You <you@domain.com>", "subject": subject, "body": body});
        ask(self.main, "POST", "/v1/inbox/email-reply", &self.house.inbox_key, Some(&reply)).await
    }

    async fn status(&self, id: &str) -> String {
        self.look(id).await.json()["status"].as_str().unwrap().to_owned()
    }

    async fn second_client(&self) -> String {
        let admin = &self.house.operator_token;
        ask(self.main, "POST", "/v1/agents", admin, Some(&json!({"name": "other"}))).await;
        let made = ask(self.main, "POST", "/v1/keys", admin, Some(&json!({"agent": "other"}))).await;
        made.json()["token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_request_is_pending_until_one_reply_decides_it() {
    let open = open(plan()).await;
    let made = open.create(&run("sess_123")).await;
    assert_eq!(made.status, 200, "{made:?}");
    let body = made.json();
    let id = body["approval_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("appr_") && id.len() == 37);
    let expires = open.house.gw.now().as_millis() / 1000 + 600;
    assert_eq!(
        body,
        json!({"approval_id": id, "status": "pending", "auto": false, "expires_at": expires, "decision": null})
    );
    let seen = open.look(&id).await.json();
    assert_eq!(
        seen,
        json!({"status": "pending", "expires_at": expires, "decision": null, "session_id": null, "action_type": null,
            "approval_id": id})
    );
    let replied = open.reply(&format!("Re: Run command [{id}]"), "4 add logs\n\nOn Tue...").await;
    assert_eq!((replied.status, replied.json()), (200, json!({"status": "approved", "approval_id": id})));
    assert_eq!(
        open.look(&id).await.json(),
        json!({"status": "approved", "expires_at": expires, "decision": {"code": "4", "note": "add logs", "override": null},
            "session_id": "sess_123", "action_type": "exec_cmd", "approval_id": id})
    );
    let late = open.reply(&format!("[{id}]"), "3").await;
    assert_eq!(late.status, 409, "{late:?}");
    let detail = late.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("approval not pending: allowed once by mail at 20"), "{detail}");
}

#[tokio::test]
async fn an_override_comes_back_raw() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    assert_eq!(open.reply(&format!("[{id}]"), "5 npm test").await.json()["status"], "approved");
    let decision = open.look(&id).await.json()["decision"].clone();
    assert_eq!(decision, json!({"code": "5", "note": null, "override": "npm test"}));
}

#[tokio::test]
async fn a_no_is_a_no_and_silence_is_one_too() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    assert_eq!(open.reply(&format!("[{id}]"), "3").await.json()["status"], "denied");
    let seen = open.look(&id).await.json();
    assert_eq!((seen["status"].as_str(), seen["decision"]["code"].as_str()), (Some("denied"), Some("3")));
    let id = open.pending(&other("s", "second")).await;
    open.house.pass(Millis::from_secs(600));
    assert_eq!(open.status(&id).await, "expired", "on reading, without any loop");
    let late = open.reply(&format!("[{id}]"), "1").await;
    assert_eq!((late.status, late.json()["detail"].as_str()), (410, Some("approval expired")), "{late:?}");
    assert_eq!(open.status(&id).await, "expired");
}

#[tokio::test]
async fn a_session_yes_answers_its_session_with_two_and_nothing_else() {
    let open = open(plan()).await;
    let id = open.pending(&run("sess_1")).await;
    assert_eq!(open.reply(&format!("[{id}]"), "2").await.status, 200);
    let auto = open.create(&other("sess_1", "again")).await.json();
    assert_eq!((auto["status"].as_str(), auto["auto"].as_bool()), (Some("approved"), Some(true)));
    assert_eq!((auto["decision"]["code"].as_str(), &auto["expires_at"]), (Some("2"), &Value::Null));
    let seen = open.look(auto["approval_id"].as_str().unwrap()).await.json();
    assert_eq!((seen["status"].as_str(), seen["decision"]["code"].as_str()), (Some("approved"), Some("2")));
    assert_eq!(open.create(&other("sess_2", "x")).await.json()["status"], "pending");
    let mut kind = other("sess_1", "x");
    kind["action_type"] = "http_request".into();
    assert_eq!(open.create(&kind).await.json()["status"], "pending");
    let listed = ask(open.main, "GET", "/v1/session-allows", &open.house.operator_token, None).await.json();
    let allow = listed["data"][0]["allowance_id"].as_str().unwrap().to_owned();
    assert_eq!(listed["data"][0]["session_id"], "sess_1");
    let path = format!("/v1/session-allows/{allow}");
    assert_eq!(ask(open.main, "DELETE", &path, &open.house.operator_token, None).await.status, 204);
    assert_eq!(open.create(&other("sess_1", "after the end")).await.json()["status"], "pending");
}

#[tokio::test]
async fn an_allow_rule_answers_with_six_comes_first_and_can_be_revoked() {
    let open = open(plan()).await;
    let id = open.pending(&run("sess_1")).await;
    open.reply(&format!("[{id}]"), "2").await;
    let id = open.pending(&other("sess_2", "b")).await;
    open.reply(&format!("[{id}]"), "6").await;
    let auto = open.create(&other("sess_1", "c")).await.json();
    assert_eq!((auto["auto"].as_bool(), auto["decision"]["code"].as_str()), (Some(true), Some("6")));
    let rule = auto["rule_id"].as_str().unwrap().to_owned();
    let listed = ask(open.main, "GET", "/v1/allow-rules", &open.house.agent_key, None).await.json();
    assert_eq!(listed["data"][0]["rule_id"].as_str(), Some(rule.as_str()));
    let stranger = open.second_client().await;
    let path = format!("/v1/allow-rules/{rule}");
    let foreign = ask(open.main, "DELETE", &path, &stranger, None).await;
    assert_eq!((foreign.status, foreign.json()["detail"].as_str()), (404, Some("rule not found")));
    let gone = ask(open.main, "DELETE", &path, &open.house.agent_key, None).await;
    let client = sluice_gateway::keys::client_id(&open.house.agent_key);
    assert_eq!(
        (gone.status, gone.json()),
        (200, json!({"rule_id": rule, "status": "revoked", "client_id": client, "action_type": "exec_cmd"}))
    );
    assert_eq!(ask(open.main, "DELETE", &path, &open.house.agent_key, None).await.status, 404);
    assert_eq!(
        open.create(&other("sess_1", "d")).await.json()["decision"]["code"],
        "2",
        "the session is still allowed"
    );
    assert_eq!(open.create(&other("sess_3", "e")).await.json()["status"], "pending");
}

#[tokio::test]
async fn a_rule_of_an_operator_answers_its_client_only() {
    let open = open(plan()).await;
    let client = sluice_gateway::keys::client_id(&open.house.agent_key);
    let rule = json!({"client_id": client, "action_type": "exec_cmd"});
    let path = "/v1/allow-rules";
    assert_eq!(ask(open.main, "POST", path, &open.house.agent_key, Some(&rule)).await.code(), "identity.wrong_kind");
    assert_eq!(ask(open.main, "POST", path, &open.house.operator_token, Some(&rule)).await.status, 201);
    assert_eq!(open.create(&run("s")).await.json()["decision"]["code"], "6");
    let stranger = open.second_client().await;
    assert_eq!(ask(open.main, "POST", "/v1/approvals", &stranger, Some(&run("s"))).await.json()["status"], "pending");
}

#[tokio::test]
async fn a_question_with_options_is_answered_with_its_letter() {
    let open = open(plan()).await;
    let mut body = run("s");
    body["options"] = json!(["Use React", "Use Vue"]);
    let id = open.pending(&body).await;
    for unclear in ["1", "2", "6", "C", "A or B", "yes"] {
        assert_eq!(open.reply(&format!("[{id}]"), unclear).await.status, 422, "{unclear}");
    }
    assert_eq!(open.reply(&format!("[{id}]"), "b").await.json()["status"], "approved");
    let seen = open.look(&id).await.json();
    assert_eq!((seen["decision"]["code"].as_str(), seen["decision"]["note"].as_str()), (Some("4"), Some("B")));
    assert_eq!(seen["answer"], "Use Vue");
}

#[tokio::test]
async fn another_clients_request_does_not_exist() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    let stranger = open.second_client().await;
    let foreign = ask(open.main, "GET", &format!("/v1/approvals/{id}"), &stranger, None).await;
    assert_eq!((foreign.status, foreign.json()["detail"].as_str()), (404, Some("approval not found")));
    assert_eq!(open.look("appr_nonsense").await.status, 404);
    assert_eq!(open.look(&format!("appr_{:032x}", 7)).await.status, 404);
    let listed = ask(open.main, "GET", "/v1/approvals", &stranger, None).await.json();
    assert_eq!(listed["data"], json!([]));
    let own = ask(open.main, "GET", "/v1/approvals?state=pending", &open.house.agent_key, None).await.json();
    let row = &own["data"][0];
    assert_eq!((&row["title"], &row["action_type"]), (&json!("Run command"), &json!("exec_cmd")), "{own}");
    assert!(row["session_id"].is_string(), "which one is it: {own}");
    assert_eq!(own["data"][0]["approval_id"].as_str(), Some(id.as_str()));
    let operator = ask(open.main, "GET", &format!("/v1/approvals/{id}"), &open.house.operator_token, None).await.json();
    assert_eq!(
        (operator["subject"].as_str(), operator["request"]["title"].as_str()),
        (Some("request"), Some("Run command"))
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_with_the_status_clients_know() {
    let open = open(plan()).await;
    let nobody = ask(open.main, "POST", "/v1/approvals", "", Some(&run("s"))).await;
    let unknown = ask(open.main, "POST", "/v1/approvals", "dev-key", Some(&run("s"))).await;
    assert_eq!((nobody.status, unknown.status), (401, 401));
    let change = |key: &str, value: Value| {
        let mut body = run("s");
        body[key] = value;
        body
    };
    let mut missing = run("s");
    missing.as_object_mut().unwrap().remove("title");
    for (body, status, detail) in [
        (missing, 422, "missing field"),
        (change("expires_in_sec", json!(0)), 422, "expires_in_sec"),
        (change("expires_in_sec", json!("soon")), 422, "expected"),
        (change("channel", json!("pigeon")), 422, "channel"),
        (change("target", json!({})), 422, "target.tg_chat_id required"),
        (change("target", json!({"tg_chat_id": "666"})), 403, "the operator does not allow"),
        (change("title", json!("")), 422, "title"),
        (change("options", json!(["x".repeat(201)])), 422, "options"),
    ] {
        let answer = open.create(&body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.json()["detail"].as_str().unwrap().contains(detail), "{answer:?}");
    }
    let wrong_key = json!({"subject": "[appr_x]", "body": "1"});
    let agent = ask(open.main, "POST", "/v1/inbox/email-reply", &open.house.agent_key, Some(&wrong_key)).await;
    assert_eq!(agent.status, 403, "an agent cannot answer itself");
}

#[tokio::test]
async fn the_same_request_while_it_is_open_is_one_question() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    assert_eq!(open.pending(&run("s")).await, id);
    assert_ne!(open.pending(&other("s", "else")).await, id);
    open.reply(&format!("[{id}]"), "1").await;
    let again = open.pending(&run("s")).await;
    assert_ne!(again, id, "a yes given once does not answer the next one");
}

#[tokio::test]
async fn an_idempotency_key_names_one_request_for_good() {
    let open = open(plan()).await;
    let send = async |body: &Value, key: &str| {
        let text = body.to_string();
        let request = format!(
            "POST /v1/approvals HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{text}",
            open.house.agent_key,
            text.len()
        );
        raw(open.main, request.as_bytes()).await
    };
    let first = send(&run("s"), "one").await.json()["approval_id"].as_str().unwrap().to_owned();
    open.reply(&format!("[{first}]"), "1").await;
    let again = send(&run("s"), "one").await.json();
    assert_eq!((again["approval_id"].as_str(), again["status"].as_str()), (Some(first.as_str()), Some("approved")));
    assert_eq!(again["auto"], false);
    let reuse = send(&other("s", "else"), "one").await;
    assert_eq!((reuse.status, reuse.code().as_str()), (409, "call.key_reuse"));
    assert_ne!(send(&run("s"), "two").await.json()["approval_id"].as_str(), Some(first.as_str()));
}

#[tokio::test]
async fn whoever_waits_hears_the_answer_at_once() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    let path = format!("/v1/approvals/{id}?wait_ms=20000");
    let waits = ask(open.main, "GET", &path, &open.house.agent_key, None);
    let decides = async {
        // The waiter looks first; whichever way round it goes, the answer must be there.
        tokio::task::yield_now().await;
        open.reply(&format!("[{id}]"), "1").await
    };
    let (seen, _) = tokio::join!(waits, decides);
    assert_eq!(seen.json()["status"], "approved", "{seen:?}");
}

#[tokio::test]
async fn a_reply_that_is_unclear_decides_nothing_and_says_the_menu_again() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    let second = open.pending(&other("s", "second")).await;
    let subject = format!("Re: Run command [{id}]");
    let huge = format!("1{}", " ".repeat(300 * 1024));
    let menu = "> 1  Allow once\n> 2  Allow for this session\n> 3  Deny";
    for (subject, body, status) in [
        (subject.as_str(), "no", 422),
        (&subject, "3?", 422),
        (&subject, "1 and 2", 422),
        (&subject, "", 422),
        (&subject, "   \n\n", 422),
        (&subject, "👍", 422),
        (&subject, menu, 422),
        (&subject, "> 1", 422),
        (&subject, "4", 422),
        (&subject, "5   ", 422),
        (&subject, "7", 422),
        (&subject, "MQ==", 422),
        (&subject, "<p>1</p>", 422),
        (&subject, "\u{fffd}1", 422),
        (&subject, "---------- Forwarded message ----------\n1", 422),
        (&subject, &huge, 413),
        ("Re: Run command", "1", 422),
        ("[appr_]", "1", 422),
        (&format!("[{id}] [{second}]"), "1", 422),
        (&subject, &format!("1\n\n> see {second}"), 422),
        (&format!("[appr_{:032x}]", 9), "1", 404),
    ] {
        let answer = open.reply(subject, body).await;
        assert_eq!(answer.status, status, "{body:?}: {answer:?}");
    }
    let unclear = open.reply(&subject, "no").await.json();
    assert!(unclear["detail"].as_str().unwrap().contains("6  Allow every exec_cmd of this client"), "{unclear}");
    assert_eq!((open.status(&id).await.as_str(), open.status(&second).await.as_str()), ("pending", "pending"));
}

#[tokio::test]
async fn freezing_stops_requests_standing_yeses_and_late_yeses() {
    let open = open(plan()).await;
    let id = open.pending(&run("s")).await;
    open.reply(&format!("[{id}]"), "6").await;
    let mut second = other("s", "x");
    second["action_type"] = "http_request".into();
    let id = open.pending(&second).await;
    let frozen = open.reply(&format!("[{id}]"), "freeze").await;
    assert_eq!((frozen.status, frozen.json()["frozen"].as_str()), (200, Some("agent clerk")), "{frozen:?}");
    assert_eq!(open.create(&other("s", "y")).await.code(), "freeze.active", "not even a rule answers");
    assert_eq!(open.reply(&format!("[{id}]"), "1").await.code(), "freeze.active");
    assert_eq!(open.status(&id).await, "pending");
    assert_eq!(open.reply(&format!("[{id}]"), "3").await.json()["status"], "denied", "a no always works");
}

#[tokio::test]
async fn nothing_an_agent_can_reach_decides_anything() {
    let files = tempfile::tempdir().unwrap();
    let token = files.path().join("token");
    std::fs::write(&token, "1:abc").unwrap();
    let bot = format!(
        "telegram: {{token_file: {}, api: \"http://127.0.0.1:9\", webhook: \"https://gate.example\"}}\n",
        token.display()
    );
    let config = format!("{}  page: https://gate.example\n{bot}", plan().config);
    let open = open(TestGatewayPlan { config, ..plan() }).await;
    let id = open.pending(&run("s")).await;
    let key = &open.house.agent_key;
    for route in sluice_api::http::routes::all() {
        let path = route.path.replace("{approval_id}", &id).replace("{name}", "clerk");
        if path.contains('{') || route.path == "/v1/events" {
            continue;
        }
        for body in [
            json!({"decision": "approve"}),
            json!({"subject": format!("[{id}]"), "body": "1"}),
            json!({"client_id": sluice_gateway::keys::client_id(key), "action_type": "exec_cmd"}),
        ] {
            ask(open.main, route.method, &path, key, route.body.map(|_| &body)).await;
            ask(open.main, route.method, &format!("{path}?decision=approve&wait_ms=0"), key, route.body.map(|_| &body))
                .await;
        }
    }
    // What is not in the table: the pages of links, and the door for Telegram.
    for path in ["/a/", &format!("/a/{id}"), &format!("/a/{}", "A".repeat(43)), "/hooks/telegram", "/mcp"] {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE"] {
            for body in [json!({"answer": "1", "page": "0.x"}), json!({"update_id": 1, "message": {"text": "1"}})] {
                ask(open.main, method, path, key, (method != "GET" && method != "HEAD").then_some(&body)).await;
            }
            let form = "answer=1&page=0.x";
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
                 content-type: application/x-www-form-urlencoded\r\nx-telegram-bot-api-secret-token: {key}\r\n\
                 content-length: {}\r\n\r\n{form}",
                form.len()
            );
            raw(open.main, request.as_bytes()).await;
        }
    }
    assert_eq!(open.status(&id).await, "pending");
    assert_eq!(open.create(&other("s", "fresh")).await.json()["status"], "pending", "and no rule was made");
}

#[tokio::test]
async fn how_people_decide_is_counted_for_a_week() {
    let open = open(plan()).await;
    let decide = async |open: &OpenTestGateway, preview: &str, takes: Millis, answer: &str| {
        let id = open.pending(&other("s", preview)).await;
        open.house.pass(takes);
        let said = open.reply(&format!("Re: [{id}]"), answer).await;
        assert_eq!(said.status, 200, "{said:?}");
    };
    let stats = async |open: &OpenTestGateway| {
        ask(open.main, "GET", "/v1/approvals/stats", &open.house.operator_token, None).await
    };
    // Too long ago to count.
    decide(&open, "old", Millis::from_secs(1), "3").await;
    open.house.pass(Millis::from_hours(7 * 24));
    for (preview, seconds, answer) in [("a", 3, "1"), ("b", 9, "1"), ("c", 5, "3"), ("d", 40, "1")] {
        decide(&open, preview, Millis::from_secs(seconds), answer).await;
    }
    let counted = stats(&open).await.json();
    let person = &counted["people"][0];
    assert_eq!((&person["approved"], &person["denied"]), (&json!(3), &json!(1)), "{counted}");
    assert_eq!((&person["approval_rate"], &person["median_ms"]), (&json!(0.75), &json!(9_000)), "{counted}");
    assert_eq!(person["hasty"], false);
    for n in 0..20 {
        decide(&open, &format!("fast {n}"), Millis::from_secs(1), "1").await;
    }
    assert_eq!(stats(&open).await.json()["people"][0]["hasty"], true, "twenty yeses that nobody can have read");
}

#[tokio::test]
async fn two_people_are_asked_where_config_says_so() {
    let config = format!("{}  two_people: medium\n", plan().config);
    let open = open(TestGatewayPlan { config, ..plan() }).await;
    let id = open.pending(&run("s")).await;
    let first = open.reply(&format!("[{id}]"), "1").await.json();
    assert_eq!(first["status"], "pending", "one yes is not enough");
    assert_eq!(open.reply(&format!("[{id}]"), "1").await.json()["status"], "pending", "and twice the same is one");
    let path = format!("/v1/approvals/{id}/decision");
    let body = json!({"decision": "approve"});
    let second = ask(open.main, "POST", &path, &open.house.operator_token, Some(&body)).await;
    assert_eq!((second.status, second.json()["status"].as_str()), (200, Some("approved")), "{second:?}");
}

#[tokio::test]
async fn an_inbox_key_decides_nothing_for_somebody_who_only_knows_the_approvals_id() {
    let config = plan().config;
    let strict = config.replace("trust_sender: true", "trust_sender: false");
    assert_ne!(config, strict);
    for (config, from, decides) in [
        (&strict, None, false),
        (&strict, Some("you@domain.com"), false),
        (&config, None, false),
        (&config, Some("agent@evil.example"), false),
        (&config, Some("you@domain.com, agent@evil.example"), false),
        (&config, Some("eve@domain.com"), false),
        (&config, Some("You@Domain.com"), true),
    ] {
        let people = "people: [{name: eve, email: eve@domain.com}, ";
        let open = open(TestGatewayPlan { config: config.replace("people: [", people), ..plan() }).await;
        let id = open.pending(&run("s")).await;
        for body in ["1", "6", "3", "freeze all"] {
            let reply = json!({"from": from, "subject": format!("Re: Run command [{id}]"), "body": body});
            let said = ask(open.main, "POST", "/v1/inbox/email-reply", &open.house.inbox_key, Some(&reply)).await;
            if decides {
                assert_eq!((said.status, said.json()["status"].as_str()), (200, Some("approved")), "{from:?} {said:?}");
                break;
            }
            assert_eq!((said.status, said.code().as_str()), (403, "approval.reply_token"), "{from:?} {body}: {said:?}");
        }
        assert_eq!(open.status(&id).await, if decides { "approved" } else { "pending" }, "{from:?}");
        assert!(open.house.gw.store.freezes().await.unwrap().is_empty());
        if !decides {
            assert!(open.house.record().await.iter().any(|kind| kind == "channel.refused"), "it is on record");
        }
    }
}
