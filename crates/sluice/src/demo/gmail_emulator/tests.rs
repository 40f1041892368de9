//! The Gmail adapter against the demo's own service, over real HTTP on this machine.

mod discovery;
mod emulator;
mod http;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_adapters::adapter::{
    Adapter, AttachedFile, ReconcileOutcome, ServiceWrite, SyncAdapter as _, SyncChange, SyncCursor, SyncError,
    SyncPage,
};
use sluice_adapters::conformance::{self, ConformanceStage};
use sluice_adapters::error::{AdapterWriteError, FailureCause};
use sluice_adapters::gmail::GmailAdapter;
use sluice_adapters::job::{self, AdapterJobRequest, AdapterJobResponse as Told, WritePreparation};
use sluice_adapters::mime;
use sluice_adapters::net::Net;
use sluice_core::CapabilityName;
use sluice_core::capability::Capability;
use sluice_core::rollback::ObjectFingerprint;

use super::faults::{FaultTiming, InjectedFault};
use super::mailbox::MailboxChangeKind;
use crate::demo::messages;
use http::RunningEmulator;

fn write(op: &str, capability: &str, arguments: Value) -> ServiceWrite {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let capability = CapabilityName::new(capability).unwrap();
    ServiceWrite { op: op.into(), capability, arguments, at: http::NOW, blobs: Vec::new() }
}

fn failing(kind: &str, when: FaultTiming, status: Option<u16>) -> InjectedFault {
    InjectedFault { kind: kind.into(), when, status, retry_after_s: None, times: 1, skip: 0 }
}

struct GmailConformanceTarget {
    gmail: GmailAdapter,
    world: RunningEmulator,
    given: u64,
    /// Whether the effect of the tested write is a draft, instead of a draft on the way to a mail.
    drafting: bool,
    start: u64,
}

impl ConformanceStage for GmailConformanceTarget {
    fn parts(&mut self) -> (&dyn Adapter, &mut dyn Net) {
        (&self.gmail, &mut self.world.net)
    }

    fn write(&mut self, capability: &Capability) -> ServiceWrite {
        self.given += 1;
        let n = self.given;
        self.drafting = capability.name.as_str() == "email.draft";
        let id = self.world.receive(&format!("Question {n}"));
        let arguments = match capability.name.as_str() {
            "email.send" | "email.draft" => {
                json!({"to": "Li <li@northpeak.example>", "subject": format!("Nr {n}"), "body": format!("Text {n}\n")})
            }
            "email.reply" => json!({"message_id": id, "to": "ana@example.com", "body": format!("Answer {n}")}),
            "email.forward" => json!({"message_id": id, "to": ["tom@alderfinch.example"], "body": "see below"}),
            "email.delete" => json!({"message_id": id}),
            "email.bulk_delete" => json!({"message_ids": [id, self.world.receive("Another")]}),
            _ => json!({"message_id": id, "add_labels": ["work"], "remove_labels": ["INBOX"]}),
        };
        write(&format!("buf_{n}"), capability.name.as_str(), arguments)
    }

    fn effects(&mut self) -> u64 {
        let (start, drafting) = (self.start, self.drafting);
        self.world.upstream.as_owner(|mailbox, _| {
            let feed = mailbox.since(start).unwrap_or_default();
            let labels = feed.iter().filter(|entry| {
                matches!(entry.what, MailboxChangeKind::LabelsAdded | MailboxChangeKind::LabelsRemoved)
            });
            let drafts = if drafting { mailbox.drafts.len() } else { 0 };
            (labels.count() + drafts + mailbox.sent()) as u64
        })
    }

    fn expire(&mut self) -> bool {
        self.world.upstream.as_owner(|mailbox, _| mailbox.expire_history());
        true
    }
}

#[test]
fn the_gmail_adapter_keeps_every_promise_of_an_adapter() {
    let world = RunningEmulator::with_mail(120);
    world.upstream.as_owner(|mailbox, _| mailbox.label("Work"));
    let start = world.upstream.as_owner(|mailbox, _| mailbox.position());
    let mut stage = GmailConformanceTarget {
        gmail: GmailAdapter::new(messages::OWNER).unwrap(),
        world,
        given: 0,
        drafting: false,
        start,
    };
    let findings = conformance::check(&mut stage);
    assert!(findings.is_empty(), "{findings:#?}");
}

