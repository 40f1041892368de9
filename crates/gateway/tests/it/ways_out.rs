//! Requests of agents, from the call to the wire and back; limits and breaker as operators see them.

use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_core::ids::SecretName;
use sluice_core::refusal::Code;
use sluice_egress::EgressRequest;
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretValue};
use sluice_gateway::corridor::CallOutcome;
use sluice_store::AlertFilter;

use crate::outside::{self, LoopbackUpstream, TestEgress, answer, named, wide};
use crate::test_gateway::{TestGateway, TestGatewayPlan, ana};

fn plan(upstream: &LoopbackUpstream, more: &str) -> TestGatewayPlan {
    let port = upstream.address.port();
    let config = format!(
        "batch: {{services: {{network: off}}}}\nholds: {{delays: {{\"network.*\": 0s}}}}\negress:\n  connections:\n    web: {{hosts: [127.0.0.1], ports: [{port}], http: true, methods: [GET, HEAD, POST], allow_addresses: [127.0.0.1], agents: [clerk]{more}}}\n"
    );
    TestGatewayPlan { config, ..TestGatewayPlan::default() }
}

/// The call is made, let go, and read back: its state and what the agent is told.
async fn through(house: &mut TestGateway, capability: &str, arguments: Value) -> (String, Value) {
    let CallOutcome::Held { hold, .. } = house.call(capability, arguments).await.unwrap() else { panic!("not held") };
    house.let_go().await;
    let state = house.gw.store.hold(hold).await.unwrap().unwrap().state.word().to_owned();
    let result = house.gw.store.hold_result(hold).await.unwrap();
    (state, result.map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default())
}

async fn set(house: &TestGateway, name: &str, value: &str, host: &str) {
    let scope = SecretScope::new(vec!["network.credentialed_request".into()], &[host.to_owned()]).unwrap();
    let new =
        NewSecretValue { value: SecretValue::new(value.into()), kind: None, scope: Some(scope), overlap: Millis::ZERO };
    house.gw.vault.set(&SecretName::new(name).unwrap(), new, ana()).await.unwrap();
}

#[tokio::test]
async fn an_agent_fetches_what_an_operator_opened_and_learns_where_it_is_from() {
    let upstream =
        LoopbackUpstream::answering(|_, _| answer("200 OK", "etag: abc\r\nset-cookie: a=b\r\n", "grüße")).await;
    let mut house = TestGateway::new(plan(&upstream, "")).await;
    let (state, result) = through(&mut house, "network.http_request", json!({"url": upstream.url("/a?b=c")})).await;
    assert_eq!(state, "done");
    assert_eq!((result["status_code"].as_u64(), result["body"].as_str()), (Some(200), Some("grüße")));
    assert_eq!(result["provenance"], json!({"origin": "outside", "host": "127.0.0.1", "trusted": false}));
    assert_eq!((result["headers"]["etag"].as_str(), result["headers"].get("set-cookie")), (Some("abc"), None));
    assert!(upstream.heard()[0].starts_with("GET /a?b=c HTTP/1.1\r\n"));
}

