//! Deliveries: where approval requests were shown, which updates channels have received, and how far they have read.
//!
//! Takes an attempt to show an approval request before it is made; finds it again by its secret or by the channel's own
//! id for the message. Promise: an attempt is recorded before anything is sent, so that a message which reached a
//! person before a crash can still be answered, once. An update that arrives twice is handled once.

mod decision_habits;

use sluice_core::approval::{ApprovalItem, card_digest};
use sluice_core::audit::AuditFact;
use sluice_core::ids::MessageId;
use sluice_core::{AgentName, ApprovalId, Digest, Millis, UtcMillis};

use crate::Store;
use crate::error::StoreError;
use crate::sql::{SqlRow, StoreTx, params};
use crate::unit_of_work::{StoreQuery, UnitOfWork, UseCase};
pub use decision_habits::DecisionHabit;

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

/// How long received updates of a channel are remembered.
pub(crate) const REMEMBERED: Millis = Millis::from_hours(48);

/// An approval request shown in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDelivery {
    /// The approval request.
    pub approval: ApprovalId,
    /// The channel that shows it.
    pub channel: String,
    /// The chat or address it is shown in.
    pub place: String,
    /// The number of the attempt.
    pub attempt: u32,
    /// The channel's own id for the message, once it is known.
    pub message: Option<String>,
    /// When it was about to be sent.
    pub opened_at: UtcMillis,
    /// When the channel confirmed it.
    pub sent_at: Option<UtcMillis>,
    /// When the person was reminded.
    pub reminded_at: Option<UtcMillis>,
    /// Which state of the approval request it shows.
    pub shown: String,
    /// How many writes of the request it shows, from the first; 0 where that was not stored.
    pub items: u32,
    /// Digest over those writes.
    pub card: Option<Digest>,
    /// Why the channel refused it or has not taken it yet, without content.
    pub reason: Option<String>,
    /// When the next attempt is due.
    pub next_at: Option<UtcMillis>,
    /// The answer that this message asks the person to confirm.
    pub proposal: Option<MessageId>,
}

impl ApprovalDelivery {
    /// How many of these writes the person was shown: none unless the message showed exactly these.
    #[must_use]
    pub fn covers(&self, items: &[ApprovalItem]) -> u32 {
        let shown = items.iter().take(self.items as usize).map(|item| &item.digest);
        if self.card == Some(card_digest(shown)) { self.items } else { 0 }
    }
}

struct OpenDelivery {
    delivery: ApprovalDelivery,
    secret: [u8; 32],
}

impl UseCase for OpenDelivery {
    type Out = ApprovalDelivery;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<ApprovalDelivery, StoreError> {
        let ApprovalDelivery { approval, channel, place, .. } = &self.delivery;
        let rows = unit.rows(OF_APPROVAL, params![*approval]).await?;
        let before = rows.into_iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        let same = |known: &&ApprovalDelivery| known.channel == *channel && known.place == *place;
        let attempt = before.iter().filter(same).map(|known| known.attempt + 1).max().unwrap_or(0);
        let now = unit.now;
        let (items, card) = (self.delivery.items, self.delivery.card);
        let mut row = params![*approval, channel.as_str(), place.as_str(), attempt, self.secret.as_slice(), now];
        row.extend(params![items, card, self.delivery.proposal]);
        unit.write(OPEN, row);
        Ok(ApprovalDelivery { attempt, opened_at: now, ..self.delivery.clone() })
    }
}

/// What happened to a delivery.
#[derive(Debug, Clone)]
enum DeliveryStep {
    Sent(String),
    Shown(String),
    Refused(String),
    Later { reason: String, next_at: UtcMillis },
    Reminded,
}

struct UpdateDelivery {
    delivery: ApprovalDelivery,
    step: DeliveryStep,
}

