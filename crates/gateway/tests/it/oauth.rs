//! Grants: a person's yes becomes tokens in the vault, which are renewed once for everybody and end as one no.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sluice_config::network::CredentialPlacement;
use sluice_core::ids::{ConnectionName, JobId, SecretName};
use sluice_core::{Clock as _, GatewayDeps, Millis, ServiceName};
use sluice_egress::oauth::{
    FreshTokenError, GrantRevocation, GrantTerms, GrantedScopes, OauthCallback, OauthError, OauthGrants, OauthProvider,
};
use sluice_egress::vault::{SecretUse, SecretValue, VaultError};
use sluice_egress::{Egress, EgressError, EgressRequest, TicketScope};
use sluice_testkit::ids::{CountingIds, SeededEntropy};

use crate::outside::{CapturedLogLines, LoopbackUpstream, TestEgress, ana, answer, named, wide};

const REDIRECT: &str = "http://127.0.0.1:9000/";

/// A provider as strict as the standard, which can be told to misbehave.
#[derive(Default)]
struct TestProviderState {
    /// Challenges by code, each used once.
    codes: HashMap<String, String>,
    refresh: Vec<String>,
    given: usize,
    rotates: bool,
    scope: Option<String>,
    /// Answers so many requests like this first.
    broken: Option<(usize, Vec<u8>)>,
    asked: Vec<String>,
}

fn field(body: &str, name: &str) -> String {
    let pairs = url::form_urlencoded::parse(body.as_bytes());
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}

impl TestProviderState {
    fn answer(&mut self, request: &str) -> Vec<u8> {
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        self.asked.push(body.to_owned());
        if let Some((left, bytes)) = &mut self.broken
            && *left > 0
        {
            *left -= 1;
            return bytes.clone();
        }
        let no = |code: &str| {
            answer(
                "400 Bad Request",
                "content-type: application/json\r\n",
                &json!({"error": code, "error_description": body}).to_string(),
            )
        };
        if head.starts_with("POST /revoke ") {
            let token = field(body, "token");
            self.refresh.retain(|known| *known != token);
            return answer("200 OK", "", "");
        }
        if field(body, "client_secret") != "CANARY-client-secret" || field(body, "client_id") != "sluice" {
            return no("invalid_client");
        }
        match field(body, "grant_type").as_str() {
            "authorization_code" => {
                let Some(challenge) = self.codes.remove(&field(body, "code")) else { return no("invalid_grant") };
                let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(field(body, "code_verifier")));
                if hash != challenge || field(body, "redirect_uri") != REDIRECT {
                    return no("invalid_grant");
                }
                self.fresh(true)
            }
            "refresh_token" => {
                let token = field(body, "refresh_token");
                if !self.refresh.contains(&token) {
                    return no("invalid_grant");
                }
                if self.rotates {
                    self.refresh.retain(|known| *known != token);
                }
                self.fresh(self.rotates)
            }
            _ => no("unsupported_grant_type"),
        }
    }

    fn fresh(&mut self, refresh: bool) -> Vec<u8> {
        self.given += 1;
        let mut body = json!({
            "access_token": format!("CANARY-access-{}", self.given), "token_type": "Bearer", "expires_in": 3600,
        });
        if refresh {
            let token = format!("CANARY-refresh-{}", self.given);
            self.refresh.push(token.clone());
            body["refresh_token"] = json!(token);
        }
        if let Some(scope) = &self.scope {
            body["scope"] = json!(scope);
        }
        answer("200 OK", "content-type: application/json\r\n", &body.to_string())
    }
}

struct OauthFixture {
    out: TestEgress,
    oauth: Arc<OauthGrants>,
    provider: OauthProvider,
    theirs: Arc<Mutex<TestProviderState>>,
    _upstream: LoopbackUpstream,
}

fn gmail() -> ServiceName {
    ServiceName::new("gmail").unwrap()
}

fn secret(what: &str) -> SecretName {
    SecretName::new(format!("service/gmail/{what}")).unwrap()
}

fn oauth(out: &TestEgress, provider: &OauthProvider, seed: u64) -> Arc<OauthGrants> {
    let world = GatewayDeps {
        clock: Arc::new(out.clock.clone()),
        ids: Arc::new(CountingIds::after(seed)),
        entropy: Arc::new(SeededEntropy::new(seed)),
        release: "0.0.0",
    };
    let (store, vault, egress) = (Arc::clone(&out.store), Arc::clone(&out.vault), Arc::clone(&out.egress));
    let oauth = OauthGrants::new(store, vault, egress, &world);
    oauth.configure(gmail(), provider.clone()).unwrap();
    Arc::new(oauth)
}

