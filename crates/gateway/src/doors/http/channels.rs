//! Channels to people: how they are, a test message, and what became of each letter about a question.
//!
//! Takes the configuration and what is on record; gives states and reasons without content. Promise: every letter has a
//! state: queued, sent, retrying or refused; a refusal says why in our own words, never in those of the server.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::approval::Subject;
use sluice_core::refusal::Code;
use sluice_store::{Card, Delivery, Store};

use super::reply::Reply;
use super::route::Visit;
use super::status::{self, ChannelStatus};
use super::views::Page;
use crate::channels::{self, Channel, Fault};
use crate::{Gateway, No};

/// What became of the letters to one place about one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeliveryView {
    /// Over which channel.
    pub channel: String,
    /// To which chat or address.
    pub place: String,
    /// `queued`, `sent`, `retrying` or `refused`. A refusal is final.
    pub state: String,
    /// Why it was refused, or is not taken yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it was tried.
    pub attempts: usize,
    /// When it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<String>,
    /// Whether the letter asks a person to confirm an answer of theirs.
    pub asks_to_confirm: bool,
}

/// What became of each letter about a question.
pub(super) async fn deliveries(gw: &Gateway, store: &Store, card: &Card) -> Result<Vec<DeliveryView>, No> {
    let mut views: Vec<DeliveryView> = Vec::new();
    for one in store.deliveries(card.approval.id).await? {
        let same = |view: &&mut DeliveryView| {
            let place = view.channel == one.channel && view.place == one.place;
            place && view.asks_to_confirm == one.proposal.is_some()
        };
        // Attempts come in their order: the last one says how it stands.
        match views.iter_mut().find(same) {
            Some(view) => *view = DeliveryView { attempts: view.attempts + 1, ..of(&one) },
            None => views.push(of(&one)),
        }
    }
    if card.approval.state.is_open() && !card.approval.is_over(gw.now()) {
        for (channel, place) in planned(gw, store, card).await? {
            if !views.iter().any(|view| view.channel == channel && view.place == place) {
                // A request may name a channel that this gateway does not have.
                let missing = !channels::names(&gw.config).contains(&channel.as_str());
                views.push(DeliveryView {
                    state: if missing { "refused".into() } else { "queued".into() },
                    reason: missing.then(|| "this channel is not set up".to_owned()),
                    attempts: 0,
                    sent_at: None,
                    next_try_at: None,
                    asks_to_confirm: false,
                    channel,
                    place,
                });
            }
        }
    }
    Ok(views)
}

fn of(delivery: &Delivery) -> DeliveryView {
    let state = match (&delivery.message, delivery.shown.as_str()) {
        (Some(_), _) => "sent",
        (None, "refused") => "refused",
        (None, "failed") => "retrying",
        (None, _) => "queued",
    };
    DeliveryView {
        channel: delivery.channel.clone(),
        place: delivery.place.clone(),
        state: state.into(),
        reason: delivery.reason.clone(),
        attempts: 1,
        sent_at: delivery.sent_at.map(|at| at.to_string()),
        next_try_at: delivery.next_at.map(|at| at.to_string()),
        asks_to_confirm: delivery.proposal.is_some(),
    }
}

/// Where a question goes first: to the place its request names, or to everyone who is not kept for later.
async fn planned(gw: &Gateway, store: &Store, card: &Card) -> Result<Vec<(String, String)>, No> {
    let names = channels::names(&gw.config);
    if card.approval.subject == Subject::Request
        && let Some(filed) = store.requested(card.approval.id).await?
        && let (Some(channel), Some(place)) = (filed.request.channel, filed.request.place)
    {
        return Ok(vec![(channel, place)]);
    }
    let approvals = &gw.config.approvals;
    let first = approvals.people.iter().filter(|person| !approvals.second.contains(&person.name));
    let place =
        first.filter_map(|person| names.iter().find_map(|name| Some(((*name).to_owned(), person.place(name)?))));
    let mut places: Vec<(String, String)> = place.collect();
    places.dedup();
    Ok(places)
}

/// `GET /v1/channels`.
pub(super) async fn list(visit: Visit) -> Result<Reply, No> {
    let data = status::channels(&visit.gw);
    Ok(Reply::json(200, &Page::<ChannelStatus> { data, next_cursor: None, has_more: false }))
}

/// How a test of a channel went.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChannelTest {
    /// The channel.
    pub name: String,
    /// Whether every person it reaches got the message, and it reaches anybody.
    pub ok: bool,
    /// Each person it reaches.
    pub people: Vec<PersonTest>,
}

/// How a test message to one person went.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PersonTest {
    /// Who.
    pub person: String,
    /// In which chat or at which address.
    pub place: String,
    /// `sent`, `refused` or `not_taken`.
    pub state: String,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/channels/{name}/test`.
pub(super) async fn test(visit: Visit) -> Result<Reply, No> {
    let gw = &visit.gw;
    let name: String = visit.part("name")?;
    let names = channels::names(&gw.config);
    let missing = || {
        let known =
            if names.is_empty() { "none is set up".to_owned() } else { format!("there is {}", names.join(", ")) };
        No::saying(Code::StoreNotFound, &format!("there is no such channel; {known}"))
    };
    let broken = |why: String| No::saying(Code::GatewayUnavailable, &why);
    let channel = channels::configured(&gw.config).map_err(broken)?.into_iter().find(|channel| channel.name() == name);
    let channel = channel.ok_or_else(missing)?;
    let mut people = Vec::new();
    for person in &gw.config.approvals.people {
        let Some(place) = person.place(channel.name()) else { continue };
        let (state, reason) = say(gw, channel.as_ref(), &place).await;
        people.push(PersonTest { person: person.name.to_string(), place, state: state.into(), reason });
    }
    let ok = !people.is_empty() && people.iter().all(|one| one.state == "sent");
    Ok(Reply::json(200, &ChannelTest { name, ok, people }))
}

async fn say(gw: &Gateway, channel: &dyn Channel, place: &str) -> (&'static str, Option<String>) {
    let text = format!("This is a test of the channel {} of Sluicegate. Nothing is asked.", channel.name());
    match channel.say(place, None, &text).await {
        Ok(()) => {
            gw.sending.well(channel.name(), gw.now());
            ("sent", None)
        }
        Err(Fault::Refused { why }) => ("refused", Some(why)),
        Err(fault) => {
            gw.sending.failing(channel.name(), fault.to_string(), gw.now());
            ("not_taken", Some(fault.to_string()))
        }
    }
}
