//! Formats of secrets, as data: what a vendor's keys look like.
//!
//! Each row has an id, a name for people, the marks that must be there, and the shape around them. Promise:
//! a row only adds to what is found; a shape is looked at only where one of its marks stands, so that
//! a hundred more rows cost nothing on text without them.

mod ai;
mod chat;
mod cloud;
mod code;
mod gateway;
mod money;
mod shapes;
mod watch;

use regex::bytes::Regex;

/// How one kind of secret looks.
#[derive(Debug)]
pub(super) struct Format {
    /// Stable id, as it stands in the record.
    pub(super) id: &'static str,
    /// For people.
    pub(super) name: &'static str,
    /// Bytes one of which every secret of this kind holds.
    pub(super) marks: &'static [&'static str],
    /// How far before the mark it may start.
    pub(super) back: usize,
    /// What else must hold.
    pub(super) proof: Proof,
    /// Whether its marks are looked for everywhere, and not only at long tokens: what it guards may be short.
    pub(super) loud: bool,
    shape: &'static str,
}

/// What a match must show beyond its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// That it is no placeholder, and not one letter again and again.
    Real,
    /// Nothing: the shape is proof enough.
    None,
    /// That it looks generated: the shape alone also fits ordinary names.
    Random,
    /// The sum at its end, after a prefix of so many bytes; or, where vendors changed it, that it looks generated.
    Sum(usize),
    /// The header of a JSON Web Token.
    Token,
    /// A word nearby, in lower case.
    Near(&'static [&'static str]),
    /// That none of these stands directly before it, in lower case: there it is no secret.
    Apart(&'static [&'static str]),
    /// That its base64 holds a name and a password.
    Pair,
}

/// A row of a table.
const fn row(id: &'static str, name: &'static str, marks: &'static [&'static str], shape: &'static str) -> Format {
    Format { id, name, marks, back: 0, proof: Proof::Real, loud: false, shape }
}

impl Format {
    const fn back(mut self, back: usize) -> Self {
        self.back = back;
        self
    }

    const fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    const fn loud(mut self) -> Self {
        self.loud = true;
        self
    }

    /// The shape as a regular expression, anchored where its mark is its start.
    pub(super) fn compile(&self) -> Option<Regex> {
        // Bytes and ASCII classes: formats need no more, and small programs compile fast.
        let shape = self.shape;
        let text = if self.back == 0 { format!("(?-u)^(?:{shape})") } else { format!("(?-u){shape}") };
        Regex::new(&text).ok()
    }
}

/// Every format there is.
pub(super) fn all() -> impl Iterator<Item = &'static Format> {
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

/// Vendors whose keys have no mark: their name beside a random value is the mark.
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