fn gmail() -> GmailAdapter {
    GmailAdapter::new(messages::OWNER).unwrap()
}

/// One write from its preparation to its end, as the gateway carries it out.
fn settle(
    gmail: &GmailAdapter,
    world: &mut RunningEmulator,
    write: &ServiceWrite,
    dice: &mut u64,
) -> Result<(), String> {
    let mut handle = None;
    for _attempt in 0..40 {
        let WritePreparation { handle: made, .. } = match job::prepare(gmail, &mut world.net, write, handle.clone()) {
            Ok(prepared) => prepared,
            Err(AdapterWriteError::NotDone(_)) => continue,
            Err(other) => return Err(format!("{other:?}")),
        };
        handle = made;
        plan(world, dice);
        match job::perform(gmail, &mut world.net, write, handle.as_ref()) {
            Ok(_) => return Ok(()),
            Err(AdapterWriteError::NotDone(_)) => {}
            Err(AdapterWriteError::Refused(why)) => return Err(format!("{why:?}")),
            Err(AdapterWriteError::Unclear) => loop {
                plan(world, dice);
                let look = AdapterJobRequest::LookUp { write: write.clone(), handle: handle.clone() };
                match job::run(gmail, &mut world.net, &look) {
                    Told::Found(ReconcileOutcome::Applied(_)) => return Ok(()),
                    Told::Found(ReconcileOutcome::Absent) => break,
                    Told::Found(ReconcileOutcome::Unknown) => {}
                    other => return Err(format!("{other:?}")),
                }
            },
        }
    }
    Err("it did not end".into())
}

/// Half of all requests fail in some way.
fn plan(world: &RunningEmulator, dice: &mut u64) {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let fault = match (*dice >> 33) % 12 {
        0 => failing("drafts/send", FaultTiming::After, None),
        1 => failing("drafts/send", FaultTiming::After, Some(500)),
        2 => failing("drafts/send", FaultTiming::Before, Some(503)),
        3 => failing("drafts/send", FaultTiming::Before, None),
        4 => failing("drafts/send", FaultTiming::Before, Some(429)),
        5 => failing("POST drafts", FaultTiming::After, None),
        6 => failing("GET drafts/one", FaultTiming::Before, Some(500)),
        7 => failing("GET threads/one", FaultTiming::Before, None),
        _ => return,
    };
    world.upstream.fail(fault);
}

#[test]
fn five_hundred_sends_with_lost_replies_leave_exactly_five_hundred_mails() {
    let (mut world, gmail, mut dice) = (RunningEmulator::with_mail(20), gmail(), 7);
    let before = world.upstream.as_owner(|mailbox, _| mailbox.sent());
    for n in 0..500 {
        let one = json!({"to": "li@northpeak.example", "subject": format!("Nr {n}"), "body": format!("Text {n}")});
        settle(&gmail, &mut world, &write(&format!("buf_{n}"), "email.send", one), &mut dice).unwrap();
    }
    let mut marks: BTreeMap<String, u32> = BTreeMap::new();
    world.upstream.as_owner(|mailbox, _| {
        for message in mailbox.newest(None).filter(|message| message.labels.contains("SENT")) {
            if let Some(mark) = mime::parse(&message.raw).mark {
                *marks.entry(mark).or_default() += 1;
            }
        }
        assert_eq!(mailbox.sent() - before, 500);
    });
    assert_eq!(marks.len(), 500);
    assert!(marks.values().all(|times| *times == 1), "a mail was sent twice");
}

/// A copy of the mailbox: id to labels.
type MailboxLabelSnapshot = BTreeMap<String, Vec<String>>;

fn apply(copy: &mut MailboxLabelSnapshot, page: SyncPage) -> (SyncCursor, bool) {
    for change in page.changes {
        match change {
            SyncChange::Put(item) => drop(copy.insert(item.id, item.labels)),
            SyncChange::Labels { id, labels } => drop(copy.insert(id, labels)),
            SyncChange::Gone { id } => drop(copy.remove(&id)),
            SyncChange::LabelNames(_) => {}
        }
    }
    (page.next, page.more)
}

