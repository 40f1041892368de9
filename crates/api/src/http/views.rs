//! Views: the values of the API as JSON, with their schemas.

mod judgement;
pub mod listed;
mod session;
mod target;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::approval::{ApprovalState, ApprovalSubject};
use sluice_core::capability::{Capability, service_of};
use sluice_core::hold::{Hold, HoldState};
use sluice_core::target::TracedTarget;
use sluice_core::{AgentName, CapabilityName, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::gate::standing::StandingOfferView;
use sluice_gateway::rooms::answer::{CallOutcome, shown_state, status};
use sluice_store::{AccessKey, AccessKeyKind, ApprovalCard, Freeze, OperatorRole};

use super::channels::DeliveryView;
use super::record_search::ReadTraceView;

pub use judgement::{ObservingView, ReasonView};
pub use session::SessionView;
pub use sluice_services::failing::{FailingView, FailureAudience};
pub use target::TargetView;

/// A problem document (RFC 9457): why a request was refused.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ProblemDetails {
    /// The URN of the kind of problem.
    pub r#type: String,
    /// The kind of problem, as text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened in this case.
    pub detail: String,
    /// The stable code; see docs/errors.md.
    pub code: String,
    /// What to do instead.
    pub hint: String,
    /// Whether and when to retry.
    pub retry: String,
    /// When to retry, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The id of the request, for support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The id of the call it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The rule that refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// An existing object that the refusal refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

/// The state of a call.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct CallView {
    /// The id of the call.
    pub call_id: String,
    /// `done`, `allowed`, `held`, `awaiting_approval`, `executing`, `retrying`, `blocked`, `in_doubt`, `needs_human`, `stale`,
    /// `cancelled`, `denied`, `expired`, `dead`, `discarded` or `refused`.
    pub status: String,
    /// The result, once the call is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What the call would use and what is left of the day, for a check of a security proxy's call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Value>,
    /// The id of the held write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_id: Option<String>,
    /// When the undo window closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_deadline: Option<String>,
    /// The id of the approval that a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// When no answer becomes a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether batch protection asked, rather than a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<bool>,
    /// Why it is blocked or over, as a stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why it is blocked or over, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The capability of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// The freeze in force, if a read was answered in spite of it: everything else is refused meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// What the audit log holds of a read. Shown to operators only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadTraceView>,
    /// The next attempt and the last error.
    #[serde(flatten)]
    pub failing: FailingView,
}

/// A held write.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HoldView {
    /// The id of the write.
    pub buffer_id: String,
    /// The id of the call that made it.
    pub call_id: String,
    /// The agent that made it.
    pub agent: String,
    /// The capability of the write.
    pub capability: String,
    /// The service of the write.
    pub service: String,
    /// The account at the service, if the write names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The state, in the words of calls.
    pub status: String,
    /// The exact state.
    pub state: String,
    /// The tier of the policy verdict.
    pub tier: String,
    /// How many ordinary writes it counts as.
    pub weight: u32,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it was admitted.
    pub admitted_at: String,
    /// When its undo window closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_deadline: Option<String>,
    /// The id of its approval, open or decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The reason for its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The service's receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// The write that it undoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverses: Option<String>,
    /// The session in which it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The SHA-256 digest of the exact action.
    pub digest: String,
    /// The version: it counts changes of state.
    pub version: u64,
    /// The arguments, for those who may see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// The options that a spawn adds: the shorter time, the schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn: Option<Value>,
    /// The targets that it reaches, and where each was first seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetView>,
    /// What is known here of the objects it names by id, one line each, in third-party words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// The agent's reason, in its own words: nobody has checked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The next attempt and the last error.
    #[serde(flatten)]
    pub failing: FailingView,
}

