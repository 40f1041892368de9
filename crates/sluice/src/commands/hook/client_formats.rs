//! Formats: the input that each client gives to its hooks, and the answer it reads.
//!
//! One serialiser per client: they share terms but refuse different things. Golden tests below cover every format.
//! Every client names the tools of servers in its own way; here they become a server and a tool.

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_api::client_tools::ClientTool;

use super::HookAgent;
use super::ask::HookDecision;
use super::servers::{self, GateServerProof};

/// What a client wants to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HookToolRequest {
    /// The event name of the client.
    pub(super) event: String,
    pub(super) tool: ClientTool,
    /// How its server can be recognised as the gate.
    pub(super) proof: GateServerProof,
    pub(super) input: Value,
    /// The client's own session id.
    pub(super) session: Option<String>,
    pub(super) folder: Option<String>,
}

/// The answer to the client.
#[derive(Debug, PartialEq)]
pub(super) struct HookToolResponse {
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    pub(super) stops: bool,
}

impl HookToolRequest {
    /// Whether the client decides about this tool itself: it only reads, or another event of the same hook covers it.
    pub(super) fn is_decided_by_client(&self, agent: HookAgent) -> bool {
        let ClientTool::Builtin(tool) = &self.tool else { return false };
        let elsewhere = matches!(self.event.as_str(), "preToolUse" | "postToolUse" | "postToolUseFailure")
            && agent == HookAgent::Cursor
            && (tool == "Shell" || tool.starts_with("MCP:"));
        elsewhere || reads(agent).contains(&tool.as_str())
    }
}

/// Tools of a client that only read, or only change what the client itself shows.
const fn reads(agent: HookAgent) -> &'static [&'static str] {
    match agent {
        HookAgent::ClaudeCode => &[
            "Read",
            "Glob",
            "Grep",
            "LS",
            "NotebookRead",
            "TodoRead",
            "TodoWrite",
            "BashOutput",
            "TaskOutput",
            "TaskGet",
            "TaskList",
            "AskUserQuestion",
            "EnterPlanMode",
            "ExitPlanMode",
            "ToolSearch",
            "ListMcpResourcesTool",
        ],
        HookAgent::Codex => &["update_plan", "view_image", "read_file", "list_dir", "grep_files"],
        HookAgent::Gemini => &[
            "read_file",
            "read_many_files",
            "list_directory",
            "glob",
            "search_file_content",
            "grep_search",
            "write_todos",
        ],
        HookAgent::Cursor => &["Read", "Grep", "Glob", "LS", "List", "SemanticSearch", "ReadLints", "TodoWrite"],
    }
}

/// The tool in the client's input, and how its server can be recognised as the gate.
fn tool(
    agent: HookAgent,
    event: &str,
    name: &str,
    said: &Value,
    home: Option<PathBuf>,
) -> (ClientTool, GateServerProof) {
    let by_name = |tool: ClientTool| match tool.gateway_tool() {
        Some(_) => (tool, GateServerProof::Name),
        None => (tool, GateServerProof::None),
    };
    match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => by_name(ClientTool::from_double_underscore(name)),
        HookAgent::Gemini => {
            let context = said.get("mcp_context").unwrap_or(&Value::Null);
            let word = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
            let (Some(server), Some(tool)) = (word("server_name"), word("tool_name")) else {
                return by_name(ClientTool::from_single_underscore(name));
            };
            match (by_name(ClientTool::Served { server, tool }), GateServerProof::of(context)) {
                // If the input contains a command or address, that counts and not the name.
                ((tool, GateServerProof::Name), said) if said != GateServerProof::None => (tool, said),
                (named, _) => named,
            }
        }
        HookAgent::Cursor if event == "beforeMCPExecution" => {
            let proof = GateServerProof::of(said);
            let roots = said.get("workspace_roots").and_then(Value::as_array).into_iter().flatten();
            let roots: Vec<PathBuf> = roots.filter_map(Value::as_str).map(PathBuf::from).collect();
            let server = servers::find_cursor_name(&proof, home.as_deref(), &roots);
            (ClientTool::Served { server, tool: name.to_owned() }, proof)
        }
        HookAgent::Cursor => (ClientTool::Builtin(name.to_owned()), GateServerProof::None),
    }
}

