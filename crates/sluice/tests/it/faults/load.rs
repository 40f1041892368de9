//! Agents that write under load, by every class of effect, and what they were told.
//!
//! Takes a gateway and the service that counts; gives the outcome of every write that was acknowledged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::depth::repetitions;

use super::oracle::EffectOracle;
use super::table::{ScenarioReport, ScenarioWrite};
use crate::running::{TestInstallation, ask, pause};

/// The classes of effect A to D at the service that counts, and lines in files.
const KINDS: [&str; 5] = ["absolute", "consume_once", "findable", "opaque", "files"];
const CLIENTS: usize = 4;
/// Every so many writes of a client is one that waits and is cancelled.
const CANCELLED: usize = 5;
/// How long what is under way may take after the last fault, in steps of a quarter of a second.
const PATIENCE: [u64; 2] = [240, 4_800];

pub const RULES: &str = "defaults: {tier: autonomous}\noverrides:\n\
    - {capability: \"absolute.*\", tier: autonomous}\n- {capability: \"consume_once.*\", tier: autonomous}\n\
    - {capability: \"findable.*\", tier: autonomous}\n- {capability: \"opaque.*\", tier: autonomous}\n";

/// The configuration of every scenario: no batch windows and no pace, which are proven elsewhere.
pub const CONFIG: &str = "sandbox: degraded\ncapabilities: declared\nrelease: {pace: \"off\"}\n\
    batch: {services: {filesystem: off, custom.absolute: off, custom.consume_once: off, custom.findable: off, custom.opaque: off}}\n\
    holds: {delays: {\"filesystem.*\": 0s}}\n";

/// One write, as far as its agent knows.
#[derive(Debug, Clone)]
struct AcknowledgedWrite {
    kind: &'static str,
    call: String,
    is_cancelled: bool,
}

/// Agents at work.
pub struct AgentLoad {
    over: Arc<AtomicBool>,
    told: Arc<Mutex<BTreeMap<String, AcknowledgedWrite>>>,
    clients: Vec<JoinHandle<()>>,
    at: Vec<Arc<TestInstallation>>,
    oracle: EffectOracle,
}

/// Declares what the service offers, in a place: for each class one write that leaves at once, and one that waits.
pub fn declare(place: &TestInstallation, oracle: &EffectOracle) {
    let folder = place.folder.path().join("declared");
    fs::create_dir_all(&folder).unwrap();
    for class in &KINDS[..4] {
        let more = match *class {
            "consume_once" => "idempotency_header: Idempotency-Key\n",
            "findable" => "lookup: {path: /findable, query: {key: \"{call.key}\"}, applied: /items/0}\n",
            _ => "",
        };
        for (name, seconds) in [("now", 0), ("later", 4)] {
            let text = format!(
                "summary: Does one thing of class {class}.\neffect: write\nclass: {class}\nhold_seconds: {seconds}\n\
                 base_url: http://{}\nallow_addresses: [127.0.0.1]\n\
                 limits: {{per_minute: 1000000, per_hour: 100000000, burn: 100000000, timeout_seconds: 3}}\n\
                 arguments:\n  mark: {{type: text, required: true, max: 60}}\n\
                 request:\n  method: POST\n  path: /{class}\n  body: {{mark: \"{{mark}}\", key: \"{{call.key}}\"}}\n{more}",
                oracle.address
            );
            fs::write(folder.join(format!("{class}.{name}.yaml")), text).unwrap();
        }
    }
}

