//! Names of types: each says what the type is, is used once, and shadows nothing that everybody knows.
//!
//! Takes the top-level types of the workspace's sources; `shared_names.txt` lists the names that two types may share, with
//! the reason. The glossary names types that exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{RepositoryFile, read, rust_files};
use crate::{TidyOffence, none};

/// Names of the Rust prelude and of types that a direct dependency is known for.
const TAKEN: [&str; 58] = [
    "Arc",
    "AsMut",
    "AsRef",
    "Box",
    "Bytes",
    "Cell",
    "Client",
    "Clone",
    "Copy",
    "Cow",
    "Debug",
    "Default",
    "Drop",
    "Duration",
    "Eq",
    "Err",
    "Error",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "Future",
    "HashMap",
    "HeaderMap",
    "Instant",
    "Into",
    "Iterator",
    "JsonSchema",
    "Map",
    "Mutex",
    "None",
    "Number",
    "Ok",
    "Option",
    "Ord",
    "Path",
    "PathBuf",
    "Rc",
    "Read",
    "Regex",
    "Request",
    "Response",
    "Result",
    "Send",
    "Sized",
    "Some",
    "Span",
    "String",
    "Sync",
    "Timestamp",
    "ToString",
    "Uri",
    "Url",
    "Value",
    "Vec",
    "Write",
    "Zoned",
];

/// At most so many of a hundred type names are a single word.
const SINGLE_WORDS: usize = 10;
/// At most so many of a hundred types share their name with another type.
const SHARED: usize = 5;

/// A type declared at the top level of a file.
struct DeclaredType<'a> {
    file: &'a RepositoryFile,
    line: usize,
    name: &'a str,
}

/// The name that a line at the margin declares a type by.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(inside) => inside.split_once(") ")?.1,
            None => after.strip_prefix(' ')?,
        };
    }
    rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (kind, rest) = rest.split_once(' ')?;
    if !["struct", "enum", "trait", "type", "union"].contains(&kind) {
        return None;
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn types(files: &[RepositoryFile]) -> Vec<DeclaredType<'_>> {
    let sources = files.iter().filter(|file| file.is_rust() && file.path.starts_with("crates/"));
    let lines = sources.flat_map(|file| file.text.lines().enumerate().map(move |(n, line)| (file, n + 1, line)));
    lines.filter_map(|(file, line, text)| Some(DeclaredType { file, line, name: declared(text)? })).collect()
}

/// Words of a name: each begins with a capital.
fn words(name: &str) -> usize {
    let letters: Vec<char> = name.chars().collect();
    let begins = |n: usize| {
        let next_is_small = letters.get(n + 1).is_some_and(char::is_ascii_lowercase);
        letters[n].is_ascii_uppercase() && (n == 0 || !letters[n - 1].is_ascii_uppercase() || next_is_small)
    };
    (0..letters.len()).filter(|&n| begins(n)).count()
}

fn shadows(types: &[DeclaredType]) -> Vec<TidyOffence> {
    let taken = types.iter().filter(|declared| TAKEN.contains(&declared.name));
    taken.map(|declared| declared.file.offence(declared.line, &format!("`{}` is taken", declared.name))).collect()
}

/// Names that more than one type has and that the reviewed list does not allow, and listed names that are not shared.
fn shared(types: &[DeclaredType], reviewed: &RepositoryFile) -> Vec<TidyOffence> {
    let mut by_name: BTreeMap<&str, Vec<&DeclaredType>> = BTreeMap::new();
    for declared in types {
        by_name.entry(declared.name).or_default().push(declared);
    }
    by_name.retain(|_, places| places.len() > 1);
    let mut listed = BTreeMap::new();
    let mut offences = Vec::new();
    for (n, line) in reviewed.text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once(": ") {
            Some((name, _)) if by_name.contains_key(name) => drop(listed.insert(name, n)),
            Some((name, _)) => {
                offences.push(reviewed.offence(n + 1, &format!("`{name}` is not shared: delete the line")))
            }
            None => offences.push(reviewed.offence(n + 1, "not `Name: reason`")),
        }
    }
    for (name, places) in by_name.iter().filter(|(name, _)| !listed.contains_key(*name)) {
        let all: Vec<String> = places.iter().map(|place| format!("{}:{}", place.file.path, place.line)).collect();
        offences.push(format!("`{name}` names {} types: {}", places.len(), all.join(", ")));
    }
    offences
}

