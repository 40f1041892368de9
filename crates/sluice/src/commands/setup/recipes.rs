//! Recipes: what belongs into which file of which client.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{For, Scope, block, members};

/// What marks a hook as ours: the end of its line.
pub(crate) const HOOK: &str = "# sluice hook ";
/// What a hook is called where hooks have names.
pub(crate) const NAME: &str = "sluice";
/// What lets Claude Code use every tool of a server of our name.
const ALL_TOOLS: &str = "mcp__sluice__*";
/// How long a client waits for a hook, in seconds; the hook itself gives up before.
const HOOK_SECONDS: u64 = 600;
/// How long a client waits until the gate knows what the user typed, in seconds.
const PROMPT_SECONDS: u64 = 30;
/// How long a client waits until the gate has looked at what a tool left, in seconds.
const DONE_SECONDS: u64 = 30;

/// Where everything is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) home: PathBuf,
    pub(super) here: PathBuf,
    pub(super) program: String,
    pub(super) url: String,
    pub(super) key: String,
    /// File with the task key, for the hook that hears prompts and nothing else.
    pub(super) task_key: Option<String>,
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
    /// Our server, as a member of a JSON object.
    Server(&'static [&'static str], Value),
    /// A member of a JSON object that the file needs, where it is not there.
    Need(&'static [&'static str], Value),
    /// An element of a JSON list.
    Push(&'static [&'static str], Value, &'static str),
    /// No such element of a JSON list.
    Pull(&'static [&'static str], &'static str),
    /// A block of a TOML file.
    Block(String),
}

