//! Upstreams that do not do as they should: each is cut off, with the phase it was lost in and whether anything left.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use sluice_config::network::{CredentialPlacement, EgressConnection, HostPattern, PathPattern};
use sluice_core::Millis;
use sluice_core::ids::{JobId, SecretName};
use sluice_egress::error::{ExchangeFailure, ExchangeFault, ExchangePhase};
use sluice_egress::leak::{EmptyLeakScanner, LeakScanner, OutgoingRequest};
use sluice_egress::{EgressError, EgressRequest, EgressResponse, EgressTicket, TicketOperation, TicketScope};
use sluice_services::WriteError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::outside::{LoopbackUpstream, TestEgress, ana, answer, named, request, wide};

/// Impatient, so that tests are not.
fn impatient(upstream: &LoopbackUpstream) -> EgressConnection {
    let mut connection = wide(upstream);
    connection.idle_timeout = Millis::from_millis(150);
    connection.timeout = Millis::from_millis(700);
    connection
}

async fn ask(
    out: &TestEgress,
    connection: &EgressConnection,
    upstream: &LoopbackUpstream,
) -> Result<EgressResponse, EgressError> {
    out.egress.request(connection, "network.http_request", ana(), EgressRequest::get(&upstream.url("/"))).await
}

async fn lost(
    connection: impl Fn(&LoopbackUpstream) -> EgressConnection,
    upstream: LoopbackUpstream,
) -> ExchangeFailure {
    let out = TestEgress::new().await;
    match ask(&out, &connection(&upstream), &upstream).await {
        Err(EgressError::Failed(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

fn cut(what: ExchangeFault) -> ExchangeFailure {
    ExchangeFailure { phase: ExchangePhase::Reply, what, sent: true }
}

#[tokio::test]
async fn an_answer_that_drips_is_cut_off_by_the_clock() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await.unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while stream.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
    })
    .await;
    assert_eq!(lost(impatient, upstream).await, cut(ExchangeFault::TooSlow));
}

#[tokio::test]
async fn a_head_that_drips_is_cut_off_by_the_clock() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while stream.write_all(b"x-a: b\r\n").await.is_ok() {
            tick.tick().await;
        }
    })
    .await;
    let failed = lost(impatient, upstream).await;
    assert_eq!((failed.phase, failed.sent), (ExchangePhase::After, true));
}

#[tokio::test]
async fn silence_after_the_head_is_cut_off() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(lost(impatient, upstream).await, cut(ExchangeFault::TooSlow));
}

#[tokio::test]
async fn silence_from_the_start_is_no_answer_and_unclear_for_a_write() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let out = TestEgress::new().await;
    let connection = impatient(&upstream);
    let write = EgressRequest {
        method: Method::POST,
        body: Bytes::from_static(b"pay"),
        ..EgressRequest::get(&upstream.url("/"))
    };
    let no = out.egress.request(&connection, "network.http_request", ana(), write).await.unwrap_err();
    let expected = ExchangeFailure { phase: ExchangePhase::BeforeFirstByte, what: ExchangeFault::TooSlow, sent: true };
    assert!(matches!(no, EgressError::Failed(failed) if failed == expected), "{no:?}");
    assert!(matches!(WriteError::from_egress(no, false), WriteError::Unclear));
    assert_eq!(upstream.accepted(), 1, "nothing was tried again");
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off_at_its_cap() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).await.is_ok() {}
    })
    .await;
    assert_eq!(lost(wide, upstream).await, cut(ExchangeFault::TooLarge));
}

#[tokio::test]
async fn an_answer_that_announces_too_much_is_not_waited_for() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(lost(wide, upstream).await, cut(ExchangeFault::TooLarge));
}

#[tokio::test]
async fn an_answer_that_lies_about_its_length_is_noticed() {
    let short = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfar too little").await.unwrap();
    })
    .await;
    assert_eq!(lost(wide, short).await, cut(ExchangeFault::Closed));
    // More than announced: only what was announced counts, and the line is not used again.
    let long = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfairHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
            )
            .await
            .unwrap();
        let _rest = stream.read(&mut [0; 10]).await;
    })
    .await;
    let out = TestEgress::new().await;
    for _ in 0..2 {
        assert_eq!(ask(&out, &wide(&long), &long).await.unwrap().body, "fair");
    }
    assert_eq!(long.accepted(), 2);
}

