//! A client's hook, broken on purpose: does the tool stop.
//!
//! Takes a client; gives one finding per way in which its installed hook was broken. Promise: it is the hook of the client's
//! own configuration that is tried, no program but this one is started for it, and a client without one, or with its hooks
//! switched off, fails; so does one whose gateway does not answer.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Finding, State};
use crate::client::{Ask, Client, shown, text};
use crate::commands::hook::Agent;
use crate::commands::setup::recipes::{self, Hears, Line};
use crate::commands::setup::{block, members};

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

/// Finds the hook a client has, breaks exactly that one in every way and looks whether the tool stops.
pub(super) fn broken(agent: Agent) -> Vec<Finding> {
    let (Some(home), Ok(here)) = (std::env::var_os("HOME").map(PathBuf::from), std::env::current_dir()) else {
        return vec![Finding::new("hook", State::Fail, "there is no home folder")];
    };
    let files = recipes::hook_files(agent.client(), &home, &here);
    let mut findings = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for file in &files {
        match settings(file) {
            Ok(None) => {}
            Ok(Some(read)) => {
                gather(&read, &format!("{}{}", recipes::HOOK, agent.name()), &mut lines);
                if let Some(switch) = switched_off(agent, &read) {
                    let text = format!("`{}` has {switch}: the client asks nobody", file.display());
                    findings.push(Finding::new("hook", State::Fail, text).hint("take that out of the file"));
                }
            }
            Err(why) => findings.push(Finding::new("hook", State::Warn, format!("`{}`: {why}", file.display()))),
        }
    }
    lines.sort();
    lines.dedup();
    let hears_prompts = |line: &String| Line::read(line, agent.name()).is_some_and(|line| line.hears == Hears::Prompts);
    if lines.iter().all(hears_prompts) {
        let files: Vec<String> = files.iter().map(|file| format!("`{}`", file.display())).collect();
        let text = format!("there is no hook of sluice in {}: the client asks nobody", files.join(" or "));
        let hint = format!("sluice setup {} --hooks", agent.name());
        findings.push(Finding::new("hook", State::Fail, text).hint(hint));
    }
    findings.extend(lines.iter().flat_map(|line| attempts(agent, line, &home)));
    findings
}

/// A client's file, if there is one.
fn settings(file: &Path) -> Result<Option<Value>, String> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    match file.extension().and_then(|kind| kind.to_str()) {
        Some("toml") => block::read(&text).map(Some),
        _ if text.trim().is_empty() => Ok(None),
        _ => members::read(&text).map(Some).ok_or_else(|| "it is not JSON, so nothing can be said about it".to_owned()),
    }
}

/// What in a client's file keeps all its hooks, or ours, from being run.
fn switched_off(agent: Agent, read: &Value) -> Option<&'static str> {
    let is = |pointer: &str, wanted: bool| read.pointer(pointer) == Some(&Value::Bool(wanted));
    let among = |pointer: &str| {
        let mut names = read.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        names.any(|name| name == recipes::NAME || name.contains(recipes::HOOK))
    };
    match agent {
        Agent::ClaudeCode if is("/disableAllHooks", true) => Some("`disableAllHooks`"),
        Agent::Codex if is("/features/hooks", false) || is("/features/codex_hooks", false) => {
            Some("`hooks = false` under `[features]`")
        }
        Agent::Gemini if is("/hooksConfig/enabled", false) || is("/hooks/enabled", false) => {
            Some("`hooksConfig.enabled: false`")
        }
        Agent::Gemini if is("/tools/enableHooks", false) => Some("`tools.enableHooks: false`"),
        Agent::Gemini if among("/hooksConfig/disabled") || among("/hooks/disabled") => {
            Some("the hook of sluice under `hooksConfig.disabled`")
        }
        Agent::ClaudeCode | Agent::Codex | Agent::Gemini | Agent::Cursor => None,
    }
}

