//! Commands: lists, pipes, conditions, loops, functions, redirections.
//!
//! Takes a text; gives its simple commands in the order of the text. Which of them runs under which condition does not
//! matter here: each of them counts.

use super::reader::{HereDocument, ShellReader};
use super::{COMMANDS, DEPTH, ShellAnalysisError, ShellWord, WordCertainty};

/// A simple command as it stands in the text.
#[derive(Debug, Default)]
pub(super) struct SimpleCommand {
    pub(super) assignments: Vec<(String, ShellWord)>,
    pub(super) words: Vec<ShellWord>,
    pub(super) redirects: Vec<(ShellWord, bool)>,
    /// It stands in a loop or a function, so that it may run more than once or at another time.
    pub(super) repeats: bool,
}

/// All simple commands of a text.
#[derive(Debug)]
pub(super) struct ParsedShellText {
    pub(super) simples: Vec<SimpleCommand>,
    pub(super) has_functions: bool,
}

const RESERVED: [&str; 22] = [
    "if", "then", "elif", "else", "fi", "while", "until", "for", "in", "do", "done", "case", "esac", "{", "}", "!",
    "function", "select", "coproc", "[[", "]]", "time",
];
/// Words that end a list, where a command could begin.
const ENDS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Reads a whole text.
pub(super) fn parse(text: &str, depth: usize) -> Result<ParsedShellText, ShellAnalysisError> {
    let mut reader = ShellReader::new(text, depth)?;
    whole(&mut reader)?;
    Ok(ParsedShellText { simples: reader.simples, has_functions: reader.has_functions })
}

/// Reads a list up to the end of the text.
pub(super) fn whole(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    list(reader)?;
    if reader.peek().is_some() || !reader.pending.is_empty() {
        return Err(ShellAnalysisError("the command is not complete"));
    }
    Ok(())
}

/// Reads commands until something that cannot begin one: a closing word or bracket, or the end.
pub(super) fn list(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    loop {
        reader.skip_line_breaks()?;
        if reader.peek().is_none_or(|c| c == ')' || c == ';') || ENDS.contains(&reader.plain_ahead().as_str()) {
            return Ok(());
        }
        and_or(reader)?;
        reader.skip_blanks()?;
        match reader.peek() {
            Some('\n') => reader.line_break()?,
            Some(';') if reader.peek_at(1) != Some(';') && reader.peek_at(1) != Some('&') => reader.skip(1),
            // `&|` and `&!` are zsh's.
            Some('&') if !matches!(reader.peek_at(1), Some('&' | '|' | '!' | '>')) => reader.skip(1),
            _ => return Ok(()),
        }
    }
}

fn and_or(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    loop {
        pipeline(reader)?;
        reader.skip_blanks()?;
        if !reader.take("&&") && !reader.take("||") {
            return Ok(());
        }
        reader.skip_line_breaks()?;
    }
}

fn pipeline(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    reader.skip_blanks()?;
    while matches!(reader.plain_ahead().as_str(), "!" | "time") {
        let length = reader.plain_ahead().len();
        reader.skip(length);
        reader.skip_blanks()?;
    }
    loop {
        command(reader)?;
        reader.skip_blanks()?;
        if reader.peek() != Some('|') || reader.peek_at(1) == Some('|') {
            return Ok(());
        }
        reader.skip(1);
        if reader.peek() == Some('&') {
            reader.skip(1);
        }
        reader.skip_line_breaks()?;
    }
}

fn command(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    if reader.depth >= DEPTH {
        return Err(ShellAnalysisError("the command is nested too deeply"));
    }
    reader.depth += 1;
    let found = one_command(reader);
    reader.depth -= 1;
    found
}

fn one_command(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    if reader.peek() == Some('(') {
        if reader.peek_at(1) == Some('(') {
            return Err(ShellAnalysisError("arithmetic with variables"));
        }
        reader.skip(1);
        list(reader)?;
        if !reader.take(")") {
            return Err(ShellAnalysisError("a bracket is not closed"));
        }
        return trailing_redirects(reader);
    }
    let word = reader.plain_ahead();
    match word.as_str() {
        "{" => {
            reader.skip(1);
            list(reader)?;
            expect(reader, "}")?;
        }
        "if" => {
            reader.skip(2);
            list(reader)?;
            expect(reader, "then")?;
            list(reader)?;
            while reader.plain_ahead() == "elif" {
                reader.skip(4);
                list(reader)?;
                expect(reader, "then")?;
                list(reader)?;
            }
            if reader.plain_ahead() == "else" {
                reader.skip(4);
                list(reader)?;
            }
            expect(reader, "fi")?;
        }
        "while" | "until" => {
            reader.skip(5);
            repeated(reader, |reader| {
                list(reader)?;
                expect(reader, "do")?;
                list(reader)?;
                expect(reader, "done")
            })?;
        }
        "for" => {
            reader.skip(3);
            for_loop(reader)?;
        }
        "case" => {
            reader.skip(4);
            case(reader)?;
        }
        "function" => {
            reader.skip(8);
            reader.skip_blanks()?;
            let name = reader.word()?;
            if name.as_literal().is_none() {
                return Err(ShellAnalysisError("a function without a plain name"));
            }
            reader.skip_blanks()?;
            if reader.take("(") {
                reader.skip_blanks()?;
                if !reader.take(")") {
                    return Err(ShellAnalysisError("a bracket inside a word"));
                }
            }
            return function_body(reader);
        }
        "select" | "coproc" | "[[" | "]]" | "in" => return Err(ShellAnalysisError("a construct that is not judged")),
        word if ENDS.contains(&word) => return Err(ShellAnalysisError("a closing word without an opening one")),
        _ => return simple(reader),
    }
    trailing_redirects(reader)
}

