//! One task of a proxy, from its start to its end.
//!
//! Takes an operation and its arguments; gives what the schema allows of the answer, or a refusal. Promise: on any
//! end, in this order: the log is flushed, the crash report is written, the draft in progress is marked, the end is
//! recorded with what follows from it; nothing secret is written on the way. A task lives to its end whether or not
//! somebody still waits for it, a file that cannot be written keeps no end from being recorded, and what may have
//! changed something is never called undone.

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use sluice_content::stages::Schema;
use sluice_core::crash::{Cause, CrashReport, Footprint, NextStep, Scene, next_step};
use sluice_core::ids::JobId;
use sluice_core::proxy::spawn::SpawnOptions;
use sluice_core::proxy::{Method, Operation, Output, Proposal, Proxy, ProxyUsage, is_summary, project, tighten};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::throttle::Stop;
use sluice_core::{Actor, AgentName, CapabilityName, Span};
use sluice_store::{Message, NewTask, Severity, StoreError, TaskBegun, TaskEnd, TaskNotes, TaskSpent, TaskState};
use tokio::runtime::Handle;

use super::host::TaskHost;
use super::service::ProxyService;
use super::workspace::Exchange;
use super::{base_path, right};
use crate::egress::{EgressNo, Scope, Target};
use crate::value::at;
use crate::workers::{CutOff, End, Job, Limits, Mode, Order, Outcome, WorkersError};

/// How long a call may wait for its task to be started again, all starts together. Beyond it whoever asked is told
/// when to ask again.
const PATIENCE: Span = Span::from_secs(10);
/// The last part of a task's time, which the service does not get: a slow service is not a worker that hangs.
const MARGIN: Span = Span::from_secs(2);
/// Most findings of one answer that are counted; a worker says how many there are.
const MOST_FINDINGS: u64 = 10_000;
/// Refusals that the same task would meet again.
const FOR_GOOD: [Code; 3] = [Code::ExecuteRefused, Code::SchemaWrongType, Code::ProxyOutput];

/// What one task is to do.
#[derive(Debug, Clone)]
pub(super) struct Errand {
    pub agent: AgentName,
    pub capability: CapabilityName,
    pub name: String,
    pub operation: Operation,
    pub arguments: Map<String, Value>,
    /// What a spawn adds.
    pub spawn: Option<SpawnOptions>,
}

/// How often in a row the same errand ended by a fault that is nobody's attack, and when it may be started again, in time
/// since boot.
#[derive(Debug, Default)]
pub(super) struct Faults(HashMap<u64, (u32, Span)>);

impl Faults {
    /// Most errands that are counted. Beyond it counting begins anew: an outage, not one bad errand.
    const MOST: usize = 1_000;

    fn of(&self, errand: &Errand) -> (u32, Span) {
        self.0.get(&errand.print()).copied().unwrap_or_default()
    }

    fn note(&mut self, errand: &Errand, (times, not_before): (u32, Span)) {
        if times == 0 {
            self.0.remove(&errand.print());
            return;
        }
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        self.0.insert(errand.print(), (times, not_before));
    }
}

impl Errand {
    fn print(&self) -> u64 {
        let mut print = std::hash::DefaultHasher::new();
        let arguments = sluice_core::json::canonical(&Value::Object(self.arguments.clone()));
        (self.agent.as_str(), &self.name, arguments).hash(&mut print);
        print.finish()
    }

    fn writes(&self) -> bool {
        self.operation.method != Method::Get
    }
}

/// Why a task gave nothing.
#[derive(Debug)]
pub(super) struct NotGiven {
    pub refusal: Refusal,
    /// Whether something may have changed at the service.
    pub changed: bool,
    /// Whether the same task would be refused again.
    pub for_good: bool,
}

/// How one life of a task ended.
struct Life {
    given: Result<Value, Refusal>,
    changed: bool,
    /// Whether the same task would be refused again.
    for_good: bool,
    /// How long to wait before it is started again, if it is.
    again: Option<Span>,
}

