//! The dashboard, as a browser without JavaScript meets it: signing in, deciding, cancelling, freezing, and everything
//! that must not happen.

mod browser;

use std::fs;
use std::io::Read as _;

use serde_json::{Value, json};

use crate::cli_gateway::CliTestGateway;
use browser::DashboardTestBrowser;

/// Nothing leaves while a test looks at it.
const SLOW: &str = "holds: {delays: {\"filesystem.*\": 1h}}\n";

fn approval(call: &Value) -> &str {
    call["approval_id"].as_str().unwrap()
}

/// A delete, which the rules put to a person.
fn ask(gate: &CliTestGateway, name: &str) -> Value {
    fs::write(gate.path("workspace").join(name), "x").unwrap();
    gate.pending("filesystem.delete", &json!({"path": gate.workspace(name)}))
}

/// A write that is held.
fn hold(gate: &CliTestGateway, name: &str) -> Value {
    gate.pending("filesystem.write", &json!({"path": gate.workspace(name), "content": "x"}))
}

/// The digest of the card on the page, and what the card asks to be typed.
fn card(browser: &mut DashboardTestBrowser, id: &str) -> String {
    browser.open(&format!("/ui/approvals/{id}")).hidden("card")
}

#[test]
fn a_link_signs_a_person_in_once_and_its_session_can_be_ended() {
    let gate = CliTestGateway::open();
    let mut browser = DashboardTestBrowser::new(&gate);
    assert_eq!(browser.get("/").header("location"), Some("/ui"));
    assert_eq!(browser.get("/ui").header("location"), Some("/ui/login"));
    let made = gate.json(&["login"]);
    let (code, link) = (made["code"].as_str().unwrap(), made["link"].as_str().unwrap());
    assert_eq!(link, format!("{}/ui/login#{code}", gate.url), "the code is no part of what a server sees");
    let page = browser.sign_in(code);
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.starts_with("sluice_session=") && cookie.contains("HttpOnly; SameSite=Lax"), "{cookie}");
    let page = browser.open("/ui");
    assert!(page.has("Needs you") && page.has("sluice status"), "{}", page.html);

    let mut thief = DashboardTestBrowser::new(&gate);
    assert_eq!(thief.sign_in(code).status, 401, "a code works once");
    assert_eq!(thief.get("/ui").status, 303);
    let list = gate.json(&["login", "list"]);
    let id = list["data"][0]["dashboard_session_id"].as_str().unwrap();
    gate.works(&["login", "revoke", id]);
    assert_eq!(browser.get("/ui").header("location"), Some("/ui/login"), "the session has ended");
    let token = fs::read_to_string(gate.path("data/operator.token")).unwrap();
    for stored in ["data/sluice.db", "data/sluice.db-wal"] {
        let bytes = fs::read(gate.path(stored)).unwrap_or_default();
        let holds = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(!holds(code) && !holds(token.trim()), "{stored} holds a secret");
    }
    let written = fs::read_to_string(gate.bench.path("serve.err")).unwrap();
    assert!(!written.contains(code), "the log holds the code");
}

#[test]
fn an_operator_token_signs_in_and_nothing_else_does() {
    let gate = CliTestGateway::open();
    let token = fs::read_to_string(gate.path("data/operator.token")).unwrap();
    let agent = fs::read_to_string(gate.path("data/agents/assistant.key")).unwrap();
    let mut browser = DashboardTestBrowser::new(&gate);
    for bad in ["", "x", agent.trim(), &"A".repeat(43), "sgo_AAAA"] {
        let page = browser.sign_in(bad);
        assert!(page.status == 401 && !page.has(agent.trim()), "{bad}: {}", page.html);
    }
    // This machine is never locked out, however often somebody fails.
    for _ in 0..20 {
        browser.sign_in("wrong");
    }
    assert_eq!(browser.sign_in(&token).status, 303);
    browser.open("/ui/sessions");
    let ids: Vec<String> = gate.json(&["keys", "list"])["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|key| key["kind"] == "operator")
        .map(|key| key["key_id"].as_str().unwrap().to_owned())
        .collect();
    gate.works(&["keys", "create", "--operator", "bea", "--role", "admin"]);
    for id in ids {
        gate.run(&["keys", "revoke", &id]);
    }
    assert_eq!(browser.get("/ui").status, 303, "a session ends with its token");
}

#[test]
fn programs_at_the_root_get_no_page() {
    let gate = CliTestGateway::open();
    let browser = DashboardTestBrowser::new(&gate);
    let mut answer = String::new();
    browser.raw("GET / HTTP/1.1\r\naccept: application/json\r\n", "").read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("door.not_found"), "{answer}");
}

