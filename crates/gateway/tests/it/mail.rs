//! Mail from end to end: a server that takes it, a letter without links, and a reply that is handed in.

use std::sync::{Arc, Mutex};

use serde_json::json;
use sluice_gateway::channels;
use sluice_gateway::loops::outbox::OutboxLoop;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::http::{ask, open};
use crate::test_gateway::TestGatewayPlan;

/// A server that takes mail, and turns some recipients away.
pub(crate) async fn server() -> (u16, Arc<Mutex<Vec<String>>>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken: Arc<Mutex<Vec<String>>> = Arc::default();
    let shared = Arc::clone(&taken);
    let mut serves = JoinSet::new();
    serves.spawn(async move {
        // Side by side: a connection that somebody keeps must not hold up the next one.
        let mut each = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let shared = Arc::clone(&shared);
            each.spawn(async move {
                let (read, mut write) = stream.into_split();
                let mut lines = BufReader::new(read).lines();
                write.write_all(b"220 test\r\n").await.unwrap();
                let mut mail: Option<String> = None;
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(text) = &mut mail {
                        if line == "." {
                            shared.lock().unwrap().push(mail.take().unwrap());
                            write.write_all(b"250 taken\r\n").await.unwrap();
                        } else {
                            text.push_str(&line);
                            text.push('\n');
                        }
                        continue;
                    }
                    let answer: &[u8] = match line.get(..4).unwrap_or_default().to_ascii_uppercase().as_str() {
                        "EHLO" => b"250-test\r\n250 8BITMIME\r\n",
                        "RCPT" if line.contains("reject@") => b"550 nobody\r\n",
                        "DATA" => {
                            mail = Some(String::new());
                            b"354 go on\r\n"
                        }
                        "QUIT" => b"221 bye\r\n",
                        _ => b"250 fine\r\n",
                    };
                    if write.write_all(answer).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (port, taken, serves)
}

#[tokio::test]
async fn a_question_goes_out_by_mail_and_its_reply_decides() {
    let (port, taken, _serves) = server().await;
    let config = format!(
        "approvals:\n  people:\n    - {{name: ana, email: ana@example.test}}\n    - {{name: eve, email: reject@example.test}}\n\
         email: {{smtp_host: 127.0.0.1, smtp_port: {port}, smtp_security: off, from: gate@example.test, reply_to: replies@example.test}}\n"
    );
    let open = open(TestGatewayPlan { config, ..TestGatewayPlan::default() }).await;
    let outbox = OutboxLoop::new(channels::configured(&open.house.gw.config).unwrap());
    let wish = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Run <b>command</b>", "preview": "ls\n1"});
    let made = ask(open.main, "POST", "/v1/approvals", &open.house.agent_key, Some(&wish)).await.json();
    let id = made["approval_id"].as_str().unwrap().to_owned();
    outbox.step(&open.house.gw).await.unwrap();
    let letters = || -> Vec<String> {
        taken.lock().unwrap().iter().filter(|mail| !mail.contains("channel.failing")).cloned().collect()
    };
    let mails = letters();
    assert_eq!(mails.len(), 1, "one address does not exist, and is not tried for ever: {mails:?}");
    let mail = mails[0].replace("=\n", "");
    let subject = mail.lines().find(|line| line.starts_with("Subject: ")).unwrap();
    assert!(mail.contains(&format!("[{id}]")) && subject.contains("Approve?"), "{mail}");
    assert!(mail.contains("To: ana@example.test") && mail.contains("Reply-To: replies@example.test"), "{mail}");
    assert!(
        mail.contains("Auto-Submitted: auto-generated") && mail.contains("text/plain") && mail.contains("text/html")
    );
    assert!(!mail.contains("href"), "a scanner has nothing to open");
    assert!(mail.contains("&lt;b&gt;command"), "{mail}");
    outbox.step(&open.house.gw).await.unwrap();
    assert_eq!(letters().len(), 1, "asked once");
    // The letter has its token in subject and text; a quoted reply carries it back by itself.
    let token = |mail: &str| {
        let at = mail.find("sgr_").expect("a token");
        mail[at..at + 26].to_owned()
    };
    let own = token(&mail);
    let unfolded = mail.replace("\n ", " ");
    let subject = unfolded.lines().find(|line| line.starts_with("Subject: ")).unwrap();
    assert!(subject.contains(&format!("[{own}]")), "{subject}");
    assert!(mail.contains(&format!("Keep the subject or this line in your reply: {own}")), "{mail}");
    let other = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Other", "preview": "other"});
    ask(open.main, "POST", "/v1/approvals", &open.house.agent_key, Some(&other)).await;
    outbox.step(&open.house.gw).await.unwrap();
    let strange = token(&letters()[1].replace("=\n", ""));
    assert_ne!(own, strange);
    let reply = async |quoted: &str| {
        let body = format!("1\n\nOn Tue, 5 Nov 2024, gate@example.test wrote:\n> 3  Deny\n> {quoted}");
        let reply = json!({"from": "ana@example.test", "subject": format!("Re: Approve? [{id}]"), "body": body});
        ask(open.main, "POST", "/v1/inbox/email-reply", &open.house.inbox_key, Some(&reply)).await
    };
    let guessed = format!("sgr_{}", "A".repeat(22));
    for wrong in ["", &strange, &guessed, &own.to_uppercase(), &own[..25], &format!("{own}x")] {
        let refused = reply(wrong).await;
        assert_eq!(refused.code(), "approval.reply_token", "{wrong}: {refused:?}");
    }
    let decided = reply(&own).await;
    assert_eq!(decided.json()["status"], "approved", "{decided:?}");
    outbox.step(&open.house.gw).await.unwrap();
    let mails = letters();
    assert_eq!(mails.len(), 3, "the outcome follows in the same conversation");
    assert!(mails[2].contains("In-Reply-To: <") && mails[2].contains("allowed once by ana"), "{}", mails[2]);
    assert!(!mails[2].contains("sgr_"), "what comes after the letter has no token");
}
