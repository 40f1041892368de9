//! The history checker: whether what the record tells could have happened, and led to these rows.
//!
//! Takes a store; reads every audit log, the held writes and the questions. Gives what the record
//! contains, or the first thing in it that cannot be: a broken chain, a step the lifecycle does not
//! have, a gap or a fork in a write's story, a row that says something else, a counter that a recount
//! does not confirm, a write nobody would ever look at again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sluice_core::approval::{self, ApprovalState, Subject};
use sluice_core::audit::{Entry, Head, leaf};
use sluice_core::batch::Window;
use sluice_core::hold::diagram::Edge;
use sluice_core::hold::{self, Hold, HoldState};
use sluice_core::{Actor, AgentName, ApprovalId, Digest, HoldId, ServiceName, Timestamp};
use sluice_store::{Card, Store, StoreError};

/// What the record tells, after it has been believed.
#[derive(Debug, Default)]
pub struct History {
    /// Every held write as its row has it.
    pub holds: BTreeMap<HoldId, Hold>,
    /// Every question as its row has it.
    pub cards: BTreeMap<ApprovalId, Card>,
    /// Steps of held writes that were taken, and how often.
    pub taken: BTreeMap<Edge, u32>,
    /// Steps of questions that were taken, and how often.
    pub asked: BTreeMap<Edge, u32>,
    /// Questions whose writes were set aside while they were asked.
    dropped: BTreeSet<ApprovalId>,
}

/// Why the record is not believed. Names the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw(pub String);

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Flaw {
    fn from(error: StoreError) -> Self {
        Self(format!("the store cannot be read: {error}"))
    }
}

/// Entries read at a time.
const PAGE: u32 = 1000;

/// Reads the whole record and believes it, or says why not. All writes share one batch window.
///
/// # Errors
/// The first flaw found.
pub async fn check(store: &Store, window: &Window) -> Result<History, Flaw> {
    let entries = entries(store).await?;
    let mut history = History { holds: rows(store).await?, ..History::default() };
    let told = by_subject(&entries)?;
    history.stories(&told.holds)?;
    for (id, steps) in &told.approvals {
        let card = store.approval(*id).await?;
        let card = card.ok_or_else(|| Flaw(format!("{}: {id} has no row", place(steps.first()))))?;
        history.question(*id, steps, card)?;
    }
    if let Some(open) = store.open_approvals(PAGE).await?.iter().find(|open| !history.cards.contains_key(&open.id)) {
        return Err(Flaw(format!("{} is open and the record never asked it", open.id)));
    }
    history.consents(&told.holds)?;
    history.attended()?;
    recount(store, window, &history.admissions(&entries)).await?;
    Ok(history)
}

/// Every entry of every log, each chain followed from its beginning to its stored end.
async fn entries(store: &Store) -> Result<Vec<Entry>, Flaw> {
    let mut all = Vec::new();
    for (log, end) in store.logs().await? {
        let mut head = Head::genesis(&log);
        loop {
            let page = store.entries(log.clone(), head.size, PAGE).await?;
            let Some(last) = page.last().map(|sealed| sealed.seq) else { break };
            for sealed in page {
                let at = format!("{log}#{}", sealed.seq);
                let entry: Entry = serde_json::from_slice(&sealed.body)
                    .map_err(|error| Flaw(format!("{at}: cannot be read: {error}")))?;
                if sealed.seq != head.size || entry.seq != head.size || entry.log != log {
                    return Err(Flaw(format!("{at}: stands where #{} should", head.size)));
                }
                if leaf(&head.hash, &sealed.body) != sealed.hash {
                    return Err(Flaw(format!("{at}: does not follow from the entry before it")));
                }
                head = Head { size: head.size + 1, hash: sealed.hash };
                all.push(entry);
            }
            if head.size != last + 1 {
                return Err(Flaw(format!("{log}#{last}: the page ends elsewhere")));
            }
        }
        if head != end {
            return Err(Flaw(format!("{log}: ends at #{} and its row says #{}", head.size, end.size)));
        }
    }
    Ok(all)
}

async fn rows(store: &Store) -> Result<BTreeMap<HoldId, Hold>, Flaw> {
    let mut all = BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.holds(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.id);
        all.extend(page.into_iter().map(|hold| (hold.id, hold)));
    }
}

/// The entries of each write by version, whichever node's log they are in, and of each question.
struct Told<'a> {
    holds: BTreeMap<HoldId, BTreeMap<u64, &'a Entry>>,
    approvals: BTreeMap<ApprovalId, Vec<&'a Entry>>,
}

