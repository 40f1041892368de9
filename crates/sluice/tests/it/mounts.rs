//! Mounted servers end to end: a real gateway, real programs behind the looser profile, honest and hostile ones.

mod changing;
mod errors;
mod escaping;
mod facts;
mod freezing;
mod importing;
mod passing;
mod pins;
mod readers;
mod shapes;
mod signing_in;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::stub::StubServer;

use crate::running::{RunningGateway, TestHttpResponse, TestInstallation, ask, pause};

const ORG: &str = "defaults: {tier: autonomous}\noverrides: []\n";

/// Not a test: the server that the tests mount. It is this very program, told to run nothing but this.
#[test]
#[ignore = "started by mounts"]
fn stub_server() {
    if std::env::var_os("STUB").is_some() {
        StubServer::from_environment().serve();
        std::process::exit(0);
    }
}

/// The lines of one stub.
pub(crate) fn stub(name: &str, kind: &str, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap().display().to_string();
    format!(
        "  {name}:\n    command: {}\n    args: [\"mounts::stub_server\", \"--exact\", \"--ignored\", \"--nocapture\"]\n    \
         files: {{read: [\"{folder}\"]}}\n    delay: 0s\n    timeout: 5s\n    env:\n      STUB: {kind}\n{more}",
        program.display()
    )
}

/// A tool as it is accepted: by the digest of what is said of it now.
fn word(tool: &Value) -> Value {
    json!({"tool": tool["tool"], "digest": tool.get("digest").unwrap_or(&tool["accepted_digest"])})
}

struct MountTestGateway {
    place: TestInstallation,
    running: RunningGateway,
}

impl MountTestGateway {
    fn new(mounts: &str, agent: &str) -> Self {
        let place = TestInstallation::new(&format!("sandbox: degraded\nmounts:\n{mounts}"), ORG, None);
        fs::write(place.folder.path().join("policies/agents/clerk.yaml"), agent).unwrap();
        let running = place.start();
        Self { place, running }
    }

    fn operator(&self, method: &str, path: &str, body: Option<&Value>) -> TestHttpResponse {
        ask(self.place.main, method, path, &self.place.operator_token, body).unwrap()
    }

    fn mount(&self, name: &str) -> Value {
        self.operator("GET", &format!("/v1/mounts/{name}"), None).body
    }

    /// Waits until a mount is as wanted.
    fn until(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        // Longer than a server has for two beginnings and the pause between them: one that was slow once is not lost.
        for _ in 0..9_000 {
            let mount = self.mount(name);
            if wanted(&mount) {
                return mount;
            }
            pause(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.place.folder.path().join("log")).unwrap_or_default();
        panic!("{name} did not get there: {}\n{log}", self.mount(name));
    }

    /// Waits until a mount is open, and accepts that those of its tools only read that say so.
    fn open(&self, name: &str) -> Value {
        let mount = self.opened(name);
        let wanted = |tool: &&Value| tool["claims_to_read"] == true && tool["state"] == "open";
        let unsaid = |tool: &&Value| wanted(tool) && tool["read_only_by"].is_null();
        let all = mount["tools"].as_array().into_iter().flatten();
        let tools: Vec<Value> = all.filter(unsaid).map(word).collect();
        if !tools.is_empty() {
            let said = self.accept(name, &json!({"tools": tools, "read_only": true}));
            assert!([200, 409].contains(&said.status), "{said:?}");
        }
        mount
    }

    /// Waits until a mount is open. Whatever its tools say of themselves, they are writes.
    fn opened(&self, name: &str) -> Value {
        self.until(name, |mount| mount["state"] == "open")
    }

    fn accept(&self, name: &str, body: &Value) -> TestHttpResponse {
        self.operator("POST", &format!("/v1/mounts/{name}/accept"), Some(body))
    }

    fn call(&self, capability: &str, text: &str) -> TestHttpResponse {
        let body = json!({"capability": capability, "arguments": {"text": text}, "allow_duplicate": true});
        self.place.call(&body).unwrap()
    }

    /// What a tool said, if it was carried out.
    fn said(&self, capability: &str, text: &str) -> String {
        let answer = self.call(capability, text);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.body["result"]["untrusted"], true);
        answer.body["result"]["data"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn state_of(&self, mount: &str, tool: &str) -> Value {
        let mount = self.mount(mount);
        let tools = mount["tools"].as_array().cloned().unwrap_or_default();
        tools.into_iter().find(|one| one["tool"] == tool).map_or(Value::Null, |one| one["state"].clone())
    }
}

const FREE: &str = "rules:\n  - {capability: \"*\", tier: autonomous}\n";

#[test]
fn a_read_is_answered_a_write_is_asked_about_and_both_are_data_from_outside() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), "rules: []\n");
    let mount = scene.open("good");
    assert_eq!((&mount["open_tools"], &mount["server"]), (&json!(2), &json!("stub 1")));
    assert_eq!(scene.said("good.echo", "hello"), "echo hello");
    let asked = scene.call("good.write", "hello");
    assert_eq!((asked.status, &asked.body["status"]), (202, &json!("awaiting_approval")), "{asked:?}");
    let wrong = scene.place.call(&json!({"capability": "good.echo", "arguments": {"text": 7}})).unwrap();
    assert_eq!(wrong.body["code"], "schema.wrong_type", "{wrong:?}");
    let stranger = scene.place.call(&json!({"capability": "good.echo", "arguments": {"other": "x"}})).unwrap();
    assert_eq!(stranger.body["code"], "schema.unknown_argument", "{stranger:?}");
}

