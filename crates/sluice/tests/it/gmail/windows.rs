//! The gateway dies between any two steps of a mail write and comes back: no duplicate, nothing lost.
//!
//! Each step of an attempt is made here by hand, in the order in which the gateway makes them, so that it can die
//! exactly between two of them. The mailbox, in a process of its own, counts what happened.

use serde_json::{Value, json};
use sluice_core::ids::{MessageId, RollbackId};
use sluice_core::{ApprovalId, HoldId, Millis};
use sluice_services::{CompletedWrite, PreparedWrite};
use sluice_store::{
    ArmWrite, AttemptOutcome, ClaimDueWrites, ClaimItem, FinishAttempt, PolicyRecheck, StateBeforeWrite,
    WriteClaimOutcome,
};

use super::test_gateway::{GmailTestGateway, gmail};

/// Where the gateway dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CrashWindow {
    /// W5: due, nobody has claimed it.
    Due,
    /// W6: claimed.
    Claimed,
    /// W6: the handle exists at the service, and is not on record.
    Prepared,
    /// W7: armed, nothing has left.
    Armed,
    /// W8: it left, the service did it, and no answer came.
    Unanswered,
    /// W9: the service answered, and that is not on record.
    Unrecorded,
    /// W10: it is on record, and nobody was told.
    Recorded,
}

const WINDOWS: [CrashWindow; 7] = [
    CrashWindow::Due,
    CrashWindow::Claimed,
    CrashWindow::Prepared,
    CrashWindow::Armed,
    CrashWindow::Unanswered,
    CrashWindow::Unrecorded,
    CrashWindow::Recorded,
];

/// Walks one attempt up to the window. `lost` is the request whose answer is lost in W8.
async fn walk(house: &GmailTestGateway, hold: HoldId, window: CrashWindow, lost: &str) {
    house.clock.advance(Millis::from_secs(30));
    if window == CrashWindow::Due {
        return;
    }
    let (gw, due) = (&house.gw, house.gw.store.hold(hold).await.unwrap().unwrap());
    let item = ClaimItem {
        hold,
        version: due.version,
        recheck: PolicyRecheck::Stands,
        approval: ApprovalId::from_bits(1),
        message: MessageId::from_bits(hold.bits() ^ 1),
    };
    let claims = ClaimDueWrites { items: vec![item], lease: Millis::from_secs(60), expiry: Millis::from_mins(5) };
    let claimed = gw.store.claim(claims).await.unwrap().pop();
    let Some(WriteClaimOutcome::Ours(claimed)) = claimed else { panic!("{claimed:?}") };
    if window == CrashWindow::Claimed {
        return;
    }
    let service = gw.services.for_service(&claimed.service).unwrap();
    let PreparedWrite { handle, before } = service.prepare(&claimed).await.unwrap();
    if window == CrashWindow::Prepared {
        return;
    }
    let content = before.as_ref().map(|(content, _)| content.clone());
    let before =
        before.map(|(content, print)| StateBeforeWrite { id: RollbackId::from_bits(hold.bits() ^ 2), content, print });
    let (wire, epoch) = (claimed.action.digest(), claimed.epoch);
    let permit = gw.store.arm(ArmWrite { hold, epoch, wire, handle, before }).await.unwrap();
    if window == CrashWindow::Armed {
        return;
    }
    if window == CrashWindow::Unanswered {
        house.mailbox.fail(lost, json!({"after": true}));
        assert!(service.perform(permit, &claimed, content.as_deref()).await.is_err());
        return;
    }
    let CompletedWrite { receipt, result, after, undo_until } =
        service.perform(permit, &claimed, content.as_deref()).await.unwrap();
    if window == CrashWindow::Unrecorded {
        return;
    }
    let result = Some(result.to_string());
    let outcome = AttemptOutcome::Done { receipt, after, service_until: undo_until, result };
    let message = MessageId::from_bits(hold.bits() ^ 3);
    gw.store.finish(FinishAttempt { hold, epoch, outcome, service_words: None, message }).await.unwrap();
}

