//! Tests of the protocol: frames survive encoding and decoding, and nothing else is accepted.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::frame::{MAX_FRAME, WorkerFrameDecoder};

fn frames(bytes: &[u8]) -> Result<Vec<WorkerFrame>, WorkerFrameError> {
    let mut decoder = WorkerFrameDecoder::default();
    decoder.feed(bytes);
    let mut found = Vec::new();
    while let Some(frame) = decoder.next_frame()? {
        found.push(frame);
    }
    Ok(found)
}

fn heard(bytes: &[u8]) -> Result<Vec<MessageToGateway>, WorkerFrameError> {
    frames(bytes)?.into_iter().map(MessageToGateway::decode).collect()
}

fn exchange() -> WorkerExchange {
    WorkerExchange {
        ticket: "tk_1".into(),
        method: "GET".into(),
        path: "/v1/items?page=2".into(),
        headers: vec![("accept".into(), "application/json".into())],
        body: vec![0, 1, 255],
    }
}

fn messages() -> Vec<MessageToGateway> {
    vec![
        MessageToGateway::Locked(LockedInMessage { layers: JailLayers::default() }),
        MessageToGateway::Exchange(exchange()),
        MessageToGateway::NextItem,
        MessageToGateway::Item(WorkerItem { payload: json!({"id": 1}), attachments: vec![vec![7; 300], Vec::new()] }),
        MessageToGateway::Progress(WorkerProgress { done: 1, of: Some(9) }),
        MessageToGateway::LastWords(CrashLocation { place: "a.rs:7".into() }),
        MessageToGateway::Report(WorkerReport {
            outcome: WorkerJobOutcome::Done(json!([1, {"a": null}])),
            attachments: vec![vec![1, 2]],
        }),
    ]
}

#[test]
fn every_message_comes_out_as_it_went_in() {
    for message in messages() {
        assert_eq!(heard(&message.clone().encode().unwrap()).unwrap(), [message]);
    }
    let answer = ExchangeReply::Answer { status: 200, headers: vec![("a".into(), "b".into())], body: vec![9; 70_000] };
    let refused = ExchangeReply::Refused { code: "egress.host".into(), text: "no".into(), not_sent: true };
    let terms = WorkerTerms {
        mode: JailMode::Required,
        memory: 1,
        cpu_seconds: 2,
        scratch_bytes: Some(3),
        namespaces: Err("why".into()),
        mould: false,
    };
    let job = WorkerJob { kind: "echo".into(), payload: json!({"x": [1.5, "ü"]}), attachments: vec![vec![0; 3]] };
    for message in [
        MessageToWorker::Reply(answer),
        MessageToWorker::Reply(refused),
        MessageToWorker::NextItem(NextItemReply::Item { task: ContentCleanTask::default(), bytes: vec![1, 2] }),
        MessageToWorker::NextItem(NextItemReply::Over),
        MessageToWorker::Terms(terms),
        MessageToWorker::Job(job),
    ] {
        let bytes = message.clone().encode().unwrap();
        let decoded: Vec<_> =
            frames(&bytes).unwrap().into_iter().map(|f| MessageToWorker::decode(f).unwrap()).collect();
        assert_eq!(decoded, [message]);
    }
}

#[test]
fn the_number_of_each_kind_of_frame_is_pinned() {
    let kinds: Vec<u8> = messages().into_iter().map(|message| message.encode().unwrap()[4]).collect();
    assert_eq!(kinds, [65, 66, 71, 67, 68, 69, 70]);
    let refused = ExchangeReply::Refused { code: "egress.host".into(), text: "no".into(), not_sent: true };
    let job = WorkerJob { kind: "echo".into(), payload: json!(1), attachments: Vec::new() };
    let sent =
        [MessageToWorker::Job(job), MessageToWorker::Reply(refused), MessageToWorker::NextItem(NextItemReply::Over)];
    let sent: Vec<Vec<u8>> = sent.into_iter().map(|message| message.encode().unwrap()).collect();
    assert_eq!(sent.iter().map(|bytes| bytes[4]).collect::<Vec<_>>(), [2, 3, 4]);
    let refusal = br#"{"refused":{"code":"egress.host","text":"no","not_sent":true}}"#;
    assert!(sent[1].ends_with(refusal), "third-party adapters read these bytes");
}

