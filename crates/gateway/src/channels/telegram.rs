//! Telegram: approval requests as messages with buttons, answers as button presses and replies.
//!
//! Takes a bot's token; polls for updates, or receives them on a webhook. Promise: an answer is accepted only from the
//! configured person, in the chat that was asked, by the exact button or as a reply to the exact message we sent.
//! Anything else is refused and recorded, once; the read position is stored only after everything before it was acted
//! on.

pub mod webhook;
mod wire;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_config::Config;
use sluice_core::approval::mail::ReplyRemainder;
use sluice_core::approval::reply_meaning;
use sluice_core::{Actor, BoxedFuture, Millis, PersonName, UtcMillis};
use sluice_services::CallError;
use sluice_store::ApprovalDelivery;
use zeroize::Zeroizing;

use super::approval_message::hash;
use super::{ApprovalMessage, Channel, ChannelError};
use crate::Gateway;
use crate::gate::deciding::{self, ApprovalRequest, DecisionSource};
use crate::gate::replies::{self, ReplyOutcome, WrittenReply};
use crate::gate::{rendering, repeating};

use webhook::TelegramWebhook;
use wire::{TelegramCallbackQuery, TelegramChat, TelegramMessage, TelegramUpdate, TelegramUser};

/// The channel's name.
pub const NAME: &str = rendering::TELEGRAM;
/// Most characters of one message; the service allows 4096.
pub const ROOM: usize = rendering::TELEGRAM_MESSAGE;
/// The kinds of updates that the bot asks for.
const KINDS: [&str; 2] = ["message", "callback_query"];
/// How many seconds one poll waits for updates.
const POLL: u64 = 25;
/// How long an answer may take beyond that.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest answer that is read, in bytes.
const LARGEST: usize = 4 << 20;
/// After so long without updates the service renumbers them: then the stored read position means nothing.
const NUMBERED_ANEW: Millis = Millis::from_hours(6 * 24);

/// A Telegram bot.
pub struct TelegramChannel {
    client: reqwest::Client,
    /// The base URL. It holds the token, so it is never shown.
    base: Zeroizing<String>,
    /// The webhook that updates are sent to; `None` if the bot polls.
    hook: Option<TelegramWebhook>,
}

impl fmt::Debug for TelegramChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telegram")
    }
}

