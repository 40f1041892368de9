//! Where questions were shown, what channels have heard, and how far they have read.
//!
//! Takes an attempt to show a question before it is made; gives it back by its secret or by the channel's own name
//! for the message. Promise: an attempt is on record before anything is sent, so that whatever reached a person
//! before a crash can still be answered, once; the same news twice is heard once.

use sluice_core::approval::{Item, card_digest};
use sluice_core::audit::Fact;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Digest, Span, Timestamp};

use crate::Store;
use crate::desk::{Desk, Query, UseCase};
use crate::error::StoreError;
use crate::sql::{Row, Tx, params};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT d.approval, d.channel, d.place, d.attempt, d.message, d.opened_at, d.sent_at, d.reminded_at, d.shown, ",
            "d.items, d.card, d.reason, d.next_at, d.proposal ",
            "FROM deliveries d ",
            $rest
        )
    };
}

const OF_APPROVAL: &str = select!("WHERE d.approval = ?1 ORDER BY d.channel, d.place, d.attempt");
const BY_SECRET: &str = select!("WHERE d.secret = ?1");
const BY_MESSAGE: &str = select!("WHERE d.channel = ?1 AND d.place = ?2 AND d.message = ?3");
const STALE: &str = select!(
    "JOIN approvals a ON a.id = d.approval WHERE d.shown = 'pending' AND a.state <> 'pending' \
     AND d.message IS NOT NULL ORDER BY d.opened_at LIMIT ?1"
);
const UNANSWERED: &str = select!(
    "JOIN approvals a ON a.id = d.approval WHERE d.shown = 'pending' AND a.state = 'pending' AND a.expires_at > ?1 \
     AND d.sent_at <= ?2 AND d.reminded_at IS NULL ORDER BY d.sent_at LIMIT ?3"
);
const LATELY: &str = "SELECT COUNT(*) FROM deliveries WHERE channel = ?1 AND place = ?2 AND opened_at > ?3";
const LATELY_OF_AGENT: &str = "SELECT COUNT(*) FROM deliveries d JOIN approvals a ON a.id = d.approval \
     WHERE d.channel = ?1 AND d.place = ?2 AND d.opened_at > ?3 AND a.agent = ?4";
const NOT_SHOWN: &str = "SELECT COUNT(*) FROM approvals a WHERE a.state = 'pending' AND a.agent = ?3 AND NOT EXISTS \
     (SELECT 1 FROM deliveries d WHERE d.approval = a.id AND d.channel = ?1 AND d.place = ?2 AND d.message IS NOT NULL)";
const OPEN: &str = "INSERT INTO deliveries (approval, channel, place, attempt, secret, opened_at, shown, items, card, \
     proposal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7, ?8, ?9)";
const SENT: &str = "UPDATE deliveries SET message = ?5, sent_at = ?6, shown = 'pending', reason = NULL, next_at = NULL \
     WHERE approval = ?1 AND channel = ?2 AND place = ?3 AND attempt = ?4";
const SHOWN: &str =
    "UPDATE deliveries SET shown = ?5 WHERE approval = ?1 AND channel = ?2 AND place = ?3 AND attempt = ?4";
const NOT_TAKEN: &str = "UPDATE deliveries SET shown = ?5, reason = ?6, next_at = ?7 \
     WHERE approval = ?1 AND channel = ?2 AND place = ?3 AND attempt = ?4";
const REMINDED: &str =
    "UPDATE deliveries SET reminded_at = ?5 WHERE approval = ?1 AND channel = ?2 AND place = ?3 AND attempt = ?4";
const TAKE: &str =
    "UPDATE outbox SET due_at = ?3, attempts = attempts + 1 WHERE id = ?1 AND attempts = ?2 AND sent_at IS NULL";
const TRIES: &str = "SELECT attempts FROM outbox WHERE id = ?1 AND sent_at IS NULL /*lock*/";
const MARK: &str = "SELECT mark FROM channel_marks WHERE channel = ?1";
const SET_MARK: &str = "INSERT INTO channel_marks (channel, mark) VALUES (?1, ?2) \
     ON CONFLICT (channel) DO UPDATE SET mark = excluded.mark";