#[test]
fn a_lying_length_is_refused_before_anything_is_kept_for_it() {
    let mut decoder = WorkerFrameDecoder::default();
    decoder.feed(&u32::MAX.to_le_bytes());
    assert_eq!(decoder.next_frame(), Err(WorkerFrameError::TooLarge));
    let mut decoder = WorkerFrameDecoder::default();
    decoder.feed(&(MAX_FRAME as u32).to_le_bytes());
    assert_eq!(decoder.next_frame(), Ok(None));
    assert!(decoder.is_midway() && decoder.held() < 4096, "nothing is allocated on its word alone");
    assert_eq!(frames(&[5, 0, 0, 0, 0, 0, 0, 0, 0]), Err(WorkerFrameError::Layout));
}

#[test]
fn unknown_kinds_fields_and_doubled_keys_are_refused() {
    let frame = |kind, head: &str| MessageToGateway::decode(WorkerFrame { kind, head: head.into(), blobs: Vec::new() });
    assert_eq!(frame(0, "{}"), Err(WorkerFrameError::Kind));
    assert_eq!(frame(2, "{}"), Err(WorkerFrameError::Kind), "a message of the other side");
    assert_eq!(frame(68, r#"{"done":1,"of":null,"x":1}"#), Err(WorkerFrameError::Shape));
    assert_eq!(frame(68, r#"{"done":1,"done":2,"of":null}"#), Err(WorkerFrameError::Json));
    assert_eq!(frame(68, r#"{"done":-1,"of":null}"#), Err(WorkerFrameError::Shape));
    assert_eq!(
        frame(70, &format!("{{\"outcome\":{{\"done\":{}{}}}}}", "[".repeat(99), "]".repeat(99))),
        Err(WorkerFrameError::Json)
    );
    assert_eq!(frame(70, "\u{0}"), Err(WorkerFrameError::Json));
}

#[test]
fn an_exchange_that_would_split_a_request_is_refused() {
    let bad: [fn(&mut WorkerExchange); 8] = [
        |e| e.method = "GET /\r\n".into(),
        |e| e.path = "/a b".into(),
        |e| e.path = "http://other/".into(),
        |e| e.path = "/a\r\nx: y".into(),
        |e| e.headers = vec![("a\n".into(), "b".into())],
        |e| e.headers = vec![("a".into(), "b\r\nc: d".into())],
        |e| e.headers = vec![("a".into(), "b".into()); 65],
        |e| e.ticket = "x".repeat(300),
    ];
    for spoil in bad {
        let mut exchange = exchange();
        spoil(&mut exchange);
        let bytes = MessageToGateway::Exchange(exchange).encode().unwrap();
        assert_eq!(heard(&bytes), Err(WorkerFrameError::Shape));
    }
}

#[test]
fn last_words_cannot_draw_on_a_terminal() {
    let words = MessageToGateway::LastWords(CrashLocation { place: format!("\u{1b}[2J{}", "x".repeat(900)) });
    let Ok(heard) = heard(&words.encode().unwrap()) else { panic!("refused") };
    let [MessageToGateway::LastWords(CrashLocation { place })] = heard.as_slice() else { panic!("{heard:?}") };
    assert!(place.starts_with("?[2J") && place.len() == 200);
}

#[test]
fn a_frame_too_large_to_send_is_not_sent() {
    let huge = WorkerItem { payload: json!(null), attachments: vec![vec![0; MAX_FRAME]] };
    assert_eq!(MessageToGateway::Item(huge).encode(), Err(WorkerFrameError::TooLarge));
    let wordy = WorkerItem { payload: json!("x".repeat(MAX_HEAD)), attachments: Vec::new() };
    assert_eq!(MessageToGateway::Item(wordy).encode(), Err(WorkerFrameError::TooLarge));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = heard(&bytes);
    }

    /// A valid stream with a few bytes changed, cut off or doubled: closer to an attack than random bytes.
    #[test]
    fn no_damage_to_honest_frames_makes_the_reader_panic(
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        order in prop::collection::vec(0_usize..7, 1..5),
    ) {
        let all = messages();
        let mut bytes: Vec<u8> = order.iter().flat_map(|n| all[*n].clone().encode().unwrap()).collect();
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = heard(&bytes);
    }

    #[test]
    fn frames_are_the_same_however_they_are_cut_into_pieces(sizes in prop::collection::vec(1_usize..50, 1..40)) {
        let bytes: Vec<u8> = messages().into_iter().flat_map(|m| m.encode().unwrap()).collect();
        let (mut decoder, mut found, mut rest) = (WorkerFrameDecoder::default(), Vec::new(), bytes.as_slice());
        for size in sizes.into_iter().cycle() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            decoder.feed(now);
            while let Some(frame) = decoder.next_frame().unwrap() {
                found.push(MessageToGateway::decode(frame).unwrap());
            }
            rest = later;
            if rest.is_empty() { break; }
        }
        prop_assert_eq!(found, messages());
        prop_assert!(!decoder.is_midway());
    }
}
