//! The outbox: what people have to know reaches them, and what they were shown stays true.
//!
//! One step: letters that show an open question which no longer is are changed to its outcome; messages that are due
//! are taken, shown and marked; who has not answered is reminded, and then a second person is asked. Promise: at
//! least once and harmless twice. Each step is on record before the next, so that a kill between any two repeats at
//! most a letter, and every letter that arrived can be answered, once.

mod notices;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, AgentName, ApprovalId, Span};
use sluice_store::{Delivery, Message, Severity, Undelivered};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::tick;
use crate::channels::letter::{self, hash};
use crate::channels::{Channel, Fault, email, links, shown};
use crate::config::{Person, Risk};
use crate::gate::deciding::Question;
use crate::{Gateway, No};

/// How often it looks by itself.
const EVERY: Duration = Duration::from_millis(500);
/// Most messages one step takes.
const PAGE: u32 = 50;
/// How long a message belongs to whoever took it.
const LEASE: Span = Span::from_secs(60);
/// The longest pause between two tries.
const LONGEST_PAUSE: Span = Span::from_mins(5);
/// So many questions of each agent reach a person in an hour, whatever other agents ask.
const RESERVED: u32 = 3;
/// News older than this are no news: nobody is woken for them.
const OLD_NEWS: Span = Span::from_hours(24);

/// The least time between the beginnings of two turns of listening: a server that answers at once must not keep us busy.
const LISTEN_FLOOR: Span = Span::from_millis(500);

/// Channels at work, with what the loop remembers from step to step.
#[derive(Debug)]
pub struct Outbox {
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
    // Without a channel nobody is told: what is written waits in the list of alerts.
    if channels.is_empty() {
        return;
    }
    for channel in &channels {
        loops.spawn(listen(Arc::clone(gw), Arc::clone(channel), stop.clone()));
    }
    loops.spawn(run(Arc::clone(gw), Outbox::new(channels), stop.clone()));
}

async fn run(gw: Arc<Gateway>, outbox: Outbox, mut stop: watch::Receiver<bool>) {
    let mut failing = false;
    while tick(&mut stop, EVERY, gw.letters.notified()).await {
        match outbox.step(&gw).await {
            Ok(()) => failing = false,
            Err(no) if failing => drop(no),
            Err(no) => {
                failing = true;
                tracing::error!(code = no.refusal.code().as_str(), "people cannot be told: {}", no.refusal);
            }
        }
    }
}

/// Hears what people say over one channel, until told to stop.
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
    channel.leave(&gw).await;
}

/// Listens once, after so many failures in a row. Gives how long to wait if that failed; the first time it is said.
pub async fn turn(gw: &Gateway, channel: &dyn Channel, failures: u32) -> Option<Span> {
    let Err(fault) = channel.hear(gw).await else {
        gw.hearing.well(channel.name(), gw.now());
        return None;
    };
    if failures == 0 {
        tracing::warn!("{} is not heard: {fault}", channel.name());
    }
    if let Fault::Broken { why } = &fault
        && failures == 0
    {
        alert(gw, channel.name(), why).await;
    }
    if gw.hearing.failing(channel.name(), fault.to_string(), gw.now()) && !matches!(fault, Fault::Broken { .. }) {
        not_reached(gw, channel.name(), &format!("people are not heard over it: {fault}")).await;
    }
    Some(pause_after(&fault, failures + 1))
}

/// A person has to look: somebody else may be using our name.
async fn alert(gw: &Gateway, channel: &str, why: &str) {
    let body = serde_json::json!({"channel": channel, "why": why});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = Message { id, topic: "channel.broken".into(), severity: Severity::Critical, body };
    if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
        tracing::error!(code = error.code(), "an alert could not be kept");
    }
}

/// People have to know, over another channel, that this one does not work.
async fn not_reached(gw: &Gateway, channel: &str, why: &str) {
    let body = serde_json::json!({"channel": channel, "why": why});
    let id = MessageId::mint(gw.ids.as_ref());
    let message = Message { id, topic: "channel.failing".into(), severity: Severity::Warning, body };
    if let Err(error) = gw.store.alert(message, Actor::Node(gw.store.node().clone())).await {
        tracing::error!(code = error.code(), "an alert could not be kept");
    }
}

