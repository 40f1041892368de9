//! Serving: listeners, loops and the end.
//!
//! The stop lane has its own listener, connections and thread, so that cancel, deny, freeze and status answer
//! while everything else is busy, and opens first. Promise: the gateway looks after what was left open, and at its whole
//! database file, before it takes calls, and says so meanwhile; when told to stop it takes nothing new, gives what is under
//! way its grace, and leaves held writes held. One that can no longer believe its file, or has lost a loop, ends by itself and says so: nobody relies on half a gate.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::doors::http::route::Lane;
use crate::doors::http::{self, Door};
use crate::gateway::{Lost, Phase};
use crate::tls::LiveTls;
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
    tls: Option<Arc<LiveTls>>,
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
    let tls = config.tls.as_ref().map(LiveTls::load).transpose().map_err(ServeError::Tls)?.map(Arc::new);
    if let Some(tls) = &tls {
        // Whoever keeps house looks after it.
        let _first = gw.tls.set(Arc::clone(tls));
    }
    Ok(Bound { main, stop, tls })
}

/// Serves until `stop` says so.
///
/// # Errors
/// When what was left open cannot be looked after, or the gateway cannot go on.
pub async fn serve(gw: Arc<Gateway>, bound: Bound, stop: watch::Receiver<bool>) -> Result<(), ServeError> {
    let Bound { main, stop: stop_listener, tls } = bound;
    let stop_door = Door::new(Arc::clone(&gw), Lane::Stop).map_err(ServeError::Start)?;
    let door = Door::new(Arc::clone(&gw), Lane::Main).map_err(ServeError::Start)?;
    // Writes and what carries them out end first, the doors last: whoever waits for a write is told how it ended.
    let (halt, halts) = watch::channel(false);
    let (end, ends) = watch::channel(false);
    // Whoever stops things must be known before the first of them knocks. Where that fails, starting says why.
    if gw.keyring.refresh(&gw.store).await.is_ok() {
        gw.standstill.look(&gw.store).await;
    }
    let lane = stop_lane(stop_door, stop_listener, tls.clone(), ends.clone());
    let (mut doors, mut working) = (JoinSet::new(), JoinSet::new());
    doors.spawn(http::serve(door, main, tls, ends));
    let started = tokio::select! {
        started = loops::start(&gw, gw.about.release) => started.map(|()| true),
        () = told(stop.clone()) => Ok(false),
    };
    if let Ok(true) = started {
        working.spawn(loops::run(Arc::clone(&gw), halts));
    }
    let lost = match &started {
        Ok(true) => tokio::select! {
            () = told(stop) => None,
            why = gw.lost() => Some(why),
            // Neither of them ends before it is told to.
            _ended = working.join_next() => Some(Lost::Loop),
            _ended = doors.join_next() => Some(Lost::Loop),
        },
        Ok(false) | Err(_) => None,
    };
    gw.enter(Phase::Stopping);
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