fn by_subject(entries: &[Entry]) -> Result<Told<'_>, Flaw> {
    let mut told = Told { holds: BTreeMap::new(), approvals: BTreeMap::new() };
    for entry in entries {
        if entry.fact.kind.starts_with("approval.") {
            let id = entry.fact.approval.ok_or_else(|| Flaw(format!("{}: about no question", place(Some(&entry)))))?;
            told.approvals.entry(id).or_default().push(entry);
        }
        if !entry.fact.kind.starts_with("hold.") {
            continue;
        }
        let id = entry.fact.hold.ok_or_else(|| Flaw(format!("{}: about no held write", place(Some(&entry)))))?;
        let version = if by(entry) == "admit" {
            Some(1)
        } else {
            entry.fact.detail.get("version").and_then(|text| text.parse().ok())
        };
        let version = version.ok_or_else(|| Flaw(format!("{}: {id} at no version", place(Some(&entry)))))?;
        if let Some(other) = told.holds.entry(id).or_default().insert(version, entry) {
            return Err(Flaw(format!(
                "{}: a fork, {} also makes version {version} of {id}",
                place(Some(&entry)),
                place(Some(&other))
            )));
        }
    }
    Ok(told)
}

fn place(entry: Option<&&Entry>) -> String {
    entry.map_or_else(|| "nowhere".to_owned(), |entry| format!("{}#{} ({})", entry.log, entry.seq, entry.fact.kind))
}

fn by(entry: &Entry) -> &str {
    entry.fact.detail.get("move").map_or("", String::as_str)
}

/// The step of an entry, if the lifecycle has it.
fn step(entry: &Entry, known: &[Edge]) -> Option<Edge> {
    let (from, to) = (entry.fact.from.as_deref()?, entry.fact.to.as_deref()?);
    known.iter().find(|edge| edge.from == from && edge.by == by(entry) && edge.to == to).copied()
}

impl History {
    /// Each write's story from its admission to its row, without a gap.
    fn stories(&mut self, told: &BTreeMap<HoldId, BTreeMap<u64, &Entry>>) -> Result<(), Flaw> {
        let known = hold::diagram::edges();
        if let Some(id) = self.holds.keys().find(|id| !told.contains_key(id)) {
            return Err(Flaw(format!("{id} has a row and the record never mentions it")));
        }
        for (id, story) in told {
            let row = self.holds.get(id).ok_or_else(|| Flaw(format!("{id} is in the record and has no row")))?;
            let mut before: Option<&Entry> = None;
            let mut bound = None;
            for ((version, entry), expected) in story.iter().zip(1_u64..) {
                let at = place(Some(entry));
                if *version != expected {
                    return Err(Flaw(format!("{at}: {id} jumps from version {} to {version}", expected - 1)));
                }
                let fact = &entry.fact;
                let to = fact.to.as_deref().unwrap_or_default();
                // Only a new question binds a write to a new state of its objects.
                if bound.is_some() && fact.digest != bound && by(entry) != "pull_back" {
                    return Err(Flaw(format!("{at}: another action than the one {id} was bound to")));
                }
                bound = fact.digest;
                if fact.kind.strip_prefix("hold.") != Some(to) {
                    return Err(Flaw(format!("{at}: {id} enters `{to}`")));
                }
                match before {
                    None if by(entry) == "admit" && ["held", "awaiting_approval"].contains(&to) => {}
                    None => return Err(Flaw(format!("{at}: {id} does not begin by being admitted"))),
                    Some(last) if last.fact.to != fact.from => {
                        return Err(Flaw(format!(
                            "{at}: {id} leaves `{}` and was `{}`",
                            fact.from.as_deref().unwrap_or_default(),
                            last.fact.to.as_deref().unwrap_or_default()
                        )));
                    }
                    Some(last) => {
                        let edge = step(entry, &known).ok_or_else(|| {
                            let from = fact.from.as_deref().unwrap_or_default();
                            Flaw(format!("{at}: {id} cannot go from `{from}` to `{to}` by `{}`", by(entry)))
                        })?;
                        // Only the question a write waits for can let it go.
                        if edge.by == "approve" && fact.approval != last.fact.approval {
                            return Err(Flaw(format!("{at}: {id} was let go by a question it was not waiting for")));
                        }
                        if edge.by == "set_aside" {
                            self.dropped.extend(last.fact.approval);
                        }
                        *self.taken.entry(edge).or_default() += 1;
                    }
                }
                before = Some(entry);
            }
            if bound != Some(row.action.digest()) {
                return Err(Flaw(format!("{}: another action than the row of {id} has", place(story.values().last()))));
            }
            let (last, size) = (before.and_then(|entry| entry.fact.to.as_deref()), story.len());
            if last != Some(row.state.word()) || u64::try_from(size) != Ok(row.version) {
                return Err(Flaw(format!(
                    "{id} is `{}` at version {} and its story ends with {} at {size}",
                    row.state.word(),
                    row.version,
                    place(story.values().last())
                )));
            }
        }
        Ok(())
    }

