//! Shapes: what each client says to its hooks, and what it reads as an answer.
//!
//! One serialiser per client: they share words and differ in what they refuse. Golden tests below hold every shape.

use serde_json::{Value, json};

use super::Agent;
use super::ask::Decision;

/// What a client wants to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The event, as the client calls it.
    pub(super) event: String,
    pub(super) tool: String,
    pub(super) input: Value,
    /// The client's own name for its session.
    pub(super) session: Option<String>,
    pub(super) folder: Option<String>,
}

/// What is said back.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    pub(super) stops: bool,
}

/// Reads what a client says.
pub(super) fn asked(agent: Agent, text: &str) -> Result<Asked, String> {
    let said: Value = serde_json::from_str(text).map_err(|_| "the hook's input is not JSON".to_owned())?;
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let event = word("hook_event_name").ok_or("the hook's input names no event")?;
    let known: &[&str] = match agent {
        Agent::ClaudeCode | Agent::Codex => &["PreToolUse", "PermissionRequest"],
        Agent::Gemini => &["BeforeTool"],
        Agent::Cursor => &["beforeShellExecution", "beforeMCPExecution"],
    };
    if !known.contains(&event.as_str()) {
        return Err(format!("this hook does not decide about `{}`", crate::visible::line(&event)));
    }
    let (tool, input) = if event == "beforeShellExecution" {
        let command =
            said.get("command").filter(|command| command.is_string()).ok_or("the hook's input names no command")?;
        ("Bash".to_owned(), json!({"command": command}))
    } else {
        let tool = word("tool_name").ok_or("the hook's input names no tool")?;
        (tool, unpacked(said.get("tool_input").cloned().unwrap_or(Value::Null)))
    };
    let session = word("session_id").or_else(|| word("conversation_id"));
    Ok(Asked { event, tool, input, session, folder: word("cwd") })
}

/// Some clients put the input into a text.
fn unpacked(input: Value) -> Value {
    match &input {
        Value::String(text) => serde_json::from_str::<Value>(text).ok().filter(Value::is_object).unwrap_or(input),
        _ => input,
    }
}

/// The answer in the client's shape; whatever is not a clear yes stops the tool.
pub(super) fn answer(agent: Agent, asked: Option<&Asked>, decided: &Result<Decision, String>) -> Answer {
    let quiet = Answer { stdout: None, stderr: None, stops: false };
    let (reason, failed) = match decided {
        Ok(Decision::NoOpinion) => return quiet,
        Ok(Decision::Allow) => (None, false),
        Ok(Decision::Deny(reason)) => (Some(reason.as_str()), false),
        Err(why) => (Some(why.as_str()), true),
    };
    let event = asked.map_or("", |asked| asked.event.as_str());
    // Codex takes an explicit yes to PreToolUse for a broken hook; its yes is silence.
    if agent == Agent::Codex && event == "PreToolUse" && reason.is_none() {
        return quiet;
    }
    // It also takes a no without a reason for a broken hook, and goes on.
    let reason = reason.map(|reason| if reason.trim().is_empty() { "the gate said no" } else { reason });
    let value = match agent {
        Agent::ClaudeCode | Agent::Codex => by_permission(event, reason),
        Agent::Gemini => match reason {
            None => json!({"decision": "allow"}),
            Some(reason) => json!({"decision": "deny", "reason": reason}),
        },
        Agent::Cursor => match reason {
            None => json!({"permission": "allow"}),
            Some(reason) => json!({
                "permission": "deny", "user_message": format!("Stopped by sluice: {reason}"), "agent_message": reason,
            }),
        },
    };
    let reads_json_with_a_no = matches!(agent, Agent::Gemini | Agent::Cursor);
    match (reason, failed) {
        (Some(reason), true) => Answer {
            stdout: reads_json_with_a_no.then(|| value.to_string()),
            stderr: Some(format!("sluice stopped this tool: {reason}")),
            stops: true,
        },
        _ => Answer { stdout: Some(value.to_string()), ..quiet },
    }
}