#[test]
fn what_must_not_leave_does_not_go_to_a_server_even_with_a_read() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), FREE);
    scene.open("good");
    let key = format!("{}{}", "AKIA", "IOSFODNN7EXAMPLQ");
    let answer = scene.call("good.echo", &format!("key {key} secret"));
    assert_eq!(answer.body["code"], "leak.found", "{answer:?}");
}

#[test]
fn a_rule_lets_a_write_run_and_freezing_the_mount_stops_it() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), FREE);
    scene.open("good");
    assert_eq!(scene.said("good.write", "a"), "write a");
    let frozen = scene.operator("POST", "/v1/freezes", Some(&json!({"service": "mount.good"})));
    assert_eq!(frozen.status, 201, "{frozen:?}");
    assert_eq!(scene.call("good.write", "b").body["code"], "freeze.active");
}

#[test]
fn a_changed_tool_is_shut_until_a_person_accepts_what_was_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "Says the same again.").unwrap();
    let more = format!("      STUB_FILE: \"{}\"\n", file.path().display());
    let mut lines = stub("good", "good", &more);
    lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", file.path().display()));
    let scene = MountTestGateway::new(&lines, FREE);
    scene.open("good");
    assert_eq!(scene.said("good.echo", "1"), "echo 1");
    fs::write(file.path(), "Says it louder.").unwrap();
    // The server says so itself after the next call; nothing is called until it was looked at.
    assert_eq!(scene.said("good.write", "2"), "write 2");
    scene.until("good", |_| scene.state_of("good", "echo") == "changed");
    let shut = scene.call("good.echo", "3");
    assert_eq!(shut.body["code"], "gateway.unsupported", "{shut:?}");
    assert_eq!(scene.said("good.write", "4"), "write 4", "the other tool stays open");
    let waiting = scene.operator("GET", "/v1/mounts/good/waiting", None).body;
    let tool = &waiting["tools"][0];
    assert_eq!(tool["accepted"]["description"], "Says the same again.");
    assert_eq!(tool["waiting"]["description"], "Says it louder.");
    let accept = |digest: &Value| {
        let body = json!({"tools": [{"tool": "echo", "digest": digest}]});
        scene.operator("POST", "/v1/mounts/good/accept", Some(&body))
    };
    assert_eq!(accept(&json!("00")).body["code"], "store.conflict");
    let denied =
        ask(scene.place.main, "POST", "/v1/mounts/good/accept", &scene.place.agent_key, Some(&json!({"tools": []})));
    assert_eq!(denied.unwrap().status, 403, "an agent accepts nothing");
    assert_eq!(accept(&tool["digest"]).status, 200);
    assert_eq!(scene.said("good.echo", "5"), "echo 5");
    let alerts = scene.operator("GET", "/v1/alerts", None).body.to_string();
    assert!(alerts.contains("mount.changed") || alerts.contains("wait for a person"), "{alerts}");
}

