//! The best first, in bounded time.
//!
//! A rank over all messages with a common word costs as much as there are messages with it. Here the newest
//! that have the words in their subject and the newest that have them anywhere are the candidates; of those, the ones
//! that can still be among the best are weighed exactly, by their texts. Promise: with no more matches than candidates
//! the order is that over all matches; with more, the answer says over how many it is. Not opening a text never changes
//! the order: what it could add at most is known before.

use std::collections::HashSet;

use sluice_core::mail::query::{Field, Query};

use super::copy::Opened;
use super::search::{Chosen, Found, MOST_EXAMINED, Page, Plan, Range, checked, rows, with_text};
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
/// What a word in the text is worth at most, however often it is there.
const TEXT: f64 = K + 1.0;
/// Age after which half of the worth of being new is gone, in milliseconds.
const HALF: f64 = 90.0 * 86_400_000.0;

/// A candidate, and what is known of its weight without its text.
struct Candidate {
    sure: f64,
    found: Found,
}

/// The best, each with the words found in their place.
pub fn best(opened: &mut Opened, plan: &Plan, query: &Query, page: Page) -> Result<Chosen, StoreError> {
    let (candidates, looked_at) = candidates(opened, plan, page.end())?;
    let (over, wanted) = (candidates.len(), page.end().min(candidates.len()));
    let newest = candidates.iter().map(|found| found.hit.received).max().unwrap_or(0);
    let mut left: Vec<Candidate> =
        candidates.into_iter().map(|found| Candidate { sure: sure(query, &found, newest), found }).collect();
    left.sort_by(|one, other| other.sure.total_cmp(&one.sure));
    let most_of_a_text = TEXT * words(query).count() as f64;
    let mut weighed: Vec<(f64, Found)> = Vec::with_capacity(over);
    // The weights of the best so far, the least of them last.
    let mut bar: Vec<f64> = Vec::with_capacity(wanted + 1);
    for Candidate { sure, mut found } in left {
        if bar.len() == wanted && bar.last().is_some_and(|least| *least > sure + most_of_a_text) {
            // Nor can any of the rest be among them.
            break;
        }
        let Some((in_text, line)) = with_text(opened, found.key, |text| weigh(text, query))? else { continue };
        if let Some(line) = line {
            found.hit.snippet = line;
        }
        let weight = sure + in_text;
        bar.insert(bar.partition_point(|other| *other >= weight), weight);
        bar.truncate(wanted);
        weighed.push((weight, found));
    }
    weighed.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(b.key.cmp(&a.key)));
    let found = weighed.into_iter().skip(page.offset).take(page.limit).map(|(_, found)| found).collect();
    Ok(Chosen { found, more: over > page.end(), ranked_over: Some(over), looked_at })
}

/// Those the best are chosen from; and, where texts had to be looked at and there were too many, at how many.
fn candidates(opened: &mut Opened, plan: &Plan, wanted: usize) -> Result<(Vec<Found>, Option<usize>), StoreError> {
    // A page far down the list needs as many candidates, within reason: each of them may have to be opened.
    let most = BY_ANY.max(wanted.saturating_add(1)).min(MOST_EXAMINED);
    if plan.needs_look() {
        return checked(opened, plan, most, &[]);
    }
    let newest = |matching, most| Range { matching, below: i64::MAX, skip: 0, most, show: &[] };
    let mut any = rows(opened, plan, newest(plan.matching.as_deref(), most))?;
    if any.len() == most {
        let known: HashSet<i64> = any.iter().map(|found| found.key).collect();
        let more = rows(opened, plan, newest(plan.in_subject.as_deref(), BY_SUBJECT))?;
        any.extend(more.into_iter().filter(|found| !known.contains(&found.key)));
    }
    Ok((any, None))
}

/// The words a message is weighed by, and whether each may go on.
fn words(query: &Query) -> impl Iterator<Item = (&str, bool)> {
    let terms = query.terms.iter().filter(|term| !term.not && term.field == Field::Any);
    terms.flat_map(|term| term.words.iter().map(move |word| (word.as_str(), term.open)))
}

/// What a message weighs without its text.
fn sure(query: &Query, found: &Found, newest: i64) -> f64 {
    let has =
        |text: &str| words(query).filter(|(word, open)| snippet::count(text, word, *open, 1).0 > 0).count() as f64;
    let age = (newest - found.hit.received).max(0) as f64;
    SUBJECT * has(&found.hit.subject) + SENDER * has(&found.hit.sender) + HALF / (HALF + age)
}

/// What its text adds, and the line around the first word.
fn weigh(text: &str, query: &Query) -> (f64, Option<String>) {
    let long = B.mul_add(text.len() as f64 / USUAL, 1.0 - B);
    let (mut weight, mut first) = (0.0, None);
    for (word, open) in words(query) {
        let (times, place) = snippet::count(text, word, open, 20);
        let times = f64::from(times);
        weight += times * TEXT / K.mul_add(long, times);
        first = first.into_iter().chain(place).min();
    }
    (weight, first.and_then(|place| snippet::line(text, place)))
}
