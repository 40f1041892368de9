//! Servers: the name of the server behind a tool, and whether that server is the gate itself.
//!
//! Takes the command or address from a client's input; gives the name from its configuration. Promise: a server is
//! recognised as the gate by its command or address, never by a name that anyone can choose.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The name of a server that no configuration contains.
pub(super) const UNNAMED: &str = "unnamed";
/// The file with Cursor's servers, in a home folder or a project.
const CURSOR: &str = ".cursor/mcp.json";

/// How a tool's server can be recognised as the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GateServerProof {
    /// Not at all: it is the client's own tool, or another server.
    None,
    /// By its name, because the client ensures unique names.
    Name,
    /// By its command.
    Command(String),
    /// By its address.
    Url(String),
}

impl GateServerProof {
    /// From the command or address in the client's input.
    pub(super) fn of(said: &Value) -> Self {
        let word = |name: &str| said.get(name).and_then(Value::as_str).filter(|word| !word.is_empty());
        match (command(said), word("url")) {
            (Some(command), None) => Self::Command(command),
            (None, Some(url)) => Self::Url(url.to_owned()),
            // Both or neither: nothing is proved.
            (Some(_), Some(_)) | (None, None) => Self::None,
        }
    }

    /// Whether it is the gate at this address, as this program starts it.
    pub(super) fn holds(&self, address: &str) -> bool {
        match self {
            Self::None => false,
            Self::Name => true,
            Self::Command(command) => std::env::current_exe().is_ok_and(|own| starts(command, &own)),
            Self::Url(url) => *url == format!("{address}/mcp"),
        }
    }
}

/// Whether a command is this program as the bridge, and nothing else.
fn starts(command: &str, own: &Path) -> bool {
    let Some(program) = command.strip_suffix(" mcp").map(str::trim).filter(|program| program.starts_with('/')) else {
        return false;
    };
    match (fs::canonicalize(program), fs::canonicalize(own)) {
        (Ok(program), Ok(own)) => program == own,
        _ => false,
    }
}

/// A command with its arguments, as one line.
fn command(entry: &Value) -> Option<String> {
    let command = entry.get("command").and_then(Value::as_str).filter(|command| !command.is_empty())?;
    let arguments = entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    Some(std::iter::once(command).chain(arguments).collect::<Vec<_>>().join(" "))
}

/// The name of this server in Cursor's configuration, in the home folder and the open projects.
pub(super) fn find_cursor_name(proof: &GateServerProof, home: Option<&Path>, roots: &[PathBuf]) -> String {
    let files = home.into_iter().chain(roots.iter().map(PathBuf::as_path)).map(|place| place.join(CURSOR));
    let mut found: Vec<String> = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        let read: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        let Some(servers) = read.get("mcpServers").and_then(Value::as_object) else { continue };
        for (name, entry) in servers {
            if *proof != GateServerProof::None && GateServerProof::of(entry) == *proof && !found.contains(name) {
                found.push(name.clone());
            }
        }
    }
    // A server with two names counts as unnamed: a rule could mean either name.
    match found.as_slice() {
        [name] => name.clone(),
        _ => UNNAMED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_is_the_gate_by_what_is_started_and_not_by_its_name() {
        let own = std::env::current_exe().unwrap();
        let ours = format!("{} mcp", own.display());
        assert!(GateServerProof::Command(ours.clone()).holds("http://g"));
        for other in ["/tmp/evil/sluice mcp", "sluice mcp", "mcp", " mcp", &format!("{ours} --url http://evil")] {
            assert!(!GateServerProof::Command(other.into()).holds("http://g"), "{other}");
        }
        assert!(GateServerProof::Url("http://g/mcp".into()).holds("http://g"));
        assert!(!GateServerProof::Url("https://evil.example/mcp".into()).holds("http://g"));
        assert_eq!(
            GateServerProof::of(&json!({"command": ours, "url": "https://evil.example/mcp"})),
            GateServerProof::None
        );
    }

    #[test]
    fn a_server_has_the_name_its_configuration_gives_it() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(CURSOR);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let servers = json!({"mcpServers": {
            "github": {"command": "npx", "args": ["-y", "server-github"]}, "a": {"url": "http://x"}, "b": {"url": "http://x"},
        }});
        fs::write(&file, servers.to_string()).unwrap();
        let name = |said: Value| find_cursor_name(&GateServerProof::of(&said), Some(home.path()), &[]);
        assert_eq!(name(json!({"command": "npx -y server-github"})), "github");
        assert_eq!(name(json!({"command": "npx -y server-github --more"})), UNNAMED);
        assert_eq!(name(json!({"url": "http://x"})), UNNAMED, "which of the two is not known");
        assert_eq!(name(json!({})), UNNAMED);
    }
}
