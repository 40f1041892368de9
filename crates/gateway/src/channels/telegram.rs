//! Telegram: questions as messages with buttons, answers as presses and replies.
//!
//! Takes a bot's token; asks for what people say, or has it brought. Promise: only the configured person, in the chat that was
//! asked, pressing the very button or replying to the very message we sent, is heard. Whatever else arrives is
//! refused, once, on record; how far it has read is kept only after everything before it was acted on.

pub mod hook;
mod wire;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::approval::mail::Rest;
use sluice_core::approval::voice;
use sluice_core::{Actor, PersonName, Span, Timestamp};
use sluice_store::Delivery;
use zeroize::Zeroizing;

use super::letter::hash;
use super::{Channel, Fault, Letter};
use crate::config::Config;
use crate::gate::deciding::{self, Question, Voice};
use crate::gate::repeating;
use crate::gate::replies::{self, Reading, Written};
use crate::services::Work;
use crate::{Gateway, No};
use hook::Hook;
use wire::{Chat, Message, Press, Update, User};

/// The channel's name.
pub const NAME: &str = "telegram";
/// Characters of one message; the service allows 4096.
pub const ROOM: usize = 4000;
/// Kinds of news we want.
const KINDS: [&str; 2] = ["message", "callback_query"];
/// How long one poll waits for news.
const POLL: u64 = 25;
/// How long an answer may take beyond that.
const PATIENCE: Duration = Duration::from_secs(15);
/// Largest answer that is read.
const LARGEST: usize = 4 << 20;
/// After so long without news the service numbers them anew: then the old place to go on from means nothing.
const NUMBERED_ANEW: Span = Span::from_hours(6 * 24);

/// A bot.
pub struct Telegram {
    client: reqwest::Client,
    /// With the token in it: never shown.
    base: Zeroizing<String>,
    /// Where news are brought, unless we ask for them.
    hook: Option<Hook>,
}

impl fmt::Debug for Telegram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telegram")
    }
}

impl Telegram {
    /// A bot with the token in a file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no token.
    pub fn new(token_file: &Path, api: &str) -> Result<Self, String> {
        let text = Zeroizing::new(
            std::fs::read_to_string(token_file)
                .map_err(|error| format!("the Telegram token cannot be read: {error}"))?,
        );
        let token = text.trim();
        let plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || b":_-".contains(&b));
        if token.is_empty() || !plain {
            return Err("the file of the Telegram token holds none".into());
        }
        // The program installs it too; whoever is first wins, and both are the same.
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

    /// The bot a configuration names.
    ///
    /// # Errors
    /// When its token cannot be read.
    pub fn configured(config: &Config) -> Result<Option<Self>, String> {
        let Some(file) = &config.telegram.token_file else { return Ok(None) };
        let bot = Self::new(file, config.telegram.api.as_str())?;
        Ok(Some(match &config.telegram.webhook {
            Some(at) => bot.brought_to(at.as_str()),
            None => bot,
        }))
    }

    /// Has its news brought to a public address, instead of asking for them.
    #[must_use]
    pub fn brought_to(mut self, at: &str) -> Self {
        let token = self.base.rsplit_once("/bot").map_or("", |(_, token)| token);
        self.hook = Some(Hook::new(at, token));
        self
    }

    /// What proves that news are Telegram's, where they are brought.
    #[must_use]
    pub fn hook_secret(&self) -> Option<&str> {
        self.hook.as_ref().map(Hook::secret)
    }

    /// Asks the Bot API who this bot is: whether it is reached and takes the token. Says nothing to anybody.
    ///
    /// # Errors
    /// When it is not reached, or does not take the token.
    pub async fn who_am_i(&self) -> Result<String, Fault> {
        let me = self.call("getMe", &serde_json::json!({})).await?;
        let name = me.get("username").and_then(Value::as_str).unwrap_or("a bot without a name");
        Ok(format!("the bot is {}", sluice_core::approval::card::visible(name)))
    }

    /// Acts on one piece of news as it came, once.
    ///
    /// # Errors
    /// When our own part could not be done: then it has to come again.
    pub async fn take(&self, gw: &Gateway, update: Value) -> Result<(), Fault> {
        let Some(number) = update.get("update_id").and_then(Value::as_i64) else { return Ok(()) };
        // One we cannot read is passed over, not asked for again and again.
        match serde_json::from_value::<Update>(update) {
            Ok(update) => self.act(gw, update).await,
            Err(_) => Ok(gw.store.hear(NAME, &format!("update:{number}"), Some("telegram.form")).await?),
        }
    }

