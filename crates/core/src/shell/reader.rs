//! Words: quotes, escapes and expansions, character by character.
//!
//! Takes a position in a text; gives the next word. Promise: a character that two shells read differently is refused.

use super::grammar::SimpleCommand;
use super::{DEPTH, LENGTH, ShellAnalysisError, ShellWord, WordCertainty, grammar};

/// A text that is being read.
pub(super) struct ShellReader {
    chars: Vec<char>,
    at: usize,
    pub(super) depth: usize,
    pub(super) words: usize,
    /// Commands found inside words (substitutions), and all others.
    pub(super) simples: Vec<SimpleCommand>,
    pub(super) has_functions: bool,
    /// Here-documents whose text begins after the next line break.
    pub(super) pending: Vec<HereDocument>,
    /// Inside a loop or a function, where a command may run more than once.
    pub(super) repeats: bool,
}

/// A here-document that was announced.
pub(super) struct HereDocument {
    pub(super) end: String,
    pub(super) literal: bool,
    pub(super) strip_tabs: bool,
}

const SPECIAL: [char; 10] = [' ', '\t', '\n', ';', '&', '|', '<', '>', '(', ')'];

impl ShellReader {
    pub(super) fn new(text: &str, depth: usize) -> Result<Self, ShellAnalysisError> {
        if text.len() > LENGTH {
            return Err(ShellAnalysisError("the command is too long"));
        }
        if depth > DEPTH {
            return Err(ShellAnalysisError("the command is nested too deeply"));
        }
        if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            return Err(ShellAnalysisError("the command holds a control character"));
        }
        Ok(Self {
            chars: text.chars().collect(),
            at: 0,
            depth,
            words: 0,
            simples: Vec::new(),
            has_functions: false,
            pending: Vec::new(),
            repeats: false,
        })
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    /// Takes this text if it comes next.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let comes = text.chars().enumerate().all(|(n, c)| self.peek_at(n) == Some(c));
        if comes {
            self.at += text.chars().count();
        }
        comes
    }

    /// Skips blanks, continued lines and comments.
    pub(super) fn skip_blanks(&mut self) -> Result<(), ShellAnalysisError> {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.peek_at(1) == Some('\n') => self.at += 2,
                Some('#') => {
                    while let Some(c) = self.peek().filter(|c| *c != '\n') {
                        // SECURITY: a shell without comments here would run the content of this one.
                        if SPECIAL.contains(&c) && c != ' ' && c != '\t' || "`$\\'\"".contains(c) {
                            return Err(ShellAnalysisError("a comment holds signs that a shell could act on"));
                        }
                        self.at += 1;
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Skips blanks and line breaks. Here-documents that were announced are read after the first line break.
    pub(super) fn skip_line_breaks(&mut self) -> Result<(), ShellAnalysisError> {
        loop {
            self.skip_blanks()?;
            if self.peek() != Some('\n') {
                return Ok(());
            }
            self.line_break()?;
        }
    }

    /// Takes one line break and the here-documents after it.
    pub(super) fn line_break(&mut self) -> Result<(), ShellAnalysisError> {
        self.at += 1;
        for document in std::mem::take(&mut self.pending) {
            self.here_document(&document)?;
        }
        Ok(())
    }

    fn here_document(&mut self, document: &HereDocument) -> Result<(), ShellAnalysisError> {
        let mut body = String::new();
        loop {
            if self.peek().is_none() {
                return Err(ShellAnalysisError("a here-document has no end"));
            }
            let mut line = String::new();
            while let Some(c) = self.next().filter(|c| *c != '\n') {
                line.push(c);
            }
            let shown = if document.strip_tabs { line.trim_start_matches('\t') } else { line.as_str() };
            if shown == document.end {
                break;
            }
            if !document.literal && line.ends_with('\\') {
                return Err(ShellAnalysisError("a here-document continues a line"));
            }
            body.push_str(&line);
            body.push('\n');
        }
        if document.literal {
            return Ok(());
        }
        let mut inner = self.within(&body)?;
        let mut ignored = WordBuilder::default();
        while inner.peek().is_some() {
            inner.quoted_sign(&mut ignored, false)?;
        }
        self.absorb(inner)
    }

    /// A reader for a text inside this one.
    fn within(&self, text: &str) -> Result<Self, ShellAnalysisError> {
        let mut inner = Self::new(text, self.depth + 1)?;
        inner.repeats = self.repeats;
        Ok(inner)
    }

    /// Takes over what a reader of an inner text found.
    fn absorb(&mut self, inner: Self) -> Result<(), ShellAnalysisError> {
        if !inner.pending.is_empty() {
            return Err(ShellAnalysisError("a here-document has no text"));
        }
        self.words += inner.words;
        self.has_functions |= inner.has_functions;
        self.simples.extend(inner.simples);
        Ok(())
    }

    /// The unquoted text up to the next special character, without taking it.
    pub(super) fn plain_ahead(&self) -> String {
        self.chars.iter().skip(self.at).take(16).take_while(|c| !SPECIAL.contains(c)).collect()
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    /// Whether a word begins here.
    pub(super) fn at_word(&self) -> bool {
        match self.peek() {
            None => false,
            Some('<' | '>') => self.peek_at(1) == Some('('),
            Some(c) => !SPECIAL.contains(&c),
        }
    }

    /// The word that begins here.
    pub(super) fn word(&mut self) -> Result<ShellWord, ShellAnalysisError> {
        self.words += 1;
        if self.words > super::WORDS {
            return Err(ShellAnalysisError("the command has too many words"));
        }
        let mut draft = WordBuilder::default();
        if matches!(self.peek(), Some('<' | '>')) {
            // Process substitution: an unknown file name, and commands of its own.
            self.at += 2;
            self.substitution()?;
            draft.unknown(false);
        }
        while let Some(c) = self.peek() {
            match c {
                // `name()` begins a function; anything else with a bracket is zsh's or a pattern of bash.
                '(' if self.peek_at(1) == Some(')') && draft.started => break,
                '(' => return Err(ShellAnalysisError("a bracket inside a word")),
                c if SPECIAL.contains(&c) => break,
                '\'' => {
                    self.at += 1;
                    draft.quote();
                    loop {
                        match self.next() {
                            None => return Err(ShellAnalysisError("a quote is not closed")),
                            Some('\'') => break,
                            Some(c) => draft.push(c),
                        }
                    }
                }
                '"' => {
                    self.at += 1;
                    draft.quote();
                    loop {
                        match self.peek() {
                            None => return Err(ShellAnalysisError("a quote is not closed")),
                            Some('"') => break self.at += 1,
                            Some(_) => self.quoted_sign(&mut draft, true)?,
                        }
                    }
                }
                '\\' => match self.peek_at(1) {
                    None => return Err(ShellAnalysisError("the command ends with a backslash")),
                    Some('\n') => self.at += 2,
                    Some(c) => {
                        self.at += 2;
                        draft.quote();
                        draft.push(c);
                    }
                },
                '$' | '`' => self.expansion(&mut draft, false)?,
                c => {
                    self.at += 1;
                    draft.plain(c);
                }
            }
        }
        if matches!(self.peek(), Some('<' | '>')) && draft.text.ends_with('}') {
            return Err(ShellAnalysisError("a redirection to a numbered variable"));
        }
        Ok(draft.finish())
    }

    /// One character between double quotes, or in the text of a here-document.
    fn quoted_sign(&mut self, draft: &mut WordBuilder, in_quotes: bool) -> Result<(), ShellAnalysisError> {
        match self.peek() {
            Some('\\') => {
                match self.peek_at(1) {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '\\')) => draft.push(c),
                    Some('"') if in_quotes => draft.push('"'),
                    Some(c) => {
                        draft.push('\\');
                        draft.push(c);
                    }
                    None if in_quotes => return Err(ShellAnalysisError("a quote is not closed")),
                    None => {}
                }
                self.at += 2;
                Ok(())
            }
            Some('$' | '`') => self.expansion(draft, true),
            Some(c) => {
                self.at += 1;
                draft.push(c);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// `$…` or a substitution in backquotes.
    fn expansion(&mut self, draft: &mut WordBuilder, quoted: bool) -> Result<(), ShellAnalysisError> {
        if self.take("`") {
            let mut inner = String::new();
            loop {
                match self.next() {
                    None => return Err(ShellAnalysisError("a substitution is not closed")),
                    Some('`') => break,
                    Some('\\') => return Err(ShellAnalysisError("an escape inside backquotes")),
                    Some(c) => inner.push(c),
                }
            }
            let mut inner = self.within(&inner)?;
            grammar::whole(&mut inner)?;
            self.absorb(inner)?;
            draft.unknown(!quoted);
            return Ok(());
        }
        self.at += 1;
        match self.peek() {
            Some('(') if self.peek_at(1) == Some('(') => {
                self.at += 2;
                // SECURITY: names inside arithmetic are evaluated again, and may hold commands.
                while let Some(c) = self.peek().filter(|c| *c != ')') {
                    if !c.is_ascii_digit() && !" +-*/%<>=".contains(c) {
                        return Err(ShellAnalysisError("arithmetic with variables"));
                    }
                    self.at += 1;
                }
                if !self.take("))") {
                    return Err(ShellAnalysisError("arithmetic is not closed"));
                }
                draft.unknown(!quoted);
            }
            Some('(') => {
                self.at += 1;
                self.substitution()?;
                draft.unknown(!quoted);
            }
            Some('{') => {
                self.at += 1;
                let mut inner = String::new();
                loop {
                    match self.next() {
                        Some('}') => break,
                        Some(c) if c.is_ascii_alphanumeric() || "_:-+%#./*@".contains(c) => inner.push(c),
                        Some(_) | None => return Err(ShellAnalysisError("a variable is changed while it is read")),
                    }
                }
                let name = inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
                let plain = name.is_empty() && !inner.is_empty();
                let altered = [":-", ":+", "-", "+", "%", "#"].iter().any(|sign| name.starts_with(sign));
                if !(plain || altered && name.len() < inner.len() && !inner.contains('@')) {
                    return Err(ShellAnalysisError("a variable is changed while it is read"));
                }
                draft.variable(&inner, !quoted);
            }
            Some('\'' | '"') if !quoted => return Err(ShellAnalysisError("a quote after a dollar sign")),
            Some('[') => return Err(ShellAnalysisError("arithmetic with variables")),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    self.at += 1;
                    name.push(c);
                }
                // zsh reads an index here, bash does not.
                if self.peek() == Some('[') {
                    return Err(ShellAnalysisError("an index after a variable"));
                }
                draft.variable(&name, !quoted);
            }
            Some(c) if c.is_ascii_digit() || "?#@*!$-".contains(c) => {
                self.at += 1;
                if self.peek() == Some('[') {
                    return Err(ShellAnalysisError("an index after a variable"));
                }
                draft.unknown(!quoted || c == '@');
            }
            Some(_) | None => draft.push('$'),
        }
        Ok(())
    }

    /// The commands of a substitution, up to its closing bracket.
    fn substitution(&mut self) -> Result<(), ShellAnalysisError> {
        if self.depth >= DEPTH {
            return Err(ShellAnalysisError("the command is nested too deeply"));
        }
        self.depth += 1;
        if !self.pending.is_empty() {
            return Err(ShellAnalysisError("a substitution between a here-document and its text"));
        }
        grammar::list(self)?;
        if !self.pending.is_empty() || !self.take(")") {
            return Err(ShellAnalysisError("a substitution is not closed"));
        }
        self.depth -= 1;
        Ok(())
    }
}

/// A word that is being built.
#[derive(Default)]
struct WordBuilder {
    text: String,
    quoted: bool,
    home: bool,
    is_pattern: bool,
    is_unknown: bool,
    splits: bool,
    known: usize,
    opened_brace: bool,
    expands_braces: bool,
    value: Option<usize>,
    /// The word exists even if its text is empty: something stood before.
    started: bool,
}

impl WordBuilder {
    fn quote(&mut self) {
        (self.quoted, self.started) = (true, true);
    }

    fn push(&mut self, c: char) {
        self.started = true;
        self.text.push(c);
    }

    /// A character without quotes.
    fn plain(&mut self, c: char) {
        match c {
            '~' if !self.started => self.home = true,
            '*' | '?' | '[' => self.is_pattern = true,
            // zsh looks up the program of that name.
            '=' if !self.started => self.unknown(false),
            '=' if self.value.is_none() && !self.quoted && !self.is_unknown && is_name(&self.text) => {
                self.value = Some(self.text.len() + 1);
            }
            '{' => self.opened_brace = true,
            ',' if self.opened_brace => self.expands_braces = true,
            '.' if self.opened_brace && self.text.ends_with('.') => self.expands_braces = true,
            _ => {}
        }
        self.push(c);
    }

    fn unknown(&mut self, splits: bool) {
        if !self.is_unknown {
            self.known = self.text.len();
        }
        (self.is_unknown, self.started) = (true, true);
        self.splits |= splits;
    }

    fn variable(&mut self, name: &str, splits: bool) {
        if name == "HOME" && self.text.is_empty() && !self.is_unknown {
            (self.home, self.started) = (true, true);
            self.text.push('~');
        } else {
            self.unknown(splits || name == "@");
        }
    }

    fn finish(mut self) -> ShellWord {
        if self.expands_braces {
            self.unknown(true);
            self.known = 0;
        }
        // `~name` is the home of another user.
        if self.home && self.text != "~" && !self.text.starts_with("~/") {
            self.unknown(false);
            self.known = 0;
        }
        // Alone it is a program, and matches nothing but itself.
        if self.text == "[" {
            self.is_pattern = false;
        }
        let certainty = if self.is_unknown {
            WordCertainty::Unknown
        } else if self.is_pattern {
            WordCertainty::Pattern
        } else {
            WordCertainty::Literal
        };
        let known = if self.is_unknown { self.known } else { self.text.len() };
        ShellWord {
            text: self.text,
            certainty,
            quoted: self.quoted,
            home: self.home,
            splits: self.splits,
            known,
            value: self.value,
        }
    }
}

/// Whether a text is the name of a variable, perhaps followed by the `+` of `+=`.
fn is_name(text: &str) -> bool {
    let name = text.strip_suffix('+').unwrap_or(text);
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
