//! Which module uses which: inside the crates around the gateway, modules form no cycle.
//!
//! A module is a file or folder beside `lib.rs`. It uses another if its code, without tests, names `crate::other`. What
//! the root of a crate offers under its own name belongs to no module and is not counted.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{RepositoryFile, rust_files};
use crate::{TidyOffence, none};

/// The crates that are checked.
const CRATES: [&str; 6] = ["api", "config", "egress", "gateway", "protocol", "services"];

/// Uses that are not counted: the crate, the module, what it uses, and why.
const EXCEPTIONS: [(&str, &str, Option<&str>, &str); 5] = [
    ("gateway", "gateway", None, "the struct of a running gateway owns the state of every part"),
    ("services", "context", None, "the struct that services get owns every part that they may use"),
    ("api", "http", Some("approval_page"), "the listener hands a request to the door of its path"),
    ("api", "http", Some("mcp"), "the listener hands a request to the door of its path"),
    ("api", "http", Some("telegram_webhook"), "the listener hands a request to the door of its path"),
];

/// Each module with the modules that it uses.
type ModuleGraph = BTreeMap<String, BTreeSet<String>>;

/// The module of a source file; `None` for the root of a crate.
fn module_of<'p>(path: &'p str, krate: &str) -> Option<&'p str> {
    let rest = path.strip_prefix("crates/")?.strip_prefix(krate)?.strip_prefix("/src/")?;
    let first = rest.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&module)).then_some(module)
}

/// The first segments of the paths of a source that begin at the root of its crate.
fn used(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.flat_map(|line| [line, "\n"]).collect();
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        let rest = &code[at + "crate::".len()..];
        if is_word {
            continue;
        }
        match rest.strip_prefix('{') {
            None => found.extend([word(rest)]),
            Some(group) => {
                let mut depth = 0_usize;
                let mut start = true;
                for (index, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if start && !c.is_whitespace() => {
                            found.extend([word(&group[index..])]);
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    found
}

fn graph(krate: &str, files: &[RepositoryFile]) -> ModuleGraph {
    let mut graph = ModuleGraph::new();
    let sources = files.iter().filter_map(|file| Some((module_of(&file.path, krate)?, file)));
    for (module, file) in sources.filter(|(_, file)| !file.path.ends_with("/tests.rs")) {
        graph.entry(module.to_owned()).or_default().extend(used(&file.text));
    }
    let known: BTreeSet<String> = graph.keys().cloned().collect();
    for (module, uses) in &mut graph {
        uses.retain(|other| other != module && known.contains(other));
        for (_, _, other, _) in EXCEPTIONS.iter().filter(|(of, from, ..)| *of == krate && from == module) {
            uses.retain(|one| other.is_some_and(|other| one != other));
        }
    }
    graph
}

/// The modules that are left when those that use nothing that is left are taken away, again and again.
fn in_cycles(mut graph: ModuleGraph) -> ModuleGraph {
    loop {
        let done: Vec<String> =
            graph.iter().filter(|(_, uses)| uses.is_empty()).map(|(name, _)| name.clone()).collect();
        if done.is_empty() {
            return graph;
        }
        graph.retain(|name, _| !done.contains(name));
        graph.values_mut().for_each(|uses| uses.retain(|other| !done.contains(other)));
    }
}

fn cycles(krate: &str, files: &[RepositoryFile]) -> Vec<TidyOffence> {
    let uses = |(module, uses): (&String, &BTreeSet<String>)| format!("{module} uses {uses:?}");
    let left: Vec<String> = in_cycles(graph(krate, files)).iter().map(uses).collect();
    if left.is_empty() { Vec::new() } else { vec![format!("crates/{krate}: a cycle: {}", left.join("; "))] }
}

#[test]
fn modules_form_no_cycle() {
    let files = rust_files();
    assert!(CRATES.iter().all(|krate| graph(krate, &files).len() > 3), "a crate was not found");
    none(CRATES.iter().flat_map(|krate| cycles(krate, &files)).collect());
}

#[test]
fn every_exception_is_still_needed() {
    let files = rust_files();
    let needed = |(krate, from, other, _): &&(&str, &str, Option<&str>, &str)| {
        let of_module = files.iter().filter(|file| module_of(&file.path, krate) == Some(from));
        let uses: BTreeSet<String> = of_module.flat_map(|file| used(&file.text)).collect();
        other.map_or(uses.len() > 3, |other| uses.contains(other))
    };
    let stale: Vec<_> = EXCEPTIONS.iter().filter(|exception| !needed(exception)).collect();
    assert!(stale.is_empty(), "{stale:?}");
}

#[test]
fn a_planted_cycle_is_found() {
    let file = |module: &str, text: &str| RepositoryFile::planted(&format!("crates/services/src/{module}.rs"), text);
    let chain = [file("one", "use crate::two::A;"), file("two/inner", "// crate::one\nfn f() { crate::three::g() }")];
    assert!(cycles("services", &chain).is_empty());
    for closing in ["use crate::one::B;", "use crate::{\n    Root,\n    one::{A, B},\n};", "fn g() { crate::one::h() }"]
    {
        let planted = [&chain[..], &[file("three", closing)]].concat();
        assert_eq!(cycles("services", &planted).len(), 1, "{closing}");
    }
    let test = file("three", "fn g() {}\n#[cfg(test)]\nmod tests {\n    use crate::one;\n}");
    assert!(cycles("services", &[&chain[..], &[test]].concat()).is_empty(), "tests may use what they need");
}
