//! Asks the gate about a tool in check mode, and waits for a person if an approval is needed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluice_api::client_tools::{self, ClientTool};
use sluice_api::mcp::names::ToolNames;
use sluice_core::{CallId, CapabilityName, HoldId, Millis};

use super::client_formats::HookToolRequest;
use super::{HookAgent, guard};
use crate::client::{ApiRequest, ClientCredentialKind, GatewayArgs, GatewayClient, entries, text_field};
use crate::client_process;
use crate::failure::{CliError, CommandExit};

/// Longest wait of one request.
const ROUND: Millis = Millis::from_secs(50);

/// Capabilities that change files.
const WRITES: [&str; 2] = ["custom:write_file", "custom:exec_cmd"];

/// The decision of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookDecision {
    /// The tool may run.
    Allow,
    /// The tool must not run, with the reason.
    Deny(String),
    /// The client decides about this tool itself.
    NoOpinion,
}

/// Asks about a tool and waits for the decision.
///
/// # Errors
/// When the gate cannot be asked.
pub(super) fn decide(
    reach: &GatewayArgs,
    agent: HookAgent,
    asked: &HookToolRequest,
    wait: Millis,
) -> Result<HookDecision, CliError> {
    if guard::names_own_files(asked) {
        return Ok(HookDecision::Deny(guard::WORDS.to_owned()));
    }
    if asked.is_decided_by_client(agent) && !guard::names_credentials(asked) {
        return Ok(HookDecision::NoOpinion);
    }
    let wish = match client_tools::translate(&asked.tool, &asked.input, asked.folder.as_deref()) {
        Ok(wish) => wish,
        Err(why) => return Ok(HookDecision::Deny(why.to_string())),
    };
    let client = reach.open_client(ClientCredentialKind::Agent)?;
    let place = asked.session.as_deref().map(|session| session_file(&client, agent, session)).transpose()?;
    let is_own = is_own(&client, asked)?;
    let known = place.as_deref().and_then(read_session_file);
    if let Some(session) = &known {
        // The bridge of the same client makes its next calls in this session.
        client_process::record_session(client.address(), session);
    }
    if is_own {
        return Ok(HookDecision::Allow);
    }
    let mut session = match (known, &place) {
        (Some(session), _) => Some(session),
        (None, Some(place)) => Some(open_session(&client, agent, place, None)?),
        (None, None) => None,
    };
    let mut again = false;
    let mut answered = None;
    // An ended session is replaced and an identical approval that was decided before is requested again: once each.
    for _ in 0..3 {
        let body = json!({
            "capability": wish.capability, "arguments": wish.arguments, "session_id": session, "mode": "check",
            "wait_ms": 0, "allow_duplicate": again,
        });
        let answer = match client.send(&ApiRequest::post("/v1/calls").body(body)) {
            Ok(answer) => answer,
            Err(failure) => match (problem_code(&failure), &place) {
                (Some("identity.session"), Some(place)) => {
                    session = Some(open_session(&client, agent, place, None)?);
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
                (Some(_), _) if failure.exit != CommandExit::CredentialRefused => {
                    return Ok(HookDecision::Deny(words(&failure)));
                }
                _ => return Err(failure),
            },
        };
        answered = Some(answer);
        break;
    }
    let answered = answered.ok_or_else(|| CliError::new(CommandExit::Failed, "the gate gave no decision"))?;
    settle(&client, answered, wait)
}

/// Reports to the gate that a tool is done, so that it checks the changed files. Without the report, undoing the write
/// needs a person who looks at the difference.
///
/// # Errors
/// When the gate cannot be reached.
pub(super) fn report(reach: &GatewayArgs, agent: HookAgent, asked: &HookToolRequest) -> Result<(), CliError> {
    if asked.is_decided_by_client(agent) || guard::names_own_files(asked) {
        return Ok(());
    }
    let Ok(wish) = client_tools::translate(&asked.tool, &asked.input, asked.folder.as_deref()) else { return Ok(()) };
    if !WRITES.contains(&wish.capability.as_str()) {
        return Ok(());
    }
    let body = json!({"capability": wish.capability, "arguments": wish.arguments});
    reach.open_client(ClientCredentialKind::Agent)?.send(&ApiRequest::post("/v1/written-files").body(body)).map(drop)
}

/// Whether the tool belongs to the gate itself, which judges its calls when they are made. The name is no proof: the
/// server must be the gate, and the gate must have such a tool.
fn is_own(client: &GatewayClient, asked: &HookToolRequest) -> Result<bool, CliError> {
    let ClientTool::Served { tool, .. } = &asked.tool else { return Ok(false) };
    if !asked.proof.holds(client.address()) {
        return Ok(false);
    }
    let offered = client.get_all("/v1/capabilities")?;
    let offered = entries(&offered).iter().filter_map(|one| CapabilityName::new(text_field(one, "name")).ok());
    Ok(ToolNames::of(offered.collect::<Vec<_>>().iter()).knows(tool))
}

/// Waits until an approval is decided, or the time is up.
fn settle(client: &GatewayClient, mut call: Value, wait: Millis) -> Result<HookDecision, CliError> {
    let mut left = wait;
    loop {
        let status = text_field(&call, "status").to_owned();
        match status.as_str() {
            "allowed" => return Ok(HookDecision::Allow),
            "awaiting_approval" | "held" | "executing" | "retrying" => {}
            _ => {
                let (reason, hint) = (text_field(&call, "reason"), text_field(&call, "hint"));
                let hint = if hint.is_empty() { String::new() } else { format!(" ({hint})") };
                return Ok(HookDecision::Deny(format!("{status}: {reason}{hint}")));
            }
        }
        let id = text_field(&call, "call_id").to_owned();
        if left == Millis::ZERO {
            let text = format!(
                "a person was asked and has not answered yet ({id}); continue with other work and try again later"
            );
            return Ok(HookDecision::Deny(text));
        }
        let round = left.min(ROUND);
        let ask = ApiRequest::get(format!("/v1/calls/{id}")).with("wait_ms", Some(round.as_millis())).with_wait(round);
        call = client.send(&ask)?;
        left = Millis::from_millis(left.as_millis().saturating_sub(round.as_millis()));
    }
}

/// The identical approval that was requested moments ago, if it is still open: it is reused instead of asking twice.
fn open_twin(client: &GatewayClient, failure: &CliError) -> Result<Option<Value>, CliError> {
    let first = failure.problem.as_ref().map(|problem| text_field(problem, "other")).unwrap_or_default();
    let Ok(first) = first.parse::<HoldId>() else { return Ok(None) };
    let call = client.send(&ApiRequest::get(format!("/v1/calls/{}", CallId::from_bits(first.bits()))))?;
    Ok(Some(call).filter(|call| text_field(call, "status") == "awaiting_approval"))
}

/// The error code of a problem, if the gateway gave one.
pub(super) fn problem_code(failure: &CliError) -> Option<&str> {
    failure.problem.as_ref().map(|problem| text_field(problem, "code"))
}

fn words(failure: &CliError) -> String {
    let why = failure.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    let hint = failure.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}{why}{hint}", failure.message)
}