#[test]
fn a_form_that_is_not_from_a_page_of_the_session_does_nothing() {
    let gate = CliTestGateway::with(SLOW);
    let held = hold(&gate, "a.txt");
    let path = format!("/ui/holds/{}/cancel", held["buffer_id"].as_str().unwrap());
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let csrf = browser.open("/ui/pending").hidden("csrf");
    let own = gate.url.clone();
    let cases: [(&str, &[(&str, &str)]); 7] = [
        (&csrf, &[("origin", "https://evil.example")]),
        (&csrf, &[("origin", "null")]),
        (&csrf, &[("no-origin", "1")]),
        (&csrf, &[("origin", &own), ("sec-fetch-site", "cross-site")]),
        (&csrf, &[("origin", &own), ("sec-fetch-site", "same-site")]),
        ("", &[]),
        ("AAAA", &[]),
    ];
    for (token, headers) in cases {
        let page = browser.send(&path, &[("csrf", token)], headers);
        assert_eq!(page.status, 403, "{token} {headers:?}: {}", page.html);
    }
    // The token of another session of the same person does not count either.
    let other = DashboardTestBrowser::signed_in(&gate).open("/ui/pending").hidden("csrf");
    assert_eq!(browser.send(&path, &[("csrf", &other)], &[]).status, 403);
    assert_eq!(gate.json(&["holds", "show", held["buffer_id"].as_str().unwrap()])["state"], "held");
    assert_eq!(browser.get(&path).status, 404, "opening an address changes nothing");
    assert_eq!(browser.send(&path, &[("csrf", &csrf)], &[]).status, 303);
    assert_eq!(gate.json(&["holds", "show", held["buffer_id"].as_str().unwrap()])["state"], "cancelled");
}

#[test]
fn nobody_is_signed_in_by_another_site_and_no_page_is_framed_or_led_away() {
    let gate = CliTestGateway::open();
    let code = || gate.json(&["login"])["code"].as_str().unwrap().to_owned();
    let mut browser = DashboardTestBrowser::new(&gate);
    let form = browser.get("/ui/login").hidden("form");
    let first = code();
    let page = browser.send("/ui/login", &[("form", &form), ("secret", &first)], &[("origin", "https://evil.example")]);
    assert_eq!(page.status, 403);
    let kept = browser.cookies.clone();
    browser.cookies.clear();
    assert_eq!(browser.send("/ui/login", &[("form", &form), ("secret", &first)], &[]).status, 403, "no cookie");
    browser.cookies = kept;
    let page = browser.send("/ui/login", &[("form", &form), ("secret", &first), ("next", "https://evil.example")], &[]);
    assert_eq!((page.status, page.header("location")), (303, Some("/ui")));
    for path in ["/ui", "/ui/login", "/ui/approvals", "/ui/nothing"] {
        let page = browser.get(path);
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"), "{path}");
        assert!(!page.has("style=\"") && !page.has("<style") && !page.has("onclick"), "{path}");
    }
    let mut far = browser.raw("GET /ui HTTP/1.1\r\nhost: evil.example\r\naccept: text/html\r\n", "");
    let mut answer = String::new();
    far.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains("Needs you"), "{answer}");
}

