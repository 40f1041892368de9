//! Patterns of commands, as rules write them: `git status`, `cargo test *`, `RUST_LOG=* cargo run`.
//!
//! Takes a pattern and a command; says whether the command matches. Promise: `*` stands for words of a program,
//! never for an option that turns the program into another one, and never for a variable that does.

use super::programs::{hidden_program, is_harmless_variable, spelled_options};
use super::{ShellAnalysisError, ShellCommand, ShellWord, WordCertainty, grammar};

/// A pattern of commands.
#[derive(Debug, Clone)]
pub(crate) struct CommandPattern {
    pub(crate) text: Box<str>,
    variables: Vec<(Box<str>, Box<str>)>,
    words: Vec<PatternWord>,
    /// It ends with `*`: any number of further words.
    open: bool,
}

#[derive(Debug, Clone)]
enum PatternWord {
    Literal(Box<str>),
    /// With `*` in it: any characters of one word.
    Starred(Box<str>),
}

impl CommandPattern {
    /// Reads a pattern.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let parsed = grammar::parse(text, 0).map_err(|why| why.to_string())?;
        let [simple] = parsed.simples.as_slice() else { return Err("a pattern is one command".into()) };
        if !simple.redirects.is_empty() || parsed.has_functions {
            return Err("a pattern has no redirections; `writes_within` says where files may be written".into());
        }
        let (mut words, mut open) = (Vec::new(), false);
        for (n, word) in simple.words.iter().enumerate() {
            open = n + 1 == simple.words.len() && word.text == "*" && !word.quoted;
            if open {
                break;
            }
            words.push(match word.certainty {
                WordCertainty::Literal => PatternWord::Literal(word.text.as_str().into()),
                WordCertainty::Pattern if !word.text.contains(['?', '[']) => {
                    PatternWord::Starred(word.text.as_str().into())
                }
                WordCertainty::Pattern => return Err("`?` and `[` mean nothing in a pattern: there is `*`".into()),
                WordCertainty::Unknown => return Err("a pattern has no variables and no substitutions".into()),
            });
        }
        if words.is_empty() {
            return Err("a pattern names a program first".into());
        }
        let variables =
            simple.assignments.iter().map(|(name, value)| (name.as_str().into(), value.text.as_str().into()));
        Ok(Self { text: text.into(), variables: variables.collect(), words, open })
    }

    /// Whether a command matches.
    fn matches(&self, command: &ShellCommand, spelled: &[&str]) -> bool {
        let sets_only_known = command.assignments.iter().all(|(name, value)| {
            is_harmless_variable(name)
                || self.variables.iter().any(|(own, allowed)| {
                    **own == **name && value.certainty == WordCertainty::Literal && stars(allowed, &value.text)
                })
        });
        let fits =
            |(own, word): (&PatternWord, &ShellWord)| word.certainty == WordCertainty::Literal && own.fits(&word.text);
        sets_only_known
            && command.words.len() >= self.words.len()
            && (self.open || command.words.len() == self.words.len())
            && self.words.iter().zip(&command.words).all(fits)
            && spelled.iter().all(|option| self.words.iter().any(|own| own.fits(option)))
    }
}

impl PatternWord {
    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Literal(own) => **own == *text,
            Self::Starred(own) => stars(own, text),
        }
    }
}

/// Whether a text matches a pattern with `*`.
fn stars(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|start| text.strip_prefix(start)) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(end) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(end)
}

/// Whether a command matches one of the patterns.
///
/// # Errors
/// When a program inside its words, or a hidden option, may do something else.
pub(crate) fn is_listed(patterns: &[CommandPattern], command: &ShellCommand) -> Result<bool, ShellAnalysisError> {
    if command.words.is_empty() {
        return Ok(command.assignments.iter().all(|(name, _)| is_harmless_variable(name)));
    }
    if let Some(why) = hidden_program(command) {
        return Err(why);
    }
    let spelled = spelled_options(command)?;
    Ok(patterns.iter().any(|pattern| pattern.matches(command, &spelled)))
}
