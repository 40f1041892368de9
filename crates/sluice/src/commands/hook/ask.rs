//! Asking the gate about a tool, in check mode, and waiting for a person if one is asked.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_core::{CallId, CapabilityName, HoldId, Span};
use sluice_gateway::doors::foreign::{self, Tool};
use sluice_gateway::doors::mcp::names::Names;

use super::shapes::Asked;
use super::{Agent, guard};
use crate::client::{Ask, Client, Reach, Whose, entries, text};
use crate::client_process;
use crate::failure::{Exit, Failure};

/// The longest the gateway waits in one request.
const ROUND: Span = Span::from_secs(50);

/// Tools that change files.
const WRITES: [&str; 2] = ["custom:write_file", "custom:exec_cmd"];

/// What the gate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Go on.
    Allow,
    /// Do not, and why.
    Deny(String),
    /// The client decides about this tool itself.
    NoOpinion,
}

/// Asks about a tool and waits for the answer.
///
/// # Errors
/// When the gate cannot be asked.
pub(super) fn decide(reach: &Reach, agent: Agent, asked: &Asked, wait: Span) -> Result<Decision, Failure> {
    if guard::names_own_files(asked) {
        return Ok(Decision::Deny(guard::WORDS.to_owned()));
    }
    if asked.is_left_alone(agent) && !guard::names_credentials(asked) {
        return Ok(Decision::NoOpinion);
    }
    let wish = match foreign::translate(&asked.tool, &asked.input, asked.folder.as_deref()) {
        Ok(wish) => wish,
        Err(why) => return Ok(Decision::Deny(why.to_string())),
    };
    let client = reach.client(Whose::Agent)?;
    let place = asked.session.as_deref().map(|session| place(&client, agent, session)).transpose()?;
    let is_own = is_own(&client, asked)?;
    let known = place.as_deref().and_then(written_at);
    if let Some(session) = &known {
        // The bridge of the same client makes its next call in this session.
        client_process::works_in(client.address(), session);
    }
    if is_own {
        return Ok(Decision::Allow);
    }
    let mut session = match (known, &place) {
        (Some(session), _) => Some(session),
        (None, Some(place)) => Some(open(&client, agent, place, None)?),
        (None, None) => None,
    };
    let mut again = false;
    let mut answered = None;
    // A session that is over is opened anew, an identical question that was settled before is put again: once each.
    for _ in 0..3 {
        let body = json!({
            "capability": wish.capability, "arguments": wish.arguments, "session_id": session, "mode": "check",
            "wait_ms": 0, "allow_duplicate": again,
        });
        let answer = match client.ask(&Ask::post("/v1/calls").body(body)) {
            Ok(answer) => answer,
            Err(failure) => match (refused(&failure), &place) {
                (Some("identity.session"), Some(place)) => {
                    session = Some(open(&client, agent, place, None)?);
                    continue;
                }
                (Some("call.possible_duplicate"), _) if !again => {
                    if let Some(first) = open_twin(&client, &failure)? {
                        answered = Some(first);
                        break;
                    }
                    again = true;
                    continue;
                }
                (Some(_), _) if failure.exit != Exit::CredentialRefused => {
                    return Ok(Decision::Deny(words(&failure)));
                }
                _ => return Err(failure),
            },
        };
        answered = Some(answer);
        break;
    }
    let answered = answered.ok_or_else(|| Failure::new(Exit::Failed, "the gate gave no answer"))?;
    settle(&client, answered, wait)
}

/// Tells the gate that a tool is done, so that it looks at the files that were left. Without that, taking the write back
/// needs a person who looks at the difference.
///
/// # Errors
/// When the gate cannot be told.
pub(super) fn report(reach: &Reach, agent: Agent, asked: &Asked) -> Result<(), Failure> {
    if asked.is_left_alone(agent) || guard::names_own_files(asked) {
        return Ok(());
    }
    let Ok(wish) = foreign::translate(&asked.tool, &asked.input, asked.folder.as_deref()) else { return Ok(()) };
    if !WRITES.contains(&wish.capability.as_str()) {
        return Ok(());
    }
    let body = json!({"capability": wish.capability, "arguments": wish.arguments});
    reach.client(Whose::Agent)?.ask(&Ask::post("/v1/written-files").body(body)).map(drop)
}

