//! One task of a proxy, from its start to its end.
//!
//! Takes an operation and its arguments; gives what the schema allows of the answer, or a refusal. Promise: at every
//! end, in this order: the log is flushed, the crash report is written, the draft in progress is marked, and the end is
//! recorded with its consequences; no secret is written on the way. A task runs to its end whether or not its caller
//! still waits, an end is recorded even if a file cannot be written, and a task that may have changed something is
//! never reported as unchanged.

mod attempt_record;

use std::collections::HashMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use sluice_config::network::EgressUrl;
use sluice_content::stages::SafeSchema;
use sluice_core::crash::{CrashCause, CrashContext, CrashFollowUp, CrashFootprint, CrashReport, next_step};
use sluice_core::ids::JobId;
use sluice_core::proxy::spawn::SpawnOptions;
use sluice_core::proxy::{
    ContinuityProposal, Proxy, ProxyMethod, ProxyOperation, ProxyOutput, ProxyUsage, is_summary, project, tighten,
};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::throttle::ThrottleReason;
use sluice_core::{Actor, AgentName, CapabilityName, Millis};
use sluice_egress::{EgressError, TicketScope};
use sluice_protocol::{JobFailureCode, ProxyRunReport, ProxyRunTask};
use sluice_store::{
    BeginProxyTask, MessageSeverity, OutboxMessage, ProxyTaskEnd, ProxyTaskStart, ProxyTaskState, ProxyTaskUsage,
    StoreError,
};
use tokio::runtime::Handle;

use self::attempt_record::ProxyAttemptRecord;
use super::host::ProxyTaskHost;
use super::service::ProxyService;
use super::workspace::PastExchange;
use super::{base_path, right};
use crate::workers::{
    JailMode, WorkerAssignment, WorkerCutOffReason, WorkerEnd, WorkerJob, WorkerJobOutcome, WorkerLimits,
    WorkerPoolError,
};

/// How long a call may wait until its task is started again, all restarts together. Beyond it, the caller is told when
/// to call again.
const PATIENCE: Millis = Millis::from_secs(10);
/// The last part of a task's time, which the service does not get: a slow service must not look like a worker that
/// hangs.
const MARGIN: Millis = Millis::from_secs(2);
/// Most findings of one answer that are counted; the number comes from the worker.
const MOST_FINDINGS: u64 = 10_000;
/// Refusals that a repeat of the task would get again.
const FOR_GOOD: [Code; 3] = [Code::ExecuteRefused, Code::SchemaWrongType, Code::ProxyOutput];

/// The job of one task.
#[derive(Debug, Clone)]
pub(super) struct ProxyTaskAssignment {
    pub agent: AgentName,
    pub capability: CapabilityName,
    pub name: String,
    pub operation: ProxyOperation,
    pub arguments: Map<String, Value>,
    /// The options of a spawn.
    pub spawn: Option<SpawnOptions>,
}

/// How often in a row the same job ended in a fault that is not an attack, and when it may be started again, in time
/// since boot.
#[derive(Debug, Default)]
pub(super) struct ProxyFaultCounts(HashMap<u64, (u32, Millis)>);

impl ProxyFaultCounts {
    /// Most jobs that are counted. Beyond it, counting begins again: that many failures are an outage, not one bad job.
    const MOST: usize = 1_000;

    fn of(&self, assignment: &ProxyTaskAssignment) -> (u32, Millis) {
        self.0.get(&assignment.print()).copied().unwrap_or_default()
    }

    fn note(&mut self, assignment: &ProxyTaskAssignment, (times, not_before): (u32, Millis)) {
        if times == 0 {
            self.0.remove(&assignment.print());
            return;
        }
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        self.0.insert(assignment.print(), (times, not_before));
    }
}

impl ProxyTaskAssignment {
    fn print(&self) -> u64 {
        let mut print = std::hash::DefaultHasher::new();
        let arguments = sluice_core::json::to_canonical_bytes(&Value::Object(self.arguments.clone()));
        (self.agent.as_str(), &self.name, arguments).hash(&mut print);
        print.finish()
    }

    fn writes(&self) -> bool {
        self.operation.method != ProxyMethod::Get
    }
}