/// What the user typed, and in which session of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HookUserPrompt {
    pub(super) session: String,
    pub(super) text: String,
}

/// The prompt in a client's input, if it is a prompt event.
pub(super) fn prompt(agent: HookAgent, text: &str) -> Option<HookUserPrompt> {
    let event = match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => "UserPromptSubmit",
        HookAgent::Gemini => "BeforeAgent",
        HookAgent::Cursor => "beforeSubmitPrompt",
    };
    let said: Value = serde_json::from_str(text).ok()?;
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    if word("hook_event_name").as_deref() != Some(event) {
        return None;
    }
    let session = word("session_id").or_else(|| word("conversation_id"))?;
    Some(HookUserPrompt { session, text: word("prompt")? })
}

/// The answer a client needs before it continues with a prompt.
pub(super) const fn prompt_answer(agent: HookAgent) -> Option<&'static str> {
    match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => None,
        HookAgent::Gemini => Some("{}"),
        HookAgent::Cursor => Some(r#"{"continue":true}"#),
    }
}

/// The finished tool in a client's input, if it is such an event.
pub(super) fn parse_finished_tool(agent: HookAgent, text: &str) -> Option<HookToolRequest> {
    let known: &[&str] = match agent {
        HookAgent::ClaudeCode => &["PostToolUse", "PostToolUseFailure"],
        HookAgent::Codex => &["PostToolUse"],
        HookAgent::Gemini => &["AfterTool"],
        HookAgent::Cursor => &["postToolUse", "postToolUseFailure", "afterShellExecution"],
    };
    let said: Value = serde_json::from_str(text).ok()?;
    let event = said.get("hook_event_name").and_then(Value::as_str).filter(|event| known.contains(event))?.to_owned();
    asked_at(agent, &said, event, None).ok()
}

/// Reads a client's input.
pub(super) fn parse_tool_request(
    agent: HookAgent,
    text: &str,
    home: Option<PathBuf>,
) -> Result<HookToolRequest, String> {
    let said: Value = serde_json::from_str(text).map_err(|_| "the hook's input is not JSON".to_owned())?;
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let event = word("hook_event_name").ok_or("the hook's input has no event")?;
    let known: &[&str] = match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => &["PreToolUse", "PermissionRequest"],
        HookAgent::Gemini => &["BeforeTool"],
        HookAgent::Cursor => &["beforeShellExecution", "beforeMCPExecution", "preToolUse"],
    };
    if !known.contains(&event.as_str()) {
        return Err(format!("this hook does not decide about `{}`", crate::escape::escape_line(&event)));
    }
    asked_at(agent, &said, event, home)
}

/// The tool call of an event.
fn asked_at(agent: HookAgent, said: &Value, event: String, home: Option<PathBuf>) -> Result<HookToolRequest, String> {
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let ((tool, proof), input) = if matches!(event.as_str(), "beforeShellExecution" | "afterShellExecution") {
        let command =
            said.get("command").filter(|command| command.is_string()).ok_or("the hook's input has no command")?;
        ((ClientTool::Builtin("Bash".to_owned()), GateServerProof::None), json!({"command": command}))
    } else {
        let name = word("tool_name").ok_or("the hook's input has no tool")?;
        (tool(agent, &event, &name, said, home), unpacked(said.get("tool_input").cloned().unwrap_or(Value::Null)))
    };
    let session = word("session_id").or_else(|| word("conversation_id"));
    Ok(HookToolRequest { event, tool, proof, input, session, folder: word("cwd") })
}

/// Some clients encode the input as a JSON string.
fn unpacked(input: Value) -> Value {
    match &input {
        Value::String(text) => serde_json::from_str::<Value>(text).ok().filter(Value::is_object).unwrap_or(input),
        _ => input,
    }
}

