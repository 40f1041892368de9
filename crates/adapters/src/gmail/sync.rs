//! Syncs a mailbox: all of it page by page, then the changes.
//!
//! Takes a cursor, gives the next page. The history position is requested before the first page is listed, so that
//! changes made meanwhile appear in the feed. Promise: any page may be applied twice, a page never holds more than a
//! few megabytes, and the cursor names the message after which a page was cut off: a list that has moved since it was
//! read hides nothing.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wire::{self, ME, ask, need, text};
use crate::adapter::{NetAccess, RawItem, SyncChange, SyncCursor, SyncError, SyncPage, SyncProgress};
use crate::error::{AdapterWriteError, ExchangeError, FailureCause, FailureDetail};
use crate::net::{NetError, NetRequest, escape};

/// Most messages in one page.
const PAGE: usize = 50;
/// Bytes of raw mail after which a page is cut off.
const ENOUGH: usize = 8 << 20;
/// Headers that are kept of a message that is too large to fetch.
const HEAD: [&str; 9] =
    ["Authentication-Results", "From", "To", "Cc", "Subject", "Date", "Message-ID", "References", "In-Reply-To"];

/// The content of a cursor, as JSON inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum CursorPosition {
    /// In the middle of a full sync.
    Full {
        /// The position from which the feed is read afterwards.
        history: String,
        /// The page to list next; `None` for the first one.
        page: Option<String>,
        /// The last message of that page that is done; `None` if none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// The form of earlier releases. A count is useless for a list that has moved: the page is read again.
        #[serde(default, skip_serializing)]
        skip: usize,
        /// Messages done so far.
        done: u64,
        /// Number of all messages.
        total: Option<u64>,
    },
    /// In the change feed.
    Since {
        /// The position up to which everything is applied.
        history: String,
        /// The page of the feed to read next.
        page: Option<String>,
        /// The form of earlier releases, as above.
        #[serde(default, skip_serializing)]
        skip: usize,
    },
}

impl CursorPosition {
    fn cursor(&self) -> SyncCursor {
        SyncCursor(serde_json::to_string(self).unwrap_or_default())
    }
}

/// The next page.
pub fn changes(net: NetAccess<'_>, since: Option<&SyncCursor>) -> Result<SyncPage, SyncError> {
    let at = match since {
        None => begin(net).map_err(trouble)?,
        // The cursor of another release counts as expired.
        Some(cursor) => serde_json::from_str(&cursor.0).map_err(|_| SyncError::Expired)?,
    };
    match at {
        CursorPosition::Full { history, page, after, skip: _, done, total } => {
            full_copy_page(net, history, FullCopyPosition { page, after }, SyncProgress { done, total })
                .map_err(trouble)
        }
        CursorPosition::Since { history, page, skip: _ } => history_page(net, &history, page),
    }
}

/// The position at which a full sync continues.
struct FullCopyPosition {
    page: Option<String>,
    after: Option<String>,
}

fn trouble(fault: ExchangeError) -> SyncError {
    match fault.into_read_error() {
        AdapterWriteError::NotDone(why) if why.cause == FailureCause::NeedsReauth => SyncError::Stopped(why),
        AdapterWriteError::NotDone(why) => SyncError::Later(why),
        AdapterWriteError::Refused(why) => SyncError::Stopped(why),
        AdapterWriteError::Unclear => {
            SyncError::Later(FailureDetail::new(FailureCause::Unavailable, "the service did not answer"))
        }
    }
}

/// Messages as they are now.
pub fn refetch_messages(net: NetAccess<'_>, ids: &[String]) -> Result<Vec<SyncChange>, SyncError> {
    ids.iter().map(|id| fetch_change(net, &HistoryChange::Added(id.clone())).map_err(trouble)).collect()
}

/// The account's address. Some servers have no profile: then labels are requested, to see that the server answers.
pub fn account(net: NetAccess<'_>) -> Result<Option<String>, SyncError> {
    match ask(net, NetRequest::get(format!("{ME}/profile"))) {
        Ok(profile) => Ok(text(&profile, "emailAddress").map(str::to_owned)),
        Err(fault) if fault.is_status(404) => label_names(net).map(|_| None).map_err(trouble),
        Err(fault) => Err(trouble(fault)),
    }
}