#[test]
fn a_held_write_is_extended_and_cancelled_on_its_page() {
    let gate = CliTestGateway::with(SLOW);
    let held = hold(&gate, "a.txt");
    let (id, call) = (held["buffer_id"].as_str().unwrap(), held["call_id"].as_str().unwrap());
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let page = browser.open("/ui/pending");
    assert!(page.has("filesystem.write") && page.has("a.txt") && page.has("data-until"), "{}", page.html);
    let before = gate.json(&["holds", "show", id])["cancel_deadline"].clone();
    browser.submit(&format!("/ui/holds/{id}/extend"), &[("back", "/ui/pending")]);
    assert_ne!(gate.json(&["holds", "show", id])["cancel_deadline"], before);
    let page = browser.submit(&format!("/ui/holds/{id}/cancel"), &[("back", &format!("/ui/calls/{call}"))]);
    assert_eq!(page.header("location"), Some(format!("/ui/calls/{call}?done=cancelled").as_str()));
    let page = browser.open(&format!("/ui/calls/{call}"));
    assert!(page.has("cancelled the write: nothing was sent") && page.has("Timeline"), "{}", page.html);
    assert!(!gate.path("workspace/a.txt").exists());
    let late = browser.submit(&format!("/ui/holds/{id}/cancel"), &[("back", "/ui/pending")]);
    assert!(late.status == 409 && late.has("already cancelled"), "{} {}", late.status, late.html);
}

#[test]
fn many_writes_are_cancelled_by_tick_or_by_filter() {
    let gate = CliTestGateway::with(SLOW);
    let held: Vec<Value> = ["a", "b", "c"].iter().map(|name| hold(&gate, name)).collect();
    let id = |n: usize| held[n]["buffer_id"].as_str().unwrap();
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let page = browser.submit("/ui/pending/cancel", &[("which", "ticked"), ("back", "/ui/pending")]);
    assert_eq!(page.status, 422, "nothing is ticked");
    let page = browser.submit("/ui/pending/cancel", &[("which", "ticked"), ("pick", id(0)), ("back", "/ui/pending")]);
    assert_eq!(page.header("location"), Some("/ui/pending?done=cancelled&n=1&late=0"));
    let page =
        browser.submit("/ui/pending/cancel", &[("which", "all"), ("filter", "nonsense"), ("back", "/ui/pending")]);
    assert_eq!(page.status, 422, "a filter that is not understood cancels nothing");
    assert_eq!(gate.json(&["holds", "show", id(1)])["state"], "held");
    browser.submit("/ui/pending/cancel", &[("which", "all"), ("filter", "agent:assistant"), ("back", "/ui/pending")]);
    for n in 0..3 {
        assert_eq!(gate.json(&["holds", "show", id(n)])["state"], "cancelled");
    }
}

#[test]
fn two_people_who_decide_at_once_get_one_decision_and_the_second_reads_whose() {
    let gate = CliTestGateway::with(SLOW);
    let call = ask(&gate, "a.txt");
    let id = approval(&call);
    let (mut one, mut other) = (DashboardTestBrowser::signed_in(&gate), DashboardTestBrowser::signed_in(&gate));
    let page = one.open(&format!("/ui/approvals/{id}"));
    assert!(
        page.has("wants filesystem.delete") && page.has("Why you are asked") && page.has("Approve once"),
        "{}",
        page.html
    );
    let shown = card(&mut other, id);
    let path = format!("/ui/approvals/{id}/decide");
    let page = one.submit(&path, &[("decision", "deny:Not now"), ("reason", "tomorrow")]);
    assert_eq!(page.header("location"), Some(format!("/ui/approvals/{id}?done=denied").as_str()));
    let page = other.submit(&path, &[("decision", "approve"), ("card", shown.as_str()), ("note", "fine")]);
    assert_eq!(page.status, 409);
    assert!(page.has("already denied by") && page.has("Not now: tomorrow"), "{}", page.html);
    assert!(gate.path("workspace/a.txt").exists());
    assert_eq!(gate.json(&["approvals", "show", id])["note"], "Not now: tomorrow");
}