/// An approval: a request that people decide.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalView {
    /// The id of the approval.
    pub approval_id: String,
    /// `write` for one, `batch` for many, `request` for an action that a client carries out itself.
    pub subject: String,
    /// The agent that asks.
    pub agent: String,
    /// The service of the writes.
    pub service: String,
    /// The state of the approval.
    pub status: String,
    /// How many writes it covers.
    pub items: u32,
    /// In lists: what it is about, in one line. Words of agents and of third parties stand in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// When it was requested.
    pub asked_at: String,
    /// When no answer becomes a denial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// When it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// The chosen line of the menu.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The person's note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The writes, in the order of the card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<HoldView>,
    /// The action that a client wants to carry out itself, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    /// Why a person is asked, as recorded when the approval was requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked_because: Vec<ReasonView>,
    /// How bad a wrong approval can be: `low`, `medium` or `high`, while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// What `session` and `always` allow, the narrowest bound first; empty if they are not offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<StandingOfferView>,
    /// The delivery state of each message about it: queued, sent, retrying or refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<DeliveryView>,
}

/// A freeze in force.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FreezeView {
    /// `all`, `agent <name>` or `service <name>`.
    pub scope: String,
    /// Who placed it.
    pub by: String,
    /// The reason for the freeze.
    pub reason: String,
    /// Since when it is in force.
    pub since: String,
    /// The connection that stopped itself. `unfreeze` does not start it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
}

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AgentView {
    /// The name of the agent.
    pub name: String,
    /// The note that people wrote about it.
    pub note: String,
    /// When it was added.
    pub created_at: String,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether it was removed.
    pub removed: bool,
    /// How many of its credentials work.
    pub keys: u32,
    /// Its observe mode, while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observing: Option<ObservingView>,
    /// The lists of tools that it is shown over MCP, and what they cost a model. Not part of a list of agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolListView>,
}

/// A list of tools that an agent is shown over MCP.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToolListView {
    /// The toolset, such as `minimal` or `minimal + git.*`.
    pub toolset: String,
    /// The clients in which the agent has it, by the start of their names; empty for every other client.
    pub clients: Vec<String>,
    /// How many tools it has.
    pub tools: u32,
    /// About how many tokens a model reads for it.
    pub tokens: u32,
}

/// A credential, without its secret.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KeyView {
    /// The id of the credential.
    pub key_id: String,
    /// `agent`, `operator` or `inbox`.
    pub kind: String,
    /// The agent, person or service that holds it.
    pub name: String,
    /// The role of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The label for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// When it was created.
    pub created_at: String,
    /// When it stops working.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// The credential itself: shown once, when it is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListPage<T> {
    /// The entries.
    pub data: Vec<T>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
    /// Whether there is a next page.
    pub has_more: bool,
}

/// The name of a role.
#[must_use]
pub const fn role_word(role: OperatorRole) -> &'static str {
    match role {
        OperatorRole::Viewer => "viewer",
        OperatorRole::Approver => "approver",
        OperatorRole::Admin => "admin",
    }
}

/// The role of an operator.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRoleName {
    /// May read.
    Viewer,
    /// May read, decide and freeze.
    Approver,
    /// May do everything.
    Admin,
}

impl From<OperatorRoleName> for OperatorRole {
    fn from(word: OperatorRoleName) -> Self {
        match word {
            OperatorRoleName::Viewer => Self::Viewer,
            OperatorRoleName::Approver => Self::Approver,
            OperatorRoleName::Admin => Self::Admin,
        }
    }
}

