//! A proxy's task that failed is started again after 5, 20 and 80 seconds, whoever asks: beside the mailbox, because this
//! house has a clock that moves only when told.

use serde_json::json;
use sluice_core::Millis;
use sluice_core::refusal::{Code, RetryAdvice};

use super::test_gateway::GmailTestGateway;
use crate::proxies::{ProxiedServiceReply, ProxiedTestService};

#[tokio::test]
async fn a_task_that_failed_is_not_started_again_before_its_time_and_then_left_to_people() {
    let service = ProxiedTestService::open();
    let house = GmailTestGateway::with(0, "").await;
    let folder = house.folder.path().join("proxies");
    std::fs::create_dir_all(&folder).unwrap();
    let declaration = service.declaration("{per_minute: 50, per_hour: 100, burn: 200}");
    std::fs::write(folder.join("board.yaml"), declaration.replace("credential: board/token\n", "")).unwrap();
    let house = house.restart().await;
    service.say(ProxiedServiceReply::Status(500));
    let feed = || house.call("proxy.board.feed", json!({"author": "ana"}));
    let told = |retry: RetryAdvice| match retry {
        RetryAdvice::After(span) => span.as_secs(),
        other => panic!("{other:?}"),
    };
    // The first wait is short enough for the call itself.
    let no = feed().await.unwrap_err();
    assert_eq!((no.refusal.code(), service.asked(), told(no.refusal.retry())), (Code::ExecuteUnavailable, 2, 20));
    for (wait, asked) in [(20, 3), (80, 4)] {
        for early in [0, wait - 1] {
            house.clock.advance(Millis::from_secs(early));
            let no = feed().await.unwrap_err();
            assert_eq!(
                (no.refusal.code(), service.asked()),
                (Code::ExecuteUnavailable, asked - 1),
                "{early} of {wait} s"
            );
            assert!(no.refusal.text().contains("not started again"), "{}", no.refusal);
        }
        house.clock.advance(Millis::from_secs(1));
        feed().await.unwrap_err();
        assert_eq!(service.asked(), asked, "after {wait} s");
    }
    // The fourth fault in a row is a person's.
    house.clock.advance(Millis::from_hours(1));
    let no = feed().await.unwrap_err();
    assert_eq!((no.refusal.code(), service.asked()), (Code::WorkerQuarantined, 4));
    assert_eq!(house.gw.store.proxy_standings().await.unwrap().len(), 1);
}
