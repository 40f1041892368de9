//! Recipes: which entries each client needs in which file.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{SetupClient, SetupScope, block, members};

/// The marker of our hooks: the end of their line.
pub(crate) const HOOK: &str = "# sluice hook ";
/// The name of a hook, where hooks have names.
pub(crate) const NAME: &str = "sluice";
/// The pattern that lets Claude Code use every tool of a server with our name.
const ALL_TOOLS: &str = "mcp__sluice__*";
/// How long a client waits for a hook, in seconds; the hook itself stops waiting earlier.
const HOOK_SECONDS: u64 = 600;
/// How long a client waits for the prompt hook, in seconds.
const PROMPT_SECONDS: u64 = 30;
/// How long a client waits for the hook after a tool, in seconds.
const DONE_SECONDS: u64 = 30;

/// The paths and addresses that recipes need.
#[derive(Debug)]
pub(super) struct SetupPaths {
    pub(super) home: PathBuf,
    pub(super) here: PathBuf,
    pub(super) program: String,
    pub(super) url: String,
    pub(super) key: String,
    /// File with the task key, only for the prompt hook.
    pub(super) task_key: Option<String>,
}

/// One change of one file.
#[derive(Debug)]
pub(super) struct ClientFileChange {
    pub(super) file: PathBuf,
    pub(super) edit: ClientFileEdit,
}

/// An edit of a file.
#[derive(Debug)]
pub(super) enum ClientFileEdit {
    /// Our server, as a member of a JSON object.
    Server(&'static [&'static str], Value),
    /// A member of a JSON object that the file needs, if it is missing.
    Need(&'static [&'static str], Value),
    /// An element of a JSON list.
    Push(&'static [&'static str], Value, &'static str),
    /// Removes such an element from a JSON list.
    Pull(&'static [&'static str], &'static str),
    /// A block in a TOML file.
    Block(String),
}

impl ClientFileEdit {
    pub(super) fn apply(&self, text: &str) -> Result<String, String> {
        match self {
            Self::Server(path, value) => match members::get(text, path) {
                Some(there) if !is_bridge(&there) => {
                    Err(format!("`{}` already exists and was not written by sluice", path.join(".")))
                }
                Some(there) if there == *value => Ok(text.to_owned()),
                Some(_) | None => members::set(text, path, value),
            },
            Self::Need(path, value) => match members::get(text, path) {
                Some(_) => Ok(text.to_owned()),
                None => members::set(text, path, value),
            },
            Self::Push(path, value, mark) => members::push(text, path, value, mark),
            Self::Pull(path, mark) => members::pull(text, path, mark),
            Self::Block(block) => block::put(text, block),
        }
    }

    /// The text without our entries.
    pub(super) fn undo(&self, text: &str) -> Result<String, String> {
        match self {
            Self::Server(path, _) => match members::get(text, path) {
                Some(there) if is_bridge(&there) => members::cut(text, path),
                Some(_) | None => Ok(text.to_owned()),
            },
            Self::Need(..) => Ok(text.to_owned()),
            Self::Push(path, _, mark) | Self::Pull(path, mark) => members::pull(text, path, mark),
            Self::Block(_) => block::cut(text),
        }
    }
}

/// Whether a server's entry starts our bridge.
fn is_bridge(entry: &Value) -> bool {
    let key = entry.get("env").and_then(|env| env.get("SLUICE_AGENT_KEY_FILE"));
    entry.get("args") == Some(&json!(["mcp"])) && key.is_some()
}