#[tokio::test]
async fn what_no_connection_admits_is_refused_before_it_is_held() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let house = TestGateway::new(plan(&upstream, ", paths: [\"/v1/*\"]")).await;
    let elsewhere = "https://other.example/".to_owned();
    for (arguments, code) in [
        (json!({"url": elsewhere}), Code::EgressNotAllowed),
        (json!({"url": upstream.url("/v2/x")}), Code::EgressNotAllowed),
        (json!({"url": upstream.url("/v1/x"), "method": "DELETE"}), Code::EgressNotAllowed),
        (json!({"url": upstream.url("/v1/x"), "method": "TRACE"}), Code::SchemaWrongType),
        (json!({"url": "http://2130706433/"}), Code::EgressUrl),
        (json!({"url": upstream.url("/v1/x"), "timeout": 0}), Code::SchemaWrongType),
    ] {
        let no = house.call("network.http_request", arguments.clone()).await.unwrap_err();
        assert_eq!(no.refusal.code(), code, "{arguments}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[tokio::test]
async fn a_secret_is_added_for_its_host_and_never_comes_back() {
    let upstream = LoopbackUpstream::answering(|request, _| {
        let token = request.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or("none");
        answer("200 OK", &format!("x-echo: {token}\r\n"), &json!({"you": token, "len": token.len()}).to_string())
    })
    .await;
    let mut house = TestGateway::new(plan(&upstream, "")).await;
    set(&house, "crm", "hunter2/hunter2", "127.0.0.1").await;
    set(&house, "other", "hunter3/hunter3", "api.other.example").await;
    let ask = |secret: &str| json!({"url": upstream.url("/"), "secret_name": secret});
    let (state, result) = through(&mut house, "network.credentialed_request", ask("crm")).await;
    assert_eq!(state, "done");
    assert!(upstream.heard()[0].contains("authorization: Bearer hunter2/hunter2\r\n"));
    assert!(!result.to_string().contains("hunter2"), "{result}");
    assert_eq!(result["headers"]["x-echo"], "[credential removed]");
    assert!(house.record().await.contains(&"secret.used".to_owned()));
    let (state, _) = through(&mut house, "network.credentialed_request", ask("other")).await;
    assert_eq!(state, "dead", "it is for another host");
    let (state, _) = through(&mut house, "network.credentialed_request", ask("none")).await;
    assert_eq!(state, "dead");
    assert_eq!(upstream.heard().len(), 1);
}

#[tokio::test]
async fn a_lasting_accounts_credential_is_asked_for_anew_each_week_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let declared = "service: Board\npurpose: Read a board.\nbase_url: https://board.example/v1\ncredential: board/token\n\
                    isolation: configured\nlimits: {per_minute: 5, per_hour: 50, burn: 100}\n\
                    identity: {relation: author}\noperations:\n  feed:\n    summary: Lists posts.\n    path: /feed\n    \
                    arguments: {author: {type: text, required: true, max: 40}}\n    query: {by: \"{author}\"}\n    \
                    answer: {type: object, required: [posts], properties: {posts: {type: integer}}}\n";
    std::fs::write(folder.path().join("board.yaml"), declared).unwrap();
    let config = format!("proxies: {}\n", folder.path().display());
    let house = TestGateway::new(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    assert!(house.gw.proxies.get("board").is_some(), "{:?}", house.gw.proxies.found());
    set(&house, "board/token", "hunter2/hunter2", "board.example").await;
    let asked = async |house: &TestGateway| {
        sluice_gateway::loops::housekeeping::step(&house.gw, 0).await.unwrap();
        sluice_gateway::loops::housekeeping::step(&house.gw, 0).await.unwrap();
        house.record().await.iter().filter(|kind| *kind == "secret.rotation_asked").count()
    };
    house.pass(Millis::from_hours(7 * 24 - 1));
    assert_eq!(asked(&house).await, 0, "not yet");
    house.pass(Millis::from_hours(2));
    assert_eq!(asked(&house).await, 1, "once, however often the gateway looks");
    house.pass(Millis::from_hours(7 * 24));
    assert_eq!(asked(&house).await, 2, "and again when nobody did it");
    set(&house, "board/token", "hunter3/hunter3", "board.example").await;
    house.pass(Millis::from_hours(24));
    assert_eq!(asked(&house).await, 2, "a new value has a week again");
}

#[tokio::test]
async fn agents_see_names_of_secrets_and_can_ask_for_new_ones() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let mut house = TestGateway::new(plan(&upstream, "")).await;
    set(&house, "crm", "hunter2/hunter2", "api.crm.example").await;
    let CallOutcome::Done { result, .. } = house.call("secrets.list", json!({})).await.unwrap() else { panic!() };
    assert_eq!((result["total"].as_u64(), result["secrets"][0]["name"].as_str()), (Some(1), Some("crm")));
    assert!(!result.to_string().contains("hunter2"));
    let ask = json!({"secret_name": "crm", "reason": "compromised"});
    let (state, result) = through(&mut house, "secrets.rotate_request", ask).await;
    assert_eq!((state.as_str(), result["status"].as_str()), ("done", Some("submitted")));
    let alerts = house.gw.store.alerts(AlertFilter::default(), None, 10).await.unwrap();
    assert!(
        alerts
            .iter()
            .any(|alert| alert.message.topic == "secret.rotation_asked" && alert.message.body["secret"] == "crm")
    );
    let no = house.call("secrets.rotate_request", json!({"secret_name": "none"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::VaultUnknown);
    let no = house.call("secrets.use", json!({"secret_name": "crm", "capability": "x.y"})).await.unwrap_err();
    assert_eq!(no.refusal.code(), Code::SchemaUnknownCapability, "a secret is used by the call that names it");
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_left_to_people_and_a_read_is_not() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        outside::request(&mut stream).await;
    })
    .await;
    let mut house = TestGateway::new(plan(&upstream, "")).await;
    let (state, _) = through(
        &mut house,
        "network.http_request",
        json!({"url": upstream.url("/pay"), "method": "POST", "body": "1"}),
    )
    .await;
    assert!(["in_doubt", "needs_human"].contains(&state.as_str()), "{state}");
    let (state, _) = through(&mut house, "network.http_request", json!({"url": upstream.url("/look")})).await;
    assert_eq!(state, "dead", "it failed, and whoever asked can ask again");
    assert_eq!(upstream.accepted(), 2, "nothing was tried twice");
}

/// Ten fit a minute, a hundred an hour; the limits are those nobody configured.
#[tokio::test]
async fn limits_hold_across_a_restart() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let out = TestEgress::new().await;
    let mut connection = wide(&upstream);
    connection.limits = sluice_core::throttle::ConnectionLimits::default();
    out.egress.open(connection.clone());
    let url = upstream.url("/");
    let go = |out: &TestEgress| {
        let (egress, connection, url) = (out.egress.clone(), connection.clone(), url.clone());
        async move { egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await }
    };
    for _ in 0..6 {
        go(&out).await.unwrap();
    }
    let out = out.restart(Millis::from_secs(1)).await;
    for _ in 0..4 {
        go(&out).await.unwrap();
    }
    assert_eq!(go(&out).await.unwrap_err().code(), Code::EgressLimit);
    assert_eq!(upstream.heard().len(), 10);
    out.clock.advance(Millis::from_secs(62));
    go(&out).await.unwrap();
}

