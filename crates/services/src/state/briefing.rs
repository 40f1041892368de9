//! The briefing: what an agent needs to know when it resumes work.
//!
//! Takes an agent and a time; gives the outcomes of its writes, what waits for it and what is planned. Promise: it
//! holds numbers, names and times of the agent's own work, never contents, and of other agents only how many messages
//! they sent it.

use serde_json::{Map, Value, json};
use sluice_core::refusal::{Code, Refusal};
use sluice_core::{Millis, UtcMillis};
use sluice_store::{AlertFilter, HoldFilter, MessageSeverity, ScheduleState};

use super::super::ServiceRead;
use super::{StateService, store};
use crate::value::put;

/// The default and the longest period of a briefing.
const USUAL: Millis = Millis::from_hours(24);
const LONGEST: Millis = Millis::from_hours(31 * 24);
/// The most writes that are named.
const NAMED: u32 = 50;

impl StateService {
    /// Builds the briefing.
    pub(super) async fn briefing(&self, ask: &ServiceRead) -> Result<Value, Refusal> {
        let (agent, now) = (ask.action.agent().clone(), ask.now);
        let arguments = ask.action.arguments();
        let since = match arguments.get("since").and_then(Value::as_str) {
            None => now - USUAL,
            Some(text) => {
                let wrong =
                    || Refusal::new(Code::SchemaWrongType).with_text("since is a time such as 2026-11-01T00:00:00Z");
                let at: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
                UtcMillis::from_millis(at.as_millisecond()).max(now - LONGEST)
            }
        };
        let detailed = match arguments.get("detail_level").and_then(Value::as_str).unwrap_or("summary") {
            "summary" => false,
            "detailed" => true,
            _ => {
                let text = "detail_level is `summary` or `detailed`";
                return Err(Refusal::new(Code::SchemaWrongType).with_text(text));
            }
        };
        let activity = self.store.activity_of(agent.clone(), since).await.map_err(store)?;
        let (_, messages) = self.store.messages_for(agent.clone(), None, 1, now).await.map_err(store)?;
        let plans = self.store.schedules_of(agent.clone()).await.map_err(store)?;
        let next =
            plans.iter().filter(|plan| plan.state == ScheduleState::Active).filter_map(|plan| plan.next_at).min();
        let filter =
            AlertFilter { open_only: true, severity_at_least: MessageSeverity::Info, agent: Some(agent.clone()) };
        let alerts = self.store.alerts(filter, None, 200).await.map_err(store)?.len();
        let frozen: Vec<String> =
            self.store.freezes().await.map_err(store)?.iter().map(|freeze| freeze.scope.to_string()).collect();
        let writes: Map<String, Value> =
            activity.writes.iter().map(|(state, count)| (state.clone(), (*count).into())).collect();
        let all: u64 = activity.writes.iter().map(|(_, count)| count).sum();
        let summary = format!(
            "{all} writes, {} open approvals, {messages} unread messages, {alerts} open alerts since {since}",
            activity.questions
        );
        let mut briefing = json!({
            "since": since.to_string(), "writes_by_state": writes, "pending_approvals": activity.questions,
            "unread_messages": messages, "alerts": alerts, "next_scheduled_call": next.map(|at| at.to_string()),
            "frozen": frozen, "summary": summary,
        });
        if detailed {
            let filter = HoldFilter { agent: Some(agent), newest_first: true, ..HoldFilter::default() };
            let holds = self.store.holds_page(filter, None, NAMED).await.map_err(store)?;
            let named: Vec<Value> = holds
                .iter()
                .filter(|hold| hold.admitted_at >= since)
                .map(|hold| {
                    json!({
                        "call_id": hold.call, "capability": hold.action.capability(), "state": hold.state.word(),
                        "asked_at": hold.admitted_at.to_string(),
                    })
                })
                .collect();
            put(&mut briefing, "writes", named);
        }
        Ok(json!({"briefing": briefing}))
    }
}