impl UseCase for UpdateDelivery {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let ApprovalDelivery { approval, channel, place, attempt, .. } = &self.delivery;
        let now = unit.now;
        let mut params = params![*approval, channel.as_str(), place.as_str(), *attempt];
        match &self.step {
            DeliveryStep::Sent(message) => {
                params.extend(params![message.as_str(), now]);
                unit.write(SENT, params);
                let mut fact = AuditFact::new("approval.shown", unit.actor()).with("channel", channel);
                fact.approval = Some(*approval);
                unit.record(fact);
            }
            DeliveryStep::Shown(word) => {
                params.extend(params![word.as_str()]);
                unit.write(SHOWN, params);
            }
            // A refusal is final, so it is recorded; a failure that is retried is not.
            DeliveryStep::Refused(reason) => {
                params.extend(params!["refused", reason.as_str(), None::<UtcMillis>]);
                unit.write(NOT_TAKEN, params);
                let mut fact = AuditFact::new("approval.not_shown", unit.actor()).with("channel", channel);
                fact.approval = Some(*approval);
                unit.record(fact);
            }
            DeliveryStep::Later { reason, next_at } => {
                params.extend(params!["failed", reason.as_str(), *next_at]);
                unit.write(NOT_TAKEN, params);
            }
            DeliveryStep::Reminded => {
                params.extend(params![now]);
                unit.write(REMINDED, params);
            }
        }
        Ok(())
    }
}

/// Takes a message for delivery, for this long. Only one of several nodes gets it.
struct ClaimOutboxMessage {
    id: MessageId,
    attempts: u32,
    until: UtcMillis,
}

impl UseCase for ClaimOutboxMessage {
    type Out = bool;
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<bool, StoreError> {
        let Some(row) = unit.row(TRIES, params![self.id]).await? else { return Ok(false) };
        if row.of("outbox").count::<u32>()? != self.attempts {
            return Ok(false);
        }
        unit.write_one(TAKE, params![self.id, self.attempts, self.until]);
        Ok(true)
    }
}

struct ListDeliveries(&'static str, Vec<crate::sql::SqlValue>);

impl StoreQuery for ListDeliveries {
    type Out = Vec<ApprovalDelivery>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<ApprovalDelivery>, StoreError> {
        tx.rows(self.0, &self.1).await?.into_iter().map(decode).collect()
    }
}

struct CountRecentDeliveries {
    channel: String,
    place: String,
    since: UtcMillis,
}

impl StoreQuery for CountRecentDeliveries {
    type Out = u32;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u32, StoreError> {
        let rows = tx.rows(LATELY, &params![self.channel.as_str(), self.place.as_str(), self.since]).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "count" })?.of("deliveries").count()
    }
}

struct CountDeliveries(&'static str, Vec<crate::sql::SqlValue>);

impl StoreQuery for CountDeliveries {
    type Out = u32;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<u32, StoreError> {
        let rows = tx.rows(self.0, &self.1).await?;
        rows.into_iter().next().ok_or(StoreError::NotFound { what: "count" })?.of("deliveries").count()
    }
}

struct GetChannelMark(String);

impl StoreQuery for GetChannelMark {
    type Out = Option<String>;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Option<String>, StoreError> {
        let rows = tx.rows(MARK, &params![self.0.as_str()]).await?;
        rows.into_iter().next().map(|row| row.of("channel_marks").text()).transpose()
    }
}

struct SetChannelMark {
    channel: String,
    mark: String,
}

impl UseCase for SetChannelMark {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        unit.write(SET_MARK, params![self.channel.as_str(), self.mark.as_str()]);
        let old = unit.now - REMEMBERED;
        unit.write(FORGET, params![old]);
        Ok(())
    }
}

struct HasChannelNews {
    channel: String,
    news: String,
}

impl StoreQuery for HasChannelNews {
    type Out = bool;
    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<bool, StoreError> {
        Ok(!tx.rows(HEARD, &params![self.channel.as_str(), self.news.as_str()]).await?.is_empty())
    }
}

struct RecordChannelNews {
    channel: String,
    news: String,
    /// The code for the audit log, if the update was refused.
    refused: Option<&'static str>,
}

