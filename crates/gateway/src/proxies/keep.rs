//! What a task is told of the time before it, and what of its proposals is kept.
//!
//! Takes an errand, and what a worker proposes after it; gives what the job carries, and lines for the log. Promise: a
//! proposal is kept only if the call and the file allow it, nothing in it must stay inside, and a second worker let all
//! its text through unchanged; whatever is refused is on record by its code, never by its content.

use serde_json::{Map, Value, json};
use sluice_content::leak::Scope;
use sluice_core::Actor;
use sluice_core::crash::CrashReport;
use sluice_core::ids::JobId;
use sluice_core::proxy::{DraftMove, NotTaken, Operation, Proposal, Told};
use sluice_core::refusal::{Code, Refusal};

use super::run::Errand;
use super::service::ProxyService;
use super::workspace::IN_PROGRESS;
use crate::value::at;
use crate::workers::{End, Job, Outcome, Workers};

/// From this score on the stages do not let a text pass.
const FLAGGED: f64 = 0.5;

impl ProxyService {
    /// What the task of an errand is told; nothing without a lasting account.
    pub(super) fn told(&self, errand: &Errand) -> Told {
        let identity = self.declared().identity.as_ref();
        identity
            .map(|identity| self.workspace().told(identity, &errand.operation, &errand.arguments))
            .unwrap_or_default()
    }

    /// Weighs what a task proposes, keeps what is fit, and records what is not. Gives lines for the log.
    pub(super) async fn keep(&self, id: JobId, errand: &Errand, proposals: &[Proposal]) -> Vec<Value> {
        let mut lines = Vec::new();
        for proposal in proposals {
            let now = self.ground().clock.now();
            let taken = match self.weigh(errand, proposal).await {
                Ok(()) => self.workspace().take(proposal, &errand.name, now),
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

    /// Whether the draft that a call names is one that this operation can move: nothing is sent for one that was sent
    /// already, was abandoned or never begun.
    pub(super) fn draft_allows(&self, operation: &Operation, arguments: &Map<String, Value>) -> Result<(), Refusal> {
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
            Some(_) if begins => "there is a draft of this name in progress: finish it, or name another".to_owned(),
            Some(state) => format!("the draft of this name is {state}: nothing is sent for it; begin a new one"),
            None => "there is no draft of this name: begin one first".to_owned(),
        };
        Err(Refusal::new(Code::ExecuteBadArgument).with_text(&text))
    }

    async fn record_refused(&self, id: JobId, no: NotTaken) {
        let store = &self.ground().store;
        let node = Actor::Node(store.node().clone());
        tracing::warn!(proxy = self.name(), code = no.code(), "`{}` proposed what is not kept: {no}", self.name());
        if let Err(error) = store.refuse_proposal(self.name(), id, no.code(), node).await {
            tracing::error!(code = error.code(), "and that cannot be recorded");
        }
    }

    async fn weigh(&self, errand: &Errand, proposal: &Proposal) -> Result<(), NotTaken> {
        let identity = self.declared().identity.as_ref().ok_or(NotTaken::Undeclared)?;
        errand.operation.takes(identity, &errand.arguments, proposal)?;
        let (Proposal::Relation { name, .. } | Proposal::Draft { name, .. }) = proposal;
        let values = proposal.values();
        let texts = values.values().filter_map(Value::as_str).chain([name.as_str()]);
        let all: Vec<&str> = texts.collect();
        if self.must_stay(&all.join("\n")) || self.must_stay(&json!(values).to_string()) {
            return Err(NotTaken::Leak);
        }
        // SECURITY: the worker that proposes has read the hostile answer. Its word that the text is clean is none.
        if values.values().any(Value::is_string) {
            screened(&self.ground().workers, &json!(values)).await
        } else {
            Ok(())
        }
    }

    /// Whether a text holds what must not lie in a file that a task is told of.
    pub(super) fn must_stay(&self, text: &str) -> bool {
        self.ground().egress.must_stay(text, Scope::Proxy)
    }

    /// Marks the drafts with a name that a crash leaves behind: all after an attack, else the one that was worked on.
    pub(super) fn abandon_lasting(&self, errand: &Errand, report: &CrashReport) -> std::io::Result<()> {
        if report.is_adversarial() {
            return self.workspace().abandon_all_named().map(|_| ());
        }
        match errand.operation.draft_of(&errand.arguments) {
            Some(name) => self.workspace().abandon_named(name),
            None => Ok(()),
        }
    }
}

/// Has a fresh worker read values through all stages. They must come out as they went in.
///
/// # Errors
/// They do not, or nobody could read them.
pub async fn screened(workers: &Workers, values: &Value) -> Result<(), NotTaken> {
    let payload = json!({"declared": "application/json"});
    let job = Job { kind: "content.clean".into(), payload, attachments: vec![values.to_string().into_bytes()] };
    let Ok(End::Clean(done)) = workers.read(job).await else { return Err(NotTaken::Unread) };
    let Outcome::Done(said) = done.report.outcome else { return Err(NotTaken::Unread) };
    if said.get("refused").is_some() {
        return Err(NotTaken::Content);
    }
    let score = at(&said, "/score").as_f64().ok_or(NotTaken::Unread)?;
    let clean = done.report.attachments.get(1).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    // What is no number must not pass for a small one.
    let passes = (0.0..FLAGGED).contains(&score) && clean.as_ref() == Some(values);
    if passes { Ok(()) } else { Err(NotTaken::Content) }
}
