//! Tasks: a call that waits for a person, in the form of the tasks extension.
//!
//! Takes the id of a call; gives its state. Promise: a task is the held write itself, durable before the client
//! is told about it; a person's denial is a result, and the task of another agent is as unknown as one that never
//! existed.

use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, DetailedTask, ErrorCode, GetTaskResult, Task, TaskPayload, TaskStatus};
use serde_json::Value;
use sluice_core::refusal::Code;
use sluice_core::{Actor, CallId, HoldId, Millis, UtcMillis};
use sluice_gateway::Gateway;
use sluice_gateway::rooms::answer::CallOutcome;
use sluice_gateway::rooms::hold;
use sluice_services::CallError;

use super::handler::{McpHandler, broken};
use super::{McpCaller, results, tools};
use crate::http::calls;

/// How often a client should poll, in milliseconds.
const POLL_MS: u64 = 5_000;
/// How long the outcome of a task can be read at least, in milliseconds.
const KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// Makes a task for a call that was just accepted.
pub(super) fn new(gw: &Gateway, call: CallId, answer: &CallOutcome) -> CreateTaskResult {
    let now = gw.now();
    let message = match answer {
        CallOutcome::Awaiting { expires_at: Some(until), .. } => {
            format!("a person was asked and can answer until {until}")
        }
        CallOutcome::Awaiting { .. } => "a person was asked".to_owned(),
        CallOutcome::Held { not_before, .. } => format!("held until {not_before}"),
        CallOutcome::Done { .. }
        | CallOutcome::Allowed { .. }
        | CallOutcome::Observed { .. }
        | CallOutcome::Under { .. } => "under way".to_owned(),
    };
    CreateTaskResult::new(task(call, now, now).with_status_message(message))
}

fn task(call: CallId, made: UtcMillis, now: UtcMillis) -> Task {
    Task::new(call.to_string(), TaskStatus::Working, made.to_string(), now.to_string())
        .with_ttl_ms(KEPT_MS)
        .with_poll_interval_ms(POLL_MS)
}

/// `tasks/get`.
pub(super) async fn get(handler: &McpHandler, id: &str, guest: &McpCaller) -> Result<GetTaskResult, ErrorData> {
    let gw = &handler.gw;
    let call = named(id)?;
    let hold = calls::own(&gw.store, call, Some(&guest.agent)).await.map_err(|no| broken(&no))?.ok_or_else(unknown)?;
    let view = calls::call_status(gw, call, Some(&guest.agent), Millis::ZERO).await.map_err(|no| broken(&no))?;
    let state = view.status.clone();
    let task = task(call, hold.admitted_at, gw.now());
    let detailed = match state.as_str() {
        "awaiting_approval" | "held" | "executing" | "retrying" | "in_doubt" | "needs_human" => {
            let retry = view.failing.line();
            let text = view.cancel_deadline.as_deref().or(view.expires_at.as_deref()).or(retry.as_deref());
            let text = text.unwrap_or_default();
            DetailedTask::new(
                task.with_status_message(format!("{state} {text}").trim().to_owned()),
                TaskPayload::Working,
            )
        }
        "cancelled" => DetailedTask::new(task, TaskPayload::Cancelled),
        _ => {
            let result = serde_json::to_value(results::call_result(view, &handler.names.now())).unwrap_or(Value::Null);
            DetailedTask::new(task, TaskPayload::Completed { result: tools::object(result) })
        }
    };
    Ok(GetTaskResult::new(detailed))
}

/// `tasks/cancel`.
pub(super) async fn cancel(handler: &McpHandler, id: &str, guest: &McpCaller) -> Result<(), ErrorData> {
    let gw = &handler.gw;
    let call = named(id)?;
    calls::own(&gw.store, call, Some(&guest.agent)).await.map_err(|no| broken(&no))?.ok_or_else(unknown)?;
    match hold::stop(gw, HoldId::from_bits(call.bits()), Actor::Agent(guest.agent.clone())).await {
        Ok(_) => Ok(()),
        // In the extension, cancelling is a request: `tasks/get` returns its result.
        Err(CallError { refusal, .. }) if refusal.code() == Code::HoldTooLate => Ok(()),
        Err(no) => Err(broken(&no)),
    }
}

fn named(id: &str) -> Result<CallId, ErrorData> {
    id.parse().map_err(|_| unknown())
}

fn unknown() -> ErrorData {
    ErrorData::new(ErrorCode::INVALID_PARAMS, "there is no such task", None)
}
