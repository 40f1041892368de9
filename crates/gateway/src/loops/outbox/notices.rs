//! Notices about calls that needed no approval: which agent, which capability, which targets, and the outcome.
//!
//! Takes the notices that wait in the outbox; each person gets them as they chose: in a digest, one by one, or not at
//! all. Promise: a notice counts as delivered once every chosen channel has accepted it; a channel that fails keeps it
//! waiting and delays nothing urgent. No notice holds the text of a call or anything that must not leave the gateway.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;
use sluice_config::{ConfiguredPerson, NoticeChoice};
use sluice_content::leak::OutboundPart;
use sluice_core::approval::card;
use sluice_core::{HoldId, Millis, UtcMillis};
use sluice_services::CallError;
use sluice_store::UndeliveredMessage;

use super::{DeliveryTarget, LEASE, OutboxLoop};
use crate::Gateway;
use crate::channels::ChannelError;
use crate::rooms::{answer, leak};

/// Most notices that are sent one by one in one step.
const PAGE: u32 = 20;
/// Most notices of one digest; the rest comes in the next one.
const DIGEST: u32 = 2_000;
/// Most lines of a digest.
const LINES: usize = 40;
/// Most targets that one line names.
const TARGETS: usize = 3;
/// How long until a notice is checked again if its write is not over.
const NOT_OVER: Millis = Millis::from_secs(30);
/// How long nothing is sent over a channel that failed.
const PAUSE: Millis = Millis::from_mins(1);

/// What the loop remembers about notices from step to step.
#[derive(Debug, Default)]
pub(super) struct NoticePace {
    quiet_until: Mutex<Option<UtcMillis>>,
}

impl NoticePace {
    fn is_quiet(&self, now: UtcMillis) -> bool {
        self.quiet_until.lock().is_some_and(|until| now < until)
    }

    fn rest(&self, until: UtcMillis) {
        *self.quiet_until.lock() = Some(until);
    }
}

/// A notice with its outcome.
struct CallNotice {
    agent: String,
    capability: String,
    targets: Vec<String>,
    more: u64,
    count: Option<u64>,
    outcome: String,
    call: String,
    is_over: bool,
}

impl OutboxLoop {
    /// Sends people the notices that they chose.
    pub(super) async fn tell_notices(&self, gw: &Gateway) -> Result<(), CallError> {
        let now = gw.now();
        if self.notices.is_quiet(now) {
            return Ok(());
        }
        let each = self.who_chose(gw, NoticeChoice::Each);
        let digest = self.who_chose(gw, NoticeChoice::Digest);
        if each.is_empty() && digest.is_empty() {
            let waiting = gw.store.notices_before(now, DIGEST).await?;
            return self.delivered(gw, &waiting).await;
        }
        if !each.is_empty() {
            self.one_by_one(gw, &each, digest.is_empty()).await?;
        }
        if !digest.is_empty() {
            self.digest(gw, &digest).await?;
        }
        Ok(())
    }

    fn who_chose(&self, gw: &Gateway, choice: NoticeChoice) -> Vec<DeliveryTarget> {
        let mut targets: Vec<DeliveryTarget> = Vec::new();
        for person in gw.config.approvals.people.iter().filter(|person| person.notices == choice) {
            let target = self.notice_target(person);
            targets.extend(target.filter(|target| !targets.contains(target)));
        }
        targets
    }

    /// Where a person wants notices: over the channel they named, or the first over which they can be reached.
    fn notice_target(&self, person: &ConfiguredPerson) -> Option<DeliveryTarget> {
        let Some(named) = person.notices_over.map(|channel| channel.as_str()) else {
            return self.targets_of(person).into_iter().next();
        };
        let channel = self.channels.iter().position(|known| known.name() == named)?;
        person.place(named).map(|place| DeliveryTarget { channel, place })
    }

    async fn one_by_one(&self, gw: &Gateway, each: &[DeliveryTarget], is_last: bool) -> Result<(), CallError> {
        for due in gw.store.untold_notices(gw.now(), PAGE).await? {
            let notice = read(gw, &due.message.body).await?;
            if !notice.is_over {
                gw.store.put_off_notice(due.message.id, gw.now() + NOT_OVER).await?;
                continue;
            }
            let text = allowed(gw, format!("notice: {} ({})", line(&notice, 1), notice.call));
            let name = format!("notice:{}", due.message.id);
            if !self.say_to_all(gw, each, &name, &text).await? {
                return Ok(());
            }
            // Recorded only now: a notice that was not sent is sent again.
            gw.store.claim_outbox_message(due.message.id, due.attempts, gw.now()).await?;
            if is_last {
                self.delivered(gw, &[due]).await?;
            }
        }
        Ok(())
    }

