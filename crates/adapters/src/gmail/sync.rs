//! Copying a mailbox: all of it page by page, then what changed.
//!
//! Takes a cursor, gives the next page. The history position is asked for before the first page is listed,
//! so that whatever changes meanwhile is met again in the feed. Promise: any page may be applied twice, a page never
//! holds more than a few megabytes, and where one was cut off is said by name: a list that has moved since it was read
//! hides nothing.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wire::{self, ME, ask, need, text};
use crate::adapter::{Change, Cursor, Page, Progress, RawItem, SyncTrouble, Way};
use crate::net::{NetError, Request, escape};
use crate::trouble::{Cause, Fault, Trouble, Why};

/// Messages of one page.
const PAGE: usize = 50;
/// Bytes of raw mail after which a page is cut off.
const ENOUGH: usize = 8 << 20;
/// Headers kept of a message that is too large to be fetched.
const HEAD: [&str; 9] =
    ["Authentication-Results", "From", "To", "Cc", "Subject", "Date", "Message-ID", "References", "In-Reply-To"];

/// What a cursor says, as JSON inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum At {
    /// In the middle of a full copy.
    Full {
        /// From where on the feed is to be read afterwards.
        history: String,
        /// The page to list next; the first one if nothing.
        page: Option<String>,
        /// The last message of that page that is done; none of it if nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// How earlier releases said that. A count says nothing about a list that has moved: the page is done again.
        #[serde(default, skip_serializing)]
        skip: usize,
        /// Messages done in all.
        done: u64,
        /// Messages there are.
        total: Option<u64>,
    },
    /// In the feed.
    Since {
        /// Everything up to here is applied.
        history: String,
        /// The page of the feed to read next.
        page: Option<String>,
        /// As above.
        #[serde(default, skip_serializing)]
        skip: usize,
    },
}

impl At {
    fn cursor(&self) -> Cursor {
        Cursor(serde_json::to_string(self).unwrap_or_default())
    }
}

/// The next page.
pub fn changes(net: Way<'_>, since: Option<&Cursor>) -> Result<Page, SyncTrouble> {
    let at = match since {
        None => begin(net).map_err(trouble)?,
        // A cursor of another release is as good as none.
        Some(cursor) => serde_json::from_str(&cursor.0).map_err(|_| SyncTrouble::Expired)?,
    };
    match at {
        At::Full { history, page, after, skip: _, done, total } => {
            full(net, history, Spot { page, after }, Progress { done, total }).map_err(trouble)
        }
        At::Since { history, page, skip: _ } => feed(net, &history, page),
    }
}

/// Where a full copy goes on.
struct Spot {
    page: Option<String>,
    after: Option<String>,
}

fn trouble(fault: Fault) -> SyncTrouble {
    match fault.of_look() {
        Trouble::NotDone(why) if why.cause == Cause::NeedsReauth => SyncTrouble::Stopped(why),
        Trouble::NotDone(why) => SyncTrouble::Later(why),
        Trouble::Refused(why) => SyncTrouble::Stopped(why),
        Trouble::Unclear => SyncTrouble::Later(Why::new(Cause::Unavailable, "the service did not answer")),
    }
}

/// Messages as they are now.
pub fn again(net: Way<'_>, ids: &[String]) -> Result<Vec<Change>, SyncTrouble> {
    ids.iter().map(|id| follow(net, &Touched::Added(id.clone())).map_err(trouble)).collect()
}

/// The account's address. Some servers have no profile: then labels are asked for, to see that someone is there.
pub fn account(net: Way<'_>) -> Result<Option<String>, SyncTrouble> {
    match ask(net, Request::get(format!("{ME}/profile"))) {
        Ok(profile) => Ok(text(&profile, "emailAddress").map(str::to_owned)),
        Err(fault) if fault.is_status(404) => label_names(net).map(|_| None).map_err(trouble),
        Err(fault) => Err(trouble(fault)),
    }
}

