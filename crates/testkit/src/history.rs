//! The history checker: whether the audit log tells a possible history that leads to the present rows.
//!
//! Takes a store; reads every audit log, the held writes and the approval requests. Gives the content of the audit log,
//! or the first impossible thing in it: a broken chain, a step that the lifecycle does not have, a gap or a fork in a
//! write's history, a row that differs, a counter that a recount does not confirm, a write that nobody would ever
//! handle again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sluice_core::approval::{self, ApprovalState, ApprovalSubject};
use sluice_core::audit::{AuditEntry, ChainHead, leaf};
use sluice_core::batch::SlidingWindow;
use sluice_core::hold::diagram::LifecycleEdge;
use sluice_core::hold::{self, Hold, HoldState};
use sluice_core::{Actor, AgentName, ApprovalId, Digest, HoldId, ServiceName, UtcMillis};
use sluice_store::{ApprovalCard, Store, StoreError};

/// The content of the audit log, after it was verified.
#[derive(Debug, Default)]
pub struct CheckedHistory {
    /// Every held write, from its row.
    pub holds: BTreeMap<HoldId, Hold>,
    /// Every approval request, from its row.
    pub cards: BTreeMap<ApprovalId, ApprovalCard>,
    /// Steps of held writes, and how often each was taken.
    pub taken: BTreeMap<LifecycleEdge, u32>,
    /// Steps of approval requests, and how often each was taken.
    pub asked: BTreeMap<LifecycleEdge, u32>,
    /// Approval requests whose writes were set aside while they were open.
    dropped: BTreeSet<ApprovalId>,
}

/// Why the audit log is not valid. Names the entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFlaw(pub String);

impl fmt::Display for HistoryFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for HistoryFlaw {
    fn from(error: StoreError) -> Self {
        Self(format!("the store cannot be read: {error}"))
    }
}

/// Entries read at a time.
const PAGE: u32 = 1000;

/// Reads and verifies the whole audit log. All writes share one batch window.
///
/// # Errors
/// The first flaw found.
pub async fn check(store: &Store, window: &SlidingWindow) -> Result<CheckedHistory, HistoryFlaw> {
    let entries = entries(store).await?;
    let mut history = CheckedHistory { holds: rows(store).await?, ..CheckedHistory::default() };
    let told = by_subject(&entries)?;
    history.stories(&told.holds)?;
    for (id, steps) in &told.approvals {
        let card = store.approval(*id).await?;
        let card = card.ok_or_else(|| HistoryFlaw(format!("{}: {id} has no row", place(steps.first()))))?;
        history.question(*id, steps, card)?;
    }
    if let Some(open) = store.open_approvals(PAGE).await?.iter().find(|open| !history.cards.contains_key(&open.id)) {
        return Err(HistoryFlaw(format!("{} is open and the record never asked it", open.id)));
    }
    history.consents(&told.holds)?;
    history.attended()?;
    recount(store, window, &history.admissions(&entries)).await?;
    Ok(history)
}

/// Every entry of every log; each chain is followed from its beginning to its stored end.
async fn entries(store: &Store) -> Result<Vec<AuditEntry>, HistoryFlaw> {
    let mut all = Vec::new();
    for (log, end) in store.logs().await? {
        let mut head = ChainHead::genesis(&log);
        loop {
            let page = store.entries(log.clone(), head.size, PAGE).await?;
            let Some(last) = page.last().map(|sealed| sealed.seq) else { break };
            for sealed in page {
                let at = format!("{log}#{}", sealed.seq);
                let entry: AuditEntry = serde_json::from_slice(&sealed.body)
                    .map_err(|error| HistoryFlaw(format!("{at}: cannot be read: {error}")))?;
                if sealed.seq != head.size || entry.seq != head.size || entry.log != log {
                    return Err(HistoryFlaw(format!("{at}: stands where #{} should", head.size)));
                }
                if leaf(&head.hash, &sealed.body) != sealed.hash {
                    return Err(HistoryFlaw(format!("{at}: does not follow from the entry before it")));
                }
                head = ChainHead { size: head.size + 1, hash: sealed.hash };
                all.push(entry);
            }
            if head.size != last + 1 {
                return Err(HistoryFlaw(format!("{log}#{last}: the page ends elsewhere")));
            }
        }
        if head != end {
            return Err(HistoryFlaw(format!("{log}: ends at #{} and its row says #{}", head.size, end.size)));
        }
    }
    Ok(all)
}

async fn rows(store: &Store) -> Result<BTreeMap<HoldId, Hold>, HistoryFlaw> {
    let mut all = BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.holds(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.id);
        all.extend(page.into_iter().map(|hold| (hold.id, hold)));
    }
}

