//! The scenes. Each says what happens, makes it happen, and checks that it did.

use std::io::Write;

use anyhow::{Context as _, ensure};
use serde_json::json;
use sluice_core::audit::verify::{Export, Trust, VerifyError, verify};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, ApprovalId, CapabilityName, Clock as _, HoldId, Span, Tier};
use sluice_store::{
    Abandoned, Admitted, Cancelled, Choice, Decided, Decision, Evidence, Resolve, Ruling, Scope, StoreError,
};

use super::stage::{Judged, Stage};
use crate::export::{self, ExportFiles};
use crate::system::SystemIds;

type Out<'a> = &'a mut dyn Write;

/// A call judged, with its reasons.
pub fn judge(out: Out<'_>, stage: &Stage) -> anyhow::Result<()> {
    writeln!(out, " 1 JUDGE      every call gets a tier, and every tier a reason")?;
    for (capability, arguments, expected) in [
        ("email.read", json!({"message_id": "m-3114"}), Tier::Autonomous),
        ("email.send", json!({"to": "li@northpeak.example", "subject": "Q3"}), Tier::Notify),
        ("email.send", json!({"to": "x@evil.example", "subject": "Q3"}), Tier::ApprovalRequired),
        ("filesystem.delete", json!({"path": "/workspace/inbox-helper/old.csv"}), Tier::ApprovalRequired),
        ("filesystem.read", json!({"path": "/workspace/inbox-helper/../payroll.csv"}), Tier::Blocked),
    ] {
        let Judged { verdict, .. } = stage.judge(capability, arguments.clone())?;
        ensure!(verdict.tier == expected, "{capability} was judged {}", verdict.tier);
        let rule = verdict.decided_by().map_or_else(|| "default".to_owned(), |rule| stage.policy.location(rule));
        let target = arguments.get("path").or_else(|| arguments.get("to")).and_then(|value| value.as_str());
        let target = target.unwrap_or("m-3114");
        writeln!(out, "              {capability:<18} {target:<42} {:<18} {rule}", verdict.tier)?;
    }
    let name = CapabilityName::new("filesystem.read")?;
    let serde_json::Value::Object(arguments) = json!({"path": "/workspace/inbox-helper/../payroll.csv"}) else {
        anyhow::bail!("the arguments are an object");
    };
    writeln!(out, "\n              why the last one?")?;
    for line in stage.policy.explain(&stage.question(&name, &arguments)).to_string().lines() {
        writeln!(out, "              | {line}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// A write held, and cancelled.
pub fn hold(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    let id = held(stage.send("li@northpeak.example", "Q3 figures")?)?;
    writeln!(out, " 2 HOLD       mail to li@northpeak.example held for 30 s   {id}")?;
    stage.clock.pass(Span::from_secs(10));
    let by = Actor::Agent(stage.agent.clone());
    let cancelled = stage.wait(stage.store.cancel(id, by))?;
    ensure!(matches!(cancelled, Cancelled::Stopped(_)), "the cancel came too late");
    stage.clock.pass(Span::from_mins(5));
    ensure!(stage.deliver_due()? == 0 && stage.mailbox.sent() == 0, "a cancelled mail left");
    writeln!(out, "              cancelled after 10 s                         sent: 0")?;
    Ok(())
}

/// Another write, let go.
pub fn release(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    let id = held(stage.send("li@northpeak.example", "Q3 figures, corrected")?)?;
    ensure!(stage.deliver_due()? == 0, "it left inside its undo window");
    stage.clock.pass(Span::from_secs(30));
    ensure!(stage.deliver_due()? == 1 && stage.mailbox.sent() == 1, "it did not leave");
    ensure!(stage.state(id)? == "done", "it is not done");
    let late = stage.wait(stage.store.cancel(id, Actor::Agent(stage.agent.clone())))?;
    ensure!(matches!(late, Cancelled::TooLate(_)), "a sent mail was cancelled");
    writeln!(
        out,
        " 3 RELEASE    a second one nobody stops leaves after 30 s  sent: 1   a late cancel says too_late\n"
    )?;
    Ok(())
}

/// A thousand sends at once.
pub fn flood(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    stage.clock.pass(Span::from_mins(11));
    let before = stage.mailbox.sent();
    let (mut held, mut waiting, mut card) = (0, 0, None);
    for n in 0..1000 {
        match stage.send(&format!("customer-{n}@example.org"), "Our new prices")? {
            Admitted::Held { .. } => held += 1,
            Admitted::Awaiting { approval, batch: true, .. } => {
                waiting += 1;
                ensure!(card.is_none_or(|card| card == approval), "a second card");
                card = Some(approval);
            }
            other => anyhow::bail!("unexpected: {other:?}"),
        }
    }
    let card = card.context("nobody was asked")?;
    stage.questions += 1;
    let shown = stage.wait(stage.store.approval(card))?.context("the card is gone")?;
    ensure!((held, waiting, shown.items.len()) == (5, 995, 1000), "the card does not cover all of them");
    stage.clock.pass(Span::from_mins(2));
    ensure!(stage.deliver_due()? == 0 && stage.mailbox.sent() == before, "some of the flood left");
    writeln!(out, " 4 FLOOD      1,000 sends at once: {held} held, the next trips the window and pulls them back")?;
    writeln!(out, "              one question for all 1,000                   sent: 0   {card}")?;
    let decided = decide(stage, card, Ruling::Choose(Choice::First(3)))?;
    let Decided::Now { allowed, denied, .. } = decided else { anyhow::bail!("someone else decided") };
    ensure!((allowed.len(), denied.len()) == (3, 997), "the choice was not kept");
    stage.clock.pass(Span::from_secs(30));
    ensure!(stage.deliver_due()? == 3 && stage.mailbox.sent() == before + 3, "not exactly three left");
    writeln!(out, "              ana lets the first 3 go, no more             sent: 3   denied: 997")?;
    let again = decide(stage, card, Ruling::Deny { note: None })?;
    ensure!(matches!(again, Decided::Already(_)), "the same question was decided twice");
    writeln!(out, "              a second answer to the same question changes nothing\n")?;
    Ok(())
}

/// The brake.
pub fn freeze(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    stage.clock.pass(Span::from_mins(11));
    let before = stage.mailbox.sent();
    let id = held(stage.send("li@northpeak.example", "One more thing")?)?;
    stage.wait(stage.store.freeze(Scope::All, Stage::ana()?, "something is odd".into()))?;
    stage.clock.pass(Span::from_secs(30));
    ensure!(stage.deliver_due()? == 0, "a frozen write left");
    let refused = stage.send("li@northpeak.example", "And another");
    let code = refused.err().and_then(|error| error.downcast::<StoreError>().ok()).map(|error| error.code());
    ensure!(code == Some("freeze.active"), "a new write was taken");
    stage.wait(stage.store.unfreeze(Scope::All, Stage::ana()?))?;
    ensure!(stage.deliver_due()? == 1 && stage.mailbox.sent() == before + 1, "it did not thaw");
    ensure!(stage.state(id)? == "done", "it is not done");
    writeln!(out, " 5 FREEZE     ana pulls the brake: what is due stays, what is new is refused (freeze.active)")?;
    writeln!(out, "              she lets go: the held mail leaves, once      sent: 1\n")?;
    Ok(())
}

/// The reply that got lost.
pub fn lost_reply(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    let before = stage.mailbox.sent();
    let id = held(stage.send("li@northpeak.example", "Contract")?)?;
    stage.clock.pass(Span::from_secs(30));
    let ours = stage.claim()?;
    let hold = ours.first().context("it was not due")?;
    let draft = stage.arm(hold)?;
    let lost = stage.mailbox.send_and_lose_the_reply(&draft).is_err();
    ensure!(lost && stage.mailbox.sent() == before + 1, "the mailbox did not take it");
    stage.restart()?;
    let message = MessageId::mint(&SystemIds);
    stage.wait(stage.store.recover(Abandoned::Own, 100, message))?;
    ensure!(stage.state(id)? == "in_doubt", "it is not in doubt");
    writeln!(out, " 6 LOST REPLY the mail was sent, the answer was lost, the gateway died")?;
    writeln!(out, "              state: in_doubt                              nothing is sent again on a guess")?;
    stage.clock.pass(Span::from_mins(1));
    let doubtful = stage.wait(stage.store.doubtful(stage.clock.now(), 10))?;
    let hold = doubtful.first().context("nothing to look up")?;
    let gone = !stage.mailbox.has_draft(&draft);
    ensure!(gone, "the draft is still there");
    let evidence =
        Evidence::Applied { receipt: format!("{draft} was sent"), result: None, after: None, service_until: None };
    let resolve = Resolve { hold: id, version: hold.version, evidence, message: MessageId::mint(&SystemIds) };
    stage.wait(stage.store.resolve(resolve))?;
    ensure!(stage.state(id)? == "done" && stage.mailbox.sent() == before + 1, "it was sent twice");
    writeln!(out, "              looked up: the draft is gone, so it was sent  state: done   sent: 1, not 2\n")?;
    Ok(())
}

/// The record, and a copy with one changed byte.
pub fn proof(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    let grown = stage.wait(stage.store.grown())?;
    let note = stage.signer.sign(&grown.growth)?;
    stage.wait(stage.store.checkpointed(grown, note))?;
    let files = ExportFiles::in_folder(&stage.folder().join("export"))?;
    let key = stage.signer.key().clone();
    std::fs::write(stage.folder().join("audit.pub"), format!("{key}\n"))?;
    let log = stage.store.node().clone();
    let size = stage.wait(export::write(&stage.store, log, key.clone(), &files))?;
    let trust = Trust { key: Some(key), ..Trust::default() };

    let (about, entries, notes) =
        (files.read_log()?, std::fs::read(&files.entries)?, std::fs::read(&files.checkpoints)?);
    let untouched = Export { log: &about, entries: entries.as_slice(), checkpoints: notes.as_slice() };
    let report = verify(untouched, &trust)?;
    ensure!(report.covered == size && report.uncovered == 0, "not everything is covered");
    writeln!(out, " 7 PROOF      audit log: {size} entries, chained, in a signed tree    verified ✓")?;

    let mut forged = entries;
    let target = size / 2;
    let line = forged.split_mut(|byte| *byte == b'\n').nth(usize::try_from(target)?).context("no such line")?;
    // The last digit of its time: one millisecond, sooner or later.
    let time = line.windows(5).position(|word| word == b"\"at\":").context("an entry without a time")?;
    if let Some(digit) = line.get_mut(time + 5 + 12) {
        *digit ^= 1;
    }
    let tampered = Export { log: &about, entries: forged.as_slice(), checkpoints: notes.as_slice() };
    let error = verify(tampered, &trust).err().context("the forgery was not found")?;
    let VerifyError::Fault(fault) = &error else { anyhow::bail!("unexpected: {error}") };
    ensure!(fault.seq == target, "the wrong entry was named: {fault}");
    writeln!(
        out,
        "              one bit changed in a copy                    first bad entry: #{} ({}) ✗\n",
        fault.seq,
        error.code()
    )?;
    Ok(())
}

/// What it came to.
pub fn summary(out: Out<'_>, stage: &Stage) -> anyhow::Result<()> {
    writeln!(out, "{}", "─".repeat(96))?;
    writeln!(
        out,
        " attempted {} sends · reached the mailbox {} · questions asked {} · sent twice 0",
        stage.asked,
        stage.mailbox.sent(),
        stage.questions
    )?;
    Ok(())
}

fn held(admitted: Admitted) -> anyhow::Result<HoldId> {
    match admitted {
        Admitted::Held { hold, .. } => Ok(hold),
        other => anyhow::bail!("not held but {other:?}"),
    }
}

fn decide(stage: &Stage, approval: ApprovalId, ruling: Ruling) -> anyhow::Result<Decided> {
    let by = Stage::ana()?;
    let decision = Decision { approval, by, channel: "demo".into(), ruling, shown: None, allowance: None };
    Ok(stage.wait(stage.store.decide(decision))?)
}