#[tokio::test]
async fn ten_gigabytes_of_zeros_zipped_are_cut_off_early() {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let upstream = LoopbackUpstream::raw(move |mut stream, _| {
        let sent = Arc::clone(&counter);
        async move {
            request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n").await.unwrap();
            // Many members are one body: the same four megabytes of zeros, again and again.
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&vec![0; 4 << 20]).unwrap();
            let member = encoder.finish().unwrap();
            for _ in 0..2560 {
                sent.fetch_add(member.len() as u64, Ordering::SeqCst);
                if stream.write_all(&member).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    let failed = lost(wide, upstream).await;
    assert!(failed == cut(ExchangeFault::TooLarge) || failed == cut(ExchangeFault::Bomb), "{failed:?}");
    assert!(sent.load(Ordering::SeqCst) < 8 << 20);
}

#[tokio::test]
async fn an_encoding_nobody_asked_for_is_refused() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "content-encoding: br\r\n", "whatever")).await;
    assert_eq!(lost(wide, upstream).await, cut(ExchangeFault::Encoding));
}

#[tokio::test]
async fn a_line_that_is_cut_mid_body_and_one_that_is_cut_at_once() {
    let mid = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal").await.unwrap();
    })
    .await;
    assert_eq!(lost(wide, mid).await, cut(ExchangeFault::Closed));
    let at_once = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
    })
    .await;
    let expected = ExchangeFailure { phase: ExchangePhase::BeforeFirstByte, what: ExchangeFault::Closed, sent: true };
    assert_eq!(lost(wide, at_once).await, expected);
}

#[tokio::test]
async fn what_is_not_http_is_garbage() {
    for text in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "\0\0\0\r\n\r\n",
    ] {
        let upstream = LoopbackUpstream::raw(move |mut stream, _| async move {
            request(&mut stream).await;
            let _ = stream.write_all(text.as_bytes()).await;
        })
        .await;
        let failed = lost(wide, upstream).await;
        assert_eq!((failed.phase, failed.sent), (ExchangePhase::After, true), "{text:?}");
    }
    let endless = LoopbackUpstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(format!("x-{}: {}\r\n", "a".repeat(50), "b".repeat(500)).as_bytes()).await.is_ok() {}
    })
    .await;
    let failed = lost(wide, endless).await;
    assert_eq!((failed.phase, failed.what), (ExchangePhase::After, ExchangeFault::Garbage));
}

#[tokio::test]
async fn nobody_there_and_no_such_name_are_proven_not_sent() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "")).await;
    let out = TestEgress::new().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let mut connection = wide(&upstream);
    connection.ports = vec![port];
    let write = |url: String| EgressRequest { method: Method::POST, ..EgressRequest::get(&url) };
    let no = out
        .egress
        .request(&connection, "network.http_request", ana(), write(format!("http://127.0.0.1:{port}/")))
        .await;
    let no = no.unwrap_err();
    assert!(
        matches!(no, EgressError::Failed(ExchangeFailure { phase: ExchangePhase::Connect, sent: false, .. })),
        "{no:?}"
    );
    assert!(matches!(WriteError::from_egress(no, false), WriteError::NotDone(_)));
    connection.hosts = vec![HostPattern::parse("nowhere.example").unwrap()];
    let no = out
        .egress
        .request(&connection, "network.http_request", ana(), write(format!("http://nowhere.example:{port}/")))
        .await;
    let no = no.unwrap_err();
    assert!(
        matches!(no, EgressError::Failed(ExchangeFailure { phase: ExchangePhase::Dns, sent: false, .. })),
        "{no:?}"
    );
}

/// A TLS server for `good.example` and a file that trusts it.
async fn tls_server(folder: &std::path::Path) -> (LoopbackUpstream, std::path::PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["good.example".to_owned()]).unwrap();
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let upstream = LoopbackUpstream::raw(move |stream, log| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                log.lock().unwrap().push(String::from_utf8_lossy(&buffer[..n]).into_owned());
                if stream.write_all(&answer("200 OK", "", "over tls")).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (upstream, ca)
}

