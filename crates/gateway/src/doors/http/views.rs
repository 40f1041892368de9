//! What the API shows: our words as JSON, with their schemas.

pub mod failing;
mod judgement;
mod session;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::approval::{ApprovalState, Subject};
use sluice_core::capability::{Capability, service_of};
use sluice_core::hold::{Hold, HoldState};
use sluice_core::target::Traced;
use sluice_core::{AgentName, CapabilityName, Timestamp};
use sluice_store::{Card, Freeze, Key, KeyKind, Role};

use super::channels::DeliveryView;
use super::record_search::ReadView;
use crate::Gateway;
use crate::gate::standing::OfferView;
use crate::rooms::answer::{Answer, shown_state, status};

pub use failing::{Audience, FailingView};
pub use judgement::{ObservingView, ReasonView};
pub use session::SessionView;

/// A problem (RFC 9457): why the answer is no.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// Names the kind of problem.
    pub r#type: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened in this case.
    pub detail: String,
    /// The stable code; see docs/errors.md.
    pub code: String,
    /// What to do instead.
    pub hint: String,
    /// Whether and when to come again.
    pub retry: String,
    /// When, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The request, for support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The call it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The rule that said no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What exists instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
}

/// What became of a call so far.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct CallView {
    /// The call.
    pub call_id: String,
    /// `done`, `allowed`, `held`, `awaiting_approval`, `executing`, `retrying`, `blocked`, `in_doubt`, `needs_human`, `stale`,
    /// `cancelled`, `denied`, `expired`, `dead`, `discarded` or `refused`.
    pub status: String,
    /// What it gave, once done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What it would use and what is left of the day, for a call of a security proxy that was only checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Value>,
    /// The held write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_id: Option<String>,
    /// Until when it can be cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_deadline: Option<String>,
    /// The question put to a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// When their silence becomes a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Whether too many writes at once asked, rather than a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<bool>,
    /// Why it is blocked or over, as a stable code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What to do instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// The freeze in force, where a read was answered in spite of it: everything else is refused meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frozen: Option<String>,
    /// What the record keeps of a read. Only operators are shown it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadView>,
    /// The next attempt and the last error.
    #[serde(flatten)]
    pub failing: FailingView,
}

/// A held write.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HoldView {
    /// Its id.
    pub buffer_id: String,
    /// The call that made it.
    pub call_id: String,
    /// Who asked.
    pub agent: String,
    /// What.
    pub capability: String,
    /// At which service.
    pub service: String,
    /// At which account of it, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Where it stands, in the words of calls.
    pub status: String,
    /// Where it stands exactly.
    pub state: String,
    /// What policy said.
    pub tier: String,
    /// How many ordinary writes it counts as.
    pub weight: u32,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was admitted.
    pub admitted_at: String,
    /// When its undo window closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_deadline: Option<String>,
    /// The question about it, open or answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// Why it is where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The service's proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// The write it takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverses: Option<String>,
    /// In which session it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The SHA-256 of exactly what it does.
    pub digest: String,
    /// Counts its moves.
    pub version: u64,
    /// What it does, for those who may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// What a spawn adds to it: the shorter time, the schema of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn: Option<Value>,
    /// Who or where it reaches, and where each of these was first met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetView>,
    /// What is known here of the things it names by their ids, one line each, in the words of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// Why the agent wants it, in its own words: nobody has checked them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The next attempt and the last error.
    #[serde(flatten)]
    pub failing: FailingView,
}

/// A target of a write.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TargetView {
    /// The argument it stands in.
    pub argument: String,
    /// As the write has it.
    pub value: String,
    /// `asked` for by the user, `known`, `seen` in outside text, or `new`.
    pub origin: String,
    /// The outside text it was met in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl From<Traced> for TargetView {
    fn from(traced: Traced) -> Self {
        let origin = traced.origin.as_str().into();
        Self { argument: traced.argument, value: traced.value, origin, source: traced.source }
    }
}

/// A question put to people.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ApprovalView {
    /// Its id.
    pub approval_id: String,
    /// `write` for one, `batch` for many, `request` for what a client does by itself.
    pub subject: String,
    /// Who asks.
    pub agent: String,
    /// At which service.
    pub service: String,
    /// Where it stands.
    pub status: String,
    /// How many writes it covers.
    pub items: u32,
    /// When it was asked.
    pub asked_at: String,
    /// When silence becomes a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// Which line of the menu.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What they wrote along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The writes, in the order of the card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<HoldView>,
    /// What a client wants to do by itself, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    /// Why a person is asked, as it was when the question was put.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub asked_because: Vec<ReasonView>,
    /// How bad a wrong approval can be: `low`, `medium` or `high`, while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// What `session` and `always` open, the narrowest bound first; empty if they are not offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standing: Vec<OfferView>,
    /// What became of each letter about it: queued, sent, retrying or refused.
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
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: String,
    /// The connection that stands still by itself. `unfreeze` does not move it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
}

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// What people wrote about it.
    pub note: String,
    /// Since when it exists.
    pub created_at: String,
    /// Whether a person has paused it.
    pub paused: bool,
    /// Whether it was removed.
    pub removed: bool,
    /// Its credentials that still work.
    pub keys: u32,
    /// Its observe mode, while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observing: Option<ObservingView>,
}

