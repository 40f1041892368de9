//! A declared program, and the way from its command and a call's arguments to the command line that is run.
//!
//! Promise: an argument fills the place it was declared for and nothing else. It is one item of the command line or a
//! part of one, or a JSON value on standard input; the program, the number of items before and after it and the options
//! are those of the file, whatever the arguments are. A value that would begin an option is refused unless its place
//! stands after `--` or directly after `=`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::CustomCapability;
use super::request::{KEY, TemplateContext};
use crate::ids::SecretName;
use crate::proxy::{FillError, TemplatePiece, fill_json, pieces, plain};

/// Prefix of a value of `environment` that names a secret of the vault.
const SECRET: &str = "secret:";
/// The item after which nothing is an option.
const END_OF_OPTIONS: &str = "--";
/// What `input` is when the program reads all arguments as one JSON object.
pub(super) const WHOLE: &str = "json";

/// The program of a custom capability.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredProgram {
    /// The program by its whole path, and its arguments; `{argument}` fills an item or a part of one.
    pub command: Vec<String>,
    /// What it reads: `json` for all arguments as one object, or a JSON value with places.
    #[serde(default)]
    pub input: Option<Value>,
    /// The folder it starts in: one of `reads` or `writes`, or below one. A temporary folder of its own unless given.
    #[serde(default)]
    pub folder: Option<String>,
    /// Files and folders beside those of the system that it may read and execute.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Files and folders that it may read and change.
    #[serde(default)]
    pub writes: Vec<String>,
    /// Further files whose content belongs to what is approved, such as a script's modules or configuration.
    #[serde(default)]
    pub files: Vec<String>,
    /// Hosts whose port 443 it may reach; none unless given.
    #[serde(default)]
    pub network: Vec<String>,
    /// Private addresses that these hosts may have.
    #[serde(default)]
    pub allow_addresses: Vec<String>,
    /// Variables: a text, `secret:NAME` for a secret of the vault, or `{call.key}`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Limits on its time, memory and output.
    #[serde(default)]
    pub limits: ProgramLimits,
    /// The JSON Schema of what it prints. Without one, what it prints is text.
    #[serde(default)]
    pub answer: Option<Value>,
    /// What its exit codes prove.
    #[serde(default)]
    pub exit_codes: ExitCodes,
    /// The program that finds out whether a write with an unclear outcome happened.
    #[serde(default)]
    pub lookup: Option<CommandTemplate>,
    /// The program that rolls a write back.
    #[serde(default)]
    pub rollback: Option<ProgramRollback>,
}

/// Limits on the time, memory and output of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProgramLimits {
    /// How long one run may take, in seconds.
    pub timeout_seconds: u64,
    /// Memory of each of its processes, in megabytes.
    pub memory_mb: u32,
    /// Most that it may print, in kilobytes. One that prints more is ended.
    pub answer_kb: u32,
}

impl Default for ProgramLimits {
    fn default() -> Self {
        Self { timeout_seconds: 30, memory_mb: 512, answer_kb: 512 }
    }
}

/// What exit codes prove. A code in none of these lists proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExitCodes {
    /// It is done.
    pub done: Vec<u8>,
    /// Nothing happened, and it may be tried again.
    pub not_applied: Vec<u8>,
    /// Nothing happened, and nothing will.
    pub refused: Vec<u8>,
}

impl Default for ExitCodes {
    fn default() -> Self {
        Self { done: vec![0], not_applied: Vec::new(), refused: Vec::new() }
    }
}

/// What an exit code proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitMeaning {
    /// It is done.
    Done,
    /// Nothing happened, and it may be tried again.
    NotApplied,
    /// Nothing happened, and nothing will.
    Refused,
    /// It proves nothing: the effect may have happened.
    Unclear,
}

impl ExitCodes {
    /// What this code proves.
    #[must_use]
    pub fn meaning_of(&self, code: i32) -> ExitMeaning {
        let has = |list: &[u8]| list.iter().any(|known| i32::from(*known) == code);
        if has(&self.done) {
            ExitMeaning::Done
        } else if has(&self.not_applied) {
            ExitMeaning::NotApplied
        } else if has(&self.refused) {
            ExitMeaning::Refused
        } else {
            ExitMeaning::Unclear
        }
    }
}

