//! Rules about what a source file may contain.

use crate::lexer::{SourceKind, pieces};
use crate::repository::{RepositoryFile, rust_files};
use crate::{TidyOffence, none};

/// Longest file, in lines, not counting its tests.
const LONGEST: usize = 600;

fn offences(rule: fn(&RepositoryFile) -> Vec<TidyOffence>) -> Vec<TidyOffence> {
    rust_files().iter().flat_map(rule).collect()
}

/// The part before the unit tests.
fn without_tests(text: &str) -> &str {
    let begin =
        ["\n#[cfg(test)]\nmod ", "\n#[cfg(test)]\npub(crate) mod "].iter().filter_map(|mark| text.find(mark)).min();
    begin.map_or(text, |at| &text[..=at])
}

/// Whether `text` holds `word` as a whole word.
fn has_word(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(inside) && !text[at + word.len()..].starts_with(inside))
}

/// Every line of every piece of a kind, with its number.
fn lines_of(text: &str, kind: impl Fn(SourceKind) -> bool) -> Vec<(usize, &str)> {
    let wanted = pieces(text).into_iter().filter(|piece| kind(piece.kind));
    wanted.flat_map(|piece| piece.text.lines().enumerate().map(move |(n, line)| (piece.line + n, line))).collect()
}

/// The files elsewhere that may contain SQL: faults planted for the crash tests must bypass the store, and a test that
/// takes a server away must talk to the server.
const AROUND: [&str; 2] = ["crates/testkit/src/bin/driver/planted_faults.rs", "crates/testkit/src/postgres.rs"];

fn sql(file: &RepositoryFile) -> Vec<TidyOffence> {
    if file.crate_with_this_source().is_none_or(|folder| folder == "store") || AROUND.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let texts = pieces(without_tests(&file.text)).into_iter().filter(|piece| piece.kind == SourceKind::Text);
    let is_sql = |text: &str| {
        let in_order = |first: &str, second: &str| text.find(first).is_some_and(|at| text[at..].contains(second));
        ["SELECT ", "INSERT INTO", "DELETE FROM"].iter().any(|verb| text.contains(verb)) || in_order("UPDATE ", " SET ")
    };
    texts.filter(|piece| is_sql(piece.text)).map(|piece| file.offence(piece.line, "SQL outside `store`")).collect()
}

#[test]
fn only_the_store_contains_sql() {
    none(offences(sql));
}

#[test]
fn planted_sql_is_found() {
    for text in ["\"SELECT 1\"", "r#\"\nUPDATE holds\n SET a = 1\"#", "\"INSERT INTO a\"", "\"DELETE FROM a\""] {
        let text = format!("// SELECT in a comment is prose\nlet q = {text};");
        assert_eq!(
            sql(&RepositoryFile::planted("crates/core/src/a.rs", &text)),
            ["crates/core/src/a.rs:2: SQL outside `store`"]
        );
        assert!(sql(&RepositoryFile::planted("crates/store/src/a.rs", &text)).is_empty());
        assert_eq!(sql(&RepositoryFile::planted("crates/testkit/src/bin/driver/life.rs", &text)).len(), 1);
    }
}

fn unsafety(file: &RepositoryFile) -> Vec<TidyOffence> {
    if ["crates/sandbox/", "crates/seal/"].iter().any(|own| file.path.starts_with(own)) {
        return Vec::new();
    }
    let word = concat!("un", "safe");
    let code = lines_of(&file.text, |kind| kind == SourceKind::Code);
    let found = code.into_iter().filter(|(_, line)| has_word(line, word));
    found.map(|(line, _)| file.offence(line, "unsafe code outside `sandbox` and `seal`")).collect()
}

#[test]
fn unsafe_code_is_nowhere_but_in_the_sandbox_and_the_seal() {
    none(offences(unsafety));
}

#[test]
fn planted_unsafe_code_is_found() {
    let text = format!("// {0}\nlet a = \"{0}\"; let {0}_code = 1;\n{0} {{}}", concat!("un", "safe"));
    assert_eq!(
        unsafety(&RepositoryFile::planted("xtask/src/a.rs", &text)),
        ["xtask/src/a.rs:3: unsafe code outside `sandbox` and `seal`"]
    );
    assert!(unsafety(&RepositoryFile::planted("crates/sandbox/src/a.rs", &text)).is_empty());
}

fn front_page(file: &RepositoryFile) -> Vec<TidyOffence> {
    let bare = file.crate_with_this_source().is_some() && !file.text.starts_with("//! ");
    bare.then(|| file.offence(1, "the file does not open with `//!` and what it promises")).into_iter().collect()
}

#[test]
fn every_source_file_opens_by_saying_what_it_does() {
    none(offences(front_page));
}

#[test]
fn a_planted_file_without_a_header_is_found() {
    assert_eq!(front_page(&RepositoryFile::planted("crates/core/src/a.rs", "use std::fmt;\n//! late\n")).len(), 1);
    assert_eq!(front_page(&RepositoryFile::planted("crates/core/src/a.rs", "//!\n")).len(), 1);
    assert!(front_page(&RepositoryFile::planted("crates/core/src/a.rs", "//! Words.\n")).is_empty());
}

fn length(file: &RepositoryFile) -> Vec<TidyOffence> {
    // `tests.rs` beside a module holds the module's tests in a separate file.
    let lines = if file.path.ends_with("tests.rs") { 0 } else { without_tests(&file.text).lines().count() };
    let what = format!("{lines} lines before the tests, at most {LONGEST}: it is two files");
    (lines > LONGEST).then(|| file.offence(LONGEST + 1, &what)).into_iter().collect()
}

#[test]
fn no_source_file_is_too_long_to_read() {
    none(offences(length));
}

#[test]
fn a_planted_long_file_is_found_and_its_tests_do_not_count() {
    let long = "fn a() {}\n".repeat(LONGEST + 1);
    assert_eq!(length(&RepositoryFile::planted("a.rs", &long)).len(), 1);
    let tested = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    assert!(length(&RepositoryFile::planted("a.rs", &tested)).is_empty());
    assert!(length(&RepositoryFile::planted("a/tests.rs", &long)).is_empty());
    let one_test_import = format!("#[cfg(test)]\nuse std::fmt;\n{long}");
    assert_eq!(length(&RepositoryFile::planted("a.rs", &one_test_import)).len(), 1);
}

fn unfinished(file: &RepositoryFile) -> Vec<TidyOffence> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!")];
    let said = lines_of(&file.text, |kind| kind != SourceKind::Text).into_iter().filter(|(_, line)| {
        words.iter().any(|word| has_word(line, word)) || macros.iter().any(|name| line.contains(name))
    });
    said.map(|(line, _)| file.offence(line, "unfinished work: finish it or open an issue")).collect()
}

#[test]
fn nothing_is_left_unfinished_in_the_source() {
    none(offences(unfinished));
}

#[test]
fn planted_unfinished_work_is_found() {
    for text in [
        concat!("// TO", "DO: later"),
        concat!("/* FIX", "ME */"),
        concat!("to", "do!()"),
        concat!("unimple", "mented!()"),
    ] {
        assert_eq!(unfinished(&RepositoryFile::planted("a.rs", &format!("fn a() {{\n{text}\n}}"))).len(), 1, "{text}");
    }
    assert!(unfinished(&RepositoryFile::planted("a.rs", concat!("let a = \"my TO", "DO list\";"))).is_empty());
}