fn follow(world: &mut RunningEmulator, copy: &mut MailboxLabelSnapshot, mut since: Option<SyncCursor>) -> SyncCursor {
    loop {
        let page = gmail().changes(&mut world.net, since.as_ref()).unwrap();
        let (next, more) = apply(copy, page);
        if !more {
            return next;
        }
        since = Some(next);
    }
}

fn truth(world: &RunningEmulator) -> MailboxLabelSnapshot {
    let labels = |labels: &std::collections::BTreeSet<String>| labels.iter().cloned().collect();
    world.upstream.as_owner(|mailbox, _| mailbox.newest(None).map(|m| (m.id.clone(), labels(&m.labels))).collect())
}

#[test]
fn a_copy_is_whole_and_stays_so() {
    let mut world = RunningEmulator::with_mail(230);
    let mut copy = MailboxLabelSnapshot::new();
    let mut end = follow(&mut world, &mut copy, None);
    assert_eq!(copy, truth(&world));
    for round in 0..5 {
        world.upstream.as_owner(|mailbox, now| {
            let ids: Vec<String> = mailbox.newest(None).map(|m| m.id.clone()).skip(round * 7).take(60).collect();
            for (n, id) in ids.iter().enumerate() {
                match n % 4 {
                    0 => assert!(mailbox.relabel(id, &["STARRED".into()], &["UNREAD".into()]).is_some()),
                    1 => assert!(mailbox.relabel(id, &["TRASH".into()], &["INBOX".into()]).is_some()),
                    2 => assert!(mailbox.remove(id).is_some()),
                    _ => assert!(
                        !mailbox.receive(b"Subject: new\r\n\r\nbody".to_vec(), &["INBOX"], now, None).is_empty()
                    ),
                }
            }
        });
        end = follow(&mut world, &mut copy, Some(end));
        assert_eq!(copy, truth(&world), "round {round}");
    }
    let calls = world.upstream.calls();
    follow(&mut world, &mut copy, Some(end));
    assert_eq!(
        world.upstream.calls(),
        calls + 2,
        "nothing changed: the feed and the labels are asked for, and no mail"
    );
}

#[test]
fn what_changes_during_the_first_copy_is_not_missed() {
    let mut world = RunningEmulator::with_mail(130);
    let mut copy = MailboxLabelSnapshot::new();
    let (mut since, _) = apply(&mut copy, gmail().changes(&mut world.net, None).unwrap());
    world.upstream.as_owner(|mailbox, now| {
        let newest = mailbox.newest(None).next().unwrap().id.clone();
        mailbox.relabel(&newest, &["STARRED".into()], &[]);
        let oldest = mailbox.newest(None).last().unwrap().id.clone();
        mailbox.remove(&oldest);
        mailbox.receive(b"Subject: late\r\n\r\n".to_vec(), &["INBOX"], now, None);
    });
    since = follow(&mut world, &mut copy, Some(since));
    assert_eq!(copy, truth(&world));
    world.upstream.as_owner(|mailbox, _| mailbox.expire_history());
    assert_eq!(gmail().changes(&mut world.net, Some(&since)), Err(SyncError::Expired));
}

