//! What the stand-in of the Bot API answers.
//!
//! Takes a request and what the service remembers; gives the answer that Telegram would give, or the planned fault, and
//! changes what is remembered as Telegram would.

use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use serde_json::{Value, json};

use super::{ANA, DAN, TOKEN, TelegramStubState};

pub(super) async fn answer(
    kept: Arc<Mutex<TelegramStubState>>,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let method = path.strip_prefix(&format!("/bot{TOKEN}/")).unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (status, answer) = {
        let mut kept = kept.lock().unwrap();
        kept.called.push(method.clone());
        if kept.faults.front().is_some_and(|(what, ..)| *what == method) {
            let (_, status, answer) = kept.faults.pop_front().unwrap();
            (status, answer)
        } else {
            handle(&mut kept, &method, &body)
        }
    };
    let lost = {
        let mut kept = kept.lock().unwrap();
        let lost = method == "sendMessage" && kept.lose_answers > 0;
        kept.lose_answers -= u32::from(lost);
        lost
    };
    if lost {
        return Err(std::io::Error::other("the line broke"));
    }
    let response = hyper::Response::builder().status(status).body(Full::new(Bytes::from(answer.to_string())));
    Ok(response.unwrap())
}

fn handle(kept: &mut TelegramStubState, method: &str, body: &Value) -> (u16, Value) {
    let bad =
        |words: &str| (400, json!({"ok": false, "error_code": 400, "description": format!("Bad Request: {words}")}));
    let chat = body["chat_id"].as_i64();
    let known = |chat: Option<i64>| chat.is_some_and(|chat| [ANA, DAN, -500].contains(&chat));
    match method {
        "getUpdates" if !kept.webhook.0.is_empty() => {
            let words = "Conflict: can't use getUpdates method while webhook is active";
            (409, json!({"ok": false, "error_code": 409, "description": words}))
        }
        "getWebhookInfo" => {
            (200, json!({"ok": true, "result": {"url": kept.webhook.0, "pending_update_count": kept.updates.len()}}))
        }
        "setWebhook" => {
            let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
            let (url, secret) = (text("url"), text("secret_token"));
            let fine = |c: u8| c.is_ascii_alphanumeric() || b"_-".contains(&c);
            if !url.starts_with("https://") || secret.len() > 256 || !secret.bytes().all(fine) {
                return bad("bad webhook");
            }
            kept.webhook = (url, secret);
            (200, json!({"ok": true, "result": true}))
        }
        "deleteWebhook" => {
            kept.webhook = Default::default();
            (200, json!({"ok": true, "result": true}))
        }
        "getUpdates" => {
            let offset = body["offset"].as_i64().unwrap_or(i64::MIN);
            kept.updates.retain(|update| update["update_id"].as_i64().unwrap() >= offset);
            (200, json!({"ok": true, "result": kept.updates}))
        }
        "sendMessage" if !known(chat) => bad("chat not found"),
        "sendMessage" => {
            let text = body["text"].as_str().unwrap_or_default();
            let buttons = body["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
            let too_long = buttons
                .iter()
                .flat_map(|row| row.as_array().unwrap())
                .any(|b| b["callback_data"].as_str().unwrap().len() > 64);
            if text.is_empty() || text.encode_utf16().count() > 4096 || too_long {
                return bad("message text or button");
            }
            kept.next_message += 1;
            let mut message = body.clone();
            message["message_id"] = kept.next_message.into();
            message["chat"] = json!({"id": chat});
            if buttons.is_empty() {
                kept.said.push(message)
            } else {
                kept.messages.push(message)
            }
            (200, json!({"ok": true, "result": {"message_id": kept.next_message, "chat": {"id": chat}, "date": 1}}))
        }
        "editMessageText" => {
            let there = kept
                .messages
                .iter()
                .any(|m| m["message_id"] == body["message_id"] && m["chat"]["id"] == body["chat_id"]);
            if !there {
                return bad("message to edit not found");
            }
            kept.edits.push(body.clone());
            (200, json!({"ok": true, "result": {"message_id": body["message_id"]}}))
        }
        "answerCallbackQuery" => {
            kept.answers.push(body.clone());
            (200, json!({"ok": true, "result": true}))
        }
        _ => (401, json!({"ok": false, "error_code": 401, "description": "Unauthorized"})),
    }
}
