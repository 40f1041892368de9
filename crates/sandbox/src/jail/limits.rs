//! Resource limits of a worker, enforced by the kernel.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::third_party;
use sluice_protocol::WorkerTerms;

/// Open files: its own five, one while Landlock is set up, and a few of the scratch folder.
const FILES: u64 = 24;
/// The stack, which parsers of nested data exhaust first.
const STACK: u64 = 8 << 20;
/// Most forks of a zygote at once.
const COPIES: u64 = 256;

/// Sets every limit, soft and hard alike, so that none can be raised again.
pub(crate) fn set(terms: &WorkerTerms) -> rustix::io::Result<String> {
    let processes = match (terms.mould, &terms.namespaces) {
        (false, _) => Some(0),
        (true, Ok(())) => Some(COPIES),
        // Without a namespace, all processes of the user count: here the forks lower the limit for themselves.
        (true, Err(_)) => None,
    };
    let limits = [
        // Address space bounds resident memory too: a worker cannot get memory outside of it.
        (Resource::As, terms.memory),
        // The kernel counts in whole seconds and kills at the hard limit; nothing can catch that.
        (Resource::Cpu, terms.cpu_seconds.max(1)),
        (Resource::Nofile, FILES),
        (Resource::Fsize, terms.scratch_bytes.unwrap_or(0)),
        // A core dump would hold everything that the worker has read.
        (Resource::Core, 0),
        (Resource::Stack, STACK),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
        (Resource::Sigpending, 16),
    ];
    for (resource, most) in limits.into_iter().chain(processes.map(|most| (Resource::Nproc, most))) {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(in_words(terms.memory, terms.cpu_seconds))
}

/// The lower limits of a fork: no processes, and its own processor time, counted from its start.
pub(crate) fn lower(memory: u64, cpu_seconds: u64) -> rustix::io::Result<String> {
    for (resource, most) in [(Resource::Nproc, 0), (Resource::Cpu, cpu_seconds.max(1))] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(in_words(memory, cpu_seconds))
}

fn in_words(memory: u64, cpu_seconds: u64) -> String {
    format!("{} MB, {} s of processor time", memory >> 20, cpu_seconds.max(1))
}

/// The limits of the looser profile. Address space is not limited: interpreters reserve far more than they use.
pub(crate) fn set_wide(terms: &third_party::ThirdPartyTerms) -> rustix::io::Result<String> {
    let mut limits = vec![
        // Private writable memory, including stacks of threads.
        (Resource::Data, terms.memory),
        (Resource::Nofile, 1024),
        (Resource::Fsize, terms.file_bytes),
        (Resource::Core, 0),
        (Resource::Memlock, 64 << 10),
        (Resource::Msgqueue, 0),
    ];
    if let third_party::ThirdPartyProfile::Job { cpu_seconds } | third_party::ThirdPartyProfile::Tool { cpu_seconds } =
        terms.profile
    {
        limits.push((Resource::Cpu, cpu_seconds.max(1)));
    }
    // The kernel counts per user: only with a user namespace does it count this program's processes alone.
    if terms.namespaces.is_ok() {
        limits.push((Resource::Nproc, terms.processes));
    }
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(format!("{} MB of memory, {} MB a file", terms.memory >> 20, terms.file_bytes >> 20))
}
