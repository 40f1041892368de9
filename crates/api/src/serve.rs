//! Serving: listeners, loops and the shutdown.
//!
//! The stop lane has its own listener, connections and thread, and opens first, so that cancel, deny, freeze and status
//! answer while everything else is busy. Promise: before the gateway takes calls, it recovers what was left open and
//! checks its whole database file, and reports this phase meanwhile; when told to stop it takes nothing new, lets
//! running work finish within its grace, and leaves held writes held. A gateway that can no longer trust its database,
//! or has lost a loop, ends by itself and reports the reason.

use std::sync::Arc;

use sluice_gateway::tls::LiveTls;
use sluice_gateway::{FatalGatewayError, Gateway, GatewayPhase, loops};
use sluice_services::CallError;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::http::route::ListenerLane;
use crate::http::{self, HttpDoor};

/// Why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The gateway cannot listen at an address.
    #[error("cannot listen at {address}: {why}")]
    Listen {
        /// The address.
        address: String,
        /// Why not.
        why: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("the TLS certificate or key cannot be used: {0}")]
    Tls(String),
    /// Starting failed because of the database.
    #[error("{}", .0.refusal)]
    Start(CallError),
    /// The gateway was serving and cannot continue.
    #[error("{0}")]
    Lost(FatalGatewayError),
}

/// A gateway's listeners, bound but not yet served.
#[derive(Debug)]
pub struct BoundListeners {
    main: TcpListener,
    stop: std::net::TcpListener,
    tls: Option<Arc<LiveTls>>,
}

impl BoundListeners {
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
pub async fn bind(gw: &Gateway) -> Result<BoundListeners, ServeError> {
    let config = &gw.config;
    let refuse = |address: std::net::SocketAddr| {
        move |why: std::io::Error| ServeError::Listen { address: address.to_string(), why }
    };
    let main = TcpListener::bind(config.listen).await.map_err(refuse(config.listen))?;
    let stop = std::net::TcpListener::bind(config.stop_listen).map_err(refuse(config.stop_listen))?;
    stop.set_nonblocking(true).map_err(refuse(config.stop_listen))?;
    let tls = config.tls.as_ref().map(LiveTls::load).transpose().map_err(ServeError::Tls)?.map(Arc::new);
    if let Some(tls) = &tls {
        // The housekeeping loop reloads it.
        let _first = gw.tls.set(Arc::clone(tls));
    }
    Ok(BoundListeners { main, stop, tls })
}

/// Serves until `stop` turns true.
///
/// # Errors
/// When what was left open cannot be recovered, or the gateway cannot continue.
pub async fn serve(gw: Arc<Gateway>, bound: BoundListeners, stop: watch::Receiver<bool>) -> Result<(), ServeError> {
    let BoundListeners { main, stop: stop_listener, tls } = bound;
    let stop_door = HttpDoor::new(Arc::clone(&gw), ListenerLane::Stop).map_err(ServeError::Start)?;
    let door = HttpDoor::new(Arc::clone(&gw), ListenerLane::Main).map_err(ServeError::Start)?;
    // Writes and the services that carry them out end first, the doors last: a caller that waits for a write learns its
    // outcome.
    let (halt, halts) = watch::channel(false);
    let (end, ends) = watch::channel(false);
    // The keys that may stop things must be known before the first call request. If this fails, starting reports why.
    if gw.keyring.refresh(&gw.store).await.is_ok() {
        gw.standstill.look(&gw.store).await;
    }
    let lane = stop_lane(stop_door, stop_listener, tls.clone(), ends.clone());
    let (mut doors, mut working) = (JoinSet::new(), JoinSet::new());
    doors.spawn(http::serve(door, main, tls, ends));
    let started = tokio::select! {
        started = loops::start(&gw, gw.about.release) => started.map(|()| true),
        () = wait_for_stop(stop.clone()) => Ok(false),
    };
    if let Ok(true) = started {
        working.spawn(loops::run(Arc::clone(&gw), halts));
    }
    let lost = match &started {
        Ok(true) => tokio::select! {
            () = wait_for_stop(stop) => None,
            why = gw.wait_for_failure() => Some(why),
            // Neither task ends before it is told to.
            _ended = working.join_next() => Some(FatalGatewayError::Loop),
            _ended = doors.join_next() => Some(FatalGatewayError::Loop),
        },
        Ok(false) | Err(_) => None,
    };
    gw.enter(GatewayPhase::Stopping);
    halt.send_replace(true);
    while working.join_next().await.is_some() {}
    end.send_replace(true);
    while doors.join_next().await.is_some() {}
    if let Ok(lane) = lane {
        drop(tokio::task::spawn_blocking(move || lane.join()).await);
    }
    started.map_err(ServeError::Start)?;
    lost.map_or(Ok(()), |why| Err(ServeError::Lost(why)))
}

/// Waits until `stop` turns true.
async fn wait_for_stop(mut stop: watch::Receiver<bool>) {
    // The result holds a lock; drop it at once.
    drop(stop.wait_for(|stop| *stop).await);
}

/// The stop lane on a thread and runtime of its own: a flood of calls cannot take its share of the
/// processor, its connections or its place in the database's queue.
fn stop_lane(
    door: Arc<HttpDoor>,
    listener: std::net::TcpListener,
    tls: Option<Arc<LiveTls>>,
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