/// The present position of the feed, before anything is listed.
fn begin(net: NetAccess<'_>) -> Result<CursorPosition, ExchangeError> {
    let (history, total) = match ask(net, NetRequest::get(format!("{ME}/profile"))) {
        Ok(profile) => {
            let total = wire::number(&profile, "messagesTotal").and_then(|total| u64::try_from(total).ok());
            (need(&profile, "historyId")?, total)
        }
        // Some servers have no profile. The position of the newest message is not later than now.
        Err(fault) if fault.is_status(404) => (newest_position(net)?, None),
        Err(fault) => return Err(fault),
    };
    Ok(CursorPosition::Full { history, page: None, after: None, skip: 0, done: 0, total })
}

fn newest_position(net: NetAccess<'_>) -> Result<String, ExchangeError> {
    let list = ask(net, NetRequest::get(format!("{ME}/messages?maxResults=1&includeSpamTrash=true")))?;
    let Some(newest) = list.pointer("/messages/0/id").and_then(Value::as_str) else { return Ok("1".into()) };
    need(&ask(net, wire::message(newest, "minimal"))?, "historyId")
}

fn full_copy_page(
    net: NetAccess<'_>,
    history: String,
    spot: FullCopyPosition,
    progress: SyncProgress,
) -> Result<SyncPage, ExchangeError> {
    let mut changes = Vec::new();
    if spot.page.is_none() && spot.after.is_none() {
        changes.push(label_names(net)?);
    }
    let mut path = format!("{ME}/messages?maxResults={PAGE}&includeSpamTrash=true");
    if let Some(page) = &spot.page {
        path.push_str("&pageToken=");
        path.push_str(&escape(page));
    }
    let list = ask(net, NetRequest::get(path))?;
    let ids: Vec<&str> = ids_in(&list, "messages");
    let total = progress
        .total
        .or_else(|| wire::number(&list, "resultSizeEstimate").and_then(|total| u64::try_from(total).ok()));
    // If the message after which the page was cut off is gone, the page is read again: what followed it is not known.
    let known = spot.after.as_deref().and_then(|after| ids.iter().position(|id| *id == after));
    let mut left = ids.iter().skip(known.map_or(0, |at| at + 1)).peekable();
    let (mut done, mut bytes, mut after) = (progress.done, 0, None);
    while let Some(id) = left.next_if(|_| bytes < ENOUGH) {
        after = Some((*id).to_owned());
        done += 1;
        if let Some(item) = fetch(net, id)? {
            bytes += item.raw.len();
            changes.push(SyncChange::Put(item));
        }
    }
    let next_page = text(&list, "nextPageToken").filter(|token| !token.is_empty()).map(str::to_owned);
    let next = if left.peek().is_some() {
        CursorPosition::Full { history, page: spot.page, after, skip: 0, done, total }
    } else if next_page.is_some() {
        CursorPosition::Full { history, page: next_page, after: None, skip: 0, done, total }
    } else {
        CursorPosition::Since { history, page: None, skip: 0 }
    };
    // Changes made meanwhile are in the feed, so there is always more after a full sync.
    Ok(SyncPage { changes, next: next.cursor(), more: true, progress: Some(SyncProgress { done, total }) })
}

