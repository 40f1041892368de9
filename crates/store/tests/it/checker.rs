//! Compares the audit log with the rows: every test must leave both consistent.
//!
//! Takes a store; panics where a log has a gap or a broken link, where an entry is not a step of the lifecycles, or
//! where the last entry of a write or an approval request differs from its row.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::approval::{self, ApprovalSubject};
use sluice_core::audit::{AuditEntry, AuditFact, ChainHead, SealedAuditEntry, leaf};
use sluice_core::{ApprovalId, HoldId, NodeName, hold};
use sluice_testkit::TestStore;

/// Checks everything.
pub fn check(world: &TestStore) {
    let entries = entries(world);
    // The beginning of a history may be archived; then its end says nothing about the rows.
    if world.wait(world.store.logs()).unwrap().into_iter().any(|(log, _)| is_pruned(world, log)) {
        return;
    }
    check_holds(world, &entries);
    check_approvals(world, &entries);
}

fn is_pruned(world: &TestStore, log: NodeName) -> bool {
    world.wait(world.store.pruned_log(log)).unwrap().is_some()
}

/// Every entry of every log; each log must be complete.
pub fn entries(world: &TestStore) -> Vec<AuditEntry> {
    let mut all = Vec::new();
    for (log, head) in world.wait(world.store.logs()).unwrap() {
        let pruned = world.wait(world.store.pruned_log(log.clone())).unwrap().map(|pruned| pruned.start);
        let start = pruned.map_or_else(
            || ChainHead::genesis(&log),
            |start| ChainHead { size: start.frontier.size(), hash: start.head },
        );
        // Archived entries may still be there: they are deleted later, in pages.
        let sealed = world.wait(world.store.entries(log.clone(), start.size, 1_000_000)).unwrap();
        all.extend(verify_from(start, &log, head, &sealed).unwrap_or_else(|fault| panic!("log {log}: {fault}")));
    }
    all
}

/// The entries of one log, if they chain from its beginning to its head.
pub fn verify(log: &NodeName, head: ChainHead, sealed: &[SealedAuditEntry]) -> Result<Vec<AuditEntry>, String> {
    verify_from(ChainHead::genesis(log), log, head, sealed)
}

fn verify_from(
    start: ChainHead,
    log: &NodeName,
    head: ChainHead,
    sealed: &[SealedAuditEntry],
) -> Result<Vec<AuditEntry>, String> {
    let mut at = start;
    let mut entries = Vec::with_capacity(sealed.len());
    for entry in sealed {
        let hash = leaf(&at.hash, &entry.body);
        if entry.seq != at.size || entry.hash != hash {
            return Err(format!("entry {} does not follow entry {}", entry.seq, at.size));
        }
        let read: AuditEntry = serde_json::from_slice(&entry.body).map_err(|error| error.to_string())?;
        if read.seq != entry.seq || read.log != *log {
            return Err(format!("entry {} says it is elsewhere", entry.seq));
        }
        at = ChainHead { size: at.size + 1, hash };
        entries.push(read);
    }
    if at == head { Ok(entries) } else { Err(format!("the head is at {}, the log ends at {}", head.size, at.size)) }
}

fn word(fact: &AuditFact, name: &str) -> String {
    fact.detail.get(name).cloned().unwrap_or_default()
}