/// Whether a file has no entries of a client or person.
pub(super) fn is_bare(text: &str) -> bool {
    fn bare(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.iter().all(|(name, value)| name == "version" || bare(value)),
            Value::Array(list) => list.is_empty(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    text.trim().is_empty() || serde_json::from_str(text).is_ok_and(|value| bare(&value))
}

/// The files in which a client may have hooks, ours or others.
pub(crate) fn hook_files(client: SetupClient, home: &Path, here: &Path) -> Vec<PathBuf> {
    let (name, local) = match client {
        SetupClient::ClaudeCode => (".claude/settings.json", Some(".claude/settings.local.json")),
        SetupClient::Codex => (".codex/config.toml", None),
        SetupClient::Gemini => (".gemini/settings.json", None),
        SetupClient::Cursor => (".cursor/hooks.json", None),
        SetupClient::ClaudeDesktop | SetupClient::Vscode => return Vec::new(),
    };
    local.into_iter().map(|name| here.join(name)).chain([here.join(name), home.join(name)]).collect()
}

/// Every change that a client needs.
pub(super) fn of(client: SetupClient, hooks: bool, scope: SetupScope, place: &SetupPaths) -> Vec<ClientFileChange> {
    let home = |file: &str| place.home.join(file);
    let mut changes = Vec::new();
    let mut put = |file: PathBuf, edit: ClientFileEdit| changes.push(ClientFileChange { file, edit });
    match client {
        SetupClient::ClaudeCode => {
            let (servers, settings) = match scope {
                SetupScope::Project => (place.here.join(".mcp.json"), place.here.join(".claude/settings.json")),
                SetupScope::User => (home(".claude.json"), home(".claude/settings.json")),
            };
            put(
                servers,
                ClientFileEdit::Server(&["mcpServers", "sluice"], with(place.server(), "type", json!("stdio"))),
            );
            // The gate asks people; the client need not ask them again. The hook says so for tools that belong to
            // the gate; the pattern would also match a server named `sluice__other`.
            let allowed: &[&str] = &["permissions", "allow"];
            if hooks {
                put(settings.clone(), ClientFileEdit::Pull(allowed, ALL_TOOLS));
                // Every tool, so that new tools are asked about too; the hook allows known reads.
                put(settings.clone(), ClientFileEdit::Push(&["hooks", "PreToolUse"], place.claude_hook("*"), HOOK));
                // The hook after a tool records the changed files, so that they can be restored.
                let tools = "Write|Edit|MultiEdit|NotebookEdit|Bash";
                let done = json!({"matcher": tools, "hooks": [place.done_hook("claude-code")]});
                put(settings.clone(), ClientFileEdit::Push(&["hooks", "PostToolUse"], done, HOOK));
                put(settings, place.claude_prompt());
            } else {
                put(settings, ClientFileEdit::Push(allowed, json!(ALL_TOOLS), ALL_TOOLS));
            }
        }
        SetupClient::ClaudeDesktop => {
            put(desktop(&place.home), ClientFileEdit::Server(&["mcpServers", "sluice"], place.server()));
        }
        SetupClient::Codex => put(home(".codex/config.toml"), ClientFileEdit::Block(place.codex(hooks))),
        SetupClient::Gemini => {
            let file = home(".gemini/settings.json");
            let server = with(with(place.server(), "timeout", json!(HOOK_SECONDS * 1000)), "trust", json!(true));
            put(file.clone(), ClientFileEdit::Server(&["mcpServers", "sluice"], server));
            if hooks {
                let hook = json!({
                    "matcher": ".*",
                    "hooks": [{
                        "type": "command", "name": NAME, "command": place.hook("gemini"), "timeout": HOOK_SECONDS * 1000,
                    }],
                });
                put(file.clone(), ClientFileEdit::Push(&["hooks", "BeforeTool"], hook, HOOK));
                let done = with(place.done_hook("gemini"), "timeout", json!(DONE_SECONDS * 1000));
                let done = json!({"matcher": "write_file|replace|run_shell_command", "hooks": [done]});
                put(file.clone(), ClientFileEdit::Push(&["hooks", "AfterTool"], done, HOOK));
                let prompts = place.prompt_hook("gemini").map(|line| {
                    let timeout = PROMPT_SECONDS * 1000;
                    json!({"hooks": [{"type": "command", "name": NAME, "command": line, "timeout": timeout}]})
                });
                put(file, prompt_edit(&["hooks", "BeforeAgent"], prompts));
            }
        }
        SetupClient::Cursor => {
            put(home(".cursor/mcp.json"), ClientFileEdit::Server(&["mcpServers", "sluice"], place.server()));
            if hooks {
                let file = home(".cursor/hooks.json");
                let hook = json!({"command": place.hook("cursor"), "timeout": HOOK_SECONDS, "failClosed": true});
                put(file.clone(), ClientFileEdit::Need(&["version"], json!(1)));
                put(file.clone(), ClientFileEdit::Push(&["hooks", "beforeMCPExecution"], hook.clone(), HOOK));
                put(file.clone(), ClientFileEdit::Push(&["hooks", "beforeShellExecution"], hook.clone(), HOOK));
                // Tools that change files have no event of their own before they run.
                put(file.clone(), ClientFileEdit::Push(&["hooks", "preToolUse"], hook, HOOK));
                let done = json!({"command": place.hook("cursor"), "timeout": DONE_SECONDS});
                put(file.clone(), ClientFileEdit::Push(&["hooks", "postToolUse"], done.clone(), HOOK));
                put(file.clone(), ClientFileEdit::Push(&["hooks", "afterShellExecution"], done, HOOK));
                let prompts = place.prompt_hook("cursor");
                let prompts = prompts.map(|line| json!({"command": line, "timeout": PROMPT_SECONDS}));
                put(file, prompt_edit(&["hooks", "beforeSubmitPrompt"], prompts));
            }
        }
        SetupClient::Vscode => {
            let server = with(place.server(), "type", json!("stdio"));
            put(place.here.join(".vscode/mcp.json"), ClientFileEdit::Server(&["servers", "sluice"], server));
        }
    }
    changes
}

impl SetupPaths {
    /// The bridge, as clients start it. The key stays in its file.
    fn server(&self) -> Value {
        json!({
            "command": self.program, "args": ["mcp"],
            "env": {"SLUICE_URL": self.url, "SLUICE_AGENT_KEY_FILE": self.key},
        })
    }

    fn hook(&self, client: &str) -> String {
        let (url, key, program) = (self.url.clone(), self.key.clone(), self.program.clone());
        HookCommandLine { url, key, program, hears: HookEventSource::Tools }.text(client)
    }

    /// The hook that receives the user's prompts. Only this hook gets the task key.
    fn prompt_hook(&self, client: &str) -> Option<String> {
        let (url, program) = (self.url.clone(), self.program.clone());
        let key = self.task_key.clone()?;
        Some(HookCommandLine { url, key, program, hears: HookEventSource::Prompts }.text(client))
    }

    /// The hook after a tool.
    fn done_hook(&self, client: &str) -> Value {
        let hook = json!({"type": "command", "command": self.hook(client), "timeout": DONE_SECONDS});
        if client == "gemini" { with(hook, "name", json!(NAME)) } else { hook }
    }

    fn claude_prompt(&self) -> ClientFileEdit {
        let hook = |line: String| json!({"type": "command", "command": line, "timeout": PROMPT_SECONDS});
        let hook = self.prompt_hook("claude-code").map(|line| json!({"hooks": [hook(line)]}));
        prompt_edit(&["hooks", "UserPromptSubmit"], hook)
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
            block += &format!(
                "\n[[hooks.PostToolUse]]\nmatcher = \".*\"\n\n[[hooks.PostToolUse.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {DONE_SECONDS}\n",
                text(&self.hook("codex"))
            );
            if let Some(line) = self.prompt_hook("codex") {
                block += &format!(
                    "\n[[hooks.UserPromptSubmit]]\n\n[[hooks.UserPromptSubmit.hooks]]\ntype = \"command\"\ncommand = {}\ntimeout = {PROMPT_SECONDS}\n",
                    text(&line)
                );
            }
        }
        block
    }
}

/// A hook as a shell command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookCommandLine {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) program: String,
    pub(crate) hears: HookEventSource,
}

