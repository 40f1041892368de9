//! States a prompt of the user to the gate as the task of the client's session.
//!
//! Takes the prompt; gives an exit code. Promise: standard output contains only what a client requires, because clients
//! add it to the conversation; errors go to standard error, never stop the prompt, and leave the session without a task.

use serde_json::json;

use super::HookAgent;
use super::ask;
use super::client_formats::{self, HookUserPrompt};
use crate::client::{ApiRequest, ClientCredentialKind, GatewayArgs};
use crate::client_process;
use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit};

/// States what the user asked for.
pub(super) fn state(
    reach: &GatewayArgs,
    agent: HookAgent,
    prompt: &HookUserPrompt,
    screen: &CommandConsole,
) -> CommandExit {
    match stated(reach, agent, prompt) {
        Ok(()) => match client_formats::prompt_answer(agent) {
            Some(line) if screen.line(line).is_err() => CommandExit::Failed,
            Some(_) | None => CommandExit::Ok,
        },
        Err(failure) => {
            let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
            screen.note(format_args!(
                "sluice could not record your task, so it will ask for more approvals: {}{why}",
                failure.message
            ));
            // Every exit code but 2 lets the prompt continue.
            CommandExit::Failed
        }
    }
}

fn stated(reach: &GatewayArgs, agent: HookAgent, prompt: &HookUserPrompt) -> Result<(), CliError> {
    let client = reach.open_client(ClientCredentialKind::Task)?;
    let place = ask::session_file(&client, agent, &prompt.session)?;
    if let Some(session) = ask::read_session_file(&place) {
        let state = ApiRequest::post(format!("/v1/sessions/{session}/task")).body(json!({"task": prompt.text}));
        match client.send(&state) {
            Ok(_) => {
                client_process::record_session(client.address(), &session);
                return Ok(());
            }
            // The session has ended: the user continues in a new one.
            Err(failure) if ask::problem_code(&failure) == Some("identity.session") => {}
            Err(failure) => return Err(failure),
        }
    }
    ask::open_session(&client, agent, &place, Some(&prompt.text)).map(drop)
}
