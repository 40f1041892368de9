//! Upstreams that do not do as they should: each is cut off, with the phase it was lost in and whether anything left.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Method;
use sluice_core::Span;
use sluice_core::ids::{JobId, SecretName};
use sluice_gateway::egress::no::{Failed, Phase, What};
use sluice_gateway::egress::{
    Answer, Connection, EgressNo, HostPattern, Operation, PathPattern, Placement, Request, Scope, Ticket,
};
use sluice_gateway::rooms::leak::{NoPatterns, Outgoing, Scan};
use sluice_gateway::services::Trouble;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::outside::{Out, Upstream, ana, answer, named, request, wide};

/// Impatient, so that tests are not.
fn impatient(upstream: &Upstream) -> Connection {
    let mut connection = wide(upstream);
    connection.idle_timeout = Span::from_millis(150);
    connection.timeout = Span::from_millis(700);
    connection
}

async fn ask(out: &Out, connection: &Connection, upstream: &Upstream) -> Result<Answer, EgressNo> {
    out.egress.request(connection, "network.http_request", ana(), Request::get(&upstream.url("/"))).await
}

async fn lost(connection: impl Fn(&Upstream) -> Connection, upstream: Upstream) -> Failed {
    let out = Out::new().await;
    match ask(&out, &connection(&upstream), &upstream).await {
        Err(EgressNo::Failed(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

fn cut(what: What) -> Failed {
    Failed { phase: Phase::Reply, what, sent: true }
}

#[tokio::test]
async fn an_answer_that_drips_is_cut_off_by_the_clock() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await.unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while stream.write_all(b"x").await.is_ok() {
            tick.tick().await;
        }
    })
    .await;
    assert_eq!(lost(impatient, upstream).await, cut(What::TooSlow));
}

#[tokio::test]
async fn a_head_that_drips_is_cut_off_by_the_clock() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while stream.write_all(b"x-a: b\r\n").await.is_ok() {
            tick.tick().await;
        }
    })
    .await;
    let failed = lost(impatient, upstream).await;
    assert_eq!((failed.phase, failed.sent), (Phase::After, true));
}

#[tokio::test]
async fn silence_after_the_head_is_cut_off() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(lost(impatient, upstream).await, cut(What::TooSlow));
}

#[tokio::test]
async fn silence_from_the_start_is_no_answer_and_unclear_for_a_write() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let out = Out::new().await;
    let connection = impatient(&upstream);
    let write = Request { method: Method::POST, body: Bytes::from_static(b"pay"), ..Request::get(&upstream.url("/")) };
    let no = out.egress.request(&connection, "network.http_request", ana(), write).await.unwrap_err();
    let expected = Failed { phase: Phase::BeforeFirstByte, what: What::TooSlow, sent: true };
    assert!(matches!(no, EgressNo::Failed(failed) if failed == expected), "{no:?}");
    assert!(matches!(no.trouble(false), Trouble::Unclear));
    assert_eq!(upstream.accepted(), 1, "nothing was tried again");
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off_at_its_cap() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        while stream.write_all(&chunk).await.is_ok() {}
    })
    .await;
    assert_eq!(lost(wide, upstream).await, cut(What::TooLarge));
}

#[tokio::test]
async fn an_answer_that_announces_too_much_is_not_waited_for() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    assert_eq!(lost(wide, upstream).await, cut(What::TooLarge));
}

