//! The content of JSON: its strings one by one, and joined as a reader of all strings could join them.
//!
//! Takes a document with cleaned strings; reads it as a whole, each string, and all strings in sequence. Promise: a
//! string is judged like the same text alone; an attack that is split over several strings or keys is joined in
//! document order; each rule gives one finding.

use super::super::encoding::fold::fold;
use super::super::json::{JsonDocument, JsonStringRole, joined};
use super::InjectionScan;
use crate::finding::{Carrier, Finding};

/// Shorter strings are read only together with others.
const SHORT: usize = 16;

/// Reads a document.
pub(super) fn look_at(document: &JsonDocument, scan: &mut InjectionScan) {
    let before = std::mem::take(&mut scan.findings);
    scan.look(&document.layout(), Carrier::Plain);
    let leaves = document.leaves();
    for (_, text) in leaves.iter().filter(|(_, text)| text.len() >= SHORT) {
        scan.look(text, Carrier::Json);
        if scan.findings.len() > 1024 {
            scan.findings = Finding::heaviest_of_each(std::mem::take(&mut scan.findings));
        }
    }
    for role in [JsonStringRole::Value, JsonStringRole::Key] {
        if leaves.iter().filter(|(own, _)| *own == role).count() < 2 {
            continue;
        }
        // Split between words.
        scan.judge(&fold(&joined(&leaves, role, " ")).text, Carrier::Json, None);
        // Split inside words, or inside encoded text.
        if role == JsonStringRole::Value {
            scan.look(&joined(&leaves, role, ""), Carrier::Json);
        }
    }
    let found = Finding::heaviest_of_each(std::mem::replace(&mut scan.findings, before));
    scan.findings.extend(found);
}