/// A command line with places to fill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTemplate {
    /// The program by its whole path, and its arguments.
    pub command: Vec<String>,
    /// What it reads: `json`, or a JSON value with places.
    #[serde(default)]
    pub input: Option<Value>,
}

/// The program that rolls a write back.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramRollback {
    /// The program by its whole path, and its arguments; beside arguments, `{answer.name}` stands for a value of `keep`.
    pub command: Vec<String>,
    /// What it reads: `json`, or a JSON value with places.
    #[serde(default)]
    pub input: Option<Value>,
    /// Whether it may be run again when its outcome is unclear.
    #[serde(default)]
    pub repeatable: bool,
}

/// A command line, ready to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledCommand {
    /// The program, as the file names it.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it reads.
    pub input: Vec<u8>,
}

/// Why arguments do not make a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandTemplateError {
    /// An argument is unknown, missing or of another shape.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// The value would be read as an option.
    #[error("`{0}` begins with `-`, and the program would read it as an option")]
    Option(String),
    /// The value cannot stand in a command line.
    #[error("`{0}` is empty or has a NUL in it, and cannot stand in a command line")]
    Unusable(String),
}

/// A value of `environment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentValue<'a> {
    /// As written.
    Text(&'a str),
    /// A secret of the vault.
    Secret(&'a str),
    /// The idempotency key of the write.
    Key,
}

impl<'a> EnvironmentValue<'a> {
    /// Reads a value.
    #[must_use]
    pub fn of(text: &'a str) -> Self {
        match text.strip_prefix(SECRET) {
            Some(name) => Self::Secret(name),
            None if matches!(pieces(text).as_slice(), [TemplatePiece::Place(name)] if *name == KEY) => Self::Key,
            None => Self::Text(text),
        }
    }
}

impl DeclaredProgram {
    /// The command line that carries it out.
    #[must_use]
    pub fn template(&self) -> CommandTemplate {
        CommandTemplate { command: self.command.clone(), input: self.input.clone() }
    }

    /// Every command line of the declaration, with its place in the file.
    #[must_use]
    pub fn templates(&self) -> Vec<(&'static str, CommandTemplate)> {
        let mut all = vec![("program", self.template())];
        all.extend(self.lookup.iter().map(|lookup| ("program.lookup", lookup.clone())));
        all.extend(self.rollback.iter().map(|rollback| ("program.rollback", rollback.template())));
        all
    }

    /// Everything whose content belongs to what is approved, by path: each program, each item of a command line that is
    /// an absolute path as it is written, and `files`.
    #[must_use]
    pub fn bound_files(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let items = self.templates().into_iter().flat_map(|(_, template)| template.command);
        let written = items.filter(|item| item.starts_with('/') && !has_place(item));
        for path in written.chain(self.files.iter().cloned()) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
        found
    }

    /// The names of the secrets that it gets.
    #[must_use]
    pub fn secrets(&self) -> Vec<SecretName> {
        let named = self.environment.values().filter_map(|value| match EnvironmentValue::of(value) {
            EnvironmentValue::Secret(name) => SecretName::new(name).ok(),
            EnvironmentValue::Text(_) | EnvironmentValue::Key => None,
        });
        named.collect()
    }

    /// Whether the idempotency key stands anywhere in a command line, its input or the environment.
    pub(super) fn takes_key(&self, template: &CommandTemplate) -> bool {
        template.places().iter().any(|name| name == KEY)
            || self.environment.values().any(|value| EnvironmentValue::of(value) == EnvironmentValue::Key)
    }
}

impl ProgramRollback {
    /// As an ordinary command line.
    #[must_use]
    pub fn template(&self) -> CommandTemplate {
        CommandTemplate { command: self.command.clone(), input: self.input.clone() }
    }
}

impl CommandTemplate {
    /// Whether it reads all arguments as one JSON object.
    pub(super) fn reads_all(&self) -> bool {
        self.input.as_ref().and_then(Value::as_str) == Some(WHOLE)
    }

    /// Every place in the items and the input.
    pub(super) fn places(&self) -> Vec<String> {
        let mut texts: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let mut waiting: Vec<&Value> = self.input.iter().collect();
        while let Some(value) = waiting.pop() {
            match value {
                Value::String(text) => texts.push(text),
                Value::Array(items) => waiting.extend(items),
                Value::Object(fields) => waiting.extend(fields.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        let named = texts.into_iter().flat_map(pieces).filter_map(|piece| match piece {
            TemplatePiece::Place(name) => Some(name.to_owned()),
            TemplatePiece::Literal(_) => None,
        });
        named.collect()
    }

    /// Everything that is written down for the command line, with the name of its field, for the leak scan.
    #[must_use]
    pub fn literals(&self) -> Vec<(&'static str, String)> {
        let mut found: Vec<(&'static str, String)> =
            self.command.iter().map(|item| ("command", item.clone())).collect();
        found.extend(self.input.iter().map(|input| ("input", input.to_string())));
        found
    }
}

/// Whether a text has a place in it.
pub(super) fn has_place(text: &str) -> bool {
    pieces(text).iter().any(|piece| matches!(piece, TemplatePiece::Place(_)))
}

/// Whether what follows this text in an item can begin with `-` and still be no option.
pub(super) fn is_joined(before: &str) -> bool {
    before.ends_with('=')
}

impl CustomCapability {
    /// One of its command lines for these arguments.
    ///
    /// # Errors
    /// When an argument is unknown, missing, of another shape, or would be read as an option.
    pub fn fill_command(
        &self,
        template: &CommandTemplate,
        arguments: &Map<String, Value>,
        beside: &TemplateContext<'_>,
    ) -> Result<FilledCommand, CommandTemplateError> {
        let values = self.values(arguments, beside)?;
        let (program, items) = template.command.split_first().ok_or(FillError::Missing("command".to_owned()))?;
        let mut filled = Vec::with_capacity(items.len());
        let mut options_end = false;
        for item in items {
            if item == END_OF_OPTIONS {
                options_end = true;
                filled.push(item.clone());
            } else if let Some(text) = fill_item(item, &values, options_end)? {
                filled.push(text);
            }
        }
        let input = match &template.input {
            None => Vec::new(),
            Some(_) if template.reads_all() => Value::Object(arguments.clone()).to_string().into_bytes(),
            Some(input) => fill_json(input, &values).map(|value| value.to_string().into_bytes()).unwrap_or_default(),
        };
        Ok(FilledCommand { program: program.clone(), arguments: filled, input })
    }
}

/// One item; nothing if an option is left out because its argument was.
fn fill_item(
    item: &str,
    values: &Map<String, Value>,
    options_end: bool,
) -> Result<Option<String>, CommandTemplateError> {
    let pieces = pieces(item);
    let mut text = String::new();
    for piece in pieces {
        let name = match piece {
            TemplatePiece::Literal(written) => {
                text.push_str(written);
                continue;
            }
            TemplatePiece::Place(name) => name,
        };
        let Some(value) = values.get(name) else {
            // A declaration that passed its checks has optional arguments in `--name={argument}` only.
            return if is_joined(&text) { Ok(None) } else { Err(FillError::Missing(name.to_owned()).into()) };
        };
        if value.is_array() || value.is_object() || value.is_null() {
            return Err(FillError::Shape(name.to_owned()).into());
        }
        let value = plain(value);
        if value.contains('\0') || (text.is_empty() && value.is_empty()) {
            return Err(CommandTemplateError::Unusable(name.to_owned()));
        }
        // SECURITY: some programs read anything that begins with `-` as an option.
        if value.starts_with('-') && !options_end && !is_joined(&text) {
            return Err(CommandTemplateError::Option(name.to_owned()));
        }
        text.push_str(&value);
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests;
