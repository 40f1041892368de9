//! The routes of the mail API, as far as they are needed.
//!
//! Takes a request with a valid token, gives what the real service would. Promise: a missing label, message or
//! draft is an error as at the real service, never ignored.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::mailbox::{EmulatedMailbox, MailboxHistoryEntry};
use super::{EmulatorRequest, EmulatorResponse, drafts};

const ME: &str = "/gmail/v1/users/me/";

/// The kind of a request, for counting and failing: `GET messages/get`.
pub fn kind(ask: &EmulatorRequest) -> String {
    let Some(rest) = ask.path.strip_prefix(ME) else { return format!("{} {}", ask.method, ask.path) };
    let parts: Vec<&str> = rest.split('/').collect();
    let what = match (ask.method.as_str(), parts.as_slice()) {
        (_, [one]) => (*one).to_owned(),
        ("POST", ["drafts", "send"]) => "drafts/send".to_owned(),
        (_, [group, _]) => format!("{group}/one"),
        (_, [group, _, verb, ..]) => format!("{group}/{verb}"),
        (_, []) => String::new(),
    };
    format!("{} {what}", ask.method)
}

/// Answers a request.
pub fn answer(mailbox: &mut EmulatedMailbox, ask: &EmulatorRequest, now: i64) -> EmulatorResponse {
    let Some(rest) = ask.path.strip_prefix(ME) else { return not_found() };
    let parts = path_parts(rest);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let body: Value = serde_json::from_slice(&ask.body).unwrap_or_default();
    let form = one(ask, "format").unwrap_or("full");
    match (ask.method.as_str(), parts.as_slice()) {
        ("GET", ["profile"]) => EmulatorResponse::ok(json!({
            "emailAddress": mailbox.address, "messagesTotal": mailbox.len(), "threadsTotal": mailbox.len(),
            "historyId": mailbox.position().to_string(),
        })),
        ("GET", ["labels"]) => EmulatorResponse::ok(labels(mailbox)),
        ("GET", ["messages"]) => list(mailbox, ask),
        ("GET", ["messages", id]) => match mailbox.get(id) {
            Some(message) => EmulatorResponse::ok(mailbox.show(message, form, &many(ask, "metadataHeaders"))),
            None => not_found(),
        },
        ("POST", ["messages", id, "modify"]) => modify(mailbox, id, &body),
        ("POST", ["messages", id, "trash"]) => relabelled(mailbox, id, &["TRASH"], &["INBOX"]),
        ("POST", ["messages", id, "untrash"]) => relabelled(mailbox, id, &[], &["TRASH"]),
        ("GET", ["threads", id]) => {
            let messages = mailbox.thread(id);
            if messages.is_empty() {
                return not_found();
            }
            let wanted = many(ask, "metadataHeaders");
            let shown: Vec<Value> = messages.into_iter().map(|m| mailbox.show(m, form, &wanted)).collect();
            EmulatorResponse::ok(json!({"id": id, "messages": shown}))
        }
        ("GET", ["history"]) => history(mailbox, ask),
        ("GET", ["drafts"]) => {
            let most = number(ask, "maxResults", 100);
            let all = mailbox.drafts.iter().rev().take(most);
            let shown: Vec<Value> = all
                .filter_map(|(draft, id)| Some((draft, mailbox.get(id)?)))
                .map(|(draft, message)| json!({"id": draft, "message": {"id": message.id, "threadId": message.thread}}))
                .collect();
            let mut page = json!({"drafts": shown, "resultSizeEstimate": mailbox.drafts.len()});
            if mailbox.drafts.len() > most
                && let Some(page) = page.as_object_mut()
            {
                page.insert("nextPageToken".into(), Value::String("more".into()));
            }
            EmulatorResponse::ok(page)
        }
        ("POST", ["drafts"]) => drafts::create(mailbox, &body, now),
        ("POST", ["drafts", "send"]) => drafts::send(mailbox, &body, now),
        ("GET", ["drafts", id]) => drafts::show(mailbox, id, form),
        ("PUT", ["drafts", id]) => drafts::update(mailbox, id, &body, now),
        ("DELETE", ["drafts", id]) => drafts::delete(mailbox, id),
        _ => not_found(),
    }
}

/// The parts of a path, decoded. A `+` is a plus sign there, unlike in a query.
pub(super) fn path_parts(rest: &str) -> Vec<String> {
    rest.split('/').map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect()
}

fn not_found() -> EmulatorResponse {
    EmulatorResponse::error(404, "notFound", "Requested entity was not found.")
}

fn one<'a>(ask: &'a EmulatorRequest, name: &str) -> Option<&'a str> {
    ask.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn many<'a>(ask: &'a EmulatorRequest, name: &str) -> Vec<&'a str> {
    ask.query.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

fn number(ask: &EmulatorRequest, name: &str, most: usize) -> usize {
    one(ask, name).and_then(|text| text.parse().ok()).unwrap_or(100).clamp(1, most.max(1))
}