const HEARD: &str = "SELECT heard_at FROM channel_news WHERE channel = ?1 AND news = ?2";
const HEAR: &str =
    "INSERT INTO channel_news (channel, news, heard_at) VALUES (?1, ?2, ?3) ON CONFLICT (channel, news) DO NOTHING";
const FORGET: &str = "DELETE FROM channel_news WHERE heard_at < ?1";

/// How long what a channel has heard is remembered.
pub(crate) const REMEMBERED: Span = Span::from_hours(48);

/// A question shown somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Which question.
    pub approval: ApprovalId,
    /// Over which channel.
    pub channel: String,
    /// To which chat or address.
    pub place: String,
    /// The how-manieth attempt.
    pub attempt: u32,
    /// The channel's own name for the message, once that is known.
    pub message: Option<String>,
    /// When it was about to be sent.
    pub opened_at: Timestamp,
    /// When it was known to be sent.
    pub sent_at: Option<Timestamp>,
    /// When the person was reminded.
    pub reminded_at: Option<Timestamp>,
    /// Which state of the question it shows.
    pub shown: String,
    /// How many writes of the question it shows, from the first; 0 where that was not kept.
    pub items: u32,
    /// Names those writes.
    pub card: Option<Digest>,
    /// Why the channel refused it or has not taken it yet, without content.
    pub reason: Option<String>,
    /// When it is tried again.
    pub next_at: Option<Timestamp>,
    /// The answer that this letter asks the person to confirm.
    pub proposal: Option<MessageId>,
}

impl Delivery {
    /// How many of these writes the person was shown: none unless the letter showed exactly these.
    #[must_use]
    pub fn covers(&self, items: &[Item]) -> u32 {
        let shown = items.iter().take(self.items as usize).map(|item| &item.digest);
        if self.card == Some(card_digest(shown)) { self.items } else { 0 }
    }
}

struct OpenDelivery {
    delivery: Delivery,
    secret: [u8; 32],
}

impl UseCase for OpenDelivery {
    type Out = Delivery;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<Delivery, StoreError> {
        let Delivery { approval, channel, place, .. } = &self.delivery;
        let rows = desk.rows(OF_APPROVAL, params![*approval]).await?;
        let before = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let same = |known: &&Delivery| known.channel == *channel && known.place == *place;
        let attempt = before.iter().filter(same).map(|known| known.attempt + 1).max().unwrap_or(0);
        let now = desk.now;
        let (items, card) = (self.delivery.items, self.delivery.card);
        let mut row = params![*approval, channel.as_str(), place.as_str(), attempt, self.secret.as_slice(), now];
        row.extend(params![items, card, self.delivery.proposal]);
        desk.write(OPEN, row);
        Ok(Delivery { attempt, opened_at: now, ..self.delivery.clone() })
    }
}

/// What happened to a delivery.
#[derive(Debug, Clone)]
enum Step {
    Sent(String),
    Shown(String),
    Refused(String),
    Later { reason: String, next_at: Timestamp },
    Reminded,
}

struct Mark {
    delivery: Delivery,
    step: Step,
}

impl UseCase for Mark {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let Delivery { approval, channel, place, attempt, .. } = &self.delivery;
        let now = desk.now;
        let mut params = params![*approval, channel.as_str(), place.as_str(), *attempt];
        match &self.step {
            Step::Sent(message) => {
                params.extend(params![message.as_str(), now]);
                desk.write(SENT, params);
                let mut fact = Fact::new("approval.shown", desk.actor()).with("channel", channel);
                fact.approval = Some(*approval);
                desk.record(fact);
            }
            Step::Shown(word) => {
                params.extend(params![word.as_str()]);
                desk.write(SHOWN, params);
            }
            // A refusal is final, so that it is on record; what is tried again is not.
            Step::Refused(reason) => {
                params.extend(params!["refused", reason.as_str(), None::<Timestamp>]);
                desk.write(NOT_TAKEN, params);
                let mut fact = Fact::new("approval.not_shown", desk.actor()).with("channel", channel);
                fact.approval = Some(*approval);
                desk.record(fact);
            }
            Step::Later { reason, next_at } => {
                params.extend(params!["failed", reason.as_str(), *next_at]);
                desk.write(NOT_TAKEN, params);
            }
            Step::Reminded => {
                params.extend(params![now]);
                desk.write(REMINDED, params);
            }
        }
        Ok(())
    }
}

