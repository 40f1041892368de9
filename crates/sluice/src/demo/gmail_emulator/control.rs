//! The owner's access: what tests and the demo do to the mailbox outside its API, `POST /__control`.
//!
//! Takes options as JSON (`fail`, `expire_history`, `token`, `revoke`, `lose_rotation`, `slow_ms`, `receive`, `relabel`, `remove`, `labels`,
//! `remove_drafts`, `edit_drafts`, `last_sent`, `make_label`, `drop_label`), gives the counters and the requested values. None of it is counted as a call.

use serde_json::{Map, Value, json};

use super::faults::InjectedFault;
use super::mailbox::EmulatedMailbox;
use super::{EmulatorRequest, EmulatorResponse, GmailEmulatorState};

/// Carries out the options.
pub fn answer(inner: &mut GmailEmulatorState, ask: &EmulatorRequest, now: i64) -> EmulatorResponse {
    let wish: Value = serde_json::from_slice(&ask.body).unwrap_or_default();
    let yes = |name: &str| wish.get(name) == Some(&Value::Bool(true));
    if let Some(failing) = InjectedFault::read(&wish) {
        inner.faults.add(failing);
    }
    let mailbox = &mut inner.mailbox;
    if yes("expire_history") {
        mailbox.expire_history();
    }
    if yes("revoke") {
        inner.oauth.revoke_all();
    }
    inner.oauth.lose_rotation |= yes("lose_rotation");
    if let Some(slow) = wish.get("slow_ms").and_then(Value::as_u64) {
        inner.slow_ms = slow;
    }
    if yes("remove_drafts") {
        for message in std::mem::take(&mut mailbox.drafts).into_values() {
            mailbox.remove(&message);
        }
    }
    if let Some(raw) = wish.get("edit_drafts").and_then(Value::as_str) {
        let ids: Vec<String> = mailbox.drafts.keys().cloned().collect();
        for id in ids {
            super::drafts::update(mailbox, &id, &json!({"message": {"raw": raw}}), now);
        }
    }
    if let Some(name) = wish.get("make_label").and_then(Value::as_str) {
        mailbox.label(name);
    }
    if let Some(name) = wish.get("drop_label").and_then(Value::as_str) {
        mailbox.labels.retain(|_, known| known != name);
    }
    for id in texts(&wish, "remove") {
        mailbox.remove(&id);
    }
    if let Some(change) = wish.get("relabel") {
        for id in texts(change, "ids") {
            mailbox.relabel(&id, &texts(change, "add"), &texts(change, "remove"));
        }
    }
    let received = wish.get("receive").map(|letter| receive(mailbox, letter, now));
    let token = yes("token").then(|| inner.oauth.grant(now));
    let mailbox = &inner.mailbox;
    let shown: Map<String, Value> = texts(&wish, "labels")
        .into_iter()
        .map(|id| (id.clone(), mailbox.get(&id).map_or(Value::Null, |message| json!(message.labels))))
        .collect();
    let last_sent = yes("last_sent").then(|| {
        let newest = mailbox.newest(None).find(|message| message.labels.contains("SENT"));
        newest.map(|message| super::drafts::encode(&message.raw))
    });
    let total: u64 = inner.calls.values().sum();
    EmulatorResponse::ok(json!({
        "calls": total, "by_kind": inner.calls, "sent": mailbox.sent(), "messages": mailbox.len(),
        "drafts": mailbox.drafts.len(), "token": token, "received": received, "labels": shown,
        "last_sent": last_sent.flatten(),
    }))
}

fn texts(wish: &Value, name: &str) -> Vec<String> {
    let list = wish.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Receives a message: with our own words, or with given bytes (`raw`, in base64).
fn receive(mailbox: &mut EmulatedMailbox, letter: &Value, now: i64) -> String {
    let text = |name: &str| letter.get(name).and_then(Value::as_str).unwrap_or_default();
    if let Some(raw) = letter.get("raw").and_then(Value::as_str).and_then(super::drafts::decode) {
        return mailbox.receive(raw, &["INBOX", "UNREAD"], now, None);
    }
    let raw = format!(
        "From: Li Wen <li@northpeak.example>\r\nTo: {}\r\nSubject: {}\r\nMessage-ID: <{now}@northpeak.example>\r\n\r\n{}\r\n",
        mailbox.address,
        text("subject"),
        text("body"),
    );
    mailbox.receive(raw.into_bytes(), &["INBOX", "UNREAD"], now, None)
}
