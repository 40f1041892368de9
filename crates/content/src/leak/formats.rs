//! Formats of secrets, as data: the forms of vendors' keys.
//!
//! Each row has an id, a name for people, the required marks, and the shape around them. Promise: a row only adds
//! findings; a shape is tested only at one of its marks, so a hundred more rows cost nothing on text without these
//! marks.

mod ai;
mod chat;
mod cloud;
mod code;
mod gateway;
mod money;
mod shapes;
mod watch;

use regex::bytes::Regex;

/// The format of one kind of secret.
#[derive(Debug)]
pub(super) struct SecretFormat {
    /// The stable id, as recorded in the audit log.
    pub(super) id: &'static str,
    /// The name for people.
    pub(super) name: &'static str,
    /// Marks: every secret of this kind contains one of them.
    pub(super) marks: &'static [&'static str],
    /// How far before the mark the secret may start.
    pub(super) back: usize,
    /// The additional condition.
    pub(super) proof: FormatProof,
    /// Whether its marks are searched everywhere, and not only near long tokens: the secret may be short.
    pub(super) loud: bool,
    shape: &'static str,
}

/// The condition of a match beyond its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormatProof {
    /// It must not be a placeholder or one repeated letter.
    Real,
    /// No condition: the shape is enough.
    None,
    /// It must look generated: the shape alone also fits ordinary names.
    Random,
    /// The checksum at its end must be right, after a prefix of this many bytes; or, where vendors changed the
    /// checksum, it must look generated.
    Sum(usize),
    /// It must be the header of a JSON Web Token.
    Token,
    /// One of these words must be near, in lower case.
    Near(&'static [&'static str]),
    /// None of these may be directly before it, in lower case: after them it is not a secret.
    Apart(&'static [&'static str]),
    /// Its base64 must hold a name and a password.
    Pair,
}

/// One row of a table.
const fn row(
    id: &'static str,
    name: &'static str,
    marks: &'static [&'static str],
    shape: &'static str,
) -> SecretFormat {
    SecretFormat { id, name, marks, back: 0, proof: FormatProof::Real, loud: false, shape }
}

impl SecretFormat {
    const fn back(mut self, back: usize) -> Self {
        self.back = back;
        self
    }

    const fn proof(mut self, proof: FormatProof) -> Self {
        self.proof = proof;
        self
    }

    const fn loud(mut self) -> Self {
        self.loud = true;
        self
    }

    /// The shape as a regular expression, anchored if the mark is its start.
    pub(super) fn compile(&self) -> Option<Regex> {
        // Bytes and ASCII classes are enough for the formats, and small programs compile fast.
        let shape = self.shape;
        let text = if self.back == 0 { format!("(?-u)^(?:{shape})") } else { format!("(?-u){shape}") };
        Regex::new(&text).ok()
    }
}

/// All formats.
pub(super) fn all() -> impl Iterator<Item = &'static SecretFormat> {
    let tables = [
        gateway::FORMATS,
        ai::FORMATS,
        cloud::FORMATS,
        code::FORMATS,
        chat::FORMATS,
        money::FORMATS,
        watch::FORMATS,
        shapes::FORMATS,
    ];
    tables.into_iter().flatten()
}

/// Vendors whose keys have no mark: the vendor's name near a random value is the mark.
pub(super) use watch::VENDORS;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_shape_compiles_and_every_id_is_given_once() {
        let mut ids = BTreeSet::new();
        for format in all() {
            assert!(format.compile().is_some(), "{}", format.id);
            assert!(ids.insert(format.id), "{} is given twice", format.id);
            assert!(!format.marks.is_empty() && format.marks.iter().all(|mark| mark.len() >= 2), "{}", format.id);
            assert!(!format.name.is_empty());
        }
        assert!(ids.len() + VENDORS.len() >= 400, "{} formats and {} vendors", ids.len(), VENDORS.len());
    }
}
