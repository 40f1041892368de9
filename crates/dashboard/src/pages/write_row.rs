//! A held write as lists show it.

use sluice_core::approval::card::escape_invisible;
use sluice_core::hold::{AttemptPhase, Hold, HoldState};
use sluice_gateway::rooms::answer;

use super::layout::StampView;

/// Characters of a summary.
const SUMMARY: usize = 90;

/// A held write as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteRow {
    pub(crate) id: String,
    pub(crate) call: String,
    pub(crate) agent: String,
    pub(crate) capability: String,
    pub(crate) service: String,
    pub(crate) summary: String,
    /// The state in the words of people.
    pub(crate) state: &'static str,
    /// `wait`, `run`, `good`, `bad` or `over`.
    pub(crate) class: &'static str,
    /// What it counts down to.
    pub(crate) due: Option<StampView>,
    pub(crate) admitted: StampView,
    pub(crate) can_cancel: bool,
    pub(crate) can_move: bool,
    pub(crate) approval: Option<String>,
    pub(crate) attempts: u32,
}

impl WriteRow {
    pub(crate) fn of(hold: &Hold) -> Self {
        let (state, class) = described(hold);
        let due = match hold.state {
            HoldState::Held { not_before } => Some(not_before),
            HoldState::Ready { .. } => hold.next_attempt_at(),
            _ => None,
        };
        let approval = match &hold.state {
            HoldState::AwaitingApproval { approval } => Some(*approval),
            _ => hold.consent,
        };
        Self {
            id: hold.id.to_string(),
            call: hold.call.to_string(),
            agent: hold.agent().to_string(),
            capability: hold.action.capability().to_string(),
            service: hold.service.to_string(),
            summary: summary(hold),
            state,
            class,
            due: due.map(StampView::from),
            admitted: hold.admitted_at.into(),
            can_cancel: can_cancel(&hold.state),
            can_move: matches!(hold.state, HoldState::Held { .. } | HoldState::Ready { .. }),
            approval: approval.map(|id| id.to_string()),
            attempts: hold.attempts,
        }
    }
}

/// Whether a cancel can still succeed.
fn can_cancel(state: &HoldState) -> bool {
    matches!(
        state,
        HoldState::AwaitingApproval { .. }
            | HoldState::Held { .. }
            | HoldState::Ready { .. }
            | HoldState::Stale { .. }
            | HoldState::Executing { phase: AttemptPhase::Prepare, .. }
    )
}

/// The state in the words of people, and its colour.
pub(crate) fn described(hold: &Hold) -> (&'static str, &'static str) {
    match answer::status(hold) {
        "awaiting_approval" => ("waits for approval", "wait"),
        "held" => ("leaves soon", "wait"),
        "executing" => ("on its way", "run"),
        "retrying" => ("will be tried again", "wait"),
        "in_doubt" => ("outcome unclear, being looked up", "bad"),
        "needs_human" => ("a person has to look", "bad"),
        "stale" => ("set aside, a person chooses", "bad"),
        "done" => ("done", "good"),
        "cancelled" => ("cancelled", "over"),
        "denied" => ("denied", "over"),
        "expired" => ("expired without an answer", "over"),
        "dead" => ("failed for good", "bad"),
        "discarded" => ("given up", "over"),
        "blocked" => ("blocked by the rules", "over"),
        other => (other, "over"),
    }
}

/// The argument that says most about a write, on one line.
fn summary(hold: &Hold) -> String {
    const FIRST: [&str; 12] =
        ["to", "recipients", "path", "url", "command", "channel", "attendees", "name", "key", "id", "title", "subject"];
    let arguments = hold.action.arguments();
    let found = FIRST.iter().find_map(|name| arguments.get(*name)).or_else(|| arguments.values().next());
    let text = match found {
        None => return String::new(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Array(list)) => {
            let words = list.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            words.collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    };
    let shown = escape_invisible(&text);
    match shown.char_indices().nth(SUMMARY) {
        Some((end, _)) => format!("{}…", shown.get(..end).unwrap_or_default()),
        None => shown,
    }
}
