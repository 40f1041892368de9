//! No packet to a forbidden address, however it is spelt. The allow-list is as wide as each spelling asks for, so
//! that nothing but the reading of addresses and the check of every one of them stands in the way; the oracle is the
//! list of addresses that were dialled, and a real listener on loopback.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sluice_config::network::{EgressConnection, EgressUrl, HostPattern};
use sluice_core::throttle::ConnectionLimits;
use sluice_egress::{EgressError, EgressRequest};

use crate::outside::{LoopbackUpstream, TestEgress, ana, answer, named, wide};

/// Every way we know to write one IPv4 address, and more.
fn spellings(address: &str, port: u16) -> Vec<String> {
    let octets: Vec<u32> = address.split('.').map(|part| part.parse().unwrap()).collect();
    let [a, b, c, d] = octets[..] else { panic!("{address}") };
    let whole = a << 24 | b << 16 | c << 8 | d;
    let (hi, lo) = (a << 8 | b, c << 8 | d);
    let wide = |text: &str| {
        text.chars()
            .map(|ch| if ch.is_ascii_digit() { char::from_u32(0xff10 + ch as u32 - 0x30).unwrap() } else { ch })
            .collect::<String>()
    };
    let circled = |text: &str| {
        text.chars()
            .map(|ch| match ch {
                '0' => '⓪',
                '1'..='9' => char::from_u32(0x2460 + ch as u32 - 0x31).unwrap(),
                ch => ch,
            })
            .collect::<String>()
    };
    let percent: String = address.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let hosts = [
        address.to_owned(),
        format!("{address}."),
        format!("{whole}"),
        format!("{}", u64::from(whole) + (1 << 32)),
        format!("0{whole:o}"),
        format!("0x{whole:x}"),
        format!("0X{whole:X}"),
        format!("0x00000000{whole:08x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0x{a:x}.{b}.0{c:o}.{d}"),
        format!("{a:03}.{b:03}.{c:03}.{d:03}"),
        format!("{a}.{}", b << 16 | c << 8 | d),
        format!("{a}.{b}.{lo}"),
        format!("0x{a:x}.{}", b << 16 | c << 8 | d),
        format!("0{a:o}.{b}.{lo}"),
        wide(address),
        circled(address),
        address.replace('.', "。"),
        address.replace('.', "．"),
        address.replace('.', "%2e"),
        percent,
        format!("good.example@{address}"),
        format!("user:word@{address}"),
        format!("{address}%00.good.example"),
        format!("{address}%23.good.example"),
        format!("[::ffff:{address}]"),
        format!("[::FFFF:{address}]"),
        format!("[::ffff:{hi:x}:{lo:x}]"),
        format!("[0:0:0:0:0:ffff:{hi:x}:{lo:x}]"),
        format!("[::{address}]"),
        format!("[::{hi:x}:{lo:x}]"),
        format!("[::ffff:0:{address}]"),
        format!("[64:ff9b::{address}]"),
        format!("[64:ff9b::{hi:x}:{lo:x}]"),
        format!("[64:ff9b:1::{hi:x}:{lo:x}]"),
        format!("[2002:{hi:x}:{lo:x}::]"),
        format!("[2002:{hi:x}:{lo:x}::1]"),
        format!("[2001:0:1:2:3:4:{:x}:{:x}]", !hi & 0xffff, !lo & 0xffff),
        format!("[fe80::5efe:{hi:x}:{lo:x}]"),
        format!("[::ffff:{address}%25lo]"),
    ];
    let mut urls: Vec<String> = hosts.iter().map(|host| format!("http://{host}:{port}/")).collect();
    urls.extend([
        format!("http://good.example\\@{address}:{port}/"),
        format!("http://good.example#@{address}:{port}/"),
        format!("http://{address}:{port}#@good.example/"),
        format!("http://{address}:0{port}/"),
        format!("http://{address}\t:{port}/"),
        format!("http://{address}:{port}\\.good.example/"),
        format!("HTTP://{address}:{port}/"),
        format!("http:{address}:{port}/"),
        format!("http:/{address}:{port}/"),
        format!("http:///{address}:{port}/"),
        format!("//{address}:{port}/"),
        format!("http:\\\\{address}:{port}\\"),
        format!(" http://{address}:{port}/"),
        format!("gopher://{address}:{port}/"),
        format!("ftp://{address}:{port}/"),
    ]);
    urls
}