/// The entries of each write by version, no matter which node's log holds them, and of each approval request.
struct HistoryEntries<'a> {
    holds: BTreeMap<HoldId, BTreeMap<u64, &'a AuditEntry>>,
    approvals: BTreeMap<ApprovalId, Vec<&'a AuditEntry>>,
}

fn by_subject(entries: &[AuditEntry]) -> Result<HistoryEntries<'_>, HistoryFlaw> {
    let mut told = HistoryEntries { holds: BTreeMap::new(), approvals: BTreeMap::new() };
    for entry in entries {
        if entry.fact.kind.starts_with("approval.") {
            let id =
                entry.fact.approval.ok_or_else(|| HistoryFlaw(format!("{}: about no request", place(Some(&entry)))))?;
            told.approvals.entry(id).or_default().push(entry);
        }
        if !entry.fact.kind.starts_with("hold.") {
            continue;
        }
        let id = entry.fact.hold.ok_or_else(|| HistoryFlaw(format!("{}: about no held write", place(Some(&entry)))))?;
        let version = if by(entry) == "admit" {
            Some(1)
        } else {
            entry.fact.detail.get("version").and_then(|text| text.parse().ok())
        };
        let version = version.ok_or_else(|| HistoryFlaw(format!("{}: {id} at no version", place(Some(&entry)))))?;
        if let Some(other) = told.holds.entry(id).or_default().insert(version, entry) {
            return Err(HistoryFlaw(format!(
                "{}: a fork, {} also makes version {version} of {id}",
                place(Some(&entry)),
                place(Some(&other))
            )));
        }
    }
    Ok(told)
}

fn place(entry: Option<&&AuditEntry>) -> String {
    entry.map_or_else(|| "nowhere".to_owned(), |entry| format!("{}#{} ({})", entry.log, entry.seq, entry.fact.kind))
}

fn by(entry: &AuditEntry) -> &str {
    entry.fact.detail.get("move").map_or("", String::as_str)
}

/// The step of an entry, if the lifecycle has it.
fn step(entry: &AuditEntry, known: &[LifecycleEdge]) -> Option<LifecycleEdge> {
    let (from, to) = (entry.fact.from.as_deref()?, entry.fact.to.as_deref()?);
    known.iter().find(|edge| edge.from == from && edge.by == by(entry) && edge.to == to).copied()
}

