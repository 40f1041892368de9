//! The content of JSON: its strings one by one, and joined as a reader of all strings could join them.
//!
//! Takes a document with cleaned strings; reads it as a whole, each string, and all strings in sequence. Promise: a
//! string is judged like the same text alone; an attack that is split over several strings or keys is joined in
//! document order; each rule gives one finding.

use super::super::encoding::fold::fold;
use super::super::json::{JsonDocument, JsonStringRole, joined};
use super::{judge, look};
use crate::finding::{Carrier, Finding};

/// Shorter strings are read only together with others.
const SHORT: usize = 16;

/// Reads a document.
pub(super) fn look_at(document: &JsonDocument, best: &mut f32, findings: &mut Vec<Finding>) {
    let mut found = Vec::new();
    look(&document.layout(), Carrier::Plain, best, &mut found);
    let leaves = document.leaves();
    for (_, text) in leaves.iter().filter(|(_, text)| text.len() >= SHORT) {
        look(text, Carrier::Json, best, &mut found);
        if found.len() > 1024 {
            found = Finding::heaviest_of_each(found);
        }
    }
    for role in [JsonStringRole::Value, JsonStringRole::Key] {
        if leaves.iter().filter(|(own, _)| *own == role).count() < 2 {
            continue;
        }
        // Split between words.
        judge(&fold(&joined(&leaves, role, " ")).text, Carrier::Json, best, &mut found);
        // Split inside words, or inside encoded text.
        if role == JsonStringRole::Value {
            look(&joined(&leaves, role, ""), Carrier::Json, best, &mut found);
        }
    }
    findings.extend(Finding::heaviest_of_each(found));
}