    /// One question: asked once, answered at most once, and its row says so.
    fn question(&mut self, id: ApprovalId, steps: &[&Entry], card: Card) -> Result<(), Flaw> {
        let known = approval::diagram::edges();
        // The logs of several nodes are not ordered among each other; no state comes back, so the
        // states themselves order them.
        let (mut now, mut left) = (None, steps.to_vec());
        while let Some(at) = left.iter().position(|entry| entry.fact.from.as_deref() == now) {
            let entry = left.swap_remove(at);
            if now.is_some() {
                let edge = step(entry, &known)
                    .ok_or_else(|| Flaw(format!("{}: {id} cannot `{}`", place(Some(&entry)), by(entry))))?;
                *self.asked.entry(edge).or_default() += 1;
            } else if by(entry) != "ask" {
                return Err(Flaw(format!("{}: {id} does not begin by being asked", place(Some(&entry)))));
            }
            now = entry.fact.to.as_deref();
        }
        if let Some(odd) = left.first() {
            return Err(Flaw(format!("{}: {id} had already left that state, or never reached it", place(Some(odd)))));
        }
        if now != Some(card.approval.state.word()) {
            let word = card.approval.state.word();
            return Err(Flaw(format!("{id} is `{word}` and its story ends with `{}`", now.unwrap_or_default())));
        }
        if usize::try_from(card.approval.items) != Ok(card.items.len()) {
            return Err(Flaw(format!("{id} counts {} writes and has {}", card.approval.items, card.items.len())));
        }
        self.cards.insert(id, card);
        Ok(())
    }

    /// A yes is spent by the writes it was given for, for the bytes that were shown.
    fn consents(&self, told: &BTreeMap<HoldId, BTreeMap<u64, &Entry>>) -> Result<(), Flaw> {
        let mut users: BTreeMap<ApprovalId, BTreeSet<HoldId>> = BTreeMap::new();
        for (id, story) in told {
            for entry in story.values().filter(|entry| by(entry) == "claim") {
                let Some(approval) = entry.fact.approval else { continue };
                let shown = self.shown(approval, *id);
                if shown.is_none() || shown != entry.fact.digest {
                    return Err(Flaw(format!(
                        "{}: {id} runs under {approval}, which showed other bytes",
                        place(Some(entry))
                    )));
                }
                users.entry(approval).or_default().insert(*id);
            }
        }
        for (approval, holds) in users {
            let card = self.cards.get(&approval).ok_or_else(|| Flaw(format!("{approval} was used and never asked")))?;
            if card.approval.subject == Subject::Write && holds.len() > 1 {
                return Err(Flaw(format!("{approval} was asked about one write and let {} go", holds.len())));
            }
            let spent = ["consumed", "lapsed", "revoked"].contains(&card.approval.state.word());
            if !spent {
                return Err(Flaw(format!("{approval} was used and is `{}`", card.approval.state.word())));
            }
        }
        Ok(())
    }

    /// The bytes a question showed of a write.
    fn shown(&self, approval: ApprovalId, hold: HoldId) -> Option<Digest> {
        let card = self.cards.get(&approval)?;
        card.items.iter().find(|item| item.hold == hold).map(|item| item.digest)
    }

    /// Every write that is not over is scheduled, looked up, or in front of a person; and no person is
    /// asked in vain.
    fn attended(&self) -> Result<(), Flaw> {
        for hold in self.holds.values() {
            let HoldState::AwaitingApproval { approval } = hold.state else { continue };
            let open = self.cards.get(&approval).is_some_and(|card| card.approval.state.is_open());
            if !open || self.shown(approval, hold.id) != Some(hold.action.digest()) {
                return Err(Flaw(format!("{} waits for {approval}, and nobody is asked that", hold.id)));
            }
        }
        for card in self.cards.values() {
            let (ApprovalState::Pending { .. }, Subject::Write) = (&card.approval.state, card.approval.subject) else {
                continue;
            };
            let id = card.approval.id;
            if self.dropped.contains(&id) {
                continue;
            }
            let waits = |hold: &Hold| matches!(hold.state, HoldState::AwaitingApproval { approval } if approval == id);
            if !card.items.iter().all(|item| self.holds.get(&item.hold).is_some_and(waits)) {
                return Err(Flaw(format!("{id} is still asked, and its write no longer waits for it")));
            }
        }
        Ok(())
    }