    /// One call of the Bot API.
    async fn call(&self, method: &str, body: &Value) -> Result<Value, Fault> {
        // SECURITY: the address holds the token, so that no error of the client is passed on.
        let later = |why: &str| Fault::Later { after: None, why: format!("telegram {method}: {why}") };
        let url = Zeroizing::new(format!("{}/{method}", self.base.as_str()));
        let request = self.client.post(url.as_str()).header("content-type", "application/json").body(body.to_string());
        let mut answer = request.send().await.map_err(|_| later("not reached"))?;
        let status = answer.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|_| later("cut off"))? {
            if bytes.len() + chunk.len() > LARGEST {
                return Err(later("too much"));
            }
            bytes.extend_from_slice(&chunk);
        }
        let read: Value = serde_json::from_slice(&bytes).map_err(|_| later("not understood"))?;
        wire::result(method, status, read)
    }

    /// Acts on one piece of news.
    async fn act(&self, gw: &Gateway, update: Update) -> Result<(), Fault> {
        let news = format!("update:{}", update.update_id);
        if gw.store.has_heard(NAME, &news).await? {
            return Ok(());
        }
        let refused = match update {
            Update { callback_query: Some(press), .. } => self.pressed(gw, press).await?,
            Update { message: Some(message), .. } => self.written(gw, message).await?,
            // Edited messages, channel posts, reactions: nobody was asked for those.
            Update { .. } => Some("telegram.kind"),
        };
        gw.store.hear(NAME, &news, refused).await?;
        Ok(())
    }

    /// A button was pressed. Gives why it was not heard.
    async fn pressed(&self, gw: &Gateway, press: Press) -> Result<Option<&'static str>, Fault> {
        let (why, words) = match self.press(gw, &press).await {
            Ok(words) => (None, words.unwrap_or_else(|| "Nothing was decided.".into())),
            Err(Unheard::Because(why)) => (Some(why), "This button is not for you, or no longer works.".to_owned()),
            Err(Unheard::Fault(fault)) => return Err(fault),
        };
        // The press is acted on already: if this fails, the person only misses a line.
        let answer = json!({"callback_query_id": press.id, "text": cut(&words, 190), "show_alert": why.is_some()});
        let _told = self.call("answerCallbackQuery", &answer).await;
        Ok(why)
    }

    async fn press(&self, gw: &Gateway, press: &Press) -> Result<Option<String>, Unheard> {
        let message = press.message.as_ref().ok_or(Unheard::Because("telegram.no_message"))?;
        let (secret, answer) =
            press.data.as_deref().and_then(wire::read_data).ok_or(Unheard::Because("telegram.data"))?;
        // SECURITY: the secret names the letter; chat, message and person must all be the ones it was sent to.
        let delivery = gw.store.delivery_with(hash(secret)).await.map_err(Fault::from)?;
        let delivery = delivery.filter(|known| known.channel == NAME).ok_or(Unheard::Because("telegram.secret"))?;
        if delivery.place != message.chat.id.to_string() {
            return Err(Unheard::Because("telegram.chat"));
        }
        let number = message.message_id.to_string();
        match &delivery.message {
            Some(known) if *known != number => return Err(Unheard::Because("telegram.message")),
            Some(_) => {}
            // We were killed between sending and writing down how the service calls it.
            None => gw.store.delivery_sent(delivery.clone(), number).await.map_err(Fault::from)?,
        }
        let by = person(gw, &press.from, &message.chat, &delivery)?;
        self.answer(gw, &delivery, by, (answer, Rest::Nothing)).await.map_err(Unheard::Fault)
    }

    /// Something was written. Gives why it was not heard.
    async fn written(&self, gw: &Gateway, message: Message) -> Result<Option<&'static str>, Fault> {
        match self.read(gw, &message).await {
            Ok(Some(words)) => {
                let place = message.chat.id.to_string();
                let _told = self.say(&place, Some(&message.message_id.to_string()), &words).await;
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(Unheard::Because(why)) => Ok(Some(why)),
            Err(Unheard::Fault(fault)) => Err(fault),
        }
    }

    async fn read(&self, gw: &Gateway, message: &Message) -> Result<Option<String>, Unheard> {
        if message.is_relayed() {
            return Err(Unheard::Because("telegram.relayed"));
        }
        let (Some(from), Some(text)) = (&message.from, &message.text) else {
            return Err(Unheard::Because("telegram.kind"));
        };
        let Some(original) = &message.reply_to_message else {
            return self.unasked(gw, from, &message.chat, text).await;
        };
        let (place, number) = (message.chat.id.to_string(), original.message_id.to_string());
        let delivery = gw.store.delivery_named(NAME, &place, &number).await.map_err(Fault::from)?;
        let delivery = delivery.ok_or(Unheard::Because("telegram.message"))?;
        let by = person(gw, from, &message.chat, &delivery)?;
        self.answer(gw, &delivery, by, (text, message.rest())).await.map_err(Unheard::Fault)
    }

    /// Words that answer no message of ours: only stopping needs no question.
    async fn unasked(&self, gw: &Gateway, from: &User, chat: &Chat, text: &str) -> Result<Option<String>, Unheard> {
        let known = gw
            .config
            .approvals
            .people
            .iter()
            .find(|person| person.telegram == Some(from.id) && person.chat() == Some(chat.id) && !from.is_bot);
        let known = known.ok_or(Unheard::Because("telegram.person"))?;
        if voice::stop(text).is_none() {
            return Ok(Some("Please reply to the message with the question. `freeze all` stops everything.".into()));
        }
        let by = Actor::Person(known.name.clone());
        let frozen = gw.stop_lane().freeze(sluice_store::Scope::All, by, "said so over telegram".into()).await;
        crate::recovery::remember_stop(gw).await;
        frozen.map_err(Fault::from)?;
        gw.standstill.look(&gw.store).await;
        gw.events.wrote();
        Ok(Some("Everything is frozen. Lift it with `sluice unfreeze`.".into()))
    }

    /// What a person means, and what they are told, if anything.
    async fn answer(
        &self,
        gw: &Gateway,
        delivery: &Delivery,
        by: Actor,
        (words, rest): (&str, Rest),
    ) -> Result<Option<String>, Fault> {
        let question = Question::read(gw, delivery.approval).await?.seen_in(delivery);
        let approval = &question.card.approval;
        // Stopping is never too late.
        if voice::stop(words).is_none() {
            if approval.is_over(gw.now()) {
                return Ok(Some("Nothing changed: nobody answered in time, so it was denied.".into()));
            }
            if !approval.state.is_open() {
                return Ok(Some(format!("Nothing changed: it was already {}.", deciding::told(approval))));
            }
        }
        let reply = Written { words: words.to_owned(), rest, from: None };
        let meaning = match replies::understand(gw, &question, Some(delivery), &reply).await? {
            Reading::Meant(meaning) => meaning,
            Reading::ToConfirm => {
                let text = "Nothing is decided yet: what was understood follows, for you to confirm.";
                return Ok(Some(text.into()));
            }
            Reading::Tell(text) => return Ok(Some(text)),
            Reading::Unclear(unclear) => return Ok(repeating::menu_once(gw, &by, &question, unclear).await?),
        };
        let voice = Voice { by, channel: NAME, ceiling: Some(gw.config.approvals.telegram_ceiling) };
        match deciding::decide(gw, &voice, &question, meaning).await {
            Ok(heard) => Ok(Some(deciding::said(&heard))),
            Err(no) if no.refusal.code().status() >= 500 => Err(no.into()),
            Err(no) => Ok(Some(format!("Nothing was decided: {}.", no.refusal))),
        }
    }
}