#[test]
fn a_program_that_knows_no_handshake_works_and_says_when_its_tools_change() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "Says the same again.").unwrap();
    let more = format!("      STUB_FILE: \"{}\"\n", file.path().display());
    let lines = stub("new", "stateless", &more);
    let lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", file.path().display()));
    let scene = MountTestGateway::new(&lines, FREE);
    let mount = scene.open("new");
    assert_eq!((&mount["open_tools"], &mount["protocol"]), (&json!(2), &json!("2026-07-28")), "{mount}");
    assert_eq!(scene.said("new.echo", "1"), "echo 1");
    fs::write(file.path(), "Says it louder.").unwrap();
    assert_eq!(scene.said("new.write", "2"), "write 2");
    scene.until("new", |_| scene.state_of("new", "echo") == "changed");
    assert_eq!(scene.call("new.echo", "3").body["code"], "gateway.unsupported");
    assert_eq!(scene.mount("new")["restarts"], 0, "no to one beginning is no failure");
}

#[test]
fn an_address_that_knows_no_handshake_is_asked_with_headers_that_say_what_is_asked() {
    let (address, heard) = StubServer { kind: "stateless".into(), file: None }.listen();
    let lines = format!("  new: {{url: \"http://{address}/mcp\", http: true, allow_addresses: [127.0.0.1/32]}}\n");
    let scene = MountTestGateway::new(&lines, FREE);
    let mount = scene.open("new");
    assert_eq!((&mount["open_tools"], &mount["protocol"]), (&json!(2), &json!("2026-07-28")), "{mount}");
    assert_eq!(scene.said("new.echo", "hello"), "echo hello");
    let heard = heard.lock().unwrap().join("\n");
    assert!(!heard.contains("\"initialize\"") && !heard.to_lowercase().contains("mcp-session-id:"), "{heard}");
}