impl ProxyService {
    /// Runs a task; starts it again where that is right.
    pub(super) async fn run(&self, errand: &Errand) -> Result<Value, NotGiven> {
        let (mut lives, not_before) = self.faults().of(errand);
        // Also whoever asks for the same anew waits until the task may be started again.
        let clock = &self.ground().clock;
        let left = Span::from_millis(not_before.as_millis().saturating_sub(clock.since_boot().as_millis()));
        if left > Span::ZERO {
            let text = format!("the same task failed a moment ago and is not started again for {left}");
            let refusal = Refusal::new(Code::ExecuteUnavailable).with_text(&text).retry_after(left);
            return Err(NotGiven { refusal, changed: false, for_good: false });
        }
        let mut waited = 0;
        loop {
            let life = self.live(errand, lives).await;
            // Whoever asks for the same again goes on counting where the last one stopped.
            lives = if life.given.is_err() && life.again.is_some() { lives + 1 } else { 0 };
            let not_before = clock.since_boot() + life.again.unwrap_or(Span::ZERO);
            self.faults().note(errand, (lives, not_before));
            match (life.given, life.again) {
                (Ok(value), _) => return Ok(value),
                // Whatever may have changed something is never simply done again, and a credential that was refused is
                // not accepted a moment later.
                (Err(no), Some(after))
                    if !life.changed
                        && no.code() != Code::ExecuteReconnect
                        && waited + after.as_millis() <= PATIENCE.as_millis() =>
                {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "no loop: the call itself waits until its task may run again"
                    )]
                    tokio::time::sleep(after.as_duration()).await;
                    waited += after.as_millis();
                }
                (Err(refusal), Some(after)) if !life.changed => {
                    return Err(NotGiven { refusal: refusal.retry_after(after), changed: false, for_good: false });
                }
                (Err(refusal), _) => {
                    return Err(NotGiven { refusal, changed: life.changed, for_good: life.for_good });
                }
            }
        }
    }

    /// One life.
    async fn live(&self, errand: &Errand, lives: u32) -> Life {
        let ground = self.ground();
        let id = JobId::mint(ground.ids.as_ref());
        let never = |refusal: Refusal| Life { given: Err(refusal), changed: false, for_good: false, again: None };
        let task = NewTask {
            id,
            proxy: self.name().to_owned(),
            operation: errand.name.clone(),
            agent: errand.agent.clone(),
            estimate: self.declared().estimate(self.wall(errand.spawn.as_ref())),
            limits: self.declared().budget.limits(),
            message: ground.message(),
        };
        let began = ground.clock.since_boot();
        match ground.store.begin_task(task).await {
            Err(error @ (StoreError::Frozen { .. } | StoreError::Braked { .. })) => {
                return never(*crate::No::from(error).refusal);
            }
            Err(error) => return never(unavailable(error)),
            Ok(TaskBegun::OverBudget(limit)) => return never(self.over_budget(limit)),
            Ok(TaskBegun::Stands(standing)) => {
                let text = format!("the proxy `{}` waits for a person: {}", self.name(), standing.reason);
                return never(Refusal::new(Code::WorkerQuarantined).with_text(&text));
            }
            Ok(TaskBegun::Begun) => {}
        }
        // From here on there is a task, and it must have an end.
        let remains = self.work(id, errand).await;
        ground.egress.end_job(id);
        self.bury((id, began), errand, lives, remains).await
    }

    /// Everything that can go wrong while the task is at work.
    async fn work(&self, id: JobId, errand: &Errand) -> Remains {
        let early = |refusal: Refusal| Remains::of(Err(refusal), TaskState::Crashed);
        let broken = |error: std::io::Error| Refusal::new(Code::WorkerCrashed).because(error);
        if let Err(error) = self.workspace().make() {
            return early(broken(error));
        }
        if errand.writes() {
            let arguments = Value::Object(errand.arguments.clone());
            if let Err(error) = self.workspace().draft(id, &errand.name, arguments, self.ground().clock.now()) {
                return early(broken(error));
            }
        }
        let (order, host) = match self.order(id, errand).await {
            Ok(ready) => ready,
            Err(refusal) => return early(refusal),
        };
        match self.ground().workers.run(order, host).await {
            Err(error) => {
                let code = Code::from_code(error.code()).unwrap_or(Code::GatewaySandbox);
                let lost = matches!(error, WorkersError::Strange(_)) && errand.writes();
                // Nobody knows how far it came: all that was reserved counts as used.
                Remains { changed: lost, spent: None, ..early(Refusal::new(code).with_text(&error.to_string())) }
            }
            Ok((End::Clean(done), host)) => {
                let findings = match &done.report.outcome {
                    Outcome::Done(payload) => at(payload, "/findings").as_u64().unwrap_or(0).min(MOST_FINDINGS),
                    Outcome::Failed { .. } => 0,
                };
                let (cause, judged) = self.judge(errand, &host, done.report.outcome);
                let state = if cause.is_some() { TaskState::Crashed } else { TaskState::Clean };
                let (given, proposals) = match judged {
                    Ok((data, proposals)) => (Ok(data), proposals),
                    Err(refusal) => (Err(refusal), Vec::new()),
                };
                Remains { cause, proposals, findings, ..Remains::of(given, state) }.with(host)
            }
            Ok((End::Crashed(crash), host)) => {
                let words = crash.last_words.map(|words| words.place);
                let given = Err(Refusal::new(Code::WorkerCrashed));
                Remains { cause: Some(crash.cause), words, ..Remains::of(given, TaskState::Crashed) }.with(host)
            }
            Ok((End::CutOff { why: CutOff::Cancelled, .. }, host)) => {
                Remains::of(Err(Refusal::new(Code::GatewayStopping)), TaskState::CutOff).with(host)
            }
            Ok((End::CutOff { why: CutOff::Time, .. }, host)) => {
                let text = format!("the task took longer than {}", self.wall(errand.spawn.as_ref()));
                let given = Err(Refusal::new(Code::WorkerCrashed).with_text(&text));
                Remains { cause: Some(Cause::Exhausted), ..Remains::of(given, TaskState::CutOff) }.with(host)
            }
        }
    }

    async fn order(&self, id: JobId, errand: &Errand) -> Result<(Order, TaskHost), Refusal> {
        let (ground, declared) = (self.ground(), self.declared());
        let internal = |why: String| Refusal::new(Code::GatewayInternal).with_text(&why);
        let target = Target::parse(&declared.base_url).map_err(|why| internal(why.to_owned()))?;
        let (limits, wall) = (declared.limits(), self.wall(errand.spawn.as_ref()));
        let scope = Scope {
            job: id,
            capability: errand.capability.to_string(),
            hosts: vec![target.host().to_owned()],
            operations: vec![right(declared, &errand.operation).map_err(internal)?],
            by: Actor::Agent(errand.agent.clone()),
            lasts: wall,
        };
        let ticket = ground.egress.issue(self.connection(), scope).await.map_err(EgressNo::refusal)?;
        let payload = json!({
            "operation": errand.operation, "trust": declared.trust, "base_path": base_path(declared),
            "arguments": errand.arguments, "ticket": ticket.expose(),
            "identity": declared.identity, "told": self.told(errand),
        });
        let job = Job { kind: "proxy.run".into(), payload, attachments: Vec::new() };
        let largest = u64::from(limits.answer_kb) << 10;
        let limits = Limits { wall, exchanges: 1, ..Limits::default() };
        let mode = match declared.isolation {
            sluice_core::proxy::Isolation::Maximum => Some(Mode::Required),
            sluice_core::proxy::Isolation::Configured => None,
        };
        let order = Order { job, scratch: None, limits: Some(limits), mode };
        let service = Proxy::service_name(self.name()).ok_or_else(|| internal("it has no name".to_owned()))?;
        let host = TaskHost {
            egress: Arc::clone(&ground.egress),
            store: Arc::clone(&ground.store),
            scope: (errand.agent.clone(), service),
            clock: Arc::clone(&ground.clock),
            handle: Handle::current(),
            origin: origin(&target),
            task: id,
            status: None,
            requests: 0,
            changed: false,
            lines: Vec::new(),
            last: None,
            refused: None,
            largest,
            spent: (0, 0),
            leaked: false,
            answer_bytes: None,
            margin: MARGIN,
        };
        Ok((order, host))
    }

    /// What a worker that left in order says. It is held against the schema once more: its word counts for nothing.
    fn judge(&self, errand: &Errand, host: &TaskHost, outcome: Outcome) -> (Option<Cause>, Judged) {
        let refused = |code: Code, text: &str| Err(Refusal::new(code).with_text(text));
        // Decoding may have put a reflected credential together.
        let secrets = host.egress.secrets();
        let outcome = match outcome {
            Outcome::Failed { code, text } => Outcome::Failed { code, text: secrets.scrub_text(&text).unwrap_or(text) },
            Outcome::Done(payload) => Outcome::Done(secrets.scrub_json(&payload).unwrap_or(payload)),
        };
        match outcome {
            Outcome::Failed { code, text } => match (code.as_str(), &host.refused) {
                ("proxy.auth", _) => (Some(Cause::AuthFailure), refused(Code::ExecuteReconnect, &text)),
                (_, Some(EgressNo::Stopped { stop: Stop::Burn, .. })) => {
                    let limit = u64::from(self.declared().limits().burn);
                    (
                        Some(Cause::BurnLimit { limit }),
                        refused(Code::EgressBurned, "the proxy has used up its requests"),
                    )
                }
                (_, Some(no)) => (None, refused(no.code(), &no.to_string())),
                ("proxy.rate", None) => (None, refused(Code::EgressLimit, &text)),
                ("proxy.arguments", None) => (None, refused(Code::SchemaWrongType, &text)),
                // What the service answered is the gateway's own observation, not the worker's word.
                ("proxy.status", None) if host.status.is_some() => {
                    let status = host.status.unwrap_or_default();
                    let text = format!("the service answered with status {status}");
                    (Some(Cause::ServiceFailed { status }), refused(Code::ExecuteUnavailable, &text))
                }
                ("proxy.answer", None) => (Some(Cause::UnusableAnswer), refused(Code::WorkerCrashed, &text)),
                ("proxy.ambiguous", None) => (None, refused(Code::ContentDuplicateKey, &text)),
                (_, None) => (Some(Cause::Exited { code: 1 }), refused(Code::WorkerCrashed, &text)),
            },
            Outcome::Done(payload) => {
                let verdict = at(&payload, "/verdict").as_str().unwrap_or_default().to_owned();
                let findings = at(&payload, "/findings").as_u64().unwrap_or(0);
                if verdict == "injection" {
                    let findings = u32::try_from(findings).unwrap_or(u32::MAX);
                    return (
                        Some(Cause::Injection { findings }),
                        refused(Code::ContentWithheld, "the answer was an attack"),
                    );
                }
                if let ("refused", Some(status @ 400..=499)) = (verdict.as_str(), host.status) {
                    let text = format!("the service answered with status {status}");
                    let said = at(&payload, "/said").as_str().filter(|said| !self.must_stay(said));
                    return (None, Err(Refusal::new(Code::ExecuteRefused).with_text(&text).quoting(said)));
                }
                let (data, proposals) = (at(&payload, "/data"), Proposal::read(at(&payload, "/proposals")));
                match proposals.filter(|_| verdict == "clean" && self.follows(&errand.operation, data)) {
                    Some(proposals) => {
                        let replaced = at(&payload, "/replaced").as_bool().unwrap_or(false);
                        match self.narrowed(errand, data) {
                            Some(data) => (None, Ok((json!({"data": data, "replaced": replaced}), proposals))),
                            // What happened is not undone by the shape of its answer.
                            None if errand.writes() => (None, Ok((json!({"data": null, "unfit": true}), proposals))),
                            None => (None, Err(Refusal::new(Code::ProxyOutput))),
                        }
                    }
                    None => {
                        let nonsense = refused(Code::WorkerCrashed, "the worker reported nonsense");
                        (Some(Cause::MalformedFrame), nonsense)
                    }
                }
            }
        }
    }

    /// What a spawn is given of the data: the fields its own schema names, if they follow it.
    fn narrowed(&self, errand: &Errand, data: &Value) -> Option<Value> {
        let Some(schema) = errand.spawn.as_ref().and_then(|options| options.output_schema.as_ref()) else {
            return Some(data.clone());
        };
        let schema = tighten(schema, self.declared().trust);
        let narrow = project(data, &schema);
        Schema::compile(&schema).is_ok_and(|schema| schema.allows(&narrow)).then_some(narrow)
    }

    fn follows(&self, operation: &Operation, data: &Value) -> bool {
        match (operation.output, &operation.answer) {
            // A summary has no texts in it but names of fields, and those are the schema's.
            (Output::Summary, Some(schema)) => data.to_string().len() < 64 << 10 && is_summary(data, schema),
            (Output::Data, Some(schema)) => {
                Schema::compile(&tighten(schema, self.declared().trust)).is_ok_and(|schema| schema.allows(data))
            }
            (Output::Summary | Output::Data, None) => false,
        }
    }

    /// The end of a life, in the order that was promised. What cannot be written is told; nothing else depends on it.
    async fn bury(&self, (id, began): (JobId, Span), errand: &Errand, lives: u32, remains: Remains) -> Life {
        let Remains { cause, words, requests, changed, mut lines, last, given, proposals, state, .. } = remains;
        let mut notes = remains.notes;
        notes.failed = given.as_ref().err().map(|no| no.code().as_str().to_owned());
        notes.findings = remains.findings;
        let for_good = cause.is_none() && given.as_ref().is_err_and(|no| FOR_GOOD.contains(&no.code()));
        if cause.is_none() && given.is_ok() {
            let kept = self.keep(id, errand, &proposals).await;
            notes.proposals_refused = kept.iter().filter(|line| line.get("code").is_some()).count() as u64;
            lines.extend(kept);
        }
        let (ground, workspace, now) = (self.ground(), self.workspace(), self.ground().clock.now());
        lines.push(json!({
            "at": now.to_string(), "event": "end", "task": id, "operation": errand.name, "state": state.as_str(),
        }));
        let mut unwritten = Unwritten(None);
        unwritten.note(workspace.log(&lines));
        let mut again = None;
        let mut crash = None;
        if let Some(cause) = cause {
            let suspicious = cause.is_adversarial().then_some(last.as_deref()).flatten();
            let mut files = vec!["logs/audit.jsonl".to_owned()];
            files.extend(errand.writes().then(|| format!("drafts/{id}.json")));
            let report = CrashReport::new(&Scene {
                at: self.moment(now),
                cause,
                last_action: Some(errand.capability.clone()),
                requests,
                content: suspicious,
                files: &files,
            });
            let footprint = if changed { Footprint::Modified } else { Footprint::Clean };
            let next = next_step(&report, lives, footprint);
            unwritten.note(workspace.crashed(&report));
            if let Some(place) = words {
                unwritten.note(workspace.last_words(&report, &json!({"the_worker_says": {"place": place}})));
            }
            unwritten.note(workspace.abandon(id));
            unwritten.note(self.abandon_lasting(errand, &report));
            match &next {
                NextStep::Respawn { after } => again = Some(*after),
                NextStep::WaitForPerson { .. } => {}
                NextStep::Quarantine { .. } => unwritten.note(workspace.archive(now)),
            }
            crash = Some((report, next, ground.message()));
        } else if given.is_ok() {
            unwritten.note(self.remember(errand, last.as_deref(), now));
            unwritten.note(workspace.sent(id));
            unwritten.note(workspace.keep_good());
        } else {
            unwritten.note(workspace.abandon(id));
        }
        let spent = remains.spent.map(|sent| self.spent(sent, began));
        let ended = ground.store.end_task(id, TaskEnd { state, requests, crash, spent, notes }).await;
        if let Some(error) = unwritten.0 {
            self.tell_unwritten(&error).await;
        }
        match ended {
            Ok(_) => Life { given, changed, for_good, again },
            // No answer without its record; and no second try, for nobody would know of the first.
            Err(error) => Life { given: Err(unavailable(error)), changed, for_good: false, again: None },
        }
    }

    /// What a task really used.
    fn spent(&self, (requests, bytes): (u64, u64), began: Span) -> TaskSpent {
        let (ground, budget) = (self.ground(), &self.declared().budget);
        let millis = ground.clock.since_boot().as_millis().saturating_sub(began.as_millis());
        let cost = budget.price_per_request.times(requests);
        let used = ProxyUsage { requests, bytes, millis, cost };
        TaskSpent { used, limits: budget.limits(), message: ground.message() }
    }

    /// People learn that the files of a proxy cannot be written.
    async fn tell_unwritten(&self, error: &std::io::Error) {
        tracing::error!(proxy = self.name(), "the workspace of `{}` cannot be written: {error}", self.name());
        let body = json!({"proxy": self.name(), "text": format!("the workspace cannot be written: {}", error.kind())});
        let id = self.ground().message();
        let alert = Message { id, topic: "proxy.workspace".into(), severity: Severity::Warning, body };
        let node = Actor::Node(self.ground().store.node().clone());
        if let Err(error) = self.ground().store.alert(alert, node).await {
            tracing::error!(code = error.code(), "and people cannot be told");
        }
    }

    fn remember(&self, errand: &Errand, last: Option<&[u8]>, now: sluice_core::Timestamp) -> std::io::Result<()> {
        let identity = self.declared().identity.as_ref();
        let relation = identity.and_then(|identity| identity.side(&errand.arguments));
        // A name that must not leave must not lie in a file either, from which the next task is told.
        let Some(relation) = relation.filter(|name| !self.must_stay(name)) else { return Ok(()) };
        let body = last.unwrap_or_default();
        let exchange = Exchange {
            at: now.to_string(),
            operation: errand.name.clone(),
            outcome: "clean".into(),
            answer_bytes: body.len() as u64,
            answer_hash: hash(body),
        };
        self.workspace().remember(relation, &exchange)
    }
}