impl OauthFixture {
    async fn new() -> Self {
        Self::on(TestEgress::new().await).await
    }

    async fn on(out: TestEgress) -> Self {
        let theirs = Arc::new(Mutex::new(TestProviderState::default()));
        let shared = Arc::clone(&theirs);
        let upstream = LoopbackUpstream::answering(move |request, _| shared.lock().unwrap().answer(request)).await;
        let provider = OauthProvider {
            authorize: upstream.url("/auth"),
            token: upstream.url("/token"),
            revoke: Some(upstream.url("/revoke")),
            issuer: Some("https://provider.example".into()),
            client_id: "sluice".into(),
            scopes: vec!["mail".into()],
            capabilities: vec!["email.*".into()],
            api_hosts: vec!["127.0.0.1".into()],
            terms: GrantTerms::Account,
        };
        let oauth = oauth(&out, &provider, 3);
        oauth.keep_client_secret(&gmail(), SecretValue::new(b"CANARY-client-secret".to_vec()), ana()).await.unwrap();
        Self { out, oauth, provider, theirs, _upstream: upstream }
    }

    /// The person says yes in the browser; gives what the browser brings back.
    fn consent(&self) -> OauthCallback {
        let link = self.oauth.begin(&gmail(), REDIRECT).unwrap();
        let challenge = field(link.url.split_once('?').unwrap().1, "code_challenge");
        let code = format!("CANARY-code-{}", link.state);
        self.theirs.lock().unwrap().codes.insert(code.clone(), challenge);
        OauthCallback { state: link.state, code: SecretValue::new(code.into_bytes()), issuer: None }
    }

    async fn connect(&self) -> Result<GrantedScopes, OauthError> {
        self.oauth.finish(&gmail(), self.consent(), ana()).await
    }

    fn asked(&self) -> usize {
        self.theirs.lock().unwrap().asked.len()
    }

    async fn access(&self) -> Result<String, VaultError> {
        let (connection, hosts) = (ConnectionName::new("gmail").unwrap(), ["127.0.0.1".to_owned()]);
        let wanted = SecretUse { capability: "email.send", connection: &connection, hosts: &hosts, by: ana() };
        let value = self.out.vault.take(&secret("access"), &wanted).await?;
        Ok(String::from_utf8(value.expose().to_vec()).unwrap())
    }

    fn break_with(&self, times: usize, bytes: Vec<u8>) {
        self.theirs.lock().unwrap().broken = Some((times, bytes));
    }
}

#[tokio::test]
async fn a_yes_becomes_tokens_that_are_in_the_vault_and_good_for_their_purpose_only() {
    let scene = OauthFixture::new().await;
    assert_eq!(scene.connect().await.unwrap().scopes, ["mail"]);
    assert_eq!(scene.access().await.unwrap(), "CANARY-access-1");
    let (connection, hosts) = (ConnectionName::new("web").unwrap(), ["127.0.0.1".to_owned()]);
    for (name, capability) in
        [("access", "network.credentialed_request"), ("oauth", "email.send"), ("client", "email.send")]
    {
        let wanted = SecretUse { capability, connection: &connection, hosts: &hosts, by: ana() };
        assert!(matches!(scene.out.vault.take(&secret(name), &wanted).await, Err(VaultError::OutOfScope)), "{name}");
    }
}

#[tokio::test]
async fn an_answer_to_no_link_of_ours_reaches_no_provider() {
    let scene = OauthFixture::new().await;
    let good = scene.consent();
    let code = || SecretValue::new(b"CANARY-code".to_vec());
    let made_up = OauthCallback { state: "made-up".into(), code: code(), issuer: None };
    assert!(matches!(scene.oauth.finish(&gmail(), made_up, ana()).await, Err(OauthError::State)));
    let other = ServiceName::new("other").unwrap();
    scene.oauth.configure(other.clone(), scene.provider.clone()).unwrap();
    let elsewhere = scene.consent();
    assert!(matches!(scene.oauth.finish(&other, elsewhere, ana()).await, Err(OauthError::State)));
    let mixed = OauthCallback { issuer: Some("https://evil.example".into()), ..scene.consent() };
    assert!(matches!(scene.oauth.finish(&gmail(), mixed, ana()).await, Err(OauthError::Issuer)));
    scene.out.clock.advance(Millis::from_mins(10));
    assert!(matches!(scene.oauth.finish(&gmail(), good, ana()).await, Err(OauthError::State)), "too late");
    assert_eq!(scene.asked(), 0);
    for bad in ["https://evil.example/", "http://localhost:9000/"] {
        assert!(matches!(scene.oauth.begin(&gmail(), bad), Err(OauthError::Redirect)), "{bad}");
    }
}

