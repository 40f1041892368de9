//! The conformance suite: checks that run against any adapter.
//!
//! Takes a [`ConformanceStage`]: an adapter, a way to a service that really changes, and a count of its changes. Gives every
//! promise that was broken. Promise: each write is tried with a lost answer, with a connection that breaks before and
//! after, with limits and refusals; what the adapter reports must match what the service did.

use sluice_core::capability::{Capability, EffectClass};

use crate::adapter::{
    Adapter, AppliedWrite, PastWrite, ReconcileOutcome, ServiceHandle, ServiceWrite, SyncCursor, SyncError,
};
use crate::error::{AdapterWriteError, FailureCause};
use crate::fake::{FaultyNet, NetFault};
use crate::job::{self, WritePreparation};
use crate::net::{ExchangePhase, Net};

/// A service for testing an adapter. Each write that it gives must be possible, and must differ from the others.
pub trait ConformanceStage {
    /// The adapter, and the way to the service.
    fn parts(&mut self) -> (&dyn Adapter, &mut dyn Net);
    /// A write of this kind that can be performed now.
    fn write(&mut self, capability: &Capability) -> ServiceWrite;
    /// How many externally visible changes the service has made.
    fn effects(&mut self) -> u64;
    /// Makes the service forget the position of a cursor. False if it never does.
    fn expire(&mut self) -> bool;
}

/// A broken promise: the capability and the problem.
pub type ConformanceFinding = String;

/// Runs all checks and gives the broken promises. An adapter is done when there are none.
pub fn check(stage: &mut dyn ConformanceStage) -> Vec<ConformanceFinding> {
    let mut findings = Vec::new();
    let manifest = stage.parts().0.manifest().clone();
    for capability in &manifest.capabilities {
        let name = capability.name.as_str();
        let mut note = |what: &str| findings.push(format!("{name}: {what}"));
        let operation = stage.parts().0.operation(&capability.name).map(|operation| operation.class());
        let reversal = stage.parts().0.reversal(&capability.name).is_some();
        match (capability.class, operation) {
            (None, None) => continue,
            (None, Some(_)) => note("a read has no operation"),
            (Some(_), None) if manifest.by_gateway.contains(&name) => continue,
            (Some(_), None) => note("the write has no operation"),
            (Some(declared), Some(found)) if declared != found => note("its effect class is not that of the catalogue"),
            (Some(class), Some(_)) => {
                if reversal != capability.reversible {
                    note("the adapter and the catalogue disagree on whether it can be undone");
                }
                if !manifest.previews.iter().any(|preview| preview.capability == name) {
                    note("it has no preview for people");
                }
                for (what, trial) in TRIALS {
                    if let Err(why) = trial(stage, capability, class) {
                        note(&format!("{what}: {why}"));
                    }
                }
                if reversal && let Err(why) = taken_back(stage, capability) {
                    note(&format!("undo: {why}"));
                }
            }
        }
    }
    if let Err(why) = copied(stage) {
        findings.push(format!("sync: {why}"));
    }
    findings
}

type ConformanceCheck = fn(&mut dyn ConformanceStage, &Capability, EffectClass) -> Result<(), String>;

const TRIALS: [(&str, ConformanceCheck); 8] = [
    ("done", done),
    ("answer lost", answer_lost),
    ("broken before", broken_before),
    ("failed without effect", failed_without_effect),
    ("limited", limited),
    ("credential refused", credential_refused),
    ("refused", refused),
    ("prepared twice", prepared_twice),
];

