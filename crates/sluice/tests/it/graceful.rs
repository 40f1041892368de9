//! SIGTERM: what is under way gets its grace, nothing new begins, and the process ends as soon as nothing is under way.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::running::{RunningGateway, TestHttpResponse, TestInstallation, ask, pause};

/// A service that takes requests and answers each only when the test says so.
fn gated() -> (SocketAddr, Receiver<Sender<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, arrived) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || answer(stream, &tell));
        }
    });
    (address, arrived)
}

fn answer(mut stream: TcpStream, tell: &Sender<Sender<()>>) {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    while !text.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => text.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
    let (open, opened) = channel();
    if tell.send(open).is_ok() && opened.recv().is_ok() {
        let body = "{\"ok\":true}";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        let _gone = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    }
}

fn place(service: SocketAddr, config: &str) -> TestInstallation {
    let rules = "defaults: {tier: autonomous}\noverrides: [{capability: deploy, tier: autonomous}]\n";
    let more = format!("capabilities: declared\nbatch: {{limit: 1000}}\nholds: {{delays: {{deploy: 0s}}}}\n{config}");
    let place = TestInstallation::new(&more, rules, None);
    let folder = place.folder.path().join("declared");
    std::fs::create_dir_all(&folder).unwrap();
    let declared = format!(
        "summary: Deploys a release.\neffect: write\nhold_seconds: 0\nbase_url: http://{service}\n\
         allow_addresses: [127.0.0.1]\narguments:\n  version: {{type: text, required: true, max: 40}}\n\
         request:\n  method: POST\n  path: /releases\n  body: {{version: \"{{version}}\"}}\n"
    );
    std::fs::write(folder.join("deploy.yaml"), declared).unwrap();
    place
}

fn deploy(place: &TestInstallation, version: usize) -> String {
    let call = json!({"capability": "deploy", "arguments": {"version": version.to_string()}, "wait_ms": 0});
    let TestHttpResponse { status, body } = place.call(&call).unwrap();
    assert_eq!(status, 202, "{body}");
    body["buffer_id"].as_str().unwrap().to_owned()
}

fn terminate(running: &RunningGateway) {
    let id = rustix::process::Pid::from_raw(running.0.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
}

/// Whether the process ends, in real time and bounded.
fn ends(running: &mut RunningGateway) -> bool {
    (0..3_000).any(|_| {
        pause(Duration::from_millis(10));
        running.0.try_wait().unwrap().is_some()
    })
}

fn states(place: &TestInstallation, ids: &[String]) -> Vec<String> {
    let state = |id: &String| {
        let path = format!("/v1/holds/{id}");
        let found: Value = ask(place.main, "GET", &path, &place.operator_token, None).unwrap().body;
        found["state"].as_str().unwrap().to_owned()
    };
    ids.iter().map(state).collect()
}

#[test]
fn writes_under_way_end_within_the_grace_and_the_process_with_the_last_of_them() {
    let (service, arrived) = gated();
    let place = place(service, "limits: {stop_grace: 5m}\n");
    let mut running = place.start();
    let ids: Vec<String> = (0..5).map(|version| deploy(&place, version)).collect();
    let gates: Vec<Sender<()>> = ids.iter().map(|_| arrived.recv_timeout(Duration::from_secs(30)).unwrap()).collect();
    terminate(&running);
    // Told to stop, it takes nothing new, and says so as long as it is there.
    let call = json!({"capability": "deploy", "arguments": {"version": "6"}, "wait_ms": 0});
    let refused = (0..3_000).any(|_| {
        pause(Duration::from_millis(5));
        place.call(&call).is_ok_and(|answer| answer.body["code"] == "gateway.stopping")
    });
    assert!(refused && running.0.try_wait().unwrap().is_none(), "it waits for what is under way");
    assert!(arrived.try_recv().is_err(), "nothing new is begun");
    gates.into_iter().for_each(|gate| gate.send(()).unwrap());
    assert!(ends(&mut running), "nothing is under way any more, and the grace is long");
    let _running = place.start();
    assert_eq!(states(&place, &ids), ["done"; 5]);
}

#[test]
fn what_does_not_end_within_the_grace_is_looked_up_after_the_next_start() {
    let (service, arrived) = gated();
    let place = place(service, "limits: {stop_grace: 100ms}\n");
    let mut running = place.start();
    let id = deploy(&place, 1);
    let _gate = arrived.recv_timeout(Duration::from_secs(30)).unwrap();
    terminate(&running);
    assert!(ends(&mut running), "it does not wait longer than the grace");
    let _running = place.start();
    let state = states(&place, &[id]);
    assert!(["in_doubt", "needs_human"].contains(&state[0].as_str()), "{state:?}");
}