#[test]
fn fifty_deletes_are_taken_back_with_their_labels_and_the_three_somebody_changed_are_left() {
    let (mut world, gmail) = (RunningEmulator::with_mail(80), gmail());
    let before = truth(&world);
    let ids: Vec<String> =
        before.iter().filter(|(_, l)| l.contains(&"INBOX".into())).map(|(id, _)| id.clone()).take(50).collect();
    assert_eq!(ids.len(), 50);
    let mut done = Vec::new();
    for id in &ids {
        let write = write("buf_1", "email.delete", json!({"message_id": id}));
        let prepared = job::prepare(&gmail, &mut world.net, &write, None).unwrap();
        let result = job::perform(&gmail, &mut world.net, &write, None).unwrap();
        done.push((write, prepared.before.unwrap(), result));
    }
    world.upstream.as_owner(|mailbox, _| {
        for id in &ids[..3] {
            assert!(mailbox.relabel(id, &[], &["TRASH".into()]).is_some(), "taken out of the trash, and archived");
        }
        for id in &ids[3..6] {
            assert!(mailbox.relabel(id, &["STARRED".into()], &[]).is_some());
        }
    });
    let mut refused = 0;
    for (write, before, result) in done {
        let (before, receipt) = (before.state, result.receipt);
        let present =
            AdapterJobRequest::Present { write: write.clone(), before: before.clone(), receipt: receipt.clone() };
        let Told::Print(Ok(print)) = job::run(&gmail, &mut world.net, &present) else { panic!("no print") };
        if Some(print) != result.after {
            refused += 1;
            continue;
        }
        let told = job::run(&gmail, &mut world.net, &AdapterJobRequest::Undo { write, before, receipt });
        assert!(matches!(told, Told::Done(Ok(_))), "{told:?}");
    }
    assert_eq!(refused, 3);
    let after = truth(&world);
    let has = |id: &String, label: &str| after[id].iter().any(|one| one == label);
    for id in &ids[..3] {
        assert!(!has(id, "TRASH") && !has(id, "INBOX"), "what somebody moved was left where it is");
    }
    for id in &ids[3..6] {
        let starred: std::collections::BTreeSet<_> = before[id].iter().cloned().chain(["STARRED".into()]).collect();
        assert_eq!(after[id].iter().cloned().collect::<std::collections::BTreeSet<_>>(), starred, "a new label stays");
    }
    for id in &ids[6..] {
        assert_eq!(after[id], before[id], "every label is back");
    }
}

#[test]
fn an_answer_stays_in_its_thread_and_refers_to_what_it_answers() {
    let (mut world, gmail) = (RunningEmulator::with_mail(0), gmail());
    let raw = b"From: Li <li@northpeak.example>\r\nReply-To: evil@elsewhere.example\r\nTo: office@alderfinch.example, ana@northpeak.example\r\n\
        Subject: Roof\r\nMessage-ID: <q1@northpeak.example>\r\nReferences: <q0@northpeak.example>\r\n\r\nWhen?";
    let id = world.upstream.as_owner(|mailbox, now| mailbox.receive(raw.to_vec(), &["INBOX"], now - 1000, None));
    let nobody = write("buf_q", "email.reply", json!({"message_id": id, "body": "Friday", "reply_all": true}));
    let none = job::prepare(&gmail, &mut world.net, &nobody, None);
    assert!(
        matches!(none, Err(AdapterWriteError::Refused(why)) if why.cause == FailureCause::Argument),
        "nobody is made up here"
    );
    let arguments = json!({"message_id": id, "to": ["li@northpeak.example"], "body": "Friday", "reply_all": true});
    let write = write("buf_r", "email.reply", arguments);
    let prepared = job::prepare(&gmail, &mut world.net, &write, None).unwrap();
    job::perform(&gmail, &mut world.net, &write, prepared.handle.as_ref()).unwrap();
    world.upstream.as_owner(|mailbox, _| {
        let thread = mailbox.thread(&id);
        let sent = mime::parse(&thread.last().unwrap().raw);
        assert_eq!(thread.len(), 2);
        assert_eq!(sent.references, ["q0@northpeak.example", "q1@northpeak.example"]);
        assert_eq!(sent.mail.subject, "Re: Roof");
        assert_eq!(sent.mail.to[0].address, "li@northpeak.example");
        assert_eq!(
            (sent.mail.to.len(), sent.mail.cc.len()),
            (1, 0),
            "it goes to those who were named, and nobody else"
        );
        assert_ne!(sent.mail.message_id.as_deref(), Some("q1@northpeak.example"));
    });
}