fn repeated(
    reader: &mut ShellReader,
    body: impl FnOnce(&mut ShellReader) -> Result<(), ShellAnalysisError>,
) -> Result<(), ShellAnalysisError> {
    let before = std::mem::replace(&mut reader.repeats, true);
    body(reader)?;
    reader.repeats = before;
    Ok(())
}

fn function_body(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    reader.has_functions = true;
    reader.skip_line_breaks()?;
    let begins = reader.peek() == Some('(') || matches!(reader.plain_ahead().as_str(), "{" | "if" | "while" | "for");
    if !begins {
        return Err(ShellAnalysisError("a function without a plain body"));
    }
    repeated(reader, command)
}

fn for_loop(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    reader.skip_blanks()?;
    if !reader.at_word() {
        return Err(ShellAnalysisError("a loop without a plain variable"));
    }
    let name = reader.word()?;
    let text = name.as_literal().filter(|text| is_settable(text) && !name.quoted);
    let Some(text) = text.map(str::to_owned) else {
        return Err(ShellAnalysisError("a loop without a plain variable"));
    };
    reader.skip_line_breaks()?;
    let mut words = Vec::new();
    if reader.plain_ahead() == "in" {
        reader.skip(2);
        reader.skip_blanks()?;
        while reader.at_word() {
            words.push(reader.word()?);
            reader.skip_blanks()?;
        }
    }
    reader.skip_blanks()?;
    if reader.peek() == Some(';') {
        reader.skip(1);
    }
    reader.skip_line_breaks()?;
    let values = words.into_iter().map(|word| (text.clone(), word)).collect();
    push(reader, SimpleCommand { assignments: values, repeats: true, ..SimpleCommand::default() })?;
    repeated(reader, |reader| {
        expect(reader, "do")?;
        list(reader)?;
        expect(reader, "done")
    })
}

fn case(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    reader.skip_blanks()?;
    if !reader.at_word() {
        return Err(ShellAnalysisError("a case without a word"));
    }
    reader.word()?;
    reader.skip_line_breaks()?;
    expect(reader, "in")?;
    loop {
        reader.skip_line_breaks()?;
        if reader.plain_ahead() == "esac" {
            return expect(reader, "esac");
        }
        reader.take("(");
        loop {
            reader.skip_blanks()?;
            if !reader.at_word() {
                return Err(ShellAnalysisError("a case without a pattern"));
            }
            reader.word()?;
            reader.skip_blanks()?;
            if reader.take(")") {
                break;
            }
            if !reader.take("|") {
                return Err(ShellAnalysisError("a case without a pattern"));
            }
        }
        list(reader)?;
        if !reader.take(";;&") && !reader.take(";;") && !reader.take(";&") {
            reader.skip_line_breaks()?;
            return expect(reader, "esac");
        }
    }
}

/// Takes a reserved word.
fn expect(reader: &mut ShellReader, word: &str) -> Result<(), ShellAnalysisError> {
    reader.skip_blanks()?;
    if reader.plain_ahead() != word {
        return Err(ShellAnalysisError("the command is not complete"));
    }
    reader.skip(word.len());
    Ok(())
}

/// Redirections of a whole compound command.
fn trailing_redirects(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    let mut found = SimpleCommand { repeats: reader.repeats, ..SimpleCommand::default() };
    loop {
        reader.skip_blanks()?;
        if !redirect(reader, &mut found)? {
            break;
        }
    }
    if reader.at_word() {
        return Err(ShellAnalysisError("a word after a closing one"));
    }
    if found.redirects.is_empty() { Ok(()) } else { push(reader, found) }
}