impl AgentLoad {
    /// Starts the agents, spread over the nodes.
    pub fn start(at: &[Arc<TestInstallation>], oracle: &EffectOracle) -> Self {
        let (over, told) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let begun = Arc::new(AtomicUsize::new(0));
        let clients = (0..CLIENTS).map(|client| {
            let (place, work) = (Arc::clone(&at[client % at.len()]), at[0].work());
            let (over, told, begun) = (Arc::clone(&over), Arc::clone(&told), Arc::clone(&begun));
            std::thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let n = begun.fetch_add(1, Ordering::SeqCst);
                    write(&place, &work, n, &over, &told);
                }
            })
        });
        Self { clients: clients.collect(), over, told, at: at.to_vec(), oracle: oracle.clone() }
    }

    /// How much was acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    /// Waits until so much more was acknowledged, in real time and bounded.
    pub fn goes_on(&self, more: usize) {
        let before = self.acknowledged();
        let grew = (0..6_000).any(|_| {
            pause(Duration::from_millis(10));
            self.acknowledged() >= before + more
        });
        let log = fs::read_to_string(self.at[0].folder.path().join("log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(20).collect();
        assert!(grew, "nothing was acknowledged any more: {end:#?}");
    }

    /// The agents ask for nothing more.
    pub fn stop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.clients.drain(..).for_each(|client| client.join().unwrap());
    }

    /// Waits until nothing is under way, and says what came of everything.
    pub fn settle(mut self, scenario: &str, is_interrupted: bool) -> ScenarioReport {
        self.stop();
        self.wait_until_over();
        let table = ScenarioReport::new(scenario, &self.outcomes(is_interrupted));
        println!("{table}");
        table
    }

    /// Writes that wait for a planned lookup or attempt are over only in a nightly run: those take minutes.
    fn wait_until_over(&self) {
        let under_way: &[&str] = match repetitions(0, 1) {
            0 => &["held", "ready", "preparing", "armed"],
            _ => &["held", "ready", "preparing", "armed", "in_doubt", "retrying"],
        };
        for _ in 0..repetitions(PATIENCE[0], PATIENCE[1]) {
            let place = &self.at[0];
            let status = ask(place.main, "GET", "/v1/status", &place.operator_token, None);
            let is_over = |status: Value| {
                status["holds"]
                    .as_object()
                    .is_some_and(|holds| !under_way.iter().any(|state| holds.contains_key(*state)))
            };
            if status.is_ok_and(|answer| answer.status == 200 && is_over(answer.body)) {
                return;
            }
            pause(Duration::from_millis(250));
        }
    }

    fn outcomes(&self, is_interrupted: bool) -> Vec<ScenarioWrite> {
        let (told, mut effects, arrived) = (self.told.lock().unwrap(), self.oracle.effects(), self.oracle.arrived());
        effects.extend(lines(&self.at[0]));
        let known = effects.keys().filter(|mark| !told.contains_key(*mark)).count();
        // A write whose answer was lost may have happened; at most one of each client is like that.
        assert!(known <= CLIENTS, "{known} effects that nobody was told of");
        let outcome = |(mark, told): (&String, &AcknowledgedWrite)| {
            let times = effects.get(mark).copied().unwrap_or(0);
            let is_doubtful = told.kind == "opaque" && (is_interrupted || arrived.contains(mark));
            let (mark, class, is_cancelled) = (mark.clone(), told.kind, told.is_cancelled);
            ScenarioWrite { mark, class, status: self.status(&told.call), is_cancelled, times, is_doubtful }
        };
        told.iter().map(outcome).collect()
    }

    fn status(&self, call: &str) -> String {
        let place = &self.at[0];
        for _ in 0..200 {
            let answer = ask(place.main, "GET", &format!("/v1/calls/{call}"), &place.agent_key, None);
            match answer {
                Ok(answer) if answer.status == 200 => return answer.body["status"].as_str().unwrap().to_owned(),
                Ok(answer) if answer.status == 404 => return "unknown".to_owned(),
                Ok(_) | Err(_) => pause(Duration::from_millis(50)),
            }
        }
        panic!("the gateway does not say what came of {call}");
    }
}

/// One write: asked for with its own key until there is an answer, and some of them cancelled.
fn write(
    place: &TestInstallation,
    work: &Path,
    n: usize,
    over: &AtomicBool,
    told: &Mutex<BTreeMap<String, AcknowledgedWrite>>,
) {
    let (kind, mark) = (KINDS[n % KINDS.len()], format!("mark-{n}"));
    let is_cancelled = kind != "files" && (n / KINDS.len()).is_multiple_of(CANCELLED);
    let (capability, arguments) = match kind {
        "files" => {
            let path = work.join(format!("{mark}.log"));
            ("filesystem.append".to_owned(), json!({"path": path, "content": format!("{mark}\n")}))
        }
        class => (format!("{class}.{}", if is_cancelled { "later" } else { "now" }), json!({"mark": mark})),
    };
    let wait = if is_cancelled { 0 } else { 300 };
    let body = json!({"capability": capability, "idempotency_key": mark, "wait_ms": wait, "arguments": arguments});
    let Some(call) = until_answered(over, || {
        let answer = place.call(&body).ok()?;
        // Only a call that was taken is acknowledged, also one that is in doubt by now; whoever is refused asks again.
        let is_under_way = answer.body["code"].as_str().is_some_and(|code| code.starts_with("execute."));
        Some(answer.body["call_id"].as_str().filter(|_| answer.status < 300 || is_under_way)?.to_owned())
    }) else {
        return;
    };
    told.lock().unwrap().insert(mark.clone(), AcknowledgedWrite { kind, call: call.clone(), is_cancelled: false });
    if is_cancelled {
        let path = format!("/v1/calls/{call}/cancel");
        let answer = until_answered(over, || {
            let answer = ask(place.main, "POST", &path, &place.agent_key, None).ok()?;
            (answer.status < 500 && answer.status != 429).then_some(answer)
        });
        let is_cancelled = answer.is_some_and(|answer| answer.status == 200 && answer.body["status"] == "cancelled");
        told.lock().unwrap().insert(mark, AcknowledgedWrite { kind, call, is_cancelled });
    }
}

/// Asks until there is an answer, or until the scenario is over.
fn until_answered<T>(over: &AtomicBool, ask: impl Fn() -> Option<T>) -> Option<T> {
    for _ in 0..3_000 {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if over.load(Ordering::SeqCst) {
            return None;
        }
        pause(Duration::from_millis(20));
    }
    None
}

/// How often each line is in the files of the agent's folder.
fn lines(place: &TestInstallation) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(place.work()).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            for line in fs::read_to_string(entry.path()).unwrap().lines() {
                *found.entry(line.to_owned()).or_default() += 1;
            }
        }
    }
    found
}