/// Whether the tool is one of the gate itself, which judges its calls when they are made. Its name is no proof: the server
/// must be the gate, and the gate must have such a tool.
fn is_own(client: &Client, asked: &Asked) -> Result<bool, Failure> {
    let Tool::Served { tool, .. } = &asked.tool else { return Ok(false) };
    if !asked.proof.holds(client.address()) {
        return Ok(false);
    }
    let offered = client.whole("/v1/capabilities")?;
    let offered = entries(&offered).iter().filter_map(|one| CapabilityName::new(text(one, "name")).ok());
    Ok(Names::of(offered.collect::<Vec<_>>().iter()).knows(tool))
}

/// Waits until a question is answered, or the time is up.
fn settle(client: &Client, mut call: Value, wait: Span) -> Result<Decision, Failure> {
    let mut left = wait;
    loop {
        let status = text(&call, "status").to_owned();
        match status.as_str() {
            "allowed" => return Ok(Decision::Allow),
            "awaiting_approval" | "held" | "executing" | "retrying" => {}
            _ => {
                let (reason, hint) = (text(&call, "reason"), text(&call, "hint"));
                let hint = if hint.is_empty() { String::new() } else { format!(" ({hint})") };
                return Ok(Decision::Deny(format!("{status}: {reason}{hint}")));
            }
        }
        let id = text(&call, "call_id").to_owned();
        if left == Span::ZERO {
            let text =
                format!("a person was asked and has not answered yet ({id}); do something else and try again later");
            return Ok(Decision::Deny(text));
        }
        let round = left.min(ROUND);
        let ask = Ask::get(format!("/v1/calls/{id}")).with("wait_ms", Some(round.as_millis())).waits(round);
        call = client.ask(&ask)?;
        left = Span::from_millis(left.as_millis().saturating_sub(round.as_millis()));
    }
}

/// The identical question that was put moments ago, if it is still open: it is waited for instead of being put twice.
fn open_twin(client: &Client, failure: &Failure) -> Result<Option<Value>, Failure> {
    let first = failure.problem.as_ref().map(|problem| text(problem, "other")).unwrap_or_default();
    let Ok(first) = first.parse::<HoldId>() else { return Ok(None) };
    let call = client.ask(&Ask::get(format!("/v1/calls/{}", CallId::from_bits(first.bits()))))?;
    Ok(Some(call).filter(|call| text(call, "status") == "awaiting_approval"))
}

/// The stable code of a problem, if the gateway said one.
pub(super) fn refused(failure: &Failure) -> Option<&str> {
    failure.problem.as_ref().map(|problem| text(problem, "code"))
}

fn words(failure: &Failure) -> String {
    let why = failure.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}{why}{hint}", failure.message)
}

/// Where it is written down which session of the gateway stands for one of the client's.
pub(super) fn place(client: &Client, agent: Agent, session: &str) -> Result<PathBuf, Failure> {
    let mut print = Sha256::new();
    for part in [client.address(), agent.name(), session] {
        print.update(part.as_bytes());
        print.update([0]);
    }
    let name: String = print.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(client_process::state_folder()?.join("sessions").join(name))
}

/// The gateway's session for a client's, if one is written down.
pub(super) fn written_at(place: &Path) -> Option<String> {
    let session = fs::read_to_string(place).ok()?.trim().to_owned();
    session.parse::<sluice_core::ids::SessionId>().is_ok().then_some(session)
}

/// Opens a session and writes down which it is; with the user's task, where the client holds a task key.
pub(super) fn open(client: &Client, agent: Agent, place: &Path, task: Option<&str>) -> Result<String, Failure> {
    let body = match task {
        Some(task) => json!({"client": agent.name(), "task": task}),
        None => json!({"client": agent.name()}),
    };
    let opened = client.ask(&Ask::post("/v1/sessions").body(body))?;
    let session = text(&opened, "session_id").to_owned();
    client_process::write_beside(place, &session)?;
    client_process::works_in(client.address(), &session);
    Ok(session)
}
