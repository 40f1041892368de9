//! Mounted servers that want OAuth: a person signs in through the real command line, the tokens stay in the vault, and
//! the agent sees none of it.

mod protected;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{FREE, MountTestGateway};
use crate::running::pause;
use protected::{ProtectedServerKind, ProtectedTestServer};

/// What a browser does with a link: one request, and where it leads.
fn browse(url: &str) -> (String, Option<String>) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let location = answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().starts_with("location: ").then(|| line[10..].trim().to_owned()));
    (answer, location)
}

struct SignInScene {
    gate: MountTestGateway,
    server: ProtectedTestServer,
}

impl SignInScene {
    fn new(kind: ProtectedServerKind, more: &str) -> Self {
        let server = ProtectedTestServer::open(kind);
        let lines = format!(
            "  tickets: {{url: \"{}\", http: true, allow_addresses: [127.0.0.1/32], delay: 0s{more}}}\n",
            server.url()
        );
        Self { gate: MountTestGateway::new(&lines, FREE), server }
    }

    fn needed(&self) -> Value {
        self.gate.until("tickets", |mount| mount["sign_in"]["state"] == "needed")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command
            .args(arguments)
            .env_clear()
            .env("SLUICE_CONFIG", self.gate.place.folder.path().join("sluice.yaml"))
            .env("SLUICE_URL", format!("http://{}", self.gate.place.main))
            .env("SLUICE_TOKEN", &self.gate.place.operator_token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// `sluice mounts connect`, and a person who says yes in their browser.
    fn connect(&self, more: &[&str]) -> (i32, String) {
        let mut child =
            self.command(&[&["mounts", "connect", "tickets", "--no-browser"][..], more].concat()).spawn().unwrap();
        let mut remarks = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let mut line = String::new();
        while remarks.read_line(&mut line).unwrap() > 0 {
            said.push_str(&line);
            if line.starts_with("http://")
                && let Some(home) = browse(line.trim()).1
            {
                browse(&home);
            }
            line.clear();
        }
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        (child.wait().unwrap().code().unwrap(), said)
    }

    fn connected(&self) -> Value {
        self.needed();
        let (code, said) = self.connect(&[]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("tickets is connected"), "{said}");
        self.gate.open("tickets")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.gate.place.folder.path().join("log")).unwrap_or_default()
    }
}

#[test]
fn a_person_signs_in_and_the_agent_calls_without_ever_seeing_a_token() {
    let scene = SignInScene::new(ProtectedServerKind::Honest, "");
    let mount = scene.needed();
    assert!(mount["reason"].to_string().contains("sluice mounts connect tickets"), "{mount}");
    let early = scene.gate.call("tickets.echo", "too early");
    assert!(
        ["schema.unknown_capability", "mount.sign_in"].contains(&early.body["code"].as_str().unwrap()),
        "{early:?}"
    );
    let alerts = scene.gate.operator("GET", "/v1/alerts", None).body.to_string();
    assert!(alerts.contains("sluice mounts connect tickets"), "people are told once: {alerts}");
    let mount = scene.connected();
    assert_eq!(mount["sign_in"]["state"], "connected", "{mount}");
    assert_eq!(mount["sign_in"]["client"], "dynamic", "nothing else was configured: {mount}");
    assert_eq!(scene.gate.said("tickets.echo", "hello"), "echo hello");
    // What the authorization server was asked for.
    let heard = scene.server.heard();
    let authorize = heard.iter().find(|one| one.starts_with("GET /as/authorize")).unwrap();
    let resource: String = url::form_urlencoded::byte_serialize(scene.server.url().as_bytes()).collect();
    for part in ["response_type=code", "code_challenge_method=S256", &format!("resource={resource}"), "scope=read"] {
        assert!(authorize.contains(part), "{part}: {authorize}");
    }
    let token = heard.iter().find(|one| one.contains("grant_type=authorization_code")).unwrap();
    assert!(token.contains(&format!("resource={resource}")) && token.contains("code_verifier="), "{token}");
    // The token is in none of the places where an agent, an operator or a log could meet it.
    let echoed = scene.gate.said("tickets.echo", "leak-the-token");
    let audit = scene.gate.operator("GET", "/v1/audit?limit=200", None).body.to_string();
    for place in [echoed, scene.log(), audit, mount.to_string(), scene.gate.mount("tickets").to_string()] {
        for secret in scene.server.issued() {
            assert!(!place.contains(&secret), "{secret} in {place}");
        }
    }
}

#[test]
fn a_token_is_renewed_with_rotation_and_a_refused_renewal_is_a_persons() {
    let scene = SignInScene::new(ProtectedServerKind::ShortLived, "");
    scene.connected();
    let renewals = || -> Vec<String> {
        let heard = scene.server.heard();
        heard.into_iter().filter(|one| one.contains("grant_type=refresh_token")).collect()
    };
    // Tokens of a second: nobody notices that they end.
    for n in 0..3_000 {
        assert_eq!(scene.gate.said("tickets.echo", &n.to_string()), format!("echo {n}"));
        if renewals().len() > 2 {
            break;
        }
        pause(Duration::from_millis(20));
    }
    let mut used = renewals();
    assert!(used.len() > 2, "{used:?}");
    let count = used.len();
    used.sort();
    used.dedup();
    assert_eq!(used.len(), count, "each refresh token was used once");
    scene.server.refuse_refresh();
    let ended = (0..3_000).find_map(|_| {
        pause(Duration::from_millis(20));
        let answer = scene.gate.call("tickets.echo", "x");
        (answer.body["status"] != "done" && answer.status != 200).then_some(answer)
    });
    let ended = ended.unwrap();
    assert_eq!(ended.body["code"], "mount.sign_in", "{ended:?}");
    scene.needed();
    let before = renewals().len();
    assert_eq!(scene.gate.call("tickets.echo", "y").body["code"], "mount.sign_in");
    assert_eq!(renewals().len(), before, "what was refused is not asked for again");
}

#[test]
fn a_grant_outlives_a_restart_of_the_gateway() {
    let scene = SignInScene::new(ProtectedServerKind::Honest, "");
    scene.connected();
    let SignInScene { gate: MountTestGateway { place, running }, server } = scene;
    running.kill();
    let running = place.start();
    let scene = SignInScene { gate: MountTestGateway { place, running }, server };
    let mount = scene.gate.open("tickets");
    assert_eq!(mount["sign_in"]["state"], "connected", "{mount}");
    assert_eq!(scene.gate.said("tickets.echo", "again"), "echo again");
}

#[test]
fn a_call_that_needs_more_access_names_it_and_the_next_consent_asks_for_both() {
    let scene = SignInScene::new(ProtectedServerKind::StepUp, "");
    scene.connected();
    assert_eq!(scene.gate.said("tickets.echo", "1"), "echo 1");
    let refused = scene.gate.call("tickets.write", "2");
    let body = refused.body.to_string();
    assert!(body.contains("mount.sign_in") && body.contains("more access"), "{refused:?}");
    assert_eq!(scene.gate.said("tickets.echo", "3"), "echo 3", "the other tool stays open");
    let mount = scene.gate.mount("tickets");
    assert_eq!(mount["sign_in"]["state"], "more_access", "{mount}");
    assert_eq!(mount["sign_in"]["wanted"], json!(["write"]), "{mount}");
    let (code, said) = scene.connect(&[]);
    assert_eq!(code, 0, "{said}");
    assert!(
        scene.server.heard().iter().any(|one| one.starts_with("GET /as/authorize") && one.contains("scope=read+write"))
    );
    scene.gate.until("tickets", |mount| mount["state"] == "open" && mount["sign_in"]["state"] == "connected");
    assert_eq!(scene.gate.said("tickets.write", "4"), "write 4");
}

#[test]
fn a_server_that_always_wants_more_sends_nobody_into_another_consent() {
    let scene = SignInScene::new(ProtectedServerKind::Insatiable, "");
    scene.connected();
    let refused = scene.gate.call("tickets.write", "1");
    assert!(refused.body.to_string().contains("mount.sign_in"), "{refused:?}");
    assert_eq!(scene.connect(&[]).0, 0);
    scene.gate.until("tickets", |mount| mount["state"] == "open" && mount["sign_in"]["state"] == "connected");
    let refused = scene.gate.call("tickets.write", "2");
    assert!(refused.body.to_string().contains("mount.sign_in"), "{refused:?}");
    assert_eq!(scene.gate.mount("tickets")["sign_in"]["state"], "connected", "nobody is asked again");
}

#[test]
fn a_removed_server_loses_its_access_and_the_vault_its_tokens() {
    let scene = SignInScene::new(ProtectedServerKind::Honest, "");
    scene.connected();
    let secrets = || scene.gate.operator("GET", "/v1/secrets", None).body.to_string();
    assert!(secrets().contains("service/mount.tickets/access"), "{}", secrets());
    let done = scene.command(&["mounts", "remove", "tickets"]).output().unwrap();
    let file = scene.gate.place.folder.path().join("sluice.yaml");
    if !done.status.success() {
        // The mount is written on one line; a person removes it by hand.
        let text = std::fs::read_to_string(&file).unwrap();
        let left: Vec<&str> = text.lines().filter(|line| !line.contains("tickets:")).collect();
        std::fs::write(&file, left.join("\n").replace("mounts:", "mounts: {}") + "\n").unwrap();
        let reloaded = scene.gate.operator("POST", "/v1/mounts/reload", None);
        assert_eq!(reloaded.status, 200, "{reloaded:?}");
    }
    assert!(scene.server.heard().iter().any(|one| one.starts_with("POST /as/revoke")), "revoked where it was granted");
    let left = scene.gate.operator("GET", "/v1/secrets", None).body;
    let live = |one: &&Value| one["name"].to_string().contains("mount.tickets") && one["revoked"] == false;
    let live: Vec<_> = left["data"].as_array().unwrap().iter().filter(live).collect();
    assert!(live.is_empty(), "{live:?}");
}

#[test]
fn metadata_that_cannot_be_trusted_is_refused_before_anybody_is_sent_anywhere() {
    for (kind, code) in [
        (ProtectedServerKind::OtherResource, "oauth.metadata"),
        (ProtectedServerKind::OtherIssuer, "oauth.issuer"),
        (ProtectedServerKind::NoPkce, "oauth.metadata"),
        (ProtectedServerKind::PrivateMetadata, "egress.address"),
        (ProtectedServerKind::PrivateToken, "egress.address"),
        (ProtectedServerKind::PlainToken, "oauth.metadata"),
        (ProtectedServerKind::MixedUp, "oauth.issuer"),
        (ProtectedServerKind::Unnamed, "oauth.issuer"),
    ] {
        let scene = SignInScene::new(kind, "");
        scene.needed();
        let (status, said) = scene.connect(&[]);
        assert_ne!(status, 0, "{kind:?}: {said}");
        assert!(said.contains(code), "{kind:?}: {said}");
        let heard = scene.server.heard();
        assert!(!heard.iter().any(|one| one.contains("grant_type=")), "{kind:?}: the code went nowhere: {heard:?}");
        assert_eq!(scene.gate.mount("tickets")["sign_in"]["state"], "needed", "{kind:?}");
    }
}

#[test]
fn a_server_that_changes_its_issuer_waits_for_a_person_who_accepts_the_new_one() {
    let scene = SignInScene::new(ProtectedServerKind::Honest, "");
    scene.connected();
    scene.server.move_issuer();
    scene.server.expire_access();
    scene.gate.operator("POST", "/v1/mounts/tickets/test", None);
    let (status, said) = scene.connect(&[]);
    assert!(status != 0 && said.contains("oauth.issuer") && said.contains("/as2"), "{said}");
    let (status, said) = scene.connect(&["--issuer", &scene.server.second_issuer()]);
    assert_eq!(status, 0, "{said}");
    let heard = scene.server.heard();
    let (first, second): (Vec<_>, Vec<_>) =
        heard.iter().filter(|one| one.starts_with("POST /as")).partition(|one| one.starts_with("POST /as/"));
    assert!(!first.is_empty() && second.iter().any(|one| one.starts_with("POST /as2/register")), "registered anew");
    assert!(!second.iter().any(|one| one.contains("client-of-as1")), "no client of the one is shown to the other");
}

#[test]
fn a_registered_client_proves_itself_and_its_secret_goes_to_its_own_server_only() {
    let scene = SignInScene::new(ProtectedServerKind::NoRegistration, "");
    scene.needed();
    let (status, said) = scene.connect(&[]);
    assert!(status != 0 && said.contains("oauth.client") && said.contains("--client-id"), "{said}");
    let secret = scene.gate.place.folder.path().join("client.txt");
    std::fs::write(&secret, "CANARY-client-secret\n").unwrap();
    let (status, said) = scene.connect(&["--client-id", "sluice", "--client-secret-file", secret.to_str().unwrap()]);
    assert_eq!(status, 0, "{said}");
    let pair = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "sluice:CANARY-client-secret");
    let heard = scene.server.heard();
    assert!(
        heard.iter().any(|one| one.starts_with("POST /as/token") && one.contains(&format!("Basic {pair}"))),
        "{heard:?}"
    );
    assert!(!heard.iter().any(|one| one.starts_with("POST /mcp") && one.contains("CANARY-client-secret")));
    let mount = scene.gate.open("tickets");
    assert_eq!(mount["sign_in"]["client"], "registered", "{mount}");
}