#[tokio::test]
async fn a_certificate_must_be_trusted_and_for_this_name() {
    let folder = tempfile::tempdir().unwrap();
    let (upstream, ca) = tls_server(folder.path()).await;
    let port = upstream.address.port();
    let connection = |host: &str| {
        let mut connection = wide(&upstream);
        connection.hosts = vec![HostPattern::parse(host).unwrap()];
        connection.plain_http = false;
        connection
    };
    let trusting = TestEgress::with(Some(&ca), Arc::new(EmptyLeakScanner)).await;
    let doubting = TestEgress::new().await;
    for out in [&trusting, &doubting] {
        out.names.mean("good.example", &[&["127.0.0.1"]]);
        out.names.mean("other.example", &[&["127.0.0.1"]]);
    }
    let get = |out: &TestEgress, host: &'static str| {
        let (egress, connection) = (Arc::clone(&out.egress), connection(host));
        async move {
            let url = format!("https://{host}:{port}/");
            egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await
        }
    };
    assert_eq!(get(&trusting, "good.example").await.unwrap().body, "over tls");
    for (out, host) in [(&trusting, "other.example"), (&doubting, "good.example")] {
        let no = get(out, host).await.unwrap_err();
        let expected = ExchangeFailure { phase: ExchangePhase::Tls, what: ExchangeFault::NotTrusted, sent: false };
        assert!(matches!(no, EgressError::Failed(failed) if failed == expected), "{no:?}");
    }
    assert_eq!(upstream.heard().len(), 1, "nothing was said over a line that is not trusted");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_off() {
    let upstream = LoopbackUpstream::raw(|mut stream, _| async move {
        let _hello = stream.read(&mut [0; 1024]).await;
        std::future::pending::<()>().await;
    })
    .await;
    let out = TestEgress::new().await;
    let mut connection = impatient(&upstream);
    connection.hosts = vec![HostPattern::parse("good.example").unwrap()];
    out.names.mean("good.example", &[&["127.0.0.1"]]);
    let url = format!("https://good.example:{}/", upstream.address.port());
    let no =
        out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await.unwrap_err();
    let expected = ExchangeFailure { phase: ExchangePhase::Tls, what: ExchangeFault::TooSlow, sent: false };
    assert!(matches!(no, EgressError::Failed(failed) if failed == expected), "{no:?}");
}

#[tokio::test]
async fn redirects_of_writes_are_not_followed_and_those_of_reads_a_few_times() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("302 Found", "location: /again\r\n", "")).await;
    let out = TestEgress::new().await;
    let write = EgressRequest { method: Method::POST, ..EgressRequest::get(&upstream.url("/")) };
    let answered = out.egress.request(&wide(&upstream), "network.http_request", ana(), write).await.unwrap();
    assert_eq!((answered.status, upstream.heard().len()), (302, 1));
    assert_eq!(ask(&out, &wide(&upstream), &upstream).await.unwrap().status, 302);
    assert_eq!(upstream.heard().len(), 1 + 4, "the first, and three more");
}

#[tokio::test]
async fn a_credential_is_not_carried_along_to_another_host() {
    let elsewhere = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "there")).await;
    let location = format!("location: {}\r\n", elsewhere.url("/").replace("127.0.0.1", "b.example"));
    let upstream = LoopbackUpstream::answering(move |_, _| answer("302 Found", &location, "")).await;
    let out = TestEgress::new().await;
    out.secret("key", "hunter2hunter2", &["a.example", "b.example"]).await;
    out.names.mean("a.example", &[&["127.0.0.1"]]);
    out.names.mean("b.example", &[&["127.0.0.1"]]);
    let mut connection = wide(&upstream);
    connection.hosts = ["a.example", "b.example"].map(|host| HostPattern::parse(host).unwrap()).to_vec();
    connection.ports.push(elsewhere.address.port());
    connection.credential = Some((SecretName::new("key").unwrap(), CredentialPlacement::Bearer));
    let url = format!("http://a.example:{}/", upstream.address.port());
    let answered =
        out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await.unwrap();
    assert_eq!(answered.body, "there");
    assert!(upstream.heard()[0].contains("hunter2") && !elsewhere.heard()[0].to_lowercase().contains("authorization"));
}

