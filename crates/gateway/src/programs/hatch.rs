//! The one port a program of others may connect to: a door to the hosts that were declared, and to no others.
//!
//! The port is inside the program's own network namespace, where there is nothing else. In a degraded gateway without
//! namespaces it is a port of this machine, and filters keep the program from the others.
//! Takes `CONNECT host:443` from a program; gives a line to that host. What passes is encrypted between the program and
//! the host, so nothing is looked at; which host is. Promise: no host that was not named, no other port, no address that
//! is not public unless it was opened, and no line at all while the service of the program is frozen.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::ServiceName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::egress::HostPattern;
use crate::egress::ssrf::{Net, all_reachable};
use crate::standstill::Standstill;
use crate::workers::{Network, NetworkIsolation, Workers};

/// Longest head of a request.
const HEAD: usize = 8 << 10;
/// Lines at once.
const LINES: usize = 32;
/// How long it may take to reach a host.
const REACHING: Duration = Duration::from_secs(15);
/// How long a line lasts at most.
const LASTING: Duration = Duration::from_secs(600);
/// The only port of a host that can be reached: what passes there is encrypted.
const TLS_PORT: u16 = 443;

/// What a program may reach.
#[derive(Debug, Clone)]
struct Reach {
    hosts: Vec<HostPattern>,
    port: u16,
    opened: Vec<Net>,
    standstill: Arc<Standstill>,
    service: ServiceName,
}

impl Reach {
    /// Whether the program's service, or everything, is frozen: then no line is made, and those that are end.
    fn is_shut(&self) -> bool {
        self.standstill.of_service(&self.service).is_some()
    }
}

/// The port inside a network namespace. Nothing else listens there, so it is always free; 3128 is what proxies use.
const NAMESPACE_PORT: u16 = 3128;

/// Where a program finds its hosts, decided before it is started.
#[derive(Debug)]
pub(crate) enum Hatch {
    /// It was declared without hosts.
    Closed,
    /// In a network namespace that is made with the program, and the listening socket with it.
    InNamespace,
    /// At a port of this machine.
    OnMachine(TcpListener, u16),
}

impl Hatch {
    /// Decides where the hatch of a program is.
    ///
    /// # Errors
    /// The program may have no network on this system, for the reason given.
    pub(crate) async fn plan(hosts: &[HostPattern], workers: &Workers) -> Result<Self, String> {
        if hosts.is_empty() {
            return Ok(Self::Closed);
        }
        match workers.network_isolation().map_err(|refused| refused.to_string())? {
            NetworkIsolation::Namespace => Ok(Self::InNamespace),
            NetworkIsolation::FiltersOnly => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(no_way)?;
                let port = listener.local_addr().map_err(no_way)?.port();
                Ok(Self::OnMachine(listener, port))
            }
        }
    }

    /// What the program may reach.
    pub(crate) const fn network(&self) -> Network {
        match self {
            Self::Closed => Network::None,
            Self::InNamespace => Network::OwnNamespace { port: NAMESPACE_PORT },
            Self::OnMachine(_, port) => Network::MachinePort { port: *port },
        }
    }

    /// Serves the hatch of a program that runs, with the listening socket the program was started with. It is shut when
    /// `beside` is dropped.
    ///
    /// # Errors
    /// There is no listening socket, or it cannot be used.
    pub(crate) fn open(
        self,
        (hosts, opened): (&[HostPattern], &[Net]),
        handed: Option<OwnedFd>,
        (standstill, service): (&Arc<Standstill>, ServiceName),
        beside: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let listener = match self {
            Self::Closed => return Ok(()),
            Self::OnMachine(listener, _) => listener,
            Self::InNamespace => {
                let listener = std::net::TcpListener::from(handed.ok_or("there is no way to its hosts")?);
                listener.set_nonblocking(true).map_err(no_way)?;
                TcpListener::from_std(listener).map_err(no_way)?
            }
        };
        let (hosts, opened) = (hosts.to_vec(), opened.to_vec());
        let reach = Reach { hosts, port: TLS_PORT, opened, standstill: Arc::clone(standstill), service };
        beside.spawn(serve(listener, Arc::new(reach)));
        Ok(())
    }
}

/// What tells a program where its hatch is, as programs look for it.
pub(crate) fn variables(network: Network) -> Vec<(String, String)> {
    let Some(port) = network.port() else { return Vec::new() };
    let hatch = format!("http://127.0.0.1:{port}");
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"].map(|name| (name.to_owned(), hatch.clone())).into()
}

fn no_way(error: std::io::Error) -> String {
    format!("there is no way to its hosts: {error}")
}

async fn serve(listener: TcpListener, reach: Arc<Reach>) {
    let places = Arc::new(Semaphore::new(LINES));
    let mut lines = JoinSet::new();
    while let Ok((line, _)) = listener.accept().await {
        while lines.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let reach = Arc::clone(&reach);
        lines.spawn(async move {
            tokio::select! {
                _over = timeout(LASTING, pass(line, &reach)) => {}
                () = reach.standstill.until(|_| reach.is_shut()) => {}
            }
            drop(place);
        });
    }
}

/// One line, from its request to its end.
async fn pass(mut line: TcpStream, reach: &Reach) -> std::io::Result<()> {
    let asked = timeout(REACHING, head(&mut line)).await.ok().flatten();
    let far = match asked.as_deref().and_then(target) {
        Some((host, port)) => timeout(REACHING, dial(&host, port, reach)).await.ok().flatten(),
        None => None,
    };
    match far {
        Some(mut far) => {
            line.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            copy_bidirectional(&mut line, &mut far).await.map(|_| ())
        }
        None => line.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await,
    }
}

