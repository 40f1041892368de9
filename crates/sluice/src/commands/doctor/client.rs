//! Tests a client's hook by breaking it on purpose: the tool must be stopped.
//!
//! Takes a client; gives one finding for each way in which its installed hook was broken. Promise: the hook of the
//! client's own configuration is tested, and only this program is started for it. A client without a hook or with its
//! hooks switched off fails, and so does a client whose gateway does not respond.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{DoctorCheckStatus, DoctorFinding};
use crate::client::{ApiRequest, GatewayClient, display_field, text_field};
use crate::commands::hook::HookAgent;
use crate::commands::setup::recipes::{self, HookCommandLine, HookEventSource};
use crate::commands::setup::{block, members};

/// The input each client sends before it runs a command.
const fn input(agent: HookAgent) -> &'static str {
    match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => {
            r#"{"session_id":"doctor","cwd":"/","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"true"}}"#
        }
        HookAgent::Gemini => {
            r#"{"session_id":"doctor","cwd":"/","hook_event_name":"BeforeTool","tool_name":"run_shell_command","tool_input":{"command":"true"}}"#
        }
        HookAgent::Cursor => {
            r#"{"conversation_id":"doctor","hook_event_name":"beforeShellExecution","command":"true","cwd":"/"}"#
        }
    }
}

/// Finds the hook of a client, breaks it in every way, and checks that the tool is stopped.
pub(super) fn check_broken_hooks(agent: HookAgent) -> Vec<DoctorFinding> {
    let (Some(home), Ok(here)) = (std::env::var_os("HOME").map(PathBuf::from), std::env::current_dir()) else {
        return vec![DoctorFinding::new("hook", DoctorCheckStatus::Fail, "no home folder is known")];
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
                    let text = format!("`{}` has {switch}: the client does not ask the gateway", file.display());
                    findings.push(
                        DoctorFinding::new("hook", DoctorCheckStatus::Fail, text).hint("remove it from the file"),
                    );
                }
            }
            Err(why) => findings.push(DoctorFinding::new(
                "hook",
                DoctorCheckStatus::Warn,
                format!("`{}`: {why}", file.display()),
            )),
        }
    }
    lines.sort();
    lines.dedup();
    let hears_prompts = |line: &String| {
        HookCommandLine::read(line, agent.name()).is_some_and(|line| line.hears == HookEventSource::Prompts)
    };
    if lines.iter().all(hears_prompts) {
        let files: Vec<String> = files.iter().map(|file| format!("`{}`", file.display())).collect();
        let text = format!("no sluice hook in {}: the client does not ask the gateway", files.join(" or "));
        let hint = format!("sluice setup {} --hooks", agent.name());
        findings.push(DoctorFinding::new("hook", DoctorCheckStatus::Fail, text).hint(hint));
    }
    findings.extend(lines.iter().flat_map(|line| attempts(agent, line, &home)));
    findings
}

/// Reads a client's settings file, if it exists.
fn settings(file: &Path) -> Result<Option<Value>, String> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    match file.extension().and_then(|kind| kind.to_str()) {
        Some("toml") => block::read(&text).map(Some),
        _ if text.trim().is_empty() => Ok(None),
        _ => members::read(&text).map(Some).ok_or_else(|| "it is not JSON and cannot be checked".to_owned()),
    }
}

/// The setting in a client's file that switches off all hooks, or ours.
fn switched_off(agent: HookAgent, read: &Value) -> Option<&'static str> {
    let is = |pointer: &str, wanted: bool| read.pointer(pointer) == Some(&Value::Bool(wanted));
    let among = |pointer: &str| {
        let mut names = read.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        names.any(|name| name == recipes::NAME || name.contains(recipes::HOOK))
    };
    match agent {
        HookAgent::ClaudeCode if is("/disableAllHooks", true) => Some("`disableAllHooks`"),
        HookAgent::Codex if is("/features/hooks", false) || is("/features/codex_hooks", false) => {
            Some("`hooks = false` under `[features]`")
        }
        HookAgent::Gemini if is("/hooksConfig/enabled", false) || is("/hooks/enabled", false) => {
            Some("`hooksConfig.enabled: false`")
        }
        HookAgent::Gemini if is("/tools/enableHooks", false) => Some("`tools.enableHooks: false`"),
        HookAgent::Gemini if among("/hooksConfig/disabled") || among("/hooks/disabled") => {
            Some("the sluice hook under `hooksConfig.disabled`")
        }
        HookAgent::ClaudeCode | HookAgent::Codex | HookAgent::Gemini | HookAgent::Cursor => None,
    }
}

