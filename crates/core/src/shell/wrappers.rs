//! Wrappers: programs that run other programs, and what they would run.
//!
//! Takes the simple commands of a text; gives every command with wrappers taken off. Promise: a wrapper with an option
//! that is not known here is refused, and the program it runs is judged as if it stood there alone.

use super::grammar::{self, ParsedShellText, SimpleCommand};
use super::{
    BaseFolders, COMMANDS, DEPTH, ShellAnalysisError, ShellCommand, ShellRedirect, ShellScript, ShellWord,
    WordCertainty,
};

/// Most folders a text's own `cd` commands may lead to.
const FOLDERS: usize = 8;
const UNKNOWN_OPTION: ShellAnalysisError =
    ShellAnalysisError("a program that runs others has an option that is not judged");
const DYNAMIC: ShellAnalysisError = ShellAnalysisError("the program to be run is not written out");

/// Options of a wrapper that are understood.
struct WrapperOptions {
    /// Letters without a value.
    flags: &'static str,
    /// Letters with a value, attached or as the next word.
    valued: &'static str,
    /// Long options, without their value.
    long: &'static [&'static str],
    /// Words between the options and the program.
    operands: usize,
}

const fn options(
    flags: &'static str,
    valued: &'static str,
    long: &'static [&'static str],
    operands: usize,
) -> WrapperOptions {
    WrapperOptions { flags, valued, long, operands }
}

/// Programs that run the rest of their words and change nothing about it that matters here.
fn transparent(name: &str) -> Option<WrapperOptions> {
    Some(match name {
        "command" => options("p", "", &[], 0),
        "exec" | "builtin" | "nohup" => options("", "", &[], 0),
        "time" => options("p", "", &[], 0),
        "setsid" => options("cfw", "", &["--ctty", "--fork", "--wait"], 0),
        "nice" => options("", "n", &["--adjustment"], 0),
        "ionice" => options("t", "cn", &["--ignore", "--class", "--classdata"], 0),
        "stdbuf" => options("", "ioe", &["--input", "--output", "--error"], 0),
        "timeout" => options("v", "ks", &["--signal", "--kill-after", "--preserve-status", "--foreground"], 1),
        _ => return None,
    })
}

/// Shells that read a program text after `-c`.
pub(super) const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "ash"];

/// Takes wrappers off and follows `cd`.
pub(super) fn flatten(parsed: ParsedShellText, depth: usize) -> Result<ShellScript, ShellAnalysisError> {
    let mut flat = WrapperFlattener {
        script: ShellScript::default(),
        bases: BaseFolders { folders: vec![ShellWord::literal("")], anywhere: false },
        has_functions: parsed.has_functions,
    };
    flat.bases.anywhere = may_change_folder(&parsed);
    flat.all(parsed.simples, depth)?;
    Ok(flat.script)
}

/// Whether a folder may change before a command that stands earlier in the text runs again.
fn may_change_folder(parsed: &ParsedShellText) -> bool {
    let changes = |word: &ShellWord| matches!(word.text.as_str(), "cd" | "pushd" | "popd" | "eval" | "trap");
    parsed.simples.iter().any(|simple| (simple.repeats || parsed.has_functions) && simple.words.iter().any(changes))
}

struct WrapperFlattener {
    script: ShellScript,
    bases: BaseFolders,
    has_functions: bool,
}

impl WrapperFlattener {
    fn all(&mut self, simples: Vec<SimpleCommand>, depth: usize) -> Result<(), ShellAnalysisError> {
        for simple in simples {
            for (target, writes) in simple.redirects {
                self.script.redirects.push(ShellRedirect { target, writes, bases: self.bases.clone() });
            }
            let command =
                ShellCommand { assignments: simple.assignments, words: simple.words, bases: self.bases.clone() };
            self.one(command, simple.repeats, depth)?;
        }
        Ok(())
    }

    fn push(&mut self, command: ShellCommand) -> Result<(), ShellAnalysisError> {
        if self.script.commands.len() >= COMMANDS {
            return Err(ShellAnalysisError("there are too many commands"));
        }
        self.script.commands.push(command);
        Ok(())
    }

    /// Reads a text that a program would run.
    fn text(&mut self, text: &str, depth: usize) -> Result<(), ShellAnalysisError> {
        let parsed = grammar::parse(text, depth + 1)?;
        self.has_functions |= parsed.has_functions;
        self.bases.anywhere |= may_change_folder(&parsed);
        self.all(parsed.simples, depth + 1)
    }

