//! Connect proxy: the only port that a third-party program may connect to; it leads to the declared hosts and no
//! others.
//!
//! The port is inside the program's own network namespace, where there is nothing else. In a degraded gateway without
//! namespaces it is a port of this machine, and filters keep the program from the others.
//! Takes `CONNECT host:443` from a program; gives a line to that host. The traffic is encrypted between the program and
//! the host, so only the host name is checked. Promise: no undeclared host, no other port, no private address unless it
//! was opened, and no line at all while the service of the program is frozen.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::network::{HostPattern, IpNetwork, all_reachable};
use sluice_core::ServiceName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::active_freezes::ActiveFreezes;
use crate::workers::{GatewayWorkers, NetworkIsolation, ThirdPartyNetwork};

/// Longest head of a request.
const HEAD: usize = 8 << 10;
/// Most lines at once.
const LINES: usize = 32;
/// How long it may take to reach a host.
const REACHING: Duration = Duration::from_secs(15);
/// The longest lifetime of a line.
const LASTING: Duration = Duration::from_secs(600);
/// The only port of a host that can be reached: traffic on it is encrypted.
const TLS_PORT: u16 = 443;

/// What a program may reach.
#[derive(Debug, Clone)]
struct ConnectProxyRules {
    hosts: Vec<HostPattern>,
    port: u16,
    opened: Vec<IpNetwork>,
    standstill: Arc<ActiveFreezes>,
    service: ServiceName,
}

impl ConnectProxyRules {
    /// Whether the program's service, or everything, is frozen: then no line is opened, and open lines end.
    fn is_shut(&self) -> bool {
        self.standstill.of_service(&self.service).is_some()
    }
}

/// The port inside a network namespace. Nothing else listens there, so it is always free; 3128 is the usual port of
/// proxies.
const NAMESPACE_PORT: u16 = 3128;

/// Where a program finds its hosts, decided before it starts.
#[derive(Debug)]
pub enum ConnectProxy {
    /// It was declared without hosts.
    Closed,
    /// In a network namespace that is created with the program, together with the listening socket.
    InNamespace,
    /// On a port of this machine.
    OnMachine(TcpListener, u16),
}