/// Time passes until the write is over.
async fn settle(house: &mut GmailTestGateway, hold: HoldId) -> &'static str {
    for _ in 0..40 {
        house.pass(Millis::from_secs(30)).await;
        let state = house.state(hold).await;
        if matches!(state, "done" | "dead" | "needs_human") {
            return state;
        }
    }
    house.state(hold).await
}

async fn each_window(
    capability: &str,
    lost: &str,
    arguments: fn(&GmailTestGateway, usize) -> Value,
) -> GmailTestGateway {
    let mut house = GmailTestGateway::connected(30).await;
    for (n, window) in WINDOWS.into_iter().enumerate() {
        let arguments = arguments(&house, n);
        // A message that the copy does not have yet is refused before it is held.
        house.gw.connections.sync_now(&gmail()).await.unwrap();
        let hold = house.place(capability, arguments).await;
        walk(&house, hold, window, lost).await;
        house = house.restart().await;
        let shown = house.gw.store.hold(hold).await.unwrap();
        assert!(shown.is_some(), "{window:?}: it is still there to be seen");
        assert_eq!(settle(&mut house, hold).await, "done", "{window:?}");
    }
    house
}

#[tokio::test]
async fn a_mail_is_sent_once_wherever_the_gateway_dies() {
    let subject = |_: &GmailTestGateway, n: usize| json!({"to": "li@northpeak.example", "subject": format!("Nr {n}"), "body": "x"});
    let house = each_window("email.send", "drafts/send", subject).await;
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    for (n, window) in WINDOWS.iter().enumerate() {
        let query = format!("subject:\"Nr {n}\" label:SENT");
        let found = house.read("email.search", json!({"query": query})).await;
        assert_eq!(found["messages"].as_array().unwrap().len(), 1, "{window:?}: {found}");
    }
    // A draft that was made and not yet on record stays behind, unsent; nothing else does.
    assert_eq!(house.mailbox.owner(&json!({}))["drafts"], 1);
}

#[tokio::test]
async fn a_draft_is_left_once_wherever_the_gateway_dies() {
    let draft = |_: &GmailTestGateway, n: usize| json!({"to": "li@northpeak.example", "subject": format!("Nr {n}"), "body": "x"});
    let house = each_window("email.draft", "POST drafts", draft).await;
    assert_eq!(house.mailbox.owner(&json!({}))["drafts"], WINDOWS.len());
}

#[tokio::test]
async fn a_message_is_deleted_and_can_be_taken_back_wherever_the_gateway_dies() {
    let which = |house: &GmailTestGateway, n: usize| {
        let id = house.mailbox.receive(&format!("Delete {n}"), "x");
        json!({"message_id": id})
    };
    let house = each_window("email.delete", "trash", which).await;
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let trashed = house.read("email.list", json!({"label": "TRASH", "limit": 100})).await;
    let ours = trashed["messages"].as_array().unwrap().iter();
    assert_eq!(ours.filter(|one| one["subject"].as_str().unwrap().starts_with("Delete ")).count(), WINDOWS.len());
}

/// W13: rows and the place to go on from are one transaction; a page that was read and not kept is read again.
#[tokio::test]
async fn a_copy_that_the_gateway_died_in_goes_on_from_its_last_whole_page() {
    let house = GmailTestGateway::new(160).await;
    house.connect().await;
    // The third page breaks off in the middle.
    house.mailbox.fail("GET messages/one", json!({"status": 503, "skip": 120}));
    assert!(house.gw.connections.sync_now(&gmail()).await.is_err());
    let house = house.restart().await;
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.state, view.messages), ("syncing", Some(100)), "two whole pages");
    house.gw.connections.sync_now(&gmail()).await.unwrap();
    let view = house.gw.connections.show(&gmail()).await.unwrap();
    assert_eq!((view.state, view.messages, view.complete), ("live", Some(160), true));
    let fetched = house.mailbox.calls_of("GET messages/one");
    assert!(fetched <= 160 + 21, "only what was not kept is fetched again: {fetched}");
}