#[tokio::test]
async fn an_answer_that_lies_about_its_length_is_noticed() {
    let short = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfar too little").await.unwrap();
    })
    .await;
    assert_eq!(lost(wide, short).await, cut(What::Closed));
    // More than announced: only what was announced counts, and the line is not used again.
    let long = Upstream::raw(|mut stream, _| async move {
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
    let out = Out::new().await;
    for _ in 0..2 {
        assert_eq!(ask(&out, &wide(&long), &long).await.unwrap().body, "fair");
    }
    assert_eq!(long.accepted(), 2);
}

#[tokio::test]
async fn ten_gigabytes_of_zeros_zipped_are_cut_off_early() {
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    let upstream = Upstream::raw(move |mut stream, _| {
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
    assert!(failed == cut(What::TooLarge) || failed == cut(What::Bomb), "{failed:?}");
    assert!(sent.load(Ordering::SeqCst) < 8 << 20);
}

#[tokio::test]
async fn an_encoding_nobody_asked_for_is_refused() {
    let upstream = Upstream::answering(|_, _| answer("200 OK", "content-encoding: br\r\n", "whatever")).await;
    assert_eq!(lost(wide, upstream).await, cut(What::Encoding));
}

#[tokio::test]
async fn a_line_that_is_cut_mid_body_and_one_that_is_cut_at_once() {
    let mid = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal").await.unwrap();
    })
    .await;
    assert_eq!(lost(wide, mid).await, cut(What::Closed));
    let at_once = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
    })
    .await;
    let expected = Failed { phase: Phase::BeforeFirstByte, what: What::Closed, sent: true };
    assert_eq!(lost(wide, at_once).await, expected);
}

#[tokio::test]
async fn what_is_not_http_is_garbage() {
    for text in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "\0\0\0\r\n\r\n",
    ] {
        let upstream = Upstream::raw(move |mut stream, _| async move {
            request(&mut stream).await;
            let _ = stream.write_all(text.as_bytes()).await;
        })
        .await;
        let failed = lost(wide, upstream).await;
        assert_eq!((failed.phase, failed.sent), (Phase::After, true), "{text:?}");
    }
    let endless = Upstream::raw(|mut stream, _| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        while stream.write_all(format!("x-{}: {}\r\n", "a".repeat(50), "b".repeat(500)).as_bytes()).await.is_ok() {}
    })
    .await;
    let failed = lost(wide, endless).await;
    assert_eq!((failed.phase, failed.what), (Phase::After, What::Garbage));
}

#[tokio::test]
async fn nobody_there_and_no_such_name_are_proven_not_sent() {
    let upstream = Upstream::answering(|_, _| answer("200 OK", "", "")).await;
    let out = Out::new().await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    let mut connection = wide(&upstream);
    connection.ports = vec![port];
    let write = |url: String| Request { method: Method::POST, ..Request::get(&url) };
    let no = out
        .egress
        .request(&connection, "network.http_request", ana(), write(format!("http://127.0.0.1:{port}/")))
        .await;
    let no = no.unwrap_err();
    assert!(matches!(no, EgressNo::Failed(Failed { phase: Phase::Connect, sent: false, .. })), "{no:?}");
    assert!(matches!(no.trouble(false), Trouble::NotDone(_)));
    connection.hosts = vec![HostPattern::parse("nowhere.example").unwrap()];
    let no = out
        .egress
        .request(&connection, "network.http_request", ana(), write(format!("http://nowhere.example:{port}/")))
        .await;
    let no = no.unwrap_err();
    assert!(matches!(no, EgressNo::Failed(Failed { phase: Phase::Dns, sent: false, .. })), "{no:?}");
}

