//! What must be true when the last process has ended, checked from outside.
//!
//! Three sources are compared: what was acknowledged, what happened outside, and what the store says in its rows and in
//! its audit log. The same checks judge the planted faults.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::audit::{AuditEntry, leaf};
use sluice_core::capability::EffectClass;
use sluice_core::hold::diagram::edges;
use sluice_core::hold::{Hold, HoldState};
use sluice_core::ids::MessageId;
use sluice_core::{ApprovalId, HoldId, Millis, Tier, UtcMillis};
use sluice_store::{HoldSettlement, SettleHold, Store};
use sluice_testkit::SeededIds;
use sluice_testkit::crash_state::{AcknowledgedWrites, Workload};
use sluice_testkit::test_store::ana;

use crate::environment::{CrashEnvironment, CrashRun, LifeEnding, runtime};

/// A kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashViolation {
    /// An acknowledged write, or any write, is missing.
    Lost,
    /// It happened more than once.
    Doubled,
    /// The store says that it is done, but it did not happen.
    Missing,
    /// It happened although it must not, or with other bytes than the approved ones.
    Unwanted,
    /// It has not ended and is not in front of a person.
    Adrift,
    /// The audit log and the rows differ.
    Record,
    /// A person had to be notified and was not.
    Untold,
}

/// The results of the check.
#[derive(Debug, Default)]
pub struct CrashVerdict {
    pub wrongs: Vec<(CrashViolation, String)>,
    /// Opaque writes that only a person can settle.
    pub undecided: Vec<Hold>,
}

impl CrashVerdict {
    pub fn kinds(&self) -> BTreeSet<CrashViolation> {
        self.wrongs.iter().map(|(kind, _)| *kind).collect()
    }

    fn demand(&mut self, truth: bool, kind: CrashViolation, what: impl FnOnce() -> String) {
        if !truth {
            self.wrongs.push((kind, what()));
        }
    }
}

pub fn check(environment: &CrashEnvironment, work: Workload) -> CrashVerdict {
    let mut verdict = CrashVerdict::default();
    let opened = environment.open();
    let (store, runtime) = (&opened.store, runtime());
    let holds = runtime.block_on(store.holds(None, 1_000_000)).unwrap();
    let holds: BTreeMap<HoldId, Hold> = holds.into_iter().map(|hold| (hold.id, hold)).collect();
    acknowledged(&mut verdict, &holds, &AcknowledgedWrites::read(environment.folder()), work);
    effects(&mut verdict, &holds, environment);
    let entries = runtime.block_on(record(&mut verdict, store));
    histories(&mut verdict, &holds, &entries);
    runtime.block_on(told(&mut verdict, store, &entries));
    verdict
}

fn acknowledged(
    verdict: &mut CrashVerdict,
    holds: &BTreeMap<HoldId, Hold>,
    acks: &[(String, u32, HoldId)],
    work: Workload,
) {
    let count = holds.len();
    verdict.demand(count <= work.writes as usize, CrashViolation::Doubled, || {
        format!("{count} holds of {} calls", work.writes)
    });
    verdict.demand(count >= work.writes as usize, CrashViolation::Lost, || {
        format!("{count} holds of {} calls", work.writes)
    });
    for (word, number, id) in acks {
        let Some(hold) = holds.get(id) else {
            verdict.wrongs.push((CrashViolation::Lost, format!("{word} {number} {id}")));
            continue;
        };
        let same = hold.action.digest() == work.action(*number).digest();
        verdict
            .demand(same, CrashViolation::Lost, || format!("{id} was acknowledged for write {number} and is another"));
        let kept = word == "admitted" || word == hold.state.word();
        verdict.demand(kept, CrashViolation::Lost, || {
            format!("{id} was acknowledged as {word} and is {}", hold.state.word())
        });
    }
}

fn effects(verdict: &mut CrashVerdict, holds: &BTreeMap<HoldId, Hold>, environment: &CrashEnvironment) {
    let mut times: BTreeMap<HoldId, usize> = BTreeMap::new();
    for effect in environment.oracle().happened() {
        *times.entry(effect.hold).or_default() += 1;
        let meant = holds.get(&effect.hold).is_some_and(|hold| hold.action.digest().to_string() == effect.digest);
        verdict.demand(meant, CrashViolation::Unwanted, || format!("{effect:?} is nothing that was admitted"));
    }
    for hold in holds.values() {
        let count = times.get(&hold.id).copied().unwrap_or_default();
        let what = || format!("{} ({:?}, {}) happened {count} times", hold.id, hold.class, hold.state.word());
        // Repeating an absolute write is harmless: the end state is the same.
        let once = count <= 1 || hold.class == EffectClass::Absolute;
        verdict.demand(once, CrashViolation::Doubled, what);
        match &hold.state {
            HoldState::Done { .. } => verdict.demand(count >= 1, CrashViolation::Missing, what),
            HoldState::NeedsHuman { .. } if hold.class == EffectClass::Opaque => verdict.undecided.push(hold.clone()),
            state if state.is_final() => verdict.demand(count == 0, CrashViolation::Unwanted, what),
            _ => verdict.wrongs.push((CrashViolation::Adrift, what())),
        }
    }
}

