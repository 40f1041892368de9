//! `sluice serve`: the gateway itself.
//!
//! Takes a configuration; serves until it is told to stop. Promise: one line says where it answers once it
//! does; SIGTERM and SIGINT end it in order, SIGHUP has the rules and the mounts read again.

mod questions;

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, setrlimit};
use sluice_core::Actor;
use sluice_core::policy::LoadErrors;
use sluice_core::timekeeping::SteadyClock;
use sluice_gateway::config::{Config, Flag, Log, LogFormat, LogLevel, Sandbox};
use sluice_gateway::open::{self, OpenError, World};
use sluice_gateway::serve::{self, ServeError};
use sluice_gateway::workers::{Program, WorkersError};
use sluice_gateway::{Gateway, Lost, Phase, loops, mounts};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::failure::{Exit, Failure, io_words};
use crate::screen::Screen;
use crate::settings::{Layers, Settings, Which};
use crate::system::{SystemClock, SystemEntropy, SystemIds};

/// Whose lines are written at the configured level.
const OWN_CRATES: [&str; 8] = [
    "sluice",
    "sluice_adapters",
    "sluice_content",
    "sluice_core",
    "sluice_gateway",
    "sluice_sandbox",
    "sluice_store",
    "sluice_worker",
];

/// How often it is looked whether the gateway is open.
const LOOK: Duration = Duration::from_millis(10);

/// Run the gateway.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice serve\n  sluice serve --config /etc/sluice/sluice.yaml\n  sluice serve --listen 127.0.0.1:7500 --data ./data\n  sluice serve --frozen"
)]
pub(crate) struct Serve {
    #[command(flatten)]
    which: Which,
    /// Address and port for agents and people
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Folder for the database and keys
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Start frozen: nothing is allowed and nothing leaves until `sluice unfreeze`
    #[arg(long)]
    frozen: bool,
}

impl Serve {
    pub(crate) fn run(self, screen: &Screen) -> Result<Exit, Failure> {
        let listen = self.listen.map(|value| Flag { name: "--listen", key: "listen", value });
        let data = self.data.map(|value| Flag { name: "--data", key: "data", value });
        let layers = self.which.layers(listen.into_iter().chain(data).collect())?;
        if layers.is_unfounded() {
            return Err(Failure::new(Exit::NotFound, "there is no configuration, so there is no gateway to start")
                .why("no sluice.yaml in this folder, in a folder above it or in the user's configuration")
                .hint("make a gateway: sluice init; or name one: sluice serve --config FILE"));
        }
        let (config, _) = Settings::from(layers.clone()).or_fail(screen)?;
        log(&config.log);
        // A core of this process would hold every secret it has in hand.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        if let Err(error) = setrlimit(Resource::Core, none) {
            tracing::warn!("core dumps cannot be turned off: {error}");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(Exit::Failed, "the gateway cannot start").why(io_words(&error)))?;
        runtime.block_on(whole_life(config, layers, self.frozen, screen))
    }
}

async fn whole_life(config: Config, layers: Layers, frozen: bool, screen: &Screen) -> Result<Exit, Failure> {
    let world = World {
        clock: Arc::new(SteadyClock::new(Arc::new(SystemClock))),
        ids: Arc::new(SystemIds),
        entropy: Arc::new(SystemEntropy),
        release: env!("CARGO_PKG_VERSION"),
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let policies = config.policies.clone();
    let (gw, warnings) = open::open(config, &world).await.map_err(|error| not_opened(error, &policies, screen))?;
    warnings.iter().for_each(|warning| screen.fault(warning));
    if frozen {
        // Before any door opens and any loop runs.
        let first = open::frozen(&gw).await.map_err(|error| not_opened(error, &policies, screen))?;
        let how = if first { "everything is frozen" } else { "everything was frozen already" };
        screen.note(format_args!("{how}; sluice unfreeze lifts it"));
    }
    gw.mounts.follow(Box::new(move || layers.read().map(|(config, _)| config)));
    workers(&gw, &world)?;
    let bound = serve::bind(&gw).await.map_err(not_served)?;
    let (main, stop) = (bound.address()?, bound.stop_address()?);
    let (tell, told) = watch::channel(false);
    let served = serve::serve(Arc::clone(&gw), bound, told);
    tokio::pin!(served);
    let mut look = tokio::time::interval(LOOK);
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, "signals cannot be received").why(io_words(&error));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut said = false;
    let announced = questions::announce_all(&gw, screen);
    tokio::pin!(announced);
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                ended.map_err(not_served)?;
                return Ok(Exit::Ok);
            }
            _ = look.tick(), if !said => {
                if gw.phase() == Phase::Open {
                    said = true;
                    screen.line(format_args!("sluice serves at {scheme}://{main} and stops things at {scheme}://{stop}"))?;
                }
            }
            () = announced.as_mut(), if said && screen.is_terminal() => {}
            _ = terminate.recv() => end(&tell),
            _ = interrupt.recv() => end(&tell),
            _ = hang_up.recv() => reload(&gw).await,
        }
    }
}