#[tokio::test]
async fn a_code_is_good_once_and_with_its_own_verifier() {
    let scene = OauthFixture::new().await;
    let (first, second) = (scene.consent(), scene.consent());
    // The code of one link with the state, and so the verifier, of another.
    let crossed =
        OauthCallback { state: second.state, code: SecretValue::new(first.code.expose().to_vec()), issuer: None };
    let refused = scene.oauth.finish(&gmail(), crossed, ana()).await;
    assert!(matches!(&refused, Err(OauthError::Refused(denied)) if denied.as_str() == "invalid_grant"));
    // It was spent by that, and so was its state.
    assert!(matches!(scene.oauth.finish(&gmail(), first, ana()).await, Err(OauthError::Refused(_))));
    assert!(matches!(scene.access().await, Err(VaultError::Unknown)));
}

#[tokio::test]
async fn twenty_who_need_a_fresh_token_ask_for_one() {
    let scene = OauthFixture::new().await;
    scene.connect().await.unwrap();
    assert_eq!(scene.asked(), 1);
    for _ in 0..20 {
        scene.oauth.ensure_fresh(&gmail()).await.unwrap();
    }
    assert_eq!(scene.asked(), 1, "it is fresh");
    scene.out.clock.advance(Millis::from_mins(56));
    let name = gmail();
    let all = (0..20).map(|_| scene.oauth.ensure_fresh(&name));
    for outcome in futures_util::future::join_all(all).await {
        assert_eq!(outcome, Ok(()));
    }
    assert_eq!(scene.asked(), 2);
    assert_eq!(scene.access().await.unwrap(), "CANARY-access-2");
}

#[tokio::test]
async fn what_was_revoked_is_asked_for_once_and_then_left_to_a_person() {
    let scene = OauthFixture::new().await;
    scene.connect().await.unwrap();
    scene.theirs.lock().unwrap().refresh.clear();
    scene.out.clock.advance(Millis::from_hours(1));
    let name = gmail();
    let all = (0..20).map(|_| scene.oauth.ensure_fresh(&name));
    for outcome in futures_util::future::join_all(all).await {
        assert_eq!(outcome, Err(FreshTokenError::NeedsReauth));
    }
    scene.out.clock.advance(Millis::from_hours(48));
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Err(FreshTokenError::NeedsReauth));
    assert_eq!(scene.asked(), 2, "one grant and one renewal that was refused");
    assert_eq!(scene.oauth.standing(&gmail()).await, Some("needs_reauth"));
    scene.connect().await.unwrap();
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    assert_eq!(scene.access().await.unwrap(), "CANARY-access-2");
}

#[tokio::test]
async fn trouble_on_the_way_means_later_and_a_token_that_works_is_used_meanwhile() {
    let scene = OauthFixture::new().await;
    scene.connect().await.unwrap();
    scene.break_with(usize::MAX, answer("503 Service Unavailable", "", "{\"error\": \"invalid_grant\"}"));
    scene.out.clock.advance(Millis::from_mins(56));
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()), "four minutes are left");
    assert_eq!(scene.asked(), 2);
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    assert_eq!(scene.asked(), 2, "the provider is left alone for a while");
    scene.out.clock.advance(Millis::from_mins(5));
    let name = gmail();
    let all = (0..20).map(|_| scene.oauth.ensure_fresh(&name));
    for outcome in futures_util::future::join_all(all).await {
        assert_eq!(outcome, Err(FreshTokenError::Later));
    }
    assert_eq!(scene.asked(), 3, "twenty callers are one try");
    scene.break_with(0, Vec::new());
    scene.out.clock.advance(Millis::from_mins(15));
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
}

#[tokio::test]
async fn a_portal_that_answers_in_the_providers_place_refuses_nothing() {
    let scene = OauthFixture::new().await;
    scene.connect().await.unwrap();
    for page in [
        answer("200 OK", "", "<html>welcome to the hotel</html>"),
        answer("403 Forbidden", "", "no"),
        answer("302 Found", "location: http://portal.example/\r\n", ""),
    ] {
        scene.out.clock.advance(Millis::from_hours(2));
        scene.break_with(1, page);
        assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Err(FreshTokenError::Later));
        scene.out.clock.advance(Millis::from_hours(1));
        assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    }
}

