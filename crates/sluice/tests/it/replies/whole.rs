//! Answers with a text, fetched from a mailbox: they count whole or not at all.

use super::mail_server::post;
use super::test_gateway::{ApprovalTestMessage, RepliesTestGateway, RepliesTestPlan};
use super::words::parts;

async fn reworded(
    house: &RepliesTestGateway,
    letter: &ApprovalTestMessage,
) -> (&'static str, Option<String>, Option<String>) {
    let filed = house.gw.store.client_request(letter.approval).await.unwrap().unwrap();
    (filed.approval.state.word(), filed.reworded, filed.approval.note)
}

/// A quote of the letter as mail programs make it.
fn quote(letter: &ApprovalTestMessage) -> String {
    format!("On Tue, 17 Nov 2026 at 10:02, Gate <gate@example.test> wrote:\n> Approve? Run it\n> {}", letter.approval)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_command_counts_with_its_last_line() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let whole = "kubectl delete pod x\n--dry-run=client";
    let flowed = |mail: &str| mail.replace("charset=utf-8", "charset=utf-8; format=flowed");
    let printable = |mail: &str| {
        let soft = mail.replace("charset=utf-8", "charset=utf-8\nContent-Transfer-Encoding: quoted-printable");
        soft.replace("pod x\n--dry-run=client", "pod x =\n--dry-run=3Dclient")
    };
    type Shape<'s> = &'s dyn Fn(&str) -> String;
    let shapes: [(Shape<'_>, &str, &str); 3] = [
        (&|mail: &str| mail.to_owned(), "5 kubectl delete pod x\n--dry-run=client", whole),
        (&flowed, "5 kubectl delete pod x \n--dry-run=client", "kubectl delete pod x --dry-run=client"),
        (&printable, "5 kubectl delete pod x\n--dry-run=client", "kubectl delete pod x --dry-run=client"),
    ];
    for (n, (shape, text, heard)) in shapes.into_iter().enumerate() {
        for quoted in [false, true] {
            let letter = house.ask_as_client(&format!("kubectl delete pod {n} {quoted}")).await;
            let body = if quoted { format!("{text}\n\n{}", quote(&letter)) } else { text.to_owned() };
            house.send(&shape(&house.reply(&letter, &body)));
            house.look().await;
            let (state, text, _) = reworded(&house, &letter).await;
            assert_eq!((state, text.as_deref()), ("approved", Some(heard)), "{body:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_incomplete_comes_back_and_counts_only_once_it_is_confirmed() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let plain = |text: &str| format!("Content-Type: text/plain; charset=utf-8\n\n{text}");
    let rich = |html: &str| format!("Content-Type: text/html; charset=utf-8\n\n{html}");
    type Shape<'s> = &'s dyn Fn(&str) -> String;
    let cases: [(Shape<'_>, &str); 6] = [
        (&|mail: &str| mail.replace("\n\nX", "\n\n5 echo hi\n> /tmp/x"), "echo hi"),
        (&|mail: &str| mail.replace("\n\nX", "\n\n5 echo hi\n--\nfile"), "echo hi"),
        (&|mail: &str| mail.replace("\n\nX", "\n\n5 echo hi\n\nSent from my iPhone"), "echo hi"),
        // The program broke the line in the plain part; the person saw one line.
        (
            &|mail: &str| {
                let (text, html) = (
                    plain("5 kubectl delete pod x\n--dry-run=client"),
                    rich("<div>5 kubectl delete pod x --dry-run=client</div>"),
                );
                parts(mail, "alternative", &[&text, &html])
            },
            "kubectl delete pod x --dry-run=client",
        ),
        // What was crossed out is gone in the plain part.
        (
            &|mail: &str| parts(mail, "alternative", &[&plain("5 rm -r a b"), &rich("<div>5 rm -r <s>a</s> b</div>")]),
            "rm -r a b",
        ),
        // A picture divides the text.
        (&|mail: &str| parts(mail, "mixed", &[&plain("5 rm x"), &plain("--dry-run")]), "rm x"),
    ];
    for (n, (shape, understood)) in cases.into_iter().enumerate() {
        let letter = house.ask_as_client(&format!("kubectl delete pod {n}")).await;
        house.send(&shape(&house.reply(&letter, "X")));
        house.look().await;
        assert_eq!(reworded(&house, &letter).await.0, "pending", "{n}");
        let confirm = house.letter("Confirm?").await;
        assert_eq!(confirm.approval, letter.approval);
        assert_ne!(confirm.reply_to, letter.reply_to, "{n}: a token of its own");
        let shown = confirm.text.replace("=\n", "").replace("=E2=94=82", "│").replace("=3D", "=");
        assert!(shown.contains(&format!("│ {understood}")), "{n}: {shown}");
        for (to, words) in [(&letter, "confirm"), (&confirm, "1"), (&confirm, "confirm it"), (&confirm, "yes")] {
            house.send(&house.reply(to, words));
            house.look().await;
            assert_eq!(reworded(&house, &letter).await.0, "pending", "{n}: {words}");
        }
        house.send(&house.reply(&confirm, &format!("confirm\n\n{}", quote(&letter))));
        house.look().await;
        let (state, text, _) = reworded(&house, &letter).await;
        assert_eq!((state, text.as_deref()), ("approved", Some(understood)), "{n}");
        house.clock.advance(sluice_core::Millis::from_secs(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_takes_its_reason_and_a_yes_takes_nothing() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask_as_client("one").await;
    house.send(&house.reply(&letter, "1\n\nno, wait"));
    house.send(&house.reply(&letter, "1\n--dry-run"));
    house.look().await;
    assert_eq!(reworded(&house, &letter).await.0, "pending");
    assert!(house.told().iter().any(|text| text.contains("1  Allow once")), "what would count: {:?}", house.told());
    house.send(&house.reply(&letter, "3 too risky\n\n-- \nAna"));
    house.look().await;
    assert_eq!(reworded(&house, &letter).await, ("denied", None, Some("too risky".into())));
}
