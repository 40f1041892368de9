//! The scan as a whole.

use super::*;

fn scanner() -> Scanner {
    Scanner::new(&Settings::default()).unwrap()
}

fn ids(text: &str) -> Vec<String> {
    let report = scanner().scan(&[Part::new("body", text)], Scope::Service, &LiveSecrets::default());
    report
        .findings
        .into_iter()
        .filter(|finding| finding.weight == Weight::Block)
        .map(|finding| finding.pattern)
        .collect()
}

#[test]
fn nothing_yet() {
    assert!(ids("hello").is_empty());
}