impl CheckedHistory {
    /// Each write's history from its admission to its row, without a gap.
    fn stories(&mut self, told: &BTreeMap<HoldId, BTreeMap<u64, &AuditEntry>>) -> Result<(), HistoryFlaw> {
        let known = hold::diagram::edges();
        if let Some(id) = self.holds.keys().find(|id| !told.contains_key(id)) {
            return Err(HistoryFlaw(format!("{id} has a row and the record never mentions it")));
        }
        for (id, story) in told {
            let row = self.holds.get(id).ok_or_else(|| HistoryFlaw(format!("{id} is in the record and has no row")))?;
            let mut before: Option<&AuditEntry> = None;
            let mut bound = None;
            for ((version, entry), expected) in story.iter().zip(1_u64..) {
                let at = place(Some(entry));
                if *version != expected {
                    return Err(HistoryFlaw(format!("{at}: {id} jumps from version {} to {version}", expected - 1)));
                }
                let fact = &entry.fact;
                let to = fact.to.as_deref().unwrap_or_default();
                // Only a new approval request binds a write to a new state of its objects.
                if bound.is_some() && fact.digest != bound && by(entry) != "pull_back" {
                    return Err(HistoryFlaw(format!("{at}: another action than the one {id} was bound to")));
                }
                bound = fact.digest;
                if fact.kind.strip_prefix("hold.") != Some(to) {
                    return Err(HistoryFlaw(format!("{at}: {id} enters `{to}`")));
                }
                match before {
                    None if by(entry) == "admit" && ["held", "awaiting_approval"].contains(&to) => {}
                    None => return Err(HistoryFlaw(format!("{at}: {id} does not begin by being admitted"))),
                    Some(last) if last.fact.to != fact.from => {
                        return Err(HistoryFlaw(format!(
                            "{at}: {id} leaves `{}` and was `{}`",
                            fact.from.as_deref().unwrap_or_default(),
                            last.fact.to.as_deref().unwrap_or_default()
                        )));
                    }
                    Some(last) => {
                        let edge = step(entry, &known).ok_or_else(|| {
                            let from = fact.from.as_deref().unwrap_or_default();
                            HistoryFlaw(format!("{at}: {id} cannot go from `{from}` to `{to}` by `{}`", by(entry)))
                        })?;
                        // Only the approval request that a write waits for can release it.
                        if edge.by == "approve" && fact.approval != last.fact.approval {
                            return Err(HistoryFlaw(format!(
                                "{at}: {id} was released by a request it was not waiting for"
                            )));
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
                return Err(HistoryFlaw(format!(
                    "{}: another action than the row of {id} has",
                    place(story.values().last())
                )));
            }
            let (last, size) = (before.and_then(|entry| entry.fact.to.as_deref()), story.len());
            if last != Some(row.state.word()) || u64::try_from(size) != Ok(row.version) {
                return Err(HistoryFlaw(format!(
                    "{id} is `{}` at version {} and its story ends with {} at {size}",
                    row.state.word(),
                    row.version,
                    place(story.values().last())
                )));
            }
        }
        Ok(())
    }

    /// One approval request: made once, decided at most once, and its row agrees.
    fn question(&mut self, id: ApprovalId, steps: &[&AuditEntry], card: ApprovalCard) -> Result<(), HistoryFlaw> {
        let known = approval::diagram::edges();
        // The logs of several nodes have no common order; but no state comes back, so the states themselves give the
        // order.
        let (mut now, mut left) = (None, steps.to_vec());
        while let Some(at) = left.iter().position(|entry| entry.fact.from.as_deref() == now) {
            let entry = left.swap_remove(at);
            if now.is_some() {
                let edge = step(entry, &known)
                    .ok_or_else(|| HistoryFlaw(format!("{}: {id} cannot `{}`", place(Some(&entry)), by(entry))))?;
                *self.asked.entry(edge).or_default() += 1;
            } else if by(entry) != "ask" {
                return Err(HistoryFlaw(format!("{}: {id} does not begin by being asked", place(Some(&entry)))));
            }
            now = entry.fact.to.as_deref();
        }
        if let Some(odd) = left.first() {
            return Err(HistoryFlaw(format!(
                "{}: {id} had already left that state, or never reached it",
                place(Some(odd))
            )));
        }
        if now != Some(card.approval.state.word()) {
            let word = card.approval.state.word();
            return Err(HistoryFlaw(format!("{id} is `{word}` and its story ends with `{}`", now.unwrap_or_default())));
        }
        if usize::try_from(card.approval.items) != Ok(card.items.len()) {
            return Err(HistoryFlaw(format!(
                "{id} counts {} writes and has {}",
                card.approval.items,
                card.items.len()
            )));
        }
        self.cards.insert(id, card);
        Ok(())
    }

    /// An approval is consumed only by the writes it was given for, with the bytes that were shown.
    fn consents(&self, told: &BTreeMap<HoldId, BTreeMap<u64, &AuditEntry>>) -> Result<(), HistoryFlaw> {
        let mut users: BTreeMap<ApprovalId, BTreeSet<HoldId>> = BTreeMap::new();
        for (id, story) in told {
            for entry in story.values().filter(|entry| by(entry) == "claim") {
                let Some(approval) = entry.fact.approval else { continue };
                let shown = self.shown(approval, *id);
                if shown.is_none() || shown != entry.fact.digest {
                    return Err(HistoryFlaw(format!(
                        "{}: {id} runs under {approval}, which showed other bytes",
                        place(Some(entry))
                    )));
                }
                users.entry(approval).or_default().insert(*id);
            }
        }
        for (approval, holds) in users {
            let card =
                self.cards.get(&approval).ok_or_else(|| HistoryFlaw(format!("{approval} was used and never asked")))?;
            if card.approval.subject == ApprovalSubject::Write && holds.len() > 1 {
                return Err(HistoryFlaw(format!("{approval} was asked about one write and let {} go", holds.len())));
            }
            let spent = ["consumed", "lapsed", "revoked"].contains(&card.approval.state.word());
            if !spent {
                return Err(HistoryFlaw(format!("{approval} was used and is `{}`", card.approval.state.word())));
            }
        }
        Ok(())
    }

    /// The digest of a write that an approval request showed.
    fn shown(&self, approval: ApprovalId, hold: HoldId) -> Option<Digest> {
        let card = self.cards.get(&approval)?;
        card.items.iter().find(|item| item.hold == hold).map(|item| item.digest)
    }

    /// Every open write is scheduled, looked up, or in front of a person; and no person is asked needlessly.
    fn attended(&self) -> Result<(), HistoryFlaw> {
        for hold in self.holds.values() {
            let HoldState::AwaitingApproval { approval } = hold.state else { continue };
            let open = self.cards.get(&approval).is_some_and(|card| card.approval.state.is_open());
            if !open || self.shown(approval, hold.id) != Some(hold.action.digest()) {
                return Err(HistoryFlaw(format!("{} waits for {approval}, and that is not an open request", hold.id)));
            }
        }
        for card in self.cards.values() {
            let (ApprovalState::Pending { .. }, ApprovalSubject::Write) = (&card.approval.state, card.approval.subject)
            else {
                continue;
            };
            let id = card.approval.id;
            if self.dropped.contains(&id) {
                continue;
            }
            let waits = |hold: &Hold| matches!(hold.state, HoldState::AwaitingApproval { approval } if approval == id);
            if !card.items.iter().all(|item| self.holds.get(&item.hold).is_some_and(waits)) {
                return Err(HistoryFlaw(format!("{id} is still asked, and its write no longer waits for it")));
            }
        }
        Ok(())
    }

    /// The weights of admissions: agent, service, time, weight.
    fn admissions(&self, entries: &[AuditEntry]) -> BTreeMap<(AgentName, ServiceName), Vec<(UtcMillis, u32)>> {
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

/// Counts the batch windows again from the audit log, as they were at several moments.
async fn recount(
    store: &Store,
    window: &SlidingWindow,
    weighed: &BTreeMap<(AgentName, ServiceName), Vec<(UtcMillis, u32)>>,
) -> Result<(), HistoryFlaw> {
    for ((agent, service), weights) in weighed {
        let times = weights.iter().map(|(at, _)| *at);
        let (first, last) = (times.clone().min().unwrap_or_default(), times.max().unwrap_or_default());
        let middle = UtcMillis::from_millis(i64::midpoint(first.as_millis(), last.as_millis()));
        for now in [first, middle, last] {
            let oldest = window.oldest_slot(now);
            let counted: u32 =
                weights.iter().filter(|(at, _)| window.slot_of(*at) >= oldest).map(|(_, weight)| weight).sum();
            let stored = store.batch_used(agent.clone(), service, window, now).await?;
            if stored != counted {
                return Err(HistoryFlaw(format!(
                    "{agent} used {stored} at {service} by {now}; the record says {counted}"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_store::{TestStore, done};

    /// A store in which one write was done, and its audit log.
    fn told() -> (BTreeMap<HoldId, Hold>, Vec<AuditEntry>) {
        let world = TestStore::memory();
        let hold = world.admit_held("clerk", "a");
        world.clock.advance(sluice_core::Millis::from_secs(31));
        assert_eq!(world.claim_due().len(), 1);
        world.arm(&world.hold(hold)).unwrap();
        world.finish(hold, 1, done("receipt")).unwrap();
        world.wait(check(&world.store, &SlidingWindow::default())).unwrap();
        (world.wait(rows(&world.store)).unwrap(), world.wait(entries(&world.store)).unwrap())
    }

    /// The checker's verdict on an audit log that was changed.
    fn verdict(change: impl FnOnce(&mut Vec<AuditEntry>)) -> Result<(), HistoryFlaw> {
        let (holds, mut entries) = told();
        change(&mut entries);
        let mut history = CheckedHistory { holds, ..CheckedHistory::default() };
        history.stories(&by_subject(&entries)?.holds)
    }

    fn says(verdict: Result<(), HistoryFlaw>, words: &str) {
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
        let skipped_arming = |entries: &mut Vec<AuditEntry>| {
            let armed = &mut entries[3].fact;
            armed.detail.insert("move".into(), "complete".into());
        };
        says(verdict(skipped_arming), "gw-1#3 (hold.armed)");
        says(verdict(skipped_arming), "cannot go from `preparing` to `armed` by `complete`");
        let torn = |entries: &mut Vec<AuditEntry>| entries[3].fact.from = Some("held".into());
        says(verdict(torn), "leaves `held` and was `preparing`");
    }

    #[test]
    fn other_bytes_than_the_row_has_are_a_flaw() {
        let swapped = |entries: &mut Vec<AuditEntry>| entries[4].fact.digest = Some(Digest::of(b"other"));
        says(verdict(swapped), "another action");
    }

    #[test]
    fn a_counter_that_a_recount_does_not_confirm_is_a_flaw() {
        let world = TestStore::memory();
        world.admit_held("clerk", "a");
        let history = CheckedHistory { holds: world.wait(rows(&world.store)).unwrap(), ..CheckedHistory::default() };
        let mut weighed = history.admissions(&world.wait(entries(&world.store)).unwrap());
        assert_eq!(world.wait(recount(&world.store, &SlidingWindow::default(), &weighed)), Ok(()));
        weighed.values_mut().for_each(|weights| weights.iter_mut().for_each(|(_, weight)| *weight += 1));
        says(world.wait(recount(&world.store, &SlidingWindow::default(), &weighed)), "the record says 2");
    }
}
