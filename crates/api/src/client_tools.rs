//! Foreign tools: maps the tools of other programs to capabilities, so that rules can be written about them once.
//!
//! Takes a tool's name and input in the client's words; gives the capability and arguments that are judged in check
//! mode. Promise: everything the tool was given is among the arguments and nothing of it is replaced; an ambiguous call
//! (a name that no capability can have, two files where one is shown) is refused and never reinterpreted.

use serde_json::{Map, Value};
use sluice_core::CapabilityName;

/// Tool names under which programs run commands.
const EXEC: [&str; 8] =
    ["Bash", "shell", "Shell", "exec_command", "local_shell", "unified_exec", "run_shell_command", "PowerShell"];
/// Tool names under which programs change files.
const WRITE: [&str; 9] =
    ["Write", "Edit", "MultiEdit", "NotebookEdit", "Delete", "apply_patch", "write_file", "replace", "edit_file"];
/// Tool names under which programs make network requests.
const FETCH: [&str; 3] = ["WebFetch", "web_fetch", "fetch"];
/// Tool names under which programs send messages.
const SEND: [&str; 2] = ["SendMessage", "send_message"];
/// Argument names under which tools take the file that they change, ours first.
const PATHS: [&str; 4] = ["path", "file_path", "notebook_path", "target_file"];
/// The name of this gateway among a client's servers.
pub const OWN_SERVER: &str = "sluice";

/// A tool as a program names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientTool {
    /// A tool of the program itself.
    Builtin(String),
    /// A tool of a server that the program uses.
    Served {
        /// The client's name for the server.
        server: String,
        /// The server's name for the tool.
        tool: String,
    },
}

impl ClientTool {
    /// Parses the form of Claude Code and Codex: `mcp__server__tool`.
    #[must_use]
    pub fn from_double_underscore(name: &str) -> Self {
        Self::split(name, name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")))
    }

    /// Parses the form of Gemini CLI: `mcp_server_tool`. It advises against servers with an underscore in their names.
    #[must_use]
    pub fn from_single_underscore(name: &str) -> Self {
        Self::split(name, name.strip_prefix("mcp_").and_then(|rest| rest.split_once('_')))
    }

    fn split(name: &str, parts: Option<(&str, &str)>) -> Self {
        match parts {
            Some((server, tool)) => Self::Served { server: server.to_owned(), tool: tool.to_owned() },
            None => Self::Builtin(name.to_owned()),
        }
    }

    /// The tool's name at the gateway's own server; `None` if it belongs to another server.
    #[must_use]
    pub fn gateway_tool(&self) -> Option<&str> {
        match self {
            Self::Served { server, tool } if server == OWN_SERVER => Some(tool),
            Self::Served { .. } | Self::Builtin(_) => None,
        }
    }
}

/// A tool call as the corridor judges it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientToolCall {
    /// `custom:exec_cmd`, `custom:write_file`, `custom:http_request`, `custom:send_message`, `custom:mcp.server.tool`, or
    /// `custom:` and the tool.
    pub capability: CapabilityName,
    /// All arguments that the tool was given.
    pub arguments: Value,
}

/// Why a tool call cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientToolError {
    /// No capability can have its name.
    #[error("the tool's name cannot be the name of a capability")]
    Name,
    /// It names two files, and the person who is asked would be shown only one of them.
    #[error("the tool names two different files, so it is not clear which one it changes")]
    Paths,
}

/// Translates a tool call to a capability and its arguments.
///
/// # Errors
/// When it is not clear what the tool would do.
pub fn translate(tool: &ClientTool, input: &Value, folder: Option<&str>) -> Result<ClientToolCall, ClientToolError> {
    let mut arguments = match input {
        Value::Object(arguments) => arguments.clone(),
        Value::Null => Map::new(),
        other => Map::from_iter([("input".to_owned(), other.clone())]),
    };
    let name = match tool {
        // A dot could make one server's tool look like another's.
        ClientTool::Served { server, .. } if server.contains(['.', ':']) => return Err(ClientToolError::Name),
        ClientTool::Served { server, tool } => format!("custom:mcp.{server}.{tool}"),
        ClientTool::Builtin(tool) => builtin(tool, &mut arguments)?,
    };
    if let Some(folder) = folder {
        arguments.entry("cwd").or_insert(folder.into());
    }
    let capability = CapabilityName::new(name).map_err(|_| ClientToolError::Name)?;
    Ok(ClientToolCall { capability, arguments: Value::Object(arguments) })
}