/// The most memory a gateway ever had, in KiB.
fn most_memory(scene: &MountTestGateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", scene.running.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn hostile_servers_are_contained_reported_and_cost_the_others_nothing() {
    let kinds =
        ["many", "alike", "poisoned", "endless", "wrong_id", "silent", "dies", "huge", "asks", "injects", "flaps"];
    let mut mounts = stub("good", "good", "") + &stub("pages", "endless_pages", "");
    for kind in kinds {
        mounts += &stub(&kind.replace('_', "-"), kind, "").replace("timeout: 5s", "timeout: 2s");
    }
    let scene = MountTestGateway::new(&mounts, FREE);
    scene.open("good");
    let good = || assert_eq!(scene.said("good.echo", "still here"), "echo still here");
    // Ten thousand tools, and a list without an end: nothing of them is offered.
    for (name, why) in [("many", "more than"), ("pages", "does not end")] {
        let mount = scene.until(name, |mount| mount["restarts"].as_u64() > Some(0));
        assert!(mount["reason"].as_str().unwrap().contains(why), "{mount}");
        assert_eq!(mount["open_tools"], 0);
        good();
    }
    // Names that cannot be told apart, and one that is none.
    let alike = scene.open("alike");
    assert_eq!(alike["open_tools"], 1, "{alike}");
    let refused = alike["refused"].to_string();
    for reason in ["looks like `send_mai1`", "looks like `send_mail`", "two tools have this name", "characters"] {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    // A poisoned description: withheld, the others open, nothing of it shown to agents.
    scene.open("poisoned");
    assert_eq!(scene.state_of("poisoned", "poisoned"), "suspicious");
    assert_eq!(scene.state_of("poisoned", "nested"), "suspicious", "wherever in its definition the words are");
    assert_eq!(scene.said("poisoned.echo", "x"), "echo x");
    let capabilities = ask(scene.place.main, "GET", "/v1/capabilities", &scene.place.agent_key, None).unwrap();
    assert!(!capabilities.body.to_string().contains("attacker@evil"), "{capabilities:?}");
    // A list that is never twice the same: the tool is shut, people are told once, and it is looked at ever more rarely.
    scene.until("flaps", |mount| mount["waiting_tools"] == 1);
    assert_eq!(scene.state_of("flaps", "echo"), "changed");
    assert_eq!(scene.call("flaps.echo", "x").body["code"], "gateway.unsupported");
    // Calls that end badly.
    let most_memory = most_memory(&scene);
    for (name, code) in [
        ("endless", "mount.failed"),
        ("huge", "mount.failed"),
        ("wrong-id", "mount.failed"),
        ("silent", "mount.failed"),
        ("dies", "mount.failed"),
    ] {
        scene.open(name);
        let answer = scene.call(&format!("{name}.echo"), "x");
        assert_eq!(answer.body["code"], code, "{name}: {answer:?}");
        assert!(answer.body.to_string().len() < 2_000, "{name}");
        good();
    }
    let grown = self::most_memory(&scene).saturating_sub(most_memory);
    assert!(grown < 64 << 10, "answers without an end and of 100 MB took {grown} KiB of the gateway");
    let told = scene.operator("GET", "/v1/alerts?limit=500", None).body;
    let about_flaps =
        |alert: &&Value| alert.to_string().contains("mount.changed") && alert.to_string().contains("flaps");
    let told = told["data"].as_array().unwrap().iter().filter(about_flaps).count();
    assert_eq!(told, 1, "people are told once, however often it changes");
    for name in ["endless", "huge", "dies"] {
        let mount = scene.until(name, |mount| mount["restarts"].as_u64() > Some(0));
        assert!(mount["reason"].is_string() || mount["state"] != "down", "{mount}");
    }
    // A write whose answer does not come is a doubt, and a doubt is a person's.
    scene.open("dies");
    let doubt = scene.call("dies.write", "x");
    let call = doubt.body["call_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/calls/{call}?wait_ms=500");
    let mut state = doubt.body["status"].clone();
    for _ in 0..50 {
        if state == "needs_human" || state == "in_doubt" {
            break;
        }
        state = ask(scene.place.main, "GET", &path, &scene.place.agent_key, None).unwrap().body["status"].clone();
        pause(Duration::from_millis(100));
    }
    assert!(state == "needs_human" || state == "in_doubt", "{state} {doubt:?}");
    // It asks for a model, for a person and for folders, and is told no each time.
    scene.open("asks");
    assert_eq!(scene.said("asks.echo", "x"), "-32601,-32601,-32601");
    // An answer that is an attack: the agent gets words of ours, and a person can look at it.
    scene.open("injects");
    let withheld = scene.call("injects.echo", "x");
    assert!(withheld.body["result"]["data"]["withheld"]["finding_id"].is_string(), "{withheld:?}");
    assert!(!withheld.body.to_string().contains("attacker@evil"), "{withheld:?}");
    let tainted = scene.call("good.write", "x");
    assert_eq!(tainted.body["status"], "awaiting_approval", "who was shown an attack is asked about every write");
    good();
}

#[test]
fn a_program_reaches_what_was_declared_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    let more = "      DECLARED: \"1\"\n      SECRET: vault:looks/key\n";
    let lines = stub("looks", "looks", more).replace("]}\n", &format!("], write: [\"{}\"]}}\n", open.display()));
    let scene = MountTestGateway::new(&lines, FREE);
    scene.until("looks", |mount| mount["reason"].to_string().contains("looks/key"));
    let secret =
        json!({"value": "canary-4711-mount", "capabilities": ["looks.*"], "hosts": ["localhost"], "kind": "api_key"});
    let set = scene.operator("PUT", "/v1/secrets/looks%2Fkey", Some(&secret));
    assert!(set.status < 300, "{set:?}");
    assert_eq!(scene.operator("POST", "/v1/mounts/looks/test", None).body["state"], "open");
    let data = scene.place.folder.path().join("data");
    let paths = [
        open.as_path(),
        folder.path(),
        &data,
        Path::new("/etc/shadow"),
        Path::new("/root"),
        Path::new("/proc/1/environ"),
    ];
    let wanted: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let said = scene.call("looks.echo", &wanted.join(" "));
    assert_eq!(said.status, 200, "{said:?}");
    let text = said.body["result"]["data"]["content"][0]["text"].as_str().unwrap();
    let seen: Value = serde_json::from_str(text).unwrap();
    let can = |what: &str| seen[what].as_bool().unwrap_or_else(|| panic!("{what}: {seen}"));
    assert!(can("read 0") && can("write 0"), "{seen}");
    for (n, closed) in wanted.iter().enumerate().skip(1) {
        assert!(!can(&format!("read {n}")) && !can(&format!("write {n}")), "{closed}: {seen}");
    }
    assert!(!can("socket"), "{seen}");
    assert!(can("shell"), "programs of the system can be started");
    let mut variables: Vec<&str> = seen["variables"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    variables.sort_unstable();
    assert_eq!(variables, ["DECLARED", "HOME", "LANG", "PATH", "SECRET", "STUB", "TMPDIR"]);
    let log = fs::read_to_string(scene.place.folder.path().join("log")).unwrap();
    assert!(!log.contains("canary-4711"), "a secret was written down");
}

#[test]
fn a_program_with_hosts_has_a_network_of_its_own_with_nothing_in_it_but_the_way_to_them() {
    let lines =
        stub("looks", "looks", "").replace("    delay: 0s\n", "    delay: 0s\n    network: [api.example.com]\n");
    let scene = MountTestGateway::new(&lines, FREE);
    let mount = scene.open("looks");
    let own = fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    let said = scene.call("looks.echo", "");
    let text = said.body["result"]["data"]["content"][0]["text"].as_str().unwrap();
    let seen: Value = serde_json::from_str(text).unwrap();
    assert_eq!(seen["undeclared host"], "HTTP/1.1 403 Forbidden", "the way out is answered by the gateway: {seen}");
    assert_eq!(seen["socket"], false, "{seen}");
    if mount["missing_layers"].to_string().contains("namespaces") {
        assert!(mount["reason"].to_string().contains("shares this machine's network"), "{mount}");
    } else {
        assert_ne!(seen["network"], own.as_str(), "{seen}");
        assert!(mount["reason"].is_null(), "{mount}");
    }
}

#[test]
fn a_server_at_an_address_is_reached_through_egress_with_its_credential() {
    for kind in ["good", "streams"] {
        let (address, heard) = StubServer { kind: kind.into(), file: None }.listen();
        let lines = format!(
            "  far:\n    url: http://{address}/mcp\n    http: true\n    allow_addresses: [127.0.0.1/32]\n    secret: far/key\n    \
             timeout: 5s\n"
        );
        let scene = MountTestGateway::new(&lines, FREE);
        let secret =
            json!({"value": "canary-far-1138", "capabilities": ["far.*"], "hosts": ["127.0.0.1"], "kind": "api_key"});
        assert!(scene.operator("PUT", "/v1/secrets/far%2Fkey", Some(&secret)).status < 300);
        scene.operator("POST", "/v1/mounts/far/test", None);
        scene.open("far");
        assert_eq!(scene.said("far.echo", "hello"), "echo hello");
        let heard = heard.lock().unwrap().clone();
        assert!(heard.iter().all(|request| request.contains("Bearer canary-far-1138")), "{heard:?}");
        let (agent, operator) = (&scene.place.agent_key, &scene.place.operator_token);
        assert!(
            !heard.iter().any(|request| request.contains(agent.as_str()) || request.contains(operator.as_str())),
            "nobody's own key is passed on"
        );
        let call = heard.iter().find(|request| request.contains("tools/call")).unwrap().to_ascii_lowercase();
        assert!(call.contains("mcp-session-id: s-1") && call.contains("mcp-protocol-version: 2025"), "{call}");
    }
}

#[test]
fn a_program_dies_with_its_gateway_and_what_was_accepted_is_known_again() {
    let place = TestInstallation::new(&format!("sandbox: degraded\nmounts:\n{}", stub("good", "good", "")), ORG, None);
    let running = place.start();
    let scene = MountTestGateway { place, running };
    scene.open("good");
    let MountTestGateway { place, running } = scene;
    let children = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let folder = place.folder.path().display().to_string();
        all.filter(|entry| {
            fs::read(entry.path().join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&folder))
        })
        .count()
    };
    assert!(children() >= 1, "the server runs");
    running.kill();
    for _ in 0..200 {
        if children() == 0 {
            break;
        }
        pause(Duration::from_millis(20));
    }
    assert_eq!(children(), 0, "nothing outlives the gateway");
    let running = place.start();
    let scene = MountTestGateway { place, running };
    scene.open("good");
    assert_eq!(scene.mount("good")["waiting_tools"], 0, "the same definitions are the same");
}