/// Collects every text that contains a marker.
fn gather(value: &Value, mark: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(mark) => found.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|one| gather(one, mark, found)),
        Value::Object(members) => members.values().for_each(|one| gather(one, mark, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Tests one hook, broken in every way.
fn attempts(agent: HookAgent, line: &str, home: &Path) -> Vec<DoctorFinding> {
    let fail = |text: String| {
        let hint = format!("sluice setup {} --hooks", agent.name());
        vec![DoctorFinding::new("hook", DoctorCheckStatus::Fail, text).hint(hint)]
    };
    let Some(parts) = HookCommandLine::read(line, agent.name()) else {
        return fail("a hook with the sluice marker differs from what `sluice setup` writes".into());
    };
    // SECURITY: a project's file may name any program; only this program is started.
    let same = match (fs::canonicalize(&parts.program), std::env::current_exe().and_then(fs::canonicalize)) {
        (Ok(one), Ok(own)) => one == own,
        _ => false,
    };
    if !same {
        return fail(format!("the hook starts `{}`, which is not this program", parts.program));
    }
    if parts.hears == HookEventSource::Prompts {
        return vec![task_key(agent, &parts)];
    }
    let whole = input(agent);
    let half = whole.get(..whole.len() / 2).unwrap_or_default();
    let nowhere = HookCommandLine { url: "http://127.0.0.1:9".into(), ..parts.clone() };
    let keyless = HookCommandLine { key: "/nonexistent/sluice.key".into(), ..parts.clone() };
    let mut findings = Vec::new();
    if !Path::new(&parts.key).is_file() {
        findings.extend(fail(format!("the hook's key file `{}` does not exist: every tool is stopped", parts.key)));
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

/// Checks that the gateway responds at the hook's address and accepts the hook's key.
fn reached(parts: &HookCommandLine) -> DoctorFinding {
    let asked = GatewayClient::with_key_file(&parts.url, Path::new(&parts.key))
        .and_then(|client| client.send(&ApiRequest::get("/v1/whoami")));
    match asked {
        Ok(me) if text_field(&me, "kind") != "agent" => {
            let text = format!("`{}` is not an agent key, so the hook cannot use it", parts.key);
            DoctorFinding::new("gateway", DoctorCheckStatus::Fail, text)
                .hint("sluice keys create --agent NAME --out FILE")
        }
        Ok(me) => {
            let text = format!(
                "the gateway at {} responds and accepts the key of agent `{}`",
                parts.url,
                display_field(&me, "name")
            );
            DoctorFinding::new("gateway", DoctorCheckStatus::Ok, text)
        }
        Err(failure) => {
            let why = failure.why.map(|why| format!(" ({why})")).unwrap_or_default();
            let text = format!("{}{why}: every tool is stopped until this works", failure.message);
            DoctorFinding::new("gateway", DoctorCheckStatus::Fail, text).hint(
                failure
                    .hint
                    .unwrap_or_else(|| "start the gateway: sluice serve; then run this command again".to_owned()),
            )
        }
    }
}

/// Checks that the prompt hook has its task key. Without it the gate asks for more approvals, and nothing is stopped.
fn task_key(agent: HookAgent, line: &HookCommandLine) -> DoctorFinding {
    if Path::new(&line.key).is_file() {
        return DoctorFinding::new(
            "hook",
            DoctorCheckStatus::Ok,
            "your prompts are stated to the gate with a task key",
        );
    }
    let text = format!(
        "the task key file `{}` does not exist: your prompts are not stated, so no target counts as asked for",
        line.key
    );
    let hint = format!("sluice setup {} --hooks --task-key-file FILE", agent.name());
    DoctorFinding::new("hook", DoctorCheckStatus::Warn, text).hint(hint)
}

fn attempt(agent: HookAgent, way: &str, input: &str, line: (&str, &Path)) -> DoctorFinding {
    match run(input, line) {
        Err(error) => {
            DoctorFinding::new("hook", DoctorCheckStatus::Fail, format!("{way}: the hook could not be run: {error}"))
        }
        Ok((code, stdout)) if stopped(agent, code, &stdout) => {
            DoctorFinding::new("hook", DoctorCheckStatus::Ok, format!("{way}: the tool was stopped"))
        }
        Ok((code, _)) => {
            let code = code.map_or_else(|| "no code".to_owned(), |code| code.to_string());
            DoctorFinding::new(
                "hook",
                DoctorCheckStatus::Fail,
                format!("{way}: the tool would have run (the hook ended with {code})"),
            )
        }
    }
}

/// Runs a hook line as the client does.
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
            // It may have ended without reading its input: its exit code says more.
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    let output = child.wait_with_output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Whether the client takes this result as a denial.
fn stopped(agent: HookAgent, code: Option<i32>, stdout: &str) -> bool {
    let said: Value = serde_json::from_str(stdout).unwrap_or(Value::Null);
    match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => code == Some(2),
        HookAgent::Gemini => code == Some(2) && (stdout.is_empty() || said.get("decision") == Some(&"deny".into())),
        HookAgent::Cursor => code == Some(2) && (stdout.is_empty() || said.get("permission") == Some(&"deny".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks_that_are_switched_off_are_noticed() {
        for (agent, read) in [
            (HookAgent::ClaudeCode, json!({"disableAllHooks": true})),
            (HookAgent::Codex, json!({"features": {"hooks": false}})),
            (HookAgent::Codex, json!({"features": {"codex_hooks": false}})),
            (HookAgent::Gemini, json!({"hooksConfig": {"enabled": false}})),
            (HookAgent::Gemini, json!({"hooksConfig": {"disabled": ["other", "sluice"]}})),
            (HookAgent::Gemini, json!({"hooksConfig": {"disabled": ["x hook gemini # sluice hook gemini"]}})),
            (HookAgent::Gemini, json!({"tools": {"enableHooks": false}})),
        ] {
            assert!(switched_off(agent, &read).is_some(), "{agent:?} {read}");
        }
        for (agent, read) in [
            (HookAgent::ClaudeCode, json!({"disableAllHooks": false})),
            (HookAgent::Codex, json!({"features": {"hooks": true, "other": false}})),
            (HookAgent::Gemini, json!({"hooksConfig": {"enabled": true, "disabled": ["other"]}})),
            (HookAgent::Cursor, json!({"disableAllHooks": true})),
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