/// What a hook receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookEventSource {
    /// Tool calls, with the agent's key.
    Tools,
    /// The user's prompts, with the task key.
    Prompts,
}

impl HookEventSource {
    const ALL: [Self; 2] = [Self::Tools, Self::Prompts];

    /// The variable with the path of its key file.
    const fn variable(self) -> &'static str {
        match self {
            Self::Tools => "SLUICE_AGENT_KEY_FILE",
            Self::Prompts => "SLUICE_TASK_KEY_FILE",
        }
    }
}

impl HookCommandLine {
    /// The line as text. The marker is at its end, whatever the program's file name is.
    pub(crate) fn text(&self, client: &str) -> String {
        let (program, url, key) = (quoted(&self.program), quoted(&self.url), quoted(&self.key));
        let variable = self.hears.variable();
        format!("SLUICE_URL={url} {variable}={key} {program} hook {client} {HOOK}{client}")
    }

    /// Parses the line, if it is exactly as we write it.
    pub(crate) fn read(line: &str, client: &str) -> Option<Self> {
        let rest = line.strip_prefix("SLUICE_URL=")?;
        let (url, rest) = word(rest)?;
        let rest = rest.strip_prefix(' ')?;
        let named = HookEventSource::ALL
            .into_iter()
            .find_map(|hears| Some((hears, rest.strip_prefix(hears.variable())?.strip_prefix('=')?)));
        let (hears, rest) = named?;
        let (key, rest) = word(rest)?;
        let (program, _) = word(rest.strip_prefix(' ')?)?;
        let read = Self { url, key, program, hears };
        // SECURITY: only what was parsed here is run later, and nothing after it.
        (read.text(client) == line).then_some(read)
    }
}