#[test]
fn an_approval_counts_for_the_card_that_was_shown_and_can_be_cancelled_until_it_leaves() {
    let gate = CliTestGateway::with(SLOW);
    let call = ask(&gate, "a.txt");
    let id = approval(&call);
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let path = format!("/ui/approvals/{id}/decide");
    for stale in ["", "sha256:00.00"] {
        let page = browser.submit(&path, &[("decision", "approve"), ("card", stale), ("note", "typed text")]);
        assert!(page.status == 409 && page.has("typed text"), "{} {}", page.status, page.html);
    }
    assert_eq!(gate.json(&["approvals", "show", id])["status"], "pending");
    let shown = card(&mut browser, id);
    let page = browser.submit(&path, &[("decision", "approve"), ("card", shown.as_str()), ("note", "go ahead")]);
    assert_eq!(page.status, 303, "{}", page.html);
    let page = browser.open(&format!("/ui/approvals/{id}"));
    assert!(page.has("Cancel it") && page.has("go ahead") && !page.has("Approve once"), "{}", page.html);
    let entries = gate.works(&["audit", "show", "--last", "50", "--json"]).replace(' ', "");
    assert!(entries.contains("\"code\":\"channel.dashboard\""), "{entries}");
    browser.submit(&format!("/ui/holds/{}/cancel", call["buffer_id"].as_str().unwrap()), &[]);
    assert!(gate.path("workspace/a.txt").exists());
}

#[test]
fn changed_arguments_are_judged_again_and_a_typing_error_loses_nothing() {
    let gate = CliTestGateway::with("holds: {delays: {\"filesystem.*\": 0s}}\n");
    let call = ask(&gate, "wrong.txt");
    fs::write(gate.path("workspace/right.txt"), "x").unwrap();
    let id = approval(&call);
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let shown = card(&mut browser, id);
    let path = format!("/ui/approvals/{id}/change");
    let page = browser.submit(&path, &[("card", shown.as_str()), ("arguments", "{\"path\": oops")]);
    assert!(page.status == 422 && page.has("oops") && page.has("not valid JSON"), "{} {}", page.status, page.html);
    let outside = browser.submit(&path, &[("card", shown.as_str()), ("arguments", "{\"path\": \"/etc/passwd\"}")]);
    assert!(outside.status >= 400, "{}", outside.status);
    let good = json!({"path": gate.workspace("right.txt")}).to_string();
    let page = browser.submit(&path, &[("card", shown.as_str()), ("arguments", &good)]);
    assert_eq!(page.status, 303, "{}", page.html);
    gate.until(|_| !gate.path("workspace/right.txt").exists());
    assert!(gate.path("workspace/wrong.txt").exists());
}

#[test]
fn a_batch_shows_every_write_and_lets_through_what_was_ticked() {
    let gate = CliTestGateway::with(
        "batch:\n  services:\n    filesystem: {limit: 1, window: 10m}\nholds: {delays: {\"filesystem.*\": 0s}}\n",
    );
    let write = |name: &str, content: &str| json!({"path": gate.workspace(name), "content": content});
    assert_eq!(gate.call("filesystem.write", &write("0.txt", "x"), &[]).code, 0);
    let long = "a much longer text than the others have ".repeat(20);
    let texts = [("1.txt", "x"), ("2.txt", "x"), ("3.txt", long.as_str()), ("4.txt", "x")];
    let calls: Vec<Value> =
        texts.iter().map(|(name, text)| gate.pending("filesystem.write", &write(name, text))).collect();
    let id = approval(&calls[0]);
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let page = browser.open(&format!("/ui/approvals/{id}"));
    assert!(page.has("wants 4 writes at once") && page.has("longest"), "{}", page.html);
    let place = |text: &str| page.html.find(text).unwrap_or_else(|| panic!("{text} is not shown"));
    let table = place("<table");
    let row = |name: &str| table + page.html[table..].find(name).unwrap();
    assert!(row("3.txt") < row("1.txt") && row("1.txt") < row("4.txt"), "the unusual write comes first");
    let shown = page.hidden("card");
    let path = format!("/ui/approvals/{id}/decide");
    let none = browser.submit(&path, &[("decision", "approve_these"), ("card", shown.as_str())]);
    assert_eq!(none.status, 422, "nothing was ticked");
    let first = gate.json(&["approvals", "show", id])["risk"].clone();
    let challenge = if first == "high" { "4" } else { "" };
    let picks = [
        ("decision", "approve_these"),
        ("card", shown.as_str()),
        ("challenge", challenge),
        ("pick", calls[1]["buffer_id"].as_str().unwrap()),
    ];
    let page = browser.submit(&path, &picks);
    assert_eq!(page.status, 303, "{}", page.html);
    gate.run(&["calls", "wait", calls[1]["call_id"].as_str().unwrap(), "--timeout", "60s"]);
    assert!(gate.path("workspace/2.txt").exists());
    for name in ["1.txt", "3.txt", "4.txt"] {
        assert!(!gate.path("workspace").join(name).exists(), "{name}");
    }
}