impl TelegramChannel {
    /// Makes a bot with the token in a file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no valid token.
    pub fn new(token_file: &Path, api: &str) -> Result<Self, String> {
        let text = Zeroizing::new(
            std::fs::read_to_string(token_file)
                .map_err(|error| format!("the Telegram token cannot be read: {error}"))?,
        );
        let token = text.trim();
        let plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || b":_-".contains(&b));
        if token.is_empty() || !plain {
            return Err("the Telegram token file holds no valid token".into());
        }
        // The program installs it too; the first one wins, and both are the same.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        #[expect(
            clippy::disallowed_methods,
            reason = "the operator's own channel to people: one configured host, reached by no agent"
        )]
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(Duration::from_secs(POLL) + PATIENCE)
            .build()
            .map_err(|_| "no TLS for Telegram".to_owned())?;
        Ok(Self { client, base: Zeroizing::new(format!("{api}/bot{token}")), hook: None })
    }

    /// The bot that the configuration names.
    ///
    /// # Errors
    /// When its token cannot be read.
    pub fn configured(config: &Config) -> Result<Option<Self>, String> {
        let Some(file) = &config.telegram.token_file else { return Ok(None) };
        let bot = Self::new(file, config.telegram.api.as_str())?;
        Ok(Some(match &config.telegram.webhook {
            Some(at) => bot.with_webhook(at.as_str()),
            None => bot,
        }))
    }

    /// Receives updates on a webhook at a public address, instead of polling.
    #[must_use]
    pub fn with_webhook(mut self, at: &str) -> Self {
        let token = self.base.rsplit_once("/bot").map_or("", |(_, token)| token);
        self.hook = Some(TelegramWebhook::new(at, token));
        self
    }

    /// The secret that proves that a webhook request comes from Telegram.
    #[must_use]
    pub fn hook_secret(&self) -> Option<&str> {
        self.hook.as_ref().map(TelegramWebhook::secret)
    }

    /// Asks the Bot API who this bot is: checks that it can be reached and accepts the token. Sends no message.
    ///
    /// # Errors
    /// When it cannot be reached, or refuses the token.
    pub async fn who_am_i(&self) -> Result<String, ChannelError> {
        let me = self.call("getMe", &serde_json::json!({})).await?;
        let name = me.get("username").and_then(Value::as_str).unwrap_or("a bot without a name");
        Ok(format!("the bot is {}", sluice_core::approval::card::escape_invisible(name)))
    }

    /// Acts on one update from the webhook, once.
    ///
    /// # Errors
    /// When our own part fails: then the update must be sent again.
    pub async fn handle_update(&self, gw: &Gateway, update: Value) -> Result<(), ChannelError> {
        let Some(number) = update.get("update_id").and_then(Value::as_i64) else { return Ok(()) };
        // An update that cannot be parsed is skipped, not fetched again and again.
        match serde_json::from_value::<TelegramUpdate>(update) {
            Ok(update) => self.act(gw, update).await,
            Err(_) => {
                Ok(gw.store.record_channel_news(NAME, &format!("update:{number}"), Some("telegram.form")).await?)
            }
        }
    }

    /// Makes one call of the Bot API.
    async fn call(&self, method: &str, body: &Value) -> Result<Value, ChannelError> {
        // SECURITY: the address holds the token, so no error of the client is passed on.
        let later = |why: &str| ChannelError::Later { after: None, why: format!("telegram {method}: {why}") };
        let url = Zeroizing::new(format!("{}/{method}", self.base.as_str()));
        let request = self.client.post(url.as_str()).header("content-type", "application/json").body(body.to_string());
        let mut answer = request.send().await.map_err(|_| later("cannot be reached"))?;
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|_| later("the answer was cut off"))? {
            if bytes.len() + chunk.len() > LARGEST {
                return Err(later("the answer is too large"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let read: Value = serde_json::from_slice(&bytes).map_err(|_| later("the answer is not JSON"))?;
        wire::result(method, status, read)
    }

    /// Acts on one update.
    async fn act(&self, gw: &Gateway, update: TelegramUpdate) -> Result<(), ChannelError> {
        let news = format!("update:{}", update.update_id);
        if gw.store.has_channel_news(NAME, &news).await? {
            return Ok(());
        }
        let refused = match update {
            TelegramUpdate { callback_query: Some(press), .. } => self.handle_press(gw, press).await?,
            TelegramUpdate { message: Some(message), .. } => self.handle_message(gw, message).await?,
            // Edited messages, channel posts, reactions: none of them is an answer to a message of ours.
            TelegramUpdate { .. } => Some("telegram.kind"),
        };
        gw.store.record_channel_news(NAME, &news, refused).await?;
        Ok(())
    }

    /// Handles a button press. Returns why it was not accepted.
    async fn handle_press(
        &self,
        gw: &Gateway,
        press: TelegramCallbackQuery,
    ) -> Result<Option<&'static str>, ChannelError> {
        let (why, words) = match self.press(gw, &press).await {
            Ok(words) => (None, words.unwrap_or_else(|| "Nothing was decided.".into())),
            Err(TelegramUpdateError::Because(why)) => {
                (Some(why), "This button is not for you, or no longer works.".to_owned())
            }
            Err(TelegramUpdateError::Fault(fault)) => return Err(fault),
        };
        // The press is already carried out: if this fails, the person only misses one line.
        let answer = json!({"callback_query_id": press.id, "text": cut(&words, 190), "show_alert": why.is_some()});
        let _told = self.call("answerCallbackQuery", &answer).await;
        Ok(why)
    }

    async fn press(&self, gw: &Gateway, press: &TelegramCallbackQuery) -> Result<Option<String>, TelegramUpdateError> {
        let message = press.message.as_ref().ok_or(TelegramUpdateError::Because("telegram.no_message"))?;
        let (secret, answer) =
            press.data.as_deref().and_then(wire::read_data).ok_or(TelegramUpdateError::Because("telegram.data"))?;
        // SECURITY: the secret identifies the message; chat, message and person must all be the ones it was sent to.
        let delivery = gw.store.delivery_by_secret(hash(secret)).await.map_err(ChannelError::from)?;
        let delivery =
            delivery.filter(|known| known.channel == NAME).ok_or(TelegramUpdateError::Because("telegram.secret"))?;
        if delivery.place != message.chat.id.to_string() {
            return Err(TelegramUpdateError::Because("telegram.chat"));
        }
        let number = message.message_id.to_string();
        match &delivery.message {
            Some(known) if *known != number => return Err(TelegramUpdateError::Because("telegram.message")),
            Some(_) => {}
            // The gateway was killed after it sent the message and before it stored the message's id.
            None => gw.store.record_delivery_sent(delivery.clone(), number).await.map_err(ChannelError::from)?,
        }
        let by = person(gw, &press.from, &message.chat, &delivery)?;
        self.answer(gw, &delivery, by, (answer, ReplyRemainder::Nothing)).await.map_err(TelegramUpdateError::Fault)
    }

    /// Handles a written message. Returns why it was not accepted.
    async fn handle_message(
        &self,
        gw: &Gateway,
        message: TelegramMessage,
    ) -> Result<Option<&'static str>, ChannelError> {
        match self.read(gw, &message).await {
            Ok(Some(words)) => {
                let place = message.chat.id.to_string();
                let _told = self.say(&place, Some(&message.message_id.to_string()), &words).await;
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(TelegramUpdateError::Because(why)) => Ok(Some(why)),
            Err(TelegramUpdateError::Fault(fault)) => Err(fault),
        }
    }

    async fn read(&self, gw: &Gateway, message: &TelegramMessage) -> Result<Option<String>, TelegramUpdateError> {
        if message.is_relayed() {
            return Err(TelegramUpdateError::Because("telegram.relayed"));
        }
        let (Some(from), Some(text)) = (&message.from, &message.text) else {
            return Err(TelegramUpdateError::Because("telegram.kind"));
        };
        let Some(original) = &message.reply_to_message else {
            return self.read_unsolicited(gw, from, &message.chat, text).await;
        };
        let (place, number) = (message.chat.id.to_string(), original.message_id.to_string());
        let delivery = gw.store.delivery_by_message(NAME, &place, &number).await.map_err(ChannelError::from)?;
        let delivery = delivery.ok_or(TelegramUpdateError::Because("telegram.message"))?;
        let by = person(gw, from, &message.chat, &delivery)?;
        self.answer(gw, &delivery, by, (text, message.rest())).await.map_err(TelegramUpdateError::Fault)
    }

    /// Handles a text that replies to no message of ours: only a freeze works without an approval request.
    async fn read_unsolicited(
        &self,
        gw: &Gateway,
        from: &TelegramUser,
        chat: &TelegramChat,
        text: &str,
    ) -> Result<Option<String>, TelegramUpdateError> {
        let known = gw
            .config
            .approvals
            .people
            .iter()
            .find(|person| person.telegram == Some(from.id) && person.chat() == Some(chat.id) && !from.is_bot);
        let known = known.ok_or(TelegramUpdateError::Because("telegram.person"))?;
        if reply_meaning::parse_freeze(text).is_none() {
            return Ok(Some(
                "Please reply to the message that holds the approval request. `freeze all` stops everything.".into(),
            ));
        }
        let by = Actor::Person(known.name.clone());
        let frozen = gw.stop_lane().freeze(sluice_store::FreezeTarget::All, by, "requested over telegram".into()).await;
        crate::recovery::remember_stop(gw).await;
        frozen.map_err(ChannelError::from)?;
        gw.standstill.look(&gw.store).await;
        gw.signals.events.notify_written();
        Ok(Some("Everything is frozen. Lift it with `sluice unfreeze`.".into()))
    }

    /// Finds out what a person means, and what they are told, if anything.
    async fn answer(
        &self,
        gw: &Gateway,
        delivery: &ApprovalDelivery,
        by: Actor,
        (words, rest): (&str, ReplyRemainder),
    ) -> Result<Option<String>, ChannelError> {
        let question = ApprovalRequest::read(gw, delivery.approval).await?.shown_in(delivery);
        let approval = &question.card.approval;
        // A freeze is accepted even after the approval has ended.
        if reply_meaning::parse_freeze(words).is_none() {
            if approval.is_over(gw.now()) {
                return Ok(Some("Nothing changed: nobody answered in time, so it was denied.".into()));
            }
            if !approval.state.is_open() {
                return Ok(Some(format!("Nothing changed: it was already {}.", deciding::describe_approval(approval))));
            }
        }
        let reply = WrittenReply { words: words.to_owned(), rest, from: None };
        let meaning = match replies::understand(gw, &question, Some(delivery), &reply).await? {
            ReplyOutcome::Meant(meaning) => meaning,
            ReplyOutcome::ToConfirm => {
                let text = "Nothing is decided yet: what was understood follows, for you to confirm.";
                return Ok(Some(text.into()));
            }
            ReplyOutcome::Tell(text) => return Ok(Some(text)),
            ReplyOutcome::Unclear(unclear) => return Ok(repeating::menu_once(gw, &by, &question, unclear).await?),
        };
        let voice = DecisionSource { by, channel: NAME, ceiling: Some(gw.config.approvals.telegram_ceiling) };
        match deciding::decide(gw, &voice, &question, meaning).await {
            Ok(heard) => Ok(Some(deciding::describe_outcome(&heard))),
            Err(no) if no.refusal.code().status() >= 500 => Err(no.into()),
            Err(no) => Ok(Some(format!("Nothing was decided: {}.", no.refusal))),
        }
    }
}

/// Why an update was not accepted.
enum TelegramUpdateError {
    Because(&'static str),
    Fault(ChannelError),
}

impl From<ChannelError> for TelegramUpdateError {
    fn from(fault: ChannelError) -> Self {
        Self::Fault(fault)
    }
}

/// The person who may answer here: configured for this chat, or alone in a chat that the operator lets requests name.
fn person(
    gw: &Gateway,
    from: &TelegramUser,
    chat: &TelegramChat,
    delivery: &ApprovalDelivery,
) -> Result<Actor, TelegramUpdateError> {
    if from.is_bot {
        return Err(TelegramUpdateError::Because("telegram.bot"));
    }
    if chat.id.to_string() != delivery.place {
        return Err(TelegramUpdateError::Because("telegram.chat"));
    }
    let approvals = &gw.config.approvals;
    let known =
        approvals.people.iter().find(|person| person.telegram == Some(from.id) && person.chat() == Some(chat.id));
    if let Some(known) = known {
        return Ok(Actor::Person(known.name.clone()));
    }
    // In a private chat the chat's number is the person's number: the person asked there is alone.
    let alone = chat.id == from.id && chat.is_private() && approvals.allows(NAME, &delivery.place);
    let named = PersonName::new(format!("telegram {}", from.id)).ok().filter(|_| alone);
    named.map(Actor::Person).ok_or(TelegramUpdateError::Because("telegram.person"))
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// The read position: the next update number to ask for, and when it was stored.
fn mark(next: i64, now: UtcMillis) -> String {
    format!("{next}@{}", now.as_millis())
}

/// The update number to continue from, unless the position is too old to mean anything.
fn go_on_from(mark: Option<&str>, now: UtcMillis) -> Option<i64> {
    let (next, at) = mark?.split_once('@')?;
    let (next, at): (i64, i64) = (next.parse().ok()?, at.parse().ok()?);
    (now.since(UtcMillis::from_millis(at)) < NUMBERED_ANEW).then_some(next)
}

impl Channel for TelegramChannel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn max_message_chars(&self) -> usize {
        ROOM
    }

    fn show<'a>(&'a self, letter: &'a ApprovalMessage) -> BoxedFuture<'a, Result<String, ChannelError>> {
        Box::pin(async move {
            let rows: Vec<Vec<Value>> = letter
                .buttons
                .iter()
                .map(|row| row.iter().map(|button| json!({"text": button.label, "callback_data": wire::data(&letter.secret, &button.answer)})).collect())
                .collect();
            let body = json!({
                "chat_id": wire::chat_of(&letter.place), "text": cut(&letter.text, 4096),
                "reply_markup": {"inline_keyboard": rows}, "link_preview_options": {"is_disabled": true},
            });
            let sent = self.call("sendMessage", &body).await?;
            let number = sent.get("message_id").and_then(Value::as_i64);
            number
                .map(|number| number.to_string())
                .ok_or_else(|| ChannelError::Refused { why: "telegram sent no message id".into() })
        })
    }

    fn edit<'a>(
        &'a self,
        place: &'a str,
        message: &'a str,
        text: &'a str,
    ) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(async move {
            let number: i64 = message
                .parse()
                .map_err(|_| ChannelError::Refused { why: "not the id of a Telegram message".into() })?;
            let body = json!({
                "chat_id": wire::chat_of(place), "message_id": number, "text": cut(text, 4096),
                "link_preview_options": {"is_disabled": true},
            });
            self.call("editMessageText", &body).await.map(drop)
        })
    }

    fn say<'a>(
        &'a self,
        place: &'a str,
        to: Option<&'a str>,
        text: &'a str,
    ) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(async move {
            let mut body = json!({
                "chat_id": wire::chat_of(place), "text": cut(text, 4096), "link_preview_options": {"is_disabled": true},
            });
            if let Some(number) = to.and_then(|to| to.parse::<i64>().ok()) {
                sluice_services::value::put(
                    &mut body,
                    "reply_parameters",
                    json!({"message_id": number, "allow_sending_without_reply": true}),
                );
            }
            self.call("sendMessage", &body).await.map(drop)
        })
    }

    fn receive_answers<'a>(&'a self, gw: &'a Gateway) -> BoxedFuture<'a, Result<(), ChannelError>> {
        Box::pin(async move {
            self.watch(gw).await?;
            if self.hook.is_some() {
                sluice_services::timer::pause(webhook::EVERY.as_duration()).await;
                return Ok(());
            }
            let kept = gw.store.channel_mark(NAME).await?;
            let mut body = json!({"timeout": POLL, "allowed_updates": KINDS});
            if let Some(next) = go_on_from(kept.as_deref(), gw.now()) {
                sluice_services::value::put(&mut body, "offset", next);
            }
            let news = self.call("getUpdates", &body).await?;
            let Value::Array(news) = news else {
                return Err(ChannelError::Later {
                    after: None,
                    why: "telegram getUpdates: the answer is not a list".into(),
                });
            };
            for update in news {
                let Some(number) = update.get("update_id").and_then(Value::as_i64) else { continue };
                self.handle_update(gw, update).await?;
                gw.store.set_channel_mark(NAME, mark(number + 1, gw.now())).await?;
            }
            Ok(())
        })
    }

    fn shut_down<'a>(&'a self, gw: &'a Gateway) -> BoxedFuture<'a, ()> {
        Box::pin(async move {
            if let (Some(_), Err(fault)) = (&self.hook, self.remove(gw).await) {
                tracing::warn!("the webhook could not be removed: {fault}");
            }
        })
    }
}

impl From<CallError> for TelegramUpdateError {
    fn from(no: CallError) -> Self {
        Self::Fault(no.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_go_on_from_is_forgotten_before_numbers_start_anew() {
        let then = UtcMillis::from_millis(1_000);
        let kept = mark(42, then);
        assert_eq!(go_on_from(Some(&kept), then + Millis::from_hours(24)), Some(42));
        assert_eq!(go_on_from(Some(&kept), then + Millis::from_hours(7 * 24)), None);
        assert_eq!((go_on_from(None, then), go_on_from(Some("nonsense"), then)), (None, None));
    }
}