/// Scheme, host and port.
fn origin(target: &Target) -> String {
    let scheme = if target.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}", target.authority())
}

/// What is left of a life.
struct Remains {
    cause: Option<Cause>,
    /// Where the worker says it broke.
    words: Option<String>,
    requests: u64,
    /// Whether something may have changed at the service.
    changed: bool,
    lines: Vec<Value>,
    last: Option<Bytes>,
    given: Result<Value, Refusal>,
    /// What the worker proposes to keep. Weighed only after a clean end.
    proposals: Vec<Proposal>,
    state: TaskState,
    /// Requests that may have left and bytes that can have come back; nothing where nobody knows.
    spent: Option<(u64, u64)>,
    /// What the stages found in the answer.
    findings: u64,
    /// What a review wants to know.
    notes: TaskNotes,
}

/// What a worker gave and proposes, or why nothing is given.
type Judged = Result<(Value, Vec<Proposal>), Refusal>;

impl Remains {
    fn of(given: Result<Value, Refusal>, state: TaskState) -> Self {
        let (requests, changed, lines, proposals) = (0, false, Vec::new(), Vec::new());
        let (spent, findings, notes) = (Some((0, 0)), 0, TaskNotes::default());
        Self {
            cause: None,
            words: None,
            requests,
            changed,
            lines,
            last: None,
            given,
            proposals,
            state,
            spent,
            findings,
            notes,
        }
    }

    fn with(self, host: TaskHost) -> Self {
        let TaskHost { requests, changed, lines, last, spent, refused, leaked, answer_bytes, .. } = host;
        let leak = leaked.then_some(Code::LeakFound);
        let refused = refused.map(|no| no.code()).or(leak).map(|code| code.as_str().to_owned());
        let notes = TaskNotes { refused, answer_bytes, ..self.notes };
        Self { requests, changed, lines, last, spent: Some(spent), notes, ..self }
    }
}

/// The first file that could not be written.
struct Unwritten(Option<std::io::Error>);

impl Unwritten {
    fn note<T>(&mut self, written: std::io::Result<T>) {
        if let Err(error) = written {
            self.0.get_or_insert(error);
        }
    }
}

fn hash(body: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(body).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unavailable(error: StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).because(error)
}
