//! The bomb zoo where it goes off: in workers, of a gateway that has other things to do.
//!
//! Promise held here: every bomb ends within five seconds of processor time in a worker that the kernel keeps under
//! 256 MB, and whoever asks the gateway something else meanwhile is answered as before.

#[path = "../../../content/tests/bombs/zoo.rs"]
mod zoo;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::{Clock, Millis};
use sluice_services::workers::{
    JailMode, RefusingWorkerHost, Spawner, WorkerCancel, WorkerEnd, WorkerJob, WorkerJobOutcome, WorkerLimits,
    WorkerProgram, WorkerTask,
};

use crate::running::TestInstallation;
use crate::workers::TickingClock;
use zoo::{ContentBomb, zoo};

const SIZE: usize = 512 << 10;

#[test]
fn every_bomb_ends_in_a_worker_under_256_mb_within_five_seconds() {
    assert_eq!(WorkerLimits::default().memory, 256 << 20, "what workers have unless somebody says otherwise");
    // What is packed is unpacked on the way in, before a worker sees it.
    let bombs: Vec<ContentBomb> = zoo(SIZE).into_iter().filter(|bomb| bomb.packed.is_none()).collect();
    assert!(bombs.len() >= 60, "{}", bombs.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let program = WorkerProgram::at(Path::new(env!("CARGO_BIN_EXE_sluice"))).unwrap();
                let spawner = Spawner::new(program, Arc::new(TickingClock)).unwrap();
                while let Some(bomb) = bombs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let payload = json!({"declared": bomb.content_type, "beside": null});
                    let job =
                        WorkerJob { kind: "content.clean".into(), payload, attachments: vec![bomb.bytes.clone()] };
                    let task =
                        WorkerTask { job, limits: WorkerLimits::default(), mode: JailMode::Required, scratch: None };
                    let end = spawner.run(task, &mut RefusingWorkerHost, &WorkerCancel::new().unwrap()).unwrap();
                    let WorkerEnd::Clean(done) = end else { panic!("`{}`: {end:?}", bomb.name) };
                    assert!(matches!(done.report.outcome, WorkerJobOutcome::Done(_)), "`{}`", bomb.name);
                    assert!(done.usage.cpu < Millis::from_secs(5), "`{}` took {}", bomb.name, done.usage.cpu);
                    assert!(done.layers.missing_mandatory().is_empty(), "the limits are among these");
                }
            });
        }
    });
}

/// Serves the zoo, one bomb under each number.
fn serve(bombs: Vec<ContentBomb>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let bombs = Arc::new(bombs);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let bombs = Arc::clone(&bombs);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut first = String::new();
                let _read = reader.read_line(&mut first);
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                    line.clear();
                }
                let number = first.split(['/', ' ']).find_map(|part| part.parse::<usize>().ok()).unwrap_or(usize::MAX);
                let Some(bomb) = bombs.get(number) else { return };
                let kind = bomb.content_type.unwrap_or("text/plain");
                let packed = bomb.packed.map(|how| format!("content-encoding: {how}\r\n")).unwrap_or_default();
                let length = bomb.bytes.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{packed}content-length: {length}\r\nconnection: close\r\n\r\n"
                );
                drop(
                    reader.get_mut().write_all(head.as_bytes()).and_then(|()| reader.get_mut().write_all(&bomb.bytes)),
                );
            });
        }
    });
    port
}

/// How long a small read takes, in milliseconds.
fn small_read(place: &TestInstallation) -> u64 {
    let before = TickingClock.since_boot();
    let answer = place.call(&json!({"capability": "system.info", "arguments": {}})).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    TickingClock.since_boot().as_millis() - before.as_millis()
}

fn middle(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_gateway_whose_workers_are_full_of_bombs_answers_others_as_before() {
    let bombs = zoo(SIZE);
    let count = bombs.len();
    let port = serve(bombs);
    let config = format!(
        "sandbox: degraded\negress:\n  connections:\n    zoo: {{hosts: [127.0.0.1], ports: [{port}], http: true, allow_addresses: \
         [127.0.0.1/32], agents: all, per_minute: off, per_hour: off, burn: off}}\nbatch: {{services: {{network: off}}}}\n"
    );
    let place = TestInstallation::new(&config, "defaults: {tier: autonomous}\noverrides: []\n", None);
    let free = "rules:\n  - {capability: \"*\", tier: autonomous}\n";
    std::fs::write(place.folder.path().join("policies/agents/clerk.yaml"), free).unwrap();
    let _running = place.start();
    let quiet = middle((0..50).map(|_| small_read(&place)).collect());
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (ends, busy) = std::thread::scope(|threads| {
        let fetch = || {
            let mut ends = Vec::new();
            loop {
                // Every fifth, from the start to the end of the zoo: the others were read by the test above.
                let number = next.fetch_add(5, Ordering::SeqCst);
                if number >= count {
                    return ends;
                }
                let arguments = json!({"url": format!("http://127.0.0.1:{port}/{number}")});
                let body = json!({"capability": "network.http_request", "arguments": arguments, "wait_ms": 25_000, "allow_duplicate": true});
                ends.push((number, place.call(&body).unwrap().body));
            }
        };
        let fetchers: Vec<_> = (0..4).map(|_| threads.spawn(fetch)).collect();
        let prober = threads.spawn(|| {
            let mut times = Vec::new();
            while !over.load(Ordering::SeqCst) {
                times.push(small_read(&place));
                crate::running::pause(Duration::from_millis(5));
            }
            times
        });
        let ends: Vec<(usize, Value)> = fetchers.into_iter().flat_map(|fetcher| fetcher.join().unwrap()).collect();
        over.store(true, Ordering::SeqCst);
        (ends, prober.join().unwrap())
    });
    assert_eq!(ends.len(), count.div_ceil(5));
    let log = std::fs::read_to_string(place.folder.path().join("log")).unwrap();
    for (number, end) in &ends {
        let text = end.to_string();
        assert!(end["status"] == "done" || text.contains("egress."), "{number}: {text:.400}\n{log}");
    }
    // On a busy machine one may use up its five seconds waiting for its turn; it is cut off then, and that is all.
    for broken in ["the worker that read the item broke", "reported nonsense", "could not read the item"] {
        assert!(!log.contains(broken), "{log}");
    }
    let read = ends.iter().filter(|(_, end)| !end.to_string().contains("content.unread")).count();
    assert!(read * 2 > ends.len(), "only {read} of {} were read\n{log}", ends.len());
    // Four processes compete for the processor with whoever answers; what must not happen is that answers wait for bombs,
    // which take seconds.
    let (answered, busy) = (busy.len(), middle(busy));
    assert!(answered >= 20, "only {answered} were answered meanwhile");
    assert!(busy <= quiet * 10 + 100, "half of the answers took {busy} ms instead of {quiet}");
}