impl UseCase for RecordChannelNews {
    type Out = ();
    async fn run<T: StoreTx>(&self, unit: &mut UnitOfWork<'_, T>) -> Result<(), StoreError> {
        let now = unit.now;
        unit.write(HEAR, params![self.channel.as_str(), self.news.as_str(), now]);
        if let Some(why) = self.refused {
            let mut fact = AuditFact::new("channel.refused", unit.actor()).with("channel", &self.channel);
            fact.code = Some(why.to_owned());
            unit.record(fact);
        }
        Ok(())
    }
}

fn decode(row: SqlRow) -> Result<ApprovalDelivery, StoreError> {
    let mut row = row.of("deliveries");
    let mut delivery = ApprovalDelivery {
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
    let unreadable = row.impossible("a digest of unknown format");
    let card = row.maybe_blob()?;
    delivery.card = card.map(|card| Digest::from_bytes(&card).ok_or(unreadable)).transpose()?;
    (delivery.reason, delivery.next_at) = (row.maybe_text()?, row.maybe_time()?);
    delivery.proposal = row.maybe_bits()?.map(MessageId::from_bits);
    Ok(delivery)
}

impl Store {
    /// Takes a message for delivery until this time. False if another node has it, or it was delivered already.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn claim_outbox_message(
        &self,
        id: MessageId,
        attempts: u32,
        until: UtcMillis,
    ) -> Result<bool, StoreError> {
        self.submit(ClaimOutboxMessage { id, attempts, until }).await
    }

    /// Records that an approval request is about to be shown in this place with these writes, and the hash of its
    /// secret.
    ///
    /// # Errors
    /// When that cannot be recorded; nothing may be sent then.
    pub async fn open_delivery(
        &self,
        approval: ApprovalId,
        (channel, place): (&str, &str),
        secret: [u8; 32],
        items: &[ApprovalItem],
    ) -> Result<ApprovalDelivery, StoreError> {
        self.open_confirmation_delivery(approval, (channel, place), secret, (items, None)).await
    }

    /// The same for a message that asks a person to confirm an answer.
    ///
    /// # Errors
    /// As [`Store::open_delivery`].
    pub async fn open_confirmation_delivery(
        &self,
        approval: ApprovalId,
        (channel, place): (&str, &str),
        secret: [u8; 32],
        (items, proposal): (&[ApprovalItem], Option<MessageId>),
    ) -> Result<ApprovalDelivery, StoreError> {
        let delivery = ApprovalDelivery {
            approval,
            channel: channel.to_owned(),
            place: place.to_owned(),
            attempt: 0,
            message: None,
            opened_at: UtcMillis::default(),
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

    /// Records that the channel accepted it, with the channel's id for the message.
    ///
    /// # Errors
    /// When that cannot be recorded; it may be shown again.
    pub async fn record_delivery_sent(&self, delivery: ApprovalDelivery, message: String) -> Result<(), StoreError> {
        self.submit(UpdateDelivery { delivery, step: DeliveryStep::Sent(message) }).await
    }

    /// Records that it now shows this state of the approval request.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn record_delivery_shown(&self, delivery: ApprovalDelivery, state: &str) -> Result<(), StoreError> {
        self.submit(UpdateDelivery { delivery, step: DeliveryStep::Shown(state.to_owned()) }).await
    }

    /// Records that the channel refused it permanently, and why.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn record_delivery_refused(&self, delivery: ApprovalDelivery, reason: &str) -> Result<(), StoreError> {
        self.submit(UpdateDelivery { delivery, step: DeliveryStep::Refused(reason.to_owned()) }).await
    }

    /// Records that the channel did not accept it; the next attempt is at this time.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn record_delivery_failed(
        &self,
        delivery: ApprovalDelivery,
        reason: &str,
        next_at: UtcMillis,
    ) -> Result<(), StoreError> {
        self.submit(UpdateDelivery { delivery, step: DeliveryStep::Later { reason: reason.to_owned(), next_at } }).await
    }

    /// Records that the person was reminded.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn record_delivery_reminded(&self, delivery: ApprovalDelivery) -> Result<(), StoreError> {
        self.submit(UpdateDelivery { delivery, step: DeliveryStep::Reminded }).await
    }

    /// Where an approval request was shown.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn deliveries(&self, approval: ApprovalId) -> Result<Vec<ApprovalDelivery>, StoreError> {
        self.ask(ListDeliveries(OF_APPROVAL, params![approval])).await
    }

    /// The delivery that carries a secret, by the secret's hash.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn delivery_by_secret(&self, secret: [u8; 32]) -> Result<Option<ApprovalDelivery>, StoreError> {
        Ok(self.ask(ListDeliveries(BY_SECRET, params![secret.as_slice()])).await?.into_iter().next())
    }

    /// The delivery with this message id of a channel.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn delivery_by_message(
        &self,
        channel: &str,
        place: &str,
        message: &str,
    ) -> Result<Option<ApprovalDelivery>, StoreError> {
        Ok(self.ask(ListDeliveries(BY_MESSAGE, params![channel, place, message])).await?.into_iter().next())
    }

    /// Deliveries that still show an approval request as open although it is not.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn stale_deliveries(&self, limit: u32) -> Result<Vec<ApprovalDelivery>, StoreError> {
        self.ask(ListDeliveries(STALE, params![limit])).await
    }

    /// Deliveries sent before a time that nobody has answered and without a reminder.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn unanswered_deliveries(
        &self,
        now: UtcMillis,
        before: UtcMillis,
        limit: u32,
    ) -> Result<Vec<ApprovalDelivery>, StoreError> {
        self.ask(ListDeliveries(UNANSWERED, params![now, before, limit])).await
    }

    /// How many approval requests were shown in a place since a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn count_shown_since(&self, channel: &str, place: &str, since: UtcMillis) -> Result<u32, StoreError> {
        self.ask(CountRecentDeliveries { channel: channel.to_owned(), place: place.to_owned(), since }).await
    }

    /// How many approval requests of one agent were shown in a place since a time.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn count_shown_of_agent_since(
        &self,
        channel: &str,
        place: &str,
        agent: AgentName,
        since: UtcMillis,
    ) -> Result<u32, StoreError> {
        self.ask(CountDeliveries(LATELY_OF_AGENT, params![channel, place, since, &agent])).await
    }

    /// How many open approval requests of one agent were not shown in a place yet.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn count_open_not_shown(&self, channel: &str, place: &str, agent: AgentName) -> Result<u32, StoreError> {
        self.ask(CountDeliveries(NOT_SHOWN, params![channel, place, &agent])).await
    }

    /// How far a channel has read.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn channel_mark(&self, channel: &str) -> Result<Option<String>, StoreError> {
        self.ask(GetChannelMark(channel.to_owned())).await
    }

    /// Stores how far a channel has read. Only after the gateway has acted on what it read.
    ///
    /// # Errors
    /// When that cannot be recorded; it will be read again.
    pub async fn set_channel_mark(&self, channel: &str, mark: String) -> Result<(), StoreError> {
        self.submit(SetChannelMark { channel: channel.to_owned(), mark }).await
    }

    /// Whether a channel has delivered this update before.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn has_channel_news(&self, channel: &str, news: &str) -> Result<bool, StoreError> {
        self.ask(HasChannelNews { channel: channel.to_owned(), news: news.to_owned() }).await
    }

    /// Records that an update was handled, or why it was refused.
    ///
    /// # Errors
    /// When that cannot be recorded.
    pub async fn record_channel_news(
        &self,
        channel: &str,
        news: &str,
        refused: Option<&'static str>,
    ) -> Result<(), StoreError> {
        self.submit(RecordChannelNews { channel: channel.to_owned(), news: news.to_owned(), refused }).await
    }
}
