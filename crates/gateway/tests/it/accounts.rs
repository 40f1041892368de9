//! Grants at providers that somebody else wrote: `emulate` in Google's place, and `oidc-provider`, which is certified.
//!
//! `SLUICE_TEST_GMAIL_EMULATOR` and `SLUICE_TEST_OIDC` name their addresses; `crates/testkit/counterparts` says how they
//! are started. Without one its test says that it was skipped, and fails in a strict run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sluice_config::network::IpNetwork;
use sluice_core::ids::{ConnectionName, SecretName};
use sluice_core::{GatewayDeps, Millis, ServiceName};
use sluice_egress::oauth::{
    ClientOrigin, FreshTokenError, GrantRevocation, GrantTerms, OauthCallback, OauthError, OauthGrants, OauthProvider,
    ServerDiscovery, ServerGrantTerms, ServerReach, register,
};
use sluice_egress::vault::{SecretUse, SecretValue};
use sluice_testkit::ids::{CountingIds, SeededEntropy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

use crate::outside::{LoopbackUpstream, TestEgress, ana, answer};

const REDIRECT: &str = "http://127.0.0.1:8080/";
const CLIENT_SECRET: &[u8] = b"sluice-client-secret";

/// Where a counterpart is, or nothing, said aloud.
#[expect(clippy::disallowed_methods, reason = "a test: where its counterpart is comes from outside")]
pub(crate) fn counterpart(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    if found.is_none() {
        assert!(std::env::var("SLUICE_TEST_STRICT").is_err(), "{variable} is not set");
        drop(writeln!(std::io::stderr(), "skipped: {variable} is not set"));
    }
    found
}

/// A browser: it keeps cookies, and shows where it is sent.
struct TestBrowser {
    address: String,
    cookies: BTreeMap<String, String>,
}

struct BrowserPage {
    status: u16,
    location: Option<String>,
    body: String,
}

impl TestBrowser {
    fn at(address: &str) -> Self {
        Self { address: address.to_owned(), cookies: BTreeMap::new() }
    }

    async fn go(&mut self, method: &str, path: &str, form: &[(&str, &str)], token: Option<&str>) -> BrowserPage {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\ncookie: {}\r\n{token}content-type: application/x-www-form-urlencoded\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            cookies.join("; "),
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut location = None;
        for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
            if name.eq_ignore_ascii_case("location") {
                location = Some(value.to_owned());
            }
            if let Some((name, value)) = value
                .split(';')
                .next()
                .and_then(|pair| pair.split_once('='))
                .filter(|_| name.eq_ignore_ascii_case("set-cookie"))
            {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        BrowserPage { status, location, body: body.to_owned() }
    }
}

fn path_of(url: &Url) -> String {
    url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()))
}

/// What the redirect brings home.
fn returned(location: &str) -> OauthCallback {
    let url = Url::parse(location).unwrap();
    let get = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let code = SecretValue::new(get("code").unwrap_or_else(|| panic!("no code in {location}")).into_bytes());
    OauthCallback { state: get("state").unwrap(), code, issuer: get("iss") }
}

/// A person chooses the account of the seed.
async fn choose_account(address: &str, link: &str) -> OauthCallback {
    let mut browser = TestBrowser::at(address);
    let url = Url::parse(link).unwrap();
    let page = browser.go("GET", &path_of(&url), &[], None).await;
    assert!(page.status == 200 && page.body.contains("testuser@example.com"), "{} {}", page.status, page.body);
    let pairs: Vec<(String, String)> = url.query_pairs().map(|(k, v)| (k.into_owned(), v.into_owned())).collect();
    let mut form: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    form.push(("email", "testuser@example.com"));
    let page = browser.go("POST", "/o/oauth2/v2/auth/callback", &form, None).await;
    returned(&page.location.unwrap())
}

