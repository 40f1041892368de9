//! The outbox: delivers messages to people, and keeps the messages that were shown up to date.
//!
//! One step: messages whose approval is decided are changed to its outcome; messages that are due are taken, shown and
//! marked; people who have not answered are reminded, and then a second person is asked. Promise: delivery at least
//! once, and a repeat is harmless. Each step is recorded before the next, so that a kill between any two repeats at
//! most one message, and every message that arrived can be answered, once.

mod notices;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sluice_config::{ConfiguredPerson, Risk};
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Millis};
use sluice_services::CallError;
use sluice_services::timer::tick;
use sluice_store::{ApprovalDelivery, MessageSeverity, OutboxMessage, UndeliveredMessage};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Gateway;
use crate::channels::approval_message::{self, hash};
use crate::channels::{Channel, ChannelError, email, links};
use crate::gate::deciding::ApprovalRequest;
use crate::gate::rendering;

/// How often the loop runs without a wake.
const EVERY: Duration = Duration::from_millis(500);
/// Most messages one step takes.
const PAGE: u32 = 50;
/// How long a message belongs to the node that took it.
const LEASE: Millis = Millis::from_secs(60);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Millis = Millis::from_mins(5);
/// How many approvals of each agent reach a person in an hour, whatever other agents ask.
const RESERVED: u32 = 3;
/// Messages older than this are marked as delivered without notifying anybody.
const OLD_NEWS: Millis = Millis::from_hours(24);

/// The least time between the starts of two rounds of listening: a server that answers at once must not keep us busy.
const LISTEN_FLOOR: Millis = Millis::from_millis(500);

/// The channels, with what the loop remembers from step to step.
#[derive(Debug)]
pub struct OutboxLoop {
    channels: Vec<Arc<dyn Channel>>,
    notices: notices::NoticePace,
}

/// Starts the loop, and one listener for each channel.
pub(crate) fn spawn(
    loops: &mut JoinSet<()>,
    gw: &Arc<Gateway>,
    channels: Vec<Arc<dyn Channel>>,
    stop: &watch::Receiver<bool>,
) {
    // Without a channel nobody is notified: messages wait in the list of alerts.
    if channels.is_empty() {
        return;
    }
    for channel in &channels {
        loops.spawn(listen(Arc::clone(gw), Arc::clone(channel), stop.clone()));
    }
    loops.spawn(run(Arc::clone(gw), OutboxLoop::new(channels), stop.clone()));
}

async fn run(gw: Arc<Gateway>, outbox: OutboxLoop, mut stop: watch::Receiver<bool>) {
    let mut failing = false;
    while tick(&mut stop, EVERY, gw.signals.letters.notified()).await {
        match outbox.step(&gw).await {
            Ok(()) => failing = false,
            Err(no) if failing => drop(no),
            Err(no) => {
                failing = true;
                tracing::error!(
                    code = no.refusal.code().as_str(),
                    "messages to people cannot be delivered: {}",
                    no.refusal
                );
            }
        }
    }
}

/// Receives answers over one channel, until told to stop.
pub async fn listen(gw: Arc<Gateway>, channel: Arc<dyn Channel>, mut stop: watch::Receiver<bool>) {
    let mut failures = 0_u32;
    loop {
        let began = gw.clock.since_boot();
        let pause = tokio::select! {
            pause = turn(&gw, channel.as_ref(), failures) => pause,
            _ = stop.changed() => break,
        };
        let Some(pause) = pause else {
            failures = 0;
            let took = gw.clock.since_boot().as_millis().saturating_sub(began.as_millis());
            let rest = Duration::from_millis(LISTEN_FLOOR.as_millis().saturating_sub(took));
            if !tick(&mut stop, rest, std::future::pending()).await {
                break;
            }
            continue;
        };
        failures += 1;
        if !tick(&mut stop, pause.as_duration(), std::future::pending()).await {
            break;
        }
    }
    channel.shut_down(&gw).await;
}

