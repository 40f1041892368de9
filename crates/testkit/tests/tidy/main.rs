//! Rules of this repository that the compiler cannot check.
//!
//! Each rule is one test whose name is the rule; it names every offender by file and line. Next to each rule is a
//! planted offence, so that no rule can silently stop working.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: where the repository cannot be read, it should fail at that line"
)]

mod layers;
mod lexer;
mod machine;
mod modules;
mod names;
mod promises;
mod repository;
mod source;

/// One breach of a rule, as `file:line: what`.
type TidyOffence = String;

/// Fails with all offenders, one per line.
fn none(offences: Vec<TidyOffence>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}