/// Takes a message for delivery, for so long. One of several nodes gets it.
struct Take {
    id: MessageId,
    attempts: u32,
    until: Timestamp,
}

impl UseCase for Take {
    type Out = bool;
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<bool, StoreError> {
        let Some(row) = desk.row(TRIES, params![self.id]).await? else { return Ok(false) };
        if row.of("outbox").count::<u32>()? != self.attempts {
            return Ok(false);
        }
        desk.write_one(TAKE, params![self.id, self.attempts, self.until]);
        Ok(true)
    }
}

struct Found(&'static str, Vec<crate::sql::Val>);

impl Query for Found {
    type Out = Vec<Delivery>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Delivery>, StoreError> {
        tx.rows(self.0, &self.1).await?.into_iter().map(decode).collect()
    }
}

struct Lately {
    channel: String,
    place: String,
    since: Timestamp,
}

impl Query for Lately {
    type Out = u32;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u32, StoreError> {
        let rows = tx.rows(LATELY, &params![self.channel.as_str(), self.place.as_str(), self.since]).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "count" })?.of("deliveries").count()
    }
}

struct Counted(&'static str, Vec<crate::sql::Val>);

impl Query for Counted {
    type Out = u32;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<u32, StoreError> {
        let rows = tx.rows(self.0, &self.1).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "count" })?.of("deliveries").count()
    }
}

struct ReadMark(String);

impl Query for ReadMark {
    type Out = Option<String>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        let rows = tx.rows(MARK, &params![self.0.as_str()]).await?;
        rows.into_iter().next().map(|row| row.of("channel_marks").text()).transpose()
    }
}

struct SetMark {
    channel: String,
    mark: String,
}

impl UseCase for SetMark {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        desk.write(SET_MARK, params![self.channel.as_str(), self.mark.as_str()]);
        let old = desk.now - REMEMBERED;
        desk.write(FORGET, params![old]);
        Ok(())
    }
}

struct HaveHeard {
    channel: String,
    news: String,
}

impl Query for HaveHeard {
    type Out = bool;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        Ok(!tx.rows(HEARD, &params![self.channel.as_str(), self.news.as_str()]).await?.is_empty())
    }
}

struct Hear {
    channel: String,
    news: String,
    /// Said in the record where it was refused.
    refused: Option<&'static str>,
}

impl UseCase for Hear {
    type Out = ();
    async fn run<T: Tx>(&self, desk: &mut Desk<'_, T>) -> Result<(), StoreError> {
        let now = desk.now;
        desk.write(HEAR, params![self.channel.as_str(), self.news.as_str(), now]);
        if let Some(why) = self.refused {
            let mut fact = Fact::new("channel.refused", desk.actor()).with("channel", &self.channel);
            fact.code = Some(why.to_owned());
            desk.record(fact);
        }
        Ok(())
    }
}

fn decode(row: Row) -> Result<Delivery, StoreError> {
    let mut row = row.of("deliveries");
    let mut delivery = Delivery {
        approval: ApprovalId::from_bits(row.bits()?),
        channel: row.text()?,
        place: row.text()?,
        attempt: row.count()?,
        message: row.maybe_text()?,
        opened_at: row.time()?,
        sent_at: row.maybe_time()?,
        reminded_at: row.maybe_time()?,
        shown: row.text()?,
        items: 0,
        card: None,
        reason: None,
        next_at: None,
        proposal: None,
    };
    delivery.items = row.maybe_int()?.and_then(|items| u32::try_from(items).ok()).unwrap_or(0);
    let unreadable = row.impossible("a digest of an unknown form");
    let card = row.maybe_blob()?;
    delivery.card = card.map(|card| Digest::from_bytes(&card).ok_or(unreadable)).transpose()?;
    (delivery.reason, delivery.next_at) = (row.maybe_text()?, row.maybe_time()?);
    delivery.proposal = row.maybe_bits()?.map(MessageId::from_bits);
    Ok(delivery)
}

