//! Scenes in which an agent wants too much, and people decide.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_core::Millis;

use super::super::gateway::DemoGateway;
use super::{SceneOutput, held, need};

/// A thousand sends at once.
pub fn flood(out: SceneOutput<'_>, stage: &mut DemoGateway) -> anyhow::Result<()> {
    stage.pass(Millis::from_mins(11));
    let before = stage.sent();
    let (mut waits, mut card, mut calls) = (0, None, Vec::new());
    for n in 0..1000 {
        let said = stage.send(&format!("customer-{n}@example.org"), "Our new prices")?;
        calls.push(need(&said, "/call_id")?.to_owned());
        match said.text("/status") {
            "held" => {}
            "awaiting_approval" => {
                waits += 1;
                let asked = need(&said, "/approval_id")?.to_owned();
                ensure!(card.as_ref().is_none_or(|card| *card == asked), "a second card");
                card = Some(asked);
            }
            _ => anyhow::bail!("unexpected: {:?}", said.body),
        }
    }
    let card = card.context("nobody was asked")?;
    stage.tally.questions += 1;
    ensure!(waits == 995, "{waits} of a thousand wait for a person");
    stage.pass(Millis::from_mins(2));
    stage.moment();
    ensure!(stage.sent() == before, "some of the flood was sent");
    writeln!(out, " 4 FLOOD      1,000 sends at once: 5 held, the next trips the window and pulls them back")?;
    writeln!(out, "              one approval for all 1,000                   sent: 0   {card}")?;
    let decide = format!("/v1/approvals/{card}/decision");
    let said = stage.person("POST", &decide, Some(&json!({"decision": "approve_first", "first": 3})))?;
    ensure!(said.status == 200, "the decision was not taken: {:?}", said.body);
    stage.pass(Millis::from_secs(31));
    for call in calls.iter().take(3) {
        stage.wait_for_status(call, "done")?;
    }
    stage.moment();
    ensure!(stage.sent() == before + 3, "not exactly three left");
    ensure!(stage.status(calls.last().context("no call")?)? == "denied", "the last one was not denied");
    writeln!(out, "              ana approves the first 3 and no more         sent: 3   denied: 997")?;
    let again = stage.person("POST", &decide, Some(&json!({"decision": "deny"})))?;
    ensure!(again.text("/code") == "approval.already_decided", "it was decided twice: {:?}", again.body);
    writeln!(out, "              a second answer to the same approval changes nothing\n")?;
    Ok(())
}

/// A freeze.
pub fn freeze(out: SceneOutput<'_>, stage: &mut DemoGateway) -> anyhow::Result<()> {
    stage.pass(Millis::from_mins(11));
    let before = stage.sent();
    let (call, _) = held(&stage.send("li@northpeak.example", "One more thing")?)?;
    let said = stage.person("POST", "/v1/freezes", Some(&json!({"reason": "something is odd"})))?;
    ensure!(said.status == 201, "the freeze does not work: {:?}", said.body);
    stage.pass(Millis::from_secs(30));
    stage.moment();
    ensure!(stage.sent() == before, "a frozen write was sent");
    let refused = stage.send("li@northpeak.example", "And another")?;
    ensure!(refused.text("/code") == "freeze.active", "a new write was accepted: {:?}", refused.body);
    let said = stage.person("DELETE", "/v1/freezes", None)?;
    ensure!(said.status < 300, "the freeze cannot be lifted: {:?}", said.body);
    stage.wait_for_status(&call, "done")?;
    ensure!(stage.sent() == before + 1, "it was not sent after the freeze");
    writeln!(out, " 5 FREEZE     ana freezes everything: due writes stay, new calls are refused (freeze.active)")?;
    writeln!(out, "              she lifts the freeze: the held mail is sent  sent: 1\n")?;
    Ok(())
}

/// An agent that deletes too much.
pub fn wipe(out: SceneOutput<'_>, stage: &mut DemoGateway) -> anyhow::Result<()> {
    stage.pass(Millis::from_mins(11));
    let mut ids = Vec::new();
    while ids.len() < 480 {
        let said = stage.call("email.list", json!({"label": "INBOX", "limit": 100, "offset": ids.len()}))?;
        let page = said.body.pointer("/result/messages").and_then(Value::as_array).cloned().unwrap_or_default();
        ensure!(!page.is_empty(), "the inbox is smaller than that");
        let named = page.iter().filter_map(|message| message.get("message_id").and_then(Value::as_str));
        ids.extend(named.map(str::to_owned));
    }
    ids.truncate(480);
    let labels = |id: &String| stage.upstream.as_owner(|mailbox, _| mailbox.get(id).map(|found| found.labels.clone()));
    let before: Vec<_> = ids.iter().map(labels).collect();
    let (mut card, mut calls) = (None, Vec::new());
    for id in &ids {
        let said = stage.call("email.delete", json!({"message_id": id}))?;
        calls.push((need(&said, "/call_id")?.to_owned(), need(&said, "/buffer_id")?.to_owned()));
        if said.text("/status") == "awaiting_approval" {
            card = Some(need(&said, "/approval_id")?.to_owned());
        }
    }
    stage.tally.writes += 480;
    let card = card.context("nobody was asked")?;
    stage.tally.questions += 1;
    let six = json!({"decision": "approve_first", "first": 6});
    let said = stage.person("POST", &format!("/v1/approvals/{card}/decision"), Some(&six))?;
    ensure!(said.status == 200, "the decision was not taken: {:?}", said.body);
    stage.pass(Millis::from_secs(31));
    for (call, _) in calls.iter().take(6) {
        stage.wait_for_status(call, "done")?;
    }
    stage.moment();
    let labels = |id: &String| stage.upstream.as_owner(|mailbox, _| mailbox.get(id).map(|found| found.labels.clone()));
    let trashed = ids.iter().filter(|id| labels(id).is_some_and(|labels| labels.contains("TRASH"))).count();
    ensure!(trashed == 6, "{trashed} messages are in the trash");
    writeln!(out, " 6 WIPE       \"clean up\" becomes 480 deletes: one approval; ana allows 6 as a test")?;
    let buffers: Vec<&String> = calls.iter().take(6).map(|(_, buffer)| buffer).collect();
    let plan = stage.person("POST", "/v1/rollbacks", Some(&json!({"buffer_ids": buffers, "plan_only": true})))?;
    let steps = plan.body.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
    let possible = steps.iter().filter(|step| step.get("possible") == Some(&Value::Bool(true))).count();
    ensure!(possible == 6, "not all of it can be undone: {:?}", plan.body);
    let said = stage.person("POST", "/v1/rollbacks", Some(&json!({"buffer_ids": buffers})))?;
    ensure!(said.status == 202, "it is not undone: {:?}", said.body);
    stage.pass(Millis::from_secs(6));
    let restored = || ids.iter().zip(&before).filter(|(id, before)| labels(id) == **before).count();
    stage.until("everything is where it was", || Ok(restored() == 480))?;
    stage.tally.undone += 6;
    writeln!(out, "              rollback plan: 6 reversible                  restored 6/6, with their labels\n")?;
    Ok(())
}