impl Edit {
    pub(super) fn apply(&self, text: &str) -> Result<String, String> {
        match self {
            Self::Server(path, value) => match members::get(text, path) {
                Some(there) if !is_bridge(&there) => Err(format!("`{}` is there already, not ours", path.join("."))),
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

    /// The text without what is ours.
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

/// Whether a file has nothing in it that a client or person put there.
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

/// Where a client may have its hooks, ours or others'.
pub(crate) fn hook_files(client: For, home: &Path, here: &Path) -> Vec<PathBuf> {
    let (name, local) = match client {
        For::ClaudeCode => (".claude/settings.json", Some(".claude/settings.local.json")),
        For::Codex => (".codex/config.toml", None),
        For::Gemini => (".gemini/settings.json", None),
        For::Cursor => (".cursor/hooks.json", None),
        For::ClaudeDesktop | For::Vscode => return Vec::new(),
    };
    local.into_iter().map(|name| here.join(name)).chain([here.join(name), home.join(name)]).collect()
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
            put(servers, Edit::Server(&["mcpServers", "sluice"], with(place.server(), "type", json!("stdio"))));
            // The gate asks people; the client need not ask them a second time. The hook says so for tools that are
            // really the gate's; the pattern would take in a server called `sluice__other` as well.
            let allowed: &[&str] = &["permissions", "allow"];
            if hooks {
                put(settings.clone(), Edit::Pull(allowed, ALL_TOOLS));
                // Everything, so that a tool of tomorrow is asked about; the hook lets known reads pass.
                put(settings.clone(), Edit::Push(&["hooks", "PreToolUse"], place.claude_hook("*"), HOOK));
                // What a tool left is looked at once it is done, so that it can be taken back.
                let tools = "Write|Edit|MultiEdit|NotebookEdit|Bash";
                let done = json!({"matcher": tools, "hooks": [place.done_hook("claude-code")]});
                put(settings.clone(), Edit::Push(&["hooks", "PostToolUse"], done, HOOK));
                put(settings, place.claude_prompt());
            } else {
                put(settings, Edit::Push(allowed, json!(ALL_TOOLS), ALL_TOOLS));
            }
        }
        For::ClaudeDesktop => {
            put(desktop(&place.home), Edit::Server(&["mcpServers", "sluice"], place.server()));
        }
        For::Codex => put(home(".codex/config.toml"), Edit::Block(place.codex(hooks))),
        For::Gemini => {
            let file = home(".gemini/settings.json");
            let server = with(with(place.server(), "timeout", json!(HOOK_SECONDS * 1000)), "trust", json!(true));
            put(file.clone(), Edit::Server(&["mcpServers", "sluice"], server));
            if hooks {
                let hook = json!({
                    "matcher": ".*",
                    "hooks": [{
                        "type": "command", "name": NAME, "command": place.hook("gemini"), "timeout": HOOK_SECONDS * 1000,
                    }],
                });
                put(file.clone(), Edit::Push(&["hooks", "BeforeTool"], hook, HOOK));
                let done = with(place.done_hook("gemini"), "timeout", json!(DONE_SECONDS * 1000));
                let done = json!({"matcher": "write_file|replace|run_shell_command", "hooks": [done]});
                put(file.clone(), Edit::Push(&["hooks", "AfterTool"], done, HOOK));
                let prompts = place.prompt_hook("gemini").map(|line| {
                    let timeout = PROMPT_SECONDS * 1000;
                    json!({"hooks": [{"type": "command", "name": NAME, "command": line, "timeout": timeout}]})
                });
                put(file, prompt_edit(&["hooks", "BeforeAgent"], prompts));
            }
        }
        For::Cursor => {
            put(home(".cursor/mcp.json"), Edit::Server(&["mcpServers", "sluice"], place.server()));
            if hooks {
                let file = home(".cursor/hooks.json");
                let hook = json!({"command": place.hook("cursor"), "timeout": HOOK_SECONDS, "failClosed": true});
                put(file.clone(), Edit::Need(&["version"], json!(1)));
                put(file.clone(), Edit::Push(&["hooks", "beforeMCPExecution"], hook.clone(), HOOK));
                put(file.clone(), Edit::Push(&["hooks", "beforeShellExecution"], hook.clone(), HOOK));
                // What changes files has no event of its own before it does.
                put(file.clone(), Edit::Push(&["hooks", "preToolUse"], hook, HOOK));
                let done = json!({"command": place.hook("cursor"), "timeout": DONE_SECONDS});
                put(file.clone(), Edit::Push(&["hooks", "postToolUse"], done.clone(), HOOK));
                put(file.clone(), Edit::Push(&["hooks", "afterShellExecution"], done, HOOK));
                let prompts = place.prompt_hook("cursor");
                let prompts = prompts.map(|line| json!({"command": line, "timeout": PROMPT_SECONDS}));
                put(file, prompt_edit(&["hooks", "beforeSubmitPrompt"], prompts));
            }
        }
        For::Vscode => {
            let server = with(place.server(), "type", json!("stdio"));
            put(place.here.join(".vscode/mcp.json"), Edit::Server(&["servers", "sluice"], server));
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

    fn hook(&self, client: &str) -> String {
        let (url, key, program) = (self.url.clone(), self.key.clone(), self.program.clone());
        Line { url, key, program, hears: Hears::Tools }.text(client)
    }

    /// The hook that hears what the user types. It alone is given the task key.
    fn prompt_hook(&self, client: &str) -> Option<String> {
        let (url, program) = (self.url.clone(), self.program.clone());
        let key = self.task_key.clone()?;
        Some(Line { url, key, program, hears: Hears::Prompts }.text(client))
    }

    /// The hook that hears that a tool is done.
    fn done_hook(&self, client: &str) -> Value {
        let hook = json!({"type": "command", "command": self.hook(client), "timeout": DONE_SECONDS});
        if client == "gemini" { with(hook, "name", json!(NAME)) } else { hook }
    }

    fn claude_prompt(&self) -> Edit {
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

/// A hook as a line of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) program: String,
    pub(crate) hears: Hears,
}

/// What a hook hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hears {
    /// Tools, with the agent's key.
    Tools,
    /// What the user types, with the task key.
    Prompts,
}

impl Hears {
    const ALL: [Self; 2] = [Self::Tools, Self::Prompts];

    /// The variable that names the file with its key.
    const fn variable(self) -> &'static str {
        match self {
            Self::Tools => "SLUICE_AGENT_KEY_FILE",
            Self::Prompts => "SLUICE_TASK_KEY_FILE",
        }
    }
}

impl Line {
    /// As it is written. The mark stands at its end, whatever the program's file is called.
    pub(crate) fn text(&self, client: &str) -> String {
        let (program, url, key) = (quoted(&self.program), quoted(&self.url), quoted(&self.key));
        let variable = self.hears.variable();
        format!("SLUICE_URL={url} {variable}={key} {program} hook {client} {HOOK}{client}")
    }

    /// Its parts, if it is exactly as we write it.
    pub(crate) fn read(line: &str, client: &str) -> Option<Self> {
        let rest = line.strip_prefix("SLUICE_URL=")?;
        let (url, rest) = word(rest)?;
        let rest = rest.strip_prefix(' ')?;
        let named = Hears::ALL
            .into_iter()
            .find_map(|hears| Some((hears, rest.strip_prefix(hears.variable())?.strip_prefix('=')?)));
        let (hears, rest) = named?;
        let (key, rest) = word(rest)?;
        let (program, _) = word(rest.strip_prefix(' ')?)?;
        let read = Self { url, key, program, hears };
        // SECURITY: what is run later is what was understood here, and nothing behind it.
        (read.text(client) == line).then_some(read)
    }
}

/// The first word of a shell line that [`quoted`] wrote, and what follows.
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

/// The hook that hears prompts, or none where there is no task key.
fn prompt_edit(path: &'static [&'static str], hook: Option<Value>) -> Edit {
    match hook {
        Some(hook) => Edit::Push(path, hook, HOOK),
        None => Edit::Pull(path, HOOK),
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
            task_key: Some("/home/u/it's.task".into()),
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
    fn a_hook_line_is_read_back_only_if_it_is_exactly_ours() {
        let line = place().hook("codex");
        let read = Line::read(&line, "codex").unwrap();
        assert_eq!((read.key.as_str(), read.program.as_str()), ("/home/u/it's.key", "/usr/local/bin/sluice"));
        for other in [
            line.replace(" hook codex #", " hook codex; rm -rf / #"),
            line.replace("SLUICE_URL=", "SLUICE_URL=$(id)"),
            format!("{line}\nid"),
            line.replace("codex", "cursor"),
        ] {
            assert_eq!(Line::read(&other, "codex"), None, "{other}");
        }
    }

    #[test]
    fn the_task_key_is_given_to_the_hook_that_hears_prompts_and_to_nothing_else() {
        for (client, name, event) in [
            (For::ClaudeCode, "claude-code", "UserPromptSubmit"),
            (For::Codex, "codex", "UserPromptSubmit"),
            (For::Gemini, "gemini", "BeforeAgent"),
            (For::Cursor, "cursor", "beforeSubmitPrompt"),
        ] {
            let text = |place: &Place| -> String {
                of(client, true, Scope::Project, place).iter().map(|change| change.edit.apply("").unwrap()).collect()
            };
            let whole = text(&place());
            assert!(whole.contains(event), "{whole}");
            assert_eq!(whole.matches("SLUICE_TASK_KEY_FILE").count(), 1, "{whole}");
            let line = place().prompt_hook(name).unwrap();
            assert!(!line.contains("SLUICE_AGENT_KEY"), "{line}");
            let read = Line::read(&line, name).unwrap();
            assert_eq!((read.hears, read.key.as_str()), (Hears::Prompts, "/home/u/it's.task"));
            let without = text(&Place { task_key: None, ..place() });
            assert!(!without.contains("TASK_KEY"), "{without}");
        }
    }

    #[test]
    fn hooks_are_asked_about_every_tool() {
        let text = |client| -> String {
            of(client, true, Scope::Project, &place()).iter().map(|change| change.edit.apply("").unwrap()).collect()
        };
        assert!(text(For::ClaudeCode).contains("\"matcher\": \"*\""));
        assert!(text(For::Gemini).contains("\"matcher\": \".*\""));
        assert!(text(For::Cursor).contains("\"preToolUse\""));
        assert!(!text(For::ClaudeCode).contains(ALL_TOOLS), "the hook answers for the gate's own tools");
    }

    #[test]
    fn a_server_of_our_name_that_is_not_ours_is_left_alone() {
        let text = "{\"mcpServers\": {\"sluice\": {\"command\": \"my-own\"}}}";
        for client in [For::ClaudeCode, For::ClaudeDesktop, For::Gemini, For::Cursor] {
            let changes = of(client, false, Scope::Project, &place());
            let edit = &changes.first().unwrap().edit;
            assert!(edit.apply(text).unwrap_err().contains("not ours"), "{client:?}");
            assert_eq!(edit.undo(text).unwrap(), text);
            assert_eq!(members::get(&edit.undo(&edit.apply("{}").unwrap()).unwrap(), &["mcpServers", "sluice"]), None);
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
        // Each waits longer for the hook than the hook for a person.
        for client in [For::ClaudeCode, For::Codex, For::Gemini, For::Cursor] {
            assert!(text(client).contains("timeout"), "{client:?}");
        }
        assert!(text(For::ClaudeCode).contains("'/home/u/it'\\\\''s.key'"), "names are quoted for the shell");
    }
}
