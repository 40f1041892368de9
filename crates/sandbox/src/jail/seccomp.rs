//! Seccomp: allows the system calls of the list, and kills the process on any other.
//!
//! The list is `filters/worker.<arch>.json`, with a reason for each call; the build compiles it. A call that is not in
//! it kills the process with SIGSYS, which the parent reports as forbidden: honest code never does it.

use seccompiler::{BpfProgram, apply_filter, sock_filter};

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

/// Placeholder in the list for the number of the process itself.
const OWN_PROCESS: u32 = 2_061_584_302;

/// Why the filter is not in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SeccompError {
    /// There is no list for this processor.
    #[error("there is no list of system calls for this processor")]
    NoList,
    /// The kernel refused the filter.
    #[error("{0}")]
    Refused(#[from] seccompiler::Error),
}

/// The system calls that a process may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyscallList {
    /// The calls of every worker.
    Plain,
    /// The same, plus files of a scratch folder.
    Scratch,
    /// The same, plus what forking needs.
    Mould,
}

/// Loads the filter. It is the last lock: it forbids the calls with which the other locks were set.
pub(crate) fn load(list: SyscallList, own_process: u32) -> Result<String, SeccompError> {
    let steps = match list {
        SyscallList::Plain => PLAIN,
        SyscallList::Scratch => SCRATCH,
        SyscallList::Mould => MOULD,
    };
    let filter = program(steps, own_process);
    if filter.is_empty() {
        return Err(SeccompError::NoList);
    }
    apply_filter(&filter)?;
    Ok(format!("{} instructions", filter.len()))
}

fn program(steps: &[(u16, u8, u8, u32)], own_process: u32) -> BpfProgram {
    let own = |k: u32| if k == OWN_PROCESS { own_process } else { k };
    steps.iter().map(|(code, jt, jf, k)| sock_filter { code: *code, jt: *jt, jf: *jf, k: own(*k) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_process_is_put_in_exactly_once() {
        for steps in [PLAIN, SCRATCH] {
            let count = |program: &BpfProgram, k: u32| program.iter().filter(|step| step.k == k).count();
            assert_eq!(count(&program(steps, OWN_PROCESS), OWN_PROCESS), 1);
            let filter = program(steps, 4_000_001);
            assert_eq!((count(&filter, OWN_PROCESS), count(&filter, 4_000_001)), (0, 1));
        }
    }

    #[test]
    fn what_a_worker_must_never_do_is_not_in_the_list() {
        let list: serde_json::Value = serde_json::from_str(include_str!("../../filters/worker.x86_64.json")).unwrap();
        let names: Vec<&str> = list
            .as_object()
            .unwrap()
            .iter()
            // A zygote has never seen a job, and its forks load the list of every worker first.
            .filter(|(name, _)| *name != "mould")
            .flat_map(|(_, part)| part["filter"].as_array().unwrap())
            .map(|rule| rule["syscall"].as_str().unwrap())
            .collect();
        let never = [
            "socket",
            "connect",
            "bind",
            "socketpair",
            "sendmsg",
            "sendto",
            "recvmsg",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "clone",
            "clone3",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_open",
            "pidfd_getfd",
            "kill",
            "io_uring_setup",
            "io_uring_enter",
            "bpf",
            "perf_event_open",
            "userfaultfd",
            "keyctl",
            "add_key",
            "mount",
            "umount2",
            "pivot_root",
            "unshare",
            "setns",
            "memfd_create",
            "memfd_secret",
            "prctl",
            "seccomp",
            "ioctl",
            "open",
            "openat2",
            "open_by_handle_at",
            "name_to_handle_at",
            "setrlimit",
            "prlimit64",
            "dup",
            "dup2",
            "dup3",
            "symlinkat",
            "linkat",
            "mknodat",
            "chmod",
            "fchmod",
            "personality",
        ];
        assert!(names.len() > 20);
        for name in never {
            assert!(!names.contains(&name), "{name}");
        }
    }
}