#[test]
fn a_viewer_reads_everything_and_changes_nothing() {
    let gate = CliTestGateway::with(SLOW);
    let (held, call) = (hold(&gate, "a.txt"), ask(&gate, "b.txt"));
    let made = gate.json(&["keys", "create", "--operator", "vera", "--role", "viewer"]);
    let mut browser = DashboardTestBrowser::new(&gate);
    assert_eq!(browser.sign_in(made["token"].as_str().unwrap()).status, 303);
    let page = browser.open(&format!("/ui/approvals/{}", approval(&call)));
    assert!(page.has("Your role is viewer") && !page.has("Approve once"), "{}", page.html);
    let csrf = page.hidden("csrf");
    let hold_id = held["buffer_id"].as_str().unwrap();
    let forms: [(String, Vec<(&str, &str)>); 7] = [
        (format!("/ui/holds/{hold_id}/cancel"), vec![]),
        (format!("/ui/holds/{hold_id}/send"), vec![]),
        ("/ui/pending/cancel".into(), vec![("which", "all")]),
        (format!("/ui/approvals/{}/decide", approval(&call)), vec![("decision", "deny")]),
        (format!("/ui/approvals/{}/change", approval(&call)), vec![("arguments", "{}")]),
        ("/ui/freeze".into(), vec![("scope", "all")]),
        ("/ui/unfreeze".into(), vec![("scope", "all")]),
    ];
    for (path, mut fields) in forms {
        fields.push(("csrf", &csrf));
        let page = browser.send(&path, &fields, &[]);
        assert!(page.status == 403 && page.has("your role is viewer"), "{path}: {} {}", page.status, page.html);
    }
    assert_eq!(gate.json(&["holds", "show", hold_id])["state"], "held");
    assert_eq!(gate.json(&["approvals", "show", approval(&call)])["status"], "pending");
    let own = gate.json(&["login", "list"])["data"].as_array().unwrap().len();
    assert_eq!(own, 1, "an admin sees the viewer's session");
    let page = browser.open("/ui/sessions");
    assert!(page.has("Where you are signed in"), "{}", page.html);
}

#[test]
fn what_was_typed_survives_a_session_that_ends_meanwhile() {
    let gate = CliTestGateway::with(SLOW);
    let call = ask(&gate, "a.txt");
    let id = approval(&call);
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let page = browser.open(&format!("/ui/approvals/{id}"));
    let (csrf, path) = (page.hidden("csrf"), format!("/ui/approvals/{id}/decide"));
    browser.cookies.remove("sluice_session");
    let text = "a long <b>reason</b> that took a while & more";
    let page = browser.send(&path, &[("csrf", &csrf), ("decision", "deny"), ("reason", text)], &[]);
    assert!(page.status == 401 && page.has("kept below") && !page.has("<b>reason"), "{}", page.html);
    assert_eq!(gate.json(&["approvals", "show", id])["status"], "pending");
    let code = gate.json(&["login"])["code"].as_str().unwrap().to_owned();
    let form = page.hidden("form");
    let fields = [
        ("form", form.as_str()),
        ("secret", code.as_str()),
        ("kept_action", path.as_str()),
        ("kept_name", "decision"),
        ("kept_value", "deny"),
        ("kept_name", "reason"),
        ("kept_value", text),
    ];
    let page = browser.send("/ui/login", &fields, &[]);
    assert!(page.status == 200 && page.has("Nothing of this was sent yet"), "{} {}", page.status, page.html);
    assert_eq!(gate.json(&["approvals", "show", id])["status"], "pending", "signing in sends nothing");
    let page = browser.send(&path, &[("csrf", &page.hidden("csrf")), ("decision", "deny"), ("reason", text)], &[]);
    assert_eq!(page.status, 303, "{}", page.html);
    assert_eq!(gate.json(&["approvals", "show", id])["note"], text);
    // A form of another site is not carried.
    browser.cookies.remove("sluice_session");
    let page = browser.send(&path, &[("decision", "approve")], &[("origin", "https://evil.example")]);
    assert!(page.status == 403 && !page.has("kept"), "{}", page.html);
}

