//! What JSON says: its strings one by one, and put together as somebody could who reads all of them.
//!
//! Takes a document whose strings are honest text; reads it as a whole, each string, and the strings one behind the other.
//! Promise: a string is judged as the same text alone would be; an attack cut into several strings or keys is put together
//! in the order in which they stand; of each rule one finding is given.

use super::super::encoding::fold::fold;
use super::super::json::{Document, Role, joined};
use super::{judge, look};
use crate::finding::{Carrier, Finding};

/// Shorter strings say something only together with others.
const SHORT: usize = 16;

/// Reads a document.
pub(super) fn look_at(document: &Document, best: &mut f32, findings: &mut Vec<Finding>) {
    let mut found = Vec::new();
    look(&document.layout(), Carrier::Plain, best, &mut found);
    let leaves = document.leaves();
    for (_, text) in leaves.iter().filter(|(_, text)| text.len() >= SHORT) {
        look(text, Carrier::Json, best, &mut found);
        if found.len() > 1024 {
            found = Finding::heaviest_of_each(found);
        }
    }
    for role in [Role::Value, Role::Key] {
        if leaves.iter().filter(|(own, _)| *own == role).count() < 2 {
            continue;
        }
        // Cut between words.
        judge(&fold(&joined(&leaves, role, " ")).text, Carrier::Json, best, &mut found);
        // Cut inside of words, or of something encoded.
        if role == Role::Value {
            look(&joined(&leaves, role, ""), Carrier::Json, best, &mut found);
        }
    }
    findings.extend(Finding::heaviest_of_each(found));
}