impl Store {
    /// Takes a message for delivery until a moment. False if somebody else has it, or it has been delivered.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn take_message(&self, id: MessageId, attempts: u32, until: Timestamp) -> Result<bool, StoreError> {
        self.submit(Take { id, attempts, until }).await
    }

    /// Writes down that a question is about to be shown somewhere with these writes, and the hash of the secret it
    /// carries.
    ///
    /// # Errors
    /// When that cannot be recorded; nothing may be sent then.
    pub async fn open_delivery(
        &self,
        approval: ApprovalId,
        (channel, place): (&str, &str),
        secret: [u8; 32],
        items: &[Item],
    ) -> Result<Delivery, StoreError> {
        self.open_letter(approval, (channel, place), secret, (items, None)).await
    }

    /// The same for a letter that asks a person to confirm an answer.
    ///
    /// # Errors
    /// As [`Store::open_delivery`].
    pub async fn open_letter(
        &self,
        approval: ApprovalId,
        (channel, place): (&str, &str),
        secret: [u8; 32],
        (items, proposal): (&[Item], Option<MessageId>),
    ) -> Result<Delivery, StoreError> {
        let delivery = Delivery {
            approval,
            channel: channel.to_owned(),
            place: place.to_owned(),
            attempt: 0,
            message: None,
            opened_at: Timestamp::default(),
            sent_at: None,
            reminded_at: None,
            shown: "pending".into(),
            items: u32::try_from(items.len()).unwrap_or(u32::MAX),
            card: Some(card_digest(items.iter().map(|item| &item.digest))),
            reason: None,
            next_at: None,
            proposal,
        };
        self.submit(OpenDelivery { delivery, secret }).await
    }

    /// The channel took it, and calls it so.
    ///
    /// # Errors
    /// When that cannot be recorded; it may be shown again.
    pub async fn delivery_sent(&self, delivery: Delivery, message: String) -> Result<(), StoreError> {
        self.submit(Mark { delivery, step: Step::Sent(message) }).await
    }

    /// It now shows this state of the question.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn delivery_shows(&self, delivery: Delivery, state: &str) -> Result<(), StoreError> {
        self.submit(Mark { delivery, step: Step::Shown(state.to_owned()) }).await
    }

    /// The channel refused it for good, for this reason.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn delivery_refused(&self, delivery: Delivery, reason: &str) -> Result<(), StoreError> {
        self.submit(Mark { delivery, step: Step::Refused(reason.to_owned()) }).await
    }

    /// The channel did not take it; it is tried again at this moment.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn delivery_failed(
        &self,
        delivery: Delivery,
        reason: &str,
        next_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.submit(Mark { delivery, step: Step::Later { reason: reason.to_owned(), next_at } }).await
    }

    /// The person was reminded.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn delivery_reminded(&self, delivery: Delivery) -> Result<(), StoreError> {
        self.submit(Mark { delivery, step: Step::Reminded }).await
    }

    /// Where a question was shown.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn deliveries(&self, approval: ApprovalId) -> Result<Vec<Delivery>, StoreError> {
        self.ask(Found(OF_APPROVAL, params![approval])).await
    }

    /// The delivery that carries a secret, by the secret's hash.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn delivery_with(&self, secret: [u8; 32]) -> Result<Option<Delivery>, StoreError> {
        Ok(self.ask(Found(BY_SECRET, params![secret.as_slice()])).await?.into_iter().next())
    }

    /// The delivery a channel knows by this name.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn delivery_named(
        &self,
        channel: &str,
        place: &str,
        message: &str,
    ) -> Result<Option<Delivery>, StoreError> {
        Ok(self.ask(Found(BY_MESSAGE, params![channel, place, message])).await?.into_iter().next())
    }

    /// Deliveries that still show a question as open which no longer is.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn stale_deliveries(&self, limit: u32) -> Result<Vec<Delivery>, StoreError> {
        self.ask(Found(STALE, params![limit])).await
    }

    /// Deliveries sent before a moment that nobody has answered or been reminded of.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn unanswered_deliveries(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.ask(Found(UNANSWERED, params![now, before, limit])).await
    }

    /// How many questions were shown somewhere since a moment.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn shown_since(&self, channel: &str, place: &str, since: Timestamp) -> Result<u32, StoreError> {
        self.ask(Lately { channel: channel.to_owned(), place: place.to_owned(), since }).await
    }

    /// How many questions of one agent were shown somewhere since then.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn shown_of_agent_since(
        &self,
        channel: &str,
        place: &str,
        agent: AgentName,
        since: Timestamp,
    ) -> Result<u32, StoreError> {
        self.ask(Counted(LATELY_OF_AGENT, params![channel, place, since, &agent])).await
    }

    /// How many open questions of one agent were not shown somewhere yet.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn open_not_shown(&self, channel: &str, place: &str, agent: AgentName) -> Result<u32, StoreError> {
        self.ask(Counted(NOT_SHOWN, params![channel, place, &agent])).await
    }

    /// How far a channel has read.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn channel_mark(&self, channel: &str) -> Result<Option<String>, StoreError> {
        self.ask(ReadMark(channel.to_owned())).await
    }

    /// Writes down how far a channel has read. Only after what it read has been acted on.
    ///
    /// # Errors
    /// When that cannot be recorded; it will be read again.
    pub async fn set_channel_mark(&self, channel: &str, mark: String) -> Result<(), StoreError> {
        self.submit(SetMark { channel: channel.to_owned(), mark }).await
    }

    /// Whether a channel has brought this news before.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn has_heard(&self, channel: &str, news: &str) -> Result<bool, StoreError> {
        self.ask(HaveHeard { channel: channel.to_owned(), news: news.to_owned() }).await
    }

    /// Writes down that news were acted on, or why they were not.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn hear(&self, channel: &str, news: &str, refused: Option<&'static str>) -> Result<(), StoreError> {
        self.submit(Hear { channel: channel.to_owned(), news: news.to_owned(), refused }).await
    }
}

