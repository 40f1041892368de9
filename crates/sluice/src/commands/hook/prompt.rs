//! A prompt of the user, stated to the gate as the task of the client's session.
//!
//! Takes the prompt; gives an exit code. Promise: nothing but what a client insists on is printed on standard output,
//! because clients add it to the conversation; whatever goes wrong is said on standard error, never stops the prompt, and states no task.

use serde_json::json;

use super::Agent;
use super::ask;
use super::shapes::{self, Prompt};
use crate::client::{Ask, Reach, Whose};
use crate::client_process;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// States what the user asked for.
pub(super) fn state(reach: &Reach, agent: Agent, prompt: &Prompt, screen: &Screen) -> Exit {
    match stated(reach, agent, prompt) {
        Ok(()) => match shapes::prompt_answer(agent) {
            Some(line) if screen.line(line).is_err() => Exit::Failed,
            Some(_) | None => Exit::Ok,
        },
        Err(failure) => {
            let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
            screen.note(format_args!(
                "sluice was not told what you asked for, so it will ask about more: {}{why}",
                failure.message
            ));
            // Any code but 2 lets the prompt go on.
            Exit::Failed
        }
    }
}

fn stated(reach: &Reach, agent: Agent, prompt: &Prompt) -> Result<(), Failure> {
    let client = reach.client(Whose::Task)?;
    let place = ask::place(&client, agent, &prompt.session)?;
    if let Some(session) = ask::written_at(&place) {
        let state = Ask::post(format!("/v1/sessions/{session}/task")).body(json!({"task": prompt.text}));
        match client.ask(&state) {
            Ok(_) => {
                client_process::works_in(client.address(), &session);
                return Ok(());
            }
            // It has ended: the user goes on in a new one.
            Err(failure) if ask::refused(&failure) == Some("identity.session") => {}
            Err(failure) => return Err(failure),
        }
    }
    ask::open(&client, agent, &place, Some(&prompt.text)).map(drop)
}
