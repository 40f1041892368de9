//! What breaks on the way: the server goes and comes back, the gateway dies in the middle, keys cannot be had, guesses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sluice_core::{BoxedFuture, Millis};
use sluice_gateway::channels::email::EmailChannel;
use sluice_gateway::channels::mail_auth::{TxtLookupError, TxtResolver};
use sluice_gateway::channels::{Channel as _, ChannelError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::mail_server::post;
use super::test_gateway::{RepliesTestGateway, RepliesTestPlan};

/// Stands between the gateway and the mailbox: sees what is asked, and can be cut.
pub struct InterruptibleRelay {
    pub port: u16,
    seen: Arc<Mutex<String>>,
    news: Arc<Notify>,
    cut: Arc<Notify>,
    shut: Arc<AtomicBool>,
    /// The connection ends before a request with this in it is passed on.
    trap: Arc<Mutex<Option<&'static str>>>,
    _serves: JoinSet<()>,
}

impl InterruptibleRelay {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap().port();
        let (seen, news, cut) = (Arc::new(Mutex::new(String::new())), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (shut, trap) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let mut serves = JoinSet::new();
        let shared = (Arc::clone(&seen), Arc::clone(&news), Arc::clone(&cut), Arc::clone(&shut), Arc::clone(&trap));
        serves.spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((mut inner, _)) = listener.accept().await {
                let (seen, news, cut, shut, trap) = shared.clone();
                if shut.load(Ordering::SeqCst) {
                    continue;
                }
                lines.spawn(async move {
                    let mut outer = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let (mut ours, mut theirs) = (vec![0; 16_384], vec![0; 16_384]);
                    let cut = cut.notified();
                    tokio::pin!(cut);
                    loop {
                        tokio::select! {
                            () = &mut cut => return,
                            read = inner.read(&mut ours) => {
                                let Ok(length @ 1..) = read else { return };
                                let words = String::from_utf8_lossy(&ours[..length]).into_owned();
                                if trap.lock().unwrap().take_if(|trap| words.contains(*trap)).is_some() {
                                    return;
                                }
                                seen.lock().unwrap().push_str(&words);
                                if outer.write_all(&ours[..length]).await.is_err() { return }
                                news.notify_waiters();
                            }
                            read = outer.read(&mut theirs) => {
                                let Ok(length @ 1..) = read else { return };
                                if inner.write_all(&theirs[..length]).await.is_err() { return }
                            }
                        }
                    }
                });
            }
        });
        Self { port: here, seen, news, cut, shut, trap, _serves: serves }
    }

    /// Waits until something was asked.
    pub async fn saw(&self, words: &str) {
        loop {
            let news = self.news.notified();
            if self.seen.lock().unwrap().contains(words) {
                return;
            }
            news.await;
        }
    }

    pub fn times(&self, words: &str) -> usize {
        self.seen.lock().unwrap().matches(words).count()
    }
}

