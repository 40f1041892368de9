//! The gateway's own files: finds tool calls of a coding agent that name them.
//!
//! Takes the arguments of a tool call and the folder it starts in; gives the first path among them that lies in a
//! gateway's data folder, configuration, policies or a client's keys. Promise: the result does not depend on which tool
//! or argument names the path, or how it is written: `..`, links, `~`, quotes, shell words, file name patterns. Files
//! that a running program opens by itself are not seen here.

mod walked;

use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use sluice_config::{Config, DatabaseLocation};
use sluice_core::shell::possible_paths;

/// Files that only a data folder holds.
const MARKS: [&str; 2] = ["sluice.db", "operator.token"];
/// Files that are recognized by name alone.
const NAMES: [&str; 3] = ["operator.token", "sluice.db", "sluice.db-wal"];
/// What lies next to a configuration file.
const BESIDE: [&str; 3] = ["sluice.yaml", "data", "policies"];
/// Where clients keep keys and sessions, inside a home folder.
const CLIENT: [&str; 3] = [".config/sluice", ".local/state/sluice", ".local/share/sluice"];
/// Arguments that hold text to write or to search for, not paths.
const TEXT: [&str; 13] = [
    "content",
    "contents",
    "new_string",
    "old_string",
    "new_source",
    "body",
    "text",
    "message",
    "prompt",
    "query",
    "description",
    "instructions",
    "explanation",
];
/// The longest text that is treated as a path, and the longest that is read as a command.
const PATH: usize = 4096;
const COMMAND: usize = 256 << 10;
/// How many pieces of one text are looked up on the disk; the rest are compared as written.
const LOOKED_UP: usize = 256;

/// What is protected, and where relative paths begin.
#[derive(Debug, Clone, Default)]
pub struct GatewayOwnFiles {
    /// Folders and files of this gateway, with links resolved.
    folders: Vec<PathBuf>,
    /// The folders that `~` may stand for.
    homes: Vec<PathBuf>,
}

impl GatewayOwnFiles {
    /// The own files of a running gateway.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let mut folders = vec![config.data.clone(), config.policies.clone(), config.capabilities.clone()];
        folders.extend(config.file.clone());
        // Changing these files can make a restored database look like the original one.
        folders.extend([config.state_file.clone(), config.checkpoints_file.clone()]);
        if let DatabaseLocation::File(path) = &config.database {
            folders.push(path.clone());
        }
        let folders: Vec<PathBuf> = folders.iter().flat_map(|folder| [folder.clone(), real(folder)]).collect();
        // The home of the owner of these folders; the gateway may run as another user.
        let homes = folders.iter().filter_map(|folder| home_above(folder)).collect();
        Self { folders, homes }
    }

    /// The first own file that lies in this folder, or that this path lies in.
    #[must_use]
    pub fn touched_by(&self, path: &Path) -> Option<&Path> {
        let there = real(path);
        let touches = |own: &&PathBuf| own.starts_with(&there) || there.starts_with(own);
        self.folders.iter().find(touches).map(PathBuf::as_path)
    }

    /// The own files of any gateway on this machine, recognized by what their folders hold.
    #[must_use]
    pub fn nearby(home: Option<PathBuf>) -> Self {
        Self { folders: Vec::new(), homes: home.into_iter().collect() }
    }

    /// The first own file that the arguments of a tool call name.
    #[must_use]
    pub fn named_in(&self, arguments: &Value, folder: Option<&str>) -> Option<PathBuf> {
        let mut found = None;
        each_text(arguments, None, 0, &mut |key, text| {
            if found.is_some() {
                return;
            }
            let is_command = matches!(key, Some("command" | "cmd" | "script" | "input")) || text.contains(' ');
            let pieces = match patched(text) {
                // What a patch writes into files is text; only the file names in it are paths.
                Some(files) => files,
                None if is_command && text.len() <= COMMAND => possible_paths(text),
                None => Vec::new(),
            };
            let whole = (text.len() <= PATH && !text.contains('\n')).then(|| text.to_owned());
            let mut all = whole.iter().chain(&pieces).enumerate();
            found = all.find_map(|(n, piece)| self.hit(piece, folder, n < LOOKED_UP));
        });
        found
    }

    /// Whether a piece of text is a path to an own file.
    fn hit(&self, piece: &str, folder: Option<&str>, look_up: bool) -> Option<PathBuf> {
        if piece.is_empty() || piece.len() > PATH || piece.contains('\0') {
            return None;
        }
        let piece = piece.strip_prefix("file://").unwrap_or(piece);
        let paths: Vec<PathBuf> = match piece.strip_prefix("~/").or((piece == "~").then_some("")) {
            Some(rest) => self.homes.iter().map(|home| home.join(rest)).collect(),
            None => vec![folder.map_or_else(PathBuf::new, PathBuf::from).join(piece)],
        };
        let is_own = |path: &Path| {
            self.folders.iter().any(|own| path.starts_with(own) || fits(path, own))
                || (piece.contains('/') && path.file_name().is_some_and(|name| NAMES.iter().any(|own| name == *own)))
                || self.homes.iter().any(|home| CLIENT.iter().any(|own| path.starts_with(home.join(own))))
        };
        paths.iter().find_map(|path| {
            let lexical = normal(path);
            if is_own(&lexical) {
                return Some(lexical);
            }
            let really = look_up.then(|| real(path))?;
            (is_own(&really) || is_marked(&really) || is_marked(&lexical)).then_some(really)
        })
    }
}