#[test]
fn a_mount_that_reaches_the_gateways_own_files_or_takes_its_names_is_refused() {
    let check = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("sluice.yaml"), text).unwrap();
        let run = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["config", "check", "--config"])
            .arg(folder.path().join("sluice.yaml"))
            .output()
            .unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        (run.status.success(), said)
    };
    for (lines, why) in [
        ("  email: {command: x}\n", "capabilities with this name"),
        ("  Git: {command: x}\n", "starts with a letter"),
        ("  a: {command: x, url: \"https://a.example/\"}\n", "one of them"),
        ("  a: {comand: x}\n", "did you mean `command`"),
        ("  a: {command: x, files: {wirte: [/a]}}\n", "did you mean `write`"),
        ("  a: {command: x, files: {read: [.]}}\n", "holds, or lies in"),
        ("  a: {url: \"http://a.example/\"}\n", "unencrypted http"),
        ("  a: {command: x, env: {LD_PRELOAD: /x}}\n", "cannot be set"),
        ("  note1: {command: x}\n  notel: {command: x}\n", "looks like"),
    ] {
        let (fine, said) = check(&format!("mounts:\n{lines}"));
        assert!(!fine && said.contains(why), "{lines}: {said}");
    }
    let (fine, said) = check("mounts:\n  git: {command: mcp-server-git, files: {write: [/srv/repository]}}\n");
    assert!(fine, "{said}");
}