fn pause_after(fault: &Fault, failures: u32) -> Span {
    match fault {
        Fault::Later { after: Some(after), .. } => *after,
        _ => Span::from_secs(1 << failures.min(9)).min(LONGEST_PAUSE),
    }
}

/// How showing a letter went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShowOutcome {
    /// It is there, now or since before.
    Shown,
    /// The channel will never take it.
    Refused,
    /// It is tried again after this long.
    Later(Span),
}

/// Somebody to ask, over some channel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    channel: usize,
    place: String,
}

impl Outbox {
    /// Over these channels.
    #[must_use]
    pub fn new(channels: Vec<Arc<dyn Channel>>) -> Self {
        Self { channels, notices: notices::NoticePace::default() }
    }

    /// Does what is due.
    ///
    /// # Errors
    /// When the database cannot be read or written. What a channel fails at is put off.
    pub async fn step(&self, gw: &Gateway) -> Result<(), No> {
        self.show_outcomes(gw).await?;
        for message in gw.store.outbox(gw.now(), PAGE).await? {
            self.deliver(gw, message).await?;
        }
        self.remind(gw).await?;
        self.escalate(gw).await?;
        self.tell_notices(gw).await
    }

    /// Letters whose question has its answer say so.
    async fn show_outcomes(&self, gw: &Gateway) -> Result<(), No> {
        for delivery in gw.store.stale_deliveries(PAGE).await? {
            let question = Question::read(gw, delivery.approval).await?;
            let state = question.card.approval.state.word();
            let Some(channel) = self.channels.iter().find(|channel| channel.name() == delivery.channel) else {
                continue;
            };
            let Some(message) = delivery.message.clone() else { continue };
            // The outcome goes to the letter with the question; a mail that asked to confirm cannot be changed.
            if delivery.proposal.is_some() && delivery.channel == email::NAME {
                gw.store.delivery_shows(delivery, state).await?;
                continue;
            }
            match channel.edit(&delivery.place, &message, &letter::outcome(gw, &question)).await {
                // What can never be changed is not tried for ever.
                Ok(()) | Err(Fault::Refused { .. }) => gw.store.delivery_shows(delivery, state).await?,
                Err(fault) => tracing::debug!("an outcome is not shown yet: {fault}"),
            }
        }
        Ok(())
    }

    /// One message, to everyone it is for.
    async fn deliver(&self, gw: &Gateway, due: Undelivered) -> Result<(), No> {
        let Undelivered { message, attempts, created_at } = due;
        if !gw.store.take_message(message.id, attempts, gw.now() + LEASE).await? {
            return Ok(());
        }
        let old = gw.now().since(created_at) > OLD_NEWS;
        let later = match message.topic.as_str() {
            "approval.asked" => self.ask(gw, &message, attempts).await?,
            "approval.confirm" => self.confirm(gw, &message, attempts).await?,
            _ if old || matches!(message.severity, Severity::Info | Severity::Action) => None,
            _ => self.tell(gw, &message, attempts).await,
        };
        match later {
            None => gw.store.delivered(message.id).await?,
            Some(pause) => gw.store.deliver_later(message.id, gw.now() + pause).await?,
        }
        Ok(())
    }

    /// Shows a question to everyone who is asked. Gives how long to wait where that was not possible.
    async fn ask(&self, gw: &Gateway, message: &Message, attempts: u32) -> Result<Option<Span>, No> {
        let id: Option<ApprovalId> = message.body.get("approval").and_then(|id| id.as_str()?.parse().ok());
        let Some(id) = id else { return Ok(None) };
        let question = Question::read(gw, id).await?;
        if !question.card.approval.state.is_open() || question.card.approval.is_over(gw.now()) {
            return Ok(None);
        }
        // Somebody answered a letter that shows fewer writes than the question covers now.
        let again = message.body.get("again").and_then(serde_json::Value::as_bool) == Some(true);
        let least = if again { question.card.approval.items } else { 0 };
        let mut later = None;
        for ways in self.asked(gw, &question) {
            // Where a channel will never take it, or has not worked for a while, the person is asked over their next one.
            for target in ways {
                match self.show(gw, &question, &target, (attempts, least)).await? {
                    ShowOutcome::Shown => break,
                    ShowOutcome::Refused => {}
                    ShowOutcome::Later(pause) => {
                        later = Some(later.map_or(pause, |known: Span| known.min(pause)));
                        if !self.is_down(gw, &target) {
                            break;
                        }
                    }
                }
            }
        }
        Ok(later)
    }