/// Who decided how often, and how fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Habit {
    /// Who.
    pub by: Actor,
    /// How many questions they approved.
    pub approved: u32,
    /// How many they denied.
    pub denied: u32,
    /// The median time they took.
    pub median: Span,
}

const ANSWERED: &str = "SELECT decided_by, state, asked_at, decided_at FROM approvals \
     WHERE decided_by IS NOT NULL AND decided_at >= ?1 ORDER BY id DESC LIMIT ?2";

struct Habits {
    since: Timestamp,
    limit: u32,
}

impl Query for Habits {
    type Out = Vec<Habit>;
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<Habit>, StoreError> {
        let mut by_person: std::collections::BTreeMap<String, (u32, u32, Vec<u64>)> = std::collections::BTreeMap::new();
        for row in tx.rows(ANSWERED, &params![self.since, self.limit]).await? {
            let mut row = row.of("approvals");
            let (by, state, asked, decided) = (row.text()?, row.text()?, row.time()?, row.time()?);
            // A standing yes answers at once; it says nothing about how people decide.
            if by.starts_with("node:") {
                continue;
            }
            let habit = by_person.entry(by).or_default();
            if state == "denied" {
                habit.1 += 1
            } else {
                habit.0 += 1
            }
            habit.2.push(decided.since(asked).as_millis());
        }
        let habits = by_person.into_iter().map(|(by, (approved, denied, mut times))| {
            times.sort_unstable();
            let median = Span::from_millis(times.get(times.len() / 2).copied().unwrap_or_default());
            let by =
                by.parse().map_err(|_| StoreError::Impossible { table: "approvals", detail: "an unknown actor" })?;
            Ok(Habit { by, approved, denied, median })
        });
        habits.collect()
    }
}

impl Store {
    /// How people have decided since a moment, among the newest so many questions.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn habits(&self, since: Timestamp, limit: u32) -> Result<Vec<Habit>, StoreError> {
        self.ask(Habits { since, limit }).await
    }
}
