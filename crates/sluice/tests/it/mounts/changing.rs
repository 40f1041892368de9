//! Mounts that come, go and become others while the gateway runs: through the command line, and by an edited file.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{FREE, MountTestGateway, stub};
use crate::running::{ask, pause};

impl MountTestGateway {
    pub(super) fn file(&self) -> std::path::PathBuf {
        self.place.folder.path().join("sluice.yaml")
    }

    /// A command of the operator of this gateway.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        // By the variable: behind `--` a flag would be one of the program that is added.
        command.args(words).env_clear();
        command.env("SLUICE_CONFIG", self.file()).env("SLUICE_TOKEN", &self.place.operator_token);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it; gives how it ended and what it said.
    pub(super) fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let run = self.command(words).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        (run.status.code(), said)
    }

    /// `sluice mounts add` with this very program as the server.
    fn add(&self, name: &str, kind: &str) -> (Option<i32>, String) {
        let program = std::env::current_exe().unwrap();
        let folder = program.parent().unwrap().display().to_string();
        let mut add = self.command(&["mounts", "add", name, "--read", &folder, "--env", &format!("STUB={kind}")]);
        add.arg("--").arg(&program).args(["mounts::stub_server", "--exact", "--ignored", "--nocapture"]);
        let run = add.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        (run.status.code(), said)
    }

    /// Edits the file as a person does, and says so to the gateway.
    fn edit(&self, change: impl FnOnce(String) -> String) {
        let text = fs::read_to_string(self.file()).unwrap();
        fs::write(self.file(), change(text)).unwrap();
        let pid = Pid::from_raw(i32::try_from(self.running.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
    }

    /// Processes of a mount: those whose home is its folder.
    pub(super) fn processes(&self, mount: &str) -> Vec<String> {
        let home = format!("HOME={}", self.place.folder.path().join("data/mounts").join(mount).join("home").display());
        let all = fs::read_dir("/proc").unwrap().flatten();
        let of_mount = |entry: &fs::DirEntry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|pair| pair == home.as_bytes())
        };
        let mut found: Vec<String> =
            all.filter(of_mount).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        found.sort();
        found
    }

    fn alerts(&self) -> String {
        self.operator("GET", "/v1/alerts", None).body.to_string()
    }

    fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..1_500 {
            if is_so() {
                return;
            }
            pause(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.place.folder.path().join("log")).unwrap_or_default();
        panic!("{what} did not come: {log}");
    }

    /// The tools an agent is shown over MCP.
    pub(super) fn tools(&self) -> String {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
        let mut line = self.mcp("POST", &body);
        let mut text = String::new();
        line.read_to_string(&mut text).unwrap();
        assert!(text.contains("sluice_whoami"), "{text}");
        text
    }

    fn mcp(&self, method: &str, body: &str) -> TcpStream {
        let (at, key, length) = (self.place.main, &self.place.agent_key, body.len());
        let mut line = TcpStream::connect(at).unwrap();
        line.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {key}\r\naccept: application/json, \
             text/event-stream\r\ncontent-type: application/json\r\nmcp-protocol-version: 2025-11-25\r\nconnection: \
             close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        line.write_all(request.as_bytes()).unwrap();
        line
    }
}

/// Reads a stream until a text has come.
fn until(line: &mut TcpStream, text: &str) {
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&read).contains(text) {
        let count = line.read(&mut piece).unwrap_or_else(|error| panic!("no {text}: {error}"));
        assert!(count > 0, "no {text}: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..count]);
    }
}

#[test]
fn a_server_that_is_added_is_there_at_once_and_one_that_is_removed_is_gone_with_what_was_held_for_it() {
    let scene = MountTestGateway::new("", FREE);
    let text = fs::read_to_string(scene.file()).unwrap();
    let mut listening = scene.mcp("GET", "");
    until(&mut listening, ": listening");
    assert!(!scene.tools().contains("good_echo"));
    let (code, said) = scene.add("good", "good");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("good: new") && said.contains("good.write"), "{said}");
    until(&mut listening, "notifications/tools/list_changed");
    assert!(scene.tools().contains("good_echo"));
    scene.open("good");
    assert_eq!(scene.said("good.echo", "hello"), "echo hello");
    // A write is held for half a minute; one that must be asked about is asked about.
    let held = scene.call("good.write", "later");
    assert_eq!((held.status, &held.body["status"]), (202, &json!("held")), "{held:?}");
    assert_eq!(scene.processes("good").len(), 1);

    let (code, said) = scene.run(&["mounts", "remove", "good"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("good: removed") && said.contains("held writes cancelled: 1"), "{said}");
    assert_eq!(fs::read_to_string(scene.file()).unwrap(), text, "the file is as it was, to the byte");
    assert_eq!(scene.processes("good"), [] as [&str; 0], "its program is gone");
    until(&mut listening, "notifications/tools/list_changed");
    assert!(!scene.tools().contains("good_echo"));
    assert_eq!(scene.call("good.echo", "x").body["code"], "schema.unknown_capability");
    assert_eq!(scene.operator("GET", "/v1/mounts/good", None).status, 404);
    let path = format!("/v1/calls/{}", held.body["call_id"].as_str().unwrap());
    let call = ask(scene.place.main, "GET", &path, &scene.place.agent_key, None).unwrap();
    assert_eq!(call.body["status"], "cancelled", "{call:?}");
    let record = scene.operator("GET", "/v1/audit/entries?limit=500", None).body.to_string();
    assert!(record.contains("mount.removed") && record.contains("mounts.reloaded"), "{record}");
    // It comes back as what was accepted; nothing has to be accepted again.
    let (code, said) = scene.add("good", "good");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(scene.said("good.echo", "again"), "echo again");
    assert_eq!(scene.mount("good")["waiting_tools"], 0);
}

