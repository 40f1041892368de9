//! The rules of this repository that no compiler knows.
//!
//! Each rule is one test whose name is the rule; it names every offender by file and line. Beside
//! each rule stands a planted offence, so that no rule can quietly stop looking.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test: where the repository cannot be read, it should fail at that line"
)]

mod layers;
mod lexer;
mod machine;
mod promises;
mod repository;
mod source;

/// One breach of a rule, as `file:line: what`.
type Offence = String;

/// Fails with all offenders, one per line.
fn none(offences: Vec<Offence>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}