#[tokio::test]
async fn a_rotated_refresh_token_replaces_the_one_before_also_over_a_restart() {
    let scene = OauthFixture::new().await;
    scene.theirs.lock().unwrap().rotates = true;
    scene.connect().await.unwrap();
    for _ in 0..3 {
        scene.out.clock.advance(Millis::from_hours(1));
        assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    }
    // Another life of the gateway: it does not know how long the token lives, and asks once.
    let again = oauth(&scene.out, &scene.provider, 4);
    let before = scene.asked();
    assert_eq!(again.ensure_fresh(&gmail()).await, Ok(()));
    assert_eq!(again.ensure_fresh(&gmail()).await, Ok(()));
    assert_eq!(scene.asked(), before + 1);
}

#[tokio::test]
async fn whoever_gives_up_waiting_does_not_lose_the_token_for_the_others() {
    let scene = OauthFixture::new().await;
    scene.theirs.lock().unwrap().rotates = true;
    scene.connect().await.unwrap();
    scene.out.clock.advance(Millis::from_hours(1));
    {
        let name = gmail();
        let mut gives_up = Box::pin(scene.oauth.ensure_fresh(&name));
        assert!(futures_util::poll!(gives_up.as_mut()).is_pending());
    }
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    assert_eq!(scene.access().await.unwrap(), "CANARY-access-2");
    assert_eq!(scene.asked(), 2);
}

#[tokio::test]
async fn half_a_yes_is_given_back_and_named() {
    let scene = OauthFixture::new().await;
    scene.theirs.lock().unwrap().scope = Some("openid".into());
    let no = scene.connect().await.unwrap_err();
    assert!(matches!(&no, OauthError::Scope(missing) if *missing == ["mail"]), "{no}");
    assert!(scene.theirs.lock().unwrap().refresh.is_empty(), "it was given back");
    assert!(matches!(scene.access().await, Err(VaultError::Unknown)));
}

#[tokio::test]
async fn giving_back_tells_the_provider_and_destroys_what_the_vault_has_in_any_case() {
    for (broken, wanted) in [(0, GrantRevocation::Taken), (1, GrantRevocation::Unheard)] {
        let scene = OauthFixture::new().await;
        scene.connect().await.unwrap();
        scene.break_with(broken, answer("503 Service Unavailable", "", ""));
        assert_eq!(scene.oauth.revoke(&gmail(), &ana()).await.unwrap(), wanted);
        assert_eq!(scene.theirs.lock().unwrap().refresh.len(), broken);
        assert!(matches!(scene.access().await, Err(VaultError::Unknown)));
        assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Err(FreshTokenError::NeedsReauth));
        assert_eq!(scene.oauth.revoke(&gmail(), &ana()).await.unwrap(), GrantRevocation::Nothing);
        // A link that was still open ends with it.
        let late = scene.consent();
        scene.oauth.revoke(&gmail(), &ana()).await.unwrap();
        assert!(matches!(scene.oauth.finish(&gmail(), late, ana()).await, Err(OauthError::State)));
    }
}

#[tokio::test]
async fn a_token_the_service_refuses_is_replaced_once_for_all_who_held_it() {
    let scene = OauthFixture::new().await;
    scene.connect().await.unwrap();
    scene.out.clock.advance(Millis::from_mins(10));
    for _ in 0..5 {
        scene.oauth.mark_rejected(&gmail()).await;
        assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    }
    assert_eq!(scene.access().await.unwrap(), "CANARY-access-2");
    assert_eq!(scene.asked(), 2);
}

