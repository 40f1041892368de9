//! The Bot API on the wire: what we read of it, and how its errors read.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_core::Span;
use sluice_core::approval::mail::Rest;

use super::super::Fault;

/// Characters of a secret in a button.
const SECRET: usize = 22;

/// One piece of news. What is not here is not read.
#[derive(Debug, Deserialize)]
pub(super) struct Update {
    pub update_id: i64,
    #[serde(default)]
    pub message: Option<Message>,
    #[serde(default)]
    pub callback_query: Option<Press>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub message_id: i64,
    pub chat: Chat,
    #[serde(default)]
    pub from: Option<User>,
    #[serde(default)]
    pub text: Option<String>,
    #[serde(default)]
    pub reply_to_message: Option<Box<Original>>,
    #[serde(default)]
    entities: Vec<Entity>,
    #[serde(default)]
    sender_chat: Option<Value>,
    #[serde(default)]
    via_bot: Option<Value>,
    #[serde(default)]
    forward_origin: Option<Value>,
    #[serde(default)]
    forward_date: Option<Value>,
    #[serde(default)]
    edit_date: Option<Value>,
}

/// A stretch of a text that is more than its letters.
#[derive(Debug, Deserialize)]
struct Entity {
    r#type: String,
}

/// Stretches that the service marks by itself, in a text that stays as it was typed.
const AS_TYPED: [&str; 7] = ["mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number"];
/// The longest text of one message, in UTF-16 units: what is longer goes on in another message.
const LONGEST_TEXT: usize = 4096;

impl Message {
    /// What a text lost on its way: its marks of formatting (`*`, `` ` ``), or its end.
    pub(super) fn rest(&self) -> Rest {
        let is = |kind: &str| self.entities.iter().any(|entity| entity.r#type == kind);
        let length = self.text.as_deref().unwrap_or_default().encode_utf16().count();
        if length >= LONGEST_TEXT || is("strikethrough") {
            Rest::Doubtful
        } else if self.entities.iter().all(|entity| AS_TYPED.contains(&entity.r#type.as_str())) {
            Rest::Nothing
        } else {
            Rest::Usual
        }
    }

    /// Whether it was not simply written by its sender: an anonymous administrator, another bot, a forward, an edit.
    pub(super) fn is_relayed(&self) -> bool {
        [&self.sender_chat, &self.via_bot, &self.forward_origin, &self.forward_date, &self.edit_date]
            .iter()
            .any(|mark| mark.is_some())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Original {
    pub message_id: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Press {
    pub id: String,
    pub from: User,
    #[serde(default)]
    pub message: Option<Pressed>,
    #[serde(default)]
    pub data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pressed {
    pub message_id: i64,
    pub chat: Chat,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub id: i64,
    #[serde(default)]
    pub is_bot: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Chat {
    pub id: i64,
    #[serde(default)]
    r#type: Option<String>,
}

impl Chat {
    pub(super) fn is_private(&self) -> bool {
        self.r#type.as_deref().is_none_or(|kind| kind == "private")
    }
}

/// What a button carries: at most 64 bytes.
pub(super) fn data(secret: &str, answer: &str) -> String {
    format!("s:{secret}:{answer}")
}

/// The secret and the answer of a button.
pub(super) fn read_data(data: &str) -> Option<(&str, &str)> {
    let (secret, answer) = data.strip_prefix("s:")?.split_once(':')?;
    (secret.len() == SECRET && !answer.is_empty()).then_some((secret, answer))
}

/// A chat as the service wants it: a number where it is one.
pub(super) fn chat_of(place: &str) -> Value {
    place.parse::<i64>().map_or_else(|_| json!(place), |number| json!(number))
}

/// What the service says when a chat does not take messages, and how we say it.
const REASONS: [(&str, &str); 6] = [
    ("blocked by the user", "the person has blocked the bot"),
    ("chat not found", "there is no such chat, or the person never wrote to the bot"),
    ("kicked", "the bot was removed from the chat"),
    ("deactivated", "the account is deactivated"),
    ("not enough rights", "the bot may not write there"),
    ("upgraded to a supergroup", "the chat has another number now"),
];

/// The result of a call, or what went wrong.
pub(super) fn result(method: &str, status: u16, mut read: Value) -> Result<Value, Fault> {
    if status == 200 && read.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(read.get_mut("result").map(Value::take).unwrap_or_default());
    }
    let code = read.get("error_code").and_then(Value::as_u64).unwrap_or(u64::from(status));
    let words = read.get("description").and_then(Value::as_str).unwrap_or_default();
    // The service's words may hold names: only what is known is said, in our own.
    let said = REASONS.iter().find(|(part, _)| words.contains(part)).map(|(_, ours)| format!(", {ours}"));
    let why = format!("telegram {method}: {code}{}", said.unwrap_or_default());
    let after = read.pointer("/parameters/retry_after").and_then(Value::as_u64);
    match code {
        // It says already what it should say.
        400 if method == "editMessageText" && words.contains("not modified") => Ok(Value::Null),
        400 | 403 => Err(Fault::Refused { why }),
        409 => Err(Fault::Broken { why: format!("{why}, somebody else uses the token of this bot") }),
        401 | 404 => Err(Fault::Broken { why }),
        429 => Err(Fault::Later { after: Some(Span::from_secs(after.unwrap_or(5).min(3600))), why }),
        _ => Err(Fault::Later { after: None, why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_button_fits_and_comes_back() {
        let secret = "A".repeat(SECRET);
        let longest = data(&secret, "first 4294967295");
        assert!(longest.len() <= 64, "{longest}");
        assert_eq!(read_data(&longest), Some((secret.as_str(), "first 4294967295")));
        for bad in ["", "s:", "s:short:1", "appr_0:1", &format!("s:{secret}:"), &format!("x:{secret}:1")] {
            assert_eq!(read_data(bad), None, "{bad}");
        }
    }

    #[test]
    fn errors_say_whether_to_come_again() {
        let read =
            |code: u64| json!({"ok": false, "error_code": code, "description": "x", "parameters": {"retry_after": 7}});
        assert!(
            matches!(result("m", 429, read(429)), Err(Fault::Later { after: Some(span), .. }) if span == Span::from_secs(7))
        );
        assert!(matches!(result("m", 409, read(409)), Err(Fault::Broken { .. })));
        assert!(matches!(result("m", 400, read(400)), Err(Fault::Refused { .. })));
        assert!(matches!(result("m", 502, json!({})), Err(Fault::Later { .. })));
        assert_eq!(result("m", 200, json!({"ok": true, "result": 3})), Ok(json!(3)));
    }
}
