//! Witnesses: checkpoints are sent with a proof that a witness checks, its cosignatures are kept, and what it holds
//! against us reaches people.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::json;
use sluice_core::Millis;
use sluice_core::audit::AuditHash;
use sluice_core::audit::checkpoint::Checkpoint;
use sluice_core::audit::cosignature::{WitnessKey, message};
use sluice_core::audit::key::VerifierKey;
use sluice_core::audit::note::SignedNote;
use sluice_core::audit::tree::{self, TreeHead};
use sluice_gateway::loops::housekeeping;
use sluice_gateway::recovery::witness::WitnessSubmitter;
use sluice_store::{AlertFilter, MessageSeverity};

use super::test_gateway::{TestGateway, TestGatewayPlan};

/// What a witness remembers, and how it behaves.
#[derive(Default)]
struct TestWitnessMemory {
    log_key: Option<VerifierKey>,
    last: Option<TreeHead>,
    requests: usize,
    cosigned: usize,
    /// Answers with a signature of another key.
    lies: bool,
}

/// A small witness as the protocol wants it: it checks the signature and the proof, and remembers.
struct SmallWitness {
    at: SocketAddr,
    key: WitnessKey,
    memory: Arc<Mutex<TestWitnessMemory>>,
}

impl SmallWitness {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let secret = SigningKey::from_bytes(&[5; 32]);
        let key = WitnessKey::new("witness.example/w1", &secret.verifying_key().to_bytes()).unwrap();
        let memory = Arc::new(Mutex::new(TestWitnessMemory::default()));
        let (shared, own) = (Arc::clone(&memory), key.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(stream, &shared, &own, &secret);
            }
        });
        Self { at, key, memory }
    }
}

fn serve(mut stream: TcpStream, memory: &Mutex<TestWitnessMemory>, key: &WitnessKey, secret: &SigningKey) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length, mut path) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 {
            return;
        }
        if path.is_empty() {
            path = line.trim().to_owned();
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    assert_eq!(path, "POST /add-checkpoint HTTP/1.1");
    let (status, answer) = judge(&String::from_utf8(body).unwrap(), &mut memory.lock().unwrap(), key, secret);
    let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
    stream.write_all(format!("{head}{answer}").as_bytes()).unwrap();
}

fn judge(body: &str, memory: &mut TestWitnessMemory, key: &WitnessKey, secret: &SigningKey) -> (u16, String) {
    memory.requests += 1;
    let (head, note) = body.split_once("\n\n").unwrap();
    let mut lines = head.lines();
    let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
    let proof: Vec<AuditHash> =
        lines.map(|line| AuditHash(STANDARD.decode(line).unwrap().try_into().unwrap())).collect();
    assert!(proof.len() <= 63);
    let note = SignedNote::parse(note.as_bytes()).unwrap();
    let Some(log_key) = &memory.log_key else { return (404, String::new()) };
    let Ok(text) = note.open(std::slice::from_ref(log_key)) else { return (403, String::new()) };
    let checkpoint = Checkpoint::parse(text).unwrap();
    let known = memory.last.map_or(0, |last| last.size);
    if known != old {
        return (409, format!("{known}\n"));
    }
    let before = memory.last.unwrap_or(TreeHead { size: 0, root: tree::empty_root() });
    if tree::verify_consistency(&before, &checkpoint.tree, &proof).is_err() {
        return (422, String::new());
    }
    memory.last = Some(checkpoint.tree);
    memory.cosigned += 1;
    let time = 1_790_000_000_u64;
    let other = SigningKey::from_bytes(&[6; 32]);
    let signature = if memory.lies { &other } else { secret }.sign(&message(text, time)).to_bytes();
    let bytes = [key.id().as_slice(), &time.to_be_bytes(), &signature].concat();
    (200, format!("\u{2014} {} {}\n", key.name(), STANDARD.encode(bytes)))
}

