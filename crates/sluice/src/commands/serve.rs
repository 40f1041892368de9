//! `sluice serve`: runs the gateway.
//!
//! Takes a configuration; serves until it is stopped. Promise: it prints one line with its addresses once it accepts
//! connections; SIGTERM and SIGINT stop it in order, SIGHUP reloads the rules and the mounts.

mod questions;

use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, Rlimit, setrlimit};
use sluice_api::dashboard_door;
use sluice_api::serve::{self, ServeError};
use sluice_config::{CommandLineFlag, Config, Log, LogFormat, LogLevel, Sandbox};
use sluice_core::policy::PolicyLoadError;
use sluice_core::timekeeping::SteadyClock;
use sluice_core::{Actor, GatewayDeps};
use sluice_gateway::OpenError;
use sluice_gateway::open;
use sluice_gateway::{FatalGatewayError, Gateway, GatewayPhase, loops};
use sluice_services::mounts;
use sluice_services::workers::{WorkerPoolError, WorkerProgram};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::console::CommandConsole;
use crate::failure::{CliError, CommandExit, describe_io_error};
use crate::settings::{ConfigFileArgs, ConfigLayers, LoadedSettings};
use crate::system::{SystemClock, SystemEntropy, SystemIds};

/// Crates whose log lines are written at the configured level.
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

/// How often to check whether the gateway is open.
const LOOK: Duration = Duration::from_millis(10);

/// Run the gateway.
#[derive(Debug, Args)]
#[command(
    before_help = "Examples:\n  sluice serve\n  sluice serve --config /etc/sluice/sluice.yaml\n  sluice serve --listen 127.0.0.1:7500 --data ./data\n  sluice serve --frozen"
)]
pub(crate) struct ServeCommand {
    #[command(flatten)]
    which: ConfigFileArgs,
    /// Address and port of the main listener
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Folder for the database and keys
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Start frozen: no call is allowed and nothing is sent until `sluice unfreeze`
    #[arg(long)]
    frozen: bool,
}

impl ServeCommand {
    pub(crate) fn run(self, screen: &CommandConsole) -> Result<CommandExit, CliError> {
        let listen = self.listen.map(|value| CommandLineFlag { name: "--listen", key: "listen", value });
        let data = self.data.map(|value| CommandLineFlag { name: "--data", key: "data", value });
        let layers = self.which.layers(listen.into_iter().chain(data).collect())?;
        if layers.is_unconfigured() {
            return Err(CliError::new(CommandExit::NotFound, "no configuration found, so no gateway can be started")
                .why("no sluice.yaml in this folder, in a parent folder or in the user's configuration")
                .hint("create a gateway: sluice init; or give its configuration: sluice serve --config FILE"));
        }
        let (config, _) = LoadedSettings::from(layers.clone()).or_fail(screen)?;
        log(&config.log);
        // A core dump of this process would contain every secret in memory.
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        if let Err(error) = setrlimit(Resource::Core, none) {
            tracing::warn!("core dumps cannot be disabled: {error}");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
            CliError::new(CommandExit::Failed, "the gateway cannot start").why(describe_io_error(&error))
        })?;
        runtime.block_on(run_gateway(config, layers, self.frozen, screen))
    }
}

async fn run_gateway(
    config: Config,
    layers: ConfigLayers,
    frozen: bool,
    screen: &CommandConsole,
) -> Result<CommandExit, CliError> {
    let world = GatewayDeps {
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
        let first = open::freeze_all_at_start(&gw).await.map_err(|error| not_opened(error, &policies, screen))?;
        let how = if first { "everything is frozen" } else { "everything was already frozen" };
        screen.note(format_args!("{how}; to lift the freeze: sluice unfreeze"));
    }
    gw.mounts.follow(Box::new(move || layers.read().map(|(config, _)| config)));
    workers(&gw, &world)?;
    let bound = serve::bind(&gw).await.map_err(not_served)?;
    let (main, stop) = (bound.address()?, bound.stop_address()?);
    let (tell, told) = watch::channel(false);
    let served = serve::serve(Arc::clone(&gw), bound, told);
    tokio::pin!(served);
    let mut look = tokio::time::interval(LOOK);
    let failed = |error: std::io::Error| {
        CliError::new(CommandExit::Failed, "signals cannot be received").why(describe_io_error(&error))
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    let mut said = false;
    let (mut invited, is_terminal) = (false, screen.is_terminal());
    let announced = questions::announce_all(&gw, screen);
    tokio::pin!(announced);
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                ended.map_err(not_served)?;
                return Ok(CommandExit::Ok);
            }
            _ = look.tick(), if !said => {
                if gw.phase() == GatewayPhase::Open {
                    said = true;
                    screen.line(format_args!("listening on {scheme}://{main} (emergency-stop port: {scheme}://{stop})"))?;
                }
            }
            () = invite(&gw, scheme, main, screen), if said && is_terminal && !invited => invited = true,
            () = announced.as_mut(), if said && screen.is_terminal() => {}
            _ = terminate.recv() => end(&tell),
            _ = interrupt.recv() => end(&tell),
            _ = hang_up.recv() => reload(&gw).await,
        }
    }
}

