//! What every adapter must be able to do, as checks that run against any of them.
//!
//! Takes a [`Stage`]: an adapter, a way to a service that really changes, and a count of its changes. Gives
//! every promise that was not kept. Promise: each write is tried with its answer lost, with the connection
//! broken before and after, with limits and refusals; what the adapter says must be what the service did.

use sluice_core::capability::{Capability, EffectClass};

use crate::adapter::{Adapter, Cursor, Done, Found, Handle, Past, SyncTrouble, Write};
use crate::fake::{Failure, Faulty};
use crate::job::{self, Prepared};
use crate::net::{Net, Phase};
use crate::trouble::{Cause, Trouble};

/// A service to try an adapter on. Each write it gives must be possible, and another one each time.
pub trait Stage {
    /// The adapter, and the way to the service.
    fn parts(&mut self) -> (&dyn Adapter, &mut dyn Net);
    /// A write of this kind that can be done now.
    fn write(&mut self, capability: &Capability) -> Write;
    /// How many changes that somebody outside could notice the service has made.
    fn effects(&mut self) -> u64;
    /// Makes the service forget where a cursor points to. False if it never does.
    fn expire(&mut self) -> bool;
}

/// A promise that was not kept: of which capability, and what.
pub type Finding = String;

/// Runs everything. Gives what was not as it must be; an adapter is done when that is nothing.
pub fn check(stage: &mut dyn Stage) -> Vec<Finding> {
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
            (Some(declared), Some(found)) if declared != found => note("its class is not the catalogue's"),
            (Some(class), Some(_)) => {
                if reversal != capability.reversible {
                    note("whether it can be undone is not what the catalogue says");
                }
                if !manifest.previews.iter().any(|preview| preview.capability == name) {
                    note("people are not shown what it does");
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

type Trial = fn(&mut dyn Stage, &Capability, EffectClass) -> Result<(), String>;

const TRIALS: [(&str, Trial); 8] = [
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

/// A write, prepared, and how many changes there were before it.
struct Ready {
    write: Write,
    prepared: Prepared,
    effects: u64,
}

impl Ready {
    fn handle(&self) -> Option<&Handle> {
        self.prepared.handle.as_ref()
    }
}

fn ready(stage: &mut dyn Stage, capability: &Capability) -> Result<Ready, String> {
    let write = stage.write(capability);
    let effects = stage.effects();
    let prepared = with(stage, None, |adapter, net| job::prepare(adapter, net, &write, None));
    let prepared = prepared.map_err(|trouble| format!("it cannot be prepared: {trouble:?}"))?;
    must(stage.effects() == effects, "preparing it had an effect")?;
    Ok(Ready { write, prepared, effects })
}

/// Runs something with the adapter and a way to the service on which the first write fails as told.
fn with<Out>(
    stage: &mut dyn Stage,
    failure: Option<Failure>,
    run: impl FnOnce(&dyn Adapter, &mut dyn Net) -> Out,
) -> Out {
    let (adapter, net) = stage.parts();
    run(adapter, &mut Faulty::new(net, failure))
}

fn perform(stage: &mut dyn Stage, ready: &Ready, failure: Option<Failure>) -> Result<Done, Trouble> {
    with(stage, failure, |adapter, net| job::perform(adapter, net, &ready.write, ready.handle()))
}

fn look(stage: &mut dyn Stage, ready: &Ready) -> Found {
    with(stage, None, |adapter, net| match adapter.operation(&ready.write.capability) {
        Some(operation) => operation.reconcile(net, &ready.write, ready.handle()),
        None => Found::Unknown,
    })
}

fn done(stage: &mut dyn Stage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let done = perform(stage, &ready, None).map_err(|trouble| format!("{trouble:?}"))?;
    must(stage.effects() > ready.effects, "it had no effect")?;
    must(done.after.is_some() == capability.reversible, "a print is left exactly by what can be undone")?;
    match (class, look(stage, &ready)) {
        (EffectClass::Opaque, Found::Unknown) => Ok(()),
        (_, Found::Applied(found)) => must(found.after == done.after, "the look gives another print than the write"),
        (_, found) => Err(format!("it was done, and the look says {found:?}")),
    }
}

fn answer_lost(stage: &mut dyn Stage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    for failure in [Failure::LostReply, Failure::Status { status: 500, after: true }] {
        let ready = ready(stage, capability)?;
        let answer = perform(stage, &ready, Some(failure));
        must(matches!(answer, Err(Trouble::Unclear)), "an answer that was lost must be unclear")?;
        let effects = stage.effects();
        must(effects > ready.effects, "the service did nothing")?;
        let found = look(stage, &ready);
        must(stage.effects() == effects, "the look had an effect")?;
        match (class, found) {
            (EffectClass::Opaque, Found::Unknown) | (_, Found::Applied(_)) => {}
            // A write of several steps may have stopped halfway. Repeating it is what its class allows.
            (EffectClass::Absolute, Found::Absent) => {
                perform(stage, &ready, None).map_err(|trouble| format!("it cannot be repeated: {trouble:?}"))?;
                must(matches!(look(stage, &ready), Found::Applied(_)), "it was repeated, and is not found")?;
            }
            (_, found) => return Err(format!("it was done, and the look says {found:?}")),
        }
        if class == EffectClass::ConsumeOnce {
            // Even a blind repeat must not do it twice.
            let again = perform(stage, &ready, None);
            must(again.is_err(), "a handle was consumed twice")?;
            must(stage.effects() == effects, "it was done twice")?;
        }
    }
    Ok(())
}

fn broken_before(stage: &mut dyn Stage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    for phase in [Phase::Dns, Phase::Connect, Phase::Tls, Phase::BeforeFirstByte] {
        let ready = ready(stage, capability)?;
        let answer = perform(stage, &ready, Some(Failure::Broken(phase)));
        must(matches!(answer, Err(Trouble::NotDone(_))), "nothing left, so it is not done")?;
        must(stage.effects() == ready.effects, "it had an effect")?;
        absent(stage, &ready, class)?;
    }
    Ok(())
}

fn failed_without_effect(stage: &mut dyn Stage, capability: &Capability, class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let answer = perform(stage, &ready, Some(Failure::Status { status: 500, after: false }));
    must(matches!(answer, Err(Trouble::Unclear)), "a failure of the service proves nothing")?;
    absent(stage, &ready, class)?;
    let again = perform(stage, &ready, None);
    must(again.is_ok(), "after a look that found nothing it must be possible")?;
    must(stage.effects() > ready.effects, "it had no effect")
}

fn absent(stage: &mut dyn Stage, ready: &Ready, class: EffectClass) -> Result<(), String> {
    match (class, look(stage, ready)) {
        (EffectClass::Opaque, Found::Unknown) | (_, Found::Absent) => Ok(()),
        (_, found) => Err(format!("it was not done, and the look says {found:?}")),
    }
}

fn limited(stage: &mut dyn Stage, capability: &Capability, _class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    match perform(stage, &ready, Some(Failure::Limited { retry_after_s: 17 })) {
        Err(Trouble::NotDone(why)) if why.cause == Cause::RateLimited && why.retry_after_s == Some(17) => Ok(()),
        other => Err(format!("a limit must be waited out as long as the service says: {other:?}")),
    }
}

fn credential_refused(stage: &mut dyn Stage, capability: &Capability, _class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    match perform(stage, &ready, Some(Failure::Status { status: 401, after: false })) {
        Err(Trouble::NotDone(why)) if why.cause == Cause::NeedsReauth => Ok(()),
        other => Err(format!("a refused credential means connecting again: {other:?}")),
    }
}

fn refused(stage: &mut dyn Stage, capability: &Capability, _class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let answer = perform(stage, &ready, Some(Failure::Status { status: 400, after: false }));
    must(matches!(answer, Err(Trouble::Refused(_))), "what the service does not accept is refused for good")
}

fn prepared_twice(stage: &mut dyn Stage, capability: &Capability, _class: EffectClass) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let kept = ready.prepared.handle.clone();
    let again = with(stage, None, |adapter, net| job::prepare(adapter, net, &ready.write, kept.clone()));
    let again = again.map_err(|trouble| format!("{trouble:?}"))?;
    must(again.handle == kept, "a handle was replaced")
}

fn taken_back(stage: &mut dyn Stage, capability: &Capability) -> Result<(), String> {
    let ready = ready(stage, capability)?;
    let before = ready.prepared.before.clone().ok_or("nothing was kept to go back to")?;
    let done = perform(stage, &ready, None).map_err(|trouble| format!("{trouble:?}"))?;
    let past = Past { write: &ready.write, before: &before.state, receipt: &done.receipt };
    let reversal = |stage: &mut dyn Stage, undo: bool| {
        with(stage, None, |adapter, net| match (adapter.reversal(&ready.write.capability), undo) {
            (Some(reversal), false) => reversal.present(net, past).map(Some),
            (Some(reversal), true) => reversal.undo(net, past).map(|done| done.after),
            (None, _) => Err(Trouble::invalid("it has no reversal")),
        })
    };
    let show = |trouble: Trouble| format!("{trouble:?}");
    must(reversal(stage, false).map_err(show)? == done.after, "the print after the write is not what the write said")?;
    let undone = reversal(stage, true).map_err(show)?;
    let present = reversal(stage, false).map_err(show)?;
    must(present == Some(before.print), "the object is not as it was before")?;
    must(undone == present, "the undo said another print than there is")
}

fn copied(stage: &mut dyn Stage) -> Result<(), String> {
    let mut since: Option<Cursor> = None;
    for page in 0.. {
        let next = with(stage, None, |adapter, net| adapter.changes(net, since.as_ref()));
        let next = next.map_err(|trouble| format!("{trouble:?}"))?;
        must(page > 0 || !next.changes.is_empty(), "a full copy begins with something")?;
        since = Some(next.next);
        if !next.more {
            break;
        }
        must(page < 10_000, "it never comes to an end")?;
    }
    let broken =
        with(stage, Some(Failure::AnyBroken(Phase::Reply)), |adapter, net| adapter.changes(net, since.as_ref()));
    must(matches!(broken, Err(SyncTrouble::Later(_))), "a broken connection means later")?;
    if stage.expire() {
        let expired = with(stage, None, |adapter, net| adapter.changes(net, since.as_ref()));
        must(matches!(expired, Err(SyncTrouble::Expired)), "a forgotten cursor must be said to be expired")?;
    }
    let garbage = Cursor("what another release wrote".into());
    let answer = with(stage, None, |adapter, net| adapter.changes(net, Some(&garbage)));
    must(matches!(answer, Err(SyncTrouble::Expired)), "a cursor that cannot be read is an expired one")
}