async fn house(witness: &SmallWitness) -> TestGateway {
    let config = format!("audit:\n  witnesses:\n    - {{url: \"http://{}\", key: \"{}\"}}\n", witness.at, witness.key);
    let house = TestGateway::new(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    let path = house.folder.path().join("data/keys/audit.pub");
    let key = std::fs::read_to_string(path).unwrap().trim().parse().unwrap();
    witness.memory.lock().unwrap().log_key = Some(key);
    house
}

async fn topics(house: &TestGateway, severity_at_least: MessageSeverity) -> Vec<String> {
    let filter = AlertFilter { severity_at_least, ..AlertFilter::default() };
    let alerts = house.gw.store.alerts(filter, None, 50).await.unwrap();
    alerts.into_iter().map(|alert| alert.message.topic).collect()
}

#[tokio::test]
async fn each_checkpoint_is_cosigned_once_and_the_cosignature_is_kept() {
    let witness = SmallWitness::open();
    let house = house(&witness).await;
    let log = house.gw.store.node().clone();
    let mut witnesses = WitnessSubmitter::configured(&house.gw).unwrap().unwrap();
    witnesses.step(&house.gw).await.unwrap();
    assert_eq!(witness.memory.lock().unwrap().requests, 0, "there is nothing to cosign yet");
    for n in 0..4 {
        house.call("state.persistent.set", json!({"key": format!("k{n}"), "value": n})).await.unwrap();
        assert!(housekeeping::checkpoint(&house.gw, 1).await.unwrap());
        for _ in 0..2 {
            witnesses.step(&house.gw).await.unwrap();
        }
        let last = house.gw.store.last_checkpoint(log.clone()).await.unwrap().unwrap();
        let lines = house.gw.store.cosignatures(log.clone(), last.size).await.unwrap();
        assert_eq!(lines.len(), 1);
        assert!(witness.key.find_valid_cosignature(&last.note, &format!("{}\n", lines[0])).is_some());
        assert_eq!(witness.memory.lock().unwrap().cosigned, n + 1);
    }
    assert_eq!(witness.memory.lock().unwrap().requests, 4, "each is sent once");
    assert!(topics(&house, MessageSeverity::Warning).await.is_empty());
}

#[tokio::test]
async fn a_witness_that_was_asked_by_an_earlier_life_names_its_size_and_goes_on_from_there() {
    let witness = SmallWitness::open();
    let house = house(&witness).await;
    let mut witnesses = WitnessSubmitter::configured(&house.gw).unwrap().unwrap();
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    witnesses.step(&house.gw).await.unwrap();
    // As if our note of its answer had been lost.
    let db = rusqlite::Connection::open(house.folder.path().join("data/sluice.db")).unwrap();
    db.execute("DELETE FROM cosignatures", []).unwrap();
    house.call("state.persistent.set", json!({"key": "k", "value": 1})).await.unwrap();
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    witnesses.step(&house.gw).await.unwrap();
    let memory = witness.memory.lock().unwrap();
    assert_eq!((memory.requests, memory.cosigned), (3, 2), "one answer was 409 with its size");
}

#[tokio::test]
async fn a_witness_that_has_seen_more_or_another_history_is_a_critical_alert() {
    for (size, root) in [(u64::MAX >> 2, [7; 32]), (1, [7; 32])] {
        let witness = SmallWitness::open();
        let house = house(&witness).await;
        witness.memory.lock().unwrap().last = Some(TreeHead { size, root: AuditHash(root) });
        let mut witnesses = WitnessSubmitter::configured(&house.gw).unwrap().unwrap();
        housekeeping::checkpoint(&house.gw, 1).await.unwrap();
        for _ in 0..3 {
            witnesses.step(&house.gw).await.unwrap();
            house.pass(Millis::from_mins(2));
        }
        assert_eq!(topics(&house, MessageSeverity::Critical).await, ["witness.contradicts"], "told once");
        assert_eq!(witness.memory.lock().unwrap().cosigned, 0);
    }
}

#[tokio::test]
async fn a_cosignature_of_another_key_is_not_kept_and_a_silent_witness_stops_nothing() {
    let witness = SmallWitness::open();
    let house = house(&witness).await;
    let log = house.gw.store.node().clone();
    witness.memory.lock().unwrap().lies = true;
    let mut witnesses = WitnessSubmitter::configured(&house.gw).unwrap().unwrap();
    housekeeping::checkpoint(&house.gw, 1).await.unwrap();
    witnesses.step(&house.gw).await.unwrap();
    let size = house.gw.store.last_checkpoint(log.clone()).await.unwrap().unwrap().size;
    assert!(house.gw.store.cosignatures(log, size).await.unwrap().is_empty());
    assert_eq!(topics(&house, MessageSeverity::Warning).await, ["witness.failing"]);
    house.call("state.persistent.set", json!({"key": "k", "value": 1})).await.unwrap();
    assert!(!house.gw.recovery.is_suspected());
}

#[tokio::test]
async fn without_configuration_no_witness_is_asked() {
    let house = TestGateway::new(TestGatewayPlan::default()).await;
    assert!(WitnessSubmitter::configured(&house.gw).unwrap().is_none());
}