/// The files that a patch names, if the text is a patch.
fn patched(text: &str) -> Option<Vec<String>> {
    let starts = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let named =
        |line: &str| starts.iter().find_map(|start| line.strip_prefix(start)).map(|file| file.trim().to_owned());
    text.trim_start().starts_with("*** Begin Patch").then(|| text.lines().filter_map(named).collect())
}

/// The home folder that a path lies in.
fn home_above(path: &Path) -> Option<PathBuf> {
    let depth = if path.starts_with("/home") || path.starts_with("/Users") { 3 } else { 2 };
    let is_home = depth == 3 || path.starts_with("/root");
    is_home.then(|| path.components().take(depth).collect())
}

/// Whether a path lies in a folder with files that only a gateway's folder holds.
fn is_marked(path: &Path) -> bool {
    path.ancestors().take(64).any(|folder| {
        MARKS.iter().any(|mark| folder.join(mark).is_file())
            || (folder.join("sluice.yaml").is_file()
                && path.strip_prefix(folder).is_ok_and(|rest| BESIDE.iter().any(|own| rest.starts_with(own))))
    })
}

/// Whether a path with file name patterns may lead into a folder.
fn fits(path: &Path, own: &Path) -> bool {
    let text = |part: Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let parts: Vec<String> = path.components().map(text).collect();
    let own: Vec<String> = own.components().map(text).collect();
    if !parts.iter().any(|part| part.contains(['*', '?', '['])) {
        return false;
    }
    for (part, name) in parts.iter().zip(&own) {
        if part.contains("**") {
            return true;
        }
        if !stars(part, name) {
            return false;
        }
    }
    parts.len() >= own.len()
}

/// Whether a name may match a pattern. A bracket matches anything.
fn stars(pattern: &str, name: &str) -> bool {
    let Some(at) = pattern.find(['*', '?', '[']) else { return pattern == name };
    let (Some(start), Some(rest)) = (pattern.get(..at), pattern.get(at + 1..)) else { return true };
    let Some(left) = name.strip_prefix(start) else { return false };
    let end = rest.rfind(['*', '?', ']']).map_or(rest, |at| rest.get(at + 1..).unwrap_or_default());
    left.ends_with(end)
}

/// A path without `.` and `..`, links not resolved.
fn normal(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(clean.pop()),
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => clean.push(part),
        }
    }
    clean
}

/// A path with links resolved, as far as it exists.
pub fn real(path: &Path) -> PathBuf {
    for ancestor in path.ancestors().take(64) {
        if let Ok(found) = std::fs::canonicalize(ancestor) {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return normal(&found.join(rest));
        }
    }
    normal(path)
}

