//! Folders around the gateway's own files: finds tool calls that read, copy or change everything below one.
//!
//! Takes the arguments of a tool call and the folder it starts in; gives the first own file that lies below a folder
//! which the call walks through: `grep -r`, `rg`, `cp -r`, `tar -c`, `find -exec`, a client's search tool. Promise: such a
//! call is found however the folder is written, and also where it is only the current one. Programs that only list
//! names are not found, unless the names go to another program.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_core::shell::{walked_folders, walked_folders_of_words};

use super::{COMMAND, GatewayOwnFiles, MARKS, PATH, TEXT, each_text, normal, patched, real, stars};

/// Arguments that hold commands.
const COMMANDS: [&str; 4] = ["command", "cmd", "script", "input"];
/// Arguments that are search terms, not folders.
const TERMS: [&str; 6] = ["pattern", "regex", "glob", "include", "exclude", "search"];
/// Parts of the names of tools that read, copy or change everything below a folder.
const WALKING_TOOLS: [&str; 10] =
    ["grep", "search", "copy", "move", "rename", "delete", "remove", "archive", "zip", "upload"];
/// Parts of the names of those that search the current folder if none is named.
const SEARCH_HERE: [&str; 3] = ["grep", "search_file", "semanticsearch"];
/// How the names of tools begin that a server carries out.
const SERVED: &str = "custom:mcp.";
/// How many folders above a key may hold the gateway that it belongs to.
const ABOVE_KEY: usize = 4;

impl GatewayOwnFiles {
    /// Adds the gateway in whose data folder this key lies, if it lies in one.
    #[must_use]
    pub fn and_of_key(mut self, key: &Path) -> Self {
        let key = real(key);
        let data = key.ancestors().take(ABOVE_KEY).find(|folder| MARKS.iter().any(|mark| folder.join(mark).is_file()));
        self.folders.extend(data.map(Path::to_path_buf));
        self
    }

    /// The first own file below a folder that this call of a tool walks through.
    #[must_use]
    pub fn walked_in(&self, tool: &str, arguments: &Value, folder: Option<&str>) -> Option<PathBuf> {
        let mut walked = commands_of(arguments, None, 0);
        if walked.is_empty() {
            let tool = tool.to_ascii_lowercase();
            if !WALKING_TOOLS.iter().any(|part| tool.contains(part)) {
                return None;
            }
            walked = folders_of(arguments);
            // A server may stand for another machine, where `/` is a folder like any other.
            walked.retain(|piece| piece != "/" || !tool.starts_with(SERVED));
            if walked.is_empty() && SEARCH_HERE.iter().any(|part| tool.contains(part)) {
                walked.push(".".to_owned());
            }
        }
        walked.iter().find_map(|piece| self.below(piece, folder))
    }

    /// An own file that lies below a folder, or is that folder.
    fn below(&self, piece: &str, folder: Option<&str>) -> Option<PathBuf> {
        if piece.len() > PATH || piece.contains('\0') {
            return None;
        }
        let piece = piece.strip_prefix("file://").unwrap_or(piece);
        let paths: Vec<PathBuf> = match piece.strip_prefix("~/").or((piece == "~").then_some("")) {
            Some(rest) => self.homes.iter().map(|home| home.join(rest)).collect(),
            None => vec![folder.map_or_else(PathBuf::new, PathBuf::from).join(piece)],
        };
        let above = |own: &&PathBuf| {
            paths.iter().any(|path| {
                let lexical = normal(path);
                path.is_absolute()
                    && (own.starts_with(&lexical) || own.starts_with(real(path)) || leads_to(&lexical, own))
            })
        };
        self.folders.iter().find(above).cloned()
    }
}

/// The folders that the commands among the arguments walk through.
fn commands_of(value: &Value, key: Option<&str>, depth: usize) -> Vec<String> {
    let is_command = key.is_some_and(|key| COMMANDS.contains(&key));
    match value {
        _ if depth > 16 || key.is_some_and(|key| TEXT.contains(&key)) => Vec::new(),
        // What a patch writes into files is text.
        Value::String(text) if is_command && text.len() <= COMMAND && patched(text).is_none() => walked_folders(text),
        Value::Array(items) if is_command && items.iter().all(Value::is_string) => {
            walked_folders_of_words(&items.iter().filter_map(Value::as_str).collect::<Vec<_>>())
        }
        Value::Array(items) => items.iter().flat_map(|item| commands_of(item, key, depth + 1)).collect(),
        Value::Object(members) => {
            members.iter().flat_map(|(key, item)| commands_of(item, Some(key), depth + 1)).collect()
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// Everything among the arguments of a tool that could be a folder.
fn folders_of(arguments: &Value) -> Vec<String> {
    let mut found = Vec::new();
    each_text(arguments, None, 0, &mut |key, text| {
        let is_term = key.is_some_and(|key| TERMS.contains(&key) || COMMANDS.contains(&key));
        if !is_term && key != Some("cwd") && text.len() <= PATH && !text.contains('\n') {
            found.push(text.to_owned());
        }
    });
    found
}

/// Whether a path with file name patterns may be a folder above an own file.
fn leads_to(path: &Path, own: &Path) -> bool {
    let text = |part: std::path::Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let parts: Vec<String> = path.components().map(text).collect();
    parts.iter().any(|part| part.contains(['*', '?', '[']))
        && parts.len() <= own.components().count()
        && parts.iter().zip(own.components().map(text)).all(|(part, name)| stars(part, &name))
}