impl ConnectProxy {
    /// Decides where the connect proxy of a program is.
    ///
    /// # Errors
    /// When the program may have no network on this system, with the reason.
    pub async fn plan(hosts: &[HostPattern], workers: &GatewayWorkers) -> Result<Self, String> {
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

    /// The network that the program gets.
    pub const fn network(&self) -> ThirdPartyNetwork {
        match self {
            Self::Closed => ThirdPartyNetwork::None,
            Self::InNamespace => ThirdPartyNetwork::OwnNamespace { port: NAMESPACE_PORT },
            Self::OnMachine(_, port) => ThirdPartyNetwork::MachinePort { port: *port },
        }
    }

    /// Serves the connect proxy of a running program, on the listening socket that the program was started with. It
    /// closes when `beside` is dropped.
    ///
    /// # Errors
    /// When there is no listening socket, or it cannot be used.
    pub fn open(
        self,
        (hosts, opened): (&[HostPattern], &[IpNetwork]),
        handed: Option<OwnedFd>,
        (standstill, service): (&Arc<ActiveFreezes>, ServiceName),
        beside: &mut JoinSet<()>,
    ) -> Result<(), String> {
        let listener = match self {
            Self::Closed => return Ok(()),
            Self::OnMachine(listener, _) => listener,
            Self::InNamespace => {
                let listener = std::net::TcpListener::from(
                    handed.ok_or("its hosts cannot be reached: it has no listening socket")?,
                );
                listener.set_nonblocking(true).map_err(no_way)?;
                TcpListener::from_std(listener).map_err(no_way)?
            }
        };
        let (hosts, opened) = (hosts.to_vec(), opened.to_vec());
        let reach = ConnectProxyRules { hosts, port: TLS_PORT, opened, standstill: Arc::clone(standstill), service };
        beside.spawn(serve(listener, Arc::new(reach)));
        Ok(())
    }
}

/// The variables that tell a program where its connect proxy is.
pub fn variables(network: ThirdPartyNetwork) -> Vec<(String, String)> {
    let Some(port) = network.port() else { return Vec::new() };
    let tunnel = format!("http://127.0.0.1:{port}");
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"].map(|name| (name.to_owned(), tunnel.clone())).into()
}

fn no_way(error: std::io::Error) -> String {
    format!("its hosts cannot be reached: {error}")
}

async fn serve(listener: TcpListener, reach: Arc<ConnectProxyRules>) {
    let places = Arc::new(Semaphore::new(LINES));
    let mut lines = JoinSet::new();
    while let Ok((line, _)) = listener.accept().await {
        while lines.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let reach = Arc::clone(&reach);
        lines.spawn(async move {
            tokio::select! {
                _over = timeout(LASTING, pass(line, &reach)) => {}
                () = reach.standstill.wait_until(|_| reach.is_shut()) => {}
            }
            drop(place);
        });
    }
}

/// One line, from its request to its end.
async fn pass(mut line: TcpStream, reach: &ConnectProxyRules) -> std::io::Result<()> {
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

/// The head of a request, if it is complete.
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

/// The target of a request: `CONNECT api.example.com:443 HTTP/1.1`.
fn target(head: &str) -> Option<(String, u16)> {
    let mut words = head.lines().next()?.split(' ');
    let (method, place, version) = (words.next()?, words.next()?, words.next()?);
    if method != "CONNECT" || !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let (host, port) = place.rsplit_once(':')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    // Names only: addresses are not declared, whatever they point to.
    let named = host.chars().all(plain) && host.parse::<IpAddr>().is_err() && !host.ends_with('.');
    (named && !host.is_empty()).then_some((host.to_ascii_lowercase(), port.parse().ok()?))
}

async fn dial(host: &str, port: u16, reach: &ConnectProxyRules) -> Option<TcpStream> {
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
    use sluice_core::{Actor, AgentName, PersonName, UtcMillis};
    use sluice_store::{Freeze, FreezeTarget};

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
        let reach =
            ConnectProxyRules { hosts, port: TLS_PORT, opened: Vec::new(), standstill: Arc::default(), service };
        assert!(dial("evil.example", 443, &reach).await.is_none());
        assert!(dial("localhost", 80, &reach).await.is_none());
        assert!(dial("localhost", 443, &reach).await.is_none(), "a private address nobody opened");
    }

    /// Requests a line to `localhost` at this port; gives it with the first line of the answer.
    async fn connect(tunnel: SocketAddr, port: u16) -> (TcpStream, String) {
        let mut line = TcpStream::connect(tunnel).await.unwrap();
        line.write_all(format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        // A line that is cut before it was answered gives nothing.
        let answer = head(&mut line).await.unwrap_or_default();
        let first = answer.lines().next().unwrap_or_default().to_owned();
        (line, first)
    }

    #[tokio::test]
    async fn a_freeze_of_the_mount_or_of_all_cuts_lines_in_use_and_refuses_new_ones() {
        let mount = ServiceName::new("mount.x").unwrap();
        let by = Actor::Person(PersonName::new("ana").unwrap());
        let freeze =
            |scope| Freeze { scope, by: by.clone(), reason: String::new(), at: UtcMillis::from_millis(0), brake: None };
        let other = FreezeTarget::Service(ServiceName::new("mount.y").unwrap());
        let clerk = FreezeTarget::Agent(AgentName::new("clerk").unwrap());
        for (scope, cuts) in
            [(FreezeTarget::All, true), (FreezeTarget::Service(mount.clone()), true), (other, false), (clerk, false)]
        {
            let host = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let port = host.local_addr().unwrap().port();
            let standstill = Arc::new(ActiveFreezes::default());
            let reach = ConnectProxyRules {
                hosts: vec![HostPattern::parse("localhost").unwrap()],
                port,
                opened: vec![IpNetwork::parse("127.0.0.1/32").unwrap(), IpNetwork::parse("::1/128").unwrap()],
                standstill: Arc::clone(&standstill),
                service: mount.clone(),
            };
            let tunnel = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let at = tunnel.local_addr().unwrap();
            let mut serving = JoinSet::new();
            serving.spawn(serve(tunnel, Arc::new(reach)));
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
