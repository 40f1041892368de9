//! What people, programs and attackers write: everything here is signed by the right person and carries the right
//! token, and is still not an approval.

use std::fmt::Write as _;

use super::mail_server::post;
use super::test_gateway::{RepliesTestGateway, RepliesTestPlan};

/// A body of several parts.
pub(super) fn parts(mail: &str, kind: &str, parts: &[&str]) -> String {
    let (head, _) = mail.split_once("\n\n").unwrap();
    let head = head
        .replace("Content-Type: text/plain; charset=utf-8", &format!("Content-Type: multipart/{kind}; boundary=cut"));
    let mut text = format!("{head}\n\n");
    parts.iter().for_each(|part| writeln!(text, "--cut\n{part}").unwrap());
    text.push_str("--cut--\n");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_are_no_exact_answer_decide_nothing_and_get_the_menu_once() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    for words in [
        "no",
        "3?",
        "1 and 2",
        "1?",
        "1.",
        "yes",
        "",
        "\u{1f44d}",
        "1\u{fe0f}\u{20e3}",
        "\u{ff11}",
        "> 1",
        "> 1  Allow once\n> 2  Allow for this session",
        "On Tue, 17 Nov 2026, gate@example.test wrote:\n1",
        "-----Original Message-----\n1",
        "Begin forwarded message:\n\n1",
        "From: Ana <ana@example.test>\nSubject: yes\n\n1",
        "-- \n1",
        "4",
        "5",
        "hello\n\n1",
    ] {
        let letter = house.ask().await;
        let before = house.told().len();
        house.send(&house.reply(&letter, words));
        house.look().await;
        assert_eq!(house.state(letter.approval).await, "pending", "{words:?}");
        let told = house.told();
        assert_eq!(told.len(), before + 1, "{words:?}: asked once more");
        assert!(told.last().unwrap().contains("Allow once"), "{words:?}: {told:?}");
        house.send(&house.reply(&letter, words));
        house.look().await;
        assert_eq!(house.told().len(), before + 1, "{words:?}: and only once");
        assert_eq!(house.state(letter.approval).await, "pending", "{words:?}");
        // The same person can still say it properly.
        house.send(&house.reply(&letter, "3"));
        house.look().await;
        assert_eq!(house.state(letter.approval).await, "denied", "{words:?}");
        house.clock.advance(sluice_core::Millis::from_secs(1));
    }
    assert!(house.refused().await.is_empty(), "the person is who they say they are");
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_of_a_strange_shape_approve_nothing() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let plain = "Content-Type: text/plain; charset=utf-8";
    type Shape = fn(&str) -> String;
    let shapes: [(&str, Shape); 12] = [
        ("html only", |mail| mail.replace("text/plain", "text/html").replace("\n\n1\n", "\n\n<p>1</p>\n")),
        ("html beside nothing", |mail| parts(mail, "alternative", &["Content-Type: text/html\n\n<p>1</p>"])),
        ("base64", |mail| mail.replace("\n\n1\n", "\nContent-Transfer-Encoding: base64\n\nMQo=\n")),
        ("wrong charset", |mail| mail.replace("utf-8", "utf-16le")),
        ("unknown charset", |mail| mail.replace("utf-8", "x-unknown")),
        ("utf-7", |mail| mail.replace("utf-8", "utf-7").replace("\n\n1\n", "\n\n+ADE-\n")),
        ("nested forward", |mail| {
            parts(mail, "mixed", &["Content-Type: message/rfc822\n\nFrom: a@b.example\nContent-Type: text/plain\n\n1"])
        }),
        ("forward in a forward", |mail| {
            let inner = "Content-Type: message/rfc822\n\nFrom: a@b.example\nContent-Type: message/rfc822\n\nFrom: c@d.example\n\n1";
            parts(mail, "mixed", &["Content-Type: text/plain\n\nsee below", inner])
        }),
        ("attached text", |mail| {
            parts(mail, "mixed", &["Content-Type: text/plain\nContent-Disposition: attachment; filename=a.txt\n\n1"])
        }),
        ("second part", |mail| {
            parts(mail, "mixed", &["Content-Type: text/plain\n\nno", "Content-Type: text/plain\n\n1"])
        }),
        ("broken base64", |mail| mail.replace("\n\n1\n", "\nContent-Transfer-Encoding: base64\n\n1\n")),
        ("nothing at all", |mail| parts(mail, "mixed", &[])),
    ];
    for (name, shape) in shapes {
        let letter = house.ask().await;
        let mail = house.reply(&letter, "1");
        assert!(mail.contains(plain) && mail.ends_with("\n\n1\n"));
        let refused = house.refused().await.len();
        house.send(&shape(&mail));
        house.look().await;
        assert_eq!(house.state(letter.approval).await, "pending", "{name}");
        // The person is who they say they are: it is the shape that says nothing. The reader of mail that our debug builds
        // use gives up on a forward inside a forward.
        let refused = house.refused().await.len() - refused;
        assert!(refused == 0 || name == "forward in a forward", "{name}: it never came to be read");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_came_packed_can_still_deny() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    let mail = house.reply(&letter, "3").replace("\n\n3\n", "\nContent-Transfer-Encoding: base64\n\nMwo=\n");
    house.send(&mail);
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_reply_of_two_forms_is_understood() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    let text = "Content-Type: text/plain; charset=\"UTF-8\"\nContent-Transfer-Encoding: quoted-printable\n\n4 f=C3=BCr heute\n\n\
                On Tue, 17 Nov 2026 at 10:02, Gate <gate@example.test> wrote:\n> 3  Deny\n> ID";
    let rich = "Content-Type: text/html; charset=\"UTF-8\"\n\n<div dir=\"ltr\">4 f&uuml;r heute</div><br><div>On Tue, 17 Nov \
                2026 at 10:02, Gate &lt;gate@example.test&gt; wrote:<br></div><blockquote>3  Deny</blockquote>";
    let text = text.replace("ID", &letter.approval.to_string());
    house.send(&parts(&house.reply(&letter, "1"), "alternative", &[&text, rich]));
    house.look().await;
    let approval = house.gw.store.approval(letter.approval).await.unwrap().unwrap().approval;
    assert_eq!((approval.state.word(), approval.note.as_deref()), ("approved", Some("für heute")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_is_too_large_is_not_even_fetched() {
    let Some(post) = post() else { return };
    let relay = super::faults::InterruptibleRelay::to(post.port("imap")).await;
    let mut house =
        RepliesTestGateway::new(post, RepliesTestPlan { port: Some(relay.port), ..RepliesTestPlan::default() }).await;
    let letter = house.ask().await;
    let line = format!("> {}\n", "x".repeat(98));
    house.send(&house.reply(&letter, &format!("1\n\n{}", line.repeat(10_000))));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending");
    assert_eq!(house.refused().await, ["email.too_large"]);
    assert_eq!(relay.times("BODY.PEEK[]"), 0);
    // Just below the limit it is read, and its first line counts.
    house.send(&house.reply(&letter, &format!("3\n\n{}", line.repeat(4_000))));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_names_another_question_decides_neither() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let (first, second) = (house.ask().await, house.ask().await);
    house.send(&house.reply(&first, &format!("1\n\n> {}", second.approval)));
    house.send(&house.reply(&first, "1").replace("Subject: Re:", &format!("Subject: Re: [{}]", second.approval)));
    house.send(&house.reply(&second, "1").replace(&second.subject, &first.subject));
    house.look().await;
    assert_eq!((house.state(first.approval).await, house.state(second.approval).await), ("pending", "pending"));
    assert_eq!(house.refused().await, ["email.other_id"; 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_answer_by_themselves_are_not_heard() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    for line in [
        "Auto-Submitted: auto-replied",
        "Precedence: bulk",
        "Precedence: auto_reply",
        "X-Autoreply: yes",
        "X-Autorespond: yes",
    ] {
        house.send(&format!("{line}\n{}", house.reply(&letter, "1")));
    }
    // A bounce has no sender on its envelope.
    let mail =
        house.post.signed(&house.reply(&letter, "1"), serde_json::json!({"dkim": house.post.dkim("example.test")}));
    house.post.deliver("", &house.replies, &mail);
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending");
    assert_eq!(house.refused().await, ["email.automatic"; 6]);
    assert!(house.told().is_empty(), "two programs must not write to each other");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_above_the_ceiling_of_mail_is_not_approved_by_mail() {
    let Some(post) = post() else { return };
    let email = "imap_security: \"off\"".into();
    let mut house =
        RepliesTestGateway::new(post, RepliesTestPlan { email, ceiling: "low", ..RepliesTestPlan::default() }).await;
    let low = house.ask().await;
    house.send(&house.reply(&low, "1"));
    house.look().await;
    assert_eq!(
        house.state(low.approval).await,
        "approved",
        "a file that can be looked at and taken back is of low risk"
    );
    let letter = house.ask_for("alerts.send", serde_json::json!({"message": "lunch", "severity": "info"})).await;
    let risk = sluice_gateway::gate::deciding::ApprovalRequest::read(&house.gw, letter.approval).await.unwrap().risk();
    assert_eq!(risk, sluice_config::Risk::Medium);
    house.send(&house.reply(&letter, "1"));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending", "it is above the ceiling");
    house.send(&house.reply(&letter, "3"));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "denied", "a no has no ceiling");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_answers_without_a_token_hears_so_once() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    for _ in 0..2 {
        house.send(&house.reply(&letter, "1").replace(&letter.reply_to, &house.replies));
    }
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending");
    assert_eq!(house.refused().await, ["email.no_token"; 2]);
    assert!(matches!(house.told().as_slice(), [one] if one.contains("reply to the message")), "{:?}", house.told());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_can_stop_everything_whatever_was_asked() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    house.send(&house.reply(&letter, "freeze all"));
    house.look().await;
    assert_eq!(house.gw.store.freezes().await.unwrap().len(), 1);
    assert!(house.told().iter().any(|text| text.contains("Frozen")), "{:?}", house.told());
}