impl<T> ListPage<T> {
    /// A page, made from one more row than was requested.
    pub fn of(mut data: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Self {
        let has_more = data.len() > limit as usize;
        data.truncate(limit as usize);
        let next_cursor = if has_more { data.last().map(cursor) } else { None };
        Self { data, next_cursor, has_more }
    }
}

impl CallView {
    /// The view of an answer of the corridor.
    #[must_use]
    pub fn of(answer: CallOutcome) -> (u16, Self) {
        match answer {
            CallOutcome::Done { call, result } => (
                200,
                Self { call_id: call.to_string(), status: "done".into(), result: Some(result), ..Self::default() },
            ),
            CallOutcome::Allowed { call, estimate } => {
                (200, Self { call_id: call.to_string(), status: "allowed".into(), estimate, ..Self::default() })
            }
            CallOutcome::Observed { call, would } => (
                200,
                Self {
                    call_id: call.to_string(),
                    status: "allowed".into(),
                    reason: Some(format!("observe mode: the rules say {would}")),
                    ..Self::default()
                },
            ),
            CallOutcome::Held { call, hold, not_before } => (
                202,
                Self {
                    call_id: call.to_string(),
                    status: "held".into(),
                    buffer_id: Some(hold.to_string()),
                    cancel_deadline: Some(not_before.to_string()),
                    ..Self::default()
                },
            ),
            CallOutcome::Awaiting { call, hold, approval, expires_at, batch } => (
                202,
                Self {
                    call_id: call.to_string(),
                    status: "awaiting_approval".into(),
                    buffer_id: Some(hold.to_string()),
                    approval_id: Some(approval.to_string()),
                    expires_at: expires_at.map(|at| at.to_string()),
                    batch: batch.then_some(true),
                    ..Self::default()
                },
            ),
            CallOutcome::Under { call, hold, state, failing } => (
                202,
                Self {
                    call_id: call.to_string(),
                    status: state.into(),
                    buffer_id: Some(hold.to_string()),
                    failing,
                    ..Self::default()
                },
            ),
        }
    }
}

impl CallView {
    /// Adds the freeze that stops everything else, for a read that was answered in spite of it.
    #[must_use]
    pub fn noted(self, gw: &Gateway, agent: Option<&AgentName>, capability: &CapabilityName) -> Self {
        let goes_on = ["done", "allowed"].contains(&self.status.as_str());
        let Some(agent) = agent.filter(|_| goes_on) else { return self };
        let known = gw.catalogue.known();
        let spec = known.get(capability);
        let service = spec.map_or_else(|| service_of(capability), Capability::service);
        let is_elsewhere = self.status == "allowed" && spec.is_some_and(|spec| gw.services.of(spec).is_none());
        let elsewhere = is_elsewhere.then(|| "the caller carries it out, not this gateway".to_owned());
        Self { frozen: gw.standstill.note(agent, &service), reason: self.reason.or(elsewhere), ..self }
    }
}

impl HoldView {
    /// The view of a held write, without its arguments.
    #[must_use]
    pub fn of(hold: &Hold) -> Self {
        let (code, receipt) = match &hold.state {
            HoldState::Dead { code, .. } | HoldState::NeedsHuman { code } => (Some(code.clone()), None),
            HoldState::Done { receipt, .. } => (None, Some(receipt.clone())),
            _ => (None, None),
        };
        let approval = match &hold.state {
            HoldState::AwaitingApproval { approval } => Some(*approval),
            _ => hold.consent,
        };
        let deadline: Option<UtcMillis> = match hold.state {
            HoldState::Held { not_before } => Some(not_before),
            _ => None,
        };
        Self {
            buffer_id: hold.id.to_string(),
            call_id: hold.call.to_string(),
            agent: hold.agent().to_string(),
            capability: hold.action.capability().to_string(),
            service: hold.service.to_string(),
            account: hold.action.account().map(str::to_owned),
            status: status(hold).into(),
            state: shown_state(hold).into(),
            tier: hold.tier.as_str().into(),
            weight: hold.weight,
            attempts: hold.attempts,
            admitted_at: hold.admitted_at.to_string(),
            cancel_deadline: deadline.map(|at| at.to_string()),
            approval_id: approval.map(|id| id.to_string()),
            code,
            receipt,
            reverses: hold.reverses.map(|id| id.to_string()),
            session_id: hold.session.map(|id| id.to_string()),
            digest: hold.action.digest().to_string(),
            version: hold.version,
            arguments: None,
            spawn: None,
            targets: Vec::new(),
            about: Vec::new(),
            reason: None,
            failing: FailingView::of(hold),
        }
    }