/// A credential, without what opens anything.
#[derive(Debug, Serialize, JsonSchema)]
pub struct KeyView {
    /// Its id.
    pub key_id: String,
    /// `agent`, `operator` or `inbox`.
    pub kind: String,
    /// Whose it is.
    pub name: String,
    /// What an operator may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Since when it exists.
    pub created_at: String,
    /// When it stops working.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// The credential itself: shown once, when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// A page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Page<T> {
    /// The entries.
    pub data: Vec<T>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
    /// Whether there is one.
    pub has_more: bool,
}

/// What a role is called.
#[must_use]
pub const fn role_word(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Approver => "approver",
        Role::Admin => "admin",
    }
}

/// The role of this name.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleWord {
    /// Looks.
    Viewer,
    /// Decides and stops.
    Approver,
    /// Does everything.
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Self {
        match word {
            RoleWord::Viewer => Self::Viewer,
            RoleWord::Approver => Self::Approver,
            RoleWord::Admin => Self::Admin,
        }
    }
}

impl<T> Page<T> {
    /// A page out of one more row than was asked for.
    pub fn of(mut data: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Self {
        let has_more = data.len() > limit as usize;
        data.truncate(limit as usize);
        let next_cursor = if has_more { data.last().map(cursor) } else { None };
        Self { data, next_cursor, has_more }
    }
}

impl CallView {
    /// An answer of the corridor.
    #[must_use]
    pub fn of(answer: Answer) -> (u16, Self) {
        match answer {
            Answer::Done { call, result } => (
                200,
                Self { call_id: call.to_string(), status: "done".into(), result: Some(result), ..Self::default() },
            ),
            Answer::Allowed { call, estimate } => {
                (200, Self { call_id: call.to_string(), status: "allowed".into(), estimate, ..Self::default() })
            }
            Answer::Observed { call, would } => (
                200,
                Self {
                    call_id: call.to_string(),
                    status: "allowed".into(),
                    reason: Some(format!("observe mode: the rules say {would}")),
                    ..Self::default()
                },
            ),
            Answer::Held { call, hold, not_before } => (
                202,
                Self {
                    call_id: call.to_string(),
                    status: "held".into(),
                    buffer_id: Some(hold.to_string()),
                    cancel_deadline: Some(not_before.to_string()),
                    ..Self::default()
                },
            ),
            Answer::Awaiting { call, hold, approval, expires_at, batch } => (
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
            Answer::Under { call, hold, state, failing } => (
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
    /// With the freeze that stops everything else, where a read was answered in spite of it.
    #[must_use]
    pub fn noted(self, gw: &Gateway, agent: Option<&AgentName>, capability: &CapabilityName) -> Self {
        let goes_on = ["done", "allowed"].contains(&self.status.as_str());
        let Some(agent) = agent.filter(|_| goes_on) else { return self };
        let known = gw.catalogue.known();
        let spec = known.get(capability);
        let service = spec.map_or_else(|| service_of(capability), Capability::service);
        let is_elsewhere = self.status == "allowed" && spec.is_some_and(|spec| gw.services.of(spec).is_none());
        let elsewhere = is_elsewhere.then(|| "nothing on this gateway carries it out; the caller does".to_owned());
        Self { frozen: gw.standstill.note(agent, &service), reason: self.reason.or(elsewhere), ..self }
    }
}

impl HoldView {
    /// A held write, without what it does.
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
        let deadline: Option<Timestamp> = match hold.state {
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

    /// The same with what it does.
    #[must_use]
    pub fn whole(hold: &Hold, targets: Vec<Traced>) -> Self {
        let arguments = Some(Value::Object(hold.action.arguments().clone()));
        let spawn = hold.action.spawn().map(|options| Value::Object(options.fields()));
        Self { arguments, spawn, targets: targets.into_iter().map(TargetView::from).collect(), ..Self::of(hold) }
    }
}

impl ApprovalView {
    /// A question and the writes it covers.
    #[must_use]
    pub fn of(card: &Card, writes: Vec<HoldView>) -> Self {
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
                Subject::Write => "write".into(),
                Subject::Batch => "batch".into(),
                Subject::Request => "request".into(),
            },
            agent: approval.agent.to_string(),
            service: approval.service.to_string(),
            status: approval.state.word().into(),
            items: approval.items,
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

impl From<&Key> for KeyView {
    fn from(key: &Key) -> Self {
        let (kind, name, role) = match &key.kind {
            KeyKind::Agent(name) => ("agent", name.to_string(), None),
            KeyKind::Operator(name, role) => ("operator", name.to_string(), Some(role_word(*role).to_owned())),
            KeyKind::Inbox(name) => ("inbox", name.clone(), None),
            KeyKind::Task(name) => ("task", name.to_string(), None),
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
