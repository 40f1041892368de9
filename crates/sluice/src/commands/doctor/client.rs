//! A client's hook, broken on purpose: does the tool stop.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Finding, State};
use crate::commands::hook::Agent;

/// What each client sends before it runs a command.
const fn input(agent: Agent) -> &'static str {
    match agent {
        Agent::ClaudeCode | Agent::Codex => {
            r#"{"session_id":"doctor","cwd":"/","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"true"}}"#
        }
        Agent::Gemini => {
            r#"{"session_id":"doctor","cwd":"/","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"true"}}"#
        }
        Agent::Cursor => {
            r#"{"conversation_id":"doctor","hook_event_name":"beforeShellExecution","command":"true","cwd":"/"}"#
        }
    }
}

/// Breaks the hook in every way and looks whether the tool stops.
pub(super) fn broken(agent: Agent) -> Vec<Finding> {
    let nowhere = ("SLUICE_URL", "http://127.0.0.1:9");
    let whole = input(agent);
    let half = whole.get(..whole.len() / 2).unwrap_or_default();
    let key = ("SLUICE_AGENT_KEY", "none");
    vec![
        attempt(agent, "no gateway", whole, &[nowhere, key]),
        attempt(agent, "no key", whole, &[nowhere]),
        attempt(agent, "half an input", half, &[nowhere, key]),
        attempt(agent, "no input", "", &[nowhere, key]),
    ]
}

fn attempt(agent: Agent, way: &str, input: &str, variables: &[(&str, &str)]) -> Finding {
    match run(agent, input, variables) {
        Err(error) => Finding::new("hook", State::Fail, format!("{way}: the hook could not be run: {error}")),
        Ok((code, stdout)) if stopped(agent, code, &stdout) => {
            Finding::new("hook", State::Ok, format!("{way}: the tool was stopped"))
        }
        Ok((code, _)) => {
            let code = code.map_or_else(|| "no code".to_owned(), |code| code.to_string());
            Finding::new("hook", State::Fail, format!("{way}: the tool would have run (the hook ended with {code})"))
        }
    }
}

fn run(agent: Agent, input: &str, variables: &[(&str, &str)]) -> std::io::Result<(Option<i32>, String)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["hook", agent.name()])
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Whether the client takes this for a no.
fn stopped(agent: Agent, code: Option<i32>, stdout: &str) -> bool {
    let said: Value = serde_json::from_str(stdout).unwrap_or(Value::Null);
    match agent {
        Agent::ClaudeCode | Agent::Codex => code == Some(2),
        Agent::Gemini => code == Some(2) && (stdout.is_empty() || said.get("decision") == Some(&"deny".into())),
        Agent::Cursor => code == Some(2) && (stdout.is_empty() || said.get("permission") == Some(&"deny".into())),
    }
}
