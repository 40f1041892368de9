//! The scenes. Each says what happens, makes it happen, and checks the result.

mod mail;
mod outside;
mod proof;

use std::io::Write;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_core::{CapabilityName, Millis, Tier};

use super::gateway::{DemoGateway, DemoResponse};

pub use mail::{lost_reply, outage, poisoned, read_freely};
pub use outside::{flood, freeze, wipe};
pub use proof::{proof, summary};

type SceneOutput<'a> = &'a mut dyn Write;

/// Calls are judged, with reasons.
pub fn judge(out: SceneOutput<'_>, stage: &DemoGateway) -> anyhow::Result<()> {
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

/// A write is held and cancelled by the agent; another one is not cancelled and is sent.
pub fn hold(out: SceneOutput<'_>, stage: &mut DemoGateway) -> anyhow::Result<()> {
    let before = stage.sent();
    let said = stage.send("li@northpeak.example", "Q3 figures")?;
    let (call, buffer) = held(&said)?;
    writeln!(out, " 3 HOLD       mail to li@northpeak.example held for 30 s   {buffer}")?;
    stage.pass(Millis::from_secs(10));
    let cancel = stage.call("email.cancel", json!({"buffer_id": buffer}))?;
    ensure!(cancel.status < 300, "the cancel was refused: {:?}", cancel.body);
    stage.wait_for_status(&call, "cancelled")?;
    stage.pass(Millis::from_mins(1));
    stage.moment();
    ensure!(stage.sent() == before, "a cancelled mail was sent");
    writeln!(out, "              cancelled by the agent after 10 s            sent: 0")?;

    let said = stage.send("li@northpeak.example", "Q3 figures, corrected")?;
    let (call, _) = held(&said)?;
    stage.moment();
    ensure!(stage.sent() == before, "it was sent within its undo window");
    stage.pass(Millis::from_secs(30));
    stage.wait_for_status(&call, "done")?;
    ensure!(stage.sent() == before + 1, "it was not sent");
    let late = stage.call_tool_about("sluice_cancel", &call)?;
    ensure!(late.text("/code") == "hold.too_late", "a sent mail was cancelled: {:?}", late.body);
    writeln!(
        out,
        "              a second mail, not cancelled, is sent        sent: 1   a late cancel is refused: too_late\n"
    )?;
    Ok(())
}

/// The call id and the hold id of an answer.
fn held(said: &DemoResponse) -> anyhow::Result<(String, String)> {
    ensure!(said.text("/status") == "held", "not held but {:?}", said.body);
    Ok((said.text("/call_id").to_owned(), said.text("/buffer_id").to_owned()))
}

/// A text that must be in the answer.
fn need<'b>(said: &'b DemoResponse, at: &str) -> anyhow::Result<&'b str> {
    let text = said.body.pointer(at).and_then(Value::as_str);
    text.with_context(|| format!("no {at} in {:?}", said.body))
}