#[test]
fn a_forwarded_mail_brings_its_files_and_a_sent_one_those_its_hashes_name() {
    let (mut world, gmail) = (RunningEmulator::with_mail(0), gmail());
    let file =
        AttachedFile { name: "plan.pdf".into(), media_type: "application/pdf".into(), bytes: b"%PDF plan".to_vec() };
    let hash = sluice_core::hex::encode(&<sha2::Sha256 as sha2::Digest>::digest(&file.bytes));
    let arguments = json!({"to": "li@northpeak.example", "subject": "Plan", "body": "here", "attachments": [format!("sha256:{hash}")]});
    let mut send = write("buf_a", "email.send", arguments);
    let missing = job::prepare(&gmail, &mut world.net, &send, None);
    assert!(matches!(missing, Err(AdapterWriteError::Refused(why)) if why.cause == FailureCause::Argument));
    send.blobs = vec![file.clone()];
    let prepared = job::prepare(&gmail, &mut world.net, &send, None).unwrap();
    let done = job::perform(&gmail, &mut world.net, &send, prepared.handle.as_ref()).unwrap();
    let forward = write("buf_f", "email.forward", json!({"message_id": done.receipt, "to": "tom@alderfinch.example"}));
    let prepared = job::prepare(&gmail, &mut world.net, &forward, None).unwrap();
    let done = job::perform(&gmail, &mut world.net, &forward, prepared.handle.as_ref()).unwrap();
    world.upstream.as_owner(|mailbox, _| {
        let raw = mime::parse(&mailbox.get(&done.receipt).unwrap().raw);
        assert_eq!((raw.mail.subject.as_str(), raw.contents[0].as_slice()), ("Fwd: Plan", file.bytes.as_slice()));
    });
}

