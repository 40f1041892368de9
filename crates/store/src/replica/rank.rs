//! Ranking: finds the best matches first, in bounded time.
//!
//! Ranking all messages with a common word costs as much as there are such messages. Here the candidates are the newest
//! messages with the words in their subject and the newest with the words anywhere. Of those, the ones that can still
//! be among the best are scored exactly, by their texts. Promise: with no more matches than candidates, the order is
//! that over all matches; with more, the answer says how many were ranked. Skipping a text never changes the order: the
//! most it could add is known before.

use std::collections::HashSet;

use sluice_core::mail::query::{MailSearchField, MailSearchQuery};

use super::replica_file::ReplicaConnection;
use super::search::{
    ChosenRows, MOST_EXAMINED, PlanRowRange, ReplicaSearchPlan, ReplicaSearchRow, ReplicaSearchWindow, checked, rows,
    with_text,
};
use super::snippet;
use crate::error::StoreError;

/// Candidates that match in the subject.
const BY_SUBJECT: usize = 32;
/// Candidates that match anywhere.
const BY_ANY: usize = 64;
/// A text of this length is neither short nor long, in bytes.
const USUAL: f64 = 2_000.0;
/// How fast repetitions of a word stop counting, and how much length counts.
const K: f64 = 1.2;
const B: f64 = 0.6;
/// The score of a word in the subject, or in the sender.
const SUBJECT: f64 = 3.0;
const SENDER: f64 = 1.5;
/// The highest score of a word in the text, no matter how often it occurs.
const TEXT: f64 = K + 1.0;
/// Age after which half of the bonus for new messages is gone, in milliseconds.
const HALF: f64 = 90.0 * 86_400_000.0;

/// A candidate, with its score without the text.
struct RankCandidate {
    sure: f64,
    found: ReplicaSearchRow,
}

/// The best matches, each with the text around the words that were found.
pub fn best(
    opened: &mut ReplicaConnection,
    plan: &ReplicaSearchPlan,
    query: &MailSearchQuery,
    page: ReplicaSearchWindow,
) -> Result<ChosenRows, StoreError> {
    let (candidates, looked_at) = candidates(opened, plan, page.end())?;
    let (over, wanted) = (candidates.len(), page.end().min(candidates.len()));
    let newest = candidates.iter().map(|found| found.hit.received).max().unwrap_or(0);
    let mut left: Vec<RankCandidate> =
        candidates.into_iter().map(|found| RankCandidate { sure: sure(query, &found, newest), found }).collect();
    left.sort_by(|one, other| other.sure.total_cmp(&one.sure));
    let most_of_a_text = TEXT * words(query).count() as f64;
    let mut weighed: Vec<(f64, ReplicaSearchRow)> = Vec::with_capacity(over);
    // The scores of the best so far, the lowest last.
    let mut bar: Vec<f64> = Vec::with_capacity(wanted + 1);
    for RankCandidate { sure, mut found } in left {
        if bar.len() == wanted && bar.last().is_some_and(|least| *least > sure + most_of_a_text) {
            // None of the rest can be among them.
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
    Ok(ChosenRows { found, more: over > page.end(), ranked_over: Some(over), looked_at })
}

/// The messages from which the best are chosen; and, if texts had to be read and there were too many, how many were
/// read.
fn candidates(
    opened: &mut ReplicaConnection,
    plan: &ReplicaSearchPlan,
    wanted: usize,
) -> Result<(Vec<ReplicaSearchRow>, Option<usize>), StoreError> {
    // A page far down the list needs as many candidates, within limits: each of them may have to be unpacked.
    let most = BY_ANY.max(wanted.saturating_add(1)).min(MOST_EXAMINED);
    if plan.needs_look() {
        return checked(opened, plan, most, &[]);
    }
    let newest = |matching, most| PlanRowRange { matching, below: i64::MAX, skip: 0, most, show: &[] };
    let mut any = rows(opened, plan, newest(plan.matching.as_deref(), most))?;
    if any.len() == most {
        let known: HashSet<i64> = any.iter().map(|found| found.key).collect();
        let more = rows(opened, plan, newest(plan.in_subject.as_deref(), BY_SUBJECT))?;
        any.extend(more.into_iter().filter(|found| !known.contains(&found.key)));
    }
    Ok((any, None))
}

/// The words that score a message, and whether each may be a prefix.
fn words(query: &MailSearchQuery) -> impl Iterator<Item = (&str, bool)> {
    let terms = query.terms.iter().filter(|term| !term.not && term.field == MailSearchField::Any);
    terms.flat_map(|term| term.words.iter().map(move |word| (word.as_str(), term.open)))
}

/// The score of a message without its text.
fn sure(query: &MailSearchQuery, found: &ReplicaSearchRow, newest: i64) -> f64 {
    let has =
        |text: &str| words(query).filter(|(word, open)| snippet::count(text, word, *open, 1).0 > 0).count() as f64;
    let age = (newest - found.hit.received).max(0) as f64;
    SUBJECT * has(&found.hit.subject) + SENDER * has(&found.hit.sender) + HALF / (HALF + age)
}

/// The score that the text adds, and the line around the first word.
fn weigh(text: &str, query: &MailSearchQuery) -> (f64, Option<String>) {
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