/// Why news were not heard.
enum Unheard {
    Because(&'static str),
    Fault(Fault),
}

impl From<Fault> for Unheard {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The person who may answer here: configured for this chat, or alone in a chat the operator lets requests name.
fn person(gw: &Gateway, from: &User, chat: &Chat, delivery: &Delivery) -> Result<Actor, Unheard> {
    if from.is_bot {
        return Err(Unheard::Because("telegram.bot"));
    }
    if chat.id.to_string() != delivery.place {
        return Err(Unheard::Because("telegram.chat"));
    }
    let approvals = &gw.config.approvals;
    let known =
        approvals.people.iter().find(|person| person.telegram == Some(from.id) && person.chat() == Some(chat.id));
    if let Some(known) = known {
        return Ok(Actor::Person(known.name.clone()));
    }
    // In a private chat the chat's number is the person's: whoever was asked there is alone.
    let alone = chat.id == from.id && chat.is_private() && approvals.allows(NAME, &delivery.place);
    let named = PersonName::new(format!("telegram {}", from.id)).ok().filter(|_| alone);
    named.map(Actor::Person).ok_or(Unheard::Because("telegram.person"))
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// How far was read: the next number to ask for, and when that was.
fn mark(next: i64, now: Timestamp) -> String {
    format!("{next}@{}", now.as_millis())
}

/// Where to go on from, unless that was too long ago to mean anything.
fn go_on_from(mark: Option<&str>, now: Timestamp) -> Option<i64> {
    let (next, at) = mark?.split_once('@')?;
    let (next, at): (i64, i64) = (next.parse().ok()?, at.parse().ok()?);
    (now.since(Timestamp::from_millis(at)) < NUMBERED_ANEW).then_some(next)
}

impl Channel for Telegram {
    fn name(&self) -> &'static str {
        NAME
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn show<'a>(&'a self, letter: &'a Letter) -> Work<'a, Result<String, Fault>> {
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
                .ok_or_else(|| Fault::Refused { why: "telegram sent no number".into() })
        })
    }

