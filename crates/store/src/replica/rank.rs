//! The best first, in bounded time.
//!
//! A rank over all messages with a common word costs as much as there are messages with it. Here the newest
//! that have the words in their subject and the newest that have them anywhere are the candidates; those are
//! weighed exactly, by their texts. Promise: with no more matches than candidates the order is that over all
//! matches; with more, the answer says over how many it is.

use std::collections::HashSet;

use sluice_core::mail::query::{Field, Query};

use super::copy::Opened;
use super::search::{Found, Plan, checked, rows, with_text};
use super::snippet;
use crate::error::StoreError;

/// Candidates by subject.
const BY_SUBJECT: usize = 32;
/// Candidates by anything.
const BY_ANY: usize = 64;
/// A text of this length is neither short nor long, in bytes.
const USUAL: f64 = 2_000.0;
/// How soon more of the same word stops to count, and how much length does.
const K: f64 = 1.2;
const B: f64 = 0.6;
/// What a word in the subject, or in the sender, is worth.
const SUBJECT: f64 = 3.0;
const SENDER: f64 = 1.5;
/// Age after which half of the worth of being new is gone, in milliseconds.
const HALF: f64 = 90.0 * 86_400_000.0;

/// What was found, whether there is more, and among how many it was chosen.
pub type Best = (Vec<Found>, bool, Option<usize>);

/// The best.
pub fn best(opened: &mut Opened, plan: &Plan, query: &Query, limit: usize, offset: usize) -> Result<Best, StoreError> {
    // A page far down the list needs as many candidates.
    let most = BY_ANY.max(limit + offset + 1);
    let mut candidates = if plan.needs_look() {
        checked(opened, plan, most)?
    } else {
        let mut any = rows(opened, plan, plan.matching.as_deref(), i64::MAX, most)?;
        if any.len() == most {
            let known: HashSet<i64> = any.iter().map(|found| found.key).collect();
            let more = rows(opened, plan, plan.in_subject.as_deref(), i64::MAX, BY_SUBJECT)?;
            any.extend(more.into_iter().filter(|found| !known.contains(&found.key)));
        }
        any
    };
    let over = candidates.len();
    let newest = candidates.iter().map(|found| found.hit.received).max().unwrap_or(0);
    let mut weighed = Vec::with_capacity(over);
    for found in candidates.drain(..) {
        let weight = weigh(opened, query, &found, newest)?;
        weighed.push((weight, found));
    }
    weighed.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(b.key.cmp(&a.key)));
    let more = over > limit + offset;
    let page = weighed.into_iter().skip(offset).take(limit).map(|(_, found)| found);
    Ok((page.collect(), more, Some(over)))
}

fn weigh(opened: &mut Opened, query: &Query, found: &Found, newest: i64) -> Result<f64, StoreError> {
    let words = || {
        let terms = query.terms.iter().filter(|term| !term.not && term.field == Field::Any);
        terms.flat_map(|term| term.words.iter().map(move |word| (word.as_str(), term.open)))
    };
    let in_text: f64 = with_text(opened, found.key, |text| {
        let long = B.mul_add(text.len() as f64 / USUAL, 1.0 - B);
        words()
            .map(|(word, open)| f64::from(snippet::count(text, word, open, 20).0))
            .map(|times| times * (K + 1.0) / K.mul_add(long, times))
            .sum()
    })?;
    let has = |text: &str| words().filter(|(word, open)| snippet::count(text, word, *open, 1).0 > 0).count() as f64;
    let age = (newest - found.hit.received).max(0) as f64;
    Ok(in_text + SUBJECT * has(&found.hit.subject) + SENDER * has(&found.hit.sender) + HALF / (HALF + age))
}