fn history_page(net: NetAccess<'_>, history: &str, page: Option<String>) -> Result<SyncPage, SyncError> {
    let mut path = format!("{ME}/history?startHistoryId={}&maxResults={PAGE}", escape(history));
    if let Some(page) = &page {
        path.push_str("&pageToken=");
        path.push_str(&escape(page));
    }
    let list = match ask(net, NetRequest::get(path)) {
        Ok(list) => list,
        // A page of the feed that is no longer known: the feed is read from its beginning again.
        Err(fault) if page.is_some() && (fault.is_status(404) || fault.is_status(400)) => {
            return history_page(net, history, None);
        }
        Err(fault) if fault.is_status(404) || fault.is_status(400) => return Err(SyncError::Expired),
        Err(fault) => return Err(trouble(fault)),
    };
    let touched = touched(&list);
    let mut changes = Vec::new();
    // Also without other changes: a new label must be usable before the next mail comes.
    if page.is_none() {
        changes.push(label_names(net).map_err(trouble)?);
    }
    let mut left = touched.iter().peekable();
    let (mut bytes, mut upto) = (0, None);
    // A page is cut off only between two positions, and continues after the one that is done.
    while let Some((at, one)) = left.next_if(|(at, _)| bytes < ENOUGH || at.is_none() || *at == upto) {
        let change = fetch_change(net, one).map_err(trouble)?;
        if let SyncChange::Put(item) = &change {
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
    let next = CursorPosition::Since { history: history.to_owned(), page, skip: 0 };
    Ok(SyncPage { changes, next: next.cursor(), more, progress: None })
}

/// All entries of the feed about one message, combined.
#[derive(Debug, PartialEq, Eq)]
enum HistoryChange {
    /// New: it must be fetched completely.
    Added(String),
    /// Known: only its labels have changed.
    Labels(String),
    /// Deleted.
    Deleted(String),
}

/// The change of each message, once each, ordered by first mention, with the feed's position there.
fn touched(list: &Value) -> Vec<(Option<&str>, HistoryChange)> {
    let entries = list.get("history").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of = |entry: &'_ Value, name: &str| -> Vec<String> {
        let list = entry.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|one| one.pointer("/message/id")).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let everywhere = |name: &str| entries.iter().flat_map(|entry| of(entry, name)).collect::<HashSet<String>>();
    // A later entry wins: a deleted message is gone, a new one is fetched as it is now.
    let (added, deleted) = (everywhere("messagesAdded"), everywhere("messagesDeleted"));
    let (mut seen, mut all) = (HashSet::new(), Vec::new());
    for entry in entries {
        for name in ["messagesDeleted", "messagesAdded", "labelsAdded", "labelsRemoved"] {
            for id in of(entry, name).into_iter().filter(|id| seen.insert(id.clone())) {
                let touched = match (deleted.contains(&id), added.contains(&id)) {
                    (true, _) => HistoryChange::Deleted(id),
                    (false, true) => HistoryChange::Added(id),
                    (false, false) => HistoryChange::Labels(id),
                };
                all.push((text(entry, "id"), touched));
            }
        }
    }
    all
}

/// The present state is requested, not computed from the entry: an entry names the change, not the state.
fn fetch_change(net: NetAccess<'_>, touched: &HistoryChange) -> Result<SyncChange, ExchangeError> {
    match touched {
        HistoryChange::Deleted(id) => Ok(SyncChange::Gone { id: id.clone() }),
        HistoryChange::Added(id) => {
            Ok(fetch(net, id)?.map_or_else(|| SyncChange::Gone { id: id.clone() }, SyncChange::Put))
        }
        HistoryChange::Labels(id) => match ask(net, wire::message(id, "minimal")) {
            Ok(message) => Ok(SyncChange::Labels { id: id.clone(), labels: wire::label_ids(&message) }),
            Err(fault) if fault.is_status(404) => Ok(SyncChange::Gone { id: id.clone() }),
            Err(fault) => Err(fault),
        },
    }
}

/// A complete message, or its head if it is too large. `None` if it is gone.
fn fetch(net: NetAccess<'_>, id: &str) -> Result<Option<RawItem>, ExchangeError> {
    match ask(net, wire::message(id, "raw")) {
        Ok(message) => wire::item(&message).map(Some),
        Err(fault) if fault.is_status(404) => Ok(None),
        Err(ExchangeError::Net(NetError::TooLarge)) => match ask(net, wire::head(id, &HEAD)) {
            Ok(message) => wire::cut_item(&message).map(Some),
            Err(fault) if fault.is_status(404) => Ok(None),
            Err(fault) => Err(fault),
        },
        Err(fault) => Err(fault),
    }
}

fn label_names(net: NetAccess<'_>) -> Result<SyncChange, ExchangeError> {
    let list = ask(net, NetRequest::get(format!("{ME}/labels")))?;
    let labels = list.get("labels").and_then(Value::as_array);
    let named = labels.into_iter().flatten().filter_map(|label| Some((text(label, "id")?, text(label, "name")?)));
    Ok(SyncChange::LabelNames(named.map(|(id, name)| (id.to_owned(), name.to_owned())).collect()))
}

fn ids_in<'v>(list: &'v Value, name: &str) -> Vec<&'v str> {
    let items = list.get(name).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(|item| text(item, "id")).collect()
}
