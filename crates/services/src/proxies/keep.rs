//! What a task is told about earlier tasks, and which of its proposals are kept.
//!
//! Takes a proxy job, and the proposals of its worker; gives the history for the job, and lines for the log. Promise: a
//! proposal is kept only if the call and the declaration allow it, the leak scan finds nothing in it, and a second
//! worker passed all its text unchanged; a refusal is recorded by its code, never by its content.

use serde_json::{Map, Value, json};
use sluice_content::leak::LeakScope;
use sluice_core::Actor;
use sluice_core::crash::CrashReport;
use sluice_core::ids::JobId;
use sluice_core::proxy::{ContinuityProposal, DraftMove, ProposalError, ProxyOperation, ProxyTaskHistory};
use sluice_core::refusal::{Code, Refusal};
use sluice_protocol::{ContentCleanReport, ContentCleanTask};

use super::run::ProxyTaskAssignment;
use super::service::ProxyService;
use super::workspace::IN_PROGRESS;
use crate::workers::{GatewayWorkers, WorkerEnd, WorkerJob, WorkerJobOutcome};

/// From this score on, the stages do not pass a text.
const FLAGGED: f64 = 0.5;

impl ProxyService {
    /// The history for the task of a proxy job; empty without a lasting account.
    pub(super) fn told(&self, assignment: &ProxyTaskAssignment) -> ProxyTaskHistory {
        let identity = self.declared().identity.as_ref();
        identity
            .map(|identity| self.workspace().told(identity, &assignment.operation, &assignment.arguments))
            .unwrap_or_default()
    }

    /// Checks what a task proposes, keeps what is allowed, and records what is not. Gives lines for the log.
    pub(super) async fn keep(
        &self,
        id: JobId,
        assignment: &ProxyTaskAssignment,
        proposals: &[ContinuityProposal],
    ) -> Vec<Value> {
        let mut lines = Vec::new();
        for proposal in proposals {
            let now = self.deps().clock.now();
            let taken = match self.weigh(assignment, proposal).await {
                Ok(()) => self.workspace().take(proposal, &assignment.name, now),
                Err(no) => Err(no),
            };
            let (at, about) = (now.to_string(), proposal.about());
            match taken {
                Ok(()) => lines.push(json!({"at": at, "event": "proposal", "task": id, "about": about, "taken": true})),
                Err(no) => {
                    let code = no.code();
                    let line = json!({"at": at, "event": "proposal", "task": id, "about": about, "code": code});
                    lines.push(line);
                    self.record_refused(id, no).await;
                }
            }
        }
        lines
    }

    /// Whether this operation can move the draft that a call names: nothing is sent for a draft that was sent already,
    /// was abandoned or was never begun.
    pub(super) fn draft_allows(
        &self,
        operation: &ProxyOperation,
        arguments: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        let (Some(moves), Some(name)) = (&operation.draft, operation.draft_of(arguments)) else { return Ok(()) };
        let state = self.workspace().draft_state(name);
        let is_open = state.as_deref() == Some(IN_PROGRESS);
        let begins = match moves.does {
            DraftMove::Open => true,
            DraftMove::Change | DraftMove::Finish => false,
        };
        if begins != is_open {
            return Ok(());
        }
        let text = match state {
            Some(_) if begins => "a draft with this name is in progress: finish it, or use another name".to_owned(),
            Some(state) => format!("the draft with this name is {state}: nothing was sent; begin a new draft"),
            None => "there is no draft with this name: begin one first".to_owned(),
        };
        Err(Refusal::new(Code::ExecuteBadArgument).with_text(&text))
    }

    async fn record_refused(&self, id: JobId, no: ProposalError) {
        let store = &self.deps().store;
        let node = Actor::Node(store.node().clone());
        tracing::warn!(proxy = self.name(), code = no.code(), "a proposal of `{}` is not kept: {no}", self.name());
        if let Err(error) = store.refuse_proposal(self.name(), id, no.code(), node).await {
            tracing::error!(code = error.code(), "the refusal of a proposal cannot be recorded");
        }
    }

    async fn weigh(
        &self,
        assignment: &ProxyTaskAssignment,
        proposal: &ContinuityProposal,
    ) -> Result<(), ProposalError> {
        let identity = self.declared().identity.as_ref().ok_or(ProposalError::Undeclared)?;
        assignment.operation.check_proposal(identity, &assignment.arguments, proposal)?;
        let (ContinuityProposal::Relation { name, .. } | ContinuityProposal::Draft { name, .. }) = proposal;
        let values = proposal.values();
        let texts = values.values().filter_map(Value::as_str).chain([name.as_str()]);
        let all: Vec<&str> = texts.collect();
        if self.must_stay(&all.join("\n")) || self.must_stay(&json!(values).to_string()) {
            return Err(ProposalError::Leak);
        }
        // SECURITY: the worker that proposes has read the hostile answer. Its claim that the text is clean counts for
        // nothing.
        if values.values().any(Value::is_string) {
            screened(&self.deps().workers, &json!(values)).await
        } else {
            Ok(())
        }
    }

    /// Whether the leak scan finds something in a text; such a text must not be stored in a file that later tasks read.
    pub(super) fn must_stay(&self, text: &str) -> bool {
        self.deps().egress.contains_blocked_content(text, LeakScope::Proxy)
    }

    /// Marks the named drafts that a crash leaves behind: all of them after an attack, else only the one in use.
    pub(super) fn abandon_lasting(
        &self,
        assignment: &ProxyTaskAssignment,
        report: &CrashReport,
    ) -> std::io::Result<()> {
        if report.is_adversarial() {
            return self.workspace().abandon_all_named().map(|_| ());
        }
        match assignment.operation.draft_of(&assignment.arguments) {
            Some(name) => self.workspace().abandon_named(name),
            None => Ok(()),
        }
    }
}

/// Lets a fresh worker pass values through all stages. They must come out unchanged.
///
/// # Errors
/// When they changed, or could not be read.
pub async fn screened(workers: &GatewayWorkers, values: &Value) -> Result<(), ProposalError> {
    let task = ContentCleanTask { declared: Some("application/json".into()), ..ContentCleanTask::default() };
    let job = WorkerJob::of(&task, vec![values.to_string().into_bytes()]);
    let Ok(WorkerEnd::Clean(done)) = workers.read(job).await else { return Err(ProposalError::Unread) };
    let WorkerJobOutcome::Done(said) = done.report.outcome else { return Err(ProposalError::Unread) };
    let score = match serde_json::from_value(said).map_err(|_| ProposalError::Unread)? {
        ContentCleanReport::Refused(_) => return Err(ProposalError::Content),
        ContentCleanReport::Clean(facts) => f64::from(facts.score),
    };
    let clean = done.report.attachments.get(1).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    // A value that is not a number must not pass as a small one.
    let passes = (0.0..FLAGGED).contains(&score) && clean.as_ref() == Some(values);
    if passes { Ok(()) } else { Err(ProposalError::Content) }
}