/// Starts the first worker, to see how well this system locks workers in.
fn workers(gw: &Gateway, world: &World) -> Result<(), Failure> {
    let opened = Program::own().map_err(WorkersError::from);
    let opened = opened.and_then(|program| gw.workers.open(program, &gw.config, Arc::clone(&world.clock)));
    match (opened, gw.config.sandbox) {
        (Ok(layers), _) if layers.missing_mandatory().is_empty() => Ok(()),
        (Ok(layers), _) => {
            let missing: Vec<&str> = layers.missing_mandatory().iter().map(|layer| layer.as_str()).collect();
            tracing::warn!("workers are locked in without {}, because `sandbox` is `degraded`", missing.join(", "));
            Ok(())
        }
        (Err(error), Sandbox::Degraded) => {
            tracing::error!("no worker can be started ({}): {error}", error.code());
            Ok(())
        }
        (Err(error), Sandbox::Required) => {
            Err(Failure::new(Exit::Failed, format!("workers cannot be locked in ({})", error.code()))
                .why(error.to_string())
                .hint("sluice doctor shows each layer; `sandbox: degraded` in sluice.yaml does without"))
        }
    }
}

fn end(tell: &watch::Sender<bool>) {
    tracing::info!("told to stop: nothing new is taken, what is under way ends, held writes stay held");
    tell.send_replace(true);
}

async fn reload(gw: &Gateway) {
    let node = Actor::Node(gw.store.node().clone());
    match loops::policy::reload(gw, node.clone()).await {
        Ok(Some(version)) => tracing::info!(policy = %version, "new rules are in force: {version}"),
        Ok(None) => tracing::info!("the rules are those already in force"),
        Err(no) => tracing::error!("the new rules were refused, the old ones stay in force: {}", no.refusal),
    }
    if let Err(no) = sluice_gateway::proxies::reload::reload(gw, node.clone()).await {
        tracing::error!("the declarations of proxies could not be put in force: {}", no.refusal);
    }
    match mounts::reload(gw, node).await {
        Ok(done) if done.is_nothing() => tracing::info!("the mounts are those already there"),
        Ok(done) => tracing::info!(
            "mounts: {} new, {} changed, {} gone; {} held writes cancelled",
            done.added.len(),
            done.changed.len(),
            done.removed.len(),
            done.cancelled.len()
        ),
        Err(no) => tracing::error!("the mounts stay as they are: {}", no.refusal),
    }
}

/// Log lines go to stderr, for people on a terminal, for machines elsewhere.
fn log(log: &Log) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let terminal = std::io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    // Others' chatter stays out below warnings, whatever our own level is.
    let own: Vec<String> = OWN_CRATES.iter().map(|name| format!("{name}={level}")).collect();
    let ours = EnvFilter::new(format!("warn,rmcp=error,{}", own.join(",")));
    // A line that cannot be written (a log on a full disk) is dropped: to complain about it on the same stream would panic
    // in whatever room wrote it, also in the stop lane.
    let lines = tracing_subscriber::fmt().with_env_filter(ours).with_writer(std::io::stderr).with_target(false);
    let lines = lines.log_internal_errors(false);
    // A second subscriber is refused; there is none.
    let _installed = if json { lines.json().try_init() } else { lines.with_ansi(terminal).try_init() };
}

fn not_opened(error: OpenError, policies: &Path, screen: &Screen) -> Failure {
    let code = error.code();
    match error {
        OpenError::Policy(errors) => {
            errors.faults.iter().for_each(|fault| screen.fault(fault));
            Failure::new(Exit::Failed, format!("the rules cannot be used ({code})"))
                .why(first_problem(&errors))
                .hint(format!("mend the file, then look again: sluice policy check {}", policies.display()))
        }
        other => Failure::new(Exit::Failed, format!("the gateway cannot open ({code})"))
            .why(other.to_string())
            .hint("sluice doctor looks for causes"),
    }
}

/// Where the first problem of the rules is, and how many there are: a log often keeps the last line only.
fn first_problem(errors: &LoadErrors) -> String {
    let Some(fault) = errors.faults.first() else { return "they have a problem that is not known".to_owned() };
    let more = match errors.faults.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more, above)"),
    };
    format!("{}:{}: {}{more}", fault.file, fault.place.line, fault.message)
}

fn not_served(error: ServeError) -> Failure {
    if let ServeError::Lost(why) = &error {
        let hint = match why {
            Lost::Removed => "what was acknowledged before that is in the file; nothing was acknowledged after it",
            Lost::Record | Lost::Loop => {
                "what was acknowledged is kept; look at the disk (sluice doctor), then start it again"
            }
        };
        return Failure::new(Exit::Failed, "the gateway could not go on").why(why.to_string()).hint(hint);
    }
    let failure = Failure::new(Exit::Failed, "the gateway cannot serve").why(error.to_string());
    match error {
        ServeError::Listen { why, .. } if why.kind() == std::io::ErrorKind::AddrInUse => failure
            .hint("another program has this port, perhaps another gateway: sluice status; or choose: --listen ADDRESS"),
        _ => failure,
    }
}