/// The answer in the client's format; anything but a clear approval stops the tool.
pub(super) fn answer(
    agent: HookAgent,
    asked: Option<&HookToolRequest>,
    decided: &Result<HookDecision, String>,
) -> HookToolResponse {
    let quiet = HookToolResponse { stdout: None, stderr: None, stops: false };
    let (reason, failed) = match decided {
        // Cursor treats an empty answer as a broken hook.
        Ok(HookDecision::NoOpinion) if agent == HookAgent::Cursor => (None, false),
        Ok(HookDecision::NoOpinion) => return quiet,
        Ok(HookDecision::Allow) => (None, false),
        Ok(HookDecision::Deny(reason)) => (Some(reason.as_str()), false),
        Err(why) => (Some(why.as_str()), true),
    };
    let event = asked.map_or("", |asked| asked.event.as_str());
    // Codex treats an explicit approval of PreToolUse as a broken hook; an empty answer is its approval.
    if agent == HookAgent::Codex && event == "PreToolUse" && reason.is_none() {
        return quiet;
    }
    // It also treats a denial without a reason as a broken hook, and continues.
    let reason = reason.map(|reason| if reason.trim().is_empty() { "denied by the gate" } else { reason });
    let value = match agent {
        HookAgent::ClaudeCode | HookAgent::Codex => by_permission(event, reason),
        HookAgent::Gemini => match reason {
            None => json!({"decision": "allow"}),
            Some(reason) => json!({"decision": "deny", "reason": reason}),
        },
        HookAgent::Cursor => match reason {
            None => json!({"permission": "allow"}),
            Some(reason) => json!({
                "permission": "deny", "user_message": format!("Stopped by sluice: {reason}"), "agent_message": reason,
            }),
        },
    };
    let reads_json_with_a_no = matches!(agent, HookAgent::Gemini | HookAgent::Cursor);
    match (reason, failed) {
        (Some(reason), true) => HookToolResponse {
            stdout: reads_json_with_a_no.then(|| value.to_string()),
            stderr: Some(format!("sluice stopped this tool: {reason}")),
            stops: true,
        },
        _ => HookToolResponse { stdout: Some(value.to_string()), ..quiet },
    }
}

