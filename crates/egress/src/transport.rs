//! The wire: resolves names to addresses and opens connections.
//!
//! Takes a target and what a connection may reach; gives a line to send requests on. Promise: a name is resolved once,
//! all of its addresses are checked, and the connection goes to one of exactly these; the certificate must be valid for
//! the name.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluice_config::network::{EgressUrl, IpNetwork, all_reachable};
use sluice_core::BoxedFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::{EgressError, ExchangeFailure, ExchangeFault, ExchangePhase};

/// The most addresses of one name that are tried.
const TRIED: usize = 4;

/// Resolves host names.
pub trait HostResolver: Send + Sync {
    /// All addresses of a host.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxedFuture<'a, std::io::Result<Vec<IpAddr>>>;
}

/// Connects to addresses.
pub trait TcpDialer: Send + Sync {
    /// A connection to exactly this address.
    fn dial(&self, address: SocketAddr) -> BoxedFuture<'_, std::io::Result<TcpStream>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl HostResolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxedFuture<'a, std::io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.map(|found| found.ip()).collect()) })
    }
}

/// The network of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDialer;

impl TcpDialer for SystemDialer {
    fn dial(&self, address: SocketAddr) -> BoxedFuture<'_, std::io::Result<TcpStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}

/// The resolver, dialer and TLS settings for connections.
pub struct EgressTransport {
    resolver: Arc<dyn HostResolver>,
    dialer: Arc<dyn TcpDialer>,
    tls: Arc<ClientConfig>,
}

impl std::fmt::Debug for EgressTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wire")
    }
}

const fn failed(phase: ExchangePhase, what: ExchangeFault) -> ExchangeFailure {
    ExchangeFailure { phase, what, sent: false }
}

impl EgressTransport {
    /// A wire with this resolver, dialer and TLS configuration.
    #[must_use]
    pub fn new(resolver: Arc<dyn HostResolver>, dialer: Arc<dyn TcpDialer>, tls: Arc<ClientConfig>) -> Self {
        Self { resolver, dialer, tls }
    }

    /// Connects to a target.
    ///
    /// # Errors
    /// When its addresses are not allowed, or cannot be reached.
    pub(super) async fn connect(
        &self,
        target: &EgressUrl,
        opened: &[IpNetwork],
        reached: impl Fn(ExchangePhase),
    ) -> Result<(MeteredStream, ByteMeter), EgressError> {
        let addresses = self.addresses(target, opened).await?;
        reached(ExchangePhase::Connect);
        let mut dialled = Err(ExchangeFault::Unreachable);
        for address in addresses.into_iter().take(TRIED) {
            match self.dialer.dial(SocketAddr::new(address, target.port())).await {
                Ok(stream) => {
                    dialled = Ok(stream);
                    break;
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    dialled = Err(ExchangeFault::Refused)
                }
                Err(_) => {}
            }
        }
        let stream = dialled.map_err(|what| failed(ExchangePhase::Connect, what))?;
        let meter = ByteMeter::default();
        if !target.is_tls() {
            return Ok((MeteredStream { stream: TcpOrTlsStream::Plain(stream), meter: meter.clone() }, meter));
        }
        reached(ExchangePhase::Tls);
        let name = match target.address() {
            Some(address) => ServerName::IpAddress(address.into()),
            None => {
                let name = ServerName::try_from(target.host().to_owned());
                name.map_err(|_| failed(ExchangePhase::Tls, ExchangeFault::NotTrusted))?
            }
        };
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream).await;
        let stream = stream.map_err(|error| {
            let closed = error.kind() != std::io::ErrorKind::InvalidData;
            failed(ExchangePhase::Tls, if closed { ExchangeFault::Closed } else { ExchangeFault::NotTrusted })
        })?;
        Ok((MeteredStream { stream: TcpOrTlsStream::Tls(Box::new(stream)), meter: meter.clone() }, meter))
    }

    /// All addresses of a target, each of them checked.
    async fn addresses(&self, target: &EgressUrl, opened: &[IpNetwork]) -> Result<Vec<IpAddr>, EgressError> {
        let addresses = match target.address() {
            Some(address) => vec![address],
            None => {
                let found = self.resolver.resolve(target.host(), target.port()).await;
                found.map_err(|_| failed(ExchangePhase::Dns, ExchangeFault::NoSuchHost))?
            }
        };
        if addresses.is_empty() {
            return Err(failed(ExchangePhase::Dns, ExchangeFault::NoSuchHost).into());
        }
        // SECURITY: DNS rebinding mixes one bad address among good ones; none of them is used then.
        if all_reachable(&addresses, opened) { Ok(addresses) } else { Err(EgressError::Address) }
    }
}

/// The TLS configuration that trusts the roots of this machine and those of a file.
///
/// # Errors
/// When the file cannot be used.
pub fn trust(extra: Option<&std::path::Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    // A machine without roots trusts no certificate; connections then report it.
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

/// Counts the bytes on a line, inside any encryption.
#[derive(Debug, Clone, Default)]
pub(super) struct ByteMeter(Arc<(AtomicU64, AtomicU64)>);

impl ByteMeter {
    pub(super) fn sent(&self) -> u64 {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(super) fn received(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// A connection to a service.
#[derive(Debug)]
pub(super) struct MeteredStream {
    stream: TcpOrTlsStream,
    meter: ByteMeter,
}

#[derive(Debug)]
enum TcpOrTlsStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for MeteredStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = match &mut this.stream {
            TcpOrTlsStream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            TcpOrTlsStream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        };
        let more = buf.filled().len().saturating_sub(before);
        this.meter.0.1.fetch_add(more as u64, Ordering::SeqCst);
        polled
    }
}

impl MeteredStream {
    /// Counts the bytes that the system accepted.
    fn counted(&self, written: &Poll<std::io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.meter.0.0.fetch_add(*bytes as u64, Ordering::SeqCst);
        }
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let polled = match &mut this.stream {
            TcpOrTlsStream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            TcpOrTlsStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
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
            TcpOrTlsStream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            TcpOrTlsStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        };
        this.counted(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            TcpOrTlsStream::Plain(stream) => stream.is_write_vectored(),
            TcpOrTlsStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            TcpOrTlsStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            TcpOrTlsStream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            TcpOrTlsStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            TcpOrTlsStream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