/// The first word of a shell line written by [`quoted`], and the rest.
fn word(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut rest = text;
    loop {
        if let Some(inside) = rest.strip_prefix('\'') {
            let (part, after) = inside.split_once('\'')?;
            word.push_str(part);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\\'") {
            word.push('\'');
            rest = after;
        } else {
            let end = rest.find([' ', '\'', '\\']).unwrap_or(rest.len());
            if end == 0 {
                return Some((word, rest));
            }
            let (part, after) = rest.split_at(end);
            word.push_str(part);
            rest = after;
        }
    }
}

/// The edit for the prompt hook; removes it if there is no task key.
fn prompt_edit(path: &'static [&'static str], hook: Option<Value>) -> ClientFileEdit {
    match hook {
        Some(hook) => ClientFileEdit::Push(path, hook, HOOK),
        None => ClientFileEdit::Pull(path, HOOK),
    }
}

fn with(mut value: Value, name: &str, field: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.insert(name.to_owned(), field);
    }
    value
}

/// A word of a shell line, quoted.
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

    fn place() -> SetupPaths {
        SetupPaths {
            home: "/home/u".into(),
            here: "/srv/app".into(),
            program: "/usr/local/bin/sluice".into(),
            url: "http://127.0.0.1:7420".into(),
            key: "/home/u/it's.key".into(),
            task_key: Some("/home/u/it's.task".into()),
        }
    }

    #[test]
    fn every_client_gets_its_files_and_applying_twice_changes_nothing() {
        let all = [
            SetupClient::ClaudeCode,
            SetupClient::ClaudeDesktop,
            SetupClient::Codex,
            SetupClient::Gemini,
            SetupClient::Cursor,
            SetupClient::Vscode,
        ];
        for client in all {
            let changes = of(client, true, SetupScope::Project, &place());
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
    fn a_hook_line_is_read_back_only_if_it_is_exactly_ours() {
        let line = place().hook("codex");
        let read = HookCommandLine::read(&line, "codex").unwrap();
        assert_eq!((read.key.as_str(), read.program.as_str()), ("/home/u/it's.key", "/usr/local/bin/sluice"));
        for other in [
            line.replace(" hook codex #", " hook codex; rm -rf / #"),
            line.replace("SLUICE_URL=", "SLUICE_URL=$(id)"),
            format!("{line}\nid"),
            line.replace("codex", "cursor"),
        ] {
            assert_eq!(HookCommandLine::read(&other, "codex"), None, "{other}");
        }
    }

    #[test]
    fn the_task_key_is_given_to_the_hook_that_hears_prompts_and_to_nothing_else() {
        for (client, name, event) in [
            (SetupClient::ClaudeCode, "claude-code", "UserPromptSubmit"),
            (SetupClient::Codex, "codex", "UserPromptSubmit"),
            (SetupClient::Gemini, "gemini", "BeforeAgent"),
            (SetupClient::Cursor, "cursor", "beforeSubmitPrompt"),
        ] {
            let text = |place: &SetupPaths| -> String {
                of(client, true, SetupScope::Project, place)
                    .iter()
                    .map(|change| change.edit.apply("").unwrap())
                    .collect()
            };
            let whole = text(&place());
            assert!(whole.contains(event), "{whole}");
            assert_eq!(whole.matches("SLUICE_TASK_KEY_FILE").count(), 1, "{whole}");
            let line = place().prompt_hook(name).unwrap();
            assert!(!line.contains("SLUICE_AGENT_KEY"), "{line}");
            let read = HookCommandLine::read(&line, name).unwrap();
            assert_eq!((read.hears, read.key.as_str()), (HookEventSource::Prompts, "/home/u/it's.task"));
            let without = text(&SetupPaths { task_key: None, ..place() });
            assert!(!without.contains("TASK_KEY"), "{without}");
        }
    }

    #[test]
    fn hooks_are_asked_about_every_tool() {
        let text = |client| -> String {
            of(client, true, SetupScope::Project, &place())
                .iter()
                .map(|change| change.edit.apply("").unwrap())
                .collect()
        };
        assert!(text(SetupClient::ClaudeCode).contains("\"matcher\": \"*\""));
        assert!(text(SetupClient::Gemini).contains("\"matcher\": \".*\""));
        assert!(text(SetupClient::Cursor).contains("\"preToolUse\""));
        assert!(!text(SetupClient::ClaudeCode).contains(ALL_TOOLS), "the hook answers for the gate's own tools");
    }

    #[test]
    fn a_server_of_our_name_that_is_not_ours_is_left_alone() {
        let text = "{\"mcpServers\": {\"sluice\": {\"command\": \"my-own\"}}}";
        for client in [SetupClient::ClaudeCode, SetupClient::ClaudeDesktop, SetupClient::Gemini, SetupClient::Cursor] {
            let changes = of(client, false, SetupScope::Project, &place());
            let edit = &changes.first().unwrap().edit;
            assert!(edit.apply(text).unwrap_err().contains("not written by sluice"), "{client:?}");
            assert_eq!(edit.undo(text).unwrap(), text);
            assert_eq!(members::get(&edit.undo(&edit.apply("{}").unwrap()).unwrap(), &["mcpServers", "sluice"]), None);
        }
    }

    #[test]
    fn hooks_fail_closed_where_the_client_can_say_so() {
        let text = |client| -> String {
            of(client, true, SetupScope::Project, &place())
                .iter()
                .map(|change| change.edit.apply("").unwrap())
                .collect()
        };
        assert!(text(SetupClient::ClaudeCode).contains("\"onFailure\": \"block\""));
        assert!(text(SetupClient::Cursor).contains("\"failClosed\": true"));
        assert!(text(SetupClient::Codex).contains("required = true"));
        // Each client waits longer for the hook than the hook waits for a person.
        for client in [SetupClient::ClaudeCode, SetupClient::Codex, SetupClient::Gemini, SetupClient::Cursor] {
            assert!(text(client).contains("timeout"), "{client:?}");
        }
        assert!(text(SetupClient::ClaudeCode).contains("'/home/u/it'\\\\''s.key'"), "names are quoted for the shell");
    }
}