    fn is_down(&self, gw: &Gateway, target: &Target) -> bool {
        self.channels.get(target.channel).is_some_and(|channel| gw.sending.is_down(channel.name(), gw.now()))
    }

    /// Sends back what was understood of a reply, for its person to confirm.
    async fn confirm(&self, gw: &Gateway, message: &Message, attempts: u32) -> Result<Option<Span>, No> {
        let Some(proposal) = gw.store.proposed_answer(message.id).await? else { return Ok(None) };
        let question = Question::read(gw, proposal.approval).await?;
        let over = !question.card.approval.state.is_open() || question.card.approval.is_over(gw.now());
        let channel = self.channels.iter().find(|channel| channel.name() == proposal.channel);
        let Some(channel) = channel.filter(|_| !over) else { return Ok(None) };
        let sent = |known: &Delivery| known.proposal == Some(proposal.id) && known.message.is_some();
        if gw.store.deliveries(proposal.approval).await?.iter().any(sent) {
            return Ok(None);
        }
        let (secret, place) = (secret(gw), (channel.name(), proposal.place.as_str()));
        let covered = (question.card.items.as_slice(), Some(proposal.id));
        let delivery = gw.store.open_letter(proposal.approval, place, hash(&secret), covered).await?;
        let room = (channel.room(), ceiling(gw, channel.name()));
        let letter = letter::confirmation(gw, &question, &proposal, room, secret);
        Ok(match self.send(gw, channel.as_ref(), (delivery, &letter), attempts).await? {
            ShowOutcome::Shown | ShowOutcome::Refused => None,
            ShowOutcome::Later(pause) => Some(pause),
        })
    }

    /// Hands a letter that is on record to its channel, and writes down what came of it.
    async fn send(
        &self,
        gw: &Gateway,
        channel: &dyn Channel,
        (delivery, letter): (Delivery, &letter::Letter),
        tries: u32,
    ) -> Result<ShowOutcome, No> {
        let (name, now) = (channel.name(), gw.now());
        match channel.show(letter).await {
            Ok(message) => {
                gw.store.delivery_sent(delivery, message).await?;
                gw.sending.well(name, now);
                Ok(ShowOutcome::Shown)
            }
            Err(Fault::Refused { why }) => {
                tracing::warn!("a question cannot be shown over {name}: {why}");
                let slot = now.as_millis() / i64::try_from(Span::from_hours(1).as_millis()).unwrap_or(i64::MAX);
                let news = format!("refused:{}:{slot}", delivery.place);
                gw.store.delivery_refused(delivery, &why).await?;
                // The channel answers; it is this place that does not take letters. People hear so once an hour.
                gw.sending.well(name, now);
                if !gw.store.has_heard(name, &news).await? {
                    gw.store.hear(name, &news, None).await?;
                    not_reached(gw, name, &format!("a question was refused for good: {why}")).await;
                }
                Ok(ShowOutcome::Refused)
            }
            Err(fault) => {
                tracing::debug!("a question is not shown yet: {fault}");
                let pause = pause_after(&fault, tries);
                gw.store.delivery_failed(delivery, &fault.to_string(), now + pause).await?;
                self.sending_fails(gw, name, &fault).await;
                Ok(ShowOutcome::Later(pause))
            }
        }
    }

    /// A channel did not take something. Once that has lasted, people are told over another one.
    async fn sending_fails(&self, gw: &Gateway, name: &'static str, fault: &Fault) {
        if gw.sending.failing(name, fault.to_string(), gw.now()) {
            not_reached(gw, name, &format!("nothing is delivered over it: {fault}")).await;
        }
    }

