//! Channels to people: their condition, a test message, and the delivery state of each message about an approval.
//!
//! Takes the configuration and what is recorded; gives states and reasons without content. Promise: every message has a
//! state: queued, sent, retrying or refused; a refusal gives the reason in our own words, never in those of the server.

use schemars::JsonSchema;
use serde::Serialize;
use sluice_core::approval::ApprovalSubject;
use sluice_core::refusal::Code;
use sluice_gateway::Gateway;
use sluice_gateway::channels::{self, Channel, ChannelError};
use sluice_services::CallError;
use sluice_store::{ApprovalCard, ApprovalDelivery, Store};

use super::reply::HttpReply;
use super::route::RoutedRequest;
use super::status::{self, ChannelStatusView};
use super::views::ListPage;

/// The delivery state of the messages to one place about one approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeliveryView {
    /// The channel that is used.
    pub channel: String,
    /// The chat or address.
    pub place: String,
    /// `queued`, `sent`, `retrying` or `refused`. A refusal is final.
    pub state: String,
    /// Why it was refused, or is not accepted yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often delivery was tried.
    pub attempts: usize,
    /// When it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
    /// When delivery is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<String>,
    /// Whether the message asks a person to confirm their answer.
    pub asks_to_confirm: bool,
}

/// The delivery state of each message about an approval.
pub(super) async fn deliveries(
    gw: &Gateway,
    store: &Store,
    card: &ApprovalCard,
) -> Result<Vec<DeliveryView>, CallError> {
    let mut views: Vec<DeliveryView> = Vec::new();
    for one in store.deliveries(card.approval.id).await? {
        let same = |view: &&mut DeliveryView| {
            let place = view.channel == one.channel && view.place == one.place;
            place && view.asks_to_confirm == one.proposal.is_some()
        };
        // Attempts are in order: the last one has the current state.
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

fn of(delivery: &ApprovalDelivery) -> DeliveryView {
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

/// Where an approval request is sent first: to the place it names, or to everyone who is not kept for later.
async fn planned(gw: &Gateway, store: &Store, card: &ApprovalCard) -> Result<Vec<(String, String)>, CallError> {
    let names = channels::names(&gw.config);
    if card.approval.subject == ApprovalSubject::Request
        && let Some(filed) = store.client_request(card.approval.id).await?
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
pub(super) async fn list(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let data = status::channels(&visit.gw);
    Ok(HttpReply::json(200, &ListPage::<ChannelStatusView> { data, next_cursor: None, has_more: false }))
}

/// The result of a channel test.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ChannelTestView {
    /// The channel.
    pub name: String,
    /// Whether the channel reaches at least one person, and every person got the message.
    pub ok: bool,
    /// The result for each person that the channel reaches.
    pub people: Vec<PersonTestView>,
}

/// The result of a test message to one person.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PersonTestView {
    /// The name of the person.
    pub person: String,
    /// The chat or address that it was sent to.
    pub place: String,
    /// `sent`, `refused` or `not_taken`.
    pub state: String,
    /// Why it was not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /v1/channels/{name}/test`.
pub(super) async fn test(visit: RoutedRequest) -> Result<HttpReply, CallError> {
    let gw = &visit.gw;
    let name: String = visit.path_param("name")?;
    let names = channels::names(&gw.config);
    let missing = || {
        let known = if names.is_empty() {
            "no channel is set up".to_owned()
        } else {
            format!("the channels are {}", names.join(", "))
        };
        CallError::with_text(Code::StoreNotFound, &format!("there is no such channel; {known}"))
    };
    let broken = |why: String| CallError::with_text(Code::GatewayUnavailable, &why);
    let channel = channels::configured(&gw.config).map_err(broken)?.into_iter().find(|channel| channel.name() == name);
    let channel = channel.ok_or_else(missing)?;
    let mut people = Vec::new();
    for person in &gw.config.approvals.people {
        let Some(place) = person.place(channel.name()) else { continue };
        let (state, reason) = say(gw, channel.as_ref(), &place).await;
        people.push(PersonTestView { person: person.name.to_string(), place, state: state.into(), reason });
    }
    let ok = !people.is_empty() && people.iter().all(|one| one.state == "sent");
    Ok(HttpReply::json(200, &ChannelTestView { name, ok, people }))
}

async fn say(gw: &Gateway, channel: &dyn Channel, place: &str) -> (&'static str, Option<String>) {
    let text = format!("This is a test of the channel {} of Sluicegate. It needs no answer.", channel.name());
    match channel.say(place, None, &text).await {
        Ok(()) => {
            gw.sending.mark_healthy(channel.name(), gw.now());
            ("sent", None)
        }
        Err(ChannelError::Refused { why }) => ("refused", Some(why)),
        Err(fault) => {
            gw.sending.mark_failing(channel.name(), fault.to_string(), gw.now());
            ("not_taken", Some(fault.to_string()))
        }
    }
}