#[test]
fn a_server_that_is_set_up_otherwise_is_started_again_and_no_other() {
    let scene = MountTestGateway::new(&(stub("one", "good", "") + &stub("two", "good", "")), FREE);
    scene.open("one");
    scene.open("two");
    let (one, two) = (scene.processes("one"), scene.processes("two"));
    assert_eq!((one.len(), two.len()), (1, 1));
    scene.edit(|text| text.replacen("STUB: good\n", "STUB: good\n      MORE: \"1\"\n", 1));
    scene.wait_for("another process", || {
        let now = scene.processes("one");
        now.len() == 1 && now != one
    });
    scene.open("one");
    assert_eq!(scene.said("one.echo", "a"), "echo a");
    assert_eq!(scene.said("two.echo", "b"), "echo b");
    assert_eq!(scene.processes("two"), two, "the other one was left alone");
    assert_eq!(scene.mount("two")["restarts"], 0);
}

#[test]
fn a_broken_file_changes_nothing_and_a_broken_server_is_its_own_trouble() {
    let scene = MountTestGateway::new(&stub("good", "good", ""), FREE);
    scene.open("good");
    let before = scene.processes("good");
    let good = fs::read_to_string(scene.file()).unwrap();
    // A mistake in one entry: nothing of the file is taken up, and people are told where it is.
    scene.edit(|text| format!("{text}  new: {{comand: x, env: {{KEY: hunter-2-canary}}}}\n"));
    scene.wait_for("the alert", || scene.alerts().contains("mounts.refused"));
    let refused = scene.operator("POST", "/v1/mounts/reload", None);
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("mount.invalid")), "{refused:?}");
    let line = format!("sluice.yaml:{}", good.lines().count() + 1);
    assert!(refused.body.to_string().contains(&line) && refused.body.to_string().contains("command"), "{refused:?}");
    let log = fs::read_to_string(scene.place.folder.path().join("log")).unwrap();
    let everything = format!("{log}{}{}", scene.alerts(), refused.body);
    assert!(!everything.contains("hunter-2"), "a secret was repeated: {everything}");
    assert_eq!(scene.said("good.echo", "still here"), "echo still here");
    let agent = ask(scene.place.main, "POST", "/v1/mounts/reload", &scene.place.agent_key, None).unwrap();
    assert_eq!(agent.status, 403, "an agent reloads nothing");
    // The gateway's own places are those it started with, or mounts could be let into them.
    fs::write(scene.file(), format!("{good}  peek: {{command: x}}\ndata: elsewhere\n")).unwrap();
    let moved = scene.operator("POST", "/v1/mounts/reload", None);
    assert!(moved.status == 422 && moved.body.to_string().contains("`data`"), "{moved:?}");
    // A program that is not there: told to whoever adds it, and to people once it stays so.
    fs::write(scene.file(), &good).unwrap();
    let (code, said) = scene.run(&["mounts", "add", "none", "--", "/no/such/program"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no program `/no/such/program`"), "{said}");
    scene.wait_for("the alert", || scene.alerts().contains("mount.down"));
    assert_eq!(scene.said("good.echo", "and here"), "echo and here");
    assert_eq!(scene.processes("good"), before, "it was never touched");
    // What cannot be used at all does not get into the file.
    let text = fs::read_to_string(scene.file()).unwrap();
    let (code, said) = scene.run(&["mounts", "add", "email", "--", "x"]);
    assert!(code == Some(1) && said.contains("was not changed"), "{said}");
    assert_eq!(fs::read_to_string(scene.file()).unwrap(), text);
    let (code, said) = scene.run(&["mounts", "remove", "nobody"]);
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn a_write_that_is_under_way_when_its_server_is_removed_ends_as_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let lines = stub("slow", "waits", &format!("      STUB_FILE: \"{}\"\n", pipe.display()));
    let scene = MountTestGateway::new(
        &lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", pipe.display())),
        FREE,
    );
    scene.open("slow");
    std::thread::scope(|threads| {
        let call = threads.spawn(|| scene.call("slow.write", "x"));
        // Opens when the server has the call in hand.
        let mut go = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        let removing = scene.command(&["mounts", "remove", "slow"]).spawn().unwrap();
        let offered = || {
            let list = ask(scene.place.main, "GET", "/v1/capabilities", &scene.place.agent_key, None).unwrap();
            list.body.to_string().contains("slow.write")
        };
        scene.wait_for("the removal", || !offered());
        go.write_all(b"go").unwrap();
        drop(go);
        let removed = removing.wait_with_output().unwrap();
        assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
        let answer = call.join().unwrap();
        let path = format!("/v1/calls/{}?wait_ms=5000", answer.body["call_id"].as_str().unwrap());
        let end: Value = ask(scene.place.main, "GET", &path, &scene.place.agent_key, None).unwrap().body;
        assert_eq!(end["status"], "done", "what the server did is known: {answer:?} {end}");
    });
    assert_eq!(scene.processes("slow"), [] as [&str; 0]);
}

#[test]
fn a_call_that_waited_is_held_against_what_the_server_says_of_its_tool_by_then() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let lines = stub("one", "turns", &format!("      STUB_FILE: \"{}\"\n", pipe.display()));
    let lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", pipe.display()));
    let scene = MountTestGateway::new(&lines.replace("timeout: 5s", "timeout: 30s\n    at_once: 1"), FREE);
    scene.open("one");
    std::thread::scope(|threads| {
        let first = threads.spawn(|| scene.call("one.write", "x"));
        // Opens when the server has the call in hand; the next one then waits for the only place.
        let mut go = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
        let next = threads.spawn(|| scene.call("one.echo", "x"));
        for _ in 0..50 {
            assert_eq!(scene.state_of("one", "echo"), "open");
        }
        go.write_all(b"go").unwrap();
        drop(go);
        let next = next.join().unwrap();
        assert_eq!(next.body["code"], "gateway.unsupported", "{next:?}");
        assert_eq!(first.join().unwrap().body["result"]["data"]["is_error"], false);
    });
    assert_eq!(scene.state_of("one", "echo"), "changed");
}

