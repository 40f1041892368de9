//! The program as people run it: configured by a file, asked over HTTP, answered by mail, its state on the screen.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

use super::mail_server::{fresh, post};
use crate::cli_gateway::CliTestGateway;
use crate::running::{ask, pause};

#[test]
fn a_gateway_of_its_own_asks_by_mail_hears_the_reply_and_says_how_it_is() {
    let Some(post) = post() else { return };
    let (ana, replies) = (format!("{}@example.test", fresh("ana")), format!("{}@example.test", fresh("replies")));
    let (dns, password) = (post.dns(), tempfile::NamedTempFile::new().unwrap());
    fs::write(password.path(), post.word("password")).unwrap();
    let gate = CliTestGateway::with(&format!(
        "sandbox: degraded\napprovals: {{people: [{{name: ana, email: {ana}}}]}}\n\
         email: {{smtp_host: localhost, smtp_port: {}, smtp_user: gate@example.test, smtp_password_file: {}, from: gate@example.test, \
         reply_to: {replies}, imap_host: localhost, imap_port: {}, imap_secret: mail/replies, ca_file: {}, dns: [\"{}\"]}}\n",
        post.port("smtp"),
        password.path().display(),
        post.port("imaps"),
        post.word("ca"),
        dns.address
    ));
    let doctor = gate.run(&["doctor"]).stdout;
    assert!(doctor.contains("replies are fetched from localhost:") && !doctor.contains("does not respond"), "{doctor}");
    // Without its password the mailbox is not heard, and the reason is on the screen.
    let status = until(|| Some(gate.works(&["status"])).filter(|status| status.contains("email: not receiving")));
    assert!(status.contains("no password for the mailbox"), "{status}");
    let file = password.path().to_str().unwrap();
    gate.works(&[
        "secrets",
        "set",
        "mail/replies",
        "--file",
        file,
        "--capability",
        "approvals.replies",
        "--host",
        "localhost",
    ]);
    let at: SocketAddr = gate.url.trim_start_matches("http://").parse().unwrap();
    let key = fs::read_to_string(gate.path("data/agents/assistant.key")).unwrap().trim().to_owned();
    let wish = json!({"session_id": "s", "action_type": "exec_cmd", "title": "Run it", "preview": "ls"});
    let made = ask(at, "POST", "/v1/approvals", &key, Some(&wish)).unwrap();
    let id = made.body["approval_id"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned();
    let letter = until(|| post.inbox(&ana).into_iter().map(|(_, text)| text).find(|text| text.contains(&id)));
    let reply_to = letter.lines().find_map(|line| line.strip_prefix("Reply-To: ")).unwrap().trim().to_owned();
    let reply = format!(
        "From: {ana}\nTo: {reply_to}\nSubject: Re: [{id}]\nDate: Tue, 17 Nov 2026 10:00:00 +0000\nMessage-ID: <{}@x>\n\
         Content-Type: text/plain\n\n4 only once\n",
        fresh("m")
    );
    post.deliver(&ana, &replies, &post.signed(&reply, json!({"dkim": post.dkim("example.test")})));
    let decided = until(|| {
        let got = ask(at, "GET", &format!("/v1/approvals/{id}?wait_ms=1000"), &key, None).ok()?;
        (got.body["status"] != "pending").then_some(got.body)
    });
    assert_eq!(
        (&decided["status"], &decided["decision"]["note"]),
        (&json!("approved"), &json!("only once")),
        "{decided}"
    );
    assert!(gate.works(&["status"]).contains("email: receiving since"));
    assert!(dns.asked.lock().unwrap().iter().all(|name| name.ends_with("example.test")), "{:?}", dns.asked);
}

/// Another process is waited for.
fn until<T>(mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = found() {
            return found;
        }
        pause(Duration::from_millis(100));
    }
    panic!("it did not happen within a minute");
}
