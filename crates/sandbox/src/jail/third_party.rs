//! Landlock and seccomp of the looser profile: named files, perhaps one port, and no calls that bypass them.

mod sockets;

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

use crate::third_party::{PinnedFolder, ThirdPartyProfile, ThirdPartyTerms};

/// What every kernel with Landlock refuses; without these there is no layer.
const LEAST: ABI = ABI::V1;
/// What newer kernels refuse as well.
const MOST: ABI = ABI::V6;
/// Folders with programs and their libraries.
const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives"];
/// Files that programs look up, one by one: none of them is secret, but files beside them may be.
const LOOKED_UP: [&str; 30] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld-musl-x86_64.path",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/protocols",
    "/etc/services",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/gitconfig",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/ca-certificates",
    "/proc/self",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu",
];
/// Files that even a program for one job looks up: the places of its libraries, and the time zone.
const LOADED_BY: [&str; 5] =
    ["/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/localtime"];
/// Files that the kernel executes to load a dynamically linked program.
const LOADERS: [&str; 5] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux-armhf.so.3",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];
const DEVICES_READ: [&str; 2] = ["/dev/urandom", "/dev/random"];
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// Why a layer is not in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThirdPartyJailError {
    /// A named file or folder cannot be opened.
    #[error("`{0}`: {1}")]
    Path(String, String),
    /// The kernel refused.
    #[error("{0}")]
    Rules(#[from] RulesetError),
    /// The kernel did not enforce it.
    #[error("this kernel does not enforce it")]
    NotEnforced,
    /// This kernel cannot restrict a program to one port.
    #[error("this kernel cannot restrict a program to one port (Landlock version 4 is needed)")]
    NoPorts,
    /// The filter cannot be built or loaded.
    #[error("{0}")]
    Filter(String),
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

fn running() -> BitFlags<AccessFs> {
    reading() | AccessFs::Execute
}

/// Every access except executing and creating devices.
fn changing() -> BitFlags<AccessFs> {
    let never = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    AccessFs::from_all(MOST) & !never
}

/// Restricts this thread, the only one, to the files of the terms and what programs need.
pub(crate) fn files(terms: &ThirdPartyTerms) -> Result<String, ThirdPartyJailError> {
    if terms.network.port().is_some() && super::landlock::version().is_none_or(|version| version < 4) {
        return Err(ThirdPartyJailError::NoPorts);
    }
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(MOST))?
        .handle_access(AccessNet::from_all(MOST))?
        .scope(Scope::from_all(MOST))?;
    let looked_up: &[&str] = match terms.profile {
        ThirdPartyProfile::Server => &LOOKED_UP,
        ThirdPartyProfile::Job { .. } | ThirdPartyProfile::Tool { .. } => &LOADED_BY,
    };
    let (installed, loaders): (_, &[&str]) = match terms.profile {
        ThirdPartyProfile::Server | ThirdPartyProfile::Job { .. } => (running(), &[]),
        ThirdPartyProfile::Tool { .. } => (reading(), &LOADERS),
    };
    let mut created = ruleset
        .create()?
        .add_rules(path_beneath_rules(PROGRAMS, installed))?
        .add_rules(path_beneath_rules(loaders, AccessFs::ReadFile | AccessFs::Execute))?
        .add_rules(path_beneath_rules(looked_up, reading()))?
        .add_rules(path_beneath_rules(DEVICES_READ, reading()))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?;
    let named = terms.read.iter().chain([&terms.program]).map(|path| (path, running()));
    let looked_at = terms.look.iter().map(|path| (path, reading()));
    for (path, access) in named.chain(looked_at).chain(terms.write.iter().map(|path| (path, changing()))) {
        created = created.add_rule(beneath(path, access, &terms.pinned)?)?;
    }
    if let Some(port) = terms.network.port() {
        created = created.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    let status = created.restrict_self()?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        return Err(ThirdPartyJailError::NotEnforced);
    }
    let port = terms.network.port().map_or_else(|| "no port".to_owned(), |port| format!("port {port} only"));
    Ok(format!("{} folders to read, {} to change, {port}", terms.read.len(), terms.write.len()))
}

fn beneath(
    path: &Path,
    access: BitFlags<AccessFs>,
    pinned: &[PinnedFolder],
) -> Result<PathBeneath<PathFd>, ThirdPartyJailError> {
    let refused = |why: String| ThirdPartyJailError::Path(path.display().to_string(), why);
    let is_folder = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.is_dir();
    let opened = PathFd::new(path).map_err(|error| refused(error.to_string()))?;
    // SECURITY: names can be swapped between the check and here; the rule applies to what was opened.
    if let Some(pin) = pinned.iter().find(|pin| pin.path == path) {
        let found = rustix::fs::fstat(&opened).map_err(|error| refused(error.to_string()))?;
        if (found.st_dev, found.st_ino) != (pin.device, pin.inode) {
            return Err(refused("it is not the folder that was checked".to_owned()));
        }
    }
    let access = if is_folder { access } else { access & AccessFs::from_file(MOST) };
    Ok(PathBeneath::new(opened, access))
}