/// Why a task has no result.
#[derive(Debug)]
pub(super) struct ProxyTaskError {
    pub refusal: Refusal,
    /// Whether something may have changed at the service.
    pub changed: bool,
    /// Whether a repeat of the task would be refused again.
    pub for_good: bool,
}

/// How one attempt of a task ended.
struct ProxyAttemptOutcome {
    given: Result<Value, Refusal>,
    changed: bool,
    /// Whether a repeat of the task would be refused again.
    for_good: bool,
    /// How long to wait before the restart, if there is one.
    again: Option<Millis>,
}

impl ProxyService {
    /// Runs a task; restarts it where that is allowed.
    pub(super) async fn run(&self, assignment: &ProxyTaskAssignment) -> Result<Value, ProxyTaskError> {
        let (mut lives, not_before) = self.faults().of(assignment);
        // A caller that repeats the same job also waits until the task may be started again.
        let clock = &self.deps().clock;
        let left = Millis::from_millis(not_before.as_millis().saturating_sub(clock.since_boot().as_millis()));
        if left > Millis::ZERO {
            let text = format!("the same task failed a moment ago and is not started again for {left}");
            let refusal = Refusal::new(Code::ExecuteUnavailable).with_text(&text).retry_after(left);
            return Err(ProxyTaskError { refusal, changed: false, for_good: false });
        }
        let mut waited = 0;
        loop {
            let life = self.live(assignment, lives).await;
            // A repeat of the same job continues the count of the last one.
            lives = if life.given.is_err() && life.again.is_some() { lives + 1 } else { 0 };
            let not_before = clock.since_boot() + life.again.unwrap_or(Millis::ZERO);
            self.faults().note(assignment, (lives, not_before));
            match (life.given, life.again) {
                (Ok(value), _) => return Ok(value),
                // A task that may have changed something is never repeated automatically, and a credential that was
                // refused is not accepted a moment later.
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
                    return Err(ProxyTaskError {
                        refusal: refusal.retry_after(after),
                        changed: false,
                        for_good: false,
                    });
                }
                (Err(refusal), _) => {
                    return Err(ProxyTaskError { refusal, changed: life.changed, for_good: life.for_good });
                }
            }
        }
    }

    /// Runs one attempt.
    async fn live(&self, assignment: &ProxyTaskAssignment, lives: u32) -> ProxyAttemptOutcome {
        let deps = self.deps();
        let id = JobId::mint(deps.ids.as_ref());
        let never = |refusal: Refusal| ProxyAttemptOutcome {
            given: Err(refusal),
            changed: false,
            for_good: false,
            again: None,
        };
        let task = BeginProxyTask {
            id,
            proxy: self.name().to_owned(),
            operation: assignment.name.clone(),
            agent: assignment.agent.clone(),
            estimate: self.declared().estimate(self.wall(assignment.spawn.as_ref())),
            limits: self.declared().budget.limits(),
            message: deps.message(),
        };
        let began = deps.clock.since_boot();
        match deps.store.begin_task(task).await {
            Err(error @ (StoreError::Frozen { .. } | StoreError::Braked { .. })) => {
                return never(*crate::CallError::from(error).refusal);
            }
            Err(error) => return never(unavailable(error)),
            Ok(ProxyTaskStart::OverBudget(limit)) => return never(self.over_budget(limit)),
            Ok(ProxyTaskStart::Stands(standing)) => {
                let text = format!("the proxy `{}` waits for a person: {}", self.name(), standing.reason);
                return never(Refusal::new(Code::WorkerQuarantined).with_text(&text));
            }
            Ok(ProxyTaskStart::Begun) => {}
        }
        // From here on there is a task, and its end must be recorded.
        let remains = self.work(id, assignment).await;
        deps.egress.end_job(id);
        self.bury((id, began), assignment, lives, remains).await
    }

    /// The part of a task in which anything can fail.
    async fn work(&self, id: JobId, assignment: &ProxyTaskAssignment) -> ProxyAttemptRecord {
        let early = |refusal: Refusal| ProxyAttemptRecord::of(Err(refusal), ProxyTaskState::Crashed);
        let broken = |error: std::io::Error| Refusal::new(Code::WorkerCrashed).with_source(error);
        if let Err(error) = self.workspace().make() {
            return early(broken(error));
        }
        if assignment.writes() {
            let arguments = Value::Object(assignment.arguments.clone());
            if let Err(error) = self.workspace().draft(id, &assignment.name, arguments, self.deps().clock.now()) {
                return early(broken(error));
            }
        }
        let (order, host) = match self.order(id, assignment).await {
            Ok(ready) => ready,
            Err(refusal) => return early(refusal),
        };
        match self.deps().workers.run(order, host).await {
            Err(error) => {
                let code = error.refusal_code();
                let lost = matches!(error, WorkerPoolError::Strange(_)) && assignment.writes();
                // It is not known how far it got: everything that was reserved counts as used.
                ProxyAttemptRecord {
                    changed: lost,
                    spent: None,
                    ..early(Refusal::new(code).with_text(&error.to_string()))
                }
            }
            Ok((WorkerEnd::Clean(done), host)) => {
                let findings = match &done.report.outcome {
                    WorkerJobOutcome::Done(payload) => {
                        ProxyRunReport::deserialize(payload).map_or(0, |report| report.findings().min(MOST_FINDINGS))
                    }
                    WorkerJobOutcome::Failed { .. } => 0,
                };
                let (cause, judged) = self.judge(assignment, &host, done.report.outcome);
                let state = if cause.is_some() { ProxyTaskState::Crashed } else { ProxyTaskState::Clean };
                let (given, proposals) = match judged {
                    Ok((data, proposals)) => (Ok(data), proposals),
                    Err(refusal) => (Err(refusal), Vec::new()),
                };
                ProxyAttemptRecord { cause, proposals, findings, ..ProxyAttemptRecord::of(given, state) }.with(host)
            }
            Ok((WorkerEnd::Crashed(crash), host)) => {
                let words = crash.last_words.map(|words| words.place);
                let given = Err(Refusal::new(Code::WorkerCrashed));
                ProxyAttemptRecord {
                    cause: Some(crash.cause),
                    words,
                    ..ProxyAttemptRecord::of(given, ProxyTaskState::Crashed)
                }
                .with(host)
            }
            Ok((WorkerEnd::CutOff { why: WorkerCutOffReason::Cancelled, .. }, host)) => {
                ProxyAttemptRecord::of(Err(Refusal::new(Code::GatewayStopping)), ProxyTaskState::CutOff).with(host)
            }
            Ok((WorkerEnd::CutOff { why: WorkerCutOffReason::Time, .. }, host)) => {
                let text = format!("the task took longer than {}", self.wall(assignment.spawn.as_ref()));
                let given = Err(Refusal::new(Code::WorkerCrashed).with_text(&text));
                ProxyAttemptRecord {
                    cause: Some(CrashCause::Exhausted),
                    ..ProxyAttemptRecord::of(given, ProxyTaskState::CutOff)
                }
                .with(host)
            }
        }
    }

    async fn order(
        &self,
        id: JobId,
        assignment: &ProxyTaskAssignment,
    ) -> Result<(WorkerAssignment, ProxyTaskHost), Refusal> {
        let (deps, declared) = (self.deps(), self.declared());
        let internal = |why: String| Refusal::new(Code::GatewayInternal).with_text(&why);
        let target = EgressUrl::parse(&declared.base_url).map_err(|why| internal(why.to_owned()))?;
        let (limits, wall) = (declared.limits(), self.wall(assignment.spawn.as_ref()));
        let scope = TicketScope {
            job: id,
            capability: assignment.capability.to_string(),
            hosts: vec![target.host().to_owned()],
            operations: vec![right(declared, &assignment.operation).map_err(internal)?],
            by: Actor::Agent(assignment.agent.clone()),
            lasts: wall,
        };
        let ticket = deps.egress.issue(self.connection(), scope).await.map_err(EgressError::refusal)?;
        let task = ProxyRunTask {
            operation: assignment.operation.clone(),
            trust: declared.trust,
            base_path: base_path(declared).to_owned(),
            arguments: assignment.arguments.clone(),
            ticket: ticket.expose().to_owned(),
            identity: declared.identity.clone(),
            told: self.told(assignment),
        };
        let job = WorkerJob::of(&task, Vec::new());
        let largest = u64::from(limits.answer_kb) << 10;
        let limits = WorkerLimits { wall, exchanges: 1, ..WorkerLimits::default() };
        let mode = match declared.isolation {
            sluice_core::proxy::ProxyIsolation::Maximum => Some(JailMode::Required),
            sluice_core::proxy::ProxyIsolation::Configured => None,
        };
        let order = WorkerAssignment { job, scratch: None, limits: Some(limits), mode };
        let service = Proxy::service_name(self.name()).ok_or_else(|| internal("it has no name".to_owned()))?;
        let host = ProxyTaskHost {
            egress: Arc::clone(&deps.egress),
            store: Arc::clone(&deps.store),
            scope: (assignment.agent.clone(), service),
            clock: Arc::clone(&deps.clock),
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

    /// Judges the result of a worker that ended in order. It is checked against the schema again: the worker's claim
    /// counts for nothing.
    fn judge(
        &self,
        assignment: &ProxyTaskAssignment,
        host: &ProxyTaskHost,
        outcome: WorkerJobOutcome,
    ) -> (Option<CrashCause>, JudgedTaskResult) {
        let refused = |code: Code, text: &str| Err(Refusal::new(code).with_text(text));
        // Decoding may have reassembled a credential that the service reflected.
        let secrets = host.egress.secrets();
        let outcome = match outcome {
            WorkerJobOutcome::Failed { code, text } => {
                WorkerJobOutcome::Failed { code, text: secrets.scrub_text(&text).unwrap_or(text) }
            }
            WorkerJobOutcome::Done(payload) => WorkerJobOutcome::Done(secrets.scrub_json(&payload).unwrap_or(payload)),
        };
        match outcome {
            WorkerJobOutcome::Failed { code, text } => match (JobFailureCode::from_word(&code), &host.refused) {
                (Some(JobFailureCode::ProxyAuth), _) => {
                    (Some(CrashCause::AuthFailure), refused(Code::ExecuteReconnect, &text))
                }
                (_, Some(EgressError::Stopped { stop: ThrottleReason::Burn, .. })) => {
                    let limit = u64::from(self.declared().limits().burn);
                    (
                        Some(CrashCause::BurnLimit { limit }),
                        refused(Code::EgressBurned, "the proxy has used up its requests"),
                    )
                }
                (_, Some(no)) => (None, refused(no.code(), &no.to_string())),
                (Some(JobFailureCode::ProxyRate), None) => (None, refused(Code::EgressLimit, &text)),
                (Some(JobFailureCode::ProxyArguments), None) => (None, refused(Code::SchemaWrongType, &text)),
                // The status of the service is the gateway's own observation, not the worker's claim.
                (Some(JobFailureCode::ProxyStatus), None) if host.status.is_some() => {
                    let status = host.status.unwrap_or_default();
                    let text = format!("the service answered with status {status}");
                    (Some(CrashCause::ServiceFailed { status }), refused(Code::ExecuteUnavailable, &text))
                }
                (Some(JobFailureCode::ProxyAnswer), None) => {
                    (Some(CrashCause::UnusableAnswer), refused(Code::WorkerCrashed, &text))
                }
                (Some(JobFailureCode::ProxyAmbiguous), None) => (None, refused(Code::ContentDuplicateKey, &text)),
                (_, None) => (Some(CrashCause::Exited { code: 1 }), refused(Code::WorkerCrashed, &text)),
            },
            WorkerJobOutcome::Done(payload) => {
                let nonsense = || {
                    let nonsense = refused(Code::WorkerCrashed, "the worker reported nonsense");
                    (Some(CrashCause::MalformedFrame), nonsense)
                };
                match (serde_json::from_value(payload), host.status) {
                    (Ok(ProxyRunReport::Injection { findings, .. }), _) => {
                        let findings = u32::try_from(findings).unwrap_or(u32::MAX);
                        let attack = refused(Code::ContentWithheld, "the answer was an attack");
                        (Some(CrashCause::Injection { findings }), attack)
                    }
                    (Ok(ProxyRunReport::Refused { said }), Some(status @ 400..=499)) => {
                        let text = format!("the service answered with status {status}");
                        let said = said.as_deref().filter(|said| !self.must_stay(said));
                        let refusal = Refusal::new(Code::ExecuteRefused).with_text(&text).with_service_words(said);
                        (None, Err(refusal))
                    }
                    (Ok(ProxyRunReport::Clean { data, proposals, replaced, .. }), _) => {
                        let proposals = ContinuityProposal::read(&proposals);
                        let Some(proposals) = proposals.filter(|_| self.follows(&assignment.operation, &data)) else {
                            return nonsense();
                        };
                        match self.narrowed(assignment, &data) {
                            Some(data) => (None, Ok((json!({"data": data, "replaced": replaced}), proposals))),
                            // A write that happened is not undone by the shape of its answer.
                            None if assignment.writes() => {
                                (None, Ok((json!({"data": null, "unfit": true}), proposals)))
                            }
                            None => (None, Err(Refusal::new(Code::ProxyOutput))),
                        }
                    }
                    // A refusal that the gateway did not see.
                    (Ok(ProxyRunReport::Refused { .. }) | Err(_), _) => nonsense(),
                }
            }
        }
    }

    /// The data for a spawn: the fields that its own schema names, if they follow it.
    fn narrowed(&self, assignment: &ProxyTaskAssignment, data: &Value) -> Option<Value> {
        let Some(schema) = assignment.spawn.as_ref().and_then(|options| options.output_schema.as_ref()) else {
            return Some(data.clone());
        };
        let schema = tighten(schema, self.declared().trust);
        let narrow = project(data, &schema);
        SafeSchema::compile(&schema).is_ok_and(|schema| schema.allows(&narrow)).then_some(narrow)
    }

    fn follows(&self, operation: &ProxyOperation, data: &Value) -> bool {
        match (operation.output, &operation.answer) {
            // A summary contains no text except field names, and those come from the schema.
            (ProxyOutput::Summary, Some(schema)) => data.to_string().len() < 64 << 10 && is_summary(data, schema),
            (ProxyOutput::Data, Some(schema)) => {
                SafeSchema::compile(&tighten(schema, self.declared().trust)).is_ok_and(|schema| schema.allows(data))
            }
            (ProxyOutput::Summary | ProxyOutput::Data, None) => false,
        }
    }

    /// Records the end of an attempt, in the promised order. A file that cannot be written is reported; nothing else
    /// depends on it.
    async fn bury(
        &self,
        (id, began): (JobId, Millis),
        assignment: &ProxyTaskAssignment,
        lives: u32,
        remains: ProxyAttemptRecord,
    ) -> ProxyAttemptOutcome {
        let ProxyAttemptRecord { cause, words, requests, changed, mut lines, last, given, proposals, state, .. } =
            remains;
        let mut notes = remains.notes;
        notes.failed = given.as_ref().err().map(|no| no.code().as_str().to_owned());
        notes.findings = remains.findings;
        let for_good = cause.is_none() && given.as_ref().is_err_and(|no| FOR_GOOD.contains(&no.code()));
        if cause.is_none() && given.is_ok() {
            let kept = self.keep(id, assignment, &proposals).await;
            notes.proposals_refused = kept.iter().filter(|line| line.get("code").is_some()).count() as u64;
            lines.extend(kept);
        }
        let (deps, workspace, now) = (self.deps(), self.workspace(), self.deps().clock.now());
        lines.push(json!({
            "at": now.to_string(), "event": "end", "task": id, "operation": assignment.name, "state": state.as_str(),
        }));
        let mut unwritten = FirstWriteFailure(None);
        unwritten.note(workspace.log(&lines));
        let mut again = None;
        let mut crash = None;
        if let Some(cause) = cause {
            let suspicious = cause.is_adversarial().then_some(last.as_deref()).flatten();
            let mut files = vec!["logs/audit.jsonl".to_owned()];
            files.extend(assignment.writes().then(|| format!("drafts/{id}.json")));
            let report = CrashReport::new(&CrashContext {
                at: self.moment(now),
                cause,
                last_action: Some(assignment.capability.clone()),
                requests,
                content: suspicious,
                files: &files,
            });
            let footprint = if changed { CrashFootprint::Modified } else { CrashFootprint::Clean };
            let next = next_step(&report, lives, footprint);
            unwritten.note(workspace.write_crash_report(&report));
            if let Some(place) = words {
                unwritten.note(workspace.last_words(&report, &json!({"the_worker_says": {"place": place}})));
            }
            unwritten.note(workspace.abandon(id));
            unwritten.note(self.abandon_lasting(assignment, &report));
            match &next {
                CrashFollowUp::Respawn { after } => again = Some(*after),
                CrashFollowUp::WaitForPerson { .. } => {}
                CrashFollowUp::Quarantine { .. } => unwritten.note(workspace.archive(now)),
            }
            crash = Some((report, next, deps.message()));
        } else if given.is_ok() {
            unwritten.note(self.remember(assignment, last.as_deref(), now));
            unwritten.note(workspace.mark_sent(id));
            unwritten.note(workspace.keep_good());
        } else {
            unwritten.note(workspace.abandon(id));
        }
        let spent = remains.spent.map(|sent| self.spent(sent, began));
        let ended = deps.store.end_task(id, ProxyTaskEnd { state, requests, crash, spent, notes }).await;
        if let Some(error) = unwritten.0 {
            self.tell_unwritten(&error).await;
        }
        match ended {
            Ok(_) => ProxyAttemptOutcome { given, changed, for_good, again },
            // No answer without its record; and no second attempt, because the first would not be known.
            Err(error) => ProxyAttemptOutcome { given: Err(unavailable(error)), changed, for_good: false, again: None },
        }
    }

    /// The real use of a task.
    fn spent(&self, (requests, bytes): (u64, u64), began: Millis) -> ProxyTaskUsage {
        let (deps, budget) = (self.deps(), &self.declared().budget);
        let millis = deps.clock.since_boot().as_millis().saturating_sub(began.as_millis());
        let cost = budget.price_per_request.times(requests);
        let used = ProxyUsage { requests, bytes, millis, cost };
        ProxyTaskUsage { used, limits: budget.limits(), message: deps.message() }
    }

    /// Notifies people that the files of a proxy cannot be written.
    async fn tell_unwritten(&self, error: &std::io::Error) {
        tracing::error!(proxy = self.name(), "the workspace of `{}` cannot be written: {error}", self.name());
        let body = json!({"proxy": self.name(), "text": format!("the workspace cannot be written: {}", error.kind())});
        let id = self.deps().message();
        let alert = OutboxMessage { id, topic: "proxy.workspace".into(), severity: MessageSeverity::Warning, body };
        let node = Actor::Node(self.deps().store.node().clone());
        if let Err(error) = self.deps().store.alert(alert, node).await {
            tracing::error!(code = error.code(), "people cannot be notified that the workspace cannot be written");
        }
    }

    fn remember(
        &self,
        assignment: &ProxyTaskAssignment,
        last: Option<&[u8]>,
        now: sluice_core::UtcMillis,
    ) -> std::io::Result<()> {
        let identity = self.declared().identity.as_ref();
        let relation = identity.and_then(|identity| identity.side(&assignment.arguments));
        // A name that the leak scan stops must not be stored in a file that later tasks read.
        let Some(relation) = relation.filter(|name| !self.must_stay(name)) else { return Ok(()) };
        let body = last.unwrap_or_default();
        let exchange = PastExchange {
            at: now.to_string(),
            operation: assignment.name.clone(),
            outcome: "clean".into(),
            answer_bytes: body.len() as u64,
            answer_hash: hash(body),
        };
        self.workspace().remember(relation, &exchange)
    }
}

/// The origin: scheme, host and port.
fn origin(target: &EgressUrl) -> String {
    let scheme = if target.is_tls() { "https" } else { "http" };
    format!("{scheme}://{}", target.authority())
}

/// The worker's result and its proposals, or why there is no result.
type JudgedTaskResult = Result<(Value, Vec<ContinuityProposal>), Refusal>;

/// The first file that could not be written.
struct FirstWriteFailure(Option<std::io::Error>);

impl FirstWriteFailure {
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
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).with_source(error)
}