/// The chains: without gaps, each hash over the one before, ending where the node's row says.
async fn record(verdict: &mut CrashVerdict, store: &Store) -> Vec<AuditEntry> {
    let mut all = Vec::new();
    for (log, head) in store.logs().await.unwrap() {
        let sealed = store.entries(log.clone(), 0, 1_000_000).await.unwrap();
        let mut seen = sluice_core::audit::ChainHead::genesis(&log);
        let mut last = UtcMillis::from_millis(i64::MIN);
        for one in sealed {
            let linked = one.seq == seen.size && one.hash == leaf(&seen.hash, &one.body);
            verdict.demand(linked, CrashViolation::Record, || format!("{log} breaks at entry {}", one.seq));
            seen = sluice_core::audit::ChainHead { size: one.seq + 1, hash: one.hash };
            let entry: AuditEntry = serde_json::from_slice(&one.body).unwrap();
            let placed = entry.log == log && entry.seq == one.seq && entry.at >= last;
            verdict.demand(placed, CrashViolation::Record, || format!("{log} entry {} is out of place", one.seq));
            last = entry.at;
            all.push(entry);
        }
        verdict
            .demand(seen == head, CrashViolation::Record, || format!("{log} ends at {seen:?}, its node says {head:?}"));
    }
    all
}

/// The entries of each hold form one history of legal moves that ends in the state of its row.
fn histories(verdict: &mut CrashVerdict, holds: &BTreeMap<HoldId, Hold>, entries: &[AuditEntry]) {
    let legal: BTreeSet<(&str, &str, &str)> = edges().into_iter().map(|edge| (edge.from, edge.by, edge.to)).collect();
    let mut stories: BTreeMap<HoldId, Vec<(u64, &AuditEntry)>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.fact.kind.starts_with("hold.")) {
        let Some(id) = entry.fact.hold else { continue };
        let version = entry.fact.detail.get("version").map_or(1, |version| version.parse().unwrap());
        stories.entry(id).or_default().push((version, entry));
    }
    for hold in holds.values() {
        let mut story = stories.remove(&hold.id).unwrap_or_default();
        story.sort_by_key(|(version, _)| *version);
        let mut state: Option<&str> = None;
        for (at, (version, entry)) in (1..).zip(&story) {
            let (from, to) = (entry.fact.from.as_deref(), entry.fact.to.as_deref().unwrap_or_default());
            let by = entry.fact.detail.get("move").map(String::as_str).unwrap_or_default();
            let follows = *version == at && from == state;
            let allowed = from.map_or(by == "admit", |from| legal.contains(&(from, by, to)));
            verdict.demand(follows && allowed, CrashViolation::Record, || {
                format!("{}: {from:?} {by} {to} (version {version}) after {state:?} (version {})", hold.id, at - 1)
            });
            state = Some(to);
        }
        let ends = state == Some(hold.state.word()) && story.len() as u64 == hold.version;
        verdict.demand(ends, CrashViolation::Record, || {
            let row = (hold.state.word(), hold.version);
            format!("{}: the row says {row:?}, the record {state:?} after {} moves", hold.id, story.len())
        });
    }
    for id in stories.keys() {
        verdict.wrongs.push((CrashViolation::Lost, format!("the record knows {id}, the rows do not")));
    }
}

/// A dead write, or a request that only people can answer, is useless if nobody is notified.
async fn told(verdict: &mut CrashVerdict, store: &Store, entries: &[AuditEntry]) {
    let waiting = store.due_messages(UtcMillis::from_millis(i64::MAX), 1_000_000).await.unwrap();
    for state in ["dead", "needs_human"] {
        let topic = format!("hold.{state}");
        let mut due: BTreeMap<String, usize> = BTreeMap::new();
        let moves = entries.iter().filter(|entry| entry.fact.kind == topic);
        moves.for_each(|entry| *due.entry(entry.fact.hold.unwrap().to_string()).or_default() += 1);
        for (hold, moves) in due {
            let about = |body: &serde_json::Value| body["hold"].as_str() == Some(hold.as_str());
            let messages = waiting.iter().filter(|one| one.message.topic == topic && about(&one.message.body)).count();
            verdict.demand(messages == moves, CrashViolation::Untold, || {
                format!("{hold} became {state} {moves} times and people were told {messages} times")
            });
        }
    }
}

/// A person looks at what really happened and says so, until no write is left undecided.
pub fn settle(run: &CrashRun<'_>, mut life: u64, first: &CrashVerdict) -> CrashVerdict {
    let mut undecided = first.undecided.clone();
    while !undecided.is_empty() {
        say(run, life, &undecided);
        life += 1;
        assert!(!run.live(life, LifeEnding::Natural, &[]).died, "nobody kills this one");
        let verdict = check(run.environment, run.work);
        if !verdict.wrongs.is_empty() {
            return verdict;
        }
        undecided = verdict.undecided;
    }
    CrashVerdict::default()
}

fn say(run: &CrashRun<'_>, life: u64, undecided: &[Hold]) {
    let opened = run.environment.open();
    let happened: BTreeSet<HoldId> = run.environment.oracle().happened().iter().map(|effect| effect.hold).collect();
    let (ids, runtime) = (SeededIds::new(run.seed ^ life), runtime());
    for hold in undecided {
        let seen = HoldSettlement::Happened { evidence: "seen".into() };
        let settle = SettleHold {
            hold: hold.id,
            version: hold.version,
            by: ana(),
            word: if happened.contains(&hold.id) { seen } else { HoldSettlement::Again },
            tier: Tier::Notify,
            approval: ApprovalId::mint(&ids),
            message: MessageId::mint(&ids),
            expiry: Millis::from_hours(1),
        };
        runtime.block_on(opened.store.settle(settle)).unwrap();
    }
}