fn simple(reader: &mut ShellReader) -> Result<(), ShellAnalysisError> {
    let mut found = SimpleCommand { repeats: reader.repeats, ..SimpleCommand::default() };
    loop {
        reader.skip_blanks()?;
        if redirect(reader, &mut found)? {
            continue;
        }
        if !reader.at_word() {
            break;
        }
        let word = reader.word()?;
        match word.value {
            Some(value) if found.words.is_empty() => {
                let name = word.text.get(..value - 1).unwrap_or_default().trim_end_matches('+').to_owned();
                found.assignments.push((name, word.tail(value)));
                continue;
            }
            Some(_) | None => {}
        }
        if found.words.is_empty() {
            if word.certainty != WordCertainty::Literal || word.text.is_empty() {
                return Err(ShellAnalysisError("the name of a program is not written out"));
            }
            if RESERVED.contains(&word.text.as_str()) {
                return Err(ShellAnalysisError("a reserved word stands for a program"));
            }
            reader.skip_blanks()?;
            if reader.peek() == Some('(') && found.assignments.is_empty() && found.redirects.is_empty() {
                reader.skip(1);
                reader.skip_blanks()?;
                if !reader.take(")") {
                    return Err(ShellAnalysisError("a bracket inside a word"));
                }
                return function_body(reader);
            }
        }
        found.words.push(word);
    }
    if found.words.is_empty() && found.assignments.is_empty() && found.redirects.is_empty() {
        return Err(ShellAnalysisError("a command is missing"));
    }
    push(reader, found)
}

fn push(reader: &mut ShellReader, simple: SimpleCommand) -> Result<(), ShellAnalysisError> {
    if reader.simples.len() >= COMMANDS {
        return Err(ShellAnalysisError("there are too many commands"));
    }
    reader.simples.push(simple);
    Ok(())
}

/// Takes one redirection if one comes next.
fn redirect(reader: &mut ShellReader, found: &mut SimpleCommand) -> Result<bool, ShellAnalysisError> {
    let digits = reader.plain_ahead();
    let count = digits.len();
    let has_number = count > 0 && count <= 2 && digits.bytes().all(|b| b.is_ascii_digit());
    let ahead = if has_number { count } else { 0 };
    let signs = (reader.peek_at(ahead), reader.peek_at(ahead + 1), reader.peek_at(ahead + 2));
    let (length, writes) = match signs {
        (Some('<' | '>'), Some('('), _) => return Ok(false),
        (Some('<'), Some('<'), Some('<')) => (3, false),
        (Some('<'), Some('<'), _) => {
            reader.skip(ahead + 2);
            let strip_tabs = reader.take("-");
            reader.skip_blanks()?;
            if !reader.at_word() {
                return Err(ShellAnalysisError("a here-document has no end"));
            }
            let end = reader.word()?;
            let text = end.as_literal().filter(|text| !text.is_empty()).map(str::to_owned);
            let Some(text) = text.filter(|_| !end.home) else {
                return Err(ShellAnalysisError("a here-document has no plain end"));
            };
            reader.pending.push(HereDocument { end: text, literal: end.quoted, strip_tabs });
            return Ok(true);
        }
        (Some('<'), Some('>'), _) => (2, true),
        (Some('<' | '>'), Some('&'), _) => {
            let reads = signs.0 == Some('<');
            reader.skip(ahead + 2);
            reader.skip_blanks()?;
            if !reader.at_word() {
                return Err(ShellAnalysisError("a redirection without a target"));
            }
            let target = reader.word()?;
            let number = target.text.strip_suffix('-').unwrap_or(&target.text);
            let is_number = target.certainty == WordCertainty::Literal && number.bytes().all(|b| b.is_ascii_digit());
            match (is_number, reads) {
                (true, _) => {}
                (false, true) => return Err(ShellAnalysisError("a redirection that is not judged")),
                (false, false) => found.redirects.push((checked(target)?, true)),
            }
            return Ok(true);
        }
        (Some('<'), _, _) => (1, false),
        (Some('>'), Some('>' | '|'), _) => (2, true),
        (Some('>'), _, _) => (1, true),
        (Some('&'), Some('>'), Some('>')) if !has_number => (3, true),
        (Some('&'), Some('>'), _) if !has_number => (2, true),
        _ => return Ok(false),
    };
    reader.skip(ahead + length);
    reader.skip_blanks()?;
    if !reader.at_word() {
        return Err(ShellAnalysisError("a redirection without a target"));
    }
    let target = reader.word()?;
    // A here-string is text, not a file.
    if length != 3 || writes {
        found.redirects.push((checked(target)?, writes));
    }
    Ok(true)
}

/// SECURITY: `>!` and `>&!` overwrite by force in zsh, and are file names elsewhere.
fn checked(target: ShellWord) -> Result<ShellWord, ShellAnalysisError> {
    if target.text.starts_with('!') { Err(ShellAnalysisError("a redirection that is not judged")) } else { Ok(target) }
}

/// Whether a loop may set this variable. Names in capitals belong to the environment of programs.
pub(super) fn is_settable(name: &str) -> bool {
    super::programs::is_harmless_variable(name)
}
