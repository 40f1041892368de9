//! Two answers at the same moment, over two channels, at one gateway and at two: one of them counts.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_config::Risk;
use sluice_core::approval::reply::ApprovalReply;
use sluice_core::approval::reply_meaning::ReplyMeaning;
use sluice_core::ids::MessageId;
use sluice_core::{Actor, ApprovalId, Millis, PersonName, ServiceName};
use sluice_gateway::Gateway;
use sluice_gateway::channels::approval_message::hash;
use sluice_gateway::channels::telegram::TelegramChannel;
use sluice_gateway::gate::deciding::{self, AnswerOutcome, ApprovalRequest, DecisionSource};
use sluice_store::{ClientApprovalRequest, ClientRequestOutcome, SubmitClientRequest};

use crate::telegram::{ANA, PEOPLE, TOKEN, TelegramStub, press};
use crate::test_gateway::{OnPostgresServer, TestGatewayOn, TestGatewayPlan, clerk};

/// Races on a file.
const RACES: usize = 10_000;
/// How many are run at once: that is what makes them races.
const AT_ONCE: usize = 100;

/// Something a client asks, shown to ana in her chat.
async fn asked(gw: &Gateway, n: usize) -> (ApprovalId, String, i64) {
    let new = SubmitClientRequest {
        approval: ApprovalId::mint(gw.ids.as_ref()),
        message: MessageId::mint(gw.ids.as_ref()),
        agent: clerk(),
        service: ServiceName::new("approvals").unwrap(),
        request: ClientApprovalRequest {
            client: "000000000000".into(),
            session: "s".into(),
            action_type: "exec_cmd".into(),
            title: "Run it".into(),
            preview: format!("number {n}"),
            options: Vec::new(),
            channel: None,
            place: None,
        },
        name: None,
        expiry: Millis::from_hours(1),
    };
    let ClientRequestOutcome::Asked(filed) = gw.store.submit_client_request(new).await.unwrap() else {
        panic!("asked before")
    };
    let (id, secret) = (filed.approval.id, format!("{n:022}"));
    let number = i64::try_from(n).unwrap() + 1;
    let delivery = gw.store.open_delivery(id, ("telegram", &ANA.to_string()), hash(&secret), &[]).await.unwrap();
    gw.store.record_delivery_sent(delivery, number.to_string()).await.unwrap();
    (id, secret, number)
}

/// One question, a yes in the chat at one gateway and a no by mail at the other, at once. Gives whether the yes won.
async fn race(here: &Gateway, there: &Gateway, bot: &TelegramChannel, n: usize) -> (ApprovalId, bool) {
    let (id, secret, number) = asked(here, n).await;
    let mut yes = press(ANA, ANA, number, &format!("s:{secret}:1"));
    yes["update_id"] = number.into();
    let voice = DecisionSource {
        by: Actor::Person(PersonName::new("dan").unwrap()),
        channel: "email",
        ceiling: Some(Risk::Medium),
    };
    let no = async {
        let question = ApprovalRequest::read(there, id).await.unwrap();
        deciding::decide(there, &voice, &question, ReplyMeaning::Menu(ApprovalReply::Deny(None))).await.unwrap()
    };
    // Whichever is started first has a head start: they take turns.
    let heard = if n.is_multiple_of(2) {
        let (told, heard) = tokio::join!(bot.handle_update(here, yes), no);
        told.unwrap();
        heard
    } else {
        let (heard, told) = tokio::join!(no, bot.handle_update(here, yes));
        told.unwrap();
        heard
    };
    let state = here.store.approval(id).await.unwrap().unwrap().approval.state.word().to_owned();
    match heard {
        AnswerOutcome::Decided { .. } => assert_eq!(state, "denied", "{id}"),
        AnswerOutcome::Late(_) => assert_eq!(state, "approved", "{id}"),
        other => panic!("{other:?}"),
    }
    (id, state == "approved")
}

/// The decisions in the records of all nodes, question by question.
fn decisions(entries: &[Value]) -> std::collections::BTreeMap<String, usize> {
    let mut found = std::collections::BTreeMap::new();
    for entry in entries {
        let fact = &entry["fact"];
        if ["approval.approved", "approval.denied"].iter().any(|kind| fact["kind"] == **kind) {
            *found.entry(fact["approval"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    found
}

async fn bot(service: &TelegramStub, folder: &std::path::Path) -> TelegramChannel {
    let file = folder.join("token");
    std::fs::write(&file, TOKEN).unwrap();
    TelegramChannel::new(&file, &service.url).unwrap()
}

fn plan() -> TestGatewayPlan {
    TestGatewayPlan {
        config: format!("{PEOPLE}    - {{name: dan, email: dan@example.test}}\n"),
        ..TestGatewayPlan::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_thousand_answers_over_two_channels_at_once_one_each_counts() {
    let house = crate::test_gateway::TestGateway::new(plan()).await;
    let service = TelegramStub::start().await;
    let bot = bot(&service, house.folder.path()).await;
    let (mut ids, mut yeses) = (Vec::new(), 0);
    for some in 0..RACES / AT_ONCE {
        let races = (0..AT_ONCE).map(|n| race(&house.gw, &house.gw, &bot, some * AT_ONCE + n));
        for (id, yes) in futures_util::future::join_all(races).await {
            ids.push(id.to_string());
            yeses += usize::from(yes);
        }
    }
    let decided = decisions(&house.entries().await);
    assert_eq!((ids.len(), decided.len()), (RACES, RACES));
    assert!(ids.iter().all(|id| decided[id] == 1), "one decision each in the record");
    println!("{RACES} races: the chat won {yeses}");
    assert!(yeses > 0 && yeses < RACES, "a race that one side always wins is none: {yeses}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_answers_at_two_gateways_over_two_channels_one_each_counts() {
    let house = TestGatewayOn::<OnPostgresServer>::new(plan()).await;
    let Some(other) = house.beside("other").await else { return };
    let service = TelegramStub::start().await;
    let bot = bot(&service, house.folder.path()).await;
    let (mut ids, mut yeses) = (Vec::new(), 0);
    let (here, there): (&Arc<Gateway>, &Arc<Gateway>) = (&house.gw, &other);
    // As many as fit: what was begun when the time is up is left out of the count, not out of the check.
    let _up = tokio::time::timeout(Duration::from_secs(50), async {
        for some in 0..RACES / 20 {
            let races = (0..20).map(|n| {
                let n = some * 20 + n;
                if n.is_multiple_of(2) { race(here, there, &bot, n) } else { race(there, here, &bot, n) }
            });
            for (id, yes) in futures_util::future::join_all(races).await {
                ids.push(id.to_string());
                yeses += usize::from(yes);
            }
        }
    })
    .await;
    let decided = decisions(&house.entries().await);
    assert!(decided.values().all(|count| *count == 1), "one decision each in the record");
    assert!(ids.iter().all(|id| decided.contains_key(id)));
    println!("{} races at two gateways: the chat won {yeses}", ids.len());
    assert!(ids.len() >= 100 && yeses > 0 && yeses < ids.len(), "{} {yeses}", ids.len());
}