#[test]
fn a_draft_a_person_deleted_is_nobodys_guess() {
    let (mut world, gmail) = (RunningEmulator::with_mail(3), gmail());
    let send = write("buf_d", "email.send", json!({"to": "li@northpeak.example", "subject": "S", "body": "B"}));
    let prepared = job::prepare(&gmail, &mut world.net, &send, None).unwrap();
    world.upstream.as_owner(|mailbox, _| {
        let id = mailbox.drafts.pop_first().unwrap().1;
        mailbox.remove(&id);
    });
    let answer = job::perform(&gmail, &mut world.net, &send, prepared.handle.as_ref());
    assert_eq!(answer, Err(AdapterWriteError::Unclear));
    let look = job::run(&gmail, &mut world.net, &AdapterJobRequest::LookUp { write: send, handle: prepared.handle });
    assert!(matches!(look, Told::Found(ReconcileOutcome::Unknown)), "neither sent nor there: a person decides");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_happens() {
    let (mut world, gmail) = (RunningEmulator::with_mail(3), gmail());
    let id = world.receive("x");
    let gone = json!({"message_id": "ffffffffffffffff"});
    for (capability, arguments) in [
        ("email.delete", gone.clone()),
        ("email.reply", json!({"message_id": "ffffffffffffffff", "body": "b"})),
        ("email.label", json!({"message_id": id, "add_labels": ["No such label"]})),
        ("email.label", json!({"message_id": id, "add_labels": ["TRASH"]})),
        ("email.move", json!({"message_id": id, "add_labels": ["DRAFT"]})),
        ("email.send", json!({"to": "a@b.example x@y.example", "subject": "s"})),
        ("email.send", json!({"to": "a@b.example", "subject": "s\r\nBcc: evil@elsewhere.example"})),
        ("email.send", json!({"to": "a@b.example", "from": "boss@elsewhere.example"})),
    ] {
        let calls = world.upstream.calls_by_kind();
        let answer = job::prepare(&gmail, &mut world.net, &write("buf_x", capability, arguments), None);
        assert!(matches!(answer, Err(AdapterWriteError::Refused(_))), "{capability}: {answer:?}");
        let writes = |calls: &BTreeMap<String, u64>| {
            calls.iter().filter(|(kind, _)| !kind.starts_with("GET")).map(|(_, n)| n).sum::<u64>()
        };
        assert_eq!(writes(&calls), writes(&world.upstream.calls_by_kind()), "{capability}");
    }
}

#[test]
fn a_token_that_was_revoked_or_has_run_out_is_refused() {
    let mut world = RunningEmulator::with_mail(2);
    world.clock.advance(sluice_core::Millis::from_hours(2));
    let answer = gmail().changes(&mut world.net, None);
    assert!(matches!(answer, Err(SyncError::Stopped(why)) if why.cause == FailureCause::NeedsReauth));
}

#[test]
fn a_code_works_once_and_only_with_its_verifier() {
    use base64::Engine as _;
    let mut world = RunningEmulator::with_mail(1);
    let verifier = "a-verifier-of-at-least-forty-three-characters-x";
    let challenge =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(<sha2::Sha256 as sha2::Digest>::digest(verifier));
    let code = |world: &mut RunningEmulator| {
        let path = format!(
            "/o/oauth2/v2/auth?response_type=code&client_id=demo&redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Fcb&code_challenge={challenge}&code_challenge_method=S256&state=s1"
        );
        let reply = world.net.plain("GET", &path, "");
        let location = reply.header("location").unwrap().to_owned();
        assert!(location.ends_with("&state=s1"));
        location.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned()
    };
    let exchange = |world: &mut RunningEmulator, code: &str, verifier: &str, redirect: &str| {
        let body = format!(
            "grant_type=authorization_code&code={code}&code_verifier={verifier}&redirect_uri={redirect}&client_id=demo"
        );
        world.net.plain("POST", "/token", &body)
    };
    let home = "http%3A%2F%2F127.0.0.1%3A9%2Fcb";
    let first = code(&mut world);
    assert_eq!(exchange(&mut world, &first, "wrong", home).status, 400);
    assert_eq!(exchange(&mut world, &first, verifier, home).status, 400, "it was spent by the wrong verifier");
    let second = code(&mut world);
    assert_eq!(exchange(&mut world, &second, verifier, "http%3A%2F%2F127.0.0.1%3A9%2Felse").status, 400);
    let third = code(&mut world);
    let tokens: Value = serde_json::from_slice(&exchange(&mut world, &third, verifier, home).body).unwrap();
    assert_eq!(exchange(&mut world, &third, verifier, home).status, 400);
    let refresh = tokens["refresh_token"].as_str().unwrap().to_owned();
    world.net.token = tokens["access_token"].as_str().unwrap().to_owned();
    assert!(gmail().changes(&mut world.net, None).is_ok());
    assert_eq!(
        world.net.plain("POST", "/token", &format!("grant_type=refresh_token&refresh_token={refresh}")).status,
        200
    );
    assert_eq!(world.net.plain("POST", "/revoke", &format!("token={refresh}")).status, 200);
    assert!(gmail().changes(&mut world.net, None).is_err());
    assert_eq!(
        world.net.plain("POST", "/token", &format!("grant_type=refresh_token&refresh_token={refresh}")).status,
        400
    );
}

#[test]
fn every_request_is_one_the_official_description_knows() {
    let Some(description) = discovery::GmailApiDescription::read() else { return };
    let world = RunningEmulator::with_mail(60);
    world.upstream.as_owner(|mailbox, _| mailbox.label("Work"));
    let start = world.upstream.as_owner(|mailbox, _| mailbox.position());
    let mut stage = GmailConformanceTarget { gmail: gmail(), world, given: 0, drafting: false, start };
    conformance::check(&mut stage);
    let seen = std::mem::take(&mut stage.world.net.seen);
    assert!(seen.len() > 100);
    for request in seen {
        description.check(&request).unwrap_or_else(|why| panic!("{} {}: {why}", request.method.as_str(), request.path));
    }
}

#[test]
fn a_print_is_of_the_labels_that_the_write_moves_and_nothing_else() {
    let (mut world, gmail) = (RunningEmulator::with_mail(0), gmail());
    let id = world.receive("x");
    let write = write("buf_p", "email.delete", json!({"message_id": id}));
    let print = |world: &mut RunningEmulator| -> ObjectFingerprint {
        let before = br#"{"touched":["INBOX","SPAM","TRASH"],"messages":{}}"#.to_vec();
        let job = AdapterJobRequest::Present { write: write.clone(), before, receipt: String::new() };
        match job::run(&gmail, &mut world.net, &job) {
            Told::Print(Ok(print)) => print,
            other => panic!("{other:?}"),
        }
    };
    let first = print(&mut world);
    world.upstream.as_owner(|mailbox, _| assert!(mailbox.relabel(&id, &["STARRED".into()], &[]).is_some()));
    assert_eq!(first, print(&mut world), "the owner starred it, which a delete does not touch");
    world.upstream.as_owner(|mailbox, _| assert!(mailbox.relabel(&id, &[], &["INBOX".into()]).is_some()));
    assert_ne!(first, print(&mut world), "the owner moved it");
}

#[test]
fn a_plus_in_a_path_is_a_plus() {
    assert_eq!(super::api::path_parts("messages/a+b%2Fc%20d"), ["messages", "a+b/c d"]);
}
