//! Runs programs of this machine, locked in, until they end.
//!
//! Takes the start terms of a program, its input, and limits on time and output; gives how it ended and its output.
//! Promise: it is dead when this returns, when its caller goes away, and when the gateway ends.

pub mod connect_proxy;

use std::fs::{DirBuilder, File, Metadata};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::workers::{GatewayWorkers, ProgramExit, ThirdPartyProcess, ThirdPartyTerms, WorkerCancel, WorkerPoolError};

/// Where programs without a path are looked up.
pub const FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// Most bytes of a program's error output that are kept.
const COMPLAINTS: usize = 64 << 10;
/// Largest program whose content is hashed.
const HASHED: u64 = 256 << 20;

/// A program to run.
pub struct ProgramTask {
    /// Its start terms.
    pub terms: ThirdPartyTerms,
    /// Its standard input.
    pub input: Vec<u8>,
    /// How long it may run.
    pub time: Duration,
    /// Most bytes of its output.
    pub most: usize,
    /// Receives the listening socket of its own network, if it has one.
    pub listener: Option<Box<dyn FnOnce(OwnedFd) + Send>>,
}

/// A program that ended.
#[derive(Debug)]
pub struct ProgramOutcome {
    /// How it ended.
    pub exit: ProgramExit,
    /// Its standard output.
    pub output: Vec<u8>,
    /// Its error output.
    pub complaints: Vec<u8>,
    /// Whether its output was larger than what is kept.
    pub is_cut: bool,
}

impl ProgramOutcome {
    /// Whether its exit code reports success.
    pub fn is_success(&self) -> bool {
        self.exit == ProgramExit::Code(0)
    }
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum ProgramTaskError {
    /// It was not started, or not locked in.
    #[error("it was not started: {0}")]
    NotStarted(#[from] WorkerPoolError),
    /// The system gave no thread or descriptor for it.
    #[error("it cannot be watched: {0}")]
    System(#[from] std::io::Error),
    /// It took too long and was killed.
    #[error("it took too long")]
    TooSlow,
}

/// Ends the program when its caller goes away.
struct CancelProgramOnDrop(WorkerCancel);

impl Drop for CancelProgramOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Runs a program to its end.
pub async fn run(workers: &Arc<GatewayWorkers>, task: ProgramTask) -> Result<ProgramOutcome, ProgramTaskError> {
    let cancel = WorkerCancel::new()?;
    let ending = CancelProgramOnDrop(cancel.clone());
    let (tell, mut told) = oneshot::channel();
    let (time, workers) = (task.time, Arc::clone(workers));
    // A thread of its own: the program ends with the thread that started it.
    std::thread::Builder::new().name("program".into()).spawn(move || {
        // The caller may have gone.
        let _told = tell.send(to_the_end(&workers, task, &cancel));
    })?;
    match timeout(time, &mut told).await {
        Ok(ended) => ended.unwrap_or_else(|_| Err(std::io::Error::other("its thread ended").into())),
        Err(_) => {
            ending.0.cancel();
            let _dead = told.await;
            Err(ProgramTaskError::TooSlow)
        }
    }
}

fn to_the_end(
    workers: &GatewayWorkers,
    task: ProgramTask,
    cancel: &WorkerCancel,
) -> Result<ProgramOutcome, ProgramTaskError> {
    let ProgramTask { terms, input, most, listener, time: _ } = task;
    let mut program: ThirdPartyProcess = workers.start_third_party(terms)?;
    if let (Some(take), Some(socket)) = (listener, program.listener.take()) {
        take(socket);
    }
    let (reads, says, complains) = (program.input.take(), program.output.take(), program.error.take());
    let is_cut = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(move || {
            if let Some(reads) = reads {
                // The program may stop reading before the end.
                let _written = File::from(reads).write_all(&input);
            }
        });
        let output = threads.spawn(|| {
            let (said, more) = says.map(|fd| read_some(fd, most)).unwrap_or_default();
            if more {
                is_cut.store(true, Ordering::Relaxed);
                cancel.cancel();
            }
            said
        });
        let complaints = threads.spawn(|| complains.map(|fd| read_some(fd, COMPLAINTS).0).unwrap_or_default());
        let (exit, _) = program.wait_for_exit(cancel);
        let [output, complaints] = [output, complaints].map(|reader| reader.join().unwrap_or_default());
        Ok(ProgramOutcome { exit, output, complaints, is_cut: is_cut.load(Ordering::Relaxed) })
    })
}

/// Reads at most this many bytes, and returns whether there were more.
fn read_some(from: OwnedFd, most: usize) -> (Vec<u8>, bool) {
    let mut said = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    // Output that cannot be read counts as missing.
    let _read = File::from(from).take(limit).read_to_end(&mut said);
    let more = said.len() > most;
    said.truncate(most);
    (said, more)
}

/// The full path of a program: unchanged if it is a path, else searched in the usual folders.
pub fn find(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let runs =
        |path: &Path| path.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let candidates: Vec<PathBuf> = if name.starts_with('/') {
        vec![PathBuf::from(name)]
    } else if name.contains('/') {
        return None;
    } else {
        FOLDERS.iter().map(|folder| Path::new(folder).join(name)).collect()
    };
    candidates.into_iter().find(|path| runs(path))
}

/// A fingerprint of a program file, and the metadata of the file that was read for it.
pub fn fingerprint_file(path: &Path) -> std::io::Result<(String, Metadata)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    if about.len() > HASHED {
        let print = format!("inode {} changed {}.{:09}", about.ino(), about.mtime(), about.mtime_nsec());
        return Ok((print, about));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((format!("sha256 {}", sluice_core::hex::encode(&hash.finalize())), about));
        }
        hash.update(buffer.get(..count).unwrap_or_default());
    }
}

/// The folder of one run, only for its owner; removed when this is dropped.
#[derive(Debug)]
pub struct PrivateRunFolder(PathBuf);

impl PrivateRunFolder {
    pub fn new(path: PathBuf) -> std::io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateRunFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("the folder of a finished program could not be removed: {error}");
        }
    }
}