fn check_holds(world: &TestStore, entries: &[AuditEntry]) {
    let edges: BTreeSet<_> = hold::diagram::edges().iter().map(|edge| (edge.from, edge.by, edge.to)).collect();
    let mut stories: BTreeMap<HoldId, BTreeMap<u64, &AuditFact>> = BTreeMap::new();
    for fact in entries.iter().map(|entry| &entry.fact).filter(|fact| fact.kind.starts_with("hold.")) {
        let version = fact.detail.get("version").map_or(1, |text| text.parse().unwrap());
        let before = stories.entry(fact.hold.unwrap()).or_default().insert(version, fact);
        assert_eq!(before, None, "two entries for one move");
    }
    let mut rows = 0;
    for hold in world.wait(world.store.holds(None, 1_000_000)).unwrap() {
        rows += 1;
        let story = &stories[&hold.id];
        assert_eq!(story.keys().copied().collect::<Vec<_>>(), (1..=hold.version).collect::<Vec<_>>(), "{}", hold.id);
        let mut at: Option<&str> = None;
        let mut bound = None;
        for fact in story.values() {
            let (by, to) = (word(fact, "move"), fact.to.as_deref().unwrap());
            match (at, fact.from.as_deref()) {
                (None, None) => assert!(by == "admit" && ["held", "awaiting_approval"].contains(&to), "{fact:?}"),
                (Some(at), Some(from)) => assert!(at == from && edges.contains(&(from, by.as_str(), to)), "{fact:?}"),
                (_, _) => panic!("{fact:?} after {at:?}"),
            }
            // Only a new approval request binds a write to a new state of its objects.
            assert!(bound.is_none() || fact.digest == bound || by == "pull_back", "{fact:?} after {bound:?}");
            (bound, at) = (fact.digest, Some(to));
        }
        assert_eq!(bound, Some(hold.action.digest()), "{}", hold.id);
        assert_eq!(at, Some(hold.state.word()), "{}", hold.id);
    }
    assert_eq!(
        rows + pruned(entries, "writes"),
        stories.len(),
        "every recorded write has its row, or was over for long"
    );
}

/// How many rows of a kind were deleted, according to the audit log, because they ended long ago.
fn pruned(entries: &[AuditEntry], what: &str) -> usize {
    let facts = entries.iter().map(|entry| &entry.fact).filter(|fact| fact.kind == "store.pruned");
    facts.filter_map(|fact| fact.detail.get(what)?.parse::<usize>().ok()).sum()
}

fn check_approvals(world: &TestStore, entries: &[AuditEntry]) {
    let edges: BTreeSet<_> = approval::diagram::edges().iter().map(|edge| (edge.from, edge.by, edge.to)).collect();
    let mut stories: BTreeMap<ApprovalId, Vec<&AuditFact>> = BTreeMap::new();
    let mut joined: BTreeMap<ApprovalId, u64> = BTreeMap::new();
    for fact in entries.iter().map(|entry| &entry.fact) {
        let Some(id) = fact.approval else { continue };
        // Showing a request and counting a vote are recorded, and move nothing.
        if ["approval.shown", "approval.not_shown", "approval.seconded"].contains(&fact.kind.as_str()) {
            continue;
        }
        if fact.kind.starts_with("approval.") {
            stories.entry(id).or_default().push(fact);
        } else if word(fact, "move") == "admit" {
            *joined.entry(id).or_default() += 1;
        }
    }
    let mut missing = 0;
    for (id, mut story) in stories {
        let Some(card) = world.wait(world.store.approval(id)).unwrap() else {
            missing += 1;
            continue;
        };
        let moves = story.len() as u64;
        // An approval request never returns to a state, so its entries have one order, no matter which log holds them.
        let mut at = None;
        while let Some(place) = story.iter().position(|fact| fact.from.as_deref() == at) {
            let fact = story.swap_remove(place);
            let (by, to) = (word(fact, "move"), fact.to.as_deref().unwrap());
            match at {
                None => assert_eq!((by.as_str(), to), ("ask", "pending")),
                Some(from) => assert!(edges.contains(&(from, by.as_str(), to)), "{fact:?}"),
            }
            at = Some(to);
        }
        assert!(story.is_empty(), "{id}: {story:?} follow nothing");
        assert_eq!(at, Some(card.approval.state.word()), "{id}");
        // A card also counts the writes that joined it later. It is made for the first of them, or for writes that need
        // approval again because a write with its own approval request tripped the window; such a write may make it
        // grow, too.
        let version = card.approval.version;
        match card.approval.subject {
            ApprovalSubject::Write | ApprovalSubject::Request => assert_eq!(version, moves, "{id}"),
            ApprovalSubject::Batch => {
                let least = joined.get(&id).copied().unwrap_or(0).saturating_sub(1);
                let most = u64::from(card.approval.items);
                assert!((moves + least..=moves + most).contains(&version), "{id}: {version} after {moves} moves");
            }
        }
        assert_eq!(card.items.len(), card.approval.items as usize, "{id}");
    }
    assert_eq!(missing, pruned(entries, "questions"), "every recorded question has its row, or was over for long");
}