fn through(relay: &InterruptibleRelay) -> RepliesTestPlan {
    let email = "imap_security: \"off\", imap_poll: 25m".into();
    RepliesTestPlan { email, port: Some(relay.port), ..RepliesTestPlan::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_and_comes_back_loses_no_answer() {
    let Some(post) = post() else { return };
    let relay = InterruptibleRelay::to(post.port("imap")).await;
    let mut house = RepliesTestGateway::new(post, through(&relay)).await;
    let letter = house.ask().await;
    let cut = async {
        relay.saw("IDLE\r\n").await;
        relay.shut.store(true, Ordering::SeqCst);
        relay.cut.notify_waiters();
    };
    let (heard, ()) = tokio::join!(house.email.receive_answers(&house.gw), cut);
    assert!(matches!(heard, Err(ChannelError::Later { .. })), "{heard:?}");
    house.send(&house.reply(&letter, "1"));
    for _ in 0..3 {
        assert!(
            matches!(house.email.process_new_replies(&house.gw).await, Err(ChannelError::Later { .. })),
            "it is still away"
        );
    }
    relay.shut.store(false, Ordering::SeqCst);
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "approved");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_dies_at_any_step_decides_once_and_loses_nothing() {
    // Where the line breaks: before a mail is fetched, before it is marked, before the next look.
    for step in ["UID SEARCH", "RFC822.SIZE", "BODY.PEEK[]", "STORE"] {
        let Some(post) = post() else { return };
        let relay = InterruptibleRelay::to(post.port("imap")).await;
        let mut house = RepliesTestGateway::new(post, through(&relay)).await;
        let (first, second) = (house.ask().await, house.ask().await);
        house.send(&house.reply(&first, "1"));
        house.send(&house.reply(&second, "3"));
        *relay.trap.lock().unwrap() = Some(step);
        let _broken = house.email.process_new_replies(&house.gw).await;
        let house = house.restart().await;
        house.look().await;
        house.look().await;
        assert_eq!(house.state(first.approval).await, "approved", "{step}: {:?}", house.refused().await);
        assert_eq!(house.state(second.approval).await, "denied", "{step}");
        let facts = house.facts().await;
        let decided = |kind: &str| facts.iter().filter(|fact| fact["kind"] == kind).count();
        assert_eq!((decided("approval.approved"), decided("approval.denied")), (1, 1), "{step}");
        assert!(house.told().is_empty(), "{step}: nobody is told that it was decided already: {:?}", house.told());
        assert!(relay.times("BODY.PEEK[]") <= 3, "{step}: what was acted on is not fetched again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_numbers_its_mail_anew_is_read_again_and_nothing_decides_twice() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let (first, second) = (house.ask().await, house.ask().await);
    house.send(&house.reply(&first, "1"));
    house.look().await;
    let letters = house.told().len();
    // As a server does after a restore: every number means another mail.
    house.gw.store.set_channel_mark(&house.mark().await, "1 4000000000".into()).await.unwrap();
    house.send(&house.reply(&second, "3"));
    house.look().await;
    assert_eq!((house.state(first.approval).await, house.state(second.approval).await), ("approved", "denied"));
    assert_eq!(house.told().len(), letters, "what was heard before is known by its bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_broken_and_said_so_without_the_password() {
    let Some(post) = post() else { return };
    let house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    house.password("not-the-right-password").await;
    let Err(ChannelError::Broken { why }) = house.email.process_new_replies(&house.gw).await else {
        panic!("it must be broken")
    };
    assert!(why.contains("refuses the account") && !why.contains("not-the-right"), "{why}");
    house.password(house.post.word("password")).await;
    house.look().await;
}

/// Keys that can be had, or not.
#[derive(Debug, Default)]
struct DkimTestRecords {
    records: BTreeMap<String, String>,
    silent: AtomicBool,
    asked: AtomicU32,
}

impl TxtResolver for DkimTestRecords {
    fn txt<'a>(&'a self, name: &'a str) -> BoxedFuture<'a, Result<Vec<String>, TxtLookupError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let found = self.records.get(name).cloned().into_iter().collect();
        let silent = self.silent.load(Ordering::SeqCst);
        Box::pin(std::future::ready(if silent { Err(TxtLookupError) } else { Ok(found) }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_had_are_asked_for_again_and_hold_nobody_up_for_ever() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let record = house.post.about["domains"]["example.test"]["record"].as_str().unwrap().to_owned();
    let records = BTreeMap::from([("sel._domainkey.example.test".to_owned(), record)]);
    let table = Arc::new(DkimTestRecords { records, ..DkimTestRecords::default() });
    let email = EmailChannel::with_records(&house.gw.config.email, Arc::clone(&table) as Arc<dyn TxtResolver>).unwrap();
    let (first, second) = (house.ask().await, house.ask().await);
    table.silent.store(true, Ordering::SeqCst);
    house.send(&house.reply(&first, "1"));
    assert!(email.process_new_replies(&house.gw).await.is_err(), "not judged, so not passed over");
    table.silent.store(false, Ordering::SeqCst);
    email.process_new_replies(&house.gw).await.unwrap();
    assert_eq!(house.state(first.approval).await, "approved");
    table.silent.store(true, Ordering::SeqCst);
    house.send(&house.reply(&second, "1"));
    assert!(email.process_new_replies(&house.gw).await.is_err() && email.process_new_replies(&house.gw).await.is_err());
    email.process_new_replies(&house.gw).await.unwrap();
    assert_eq!(house.state(second.approval).await, "pending");
    assert_eq!(house.refused().await, ["email.no_keys"]);
    let asked = table.asked.load(Ordering::SeqCst);
    house.put(b"From: a@evil.test\r\nTo: x@example.test\r\nSubject: s\r\nDKIM-Signature: v=1; a=rsa-sha256; d=evil.test; s=x; h=from:to:subject; bh=AAAA; b=AAAA\r\n\r\n1\r\n");
    email.process_new_replies(&house.gw).await.unwrap();
    assert_eq!(table.asked.load(Ordering::SeqCst), asked, "nothing is looked up for strangers");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_guesses_tokens_is_soon_not_heard_any_more() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    let right = letter.reply_to.clone();
    let (local, domain) = house.replies.split_once('@').unwrap();
    for guess in 0..12_u128 {
        let to = format!("{local}+{:032x}@{domain}", guess * 0x1234_5678_9abc_def0_1234_5679);
        house.send(&house.reply(&letter, "1").replace(&right, &to));
    }
    house.look().await;
    let refused = house.refused().await;
    assert_eq!(refused.iter().filter(|code| *code == "email.token").count(), 10, "{refused:?}");
    assert_eq!(refused.iter().filter(|code| *code == "email.locked").count(), 2, "{refused:?}");
    assert!(house.alerts().await.contains(&"channel.locked".to_owned()));
    house.send(&house.reply(&letter, "1"));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending", "the right one comes too late");
    let mut house = house.restart().await;
    house.send(&house.reply(&letter, "1"));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending", "also after a restart");
    house.clock.advance(Millis::from_hours(2));
    let next = house.ask().await;
    house.send(&house.reply(&next, "1"));
    house.look().await;
    assert_eq!(house.state(next.approval).await, "approved", "{:?}", house.refused().await);
}
