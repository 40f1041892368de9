//! Guard: detects tool calls that touch a gateway's own files or credentials.
//!
//! Takes a tool call; says whether the hook itself stops it. Promise: a gateway's data folder, configuration, policies
//! and keys are refused for every tool of every client, including tools that only read, and also when no gateway
//! responds. A tool that only reads is checked by the gateway's rules when it names a credential.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_api::client_tools::ClientTool;
use sluice_services::gateway_files::GatewayOwnFiles;

use super::client_formats::HookToolRequest;

/// The reason shown to the agent.
pub(super) const WORDS: &str =
    "agents must not use the gateway's own files: data folder, configuration, policies and keys (nobody was asked)";

/// Folders that contain credentials, at any place.
const FOLDERS: [&str; 9] =
    [".ssh", ".aws", ".azure", ".kube", ".gnupg", ".docker", ".password-store", "gcloud", ".secrets"];
/// Files that contain credentials.
const FILES: [&str; 14] = [
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".envrc",
    "credentials",
    "credentials.json",
    ".credentials.json",
    "auth.json",
    "credentials.toml",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
];
/// Extensions of such files.
const ENDS: [&str; 5] = [".pem", ".p12", ".pfx", ".keystore", ".key"];
/// Arguments that are search terms, not paths.
const LOOKED_FOR: [&str; 3] = ["pattern", "query", "regex"];

/// Whether the call names a file of a gateway on this machine, or searches a folder around the files of the gateway that
/// the agent's key belongs to.
pub(super) fn names_own_files(asked: &HookToolRequest) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut own = GatewayOwnFiles::nearby(home);
    if let Some(key) = std::env::var_os("SLUICE_AGENT_KEY_FILE") {
        own = own.and_of_key(Path::new(&key));
    }
    let (input, folder) = (&asked.input, asked.folder.as_deref());
    let tool = match &asked.tool {
        ClientTool::Builtin(tool) => tool.clone(),
        ClientTool::Served { server, tool } => format!("custom:mcp.{server}.{tool}"),
    };
    own.named_in(input, folder).is_some() || own.walked_in(&tool, input, folder).is_some()
}

/// Whether an argument of the call is the path of a credential, or a link to one.
pub(super) fn names_credentials(asked: &HookToolRequest) -> bool {
    let Some(members) = asked.input.as_object() else { return false };
    let members = members.iter().filter(|(name, _)| !LOOKED_FOR.contains(&name.as_str()));
    let texts = members.flat_map(|(_, value)| match value {
        Value::Array(items) => items.iter().collect(),
        other => vec![other],
    });
    texts.filter_map(Value::as_str).filter(|text| text.len() <= 4096).any(|text| {
        let path = asked.folder.as_deref().map_or_else(PathBuf::new, PathBuf::from).join(text);
        is_credential(Path::new(text)) || std::fs::canonicalize(path).is_ok_and(|real| is_credential(&real))
    })
}

fn is_credential(path: &Path) -> bool {
    let names: Vec<&str> = path.components().filter_map(|part| part.as_os_str().to_str()).collect();
    let last = names.last().copied().unwrap_or_default();
    names.iter().any(|name| FOLDERS.contains(name))
        || FILES.contains(&last)
        || last == ".env"
        || last.starts_with(".env.")
        || ENDS.iter().any(|end| last.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_told_by_where_they_lie_and_how_they_are_called() {
        for path in
            ["/home/me/.ssh/config", "app/.env", ".env.local", "/x/id_ed25519", "deploy.pem", "~/.aws/credentials"]
        {
            assert!(is_credential(Path::new(path)), "{path}");
        }
        for path in [
            "src/main.rs",
            "/etc/hosts",
            "docs/env.md",
            "identity.rs",
            "id_token",
            ".environment",
            "src/.environment/../x.rs",
        ] {
            assert!(!is_credential(Path::new(path)), "{path}");
        }
    }
}
