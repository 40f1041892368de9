//! One task of a proxy, from its start to its end.
//!
//! Takes an operation and its arguments; gives what the schema allows of the answer, or a refusal. Promise: on any
//! end, in this order: the log is flushed, the crash report is written, drafts in progress are marked, the end is
//! recorded with what follows from it; nothing secret is written on the way.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sluice_content::stages::Schema;
use sluice_core::crash::{Cause, CrashReport, Footprint, NextStep, Scene, next_step};
use sluice_core::ids::JobId;
use sluice_core::proxy::{Method, Operation, Output, tighten};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::throttle::Stop;
use sluice_core::{Actor, AgentName, CapabilityName, Span};
use sluice_store::{TaskEnd, TaskState};
use tokio::runtime::Handle;

use super::host::TaskHost;
use super::service::ProxyService;
use super::workspace::Exchange;
use super::{base_path, right};
use crate::egress::{EgressNo, Scope, Target};
use crate::value::at;
use crate::workers::{End, Job, Limits, Mode, Order, Outcome};

/// What one task is to do.
#[derive(Debug, Clone)]
pub(super) struct Errand<'a> {
    pub agent: &'a AgentName,
    pub capability: &'a CapabilityName,
    pub name: &'a str,
    pub operation: &'a Operation,
    pub arguments: &'a Map<String, Value>,
}

/// Why a task gave nothing.
#[derive(Debug)]
pub(super) struct NotGiven {
    pub refusal: Refusal,
    /// Whether something may have changed at the service.
    pub changed: bool,
}

/// How one life of a task ended.
struct Life {
    given: Result<Value, Refusal>,
    changed: bool,
    /// How long to wait before it is started again, if it is.
    again: Option<Span>,
}