/// Names and addresses that are no dotted quad.
fn others(port: u16) -> Vec<String> {
    let hosts = [
        "localhost",
        "LOCALHOST",
        "LocalHost",
        "localhost.",
        "sub.localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "metadata.google.internal",
        "rebind.example",
        "mixed.example",
        "six.example",
        "mapped.example",
        "cgnat.example",
        "127.0.0.1.nip.example",
        "xn--",
        "xn--a",
        "ⓛocalhost",
        "loc\u{ad}alhost",
        "localhost\u{200b}",
        "ｌocalhost",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[0000::0001]",
        "[::]",
        "[::0.0.0.0]",
        "[::1%251]",
        "[::1%eth0]",
        "[fe80::1]",
        "[fe80::1%25lo]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[100::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[fec0::1]",
        "[::1",
        "::1",
        "[]",
        "[:]",
        "[::1]x",
        "",
        ".",
        "..",
        "-",
        "a..b",
        "0",
        "00",
        "0x",
        "1",
        "127.1",
        "127.0.1",
        "017700000001",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "127.0.0.1.",
        "127.0.0.01",
        "127.0.0.1.1",
        "256.256.256.256",
        "1.1.1.1@[::1]",
        "%5b::1%5d",
        "127.0.0.1%20",
        "0.0.0.0",
        "255.255.255.255",
    ];
    hosts.iter().map(|host| format!("http://{host}:{port}/")).collect()
}

/// As wide as a spelling asks for: whatever host and port it names are allowed.
fn as_asked(url: &str) -> EgressConnection {
    let target = EgressUrl::parse(url).ok();
    let host = target.as_ref().and_then(|target| HostPattern::parse(target.host()).ok());
    let mut connection = EgressConnection::new(named("web"), host.into_iter().collect());
    connection.ports = target.iter().map(EgressUrl::port).collect();
    connection.plain_http = true;
    connection.limits = ConnectionLimits::NONE;
    connection
}

fn teach(out: &TestEgress, inside: &str) {
    for name in ["localhost", "sub.localhost", "localhost.localdomain", "ip6-localhost", "127.0.0.1.nip.example"] {
        out.names.mean(name, &[&[inside]]);
    }
    out.names.mean("metadata.google.internal", &[&["169.254.169.254"]]);
    out.names.mean("rebind.example", &[&[inside], &["1.1.1.1"]]);
    out.names.mean("mixed.example", &[&["1.1.1.1", inside]]);
    out.names.mean("six.example", &[&["::1"]]);
    out.names.mean("mapped.example", &[&["::ffff:127.0.0.1"]]);
    out.names.mean("cgnat.example", &[&["100.64.0.1"]]);
}

