//! Notices about calls that needed no approval: who, what, to whom, and how it ended.
//!
//! Takes what waits in the outbox; each person gets it as they chose: in a digest, one by one, or not at all. Promise: a
//! notice counts as delivered once every channel that somebody chose has taken it; a dead channel keeps it waiting and
//! holds up nothing that is urgent. No text of a call is in a notice, and what must not leave is not either.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sluice_content::leak::Part;
use sluice_core::approval::card;
use sluice_core::{HoldId, Span, Timestamp};
use sluice_store::Undelivered;

use super::{LEASE, Outbox, Target};
use crate::channels::Fault;
use crate::config::{NoticeChoice, Person};
use crate::rooms::{answer, leak};
use crate::{Gateway, No};

/// Most notices that are told one by one in one step.
const PAGE: u32 = 20;
/// Most notices of one digest; what is left comes in the next.
const DIGEST: u32 = 2_000;
/// Most lines of a digest.
const LINES: usize = 40;
/// Most targets that one line names.
const TARGETS: usize = 3;
/// How long until a notice is looked at again whose write is not over.
const NOT_OVER: Span = Span::from_secs(30);
/// How long nothing is said over a channel that failed.
const PAUSE: Span = Span::from_mins(1);

/// What the loop remembers of notices from step to step.
#[derive(Debug, Default)]
pub(super) struct NoticePace {
    quiet_until: Mutex<Option<Timestamp>>,
}

impl NoticePace {
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.quiet_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| now < until)
    }

    fn rest(&self, until: Timestamp) {
        *self.quiet_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}

/// A notice with its outcome.
struct Notice {
    agent: String,
    capability: String,
    targets: Vec<String>,
    more: u64,
    count: Option<u64>,
    outcome: String,
    call: String,
    is_over: bool,
}

impl Outbox {
    /// Tells people what they chose to be told.
    pub(super) async fn tell_notices(&self, gw: &Gateway) -> Result<(), No> {
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

    fn who_chose(&self, gw: &Gateway, choice: NoticeChoice) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for person in gw.config.approvals.people.iter().filter(|person| person.notices == choice) {
            let target = self.notice_target(person);
            targets.extend(target.filter(|target| !targets.contains(target)));
        }
        targets
    }

    /// Where a person wants notices: over the channel they named, or the first over which they can be reached.
    fn notice_target(&self, person: &Person) -> Option<Target> {
        let Some(named) = person.notices_over.map(|channel| channel.as_str()) else {
            return self.targets_of(person).into_iter().next();
        };
        let channel = self.channels.iter().position(|known| known.name() == named)?;
        person.place(named).map(|place| Target { channel, place })
    }

    async fn one_by_one(&self, gw: &Gateway, each: &[Target], is_last: bool) -> Result<(), No> {
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
            // Counted only now: what was not told is told again.
            gw.store.take_message(due.message.id, due.attempts, gw.now()).await?;
            if is_last {
                self.delivered(gw, &[due]).await?;
            }
        }
        Ok(())
    }

    /// One message about everything since the last one, once the time for it has come.
    async fn digest(&self, gw: &Gateway, targets: &[Target]) -> Result<(), No> {
        let every = i64::try_from(gw.config.approvals.digest_every.as_millis()).unwrap_or(i64::MAX).max(1);
        let begun = Timestamp::from_millis(gw.now().as_millis() / every * every);
        let waiting = gw.store.notices_before(begun, DIGEST).await?;
        let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return Ok(()) };
        if !gw.store.take_message(first.message.id, first.attempts, gw.now() + LEASE).await? {
            return Ok(());
        }
        let mut groups: BTreeMap<(String, String, String), (Notice, u64)> = BTreeMap::new();
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

    /// Says something at each place, once. False if a channel did not take it now.
    async fn say_to_all(&self, gw: &Gateway, targets: &[Target], name: &str, text: &str) -> Result<bool, No> {
        for target in targets {
            let Some(channel) = self.channels.get(target.channel) else { continue };
            let news = format!("{name}:{}", target.place);
            if gw.store.has_heard(channel.name(), &news).await? {
                continue;
            }
            let text: String = text.chars().take(channel.room()).collect();
            match channel.say(&target.place, None, &text).await {
                Ok(()) | Err(Fault::Refused { .. }) => gw.store.hear(channel.name(), &news, None).await?,
                Err(fault) => {
                    tracing::debug!("a notice is not told yet: {fault}");
                    self.notices.rest(gw.now() + PAUSE);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    async fn delivered(&self, gw: &Gateway, notices: &[Undelivered]) -> Result<(), No> {
        let ids = notices.iter().map(|one| one.message.id).collect::<Vec<_>>();
        if !ids.is_empty() {
            gw.store.notices_delivered(ids).await?;
        }
        Ok(())
    }
}

impl Notice {
    /// One more of its kind.
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

/// A notice as it stands now: a held write is asked how it ended.
async fn read(gw: &Gateway, body: &Value) -> Result<Notice, No> {
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |name: &str| -> Vec<String> {
        let list = body.get(name).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let number = |name: &str| body.get(name).and_then(Value::as_u64);
    let mut targets = texts("targets");
    targets.extend(texts("ids").into_iter().filter(|id| !targets.contains(id)).collect::<Vec<_>>());
    let mut notice = Notice {
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

/// `clerk: email.send to ana@example.com, done`.
fn line(notice: &Notice, count: u64) -> String {
    let Notice { agent, capability, targets, more, outcome, .. } = notice;
    let mut words = format!("{agent}: {capability}");
    if count > 1 {
        words.push_str(&format!(", {count} times"));
    }
    if !targets.is_empty() {
        let shown: Vec<String> = targets.iter().map(|target| card::visible(&short(target))).collect();
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

/// The text, unless something in it must not leave.
fn allowed(gw: &Gateway, text: String) -> String {
    let parts = [Part::new("text", text.as_str())];
    match leak::preview(gw, &parts) {
        Ok(_) => text,
        Err(_) => "notices: what they say must not leave. See: sluice audit show".to_owned(),
    }
}