/// A port that leads to a server until it is closed.
fn closable(to: std::net::SocketAddr) -> (std::net::SocketAddr, impl FnOnce()) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&closing);
    let thread = std::thread::spawn(move || {
        let mut open = Vec::new();
        for near in listener.incoming().flatten() {
            if told.load(std::sync::atomic::Ordering::SeqCst) {
                break;
            }
            let far = TcpStream::connect(to).unwrap();
            for (mut from, mut into) in
                [(&near, &far), (&far, &near)].map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
            {
                std::thread::spawn(move || {
                    let _ended = std::io::copy(&mut from, &mut into);
                    let _closed = into.shutdown(std::net::Shutdown::Both);
                });
            }
            open.push(near);
        }
        drop(listener);
        open.iter().for_each(|near| drop(near.shutdown(std::net::Shutdown::Both)));
    });
    let close = move || {
        closing.store(true, std::sync::atomic::Ordering::SeqCst);
        drop(TcpStream::connect(address));
        thread.join().unwrap();
    };
    (address, close)
}

#[test]
fn a_refused_connection_is_called_that_with_its_place_in_the_list_and_in_the_call() {
    let (server, _heard) = super::StubServer { kind: "good".into(), file: None }.listen();
    let (address, close) = closable(server);
    let lines = format!(
        "  far: {{url: \"http://{address}/mcp\", http: true, allow_addresses: [127.0.0.1/32], timeout: 2s, start_timeout: 2s}}\n"
    );
    let scene = MountTestGateway::new(&lines, FREE);
    scene.open("far");
    assert_eq!(scene.said("far.echo", "before"), "echo before");
    close();
    let words = ["the connection was refused", &address.to_string()];
    let says = |text: &str| words.iter().all(|word| text.contains(word));
    let answer = scene.call("far.echo", "after");
    assert_eq!(answer.body["code"], "mount.down", "{answer:?}");
    assert!(says(answer.body["detail"].as_str().unwrap()) && answer.body["hint"].is_string(), "{answer:?}");
    // Looked at again, it is down, and says why.
    scene.operator("POST", "/v1/mounts/far/test", None);
    let mount = scene.until("far", |mount| mount["reason"].as_str().is_some_and(&says));
    assert_eq!(mount["state"], "down", "{mount}");
    let (code, said) = scene.run(&["mounts", "list"]);
    assert!(code == Some(0) && says(&said), "{said}");
}
