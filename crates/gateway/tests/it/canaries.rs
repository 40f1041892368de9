//! Two hundred canaries through every path of vault and egress: none sings anywhere but at the service it is for.

use std::collections::BTreeSet;

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use serde_json::json;
use sluice_config::network::CredentialPlacement;
use sluice_core::ids::{JobId, SecretName};
use sluice_core::{Clock as _, Millis};
use sluice_egress::{EgressRequest, TicketScope};

use crate::outside::{CapturedLogLines, LoopbackUpstream, TestEgress, ana, answer, named, wide};

const COUNT: usize = 200;

fn canary(n: usize) -> String {
    format!("CANARY{n:03}-{:x}", (n + 7) * 0x9e37_79b9)
}

/// Canaries that are found: as they are, in base64, in hex, in percent.
fn singing(haystack: &[u8]) -> BTreeSet<usize> {
    let spellings = (0..COUNT).flat_map(|n| {
        let canary = canary(n);
        let percent: String = canary.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let base64 = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&canary);
        [canary.clone(), base64, sluice_core::hex::encode(canary.as_bytes()), percent]
    });
    let needles = AhoCorasick::new(spellings.collect::<Vec<_>>()).unwrap();
    needles.find_overlapping_iter(haystack).map(|found| found.pattern().as_usize() / 4).collect()
}

#[tokio::test]
async fn no_canary_is_in_any_log_answer_error_or_file() {
    let log = CapturedLogLines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    // For all threads: the database has one of its own.
    tracing::subscriber::set_global_default(subscriber).unwrap();
    tracing::trace!("the log is kept");
    // Reflects what it was sent in the head, the body, a redirect and an error, or breaks the answer off.
    let upstream = LoopbackUpstream::answering(|request, nth| {
        let sent: String = request.lines().skip(1).collect::<Vec<_>>().join(" ");
        let line = request.lines().next().unwrap_or_default().to_owned();
        let encoded = base64::engine::general_purpose::STANDARD.encode(&sent);
        let body = json!({"sent": sent, "line": line, "encoded": encoded}).to_string();
        match nth % 5 {
            0 => answer("200 OK", &format!("x-echo: {sent}\r\n"), &body),
            1 => answer("401 Unauthorized", &format!("www-authenticate: Bearer error=\"{sent}\"\r\n"), &body),
            2 => answer("302 Found", &format!("location: /next?{}\r\n", sent.len()), &body),
            3 => format!("HTTP/1.1 200 {sent}\r\ncontent-length: 999999\r\n\r\n{body}").into_bytes(),
            _ => answer("500 Internal Server Error", "", &body),
        }
    })
    .await;
    let out = TestEgress::new().await;
    let mut shown = Vec::new();
    let placements = ["bearer", "basic", "header x-api-key", "header authorization token", "query key"];
    for n in 0..COUNT {
        let name = format!("canary/{n}");
        out.secret(&name, &canary(n), &["127.0.0.1"]).await;
        let mut connection = wide(&upstream);
        connection.idle_timeout = Millis::from_millis(30);
        let placement = CredentialPlacement::parse(placements[n % placements.len()]).unwrap();
        connection.credential = Some((SecretName::new(name.clone()).unwrap(), placement));
        let request = EgressRequest::get(&upstream.url(&format!("/{n}")));
        if n % 2 == 0 {
            let answered = out.egress.request(&connection, "network.credentialed_request", ana(), request).await;
            shown.push(format!("{answered:?} {}", answered.as_ref().map_or_else(ToString::to_string, said)));
        } else {
            out.egress.open(connection);
            let scope = TicketScope {
                job: JobId::from_bits(n as u128),
                capability: "proxy.shop.search".into(),
                hosts: vec!["127.0.0.1".into()],
                operations: Vec::new(),
                by: ana(),
                lasts: Millis::from_mins(5),
            };
            let ticket = out.egress.issue(&named("web"), scope).await.unwrap();
            shown.push(format!("{ticket:?}"));
            let answered = out.egress.exchange(&ticket, request).await;
            shown.push(format!("{answered:?} {}", answered.as_ref().map_or_else(ToString::to_string, said)));
        }
        if n % 10 == 0 {
            out.vault.revoke(&SecretName::new(name).unwrap(), ana()).await.unwrap();
        }
    }
    shown.push(format!("{:?} {:?} {:?}", out.vault, out.egress, out.vault.list().await.unwrap()));
    let heard = upstream.heard().join("\n");
    assert_eq!(singing(heard.as_bytes()).len(), COUNT, "each canary reached the service it is for");
    assert!(out.clock.now().as_millis() > 0);
    let TestEgress { egress, vault, store, folder, .. } = out;
    drop((egress, vault, store));
    let mut files: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    assert!(files.len() >= 2);
    files.push(("the log".into(), log.0.lock().unwrap().clone()));
    files.push(("answers and errors".into(), shown.join("\n").into_bytes()));
    assert!(files.iter().any(|(name, bytes)| name == "the log" && bytes.windows(15).any(|w| w == b"the log is kept")));
    for (name, bytes) in &files {
        let found = singing(bytes);
        assert!(found.is_empty(), "canaries {found:?} in {name}");
    }
}

/// All of an answer that an agent or worker is given.
fn said(answer: &sluice_egress::EgressResponse) -> String {
    format!("{} {:?} {}", answer.url, answer.headers, String::from_utf8_lossy(&answer.body))
}