/// Listens once, after so many failures in a row. Returns how long to wait if that failed; only the first failure is
/// logged.
pub async fn turn(gw: &Gateway, channel: &dyn Channel, failures: u32) -> Option<Millis> {
    let Err(fault) = channel.receive_answers(gw).await else {
        gw.hearing.mark_healthy(channel.name(), gw.now());
        return None;
    };
    if failures == 0 {
        tracing::warn!("answers cannot be received over {}: {fault}", channel.name());
    }
    if let ChannelError::Broken { why } = &fault
        && failures == 0
    {
        alert(gw, channel.name(), why).await;
    }
    if gw.hearing.mark_failing(channel.name(), fault.to_string(), gw.now())
        && !matches!(fault, ChannelError::Broken { .. })
    {
        not_reached(gw, channel.name(), &format!("answers cannot be received over it: {fault}")).await;
    }
    Some(pause_after(&fault, failures + 1))
}

/// Alerts people: another program may be using our identity.
async fn alert(gw: &Gateway, channel: &str, why: &str) {
    let body = serde_json::json!({"channel": channel, "why": why});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = OutboxMessage { id, topic: "channel.broken".into(), severity: MessageSeverity::Critical, body };
    if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
        tracing::error!(code = error.code(), "an alert could not be stored");
    }
}

/// Tells people over another channel that this one does not work.
async fn not_reached(gw: &Gateway, channel: &str, why: &str) {
    let body = serde_json::json!({"channel": channel, "why": why});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = OutboxMessage { id, topic: "channel.failing".into(), severity: MessageSeverity::Warning, body };
    if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
        tracing::error!(code = error.code(), "an alert could not be stored");
    }
}

fn pause_after(fault: &ChannelError, failures: u32) -> Millis {
    match fault {
        ChannelError::Later { after: Some(after), .. } => *after,
        _ => Millis::from_secs(1 << failures.min(9)).min(LONGEST_PAUSE),
    }
}

/// The outcome of showing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChannelShowOutcome {
    /// The message is there, from now or from an earlier attempt.
    Shown,
    /// The channel will never accept it.
    Refused,
    /// It is tried again after this time.
    Later(Millis),
}

/// A person to ask: a channel and a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeliveryTarget {
    channel: usize,
    place: String,
}