/// A person signs in and says yes, page by page.
async fn sign_in(address: &str, link: &str) -> OauthCallback {
    let mut browser = TestBrowser::at(address);
    let home = Url::parse(&format!("http://{address}/")).unwrap();
    let mut at = Url::parse(link).unwrap();
    for _ in 0..12 {
        let page = browser.go("GET", &path_of(&at), &[], None).await;
        let page = match page.location {
            Some(_) => page,
            None => {
                let prompt = if page.body.contains("value=\"login\"") { "login" } else { "consent" };
                let form = [("prompt", prompt), ("login", "ana"), ("password", "any")];
                browser.go("POST", &path_of(&at), &form, None).await
            }
        };
        let next = page.location.unwrap_or_else(|| panic!("{} {}", page.status, page.body));
        if next.starts_with("http://127.0.0.1:808") {
            return returned(&next);
        }
        at = home.join(&next).unwrap();
    }
    panic!("no end of pages");
}

fn service() -> ServiceName {
    ServiceName::new("gmail").unwrap()
}

fn grants(out: &TestEgress) -> Arc<OauthGrants> {
    let world = GatewayDeps {
        clock: Arc::new(out.clock.clone()),
        ids: Arc::new(CountingIds::after(5)),
        entropy: Arc::new(SeededEntropy::new(5)),
        release: "0.0.0",
    };
    let (store, vault, egress) = (Arc::clone(&out.store), Arc::clone(&out.vault), Arc::clone(&out.egress));
    Arc::new(OauthGrants::new(store, vault, egress, &world))
}

async fn scene(out: &TestEgress, provider: OauthProvider) -> Arc<OauthGrants> {
    let oauth = grants(out);
    oauth.configure(service(), provider).unwrap();
    oauth.keep_client_secret(&service(), SecretValue::new(CLIENT_SECRET.to_vec()), ana()).await.unwrap();
    oauth
}

async fn access(out: &TestEgress) -> String {
    taken(out, "access", "email.read").await
}

async fn taken(out: &TestEgress, what: &str, capability: &str) -> String {
    let (connection, hosts) = (ConnectionName::new("gmail").unwrap(), ["127.0.0.1".to_owned()]);
    let wanted = SecretUse { capability, connection: &connection, hosts: &hosts, by: ana() };
    let value = out.vault.take(&SecretName::new(format!("service/gmail/{what}")).unwrap(), &wanted).await.unwrap();
    String::from_utf8(value.expose().to_vec()).unwrap()
}

fn refused(answer: Result<impl Sized, OauthError>) -> String {
    match answer {
        Err(OauthError::Refused(denied)) => denied.as_str().to_owned(),
        Err(other) => other.to_string(),
        Ok(_) => "granted".into(),
    }
}

#[tokio::test]
async fn somebody_elses_google_grants_renews_and_takes_back() {
    let Some(address) = counterpart("SLUICE_TEST_GMAIL_EMULATOR") else { return };
    let at = |path: &str| format!("http://{address}{path}");
    let provider = OauthProvider {
        authorize: at("/o/oauth2/v2/auth"),
        token: at("/oauth2/token"),
        revoke: Some(at("/oauth2/revoke")),
        issuer: None,
        api_hosts: vec!["127.0.0.1".into()],
        ..OauthProvider::google("sluice.apps.example".into(), "")
    };
    let out = TestEgress::new().await;
    let oauth = scene(&out, provider).await;
    let labels = |token: String| {
        let address = address.clone();
        async move { TestBrowser::at(&address).go("GET", "/gmail/v1/users/me/labels", &[], Some(&token)).await.status }
    };
    let link = || oauth.begin(&service(), REDIRECT).unwrap().url;
    // The code of one link with the verifier of another.
    let (first, second) = (choose_account(&address, &link()).await, choose_account(&address, &link()).await);
    let crossed = OauthCallback { state: second.state, ..first };
    assert_eq!(refused(oauth.finish(&service(), crossed, ana()).await), "invalid_grant");
    // A yes.
    let yes = choose_account(&address, &link()).await;
    let code = yes.code.expose().to_vec();
    let granted = oauth.finish(&service(), yes, ana()).await.unwrap();
    assert_eq!(granted.scopes, ["https://www.googleapis.com/auth/gmail.modify"]);
    let old = access(&out).await;
    assert_eq!(labels(old.clone()).await, 200);
    // The same code again.
    let again = OauthCallback { code: SecretValue::new(code), ..choose_account(&address, &link()).await };
    assert_eq!(refused(oauth.finish(&service(), again, ana()).await), "invalid_grant");
    // An hour later twenty want a token.
    out.clock.advance(Millis::from_hours(1));
    let name = service();
    for fresh in futures_util::future::join_all((0..20).map(|_| oauth.ensure_fresh(&name))).await {
        assert_eq!(fresh, Ok(()));
    }
    let new = access(&out).await;
    assert_ne!(old, new);
    assert_eq!(labels(new.clone()).await, 200);
    // The end.
    assert_eq!(oauth.revoke(&service(), &ana()).await.unwrap(), GrantRevocation::Taken);
    assert_eq!(oauth.ensure_fresh(&service()).await, Err(FreshTokenError::NeedsReauth));
    // A client they do not know.
    oauth.keep_client_secret(&service(), SecretValue::new(b"not the secret".to_vec()), ana()).await.unwrap();
    let yes = choose_account(&address, &link()).await;
    assert_eq!(refused(oauth.finish(&service(), yes, ana()).await), "invalid_client");
}

