//! What third-party programs reach over the network: their one port, and nothing else by any family, protocol, flag or
//! option. Each case runs a program that tries all of them while everything it could reach is watched from outside.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use sluice_sandbox::parent::{NamespacesMode, WorkerStartError};
use sluice_sandbox::third_party::{ThirdPartyNetwork, ThirdPartyTerms};
use sluice_sandbox::{JailLayerName, JailMode};

use crate::test_sandbox::{TestSandbox, program};
use crate::third_party::{said, terms};

/// The port inside a network namespace.
const INSIDE: u16 = 3128;

fn evil(arguments: &[&str], network: ThirdPartyNetwork, mode: JailMode, folder: &Path) -> ThirdPartyTerms {
    let arguments = arguments.iter().map(ToString::to_string).collect();
    ThirdPartyTerms { program: program(), arguments, network, mode, ..terms("", folder) }
}

/// Whether this system allows namespaces; the behaviour without them is tested in any case.
fn has_namespaces() -> bool {
    let (house, folder) = (TestSandbox::new(NamespacesMode::WhereAllowed), tempfile::tempdir().unwrap());
    let stranger = house.spawner.start_third_party(terms("exit 0", folder.path())).unwrap();
    let has = stranger.layers.has(JailLayerName::Namespaces);
    if !has {
        eprintln!("skipped in part: this system allows no namespaces");
    }
    has
}

/// Everything that a program of this machine could reach at one port, over IPv4 and IPv6, by stream and datagram, and
/// at a socket of the file system.
struct ReachableTestTargets {
    port: u16,
    streams: Vec<TcpListener>,
    datagrams: Vec<UdpSocket>,
    file: UnixDatagram,
    folder: tempfile::TempDir,
}

impl ReachableTestTargets {
    fn new() -> Self {
        let first = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let mut streams = vec![first];
        streams.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, port)));
        let datagrams = vec![UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap()];
        let folder = tempfile::tempdir().unwrap();
        let file = UnixDatagram::bind(folder.path().join("socket")).unwrap();
        streams.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        datagrams.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        file.set_nonblocking(true).unwrap();
        Self { port, streams, datagrams, file, folder }
    }

    fn walk(&self) -> [String; 3] {
        ["sockets".into(), self.port.to_string(), self.folder.path().join("socket").display().to_string()]
    }

    /// Checks that nothing has arrived.
    fn is_untouched(&self, how: &str) {
        for listener in &self.streams {
            let came = listener.accept().map(|(_, from)| from);
            assert_eq!(came.unwrap_err().kind(), ErrorKind::WouldBlock, "{how}: a connection");
        }
        for socket in &self.datagrams {
            assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "{how}: a datagram");
        }
        assert_eq!(self.file.recv(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "{how}: a socket file");
    }
}

#[test]
fn no_family_protocol_flag_or_option_of_a_socket_leads_anywhere_but_to_the_one_port() {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
    // The port that may be connected to has no listener here, so every connection that arrives is an escape.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let inside = (NamespacesMode::WhereAllowed, ThirdPartyNetwork::OwnNamespace { port: INSIDE }, JailMode::Required);
    let mut cases = vec![
        (NamespacesMode::WhereAllowed, ThirdPartyNetwork::None, JailMode::Required),
        (NamespacesMode::Off, ThirdPartyNetwork::None, JailMode::Required),
        (NamespacesMode::WhereAllowed, ThirdPartyNetwork::MachinePort { port: free }, JailMode::Degraded),
        (NamespacesMode::Off, ThirdPartyNetwork::MachinePort { port: free }, JailMode::Degraded),
    ];
    cases.extend(has_namespaces().then_some(inside));
    for (namespaces, network, mode) in cases {
        let how = format!("{namespaces:?} {network:?}");
        let (house, outside) = (TestSandbox::new(namespaces), ReachableTestTargets::new());
        let walk = outside.walk();
        let terms = evil(&walk.each_ref().map(String::as_str), network, mode, outside.folder.path());
        let text = said(&house, terms);
        assert!(text.ends_with("over\n"), "{how}: it did not come to its end: {text}");
        outside.is_untouched(&how);
        let got: Vec<&str> = text.lines().filter(|line| *line != "over" && !line.starts_with("network ")).collect();
        let pairs = ["pair 1 1", "pair 1 5"];
        let mut wanted = match network {
            ThirdPartyNetwork::None => Vec::new(),
            _ => vec!["socket 2 1 0", "socket 2 1 6", "socket 10 1 0", "socket 10 1 6"],
        };
        wanted.splice(0..0, pairs);
        let (mut got_sorted, mut wanted_sorted) = (got.clone(), wanted.clone());
        got_sorted.sort_unstable();
        wanted_sorted.sort_unstable();
        assert_eq!(got_sorted, wanted_sorted, "{how}");
        let network_of = text.lines().find_map(|line| line.strip_prefix("network ")).unwrap();
        match network {
            ThirdPartyNetwork::OwnNamespace { .. } => assert_ne!(network_of, own, "{how}: it has a network of its own"),
            ThirdPartyNetwork::MachinePort { .. } => assert_eq!(network_of, own, "{how}"),
            ThirdPartyNetwork::None => {}
        }
    }
}

#[test]
fn the_one_port_of_an_own_network_is_answered_from_outside_of_it() {
    if !has_namespaces() {
        return;
    }
    let (house, folder) = (TestSandbox::new(NamespacesMode::WhereAllowed), tempfile::tempdir().unwrap());
    let port = INSIDE.to_string();
    let terms =
        evil(&["reach", &port], ThirdPartyNetwork::OwnNamespace { port: INSIDE }, JailMode::Required, folder.path());
    let mut stranger = house.spawner.start_third_party(terms).unwrap();
    assert!(stranger.layers.has(JailLayerName::Namespaces));
    let listener = TcpListener::from(stranger.listener.take().unwrap());
    let (mut line, _) = listener.accept().unwrap();
    let mut word = [0; 5];
    line.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"hello");
    line.write_all(b"heard").unwrap();
    drop(line);
    let mut text = String::new();
    std::fs::File::from(stranger.output.take().unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "heard\n");
    // The port is not one of this machine.
    assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, INSIDE)).is_err());
}

#[test]
fn a_network_without_a_namespace_is_refused_unless_degraded() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, machine) =
        (ThirdPartyNetwork::OwnNamespace { port: INSIDE }, ThirdPartyNetwork::MachinePort { port: 9 });
    let start = |namespaces, network, mode| {
        let house = TestSandbox::new(namespaces);
        house.spawner.start_third_party(ThirdPartyTerms { network, mode, ..terms("exit 0", folder.path()) }).map(drop)
    };
    for namespaces in [NamespacesMode::WhereAllowed, NamespacesMode::Off] {
        let refused = start(namespaces, machine, JailMode::Required).unwrap_err();
        assert!(
            matches!(&refused, WorkerStartError::Layers(missing) if *missing == [JailLayerName::Namespaces]),
            "{refused}"
        );
        start(namespaces, machine, JailMode::Degraded).unwrap();
    }
    for mode in [JailMode::Required, JailMode::Degraded] {
        let refused = start(NamespacesMode::Off, inside, mode).unwrap_err();
        assert!(refused.to_string().contains("no network of its own"), "{refused}");
    }
    if has_namespaces() {
        start(NamespacesMode::WhereAllowed, inside, JailMode::Required).unwrap();
    }
}
