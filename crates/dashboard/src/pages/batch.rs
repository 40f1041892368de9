//! The table of a batch: what differs from write to write as columns, unusual writes first.
//!
//! Promise: every write of the card is a row, with its number on the card and everything in which it differs.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::policy::TargetOrigin;
use sluice_gateway::gate::deciding::ApprovalRequest;

use crate::card_lines::{CardFact, CardText};

/// Columns besides the number; further arguments are in the row's details.
const COLUMNS: usize = 4;
/// How many of the longest writes count as unusual.
const LONGEST: usize = 1;

/// One write as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchRow {
    pub(super) id: String,
    pub(super) number: usize,
    pub(super) cells: Vec<String>,
    pub(super) facts: Vec<CardFact>,
    /// Why it is unusual.
    pub(super) odd: Vec<&'static str>,
}

/// All writes of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchTable {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<BatchRow>,
    pub(super) odd: usize,
    /// Domains of addresses, with how many writes go there; most first.
    pub(super) domains: Vec<(String, usize)>,
}

impl BatchTable {
    /// The table of a request, from the text of its card.
    pub(super) fn of(request: &ApprovalRequest, card: &CardText) -> Self {
        let columns = columns(card);
        let longest = longest(card);
        let mut rows: Vec<BatchRow> = card
            .items
            .iter()
            .zip(&request.holds)
            .map(|(item, hold)| {
                let value =
                    |name: &String| item.facts.iter().find(|fact| fact.name == *name).map(|fact| fact.value.clone());
                let origins =
                    request.contents.iter().find(|one| one.hold == hold.id).map_or(&[][..], |one| &one.targets);
                let has = |wanted: TargetOrigin| origins.iter().any(|target| target.origin == wanted);
                let mut odd = Vec::new();
                if has(TargetOrigin::New) {
                    odd.push("new target");
                }
                if has(TargetOrigin::Seen) {
                    odd.push("target from outside text");
                }
                let attaches = |fact: &CardFact| {
                    fact.name.starts_with("attach") && !["", "[]", "null"].contains(&fact.value.as_str())
                };
                if item.facts.iter().any(attaches) {
                    odd.push("attachment");
                }
                if longest.contains(&item.number) {
                    odd.push("longest");
                }
                let cells = columns.iter().map(|name| value(name).unwrap_or_default()).collect();
                BatchRow { id: hold.id.to_string(), number: item.number, cells, facts: item.facts.clone(), odd }
            })
            .collect();
        // What is true of every write makes none of them unusual.
        let count = rows.len();
        for word in ["new target", "target from outside text", "attachment"] {
            if rows.iter().filter(|row| row.odd.contains(&word)).count() == count {
                rows.iter_mut().for_each(|row| row.odd.retain(|one| *one != word));
            }
        }
        rows.sort_by_key(|row| (row.odd.is_empty(), row.number));
        let odd = rows.iter().filter(|row| !row.odd.is_empty()).count();
        Self { columns, odd, domains: domains(&rows), rows }
    }
}

/// The arguments that differ, those of most writes first.
fn columns(card: &CardText) -> Vec<String> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for fact in card.items.iter().flat_map(|item| &item.facts) {
        *seen.entry(&fact.name).or_default() += 1;
    }
    let mut names: Vec<(&str, usize)> = seen.into_iter().collect();
    let rank =
        |name: &str| ["to", "recipients", "path", "url", "command", "subject"].iter().position(|known| *known == name);
    names.sort_by_key(|(name, count)| (rank(name).unwrap_or(usize::MAX), std::cmp::Reverse(*count), *name));
    names.into_iter().take(COLUMNS).map(|(name, _)| name.to_owned()).collect()
}

/// The numbers of the writes that are much longer than the others.
fn longest(card: &CardText) -> BTreeSet<usize> {
    let length = |item: &crate::card_lines::CardItem| item.facts.iter().map(|fact| fact.value.len()).sum::<usize>();
    let mut lengths: Vec<(usize, usize)> = card.items.iter().map(|item| (length(item), item.number)).collect();
    lengths.sort_unstable();
    let usual = lengths.get(lengths.len() / 2).map_or(0, |(length, _)| *length);
    let long = lengths.into_iter().rev().take(LONGEST).filter(|(length, _)| *length > usual.saturating_mul(3) / 2 + 20);
    long.map(|(_, number)| number).collect()
}

fn domains(rows: &[BatchRow]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let values = row.cells.iter().flat_map(|cell| cell.split([',', ' ', '\n']));
        let found: BTreeSet<&str> = values.filter_map(|word| word.rsplit_once('@').map(|(_, domain)| domain)).collect();
        for domain in found {
            *counts.entry(domain.trim_end_matches(['>', '"']).to_lowercase()).or_default() += 1;
        }
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(domain, count)| (std::cmp::Reverse(*count), domain.clone()));
    counts.truncate(8);
    counts
}
