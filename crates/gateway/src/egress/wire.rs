//! The wire: names become addresses, addresses become connections.
//!
//! Takes a target and what a connection may reach; gives a line to send requests on. Promise: a name is looked up
//! once, every address it has is checked, and the connection is made to one of exactly these; the name itself is
//! what the certificate must be good for.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::Target;
use super::no::{EgressNo, Failed, Phase, What};
use super::ssrf::{Net, all_reachable};
use crate::services::Work;

/// Most addresses of one name that are tried.
const TRIED: usize = 4;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync {
    /// All of them.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Work<'a, std::io::Result<Vec<IpAddr>>>;
}

/// Reaches an address.
pub trait Dial: Send + Sync {
    /// A connection to exactly this one.
    fn dial(&self, address: SocketAddr) -> Work<'_, std::io::Result<TcpStream>>;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Work<'a, std::io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.map(|found| found.ip()).collect()) })
    }
}

/// The machine's own network.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDialer;

impl Dial for SystemDialer {
    fn dial(&self, address: SocketAddr) -> Work<'_, std::io::Result<TcpStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

/// How connections are made.
pub struct Wire {
    resolver: Arc<dyn Resolve>,
    dialer: Arc<dyn Dial>,
    tls: Arc<ClientConfig>,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

const fn failed(phase: Phase, what: What) -> Failed {
    Failed { phase, what, sent: false }
}

impl Wire {
    /// With this resolver and dialer, trusting these roots.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolve>, dialer: Arc<dyn Dial>, tls: Arc<ClientConfig>) -> Self {
        Self { resolver, dialer, tls }
    }

    /// Connects to a target.
    ///
    /// # Errors
    /// When its addresses may not be reached, or cannot be.
    pub(super) async fn connect(
        &self,
        target: &Target,
        opened: &[Net],
        reached: impl Fn(Phase),
    ) -> Result<(Line, Meter), EgressNo> {
        let addresses = self.addresses(target, opened).await?;
        reached(Phase::Connect);
        let mut dialled = Err(What::Unreachable);
        for address in addresses.into_iter().take(TRIED) {
            match self.dialer.dial(SocketAddr::new(address, target.port())).await {
                Ok(stream) => {
                    dialled = Ok(stream);
                    break;
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => dialled = Err(What::Refused),
                Err(_) => {}
            }
        }
        let stream = dialled.map_err(|what| failed(Phase::Connect, what))?;
        let meter = Meter::default();
        if !target.is_tls() {
            return Ok((Line { stream: Stream::Plain(stream), meter: meter.clone() }, meter));
        }
        reached(Phase::Tls);
        let name = match target.address() {
            Some(address) => ServerName::IpAddress(address.into()),
            None => {
                let name = ServerName::try_from(target.host().to_owned());
                name.map_err(|_| failed(Phase::Tls, What::NotTrusted))?
            }
        };
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        let stream = stream.map_err(|error| {
            let closed = error.kind() != std::io::ErrorKind::InvalidData;
            failed(Phase::Tls, if closed { What::Closed } else { What::NotTrusted })
        })?;
        Ok((Line { stream: Stream::Tls(Box::new(stream)), meter: meter.clone() }, meter))
    }

    /// Every address of a target, all of them checked.
    async fn addresses(&self, target: &Target, opened: &[Net]) -> Result<Vec<IpAddr>, EgressNo> {
        let addresses = match target.address() {
            Some(address) => vec![address],
            None => {
                let found = self.resolver.resolve(target.host(), target.port()).await;
                found.map_err(|_| failed(Phase::Dns, What::NoSuchHost))?
            }
        };
        if addresses.is_empty() {
            return Err(failed(Phase::Dns, What::NoSuchHost).into());
        }
        // SECURITY: one bad address among good ones is how a name is rebound; none of them is used then.
        if all_reachable(&addresses, opened) { Ok(addresses) } else { Err(EgressNo::Address) }
    }
}

/// Trust in the roots of this machine, and in those of a file.
///
/// # Errors
/// When the file cannot be used.
pub fn trust(extra: Option<&std::path::Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    // A machine without roots trusts nobody; connections then say so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = extra {
        let certificates =
            CertificateDer::pem_file_iter(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| format!("{}: {error}", path.display()))?;
            roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Counts what goes over a line, inside any encryption.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter(Arc<(AtomicU64, AtomicU64)>);

impl Meter {
    pub(super) fn sent(&self) -> u64 {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(super) fn received(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A connection to a service.
#[derive(Debug)]
pub(super) struct Line {
    stream: Stream,
    meter: Meter,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Line {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        };
        let more = buf.filled().len().saturating_sub(before);
        this.meter.0.1.fetch_add(more as u64, Ordering::SeqCst);
        polled
    }
}

impl Line {
    /// Counts what the system took.
    fn counted(&self, written: &Poll<std::io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.meter.0.0.fetch_add(*bytes as u64, Ordering::SeqCst);
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let polled = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        };
        this.counted(&polled);
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let polled = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        };
        this.counted(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
