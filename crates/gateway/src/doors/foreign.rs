//! Foreign tools: what other programs' tools are called here, so that rules can be written about them once.
//!
//! Takes a tool's name and input as a client words them; gives the capability and arguments that are judged in check
//! mode. Promise: everything the tool was given is among the arguments and nothing of it is replaced; what cannot be
//! told apart (a name that is none of ours, two files where one is shown) is refused, never bent into something else.

use serde_json::{Map, Value};
use sluice_core::CapabilityName;

/// Names under which programs run commands.
const EXEC: [&str; 8] =
    ["Bash", "shell", "Shell", "exec_command", "local_shell", "unified_exec", "run_shell_command", "PowerShell"];
/// Names under which programs change files.
const WRITE: [&str; 9] =
    ["Write", "Edit", "MultiEdit", "NotebookEdit", "Delete", "apply_patch", "write_file", "replace", "edit_file"];
/// Names under which programs ask the network.
const FETCH: [&str; 3] = ["WebFetch", "web_fetch", "fetch"];
/// Names under which programs write to others.
const SEND: [&str; 2] = ["SendMessage", "send_message"];
/// Names under which tools take the file they change, ours first.
const PATHS: [&str; 4] = ["path", "file_path", "notebook_path", "target_file"];
/// What this gateway is called among a client's servers.
pub const OWN_SERVER: &str = "sluice";

/// A tool as a program names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tool {
    /// Of the program itself.
    Builtin(String),
    /// Of a server the program talks to.
    Served {
        /// What the program calls the server.
        server: String,
        /// What the server calls the tool.
        tool: String,
    },
}

impl Tool {
    /// As Claude Code and Codex say it: `mcp__server__tool`.
    #[must_use]
    pub fn doubly(name: &str) -> Self {
        Self::split(name, name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")))
    }

    /// As Gemini CLI says it: `mcp_server_tool`. It advises against servers with an underscore in their names.
    #[must_use]
    pub fn singly(name: &str) -> Self {
        Self::split(name, name.strip_prefix("mcp_").and_then(|rest| rest.split_once('_')))
    }

    fn split(name: &str, parts: Option<(&str, &str)>) -> Self {
        match parts {
            Some((server, tool)) => Self::Served { server: server.to_owned(), tool: tool.to_owned() },
            None => Self::Builtin(name.to_owned()),
        }
    }

    /// What the gateway's own server would call it; nothing if it is another's.
    #[must_use]
    pub fn of_gate(&self) -> Option<&str> {
        match self {
            Self::Served { server, tool } if server == OWN_SERVER => Some(tool),
            Self::Served { .. } | Self::Builtin(_) => None,
        }
    }
}

/// A tool call as the corridor judges it.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    /// `custom:exec_cmd`, `custom:write_file`, `custom:http_request`, `custom:send_message`, `custom:mcp.server.tool`, or
    /// `custom:` and the tool.
    pub capability: CapabilityName,
    /// Everything it was given.
    pub arguments: Value,
}

/// Why a tool call cannot be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Its name cannot be one of ours.
    #[error("the tool has a name the gate cannot judge")]
    Name,
    /// It names two files, and who is asked would be shown one of them.
    #[error("the tool names two different files, so that nobody can tell which one it changes")]
    Paths,
}

/// A tool call in our words.
///
/// # Errors
/// When it cannot be told what would be done.
pub fn translate(tool: &Tool, input: &Value, folder: Option<&str>) -> Result<Foreign, Unclear> {
    let mut arguments = match input {
        Value::Object(arguments) => arguments.clone(),
        Value::Null => Map::new(),
        other => Map::from_iter([("input".to_owned(), other.clone())]),
    };
    let name = match tool {
        // A dot would let one server's tool look like another's.
        Tool::Served { server, .. } if server.contains(['.', ':']) => return Err(Unclear::Name),
        Tool::Served { server, tool } => format!("custom:mcp.{server}.{tool}"),
        Tool::Builtin(tool) => builtin(tool, &mut arguments)?,
    };
    if let Some(folder) = folder {
        arguments.entry("cwd").or_insert(folder.into());
    }
    let capability = CapabilityName::new(name).map_err(|_| Unclear::Name)?;
    Ok(Foreign { capability, arguments: Value::Object(arguments) })
}

/// The name of a program's own tool, and its arguments under the names rules know.
fn builtin(tool: &str, arguments: &mut Map<String, Value>) -> Result<String, Unclear> {
    if EXEC.contains(&tool) {
        // Rules read commands as a POSIX shell would; this one reads them otherwise.
        if tool == "PowerShell" {
            arguments.entry("shell").or_insert("powershell".into());
        }
        return Ok("custom:exec_cmd".to_owned());
    }
    if WRITE.contains(&tool) {
        // SECURITY: which of two paths a tool goes by is the program's secret; the one that is shown must be the only one.
        let mut given = PATHS.iter().filter_map(|name| arguments.get(*name));
        if let Some(path) = given.next().cloned() {
            if given.any(|other| *other != path) {
                return Err(Unclear::Paths);
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

    fn of(tool: &str, input: Value) -> Foreign {
        translate(&Tool::doubly(tool), &input, Some("/srv")).unwrap()
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
        let single = translate(&Tool::singly("mcp_github_create_issue"), &json!({}), None).unwrap();
        assert_eq!(single.capability.as_str(), "custom:mcp.github.create_issue");
        assert_eq!(of("WebFetch", json!({"url": "http://x"})).capability.as_str(), "custom:http_request");
        assert_eq!(of("Task", json!("go")).arguments["input"], "go");
    }

    #[test]
    fn a_path_is_never_replaced_by_another() {
        let two = json!({"file_path": "/home/u/notes.txt", "path": "/etc/cron.d/pwn"});
        for tool in ["Write", "write_file", "Edit"] {
            let tool = Tool::Builtin(tool.into());
            assert_eq!(translate(&tool, &two, None), Err(Unclear::Paths));
            let twice = json!({"file_path": "/a", "path": "/a"});
            assert_eq!(translate(&tool, &twice, None).unwrap().arguments, twice);
            let own = json!({"path": "/etc/cron.d/pwn"});
            assert_eq!(translate(&tool, &own, None).unwrap().arguments, own);
        }
        // A server's tool has arguments of its own meaning: nothing is added to them.
        let served = Tool::Served { server: "files".into(), tool: "write_file".into() };
        assert_eq!(translate(&served, &two, None).unwrap().arguments, two);
    }

    #[test]
    fn only_the_server_of_that_very_name_is_taken_for_the_gate() {
        assert_eq!(Tool::doubly("mcp__sluice__email_send").of_gate(), Some("email_send"));
        assert_eq!(Tool::singly("mcp_sluice_email_send").of_gate(), Some("email_send"));
        for other in ["mcp__sluice2__email_send", "mcp__sluice", "mcp_sluice_email_send", "MCP:sluice:email_send"] {
            assert_eq!(Tool::doubly(other).of_gate(), None, "{other}");
        }
        assert_eq!(Tool::singly("mcp__sluice__email_send").of_gate(), None);
    }

    #[test]
    fn a_name_that_cannot_be_ours_is_not_bent_into_one() {
        for tool in ["", "a b", "rm\u{202e}", "x/../y", &"x".repeat(200), "a..b"] {
            assert_eq!(translate(&Tool::doubly(tool), &json!({}), None), Err(Unclear::Name), "{tool}");
        }
        let dotted = Tool::Served { server: "a.b".into(), tool: "c".into() };
        assert_eq!(translate(&dotted, &json!({}), None), Err(Unclear::Name));
    }
}