impl OutboxLoop {
    /// Makes an outbox for these channels.
    #[must_use]
    pub fn new(channels: Vec<Arc<dyn Channel>>) -> Self {
        Self { channels, notices: notices::NoticePace::default() }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// When the database cannot be read or written. A message that a channel fails to deliver is tried later.
    pub async fn step(&self, gw: &Gateway) -> Result<(), CallError> {
        self.show_outcomes(gw).await?;
        for message in gw.store.due_messages(gw.now(), PAGE).await? {
            self.deliver(gw, message).await?;
        }
        self.remind(gw).await?;
        self.escalate(gw).await?;
        self.tell_notices(gw).await
    }

    /// Changes messages whose approval is decided to its outcome.
    async fn show_outcomes(&self, gw: &Gateway) -> Result<(), CallError> {
        for delivery in gw.store.stale_deliveries(PAGE).await? {
            let question = ApprovalRequest::read(gw, delivery.approval).await?;
            let state = question.card.approval.state.word();
            let Some(channel) = self.channels.iter().find(|channel| channel.name() == delivery.channel) else {
                continue;
            };
            let Some(message) = delivery.message.clone() else { continue };
            // The outcome goes to the message with the approval request; a mail that asked to confirm cannot be
            // changed.
            if delivery.proposal.is_some() && delivery.channel == email::NAME {
                gw.store.record_delivery_shown(delivery, state).await?;
                continue;
            }
            match channel.edit(&delivery.place, &message, &approval_message::render_outcome(gw, &question)).await {
                // A message that can never be changed is not tried again.
                Ok(()) | Err(ChannelError::Refused { .. }) => gw.store.record_delivery_shown(delivery, state).await?,
                Err(fault) => tracing::debug!("an outcome is not shown yet: {fault}"),
            }
        }
        Ok(())
    }

    /// Delivers one message to everyone it is for.
    async fn deliver(&self, gw: &Gateway, due: UndeliveredMessage) -> Result<(), CallError> {
        let UndeliveredMessage { message, attempts, created_at } = due;
        if !gw.store.claim_outbox_message(message.id, attempts, gw.now() + LEASE).await? {
            return Ok(());
        }
        let old = gw.now().since(created_at) > OLD_NEWS;
        let later = match message.topic.as_str() {
            "approval.asked" => self.ask(gw, &message, attempts).await?,
            "approval.confirm" => self.confirm(gw, &message, attempts).await?,
            _ if old || matches!(message.severity, MessageSeverity::Info | MessageSeverity::Action) => None,
            _ => self.tell(gw, &message, attempts).await,
        };
        match later {
            None => gw.store.mark_delivered(message.id).await?,
            Some(pause) => gw.store.deliver_later(message.id, gw.now() + pause).await?,
        }
        Ok(())
    }

    /// Shows an approval request to everyone who is asked. Returns how long to wait if that was not possible.
    async fn ask(&self, gw: &Gateway, message: &OutboxMessage, attempts: u32) -> Result<Option<Millis>, CallError> {
        let id: Option<ApprovalId> = message.body.get("approval").and_then(|id| id.as_str()?.parse().ok());
        let Some(id) = id else { return Ok(None) };
        let question = ApprovalRequest::read(gw, id).await?;
        if !question.card.approval.state.is_open() || question.card.approval.is_over(gw.now()) {
            return Ok(None);
        }
        // A person answered a message that shows fewer writes than the approval covers now.
        let again = message.body.get("again").and_then(serde_json::Value::as_bool) == Some(true);
        let least = if again { question.card.approval.items } else { 0 };
        let mut later = None;
        for ways in self.asked(gw, &question) {
            // If a channel will never accept it, or has not worked for a while, the person is asked over their next
            // channel.
            for target in ways {
                match self.show(gw, &question, &target, (attempts, least)).await? {
                    ChannelShowOutcome::Shown => break,
                    ChannelShowOutcome::Refused => {}
                    ChannelShowOutcome::Later(pause) => {
                        later = Some(later.map_or(pause, |known: Millis| known.min(pause)));
                        if !self.is_down(gw, &target) {
                            break;
                        }
                    }
                }
            }
        }
        Ok(later)
    }

    fn is_down(&self, gw: &Gateway, target: &DeliveryTarget) -> bool {
        self.channels.get(target.channel).is_some_and(|channel| gw.sending.is_down(channel.name(), gw.now()))
    }

    /// Sends back what was understood of a reply, for the person to confirm.
    async fn confirm(&self, gw: &Gateway, message: &OutboxMessage, attempts: u32) -> Result<Option<Millis>, CallError> {
        let Some(proposal) = gw.store.proposed_answer(message.id).await? else { return Ok(None) };
        let question = ApprovalRequest::read(gw, proposal.approval).await?;
        let over = !question.card.approval.state.is_open() || question.card.approval.is_over(gw.now());
        let channel = self.channels.iter().find(|channel| channel.name() == proposal.channel);
        let Some(channel) = channel.filter(|_| !over) else { return Ok(None) };
        let sent = |known: &ApprovalDelivery| known.proposal == Some(proposal.id) && known.message.is_some();
        if gw.store.deliveries(proposal.approval).await?.iter().any(sent) {
            return Ok(None);
        }
        let (secret, place) = (secret(gw), (channel.name(), proposal.place.as_str()));
        let covered = (question.card.items.as_slice(), Some(proposal.id));
        let delivery = gw.store.open_confirmation_delivery(proposal.approval, place, hash(&secret), covered).await?;
        let room = (channel.max_message_chars(), ceiling(gw, channel.name()));
        let letter = approval_message::render_confirmation(gw, &question, &proposal, room, secret);
        Ok(match self.send(gw, channel.as_ref(), (delivery, &letter), attempts).await? {
            ChannelShowOutcome::Shown | ChannelShowOutcome::Refused => None,
            ChannelShowOutcome::Later(pause) => Some(pause),
        })
    }

    /// Gives a recorded message to its channel, and records the outcome.
    async fn send(
        &self,
        gw: &Gateway,
        channel: &dyn Channel,
        (delivery, letter): (ApprovalDelivery, &approval_message::ApprovalMessage),
        tries: u32,
    ) -> Result<ChannelShowOutcome, CallError> {
        let (name, now) = (channel.name(), gw.now());
        match channel.show(letter).await {
            Ok(message) => {
                gw.store.record_delivery_sent(delivery, message).await?;
                gw.sending.mark_healthy(name, now);
                Ok(ChannelShowOutcome::Shown)
            }
            Err(ChannelError::Refused { why }) => {
                tracing::warn!("an approval request cannot be shown over {name}: {why}");
                let slot = now.as_millis() / i64::try_from(Millis::from_hours(1).as_millis()).unwrap_or(i64::MAX);
                let news = format!("refused:{}:{slot}", delivery.place);
                gw.store.record_delivery_refused(delivery, &why).await?;
                // The channel works; only this place does not accept messages. People are told so once an hour.
                gw.sending.mark_healthy(name, now);
                if !gw.store.has_channel_news(name, &news).await? {
                    gw.store.record_channel_news(name, &news, None).await?;
                    not_reached(gw, name, &format!("an approval request was permanently refused: {why}")).await;
                }
                Ok(ChannelShowOutcome::Refused)
            }
            Err(fault) => {
                tracing::debug!("an approval request is not shown yet: {fault}");
                let pause = pause_after(&fault, tries);
                gw.store.record_delivery_failed(delivery, &fault.to_string(), now + pause).await?;
                self.sending_fails(gw, name, &fault).await;
                Ok(ChannelShowOutcome::Later(pause))
            }
        }
    }

    /// A channel did not accept a message. If that lasts, people are told over another channel.
    async fn sending_fails(&self, gw: &Gateway, name: &'static str, fault: &ChannelError) {
        if gw.sending.mark_failing(name, fault.to_string(), gw.now()) {
            not_reached(gw, name, &format!("nothing is delivered over it: {fault}")).await;
        }
    }

    /// Shows an approval request at one place, unless it was shown there with at least so many of its writes. Returns
    /// how long to wait if that is not possible now.
    async fn show(
        &self,
        gw: &Gateway,
        question: &ApprovalRequest,
        target: &DeliveryTarget,
        (tries, least): (u32, u32),
    ) -> Result<ChannelShowOutcome, CallError> {
        let Some(channel) = self.channels.get(target.channel) else { return Ok(ChannelShowOutcome::Refused) };
        let (id, name) = (question.card.approval.id, channel.name());
        let items = &question.card.items;
        let here = |known: &ApprovalDelivery| {
            let is_sent = known.channel == name && known.place == target.place && known.message.is_some();
            is_sent && (least == 0 || known.covers(items) >= least)
        };
        let before = gw.store.deliveries(id).await?;
        if before.iter().any(here) {
            return Ok(ChannelShowOutcome::Shown);
        }
        let at = |known: &&ApprovalDelivery| known.channel == name && known.place == target.place;
        if before.iter().filter(at).any(|known| known.shown == "refused") {
            return Ok(ChannelShowOutcome::Refused);
        }
        if self.is_too_much(gw, channel.as_ref(), &target.place, &question.card.approval.agent).await? {
            return Ok(ChannelShowOutcome::Later(Millis::from_mins(1)));
        }
        let ceiling = ceiling(gw, name);
        let secret = secret(gw);
        // Recorded first: if we are killed after sending, the person who got the message can still answer it.
        let delivery = gw.store.open_delivery(id, (name, &target.place), hash(&secret), items).await?;
        let letter = approval_message::render_request(
            gw,
            question,
            &target.place,
            (channel.max_message_chars(), ceiling),
            secret,
        );
        if let Some(findings) = &letter.withheld {
            gw.store.record_content_withheld(id, name, findings.clone()).await?;
        }
        let link = match links::alone_at(gw, name, &target.place) {
            Some(person) => links::create_link(gw, id, person, name).await?,
            None => None,
        };
        // A chat has little room; a mailbox is an archive.
        let end = if name == email::NAME { approval_message::checkpoint(gw) } else { String::new() };
        let letter = letter.with_link(link.as_deref()).with_end(&end);
        self.send(gw, channel.as_ref(), (delivery, &letter), tries).await
    }

    /// Whether a place has had as many approval requests as a person can read in an hour: of this agent, or of all. The
    /// person is told so once an hour for each agent whose requests wait. The requests stay open and are sent later.
    async fn is_too_much(
        &self,
        gw: &Gateway,
        channel: &dyn Channel,
        place: &str,
        agent: &AgentName,
    ) -> Result<bool, CallError> {
        let hour = Millis::from_hours(1);
        let approvals = &gw.config.approvals;
        let since = gw.now() - hour;
        let own = gw.store.count_shown_of_agent_since(channel.name(), place, agent.clone(), since).await?;
        let all = gw.store.count_shown_since(channel.name(), place, since).await?;
        // However many requests other agents make, the first ones of an agent reach people.
        let is_full = all >= approvals.prompts_per_hour && own >= RESERVED.min(approvals.prompts_per_hour);
        if own < approvals.prompts_per_agent && !is_full {
            return Ok(false);
        }
        let slot = gw.now().as_millis() / i64::try_from(hour.as_millis()).unwrap_or(i64::MAX);
        let news = format!("folded:{place}:{agent}:{slot}");
        if !gw.store.has_channel_news(channel.name(), &news).await? {
            let waiting = gw.store.count_open_not_shown(channel.name(), place, agent.clone()).await?;
            let more = if waiting == 1 { "more approval request" } else { "more approval requests" };
            let text = format!("agent {agent} has {waiting} {more} waiting. See all: sluice approvals list");
            if channel.say(place, None, &text).await.is_ok() {
                gw.store.record_channel_news(channel.name(), &news, None).await?;
            }
        }
        Ok(true)
    }

    /// Sends everyone a message that is not an approval request.
    async fn tell(&self, gw: &Gateway, message: &OutboxMessage, attempts: u32) -> Option<Millis> {
        let text = rendering::render_notice(gw, message) + &approval_message::checkpoint(gw);
        let mut later = None;
        // A message about a channel goes over another one, if the person has one.
        let about = message.body.get("channel").and_then(serde_json::Value::as_str);
        for mut ways in self.ways(gw.config.approvals.people.iter()) {
            let is_poor = |target: &DeliveryTarget| {
                let name = self.channels.get(target.channel).map(|channel| channel.name());
                name.is_some_and(|name| Some(name) == about || gw.sending.is_down(name, gw.now()))
            };
            ways.sort_by_key(is_poor);
            let mut pause = None;
            for target in ways {
                let Some(channel) = self.channels.get(target.channel) else { continue };
                match channel.say(&target.place, None, &text).await {
                    Ok(()) => {
                        gw.sending.mark_healthy(channel.name(), gw.now());
                        pause = None;
                        break;
                    }
                    Err(ChannelError::Refused { .. }) => {}
                    Err(fault) => {
                        self.sending_fails(gw, channel.name(), &fault).await;
                        pause = Some(pause_after(&fault, attempts));
                    }
                }
            }
            later = later.into_iter().chain(pause).min();
        }
        later
    }

    /// The people who are asked: those whom the request names, or everyone who is not kept for later.
    fn asked(&self, gw: &Gateway, question: &ApprovalRequest) -> Vec<Vec<DeliveryTarget>> {
        let named = question.filed.as_ref().and_then(|filed| {
            let (channel, place) = (filed.request.channel.as_deref()?, filed.request.place.clone()?);
            Some((channel, place))
        });
        match named {
            Some((channel, place)) => {
                let at = self.channels.iter().position(|known| known.name() == channel);
                at.map(|channel| vec![DeliveryTarget { channel, place }]).into_iter().collect()
            }
            None => {
                let second = &gw.config.approvals.second;
                let first = |person: &&ConfiguredPerson| !second.contains(&person.name);
                self.ways(gw.config.approvals.people.iter().filter(first))
            }
        }
    }

    /// How each of these people can be reached, their first channel first. Two people in one chat see one message.
    fn ways<'a>(&self, people: impl Iterator<Item = &'a ConfiguredPerson>) -> Vec<Vec<DeliveryTarget>> {
        let mut all: Vec<Vec<DeliveryTarget>> = Vec::new();
        for person in people {
            let ways: Vec<DeliveryTarget> = self.targets_of(person);
            if !ways.is_empty() && !all.iter().any(|known| known.first() == ways.first()) {
                all.push(ways);
            }
        }
        all
    }