/// Finds a word anywhere.
struct WordScan(&'static str);

impl LeakScanner for WordScan {
    fn scan(
        &self,
        _: &[sluice_content::leak::OutboundPart<'_>],
        _: sluice_content::leak::LeakScope,
    ) -> sluice_content::leak::LeakReport {
        sluice_content::leak::LeakReport::default()
    }
    fn replace_live_secrets(&self, _: sluice_content::leak::LiveSecrets) {}
    fn blocking_pattern_ids(&self, request: &OutgoingRequest<'_>) -> Vec<String> {
        let body = String::from_utf8_lossy(request.body);
        let all = format!("{} {:?} {body}", request.url, request.headers);
        if all.contains(self.0) { vec!["test.word".into()] } else { Vec::new() }
    }
}

#[tokio::test]
async fn nothing_leaves_that_the_scan_finds_and_the_credential_is_not_scanned() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "fine")).await;
    let out = TestEgress::with(None, Arc::new(WordScan("internal"))).await;
    out.secret("key", "internal-but-ours", &["127.0.0.1"]).await;
    let mut connection = wide(&upstream);
    connection.credential = Some((SecretName::new("key").unwrap(), CredentialPlacement::Bearer));
    let plain = EgressRequest { method: Method::POST, ..EgressRequest::get(&upstream.url("/")) };
    for bad in [
        EgressRequest { url: upstream.url("/internal"), ..plain.clone() },
        EgressRequest { headers: vec![("x-note".into(), "internal".into())], ..plain.clone() },
        EgressRequest { body: Bytes::from_static(b"internal"), ..plain.clone() },
    ] {
        let no = out.egress.request(&connection, "network.http_request", ana(), bad).await.unwrap_err();
        assert!(matches!(&no, EgressError::Leak(found) if found == &["test.word"]), "{no:?}");
    }
    assert_eq!(out.dialled(), []);
    out.egress.request(&connection, "network.http_request", ana(), plain).await.unwrap();
}

#[tokio::test]
async fn a_ticket_is_good_for_its_hosts_operations_job_and_time() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "fine")).await;
    let out = TestEgress::new().await;
    out.secret("key", "hunter2hunter2", &["127.0.0.1"]).await;
    let mut connection = wide(&upstream);
    connection.credential =
        Some((SecretName::new("key").unwrap(), CredentialPlacement::parse("header x-api-key").unwrap()));
    out.egress.open(connection);
    let job = JobId::from_bits(7);
    let scope = TicketScope {
        job,
        capability: "proxy.shop.search".into(),
        hosts: vec!["127.0.0.1".into()],
        operations: vec![TicketOperation { method: Method::GET, path: PathPattern::parse("/v1/*").unwrap() }],
        by: ana(),
        lasts: Millis::from_hours(9),
    };
    let web = named("web");
    let issue = |scope: TicketScope| out.egress.issue(&web, scope);
    assert!(
        issue(TicketScope { capability: "email.send".into(), ..scope.clone() }).await.is_err(),
        "not in the secret's scope"
    );
    assert!(issue(TicketScope { hosts: vec!["other.example".into()], ..scope.clone() }).await.is_err());
    let ticket = issue(scope.clone()).await.unwrap();
    let get = |path: &str| EgressRequest::get(&upstream.url(path));
    assert_eq!(out.egress.exchange(&ticket, get("/v1/x")).await.unwrap().status, 200);
    assert!(upstream.heard()[0].contains("x-api-key: hunter2hunter2"));
    let write = EgressRequest { method: Method::POST, ..get("/v1/x") };
    for bad in [get("/v2/x"), get("/v1/../v2"), write] {
        assert!(matches!(out.egress.exchange(&ticket, bad).await, Err(EgressError::Ticket)));
    }
    let forged = EgressTicket::presented("sgt_0000000000000000000000000000000000000000000000000000000000000000");
    assert!(matches!(out.egress.exchange(&forged, get("/v1/x")).await, Err(EgressError::Ticket)));
    out.clock.advance(Millis::from_hours(2));
    assert!(matches!(out.egress.exchange(&ticket, get("/v1/x")).await, Err(EgressError::Ticket)), "two hours at most");
    let ticket = issue(scope.clone()).await.unwrap();
    out.egress.end_job(job);
    assert!(matches!(out.egress.exchange(&ticket, get("/v1/x")).await, Err(EgressError::Ticket)));
    let ticket = issue(scope).await.unwrap();
    out.egress.refresh().await.unwrap();
    out.vault.revoke(&SecretName::new("key").unwrap(), ana()).await.unwrap();
    out.egress.refresh().await.unwrap();
    assert!(matches!(out.egress.exchange(&ticket, get("/v1/x")).await, Err(EgressError::Ticket)), "its secret is gone");
    assert_eq!(upstream.heard().len(), 1);
}
