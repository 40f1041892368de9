//! Guard: tool calls that are about a gateway's own files, or about credentials.
//!
//! Takes what a client wants to do; says whether the hook itself stops it. Promise: a gateway's data folder,
//! configuration, policies and keys are refused for every tool of every client, also those that only look and also when
//! no gateway answers. A tool that only looks is put before the gateway's rules when it names a credential.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_gateway::own_files::OwnFiles;

use super::shapes::Asked;

/// What the agent is told.
pub(super) const WORDS: &str =
    "the gateway's own files are not for agents: data folder, configuration, policies and keys (nothing was asked)";

/// Folders that hold credentials, wherever they lie.
const FOLDERS: [&str; 9] =
    [".ssh", ".aws", ".azure", ".kube", ".gnupg", ".docker", ".password-store", "gcloud", ".secrets"];
/// Files that hold credentials.
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
/// How other such files end.
const ENDS: [&str; 5] = [".pem", ".p12", ".pfx", ".keystore", ".key"];
/// Arguments that are looked for, and no paths.
const LOOKED_FOR: [&str; 3] = ["pattern", "query", "regex"];

/// Whether the call names a file of a gateway on this machine.
pub(super) fn names_own_files(asked: &Asked) -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    OwnFiles::nearby(home).named_in(&asked.input, asked.folder.as_deref()).is_some()
}

/// Whether an argument of the call is the path of a credential, also behind a link.
pub(super) fn names_credentials(asked: &Asked) -> bool {
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
