//! The Bot API on the wire: the fields that we read of it, and what its errors mean.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_core::Millis;
use sluice_core::approval::mail::ReplyRemainder;

use super::super::ChannelError;

/// Characters of the secret in a button.
const SECRET: usize = 22;

/// One update. Fields that are not listed here are not read.
#[derive(Debug, Deserialize)]
pub(super) struct TelegramUpdate {
    pub update_id: i64,
    #[serde(default)]
    pub message: Option<TelegramMessage>,
    #[serde(default)]
    pub callback_query: Option<TelegramCallbackQuery>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TelegramMessage {
    pub message_id: i64,
    pub chat: TelegramChat,
    #[serde(default)]
    pub from: Option<TelegramUser>,
    #[serde(default)]
    pub text: Option<String>,
    #[serde(default)]
    pub reply_to_message: Option<Box<TelegramRepliedMessage>>,
    #[serde(default)]
    entities: Vec<TelegramEntity>,
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

/// A part of a text that has formatting or another meaning.
#[derive(Debug, Deserialize)]
struct TelegramEntity {
    r#type: String,
}

/// Parts that the service marks automatically, in a text that stays as it was typed.
const AS_TYPED: [&str; 7] = ["mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number"];
/// The longest text of one message, in UTF-16 units: a longer text continues in another message.
const LONGEST_TEXT: usize = 4096;

impl TelegramMessage {
    /// What a text lost on its way: its formatting marks (`*`, `` ` ``), or its end.
    pub(super) fn rest(&self) -> ReplyRemainder {
        let is = |kind: &str| self.entities.iter().any(|entity| entity.r#type == kind);
        let length = self.text.as_deref().unwrap_or_default().encode_utf16().count();
        if length >= LONGEST_TEXT || is("strikethrough") {
            ReplyRemainder::Doubtful
        } else if self.entities.iter().all(|entity| AS_TYPED.contains(&entity.r#type.as_str())) {
            ReplyRemainder::Nothing
        } else {
            ReplyRemainder::Usual
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
pub(super) struct TelegramRepliedMessage {
    pub message_id: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct TelegramCallbackQuery {
    pub id: String,
    pub from: TelegramUser,
    #[serde(default)]
    pub message: Option<TelegramCallbackMessage>,
    #[serde(default)]
    pub data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TelegramCallbackMessage {
    pub message_id: i64,
    pub chat: TelegramChat,
}

#[derive(Debug, Deserialize)]
pub(super) struct TelegramUser {
    pub id: i64,
    #[serde(default)]
    pub is_bot: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct TelegramChat {
    pub id: i64,
    #[serde(default)]
    r#type: Option<String>,
}

impl TelegramChat {
    pub(super) fn is_private(&self) -> bool {
        self.r#type.as_deref().is_none_or(|kind| kind == "private")
    }
}

/// The data of a button: at most 64 bytes.
pub(super) fn data(secret: &str, answer: &str) -> String {
    format!("s:{secret}:{answer}")
}

/// The secret and the answer in the data of a button.
pub(super) fn read_data(data: &str) -> Option<(&str, &str)> {
    let (secret, answer) = data.strip_prefix("s:")?.split_once(':')?;
    (secret.len() == SECRET && !answer.is_empty()).then_some((secret, answer))
}

/// A chat id as the service wants it: a number if it is one.
pub(super) fn chat_of(place: &str) -> Value {
    place.parse::<i64>().map_or_else(|_| json!(place), |number| json!(number))
}

/// What the service says when a chat does not accept messages, and our text for it.
const REASONS: [(&str, &str); 6] = [
    ("blocked by the user", "the person has blocked the bot"),
    ("chat not found", "there is no such chat, or the person never wrote to the bot"),
    ("kicked", "the bot was removed from the chat"),
    ("deactivated", "the account is deactivated"),
    ("not enough rights", "the bot may not write there"),
    ("upgraded to a supergroup", "the chat has a new number"),
];

/// The result of a call, or what went wrong.
pub(super) fn result(method: &str, status: u16, mut read: Value) -> Result<Value, ChannelError> {
    if status == 200 && read.get("ok").and_then(Value::as_bool) == Some(true) {
        return Ok(read.get_mut("result").map(Value::take).unwrap_or_default());
    }
    let code = read.get("error_code").and_then(Value::as_u64).unwrap_or(u64::from(status));
    let words = read.get("description").and_then(Value::as_str).unwrap_or_default();
    // The service's text may hold names: only known reasons are shown, in our words.
    let said = REASONS.iter().find(|(part, _)| words.contains(part)).map(|(_, ours)| format!(", {ours}"));
    let why = format!("telegram {method}: {code}{}", said.unwrap_or_default());
    let after = read.pointer("/parameters/retry_after").and_then(Value::as_u64);
    match code {
        // The message already has this text.
        400 if method == "editMessageText" && words.contains("not modified") => Ok(Value::Null),
        400 | 403 => Err(ChannelError::Refused { why }),
        409 => Err(ChannelError::Broken { why: format!("{why}, another program uses the token of this bot") }),
        401 | 404 => Err(ChannelError::Broken { why }),
        429 => Err(ChannelError::Later { after: Some(Millis::from_secs(after.unwrap_or(5).min(3600))), why }),
        _ => Err(ChannelError::Later { after: None, why }),
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
            matches!(result("m", 429, read(429)), Err(ChannelError::Later { after: Some(span), .. }) if span == Millis::from_secs(7))
        );
        assert!(matches!(result("m", 409, read(409)), Err(ChannelError::Broken { .. })));
        assert!(matches!(result("m", 400, read(400)), Err(ChannelError::Refused { .. })));
        assert!(matches!(result("m", 502, json!({})), Err(ChannelError::Later { .. })));
        assert_eq!(result("m", 200, json!({"ok": true, "result": 3})), Ok(json!(3)));
    }
}