/// Where the feed stands now, before anything is listed.
fn begin(net: Way<'_>) -> Result<At, Fault> {
    let (history, total) = match ask(net, Request::get(format!("{ME}/profile"))) {
        Ok(profile) => {
            let total = wire::number(&profile, "messagesTotal").and_then(|total| u64::try_from(total).ok());
            (need(&profile, "historyId")?, total)
        }
        // Some servers have no profile. The newest message's own position is not later than now.
        Err(fault) if fault.is_status(404) => (newest_position(net)?, None),
        Err(fault) => return Err(fault),
    };
    Ok(At::Full { history, page: None, after: None, skip: 0, done: 0, total })
}

fn newest_position(net: Way<'_>) -> Result<String, Fault> {
    let list = ask(net, Request::get(format!("{ME}/messages?maxResults=1&includeSpamTrash=true")))?;
    let Some(newest) = list.pointer("/messages/0/id").and_then(Value::as_str) else { return Ok("1".into()) };
    need(&ask(net, wire::message(newest, "minimal"))?, "historyId")
}

fn full(net: Way<'_>, history: String, spot: Spot, progress: Progress) -> Result<Page, Fault> {
    let mut changes = Vec::new();
    if spot.page.is_none() && spot.after.is_none() {
        changes.push(label_names(net)?);
    }
    let mut path = format!("{ME}/messages?maxResults={PAGE}&includeSpamTrash=true");
    if let Some(page) = &spot.page {
        path.push_str("&pageToken=");
        path.push_str(&escape(page));
    }
    let list = ask(net, Request::get(path))?;
    let ids: Vec<&str> = ids_in(&list, "messages");
    let total = progress
        .total
        .or_else(|| wire::number(&list, "resultSizeEstimate").and_then(|total| u64::try_from(total).ok()));
    // Where the message it was cut off after is gone, the page is done again: nobody knows what stood behind it.
    let known = spot.after.as_deref().and_then(|after| ids.iter().position(|id| *id == after));
    let mut left = ids.iter().skip(known.map_or(0, |at| at + 1)).peekable();
    let (mut done, mut bytes, mut after) = (progress.done, 0, None);
    while let Some(id) = left.next_if(|_| bytes < ENOUGH) {
        after = Some((*id).to_owned());
        done += 1;
        if let Some(item) = fetch(net, id)? {
            bytes += item.raw.len();
            changes.push(Change::Put(item));
        }
    }
    let next_page = text(&list, "nextPageToken").filter(|token| !token.is_empty()).map(str::to_owned);
    let next = if left.peek().is_some() {
        At::Full { history, page: spot.page, after, skip: 0, done, total }
    } else if next_page.is_some() {
        At::Full { history, page: next_page, after: None, skip: 0, done, total }
    } else {
        At::Since { history, page: None, skip: 0 }
    };
    // What happened while this went on is in the feed, so there is always more after a full copy.
    Ok(Page { changes, next: next.cursor(), more: true, progress: Some(Progress { done, total }) })
}

fn feed(net: Way<'_>, history: &str, page: Option<String>) -> Result<Page, SyncTrouble> {
    let mut path = format!("{ME}/history?startHistoryId={}&maxResults={PAGE}", escape(history));
    if let Some(page) = &page {
        path.push_str("&pageToken=");
        path.push_str(&escape(page));
    }
    let list = match ask(net, Request::get(path)) {
        Ok(list) => list,
        // A page of the feed that is no longer known: the feed is read from its beginning again.
        Err(fault) if page.is_some() && (fault.is_status(404) || fault.is_status(400)) => {
            return feed(net, history, None);
        }
        Err(fault) if fault.is_status(404) || fault.is_status(400) => return Err(SyncTrouble::Expired),
        Err(fault) => return Err(trouble(fault)),
    };
    let touched = touched(&list);
    let mut changes = Vec::new();
    // Also without other news: whoever makes a label wants it used before the next mail comes.
    if page.is_none() {
        changes.push(label_names(net).map_err(trouble)?);
    }
    let mut left = touched.iter().peekable();
    let (mut bytes, mut upto) = (0, None);
    // It is cut off between two positions only, and goes on from the one that is done.
    while let Some((at, one)) = left.next_if(|(at, _)| bytes < ENOUGH || at.is_none() || *at == upto) {
        let change = follow(net, one).map_err(trouble)?;
        if let Change::Put(item) = &change {
            bytes += item.raw.len();
        }
        changes.push(change);
        upto = *at;
    }
    let next_page = text(&list, "nextPageToken").filter(|token| !token.is_empty()).map(str::to_owned);
    let (history, page, more) = match (left.peek().and(upto), next_page) {
        (Some(upto), _) => (upto, None, true),
        (None, Some(page)) => (history, Some(page), true),
        (None, None) => (text(&list, "historyId").unwrap_or(history), None, false),
    };
    let next = At::Since { history: history.to_owned(), page, skip: 0 };
    Ok(Page { changes, next: next.cursor(), more, progress: None })
}