#[test]
fn no_type_has_a_name_that_is_taken() {
    none(shadows(&types(&rust_files())));
}

#[test]
fn no_type_shares_its_name_without_a_reviewed_reason() {
    none(shared(&types(&rust_files()), &read("crates/testkit/tests/tidy/shared_names.txt")));
}

#[test]
fn most_type_names_say_what_the_type_is() {
    let files = rust_files();
    let types = types(&files);
    let single = types.iter().filter(|declared| words(declared.name) == 1).count();
    let mut names = BTreeMap::new();
    types.iter().for_each(|declared| *names.entry(declared.name).or_insert(0) += 1);
    let shared: usize = names.values().filter(|count| **count > 1).sum();
    let all = types.len();
    println!("{all} types, {single} of one word, {shared} with a shared name");
    assert!(single * 100 <= all * SINGLE_WORDS, "{single} of {all} type names are one word");
    assert!(shared * 100 <= all * SHARED, "{shared} of {all} types share their name");
}

#[test]
fn planted_names_are_found() {
    let files = [
        RepositoryFile::planted(
            "crates/core/src/a.rs",
            "pub(crate) struct Copy;\nstruct Plan {\n    type Inner = u8;\n",
        ),
        RepositoryFile::planted("crates/store/src/b.rs", "pub enum Plan<T> {\npub trait HttpUrl: Send {\n"),
        RepositoryFile::planted("xtask/src/c.rs", "struct Plan;\n"),
    ];
    let types = types(&files);
    let names: Vec<&str> = types.iter().map(|declared| declared.name).collect();
    assert_eq!(names, ["Copy", "Plan", "Plan", "HttpUrl"]);
    assert_eq!(shadows(&types), ["crates/core/src/a.rs:1: `Copy` is taken"]);
    let none = RepositoryFile::planted("list.txt", "# a comment\n\n");
    assert_eq!(shared(&types, &none).len(), 1);
    assert!(shared(&types, &RepositoryFile::planted("list.txt", "Plan: two halves of one thing\n")).is_empty());
    assert_eq!(shared(&types, &RepositoryFile::planted("list.txt", "Plan: two\nHttpUrl: one\nPlan\n")).len(), 2);
    assert_eq!(["Plan", "HttpUrl", "MCP", "XtsBlock", "Block4"].map(words), [1, 2, 1, 2, 1]);
}

/// Types in backticks that the glossary names and no source declares.
fn unknown_terms(glossary: &RepositoryFile, declared: &BTreeSet<&str>) -> Vec<TidyOffence> {
    let rows = glossary.text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let quoted = rows.flat_map(|(n, line)| line.split('`').skip(1).step_by(2).map(move |word| (n + 1, word)));
    let is_type = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let unknown = quoted.filter(|(_, word)| is_type(word) && !declared.contains(word));
    unknown.map(|(line, word)| glossary.offence(line, &format!("there is no type `{word}`"))).collect()
}

#[test]
fn the_glossary_names_types_that_exist() {
    let files = rust_files();
    let types = types(&files);
    let glossary = read("docs/glossary.md");
    assert!(glossary.text.lines().filter(|line| line.starts_with('|')).count() > 20, "the glossary has no table");
    none(unknown_terms(&glossary, &types.iter().map(|declared| declared.name).collect()));
}

#[test]
fn a_planted_term_without_a_type_is_found() {
    let declared = BTreeSet::from(["Hold"]);
    assert_eq!(
        unknown_terms(
            &RepositoryFile::planted("g.md", "| hold | a write | `Hold`, `Gone`, `a_file.rs` |\n"),
            &declared
        )
        .len(),
        1
    );
}