/// A TLS server for `good.example` and a file that trusts it.
async fn tls_server(folder: &std::path::Path) -> (Upstream, std::path::PathBuf) {
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
    let upstream = Upstream::raw(move |stream, log| {
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
    let trusting = Out::with(Some(&ca), Arc::new(NoPatterns)).await;
    let doubting = Out::new().await;
    for out in [&trusting, &doubting] {
        out.names.mean("good.example", &[&["127.0.0.1"]]);
        out.names.mean("other.example", &[&["127.0.0.1"]]);
    }
    let get = |out: &Out, host: &'static str| {
        let (egress, connection) = (Arc::clone(&out.egress), connection(host));
        async move {
            let url = format!("https://{host}:{port}/");
            egress.request(&connection, "network.http_request", ana(), Request::get(&url)).await
        }
    };
    assert_eq!(get(&trusting, "good.example").await.unwrap().body, "over tls");
    for (out, host) in [(&trusting, "other.example"), (&doubting, "good.example")] {
        let no = get(out, host).await.unwrap_err();
        let expected = Failed { phase: Phase::Tls, what: What::NotTrusted, sent: false };
        assert!(matches!(no, EgressNo::Failed(failed) if failed == expected), "{no:?}");
    }
    assert_eq!(upstream.heard().len(), 1, "nothing was said over a line that is not trusted");
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_off() {
    let upstream = Upstream::raw(|mut stream, _| async move {
        let _hello = stream.read(&mut [0; 1024]).await;
        std::future::pending::<()>().await;
    })
    .await;
    let out = Out::new().await;
    let mut connection = impatient(&upstream);
    connection.hosts = vec![HostPattern::parse("good.example").unwrap()];
    out.names.mean("good.example", &[&["127.0.0.1"]]);
    let url = format!("https://good.example:{}/", upstream.address.port());
    let no = out.egress.request(&connection, "network.http_request", ana(), Request::get(&url)).await.unwrap_err();
    let expected = Failed { phase: Phase::Tls, what: What::TooSlow, sent: false };
    assert!(matches!(no, EgressNo::Failed(failed) if failed == expected), "{no:?}");
}

#[tokio::test]
async fn redirects_of_writes_are_not_followed_and_those_of_reads_a_few_times() {
    let upstream = Upstream::answering(|_, _| answer("302 Found", "location: /again\r\n", "")).await;
    let out = Out::new().await;
    let write = Request { method: Method::POST, ..Request::get(&upstream.url("/")) };
    let answered = out.egress.request(&wide(&upstream), "network.http_request", ana(), write).await.unwrap();
    assert_eq!((answered.status, upstream.heard().len()), (302, 1));
    assert_eq!(ask(&out, &wide(&upstream), &upstream).await.unwrap().status, 302);
    assert_eq!(upstream.heard().len(), 1 + 4, "the first, and three more");
}

#[tokio::test]
async fn a_credential_is_not_carried_along_to_another_host() {
    let elsewhere = Upstream::answering(|_, _| answer("200 OK", "", "there")).await;
    let location = format!("location: {}\r\n", elsewhere.url("/").replace("127.0.0.1", "b.example"));
    let upstream = Upstream::answering(move |_, _| answer("302 Found", &location, "")).await;
    let out = Out::new().await;
    out.secret("key", "hunter2hunter2", &["a.example", "b.example"]).await;
    out.names.mean("a.example", &[&["127.0.0.1"]]);
    out.names.mean("b.example", &[&["127.0.0.1"]]);
    let mut connection = wide(&upstream);
    connection.hosts = ["a.example", "b.example"].map(|host| HostPattern::parse(host).unwrap()).to_vec();
    connection.ports.push(elsewhere.address.port());
    connection.credential = Some((SecretName::new("key").unwrap(), Placement::Bearer));
    let url = format!("http://a.example:{}/", upstream.address.port());
    let answered = out.egress.request(&connection, "network.http_request", ana(), Request::get(&url)).await.unwrap();
    assert_eq!(answered.body, "there");
    assert!(upstream.heard()[0].contains("hunter2") && !elsewhere.heard()[0].to_lowercase().contains("authorization"));
}

/// Finds a word anywhere.
struct Word(&'static str);

impl Scan for Word {
    fn scan(
        &self,
        _: &[sluice_content::leak::Part<'_>],
        _: sluice_content::leak::Scope,
    ) -> sluice_content::leak::Report {
        sluice_content::leak::Report::default()
    }
    fn now_live(&self, _: sluice_content::leak::LiveSecrets) {}
    fn outgoing(&self, request: &Outgoing<'_>) -> Vec<String> {
        let body = String::from_utf8_lossy(request.body);
        let all = format!("{} {:?} {body}", request.url, request.headers);
        if all.contains(self.0) { vec!["test.word".into()] } else { Vec::new() }
    }
}

#[tokio::test]
async fn nothing_leaves_that_the_scan_finds_and_the_credential_is_not_scanned() {
    let upstream = Upstream::answering(|_, _| answer("200 OK", "", "fine")).await;
    let out = Out::with(None, Arc::new(Word("internal"))).await;
    out.secret("key", "internal-but-ours", &["127.0.0.1"]).await;
    let mut connection = wide(&upstream);
    connection.credential = Some((SecretName::new("key").unwrap(), Placement::Bearer));
    let plain = Request { method: Method::POST, ..Request::get(&upstream.url("/")) };
    for bad in [
        Request { url: upstream.url("/internal"), ..plain.clone() },
        Request { headers: vec![("x-note".into(), "internal".into())], ..plain.clone() },
        Request { body: Bytes::from_static(b"internal"), ..plain.clone() },
    ] {
        let no = out.egress.request(&connection, "network.http_request", ana(), bad).await.unwrap_err();
        assert!(matches!(&no, EgressNo::Leak(found) if found == &["test.word"]), "{no:?}");
    }
    assert_eq!(out.dialled(), []);
    out.egress.request(&connection, "network.http_request", ana(), plain).await.unwrap();
}

#[tokio::test]
async fn a_ticket_is_good_for_its_hosts_operations_job_and_time() {
    let upstream = Upstream::answering(|_, _| answer("200 OK", "", "fine")).await;
    let out = Out::new().await;
    out.secret("key", "hunter2hunter2", &["127.0.0.1"]).await;
    let mut connection = wide(&upstream);
    connection.credential = Some((SecretName::new("key").unwrap(), Placement::parse("header x-api-key").unwrap()));
    out.egress.open(connection);
    let job = JobId::from_bits(7);
    let scope = Scope {
        job,
        capability: "proxy.shop.search".into(),
        hosts: vec!["127.0.0.1".into()],
        operations: vec![Operation { method: Method::GET, path: PathPattern::parse("/v1/*").unwrap() }],
        by: ana(),
        lasts: Span::from_hours(9),
    };
    let web = named("web");
    let issue = |scope: Scope| out.egress.issue(&web, scope);
    assert!(
        issue(Scope { capability: "email.send".into(), ..scope.clone() }).await.is_err(),
        "not in the secret's scope"
    );
    assert!(issue(Scope { hosts: vec!["other.example".into()], ..scope.clone() }).await.is_err());
    let ticket = issue(scope.clone()).await.unwrap();
    let get = |path: &str| Request::get(&upstream.url(path));
    assert_eq!(out.egress.exchange(&ticket, get("/v1/x")).await.unwrap().status, 200);
    assert!(upstream.heard()[0].contains("x-api-key: hunter2hunter2"));
    let write = Request { method: Method::POST, ..get("/v1/x") };
    for bad in [get("/v2/x"), get("/v1/../v2"), write] {
        assert!(matches!(out.egress.exchange(&ticket, bad).await, Err(EgressNo::Ticket)));
    }
    let forged = Ticket::presented("sgt_0000000000000000000000000000000000000000000000000000000000000000");
    assert!(matches!(out.egress.exchange(&forged, get("/v1/x")).await, Err(EgressNo::Ticket)));
    out.clock.advance(Span::from_hours(2));
    assert!(matches!(out.egress.exchange(&ticket, get("/v1/x")).await, Err(EgressNo::Ticket)), "two hours at most");
    let ticket = issue(scope.clone()).await.unwrap();
    out.egress.end_job(job);
    assert!(matches!(out.egress.exchange(&ticket, get("/v1/x")).await, Err(EgressNo::Ticket)));
    let ticket = issue(scope).await.unwrap();
    out.egress.refresh().await.unwrap();
    out.vault.revoke(&SecretName::new("key").unwrap(), ana()).await.unwrap();
    out.egress.refresh().await.unwrap();
    assert!(matches!(out.egress.exchange(&ticket, get("/v1/x")).await, Err(EgressNo::Ticket)), "its secret is gone");
    assert_eq!(upstream.heard().len(), 1);
}
