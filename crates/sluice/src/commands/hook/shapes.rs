//! Shapes: what each client says to its hooks, and what it reads as an answer.
//!
//! One serialiser per client: they share words and differ in what they refuse. Golden tests below hold every shape.
//! Every client names the tools of servers in its own way; here they become a server and a tool.

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_gateway::doors::foreign::Tool;

use super::Agent;
use super::ask::Decision;
use super::servers::{self, Proof};

/// What a client wants to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    /// The event, as the client calls it.
    pub(super) event: String,
    pub(super) tool: Tool,
    /// How its server can be told to be the gate.
    pub(super) proof: Proof,
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

impl Asked {
    /// Whether the client decides about this tool itself: it only looks, or another event of the same hook is about it.
    pub(super) fn is_left_alone(&self, agent: Agent) -> bool {
        let Tool::Builtin(tool) = &self.tool else { return false };
        let elsewhere = matches!(self.event.as_str(), "preToolUse" | "postToolUse" | "postToolUseFailure")
            && agent == Agent::Cursor
            && (tool == "Shell" || tool.starts_with("MCP:"));
        elsewhere || reads(agent).contains(&tool.as_str())
    }
}

/// Tools of a client that only look, or only change what the client itself shows.
const fn reads(agent: Agent) -> &'static [&'static str] {
    match agent {
        Agent::ClaudeCode => &[
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
        Agent::Codex => &["update_plan", "view_image", "read_file", "list_dir", "grep_files"],
        Agent::Gemini => &[
            "read_file",
            "read_many_files",
            "list_directory",
            "glob",
            "search_file_content",
            "grep_search",
            "write_todos",
        ],
        Agent::Cursor => &["Read", "Grep", "Glob", "LS", "List", "SemanticSearch", "ReadLints", "TodoWrite"],
    }
}

/// The tool a client means, and how its server can be told to be the gate.
fn tool(agent: Agent, event: &str, name: &str, said: &Value, home: Option<PathBuf>) -> (Tool, Proof) {
    let by_name = |tool: Tool| match tool.of_gate() {
        Some(_) => (tool, Proof::Name),
        None => (tool, Proof::None),
    };
    match agent {
        Agent::ClaudeCode | Agent::Codex => by_name(Tool::doubly(name)),
        Agent::Gemini => {
            let context = said.get("mcp_context").unwrap_or(&Value::Null);
            let word = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
            let (Some(server), Some(tool)) = (word("server_name"), word("tool_name")) else {
                return by_name(Tool::singly(name));
            };
            match (by_name(Tool::Served { server, tool }), Proof::of(context)) {
                // Where it says what it talks to, that counts and not the name.
                ((tool, Proof::Name), said) if said != Proof::None => (tool, said),
                (named, _) => named,
            }
        }
        Agent::Cursor if event == "beforeMCPExecution" => {
            let proof = Proof::of(said);
            let roots = said.get("workspace_roots").and_then(Value::as_array).into_iter().flatten();
            let roots: Vec<PathBuf> = roots.filter_map(Value::as_str).map(PathBuf::from).collect();
            let server = servers::named(&proof, home.as_deref(), &roots);
            (Tool::Served { server, tool: name.to_owned() }, proof)
        }
        Agent::Cursor => (Tool::Builtin(name.to_owned()), Proof::None),
    }
}

/// What the user typed, and in which session of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) session: String,
    pub(super) text: String,
}

/// The prompt a client tells of, if that is what its input is.
pub(super) fn prompt(agent: Agent, text: &str) -> Option<Prompt> {
    let event = match agent {
        Agent::ClaudeCode | Agent::Codex => "UserPromptSubmit",
        Agent::Gemini => "BeforeAgent",
        Agent::Cursor => "beforeSubmitPrompt",
    };
    let said: Value = serde_json::from_str(text).ok()?;
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    if word("hook_event_name").as_deref() != Some(event) {
        return None;
    }
    let session = word("session_id").or_else(|| word("conversation_id"))?;
    Some(Prompt { session, text: word("prompt")? })
}

/// What a client wants to read before it goes on with a prompt.
pub(super) const fn prompt_answer(agent: Agent) -> Option<&'static str> {
    match agent {
        Agent::ClaudeCode | Agent::Codex => None,
        Agent::Gemini => Some("{}"),
        Agent::Cursor => Some(r#"{"continue":true}"#),
    }
}