    /// The view of a held write, with its arguments.
    #[must_use]
    pub fn whole(hold: &Hold, targets: Vec<TracedTarget>) -> Self {
        let arguments = Some(Value::Object(hold.action.arguments().clone()));
        let spawn = hold.action.spawn().map(|options| Value::Object(options.fields()));
        Self { arguments, spawn, targets: targets.into_iter().map(TargetView::from).collect(), ..Self::of(hold) }
    }
}

impl ApprovalView {
    /// The view of an approval and the writes that it covers.
    #[must_use]
    pub fn of(card: &ApprovalCard, writes: Vec<HoldView>) -> Self {
        let approval = &card.approval;
        let (mut expires_at, mut by, mut at, mut answer) = (None, None, None, None);
        match &approval.state {
            ApprovalState::Pending { expires_at: end } => expires_at = Some(*end),
            ApprovalState::Approved { by: who, at: when, answer: how, .. }
            | ApprovalState::Consumed { by: who, at: when, answer: how, .. } => {
                (by, at, answer) = (Some(who.to_string()), Some(*when), Some(how.code().to_owned()));
            }
            ApprovalState::Denied { by: who, at: when } => {
                (by, at, answer) = (Some(who.to_string()), Some(*when), Some("3".to_owned()));
            }
            ApprovalState::Superseded { by: who, at: when, .. } => {
                (by, at, answer) = (Some(who.to_string()), Some(*when), Some("5".to_owned()));
            }
            ApprovalState::Expired { at: when }
            | ApprovalState::Withdrawn { at: when }
            | ApprovalState::Lapsed { at: when }
            | ApprovalState::Revoked { at: when } => at = Some(*when),
        }
        Self {
            approval_id: approval.id.to_string(),
            subject: match approval.subject {
                ApprovalSubject::Write => "write".into(),
                ApprovalSubject::Batch => "batch".into(),
                ApprovalSubject::Request => "request".into(),
            },
            agent: approval.agent.to_string(),
            service: approval.service.to_string(),
            status: approval.state.word().into(),
            items: approval.items,
            summary: None,
            asked_at: approval.asked_at.to_string(),
            expires_at: expires_at.map(|at| at.to_string()),
            decided_by: by,
            decided_at: at.map(|at| at.to_string()),
            answer,
            note: approval.note.clone(),
            writes,
            request: None,
            asked_because: Vec::new(),
            risk: None,
            standing: Vec::new(),
            deliveries: Vec::new(),
        }
    }
}

impl From<&Freeze> for FreezeView {
    fn from(freeze: &Freeze) -> Self {
        Self {
            scope: freeze.scope.to_string(),
            by: freeze.by.to_string(),
            reason: freeze.reason.clone(),
            since: freeze.at.to_string(),
            connection: freeze.brake.as_ref().map(|brake| brake.connection.to_string()),
        }
    }
}

impl From<&AccessKey> for KeyView {
    fn from(key: &AccessKey) -> Self {
        let (kind, name, role) = match &key.kind {
            AccessKeyKind::Agent(name) => ("agent", name.to_string(), None),
            AccessKeyKind::Operator(name, role) => ("operator", name.to_string(), Some(role_word(*role).to_owned())),
            AccessKeyKind::Inbox(name) => ("inbox", name.clone(), None),
            AccessKeyKind::Task(name) => ("task", name.to_string(), None),
        };
        Self {
            key_id: key.id.to_string(),
            kind: kind.into(),
            name,
            role,
            label: key.label.clone(),
            created_at: key.created_at.to_string(),
            expires_at: key.expires_at.map(|at| at.to_string()),
            revoked_at: key.revoked_at.map(|at| at.to_string()),
            token: None,
        }
    }
}
