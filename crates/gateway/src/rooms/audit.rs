//! The record of calls that end at once: reads, checks and refusals.
//!
//! Held writes are recorded by the moves of their state. Promise: a known caller's call leaves exactly one
//! closing entry, and an answer that cannot be recorded is not given.

use sluice_core::ids::MessageId;
use sluice_core::read_trace::ReadTrace;
use sluice_core::refusal::{Code, Refusal};
use sluice_core::target::origins;
use sluice_core::{ServiceName, Tier};
use sluice_store::{Closed, Ending, Message, NOTICE, Severity};

use super::approval::Asked;
use super::identity::Trace;
use crate::value::put;
use crate::{Gateway, No};

/// Most targets that a notice names.
const NOTICE_TARGETS: usize = 5;

/// The entry of a read that was answered.
pub(crate) fn answered(gw: &Gateway, asked: &Asked) -> Closed {
    ending(gw, asked, Ending::Answered)
}

/// The entry of a check that came out as a yes. It cannot be written while this service, its agent or everything is frozen.
pub(crate) fn allowed(gw: &Gateway, asked: &Asked, unless_frozen: Option<ServiceName>) -> Closed {
    ending(gw, asked, Ending::Allowed { unless_frozen })
}

fn ending(gw: &Gateway, asked: &Asked, outcome: Ending) -> Closed {
    let checked = asked.checked();
    let known = checked.known();
    let call = known.call();
    let notify = (asked.tier() == Tier::Notify).then(|| {
        let outcome = if matches!(outcome, Ending::Allowed { .. }) { "allowed" } else { "answered" };
        let targets: Vec<&str> =
            asked.targets().iter().take(NOTICE_TARGETS).map(|target| target.value.as_str()).collect();
        let body = serde_json::json!({
            "call": call, "agent": known.agent(), "capability": checked.action().capability(), "outcome": outcome,
            "targets": targets,
        });
        let id = MessageId::mint(gw.ids.as_ref());
        Message { id, topic: NOTICE.into(), severity: Severity::Info, body }
    });
    Closed {
        call,
        agent: known.agent().clone(),
        session: known.session().map(|session| session.id),
        capability: checked.action().capability().clone(),
        digest: Some(checked.action().digest()),
        tier: Some(asked.tier()),
        policy: asked.policy().to_owned(),
        rule: asked.rule().map(str::to_owned),
        outcome,
        rates: asked.rates().to_vec(),
        notify,
        door: Some(known.door()),
        findings: None,
        origins: (!asked.targets().is_empty()).then(|| origins(asked.targets()).to_string()),
        kept: None,
        observed: Vec::new(),
        read: None,
    }
}

/// Adds to the notice about a read what it gave: how many objects, and the ids of the first of them.
pub(crate) fn complete_notice(entry: &mut Closed, read: &ReadTrace) {
    if let Some(message) = &mut entry.notify {
        put(&mut message.body, "count", read.count);
        put(&mut message.body, "ids", read.ids.clone());
        put(&mut message.body, "more", read.more);
    }
}

/// Writes the entry.
///
/// # Errors
/// When it cannot be written: then the call must not be answered either.
pub(crate) async fn close(gw: &Gateway, entry: Closed) -> Result<(), No> {
    gw.store.closed(entry).await?;
    gw.events.wrote();
    Ok(())
}

/// What operators are told when something was about to leave.
fn alert(gw: &Gateway, trace: &Trace, findings: &serde_json::Value) -> Message {
    let body = serde_json::json!({
        "call": trace.call, "agent": trace.agent, "capability": trace.capability, "findings": findings,
    });
    let id = MessageId::mint(gw.ids.as_ref());
    Message { id, topic: "leak.found".into(), severity: Severity::Critical, body }
}

/// Records a refusal and gives it back with its call. A refusal that cannot be recorded is still one.
pub(crate) async fn refused(gw: &Gateway, trace: &Trace, no: No) -> No {
    let no = no.about(trace.call);
    // The store said no to this very call: what it could not write then it cannot write now.
    if no.recorded || no.refusal.code().room() == "store" {
        return no;
    }
    let kept = no.wanted.as_deref().filter(|wanted| wanted.may_be_kept(gw));
    let entry = Closed {
        call: trace.call,
        agent: trace.agent.clone(),
        session: trace.session,
        capability: trace.capability.clone(),
        digest: kept.map(|wanted| wanted.action.digest()),
        tier: (no.refusal.code() == Code::PolicyBlocked).then_some(Tier::Blocked),
        policy: gw.policy.get().version().to_owned(),
        rule: no.rule.clone(),
        outcome: Ending::Refused { code: no.refusal.code().as_str().to_owned() },
        rates: Vec::new(),
        notify: no.findings.as_deref().map(|findings| alert(gw, trace, findings)),
        findings: no.findings.as_deref().cloned(),
        door: Some(trace.door),
        origins: kept.and_then(|wanted| wanted.origins.clone()),
        kept: kept.map(|wanted| wanted.action.clone()),
        observed: Vec::new(),
        read: None,
    };
    match close(gw, entry).await {
        Ok(()) => no,
        Err(unwritten) => {
            No { refusal: Box::new(Refusal::new(Code::AuditUnavailable).because(*unwritten.refusal)), ..no }
        }
    }
}