    /// Every channel over which a person can be reached.
    fn targets_of(&self, person: &ConfiguredPerson) -> Vec<DeliveryTarget> {
        let target = |(channel, known): (usize, &Arc<dyn Channel>)| {
            person.place(known.name()).map(|place| DeliveryTarget { channel, place })
        };
        self.channels.iter().enumerate().filter_map(target).collect()
    }

    /// Reminds people who have not answered, once.
    async fn remind(&self, gw: &Gateway) -> Result<(), CallError> {
        let after = gw.config.approvals.remind_after;
        if after == Millis::ZERO {
            return Ok(());
        }
        for delivery in gw.store.unanswered_deliveries(gw.now(), gw.now() - after, PAGE).await? {
            let Some(channel) = self.channels.iter().find(|channel| channel.name() == delivery.channel) else {
                continue;
            };
            let text = format!("Still waiting for an answer: {}", delivery.approval);
            match channel.say(&delivery.place, delivery.message.as_deref(), &text).await {
                Ok(()) | Err(ChannelError::Refused { .. }) => gw.store.record_delivery_reminded(delivery).await?,
                Err(fault) => tracing::debug!("a reminder is not sent yet: {fault}"),
            }
        }
        Ok(())
    }

    /// Asks a second person if nobody answers.
    async fn escalate(&self, gw: &Gateway) -> Result<(), CallError> {
        let approvals = &gw.config.approvals;
        let second = |person: &&ConfiguredPerson| approvals.second.contains(&person.name);
        let everyone = self.ways(approvals.people.iter().filter(second));
        if everyone.is_empty() {
            return Ok(());
        }
        for open in gw.store.open_approvals(PAGE).await? {
            if gw.now().since(open.asked_at) < approvals.escalate_after || open.is_over(gw.now()) {
                continue;
            }
            let question = ApprovalRequest::read(gw, open.id).await?;
            for ways in &everyone {
                for target in ways {
                    if self.show(gw, &question, target, (1, 0)).await? != ChannelShowOutcome::Refused
                        && !self.is_down(gw, target)
                    {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

fn ceiling(gw: &Gateway, channel: &str) -> Risk {
    match channel {
        "telegram" => gw.config.approvals.telegram_ceiling,
        "email" => gw.config.approvals.email_ceiling,
        _ => Risk::Low,
    }
}

/// A random secret of 128 bits, as 22 characters.
fn secret(gw: &Gateway) -> String {
    let mut bytes = [0; 16];
    gw.entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}