/// The name of a program's own tool, with its arguments under the names that rules know.
fn builtin(tool: &str, arguments: &mut Map<String, Value>) -> Result<String, ClientToolError> {
    if EXEC.contains(&tool) {
        // Rules read commands as a POSIX shell would; PowerShell reads them in another way.
        if tool == "PowerShell" {
            arguments.entry("shell").or_insert("powershell".into());
        }
        return Ok("custom:exec_cmd".to_owned());
    }
    if WRITE.contains(&tool) {
        // SECURITY: we cannot know which of two paths a tool uses; the path that is shown must be the only one.
        let mut given = PATHS.iter().filter_map(|name| arguments.get(*name));
        if let Some(path) = given.next().cloned() {
            if given.any(|other| *other != path) {
                return Err(ClientToolError::Paths);
            }
            arguments.entry("path").or_insert(path);
        }
        return Ok("custom:write_file".to_owned());
    }
    if FETCH.contains(&tool) {
        arguments.entry("method").or_insert("GET".into());
        return Ok("custom:http_request".to_owned());
    }
    if SEND.contains(&tool) {
        return Ok("custom:send_message".to_owned());
    }
    Ok(format!("custom:{tool}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(tool: &str, input: Value) -> ClientToolCall {
        translate(&ClientTool::from_double_underscore(tool), &input, Some("/srv")).unwrap()
    }

    #[test]
    fn tools_of_several_programs_that_do_the_same_are_judged_alike() {
        for tool in ["Bash", "shell", "run_shell_command"] {
            let asked = of(tool, json!({"command": "ls"}));
            assert_eq!(asked.capability.as_str(), "custom:exec_cmd");
            assert_eq!(asked.arguments, json!({"command": "ls", "cwd": "/srv"}));
        }
        let asked = of("Edit", json!({"file_path": "/a", "old_string": "x", "new_string": "y"}));
        assert_eq!((asked.capability.as_str(), &asked.arguments["path"]), ("custom:write_file", &json!("/a")));
        assert_eq!(asked.arguments["new_string"], "y", "nothing is left out");
        assert_eq!(of("mcp__gmail__send_mail", json!({})).capability.as_str(), "custom:mcp.gmail.send_mail");
        let single =
            translate(&ClientTool::from_single_underscore("mcp_github_create_issue"), &json!({}), None).unwrap();
        assert_eq!(single.capability.as_str(), "custom:mcp.github.create_issue");
        assert_eq!(of("WebFetch", json!({"url": "http://x"})).capability.as_str(), "custom:http_request");
        assert_eq!(of("Task", json!("go")).arguments["input"], "go");
    }

    #[test]
    fn a_path_is_never_replaced_by_another() {
        let two = json!({"file_path": "/home/u/notes.txt", "path": "/etc/cron.d/pwn"});
        for tool in ["Write", "write_file", "Edit"] {
            let tool = ClientTool::Builtin(tool.into());
            assert_eq!(translate(&tool, &two, None), Err(ClientToolError::Paths));
            let twice = json!({"file_path": "/a", "path": "/a"});
            assert_eq!(translate(&tool, &twice, None).unwrap().arguments, twice);
            let own = json!({"path": "/etc/cron.d/pwn"});
            assert_eq!(translate(&tool, &own, None).unwrap().arguments, own);
        }
        // The arguments of a server's tool have their own meaning: nothing is added to them.
        let served = ClientTool::Served { server: "files".into(), tool: "write_file".into() };
        assert_eq!(translate(&served, &two, None).unwrap().arguments, two);
    }

    #[test]
    fn only_the_server_of_that_very_name_is_taken_for_the_gate() {
        assert_eq!(ClientTool::from_double_underscore("mcp__sluice__email_send").gateway_tool(), Some("email_send"));
        assert_eq!(ClientTool::from_single_underscore("mcp_sluice_email_send").gateway_tool(), Some("email_send"));
        for other in ["mcp__sluice2__email_send", "mcp__sluice", "mcp_sluice_email_send", "MCP:sluice:email_send"] {
            assert_eq!(ClientTool::from_double_underscore(other).gateway_tool(), None, "{other}");
        }
        assert_eq!(ClientTool::from_single_underscore("mcp__sluice__email_send").gateway_tool(), None);
    }

    #[test]
    fn a_name_that_cannot_be_ours_is_not_bent_into_one() {
        for tool in ["", "a b", "rm\u{202e}", "x/../y", &"x".repeat(200), "a..b"] {
            assert_eq!(
                translate(&ClientTool::from_double_underscore(tool), &json!({}), None),
                Err(ClientToolError::Name),
                "{tool}"
            );
        }
        let dotted = ClientTool::Served { server: "a.b".into(), tool: "c".into() };
        assert_eq!(translate(&dotted, &json!({}), None), Err(ClientToolError::Name));
    }
}