/// Passes every text of the arguments to `see`, with the name of its argument.
fn each_text<'v>(value: &'v Value, key: Option<&'v str>, depth: usize, see: &mut impl FnMut(Option<&str>, &'v str)) {
    match value {
        _ if depth > 16 || key.is_some_and(|key| TEXT.contains(&key)) => {}
        Value::String(text) => see(key, text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, key, depth + 1, see)),
        Value::Object(members) => members.iter().for_each(|(key, item)| each_text(item, Some(key), depth + 1, see)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_file_that_the_configuration_calls_its_own_is_protected() {
        let world = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(world.path()).unwrap();
        let file = base.join("sluice.yaml");
        std::fs::write(&file, "recovery: {state_file: kept/state.json, checkpoints_file: log/checkpoints}\n").unwrap();
        let around = sluice_config::ConfigContext { here: base.clone(), ..sluice_config::ConfigContext::default() };
        let (config, _) = Config::load(Some(&file), &[], &around).unwrap();
        let own = GatewayOwnFiles::of(&config);
        let DatabaseLocation::File(database) = &config.database else { panic!("a file by default") };
        for path in [&config.data, &config.policies, &file, database, &config.state_file, &config.checkpoints_file] {
            let call = json!({"command": format!("cat {}", path.display())});
            assert!(own.named_in(&call, Some("/")).is_some(), "{call}");
        }
        assert_eq!(own.named_in(&json!({"command": format!("cat {}/notes", base.display())}), Some("/")), None);
    }

    #[test]
    fn no_spelling_of_a_path_into_the_gateways_folder_is_missed() {
        let world = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(world.path()).unwrap();
        let gate = base.join("gate");
        for folder in ["gate/data/keys", "gate/data/agents", "gate/policies", "gate/workspace", "app/src"] {
            std::fs::create_dir_all(base.join(folder)).unwrap();
        }
        for file in ["gate/data/operator.token", "gate/data/sluice.db", "gate/sluice.yaml", "gate/policies/org.yaml"] {
            std::fs::write(base.join(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(gate.join("data"), base.join("app/link")).unwrap();
        let app = base.join("app");
        let (app, gate) = (app.to_str().unwrap(), gate.to_str().unwrap());
        let known = GatewayOwnFiles {
            folders: vec![base.join("gate/data"), base.join("gate/policies"), base.join("gate/sluice.yaml")],
            homes: vec![base.clone()],
        };
        let found_by_marks = GatewayOwnFiles::nearby(Some(base.clone()));
        let own = [
            json!({"file_path": format!("{gate}/data/operator.token")}),
            json!({"file_path": format!("{gate}/data/agents/coder.key")}),
            json!({"path": format!("{gate}/data")}),
            json!({"path": format!("{gate}/workspace/../data/keys/root.key")}),
            json!({"path": "../gate/data/x"}),
            json!({"path": "link/x"}),
            json!({"path": "src/../link"}),
            json!({"path": "~/gate/data/operator.token"}),
            json!({"file_path": format!("{gate}/sluice.yaml")}),
            json!({"file_path": format!("{gate}/policies/agents/coder.yaml")}),
            json!({"paths": ["src/a", format!("{gate}/data/x")]}),
            json!({"edits": [{"target": {"uri": format!("file://{gate}/data/x")}}]}),
            json!({"command": format!("cat {gate}/data/operator.token")}),
            json!({"command": format!("cat '{gate}/da'ta/\"operator.token\"")}),
            json!({"command": "cat ../gate/data/x | base64"}),
            json!({"command": "cd ../gate && cat data/x"}),
            json!({"command": "cat < ~/gate/data/x"}),
            json!({"command": "cat $HOME/gate/data/x"}),
            json!({"command": format!("X={gate}/data/x; cat $X")}),
            json!({"command": format!("tar --file=out.tar {gate}/data")}),
            json!({"command": format!("python -c \"open('{gate}/data/x')\"")}),
            json!({"command": format!("sh -c 'cp {gate}/data/x .'")}),
            json!({"command": format!("cat {gate}/data/x $(")}),
            json!({"command": ["bash", "-lc", format!("ls {gate}/data")]}),
            json!({"command": "cat $D/operator.token"}),
            json!({"command": "cat link/x"}),
            json!({"input": format!("*** Begin Patch\n*** Update File: {gate}/policies/org.yaml\n")}),
            json!({"command": "cat ~/.config/sluice/key"}),
        ];
        for arguments in &own {
            assert!(known.named_in(arguments, Some(app)).is_some(), "{arguments}");
            assert!(found_by_marks.named_in(arguments, Some(app)).is_some(), "by its marks: {arguments}");
        }
        let pattern = json!({"command": format!("cat {gate}/d*/op*")});
        assert!(known.named_in(&pattern, Some(app)).is_some());
        for arguments in [
            json!({"file_path": format!("{app}/src/main.rs")}),
            json!({"file_path": format!("{gate}/workspace/notes.md")}),
            json!({"command": "ls -la src && cargo test"}),
            json!({"path": "notes.md", "content": format!("the token lies in {gate}/data/operator.token")}),
            json!({"command": format!("ls {gate}x/data")}),
            json!({"command": "cat *.rs"}),
            json!({"command": "grep -rn operator.token src"}),
            json!({"input": format!("*** Begin Patch\n*** Update File: src/a.rs\n+// {gate}/data/operator.token\n")}),
            json!({"n": 1}),
        ] {
            assert_eq!(known.named_in(&arguments, Some(app)), None, "{arguments}");
            assert_eq!(found_by_marks.named_in(&arguments, Some(app)), None, "{arguments}");
        }
    }
}