    /// Shows a question at one place, unless it was shown there with at least so many of its writes. Gives how long to
    /// wait if that is not possible now.
    async fn show(
        &self,
        gw: &Gateway,
        question: &Question,
        target: &Target,
        (tries, least): (u32, u32),
    ) -> Result<ShowOutcome, No> {
        let Some(channel) = self.channels.get(target.channel) else { return Ok(ShowOutcome::Refused) };
        let (id, name) = (question.card.approval.id, channel.name());
        let items = &question.card.items;
        let here = |known: &Delivery| {
            let is_sent = known.channel == name && known.place == target.place && known.message.is_some();
            is_sent && (least == 0 || known.covers(items) >= least)
        };
        let before = gw.store.deliveries(id).await?;
        if before.iter().any(here) {
            return Ok(ShowOutcome::Shown);
        }
        let at = |known: &&Delivery| known.channel == name && known.place == target.place;
        if before.iter().filter(at).any(|known| known.shown == "refused") {
            return Ok(ShowOutcome::Refused);
        }
        if self.is_too_much(gw, channel.as_ref(), &target.place, &question.card.approval.agent).await? {
            return Ok(ShowOutcome::Later(Span::from_mins(1)));
        }
        let ceiling = ceiling(gw, name);
        let secret = secret(gw);
        // On record first: if we are killed after sending, whoever got the letter can still answer it.
        let delivery = gw.store.open_delivery(id, (name, &target.place), hash(&secret), items).await?;
        let letter = letter::letter(gw, question, &target.place, (channel.room(), ceiling), secret);
        if let Some(findings) = &letter.withheld {
            gw.store.withheld(id, name, findings.clone()).await?;
        }
        let link = match links::alone_at(gw, name, &target.place) {
            Some(person) => links::link(gw, id, person, name).await?,
            None => None,
        };
        // A chat has little room; a mailbox is where people keep things.
        let end = if name == email::NAME { letter::checkpoint(gw) } else { String::new() };
        let letter = letter.with_link(link.as_deref()).with_end(&end);
        self.send(gw, channel.as_ref(), (delivery, &letter), tries).await
    }

    /// Whether somebody has had as many questions as they can read in an hour: of this agent, or of all. They are told so
    /// once an hour for each agent whose questions wait. The questions stay open and are sent later.
    async fn is_too_much(
        &self,
        gw: &Gateway,
        channel: &dyn Channel,
        place: &str,
        agent: &AgentName,
    ) -> Result<bool, No> {
        let hour = Span::from_hours(1);
        let approvals = &gw.config.approvals;
        let since = gw.now() - hour;
        let own = gw.store.shown_of_agent_since(channel.name(), place, agent.clone(), since).await?;
        let all = gw.store.shown_since(channel.name(), place, since).await?;
        // However many questions others have asked, the first ones of an agent reach people.
        let is_full = all >= approvals.prompts_per_hour && own >= RESERVED.min(approvals.prompts_per_hour);
        if own < approvals.prompts_per_agent && !is_full {
            return Ok(false);
        }
        let slot = gw.now().as_millis() / i64::try_from(hour.as_millis()).unwrap_or(i64::MAX);
        let news = format!("folded:{place}:{agent}:{slot}");
        if !gw.store.has_heard(channel.name(), &news).await? {
            let waiting = gw.store.open_not_shown(channel.name(), place, agent.clone()).await?;
            let more = if waiting == 1 { "more question" } else { "more questions" };
            let text = format!("agent {agent} has {waiting} {more} waiting. See all: sluice approvals list");
            if channel.say(place, None, &text).await.is_ok() {
                gw.store.hear(channel.name(), &news, None).await?;
            }
        }
        Ok(true)
    }

