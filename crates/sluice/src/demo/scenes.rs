//! The scenes. Each says what happens, makes it happen, and checks that it did.

mod mail;
mod outside;
mod proof;

use std::io::Write;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_core::{CapabilityName, Span, Tier};

use super::stage::{Said, Stage};

pub use mail::{lost_reply, outage, poisoned, read_freely};
pub use outside::{flood, freeze, wipe};
pub use proof::{proof, summary};

type Out<'a> = &'a mut dyn Write;

/// A call judged, with its reasons.
pub fn judge(out: Out<'_>, stage: &Stage) -> anyhow::Result<()> {
    writeln!(out, " 1 JUDGE      every call gets a tier, and every tier a reason")?;
    let policy = stage.gw.policy.get();
    for (capability, arguments, expected) in [
        ("email.read", json!({"message_id": "m-3114"}), Tier::Autonomous),
        ("email.send", json!({"to": "li@northpeak.example", "subject": "Q3"}), Tier::Notify),
        ("email.send", json!({"to": "x@evil.example", "subject": "Q3"}), Tier::ApprovalRequired),
        ("filesystem.delete", json!({"path": "/workspace/inbox-helper/old.csv"}), Tier::ApprovalRequired),
        ("filesystem.read", json!({"path": "/workspace/inbox-helper/../payroll.csv"}), Tier::Blocked),
    ] {
        let name = CapabilityName::new(capability)?;
        let Value::Object(arguments) = arguments else { anyhow::bail!("the arguments are an object") };
        let verdict = policy.judge(&stage.question(&name, &arguments));
        ensure!(verdict.tier == expected, "{capability} was judged {}", verdict.tier);
        let rule =
            verdict.decided_by().map_or_else(|| "default".to_owned(), |rule| stage.nearby(&policy.location(rule)));
        let target = arguments.get("path").or_else(|| arguments.get("to")).and_then(|value| value.as_str());
        let target = target.unwrap_or("m-3114");
        writeln!(out, "              {capability:<18} {target:<42} {:<18} {rule}", verdict.tier)?;
    }
    let name = CapabilityName::new("filesystem.read")?;
    let Value::Object(arguments) = json!({"path": "/workspace/inbox-helper/../payroll.csv"}) else {
        anyhow::bail!("the arguments are an object");
    };
    writeln!(out, "\n              why the last one?")?;
    for line in stage.nearby(&policy.explain(&stage.question(&name, &arguments)).to_string()).lines() {
        writeln!(out, "              | {line}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// A write held, and cancelled by the agent; another one, let go.
pub fn hold(out: Out<'_>, stage: &mut Stage) -> anyhow::Result<()> {
    let before = stage.sent();
    let said = stage.send("li@northpeak.example", "Q3 figures")?;
    let (call, buffer) = held(&said)?;
    writeln!(out, " 3 HOLD       mail to li@northpeak.example held for 30 s   {buffer}")?;
    stage.pass(Span::from_secs(10));
    let cancel = stage.call("email.cancel", json!({"buffer_id": buffer}))?;
    ensure!(cancel.status < 300, "the cancel was refused: {:?}", cancel.body);
    stage.becomes(&call, "cancelled")?;
    stage.pass(Span::from_mins(1));
    stage.moment();
    ensure!(stage.sent() == before, "a cancelled mail left");
    writeln!(out, "              cancelled by the agent after 10 s            sent: 0")?;

    let said = stage.send("li@northpeak.example", "Q3 figures, corrected")?;
    let (call, _) = held(&said)?;
    stage.moment();
    ensure!(stage.sent() == before, "it left inside its undo window");
    stage.pass(Span::from_secs(30));
    stage.becomes(&call, "done")?;
    ensure!(stage.sent() == before + 1, "it did not leave");
    let late = stage.about("sluice_cancel", &call)?;
    ensure!(late.text("/code") == "hold.too_late", "a sent mail was cancelled: {:?}", late.body);
    writeln!(
        out,
        "              a second one nobody stops leaves after 30 s  sent: 1   a late cancel says too_late\n"
    )?;
    Ok(())
}

/// The call and the held write of an answer.
fn held(said: &Said) -> anyhow::Result<(String, String)> {
    ensure!(said.text("/status") == "held", "not held but {:?}", said.body);
    Ok((said.text("/call_id").to_owned(), said.text("/buffer_id").to_owned()))
}

/// A text that must be there.
fn need<'b>(said: &'b Said, at: &str) -> anyhow::Result<&'b str> {
    let text = said.body.pointer(at).and_then(Value::as_str);
    text.with_context(|| format!("no {at} in {:?}", said.body))
}