#[tokio::test]
async fn a_certified_server_refuses_what_must_be_refused_and_we_hear_it() {
    let Some(address) = counterpart("SLUICE_TEST_OIDC") else { return };
    let at = |path: &str| format!("http://{address}{path}");
    let provider = OauthProvider {
        authorize: at("/auth"),
        token: at("/token"),
        revoke: Some(at("/token/revocation")),
        issuer: Some(format!("http://{address}")),
        client_id: "sluice".into(),
        scopes: vec!["openid".into(), "offline_access".into()],
        capabilities: vec!["email.*".into()],
        api_hosts: vec!["127.0.0.1".into()],
        terms: GrantTerms::Account,
    };
    let out = TestEgress::new().await;
    let oauth = scene(&out, provider.clone()).await;
    let link = || oauth.begin(&service(), REDIRECT).unwrap().url;
    // A wrong verifier.
    let (first, second) = (sign_in(&address, &link()).await, sign_in(&address, &link()).await);
    let crossed = OauthCallback { state: second.state, ..first };
    assert_eq!(refused(oauth.finish(&service(), crossed, ana()).await), "invalid_grant");
    // A redirect address other than the one the code was given for.
    let elsewhere = link().replace("8080", "8081");
    let yes = sign_in(&address, &elsewhere).await;
    assert_eq!(refused(oauth.finish(&service(), yes, ana()).await), "invalid_grant");
    // An answer that names another provider is not even redeemed.
    let mixed = OauthCallback { issuer: Some("http://127.0.0.1:1".into()), ..sign_in(&address, &link()).await };
    assert!(matches!(oauth.finish(&service(), mixed, ana()).await, Err(OauthError::Issuer)));
    // A yes, renewed twice: each refresh token is good once.
    let yes = sign_in(&address, &link()).await;
    assert_eq!(yes.issuer.as_deref(), provider.issuer.as_deref(), "it names itself");
    oauth.finish(&service(), yes, ana()).await.unwrap();
    let mut seen = vec![access(&out).await];
    for _ in 0..2 {
        out.clock.advance(Millis::from_secs(55));
        assert_eq!(oauth.ensure_fresh(&service()).await, Ok(()));
        seen.push(access(&out).await);
    }
    seen.dedup();
    assert_eq!(seen.len(), 3);
    // A code used a second time.
    let yes = sign_in(&address, &link()).await;
    let code = yes.code.expose().to_vec();
    oauth.finish(&service(), yes, ana()).await.unwrap();
    let again = OauthCallback { code: SecretValue::new(code), ..sign_in(&address, &link()).await };
    assert_eq!(refused(oauth.finish(&service(), again, ana()).await), "invalid_grant");
    // The person takes their yes back at the provider.
    let refresh = taken(&out, "oauth", "oauth.token").await;
    let form = [("token", refresh.as_str()), ("client_id", "sluice"), ("client_secret", "sluice-client-secret")];
    assert_eq!(TestBrowser::at(&address).go("POST", "/token/revocation", &form, None).await.status, 200);
    out.clock.advance(Millis::from_secs(55));
    assert_eq!(oauth.ensure_fresh(&service()).await, Err(FreshTokenError::NeedsReauth));
    // Connected again, and given back.
    let yes = sign_in(&address, &link()).await;
    oauth.finish(&service(), yes, ana()).await.unwrap();
    assert_eq!(oauth.ensure_fresh(&service()).await, Ok(()));
    assert_eq!(oauth.revoke(&service(), &ana()).await.unwrap(), GrantRevocation::Taken);
}