/// Calls that bypass the other locks, or reach what no tool server needs.
const NEVER: [i64; 38] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
];
/// Calls whose arguments a filter cannot see, or that act for others: programs manage without them when they do not
/// exist.
const ABSENT: [i64; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Calls that start another process. Threads are started only by `clone`, which is identified by its flags.
#[cfg(target_arch = "x86_64")]
const PROCESSES: [i64; 2] = [libc::SYS_fork, libc::SYS_vfork];
/// Calls that start another process. This processor has only `clone`.
#[cfg(not(target_arch = "x86_64"))]
const PROCESSES: [i64; 0] = [];

/// The bit in a call number that selects the 32-bit pointers of x86-64 (x32). The same calls have other numbers there,
/// so a list of forbidden numbers would not match them.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Refuses every call of x32.
#[cfg(target_arch = "x86_64")]
fn no_x32(refuse_with: u32) -> BpfProgram {
    let step = |code: u32, jt: u8, k: u32| sock_filter { code: code as u16, jt, jf: 0, k };
    vec![
        // The call number is the first word that a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, refuse_with),
    ]
}

/// Loads the filters. They are the last lock.
pub(crate) fn calls(with_network: bool, profile: ThirdPartyProfile) -> Result<String, ThirdPartyJailError> {
    let broken = |error: &dyn std::fmt::Display| ThirdPartyJailError::Filter(error.to_string());
    let errno = |errno: i32| u32::try_from(errno).map(SeccompAction::Errno).map_err(|error| broken(&error));
    let forbidden = match profile {
        ThirdPartyProfile::Server | ThirdPartyProfile::Tool { .. } => errno(libc::EPERM)?,
        ThirdPartyProfile::Job { .. } => SeccompAction::KillProcess,
    };
    #[cfg(target_arch = "x86_64")]
    apply_filter(&no_x32(u32::from(forbidden.clone()))).map_err(|error| broken(&error))?;
    for (rules, action) in [(absent(), errno(libc::ENOSYS)?), (never(with_network, profile)?, forbidden)] {
        let arch = std::env::consts::ARCH.try_into().map_err(|error: seccompiler::BackendError| broken(&error))?;
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch);
        let filter: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| broken(&error))?;
        apply_filter(&filter).map_err(|error| broken(&error))?;
    }
    let sockets = if with_network { "TCP only" } else { "no sockets" };
    let processes = match profile {
        ThirdPartyProfile::Server | ThirdPartyProfile::Tool { .. } => "",
        ThirdPartyProfile::Job { .. } => ", one process, death for any of them",
    };
    Ok(format!("{} calls refused, {sockets}{processes}", NEVER.len() + ABSENT.len()))
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// A rule that matches where all its conditions hold: argument number, comparison, value. The kernel reads these
/// arguments as `int`, so only their lower half is compared.
fn rule(conditions: &[(u8, SeccompCmpOp, i32)]) -> Result<SeccompRule, ThirdPartyJailError> {
    let one = |(at, how, value): &(u8, SeccompCmpOp, i32)| {
        SeccompCondition::new(*at, SeccompCmpArgLen::Dword, how.clone(), bits(*value))
    };
    let all: Result<Vec<_>, _> = conditions.iter().map(one).collect();
    all.and_then(SeccompRule::new).map_err(|error| ThirdPartyJailError::Filter(error.to_string()))
}

fn bits(value: i32) -> u64 {
    u64::from(u32::from_ne_bytes(value.to_ne_bytes()))
}

fn absent() -> SyscallRules {
    ABSENT.into_iter().map(|call| (call, Vec::new())).collect()
}

fn never(with_network: bool, profile: ThirdPartyProfile) -> Result<SyscallRules, ThirdPartyJailError> {
    let mut rules: SyscallRules = NEVER.into_iter().map(|call| (call, Vec::new())).collect();
    // A new user namespace could give capabilities again.
    let new_users = SeccompCmpOp::MaskedEq(bits(libc::CLONE_NEWUSER));
    let mut clones = vec![rule(&[(0, new_users, libc::CLONE_NEWUSER)])?];
    if let ThirdPartyProfile::Job { .. } = profile {
        clones.push(rule(&[(0, SeccompCmpOp::MaskedEq(bits(libc::CLONE_THREAD)), 0)])?);
        rules.extend(PROCESSES.map(|call| (call, Vec::new())));
    }
    rules.insert(libc::SYS_clone, clones);
    rules.extend(sockets::rules(with_network)?);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_filters_compile_with_and_without_a_network() {
        let job = ThirdPartyProfile::Job { cpu_seconds: 1 };
        let all = [(false, ThirdPartyProfile::Server), (true, ThirdPartyProfile::Server), (false, job)]
            .map(|(net, how)| never(net, how));
        for rules in all.into_iter().map(Result::unwrap).chain([absent()]) {
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(1), arch).unwrap();
            let program: BpfProgram = filter.try_into().unwrap();
            assert!(program.len() > 8);
        }
    }

    #[test]
    fn what_may_be_changed_cannot_be_executed() {
        assert!(!changing().contains(AccessFs::Execute));
        assert!(changing().contains(AccessFs::WriteFile | AccessFs::MakeDir | AccessFs::Refer));
    }
}