    fn edit<'a>(&'a self, place: &'a str, message: &'a str, text: &'a str) -> Work<'a, Result<(), Fault>> {
        Box::pin(async move {
            let number: i64 =
                message.parse().map_err(|_| Fault::Refused { why: "not a message of telegram".into() })?;
            let body = json!({
                "chat_id": wire::chat_of(place), "message_id": number, "text": cut(text, 4096),
                "link_preview_options": {"is_disabled": true},
            });
            self.call("editMessageText", &body).await.map(drop)
        })
    }

    fn say<'a>(&'a self, place: &'a str, to: Option<&'a str>, text: &'a str) -> Work<'a, Result<(), Fault>> {
        Box::pin(async move {
            let mut body = json!({
                "chat_id": wire::chat_of(place), "text": cut(text, 4096), "link_preview_options": {"is_disabled": true},
            });
            if let Some(number) = to.and_then(|to| to.parse::<i64>().ok()) {
                crate::value::put(
                    &mut body,
                    "reply_parameters",
                    json!({"message_id": number, "allow_sending_without_reply": true}),
                );
            }
            self.call("sendMessage", &body).await.map(drop)
        })
    }

    fn hear<'a>(&'a self, gw: &'a Gateway) -> Work<'a, Result<(), Fault>> {
        Box::pin(async move {
            self.watch(gw).await?;
            if self.hook.is_some() {
                crate::loops::pause(hook::EVERY.as_duration()).await;
                return Ok(());
            }
            let kept = gw.store.channel_mark(NAME).await?;
            let mut body = json!({"timeout": POLL, "allowed_updates": KINDS});
            if let Some(next) = go_on_from(kept.as_deref(), gw.now()) {
                crate::value::put(&mut body, "offset", next);
            }
            let news = self.call("getUpdates", &body).await?;
            let Value::Array(news) = news else {
                return Err(Fault::Later { after: None, why: "telegram getUpdates: no list".into() });
            };
            for update in news {
                let Some(number) = update.get("update_id").and_then(Value::as_i64) else { continue };
                self.take(gw, update).await?;
                gw.store.set_channel_mark(NAME, mark(number + 1, gw.now())).await?;
            }
            Ok(())
        })
    }

    fn leave<'a>(&'a self, gw: &'a Gateway) -> Work<'a, ()> {
        Box::pin(async move {
            if let (Some(_), Err(fault)) = (&self.hook, self.forsake(gw).await) {
                tracing::warn!("the webhook is left behind: {fault}");
            }
        })
    }
}

impl From<No> for Unheard {
    fn from(no: No) -> Self {
        Self::Fault(no.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_go_on_from_is_forgotten_before_numbers_start_anew() {
        let then = Timestamp::from_millis(1_000);
        let kept = mark(42, then);
        assert_eq!(go_on_from(Some(&kept), then + Span::from_hours(24)), Some(42));
        assert_eq!(go_on_from(Some(&kept), then + Span::from_hours(7 * 24)), None);
        assert_eq!((go_on_from(None, then), go_on_from(Some("nonsense"), then)), (None, None));
    }
}