    /// Tells everyone something that is no question.
    async fn tell(&self, gw: &Gateway, message: &Message, attempts: u32) -> Option<Span> {
        let text = shown::news(gw, message) + &letter::checkpoint(gw);
        let mut later = None;
        // News about a channel go over another one, where the person has one.
        let about = message.body.get("channel").and_then(serde_json::Value::as_str);
        for mut ways in self.ways(gw.config.approvals.people.iter()) {
            let is_poor = |target: &Target| {
                let name = self.channels.get(target.channel).map(|channel| channel.name());
                name.is_some_and(|name| Some(name) == about || gw.sending.is_down(name, gw.now()))
            };
            ways.sort_by_key(is_poor);
            let mut pause = None;
            for target in ways {
                let Some(channel) = self.channels.get(target.channel) else { continue };
                match channel.say(&target.place, None, &text).await {
                    Ok(()) => {
                        gw.sending.well(channel.name(), gw.now());
                        pause = None;
                        break;
                    }
                    Err(Fault::Refused { .. }) => {}
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

    /// Who is asked: whom the request names, or everyone who is not kept for later.
    fn asked(&self, gw: &Gateway, question: &Question) -> Vec<Vec<Target>> {
        let named = question.filed.as_ref().and_then(|filed| {
            let (channel, place) = (filed.request.channel.as_deref()?, filed.request.place.clone()?);
            Some((channel, place))
        });
        match named {
            Some((channel, place)) => {
                let at = self.channels.iter().position(|known| known.name() == channel);
                at.map(|channel| vec![Target { channel, place }]).into_iter().collect()
            }
            None => {
                let second = &gw.config.approvals.second;
                let first = |person: &&Person| !second.contains(&person.name);
                self.ways(gw.config.approvals.people.iter().filter(first))
            }
        }
    }

    /// How each of these people can be reached, their first channel first. Two people in one chat see one letter.
    fn ways<'a>(&self, people: impl Iterator<Item = &'a Person>) -> Vec<Vec<Target>> {
        let mut all: Vec<Vec<Target>> = Vec::new();
        for person in people {
            let ways: Vec<Target> = self.targets_of(person);
            if !ways.is_empty() && !all.iter().any(|known| known.first() == ways.first()) {
                all.push(ways);
            }
        }
        all
    }

    /// Every channel over which a person can be reached.
    fn targets_of(&self, person: &Person) -> Vec<Target> {
        let target = |(channel, known): (usize, &Arc<dyn Channel>)| {
            person.place(known.name()).map(|place| Target { channel, place })
        };
        self.channels.iter().enumerate().filter_map(target).collect()
    }

    /// Who has not answered hears of it once more.
    async fn remind(&self, gw: &Gateway) -> Result<(), No> {
        let after = gw.config.approvals.remind_after;
        if after == Span::ZERO {
            return Ok(());
        }
        for delivery in gw.store.unanswered_deliveries(gw.now(), gw.now() - after, PAGE).await? {
            let Some(channel) = self.channels.iter().find(|channel| channel.name() == delivery.channel) else {
                continue;
            };
            let text = format!("Still waiting for an answer: {}", delivery.approval);
            match channel.say(&delivery.place, delivery.message.as_deref(), &text).await {
                Ok(()) | Err(Fault::Refused { .. }) => gw.store.delivery_reminded(delivery).await?,
                Err(fault) => tracing::debug!("nobody is reminded yet: {fault}"),
            }
        }
        Ok(())
    }

    /// Where nobody answers, a second person is asked.
    async fn escalate(&self, gw: &Gateway) -> Result<(), No> {
        let approvals = &gw.config.approvals;
        let second = |person: &&Person| approvals.second.contains(&person.name);
        let everyone = self.ways(approvals.people.iter().filter(second));
        if everyone.is_empty() {
            return Ok(());
        }
        for open in gw.store.open_approvals(PAGE).await? {
            if gw.now().since(open.asked_at) < approvals.escalate_after || open.is_over(gw.now()) {
                continue;
            }
            let question = Question::read(gw, open.id).await?;
            for ways in &everyone {
                for target in ways {
                    if self.show(gw, &question, target, (1, 0)).await? != ShowOutcome::Refused
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

/// 128 bits nobody can guess, as 22 characters.
fn secret(gw: &Gateway) -> String {
    let mut bytes = [0; 16];
    gw.entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}