    fn one(&mut self, command: ShellCommand, repeats: bool, depth: usize) -> Result<(), ShellAnalysisError> {
        if depth > DEPTH {
            return Err(ShellAnalysisError("the command is nested too deeply"));
        }
        let Some((program, rest)) = command.words.split_first() else {
            return if command.assignments.is_empty() { Ok(()) } else { self.push(command) };
        };
        let Some(name) = program.as_literal() else { return Err(DYNAMIC) };
        if SHELLS.contains(&name)
            && let Some(text) = script_after_c(rest)?
        {
            let text = text.to_owned();
            self.only_assignments(&command)?;
            return self.text(&text, depth);
        }
        if let Some(known) = transparent(name)
            && !(name == "command" && rest.first().is_some_and(|word| matches!(word.text.as_str(), "-v" | "-V")))
        {
            let from = past_options(rest, &known)?;
            let inner = rest.get(from..).unwrap_or_default();
            if inner.is_empty() {
                return if name == "exec" { Ok(()) } else { self.push(command) };
            }
            return self.inner(&command, inner.to_vec(), repeats, depth);
        }
        match name {
            "env" => self.env(&command, rest, repeats, depth),
            "eval" => {
                let text = joined(rest)?;
                self.only_assignments(&command)?;
                self.text(&text, depth)
            }
            "trap" => match rest.split_first() {
                Some((first, _)) if matches!(first.as_literal(), Some("-" | "" | "-l" | "-p")) => self.push(command),
                Some((first, _)) => {
                    // It runs later, wherever the shell is then.
                    let text = first.as_literal().ok_or(DYNAMIC)?.to_owned();
                    let before = std::mem::replace(&mut self.bases.anywhere, true);
                    self.text(&text, depth)?;
                    self.bases.anywhere = before;
                    Ok(())
                }
                None => self.push(command),
            },
            "watch" => {
                let flags = options(
                    "bcdegtxpw",
                    "nq",
                    &["--interval", "--differences", "--no-title", "--errexit", "--chgexit", "--color", "--exec"],
                    0,
                );
                let from = past_options(rest, &flags)?;
                let inner = rest.get(from..).unwrap_or_default();
                let text = joined(inner)?;
                self.text(&text, depth)
            }
            "xargs" => self.xargs(&command, rest, repeats, depth),
            "find" => self.find(command, repeats, depth),
            "sudo" | "doas" => {
                let known = options("AEHKknPSbi", "ugpCTrth", &["--preserve-env", "--non-interactive", "--user"], 0);
                let from = past_options(rest, &known)?;
                let inner = rest.get(from..).unwrap_or_default().to_vec();
                if !inner.is_empty() {
                    self.inner(&command, inner, repeats, depth)?;
                }
                self.push(command)
            }
            "cd" | "pushd" | "popd" => self.change_folder(command, repeats),
            _ => self.push(command),
        }
    }

    /// What a wrapper runs, with the assignments before it.
    fn inner(
        &mut self,
        outer: &ShellCommand,
        words: Vec<ShellWord>,
        repeats: bool,
        depth: usize,
    ) -> Result<(), ShellAnalysisError> {
        if words.first().is_none_or(|word| word.certainty != WordCertainty::Literal || word.text.is_empty()) {
            return Err(DYNAMIC);
        }
        let command = ShellCommand { assignments: outer.assignments.clone(), words, bases: outer.bases.clone() };
        self.one(command, repeats, depth + 1)
    }

    /// Variables set before a program text count on their own.
    fn only_assignments(&mut self, command: &ShellCommand) -> Result<(), ShellAnalysisError> {
        if command.assignments.is_empty() {
            return Ok(());
        }
        self.push(ShellCommand { words: Vec::new(), ..command.clone() })
    }