/// What a signed token says of itself. Its signature is its server's business.
fn claims(token: &str) -> serde_json::Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn a_certified_server_is_found_registers_us_and_gives_tokens_for_one_server() {
    let Some(address) = counterpart("SLUICE_TEST_OIDC") else { return };
    let issuer = format!("http://{address}");
    let named = issuer.clone();
    // A server that says nothing but where its tokens come from.
    let server = LoopbackUpstream::answering(move |request, _| {
        let host = request.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().trim().to_owned();
        let document = json!({
            "resource": format!("http://{host}/mcp"), "authorization_servers": [&named],
            "scopes_supported": ["openid", "read", "offline_access"],
        });
        answer("200 OK", "content-type: application/json\r\n", &document.to_string())
    })
    .await;
    let (url, name) = (server.url("/mcp"), ServiceName::new("mount.tickets").unwrap());
    let loopback = IpNetwork::parse("127.0.0.1").unwrap();
    let reach = ServerReach { plain_http: true, allow_addresses: vec![loopback] };
    let out = TestEgress::new().await;
    let oauth = grants(&out);
    let discovery = ServerDiscovery::new(&out.egress, &name, (&url, &reach), ana());
    let protected = discovery.protected_server(None).await.unwrap();
    assert_eq!(protected.issuers, std::slice::from_ref(&issuer));
    let found = discovery.authorization_server(&issuer).await.unwrap();
    let wrong = discovery.authorization_server(&format!("{issuer}/")).await;
    assert!(matches!(wrong, Err(OauthError::Issuer)), "one character is another issuer");
    let client =
        register(&out.egress, &name, (&found, &reach), REDIRECT, ana()).await.unwrap_or_else(|no| panic!("{no}"));
    let provider = OauthProvider {
        authorize: found.authorize,
        token: found.token,
        revoke: found.revoke,
        issuer: Some(found.issuer),
        client_id: client.id,
        scopes: protected.scopes,
        capabilities: vec!["tickets.*".into()],
        api_hosts: vec!["127.0.0.1".into()],
        terms: GrantTerms::Server(Box::new(ServerGrantTerms {
            resource: protected.resource.clone(),
            authentication: client.authentication,
            origin: ClientOrigin::Dynamic,
            names_issuer: found.names_issuer,
            reach,
        })),
    };
    let link = oauth.begin_with(&name, (provider, client.secret), REDIRECT).unwrap();
    let yes = sign_in(&address, &link.url).await;
    assert_eq!(yes.issuer.as_deref(), Some(issuer.as_str()), "it names itself");
    let finished = oauth.finish_link(&name, yes, ana()).await.unwrap();
    assert!(finished.scopes.contains(&"read".to_owned()) && finished.ends_after.is_none(), "{:?}", finished.scopes);
    let token = || async {
        let (connection, hosts) = (ConnectionName::new("mount.tickets").unwrap(), ["127.0.0.1".to_owned()]);
        let wanted = SecretUse { capability: "tickets.connect", connection: &connection, hosts: &hosts, by: ana() };
        let value = out.vault.take(&SecretName::new("service/mount.tickets/access").unwrap(), &wanted).await.unwrap();
        String::from_utf8(value.expose().to_vec()).unwrap()
    };
    let first = token().await;
    assert_eq!(claims(&first)["aud"], protected.resource, "good for this server only");
    // Renewed twice, with rotation; still for this server.
    for _ in 0..2 {
        let before = token().await;
        out.clock.advance(Millis::from_secs(55));
        assert_eq!(oauth.ensure_fresh(&name).await, Ok(()));
        let now = token().await;
        assert_ne!(before, now);
        assert_eq!(claims(&now)["aud"], protected.resource);
    }
    assert_eq!(oauth.revoke(&name, &ana()).await.unwrap(), GrantRevocation::Taken);
    assert_eq!(oauth.ensure_fresh(&name).await, Err(FreshTokenError::NeedsReauth));
}
