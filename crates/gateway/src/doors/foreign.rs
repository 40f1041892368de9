//! Foreign tools: what other programs' tools are called here, so that rules can be written about them once.
//!
//! Takes a tool's name and input as a client words them; gives the capability and arguments that are judged in check
//! mode. Promise: everything the tool was given is among the arguments; a name that cannot be one of ours is refused,
//! never shortened into another.

use serde_json::{Map, Value};
use sluice_core::CapabilityName;

/// Names under which programs run commands.
const EXEC: [&str; 7] =
    ["Bash", "shell", "exec_command", "local_shell", "unified_exec", "run_shell_command", "PowerShell"];
/// Names under which programs change files.
const WRITE: [&str; 8] =
    ["Write", "Edit", "MultiEdit", "NotebookEdit", "apply_patch", "write_file", "replace", "edit_file"];
/// Names under which programs ask the network.
const FETCH: [&str; 3] = ["WebFetch", "web_fetch", "fetch"];
/// Names under which programs write to others.
const SEND: [&str; 2] = ["SendMessage", "send_message"];
/// What the tools of this gateway start with, when it is mounted under its own name.
const OWN: [&str; 3] = ["mcp__sluice__", "mcp_sluice_", "MCP:sluice:"];

/// A tool call as the corridor judges it.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreign {
    /// `custom:exec_cmd`, `custom:write_file`, `custom:http_request`, `custom:send_message`, or `custom:` and the tool.
    pub capability: CapabilityName,
    /// Everything it was given.
    pub arguments: Value,
}

/// Whether the tool is one of this gateway's own, which judges its calls itself.
#[must_use]
pub fn is_own(tool: &str) -> bool {
    OWN.iter().any(|prefix| tool.starts_with(prefix))
}

/// A tool call in our words; nothing if its name cannot be one of ours.
#[must_use]
pub fn translate(tool: &str, input: &Value, folder: Option<&str>) -> Option<Foreign> {
    let mut arguments = match input {
        Value::Object(arguments) => arguments.clone(),
        Value::Null => Map::new(),
        other => Map::from_iter([("input".to_owned(), other.clone())]),
    };
    let kind = if EXEC.contains(&tool) {
        "custom:exec_cmd".to_owned()
    } else if WRITE.contains(&tool) {
        let path = ["file_path", "path", "notebook_path"].iter().find_map(|name| arguments.get(*name)).cloned();
        if let Some(path) = path {
            arguments.insert("path".into(), path);
        }
        "custom:write_file".to_owned()
    } else if FETCH.contains(&tool) {
        arguments.entry("method").or_insert("GET".into());
        "custom:http_request".to_owned()
    } else if SEND.contains(&tool) {
        "custom:send_message".to_owned()
    } else {
        let of_server = tool.strip_prefix("mcp__").map(|rest| mounted(rest, "__"));
        let of_server = of_server.or_else(|| tool.strip_prefix("MCP:").map(|rest| mounted(rest, ":")));
        format!("custom:{}", of_server.as_deref().unwrap_or(tool))
    };
    if let Some(folder) = folder {
        arguments.entry("cwd").or_insert(folder.into());
    }
    let capability = CapabilityName::new(kind).ok()?;
    Some(Foreign { capability, arguments: Value::Object(arguments) })
}

/// A server and its tool as `mcp.server.tool`.
fn mounted(rest: &str, between: &str) -> String {
    match rest.split_once(between) {
        Some((server, tool)) => format!("mcp.{server}.{tool}"),
        None => format!("mcp.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_of_several_programs_that_do_the_same_are_judged_alike() {
        let of = |tool: &str, input: Value| translate(tool, &input, Some("/srv")).unwrap();
        for tool in ["Bash", "shell", "run_shell_command"] {
            let asked = of(tool, json!({"command": "ls"}));
            assert_eq!(asked.capability.as_str(), "custom:exec_cmd");
            assert_eq!(asked.arguments, json!({"command": "ls", "cwd": "/srv"}));
        }
        let asked = of("Edit", json!({"file_path": "/a", "old_string": "x", "new_string": "y"}));
        assert_eq!((asked.capability.as_str(), &asked.arguments["path"]), ("custom:write_file", &json!("/a")));
        assert_eq!(asked.arguments["new_string"], "y", "nothing is left out");
        assert_eq!(of("mcp__gmail__send_mail", json!({})).capability.as_str(), "custom:mcp.gmail.send_mail");
        assert_eq!(of("MCP:gmail:send_mail", json!({})).capability.as_str(), "custom:mcp.gmail.send_mail");
        assert!(is_own("MCP:sluice:email_send") && !is_own("MCP:sluice2:email_send"));
        assert_eq!(of("WebFetch", json!({"url": "http://x"})).capability.as_str(), "custom:http_request");
        assert_eq!(of("Task", json!("go")).arguments["input"], "go");
    }

    #[test]
    fn a_name_that_cannot_be_ours_is_not_bent_into_one() {
        for tool in ["", "a b", "rm\u{202e}", "x/../y", &"x".repeat(200), "a..b"] {
            assert_eq!(translate(tool, &json!({}), None), None, "{tool}");
        }
    }
}