#[tokio::test]
async fn three_refusals_pause_a_connection_until_one_request_gets_through() {
    let upstream = LoopbackUpstream::answering(|_, nth| match nth {
        0..3 => answer("429 Too Many Requests", "", ""),
        3 => answer("429 Too Many Requests", "retry-after: 300\r\n", ""),
        _ => answer("200 OK", "", "back"),
    })
    .await;
    let out = TestEgress::new().await;
    let connection = wide(&upstream);
    out.egress.open(connection.clone());
    let url = upstream.url("/");
    let go = |out: &TestEgress, method: http::Method| {
        let (egress, connection) = (out.egress.clone(), connection.clone());
        let request = EgressRequest { method, ..EgressRequest::get(&url) };
        async move { egress.request(&connection, "network.http_request", ana(), request).await }
    };
    for _ in 0..3 {
        assert_eq!(go(&out, http::Method::GET).await.unwrap().status, 429);
    }
    assert_eq!(go(&out, http::Method::GET).await.unwrap_err().code(), Code::EgressBreaker);
    let out = out.restart(Millis::from_secs(1)).await;
    assert_eq!(go(&out, http::Method::GET).await.unwrap_err().code(), Code::EgressBreaker, "a restart opens nothing");
    // 30 s and at most a fifth more.
    out.clock.advance(Millis::from_secs(36));
    // Where there are only writes, one of them tries: a service that answers 429 has not applied it.
    assert_eq!(go(&out, http::Method::POST).await.unwrap().status, 429);
    assert_eq!(go(&out, http::Method::GET).await.unwrap_err().code(), Code::EgressBreaker, "one request, no more");
    // 60 s by itself; the service wants 300.
    out.clock.advance(Millis::from_secs(250));
    assert_eq!(go(&out, http::Method::GET).await.unwrap_err().code(), Code::EgressBreaker);
    out.clock.advance(Millis::from_secs(50));
    assert_eq!(go(&out, http::Method::GET).await.unwrap().body, "back");
    assert_eq!(go(&out, http::Method::POST).await.unwrap().status, 200);
    assert_eq!(upstream.heard().len(), 6);
    let states = out.egress.states().await.unwrap();
    assert!(states[0].connection == named("web") && states[0].breaker.is_closed());
}

