//! Checks of this kernel: safe opening of files, and the sandbox layers of workers.

use std::fs;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use sluice_config::{Config, MountTransport, Sandbox};
use sluice_services::workers::{
    self, JailLayer, JailLayerName, JailLayers, Spawner, WorkerLimits, WorkerPoolError, WorkerProgram,
};

use super::{DoctorCheckStatus, DoctorFinding};
use crate::system::SystemClock;

/// Files for agents are opened with openat2, which cannot leave their folder.
pub(super) fn openat2(needed: bool) -> DoctorFinding {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
        Ok(_) => DoctorFinding::new("openat2", DoctorCheckStatus::Ok, "files for agents cannot leave their folder"),
        Err(error) => {
            let state = if needed { DoctorCheckStatus::Fail } else { DoctorCheckStatus::Warn };
            DoctorFinding::new("openat2", state, format!("the kernel refuses openat2 ({error}): agents get no files"))
                .hint("needs Linux 5.6 or newer, and a container that allows openat2")
        }
    }
}

/// How well this system isolates workers: one worker is started to find out.
pub(super) fn layers(sandbox: Sandbox, config: Option<&Config>) -> Vec<DoctorFinding> {
    match locked() {
        Ok(layers) => {
            let mut findings: Vec<DoctorFinding> = layers.iter().map(|layer| row(layer, sandbox)).collect();
            if !layers.has(JailLayerName::Namespaces) {
                findings.extend(config.into_iter().flat_map(without_namespaces));
            }
            findings
        }
        Err(error) => {
            let state = if sandbox == Sandbox::Required { DoctorCheckStatus::Fail } else { DoctorCheckStatus::Warn };
            vec![
                DoctorFinding::new("sandbox", state, format!("no worker can be started ({}): {error}", error.code()))
                    .hint("/proc and /dev/null must be there, and the program must be allowed to start itself"),
            ]
        }
    }
}

/// What happens to mounted programs with `network` where the system allows no namespaces.
fn without_namespaces(config: &Config) -> Vec<DoctorFinding> {
    let networked = config.mounts.0.iter().filter(|mount| match &mount.way {
        MountTransport::Program(program) => !program.network.is_empty(),
        MountTransport::Address(_) => false,
    });
    let finding = |name: &str| match config.sandbox {
        Sandbox::Required => {
            let text = format!("`{name}` has `network`, which needs a network namespace: it is not started");
            DoctorFinding::new("mounts", DoctorCheckStatus::Fail, text)
                .hint("allow user namespaces, or set `sandbox: degraded` to keep it to its hosts by filters alone")
        }
        Sandbox::Degraded => {
            let text = format!("`{name}` shares this machine's network; filters alone keep it to its hosts");
            DoctorFinding::new("mounts", DoctorCheckStatus::Warn, text).hint("allow user namespaces")
        }
    };
    networked.map(|mount| finding(&mount.name)).collect()
}

/// Degraded, so that every layer is tried and reported.
fn locked() -> Result<JailLayers, WorkerPoolError> {
    let spawner = Spawner::new(WorkerProgram::own()?, Arc::new(SystemClock))?;
    workers::probe(&spawner, WorkerLimits::default(), workers::JailMode::Degraded)
}

fn row(layer: &JailLayer, sandbox: Sandbox) -> DoctorFinding {
    let state = match (layer.on, layer.name.is_mandatory(), sandbox) {
        (true, ..) => DoctorCheckStatus::Ok,
        (false, true, Sandbox::Required) => DoctorCheckStatus::Fail,
        (false, true, Sandbox::Degraded) | (false, false, _) => DoctorCheckStatus::Warn,
    };
    let word = if layer.on { "on" } else { "off" };
    let mut message = format!("{word}: {}", layer.detail);
    if let Some(offer) = offer(layer.name) {
        message = format!("{message}; the kernel offers {offer}");
    }
    let finding = DoctorFinding::new(layer.name.as_str(), state, message);
    match hint(layer.name).filter(|_| !layer.on) {
        Some(hint) => finding.hint(hint),
        None => finding,
    }
}

/// The version or setting that the kernel reports, where it reports one.
fn offer(layer: JailLayerName) -> Option<String> {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    match layer {
        JailLayerName::Landlock => {
            Some(workers::landlock_version().map_or_else(|| "none".to_owned(), |version| format!("version {version}")))
        }
        JailLayerName::Seccomp => read("/proc/sys/kernel/seccomp/actions_avail"),
        JailLayerName::Namespaces => Some(
            namespaces(
                read("/proc/sys/user/max_user_namespaces").as_deref(),
                read("/proc/sys/kernel/unprivileged_userns_clone").as_deref(),
                read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref(),
            )
            .to_owned(),
        ),
        JailLayerName::Descriptors
        | JailLayerName::Environment
        | JailLayerName::Limits
        | JailLayerName::Privileges
        | JailLayerName::Dumpable
        | JailLayerName::EmptyRoot => None,
    }
}

fn hint(layer: JailLayerName) -> Option<&'static str> {
    match layer {
        JailLayerName::Landlock => {
            Some("needs Linux 5.13 or newer, booted with landlock among lsm=…, in a container that allows it")
        }
        JailLayerName::Seccomp => Some("needs x86_64 and a kernel with CONFIG_SECCOMP_FILTER"),
        JailLayerName::Namespaces | JailLayerName::EmptyRoot => {
            Some("allow user namespaces (sysctl user.max_user_namespaces, AppArmor, the container's seccomp profile)")
        }
        JailLayerName::Descriptors => Some("needs Linux 5.11 or newer, and a container that allows close_range"),
        JailLayerName::Environment | JailLayerName::Limits | JailLayerName::Privileges | JailLayerName::Dumpable => {
            None
        }
    }
}

fn namespaces(most: Option<&str>, debian: Option<&str>, apparmor: Option<&str>) -> &'static str {
    match (most, debian, apparmor) {
        (None, _, _) => "an unknown number of namespaces",
        (Some("0"), _, _) | (_, Some("0"), _) => "no namespaces for users",
        (_, _, Some("1")) => "namespaces, restricted by AppArmor",
        (Some(_), _, _) => "namespaces for users",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_on_only_if_nothing_turns_them_off() {
        assert_eq!(namespaces(Some("15000"), None, None), "namespaces for users");
        assert_eq!(namespaces(Some("0"), None, None), "no namespaces for users");
        assert_eq!(namespaces(Some("15000"), Some("0"), None), "no namespaces for users");
        assert_eq!(namespaces(Some("15000"), Some("1"), Some("1")), "namespaces, restricted by AppArmor");
        assert_eq!(namespaces(None, None, None), "an unknown number of namespaces");
    }

    #[test]
    fn a_missing_layer_fails_only_where_it_is_required() {
        let layer = |name, on| JailLayer { name, on, detail: "d".into() };
        let state = |name, on, sandbox| row(&layer(name, on), sandbox).state;
        assert_eq!(state(JailLayerName::Seccomp, true, Sandbox::Required), DoctorCheckStatus::Ok);
        assert_eq!(state(JailLayerName::Seccomp, false, Sandbox::Required), DoctorCheckStatus::Fail);
        assert_eq!(state(JailLayerName::Seccomp, false, Sandbox::Degraded), DoctorCheckStatus::Warn);
        assert_eq!(state(JailLayerName::Namespaces, false, Sandbox::Required), DoctorCheckStatus::Warn);
        assert!(row(&layer(JailLayerName::Landlock, false), Sandbox::Required).hint.is_some());
    }
}
