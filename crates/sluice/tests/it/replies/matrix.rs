//! Every combination of what a decision by mail needs, each as a mail that was really signed: only the full set decides.

use serde_json::{Value, json};

use super::mail_server::post;
use super::test_gateway::{ApprovalTestMessage, RepliesTestGateway, RepliesTestPlan};

/// What is wrong with a mail.
#[derive(Debug, Clone, Copy)]
struct ReplyDefects {
    token: bool,
    dkim: bool,
    alignment: bool,
    from: bool,
    twice: bool,
    length: bool,
    /// A forwarder nobody named vouches for it.
    arc: bool,
}

impl ReplyDefects {
    fn all() -> impl Iterator<Item = Self> {
        (0..128_u8).map(|bits| {
            let bit = |n: u8| bits & (1 << n) != 0;
            Self {
                token: bit(0),
                dkim: bit(1),
                alignment: bit(2),
                from: bit(3),
                twice: bit(4),
                length: bit(5),
                arc: bit(6),
            }
        })
    }

    fn is_fine(self) -> bool {
        !(self.token || self.dkim || self.alignment || self.from || self.twice || self.length)
    }

    fn mail(self, house: &RepliesTestGateway, letter: &ApprovalTestMessage) -> (String, Value) {
        let mut mail = house.reply(letter, "1");
        if self.token {
            mail = mail.replace(&letter.reply_to, &house.replies);
        }
        if self.from {
            mail = mail.replace(&format!("From: Ana <{}>", house.ana), "From: Ana <mallory@example.test>");
        }
        if self.twice {
            mail = format!("From: Ana <boss@example.test>\n{mail}");
        }
        let domain = if self.alignment { "evil.test" } else { "example.test" };
        let mut dkim = house.post.dkim(domain);
        dkim["length"] = json!(self.length);
        let mut wish = json!({"dkim": dkim});
        if self.dkim {
            wish["spoil"] = json!(["Subject: Re:", "Subject: RE:"]);
        }
        if self.arc {
            wish["seal"] = seal(house);
        }
        (mail, wish)
    }
}

fn seal(house: &RepliesTestGateway) -> Value {
    json!({
        "domain": "lists.test", "selector": "sel", "key": house.post.about["domains"]["lists.test"]["key"],
        "says": "lists.test; dkim=pass header.d=example.test; dmarc=pass header.from=example.test",
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_full_set_decides() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let mut approved = 0;
    for wrong in ReplyDefects::all() {
        let letter = house.ask().await;
        let (mail, wish) = wrong.mail(&house, &letter);
        house.send_signed(&mail, wish);
        house.look().await;
        let state = house.state(letter.approval).await;
        let expected = if wrong.is_fine() { "approved" } else { "pending" };
        assert_eq!(state, expected, "{wrong:?} {:?}", house.refused().await.last());
        approved += u32::from(state == "approved");
    }
    assert_eq!(approved, 2, "with and without a stranger who vouches");
    assert_eq!(house.refused().await.len(), 126, "each of the others is on record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarder_is_believed_if_it_was_named_and_says_what_it_must() {
    let Some(post) = post() else { return };
    let email = "imap_security: \"off\", forwarders: [lists.test]".into();
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan { email, ..RepliesTestPlan::default() }).await;
    let spoiled = |house: &RepliesTestGateway, says: &str| {
        let mut seal = seal(house);
        seal["says"] = json!(says);
        // The list changed the mail, so that the sender's own signature is broken.
        json!({"dkim": house.post.dkim("example.test"), "spoil": ["Subject: Re:", "Subject: [list] Re:"], "seal": seal})
    };
    for (says, expected) in [
        ("lists.test; dmarc=pass (p=reject) header.from=example.test", "approved"),
        ("lists.test; dkim=pass header.d=example.test", "approved"),
        ("lists.test; dkim=pass header.d=evil.test", "pending"),
        ("lists.test; dkim=fail header.d=example.test", "pending"),
        ("lists.test; spf=pass smtp.mailfrom=example.test", "pending"),
        ("lists.test; dkim=fail (dmarc=pass header.from=example.test) header.d=evil.test", "pending"),
    ] {
        let letter = house.ask().await;
        house.send_signed(&house.reply(&letter, "1"), spoiled(&house, says));
        house.look().await;
        assert_eq!(house.state(letter.approval).await, expected, "{says}: {:?}", house.refused().await);
    }
    // Somebody changed the text after the seal.
    let letter = house.ask().await;
    let wish = spoiled(&house, "lists.test; dmarc=pass header.from=example.test");
    let mail = String::from_utf8(house.post.signed(&house.reply(&letter, "3"), wish)).unwrap();
    house.put(mail.replace("\r\n\r\n3\r\n", "\r\n\r\n1\r\n").as_bytes());
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending", "{:?}", house.refused().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_wrote_into_a_mail_about_it_counts_nothing() {
    let Some(post) = post() else { return };
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
    let letter = house.ask().await;
    let claims = "Authentication-Results: mx.example.test; dkim=pass header.d=example.test; dmarc=pass header.from=example.test\n";
    house.send_signed(&format!("{claims}{}", house.reply(&letter, "1")), json!({}));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending");
    assert_eq!(house.refused().await, ["email.unsigned"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_that_leaves_out_a_header_does_not_count() {
    for left_out in ["To", "Subject"] {
        let Some(post) = post() else { return };
        let mut house = RepliesTestGateway::new(post, RepliesTestPlan::default()).await;
        let letter = house.ask().await;
        let mut dkim = house.post.dkim("example.test");
        let headers = dkim["headers"].as_array().unwrap().iter().filter(|name| **name != left_out).cloned().collect();
        dkim["headers"] = Value::Array(headers);
        house.send_signed(&house.reply(&letter, "1"), json!({"dkim": dkim}));
        house.look().await;
        assert_eq!(house.state(letter.approval).await, "pending", "{left_out}");
        assert_eq!(house.refused().await, ["email.not_aligned"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_cannot_answer_with_the_token_of_another() {
    let Some(post) = post() else { return };
    let people = ", {name: dan, email: dan@example.test}".into();
    let mut house = RepliesTestGateway::new(post, RepliesTestPlan { people, ..RepliesTestPlan::default() }).await;
    let letter = house.ask().await;
    // Dan is asked as well, and his mail is signed by the same domain.
    house.send(&house.reply(&letter, "1").replace(&house.ana, "dan@example.test"));
    house.send(&house.reply(&letter, "1").replace(&house.ana, "eve@example.test"));
    house.look().await;
    assert_eq!(house.state(letter.approval).await, "pending");
    assert_eq!(house.refused().await, ["email.token", "email.sender"]);
}