impl ProxyService {
    /// Runs a task; starts it again where that is right.
    pub(super) async fn run(&self, errand: &Errand<'_>) -> Result<Value, NotGiven> {
        let mut lives = 0;
        loop {
            let life = self.live(errand, lives).await.map_err(|refusal| NotGiven { refusal, changed: false })?;
            match (life.given, life.again) {
                (Ok(value), _) => return Ok(value),
                // Whatever may have changed something is never simply done again.
                (Err(_), Some(after)) if !life.changed => {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "no loop: the call itself waits until its task may run again"
                    )]
                    tokio::time::sleep(after.as_duration()).await;
                    lives += 1;
                }
                (Err(refusal), _) => return Err(NotGiven { refusal, changed: life.changed }),
            }
        }
    }

    /// One life.
    async fn live(&self, errand: &Errand<'_>, lives: u32) -> Result<Life, Refusal> {
        let ground = self.ground();
        let id = JobId::mint(ground.ids.as_ref());
        let begun = ground.store.begin_task(id, self.name(), errand.name, errand.agent.clone()).await;
        if let Some(standing) = begun.map_err(unavailable)? {
            let text = format!("the proxy `{}` waits for a person: {}", self.name(), standing.reason);
            return Err(Refusal::new(Code::WorkerQuarantined).with_text(&text));
        }
        // From here on there is a task, and it must have an end.
        let (cause, host, given, state) = self.work(id, errand).await;
        ground.egress.end_job(id);
        self.bury(id, errand, lives, Remains { cause, host, given, state }).await
    }

    /// Everything that can go wrong while the task is at work.
    async fn work(
        &self,
        id: JobId,
        errand: &Errand<'_>,
    ) -> (Option<Cause>, Option<TaskHost>, Result<Value, Refusal>, TaskState) {
        let early = |refusal: Refusal| (None, None, Err(refusal), TaskState::Crashed);
        let broken = |error: std::io::Error| Refusal::new(Code::WorkerCrashed).because(error);
        if let Err(error) = self.workspace().make() {
            return early(broken(error));
        }
        let writes = errand.operation.method != Method::Get;
        if writes {
            let arguments = Value::Object(errand.arguments.clone());
            if let Err(error) = self.workspace().draft(id, errand.name, arguments, self.ground().clock.now()) {
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
                early(Refusal::new(code).with_text(&error.to_string()))
            }
            Ok((End::Clean(done), host)) => {
                let (cause, given) = self.judge(errand, &host, done.report.outcome);
                let state = if cause.is_some() { TaskState::Crashed } else { TaskState::Clean };
                (cause, Some(host), given, state)
            }
            Ok((End::Crashed(crash), host)) => {
                (Some(crash.cause), Some(host), Err(Refusal::new(Code::WorkerCrashed)), TaskState::Crashed)
            }
            Ok((End::CutOff { .. }, host)) => {
                let text = format!("the task took longer than {} minutes", self.declared().limits().timeout_minutes);
                (
                    Some(Cause::Exhausted),
                    Some(host),
                    Err(Refusal::new(Code::WorkerCrashed).with_text(&text)),
                    TaskState::CutOff,
                )
            }
        }
    }

    async fn order(&self, id: JobId, errand: &Errand<'_>) -> Result<(Order, TaskHost), Refusal> {
        let (ground, declared) = (self.ground(), self.declared());
        let internal = |why: String| Refusal::new(Code::GatewayInternal).with_text(&why);
        let target = Target::parse(&declared.base_url).map_err(|why| internal(why.to_owned()))?;
        let limits = declared.limits();
        let scope = Scope {
            job: id,
            capability: errand.capability.to_string(),
            hosts: vec![target.host().to_owned()],
            operations: vec![right(declared, errand.operation).map_err(internal)?],
            by: Actor::Agent(errand.agent.clone()),
            lasts: limits.wall(),
        };
        let ticket = ground.egress.issue(self.connection(), scope).await.map_err(EgressNo::refusal)?;
        let recent = self.relation(errand).map(|(relation, most)| self.workspace().recent(relation, most));
        let payload = json!({
            "operation": errand.operation, "trust": declared.trust, "base_path": base_path(declared),
            "arguments": errand.arguments, "ticket": ticket.expose(), "recent": recent,
        });
        let job = Job { kind: "proxy.run".into(), payload, attachments: Vec::new() };
        let limits = Limits { wall: limits.wall(), exchanges: 1, ..Limits::default() };
        let mode = match declared.isolation {
            sluice_core::proxy::Isolation::Maximum => Some(Mode::Required),
            sluice_core::proxy::Isolation::Configured => None,
        };
        let order = Order { job, scratch: None, limits: Some(limits), mode };
        let host = TaskHost {
            egress: Arc::clone(&ground.egress),
            clock: Arc::clone(&ground.clock),
            handle: Handle::current(),
            origin: origin(&target),
            requests: 0,
            changed: false,
            lines: Vec::new(),
            last: None,
            refused: None,
        };
        Ok((order, host))
    }

    /// The other side of the exchange, and how many past ones a task is told of.
    fn relation<'a>(&'a self, errand: &'a Errand<'_>) -> Option<(&'a str, usize)> {
        let identity = self.declared().identity.as_ref()?;
        let relation = errand.arguments.get(&identity.relation)?.as_str()?;
        Some((relation, identity.recent as usize))
    }

    /// What a worker that left in order says. It is held against the schema once more: its word counts for nothing.
    fn judge(&self, errand: &Errand<'_>, host: &TaskHost, outcome: Outcome) -> (Option<Cause>, Result<Value, Refusal>) {
        let refused = |code: Code, text: &str| Err(Refusal::new(code).with_text(text));
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
                let data = at(&payload, "/data");
                if verdict != "clean" || !self.follows(errand.operation, data) {
                    return (Some(Cause::MalformedFrame), refused(Code::WorkerCrashed, "the worker reported nonsense"));
                }
                (None, Ok(data.clone()))
            }
        }
    }

    fn follows(&self, operation: &Operation, data: &Value) -> bool {
        match (operation.output, &operation.answer) {
            // A summary has no texts in it but names of fields.
            (Output::Summary, _) => data.to_string().len() < 64 << 10,
            (Output::Data, Some(schema)) => {
                Schema::compile(&tighten(schema, self.declared().trust)).is_ok_and(|schema| schema.allows(data))
            }
            (Output::Data, None) => false,
        }
    }

    /// The end of a life, in the order that was promised.
    async fn bury(&self, id: JobId, errand: &Errand<'_>, lives: u32, remains: Remains) -> Result<Life, Refusal> {
        let Remains { cause, host, given, state } = remains;
        let (ground, workspace, now) = (self.ground(), self.workspace(), self.ground().clock.now());
        let (requests, changed, mut lines, last) =
            host.map_or((0, false, Vec::new(), None), |host| (host.requests, host.changed, host.lines, host.last));
        lines.push(json!({
            "at": now.to_string(), "event": "end", "task": id, "operation": errand.name, "state": state.as_str(),
        }));
        let broken = |error: std::io::Error| Refusal::new(Code::WorkerCrashed).because(error);
        workspace.log(&lines).map_err(broken)?;
        let mut again = None;
        let mut crash = None;
        if let Some(cause) = cause {
            let suspicious = cause.is_adversarial().then_some(last.as_deref()).flatten();
            let files = if changed { vec![format!("drafts/{id}.json")] } else { Vec::new() };
            let report = CrashReport::new(&Scene {
                at: now,
                cause,
                last_action: Some(errand.capability.clone()),
                requests,
                content: suspicious,
                files: &files,
            });
            let footprint = if changed { Footprint::Modified } else { Footprint::Clean };
            let next = next_step(&report, lives, footprint);
            workspace.crashed(&report).map_err(broken)?;
            workspace.abandon_drafts().map_err(broken)?;
            match &next {
                NextStep::Respawn { after } => again = Some(*after),
                NextStep::WaitForPerson { .. } => {}
                NextStep::Quarantine { .. } => {
                    workspace.archive(now).map_err(broken)?;
                }
            }
            crash = Some((report, next, ground.message()));
        } else if given.is_ok() {
            self.remember(errand, last.as_deref(), now).map_err(broken)?;
            workspace.sent(id).map_err(broken)?;
            workspace.keep_good().map_err(broken)?;
        } else {
            workspace.abandon_drafts().map_err(broken)?;
        }
        let end = TaskEnd { state, requests, crash };
        ground.store.end_task(id, end).await.map_err(unavailable)?;
        Ok(Life { given, changed, again })
    }

    fn remember(&self, errand: &Errand<'_>, last: Option<&[u8]>, now: sluice_core::Timestamp) -> std::io::Result<()> {
        let Some((relation, _)) = self.relation(errand) else { return Ok(()) };
        let body = last.unwrap_or_default();
        let exchange = Exchange {
            at: now.to_string(),
            operation: errand.name.to_owned(),
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
    host: Option<TaskHost>,
    given: Result<Value, Refusal>,
    state: TaskState,
}

fn hash(body: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(body).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn unavailable(error: sluice_store::StoreError) -> Refusal {
    Refusal::new(Code::from_code(error.code()).unwrap_or(Code::GatewayInternal)).because(error)
}