#[test]
fn a_freeze_stops_what_it_names_and_is_shown_on_every_page() {
    let gate = CliTestGateway::open();
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let page = browser.submit("/ui/freeze", &[("scope", "agent:assistant"), ("reason", "looks <i>odd</i>")]);
    assert_eq!(page.header("location"), Some("/ui/freeze?done=frozen"), "{}", page.html);
    for path in ["/ui", "/ui/pending", "/ui/approvals", "/ui/dead", "/ui/alerts", "/ui/sessions"] {
        let page = browser.open(path);
        assert!(page.has("Frozen: Agent assistant") && !page.has("<i>odd"), "{path}: {}", page.html);
    }
    let run = gate.call("filesystem.write", &json!({"path": gate.workspace("a.txt"), "content": "x"}), &[]);
    assert!(
        run.stdout.contains("freeze.active") || run.stderr.contains("freeze.active"),
        "{}{}",
        run.stdout,
        run.stderr
    );
    assert_eq!(browser.submit("/ui/freeze", &[("scope", "everything")]).status, 422, "an unknown scope");
    browser.submit("/ui/unfreeze", &[("scope", "agent:assistant")]);
    assert!(!browser.open("/ui").has("Frozen:"));
}

#[test]
fn hostile_text_stays_text_on_every_page() {
    let gate = CliTestGateway::with(SLOW);
    let hostile = [
        "<script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</textarea><script>alert(1)</script>",
        "{{ csrf }}{% raw %}${1}",
        "\u{202e}gpj.exe\u{200b}\u{0007}",
        "javascript:alert(1)",
    ];
    let all = hostile.join(" ");
    fs::write(gate.path("workspace/a.txt"), "x").unwrap();
    let input = json!({"path": gate.workspace("a.txt")});
    let run = gate.call("filesystem.delete", &input, &["--reason", &all]);
    let call: Value = serde_json::from_str(&run.stdout).unwrap();
    let content = json!({"path": gate.workspace("x<script>alert(1)<.txt"), "content": all});
    let held = gate.pending("filesystem.write", &content);
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let id = approval(&call).to_owned();
    let call_page = format!("/ui/calls/{}", held["call_id"].as_str().unwrap());
    let card_page = format!("/ui/approvals/{id}");
    let check = |page: &browser::DashboardTestPage, what: &str| {
        let html = page.html.to_lowercase();
        for tag in [
            "<script>",
            "<img src=x",
            "' onmouseover",
            "</textarea><script",
            "\u{202e}",
            "\u{200b}",
            "\u{7}",
            "href=\"javascript",
        ] {
            assert!(!html.contains(tag), "{tag} on {what}: {}", page.html);
        }
        assert_eq!(html.matches("<script").count(), 1, "{what}: only our own script");
    };
    browser.submit("/ui/freeze", &[("scope", "service:email"), ("reason", &all)]);
    for path in [
        "/ui",
        "/ui/approvals",
        "/ui/approvals?state=all",
        "/ui/pending",
        "/ui/freeze",
        "/ui/dead",
        "/ui/alerts",
        "/ui/sessions",
        &call_page,
        &card_page,
    ] {
        check(&browser.open(path), path);
    }
    for one in hostile {
        let query = browser::encoded(&[
            ("filter", one),
            ("agent", one),
            ("done", one),
            ("after", one),
            ("state", one),
            ("next", one),
            ("q", one),
        ]);
        for path in ["/ui", "/ui/approvals", "/ui/pending", "/ui/alerts", "/ui/login", "/ui/freeze", "/ui/stream"] {
            check_any(&browser.get(&format!("{path}?{query}")), path);
        }
        for (path, fields) in [
            (format!("/ui/approvals/{id}/decide"), vec![("decision", one), ("note", one), ("reason", one)]),
            (format!("/ui/approvals/{id}/change"), vec![("arguments", one), ("card", one), ("challenge", one)]),
            ("/ui/freeze".to_owned(), vec![("scope", one), ("reason", one)]),
            ("/ui/pending/cancel".to_owned(), vec![("pick", one), ("filter", one), ("back", one)]),
            ("/ui/alerts/acknowledge".to_owned(), vec![("alert", one)]),
            ("/ui/sessions/end".to_owned(), vec![("session", one)]),
            ("/ui/dead/retry".to_owned(), vec![("pick", one)]),
        ] {
            let page = browser.submit(&path, &fields);
            assert!((400..500).contains(&page.status), "{path} {one}: {}", page.status);
            check_any(&page, &path);
        }
        check_any(&browser.sign_in(one), "sign in");
        // Signing in wrongly leaves the session as it was.
        browser.open("/ui");
    }
    browser.submit(&format!("/ui/approvals/{id}/decide"), &[("decision", "deny"), ("reason", &all)]);
    check(&browser.open(&card_page), "a decided card");
    check(&browser.open("/ui/approvals?state=decided"), "decided approvals");
}