/// The file that stores which gateway session belongs to a client session.
pub(super) fn session_file(client: &GatewayClient, agent: HookAgent, session: &str) -> Result<PathBuf, CliError> {
    let mut print = Sha256::new();
    for part in [client.address(), agent.name(), session] {
        print.update(part.as_bytes());
        print.update([0]);
    }
    let name: String = print.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(client_process::state_folder()?.join("sessions").join(name))
}

/// The gateway session of a client session, if one is stored.
pub(super) fn read_session_file(place: &Path) -> Option<String> {
    let session = fs::read_to_string(place).ok()?.trim().to_owned();
    session.parse::<sluice_core::ids::SessionId>().is_ok().then_some(session)
}

/// Opens a session and stores its id; states the user's task if the client has a task key.
pub(super) fn open_session(
    client: &GatewayClient,
    agent: HookAgent,
    place: &Path,
    task: Option<&str>,
) -> Result<String, CliError> {
    let body = match task {
        Some(task) => json!({"client": agent.name(), "task": task}),
        None => json!({"client": agent.name()}),
    };
    let opened = client.send(&ApiRequest::post("/v1/sessions").body(body))?;
    let session = text_field(&opened, "session_id").to_owned();
    client_process::write_atomically(place, &session)?;
    client_process::record_session(client.address(), &session);
    Ok(session)
}
