//! Shell text, read strictly: which programs a text would run, with which words, and which files it writes.
//!
//! Takes the text a coding agent hands to its shell; gives every simple command in it, also those inside pipes,
//! substitutions, subshells, function bodies, `sh -c`, `eval`, `xargs`, `find -exec` and other wrappers. Promise: a text
//! is either read as every POSIX-like shell (sh, bash, zsh) would read it, or refused with [`ShellAnalysisError`]; nothing is
//! guessed. Time and memory grow with the length of the text, which is limited.
//!
//! The reader is our own because the parsers made for editors recover from errors, and those made for one shell accept
//! what another shell reads differently. A test compares it with the real shells of the machine.

mod grammar;
pub(crate) mod pattern;
pub(crate) mod programs;
mod reader;
#[cfg(test)]
mod tests;
mod walks;
pub(crate) mod word_paths;
mod wrappers;

/// Longest text that is read, in bytes.
pub const LENGTH: usize = 16 * 1024;
/// Deepest nesting of substitutions, subshells and wrappers.
pub(crate) const DEPTH: usize = 12;
/// Most commands in one text.
pub(crate) const COMMANDS: usize = 256;
/// Most words in one text.
pub(crate) const WORDS: usize = 4096;

/// Why a text is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShellAnalysisError(pub &'static str);

/// How much is known about the value of a word before the shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WordCertainty {
    /// Exactly this text.
    Literal,
    /// A file name pattern: some names of this form, or the text itself.
    Pattern,
    /// It depends on variables, output or input.
    Unknown,
}

/// One word of a command, quotes removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellWord {
    /// Its text as far as it is known. Unknown parts are left out.
    pub(crate) text: String,
    pub(crate) certainty: WordCertainty,
    /// Some of it was quoted.
    pub(crate) quoted: bool,
    /// It begins with the home folder, written as `~`.
    pub(crate) home: bool,
    /// It may become several words, or none.
    pub(crate) splits: bool,
    /// How many bytes of the text stand before the first unknown part.
    pub(crate) known: usize,
    /// Where the value begins, if the word has the form of an assignment.
    pub(crate) value: Option<usize>,
}

impl ShellWord {
    pub(crate) fn literal(text: impl Into<String>) -> Self {
        let text = text.into();
        let known = text.len();
        Self { text, certainty: WordCertainty::Literal, quoted: true, home: false, splits: false, known, value: None }
    }

    /// A word of which nothing is known.
    pub(crate) fn unknown(splits: bool) -> Self {
        Self { certainty: WordCertainty::Unknown, splits, known: 0, ..Self::literal("") }
    }

    /// The text, if it is exactly known.
    pub(crate) fn as_literal(&self) -> Option<&str> {
        (self.certainty == WordCertainty::Literal).then_some(self.text.as_str())
    }

    /// Whether it could be read as an option: it begins with a dash, or with something unknown.
    pub(crate) fn may_be_option(&self) -> bool {
        match self.certainty {
            WordCertainty::Literal => self.text.starts_with('-'),
            WordCertainty::Pattern => self.text.starts_with(['-', '*', '?', '[']),
            WordCertainty::Unknown => self.known == 0 || self.text.starts_with('-'),
        }
    }

    /// A part of the word from a byte on, such as the value after `=`.
    pub(crate) fn tail(&self, from: usize) -> Self {
        let text = self.text.get(from..).unwrap_or_default().to_owned();
        // Some programs and shells read a tilde after `=` as the home folder.
        let home = text == "~" || text.starts_with("~/");
        Self { text, home, known: self.known.saturating_sub(from), value: None, ..self.clone() }
    }
}

/// Where relative paths of a command begin, after the `cd` commands of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseFolders {
    /// Possible folders, relative to where the text starts; the empty text is that folder itself.
    pub(crate) folders: Vec<ShellWord>,
    /// It may be any other folder too.
    pub(crate) anywhere: bool,
}

/// One program that would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellCommand {
    /// `NAME=value` before the program, or without one.
    pub(crate) assignments: Vec<(String, ShellWord)>,
    /// The program first. Empty where only variables are set.
    pub(crate) words: Vec<ShellWord>,
    pub(crate) bases: BaseFolders,
}

impl ShellCommand {
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", |word| word.text.as_str())
    }
}