/// Shows how to open the dashboard, with a one-time link as long as nobody was ever signed in.
async fn invite(gw: &Gateway, scheme: &str, main: std::net::SocketAddr, screen: &CommandConsole) {
    let ip = if main.ip().is_unspecified() { std::net::Ipv4Addr::LOCALHOST.into() } else { main.ip() };
    let at = std::net::SocketAddr::new(ip, main.port());
    match dashboard_door::first_sign_in_code(gw).await {
        Ok(Some(code)) => screen.note(format_args!(
            "dashboard: {scheme}://{at}/ui/login#{} (works once, for 10 minutes; later: sluice login)",
            code.expose()
        )),
        Ok(None) => screen.note(format_args!("dashboard: {scheme}://{at}/ (to sign in: sluice login)")),
        Err(no) => tracing::warn!(code = no.refusal.code().as_str(), "no sign-in link could be made: {}", no.refusal),
    }
}

/// Starts the first worker, to find out how well this system isolates workers.
fn workers(gw: &Gateway, world: &GatewayDeps) -> Result<(), CliError> {
    let opened = WorkerProgram::own().map_err(WorkerPoolError::from);
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
            Err(CliError::new(CommandExit::Failed, format!("workers cannot be isolated ({})", error.code()))
                .why(error.to_string())
                .hint("sluice doctor shows each layer; to run without them: `sandbox: degraded` in sluice.yaml"))
        }
    }
}

fn end(tell: &watch::Sender<bool>) {
    tracing::info!("stopping: no new calls are accepted, running writes finish, held writes stay held");
    tell.send_replace(true);
}

async fn reload(gw: &Gateway) {
    let node = Actor::Node(gw.store.node().clone());
    match loops::policy::reload(gw, node.clone()).await {
        Ok(Some(version)) => tracing::info!(policy = %version, "the new policy is in force: {version}"),
        Ok(None) => tracing::info!("the policy did not change"),
        Err(no) => tracing::error!("the new policy was refused, the old one stays in force: {}", no.refusal),
    }
    if let Err(no) = sluice_services::proxies::reload::reload(gw, node.clone()).await {
        tracing::error!("the declarations of proxies could not be loaded: {}", no.refusal);
    }
    match mounts::reload(gw, node).await {
        Ok(done) if done.is_nothing() => tracing::info!("the mounts did not change"),
        Ok(done) => tracing::info!(
            "mounts: {} new, {} changed, {} removed; {} held writes cancelled",
            done.added.len(),
            done.changed.len(),
            done.removed.len(),
            done.cancelled.len()
        ),
        Err(no) => tracing::error!("the mounts were not changed: {}", no.refusal),
    }
}

/// Log lines go to stderr: as text on a terminal, as JSON elsewhere.
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
    // Other crates log only warnings and errors, whatever our own level is.
    let own: Vec<String> = OWN_CRATES.iter().map(|name| format!("{name}={level}")).collect();
    let ours = EnvFilter::new(format!("warn,rmcp=error,{}", own.join(",")));
    // A line that cannot be written (a log on a full disk) is dropped: reporting that on the same stream would panic
    // in the room that wrote it, and also in the stop lane.
    let lines = tracing_subscriber::fmt().with_env_filter(ours).with_writer(std::io::stderr).with_target(false);
    let lines = lines.log_internal_errors(false);
    // Setting a second subscriber would fail; there is none.
    let _installed = if json { lines.json().try_init() } else { lines.with_ansi(terminal).try_init() };
}

fn not_opened(error: OpenError, policies: &Path, screen: &CommandConsole) -> CliError {
    let code = error.code();
    match error {
        OpenError::Policy(errors) => {
            errors.faults.iter().for_each(|fault| screen.fault(fault));
            CliError::new(CommandExit::Failed, format!("the policy is not valid ({code})"))
                .why(first_problem(&errors))
                .hint(format!("correct the file, then check it: sluice policy check {}", policies.display()))
        }
        other => CliError::new(CommandExit::Failed, format!("the gateway cannot start ({code})"))
            .why(other.to_string())
            .hint("find the cause: sluice doctor"),
    }
}

/// Where the first problem in the policy is, and how many there are: a log often keeps only the last line.
fn first_problem(errors: &PolicyLoadError) -> String {
    let Some(fault) = errors.faults.first() else { return "the problem is not known".to_owned() };
    let more = match errors.faults.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more, above)"),
    };
    format!("{}:{}: {}{more}", fault.file, fault.place.line, fault.message)
}

fn not_served(error: ServeError) -> CliError {
    if let ServeError::Lost(why) = &error {
        let hint = match why {
            FatalGatewayError::Removed => {
                "everything acknowledged before that is in the file; nothing was acknowledged after it"
            }
            FatalGatewayError::Record | FatalGatewayError::Loop => {
                "everything acknowledged is stored; check the disk (sluice doctor), then start the gateway again"
            }
        };
        return CliError::new(CommandExit::Failed, "the gateway had to stop").why(why.to_string()).hint(hint);
    }
    let failure = CliError::new(CommandExit::Failed, "the gateway cannot serve").why(error.to_string());
    match error {
        ServeError::Listen { why, .. } if why.kind() == std::io::ErrorKind::AddrInUse => failure
            .hint("another program uses this port, perhaps another gateway: sluice status; or choose another one: --listen ADDRESS"),
        _ => failure,
    }
}
