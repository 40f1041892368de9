//! Recipes: what belongs into which file of which client.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{For, Scope, block, members};

/// What marks an entry as ours.
const HOOK: &str = "sluice hook ";
/// How long a client waits for a hook, in seconds; the hook itself gives up before.
const HOOK_SECONDS: u64 = 600;

/// Where everything is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) home: PathBuf,
    pub(super) here: PathBuf,
    pub(super) program: String,
    pub(super) url: String,
    pub(super) key: String,
}

/// One change of one file.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) file: PathBuf,
    pub(super) edit: Edit,
}

/// What is done to a file.
#[derive(Debug)]
pub(super) enum Edit {
    /// A member of a JSON object.
    Set(&'static [&'static str], Value),
    /// An element of a JSON list.
    Push(&'static [&'static str], Value, &'static str),
    /// A block of a TOML file.
    Block(String, &'static str),
}

impl Edit {
    pub(super) fn apply(&self, text: &str) -> Result<String, String> {
        match self {
            Self::Set(path, value) => members::set(text, path, value),
            Self::Push(path, value, mark) => members::push(text, path, value, mark),
            Self::Block(text_of_block, head) => block::put(text, text_of_block, head),
        }
    }
}

/// Every change a client needs.
pub(super) fn of(client: For, hooks: bool, scope: Scope, place: &Place) -> Vec<Change> {
    let home = |file: &str| place.home.join(file);
    let mut changes = Vec::new();
    let mut put = |file: PathBuf, edit: Edit| changes.push(Change { file, edit });
    match client {
        For::ClaudeCode => {
            let (servers, settings) = match scope {
                Scope::Project => (place.here.join(".mcp.json"), place.here.join(".claude/settings.json")),
                Scope::User => (home(".claude.json"), home(".claude/settings.json")),
            };
            put(servers, Edit::Set(&["mcpServers", "sluice"], with(place.server(), "type", json!("stdio"))));
            // The gate asks people; the client need not ask them a second time.
            put(settings.clone(), Edit::Push(&["permissions", "allow"], json!("mcp__sluice__*"), "mcp__sluice__*"));
            if hooks {
                let matcher = "Bash|Write|Edit|MultiEdit|NotebookEdit|WebFetch|mcp__(?!sluice__).*";
                put(settings, Edit::Push(&["hooks", "PreToolUse"], place.claude_hook(matcher), HOOK));
            }
        }
        For::ClaudeDesktop => {
            put(desktop(&place.home), Edit::Set(&["mcpServers", "sluice"], place.server()));
        }
        For::Codex => put(home(".codex/config.toml"), Edit::Block(place.codex(hooks), "[mcp_servers.sluice]")),
        For::Gemini => {
            let file = home(".gemini/settings.json");
            let server = with(with(place.server(), "timeout", json!(HOOK_SECONDS * 1000)), "trust", json!(true));
            put(file.clone(), Edit::Set(&["mcpServers", "sluice"], server));
            if hooks {
                let hook = json!({
                    "matcher": "run_shell_command|write_file|replace|web_fetch|mcp_(?!sluice_).*",
                    "hooks": [{
                        "type": "command", "name": "sluice", "command": place.hook("gemini"), "timeout": HOOK_SECONDS * 1000,
                    }],
                });
                put(file, Edit::Push(&["hooks", "BeforeTool"], hook, HOOK));
            }
        }
        For::Cursor => {
            put(home(".cursor/mcp.json"), Edit::Set(&["mcpServers", "sluice"], place.server()));
            if hooks {
                let file = home(".cursor/hooks.json");
                let hook = json!({"command": place.hook("cursor"), "failClosed": true});
                put(file.clone(), Edit::Set(&["version"], json!(1)));
                put(file.clone(), Edit::Push(&["hooks", "beforeMCPExecution"], hook.clone(), HOOK));
                put(file, Edit::Push(&["hooks", "beforeShellExecution"], hook, HOOK));
            }
        }
        For::Vscode => {
            let server = with(place.server(), "type", json!("stdio"));
            put(place.here.join(".vscode/mcp.json"), Edit::Set(&["servers", "sluice"], server));
        }
    }
    changes
}

impl Place {
    /// The bridge, as clients start it. The key stays in its file.
    fn server(&self) -> Value {
        json!({
            "command": self.program, "args": ["mcp"],
            "env": {"SLUICE_URL": self.url, "SLUICE_AGENT_KEY_FILE": self.key},
        })
    }

    /// The hook as a line of a shell.
    fn hook(&self, client: &str) -> String {
        let (program, url, key) = (quoted(&self.program), quoted(&self.url), quoted(&self.key));
        // The mark stands in the text as `sluice hook`, whatever the program's file is called.
        format!("SLUICE_URL={url} SLUICE_AGENT_KEY_FILE={key} {program} hook {client} # sluice hook {client}")
    }

    fn claude_hook(&self, matcher: &str) -> Value {
        json!({
            "matcher": matcher,
            "hooks": [{
                "type": "command", "command": self.hook("claude-code"), "timeout": HOOK_SECONDS, "onFailure": "block",
                "statusMessage": "Checking with sluice…",
            }],
        })
    }

    fn codex(&self, hooks: bool) -> String {
        let text = |text: &str| Value::from(text).to_string();
        let mut block = format!(
            "[mcp_servers.sluice]\ncommand = {}\nargs = [\"mcp\"]\nenv = {{ SLUICE_URL = {}, SLUICE_AGENT_KEY_FILE = {} }}\n\
             required = true\ntool_timeout_sec = 600\ndefault_tools_approval_mode = \"approve\"\n",
            text(&self.program),
            text(&self.url),
            text(&self.key)
        );
        if hooks {
            block += &format!(
                "\n[[hooks.PreToolUse]]\nmatcher = \".*\"\n\n[[hooks.PreToolUse.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {HOOK_SECONDS}\n",
                text(&self.hook("codex"))
            );
        }
        block
    }
}

fn with(mut value: Value, name: &str, field: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), field);
    }
    value
}

/// A word of a shell line that means itself.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn desktop(home: &Path) -> PathBuf {
    let folder = if cfg!(target_os = "macos") { "Library/Application Support/Claude" } else { ".config/Claude" };
    home.join(folder).join("claude_desktop_config.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            home: "/home/u".into(),
            here: "/srv/app".into(),
            program: "/usr/local/bin/sluice".into(),
            url: "http://127.0.0.1:7420".into(),
            key: "/home/u/it's.key".into(),
        }
    }

    #[test]
    fn every_client_gets_its_files_and_applying_twice_changes_nothing() {
        let all = [For::ClaudeCode, For::ClaudeDesktop, For::Codex, For::Gemini, For::Cursor, For::Vscode];
        for client in all {
            let changes = of(client, true, Scope::Project, &place());
            let mut all = String::new();
            for change in changes {
                let once = change.edit.apply("").unwrap();
                assert_eq!(change.edit.apply(&once).unwrap(), once, "{client:?}");
                all.push_str(&once);
            }
            assert!(all.contains("sluice"), "{client:?}");
        }
    }

    #[test]
    fn hooks_fail_closed_where_the_client_can_say_so() {
        let text = |client| -> String {
            of(client, true, Scope::Project, &place()).iter().map(|change| change.edit.apply("").unwrap()).collect()
        };
        assert!(text(For::ClaudeCode).contains("\"onFailure\": \"block\""));
        assert!(text(For::Cursor).contains("\"failClosed\": true"));
        assert!(text(For::Codex).contains("required = true"));
        assert!(text(For::ClaudeCode).contains("'/home/u/it'\\\\''s.key'"), "names are quoted for the shell");
    }
}