/// Claude Code and Codex: no key beside these, since Codex refuses an answer with one it does not know.
fn by_permission(event: &str, reason: Option<&str>) -> Value {
    if event == "PermissionRequest" {
        let decision = match reason {
            None => json!({"behavior": "allow"}),
            Some(reason) => json!({"behavior": "deny", "message": reason}),
        };
        return json!({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}});
    }
    let mut output =
        json!({"hookEventName": "PreToolUse", "permissionDecision": if reason.is_some() { "deny" } else { "allow" }});
    if let (Some(reason), Some(output)) = (reason, output.as_object_mut()) {
        output.insert("permissionDecisionReason".into(), reason.into());
    }
    json!({"hookSpecificOutput": output})
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAUDE: &str = r#"{"session_id":"9b1","transcript_path":"/t","cwd":"/srv/app","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"toolu_1"}"#;
    const CODEX: &str = r#"{"session_id":"s","turn_id":"t","model":"m","cwd":"/srv","hook_event_name":"PermissionRequest","tool_name":"shell","tool_input":{"command":["ls"]}}"#;
    const GEMINI: &str = r#"{"session_id":"g","transcript_path":"/t","cwd":"/srv","hook_event_name":"BeforeTool","timestamp":"2026-11-16T00:00:00Z","tool_name":"run_shell_command","tool_input":{"command":"ls"}}"#;
    const CURSOR_MCP: &str = r#"{"conversation_id":"c","generation_id":"g","hook_event_name":"beforeMCPExecution","workspace_roots":["/srv"],"tool_name":"send","tool_input":"{\"to\":\"a@b.c\"}","url":"http://x/mcp"}"#;
    const CURSOR_SHELL: &str = r#"{"conversation_id":"c","generation_id":"g","hook_event_name":"beforeShellExecution","workspace_roots":["/srv"],"command":"ls","cwd":"/srv"}"#;

    fn said(agent: Agent, input: &str, decided: Result<Decision, String>) -> Answer {
        answer(agent, Some(&asked(agent, input).unwrap()), &decided)
    }

    fn line(text: &str) -> Answer {
        Answer { stdout: Some(text.into()), stderr: None, stops: false }
    }

    fn no() -> Result<Decision, String> {
        Ok(Decision::Deny("no".into()))
    }

    #[test]
    fn claude_code_is_answered_in_its_shape() {
        let asked = asked(Agent::ClaudeCode, CLAUDE).unwrap();
        assert_eq!(
            (asked.tool.as_str(), asked.session.as_deref(), asked.folder.as_deref()),
            ("Bash", Some("9b1"), Some("/srv/app"))
        );
        let allow = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}"#;
        assert_eq!(said(Agent::ClaudeCode, CLAUDE, Ok(Decision::Allow)), line(allow));
        let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#;
        assert_eq!(said(Agent::ClaudeCode, CLAUDE, no()), line(deny));
        let request = CLAUDE.replace("PreToolUse", "PermissionRequest");
        let deny = r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#;
        assert_eq!(said(Agent::ClaudeCode, &request, no()), line(deny));
    }

    #[test]
    fn codex_gets_no_key_it_would_refuse() {
        let allow = r#"{"hookSpecificOutput":{"decision":{"behavior":"allow"},"hookEventName":"PermissionRequest"}}"#;
        assert_eq!(said(Agent::Codex, CODEX, Ok(Decision::Allow)), line(allow));
        let deny = r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#;
        assert_eq!(said(Agent::Codex, CODEX, no()), line(deny));
        let before = CODEX.replace("PermissionRequest", "PreToolUse");
        let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#;
        assert_eq!(said(Agent::Codex, &before, no()), line(deny));
    }

    #[test]
    fn codex_hears_a_yes_as_silence_and_a_no_never_without_a_reason() {
        let before = CODEX.replace("PermissionRequest", "PreToolUse");
        let quiet = Answer { stdout: None, stderr: None, stops: false };
        assert_eq!(said(Agent::Codex, &before, Ok(Decision::Allow)), quiet);
        let said = said(Agent::Codex, &before, Ok(Decision::Deny("  ".into())));
        assert!(said.stdout.unwrap().contains(r#""permissionDecisionReason":"the gate said no""#));
    }

    #[test]
    fn gemini_is_answered_in_its_shape() {
        assert_eq!(said(Agent::Gemini, GEMINI, Ok(Decision::Allow)), line(r#"{"decision":"allow"}"#));
        assert_eq!(said(Agent::Gemini, GEMINI, no()), line(r#"{"decision":"deny","reason":"no"}"#));
    }

    #[test]
    fn cursor_is_answered_in_its_shape_and_its_packed_input_is_read() {
        assert_eq!(asked(Agent::Cursor, CURSOR_MCP).unwrap().input, json!({"to": "a@b.c"}));
        let shell = asked(Agent::Cursor, CURSOR_SHELL).unwrap();
        assert_eq!((shell.tool.as_str(), &shell.input), ("Bash", &json!({"command": "ls"})));
        assert_eq!(said(Agent::Cursor, CURSOR_SHELL, Ok(Decision::Allow)), line(r#"{"permission":"allow"}"#));
        let deny = r#"{"agent_message":"no","permission":"deny","user_message":"Stopped by sluice: no"}"#;
        assert_eq!(said(Agent::Cursor, CURSOR_MCP, no()), line(deny));
    }

    #[test]
    fn whatever_goes_wrong_stops_the_tool() {
        for (agent, input) in
            [(Agent::ClaudeCode, CLAUDE), (Agent::Codex, CODEX), (Agent::Gemini, GEMINI), (Agent::Cursor, CURSOR_MCP)]
        {
            let answer = said(agent, input, Err("no gateway".into()));
            assert!(answer.stops && answer.stderr.unwrap().contains("no gateway"), "{agent:?}");
            for bad in ["", "[]", "{}", "{\"hook_event_name\":\"PostToolUse\"}", &input[..input.len() / 2]] {
                let why = asked(agent, bad).unwrap_err();
                assert!(super::answer(agent, None, &Err(why)).stops, "{agent:?}: {bad}");
            }
        }
    }
}
