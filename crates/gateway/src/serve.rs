//! Serving: listeners, loops and the end.
//!
//! The stop lane has its own listener, connections and thread, so that cancel, deny, freeze and status answer
//! while everything else is busy. Promise: the gateway looks after what was left open before it takes calls;
//! when told to stop it takes nothing new, lets what is under way end, and leaves held writes held. One that can no
//! longer believe its file, or has lost a loop, ends by itself and says so: nobody relies on half a gate.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;
use crate::doors::http::route::Lane;
use crate::doors::http::{self, Door};
use crate::gateway::{Lost, Phase};
use crate::{Gateway, No, loops};

/// Why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {why}")]
    Listen {
        /// Which.
        address: String,
        /// Why not.
        why: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("the TLS certificate or key cannot be used: {0}")]
    Tls(String),
    /// The database does not do its part.
    #[error("{}", .0.refusal)]
    Start(No),
    /// It served, and could not go on.
    #[error("{0}")]
    Lost(Lost),
}

/// A gateway's listeners, bound but not yet served.
#[derive(Debug)]
pub struct Bound {
    main: TcpListener,
    stop: std::net::TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Bound {
    /// Where calls are taken.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.main.local_addr()
    }

    /// Where stopping is taken.
    ///
    /// # Errors
    /// When the operating system does not say.
    pub fn stop_address(&self) -> std::io::Result<std::net::SocketAddr> {
        self.stop.local_addr()
    }
}

/// Binds both listeners.
///
/// # Errors
/// When an address is taken or the certificate cannot be used.
pub async fn bind(gw: &Gateway) -> Result<Bound, ServeError> {
    let config = &gw.config;
    let refuse = |address: std::net::SocketAddr| {
        move |why: std::io::Error| ServeError::Listen { address: address.to_string(), why }
    };
    let main = TcpListener::bind(config.listen).await.map_err(refuse(config.listen))?;
    let stop = std::net::TcpListener::bind(config.stop_listen).map_err(refuse(config.stop_listen))?;
    stop.set_nonblocking(true).map_err(refuse(config.stop_listen))?;
    let tls = config.tls.as_ref().map(acceptor).transpose()?;
    Ok(Bound { main, stop, tls })
}

/// Serves until `stop` says so.
///
/// # Errors
/// When what was left open cannot be looked after, or the gateway cannot go on.
pub async fn serve(gw: Arc<Gateway>, bound: Bound, stop: watch::Receiver<bool>) -> Result<(), ServeError> {
    let Bound { main, stop: stop_listener, tls } = bound;
    let tls = tls.map(TlsAcceptor::from);
    let stop_door = Door::new(Arc::clone(&gw), Lane::Stop).map_err(ServeError::Start)?;
    let door = Door::new(Arc::clone(&gw), Lane::Main).map_err(ServeError::Start)?;
    // Told to stop or unable to go on: everything ends the same way.
    let (end, ends) = watch::channel(false);
    let lane = stop_lane(stop_door, stop_listener, tls.clone(), ends.clone());
    let release = gw.about.release;
    loops::start(&gw, release).await.map_err(ServeError::Start)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(loops::run(Arc::clone(&gw), ends.clone()));
    tasks.spawn(http::serve(door, main, tls, ends));
    let lost = tokio::select! {
        () = told(stop) => None,
        why = gw.lost() => Some(why),
        // Neither of them ends before it is told to.
        _ended = tasks.join_next() => Some(Lost::Loop),
    };
    gw.enter(Phase::Stopping);
    end.send_replace(true);
    while tasks.join_next().await.is_some() {}
    if let Ok(lane) = lane {
        drop(tokio::task::spawn_blocking(move || lane.join()).await);
    }
    lost.map_or(Ok(()), |why| Err(ServeError::Lost(why)))
}

/// Waits until somebody says to stop.
async fn told(mut stop: watch::Receiver<bool>) {
    // What it gives holds a lock, and must not be held on to.
    drop(stop.wait_for(|stop| *stop).await);
}

/// The stop lane on a thread and runtime of its own: a flood of calls cannot take its processor time slice
/// of the scheduler, its connections or its place in the database's queue.
fn stop_lane(
    door: Arc<Door>,
    listener: std::net::TcpListener,
    tls: Option<TlsAcceptor>,
    stop: watch::Receiver<bool>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("stop-lane".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async move {
                match TcpListener::from_std(listener) {
                    Ok(listener) => http::serve(door, listener, tls, stop).await,
                    Err(error) => tracing::error!("the stop lane has no listener: {error}"),
                }
            }),
            Err(error) => tracing::error!("the stop lane has no runtime: {error}"),
        }
    })
}

/// TLS from the configured files.
fn acceptor(tls: &Tls) -> Result<Arc<rustls::ServerConfig>, ServeError> {
    let refuse = |why: String| ServeError::Tls(why);
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(&tls.cert).map_err(|error| refuse(error.to_string()))?.collect();
    let chain = chain.map_err(|error| refuse(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| refuse(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| refuse(error.to_string()))?;
    Ok(Arc::new(config))
}