/// What the feed says about one message, all of its entries together.
#[derive(Debug, PartialEq, Eq)]
enum Touched {
    /// New: to be fetched whole.
    Added(String),
    /// Known: only its labels are other ones.
    Labels(String),
    /// Gone.
    Deleted(String),
}

/// What happened to each message, each once and where it is first named, with the feed's position there.
fn touched(list: &Value) -> Vec<(Option<&str>, Touched)> {
    let entries = list.get("history").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of = |entry: &'_ Value, name: &str| -> Vec<String> {
        let list = entry.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|one| one.pointer("/message/id")).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let everywhere = |name: &str| entries.iter().flat_map(|entry| of(entry, name)).collect::<HashSet<String>>();
    // A later entry wins: what was deleted is gone, what is new is fetched as it is now.
    let (added, deleted) = (everywhere("messagesAdded"), everywhere("messagesDeleted"));
    let (mut seen, mut all) = (HashSet::new(), Vec::new());
    for entry in entries {
        for name in ["messagesDeleted", "messagesAdded", "labelsAdded", "labelsRemoved"] {
            for id in of(entry, name).into_iter().filter(|id| seen.insert(id.clone())) {
                let touched = match (deleted.contains(&id), added.contains(&id)) {
                    (true, _) => Touched::Deleted(id),
                    (false, true) => Touched::Added(id),
                    (false, false) => Touched::Labels(id),
                };
                all.push((text(entry, "id"), touched));
            }
        }
    }
    all
}

/// The present state is asked for, not computed from the entry: an entry names what changed, not what is.
fn follow(net: Way<'_>, touched: &Touched) -> Result<Change, Fault> {
    match touched {
        Touched::Deleted(id) => Ok(Change::Gone { id: id.clone() }),
        Touched::Added(id) => Ok(fetch(net, id)?.map_or_else(|| Change::Gone { id: id.clone() }, Change::Put)),
        Touched::Labels(id) => match ask(net, wire::message(id, "minimal")) {
            Ok(message) => Ok(Change::Labels { id: id.clone(), labels: wire::label_ids(&message) }),
            Err(fault) if fault.is_status(404) => Ok(Change::Gone { id: id.clone() }),
            Err(fault) => Err(fault),
        },
    }
}

/// A message, whole, or its head if it is too large. Nothing if it is gone.
fn fetch(net: Way<'_>, id: &str) -> Result<Option<RawItem>, Fault> {
    match ask(net, wire::message(id, "raw")) {
        Ok(message) => wire::item(&message).map(Some),
        Err(fault) if fault.is_status(404) => Ok(None),
        Err(Fault::Net(NetError::TooLarge)) => match ask(net, wire::head(id, &HEAD)) {
            Ok(message) => wire::cut_item(&message).map(Some),
            Err(fault) if fault.is_status(404) => Ok(None),
            Err(fault) => Err(fault),
        },
        Err(fault) => Err(fault),
    }
}

fn label_names(net: Way<'_>) -> Result<Change, Fault> {
    let list = ask(net, Request::get(format!("{ME}/labels")))?;
    let labels = list.get("labels").and_then(Value::as_array);
    let named = labels.into_iter().flatten().filter_map(|label| Some((text(label, "id")?, text(label, "name")?)));
    Ok(Change::LabelNames(named.map(|(id, name)| (id.to_owned(), name.to_owned())).collect()))
}

fn ids_in<'v>(list: &'v Value, name: &str) -> Vec<&'v str> {
    let items = list.get(name).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(|item| text(item, "id")).collect()
}