    fn env(
        &mut self,
        command: &ShellCommand,
        rest: &[ShellWord],
        repeats: bool,
        depth: usize,
    ) -> Result<(), ShellAnalysisError> {
        let from = past_options(rest, &options("i", "u", &["--ignore-environment", "--unset"], 0))?;
        let mut words = rest.get(from..).unwrap_or_default();
        let mut outer = command.clone();
        while let Some((first, later)) = words.split_first() {
            let Some((name, _)) = first.text.split_once('=') else { break };
            if first.known <= name.len() {
                return Err(DYNAMIC);
            }
            outer.assignments.push((name.to_owned(), first.tail(name.len() + 1)));
            words = later;
        }
        if words.is_empty() {
            return self.push(command.clone());
        }
        self.inner(&outer, words.to_vec(), repeats, depth)
    }

    fn xargs(
        &mut self,
        command: &ShellCommand,
        rest: &[ShellWord],
        repeats: bool,
        depth: usize,
    ) -> Result<(), ShellAnalysisError> {
        let long = &[
            "--null",
            "--no-run-if-empty",
            "--max-args",
            "--max-procs",
            "--max-lines",
            "--delimiter",
            "--verbose",
            "--arg-file",
        ];
        let from = past_options(rest, &options("0rtpxo", "nPLIsEda", long, 0))?;
        let mut words = rest.get(from..).unwrap_or_default().to_vec();
        if words.is_empty() {
            words.push(ShellWord::literal("echo"));
        }
        match replaced_by_input(rest.get(..from).unwrap_or_default())? {
            Some(sign) if words.first().is_some_and(|program| program.text.contains(sign)) => return Err(DYNAMIC),
            Some(sign) => {
                for word in words.iter_mut().filter(|word| word.text.contains(sign)) {
                    *word = ShellWord::unknown(false);
                }
            }
            None => words.push(ShellWord::unknown(true)),
        }
        self.inner(command, words, repeats, depth)
    }

    fn find(&mut self, command: ShellCommand, repeats: bool, depth: usize) -> Result<(), ShellAnalysisError> {
        let rest = command.words.get(1..).unwrap_or_default();
        // Starting points from a file are unknown.
        if rest.iter().any(|word| word.certainty == WordCertainty::Unknown || word.text.starts_with("-files0")) {
            return Err(DYNAMIC);
        }
        let follows = rest.iter().any(|word| matches!(word.text.as_str(), "-L" | "-follow"));
        let roots = find_roots(rest);
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let in_place = match word.text.as_str() {
                "-exec" | "-ok" => !follows,
                "-execdir" | "-okdir" => false,
                _ => continue,
            };
            let inner: Vec<ShellWord> =
                words.by_ref().take_while(|word| !matches!(word.text.as_str(), ";" | "+")).cloned().collect();
            for root in &roots {
                let replaced = inner.iter().map(|word| match word.text.as_str() {
                    "{}" if in_place => {
                        let text = format!("{}/found", root.text.trim_end_matches('/'));
                        let known = text.len();
                        ShellWord { text, known, certainty: WordCertainty::Pattern, ..root.clone() }
                    }
                    text if text.contains("{}") => ShellWord::unknown(false),
                    _ => word.clone(),
                });
                self.inner(&command, replaced.collect(), repeats, depth)?;
            }
        }
        self.push(command)
    }

    fn change_folder(&mut self, command: ShellCommand, repeats: bool) -> Result<(), ShellAnalysisError> {
        let rest = command.words.get(1..).unwrap_or_default();
        let rest = match rest.split_first() {
            Some((first, later)) if first.text == "--" => later,
            Some(_) | None => rest,
        };
        let to = match rest {
            [to] if to.certainty == WordCertainty::Literal
                && !to.text.starts_with('-')
                && !to.text.starts_with('+') =>
            {
                Some(to.clone())
            }
            _ => None,
        };
        let is_fixed = |to: &ShellWord| to.home || to.text.starts_with('/');
        match to.filter(|to| command.name() == "cd" && (is_fixed(to) || !repeats && !self.has_functions)) {
            Some(to) if is_fixed(&to) => self.bases.folders.push(to),
            Some(to) => {
                let further: Vec<ShellWord> = self.bases.folders.iter().map(|base| joined_path(base, &to)).collect();
                self.bases.folders.extend(further);
            }
            None => self.bases.anywhere = true,
        }
        self.bases.folders.dedup();
        if self.bases.folders.len() > FOLDERS {
            self.bases.anywhere = true;
            self.bases.folders.truncate(FOLDERS);
        }
        self.push(command)
    }
}