#[test]
fn the_recipes_that_ship_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sluice.yaml"), "node: gw\n").unwrap();
    let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mounts");
    let mut count = 0;
    for entry in fs::read_dir(recipes).unwrap().flatten() {
        let mut add = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
        add.args(["mounts", "add"]).arg(entry.path()).args(["--config"]).arg(folder.path().join("sluice.yaml"));
        for pair in ["installed=/opt/mcp", "python=/usr", "node=/usr/bin/node", "folder=/srv/shared"] {
            add.args(["--set", pair]);
        }
        let run = add.output().unwrap();
        assert!(run.status.success(), "{:?}: {}", entry.path(), String::from_utf8_lossy(&run.stderr));
        count += 1;
    }
    assert_eq!(count, 4);
    let text = fs::read_to_string(folder.path().join("sluice.yaml")).unwrap();
    assert!(["time:", "git:", "files:", "memory:"].iter().all(|name| text.contains(name)), "{text}");
}

/// The four servers people start with, each mounted by the recipe that ships for it.
#[test]
fn the_reference_servers_work_as_mounts() {
    let Some(installed) = std::env::var_os("SLUICE_TEST_SERVERS").map(std::path::PathBuf::from) else {
        return eprintln!("skipped: SLUICE_TEST_SERVERS names no folder with servers (cargo xtask mcp installs them)");
    };
    let shared = tempfile::tempdir().unwrap();
    let git = |words: &[&str]| {
        let run = std::process::Command::new("git").args(words).current_dir(shared.path()).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    };
    fs::write(shared.path().join("list.txt"), "milk\n").unwrap();
    git(&["init", "-q", "."]);
    git(&["add", "list.txt"]);
    git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"]);
    let real = |path: &Path| fs::canonicalize(path).unwrap();
    // The interpreter lies where its prefix says, whatever links lead to it.
    let python = real(&installed.join("venv/bin/python")).parent().and_then(Path::parent).unwrap().to_path_buf();
    let which = std::process::Command::new("sh").args(["-c", "command -v node"]).output().unwrap();
    let node = real(Path::new(String::from_utf8_lossy(&which.stdout).trim()));
    let place = TestInstallation::new(
        "sandbox: degraded\nholds: {delays: {\"git.*\": 0s, \"files.*\": 0s, \"memory.*\": 0s}}\n",
        ORG,
        None,
    );
    fs::write(place.folder.path().join("policies/agents/clerk.yaml"), FREE).unwrap();
    for recipe in ["time", "git", "files", "memory"] {
        let file = format!("{}/../../examples/mounts/{recipe}.yaml", env!("CARGO_MANIFEST_DIR"));
        let mut add = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"));
        add.args(["mounts", "add", &file, "--config"]).arg(place.folder.path().join("sluice.yaml"));
        for (key, value) in
            [("installed", &real(&installed)), ("python", &python), ("node", &node), ("folder", &real(shared.path()))]
        {
            add.args(["--set", &format!("{key}={}", value.display())]);
        }
        let run = add.output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    let running = place.start();
    let scene = MountTestGateway { place, running };
    let folder = real(shared.path()).display().to_string();
    let call = |capability: &str, arguments: Value| {
        let body = json!({"capability": capability, "arguments": arguments, "wait_ms": 20_000});
        let mut answer = scene.place.call(&body).unwrap();
        // A busy machine may need longer than one wait; what it must come to is the same.
        for _ in 0..9 {
            if answer.status != 202 {
                break;
            }
            let path = format!("/v1/calls/{}?wait_ms=20000", answer.body["call_id"].as_str().unwrap());
            answer = ask(scene.place.main, "GET", &path, &scene.place.agent_key, None).unwrap();
            if answer.body["status"] != "done" {
                answer.status = 202;
            }
        }
        assert_eq!((answer.status, &answer.body["status"]), (200, &json!("done")), "{capability}: {answer:?}");
        assert_eq!(answer.body["result"]["data"]["is_error"], false, "{capability}: {answer:?}");
        answer.body["result"]["data"].to_string()
    };
    for (mount, tools) in [("time", 2), ("git", 12), ("files", 14), ("memory", 9)] {
        let mount = scene.open(mount);
        assert!(mount["open_tools"].as_u64() >= Some(tools) && mount["waiting_tools"] == 0, "{mount}");
    }
    assert!(call("time.get_current_time", json!({"timezone": "Europe/Berlin"})).contains("Europe/Berlin"));
    assert!(call("git.git_log", json!({"repo_path": folder})).contains("first"));
    assert!(call("files.read_text_file", json!({"path": format!("{folder}/list.txt")})).contains("milk"));
    call("files.write_file", json!({"path": format!("{folder}/list.txt"), "content": "milk, bread\n"}));
    assert_eq!(fs::read_to_string(shared.path().join("list.txt")).unwrap(), "milk, bread\n");
    call("git.git_add", json!({"repo_path": folder, "files": ["list.txt"]}));
    call("git.git_commit", json!({"repo_path": folder, "message": "second"}));
    assert!(call("git.git_log", json!({"repo_path": folder})).contains("second"));
    let entity = json!({"name": "Ana", "entityType": "person", "observations": ["likes bread"]});
    call("memory.create_entities", json!({"entities": [entity]}));
    assert!(call("memory.search_nodes", json!({"query": "bread"})).contains("Ana"));
    assert!(shared.path().join("memory.jsonl").exists());
}