    /// What admissions weighed: whose, where, when, how much.
    fn admissions(&self, entries: &[Entry]) -> BTreeMap<(AgentName, ServiceName), Vec<(Timestamp, u32)>> {
        let mut weighed: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| by(entry) == "admit") {
            let Some(row) = entry.fact.hold.and_then(|id| self.holds.get(&id)) else { continue };
            let Actor::Agent(agent) = &entry.fact.actor else { continue };
            let weight = entry.fact.detail.get("weight").and_then(|text| text.parse().ok()).unwrap_or(0);
            weighed.entry((agent.clone(), row.service.clone())).or_default().push((entry.at, weight));
        }
        weighed
    }
}

/// Counts the batch windows again, from the record, as seen at several moments.
async fn recount(
    store: &Store,
    window: &Window,
    weighed: &BTreeMap<(AgentName, ServiceName), Vec<(Timestamp, u32)>>,
) -> Result<(), Flaw> {
    for ((agent, service), weights) in weighed {
        let times = weights.iter().map(|(at, _)| *at);
        let (first, last) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
        let middle = Timestamp::from_millis(i64::midpoint(first.as_millis(), last.as_millis()));
        for now in [first, middle, last] {
            let oldest = window.oldest_slot(now);
            let counted: u32 =
                weights.iter().filter(|(at, _)| window.slot_of(*at) >= oldest).map(|(_, weight)| weight).sum();
            let stored = store.batch_used(agent.clone(), service, window, now).await?;
            if stored != counted {
                return Err(Flaw(format!("{agent} used {stored} at {service} by {now}; the record says {counted}")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{World, done};

    /// A world in which one write has been done, and its record.
    fn told() -> (BTreeMap<HoldId, Hold>, Vec<Entry>) {
        let world = World::memory();
        let hold = world.held("clerk", "a");
        world.clock.advance(sluice_core::Span::from_secs(31));
        assert_eq!(world.claim_due().len(), 1);
        world.arm(&world.hold(hold)).unwrap();
        world.finish(hold, 1, done("receipt")).unwrap();
        world.wait(check(&world.store, &Window::default())).unwrap();
        (world.wait(rows(&world.store)).unwrap(), world.wait(entries(&world.store)).unwrap())
    }

    /// What the checker says of a record that was changed.
    fn verdict(change: impl FnOnce(&mut Vec<Entry>)) -> Result<(), Flaw> {
        let (holds, mut entries) = told();
        change(&mut entries);
        let mut history = History { holds, ..History::default() };
        history.stories(&by_subject(&entries)?.holds)
    }

    fn says(verdict: Result<(), Flaw>, words: &str) {
        let flaw = verdict.unwrap_err().0;
        assert!(flaw.contains(words), "{flaw}");
    }

    #[test]
    fn an_unchanged_record_is_believed() {
        assert_eq!(verdict(|_| {}), Ok(()));
    }

    #[test]
    fn a_missing_step_is_a_gap_and_a_second_one_a_fork() {
        says(verdict(|entries| drop(entries.remove(2))), "jumps from version 2 to 4");
        says(verdict(|entries| entries.extend(entries.get(2).cloned())), "a fork");
        says(verdict(|entries| drop(entries.pop())), "its story ends with");
        says(verdict(Vec::clear), "the record never mentions it");
    }

    #[test]
    fn a_step_the_lifecycle_does_not_have_is_named() {
        let skipped_arming = |entries: &mut Vec<Entry>| {
            let armed = &mut entries[3].fact;
            armed.detail.insert("move".into(), "complete".into());
        };
        says(verdict(skipped_arming), "gw-1#3 (hold.armed)");
        says(verdict(skipped_arming), "cannot go from `preparing` to `armed` by `complete`");
        let torn = |entries: &mut Vec<Entry>| entries[3].fact.from = Some("held".into());
        says(verdict(torn), "leaves `held` and was `preparing`");
    }

    #[test]
    fn other_bytes_than_the_row_has_are_a_flaw() {
        let swapped = |entries: &mut Vec<Entry>| entries[4].fact.digest = Some(Digest::of(b"other"));
        says(verdict(swapped), "another action");
    }

    #[test]
    fn a_counter_that_a_recount_does_not_confirm_is_a_flaw() {
        let world = World::memory();
        world.held("clerk", "a");
        let history = History { holds: world.wait(rows(&world.store)).unwrap(), ..History::default() };
        let mut weighed = history.admissions(&world.wait(entries(&world.store)).unwrap());
        assert_eq!(world.wait(recount(&world.store, &Window::default(), &weighed)), Ok(()));
        weighed.values_mut().for_each(|weights| weights.iter_mut().for_each(|(_, weight)| *weight += 1));
        says(world.wait(recount(&world.store, &Window::default(), &weighed)), "the record says 2");
    }
}