fn labels(mailbox: &EmulatedMailbox) -> Value {
    let kind = |id: &str| if id.starts_with("Label_") { "user" } else { "system" };
    let shown = mailbox.labels.iter().map(|(id, name)| json!({"id": id, "name": name, "type": kind(id)}));
    json!({"labels": shown.collect::<Vec<_>>()})
}

fn list(mailbox: &EmulatedMailbox, ask: &EmulatorRequest) -> EmulatorResponse {
    let (most, wanted) = (number(ask, "maxResults", 500), many(ask, "labelIds"));
    let all = one(ask, "includeSpamTrash") == Some("true");
    let after = match one(ask, "pageToken") {
        None => None,
        Some(token) => match token.split_once('-').map(|(date, id)| (date.parse::<i64>(), id.to_owned())) {
            Some((Ok(date), id)) => Some((date, id)),
            _ => return EmulatorResponse::error(400, "invalidArgument", "Invalid pageToken"),
        },
    };
    let shown = |message: &&super::mailbox::MailboxMessage| {
        let hidden = message.labels.contains("TRASH") || message.labels.contains("SPAM");
        (all || !hidden) && wanted.iter().all(|label| message.labels.contains(*label))
    };
    let mut found = mailbox.newest(after.as_ref()).filter(shown);
    let page: Vec<_> = found.by_ref().take(most).collect();
    let mut answer = json!({"resultSizeEstimate": mailbox.len()});
    let Some(members) = answer.as_object_mut() else { return EmulatorResponse::ok(answer) };
    if !page.is_empty() {
        let ids: Vec<Value> = page.iter().map(|m| json!({"id": m.id, "threadId": m.thread})).collect();
        members.insert("messages".into(), Value::Array(ids));
    }
    if let (Some(_), Some(last)) = (found.next(), page.last()) {
        members.insert("nextPageToken".into(), Value::String(format!("{}-{}", last.date, last.id)));
    }
    EmulatorResponse::ok(answer)
}

fn texts(body: &Value, name: &str) -> Vec<String> {
    let list = body.get(name).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn modify(mailbox: &mut EmulatedMailbox, id: &str, body: &Value) -> EmulatorResponse {
    let (add, remove) = (texts(body, "addLabelIds"), texts(body, "removeLabelIds"));
    if let Some(unknown) = add.iter().chain(&remove).find(|label| !mailbox.labels.contains_key(*label)) {
        return EmulatorResponse::error(400, "invalidArgument", &format!("labelId not found: {unknown}"));
    }
    if add.iter().any(|label| remove.contains(label)) {
        return EmulatorResponse::error(400, "invalidArgument", "Cannot both add and remove the same label");
    }
    match mailbox.relabel(id, &add, &remove) {
        Some(message) => {
            EmulatorResponse::ok(json!({"id": id, "threadId": message.thread, "labelIds": message.labels}))
        }
        None => not_found(),
    }
}

fn relabelled(mailbox: &mut EmulatedMailbox, id: &str, add: &[&str], remove: &[&str]) -> EmulatorResponse {
    let owned = |list: &[&str]| list.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
    match mailbox.relabel(id, &owned(add), &owned(remove)) {
        Some(message) => {
            EmulatorResponse::ok(json!({"id": id, "threadId": message.thread, "labelIds": message.labels}))
        }
        None => not_found(),
    }
}

fn history(mailbox: &EmulatedMailbox, ask: &EmulatorRequest) -> EmulatorResponse {
    let start = one(ask, "pageToken").or(one(ask, "startHistoryId")).and_then(|text| text.parse().ok());
    let Some(start) = start else { return EmulatorResponse::error(400, "invalidArgument", "Invalid startHistoryId") };
    let Some(entries) = mailbox.since(start) else { return not_found() };
    let most = number(ask, "maxResults", 500);
    let shown: Vec<Value> = entries.iter().take(most).map(show).collect();
    let mut answer = json!({"historyId": mailbox.position().to_string()});
    let Some(members) = answer.as_object_mut() else { return EmulatorResponse::ok(answer) };
    if !shown.is_empty() {
        members.insert("history".into(), Value::Array(shown));
    }
    if let (true, Some(last)) = (entries.len() > most, entries.get(most - 1)) {
        // Entries of one change share a position and must not be separated.
        let torn = entries.get(most).is_some_and(|next| next.at == last.at);
        members.insert("nextPageToken".into(), Value::String((last.at - u64::from(torn)).to_string()));
    }
    EmulatorResponse::ok(answer)
}

fn show(entry: &MailboxHistoryEntry) -> Value {
    let message = json!({"id": entry.message, "threadId": entry.thread});
    let mut inner = json!({"message": message});
    if !entry.labels.is_empty()
        && let Some(members) = inner.as_object_mut()
    {
        members.insert("labelIds".into(), json!(entry.labels));
    }
    json!({"id": entry.at.to_string(), "messages": [message], (entry.what.word()): [inner]})
}