fn joined_path(base: &ShellWord, further: &ShellWord) -> ShellWord {
    if base.text.is_empty() {
        return further.clone();
    }
    let text = format!("{}/{}", base.text, further.text);
    let known = text.len();
    ShellWord { text, known, ..base.clone() }
}

/// Where `find` starts: the words before the first condition.
pub(super) fn find_roots(rest: &[ShellWord]) -> Vec<ShellWord> {
    let begins = |word: &&ShellWord| word.text.starts_with(['-', '(', '!', ',']);
    let roots: Vec<ShellWord> = rest
        .iter()
        .skip_while(|word| matches!(word.text.as_str(), "-H" | "-L" | "-P"))
        .take_while(|word| !begins(word))
        .cloned()
        .collect();
    if roots.is_empty() { vec![ShellWord::literal(".")] } else { roots }
}

/// How many words are options and operands of the wrapper itself.
fn past_options(words: &[ShellWord], known: &WrapperOptions) -> Result<usize, ShellAnalysisError> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let Some(text) = word.as_literal() else {
            // SECURITY: an unknown word could be an option, or several words.
            if word.may_be_option() || word.splits {
                return Err(DYNAMIC);
            }
            break;
        };
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            let name = long.split_once('=').map_or(text, |(name, _)| text.get(..name.len() + 2).unwrap_or(text));
            if !known.long.contains(&name) {
                return Err(UNKNOWN_OPTION);
            }
            at += 1;
            continue;
        }
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else { break };
        at += 1;
        for (n, letter) in letters.char_indices() {
            if known.flags.contains(letter) {
                continue;
            }
            if !known.valued.contains(letter) {
                // `nice -5`.
                if known.valued == "n" && letters.bytes().all(|b| b.is_ascii_digit()) {
                    break;
                }
                return Err(UNKNOWN_OPTION);
            }
            let is_last = n + letter.len_utf8() == letters.len();
            if is_last {
                if words.get(at).is_none_or(|value| value.splits) {
                    return Err(DYNAMIC);
                }
                at += 1;
            }
            break;
        }
    }
    let operands = words.get(at..at + known.operands).unwrap_or_default();
    if operands.len() < known.operands || operands.iter().any(|word| word.certainty != WordCertainty::Literal) {
        return if known.operands == 0 { Ok(at) } else { Err(DYNAMIC) };
    }
    Ok(at + known.operands)
}

/// What `xargs -I` replaces in the words of its program.
fn replaced_by_input(options: &[ShellWord]) -> Result<Option<&'static str>, ShellAnalysisError> {
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let Some(at) = word.text.find('I').filter(|_| word.text.starts_with('-')) else { continue };
        let attached = word.text.get(at + 1..).unwrap_or_default();
        let sign = if attached.is_empty() { words.next().map_or("", |next| next.text.as_str()) } else { attached };
        let known = ["{}", "%", "@"].into_iter().find(|known| *known == sign);
        return known.map(Some).ok_or(UNKNOWN_OPTION);
    }
    Ok(None)
}

/// The text after `-c` of a shell, if there is one.
fn script_after_c(words: &[ShellWord]) -> Result<Option<&str>, ShellAnalysisError> {
    let mut words = words.iter();
    let mut takes_text = false;
    while let Some(word) = words.next() {
        let Some(text) = word.as_literal() else { return Err(DYNAMIC) };
        let Some(letters) = text.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty()) else {
            return Ok(takes_text.then_some(text));
        };
        if letters.starts_with('-') {
            if !matches!(text, "--" | "--login" | "--norc" | "--noprofile" | "--posix") {
                return Err(UNKNOWN_OPTION);
            }
            continue;
        }
        if !letters.bytes().all(|b| b"celuxnvfo".contains(&b)) {
            return Err(UNKNOWN_OPTION);
        }
        takes_text |= letters.contains('c') && text.starts_with('-');
        if letters.contains('o') && words.next().and_then(ShellWord::as_literal).is_none() {
            return Err(DYNAMIC);
        }
    }
    if takes_text { Err(DYNAMIC) } else { Ok(None) }
}

/// Words joined with blanks, as `eval` does.
fn joined(words: &[ShellWord]) -> Result<String, ShellAnalysisError> {
    let mut text = String::new();
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        // A pattern could become file names, and those could be commands.
        text.push_str(word.as_literal().filter(|_| !word.home).ok_or(DYNAMIC)?);
    }
    Ok(text)
}