/// The head of a request, if it comes to an end.
async fn head(line: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD || line.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Where a request wants to go: `CONNECT api.example.com:443 HTTP/1.1`.
fn target(head: &str) -> Option<(String, u16)> {
    let mut words = head.lines().next()?.split(' ');
    let (method, place, version) = (words.next()?, words.next()?, words.next()?);
    if method != "CONNECT" || !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let (host, port) = place.rsplit_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    // Names only: an address was not declared, whatever it is the address of.
    let named = host.chars().all(plain) && host.parse::<IpAddr>().is_err() && !host.ends_with('.');
    (named && !host.is_empty()).then_some((host.to_ascii_lowercase(), port.parse().ok()?))
}

async fn dial(host: &str, port: u16, reach: &Reach) -> Option<TcpStream> {
    if reach.is_shut() || port != reach.port || !reach.hosts.iter().any(|pattern| pattern.matches(host)) {
        return None;
    }
    let found: Vec<SocketAddr> = lookup_host((host, port)).await.ok()?.collect();
    let addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
    if !all_reachable(&addresses, &reach.opened) {
        return None;
    }
    for address in found {
        if let Ok(far) = TcpStream::connect(address).await {
            return Some(far);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{Actor, AgentName, PersonName, Timestamp};
    use sluice_store::{Freeze, Scope};

    #[test]
    fn only_a_plain_name_and_a_port_are_a_target() {
        assert_eq!(target("CONNECT API.example.com:443 HTTP/1.1\r\n\r\n"), Some(("api.example.com".into(), 443)));
        for bad in [
            "GET http://example.com/ HTTP/1.1\r\n\r\n",
            "CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n",
            "CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
            "CONNECT example.com. HTTP/1.1\r\n\r\n",
            "CONNECT example.com.:443 HTTP/1.1\r\n\r\n",
            "CONNECT ex@ample.com:443 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:443 HTTP/1.1 x\r\n\r\n",
            "CONNECT :443 HTTP/1.1\r\n\r\n",
            "",
        ] {
            assert_eq!(target(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn nothing_but_declared_hosts_and_the_tls_port_is_dialled() {
        let hosts = vec![HostPattern::parse("localhost").unwrap()];
        let service = ServiceName::new("mount.x").unwrap();
        let reach = Reach { hosts, port: TLS_PORT, opened: Vec::new(), standstill: Arc::default(), service };
        assert!(dial("evil.example", 443, &reach).await.is_none());
        assert!(dial("localhost", 80, &reach).await.is_none());
        assert!(dial("localhost", 443, &reach).await.is_none(), "a private address nobody opened");
    }

    /// Asks for a line to `localhost` at this port; gives it with the first line of the answer.
    async fn connect(hatch: SocketAddr, port: u16) -> (TcpStream, String) {
        let mut line = TcpStream::connect(hatch).await.unwrap();
        line.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        // A line that is cut before it was answered says nothing.
        let answer = head(&mut line).await.unwrap_or_default();
        let first = answer.lines().next().unwrap_or_default().to_owned();
        (line, first)
    }

    #[tokio::test]
    async fn a_freeze_of_the_mount_or_of_all_cuts_lines_in_use_and_refuses_new_ones() {
        let mount = ServiceName::new("mount.x").unwrap();
        let by = Actor::Person(PersonName::new("ana").unwrap());
        let freeze =
            |scope| Freeze { scope, by: by.clone(), reason: String::new(), at: Timestamp::from_millis(0), brake: None };
        let other = Scope::Service(ServiceName::new("mount.y").unwrap());
        let clerk = Scope::Agent(AgentName::new("clerk").unwrap());
        for (scope, cuts) in [(Scope::All, true), (Scope::Service(mount.clone()), true), (other, false), (clerk, false)]
        {
            let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = host.local_addr().unwrap().port();
            let standstill = Arc::new(Standstill::default());
            let reach = Reach {
                hosts: vec![HostPattern::parse("localhost").unwrap()],
                port,
                opened: vec![Net::parse("127.0.0.1/32").unwrap(), Net::parse("::1/128").unwrap()],
                standstill: Arc::clone(&standstill),
                service: mount.clone(),
            };
            let hatch = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let at = hatch.local_addr().unwrap();
            let mut serving = JoinSet::new();
            serving.spawn(serve(hatch, Arc::new(reach)));
            let (mut line, answer) = connect(at, port).await;
            assert_eq!(answer, "HTTP/1.1 200 Connection established");
            let (mut far, _) = host.accept().await.unwrap();
            line.write_all(b"a").await.unwrap();
            assert_eq!(far.read_u8().await.unwrap(), b'a');

            standstill.set_seen(vec![freeze(scope.clone())]);
            if cuts {
                assert_eq!(far.read(&mut [0]).await.unwrap_or(0), 0, "{scope}: the host's end is closed");
                assert_eq!(line.read(&mut [0]).await.unwrap_or(0), 0, "{scope}: the program's end is closed");
                let refused = connect(at, port).await.1;
                assert!(["", "HTTP/1.1 403 Forbidden"].contains(&refused.as_str()), "{scope}: {refused}");
                standstill.set_seen(Vec::new());
                assert_eq!(connect(at, port).await.1, "HTTP/1.1 200 Connection established", "{scope}");
            } else {
                line.write_all(b"b").await.unwrap();
                assert_eq!(far.read_u8().await.unwrap(), b'b', "{scope}: goes on");
            }
        }
    }
}