#[tokio::test]
async fn a_renewed_token_ends_no_job_that_holds_the_one_before_and_a_revoked_one_ends_all() {
    let scene = OauthFixture::new().await;
    scene.connect().await.unwrap();
    let api = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "{}")).await;
    let mut connection = wide(&api);
    connection.credential = Some((secret("access"), CredentialPlacement::Bearer));
    scene.out.egress.open(connection);
    let scope = TicketScope {
        job: JobId::from_bits(1),
        capability: "email.sync".into(),
        hosts: vec!["127.0.0.1".into()],
        operations: Vec::new(),
        by: ana(),
        lasts: Millis::from_hours(2),
    };
    let ticket = scene.out.egress.issue(&named("web"), scope).await.unwrap();
    scene.out.clock.advance(Millis::from_mins(56));
    assert_eq!(scene.oauth.ensure_fresh(&gmail()).await, Ok(()));
    assert_eq!(scene.access().await.unwrap(), "CANARY-access-2");
    scene.out.egress.exchange(&ticket, EgressRequest::get(&api.url("/"))).await.unwrap();
    assert!(api.heard()[0].contains("Bearer CANARY-access-1"), "what it began with");
    scene.oauth.revoke(&gmail(), &ana()).await.unwrap();
    let after = scene.out.egress.exchange(&ticket, EgressRequest::get(&api.url("/"))).await;
    assert!(matches!(after, Err(EgressError::Ticket)));
}

#[tokio::test]
async fn no_token_leaves_in_a_request_of_somebody_else() {
    let scan = Arc::new(sluice_egress::leak::of_formats().unwrap());
    let scene = OauthFixture::on(TestEgress::with(None, scan).await).await;
    scene.connect().await.unwrap();
    let other = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let egress: &Egress = &scene.out.egress;
    for token in ["CANARY-access-1", "CANARY-refresh-1", "CANARY-client-secret"] {
        let mut request = EgressRequest::get(&other.url("/"));
        (request.method, request.body) = (http::Method::POST, format!("look: {token}").into());
        let sent = egress.request(&wide(&other), "network.http_request", ana(), request).await;
        assert!(matches!(sent, Err(EgressError::Leak(_))), "{token}");
    }
    assert!(other.heard().is_empty());
}

#[tokio::test]
async fn no_token_code_or_verifier_is_in_a_log_an_error_or_a_file() {
    let log = CapturedLogLines::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    tracing::info!("the log is kept");
    let scene = OauthFixture::new().await;
    let mut said = String::new();
    let mut links = Vec::new();
    // Grants, renewals, refusals that quote what they were sent, breakdowns.
    scene.theirs.lock().unwrap().rotates = true;
    for round in 0..4 {
        let link = scene.oauth.begin(&gmail(), REDIRECT).unwrap();
        said.push_str(&format!("{link:?}"));
        links.push(link.state.clone());
        said.push_str(&format!("{:?}", scene.connect().await));
        let returned =
            OauthCallback { state: link.state, code: SecretValue::new(b"CANARY-code-unknown".to_vec()), issuer: None };
        said.push_str(&format!("{:?}", scene.oauth.finish(&gmail(), returned, ana()).await));
        scene.out.clock.advance(Millis::from_hours(1));
        said.push_str(&format!("{:?}", scene.oauth.ensure_fresh(&gmail()).await));
        scene.break_with(1, answer("200 OK", "", "{\"access_token\": \"CANARY-access-broken\"}"));
        scene.out.clock.advance(Millis::from_hours(1));
        said.push_str(&format!("{:?}", scene.oauth.ensure_fresh(&gmail()).await));
        if round == 2 {
            scene.theirs.lock().unwrap().refresh.clear();
            scene.out.clock.advance(Millis::from_hours(1));
            said.push_str(&format!("{:?}", scene.oauth.ensure_fresh(&gmail()).await));
        }
    }
    said.push_str(&format!("{:?} {:?}", scene.oauth, scene.out.vault.list().await.unwrap()));
    let verifiers: Vec<String> = scene
        .theirs
        .lock()
        .unwrap()
        .asked
        .iter()
        .map(|body| field(body, "code_verifier"))
        .filter(|v| !v.is_empty())
        .collect();
    assert!(verifiers.len() >= 4, "the provider has seen them");
    assert!(scene.out.clock.now().as_millis() > 0);
    let OauthFixture { out, oauth, .. } = scene;
    drop(oauth);
    let TestEgress { egress, vault, store, folder, .. } = out;
    drop((egress, vault, store, guard));
    let mut places: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    places.push(("answers and errors".into(), said.into_bytes()));
    places.push(("the log".into(), log.0.lock().unwrap().clone()));
    let holds = |bytes: &[u8], needle: &str| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
    assert!(
        holds(&log.0.lock().unwrap(), "the log is kept") && holds(&log.0.lock().unwrap(), "must be connected again")
    );
    for (name, bytes) in &places {
        assert!(!holds(bytes, "CANARY"), "a token in {name}");
        for secret in verifiers.iter().chain(&links) {
            assert!(!holds(bytes, secret), "a verifier or state in {name}");
        }
    }
}
