//! Tests of the adapter with hand-written answers: what the demo's service never does.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::GmailAdapter;
use crate::adapter::{SyncAdapter as _, SyncChange, SyncCursor, SyncError};
use crate::error::FailureCause;
use crate::net::{Net, NetError, NetRequest, NetResponse};

/// Answers in order; each is for a path that contains these words.
struct ScriptedNet(VecDeque<(&'static str, ScriptedReply)>);

/// The answer of the service, or where the exchange was lost.
type ScriptedReply = Result<(u16, Value), NetError>;

impl Net for ScriptedNet {
    fn exchange(&mut self, request: NetRequest) -> Result<NetResponse, NetError> {
        let (wanted, answer) = self.0.pop_front().unwrap_or_else(|| panic!("not expected: {}", request.path));
        assert!(request.path.contains(wanted), "{} instead of {wanted}", request.path);
        answer.map(|(status, body)| NetResponse { status, headers: Vec::new(), body: body.to_string().into_bytes() })
    }
}

fn script(answers: impl IntoIterator<Item = (&'static str, Result<(u16, Value), NetError>)>) -> ScriptedNet {
    ScriptedNet(answers.into_iter().collect())
}

fn gmail() -> GmailAdapter {
    GmailAdapter::new("me@alder.example").unwrap()
}

fn since(history: &str, page: Option<&str>) -> SyncCursor {
    SyncCursor(json!({"since": {"history": history, "page": page}}).to_string())
}

#[test]
fn a_message_too_large_to_be_let_in_is_kept_with_its_head() {
    let headers = json!([{"name": "From", "value": "Li <li@x.example>"}, {"name": "Subject", "value": "Big\r\nX: y"}]);
    let head = json!({"id": "m1", "threadId": "t1", "labelIds": ["INBOX"], "internalDate": "5000", "sizeEstimate": 26_000_000,
        "payload": {"headers": headers}});
    let feed = json!({"history": [{"messagesAdded": [{"message": {"id": "m1"}}]}], "historyId": "9"});
    let mut net = script([
        ("/history", Ok((200, feed))),
        ("/labels", Ok((200, json!({"labels": []})))),
        ("/messages/m1?format=raw", Err(NetError::TooLarge)),
        ("/messages/m1?format=metadata", Ok((200, head))),
    ]);
    let page = gmail().changes(&mut net, Some(&since("7", None))).unwrap();
    let Some(SyncChange::Put(item)) = page.changes.last() else { panic!("{page:?}") };
    let open = crate::mime::parse_item(item);
    assert!(open.mail.cut);
    assert_eq!((open.mail.size, open.mail.received), (26_000_000, 5_000));
    assert_eq!(open.mail.from.map(|from| from.address).as_deref(), Some("li@x.example"));
    assert_eq!(open.mail.subject, "BigX: y", "a header cannot bring another one");
}

#[test]
fn history_positions_are_texts_and_may_be_larger_than_any_number() {
    let feed = json!({"historyId": "999999999999999999999"});
    let mut net =
        script([("startHistoryId=888888888888888888888", Ok((200, feed))), ("/labels", Ok((200, json!({}))))]);
    let page = gmail().changes(&mut net, Some(&since("888888888888888888888", None))).unwrap();
    assert!(page.next.0.contains("999999999999999999999") && !page.more);
}

#[test]
fn without_a_profile_the_newest_message_says_where_the_feed_begins() {
    let newest = json!({"messages": [{"id": "m9", "threadId": "t"}]});
    let mut net = script([
        ("/profile", Ok((404, json!({})))),
        ("/messages?maxResults=1&", Ok((200, newest))),
        ("/messages/m9?format=minimal", Ok((200, json!({"id": "m9", "historyId": "77"})))),
        ("/labels", Ok((200, json!({})))),
        ("/messages?maxResults=50", Ok((200, json!({"resultSizeEstimate": 0})))),
    ]);
    let page = gmail().changes(&mut net, None).unwrap();
    assert_eq!((page.next, page.more), (since("77", None), true));
}

#[test]
fn a_page_of_the_feed_that_is_forgotten_is_read_from_the_beginning_and_a_feed_that_is_means_a_fresh_copy() {
    let mut net = script([
        ("pageToken=old", Ok((404, json!({})))),
        ("startHistoryId=5&maxResults=50", Ok((200, json!({"historyId": "6"})))),
        ("/labels", Ok((200, json!({})))),
    ]);
    assert_eq!(gmail().changes(&mut net, Some(&since("5", Some("old")))).unwrap().next, since("6", None));
    let mut net = script([("startHistoryId=5", Ok((404, json!({}))))]);
    assert_eq!(gmail().changes(&mut net, Some(&since("5", None))), Err(SyncError::Expired));
}

#[test]
fn entries_of_one_message_become_one_change() {
    let entry = |what: &str, id: &str| json!({what: [{"message": {"id": id}}]});
    let feed = json!({"historyId": "9", "history": [
        entry("labelsAdded", "a"), entry("messagesAdded", "b"), entry("labelsRemoved", "b"), entry("messagesDeleted", "b"),
        entry("labelsRemoved", "a"),
    ]});
    let mut net = script([
        ("/history", Ok((200, feed))),
        ("/labels", Ok((200, json!({})))),
        ("/messages/a?format=minimal", Ok((200, json!({"id": "a", "labelIds": ["INBOX", "UNREAD"]})))),
    ]);
    let page = gmail().changes(&mut net, Some(&since("7", None))).unwrap();
    let labels = vec!["INBOX".to_owned(), "UNREAD".to_owned()];
    let expected = [
        SyncChange::LabelNames(vec![]),
        SyncChange::Labels { id: "a".into(), labels },
        SyncChange::Gone { id: "b".into() },
    ];
    assert_eq!(page.changes, expected);
}

#[test]
fn a_limit_means_later_and_a_missing_permission_means_a_person() {
    let reason = |reason: &str| json!({"error": {"errors": [{"reason": reason}]}});
    let mut net = script([("/history", Ok((403, reason("rateLimitExceeded"))))]);
    let answer = gmail().changes(&mut net, Some(&since("7", None)));
    assert!(matches!(answer, Err(SyncError::Later(why)) if why.cause == FailureCause::RateLimited));
    let mut net = script([("/history", Ok((403, reason("insufficientPermissions"))))]);
    let answer = gmail().changes(&mut net, Some(&since("7", None)));
    assert!(matches!(answer, Err(SyncError::Stopped(why)) if why.cause == FailureCause::Permission));
}

/// A message with this id, so large that a page ends after it.
fn large(id: &str) -> ScriptedReply {
    Ok((200, json!({"id": id, "threadId": id, "internalDate": "5", "raw": "QUFB".repeat(3 << 20)})))
}

fn small(id: &str) -> ScriptedReply {
    Ok((200, json!({"id": id, "threadId": id, "internalDate": "5", "raw": "QUFB"})))
}

/// The messages that a page puts.
fn put(page: &crate::adapter::SyncPage) -> Vec<&str> {
    let mut put = Vec::new();
    for change in &page.changes {
        if let SyncChange::Put(item) = change {
            put.push(item.id.as_str());
        }
    }
    put
}

#[test]
fn a_cut_page_goes_on_after_its_last_message_however_the_list_has_moved_meanwhile() {
    let full = SyncCursor(json!({"full": {"history": "7", "page": null, "done": 0, "total": 3}}).to_string());
    let list = |ids: &[&str]| -> ScriptedReply {
        let messages: Vec<Value> = ids.iter().map(|id| json!({"id": id, "threadId": id})).collect();
        Ok((200, json!({"messages": messages})))
    };
    let mut net = script([
        ("/labels", Ok((200, json!({})))),
        ("/messages?maxResults=50", list(&["a", "b", "c"])),
        ("/messages/a?format=raw", large("a")),
    ]);
    let cut = gmail().changes(&mut net, Some(&full)).unwrap();
    assert_eq!((put(&cut), cut.more), (vec!["a"], true));
    for (now, left) in [
        (vec!["a", "b", "c"], vec!["b", "c"]),
        (vec!["new", "a", "b", "c"], vec!["b", "c"]),
        // Somebody deleted the message after which the page was cut off: a count would skip the next one.
        (vec!["b", "c"], vec!["b", "c"]),
    ] {
        let rest = [("/messages?maxResults=50", list(&now)), ("/messages/b", small("b")), ("/messages/c", small("c"))];
        let page = gmail().changes(&mut script(rest), Some(&cut.next)).unwrap();
        assert_eq!((put(&page), &page.next), (left, &since("7", None)), "{now:?}");
    }
}

#[test]
fn a_cut_feed_goes_on_from_the_position_that_is_done_and_one_position_is_never_torn() {
    let entry = |at: &str, what: &str, id: &str| json!({"id": at, what: [{"message": {"id": id}}]});
    let feed = json!({"historyId": "40", "history": [
        entry("11", "messagesAdded", "a"), entry("11", "labelsAdded", "x"), entry("12", "messagesDeleted", "b"),
    ]});
    for page in [None, Some("p2")] {
        let labels = page.is_none().then(|| ("/labels", Ok((200, json!({})))));
        let asked = [("/history?startHistoryId=7", Ok((200, feed.clone())))].into_iter().chain(labels);
        let read = [("/messages/a?format=raw", large("a")), ("/messages/x?format=minimal", small("x"))];
        let page = gmail().changes(&mut script(asked.chain(read)), Some(&since("7", page))).unwrap();
        assert_eq!((page.next, page.more), (since("11", None), true), "what comes in meanwhile is behind it");
        assert!(!page.changes.contains(&SyncChange::Gone { id: "b".into() }));
    }
}

#[test]
fn a_place_that_an_earlier_release_counted_is_done_again() {
    let counted = SyncCursor(json!({"since": {"history": "7", "page": null, "skip": 2}}).to_string());
    let entry = |id: &str| json!({"messagesDeleted": [{"message": {"id": id}}]});
    let feed = json!({"historyId": "9", "history": [entry("a"), entry("b")]});
    let mut net = script([("/history", Ok((200, feed))), ("/labels", Ok((200, json!({}))))]);
    let page = gmail().changes(&mut net, Some(&counted)).unwrap();
    assert_eq!((page.changes.len(), page.next), (3, since("9", None)));
}