fn check_any(page: &browser::DashboardTestPage, what: &str) {
    let html = page.html.to_lowercase();
    for tag in ["<script>", "<img src=x", "' onmouseover", "</textarea><script", "href=\"javascript"] {
        assert!(!html.contains(tag), "{tag} on {what}: {}", page.html);
    }
    assert!(page.header("location").is_none_or(|to| to.starts_with("/ui")), "{what}");
}

/// Reads a stream until it holds this.
fn read_until(stream: &mut std::net::TcpStream, part: &str) -> String {
    let (mut text, mut piece) = (String::new(), [0; 16_384]);
    while !text.contains(part) {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "the stream ended before `{part}`: {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    text
}

#[test]
fn the_stream_sends_what_changed_resumes_and_ends_with_the_session() {
    let gate = CliTestGateway::with(SLOW);
    let mut browser = DashboardTestBrowser::signed_in(&gate);
    let page = browser.open("/ui/pending");
    let cursor = page.html.split("data-cursor=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let query = browser::encoded(&[("page", "/ui/pending"), ("after", &cursor)]);
    let follow = |browser: &DashboardTestBrowser, more: &str| {
        browser.raw(&format!("GET /ui/stream?{query} HTTP/1.1\r\naccept: text/event-stream\r\n{more}"), "")
    };
    let mut stream = follow(&browser, "");
    read_until(&mut stream, ": open");
    hold(&gate, "live.txt");
    let heard = read_until(&mut stream, "live.txt");
    assert!(heard.contains("event: regions") && heard.contains("\"id\":\"nav\""), "{heard}");
    // A browser that was cut off says how far it got, and is sent what happened meanwhile.
    drop(stream);
    let id = heard.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().trim().to_owned();
    hold(&gate, "later.txt");
    let mut stream = follow(&browser, &format!("last-event-id: {id}\r\n"));
    read_until(&mut stream, "later.txt");
    let session = gate.json(&["login", "list"])["data"][0]["dashboard_session_id"].as_str().unwrap().to_owned();
    gate.works(&["login", "revoke", &session]);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(follow_status(&follow(&browser, "")) == 401, "no stream without a session");
}

fn follow_status(mut stream: &std::net::TcpStream) -> u16 {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}