#[tokio::test]
async fn a_burnt_out_connection_waits_for_a_person() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let mut house = TestGateway::new(plan(&upstream, ", per_minute: off, per_hour: off, burn: 3")).await;
    for n in 0..5 {
        let (state, _) =
            through(&mut house, "network.http_request", json!({"url": upstream.url(&format!("/{n}"))})).await;
        assert_eq!(state, if n < 3 { "done" } else { "dead" }, "{n}");
    }
    let alerts = house.gw.store.alerts(AlertFilter::default(), None, 20).await.unwrap();
    assert_eq!(alerts.iter().filter(|alert| alert.message.topic == "egress.burned").count(), 1);
    house.gw.egress.reset(&named("web"), ana()).await.unwrap();
    let (state, _) = through(&mut house, "network.http_request", json!({"url": upstream.url("/9")})).await;
    assert_eq!(state, "done");
}

/// Hour and burn count requests that were made: whatever the limits are and however requests are spread over time, as many
/// pass as the narrowest limit allows, not one fewer and not one more.
#[tokio::test]
async fn hour_and_burn_refuse_neither_before_nor_after_their_number_of_real_requests() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let url = upstream.url("/");
    // Per minute, per hour, burn, and how many seconds pass between requests.
    for (per_minute, per_hour, burn, gap) in [
        (Some(640), None, Some(40), 2),
        (Some(640), Some(30), None, 2),
        (None, Some(25), Some(40), 0),
        (Some(3200), Some(50), Some(45), 1),
        (Some(33), None, Some(35), 3),
    ] {
        let out = TestEgress::new().await;
        let mut connection = wide(&upstream);
        connection.limits = sluice_core::throttle::ConnectionLimits { per_minute, per_hour, burn };
        out.egress.open(connection.clone());
        let before = upstream.heard().len();
        let mut out = Some(out);
        for n in 0..60 {
            let now = out.take().unwrap();
            // Once in between the gateway dies.
            let now = if n == 11 { now.restart(Millis::from_secs(1)).await } else { now };
            drop(now.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await);
            now.clock.advance(Millis::from_secs(gap));
            out = Some(now);
        }
        let real = u32::try_from(upstream.heard().len() - before).unwrap();
        let expected = per_hour.unwrap_or(u32::MAX).min(burn.unwrap_or(u32::MAX));
        assert_eq!(real, expected, "{per_minute:?} {per_hour:?} {burn:?}");
        let states = out.unwrap().egress.states().await.unwrap();
        assert_eq!((states[0].used.hour, states[0].used.burned), (u64::from(real), u64::from(real)));
    }
}

/// Where neither is limited, leave is taken ahead; what was not used of it is not shown as used.
#[tokio::test]
async fn leave_taken_ahead_is_not_counted_as_requests() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let out = TestEgress::new().await;
    let mut connection = wide(&upstream);
    connection.limits = sluice_core::throttle::ConnectionLimits { per_minute: Some(640), per_hour: None, burn: None };
    out.egress.open(connection.clone());
    for _ in 0..5 {
        let request = EgressRequest::get(&upstream.url("/"));
        out.egress.request(&connection, "network.http_request", ana(), request).await.unwrap();
        out.clock.advance(Millis::from_secs(2));
    }
    let states = out.egress.states().await.unwrap();
    // The leave of the last one is still out.
    assert!((5..=24).contains(&states[0].used.burned), "{states:?}");
}