/// Every text with a mark.
fn gather(value: &Value, mark: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(mark) => found.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|one| gather(one, mark, found)),
        Value::Object(members) => members.values().for_each(|one| gather(one, mark, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// One hook, broken in every way.
fn attempts(agent: Agent, line: &str, home: &Path) -> Vec<Finding> {
    let fail = |text: String| {
        let hint = format!("sluice setup {} --hooks", agent.name());
        vec![Finding::new("hook", State::Fail, text).hint(hint)]
    };
    let Some(parts) = Line::read(line, agent.name()) else {
        return fail("a hook with the mark of sluice is not as `sluice setup` writes it".into());
    };
    // SECURITY: a project's file may name any program; only this one is started.
    let same = match (fs::canonicalize(&parts.program), std::env::current_exe().and_then(fs::canonicalize)) {
        (Ok(one), Ok(own)) => one == own,
        _ => false,
    };
    if !same {
        return fail(format!("the hook starts `{}`, which is not this program", parts.program));
    }
    if parts.hears == Hears::Prompts {
        return vec![task_key(agent, &parts)];
    }
    let whole = input(agent);
    let half = whole.get(..whole.len() / 2).unwrap_or_default();
    let nowhere = Line { url: "http://127.0.0.1:9".into(), ..parts.clone() };
    let keyless = Line { key: "/nonexistent/sluice.key".into(), ..parts.clone() };
    let mut findings = Vec::new();
    if !Path::new(&parts.key).is_file() {
        findings.extend(fail(format!("the hook's key is not at `{}`: every tool is stopped", parts.key)));
    } else {
        findings.push(reached(&parts));
    }
    for (way, line, input) in [
        ("no gateway", &nowhere, whole),
        ("no key", &keyless, whole),
        ("half an input", &parts, half),
        ("no input", &parts, ""),
    ] {
        findings.push(attempt(agent, way, input, (&line.text(agent.name()), home)));
    }
    findings
}

/// Whether the gateway answers where the hook asks it, and takes the hook's key.
fn reached(parts: &Line) -> Finding {
    let asked =
        Client::with_key_file(&parts.url, Path::new(&parts.key)).and_then(|client| client.ask(&Ask::get("/v1/whoami")));
    match asked {
        Ok(me) if text(&me, "kind") != "agent" => {
            let text = format!("`{}` is no agent's key, so no hook can ask with it", parts.key);
            Finding::new("gateway", State::Fail, text).hint("sluice keys create --agent NAME --out FILE")
        }
        Ok(me) => {
            let text =
                format!("the gateway at {} answers and knows the key of agent `{}`", parts.url, shown(&me, "name"));
            Finding::new("gateway", State::Ok, text)
        }
        Err(failure) => {
            let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
            let text = format!("{}{why}: every tool is stopped until this works", failure.message);
            Finding::new("gateway", State::Fail, text)
                .hint(failure.hint.unwrap_or_else(|| "start it: sluice serve; then run this again".to_owned()))
        }
    }
}

/// Whether the hook that hears prompts has its key. Without it the gate asks about more, and nothing stops.
fn task_key(agent: Agent, line: &Line) -> Finding {
    if Path::new(&line.key).is_file() {
        return Finding::new("hook", State::Ok, "what you type is stated to the gate with a task key");
    }
    let text = format!("the task key is not at `{}`: nothing counts as asked for", line.key);
    let hint = format!("sluice setup {} --hooks --task-key-file FILE", agent.name());
    Finding::new("hook", State::Warn, text).hint(hint)
}

fn attempt(agent: Agent, way: &str, input: &str, line: (&str, &Path)) -> Finding {
    match run(input, line) {
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

/// Runs a line as the client does.
fn run(input: &str, (line, home): (&str, &Path)) -> std::io::Result<(Option<i32>, String)> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", line])
        .env_clear()
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // It may have ended without reading: what it ended with says more.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks_that_are_switched_off_are_noticed() {
        for (agent, read) in [
            (Agent::ClaudeCode, json!({"disableAllHooks": true})),
            (Agent::Codex, json!({"features": {"hooks": false}})),
            (Agent::Codex, json!({"features": {"codex_hooks": false}})),
            (Agent::Gemini, json!({"hooksConfig": {"enabled": false}})),
            (Agent::Gemini, json!({"hooksConfig": {"disabled": ["other", "sluice"]}})),
            (Agent::Gemini, json!({"hooksConfig": {"disabled": ["x hook gemini # sluice hook gemini"]}})),
            (Agent::Gemini, json!({"tools": {"enableHooks": false}})),
        ] {
            assert!(switched_off(agent, &read).is_some(), "{agent:?} {read}");
        }
        for (agent, read) in [
            (Agent::ClaudeCode, json!({"disableAllHooks": false})),
            (Agent::Codex, json!({"features": {"hooks": true, "other": false}})),
            (Agent::Gemini, json!({"hooksConfig": {"enabled": true, "disabled": ["other"]}})),
            (Agent::Cursor, json!({"disableAllHooks": true})),
        ] {
            assert_eq!(switched_off(agent, &read), None, "{agent:?} {read}");
        }
    }

    #[test]
    fn a_file_with_comments_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.json");
        fs::write(&file, "{\n  // mine\n  \"hooks\": {\"BeforeTool\": [],},\n}\n").unwrap();
        assert_eq!(settings(&file), Ok(Some(json!({"hooks": {"BeforeTool": []}}))));
        fs::write(&file, "{\"hooks\": [").unwrap();
        assert!(settings(&file).is_err());
        assert_eq!(settings(&folder.path().join("none.json")), Ok(None));
    }
}