fn must(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// A prepared write, and the number of changes before it.
struct PreparedTrial {
    write: ServiceWrite,
    prepared: WritePreparation,
    effects: u64,
}

impl PreparedTrial {
    fn handle(&self) -> Option<&ServiceHandle> {
        self.prepared.handle.as_ref()
    }
}

fn ready(stage: &mut dyn ConformanceStage, capability: &Capability) -> Result<PreparedTrial, String> {
    let write = stage.write(capability);
    let effects = stage.effects();
    let prepared = with(stage, None, |adapter, net| job::prepare(adapter, net, &write, None));
    let prepared = prepared.map_err(|trouble| format!("it cannot be prepared: {trouble:?}"))?;
    must(stage.effects() == effects, "preparing it had an effect")?;
    Ok(PreparedTrial { write, prepared, effects })
}

/// Runs something with the adapter and a way to the service on which the first write fails with the given failure.
fn with<Out>(
    stage: &mut dyn ConformanceStage,
    failure: Option<NetFault>,
    run: impl FnOnce(&dyn Adapter, &mut dyn Net) -> Out,
) -> Out {
    let (adapter, net) = stage.parts();
    run(adapter, &mut FaultyNet::new(net, failure))
}

fn perform(
    stage: &mut dyn ConformanceStage,
    ready: &PreparedTrial,
    failure: Option<NetFault>,
) -> Result<AppliedWrite, AdapterWriteError> {
    with(stage, failure, |adapter, net| job::perform(adapter, net, &ready.write, ready.handle()))
}

fn look(stage: &mut dyn ConformanceStage, ready: &PreparedTrial) -> ReconcileOutcome {
    with(stage, None, |adapter, net| match adapter.operation(&ready.write.capability) {
        Some(operation) => operation.reconcile(net, &ready.write, ready.handle()),
        None => ReconcileOutcome::Unknown,
    })
}

fn done(stage: &mut dyn ConformanceStage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let done = perform(stage, &ready, None).map_err(|trouble| format!("{trouble:?}"))?;
    must(stage.effects() > ready.effects, "it had no effect")?;
    must(
        done.after.is_some() == capability.reversible,
        "a fingerprint must be left exactly by writes that can be undone",
    )?;
    match (class, look(stage, &ready)) {
        (EffectClass::Opaque, ReconcileOutcome::Unknown) => Ok(()),
        (_, ReconcileOutcome::Applied(found)) => {
            must(found.after == done.after, "the lookup gives another fingerprint than the write")
        }
        (_, found) => Err(format!("it was done, but the lookup says {found:?}")),
    }
}

fn answer_lost(stage: &mut dyn ConformanceStage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    let broken = ExchangePhase::ALL.into_iter().filter(|phase| !phase.proves_nothing_sent()).map(NetFault::Broken);
    for failure in broken.chain([NetFault::LostReply, NetFault::Status { status: 500, after: true }]) {
        let ready = ready(stage, capability)?;
        let answer = perform(stage, &ready, Some(failure));
        must(matches!(answer, Err(AdapterWriteError::Unclear)), "an answer that was lost must be unclear")?;
        let effects = stage.effects();
        must(effects > ready.effects, "the service did nothing")?;
        let found = look(stage, &ready);
        must(stage.effects() == effects, "the lookup had an effect")?;
        match (class, found) {
            (EffectClass::Opaque, ReconcileOutcome::Unknown) | (_, ReconcileOutcome::Applied(_)) => {}
            // A write of several steps may have stopped halfway. Its class allows a repeat.
            (EffectClass::Absolute, ReconcileOutcome::Absent) => {
                perform(stage, &ready, None).map_err(|trouble| format!("it cannot be repeated: {trouble:?}"))?;
                must(matches!(look(stage, &ready), ReconcileOutcome::Applied(_)), "it was repeated but is not found")?;
            }
            (_, found) => return Err(format!("it was done, but the lookup says {found:?}")),
        }
        if class == EffectClass::ConsumeOnce {
            // Even a blind repeat must not perform it twice.
            let again = perform(stage, &ready, None);
            must(again.is_err(), "a handle was consumed twice")?;
            must(stage.effects() == effects, "it was done twice")?;
        }
    }
    Ok(())
}

fn broken_before(stage: &mut dyn ConformanceStage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    for phase in ExchangePhase::ALL.into_iter().filter(|phase| phase.proves_nothing_sent()) {
        let ready = ready(stage, capability)?;
        let answer = perform(stage, &ready, Some(NetFault::Broken(phase)));
        must(matches!(answer, Err(AdapterWriteError::NotDone(_))), "nothing was sent, so it is not done")?;
        must(stage.effects() == ready.effects, "it had an effect")?;
        absent(stage, &ready, class)?;
    }
    Ok(())
}

fn failed_without_effect(
    stage: &mut dyn ConformanceStage,
    capability: &Capability,
    class: EffectClass,
) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let answer = perform(stage, &ready, Some(NetFault::Status { status: 500, after: false }));
    must(matches!(answer, Err(AdapterWriteError::Unclear)), "a failure of the service proves nothing")?;
    absent(stage, &ready, class)?;
    let again = perform(stage, &ready, None);
    must(again.is_ok(), "after a lookup that found nothing it must be possible")?;
    must(stage.effects() > ready.effects, "it had no effect")
}