/// The tool that a client says is done, if that is what its input is.
pub(super) fn done(agent: Agent, text: &str) -> Option<Asked> {
    let known: &[&str] = match agent {
        Agent::ClaudeCode => &["PostToolUse", "PostToolUseFailure"],
        Agent::Codex => &["PostToolUse"],
        Agent::Gemini => &["AfterTool"],
        Agent::Cursor => &["postToolUse", "postToolUseFailure", "afterShellExecution"],
    };
    let said: Value = serde_json::from_str(text).ok()?;
    let event = said.get("hook_event_name").and_then(Value::as_str).filter(|event| known.contains(event))?.to_owned();
    asked_at(agent, &said, event, None).ok()
}

/// Reads what a client says.
pub(super) fn asked(agent: Agent, text: &str, home: Option<PathBuf>) -> Result<Asked, String> {
    let said: Value = serde_json::from_str(text).map_err(|_| "the hook's input is not JSON".to_owned())?;
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let event = word("hook_event_name").ok_or("the hook's input names no event")?;
    let known: &[&str] = match agent {
        Agent::ClaudeCode | Agent::Codex => &["PreToolUse", "PermissionRequest"],
        Agent::Gemini => &["BeforeTool"],
        Agent::Cursor => &["beforeShellExecution", "beforeMCPExecution", "preToolUse"],
    };
    if !known.contains(&event.as_str()) {
        return Err(format!("this hook does not decide about `{}`", crate::visible::line(&event)));
    }
    asked_at(agent, &said, event, home)
}