#[tokio::test]
async fn no_spelling_of_a_forbidden_address_sends_a_packet() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "inside")).await;
    let port = upstream.address.port();
    let out = TestEgress::new().await;
    teach(&out, "127.0.0.1");
    let mut urls = others(port);
    for address in
        ["127.0.0.1", "127.0.0.2", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"]
    {
        urls.extend(spellings(address, port));
    }
    assert!(urls.len() >= 200, "{}", urls.len());
    let mut read = 0;
    for url in &urls {
        let connection = as_asked(url);
        read += usize::from(EgressUrl::parse(url).is_ok());
        let answered = out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(url)).await;
        assert!(
            matches!(
                answered,
                Err(EgressError::Url(_) | EgressError::Address | EgressError::NotAllowed(_) | EgressError::Failed(_))
            ),
            "{url}: {answered:?}"
        );
        assert_eq!(out.dialled(), [], "{url}");
    }
    assert!(read > 60, "only {read} spellings got as far as the check of addresses");
    assert_eq!(upstream.accepted(), 0);
    println!("{} spellings, {read} of them read and stopped by their address", urls.len());
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_what_was_checked_is_what_is_dialled() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "hello")).await;
    let out = TestEgress::new().await;
    // Good at the first look, bad at every later one: whoever looked twice would be led astray.
    out.names.mean("moving.example", &[&["127.0.0.1"], &["127.0.0.9"]]);
    let mut connection = wide(&upstream);
    connection.hosts = vec![HostPattern::parse("moving.example").unwrap()];
    let url = format!("http://moving.example:{}/x", upstream.address.port());
    let answered =
        out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await.unwrap();
    assert_eq!((answered.status, &answered.body[..]), (200, &b"hello"[..]));
    assert_eq!(out.names.asked.load(Ordering::SeqCst), 1);
    assert_eq!(out.dialled(), [upstream.address]);
    assert!(upstream.heard()[0].to_lowercase().contains(&format!("host: moving.example:{}", upstream.address.port())));
    // The line is kept; a new one would go to the bad address, and does not.
    for _ in 0..3 {
        out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await.unwrap();
    }
    assert_eq!((out.dialled().len(), upstream.accepted()), (1, 1));
}

#[tokio::test]
async fn an_opened_address_opens_no_other() {
    let upstream = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "inside")).await;
    let out = TestEgress::new().await;
    let port = upstream.address.port();
    for (name, addresses) in [
        ("two.example", &["127.0.0.1", "127.0.0.2"][..]),
        ("mapped.example", &["::ffff:127.0.0.1"]),
        ("six.example", &["::1"]),
        ("none.example", &[]),
    ] {
        out.names.mean(name, &[addresses]);
        let mut connection = wide(&upstream);
        connection.hosts = vec![HostPattern::parse(name).unwrap()];
        let url = format!("http://{name}:{port}/");
        let answered = out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await;
        assert!(answered.is_err(), "{name}");
    }
    assert_eq!((out.dialled().len(), upstream.accepted()), (0, 0));
}

#[tokio::test]
async fn a_redirect_leads_nowhere_a_request_may_not_go() {
    let out = TestEgress::new().await;
    // The server that redirects is at an address that is opened; what lies inside is at another.
    teach(&out, "127.0.0.2");
    let inside = LoopbackUpstream::answering(|_, _| answer("200 OK", "", "inside")).await;
    let mut places = others(inside.address.port());
    for address in ["127.0.0.2", "169.254.169.254", "10.0.0.1"] {
        places.extend(spellings(address, inside.address.port()));
    }
    places.push("http://169.254.169.254/latest/meta-data/iam/security-credentials/".into());
    let shared = places.clone();
    let upstream = LoopbackUpstream::answering(move |request, _| {
        let nth: usize = request.split(['/', ' ']).nth(2).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let location: String = shared[nth].chars().filter(|ch| !ch.is_control()).collect();
        answer("302 Found", &format!("location: {location}\r\n"), "")
    })
    .await;
    for (nth, place) in places.iter().enumerate() {
        let mut connection = wide(&upstream);
        connection.hosts.extend(as_asked(place).hosts);
        connection.ports.extend(as_asked(place).ports);
        let url = upstream.url(&format!("/{nth}"));
        let answered = out.egress.request(&connection, "network.http_request", ana(), EgressRequest::get(&url)).await;
        if let Ok(answered) = &answered {
            assert_eq!(answered.status, 302, "{place}");
        }
    }
    let own: IpAddr = upstream.address.ip();
    assert!(out.dialled().iter().all(|dialled| dialled.ip() == own && dialled.port() == upstream.address.port()));
    assert_eq!(inside.accepted(), 0);
}