    /// Sends one message about everything since the last digest, when it is due.
    async fn digest(&self, gw: &Gateway, targets: &[DeliveryTarget]) -> Result<(), CallError> {
        let every = i64::try_from(gw.config.approvals.digest_every.as_millis()).unwrap_or(i64::MAX).max(1);
        let begun = UtcMillis::from_millis(gw.now().as_millis() / every * every);
        let waiting = gw.store.notices_before(begun, DIGEST).await?;
        let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return Ok(()) };
        if !gw.store.claim_outbox_message(first.message.id, first.attempts, gw.now() + LEASE).await? {
            return Ok(());
        }
        let mut groups: BTreeMap<(String, String, String), (CallNotice, u64)> = BTreeMap::new();
        for one in &waiting {
            let notice = read(gw, &one.message.body).await?;
            let key = (notice.agent.clone(), notice.capability.clone(), notice.outcome.clone());
            match groups.get_mut(&key) {
                Some((known, count)) => {
                    *count += 1;
                    known.add(notice);
                }
                None => drop(groups.insert(key, (notice, 1))),
            }
        }
        let calls = if waiting.len() == 1 { "call that needed" } else { "calls that needed" };
        let mut text =
            format!("{} {calls} no approval, from {} to {}:", waiting.len(), first.created_at, last.created_at);
        for (notice, count) in groups.values().take(LINES) {
            text.push_str(&format!("\n- {}", line(notice, *count)));
        }
        if let Some(more) = groups.len().checked_sub(LINES).filter(|more| *more > 0) {
            text.push_str(&format!("\n- and {more} more kinds"));
        }
        text.push_str("\nSee all: sluice audit show --agent NAME --since 1d");
        let name = format!("digest:{}", first.message.id);
        if self.say_to_all(gw, targets, &name, &allowed(gw, text)).await? {
            self.delivered(gw, &waiting).await?;
        }
        Ok(())
    }

    /// Sends a text to each place, once. Returns false if a channel did not accept it now.
    async fn say_to_all(
        &self,
        gw: &Gateway,
        targets: &[DeliveryTarget],
        name: &str,
        text: &str,
    ) -> Result<bool, CallError> {
        for target in targets {
            let Some(channel) = self.channels.get(target.channel) else { continue };
            let news = format!("{name}:{}", target.place);
            if gw.store.has_channel_news(channel.name(), &news).await? {
                continue;
            }
            let text: String = text.chars().take(channel.max_message_chars()).collect();
            match channel.say(&target.place, None, &text).await {
                Ok(()) | Err(ChannelError::Refused { .. }) => {
                    gw.store.record_channel_news(channel.name(), &news, None).await?
                }
                Err(fault) => {
                    tracing::debug!("a notice is not sent yet: {fault}");
                    self.notices.rest(gw.now() + PAUSE);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn delivered(&self, gw: &Gateway, notices: &[UndeliveredMessage]) -> Result<(), CallError> {
        let ids = notices.iter().map(|one| one.message.id).collect::<Vec<_>>();
        if !ids.is_empty() {
            gw.store.mark_notices_delivered(ids).await?;
        }
        Ok(())
    }
}

impl CallNotice {
    /// Adds another notice of the same kind.
    fn add(&mut self, other: Self) {
        self.count = self.count.zip(other.count).map(|(own, other)| own + other);
        self.more += other.more;
        for target in other.targets {
            if self.targets.contains(&target) {
                continue;
            }
            if self.targets.len() < TARGETS { self.targets.push(target) } else { self.more += 1 }
        }
    }
}

/// A notice as it stands now, with the outcome of its held write.
async fn read(gw: &Gateway, body: &Value) -> Result<CallNotice, CallError> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |name: &str| -> Vec<String> {
        let list = body.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let number = |name: &str| body.get(name).and_then(Value::as_u64);
    let mut targets = texts("targets");
    targets.extend(texts("ids").into_iter().filter(|id| !targets.contains(id)).collect::<Vec<_>>());
    let mut notice = CallNotice {
        agent: text("agent"),
        capability: text("capability"),
        more: number("more").unwrap_or(0) + targets.len().saturating_sub(TARGETS) as u64,
        targets: targets.into_iter().take(TARGETS).collect(),
        count: number("count"),
        outcome: text("outcome"),
        call: text("call"),
        is_over: true,
    };
    if let Ok(id) = text("hold").parse::<HoldId>()
        && let Some(hold) = gw.store.hold(id).await?
    {
        notice.capability = hold.action.capability().to_string();
        notice.outcome = answer::status(&hold).to_owned();
        notice.is_over = hold.state.is_final();
    }
    Ok(notice)
}

/// One line of a notice: `clerk: email.send to ana@example.com, done`.
fn line(notice: &CallNotice, count: u64) -> String {
    let CallNotice { agent, capability, targets, more, outcome, .. } = notice;
    let mut words = format!("{agent}: {capability}");
    if count > 1 {
        words.push_str(&format!(", {count} times"));
    }
    if !targets.is_empty() {
        let shown: Vec<String> = targets.iter().map(|target| card::escape_invisible(&short(target))).collect();
        words.push_str(&format!(", {} {}", if notice.count.is_some() { "gave" } else { "to" }, shown.join(", ")));
        if *more > 0 {
            words.push_str(&format!(" and {more} more"));
        }
    } else if let Some(objects) = notice.count {
        words.push_str(&format!(", gave {objects} objects"));
    }
    format!("{words}: {outcome}")
}

fn short(target: &str) -> String {
    target.chars().take(120).collect()
}

/// The text, unless it holds something that must not leave the gateway.
fn allowed(gw: &Gateway, text: String) -> String {
    let parts = [OutboundPart::new("text", text.as_str())];
    match leak::preview(gw, &parts) {
        Ok(_) => text,
        Err(_) => {
            "notices: the text is not shown: it holds something that must not leave the gateway. See: sluice audit show"
                .to_owned()
        }
    }
}