/// A file that the text opens by redirection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShellRedirect {
    pub(crate) target: ShellWord,
    pub(crate) writes: bool,
    pub(crate) bases: BaseFolders,
}

/// A text that was understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShellScript {
    pub(crate) commands: Vec<ShellCommand>,
    pub(crate) redirects: Vec<ShellRedirect>,
}

impl ShellScript {
    /// Reads a text.
    ///
    /// # Errors
    /// When the text is too long, is not shell, or could mean something else than it shows.
    pub fn parse(text: &str) -> Result<Self, ShellAnalysisError> {
        wrappers::flatten(grammar::parse(text, 0)?, 0)
    }

    /// Reads a command that is given word by word, as some clients do.
    ///
    /// # Errors
    /// As [`ShellScript::parse`].
    pub fn of_words(words: &[&str]) -> Result<Self, ShellAnalysisError> {
        if words.len() > WORDS || words.iter().map(|word| word.len()).sum::<usize>() > LENGTH {
            return Err(ShellAnalysisError("the command is too long"));
        }
        let words: Vec<ShellWord> = words.iter().map(|word| ShellWord::literal(*word)).collect();
        let simple = grammar::SimpleCommand { words, ..grammar::SimpleCommand::default() };
        wrappers::flatten(grammar::ParsedShellText { simples: vec![simple], has_functions: false }, 0)
    }

    /// Whether, judged by the words, everything it runs stays on this machine.
    #[must_use]
    pub fn stays_on_machine(&self) -> bool {
        let connects =
            |one: &ShellRedirect| one.target.text.starts_with("/dev/tcp") || one.target.text.starts_with("/dev/udp");
        !self.commands.iter().any(programs::may_reach_network) && !self.redirects.iter().any(connects)
    }

    /// Every word, option value and redirection that could be a path, put behind the folders that `cd` leads to. The home
    /// folder is written `~`.
    fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut add = |word: &ShellWord, bases: &BaseFolders| {
            let value = word.text.find('=').map(|at| at + 1).or_else(|| word.text.find('/').filter(|at| *at > 0));
            for text in [Some(word.text.clone()), value.map(|at| word.tail(at).text)].into_iter().flatten() {
                found.extend(
                    bases
                        .folders
                        .iter()
                        .filter(|base| !base.text.is_empty())
                        .map(|base| format!("{}/{text}", base.text)),
                );
                found.push(text);
            }
        };
        for command in &self.commands {
            command.words.iter().for_each(|word| add(word, &command.bases));
            command.assignments.iter().for_each(|(_, value)| add(value, &command.bases));
        }
        self.redirects.iter().for_each(|redirect| add(&redirect.target, &redirect.bases));
        found
    }

    /// Every command as its words; `None` in the place of a word that depends on variables, output or file names.
    #[must_use]
    pub fn words(&self) -> Vec<Vec<Option<&str>>> {
        let commands = self.commands.iter().filter(|command| !command.words.is_empty());
        commands.map(|command| command.words.iter().map(ShellWord::as_literal).collect()).collect()
    }
}

/// Everything in a text that could be a path: the words of its commands, and its plain pieces, even if it is not
/// understood. For prohibitions: it names too much rather than too little.
#[must_use]
pub fn possible_paths(text: &str) -> Vec<String> {
    let mut found = ShellScript::parse(text).map(|script| script.paths()).unwrap_or_default();
    let unquoted = text.replace(['\'', '"', '\\'], "");
    for text in [text, &unquoted] {
        found.extend(word_paths::raw_pieces(text).map(str::to_owned));
    }
    found
}

/// The folders that a text reads, copies, changes or removes with everything below them, relative to where it starts.
/// The home folder is written `~`. For prohibitions: of a text that is not understood, it names too much.
#[must_use]
pub fn walked_folders(text: &str) -> Vec<String> {
    match ShellScript::parse(text) {
        Ok(script) => walks::as_written(&walks::walked(&script)),
        Err(_) => walks::of_unread(text),
    }
}

/// The same for a command that is given word by word.
#[must_use]
pub fn walked_folders_of_words(words: &[&str]) -> Vec<String> {
    match ShellScript::of_words(words) {
        Ok(script) => walks::as_written(&walks::walked(&script)),
        Err(_) => walks::of_unread(&words.join(" ")),
    }
}