fn absent(stage: &mut dyn ConformanceStage, ready: &PreparedTrial, class: EffectClass) -> Result<(), String> {
    match (class, look(stage, ready)) {
        (EffectClass::Opaque, ReconcileOutcome::Unknown) | (_, ReconcileOutcome::Absent) => Ok(()),
        (_, found) => Err(format!("it was not done, but the lookup says {found:?}")),
    }
}

fn limited(stage: &mut dyn ConformanceStage, capability: &Capability, _class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    match perform(stage, &ready, Some(NetFault::Limited { retry_after_s: 17 })) {
        Err(AdapterWriteError::NotDone(why))
            if why.cause == FailureCause::RateLimited && why.retry_after_s == Some(17) =>
        {
            Ok(())
        }
        other => {
            Err(format!("after a rate limit, the adapter must report the wait that the service asked for: {other:?}"))
        }
    }
}

fn credential_refused(
    stage: &mut dyn ConformanceStage,
    capability: &Capability,
    _class: EffectClass,
) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    match perform(stage, &ready, Some(NetFault::Status { status: 401, after: false })) {
        Err(AdapterWriteError::NotDone(why)) if why.cause == FailureCause::NeedsReauth => Ok(()),
        other => Err(format!("a refused credential must mean a new sign-in: {other:?}")),
    }
}

fn refused(stage: &mut dyn ConformanceStage, capability: &Capability, _class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let answer = perform(stage, &ready, Some(NetFault::Status { status: 400, after: false }));
    must(
        matches!(answer, Err(AdapterWriteError::Refused(_))),
        "what the service does not accept must be refused permanently",
    )
}

fn prepared_twice(
    stage: &mut dyn ConformanceStage,
    capability: &Capability,
    _class: EffectClass,
) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let kept = ready.prepared.handle.clone();
    let again = with(stage, None, |adapter, net| job::prepare(adapter, net, &ready.write, kept.clone()));
    let again = again.map_err(|trouble| format!("{trouble:?}"))?;
    must(again.handle == kept, "a handle was replaced")
}

fn taken_back(stage: &mut dyn ConformanceStage, capability: &Capability) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let before = ready.prepared.before.clone().ok_or("no state was captured for a rollback")?;
    let done = perform(stage, &ready, None).map_err(|trouble| format!("{trouble:?}"))?;
    let past = PastWrite { write: &ready.write, before: &before.state, receipt: &done.receipt };
    let reversal = |stage: &mut dyn ConformanceStage, undo: bool| {
        with(stage, None, |adapter, net| match (adapter.reversal(&ready.write.capability), undo) {
            (Some(reversal), false) => reversal.current_fingerprint(net, past).map(Some),
            (Some(reversal), true) => reversal.undo(net, past).map(|done| done.after),
            (None, _) => Err(AdapterWriteError::invalid("it has no reversal")),
        })
    };
    let show = |trouble: AdapterWriteError| format!("{trouble:?}");
    must(
        reversal(stage, false).map_err(show)? == done.after,
        "the fingerprint after the write is not the one that the write reported",
    )?;
    let undone = reversal(stage, true).map_err(show)?;
    let present = reversal(stage, false).map_err(show)?;
    must(present == Some(before.print), "the object is not as it was before")?;
    must(undone == present, "the undo reported another fingerprint than the present one")
}

fn copied(stage: &mut dyn ConformanceStage) -> Result<(), String> {
    let mut since: Option<SyncCursor> = None;
    for page in 0.. {
        let next = with(stage, None, |adapter, net| adapter.changes(net, since.as_ref()));
        let next = next.map_err(|trouble| format!("{trouble:?}"))?;
        must(page > 0 || !next.changes.is_empty(), "a full sync must begin with some change")?;
        since = Some(next.next);
        if !next.more {
            break;
        }
        must(page < 10_000, "the sync does not end")?;
    }
    let broken = with(stage, Some(NetFault::AnyBroken(ExchangePhase::Reply)), |adapter, net| {
        adapter.changes(net, since.as_ref())
    });
    must(matches!(broken, Err(SyncError::Later(_))), "a broken connection means later")?;
    if stage.expire() {
        let expired = with(stage, None, |adapter, net| adapter.changes(net, since.as_ref()));
        must(matches!(expired, Err(SyncError::Expired)), "a forgotten cursor must be reported as expired")?;
    }
    let garbage = SyncCursor("what another release wrote".into());
    let answer = with(stage, None, |adapter, net| adapter.changes(net, Some(&garbage)));
    must(matches!(answer, Err(SyncError::Expired)), "an unreadable cursor must be reported as expired")
}
