//! The diagrams in the docs are generated from the code; this test fails when they are stale.

use std::path::Path;

use sluice_core::{approval, hold};

/// Rewrite with `UPDATE_DOCS=1`.
#[test]
fn the_diagrams_in_the_docs_are_those_of_the_code() {
    let page = format!(
        "# Lifecycles\n\n\
         Drawn from `HoldState::apply` and `ApprovalState::apply` by the tests of `sluice-core`; run them with\n\
         `UPDATE_DOCS=1` after a change. Names of arrows are the moves, names of boxes the words in rows, answers and\n\
         audit entries.\n\n\
         ## A held write\n\n```mermaid\n{}```\n\n\
         `preparing` and `armed` are the two phases of execution: before `armed` is recorded nothing can have left, from\n\
         then on an unclear end is `in_doubt`, never a retry.\n\n\
         ## A question\n\n```mermaid\n{}```\n",
        hold::diagram::mermaid(),
        approval::diagram::mermaid()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lifecycles.md");
    #[expect(clippy::disallowed_methods, reason = "the switch that rewrites the page belongs to whoever runs the test")]
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "run with UPDATE_DOCS=1");
}
