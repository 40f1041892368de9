//! A third-party program as a process: its start terms and its end.
//!
//! Takes the mount and the vault; gives the process and its pipes. Promise: it has the declared environment and nothing
//! of the gateway's, a folder of its own, and it is dead when this is dropped or the gateway ends.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_config::{EnvValue, MountConfig, MountProgram};
use sluice_core::Actor;
use sluice_core::ids::ConnectionName;
use sluice_egress::vault::SecretUse;
use tokio::net::unix::pipe;
use tokio::sync::{oneshot, watch};

use super::{MountsDeps, runtimes};
use crate::workers::{
    GatewayWorkers, JailLayers, JailMode, ThirdPartyNetwork, ThirdPartyProcess, ThirdPartyProfile, ThirdPartyTerms,
    WorkerCancel,
};

/// Where commands without a path are looked up, and the `PATH` that programs get.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Largest file a program may write.
const FILE_BYTES: u64 = 1 << 30;
/// Most processes and threads of a program.
const PROCESSES: u64 = 512;

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub(super) struct MountProcess {
    cancel: WorkerCancel,
    /// The layers that lock it in.
    pub(super) layers: JailLayers,
}

/// Its three standard descriptors, from our side.
#[derive(Debug)]
pub(super) struct MountProcessPipes {
    pub(super) input: pipe::Sender,
    pub(super) output: pipe::Receiver,
    pub(super) error: pipe::Receiver,
    /// Listens at the only port of its own network namespace, if it has one.
    pub(super) listener: Option<OwnedFd>,
}

impl Drop for MountProcess {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Counts a program as long as it lives.
#[derive(Debug)]
pub(super) struct LiveProgramGuard(Arc<watch::Sender<usize>>);

impl LiveProgramGuard {
    pub(super) fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for LiveProgramGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Starts a program on its own thread, which lives as long as the program.
pub(super) async fn start(
    workers: Arc<GatewayWorkers>,
    name: &str,
    terms: ThirdPartyTerms,
    alive: LiveProgramGuard,
) -> Result<(MountProcess, MountProcessPipes), String> {
    let cancel = WorkerCancel::new().map_err(|error| error.to_string())?;
    let (tell, told) = oneshot::channel();
    let watched = cancel.clone();
    let thread = std::thread::Builder::new().name(format!("mount-{name}"));
    let begun = thread.spawn(move || {
        let _alive = alive;
        match workers.start_third_party(terms) {
            Ok(mut stranger) => {
                let pipes = (stranger.input.take(), stranger.output.take(), stranger.error.take());
                let parts = (stranger.layers.clone(), pipes, stranger.listener.take());
                if tell.send(Ok(parts)).is_ok() {
                    ThirdPartyProcess::wait(stranger, &watched);
                }
            }
            Err(error) => drop(tell.send(Err(error.to_string()))),
        }
    });
    begun.map_err(|error| format!("no thread could be started for it: {error}"))?;
    let (layers, (input, output, error), listener) = told.await.map_err(|_| "it was not started".to_owned())??;
    let child = MountProcess { cancel, layers };
    let (Some(input), Some(output), Some(error)) = (input, output, error) else {
        return Err("it has no pipes".into());
    };
    let broken = |error: std::io::Error| format!("its pipes cannot be used: {error}");
    let pipes = MountProcessPipes {
        input: pipe::Sender::from_owned_fd(input).map_err(broken)?,
        output: pipe::Receiver::from_owned_fd(output).map_err(broken)?,
        error: pipe::Receiver::from_owned_fd(error).map_err(broken)?,
        listener,
    };
    Ok((child, pipes))
}

/// The start terms of a program. `network` says how it reaches its hosts.
pub(super) async fn terms(
    deps: &MountsDeps,
    mount: &MountConfig,
    program: &MountProgram,
    network: ThirdPartyNetwork,
) -> Result<ThirdPartyTerms, String> {
    let own = deps.folder.join(&mount.name);
    let (home, temp) = (own.join("home"), own.join("tmp"));
    for folder in [&home, &temp] {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| format!("its folder `{}` cannot be made: {error}", folder.display()))?;
    }
    let text = |path: &Path| path.display().to_string();
    let mut environment = vec![
        ("PATH".to_owned(), PATH.to_owned()),
        ("HOME".to_owned(), text(&home)),
        ("TMPDIR".to_owned(), text(&temp)),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ];
    if let Some(port) = network.port() {
        environment.extend(runtimes::variables(&own, port)?);
    }
    for (name, value) in &program.env {
        let value = match value {
            EnvValue::Plain(text) => text.clone(),
            EnvValue::Vault(secret) => secret_for(deps, mount, program, secret).await?,
        };
        runtimes::set(&mut environment, name, value);
    }
    let mut write = program.write.clone();
    write.push(own);
    Ok(ThirdPartyTerms {
        program: find(&program.command)?,
        arguments: program.args.clone(),
        environment,
        folder: program.folder.clone().unwrap_or(home),
        read: program.read.clone(),
        look: Vec::new(),
        write,
        pinned: Vec::new(),
        network,
        memory: program.memory.as_bytes(),
        file_bytes: FILE_BYTES,
        processes: PROCESSES,
        profile: ThirdPartyProfile::Server,
        mode: JailMode::Required,
        namespaces: Ok(()),
    })
}

/// A secret for the environment. It must be bound to the mount (`name.*`) and to each host that the program may reach;
/// to `localhost` if it may reach none.
async fn secret_for(
    deps: &MountsDeps,
    mount: &MountConfig,
    program: &MountProgram,
    secret: &sluice_core::ids::SecretName,
) -> Result<String, String> {
    let connection = ConnectionName::new(format!("mount.{}", mount.name)).map_err(|error| error.to_string())?;
    let mut hosts: Vec<String> = program.network.iter().map(ToString::to_string).collect();
    if hosts.is_empty() {
        hosts.push("localhost".into());
    }
    let capability = format!("{}.start", mount.name);
    let by = Actor::Node(deps.store.node().clone());
    let wanted = SecretUse { capability: &capability, connection: &connection, hosts: &hosts, by };
    let taken = deps.vault.take(secret, &wanted).await;
    let taken = taken.map_err(|error| format!("the secret `{secret}` cannot be used: {error}"))?;
    String::from_utf8(taken.expose().to_vec()).map_err(|_| format!("the secret `{secret}` is not text"))
}

/// The full path of a command.
fn find(command: &str) -> Result<PathBuf, String> {
    let runs =
        |path: &Path| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![PathBuf::from(command)]
    } else {
        PATH.split(':').map(|folder| Path::new(folder).join(command)).collect()
    };
    let found = candidates.into_iter().find(|path| runs(path));
    found.ok_or_else(|| format!("there is no program `{command}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_by_path_or_in_the_usual_folders() {
        assert!(find("sh").unwrap().is_absolute());
        assert_eq!(find("/bin/sh").unwrap(), Path::new("/bin/sh"));
        assert!(find("/etc/passwd").is_err(), "not a program");
        assert!(find("no-such-program").unwrap_err().contains("no-such-program"));
    }
}