/// The tool of an event.
fn asked_at(agent: Agent, said: &Value, event: String, home: Option<PathBuf>) -> Result<Asked, String> {
    let word = |name: &str| said.get(name).and_then(Value::as_str).map(str::to_owned);
    let ((tool, proof), input) = if matches!(event.as_str(), "beforeShellExecution" | "afterShellExecution") {
        let command =
            said.get("command").filter(|command| command.is_string()).ok_or("the hook's input names no command")?;
        ((Tool::Builtin("Bash".to_owned()), Proof::None), json!({"command": command}))
    } else {
        let name = word("tool_name").ok_or("the hook's input names no tool")?;
        (tool(agent, &event, &name, said, home), unpacked(said.get("tool_input").cloned().unwrap_or(Value::Null)))
    };
    let session = word("session_id").or_else(|| word("conversation_id"));
    Ok(Asked { event, tool, proof, input, session, folder: word("cwd") })
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
        // Cursor takes silence for a broken hook.
        Ok(Decision::NoOpinion) if agent == Agent::Cursor => (None, false),
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

    fn asked(agent: Agent, text: &str) -> Result<Asked, String> {
        super::asked(agent, text, None)
    }

    fn builtin(name: &str) -> Tool {
        Tool::Builtin(name.into())
    }

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
            (&asked.tool, asked.session.as_deref(), asked.folder.as_deref()),
            (&builtin("Bash"), Some("9b1"), Some("/srv/app"))
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
    fn a_prompt_is_read_from_the_event_of_prompts_and_no_other() {
        let input = r#"{"session_id":"9b1","cwd":"/srv","hook_event_name":"UserPromptSubmit","prompt":"mail ana@b.c"}"#;
        let wanted = Prompt { session: "9b1".into(), text: "mail ana@b.c".into() };
        for agent in [Agent::ClaudeCode, Agent::Codex] {
            assert_eq!(prompt(agent, input), Some(wanted.clone()));
            for other in ["PreToolUse", "PermissionRequest", "UserPromptSubmitted"] {
                assert_eq!(prompt(agent, &input.replace("UserPromptSubmit", other)), None, "{other}");
            }
            assert_eq!(prompt(agent, &input.replace("\"prompt\"", "\"other\"")), None);
        }
        assert_eq!((prompt(Agent::Gemini, input), prompt(Agent::Cursor, input)), (None, None));
        assert_eq!(prompt(Agent::Gemini, &input.replace("UserPromptSubmit", "BeforeAgent")), Some(wanted.clone()));
        let cursor = input.replace("UserPromptSubmit", "beforeSubmitPrompt").replace("session_id", "conversation_id");
        assert_eq!(prompt(Agent::Cursor, &cursor), Some(wanted));
        // Without a session or a text it is no prompt, and no tool either: it stops.
        assert!(asked(Agent::ClaudeCode, &input.replace("prompt\"", "other\"")).is_err());
    }

    #[test]
    fn a_tool_that_is_done_is_never_taken_for_one_that_asks() {
        for (agent, input, before, after) in [
            (Agent::ClaudeCode, CLAUDE, "PreToolUse", "PostToolUse"),
            (Agent::Codex, CODEX, "PermissionRequest", "PostToolUse"),
            (Agent::Gemini, GEMINI, "BeforeTool", "AfterTool"),
            (Agent::Cursor, CURSOR_SHELL, "beforeShellExecution", "afterShellExecution"),
        ] {
            assert_eq!(done(agent, input), None, "{agent:?}");
            let ended = input.replace(before, after);
            assert!(asked(agent, &ended).is_err(), "{agent:?}");
            let (asking, told) = (asked(agent, input).unwrap(), done(agent, &ended).unwrap());
            assert_eq!((asking.tool, asking.input), (told.tool, told.input), "{agent:?}");
        }
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
        assert_eq!((&shell.tool, &shell.input), (&builtin("Bash"), &json!({"command": "ls"})));
        assert_eq!(said(Agent::Cursor, CURSOR_SHELL, Ok(Decision::Allow)), line(r#"{"permission":"allow"}"#));
        let deny = r#"{"agent_message":"no","permission":"deny","user_message":"Stopped by sluice: no"}"#;
        assert_eq!(said(Agent::Cursor, CURSOR_MCP, no()), line(deny));
    }

    #[test]
    fn every_client_names_the_tools_of_servers_in_its_own_way() {
        let served = |server: &str, tool: &str| Tool::Served { server: server.into(), tool: tool.into() };
        let gemini = GEMINI.replace("run_shell_command", "mcp_github_create_issue");
        assert_eq!(asked(Agent::Gemini, &gemini).unwrap().tool, served("github", "create_issue"));
        let context =
            r#""mcp_context":{"server_name":"sluice_evil","tool_name":"run"},"tool_name":"mcp_sluice_evil_run""#;
        let gemini = GEMINI.replace(r#""tool_name":"run_shell_command""#, context);
        let evil = asked(Agent::Gemini, &gemini).unwrap();
        assert_eq!((evil.tool, evil.proof), (served("sluice_evil", "run"), Proof::None));
        let context = context.replace("sluice_evil\"", "sluice\",\"command\":\"/tmp/evil\"");
        let gemini = GEMINI.replace(r#""tool_name":"run_shell_command""#, &context);
        assert_eq!(asked(Agent::Gemini, &gemini).unwrap().proof, Proof::Command("/tmp/evil".into()));
        let claude = CLAUDE.replace("Bash", "mcp__sluice__email_send");
        let own = asked(Agent::ClaudeCode, &claude).unwrap();
        assert_eq!((own.tool, own.proof), (served("sluice", "email_send"), Proof::Name));
        // What Cursor's tool calls itself proves nothing; what Cursor talks to does.
        let cursor = CURSOR_MCP.replace("\"send\"", "\"mcp__sluice__pwn\"");
        let pwn = asked(Agent::Cursor, &cursor).unwrap();
        assert_eq!((pwn.tool, pwn.proof), (served("unnamed", "mcp__sluice__pwn"), Proof::Url("http://x/mcp".into())));
    }

    #[test]
    fn only_known_reads_and_what_another_event_asks_about_are_left_alone() {
        let left = |agent, input: &str, from: &str, to: &str| {
            asked(agent, &input.replace(from, to)).unwrap().is_left_alone(agent)
        };
        let claude = |tool: &str| left(Agent::ClaudeCode, CLAUDE, "Bash", tool);
        assert!(claude("Read") && claude("Grep"));
        for tool in ["Bash", "PowerShell", "SendMessage", "SomethingNew", "WebSearch", "mcp__x__Read"] {
            assert!(!claude(tool), "{tool}");
        }
        let cursor = |tool: &str| left(Agent::Cursor, &CLAUDE.replace("PreToolUse", "preToolUse"), "Bash", tool);
        assert!(cursor("Read") && cursor("Shell") && cursor("MCP:send"));
        assert!(!cursor("Write") && !cursor("Delete") && !cursor("Task"));
        assert_eq!(said(Agent::Cursor, CURSOR_SHELL, Ok(Decision::NoOpinion)), line(r#"{"permission":"allow"}"#));
        let quiet = Answer { stdout: None, stderr: None, stops: false };
        assert_eq!(said(Agent::ClaudeCode, CLAUDE, Ok(Decision::NoOpinion)), quiet);
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