/// Claude Code and Codex: no other keys, because Codex refuses an answer with an unknown key.
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

    fn asked(agent: HookAgent, text: &str) -> Result<HookToolRequest, String> {
        super::parse_tool_request(agent, text, None)
    }

    fn builtin(name: &str) -> ClientTool {
        ClientTool::Builtin(name.into())
    }

    fn said(agent: HookAgent, input: &str, decided: Result<HookDecision, String>) -> HookToolResponse {
        answer(agent, Some(&asked(agent, input).unwrap()), &decided)
    }

    fn line(text: &str) -> HookToolResponse {
        HookToolResponse { stdout: Some(text.into()), stderr: None, stops: false }
    }

    fn no() -> Result<HookDecision, String> {
        Ok(HookDecision::Deny("no".into()))
    }

    #[test]
    fn claude_code_is_answered_in_its_shape() {
        let asked = asked(HookAgent::ClaudeCode, CLAUDE).unwrap();
        assert_eq!(
            (&asked.tool, asked.session.as_deref(), asked.folder.as_deref()),
            (&builtin("Bash"), Some("9b1"), Some("/srv/app"))
        );
        let allow = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}"#;
        assert_eq!(said(HookAgent::ClaudeCode, CLAUDE, Ok(HookDecision::Allow)), line(allow));
        let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#;
        assert_eq!(said(HookAgent::ClaudeCode, CLAUDE, no()), line(deny));
        let request = CLAUDE.replace("PreToolUse", "PermissionRequest");
        let deny = r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#;
        assert_eq!(said(HookAgent::ClaudeCode, &request, no()), line(deny));
    }

    #[test]
    fn a_prompt_is_read_from_the_event_of_prompts_and_no_other() {
        let input = r#"{"session_id":"9b1","cwd":"/srv","hook_event_name":"UserPromptSubmit","prompt":"mail ana@b.c"}"#;
        let wanted = HookUserPrompt { session: "9b1".into(), text: "mail ana@b.c".into() };
        for agent in [HookAgent::ClaudeCode, HookAgent::Codex] {
            assert_eq!(prompt(agent, input), Some(wanted.clone()));
            for other in ["PreToolUse", "PermissionRequest", "UserPromptSubmitted"] {
                assert_eq!(prompt(agent, &input.replace("UserPromptSubmit", other)), None, "{other}");
            }
            assert_eq!(prompt(agent, &input.replace("\"prompt\"", "\"other\"")), None);
        }
        assert_eq!((prompt(HookAgent::Gemini, input), prompt(HookAgent::Cursor, input)), (None, None));
        assert_eq!(prompt(HookAgent::Gemini, &input.replace("UserPromptSubmit", "BeforeAgent")), Some(wanted.clone()));
        let cursor = input.replace("UserPromptSubmit", "beforeSubmitPrompt").replace("session_id", "conversation_id");
        assert_eq!(prompt(HookAgent::Cursor, &cursor), Some(wanted));
        // Without a session or a text it is neither a prompt nor a tool: it is stopped.
        assert!(asked(HookAgent::ClaudeCode, &input.replace("prompt\"", "other\"")).is_err());
    }

    #[test]
    fn a_tool_that_is_done_is_never_taken_for_one_that_asks() {
        for (agent, input, before, after) in [
            (HookAgent::ClaudeCode, CLAUDE, "PreToolUse", "PostToolUse"),
            (HookAgent::Codex, CODEX, "PermissionRequest", "PostToolUse"),
            (HookAgent::Gemini, GEMINI, "BeforeTool", "AfterTool"),
            (HookAgent::Cursor, CURSOR_SHELL, "beforeShellExecution", "afterShellExecution"),
        ] {
            assert_eq!(parse_finished_tool(agent, input), None, "{agent:?}");
            let ended = input.replace(before, after);
            assert!(asked(agent, &ended).is_err(), "{agent:?}");
            let (asking, told) = (asked(agent, input).unwrap(), parse_finished_tool(agent, &ended).unwrap());
            assert_eq!((asking.tool, asking.input), (told.tool, told.input), "{agent:?}");
        }
    }

    #[test]
    fn codex_gets_no_key_it_would_refuse() {
        let allow = r#"{"hookSpecificOutput":{"decision":{"behavior":"allow"},"hookEventName":"PermissionRequest"}}"#;
        assert_eq!(said(HookAgent::Codex, CODEX, Ok(HookDecision::Allow)), line(allow));
        let deny = r#"{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"no"},"hookEventName":"PermissionRequest"}}"#;
        assert_eq!(said(HookAgent::Codex, CODEX, no()), line(deny));
        let before = CODEX.replace("PermissionRequest", "PreToolUse");
        let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}"#;
        assert_eq!(said(HookAgent::Codex, &before, no()), line(deny));
    }

    #[test]
    fn codex_hears_a_yes_as_silence_and_a_no_never_without_a_reason() {
        let before = CODEX.replace("PermissionRequest", "PreToolUse");
        let quiet = HookToolResponse { stdout: None, stderr: None, stops: false };
        assert_eq!(said(HookAgent::Codex, &before, Ok(HookDecision::Allow)), quiet);
        let said = said(HookAgent::Codex, &before, Ok(HookDecision::Deny("  ".into())));
        assert!(said.stdout.unwrap().contains(r#""permissionDecisionReason":"denied by the gate""#));
    }

    #[test]
    fn gemini_is_answered_in_its_shape() {
        assert_eq!(said(HookAgent::Gemini, GEMINI, Ok(HookDecision::Allow)), line(r#"{"decision":"allow"}"#));
        assert_eq!(said(HookAgent::Gemini, GEMINI, no()), line(r#"{"decision":"deny","reason":"no"}"#));
    }

    #[test]
    fn cursor_is_answered_in_its_shape_and_its_packed_input_is_read() {
        assert_eq!(asked(HookAgent::Cursor, CURSOR_MCP).unwrap().input, json!({"to": "a@b.c"}));
        let shell = asked(HookAgent::Cursor, CURSOR_SHELL).unwrap();
        assert_eq!((&shell.tool, &shell.input), (&builtin("Bash"), &json!({"command": "ls"})));
        assert_eq!(said(HookAgent::Cursor, CURSOR_SHELL, Ok(HookDecision::Allow)), line(r#"{"permission":"allow"}"#));
        let deny = r#"{"agent_message":"no","permission":"deny","user_message":"Stopped by sluice: no"}"#;
        assert_eq!(said(HookAgent::Cursor, CURSOR_MCP, no()), line(deny));
    }

    #[test]
    fn every_client_names_the_tools_of_servers_in_its_own_way() {
        let served = |server: &str, tool: &str| ClientTool::Served { server: server.into(), tool: tool.into() };
        let gemini = GEMINI.replace("run_shell_command", "mcp_github_create_issue");
        assert_eq!(asked(HookAgent::Gemini, &gemini).unwrap().tool, served("github", "create_issue"));
        let context =
            r#""mcp_context":{"server_name":"sluice_evil","tool_name":"run"},"tool_name":"mcp_sluice_evil_run""#;
        let gemini = GEMINI.replace(r#""tool_name":"run_shell_command""#, context);
        let evil = asked(HookAgent::Gemini, &gemini).unwrap();
        assert_eq!((evil.tool, evil.proof), (served("sluice_evil", "run"), GateServerProof::None));
        let context = context.replace("sluice_evil\"", "sluice\",\"command\":\"/tmp/evil\"");
        let gemini = GEMINI.replace(r#""tool_name":"run_shell_command""#, &context);
        assert_eq!(asked(HookAgent::Gemini, &gemini).unwrap().proof, GateServerProof::Command("/tmp/evil".into()));
        let claude = CLAUDE.replace("Bash", "mcp__sluice__email_send");
        let own = asked(HookAgent::ClaudeCode, &claude).unwrap();
        assert_eq!((own.tool, own.proof), (served("sluice", "email_send"), GateServerProof::Name));
        // What Cursor's tool calls itself proves nothing; the address that Cursor uses does.
        let cursor = CURSOR_MCP.replace("\"send\"", "\"mcp__sluice__pwn\"");
        let pwn = asked(HookAgent::Cursor, &cursor).unwrap();
        assert_eq!(
            (pwn.tool, pwn.proof),
            (served("unnamed", "mcp__sluice__pwn"), GateServerProof::Url("http://x/mcp".into()))
        );
    }

    #[test]
    fn only_known_reads_and_what_another_event_asks_about_are_left_alone() {
        let left = |agent, input: &str, from: &str, to: &str| {
            asked(agent, &input.replace(from, to)).unwrap().is_decided_by_client(agent)
        };
        let claude = |tool: &str| left(HookAgent::ClaudeCode, CLAUDE, "Bash", tool);
        assert!(claude("Read") && claude("Grep"));
        for tool in ["Bash", "PowerShell", "SendMessage", "SomethingNew", "WebSearch", "mcp__x__Read"] {
            assert!(!claude(tool), "{tool}");
        }
        let cursor = |tool: &str| left(HookAgent::Cursor, &CLAUDE.replace("PreToolUse", "preToolUse"), "Bash", tool);
        assert!(cursor("Read") && cursor("Shell") && cursor("MCP:send"));
        assert!(!cursor("Write") && !cursor("Delete") && !cursor("Task"));
        assert_eq!(
            said(HookAgent::Cursor, CURSOR_SHELL, Ok(HookDecision::NoOpinion)),
            line(r#"{"permission":"allow"}"#)
        );
        let quiet = HookToolResponse { stdout: None, stderr: None, stops: false };
        assert_eq!(said(HookAgent::ClaudeCode, CLAUDE, Ok(HookDecision::NoOpinion)), quiet);
    }

    #[test]
    fn whatever_goes_wrong_stops_the_tool() {
        for (agent, input) in [
            (HookAgent::ClaudeCode, CLAUDE),
            (HookAgent::Codex, CODEX),
            (HookAgent::Gemini, GEMINI),
            (HookAgent::Cursor, CURSOR_MCP),
        ] {
            let answer = said(agent, input, Err("no gateway".into()));
            assert!(answer.stops && answer.stderr.unwrap().contains("no gateway"), "{agent:?}");
            for bad in ["", "[]", "{}", "{\"hook_event_name\":\"PostToolUse\"}", &input[..input.len() / 2]] {
                let why = asked(agent, bad).unwrap_err();
                assert!(super::answer(agent, None, &Err(why)).stops, "{agent:?}: {bad}");
            }
        }
    }
}
